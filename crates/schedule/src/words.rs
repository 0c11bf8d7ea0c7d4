//! SQL text as words, just far enough to tell what a statement names. Comments are passed over; what stands in an executable
//! comment counts.

/// A piece of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    /// A keyword, a number or an identifier without quotes.
    Plain(&'a [u8]),
    /// What stands between backticks or double quotes, with its doubled quotes.
    Quoted(&'a [u8], u8),
    /// A string in single quotes.
    Text,
    /// Any other character.
    Mark(u8),
}

impl Word<'_> {
    /// True if it is this keyword.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        matches!(self, Word::Plain(word) if word.eq_ignore_ascii_case(keyword.as_bytes()))
    }

    /// The identifier that it is, if it can be one.
    pub(crate) fn identifier(&self) -> Option<String> {
        match self {
            Word::Plain(word) => Some(String::from_utf8_lossy(word).into_owned()),
            Word::Quoted(word, quote) => {
                let quote = char::from(*quote);
                Some(String::from_utf8_lossy(word).replace(&format!("{quote}{quote}"), &quote.to_string()))
            }
            Word::Text | Word::Mark(_) => None,
        }
    }
}

/// The words of a statement, in order.
#[derive(Debug, Clone)]
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn new(sql: &'a [u8]) -> Words<'a> {
        Words { rest: sql }
    }

    /// Where in `sql`, of which these are the words, the next word begins.
    pub(crate) fn place(&self, sql: &[u8]) -> usize {
        let mut next = self.clone();
        Words::skip(&mut next);
        sql.len() - next.rest.len()
    }

    /// Where in `sql`, of which these are the words, the last word ended.
    pub(crate) fn end(&self, sql: &[u8]) -> usize {
        sql.len() - self.rest.len()
    }

    /// The next word, which stays the next.
    pub(crate) fn peek(&self) -> Option<Word<'a>> {
        self.clone().next()
    }

    /// Passes over the next word if it is this keyword.
    pub(crate) fn accept(&mut self, keyword: &str) -> bool {
        let is_it = self.peek().is_some_and(|word| word.is(keyword));
        if is_it {
            self.next();
        }
        is_it
    }

    /// Passes over the next word if it is this mark.
    pub(crate) fn accept_mark(&mut self, mark: u8) -> bool {
        let is_it = self.peek() == Some(Word::Mark(mark));
        if is_it {
            self.next();
        }
        is_it
    }

    fn skip(&mut self) {
        loop {
            let trimmed = self.rest.trim_ascii_start();
            self.rest = if let Some(rest) = trimmed.strip_prefix(b"/*!").or_else(|| trimmed.strip_prefix(b"/*M!")) {
                let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
                &rest[digits..]
            } else if let Some(rest) = trimmed.strip_prefix(b"*/") {
                rest
            } else if trimmed.starts_with(b"/*") {
                after(trimmed, b"*/")
            } else if trimmed.starts_with(b"#") || trimmed.starts_with(b"-- ") {
                after(trimmed, b"\n")
            } else {
                self.rest = trimmed;
                return;
            };
        }
    }

    /// What stands before the closing quote; doubled quotes, and for strings a backslash, do not close.
    fn quoted(&mut self, quote: u8) -> &'a [u8] {
        let body = &self.rest[1..];
        let mut end = 0;
        while end < body.len() {
            if body[end] == b'\\' && quote != b'`' {
                end += 1;
            } else if body[end] == quote {
                if body.get(end + 1) != Some(&quote) {
                    break;
                }
                end += 1;
            }
            end += 1;
        }
        let end = end.min(body.len());
        self.rest = body.get(end + 1..).unwrap_or_default();
        &body[..end]
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        self.skip();
        let first = *self.rest.first()?;
        Some(match first {
            b'`' | b'"' => Word::Quoted(self.quoted(first), first),
            b'\'' => {
                self.quoted(first);
                Word::Text
            }
            _ if is_word_byte(first) => {
                let end = self.rest.iter().position(|&byte| !is_word_byte(byte)).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                Word::Plain(word)
            }
            _ => {
                self.rest = &self.rest[1..];
                Word::Mark(first)
            }
        })
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn after<'a>(text: &'a [u8], end: &[u8]) -> &'a [u8] {
    let found = text.windows(end.len()).position(|window| window == end);
    found.map_or(&[], |position| &text[position + end.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_marks_and_quotes() {
        let sql = b"/* a */ create/*!40005 TEMPORARY */ TABLE `a``b`.\"c\" ('it''s \\' x', 5) -- end\n # more\n as";
        let words: Vec<_> = Words::new(sql).collect();
        assert!(words[0].is("CREATE") && words[1].is("TEMPORARY") && words[2].is("table"));
        assert_eq!(words[3].identifier().unwrap(), "a`b");
        assert_eq!(words[4], Word::Mark(b'.'));
        assert_eq!(words[5].identifier().unwrap(), "c");
        assert_eq!(
            words[6..],
            [Word::Mark(b'('), Word::Text, Word::Mark(b','), Word::Plain(b"5"), Word::Mark(b')'), Word::Plain(b"as")]
        );
    }

    #[test]
    fn what_is_never_closed_ends_with_the_text() {
        for sql in ["'abc", "`abc", "/* abc", "\"", "'\\", "a '", "# x"] {
            assert!(Words::new(sql.as_bytes()).count() <= 2, "{sql}");
        }
    }
}
