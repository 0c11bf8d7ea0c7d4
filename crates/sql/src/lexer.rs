//! The one lexer: it splits a statement's text into tokens, as the servers do.
//!
//! If it is not sure that the servers see the same tokens, it reports a doubt ([`Lexer::doubt`]) and continues as well
//! as it can. Then no caller may rely on the tokens: see [`Doubt`].
//!
//! Sources: the documentation of both vendors on literals, identifiers, comments and `sql_mode`, and the results of
//! running servers on random texts (`examples/compare_with_servers.rs`).

use std::fmt;
use std::ops::Range;

use crate::encoding::{Encoding, HighByte};
use crate::reading::{Comment, Reading, Vendor};

/// The reason why a text may mean something else to a server than to this lexer, and the place from which on.
///
/// A caller that decides by the text if it may fold, reorder, cache or leave out something, must then assume the worst.
/// A caller that would edit the text, refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// The offset in the text, in bytes.
    pub at: usize,
    /// Why the reading is unclear.
    pub why: &'static str,
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword, a number, or a name without quotes.
    Word,
    /// A word that can only be a name although it has no quotes: directly behind a dot, or behind `@@`.
    Name,
    /// A name in quotes.
    Quoted,
    /// A string.
    Text,
    /// The word behind an `@` without quotes: the name of a variable, or a host. It may be empty.
    Variable,
    /// Any other character.
    Mark(u8),
}

/// A piece of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// The token's kind.
    pub kind: TokenKind,
    /// The token's bytes, quotes included.
    pub text: &'a [u8],
    /// The offset in the statement at which it begins, in bytes.
    pub start: usize,
    encoding: Encoding,
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.text.escape_ascii())
    }
}

impl Token<'_> {
    /// True if it is this keyword.
    #[inline]
    pub fn is(&self, keyword: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(keyword.as_bytes())
    }

    /// True if it is one of these keywords.
    #[inline]
    pub fn is_one_of(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    /// True if it is this character.
    #[inline]
    pub fn is_mark(&self, mark: u8) -> bool {
        self.kind == TokenKind::Mark(mark)
    }

    /// True if it is a whole number.
    #[inline]
    pub fn is_number(&self) -> bool {
        self.kind == TokenKind::Word && self.text.iter().all(u8::is_ascii_digit)
    }

    /// Its bytes in the statement.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// True if it can be the name of something.
    pub fn is_name(&self) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::Name | TokenKind::Quoted)
    }

    /// The token as a name, in UTF-8. `None` if it is not a name, or if its characters are unknown.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            // MySQL does not convert a name that begins with a digit.
            TokenKind::Word | TokenKind::Name if !self.text.is_ascii() && self.text[0].is_ascii_digit() => {
                matches!(self.encoding, Encoding::Utf8 { .. }).then(|| self.encoding.decode(self.text))?
            }
            TokenKind::Word | TokenKind::Name => self.encoding.decode(self.text),
            TokenKind::Quoted => self.unquoted(),
            TokenKind::Text | TokenKind::Variable | TokenKind::Mark(_) => None,
        }
    }

    /// The text between its quotes, each doubled one once, in UTF-8; without quotes, the token itself. Backslashes stay as they
    /// are. `None` if it is not known what it spells.
    pub fn unquoted(&self) -> Option<String> {
        let [open, body @ .., close] = self.text else { return self.encoding.decode(self.text) };
        if !matches!(self.kind, TokenKind::Quoted | TokenKind::Text) {
            return self.encoding.decode(self.text);
        }
        let body = self.encoding.decode(body)?;
        let close = char::from(*close);
        let _opens = open;
        Some(body.replace(&String::from_iter([close, close]), &close.to_string()))
    }
}

/// The tokens of a statement, in order.
#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    sql: &'a [u8],
    at: usize,
    reading: Reading,
    /// True inside a comment that is executed: the lexer skips its end.
    is_in_comment: bool,
    previous: Previous,
    doubt: Option<Doubt>,
}

