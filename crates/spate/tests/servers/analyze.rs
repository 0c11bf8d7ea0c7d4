//! What `spate analyze` says of binlogs, against what the source has done.

use std::fs;

use serde_json::Value;

use crate::support::program::program;
use crate::support::{Kind, Site};

fn analyze(site: &Site, options: &[&str]) -> Value {
    let mut command = program();
    command.args(["analyze", "--json"]).args(options).arg(site.archive());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// How fast a setting is, by the simulation.
fn factor(analysis: &Value, policy: &str, order: &str, appliers: u64) -> f64 {
    let all = analysis["speed_ups"].as_array().unwrap();
    let is_it = |found: &&Value| found["policy"] == policy && found["order"] == order && found["appliers"] == appliers;
    all.iter().find(is_it).unwrap()["factor"].as_f64().unwrap()
}

fn counts_what_the_source_has_done(kind: Kind) {
    let site = Site::between((kind, &["--binlog-row-metadata=FULL", "--binlog-format=ROW"]), (kind, &[]));
    let mut sql = "CREATE DATABASE d; USE d; CREATE TABLE hot (name VARCHAR(20) PRIMARY KEY, n INT); INSERT INTO hot VALUES ('counter', 0); \
                   CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE bare (v INT);"
        .to_owned();
    for number in 0..100 {
        sql += &format!("INSERT INTO t VALUES ({number}, 0);");
        if number % 2 == 0 {
            sql += "UPDATE hot SET n = n + 1;";
        }
    }
    sql += "INSERT INTO bare VALUES (1), (2); DELETE FROM bare WHERE v = 1; UPDATE t SET v = 1;";
    site.source.sql(&sql);
    site.fetch(&["--start", "earliest"]);
    let page = site.archive().with_file_name("page.html");
    let analysis = analyze(&site, &["--appliers", "1,4", "--html", page.to_str().unwrap()]);
    // Four definitions, one row of the hot table, 100 and 50 changes of one row each, and three statements.
    assert_eq!(analysis["transactions"], 4 + 1 + 100 + 50 + 3, "{analysis}");
    assert_eq!(analysis["definitions"], 4, "{analysis}");
    assert_eq!(analysis["rows"], 1 + 100 + 50 + 2 + 1 + 100, "{analysis}");
    assert_eq!(analysis["hottest_tables"][0]["name"], "d.t", "{analysis}");
    assert_eq!(analysis["hottest_rows"][0]["key"], "name='counter'", "{analysis}");
    assert_eq!(analysis["hottest_rows"][0]["changes"], 51, "{analysis}");
    assert_eq!(analysis["keyless_tables"].as_array().unwrap().len(), 1, "{analysis}");
    assert_eq!(analysis["tables_with_assumed_key"], 0, "{analysis}");
    assert_eq!(analysis["largest"][0]["rows"], 100, "{analysis}");
    let all = analysis["folded"].as_array().unwrap().last().unwrap().clone();
    // The three of `bare` are not folded. Of the others 101 are different, one of them also before a definition.
    assert_eq!((all["rows"].as_u64(), all["net_rows"].as_u64()), (Some(254), Some(3 + 101 + 1)), "{analysis}");
    // One schema: nothing is beside anything.
    assert!((factor(&analysis, "shard", "free", 1) - 1.0).abs() < 0.01, "{analysis}");
    assert!(factor(&analysis, "shard", "preserve", 4) < 1.01, "{analysis}");
    let by_rows = factor(&analysis, "write-set", "preserve", 4);
    assert!((1.2..4.0).contains(&by_rows), "{analysis}");
    let hint = if kind == Kind::Mariadb { "commit-group" } else { "logical-clock" };
    assert_eq!(analysis["hint"], hint, "{analysis}");
    assert!(factor(&analysis, hint, "preserve", 4) <= by_rows + 0.01, "{analysis}");
    let html = fs::read_to_string(page).unwrap();
    assert!(
        html.contains("<figure class=\"graph\">") && html.contains("counter") && !html.contains("http://localhost"),
        "{html}"
    );
}

#[test]
fn analysis_counts_what_the_source_has_done() {
    counts_what_the_source_has_done(Kind::Mariadb);
}

#[test]
fn analysis_counts_what_the_source_has_done_on_mysql() {
    counts_what_the_source_has_done(Kind::Mysql);
}

#[test]
fn analysis_reads_the_clock_of_tagged_transactions() {
    let site = Site::of(Kind::Mysql);
    site.source.sql(
        "SET gtid_next='AUTOMATIC:spate'; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1); \
         INSERT INTO d.t VALUES (2); INSERT INTO d.t VALUES (3)",
    );
    site.fetch(&["--start", "earliest"]);
    let analysis = analyze(&site, &["--appliers", "1,4", "--processors", "4"]);
    assert_eq!(analysis["hint"], "logical-clock", "{analysis}");
    // The two definitions are alone, and the source knows by the rows that the inserts are of different ones.
    assert!(factor(&analysis, "logical-clock", "preserve", 4) > 1.5, "{analysis}");
}

#[test]
fn source_is_analysed_over_the_network() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1); INSERT INTO d.t VALUES (2)");
        let temporary = site.archive().with_file_name("tmp");
        fs::create_dir(&temporary).unwrap();
        let analysis = |options: &[&str]| -> Value {
            let mut command = site.source_command("analyze");
            command.arg("--json").args(options).env("TMPDIR", &temporary);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let whole = analysis(&[]);
        assert_eq!((&whole["transactions"], &whole["rows"]), (&4.into(), &2.into()), "{whole}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "what was received is removed");
        let archive = site.archive();
        let kept = analysis(&["--archive", archive.to_str().unwrap()]);
        assert_eq!(kept["transactions"], 4, "{kept}");
        assert_eq!(analyze(&site, &[])["transactions"], 4);
        // It goes on where it was.
        site.source.sql("INSERT INTO d.t VALUES (3)");
        assert_eq!(analysis(&["--archive", archive.to_str().unwrap()])["transactions"], 5);
    }
}

