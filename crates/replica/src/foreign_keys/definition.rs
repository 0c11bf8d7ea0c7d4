//! The foreign keys in a table's definition, as MariaDB shows it with `sql_mode` empty: names in backticks, texts in single quotes
//! with a backslash before what would end them.

use std::iter::Peekable;
use std::str::Chars;

use spate_schedule::TableName;

use super::ForeignKey;

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Word(String),
    Other(char),
}

/// The definition's words. Texts are left out.
struct Tokens<'a> {
    characters: Peekable<Chars<'a>>,
}

impl Tokens<'_> {
    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(character) = self.characters.next() {
            // A backtick in a name is shown twice.
            if character == '`' && self.characters.next_if_eq(&'`').is_none() {
                break;
            }
            name.push(character);
        }
        name
    }

    fn skip_text(&mut self) {
        while let Some(character) = self.characters.next() {
            match character {
                '\\' => drop(self.characters.next()),
                '\'' if self.characters.next_if_eq(&'\'').is_none() => break,
                _ => {}
            }
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            match self.characters.next()? {
                '`' => return Some(Token::Name(self.name())),
                '\'' => self.skip_text(),
                first if first.is_alphanumeric() => {
                    let mut word = String::from(first);
                    while let Some(next) = self.characters.next_if(|next| next.is_alphanumeric() || *next == '_') {
                        word.push(next);
                    }
                    return Some(Token::Word(word));
                }
                space if space.is_whitespace() => {}
                other => return Some(Token::Other(other)),
            }
        }
    }
}

/// The foreign keys of `child`, whose definition this is.
pub(super) fn foreign_keys(child: &TableName, definition: &str) -> Vec<ForeignKey> {
    let mut tokens = Tokens { characters: definition.chars().peekable() }.peekable();
    let mut keys = Vec::new();
    while let Some(token) = tokens.next() {
        if !is_word(&token, "REFERENCES") {
            continue;
        }
        let Some(Token::Name(first)) = tokens.next() else { continue };
        // A table of the child's schema is named alone.
        let parent = match tokens.next_if_eq(&Token::Other('.')).and_then(|_| tokens.next()) {
            Some(Token::Name(table)) => TableName { schema: first, table },
            _ => TableName { schema: child.schema.clone(), table: first },
        };
        let columns = |token: &Token| *token != Token::Other(')');
        while tokens.next_if(columns).is_some() {}
        tokens.next();
        let mut has_action = false;
        while let Some(Token::Word(word)) = tokens.next_if(|token| matches!(token, Token::Word(_))) {
            has_action |= matches!(word.as_str(), "CASCADE" | "SET");
        }
        keys.push(ForeignKey { child: child.clone(), parent, has_action });
    }
    keys
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = "CREATE TABLE `c` (\n  `id` int(11) NOT NULL DEFAULT 3 COMMENT 'it''s \\'REFERENCES `no` (`a`) ON DELETE CASCADE\\\\',\n  \
         `REFERENCES` varchar(20) DEFAULT '',\n  `g` int(11) GENERATED ALWAYS AS (`id` MOD 3) STORED,\n  PRIMARY KEY (`id`),\n  \
         CONSTRAINT `a``) REFERENCES ``b` FOREIGN KEY (`id`, `x)`) REFERENCES `odd ``na.me`.`t' ü` (`id`, `)`) ON DELETE NO ACTION,\n  \
         CONSTRAINT `b` FOREIGN KEY (`id`) REFERENCES `p` (`id`) ON DELETE SET NULL ON UPDATE NO ACTION,\n  \
         CONSTRAINT `c` FOREIGN KEY (`id`) REFERENCES `q` (`id`) ON UPDATE CASCADE,\n  \
         CONSTRAINT `d` FOREIGN KEY (`id`) REFERENCES `r` (`id`),\n  CONSTRAINT `k` CHECK (`id` > 3)\n\
         ) ENGINE=InnoDB COMMENT='CASCADE'";

    #[test]
    fn names_and_texts_are_told_from_what_they_say() {
        let table = |schema: &str, table: &str| TableName { schema: schema.into(), table: table.into() };
        let found = foreign_keys(&table("s", "c"), DEFINITION);
        let found: Vec<_> = found.into_iter().map(|key| (key.parent, key.has_action)).collect();
        let expected = [
            (table("odd `na.me", "t' ü"), false),
            (table("s", "p"), true),
            (table("s", "q"), true),
            (table("s", "r"), false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_definition_that_breaks_off_is_no_trouble() {
        let child = TableName { schema: "s".into(), table: "c".into() };
        for (end, _) in DEFINITION.char_indices() {
            assert!(foreign_keys(&child, &DEFINITION[..end]).len() <= 4);
        }
    }
}
