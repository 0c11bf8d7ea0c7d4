//! Values for columns: few, so that keys collide, and odd, so that wrong conversions show.

use super::super::world::{Column, Table};
use crate::random::Random;
use crate::sql::quote;

const ASCII: [&str; 20] =
    ["a", "A", "a ", "b", "B", "ab", "AB", "aB ", "", "ss", "SS", "x'y", "z\\", "0", "00", " ", "~", "ae", "o", "C"];
const WESTERN: [&str; 10] = ["ä", "Ä", "á", "ß", "é", "É", "æ", "Æ", "ö", "ñ"];
const BASIC_PLANE: [&str; 12] = ["ǆ", "ı", "İ", "ﬀ", "Ω", "ω", "日本", "a\u{300}", "à", "\u{200b}a", "Ż", "ё"];
const BEYOND: [&str; 3] = ["😀", "𝒜", "😀a"];

/// An SQL literal that the column most likely accepts.
pub(super) fn literal(random: &mut Random, column: &Column) -> String {
    if column.is_nullable && random.chance(12) {
        return "NULL".to_owned();
    }
    if random.chance(3) {
        return "DEFAULT".to_owned();
    }
    constant(random, column)
}

/// As [`literal`], but never NULL or DEFAULT: for conditions.
pub(super) fn constant(random: &mut Random, column: &Column) -> String {
    let kind = column.data_type.as_str();
    if column.name.starts_with('j') && kind == "longtext" {
        return random
            .word(&["'{}'", "'[1, 2]'", "'{\"a\": \"ä\"}'", "'null'", "'\"x\"'", "'{\"b\":1,  \"a\":[]}'"])
            .to_owned();
    }
    match kind {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => integer(random, column),
        "decimal" => random.word(&["0", "1", "1.5", "2.25", "99.99", "3", "7", "12", "0.01"]).to_owned(),
        "float" | "double" => random
            .word(&["0", "0.1", "1.5", "-1.5", "1e10", "3.25e-5", "-0.0", "100000", "7.77", "16777217"])
            .to_owned(),
        "bit" if column.column_type == "bit(1)" => random.word(&["b'0'", "b'1'"]).to_owned(),
        "bit" => random.word(&["b'0'", "b'1'", "b'101'", "b'11111111'", "b'100000001'"]).to_owned(),
        "year" => random.word(&["0", "1901", "2155", "1999", "2026", "70", "'00'"]).to_owned(),
        "date" => random.word(&DATES).to_owned(),
        "time" => random.word(&TIMES).to_owned(),
        "datetime" => random.word(&DATETIMES).to_owned(),
        "timestamp" => random.word(&TIMESTAMPS).to_owned(),
        "enum" => random.word(&["'a'", "'b'", "'C'", "'c'", "'d e'", "''", "1", "'A'"]).to_owned(),
        "set" => random.word(&["'a'", "'a,b'", "''", "'d,a'", "'C'", "3", "'A,c'"]).to_owned(),
        "uuid" => format!("'{:08x}-0000-4000-8000-00000000000{}'", random.below(4), random.below(9)),
        "inet6" => random.word(&["'::'", "'::1'", "'fe80::2'", "'::ffff:1.2.3.4'", "'2001:db8::ff'"]).to_owned(),
        "inet4" => random.word(&["'0.0.0.0'", "'10.0.0.1'", "'255.255.255.255'", "'1.2.3.4'"]).to_owned(),
        "point" => format!("POINT({}, {})", random.below(4), random.below(4)),
        "geometry" => random
            .word(&[
                "POINT(1,2)",
                "ST_GeomFromText('LINESTRING(0 0,1 1)')",
                "ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0))')",
            ])
            .to_owned(),
        "linestring" => "ST_GeomFromText('LINESTRING(0 0,1 1,2 3)')".to_owned(),
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => bytes(random, column),
        _ => string(random, column),
    }
}

const DATES: [&str; 7] =
    ["'2020-02-29'", "'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2021-00-00'", "'2026-11-21'", "'1970-01-01'"];
const TIMES: [&str; 6] =
    ["'00:00:00'", "'-838:59:59'", "'838:59:59'", "'12:34:56.123456'", "'-00:00:01'", "'23:59:59.9'"];
const DATETIMES: [&str; 6] = [
    "'2020-02-29 12:00:00'",
    "'0000-00-00 00:00:00'",
    "'9999-12-31 23:59:59.999999'",
    "'2026-11-21 01:02:03.123456'",
    "'1000-01-01 00:00:00'",
    "'2021-03-28 02:30:00'",
];
const TIMESTAMPS: [&str; 5] = [
    "'1970-01-02 00:00:01'",
    "'2038-01-18 03:14:07'",
    "'0000-00-00 00:00:00'",
    "'2026-11-21 01:02:03.123456'",
    "'2021-03-28 12:30:00'",
];