/// The token directly before a place, with nothing in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Previous {
    /// None that matters.
    Nothing,
    /// A name without quotes: after it and a dot, a word that begins with a digit is a name, too.
    Name,
    /// A number.
    Number,
    /// A dot. A name follows; a word that begins with a digit is one only if a name precedes the dot.
    Dot { is_of_name: bool, is_of_number: bool },
    /// An `@`: a variable or a host follows.
    At,
    /// Two `@`: a variable of the server follows.
    TwoAts,
}

impl<'a> Lexer<'a> {
    /// A lexer at the beginning of a statement.
    pub fn new(sql: &'a [u8], reading: &Reading) -> Lexer<'a> {
        let mut lexer =
            Lexer { sql, at: 0, reading: *reading, is_in_comment: false, previous: Previous::Nothing, doubt: None };
        if reading.encoding == Encoding::Unknown {
            lexer.doubt_from(0, "its character set is not known");
        }
        lexer
    }

    /// The reason why a server may see other tokens so far; `None` if it sees the same ones.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Marks the tokens from here on as doubtful.
    pub fn doubt_here(&mut self, why: &'static str) {
        self.doubt_from(self.at, why);
    }

    /// The offset at which the last token ended, in bytes.
    pub fn end(&self) -> usize {
        self.at
    }

    /// The next token, without skipping it.
    pub fn peek(&self) -> Option<Token<'a>> {
        self.clone().next()
    }

    /// Skips the next token if it is this keyword.
    pub fn accept(&mut self, keyword: &str) -> bool {
        self.accept_if(|token| token.is(keyword))
    }

    /// Skips the next tokens if they are these keywords.
    pub fn accept_all(&mut self, keywords: &[&str]) -> bool {
        let mut ahead = self.clone();
        let are_next = keywords.iter().all(|keyword| ahead.accept(keyword));
        if are_next {
            *self = ahead;
        }
        are_next
    }

    /// Skips the next token if it is this character.
    pub fn accept_mark(&mut self, mark: u8) -> bool {
        self.accept_if(|token| token.is_mark(mark))
    }

    fn accept_if(&mut self, is_it: impl Fn(&Token<'a>) -> bool) -> bool {
        let mut ahead = self.clone();
        let accepted = ahead.next().is_some_and(|token| is_it(&token));
        if accepted {
            *self = ahead;
        }
        accepted
    }

    /// Skips the next token and returns it as a name. A name with unknown characters is doubtful.
    pub fn name(&mut self) -> Option<String> {
        let token = self.next().filter(Token::is_name)?;
        let name = token.name();
        if name.is_none() {
            self.doubt_from(token.start, "a name holds bytes of which it is not known what they spell");
        }
        name
    }

    fn doubt_from(&mut self, at: usize, why: &'static str) {
        self.doubt.get_or_insert(Doubt { at, why });
    }

    fn rest(&self) -> &'a [u8] {
        &self.sql[self.at.min(self.sql.len())..]
    }

    fn byte(&self, offset: usize) -> Option<u8> {
        self.sql.get(self.at + offset).copied()
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        loop {
            let before = self.at;
            match self.byte(0) {
                Some(b' ' | b'\t'..=b'\r') => self.at += 1,
                Some(0x80..) if self.reading.encoding.high_byte(self.rest()) == HighByte::Space => self.at += 1,
                Some(b'#') => self.skip_line(),
                Some(b'-') if self.byte(1) == Some(b'-') && self.begins_comment(2) => self.skip_line(),
                Some(b'/') if self.byte(1) == Some(b'*') => self.skip_comment(),
                Some(b'*') if self.is_in_comment && self.byte(1) == Some(b'/') => {
                    self.is_in_comment = false;
                    self.at += 2;
                }
                _ => {}
            }
            if self.at == before {
                return;
            }
            self.previous = Previous::Nothing;
        }
    }

