//! A statement as tokens that know where they stand.

use super::Refusal;

/// Comments with a version up to this one are executed by every server of both vendors.
const VERSION_OF_ALL: u32 = 50_699;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword, a number, or a name without quotes.
    Word,
    /// A name in backticks or double quotes.
    Quoted,
    /// A string in single quotes.
    Text,
    /// Any other character.
    Mark(u8),
}

/// A piece of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
    text: &'a [u8],
}

impl Token<'_> {
    /// True if it is this keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(keyword.as_bytes())
    }

    pub(super) fn is_mark(&self, mark: u8) -> bool {
        self.kind == TokenKind::Mark(mark)
    }

    pub(super) fn is_number(&self) -> bool {
        self.kind == TokenKind::Word && self.text.iter().all(u8::is_ascii_digit)
    }

    /// What it names, without quotes.
    pub(super) fn name(&self) -> String {
        let text = String::from_utf8_lossy(self.text);
        match self.kind {
            TokenKind::Word => text.into_owned(),
            TokenKind::Quoted | TokenKind::Text => text[1..text.len() - 1].to_owned(),
            TokenKind::Mark(_) => String::new(),
        }
    }
}

/// The tokens of a statement. What stands in comments that all servers execute counts.
///
/// # Errors
/// A comment that only some execute.
pub(super) fn tokens(sql: &[u8]) -> Result<Vec<Token<'_>>, Refusal> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = sql.get(at) {
        let rest = &sql[at..];
        let length = match first {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'#' => {
                at += line(rest);
                continue;
            }
            b'-' if is_line_comment(rest) => {
                at += line(rest);
                continue;
            }
            b'/' if rest.starts_with(b"/*") => {
                at += comment(rest)?;
                continue;
            }
            b'*' if rest.starts_with(b"*/") => {
                at += 2;
                continue;
            }
            b'`' | b'"' | b'\'' => quoted(rest, first),
            byte if is_word(byte) => rest.iter().take_while(|&&byte| is_word(byte)).count(),
            _ => 1,
        };
        let kind = match first {
            b'`' | b'"' if length > 1 => TokenKind::Quoted,
            b'\'' if length > 1 => TokenKind::Text,
            byte if is_word(byte) => TokenKind::Word,
            byte => TokenKind::Mark(byte),
        };
        tokens.push(Token { kind, start: at, end: at + length, text: &rest[..length] });
        at += length;
    }
    Ok(tokens)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'@') || byte >= 0x80
}

fn is_line_comment(rest: &[u8]) -> bool {
    rest.starts_with(b"--") && rest.get(2).is_none_or(u8::is_ascii_whitespace)
}

fn line(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1)
}

/// The length of a comment, or, if servers execute it, of what opens it.
fn comment(rest: &[u8]) -> Result<usize, Refusal> {
    const REFUSAL: Refusal = "it has a comment that only some servers execute: write the statement without it";
    if rest.starts_with(b"/*M!") {
        return Err(REFUSAL);
    }
    if rest.starts_with(b"/*!") {
        let digits = rest[3..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let version = String::from_utf8_lossy(&rest[3..3 + digits]).parse().unwrap_or(0);
        return if version <= VERSION_OF_ALL { Ok(3 + digits) } else { Err(REFUSAL) };
    }
    let end = rest[2..].windows(2).position(|pair| pair == b"*/");
    Ok(end.map_or(rest.len(), |end| end + 4))
}

/// The length of a quoted piece; 1 if it does not end.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' if quote != b'`' => at += 2,
            byte if byte == quote && rest.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    1
}
