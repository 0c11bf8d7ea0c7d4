//! Rows that are larger than the replica's packets.

use crate::support::{Site, memory};

/// A table of each way to be applied: folded, counted (no key), in order (a cascade connects it).
const TABLES: &str = "CREATE DATABASE d; USE d; CREATE TABLE folded (id INT PRIMARY KEY, n INT, b LONGBLOB, UNIQUE (n)); \
    CREATE TABLE keyless (id INT, n INT, b LONGBLOB); CREATE TABLE parent (id INT PRIMARY KEY); \
    CREATE TABLE cascading (id INT PRIMARY KEY, n INT, b LONGBLOB, p INT, \
        FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE); INSERT INTO parent VALUES (1), (2);";

#[test]
fn row_of_two_packets_is_applied() {
    let site = Site::new(&[], &["--max-allowed-packet=1M"]);
    site.source.sql(TABLES);
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        site.source.sql(&format!("SET SESSION binlog_row_image={image}; USE d; {}", changes(700_000, 1_400_000)));
    }
    // Several rows events of one statement, and rows of all sizes in one batch.
    site.source.sql(
        "USE d; BEGIN; INSERT INTO folded SELECT seq, seq, REPEAT(CHAR(64 + seq), seq * 60000) FROM mysql.seq_11_to_23; \
         INSERT INTO keyless SELECT seq, seq, REPEAT(CHAR(64 + seq), seq * 60000) FROM mysql.seq_11_to_23; \
         UPDATE folded SET n = n + 100 WHERE id > 15; UPDATE keyless SET n = 0 WHERE id > 15; COMMIT; \
         DELETE FROM folded WHERE id = 20; DELETE FROM keyless WHERE id IN (12, 23);",
    );
    site.catch_up_from_earliest();
}

/// Inserts, updates and deletes of rows of two sizes in every table. The smaller fits twice into two packets: where both images
/// are needed.
fn changes(smaller: usize, larger: usize) -> String {
    let mut sql = String::new();
    for (id, bytes) in [(1, smaller), (2, larger), (3, larger)] {
        sql += &format!(
            "INSERT INTO folded VALUES ({id}, {id}, REPEAT('f', {bytes})); \
             INSERT INTO keyless VALUES ({id}, {id}, REPEAT('k', {bytes}));"
        );
    }
    for id in 1..=2 {
        sql += &format!("INSERT INTO cascading VALUES ({id}, {id}, REPEAT('c', {smaller}), {id});");
    }
    sql + &format!(
        "UPDATE folded SET n = n + 10; UPDATE keyless SET n = n + 10 WHERE id = 1; UPDATE cascading SET n = n + 10; \
         UPDATE folded SET id = id + 100; UPDATE folded SET b = REPEAT('g', {larger}) WHERE id = 101; \
         DELETE FROM keyless WHERE id = 2; DELETE FROM folded WHERE id = 102; DELETE FROM parent WHERE id = 2; \
         INSERT INTO parent VALUES (2); DELETE FROM folded; DELETE FROM cascading WHERE id = 1; DELETE FROM keyless WHERE id = 3;"
    )
}

#[test]
fn large_keyless_rows_are_deleted_in_one_pass() {
    let site = Site::new(&[], &["--max-allowed-packet=1M"]);
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.k (id INT, b LONGBLOB); \
         INSERT INTO d.k SELECT seq % 30, REPEAT(CHAR(65 + seq % 30), 1100000) FROM mysql.seq_1_to_40",
    );
    site.catch_up_from_earliest();
    site.source.sql("DELETE FROM d.k WHERE id < 28 LIMIT 33");
    site.catch_up(&[]);
    site.assert_identical();
}

#[test]
fn row_of_20_megabytes_fits_a_limit_of_16() {
    const LOG: &str = "--innodb-log-file-size=256M";
    let site = Site::new(&[LOG], &[LOG, "--max-allowed-packet=16M"]);
    site.source.sql(TABLES);
    site.source.sql(&format!("USE d; {}", changes(10_000_000, 20_000_000)));
    site.source.sql(&format!("SET SESSION binlog_row_image=MINIMAL; USE d; {}", changes(10_000_000, 20_000_000)));
    site.source.sql("INSERT INTO d.folded VALUES (1, 1, REPEAT('x', 20000000)), (2, 2, REPEAT('y', 20000000))");
    site.catch_up_from_earliest();
}

