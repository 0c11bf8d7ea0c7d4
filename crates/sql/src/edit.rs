//! Changes of a statement's text: by whole tokens, with a check that the new text has the intended tokens.

use std::fmt;
use std::ops::Range;

use crate::lexer::{Doubt, Lexer, Token, TokenKind};
use crate::reading::Reading;

/// A replacement of whole tokens, or, with an empty range between two tokens, an insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The bytes of the statement to remove.
    pub range: Range<usize>,
    /// The text in their place. It must mean the same in any text of the statement's encoding and mode.
    pub text: Vec<u8>,
}

/// The reason why a statement is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The text may mean something else to a server.
    Doubtful(Doubt),
    /// The changed text would not be the same statement but for the changes.
    Different,
    /// The text to write in its place is not known: why.
    Untold(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Doubtful(doubt) => {
                write!(f, "its text cannot be read with certainty (at byte {}: {})", doubt.at, doubt.why)
            }
            Refusal::Different => f.write_str("a change of its text would make another statement of it"),
            Refusal::Untold(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// Applies changes to a statement. The changes are in order and do not overlap.
///
/// # Errors
/// [`Refusal`], unless the lexer is sure of the old and of the new text, and the tokens of the new text are those of
/// the old one with the tokens of each change in their places.
pub fn apply(sql: &[u8], edits: &[Edit], reading: &Reading) -> Result<Vec<u8>, Refusal> {
    let changed = changed(sql, edits)?;
    // Compare token by token, since a text may be as large as a packet.
    let (mut before, mut after) = (Lexer::new(sql, reading), Lexer::new(&changed, reading));
    for edit in edits {
        while let Some(token) = before.peek().filter(|token| token.range().end <= edit.range.start) {
            before.next();
            must_be(after.next(), &token)?;
        }
        while let Some(token) = before.peek().filter(|token| token.start < edit.range.end) {
            before.next();
            if token.start < edit.range.start || token.range().end > edit.range.end {
                return Err(Refusal::Different);
            }
        }
        let mut inserted = Lexer::new(&edit.text, reading);
        for token in inserted.by_ref() {
            must_be(after.next(), &token)?;
        }
        certain(&inserted)?;
    }
    for token in before.by_ref() {
        must_be(after.next(), &token)?;
    }
    let is_over = after.next().is_none();
    certain(&before)?;
    certain(&after)?;
    if is_over { Ok(changed) } else { Err(Refusal::Different) }
}

/// The text with these changes, unchecked.
fn changed(sql: &[u8], edits: &[Edit]) -> Result<Vec<u8>, Refusal> {
    let mut changed = Vec::with_capacity(sql.len());
    let mut end = 0;
    for Edit { range, text } in edits {
        changed.extend_from_slice(sql.get(end..range.start).ok_or(Refusal::Different)?);
        changed.extend_from_slice(text);
        end = range.end;
        if end < range.start {
            return Err(Refusal::Different);
        }
    }
    changed.extend_from_slice(sql.get(end..).ok_or(Refusal::Different)?);
    Ok(changed)
}

fn must_be(token: Option<Token<'_>>, expected: &Token<'_>) -> Result<(), Refusal> {
    let is_it = token.is_some_and(|token| (token.kind, token.text) == (expected.kind, expected.text));
    if is_it { Ok(()) } else { Err(Refusal::Different) }
}

/// Checks that the lexer is sure of all tokens so far.
///
/// # Errors
/// [`Refusal::Doubtful`].
pub fn certain(lexer: &Lexer<'_>) -> Result<(), Refusal> {
    lexer.doubt().map_or(Ok(()), |doubt| Err(Refusal::Doubtful(doubt)))
}

/// All tokens of a text, if the lexer is sure of it.
///
/// # Errors
/// The doubt.
pub fn tokens<'a>(sql: &'a [u8], reading: &Reading) -> Result<Vec<Token<'a>>, Doubt> {
    let mut lexer = Lexer::new(sql, reading);
    let tokens: Vec<Token<'a>> = lexer.by_ref().collect();
    match lexer.doubt() {
        None => Ok(tokens),
        Some(doubt) => Err(doubt),
    }
}

/// The parts of a list, between the commas outside brackets.
pub fn clauses<'t, 'a>(tokens: &'t [Token<'a>]) -> impl Iterator<Item = &'t [Token<'a>]> {
    let mut depth = 0u32;
    tokens.split(move |token| {
        match token.kind {
            TokenKind::Mark(b'(') => depth += 1,
            TokenKind::Mark(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token.is_mark(b',')
    })
}

/// Writes a name in backticks, for any text of this encoding. `None` if the encoding is not known to have its
/// characters.
pub fn quoted_name(name: &str, reading: &Reading) -> Option<Vec<u8>> {
    let is_utf8 = matches!(reading.encoding, crate::Encoding::Utf8 { .. });
    let can_be_written = if is_utf8 { true } else { name.is_ascii() && reading.encoding.has_ascii() };
    let quoted = format!("`{}`", name.replace('`', "``")).into_bytes();
    let is_one_name = |tokens: Vec<Token<'_>>| match tokens.as_slice() {
        [token] => token.kind == TokenKind::Quoted && token.name().as_deref() == Some(name),
        _ => false,
    };
    let is_exact = can_be_written && tokens(&quoted, reading).is_ok_and(is_one_name);
    is_exact.then_some(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(range: Range<usize>, text: &str) -> Edit {
        Edit { range, text: text.into() }
    }

    #[test]
    fn edit_replaces_whole_tokens_and_nothing_else() {
        let reading = Reading::plain();
        let sql = b"SELECT DATABASE ( ), 'DATABASE()' -- DATABASE()";
        let without = apply(sql, &[edit(7..19, "NULL")], &reading);
        assert_eq!(without.unwrap(), b"SELECT NULL, 'DATABASE()' -- DATABASE()");
        let defined = apply(b"ALTER EVENT e", &[edit(6..6, "DEFINER=`a` ")], &reading);
        assert_eq!(defined.unwrap(), b"ALTER DEFINER=`a` EVENT e");
        assert_eq!(apply(b"a", &[edit(1..1, " b")], &reading).unwrap(), b"a b");
        assert_eq!(apply(b"a", &[], &reading).unwrap(), b"a");
    }

    #[test]
    fn edit_that_makes_another_statement_is_refused() {
        let reading = Reading::plain();
        for (sql, change) in [
            ("a bc", edit(3..4, "x")),
            ("a b", edit(2..2, "x")),
            ("a 'b' c", edit(3..4, "x")),
            ("a - b", edit(3..3, "- ")),
            ("a b", edit(2..3, "'")),
            ("a b", edit(2..9, "x")),
            ("a /b", edit(3..3, "*x*/")),
            ("a 'b", edit(0..1, "x")),
        ] {
            assert!(apply(sql.as_bytes(), &[change], &reading).is_err(), "{sql}");
        }
    }

    #[test]
    fn quoted_names_read_back_unchanged() {
        let reading = |charset: &str| Reading { encoding: crate::Encoding::of_charset(charset), ..Reading::plain() };
        assert_eq!(quoted_name("a`b", &reading("sjis")).unwrap(), b"`a``b`");
        assert_eq!(quoted_name("ä", &reading("utf8mb4")).unwrap(), "`ä`".as_bytes());
        assert_eq!(quoted_name("ä", &reading("latin1")), None);
        assert_eq!(quoted_name("a", &reading("swe7")), None);
        assert_eq!(quoted_name("a\0b", &reading("utf8mb4")), None);
    }
}
