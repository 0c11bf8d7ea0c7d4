//! Finds the definitions of tables that a statement makes out of date.

use crate::definition::{TableDefinition, TableName};
use spate_sql::SqlText;

use crate::item::Statement;
use crate::statement::{Object, touched, truncated};

/// Letters that make all definitions out of date wherever they stand in a definition, also in its comments, strings and
/// names. They stand for features that reach beyond the named table, or decide how its rows are applied. To read too
/// many definitions again costs time; to read too few costs rows.
const LETTERS_OF_ALL: [&str; 8] =
    ["REFERENCES", "FOREIGN", "CONSTRAINT", "TRIGGER", "ENGINE", "PARTITION", "VERSIONING", "CASCADE"];

/// Definitions that must be read again before they are used again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Outdated {
    /// None.
    #[default]
    Nothing,
    /// Those of these tables.
    Tables(Vec<TableName>),
    /// Those of all tables without a row key: how their rows are found depends on triggers.
    Keyless,
    /// All: foreign keys connect tables that the statement does not name, or its effect is not certain.
    All,
}

impl Outdated {
    /// The definitions that a statement that commits by itself makes out of date. Too many cost time; too few cost
    /// rows.
    pub fn by(statement: &Statement) -> Outdated {
        Outdated::by_text(statement.text(), &statement.database)
    }

    fn by_text(text: SqlText<'_>, database: &str) -> Outdated {
        if LETTERS_OF_ALL.iter().any(|letters| text.has_letters(letters)) {
            return Outdated::All;
        }
        // It is not certain which tables it names.
        let Ok(objects) = touched(text, database) else { return Outdated::All };
        if objects.is_empty() {
            return if is_harmless(text) { Outdated::Nothing } else { Outdated::All };
        }
        let mut tables = Vec::new();
        for object in objects {
            match object {
                Object::Table(name) => tables.push(name),
                // These do not belong to a table.
                Object::Accounts | Object::Routines | Object::Events => {}
                Object::Trigger(_) => return Outdated::Keyless,
                Object::Schema(_) => return Outdated::All,
            }
        }
        match () {
            () if tables.is_empty() => Outdated::Nothing,
            () => Outdated::Tables(tables),
        }
    }

    /// What a statement that commits by itself changes, or locks in order to change it: tables, or all that there is.
    pub fn changed_by(statement: &Statement) -> Outdated {
        Outdated::changed_by_text(statement.text(), &statement.database)
    }

