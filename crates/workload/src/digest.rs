//! A statement without its values: what statements have in common that differ only in those.

use spate_sql::{Lexer, Reading, TokenKind};
use xxhash_rust::xxh3::xxh3_64;

/// A digest's text is cut here.
const TEXT_BYTES_MAX: usize = 1024;

/// A digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest {
    /// Equal for equal digests.
    pub(crate) hash: u64,
    /// For people.
    pub(crate) text: String,
}

/// The digest of a statement. Lists of values, however long, are one.
pub(crate) fn digest_of(statement: &[u8]) -> Digest {
    let mut text = String::new();
    let mut lexer = Lexer::new(statement, &Reading::plain());
    let mut words: Vec<String> = Vec::new();
    for token in lexer.by_ref() {
        let word = match token.kind {
            TokenKind::Text => "?".to_owned(),
            TokenKind::Word if token.text.first().is_some_and(u8::is_ascii_digit) => "?".to_owned(),
            TokenKind::Word => String::from_utf8_lossy(token.text).to_lowercase(),
            TokenKind::Name | TokenKind::Quoted | TokenKind::Variable => {
                String::from_utf8_lossy(token.text).into_owned()
            }
            TokenKind::Mark(mark) => char::from(mark).to_string(),
        };
        words.push(word);
        shorten(&mut words);
    }
    for word in &words {
        if !text.is_empty() && !matches!(word.as_str(), "," | ")" | "." | "(+)") && !text.ends_with(['(', '.', '@']) {
            text.push(' ');
        }
        text.push_str(word);
    }
    let hash = xxh3_64(text.as_bytes());
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    Digest { hash, text }
}

/// Joins what has become the same: `? . ?` is one number, `- ?` a value, `? , ?` a list, and lists in a row one.
fn shorten(words: &mut Vec<String>) {
    loop {
        let ends = |tail: &[&str]| words.len() >= tail.len() && words[words.len() - tail.len()..].iter().eq(tail);
        let (cut, joined) = match () {
            () if ends(&["?", ".", "?"]) => (3, "?"),
            () if ends(&[",", "-", "?"]) || ends(&["(", "-", "?"]) || ends(&["=", "-", "?"]) => (2, "?"),
            // Hexadecimal, binary and national texts.
            () if ends(&["x", "?"]) || ends(&["b", "?"]) || ends(&["n", "?"]) => (2, "?"),
            () if ends(&["?", ",", "?"]) || ends(&["?+", ",", "?"]) || ends(&["?+", ".", "?"]) => (3, "?+"),
            () if ends(&["(", "?+", ")", ",", "(", "?+", ")"]) || ends(&["(", "?", ")", ",", "(", "?", ")"]) => (4, ""),
            () if ends(&["in", "(", "?", ")"]) => (2, "+"),
            () => return,
        };
        words.truncate(words.len() - cut);
        match joined {
            "" => return,
            // A list of one value is a list, too.
            "+" => words.extend(["?+".to_owned(), ")".to_owned()]),
            word => words.push(word.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(statement: &str) -> String {
        digest_of(statement.as_bytes()).text
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
