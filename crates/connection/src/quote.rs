//! Names and values as SQL text that means the same under every `sql_mode` and every connection character set.
//!
//! A backslash in a quoted string has two meanings, depending on `NO_BACKSLASH_ESCAPES`, so strings with a backslash
//! are written in hexadecimal. Identifiers are quoted with backticks, whose meaning `ANSI_QUOTES` does not change.

/// A name in backticks.
pub fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// `schema`.`table`.
pub fn qualified(schema: &str, table: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(table))
}

/// A hint behind a table's name that changes nothing of how the table is read. No view takes a hint for an index, so that where somebody
/// has put one in the table's place, the query is refused, before anything of the view is executed. (A view's functions may have the
/// rights of whoever reads it.)
pub const NO_VIEW: &str = "USE INDEX FOR GROUP BY ()";

/// A statement that fails if a view is in the table's place, and reads nothing. Until the transaction ends, the table stays what it is.
pub fn hold_table(schema: &str, table: &str) -> String {
    format!("DO (SELECT 1 FROM {} {NO_VIEW} LIMIT 0)", qualified(schema, table))
}

/// Arbitrary bytes as a binary string: `x'00ff'`. It compares by bytes, not by a collation.
pub fn bytes(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(3 + 2 * bytes.len());
    text.push_str("x'");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text.push('\'');
    text
}

/// Text as a string in the character set utf8mb4. A comparison with a column uses the column's collation.
pub fn text(value: &str) -> String {
    let is_plain = value.chars().all(|character| !character.is_control() && character != '\\');
    match is_plain && value.is_ascii() {
        true => format!("'{}'", value.replace('\'', "''")),
        false => format!("_utf8mb4 {}", bytes(value.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_keep_every_character() {
        assert_eq!(identifier("a`b\"c\\"), "`a``b\"c\\`");
        assert_eq!(qualified("s", "t t"), "`s`.`t t`");
    }

    #[test]
    fn quoted_values_with_special_bytes_are_hexadecimal() {
        assert_eq!(bytes(b""), "x''");
        assert_eq!(bytes(&[0, 0x7f, 0xff]), "x'007fff'");
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(text("a\\"), "_utf8mb4 x'615c'");
        assert_eq!(text("ü"), "_utf8mb4 x'c3bc'");
        assert_eq!(text("a\0"), "_utf8mb4 x'6100'");
    }
}