    /// True if the byte after two dashes makes them a comment.
    fn begins_comment(&self, offset: usize) -> bool {
        match self.byte(offset) {
            None | Some(0..=b' ' | 0x7f) => true,
            Some(0x80..) => {
                let byte = self.reading.encoding.high_byte(&self.rest()[offset..]);
                matches!(byte, HighByte::Space | HighByte::Control)
            }
            Some(_) => false,
        }
    }

    /// Skips to the end of the line. (A NUL ends the comment, too; no statement follows it.)
    fn skip_line(&mut self) {
        let rest = self.rest();
        let length = rest.iter().position(|&byte| byte == b'\n' || byte == 0).unwrap_or(rest.len());
        self.at += length;
    }

    fn skip_comment(&mut self) {
        let text = &self.rest()[2..];
        let comment = match text {
            [b'!', ..] | [b'M', b'!', ..] => self.reading.servers.comment(text),
            _ => Comment::Ignored { nests: false },
        };
        match comment {
            Comment::Executed(length) => {
                self.at += 2 + length;
                self.is_in_comment = true;
            }
            Comment::Doubtful => {
                self.doubt_here("a comment is executed by some servers only");
                self.at += 2 + text.iter().take_while(|byte| matches!(byte, b'M' | b'!' | b'0'..=b'9')).count();
                self.is_in_comment = true;
            }
            Comment::Ignored { nests } => {
                let Some(length) = comment_bytes(text, nests) else {
                    self.doubt_here("a comment is not closed");
                    self.at = self.sql.len();
                    return;
                };
                if text.first() == Some(&b'+') && text[..length].iter().any(|byte| b"'\"`$".contains(byte)) {
                    self.doubt_here("a hint for the optimizer holds quotes");
                }
                self.at += 2 + length;
            }
        }
    }

    /// The length of a string, or of a name in quotes, at this place; `None` if it does not end.
    fn quoted_bytes(&self, close: u8, has_escapes: bool) -> Option<usize> {
        let text = self.rest();
        let mut at = 1;
        while let Some(&byte) = text.get(at) {
            if byte >= 0x80 {
                at += self.reading.encoding.character_bytes(&text[at..]);
            } else if byte == b'\\' && has_escapes {
                // A backslash escapes any byte after it, even the first of a long character.
                at += 2;
            } else if byte == close {
                if text.get(at + 1) != Some(&close) {
                    return Some(at + 1);
                }
                at += 2;
            } else {
                at += 1;
            }
        }
        None
    }

