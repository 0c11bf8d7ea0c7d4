//! `spate replay`: the files that it writes, and what is told of a replay that fails.

use std::fs;

use serde_json::Value;

use crate::replay::{Replays, path_of};
use crate::support::Kind;
use crate::support::program::program;

#[test]
fn outputs_are_opened_before_anything_is_executed() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let csv = replays.path("writes.csv");
    fs::write(&csv, "time,statement\n0,DELETE FROM shop.item\n").unwrap();
    let before = replays.items();
    let refused = |arguments: &[&str], why: &str| {
        let output = replays.command(&[&["--writes", path_of(&csv)], arguments].concat()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(why), "{told}");
        assert_eq!(replays.items(), before);
    };
    refused(&["--json", "none/a.json"], "none/a.json: ");
    refused(&["--html", "none/a.html"], "none/a.html: ");
    let text = fs::read_to_string(&csv).unwrap();
    std::os::unix::fs::symlink(&csv, replays.path("link")).unwrap();
    for option in ["--csv", "--html", "--json"] {
        refused(&[option, path_of(&csv)], "it is an input");
        refused(&[option, "link"], "it is an input");
    }
    refused(&["--csv", "x", "--json", "x"], "several outputs have this name");
    assert_eq!(fs::read_to_string(&csv).unwrap(), text);
}

/// What was measured until then is reported.
#[test]
fn a_replay_that_fails_tells_what_it_measured() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let csv = replays.path("cut.csv");
    fs::write(&csv, "time,statement\n0,SELECT 1\n0,SELECT 2\n10,SELECT 3\ninf,SELECT 4\n").unwrap();
    let arguments = ["--pace", "10x", "--json", "a.json", "--csv", "lines.csv", "--html", "a.html", path_of(&csv)];
    let output = replays.command(&arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("line 5: \"inf\" is no time"), "{told}");
    let report: Value = serde_json::from_slice(&fs::read(replays.path("a.json")).unwrap()).unwrap();
    assert!(report["failure"].as_str().unwrap().contains("cut.csv, line 5"), "{report:#}");
    assert_eq!(report["sums"]["statements"], 3, "what was read before is executed: {report:#}");
    assert_eq!(fs::read_to_string(replays.path("lines.csv")).unwrap().lines().count(), 4);
    assert!(replays.path("a.html").exists());
    assert!(String::from_utf8_lossy(&output.stdout).contains("statements in"), "{output:?}");
}

/// Writes give no rows: how many they changed is their result. So is the number of results, and of columns without rows.
#[test]
fn other_numbers_of_rows_changed_are_another_result() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    replays.server.sql(
        "CREATE DATABASE a; CREATE DATABASE b; CREATE TABLE a.c (x INT); CREATE TABLE b.c (x INT); \
         INSERT INTO a.c VALUES (1), (1); INSERT INTO b.c VALUES (1); CREATE TABLE a.e (x INT); CREATE TABLE b.e (x INT, y INT)",
    );
    let csv = replays.path("writes.csv");
    let text = "time,statement\n0,UPDATE c SET x = 2\n0,SELECT * FROM e\n0,SELECT x FROM e\n0,DELETE FROM e\n";
    fs::write(&csv, text).unwrap();
    for schema in ["a", "b"] {
        let json = format!("{schema}.json");
        let arguments = ["--writes", "--schema", schema, "--json", &json, path_of(&csv)];
        let output = replays.command(&arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let mut compare = program();
    compare.args(["replay", "compare", "--json", "a.json", "b.json"]).current_dir(replays.path(""));
    let output = compare.output().unwrap();
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = |text: &str| {
        let digests = comparison["digests"].as_array().unwrap();
        digests.iter().find(|digest| digest["text"] == text).unwrap()["verdict"].clone()
    };
    assert_eq!(verdict("update c set x = ?"), "different-result");
    assert_eq!(verdict("select * from e"), "different-result");
    assert_eq!(verdict("select x from e"), "same");
    assert_eq!(verdict("delete from e"), "same");
    assert!(!output.status.success());
}
