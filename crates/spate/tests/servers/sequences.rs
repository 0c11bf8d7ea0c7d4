//! Sequences: what is left of them after every kind of change.

use crate::support::{Kind, Oracle, Site};

/// The row of every sequence in the schema `d`.
fn assert_same_sequences(site: &Site) {
    let sequences = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd' ORDER BY 1";
    for name in site.source.sql(sequences).lines() {
        let row = format!("SELECT * FROM d.{name}; SHOW CREATE SEQUENCE d.{name}");
        assert_eq!(site.source.sql(&row), site.replica.sql(&row), "{name}");
    }
}

/// A row of a sequence that is inserted is its new definition; SETVAL and NEXTVAL go on from there.
const INSERTED: &str = "CREATE DATABASE d; USE d; \
    CREATE SEQUENCE beyond MAXVALUE 100; DO NEXTVAL(beyond); INSERT INTO beyond VALUES (500, 1, 1000, 1, 5, 100, 1, 0); \
    CREATE SEQUENCE within MAXVALUE 100; DO NEXTVAL(within); INSERT INTO within VALUES (50, 1, 1000, 1, 5, 100, 1, 0); \
    DO NEXTVAL(within); CREATE SEQUENCE back; DO SETVAL(back, 7000); INSERT INTO back VALUES (5, 1, 1000, 1, -1, 0, 0, 0); \
    DO NEXTVAL(back); SET binlog_row_image = MINIMAL; DO NEXTVAL(beyond); DO NEXTVAL(within); DO NEXTVAL(back); \
    CREATE SEQUENCE small MAXVALUE 3 NOCACHE CYCLE; INSERT INTO small VALUES (9000, 1, 9000, 1, 9, 0, 0, 3); DO NEXTVAL(small); ";

/// Each takes its last value, both with full and with partial images.
const EXHAUSTED: &str = "CREATE SEQUENCE e1 MAXVALUE 2 NOCACHE; DO NEXTVAL(e1); DO NEXTVAL(e1); \
    CREATE SEQUENCE e2 INCREMENT -7 MINVALUE -20 MAXVALUE -1 NOCACHE; DO NEXTVAL(e2); DO NEXTVAL(e2); DO NEXTVAL(e2); \
    CREATE SEQUENCE e3 START WITH 9223372036854775806 NOCACHE; DO NEXTVAL(e3); \
    CREATE SEQUENCE e4 INCREMENT -1 START WITH -9223372036854775807 NOCACHE; DO NEXTVAL(e4); \
    CREATE SEQUENCE e5 MAXVALUE 2 CYCLE CACHE 2; DO NEXTVAL(e5); DO NEXTVAL(e5); DO NEXTVAL(e5); DO NEXTVAL(e5); ";

/// Of every type, rising and falling, with and without a sign.
const TYPED: &str = "CREATE SEQUENCE t1 AS INT MINVALUE -100 MAXVALUE 100 START WITH -50 NOCACHE; DO NEXTVAL(t1); \
    CREATE SEQUENCE t2 AS TINYINT MINVALUE -100 MAXVALUE 100 START WITH -50 NOCACHE; DO NEXTVAL(t2); \
    CREATE SEQUENCE t3 AS MEDIUMINT START WITH -50 MINVALUE -100 NOCACHE; DO NEXTVAL(t3); \
    CREATE SEQUENCE t4 AS INT INCREMENT -3 NOCACHE; DO NEXTVAL(t4); DO NEXTVAL(t4); \
    CREATE SEQUENCE t5 AS TINYINT INCREMENT -1 START WITH -126 NOCACHE; DO NEXTVAL(t5); DO NEXTVAL(t5); \
    CREATE SEQUENCE t6 AS BIGINT UNSIGNED START WITH 9223372036854775900 NOCACHE; DO NEXTVAL(t6); \
    CREATE SEQUENCE t7 AS BIGINT UNSIGNED START WITH 18446744073709551614 NOCACHE; DO NEXTVAL(t7); \
    CREATE SEQUENCE t8 AS BIGINT UNSIGNED INCREMENT -1 NOCACHE; DO NEXTVAL(t8); \
    CREATE SEQUENCE t9 AS TINYINT UNSIGNED START WITH 253 CYCLE NOCACHE; DO NEXTVAL(t9); DO NEXTVAL(t9); \
    CREATE SEQUENCE ta AS SMALLINT UNSIGNED START WITH 2 INCREMENT -1 NOCACHE; DO NEXTVAL(ta); DO NEXTVAL(ta); ";

#[test]
fn sequences_inserted_or_exhausted_continue_alike() {
    for (kind, dialect) in [(Kind::Mariadb, "replay"), (Kind::Mariadb118, "replay"), (Kind::Mariadb, "sql")] {
        let site = Site::of(kind);
        site.source.sql(&format!("{INSERTED} SET binlog_row_image = FULL; {EXHAUSTED}"));
        site.source.sql(&format!(
            "USE d; SET binlog_row_image = MINIMAL; {}",
            EXHAUSTED.replace(" e", " p").replace("(e", "(p")
        ));
        site.catch_up(&["--start", "earliest", "--dialect", dialect]);
        assert_same_sequences(&site);
    }
}

#[test]
fn typed_sequences_have_the_same_next_value() {
    for dialect in ["replay", "sql"] {
        let site = Site::of(Kind::Mariadb118);
        site.source.sql(&format!("CREATE DATABASE d; USE d; {TYPED}"));
        site.source
            .sql(&format!("USE d; SET binlog_row_image = MINIMAL; {}", TYPED.replace(" t", " p").replace("(t", "(p")));
        site.catch_up(&["--start", "earliest", "--dialect", dialect]);
        assert_same_sequences(&site);
    }
}

/// Sessions that take values from one sequence are logged in another order than that in which they took them. A server's own replica thread sets a
/// sequence to no lower value for that. Where transactions are applied beside each other, those of sequences are not: servers neither lock nor roll
/// them back.
#[test]
fn values_that_are_logged_in_another_order_are_not_taken_back() {
    const SEQUENCES: u32 = 40;
    let transaction = ["--consistency", "transaction", "--parallel-by", "commit-group", "--appliers", "8"];
    Oracle::new(Kind::Mariadb, &[], &[]).in_ways(&[&[], &transaction], |oracle, way, schema| {
        let source = &oracle.site.source;
        let create =
            |n| format!("CREATE SEQUENCE {schema}.s{n} NOCACHE INCREMENT {};", if n % 4 == 0 { -2 } else { 3 });
        let create: String = (1..=SEQUENCES).map(create).collect();
        source.sql("SET GLOBAL binlog_commit_wait_count=0");
        source.sql(&format!("CREATE DATABASE {schema}; {create}"));
        source.sql("SET GLOBAL binlog_commit_wait_count=4; SET GLOBAL binlog_commit_wait_usec=300000");
        let next: String = (1..=SEQUENCES).map(|n| format!("SELECT NEXTVAL({schema}.s{n});")).collect();
        std::thread::scope(|scope| {
            for images in ["FULL", "FULL", "FULL", "MINIMAL"] {
                let next = format!("SET SESSION binlog_row_image={images}; {next}");
                scope.spawn(move || source.sql(&next));
            }
        });
        oracle.catch_up(way);
    });
}
