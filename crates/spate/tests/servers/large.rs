//! The sizes that take minutes: `./x large`. Each test says what it measured.

#![expect(clippy::print_stderr, reason = "what was measured")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::many_tables;
use crate::support::{PATIENCE, Site, memory, wait_until};

/// No run takes this long.
const LARGE_PATIENCE: Duration = Duration::from_secs(1800);

/// Servers that do not spend the time on a cache too small for what is tested.
const ROOMY: [&str; 3] =
    ["--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G", "--innodb-flush-log-at-trx-commit=2"];

/// Beyond `--memory`: code, stacks, what the allocator keeps.
const BEYOND_MEMORY_KIB: u64 = 64 << 10;

#[test]
#[ignore = "takes minutes: ./x large"]
fn transaction_of_two_gigabytes_stays_within_memory() {
    one_transaction(1_000_000, "512MiB", 512);
}

#[test]
#[ignore = "takes minutes: ./x large"]
fn transaction_of_400_megabytes_stays_within_64() {
    one_transaction(200_000, "64MiB", 64);
}

/// A transaction of so many inserts of a kilobyte, half as many updates, and some deletes.
fn one_transaction(rows: u64, memory: &str, memory_mib: u64) {
    let site = Site::new(&ROOMY, &ROOMY);
    site.source.sql("CREATE DATABASE d");
    let mut sql = "BEGIN;".to_owned();
    let rows = rows / 4;
    for table in ["a", "b", "c", "e"] {
        // The last has no key.
        let key = if table == "e" { "KEY" } else { "PRIMARY KEY" };
        site.source.sql(&format!(
            "CREATE TABLE d.{table} (id INT NOT NULL, n INT, v VARCHAR(1500) CHARACTER SET latin1, {key} (id), KEY (n)); \
             INSERT INTO d.{table} VALUES (0, 0, 'before')"
        ));
        sql += &format!(
            "INSERT INTO d.{table} SELECT seq, seq, REPEAT(CHAR(65 + seq % 26), 1000) FROM mysql.seq_1_to_{rows}; \
             UPDATE d.{table} SET v = 'after' WHERE id = 0;"
        );
    }
    for table in ["a", "b", "c", "e"] {
        sql += &format!(
            "UPDATE d.{table} SET v = CONCAT('u', v) WHERE id % 2 = 1; DELETE FROM d.{table} WHERE id % 10 = 5;"
        );
    }
    let before = binlog_bytes(&site);
    let began = Instant::now();
    site.source.sql(&(sql + "COMMIT"));
    let (bytes, source_seconds) = (binlog_bytes(&site) - before, began.elapsed().as_secs_f64());
    let look = "SELECT GROUP_CONCAT(v) FROM (SELECT v FROM d.a WHERE id = 0 UNION ALL SELECT v FROM d.b WHERE id = 0 \
        UNION ALL SELECT v FROM d.c WHERE id = 0 UNION ALL SELECT COUNT(*) FROM d.a WHERE id = 1 \
        UNION ALL SELECT COUNT(*) FROM d.b WHERE id = 2 UNION ALL SELECT COUNT(*) FROM d.c WHERE id = 4) seen";
    const ALL: &str = "after,after,after,1,1,1";
    let running = site.spawn(site.replicate(&["--start", "earliest", "--memory", memory, "--until", "caught-up"]));
    let mut seen = BTreeSet::new();
    let began = Instant::now();
    let (ended, memory_kib) = memory::peak_while(running, LARGE_PATIENCE, || {
        seen.extend(site.replica.try_sql(look));
    });
    let seconds = began.elapsed().as_secs_f64();
    eprintln!(
        "one transaction of {} MB of binlog, --memory {memory}: {source_seconds:.1} s on the source, {seconds:.1} s through Spate, \
         VmHWM {} MiB",
        bytes / 1_000_000,
        memory_kib >> 10
    );
    assert!(ended.status.success(), "{}", ended.output);
    seen.extend([site.replica.sql(look)]);
    assert!(seen.contains(ALL));
    let is_whole = |seen: &String| seen == ALL || !seen.contains("after") && !seen.contains('1');
    assert!(seen.iter().all(is_whole), "a part was seen: {seen:?}");
    site.assert_identical();
    assert!(memory_kib <= (memory_mib << 10) + BEYOND_MEMORY_KIB, "{memory_kib} KiB");
}

