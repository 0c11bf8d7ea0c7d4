//! A statement's text together with its reading.

use crate::lexer::{Doubt, Lexer};
use crate::reading::Reading;

/// A statement's text, and how servers read it.
#[derive(Debug, Clone, Copy)]
pub struct SqlText<'a> {
    /// The text, in the character set of the source's client.
    pub sql: &'a [u8],
    /// How to read it.
    pub reading: &'a Reading,
}

impl<'a> SqlText<'a> {
    /// Its tokens.
    pub fn tokens(self) -> Lexer<'a> {
        Lexer::new(self.sql, self.reading)
    }

    /// The reason why a server may see other tokens; `None` if it sees the same ones.
    pub fn doubt(self) -> Option<Doubt> {
        crate::lexer::doubt(self.sql, self.reading)
    }

    /// True if these letters stand anywhere in it, in upper or lower case: in a name, a string, a comment, or as a
    /// word. If they do not, the caller need not use the lexer.
    pub fn has_letters(self, letters: &str) -> bool {
        has_letters(self.sql, letters.as_bytes())
    }
}

fn has_letters(sql: &[u8], letters: &[u8]) -> bool {
    let Some((first, rest)) = letters.split_first() else { return true };
    let is_first = |byte: &u8| byte.eq_ignore_ascii_case(first);
    let mut left = sql;
    while let Some(at) = left.iter().position(is_first) {
        left = &left[at + 1..];
        if left.get(..rest.len()).is_some_and(|text| text.eq_ignore_ascii_case(rest)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_found_anywhere_in_a_text() {
        let text = |sql| SqlText { sql, reading: &Reading { ansi_quotes: false, ..PLAIN } };
        const PLAIN: Reading = Reading {
            ansi_quotes: false,
            plain_backslashes: false,
            brackets: false,
            encoding: crate::Encoding::Ascii,
            servers: crate::Servers { source: None, replica: None },
        };
        assert!(text(b"/* no ReFeReNcEs */").has_letters("REFERENCES"));
        assert!(text(b"rreferences").has_letters("REFERENCES"));
        assert!(!text(b"refer ences").has_letters("REFERENCES"));
        assert!(!text(b"").has_letters("REFERENCES"));
    }
}
