//! Row changes of unusual kinds and sizes.

use crate::support::writer::{TABLES, Writers};
use crate::support::{PATIENCE, Site, memory, wait_until};

#[test]
fn compressed_events_are_applied() {
    let site = Site::new(&["--log-bin-compress=ON", "--log-bin-compress-min-len=10"], &[]);
    site.source.sql(TABLES);
    let sql = "INSERT INTO busy.account SELECT seq, CONCAT('c', seq), seq, REPEAT('y', 500) FROM mysql.seq_1_to_2000; \
               UPDATE busy.account SET balance = balance + 1; DELETE FROM busy.account WHERE id % 7 = 0; \
               SET SESSION binlog_format=STATEMENT; UPDATE busy.account SET note = REPEAT('z', 100) WHERE id = 1;";
    site.source.sql(sql);
    site.catch_up_from_earliest();
}

#[test]
fn partial_row_images_are_applied() {
    let site = Site::plain();
    site.source.sql(TABLES);
    for image in ["MINIMAL", "NOBLOB", "FULL", "MINIMAL"] {
        site.source.sql(&format!(
            "USE busy; SET SESSION binlog_row_image={image}; \
             INSERT INTO account (id, name, balance) SELECT seq, CONCAT('m', seq), 0 FROM mysql.seq_1_to_50; \
             INSERT INTO slot (owner) VALUES (1), (2); UPDATE account SET note = 'seen' WHERE id < 10; \
             UPDATE account SET balance = 5, note = NULL WHERE id = 3; UPDATE account SET id = 900 WHERE id = 4; \
             UPDATE account SET name = 'swap' WHERE id = 5; UPDATE account SET name = 'm5' WHERE id = 6; \
             INSERT INTO trail VALUES (1, 1), (1, 1), (2, 2); UPDATE trail SET step = 7 WHERE writer = 2; \
             DELETE FROM trail WHERE writer = 1 LIMIT 1; DELETE FROM account WHERE id BETWEEN 20 AND 30; \
             UPDATE account SET id = id + 1000 WHERE id < 1000 ORDER BY id DESC; DELETE FROM account WHERE id > 1020; \
             UPDATE account SET name = CONCAT('old', {}, id), id = id + 5000 WHERE id < 5000;",
            image.len() * 100 + site.archive().as_os_str().len()
        ));
        // Keys of the next round must be free again.
        site.source.sql("DELETE FROM busy.account");
        site.source.sql("INSERT INTO busy.account (id, name, balance) VALUES (7777, 'stays', 1)");
        site.source
            .sql("UPDATE busy.account SET balance = 2 WHERE id = 7777; DELETE FROM busy.account WHERE id <> 7777");
        site.source.sql("UPDATE busy.account SET id = 7000, name = UUID()");
        site.source.sql("DELETE FROM busy.account");
    }
    site.source.sql(
        "SET SESSION binlog_row_image=MINIMAL; INSERT INTO busy.account (id, name, balance) VALUES (1, 'a', 1), \
                     (2, 'b', 2); UPDATE busy.account SET balance = 9 WHERE id = 2",
    );
    site.catch_up_from_earliest();
    for image in ["MINIMAL", "NOBLOB", "FULL"] {
        let update = "UPDATE busy.account SET balance = balance + 1 WHERE id < 3;".repeat(100);
        site.source.sql(&format!("SET SESSION binlog_row_image={image}; BEGIN; {update} COMMIT"));
        let ended = site.catch_up(&["--json"]);
        let json = ended.output.lines().find(|line| line.starts_with('{')).unwrap();
        let status: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!([&status["row_changes"], &status["net_row_changes"]], [200, 2], "{image}");
        site.assert_identical();
    }
}

#[test]
fn tables_without_a_key_are_applied() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.n (a INT, b VARCHAR(20)); CREATE TABLE d.u (a INT NULL UNIQUE, b INT); \
         INSERT INTO d.n SELECT seq % 10, 'x' FROM mysql.seq_1_to_200; UPDATE d.n SET b = 'y' WHERE a < 3; \
         DELETE FROM d.n WHERE a = 5 LIMIT 7; INSERT INTO d.n VALUES (NULL, NULL), (NULL, NULL), (NULL, 'x'); \
         DELETE FROM d.n WHERE a IS NULL LIMIT 1; INSERT INTO d.u VALUES (NULL, 1), (NULL, 1), (1, 1); \
         UPDATE d.u SET b = 2 WHERE a IS NULL LIMIT 1; UPDATE d.u SET a = 2 WHERE a = 1; INSERT INTO d.u VALUES (1, 9);",
    );
    site.catch_up_from_earliest();
}