/// Sessions that commit at the same time give the source something to put into one group.
fn sees_wider_groups(kind: Kind, widen: &str, narrow: &str) {
    let site = Site::between((kind, &["--binlog-format=ROW"]), (kind, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    let work = |sessions: usize| {
        std::thread::scope(|scope| {
            for session in 0..sessions {
                let inserts = format!("INSERT INTO d.t (v) VALUES ({session});").repeat(200 / sessions);
                scope.spawn(|| site.source.sql(&{ inserts }));
            }
        });
    };
    site.source.sql(narrow);
    // Where the disk is slow, several sessions have wide groups without any setting.
    work(1);
    site.fetch(&["--start", "earliest"]);
    let before = analyze(&site, &[]);
    site.source.sql(widen);
    work(8);
    site.fetch(&[]);
    let after = analyze(&site, &[]);
    let mean = |analysis: &Value| analysis["group_size_mean"].as_f64().unwrap();
    assert!(mean(&after) > mean(&before) * 1.2, "{} {}", mean(&before), mean(&after));
    let grouped: u64 =
        after["group_sizes"].as_array().unwrap().iter().map(|size| size["count"].as_u64().unwrap()).sum();
    assert!(grouped < after["transactions"].as_u64().unwrap(), "{after}");
}

#[test]
fn analysis_sees_wider_commit_groups() {
    sees_wider_groups(
        Kind::Mariadb,
        "SET GLOBAL binlog_commit_wait_count=8; SET GLOBAL binlog_commit_wait_usec=20000",
        "SET GLOBAL binlog_commit_wait_count=0",
    );
}

#[test]
fn analysis_sees_wider_commit_groups_on_mysql() {
    sees_wider_groups(
        Kind::Mysql,
        "SET GLOBAL binlog_group_commit_sync_delay=20000; SET GLOBAL binlog_group_commit_sync_no_delay_count=8",
        "SET GLOBAL binlog_group_commit_sync_delay=0",
    );
}

#[test]
fn damaged_and_missing_binlogs_are_errors_that_name_the_place() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)");
    site.fetch(&["--start", "earliest"]);
    let mut command = program();
    command.arg("analyze").arg(site.archive().with_file_name("nothing"));
    site.run(command).assert_failed_saying(&["nothing"]);
    let directory = site.archive().with_file_name("empty");
    fs::create_dir(&directory).unwrap();
    let mut command = program();
    command.arg("analyze").arg(&directory);
    site.run(command).assert_failed_saying(&["holds no binlog files"]);
    let file = fs::read_dir(site.archive()).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        path.extension().is_some_and(|extension| extension.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
    });
    let file = file.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&file, bytes).unwrap();
    let mut command = program();
    command.arg("analyze").arg(site.archive());
    site.run(command).assert_failed_saying(&[&*file.file_name().unwrap().to_string_lossy()]);
}

/// Runs that were measured say what things cost, and which part of that does not become faster.
#[test]
fn measured_runs_are_compared_with_the_simulation() {
    let site = Site::of(Kind::Mariadb);
    let mut sql = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT);".to_owned();
    sql.extend((1..=200).map(|id| format!("INSERT INTO d.t VALUES ({id}, 0);")));
    site.source.sql(&sql);
    site.fetch(&["--start", "earliest"]);
    let race = site.archive().with_file_name("race.json");
    let run = |name: &str, seconds: f64| serde_json::json!({"name": name, "seconds": seconds, "error": null, "gave_up_after_seconds": null});
    let write = |contenders: &[Value]| {
        let text = serde_json::json!({"server": "mariadb-10.11", "contenders": contenders}).to_string();
        fs::write(&race, text).unwrap();
    };
    let file = race.to_str().unwrap();
    let all = [
        run("spate", 1.0),
        run("spate:consistency=transaction,commit-order=free,appliers=1", 10.0),
        run("spate:consistency=transaction,commit-order=free,appliers=2", 6.6),
        run("spate:consistency=transaction,commit-order=free,appliers=8", 4.0),
    ];
    write(&all);
    let analysis = analyze(&site, &["--race", file]);
    let compared = analysis["calibrations"][0]["compared"].as_array().unwrap();
    assert_eq!(compared.len(), 3, "{analysis}");
    let predicted = |place: usize| compared[place]["predicted_seconds"].as_f64().unwrap();
    assert!((predicted(0) - 10.0).abs() < 0.01 && (predicted(2) - 4.0).abs() < 0.01, "{analysis}");
    assert!((6.0..7.5).contains(&predicted(1)), "{analysis}");
    // The rest of the analysis goes by them.
    assert!((factor(&analysis, "write-set", "free", 8) - 2.5).abs() < 0.05, "{analysis}");
    for (runs, says) in [
        (&all[..1], "no contender of it can be simulated"),
        (&all[..2], "none of several appliers"),
        (&all[2..], "none of one applier"),
    ] {
        write(runs);
        let mut command = program();
        command.args(["analyze", "--race", file]).arg(site.archive());
        site.run(command).assert_failed_saying(&["race.json", says]);
    }
}
