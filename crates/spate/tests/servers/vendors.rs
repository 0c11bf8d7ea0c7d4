//! The tests' own servers: all kinds start, know each other's rows, and keep what they are given.

use crate::support::ledger::Ledger;
use crate::support::{Kind, Site, contents};

/// Types that the vendors keep or print in ways of their own.
const TABLE: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, f FLOAT, d DOUBLE, n DECIMAL(20,5), \
    b BIT(9), y VARBINARY(9), j JSON, g POINT, s VARCHAR(20) CHARACTER SET utf8mb4, e ENUM('a','ö'), t TIMESTAMP(3) NULL)";
const ROWS: &str = "SET time_zone = '+00:00'; INSERT INTO d.t VALUES \
    (1, 0.1, 1e100, 12345.67891, 5, X'0009', '{\"b\": [1, 2.5, null],  \"a\": \"x\\\\\\\\y\"}', POINT(1, -2), 'ä😀\\t', 'ö', \
     '2026-11-21 12:00:00.123'), \
    (2, -3.4e38, -0.0, -1, 511, '', 'null', NULL, '', 'a', NULL), \
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

#[test]
fn verify_compares_rows_of_both_vendors() {
    for (one, other) in [(Kind::Mariadb, Kind::Mysql), (Kind::Mysql, Kind::Mariadb118)] {
        let site = Site::between((one, &[]), (other, &[]));
        site.both(&format!("{TABLE}; {ROWS}"));
        site.assert_identical();
        site.replica.sql("UPDATE d.t SET j = '{\"a\": \"x\", \"b\": [1, 2.5, null]}' WHERE id = 1");
        let compared = std::panic::catch_unwind(|| contents::assert_same(&site.source, &site.replica));
        assert!(compared.is_err(), "a difference in one value must show");
    }
}

#[test]
fn every_pair_of_vendors_survives_kills() {
    for kind in [Kind::Mariadb, Kind::Mariadb118, Kind::Mysql] {
        let mut site = Site::of(kind);
        let before = site.source.position();
        let mut ledger = Ledger::begin(&site.source, 1);
        ledger.work(&site.source);
        ledger.define(&site.source);
        let (position, checksums) = (site.source.position(), site.source.checksums());
        assert_ne!(position, before);
        site.source.kill();
        site.source.begin();
        assert_eq!((site.source.position(), site.source.checksums()), (position, checksums));
    }
}
