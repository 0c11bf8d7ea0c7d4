//! What kind of statement a Query event holds, told by its first words.

/// What a statement does to the transaction that it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementClass {
    /// INSERT, UPDATE, DELETE, REPLACE: part of a transaction.
    Change,
    /// SAVEPOINT, ROLLBACK TO, RELEASE: part of a transaction.
    Savepoint,
    /// Everything that commits by itself: CREATE, ALTER, DROP, GRANT, TRUNCATE, RENAME …
    Definition,
    /// XA START, END, PREPARE …
    Xa,
}

/// Tells a statement's class by its first word.
pub fn classify(sql: &[u8]) -> StatementClass {
    let words = skip_comments(sql);
    let first = first_word(words);
    let is = |word: &[u8]| first.eq_ignore_ascii_case(word);
    if is(b"XA") {
        StatementClass::Xa
    } else if [b"SAVEPOINT".as_slice(), b"ROLLBACK", b"RELEASE"].into_iter().any(is) {
        StatementClass::Savepoint
    } else if [b"INSERT".as_slice(), b"UPDATE", b"DELETE", b"REPLACE", b"WITH", b"LOAD"].into_iter().any(is) {
        StatementClass::Change
    } else {
        StatementClass::Definition
    }
}

/// True for any XA statement.
pub fn is_xa(sql: &[u8]) -> bool {
    classify(sql) == StatementClass::Xa
}

/// Why a statement is refused, if it is. `uses_temporary_table` is the event's flag.
pub(crate) fn refusal(class: StatementClass, uses_temporary_table: bool) -> Option<&'static str> {
    match class {
        StatementClass::Xa => Some("XA transactions are not supported yet"),
        StatementClass::Change if uses_temporary_table => {
            Some("statements that use temporary tables are not supported yet; set binlog_format=ROW on the source")
        }
        _ => None,
    }
}

/// The beginning of a statement, for messages.
pub fn excerpt(sql: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 100;
    let text = String::from_utf8_lossy(sql);
    let mut short: String = text.chars().take(CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("statement '{short}'")
}

fn first_word(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    &text[..end]
}

/// What follows leading white space, comments, opening parentheses, and the opening of an executable comment.
fn skip_comments(mut text: &[u8]) -> &[u8] {
    loop {
        let trimmed = text.trim_ascii_start();
        text = if let Some(rest) = trimmed.strip_prefix(b"/*!").or_else(|| trimmed.strip_prefix(b"/*M!")) {
            let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
            &rest[digits..]
        } else if trimmed.starts_with(b"/*") {
            after(trimmed, b"*/")
        } else if trimmed.starts_with(b"#") || trimmed.starts_with(b"-- ") {
            after(trimmed, b"\n")
        } else if let Some(rest) = trimmed.strip_prefix(b"(") {
            rest
        } else {
            return trimmed;
        };
    }
}

fn after<'a>(text: &'a [u8], end: &[u8]) -> &'a [u8] {
    let found = text.windows(end.len()).position(|window| window == end);
    found.map_or(&[], |position| &text[position + end.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_decides() {
        assert_eq!(classify(b"insert into t values (1)"), StatementClass::Change);
        assert_eq!(classify(b"/* why */ UPDATE t SET a=1"), StatementClass::Change);
        assert_eq!(classify(b"# a\n-- b\n DELETE FROM t"), StatementClass::Change);
        assert_eq!(classify(b"ROLLBACK TO `s`"), StatementClass::Savepoint);
        assert_eq!(classify(b"CREATE TABLE t (a INT)"), StatementClass::Definition);
        assert_eq!(classify(b"/*!40005 DROP TABLE t */"), StatementClass::Definition);
        assert_eq!(classify(b"xa start 'x'"), StatementClass::Xa);
        assert_eq!(classify(b"/* never closed"), StatementClass::Definition);
    }
}
