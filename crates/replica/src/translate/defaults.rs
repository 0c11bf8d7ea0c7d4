//! Defaults for MySQL, which takes a function as a default only in brackets, and so a constant for a column that is a BLOB, a TEXT
//! or JSON.

use super::{Edit, spelled};
use spate_sql::{Token, TokenKind};

/// Functions that MySQL takes without brackets.
const TIMES: [&str; 4] = ["CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"];

/// Puts brackets where MySQL needs them.
pub(super) fn bracket(tokens: &[Token<'_>], edits: &mut [Edit]) {
    for at in 0..tokens.len() {
        if !tokens[at].is("DEFAULT") {
            continue;
        }
        let end = call(tokens, at + 1).or_else(|| constant(tokens, at + 1).filter(|_| is_large(&tokens[..at])));
        if let Some(end) = end {
            edits[at + 1] = Edit::Bracket { opens: true, closes: end == at + 1 };
            if end > at + 1 {
                edits[end] = Edit::Bracket { opens: false, closes: true };
            }
        }
    }
}

/// The last token of a function that is called at `at`.
fn call(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let is_function = |token: &Token<'_>| token.kind == TokenKind::Word && !TIMES.iter().any(|time| token.is(time));
    if !is_function(tokens.get(at)?) || !tokens.get(at + 1)?.is_mark(b'(') {
        return None;
    }
    let mut depth = 0;
    tokens.iter().enumerate().skip(at + 1).find_map(|(at, token)| {
        match token.kind {
            TokenKind::Mark(b'(') => depth += 1,
            TokenKind::Mark(b')') => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// The last token of a string or a number at `at`: a string may say its character set.
fn constant(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let first = tokens.get(at)?;
    let is_string = |at: usize| tokens.get(at).is_some_and(|token| token.kind == TokenKind::Text);
    match first.kind {
        TokenKind::Text => Some(at),
        TokenKind::Word if first.is_number() => Some(at),
        TokenKind::Word if is_string(at + 1) => Some(at + 1),
        _ => None,
    }
}

/// True if the definition of a column that ends here is one of a large type.
fn is_large(before: &[Token<'_>]) -> bool {
    let mut depth = 0;
    for token in before.iter().rev() {
        match token.kind {
            TokenKind::Mark(b')') => depth += 1,
            TokenKind::Mark(b'(') if depth == 0 => return false,
            TokenKind::Mark(b'(') => depth -= 1,
            TokenKind::Mark(b',') if depth == 0 => return false,
            TokenKind::Word if depth == 0 => {
                let name = spelled(token).to_ascii_uppercase();
                if name.ends_with("TEXT") || name.ends_with("BLOB") || name == "JSON" {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}
