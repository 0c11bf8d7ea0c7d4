//! How bytes of a client's character set form characters, as far as a lexer needs it: the length of a character, its
//! class (white space, part of a name, other), and names in UTF-8.

use crate::charset;
use crate::single_byte;
pub use crate::single_byte::SingleByte;

/// The character set of a statement's text (`character_set_client`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// utf8mb4, or utf8mb3 if no character may have four bytes.
    Utf8 {
        /// The most bytes of a character: 3 or 4.
        bytes_max: usize,
    },
    /// One byte a character, by this table.
    SingleByte(&'static SingleByte),
    /// ASCII, and unknown other bytes: names with such bytes cannot be decoded.
    Ascii,
    /// Characters of two or more bytes.
    Wide(Wide),
    /// Unknown: even bytes of ASCII may be other characters.
    #[default]
    Unknown,
}

/// Character sets of up to four bytes a character, the first above those of ASCII. In some of them a byte of ASCII,
/// such as a backslash or a backtick, may be a character's second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide {
    /// Traditional Chinese.
    Big5,
    /// Japanese: sjis and cp932.
    Sjis,
    /// Simplified Chinese.
    Gbk,
    /// Simplified Chinese; the largest, with characters of four bytes.
    Gb18030,
    /// ujis, eucjpms, euckr, gb2312: no byte that closes or escapes anything is ever part of a character.
    Euc,
}

/// The class of a byte above ASCII, outside quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HighByte {
    /// It begins a character of this many bytes that can be part of a name.
    Letter(usize),
    /// White space.
    Space,
    /// A control character: after `--` it begins a comment.
    Control,
    /// Any other character, which no statement has outside quotes.
    Other,
    /// Unknown.
    Unknown,
}

impl Encoding {
    /// The encoding of `character_set_client`, by the number of one of its collations; `None` if the source gave no
    /// number.
    pub fn of_collation(number: Option<u32>) -> Encoding {
        number.and_then(charset::of_collation).map_or(Encoding::Unknown, Encoding::of_charset)
    }

    /// The encoding of a character set by its name.
    pub fn of_charset(name: &str) -> Encoding {
        match name {
            "utf8mb4" => Encoding::Utf8 { bytes_max: 4 },
            "utf8mb3" | "utf8" => Encoding::Utf8 { bytes_max: 3 },
            "ascii" | "binary" | "dec8" | "tis620" => Encoding::Ascii,
            "big5" => Encoding::Wide(Wide::Big5),
            "sjis" | "cp932" => Encoding::Wide(Wide::Sjis),
            "gbk" => Encoding::Wide(Wide::Gbk),
            "gb18030" => Encoding::Wide(Wide::Gb18030),
            "ujis" | "eucjpms" | "euckr" | "gb2312" => Encoding::Wide(Wide::Euc),
            // swe7 has letters in place of backslash, backtick and brackets; a client cannot use ucs2 and the like.
            _ => match single_byte::ALL.iter().find(|table| table.0.charset == name) {
                Some(table) => Encoding::SingleByte(table),
                None => Encoding::Unknown,
            },
        }
    }

    /// The bytes of the character that `text` begins with, as the servers count them in strings: an ill-formed one
    /// counts as one.
    pub fn character_bytes(self, text: &[u8]) -> usize {
        let Encoding::Wide(wide) = self else { return 1 };
        let [first, second, ..] = *text else { return 1 };
        let is_long = match wide {
            Wide::Big5 => matches!(first, 0xa1..=0xf9) && matches!(second, 0x40..=0x7e | 0xa1..=0xfe),
            Wide::Sjis => matches!(first, 0x81..=0x9f | 0xe0..=0xfc) && matches!(second, 0x40..=0x7e | 0x80..=0xfc),
            Wide::Gbk => matches!(first, 0x81..=0xfe) && matches!(second, 0x40..=0x7e | 0x80..=0xfe),
            Wide::Gb18030 => {
                if let [0x81..=0xfe, 0x30..=0x39, 0x81..=0xfe, 0x30..=0x39, ..] = *text {
                    return 4;
                }
                matches!(first, 0x81..=0xfe) && matches!(second, 0x40..=0x7e | 0x80..=0xfe)
            }
            // Each byte of a character is above those of ASCII, so nothing depends on where it ends.
            Wide::Euc => false,
        };
        if is_long { 2 } else { 1 }
    }

