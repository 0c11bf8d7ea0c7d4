//! Character sets by the number of a collation, as binlogs give them. A number means the same in all versions of both
//! vendors. Sources: `information_schema.COLLATIONS` and `COLLATION_CHARACTER_SET_APPLICABILITY` of MySQL 9.7 and
//! MariaDB 10.11 and 11.8.

/// From here on, MariaDB's collations have 256 numbers for each of [`LARGE`].
const LARGE_FROM: u32 = 2048;

/// Character sets in the order of MariaDB's largest numbers.
const LARGE: [&str; 5] = ["utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32"];

/// MariaDB's collations that do not pad have the number of another and this.
const UNPADDED: u32 = 1024;

/// Character sets whose first 128 characters are those of ASCII, a byte each, and that have no others in these bytes.
const OF_ASCII: [&str; 12] = [
    "latin1", "latin2", "latin5", "latin7", "utf8mb3", "utf8mb4", "cp1250", "cp1251", "cp1256", "cp1257", "koi8r",
    "koi8u",
];

/// The character set of a collation; `None` for unknown numbers.
pub fn of_collation(number: u32) -> Option<&'static str> {
    Some(match number {
        1 | 84 => "big5",
        2 | 9 | 21 | 27 | 77 => "latin2",
        3 | 69 => "dec8",
        4 | 80 => "cp850",
        5 | 8 | 15 | 31 | 47 | 48 | 49 | 94 => "latin1",
        6 | 72 => "hp8",
        7 | 74 => "koi8r",
        10 | 82 => "swe7",
        11 | 65 => "ascii",
        12 | 91 => "ujis",
        13 | 88 => "sjis",
        14 | 23 | 50 | 51 | 52 => "cp1251",
        16 | 71 => "hebrew",
        18 | 89 => "tis620",
        19 | 85 => "euckr",
        20 | 41 | 42 | 79 => "latin7",
        22 | 75 => "koi8u",
        24 | 86 => "gb2312",
        25 | 70 => "greek",
        26 | 34 | 44 | 66 | 99 => "cp1250",
        28 | 87 => "gbk",
        29 | 58 | 59 => "cp1257",
        30 | 78 => "latin5",
        32 | 64 => "armscii8",
        33 | 76 | 83 | 192..=223 | 576..=579 => "utf8mb3",
        35 | 90 | 128..=159 | 640..=642 => "ucs2",
        36 | 68 => "cp866",
        37 | 73 => "keybcs2",
        38 | 43 => "macce",
        39 | 53 => "macroman",
        40 | 81 => "cp852",
        45 | 46 | 224..=247 | 255..=323 | 608..=611 => "utf8mb4",
        54 | 55 | 101..=124 | 672..=674 => "utf16",
        56 | 62 => "utf16le",
        57 | 67 => "cp1256",
        60 | 61 | 160..=183 | 736..=738 => "utf32",
        63 => "binary",
        92 | 93 => "geostd8",
        95 | 96 => "cp932",
        97 | 98 => "eucjpms",
        248..=250 => "gb18030",
        UNPADDED..LARGE_FROM => return of_collation(number - UNPADDED),
        LARGE_FROM.. => LARGE.get(((number - LARGE_FROM) >> 8) as usize)?,
        _ => return None,
    })
}

/// The most bytes of a character, by which a server counts the length of a column: 1 without a character set. `None`
/// for unknown names.
pub fn character_bytes_max(charset: &str) -> Option<u32> {
    Some(match charset {
        "" | "binary" | "latin1" | "latin2" | "latin5" | "latin7" | "ascii" | "cp1250" | "cp1251" | "cp1256"
        | "cp1257" | "cp850" | "cp852" | "cp866" | "koi8r" | "koi8u" | "greek" | "hebrew" => 1,
        "ucs2" | "big5" | "sjis" | "cp932" | "gbk" | "gb2312" | "euckr" => 2,
        "utf8" | "utf8mb3" | "ujis" | "eucjpms" => 3,
        "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030" => 4,
        _ => return None,
    })
}

/// True if each text of one character set has the same bytes in the other.
pub fn is_part_of(charset: &str, other: &str) -> bool {
    let plain = |name| if name == "utf8" { "utf8mb3" } else { name };
    match (plain(charset), plain(other)) {
        (charset, other) if charset == other => true,
        ("utf8mb3", "utf8mb4") => true,
        ("ascii", other) => OF_ASCII.contains(&other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_kinds_are_one_token() {
        for (number, charset) in [
            (8, Some("latin1")),
            (45, Some("utf8mb4")),
            (255, Some("utf8mb4")),
            (63, Some("binary")),
            (1024 + 47, Some("latin1")),
            (2304, Some("utf8mb4")),
            (2048, Some("utf8mb3")),
            (0, None),
            (17, None),
            (1024, None),
            (u32::MAX, None),
        ] {
            assert_eq!(of_collation(number), charset, "{number}");
        }
    }

    #[test]
    fn characters_of_each_set_have_their_length() {
        let all = ["", "latin1", "sjis", "utf8", "utf8mb4", "cp1251", "one to come"].map(character_bytes_max);
        assert_eq!(all, [Some(1), Some(1), Some(2), Some(3), Some(4), Some(1), None]);
    }

    #[test]
    fn edits_keep_other_bytes() {
        for (one, other) in [("latin1", "latin1"), ("utf8", "utf8mb3"), ("utf8mb3", "utf8mb4"), ("ascii", "latin1")] {
            assert!(is_part_of(one, other), "{one} {other}");
        }
        for (one, other) in [("latin1", "utf8mb4"), ("utf8mb4", "utf8mb3"), ("ascii", "ucs2"), ("binary", "latin1")] {
            assert!(!is_part_of(one, other), "{one} {other}");
        }
    }
}
