//! Where replication begins and where it ends.

use std::time::{Duration, Instant};

use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::session::Session;
use crate::support::{Kind, Site, wait_until};

const ROWS: &str = "SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t";

/// Rows 1 to 4, each a transaction; the binlog changes its file after the second. Returns the place after each.
fn site_with_four_rows() -> (Site, Vec<(String, String)>) {
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let places = (1..=4).map(|id| {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id})"));
        let status = site.source.sql("SHOW MASTER STATUS");
        let mut words = status.split_whitespace();
        let place = format!("file:{}:{}", words.next().unwrap(), words.next().unwrap());
        if id == 2 {
            site.source.sql("FLUSH BINARY LOGS");
        }
        (format!("gtid:{}", site.source.sql("SELECT @@gtid_binlog_pos")), place)
    });
    let places = places.collect();
    (site, places)
}

#[test]
fn each_start_begins_where_it_says() {
    let (site, places) = site_with_four_rows();
    for (start, rows) in [
        ("earliest", "1,2,3,4"),
        ("gtid:", "1,2,3,4"),
        (places[0].0.as_str(), "2,3,4"),
        (places[0].1.as_str(), "2,3,4"),
        (places[1].1.as_str(), "3,4"),
        (places[2].1.as_str(), "4"),
        ("current", "NULL"),
    ] {
        site.catch_up(&["--start", start]);
        assert_eq!(site.replica.sql(ROWS), rows, "{start}");
        site.replica.sql("DROP DATABASE spate; TRUNCATE TABLE d.t");
        std::fs::remove_dir_all(site.archive()).unwrap();
    }
}

#[test]
fn each_end_stops_where_it_says() {
    let (site, places) = site_with_four_rows();
    for (until, rows) in [
        (places[0].0.as_str(), "1"),
        (places[1].1.as_str(), "1,2"),
        (places[2].0.as_str(), "1,2,3"),
        ("caught-up", "1,2,3,4"),
    ] {
        let ended = site.run(site.replicate(&["--start", "earliest", "--until", until]));
        assert!(ended.status.success(), "{until}: {}", ended.output);
        assert_eq!(site.replica.sql(ROWS), rows, "{until}");
        // Again: there is nothing to do.
        let ended = site.run(site.replicate(&["--until", until]));
        assert!(ended.status.success(), "{until}: {}", ended.output);
        assert_eq!(site.replica.sql(ROWS), rows, "{until}");
    }
}

#[test]
fn program_ended_by_a_signal_resumes() {
    let site = Site::plain();
    site.both(crate::support::writer::TABLES);
    let writers = crate::support::writer::Writers::start(&site.source, 2, 5);
    for round in 0..3 {
        let running = site.spawn(site.replicate(&["--start", "earliest", "--batch-transactions", "20"]));
        site.wait_for_status("a few batches", |status| status["batches"].as_u64() > Some(5));
        let ended = running.terminate();
        assert_eq!(ended.status.code(), Some(0), "round {round}: {}", ended.output);
        ended.assert_says(&["applied", &site.checkpoint()]);
    }
    writers.stop();
    site.catch_up(&[]);
    site.assert_identical();
}

/// The server's own replication goes on exactly where Spate ended.
/// Nobody waits for the end of a wait for a lock.
#[test]
fn program_ends_by_a_signal_while_a_statement_waits() {
    let site = Site::plain();
    site.source
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT); INSERT INTO d.t VALUES (1, 1), (2, 2)");
    site.catch_up(&["--start", "earliest"]);
    let mut other = Session::open(&site.replica);
    other.sql("BEGIN; UPDATE d.t SET n = 5 WHERE id = 2");
    site.source.sql("UPDATE d.t SET n = n + 1");
    let running = site.spawn(site.replicate(&[]));
    wait_until("the applier to wait for the row", || {
        let waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE info LIKE 'BINLOG%' AND time_ms > 500";
        site.replica.sql(waiting) == "1"
    });
    let began = Instant::now();
    let ended = running.terminate();
    assert!(ended.status.success(), "{}", ended.output);
    // The server's lock wait timeout is 50 s.
    assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
    other.sql("ROLLBACK");
    site.catch_up(&[]);
    site.assert_identical();
}

