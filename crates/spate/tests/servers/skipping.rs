//! `--skip`: everything but the named transactions.

use crate::support::Site;

/// A table on both servers, and a transaction for each of `sql`; returns their GTIDs.
fn site_with(sql: &[&str]) -> (Site, Vec<String>) {
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    let gtids = sql.iter().map(|sql| {
        site.source.sql(sql);
        site.source.sql("SELECT @@gtid_binlog_pos")
    });
    let gtids = gtids.collect();
    (site, gtids)
}

const IDS: &str = "SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t";

#[test]
fn skipped_transactions_are_recorded_with_their_batch() {
    let inserts = (1..=6).map(|id| format!("INSERT INTO d.t VALUES ({id}, 0)")).collect::<Vec<_>>();
    let (site, gtids) = site_with(&inserts.iter().map(String::as_str).collect::<Vec<_>>());
    let skips = [format!("gtid:{},{}", gtids[1], gtids[2]), format!("gtid:{}", gtids[5])];
    // The archive is filled first, so that all of it is there to be one batch.
    site.fetch(&["--start", "earliest"]);
    let ended = site.catch_up(&["--start", "earliest", "--skip", &skips[0], "--skip", &skips[1], "--json"]);
    assert_eq!(site.replica.sql(IDS), "1,4,5");
    assert_eq!(site.checkpoint(), gtids[5]);
    for gtid in [&gtids[1], &gtids[2], &gtids[5]] {
        ended.assert_says(&[&format!("transaction {gtid} at source.000001:"), "was left out, as --skip says"]);
        assert_eq!(ended.output.matches(&format!("transaction {gtid} at")).count(), 1, "{}", ended.output);
    }
    let recorded =
        site.replica.sql("SELECT gtid, source_file, source_position > 4, why FROM spate.skipped ORDER BY gtid");
    let expected = [&gtids[1], &gtids[2], &gtids[5]].map(|gtid| format!("{gtid}\tsource.000001\t1\t--skip"));
    assert_eq!(recorded, expected.join("\n"));
    let status: serde_json::Value = serde_json::from_str(&ended.output[ended.output.find("{\"").unwrap()..]).unwrap();
    assert_eq!(status["skipped"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!((&status["batches"], &status["transactions"]), (&1.into(), &6.into()), "{status}");
    // Again: it is said that there is nothing to leave out, and why.
    let ended = site.catch_up(&["--skip", &skips[0], "--skip", &format!("gtid:{},0-1-999,7-1-1", gtids[0])]);
    ended.assert_says(&[&format!("gtid:{}: it was left out by an earlier run", gtids[1])]);
    ended.assert_says(&[&format!("gtid:{}: there is nothing to leave out, since the replica is behind it", gtids[0])]);
    ended.assert_says(&["gtid:0-1-999: nothing was left out: it had not come by the end"]);
    ended.assert_says(&["gtid:7-1-1: nothing was left out: it had not come by the end"]);
}

#[test]
fn refused_transaction_can_be_skipped() {
    let (site, gtids) =
        site_with(&["INSERT INTO d.t VALUES (1, 0)", "INSERT INTO d.t VALUES (2, 0)", "INSERT INTO d.t VALUES (3, 0)"]);
    site.replica.sql("INSERT INTO d.t VALUES (2, 9)");
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&[&gtids[1], "--skip", "--on-conflict repair"]);
    assert_eq!(site.replica.sql(IDS), "1,2");
    let ended = site.catch_up(&["--skip", &format!("gtid:{}", gtids[1])]);
    ended.assert_says(&[&format!("transaction {} at source.000001:", gtids[1])]);
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id, ':', v ORDER BY id) FROM d.t"), "1:0,2:9,3:0");
}

#[test]
fn skipped_definition_changes_no_known_definition() {
    let (site, gtids) = site_with(&[
        "INSERT INTO d.t VALUES (1, 0)",
        "ALTER TABLE d.t ADD KEY (v)",
        "INSERT INTO d.t VALUES (2, 0)",
        "CREATE TABLE d.u (id INT PRIMARY KEY)",
        "INSERT INTO d.t VALUES (3, 0)",
    ]);
    site.catch_up(&["--start", "earliest", "--skip", &format!("gtid:{},{}", gtids[1], gtids[3])]);
    assert_eq!(site.replica.sql(IDS), "1,2,3");
    assert!(!site.replica.sql("SHOW CREATE TABLE d.t").contains("KEY `v`"));
    assert_eq!(site.replica.sql("SHOW TABLES FROM d"), "t");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.skipped"), "2");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
}

#[test]
fn status_shows_skipped_transactions() {
    let (site, _) = site_with(&["INSERT INTO d.t VALUES (1, 0)"]);
    let next = site.source.sql("SELECT @@gtid_binlog_pos");
    let (front, number) = next.rsplit_once('-').unwrap();
    let next = format!("{front}-{}", number.parse::<u64>().unwrap() + 2);
    let running = site.spawn(site.replicate(&["--start", "earliest", "--skip", &format!("gtid:{next}")]));
    site.wait_applied();
    site.source.sql("INSERT INTO d.t VALUES (2, 0)");
    site.source.sql("DELETE FROM d.t");
    site.source.sql("INSERT INTO d.t VALUES (5, 0)");
    site.wait_applied();
    assert_eq!(site.status()["skipped"][0]["gtid"], next.as_str());
    assert!(running.terminate().status.success());
    assert_eq!(site.replica.sql(IDS), "1,2,5");
    // The next run knows it from the replica.
    let running = site.spawn(site.replicate(&[]));
    site.wait_for_status("what was left out", |status| status["skipped"][0]["gtid"] == next.as_str());
    assert!(running.terminate().status.success());
}

/// What cannot be rolled back is noted before it is tried. The note goes with the transaction.
#[test]
fn noted_transaction_can_be_skipped() {
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=MyISAM");
    site.replica.sql("CREATE TRIGGER d.tr BEFORE INSERT ON d.t FOR EACH ROW SET NEW.v = NEW.v + 1");
    site.source.sql("INSERT INTO d.t VALUES (1, 0)");
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    let in_sql = ["--start", "earliest", "--until", "caught-up", "--dialect", "sql"];
    site.run(site.replicate(&in_sql)).assert_failed_saying(&["would fire the trigger tr", &gtid]);
    assert_eq!(site.replica.sql("SELECT kind FROM spate.intent"), "irrevocable-rows");
    site.run(site.replicate(&[&in_sql[..], &["--skip", &format!("gtid:{gtid}")]].concat()))
        .assert_says(&["was left out"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
    site.replica.sql("DROP TRIGGER d.tr");
    site.source.sql("INSERT INTO d.t VALUES (2, 0)");
    site.catch_up(&["--dialect", "sql"]);
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id, ':', v) FROM d.t"), "2:0");
}
