//! What cannot be done is refused at once, with what to do about it.

use std::fs;
use std::path::Path;

use crate::support::program::program;
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::session::Session;
use crate::support::wait_until;
use crate::support::{Kind, Site};

#[test]
fn wrong_password_is_an_error() {
    let site = Site::plain();
    for variable in ["SPATE_SOURCE_PASSWORD", "SPATE_REPLICA_PASSWORD"] {
        let mut command = site.replicate(&["--start", "earliest", "--until", "caught-up"]);
        command.env(variable, "wrong-and-secret-too");
        let ended = site.run(command);
        ended.assert_failed_saying(&["Access denied", ACCOUNT]);
        assert!(!ended.output.contains("wrong-and-secret-too"), "{}", ended.output);
    }
}

/// Replicates with accounts that have just these privileges.
fn replicate_with(site: &Site, source_grant: &str, replica_grants: &[&str]) -> crate::support::Ended {
    let account = "limited@'127.0.0.1'";
    for (server, grants) in [(&site.source, [source_grant].as_slice()), (&site.replica, replica_grants)] {
        server.sql(&format!("SET sql_log_bin=0; CREATE OR REPLACE USER {account} IDENTIFIED BY '{PASSWORD}'"));
        for grant in grants.iter().filter(|grant| !grant.is_empty()) {
            server.sql(&format!("SET sql_log_bin=0; GRANT {grant} TO {account}"));
        }
    }
    let mut command = program();
    command.arg("replicate").arg("--archive").arg(site.archive()).args(["--start", "earliest", "--until", "caught-up"]);
    command.arg("--source").arg(format!("limited@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("limited@127.0.0.1:{}", site.replica.port));
    site.run(command)
}

#[test]
fn missing_privilege_is_named_with_its_grant() {
    const SOURCE: &str = "REPLICATION SLAVE, BINLOG MONITOR ON *.*";
    const OWN: &str = "ALL PRIVILEGES ON spate.*";
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.source.sql("INSERT INTO d.t VALUES (1)");
    let everything = "SELECT, INSERT, UPDATE, DELETE, BINLOG REPLAY, BINLOG ADMIN, READ_ONLY ADMIN ON *.*";
    let without_replay = "SELECT, INSERT, UPDATE, DELETE ON *.*";

    replicate_with(&site, SOURCE, &[everything]).assert_failed_saying(&["GRANT ALL PRIVILEGES ON spate.*"]);
    let without_monitor = replicate_with(&site, "REPLICATION SLAVE ON *.*", &[OWN, everything]);
    without_monitor.assert_failed_saying(&["GRANT BINLOG MONITOR"]);
    // From here on there is a checkpoint.
    let without_replay = replicate_with(&site, SOURCE, &[OWN, without_replay]);
    without_replay.assert_failed_saying(&["GRANT", "BINLOG REPLAY", "replica"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "0");
    fs::remove_dir_all(site.archive()).unwrap();
    let without_slave = replicate_with(&site, "BINLOG MONITOR ON *.*", &[OWN, everything]);
    without_slave.assert_failed_saying(&["GRANT REPLICATION SLAVE", "source"]);
    let ended = replicate_with(&site, SOURCE, &[OWN, everything]);
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
}

#[test]
fn second_program_on_a_replica_is_refused() {
    let site = Site::plain();
    let first = site.spawn(site.replicate(&["--start", "current"]));
    site.wait_applying();
    let mut command = site.command("replicate", &["--start", "current"]);
    command.arg("--archive").arg(site.archive().with_extension("second"));
    site.run(command).assert_failed_saying(&["another Spate applies to the replica"]);
    assert!(first.terminate().status.success());
    // Nobody holds the replica any more.
    site.catch_up(&[]);
}

#[test]
fn first_start_without_a_position_is_refused() {
    let site = Site::plain();
    let ended = site.run(site.replicate(&[]));
    ended.assert_failed_saying(&["has no checkpoint", "gtid:<set>", "file:<name>:<offset>", "earliest", "current"]);
}

#[test]
fn purged_binlogs_are_named() {
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.source.sql("INSERT INTO d.t VALUES (1); FLUSH BINARY LOGS; INSERT INTO d.t VALUES (2); FLUSH BINARY LOGS");
    wait_until("the files to be purged", || {
        site.source.sql("PURGE BINARY LOGS TO 'source.000003'; SHOW BINARY LOGS").starts_with("source.000003")
    });
    let ended = site.run(site.replicate(&["--start", "gtid:0-1-1"]));
    ended.assert_failed_saying(&["no longer has", "0-1-1", "source.000003", "0-1-2"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "0");
    // A place in a file that is gone.
    let fresh = Site::plain();
    let ended = fresh.run(fresh.replicate(&["--start", "file:source.000009:4"]));
    ended.assert_failed_saying(&["source.000009:4", "SHOW BINARY LOGS"]);
}

#[test]
fn refused_login_shows_no_password() {
    let site = Site::plain();
    let running = site.spawn(site.replicate(&["--start", "current"]));
    site.wait_applying();
    let command_line = fs::read(format!("/proc/{}/cmdline", running.id())).unwrap();
    assert!(!String::from_utf8_lossy(&command_line).contains(PASSWORD));
    assert!(!site.replica.sql("SHOW FULL PROCESSLIST").contains(PASSWORD));
    assert!(!site.source.sql("SHOW FULL PROCESSLIST; SHOW SLAVE HOSTS").contains(PASSWORD));
    assert!(!contains(&site.archive(), PASSWORD.as_bytes()));
    let mut command = program();
    command.args(["replicate", "--source"]).arg(format!("{ACCOUNT}:{PASSWORD}@127.0.0.1")).arg("--replica");
    command.arg("spate@127.0.0.1").arg("--archive").arg(site.archive());
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("process list"));
}

/// True if any file directly in `directory` holds `bytes`.
fn contains(directory: &Path, bytes: &[u8]) -> bool {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| fs::read(path).unwrap()).any(|file| file.windows(bytes.len()).any(|window| window == bytes))
}

/// Whoever waits for ever wants to know for whom, and what does.
#[test]
fn lock_holder_is_named_with_the_waiting_statement() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &[]), (kind, &["--innodb-lock-wait-timeout=1"]));
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2)",
        );
        site.catch_up_from_earliest();
        let mut holder = Session::open(&site.replica);
        holder.sql("BEGIN; UPDATE d.t SET v = 100 WHERE id = 2");
        let id = holder.sql("SELECT CONNECTION_ID()").concat();
        site.source.sql(
            "UPDATE d.t SET v = 10 WHERE id = 1; UPDATE d.t SET v = 20 WHERE id = 2; INSERT INTO d.t VALUES (3, 3)",
        );
        let running = site.spawn(site.replicate(&[]));
        let wanted =
            ["update of d.t, the row with id=2", "1205", &format!("Locks are held by session {id} (root@localhost")];
        wait_until("both are named", || wanted.iter().all(|wanted| running.said().contains(wanted)));
        // What comes before it is applied.
        assert_eq!(site.replica.sql("SELECT v FROM d.t WHERE id = 1"), "10");
        holder.sql("ROLLBACK");
        site.wait_applied();
        site.assert_identical();
        running.terminate();
    }
}