fn hand_over(kind: Kind, start: impl Fn(&Site) -> String, stop: &str) {
    let site = Site::of(kind);
    site.source
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL); INSERT INTO d.t VALUES (1, 1)");
    site.run(site.replica_command("handover")).assert_failed_saying(&["no checkpoint"]);
    site.catch_up(&["--start", "earliest"]);
    let running = site.spawn(site.replicate(&[]));
    site.wait_applying();
    site.run(site.replica_command("handover")).assert_failed_saying(&["another Spate applies"]);
    assert!(running.terminate().status.success());
    site.source.sql("UPDATE d.t SET v = v + 1; INSERT INTO d.t VALUES (2, 2)");
    site.catch_up(&[]);
    for told in ["told the replica", "nothing to be told"] {
        let ended = site.run(site.replica_command("handover"));
        assert!(ended.status.success(), "{}", ended.output);
        ended.assert_says(&[told]);
    }
    site.source.sql("UPDATE d.t SET v = v + 1; INSERT INTO d.t VALUES (3, 3)");
    site.replica.sql(&start(&site));
    wait_until("the server's own replication", || site.replica.sql("SELECT COUNT(*) FROM d.t") == "3");
    site.replica.sql(stop);
    site.assert_identical();
}

#[test]
fn handover_starts_native_replication_on_mariadb() {
    let start = |site: &Site| {
        format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='{ACCOUNT}', MASTER_PASSWORD='{PASSWORD}', \
             MASTER_USE_GTID=slave_pos; START SLAVE",
            site.source.port
        )
    };
    hand_over(Kind::Mariadb, start, "STOP SLAVE");
}

#[test]
fn handover_starts_native_replication_on_mysql() {
    let start = |site: &Site| {
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_USER='{ACCOUNT}', \
             SOURCE_PASSWORD='{PASSWORD}', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1; START REPLICA",
            site.source.port
        )
    };
    hand_over(Kind::Mysql, start, "STOP REPLICA");
}

/// The checkpoint counts the transactions of an archive that is gone. One that has a lower number, and comes later, is not missed.
#[test]
fn new_archive_ends_where_the_source_does() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    for id in 1..10 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id})"));
    }
    site.catch_up(&["--start", "earliest"]);
    std::fs::remove_dir_all(site.archive()).unwrap();
    site.source.sql("SET server_id = 77, gtid_seq_no = 3; INSERT INTO d.t VALUES (100)");
    site.catch_up(&[]);
    assert_eq!(site.checkpoint(), "0-77-3");
    site.assert_identical();
}

/// A source with many domains, as one that was fed by many. A version of Spate before has made the tables.
#[test]
fn positions_above_64_kib_are_kept() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, domain BIGINT)");
    site.catch_up(&["--start", "earliest"]);
    for table in ["checkpoint", "intent"] {
        site.replica.sql(&format!("ALTER TABLE spate.{table} MODIFY gtid_position TEXT CHARACTER SET ascii NOT NULL"));
    }
    site.replica.sql("ALTER TABLE spate.hold MODIFY until_position TEXT CHARACTER SET ascii NULL");
    let domains: Vec<u32> = (4_000_000_000..4_000_004_500).collect();
    let insert = |domain: &u32| format!("SET gtid_domain_id={domain}; INSERT INTO d.t (domain) VALUES ({domain});");
    for some in domains.chunks(1_000) {
        site.source.sql(&some.iter().map(insert).collect::<String>());
    }
    site.catch_up(&[]);
    for consistency in ["snapshot", "transaction", "shard"] {
        site.source.sql(&domains[..3].iter().map(insert).collect::<String>());
        site.source.sql(&format!("CREATE TABLE d.{consistency} (id INT PRIMARY KEY)"));
        site.source.sql(&domains[4_000..4_003].iter().map(insert).collect::<String>());
        site.catch_up(&["--consistency", consistency]);
        site.assert_identical();
    }
    let bytes = site.replica.sql("SELECT LENGTH(gtid_position) FROM spate.checkpoint WHERE applier=0");
    assert!(bytes.parse::<usize>().unwrap() > 1 << 16, "{bytes}");
    // Nothing is left to apply. A comparison asks who applies to go as far as a position.
    let running = site.spawn(site.replicate(&[]));
    site.wait_applying();
    site.source.sql(&domains[..3].iter().map(insert).collect::<String>());
    let compared = site.run(site.command("verify", &[]));
    assert!(compared.status.success(), "{}", compared.output);
    assert!(running.terminate().status.success());
    site.assert_identical();
}