#[test]
fn foreign_keys_act_as_on_the_source() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE p (id INT PRIMARY KEY, v INT); \
         CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)); \
         CREATE TABLE q (id INT PRIMARY KEY, v INT); \
         CREATE TABLE c (id INT PRIMARY KEY, q INT, FOREIGN KEY (q) REFERENCES q (id) ON DELETE CASCADE ON UPDATE CASCADE); \
         CREATE TABLE n (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL);",
    );
    site.source.sql(
        "USE d; INSERT INTO p SELECT seq, 0 FROM mysql.seq_1_to_20; INSERT INTO r SELECT seq, seq FROM mysql.seq_1_to_10; \
         INSERT INTO q SELECT seq, 0 FROM mysql.seq_1_to_20; INSERT INTO c SELECT seq, 1 + seq % 20 FROM mysql.seq_1_to_100; \
         INSERT INTO n SELECT seq, seq FROM mysql.seq_1_to_100; DELETE FROM r WHERE id = 3; DELETE FROM p WHERE id IN (3, 15); \
         INSERT INTO p VALUES (3, 1); INSERT INTO r VALUES (3, 3); UPDATE q SET id = 500 WHERE id = 2; \
         DELETE FROM q WHERE id IN (5, 6); INSERT INTO q VALUES (5, 1); INSERT INTO c VALUES (1000, 5); \
         UPDATE q SET id = 501 WHERE id = 500; DELETE FROM q WHERE id = 501; UPDATE c SET q = 7 WHERE id = 1000;",
    );
    // In one transaction, so certainly in one batch: folded changes, for which checks are off, before a cascade.
    site.source
        .sql("USE d; BEGIN; INSERT INTO p VALUES (99, 1); DELETE FROM q WHERE id = 7; UPDATE p SET v = 2; COMMIT");
    assert_eq!(site.source.sql("SELECT COUNT(*) FROM d.c WHERE q = 7"), "0", "the cascade on the source");
    site.catch_up_from_earliest();
}

#[test]
fn transaction_larger_than_memory_stays_one() {
    const MEMORY_MAX_KIB: u64 = (64 + 64) << 10;
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(15000) CHARACTER SET latin1)");
    site.source.sql(
        "BEGIN; INSERT INTO d.t SELECT seq, REPEAT(CHAR(65 + seq % 26), 15000) FROM mysql.seq_1_to_10000; \
         UPDATE d.t SET v = 'short' WHERE id % 100 = 0; COMMIT",
    );
    let mut running = site.spawn(site.replicate(&["--start", "earliest", "--memory", "64MiB", "--until", "caught-up"]));
    let mut counts = std::collections::BTreeSet::new();
    let mut memory_kib = 0;
    let deadline = std::time::Instant::now() + PATIENCE;
    while running.is_running() {
        assert!(std::time::Instant::now() < deadline, "{}", running.said());
        counts.extend(site.replica.try_sql("SELECT COUNT(*) FROM d.t"));
        memory_kib = memory_kib.max(memory::peak_kib(running.id()).unwrap_or(0));
    }
    let ended = running.wait();
    assert!(ended.status.success(), "{}", ended.output);
    assert!(counts.iter().all(|count| count == "0" || count == "10000"), "a part of it was seen: {counts:?}");
    assert!(memory_kib > 0 && memory_kib <= MEMORY_MAX_KIB, "{memory_kib} KiB");
    site.assert_identical();
}

#[test]
fn idle_source_shows_no_lag() {
    let site = Site::plain();
    site.source.sql(TABLES);
    let writers = Writers::start(&site.source, 1, 3);
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    site.wait_for_status("the first batches", |status| status["batches"].as_u64() > Some(3));
    writers.stop();
    site.wait_applied();
    wait_until("no lag", || site.status()["lag_transactions"] == 0 && site.status()["lag_seconds"] == 0.0);
    assert!(running.terminate().status.success());
    site.assert_identical();
}