    fn changed_by_text(text: SqlText<'_>, database: &str) -> Outdated {
        match Outdated::by_text(text, database) {
            Outdated::Tables(tables) => Outdated::Tables(tables),
            Outdated::Nothing => truncated(text, database).map_or(Outdated::All, |table| Outdated::Tables(vec![table])),
            Outdated::Keyless | Outdated::All => Outdated::All,
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

    /// True if a table of this name may have to be read again.
    pub fn may_include(&self, name: &TableName) -> bool {
        match self {
            Outdated::Nothing => false,
            Outdated::Tables(tables) => tables.iter().any(|table| table.may_be(name)),
            Outdated::Keyless | Outdated::All => true,
        }
    }

    /// False only if none can belong to both.
    pub fn overlaps(&self, other: &Outdated) -> bool {
        match (self, other) {
            (Outdated::Nothing, _) | (_, Outdated::Nothing) => false,
            (Outdated::Tables(tables), other) => tables.iter().any(|table| other.may_include(table)),
            (Outdated::Keyless | Outdated::All, _) => true,
        }
    }

    /// The union of both.
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
fn is_harmless(text: SqlText<'_>) -> bool {
    let first = text.tokens().next();
    first.is_some_and(|first| first.is_one_of(&["TRUNCATE", "ANALYZE", "OPTIMIZE", "FLUSH"]))
}

#[cfg(test)]
mod tests {
    use spate_sql::{Encoding, Reading};

    use super::*;

    fn tables(names: &[&str]) -> Outdated {
        let name = |name: &&str| TableName { schema: "d".into(), table: (*name).into() };
        Outdated::Tables(names.iter().map(name).collect())
    }

    #[test]
    fn outdated_tables_are_those_named_if_clear() {
        for (sql, expected) in [
            ("CREATE TABLE t (a INT PRIMARY KEY)", tables(&["t"])),
            ("ALTER TABLE t ADD b INT", tables(&["t"])),
            ("CREATE INDEX i ON t (a)", tables(&["t"])),
            ("RENAME TABLE t TO u", tables(&["t", "u"])),
            ("DROP TABLE t, u", tables(&["t", "u"])),
            ("TRUNCATE TABLE t", Outdated::Nothing),
            ("GRANT ALL ON *.* TO a@b", Outdated::Nothing),
            ("CREATE PROCEDURE p() SELECT 1", Outdated::Nothing),
            ("CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET @a=1", Outdated::All),
            ("DROP TRIGGER r", Outdated::All),
            ("CREATE TABLE t (a INT) -- no references", Outdated::All),
            ("ALTER TABLE t COMMENT 'engine'", Outdated::All),
            ("ALTER TABLE t /*! add b int", Outdated::All),
            ("ALTER TABLE t ADD b INT /*!99999 x */", Outdated::All),
            ("CREATE PROCEDURE p() ALTER TABLE t DROP PARTITION p", Outdated::All),
            ("CREATE TABLE t (a INT REFERENCES u (a))", Outdated::All),
            ("ALTER TABLE t DROP FOREIGN KEY k", Outdated::All),
            ("DROP DATABASE d", Outdated::All),
            ("INSTALL SONAME 'x'", Outdated::All),
            ("ALTER TABLE", Outdated::All),
            ("", Outdated::All),
        ] {
            let reading = Reading::plain();
            let text = SqlText { sql: sql.as_bytes(), reading: &reading };
            assert_eq!(Outdated::by_text(text, "d"), expected, "{sql}");
        }
    }

    #[test]
    fn names_in_another_character_set_are_converted() {
        let reading = |charset| Reading { encoding: Encoding::of_charset(charset), ..Reading::plain() };
        for (charset, sql, expected) in [
            ("latin1", b"ALTER TABLE t\xe4 DROP PRIMARY KEY".as_slice(), tables(&["tä"])),
            ("cp1251", b"ALTER TABLE `\xf2` DROP PRIMARY KEY", tables(&["т"])),
            ("utf8mb4", b"ALTER TABLE t\xe4 DROP PRIMARY KEY", Outdated::All),
            ("sjis", b"ALTER TABLE `\x83\x60` DROP PRIMARY KEY", Outdated::All),
            ("swe7", b"ALTER TABLE t DROP PRIMARY KEY", Outdated::All),
        ] {
            let reading = reading(charset);
            let outdated = Outdated::by_text(SqlText { sql, reading: &reading }, "d");
            assert_eq!(outdated, expected, "{charset}: {}", sql.escape_ascii());
        }
    }

    #[test]
    fn what_a_definition_changes_is_told_by_its_text() {
        let reading = Reading::plain();
        let changed = |sql: &str| Outdated::changed_by_text(SqlText { sql: sql.as_bytes(), reading: &reading }, "d");
        assert_eq!(changed("TRUNCATE TABLE t"), tables(&["t"]));
        assert_eq!(changed("TRUNCATE d.t"), tables(&["t"]));
        assert_eq!(changed("DROP TABLE t"), tables(&["t"]));
        assert_eq!(changed("ALTER TABLE t RENAME TO u"), tables(&["t", "u"]));
        assert_eq!(changed("TRUNCATE TABLE t /*! x */"), Outdated::All, "nobody knows what the comment is");
        assert_eq!(changed("GRANT ALL ON *.* TO a@b"), Outdated::All);
        assert_eq!(changed("OPTIMIZE TABLE t"), Outdated::All);
    }

    #[test]
    fn outdated_overlaps_unless_nothing_can_be_in_both() {
        for (one, other, overlaps) in [
            (tables(&["t", "u"]), tables(&["v", "u"]), true),
            (tables(&["t"]), tables(&["T"]), true),
            (tables(&["t"]), tables(&["u"]), false),
            (tables(&["t"]), Outdated::All, true),
            (Outdated::Keyless, tables(&["t"]), true),
            (Outdated::Keyless, Outdated::Keyless, true),
            (Outdated::Nothing, Outdated::All, false),
            (tables(&["t"]), Outdated::Nothing, false),
        ] {
            assert_eq!(one.overlaps(&other), overlaps, "{one:?}, {other:?}");
            assert_eq!(other.overlaps(&one), overlaps, "{other:?}, {one:?}");
        }
    }

    #[test]
    fn outdated_by_two_statements_is_the_union() {
        assert_eq!(tables(&["t"]).and(tables(&["u"])), tables(&["t", "u"]));
        assert_eq!(Outdated::Nothing.and(Outdated::Keyless), Outdated::Keyless);
        assert_eq!(Outdated::Keyless.and(tables(&["t"])), Outdated::All);
    }
}
