//! What a statement needs of its own session, where connections share the statements of several: without that, what writes would write something else.

use std::collections::HashSet;

use spate_sql::{Token, TokenKind};

use crate::class::{Class, Understood};

/// Functions whose values are the session's.
const OF_SESSION: [&str; 4] = ["LAST_INSERT_ID", "FOUND_ROWS", "ROW_COUNT", "CONNECTION_ID"];

/// So many names are remembered; behind more, every name may be one of them.
const NAMES_MAX: usize = 10_000;

/// What the sessions of an input have made for themselves.
#[derive(Debug, Default)]
pub(crate) struct OwnTables {
    /// Names of temporary tables: in other sessions, they are those of other tables. In lower case.
    temporary: HashSet<String>,
}

impl OwnTables {
    /// True if the statement does something else, or writes something else, in another session: it belongs to a transaction, or to variables or
    /// temporary tables of its own.
    pub(crate) fn need_session(&mut self, tokens: &[Token<'_>], understood: &Understood) -> bool {
        let definition = tokens.first().is_some_and(|first| first.is_one_of(&["CREATE", "ALTER", "DROP"]));
        if definition && tokens.iter().take(4).any(|token| token.is("TEMPORARY")) {
            if self.temporary.len() < NAMES_MAX {
                self.temporary.extend(table_of(tokens));
            }
            return true;
        }
        let is_full = self.temporary.len() >= NAMES_MAX;
        let is_own = |token: &Token<'_>| {
            token.is_name()
                && (is_full || token.name().is_none_or(|name| self.temporary.contains(&name.to_lowercase())))
        };
        match understood.class {
            Class::Session => understood.uses.is_none(),
            Class::Write => tokens.iter().any(|token| {
                token.kind == TokenKind::Variable
                    || token.is_one_of(&OF_SESSION)
                    || token.is_mark(b'@')
                    || is_own(token)
            }),
            _ => !self.temporary.is_empty() && tokens.iter().any(is_own),
        }
    }
}

/// The name of what a definition defines.
fn table_of(tokens: &[Token<'_>]) -> Option<String> {
    let behind = tokens.iter().skip_while(|token| !token.is_one_of(&["TABLE", "TABLES", "SEQUENCE"])).skip(1);
    let mut names = behind.skip_while(|token| token.is_one_of(&["IF", "NOT", "EXISTS"]));
    let first = names.next()?;
    let name = match names.next() {
        Some(token) if token.is_mark(b'.') => names.next()?,
        _ => first,
    };
    name.name().map(|name| name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::understand;
    use crate::reading::SessionReading;

    fn needs(own: &mut OwnTables, statement: &str) -> bool {
        let reading = SessionReading::default();
        let tokens = reading.tokens(statement.as_bytes());
        own.need_session(tokens.as_deref().unwrap(), &understand(tokens.as_deref(), &reading))
    }

    #[test]
    fn what_belongs_to_a_session_needs_it() {
        let mut own = OwnTables::default();
        for statement in [
            "BEGIN",
            "COMMIT",
            "SET autocommit = 0",
            "SET @a = 1",
            "INSERT INTO t VALUES (@a)",
            "INSERT INTO t VALUES (LAST_INSERT_ID())",
            "UPDATE t SET a = @@session.insert_id",
            "CREATE TEMPORARY TABLE IF NOT EXISTS shop.`Mine` (a INT)",
            "DELETE FROM mine",
            "SELECT * FROM shop.MINE",
            "DROP TEMPORARY TABLE mine",
        ] {
            assert!(needs(&mut own, statement), "{statement}");
        }
        for statement in ["USE shop", "SELECT @a", "INSERT INTO t VALUES (1)", "DELETE FROM shop.t WHERE a = 'mine'"] {
            assert!(!needs(&mut own, statement), "{statement}");
        }
    }
}
