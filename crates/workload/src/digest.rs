//! A statement without its values: what statements have in common that differ only in those.

use spate_sql::{Token, TokenKind};
use xxhash_rust::xxh3::xxh3_64;

/// A digest's text is cut here.
const TEXT_BYTES_MAX: usize = 1024;

/// Makes digests; what it needs for one it keeps for the next.
#[derive(Debug, Default)]
pub(crate) struct Digester {
    words: Words,
    text: String,
}

impl Digester {
    /// The digest of a statement: equal for statements with equal words. Lists of values, however long, are one.
    pub(crate) fn digest(&mut self, tokens: &[Token<'_>]) -> u64 {
        self.words.clear();
        for token in tokens {
            match token.kind {
                TokenKind::Text => self.words.push("?"),
                TokenKind::Word if token.text.first().is_some_and(u8::is_ascii_digit) => self.words.push("?"),
                TokenKind::Word => self.words.push_lowercase(token.text),
                TokenKind::Name | TokenKind::Quoted | TokenKind::Variable => {
                    self.words.push(&String::from_utf8_lossy(token.text));
                }
                TokenKind::Mark(mark) => self.words.push(char::from(mark).encode_utf8(&mut [0; 4])),
            }
            self.words.shorten();
        }
        self.text.clear();
        for number in 0..self.words.len() {
            let word = self.words.word(number);
            let is_apart = !matches!(word, "," | ")" | "." | "(+)") && !self.text.ends_with(['(', '.', '@']);
            if is_apart && !self.text.is_empty() {
                self.text.push(' ');
            }
            self.text.push_str(word);
        }
        xxh3_64(self.text.as_bytes())
    }

    /// The last digest for people.
    pub(crate) fn text(&self) -> String {
        let mut end = self.text.len().min(TEXT_BYTES_MAX);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < self.text.len() { "…" } else { "" };
        format!("{}{cut}", &self.text[..end])
    }
}

/// Words in one buffer.
#[derive(Debug, Default)]
struct Words {
    bytes: String,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Words {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn word(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.bytes[start..self.ends[number]]
    }

    fn push(&mut self, word: &str) {
        self.bytes.push_str(word);
        self.ends.push(self.bytes.len());
    }

    fn push_lowercase(&mut self, word: &[u8]) {
        match std::str::from_utf8(word) {
            Ok(word) if word.is_ascii() => {
                let start = self.bytes.len();
                self.bytes.push_str(word);
                self.bytes[start..].make_ascii_lowercase();
                self.ends.push(self.bytes.len());
            }
            _ => self.push(&String::from_utf8_lossy(word).to_lowercase()),
        }
    }

    fn truncate(&mut self, words: usize) {
        self.ends.truncate(words);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    fn end_with(&self, tail: &[&str]) -> bool {
        let Some(first) = self.len().checked_sub(tail.len()) else { return false };
        tail.iter().enumerate().rev().all(|(number, word)| self.word(first + number) == *word)
    }

    /// Joins what has become the same: `? . ?` is one number, `- ?` a value, `? , ?` a list, and lists in a row one.
    fn shorten(&mut self) {
        loop {
            let last = self.len().checked_sub(1).map(|last| self.word(last));
            if !matches!(last, Some("?" | ")")) {
                return;
            }
            let ends = |tail: &[&str]| self.end_with(tail);
            let (cut, joined): (usize, &[&str]) = match () {
                () if ends(&["?", ".", "?"]) => (3, &["?"]),
                () if ends(&[",", "-", "?"]) || ends(&["(", "-", "?"]) || ends(&["=", "-", "?"]) => (2, &["?"]),
                // Hexadecimal, binary and national texts.
                () if ends(&["x", "?"]) || ends(&["b", "?"]) || ends(&["n", "?"]) => (2, &["?"]),
                () if ends(&["?", ",", "?"]) || ends(&["?+", ",", "?"]) || ends(&["?+", ".", "?"]) => (3, &["?+"]),
                () if ends(&["(", "?+", ")", ",", "(", "?+", ")"]) || ends(&["(", "?", ")", ",", "(", "?", ")"]) => {
                    (4, &[])
                }
                // A list of one value is a list, too.
                () if ends(&["in", "(", "?", ")"]) => (2, &["?+", ")"]),
                () => return,
            };
            self.truncate(self.len() - cut);
            joined.iter().for_each(|word| self.push(word));
            if joined.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spate_sql::{Lexer, Reading};

    use super::*;

    fn text(statement: &str) -> String {
        let tokens: Vec<Token<'_>> = Lexer::new(statement.as_bytes(), &Reading::plain()).collect();
        let mut digester = Digester::default();
        digester.digest(&tokens);
        digester.text()
    }

    #[test]
    fn values_do_not_matter() {
        assert_eq!(text("SELECT * FROM t WHERE id=7"), "select * from t where id = ?");
        assert_eq!(text("select  *\nfrom t where id = 8 -- x"), "select * from t where id = ?");
        assert_eq!(text("SELECT a FROM t WHERE b IN (1,2,3)"), text("SELECT a FROM t WHERE b IN ('x')"));
        assert_eq!(text("INSERT INTO t VALUES (1,'a'),(2,'b'),(3,-1.5)"), text("INSERT INTO t VALUES (1,2)"));
        assert_eq!(text("select 1.5, x'00', -3"), text("select 2, 'a', 9"));
        assert_ne!(text("select a from t"), text("select b from t"));
        assert_eq!(text("SELECT `A`.b FROM `A`"), "select `A`.b from `A`");
    }

    #[test]
    fn long_lists_are_short() {
        let list: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        assert_eq!(
            text(&format!("SELECT 1 FROM t WHERE a IN ({})", list.join(","))).len(),
            "select ? from t where a in (?+)".len()
        );
    }
}