#[test]
fn row_beyond_two_packets_is_named_with_both_limits() {
    let site = Site::new(&[], &["--max-allowed-packet=1M"]);
    site.source.sql(TABLES);
    site.source.sql("INSERT INTO d.folded VALUES (1, 1, 'small')");
    site.source.sql("INSERT INTO d.folded VALUES (7, 7, REPEAT('x', 2000000))");
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    site.source.sql("INSERT INTO d.folded VALUES (8, 8, 'small')");
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&[&gtid, "insert into d.folded", "id=7", "1048576", "67108864", "max_allowed_packet"]);
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id) FROM d.folded"), "1", "what came before it is applied");
    site.replica.sql("SET GLOBAL max_allowed_packet = 4194304");
    site.catch_up(&[]);
    site.assert_identical();
}

#[test]
fn statement_beyond_a_packet_is_named_with_both_limits() {
    let site = Site::new(&[], &["--max-allowed-packet=1M"]);
    site.source.sql(TABLES);
    let value = "x".repeat(1_500_000);
    site.source.sql(&format!("SET SESSION binlog_format=STATEMENT; INSERT INTO d.folded VALUES (7, 7, '{value}')"));
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&[&gtid, "INSERT INTO d.folded", "1048576", "67108864", "max_allowed_packet"]);
}

#[test]
fn large_rows_stay_within_memory() {
    /// Rows of 16 MB come on top of the budget: an update's event, which holds the row twice, in the intake, in the archive's
    /// writer and in its reader; the row's image in two batches; there as an event, and that as text. With what the allocator
    /// keeps of what was freed, that is sixteen times the row.
    const MEMORY_MAX_KIB: u64 = (64 + 16 * 16) << 10;
    const LOG: &str = "--innodb-log-file-size=256M";
    let site = Site::new(&[LOG], &[LOG]);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT, b LONGBLOB)");
    site.source.sql("INSERT INTO d.t SELECT seq, seq, REPEAT(CHAR(64 + seq), 16000000) FROM mysql.seq_1_to_6");
    site.source.sql(
        "UPDATE d.t SET n = n + 1; UPDATE d.t SET b = REPEAT('z', 16000000) WHERE id < 3; DELETE FROM d.t WHERE id = 4",
    );
    let running = site.spawn(site.replicate(&["--start", "earliest", "--memory", "64MiB", "--until", "caught-up"]));
    let (ended, memory_kib) = memory::peak_until_end(running);
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
    let told = ended.output.matches("is larger than a batch may be within --memory").count();
    assert_eq!(told, 1, "of the updates' events, once: {}", ended.output);
    assert!(memory_kib > 0 && memory_kib <= MEMORY_MAX_KIB, "{memory_kib} KiB");
}

/// What a statement takes beside its text counts, too: a few bytes of it may use a large variable.
#[test]
fn large_user_variables_count_against_memory() {
    const STATEMENTS: usize = 30;
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT)");
    site.catch_up(&["--start", "earliest"]);
    let many = "INSERT INTO d.t VALUES (LENGTH(@a));".repeat(STATEMENTS);
    site.source.sql(&format!("SET binlog_format=STATEMENT, @a=REPEAT('x', 5000000); BEGIN; {many} COMMIT"));
    let running = site.spawn(site.replicate(&["--until", "caught-up", "--memory", "64MiB"]));
    let (ended, memory_kib) = memory::peak_until_end(running);
    assert!(ended.status.success(), "{}", ended.output);
    assert!(memory_kib < 200 << 10, "{memory_kib} KiB");
    assert_eq!(site.replica.sql("SELECT COUNT(*), MIN(a) FROM d.t"), format!("{STATEMENTS}\t5000000"));
}
