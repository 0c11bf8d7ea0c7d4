//! Where replication begins and where it ends.

use crate::support::Site;

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
fn starts() {
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
fn ends() {
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
fn a_signal_ends_it_cleanly_and_it_goes_on_later() {
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
