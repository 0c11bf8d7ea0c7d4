//! Which definitions of tables a statement puts out of date.

use crate::definition::{TableDefinition, TableName};
use crate::item::Statement;
use crate::statement::{Object, touched};
use crate::words::Words;

/// The bit of `sql_mode` with which a backslash in a string is a backslash: words are told apart otherwise then.
const MODE_NO_BACKSLASH_ESCAPES: u64 = 1 << 20;

/// Definitions that have to be read again before they are used again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Outdated {
    /// None.
    #[default]
    Nothing,
    /// Those of these tables.
    Tables(Vec<TableName>),
    /// Those of all tables without a row key: how their rows are found depends on triggers.
    Keyless,
    /// All: foreign keys connect tables that the statement does not name, or it is not clear what it does.
    All,
}

impl Outdated {
    /// What a statement that commits by itself puts out of date. To say too much costs time, to say too little costs rows.
    pub fn by(statement: &Statement) -> Outdated {
        if statement.status.sql_mode.is_some_and(|mode| mode & MODE_NO_BACKSLASH_ESCAPES != 0) {
            return Outdated::All;
        }
        Outdated::by_sql(&statement.sql, &String::from_utf8_lossy(&statement.database))
    }

    fn by_sql(sql: &[u8], database: &str) -> Outdated {
        let objects = touched(sql, database);
        if objects.is_empty() {
            return if is_harmless(sql) { Outdated::Nothing } else { Outdated::All };
        }
        let mut tables = Vec::new();
        for object in objects {
            match object {
                Object::Table(name) => tables.push(name),
                // Nothing that belongs to a table.
                Object::Accounts | Object::Routines | Object::Events => {}
                Object::Trigger(_) => return Outdated::Keyless,
                Object::Schema(_) => return Outdated::All,
            }
        }
        match () {
            () if tables.is_empty() => Outdated::Nothing,
            () if speaks_of_foreign_keys(sql) => Outdated::All,
            () => Outdated::Tables(tables),
        }
    }

    /// True if this definition has to be read again.
    pub fn includes(&self, definition: &TableDefinition) -> bool {
        match self {
            Outdated::Nothing => false,
            Outdated::Tables(tables) => tables.iter().any(|table| table.may_be(&definition.name)),
            Outdated::Keyless => definition.row_key.is_empty(),
            Outdated::All => true,
        }
    }

    /// Both.
    pub fn and(self, other: Outdated) -> Outdated {
        match (self, other) {
            (Outdated::Nothing, other) | (other, Outdated::Nothing) => other,
            (Outdated::Tables(one), Outdated::Tables(other)) => Outdated::Tables([one, other].concat()),
            (Outdated::Keyless, Outdated::Keyless) => Outdated::Keyless,
            _ => Outdated::All,
        }
    }
}

/// Statements that change rows, files or statistics, but no definition.
fn is_harmless(sql: &[u8]) -> bool {
    let first = Words::new(sql).next();
    first.is_some_and(|first| ["TRUNCATE", "ANALYZE", "OPTIMIZE", "FLUSH"].iter().any(|keyword| first.is(keyword)))
}

/// A foreign key makes a group of the tables that it connects, and the group decides how each of them is applied.
fn speaks_of_foreign_keys(sql: &[u8]) -> bool {
    Words::new(sql).any(|word| word.is("REFERENCES") || word.is("FOREIGN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(names: &[&str]) -> Outdated {
        let name = |name: &&str| TableName { schema: "d".into(), table: (*name).into() };
        Outdated::Tables(names.iter().map(name).collect())
    }

    #[test]
    fn only_what_is_named_if_that_is_clear() {
        for (sql, expected) in [
            ("CREATE TABLE t (a INT PRIMARY KEY)", tables(&["t"])),
            ("ALTER TABLE t ADD b INT", tables(&["t"])),
            ("CREATE INDEX i ON t (a)", tables(&["t"])),
            ("RENAME TABLE t TO u", tables(&["t", "u"])),
            ("DROP TABLE t, u", tables(&["t", "u"])),
            ("TRUNCATE TABLE t", Outdated::Nothing),
            ("GRANT ALL ON *.* TO a@b", Outdated::Nothing),
            ("CREATE PROCEDURE p() SELECT 1", Outdated::Nothing),
            ("CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET @a=1", Outdated::Keyless),
            ("DROP TRIGGER r", Outdated::Keyless),
            ("CREATE TABLE t (a INT REFERENCES u (a))", Outdated::All),
            ("ALTER TABLE t DROP FOREIGN KEY k", Outdated::All),
            ("DROP DATABASE d", Outdated::All),
            ("INSTALL SONAME 'x'", Outdated::All),
            ("ALTER TABLE", Outdated::All),
            ("", Outdated::All),
        ] {
            assert_eq!(Outdated::by_sql(sql.as_bytes(), "d"), expected, "{sql}");
        }
    }

    #[test]
    fn two_statements_put_out_of_date_what_either_does() {
        assert_eq!(tables(&["t"]).and(tables(&["u"])), tables(&["t", "u"]));
        assert_eq!(Outdated::Nothing.and(Outdated::Keyless), Outdated::Keyless);
        assert_eq!(Outdated::Keyless.and(tables(&["t"])), Outdated::All);
    }
}