    /// The class, outside quotes, of the byte above ASCII with which `text` begins.
    pub(crate) fn high_byte(self, text: &[u8]) -> HighByte {
        match (self, text) {
            (_, []) => HighByte::Unknown,
            (Encoding::Utf8 { bytes_max }, text) => utf8_letter(text, bytes_max),
            (Encoding::SingleByte(table), [first, ..]) => match table.class(*first) {
                b'a' => HighByte::Letter(1),
                b' ' => HighByte::Space,
                b'c' => HighByte::Control,
                _ => HighByte::Other,
            },
            // The two vendors do not agree which of their characters may be in a name.
            (Encoding::Ascii | Encoding::Wide(_) | Encoding::Unknown, _) => HighByte::Unknown,
        }
    }

    /// True if ASCII names can be added to a text, and mean the same there.
    pub fn has_ascii(self) -> bool {
        self != Encoding::Unknown
    }

    /// Decodes a name to UTF-8; `None` if its characters are unknown.
    pub fn decode(self, name: &[u8]) -> Option<String> {
        if name.is_ascii() && self.has_ascii() {
            return String::from_utf8(name.to_vec()).ok();
        }
        match self {
            // The servers keep names in utf8mb3; MySQL turns a character that utf8mb3 lacks into a question mark.
            Encoding::Utf8 { .. } => {
                let name = std::str::from_utf8(name).ok()?;
                name.chars().all(|character| character.len_utf8() < 4).then(|| name.to_owned())
            }
            Encoding::SingleByte(table) => name.iter().map(|&byte| table.character(byte)).collect(),
            Encoding::Ascii | Encoding::Wide(_) | Encoding::Unknown => None,
        }
    }
}

/// Reads a character of UTF-8 above ASCII.
fn utf8_letter(text: &[u8], bytes_max: usize) -> HighByte {
    let length = match text[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return HighByte::Unknown,
    };
    let is_character = text.get(..length).is_some_and(|bytes| std::str::from_utf8(bytes).is_ok());
    if is_character && length <= bytes_max { HighByte::Letter(length) } else { HighByte::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_set_tables_cover_each_byte() {
        for table in single_byte::ALL {
            assert_eq!(table.0.characters.chars().count(), 128, "{}", table.0.charset);
            assert_eq!(table.0.classes.len(), 128, "{}", table.0.charset);
        }
    }

    #[test]
    fn names_decode_exactly_or_not_at_all() {
        for (charset, name, expected) in [
            ("latin1", b"t\xe4".as_slice(), Some("tä")),
            ("latin1", b"\x80", Some("€")),
            ("cp1251", b"\xf2", Some("т")),
            ("latin7", b"\xa5", Some("„")),
            ("latin2", b"plain", Some("plain")),
            ("utf8mb4", "tä€".as_bytes(), Some("tä€")),
            ("utf8mb4", "t😀".as_bytes(), None),
            ("utf8mb4", b"t\xe4", None),
            ("sjis", b"t\x95\x5c", None),
            ("sjis", b"t", Some("t")),
            ("binary", b"t\xc3\xa4", None),
            ("swe7", b"t", None),
            ("cp1250", b"\x81", None),
        ] {
            assert_eq!(Encoding::of_charset(charset).decode(name).as_deref(), expected, "{charset} {name:?}");
        }
    }

    #[test]
    fn second_byte_like_a_backslash_does_not_escape() {
        for (charset, text, length) in [
            ("sjis", b"\x95\x5c'".as_slice(), 2),
            ("cp932", b"\x95'", 1),
            ("gbk", b"\xbf\x5c", 2),
            ("gbk", b"\xbf", 1),
            ("big5", b"\xa5\x5c", 2),
            ("big5", b"\x95\x5c", 1),
            ("gb18030", b"\x81\x30\x81\x30'", 4),
            ("gb18030", b"\x81\x30\x81'", 1),
            ("ujis", b"\x95\x5c", 1),
            ("latin1", b"\x95\x5c", 1),
            ("utf8mb4", b"\xe4\x5c", 1),
        ] {
            assert_eq!(Encoding::of_charset(charset).character_bytes(text), length, "{charset} {text:?}");
        }
    }
}
