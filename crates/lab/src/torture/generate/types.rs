//! Column types, character sets and collations.

use super::super::feature::{Feature, FeatureSet};
use crate::random::Random;

/// A character set and one of its collations.
#[derive(Debug, Clone)]
pub(super) struct Collation {
    pub(super) charset: String,
    pub(super) name: String,
}

/// The use of a column, which determines its possible types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A whole column in a key.
    Key,
    /// Anything.
    Payload,
}

/// Numbers, times and other types that no collation applies to, which keys can hold.
const PLAIN: [&str; 30] = [
    "TINYINT",
    "SMALLINT UNSIGNED",
    "MEDIUMINT",
    "INT",
    "INT UNSIGNED",
    "INT(5) ZEROFILL",
    "BIGINT",
    "BIGINT UNSIGNED",
    "DECIMAL(10,2)",
    "DECIMAL(38,20)",
    "DECIMAL(5,0) UNSIGNED",
    "FLOAT",
    "FLOAT(7,2)",
    "DOUBLE",
    "BIT(1)",
    "BIT(9)",
    "BIT(64)",
    "YEAR",
    "DATE",
    "TIME",
    "TIME(3)",
    "DATETIME",
    "DATETIME(6)",
    "TIMESTAMP NULL",
    "TIMESTAMP(4) NULL",
    "BINARY(4)",
    "VARBINARY(20)",
    "UUID",
    "INET6",
    "INET4",
];

/// Character types that keys can hold.
const CHARACTERS: [&str; 5] =
    ["CHAR(5)", "VARCHAR(20)", "VARCHAR(250)", "ENUM('a','b','C','d e','')", "SET('a','b','C','d')"];

/// Types that are too large for keys.
const LARGE_CHARACTERS: [&str; 5] = ["TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "VARCHAR(2000)"];
const LARGE: [&str; 7] = ["TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "POINT", "GEOMETRY", "LINESTRING"];

/// Collations with special properties. Half of the columns have one of these, the others any that the server knows.
const PECULIAR: [&str; 12] = [
    "utf8mb4_general_ci",
    "utf8mb4_bin",
    "utf8mb4_unicode_ci",
    "utf8mb4_nopad_bin",
    "utf8mb4_general_nopad_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb4_german2_ci",
    "utf8mb4_turkish_ci",
    "latin1_swedish_ci",
    "latin1_german2_ci",
    "utf8mb3_unicode_ci",
    "utf16_general_ci",
];

/// A type, and the first letter of its columns' names: `j` is JSON, which MariaDB's catalogue does not tell from
/// LONGTEXT.
pub(super) fn draw(
    random: &mut Random,
    features: &FeatureSet,
    usage: Use,
    collations: &[Collation],
) -> (&'static str, String) {
    if !features.has(Feature::Types) {
        return match random.below(3) {
            0 => ("v", "VARCHAR(20)".to_owned()),
            1 => ("b", "BIGINT".to_owned()),
            _ => ("i", "INT".to_owned()),
        };
    }
    let kinds = if usage == Use::Key { 10 } else { 14 };
    match random.below(kinds) {
        0..=4 => ("p", random.word(&PLAIN).to_owned()),
        5 => ("i", "INT".to_owned()),
        6..=9 => ("v", with_collation(random, &CHARACTERS, collations)),
        10 => ("x", with_collation(random, &LARGE_CHARACTERS, collations)),
        11 => ("j", "JSON".to_owned()),
        _ => ("l", random.word(&LARGE).to_owned()),
    }
}

fn with_collation(random: &mut Random, words: &[&'static str], collations: &[Collation]) -> String {
    let word = random.word(words);
    if random.chance(30) { word.to_owned() } else { format!("{word} {}", collation(random, collations)) }
}

/// `CHARACTER SET … COLLATE …`.
pub(super) fn collation(random: &mut Random, collations: &[Collation]) -> String {
    let peculiar = random.word(&PECULIAR);
    let known = if random.chance(50) { collations.iter().find(|known| known.name == peculiar) } else { None };
    match known.or_else(|| random.pick(collations)) {
        Some(Collation { charset, name }) => format!("CHARACTER SET {charset} COLLATE {name}"),
        None => String::new(),
    }
}