    fn quoted(&mut self, open: u8) -> Token<'a> {
        let is_name = open == b'`' || open == b'[' || open == b'"' && self.reading.ansi_quotes;
        let close = if open == b'[' { b']' } else { open };
        let Some(length) = self.quoted_bytes(close, !is_name && !self.reading.plain_backslashes) else {
            self.doubt_here("a quote is not closed");
            return self.token(TokenKind::Text, self.rest().len());
        };
        if is_name && self.rest()[..length].contains(&0) {
            self.doubt_here("a name holds a NUL");
        }
        self.token(if is_name { TokenKind::Quoted } else { TokenKind::Text }, length)
    }

    /// The length of a word at this place, in bytes.
    fn word_bytes(&mut self) -> usize {
        let text = self.rest();
        let mut length = 0;
        while let Some(&byte) = text.get(length) {
            length += match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' => 1,
                0x80.. => match self.reading.encoding.high_byte(&text[length..]) {
                    HighByte::Letter(bytes) => bytes,
                    HighByte::Space | HighByte::Control | HighByte::Other => return length,
                    HighByte::Unknown => {
                        self.doubt_from(self.at + length, "a byte without quotes is not a known part of a name");
                        1
                    }
                },
                _ => return length,
            };
        }
        length
    }

    fn word(&mut self, kind: TokenKind) -> Token<'a> {
        let length = self.word_bytes();
        let text = &self.rest()[..length];
        let is_mariadb = self.reading.servers.are_all(Vendor::MariaDb);
        if text.first() == Some(&b'$') && kind == TokenKind::Word && !is_mariadb {
            self.doubt_here("a dollar sign may open a string");
        }
        // If an expected exponent is missing, servers skip more than one character.
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let has_exponent = matches!(text.get(digits), Some(b'e' | b'E'));
        let is_fraction = match self.previous {
            Previous::Dot { is_of_name, is_of_number } => is_of_number || !is_of_name && digits > 0,
            _ => false,
        };
        if is_fraction && has_exponent {
            let rest = &self.rest()[digits + 1..];
            let rest = rest.strip_prefix(b"+").or_else(|| rest.strip_prefix(b"-")).unwrap_or(rest);
            if !rest.first().is_some_and(u8::is_ascii_digit) {
                self.doubt_here("a number has no exponent where one should be");
            }
        }
        self.token(kind, length)
    }

    /// Reads the rest of a variable or of an account, after its `@`.
    fn variable(&mut self) -> Token<'a> {
        let text = self.rest();
        let mut length = 0;
        while let Some(&byte) = text.get(length) {
            length += match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' | b'.' => 1,
                0x80.. => match self.reading.encoding.high_byte(&text[length..]) {
                    HighByte::Letter(bytes) => bytes,
                    _ => {
                        self.doubt_from(self.at + length, "a byte after an @ is not a known part of a name");
                        1
                    }
                },
                _ => break,
            };
        }
        self.token(TokenKind::Variable, length)
    }

    fn token(&mut self, kind: TokenKind, length: usize) -> Token<'a> {
        let text = &self.rest()[..length];
        let token = Token { kind, text, start: self.at, encoding: self.reading.encoding };
        self.at += length;
        token
    }

    fn mark(&mut self, byte: u8) -> Token<'a> {
        let is_control = byte < b' ' || byte == 0x7f;
        if is_control {
            self.doubt_here("a control character stands outside of quotes");
        }
        if byte >= 0x80 {
            self.doubt_here("a byte without quotes is no part of a name");
        }
        if byte == b'\\' && self.byte(1) != Some(b'N') {
            self.doubt_here("a backslash stands outside of quotes");
        }
        self.token(TokenKind::Mark(byte), 1)
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let is_directly_after = |previous| matches!(previous, Previous::At | Previous::TwoAts);
        if !is_directly_after(self.previous) {
            self.skip();
        }
        let Some(first) = self.byte(0) else {
            if self.is_in_comment {
                self.doubt_here("an executed comment is not closed");
            }
            // A token follows an `@`, even an empty one.
            let is_variable = self.previous == Previous::At;
            self.previous = Previous::Nothing;
            return is_variable.then(|| self.token(TokenKind::Variable, 0));
        };
        let previous = std::mem::replace(&mut self.previous, Previous::Nothing);
        Some(match (previous, first) {
            (Previous::At, b'@') => {
                self.previous = Previous::TwoAts;
                self.mark(first)
            }
            (_, b'`' | b'\'' | b'"') => self.quoted(first),
            (Previous::At, _) => self.variable(),
            (Previous::TwoAts, _) => self.word(TokenKind::Name),
            (_, b'[') if self.reading.brackets => self.quoted(first),
            (_, b'@') => {
                self.previous = Previous::At;
                self.mark(first)
            }
            (_, b'.') => {
                self.previous = Previous::Dot {
                    is_of_name: previous == Previous::Name,
                    is_of_number: previous == Previous::Number,
                };
                self.mark(first)
            }
            (Previous::Dot { is_of_name, .. }, first) if is_word_byte(first) => {
                let is_name = is_of_name || !first.is_ascii_digit();
                self.previous = previous;
                let word = self.word(if is_name { TokenKind::Name } else { TokenKind::Word });
                self.previous = if is_name { Previous::Name } else { Previous::Nothing };
                word
            }
            (_, first) if is_word_byte(first) => {
                let word = self.word(TokenKind::Word);
                if word.text.is_empty() {
                    return Some(self.mark(first));
                }
                self.previous = if word.is_number() { Previous::Number } else { Previous::Name };
                word
            }
            (_, first) => self.mark(first),
        })
    }
}