fn integer(random: &mut Random, column: &Column) -> String {
    if random.chance(93) {
        let bound = if random.chance(60) { 12 } else { 60 };
        return random.below(bound).to_string();
    }
    let is_unsigned = column.column_type.contains("unsigned");
    let extremes: &[&str] = match (column.data_type.as_str(), is_unsigned) {
        // After the largest value an AUTO_INCREMENT column accepts no more rows.
        _ if column.is_auto_increment => &["0", "77", "100"],
        ("tinyint", false) => &["-128", "127", "-1"],
        ("tinyint", true) => &["255", "128"],
        ("smallint", false) => &["-32768", "32767"],
        ("smallint", true) => &["65535"],
        ("mediumint", false) => &["-8388608", "8388607"],
        ("mediumint", true) => &["16777215"],
        ("int", false) => &["-2147483648", "2147483647", "-1"],
        ("int", true) => &["4294967295", "2147483648"],
        (_, false) => &["-9223372036854775808", "9223372036854775807", "-1"],
        (_, true) => &["18446744073709551615", "9223372036854775808"],
    };
    extremes.get(random.below(extremes.len())).unwrap_or(&"1").to_string()
}

/// The number in brackets, such as 20 of `varchar(20)`.
fn length(column: &Column) -> usize {
    let inner = column.column_type.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inner.and_then(|(digits, _)| digits.parse().ok()).unwrap_or(match column.data_type.as_str() {
        "tinytext" | "tinyblob" => 60,
        _ => 4000,
    })
}

/// Text whose characters are all in the character set.
pub(super) fn text(random: &mut Random, charset: &str, characters_max: usize) -> String {
    let pools: &[&[&str]] = match charset {
        "utf8mb4" | "utf16" | "utf32" | "utf16le" => &[&ASCII, &WESTERN, &BASIC_PLANE, &BEYOND],
        "utf8mb3" | "utf8" | "ucs2" => &[&ASCII, &WESTERN, &BASIC_PLANE],
        "latin1" => &[&ASCII, &WESTERN],
        _ => &[&ASCII],
    };
    let pool = pools[random.below(pools.len())];
    let mut text = pool[random.below(pool.len())].to_owned();
    if random.chance(35) {
        text += pool[random.below(pool.len())];
    }
    if random.chance(20) {
        text += &random.below(30).to_string();
    }
    text.chars().take(characters_max).collect()
}

fn string(random: &mut Random, column: &Column) -> String {
    let length = length(column);
    let text = quoted(&text(random, &column.charset, length.min(12)));
    if length > 100 && random.chance(15) {
        return format!("REPEAT('{}', {})", random.word(&["a", "Ab", "xyz ", "q"]), 1 + random.below(length / 4));
    }
    text
}

fn bytes(random: &mut Random, column: &Column) -> String {
    let length = length(column);
    if length > 100 && random.chance(15) {
        return format!("REPEAT(x'00ff', {})", 1 + random.below(length / 2));
    }
    random.word(&["x''", "x'00'", "x'0000'", "x'61'", "x'6120'", "x'FF00'", "'A'", "x'27'", "x'5C'", "'ab'"]).to_owned()
}

/// A string literal whose end is the same with and without NO_BACKSLASH_ESCAPES.
pub(super) fn quoted(text: &str) -> String {
    // A backslash at the end would hide the quote after it.
    let text = text.trim_end_matches('\\');
    format!("'{}'", text.replace('\'', "''"))
}

/// A condition on the table's rows: usually on its key, so that it finds one.
pub(super) fn condition(random: &mut Random, table: &Table) -> String {
    let comparable: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| !matches!(column.data_type.as_str(), "point" | "geometry" | "linestring"))
        .collect();
    let by_key = random.chance(70);
    let key: Vec<&Column> = table
        .keys
        .first()
        .map(|key| key.columns.iter().filter_map(|name| table.column(name)).collect())
        .unwrap_or_default();
    let candidates = if by_key && !key.is_empty() { &key } else { &comparable };
    let Some(column) = random.pick(candidates).copied() else { return "1=1".to_owned() };
    let name = quote(&column.name);
    // A number stands for a member of an ENUM or SET, but not next to a text.
    let is_named = matches!(column.data_type.as_str(), "enum" | "set");
    let mut constant = || {
        let constant = constant(random, column);
        if is_named && !constant.starts_with('\'') { quoted(&constant) } else { constant }
    };
    let (first, second, third) = (constant(), constant(), constant());
    match random.below(10) {
        0..=3 => format!("{name} = {first}"),
        4 => format!("{name} <= {first}"),
        5 => format!("{name} >= {first}"),
        6 => format!("{name} IN ({first}, {second}, {third})"),
        7 => format!("{name} BETWEEN {first} AND {second}"),
        8 => format!("{name} <> {first}"),
        _ => format!("{name} IS NULL OR {name} = {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_cannot_escape_its_quotes() {
        assert_eq!(quoted("x'y"), "'x''y'");
        assert_eq!(quoted("z\\"), "'z'");
    }

    #[test]
    fn generated_text_fits_column_and_character_set() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!(text(&mut random, "cp1251", 3).is_ascii());
            assert!(text(&mut random, "utf8mb4", 2).chars().count() <= 2);
            assert!(text(&mut random, "utf8mb3", 9).chars().all(|character| character.len_utf8() < 4));
        }
    }
}