fn binlog_bytes(site: &Site) -> u64 {
    let logs = site.source.sql("SHOW BINARY LOGS");
    logs.lines().filter_map(|line| line.split('\t').nth(1)?.parse::<u64>().ok()).sum()
}

#[test]
#[ignore = "takes minutes: ./x large"]
fn ten_thousand_tables_are_applied() {
    const TABLES: usize = 10_000;
    const START_MAX: Duration = Duration::from_secs(10);
    let site = many_tables::site(TABLES);
    site.source.sql(&many_tables::change_all(TABLES, 1));
    let began = Instant::now();
    let mut running = site.spawn(site.replicate(&["--start", "earliest"]));
    site.wait_for_status("the applier at work", |status| {
        status["applier"] == "applying" && status["batches"].as_u64() > Some(0)
    });
    let first_batch = began.elapsed();
    wait_applied(&site);
    let caught_up = began.elapsed();
    assert!(running.is_running(), "{}", running.said());
    eprintln!("{TABLES} tables, each changed: first batch after {first_batch:.1?}, caught up after {caught_up:.1?}");
    assert!(first_batch < START_MAX, "{first_batch:?}");
    const ROUNDS: usize = 20;
    site.source.sql(&many_tables::definitions_among_changes(TABLES, ROUNDS));
    let began = Instant::now();
    wait_applied(&site);
    let memory_kib = memory::peak_kib(running.id()).unwrap();
    eprintln!(
        "{ROUNDS} definitions, each followed by {} changes of tables: caught up {:.1?} after the source; VmHWM {} MiB",
        TABLES / 3,
        began.elapsed(),
        memory_kib >> 10
    );
    assert!(running.terminate().status.success());
    site.source.sql(
        &many_tables::definitions_among_changes(TABLES, ROUNDS).replace("extra", "more").replace("5000 +", "6000 +"),
    );
    let began = Instant::now();
    let running = site.spawn(site.replicate(&["--until", "caught-up"]));
    let (ended, _) = memory::peak_while(running, LARGE_PATIENCE, || {});
    eprintln!("the same once more, behind by all of it: {:.1?}", began.elapsed());
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
    assert!(memory_kib <= (512 << 10) + BEYOND_MEMORY_KIB, "{memory_kib} KiB");
}

fn wait_applied(site: &Site) {
    let position = site.source.sql("SELECT @@gtid_binlog_pos");
    let deadline = Instant::now() + LARGE_PATIENCE - PATIENCE;
    while site.status()["applied"]["gtid"] != position.as_str() {
        assert!(Instant::now() < deadline, "waited in vain for {position}");
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until("no lag", || site.status()["lag_transactions"] == 0);
}

#[test]
#[ignore = "takes minutes: ./x large"]
fn rows_of_60_megabytes_stay_within_bounds() {
    for megabytes in [16, 60] {
        memory_for_rows(megabytes);
    }
}

fn memory_for_rows(megabytes: u64) {
    // An update's event holds the row twice; see `large_rows::large_rows_stay_within_memory`.
    let memory_max_kib = (64 + 16 * megabytes) << 10;
    let site = Site::new(&[ROOMY.as_slice(), &["--max-allowed-packet=256M"]].concat(), &ROOMY);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT, b LONGBLOB)");
    let bytes = megabytes * 1_000_000;
    let inserts = format!("INSERT INTO d.t SELECT seq, seq, REPEAT(CHAR(64 + seq), {bytes}) FROM mysql.seq_1_to_4");
    let updates = format!(
        "UPDATE d.t SET n = n + 1; UPDATE d.t SET b = REPEAT('z', {bytes}) WHERE id < 3; DELETE FROM d.t WHERE id = 4"
    );
    for (kind, sql) in [("inserts", inserts), ("updates", updates)] {
        site.source.sql(&sql);
        let running = site.spawn(site.replicate(&["--start", "earliest", "--memory", "64MiB", "--until", "caught-up"]));
        let (ended, memory_kib) = memory::peak_while(running, LARGE_PATIENCE, || {});
        assert!(ended.status.success(), "{}", ended.output);
        eprintln!(
            "{kind} of rows of {megabytes} MB, --memory 64MiB, the replica's packets 64 MiB: VmHWM {} MiB",
            memory_kib >> 10
        );
        assert!(memory_kib <= memory_max_kib, "{memory_kib} KiB");
    }
    site.assert_identical();
}