/// True for the bytes that can begin a word, if the encoding says so.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

/// The length of a comment that no server executes, after its `/*`; `None` if it does not end. With `nests`, it may
/// contain comments, but they may not contain any.
fn comment_bytes(text: &[u8], nests: bool) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        match text[at..] {
            [b'/', b'*', ..] if nests => at += 2 + comment_bytes(&text[at + 2..], false)?,
            [b'*', b'/', ..] => return Some(at + 2),
            _ => at += 1,
        }
    }
    None
}

/// The reason why a server may read a text in another way than the lexer; `None` if the lexer is sure of all of it.
pub fn doubt(sql: &[u8], reading: &Reading) -> Option<Doubt> {
    let mut lexer = Lexer::new(sql, reading);
    while lexer.next().is_some() {}
    lexer.doubt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Server, Servers};

    const MARIADB: Server = Server { vendor: Vendor::MariaDb, version: 101_119 };
    const MYSQL: Server = Server { vendor: Vendor::MySql, version: 90_704 };

    fn reading(mode: u64, charset: &str, server: Server) -> Reading {
        let servers = Servers::only(server);
        Reading { encoding: Encoding::of_charset(charset), ..Reading::new(Some(mode), None, servers) }
    }

    /// The tokens, each after a `|`, and the doubt.
    fn shown(sql: &[u8], reading: &Reading) -> Vec<u8> {
        let mut lexer = Lexer::new(sql, reading);
        let mut shown: Vec<u8> = lexer.by_ref().flat_map(|token| [token.text, b"|"].concat()).collect();
        shown.extend(lexer.doubt().map_or("", |doubt| doubt.why).bytes());
        shown
    }

    #[test]
    fn misleading_texts_read_as_on_mariadb() {
        const ANSI: u64 = 1 << 2;
        const PLAIN: u64 = 1 << 20;
        const MSSQL: u64 = 1 << 10;
        for (mode, charset, sql, expected) in [
            (0, "utf8mb4", b"a --\t'\n COMMENT 'x'".as_slice(), b"a|COMMENT|'x'|".as_slice()),
            (0, "utf8mb4", b"a --\x01'\nb", b"a|b|"),
            (0, "utf8mb4", b"a --", b"a|"),
            (0, "utf8mb4", b"5--1", b"5|-|-|1|"),
            (0, "utf8mb4", b"a---\tb\nc", b"a|-|c|"),
            (0, "latin1", b"a --\xa0'\nb\xa0c", b"a|b|c|"),
            (0, "utf8mb4", b"2*/*x*/3*/4", b"2|*|3|*|/|4|"),
            (0, "utf8mb4", b"/*! a /* ' */ b */ c */", b"a|b|c|*|/|"),
            (0, "utf8mb4", b"/*!99999 /* ' */ ' */ a", b"a|"),
            (0, "utf8mb4", b"/*!50701 ' */ a", b"a|"),
            (0, "utf8mb4", b"/*M!50701 a*/b", b"a|b|"),
            (0, "utf8mb4", br#"'a\'b' 'c''d' "e\"f""#, br#"'a\'b'|'c''d'|"e\"f"|"#),
            (ANSI, "utf8mb4", br#""x\" y"#, br#""x\"|y|"#),
            (PLAIN, "utf8mb4", br"'x\' y", br"'x\'|y|"),
            (MSSQL, "utf8mb4", b"[a]]'b] c", b"[a]]'b]|c|"),
            (0, "utf8mb4", b"[a]", b"[|a|]|"),
            (0, "sjis", b"'\x95\x5c' a", b"'\x95\x5c'|a|"),
            (0, "sjis", b"`\x83\x60` a", b"`\x83\x60`|a|"),
            (0, "gbk", b"'\xbf\x27 a", b"'\xbf'|a|"),
            (0, "utf8mb4", b"'\x95\x5c' a'", b"'\x95\x5c' a'|"),
            (
                0,
                "utf8mb4",
                b"t.references @@global.x @a.b c@`d`.e",
                b"t|.|references|@|@|global|.|x|@|a.b|c|@|`d`|.|e|",
            ),
            (0, "utf8mb4", b"a@", b"a|@||"),
            (0, "utf8mb4", b"N'a' _utf8'b' x'41' b'1'", b"N|'a'|_utf8|'b'|x|'41'|b|'1'|"),
            (0, "utf8mb4", "tä ß".as_bytes(), "tä|ß|".as_bytes()),
        ] {
            let shown = shown(sql, &reading(mode, charset, MARIADB));
            assert_eq!(shown.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }

    #[test]
    fn doubt_names_its_reason() {
        for (charset, sql, why) in [
            ("utf8mb4", b"'a".as_slice(), "a quote is not closed"),
            ("utf8mb4", b"`a", "a quote is not closed"),
            ("utf8mb4", b"a /* b", "a comment is not closed"),
            ("utf8mb4", b"/*! a", "an executed comment is not closed"),
            ("utf8mb4", b"a \\ b", "a backslash stands outside of quotes"),
            ("utf8mb4", b"a \x01", "a control character stands outside of quotes"),
            ("utf8mb4", b"-- a\0b", "a control character stands outside of quotes"),
            ("utf8mb4", b"t\xe4", "a byte without quotes is not a known part of a name"),
            ("sjis", b"t\x95\x5c", "a byte without quotes is not a known part of a name"),
            ("latin1", b"\x80", "a byte without quotes is no part of a name"),
            ("utf8mb4", b"`a\0`", "a name holds a NUL"),
            ("utf8mb4", b"1.5e-- x", "a number has no exponent where one should be"),
            ("utf8mb4", b"/*+ ` */", "a hint for the optimizer holds quotes"),
            ("utf8mb4", b"$$ a $$", "a dollar sign may open a string"),
            ("swe7", b"a", "its character set is not known"),
        ] {
            let doubt = doubt(sql, &reading(0, charset, MYSQL)).map(|doubt| doubt.why);
            assert_eq!(doubt, Some(why), "{}", sql.escape_ascii());
        }
        let both = Servers { source: Some(MYSQL), replica: Some(MARIADB) };
        let doubtful = Reading { servers: both, ..reading(0, "utf8mb4", MYSQL) };
        assert_eq!(shown(b"a /*!80000 b */", &doubtful), b"a|b|a comment is executed by some servers only");
        let sure = b"1.5e10 t.e 1.5 1.e1 a.5e /*+ x */ /* ' */ $a";
        assert_eq!(doubt(sure, &reading(0, "utf8mb4", MARIADB)), None);
    }

    #[test]
    fn quoted_names_decode() {
        let reading = reading(1 << 2, "latin1", MARIADB);
        let sql = b"t\xe4 `a``b` \"c\"\"d\\\" 'e' f.`g`";
        let names: Vec<_> = Lexer::new(sql, &reading).map(|token| token.name()).collect();
        let expected = [Some("tä"), Some("a`b"), Some("c\"d\\"), None, Some("f"), None, Some("g")];
        assert_eq!(names.iter().map(|name| name.as_deref()).collect::<Vec<_>>(), expected);
    }

    proptest::proptest! {
        #[test]
        fn lexer_ends_on_any_bytes(sql in proptest::collection::vec(0_u8.., 0..80), mode in 0_u64..1 << 21) {
            for charset in ["utf8mb4", "latin1", "sjis", "gb18030", "swe7"] {
                let reading = reading(mode, charset, MARIADB);
                let mut end = 0;
                for token in Lexer::new(&sql, &reading) {
                    proptest::prop_assert!(token.start >= end);
                    end = token.range().end;
                    let _shown = (token.name(), token.unquoted());
                }
                proptest::prop_assert!(end <= sql.len());
            }
        }
    }
}
