//! What is kept of the archive.

use serde_json::Value;

use crate::support::program::program;
use crate::support::server::ACCOUNT;
use crate::support::session::Session;
use crate::support::{Ended, Site, wait_until};

/// A source with `files` binlog files of a few hundred kilobytes each.
fn site_with_files(files: u32) -> Site {
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)");
    for _ in 0..files {
        add_file(&site);
    }
    site
}

fn add_file(site: &Site) {
    site.source
        .sql("INSERT INTO d.t (v) VALUES (REPEAT('x', 300000)); INSERT INTO d.t (v) VALUES ('y'); FLUSH BINARY LOGS");
}

fn list(site: &Site) -> Vec<Value> {
    let mut files = vec![];
    // A file that is removed at this moment is not found.
    wait_until("a list", || {
        let output = program().args(["archive", "list", "--json"]).arg(site.archive()).output().unwrap();
        files = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success()
    });
    files
}

fn names(site: &Site) -> Vec<String> {
    list(site).iter().map(|file| file["file"].as_str().unwrap().to_owned()).collect()
}

fn purge(site: &Site, options: &[&str]) -> Ended {
    let mut command = program();
    command.args(["archive", "purge"]).arg(site.archive()).args(options);
    site.run(command)
}

#[test]
fn archive_list_shows_files_and_transactions() {
    let site = site_with_files(3);
    site.catch_up(&["--start", "earliest"]);
    let files = list(&site);
    assert_eq!(files.len(), 4, "{files:?}");
    let gtid = |server_sql: &str| site.source.sql(server_sql);
    assert_eq!(files[0]["file"], "source.000001");
    assert_eq!(
        (&files[0]["first_seqno"], &files[0]["last_seqno"], &files[0]["transactions"]),
        (&1.into(), &2.into(), &2.into())
    );
    assert_eq!(files[2]["last_gtid"], gtid("SELECT @@gtid_binlog_pos").as_str());
    assert_eq!(files[1]["first_seqno"], 3);
    assert!(files[1]["bytes"].as_u64() > Some(300_000), "{files:?}");
    assert!(files[1]["first_commit_seconds"].as_u64() > Some(1_600_000_000), "{files:?}");
    assert_eq!((&files[3]["transactions"], &files[3]["last_gtid"]), (&0.into(), &Value::Null));
    let output = program().args(["archive", "list"]).arg(site.archive()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("source.000003") && text.contains("5 to 6"), "{text}");
}

#[test]
fn retention_keeps_files_that_are_not_applied() {
    let site = site_with_files(6);
    // A row that somebody has locked on the replica: its file, and those behind it, are received and not applied.
    site.catch_up(&["--start", "earliest"]);
    let mut blocker = Session::open(&site.replica);
    assert_eq!(blocker.sql("BEGIN; SELECT id FROM d.t WHERE id = 12 FOR UPDATE"), ["12"]);
    for _ in 0..3 {
        add_file(&site);
    }
    let in_the_way = names(&site).len();
    assert_eq!(in_the_way, 7);
    site.source.sql("UPDATE d.t SET v = 'z' WHERE id = 12; FLUSH BINARY LOGS");
    for _ in 0..3 {
        add_file(&site);
    }
    let running = site.spawn(site.replicate(&["--keep-archive-size", "400KiB", "--batch-transactions", "1"]));
    site.wait_for_status("all that is applied to go", |status| status["purged"]["files"].as_u64() == Some(9));
    let files = list(&site);
    assert_eq!(files[0]["file"], "source.000010", "the file with the locked row stays: {files:?}");
    blocker.sql("COMMIT");
    wait_until("no more to be left than was asked for", || {
        let bytes: u64 = list(&site).iter().map(|file| file["bytes"].as_u64().unwrap()).sum();
        bytes <= 400 << 10
    });
    let ended = running.terminate();
    assert!(ended.status.success(), "{}", ended.output);
    ended.assert_says(&["spate archive: removed", "the oldest now is source."]);
    site.assert_identical();
    // What is left is enough to go on.
    add_file(&site);
    site.catch_up(&[]);
    site.assert_identical();
}

#[test]
fn archive_purge_by_hand_removes_old_files() {
    let site = site_with_files(4);
    site.catch_up(&["--start", "earliest"]);
    add_file(&site);
    site.fetch(&[]);
    let replica = format!("{ACCOUNT}@127.0.0.1:{}", site.replica.port);
    assert_eq!(purge(&site, &["--replica", &replica]).status.code(), Some(2), "no bound is no purge");
    purge(&site, &["--keep-size", "1k"]).assert_failed_saying(&["--replica", "--even-unapplied"]);
    purge(&site, &["--replica", &replica, "--before", "file:source.000099"])
        .assert_failed_saying(&["has no file source.000099"]);
    assert_eq!(names(&site).len(), 5);
    let done = purge(&site, &["--replica", &replica, "--before", "file:source.000003"]);
    done.assert_says(&["removed 2 files", "from source.000003 on"]);
    let position = list(&site)[0]["last_gtid"].as_str().unwrap().to_owned();
    purge(&site, &["--replica", &replica, "--before", &format!("gtid:{position}")]).assert_says(&["removed 1 files"]);
    // Nothing is older than an hour; everything is too large, but what is not applied stays.
    purge(&site, &["--replica", &replica, "--keep-age", "1h"]).assert_says(&["removed 0 files"]);
    purge(&site, &["--replica", &replica, "--keep-size", "1k"])
        .assert_says(&["removed 1 files", "from source.000005 on"]);
    let running = site.spawn(site.replicate(&[]));
    site.wait_applied();
    wait_until("the source's last file", || names(&site).last().is_some_and(|name| name == "source.000006"));
    purge(&site, &["--even-unapplied", "--keep-size", "1k"]).assert_failed_saying(&["in use", "--keep-archive-size"]);
    assert!(running.terminate().status.success());
    purge(&site, &["--even-unapplied", "--keep-size", "1k"]).assert_says(&["removed 1 files", "from source.000006 on"]);
    site.assert_identical();
}

#[test]
fn retention_without_a_replica_keeps_to_its_bounds() {
    let site = site_with_files(5);
    let mut command = program();
    command
        .args(["archive", "fetch", "--start", "earliest", "--keep-archive-size", "700k", "--archive"])
        .arg(site.archive());
    command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", site.source.port));
    let running = site.spawn(command);
    wait_until("the oldest files to go", || {
        site.archive().join("archive.list").exists()
            && names(&site).first().is_some_and(|name| name.as_str() >= "source.000004")
    });
    let ended = running.terminate();
    assert!(ended.status.success(), "{}", ended.output);
    ended.assert_says(&["removed"]);
}
