//! The foreign keys in a table's definition, as MariaDB shows it with `sql_mode` empty: names in backticks, texts in single quotes
//! with a backslash before what would end them.

use spate_schedule::TableName;
use spate_sql::{Doubt, Lexer, Reading, Servers, TokenKind};

use super::ForeignKey;

/// The foreign keys of `child`, whose definition a server shows in these words.
///
/// # Errors
/// It is not certain what it says.
pub(super) fn foreign_keys(child: &TableName, definition: &str, server: Servers) -> Result<Vec<ForeignKey>, Doubt> {
    let reading = Reading { servers: server, ..Reading::plain() };
    let mut words = Lexer::new(definition.as_bytes(), &reading);
    let mut keys = Vec::new();
    while let Some(word) = words.next() {
        if !word.is("REFERENCES") {
            continue;
        }
        let Some(first) = words.name() else { continue };
        // A table of the child's schema is named alone.
        let parent = match words.accept_mark(b'.') {
            true => TableName { schema: first, table: words.name().unwrap_or_default() },
            false => TableName { schema: child.schema.clone(), table: first },
        };
        while words.next().is_some_and(|word| !word.is_mark(b')')) {}
        let mut has_action = false;
        while let Some(word) = words.peek().filter(|word| word.kind == TokenKind::Word) {
            has_action |= word.is_one_of(&["CASCADE", "SET"]);
            words.next();
        }
        keys.push(ForeignKey { child: child.clone(), parent, has_action });
    }
    match words.doubt() {
        None => Ok(keys),
        Some(doubt) => Err(doubt),
    }
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
    fn foreign_key_definitions_in_names_and_texts_are_ignored() {
        let table = |schema: &str, table: &str| TableName { schema: schema.into(), table: table.into() };
        let found = foreign_keys(&table("s", "c"), DEFINITION, Servers::default()).unwrap();
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
    fn foreign_key_definition_that_breaks_off_is_ignored() {
        let child = TableName { schema: "s".into(), table: "c".into() };
        for (end, _) in DEFINITION.char_indices() {
            assert!(
                foreign_keys(&child, &DEFINITION[..end], Servers::default()).is_ok_and(|keys| keys.len() <= 4)
                    || end > 0
            );
        }
    }
}
