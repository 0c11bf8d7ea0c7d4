//! Alterations between the vendors that give a column another type: what becomes of the values that are there is the same on both
//! servers, or the alteration is refused.

use std::fmt::Write;

use crate::support::{Kind, Site};

const PAIRS: [(Kind, Kind); 2] = [(Kind::Mariadb, Kind::Mysql), (Kind::Mysql, Kind::Mariadb118)];

const NUMBERS: &str = "0,1,-1,7,127,-128,200,32768,4294967295,99999999999,18446744073709551615,-9223372036854775808,1.5,2.5,-2.5,\
                       0.1,123.456,1e10,1e20,1e-7,123456789.123456789,20240229,101112,2024,70,NULL";
const TIMES: &str = "'2024-02-29','1999-12-31 23:59:59.999999','2024-02-29 10:11:12.5','2038-01-19 03:14:07','0000-00-00',\
                     '2024-00-10','9999-12-31 23:59:59','10:11:12.654321','-101:59:59.5','838:59:59',NULL";
const TEXTS: &str = "'','abc','ABC','1',' 12 ','1e5','äöü','日本','😀','a  ','2024-02-29','99999999999999999999','red','Red',\
                     'red,blue','2','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL";
const CHOICES: &str = "'red','blue','',NULL";

/// Types, what is inserted into columns of them, and what they become.
const ALIKE: [(&[&str], &str, &[&str]); 10] = [
    (
        &["TINYINT", "INT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "INT(8) ZEROFILL"],
        NUMBERS,
        &[
            "SMALLINT",
            "INT UNSIGNED",
            "BIGINT",
            "BIGINT UNSIGNED",
            "DECIMAL(8,2)",
            "DOUBLE",
            "VARCHAR(5)",
            "VARBINARY(30)",
        ],
    ),
    (
        &["DECIMAL(10,2)", "DECIMAL(30,10)"],
        NUMBERS,
        &["TINYINT", "INT UNSIGNED", "BIGINT", "DECIMAL(5,1)", "DOUBLE", "TEXT"],
    ),
    (&["FLOAT", "DOUBLE"], NUMBERS, &["FLOAT", "DOUBLE", "FLOAT(8,2)", "DOUBLE(12,3)", "DECIMAL(12,3)"]),
    (&["YEAR"], "1901,2024,2155,0,NULL", &["INT", "DECIMAL(6,2)", "CHAR(4)"]),
    (&["BIT(16)"], "0,1,255,24930,NULL", &["BIT(3)", "TINYINT", "BIGINT UNSIGNED"]),
    (
        &["DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP NULL", "TIMESTAMP(6) NULL"],
        TIMES,
        &["DATETIME(6)", "TIMESTAMP(6) NULL", "VARCHAR(40)"],
    ),
    (&["DATETIME"], TIMES, &["DATE"]),
    (&["TIME", "TIME(3)"], TIMES, &["TIME(3)", "TIME(6)", "CHAR(20)"]),
    (
        &["CHAR(10)", "VARCHAR(40)", "TEXT", "VARCHAR(40) CHARACTER SET latin1", "VARCHAR(40) CHARACTER SET ucs2"],
        TEXTS,
        &["VARCHAR(5)", "TINYTEXT", "VARCHAR(90) CHARACTER SET latin1", "VARBINARY(30)", "ENUM('blue','red','2')"],
    ),
    (
        &["ENUM('red','blue')", "SET('red','blue')"],
        CHOICES,
        &["VARCHAR(2)", "TEXT CHARACTER SET utf16", "VARBINARY(20)"],
    ),
];

/// What is there, its type, and what it becomes.
const NOT_ALIKE: [(&str, &str, &str); 6] = [
    ("'1e5'", "VARCHAR(9)", "INT"),
    ("1e20", "DOUBLE", "TEXT"),
    ("'2024-02-29 10:11:12.999'", "DATETIME(3)", "DATETIME"),
    ("7", "INT", "SET('a','b')"),
    ("'{\"a\":  1}'", "JSON", "TEXT"),
    ("'[1,   2]'", "LONGTEXT", "JSON"),
];

#[test]
fn alike_conversions_between_vendors_are_passed_on() {
    for (source, replica) in PAIRS {
        let site = Site::between((source, &[]), (replica, &[]));
        let mut script = "SET sql_mode=''; SET timestamp=1700000000; CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE \
                          utf8mb4_general_ci; USE d;"
            .to_owned();
        let mut count = 0;
        for (types, values, targets) in ALIKE {
            let values: String = values.split(',').map(|value| format!("({value}),")).collect();
            for (from, to) in types.iter().flat_map(|from| targets.iter().map(move |to| (from, to))) {
                count += 1;
                // 'red,blue' is one value.
                let values = values.trim_end_matches(',').replace("'red),(blue'", "'red,blue'");
                write!(
                    script,
                    "CREATE TABLE t{count} (id INT AUTO_INCREMENT PRIMARY KEY, c {from}); INSERT IGNORE INTO t{count} (c) \
                     VALUES {values}; ALTER TABLE t{count} MODIFY c {to};"
                )
                .unwrap();
            }
        }
        site.source.sql(&script);
        site.catch_up_from_earliest();
    }
}

#[test]
fn differing_conversions_between_vendors_are_refused() {
    for (source, replica) in PAIRS {
        let site = Site::between((source, &[]), (replica, &[]));
        site.source.sql("CREATE DATABASE d");
        site.catch_up(&["--start", "earliest"]);
        for (number, (value, from, to)) in NOT_ALIKE.into_iter().enumerate() {
            site.source.sql(&format!(
                "CREATE TABLE d.t{number} (id INT PRIMARY KEY, c {from}); INSERT INTO d.t{number} VALUES (1, {value})"
            ));
            site.catch_up(&[]);
            site.assert_identical();
            let before = site.source.position();
            site.source.sql(&format!("SET sql_mode=''; ALTER TABLE d.t{number} CHANGE c n {to}"));
            let ended = site.run(site.replicate(&["--until", "caught-up"]));
            ended.assert_failed_saying(&["ALTER TABLE", "column 'c'", "--skip", "source.000001:"]);
            assert_eq!(site.checkpoint(), before, "nothing of it was applied");
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0", "nothing is in doubt");
            // The way out that is shown: by hand, and without it.
            let gtid = last_gtid(&site);
            site.catch_up(&["--skip", &format!("gtid:{gtid}")]);
            site.source.sql(&format!("DROP TABLE d.t{number}"));
            site.catch_up(&[]);
        }
    }
}

/// The GTID of the source's last transaction.
fn last_gtid(site: &Site) -> String {
    let position = site.source.position();
    match position.rsplit_once('-') {
        Some((uuid, last)) if position.contains(':') => {
            let (uuid, _) = uuid.rsplit_once(':').unwrap();
            format!("{uuid}:{last}")
        }
        _ => position,
    }
}
