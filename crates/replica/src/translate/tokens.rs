//! A statement as tokens that know where they stand.

use super::Refusal;

/// Comments with a version up to this one are executed by every server of both vendors.
const VERSION_OF_ALL: u32 = 50_699;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword, a number, or a name without quotes.
    Word,
    /// A name in quotes.
    Quoted,
    /// A string.
    Text,
    /// Any other character.
    Mark(u8),
}

/// What quotes mean in the sql_mode that a statement was executed with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quoting {
    /// A backslash is a character like any other in strings.
    pub(crate) has_plain_backslash: bool,
    /// Double quotes are for names.
    pub(crate) has_quoted_names: bool,
}

impl Quoting {
    /// By the bits of the mode.
    pub(crate) fn of(sql_mode: Option<u64>) -> Quoting {
        const ANSI_QUOTES: u64 = 1 << 2;
        const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;
        let has = |mode: u64| sql_mode.is_some_and(|modes| modes & mode != 0);
        Quoting { has_plain_backslash: has(NO_BACKSLASH_ESCAPES), has_quoted_names: has(ANSI_QUOTES) }
    }

    /// The kind of a piece in these quotes.
    fn kind(self, quote: u8) -> TokenKind {
        match quote {
            b'`' => TokenKind::Quoted,
            b'"' if self.has_quoted_names => TokenKind::Quoted,
            _ => TokenKind::Text,
        }
    }
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
            TokenKind::Quoted => {
                let quote = &text[..1];
                text[1..text.len() - 1].replace(&quote.repeat(2), quote)
            }
            TokenKind::Text => text[1..text.len() - 1].to_owned(),
            TokenKind::Mark(_) => String::new(),
        }
    }
}

/// The tokens of a statement. What stands in comments that all servers execute counts.
///
/// # Errors
/// A comment that only some execute.
pub(super) fn tokens(sql: &[u8], quoting: Quoting) -> Result<Vec<Token<'_>>, Refusal> {
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
            b'`' | b'"' | b'\'' => {
                let has_escapes = quoting.kind(first) == TokenKind::Text && !quoting.has_plain_backslash;
                quoted(rest, first, has_escapes)
            }
            byte if is_word(byte) => rest.iter().take_while(|&&byte| is_word(byte)).count(),
            _ => 1,
        };
        let kind = match first {
            b'`' | b'"' | b'\'' if length > 1 => quoting.kind(first),
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
fn quoted(rest: &[u8], quote: u8, has_escapes: bool) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' if has_escapes => at += 2,
            byte if byte == quote && rest.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    1
}
