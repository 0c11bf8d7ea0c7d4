//! Rows written as SQL statements: every type arrives exactly, and whatever is missing is noticed.

use crate::support::Site;

const SQL: [&str; 4] = ["--start", "earliest", "--dialect", "sql"];

/// The same statements that the codec's golden files come from.
const TYPES: &str = include_str!("../../../binlog/tests/sql/types.sql");

fn catch_up(site: &Site) {
    site.catch_up(&SQL);
    site.assert_identical();
}

#[test]
fn every_type_arrives_exactly() {
    for options in [
        &["--binlog-row-image=FULL"][..],
        &["--binlog-row-image=MINIMAL", "--log-bin-compress=1", "--log-bin-compress-min-len=10"],
        &["--binlog-row-image=NOBLOB", "--binlog-row-metadata=FULL"],
    ] {
        let site = Site::new(options, &["--character-set-server=latin1", "--sql-mode=TRADITIONAL"]);
        site.source.sql(TYPES);
        site.source.sql(
            "CREATE TABLE types.wrapped (id INT PRIMARY KEY, b BLOB COMPRESSED); SET SESSION column_compression_zlib_wrap=1; \
             INSERT INTO types.wrapped VALUES (1, REPEAT('wrapped', 99))",
        );
        catch_up(&site);
    }
}
