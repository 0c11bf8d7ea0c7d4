//! Changes of definitions.

use super::super::feature::Feature;
use super::super::settings::Failure;
use super::super::world::{Column, Key, Table};
use super::tables::parent_key;
use super::types::{self, Use};
use super::{Generator, values};
use crate::sql::quote;

impl Generator {
    /// Anything but CREATE TABLE.
    pub(super) fn definition(&mut self) -> Option<String> {
        match self.random.below(20) {
            0..=10 => self.alter(),
            11 => self.rename(),
            12 | 13 => Some(format!("DROP TABLE IF EXISTS {}", self.table()?.quoted())),
            14 | 15 => Some(format!("TRUNCATE TABLE {}", self.table()?.quoted())),
            16 => self.index(),
            17 => self.schema_definition(),
            18 => Some(format!("OPTIMIZE TABLE {}", self.table()?.quoted())),
            _ => Some(format!("ANALYZE TABLE {}", self.table()?.quoted())),
        }
    }

    fn alter(&mut self) -> Option<String> {
        let table = self.table()?;
        if table.is_partitioned && !self.may_alter_partitions() {
            return None;
        }
        let mut clauses = vec![self.clause(&table)?];
        if self.random.chance(20) {
            let second = self.clause(&table);
            clauses.extend(second.filter(|second| !self.is_shared() || may_stand_together(&clauses[0], second)));
        }
        if self.random.chance(25) {
            clauses.push(
                self.random
                    .word(&[
                        "ALGORITHM=COPY",
                        "ALGORITHM=INPLACE",
                        "ALGORITHM=INSTANT",
                        "ALGORITHM=NOCOPY",
                        "LOCK=SHARED",
                        "LOCK=NONE",
                    ])
                    .to_owned(),
            );
        }
        let verb = self.random.word(&["ALTER TABLE", "ALTER TABLE", "ALTER ONLINE TABLE", "/* why */ alter table"]);
        Some(format!("{verb} {} {}", table.quoted(), clauses.join(", ")))
    }

    fn clause(&mut self, table: &Table) -> Option<String> {
        let column = self.random.pick(&table.columns)?.clone();
        match self.random.below(22) {
            drawn @ 0..=9 => self.column_clause(drawn, table, &column),
            drawn @ 10..=12 => self.key_clause(drawn, table, &column),
            drawn @ 13..=16 => self.table_option_clause(drawn, table),
            drawn @ 17..=19 => self.default_or_check_clause(drawn, &column),
            _ => self.special_clause(table),
        }
    }

    /// The clauses 0 to 9 of [`Generator::clause`]: ADD, DROP, RENAME, MODIFY and CHANGE COLUMN.
    fn column_clause(&mut self, drawn: usize, table: &Table, column: &Column) -> Option<String> {
        let name = quote(&column.name);
        Some(match drawn {
            0..=3 => {
                let suffix = self.counter();
                let mut definition = self.payload_column(&suffix);
                if self.is_shared() && definition.contains(" JSON") {
                    definition = definition.replace(" NOT NULL", "");
                }
                let exists = self.random.word(&["", "", "IF NOT EXISTS "]);
                format!("ADD COLUMN {exists}{definition}{}", self.place(table))
            }
            // Without the key, a replica compares whole rows, and does not always find the row.
            4 | 5 if self.is_spared_key(table, column) => format!("ALTER COLUMN {name} DROP DEFAULT"),
            4 | 5 if self.is_shared() && shares_unique_key(table, column) => return None,
            4 | 5 => format!("DROP COLUMN {name}"),
            // MySQL refuses to rename a column from which another is computed.
            6 if self.is_shared() && (column.name == "n" || table.is_partitioned) => return None,
            6 => format!("RENAME COLUMN {name} TO `{}{}`", first_letter(column), self.counter()),
            // Spate refuses the change of a JSON column: the vendors fill different documents into rows that have none.
            7..=9 if self.is_shared() && column.name.starts_with('j') => return None,
            // The column may become a TEXT or BLOB, of which MySQL has no key of the whole column.
            9 if self.is_shared() && table.keys.iter().any(|key| key.columns.contains(&column.name)) => return None,
            // MySQL changes no column of a foreign key, not even to remove its AUTO_INCREMENT.
            7..=9 if self.has_unique_parents() && may_be_connected(column) => return None,
            7 | 8 => {
                // The type stays or grows, so that the column's values fit in.
                let kind = match column.data_type.as_str() {
                    "int" | "smallint" | "tinyint" => "BIGINT".to_owned(),
                    "varchar" => format!("VARCHAR(300) {}", types::collation(&mut self.random, &self.collations)),
                    _ => column.column_type.clone(),
                };
                let null = if column.is_nullable { "" } else { " NOT NULL" };
                format!("MODIFY COLUMN {name} {kind}{null}{}", self.place(table))
            }
            // Programs and generated columns calculate with `n`, so it stays a number.
            _ if column.name == "n" => "MODIFY COLUMN `n` BIGINT".to_owned(),
            _ => {
                let kind = if self.is_shared() { wider(column) } else { self.draw_type(Use::Payload).1 };
                format!("CHANGE COLUMN {name} {name} {kind}")
            }
        })
    }

    /// The clauses 10 to 12 of [`Generator::clause`]: indexes and primary keys.
    fn key_clause(&mut self, drawn: usize, table: &Table, column: &Column) -> Option<String> {
        let name = quote(&column.name);
        Some(match drawn {
            10 if self.is_shared() && is_large(column) => return None,
            10 if self.may_be_unique(column) => format!("ADD UNIQUE INDEX ({name})"),
            10 => format!("ADD {} ({name})", self.random.word(&["INDEX", "INDEX IF NOT EXISTS `n1`"])),
            11 => format!("DROP INDEX {}", quote(&self.dropped_key(table)?)),
            _ if table.primary_key().is_some() && self.random.chance(75) => "FORCE".to_owned(),
            _ if table.primary_key().is_some() && self.has_unique_parents() => return None,
            _ if table.primary_key().is_some() && self.is_asked_about(table) => return None,
            _ if table.primary_key().is_some() => "DROP PRIMARY KEY".to_owned(),
            // A TIMESTAMP in a primary key becomes NOT NULL; its default depends on when the server read the
            // definition.
            _ if column.data_type == "timestamp" => return None,
            _ if self.is_shared() && is_large(column) => return None,
            // AUTO_INCREMENT numbers the rows in their stored order, which differs between vendors.
            _ if !self.is_shared()
                && !table.columns.iter().any(|column| column.is_auto_increment)
                && self.random.chance(50) =>
            {
                format!("ADD COLUMN `id{}` INT AUTO_INCREMENT PRIMARY KEY FIRST", self.counter())
            }
            _ => format!("ADD PRIMARY KEY ({name})"),
        })
    }

    /// The clauses 13 to 16 of [`Generator::clause`]: character sets, engines and AUTO_INCREMENT.
    fn table_option_clause(&mut self, drawn: usize, table: &Table) -> Option<String> {
        Some(match drawn {
            13 if self.is_shared() && table.columns.iter().any(is_not_converted_alike) => return None,
            // MariaDB's conversion is strict, and other character sets lack letters.
            13 if self.is_shared() => "CONVERT TO CHARACTER SET utf8mb4".to_owned(),
            13 => format!("CONVERT TO {}", types::collation(&mut self.random, &self.collations)),
            14 => format!("DEFAULT {}", types::collation(&mut self.random, &self.collations)),
            15 if self.has(Feature::Engines) && table.primary_key().is_none() && self.kills_spate() => return None,
            15 if self.has(Feature::Engines) && !(self.logs_statements() && table.name == "log") => {
                let engines = ["InnoDB", "MyISAM", "Aria", "InnoDB", "MEMORY"];
                let kept = if self.may_be_in_memory(table.is_versioned) { 5 } else { 4 };
                format!("ENGINE={}", self.random.word(&engines[..kept]))
            }
            15 => self.random.word(&["FORCE", "ROW_FORMAT=COMPACT", "ROW_FORMAT=DYNAMIC", "ENGINE=InnoDB"]).to_owned(),
            _ => format!("AUTO_INCREMENT={}", self.random.below(200)),
        })
    }

    /// The clauses 17 to 19 of [`Generator::clause`]: defaults, checks and comments.
    fn default_or_check_clause(&mut self, drawn: usize, column: &Column) -> Option<String> {
        let name = quote(&column.name);
        Some(match drawn {
            17 | 18 if self.is_shared() && (column.is_generated || is_large(column)) => return None,
            // MySQL refuses a default that it would round beyond the last day.
            17 if self.is_shared() && matches!(column.data_type.as_str(), "datetime" | "timestamp") => return None,
            17 => format!("ALTER COLUMN {name} SET DEFAULT {}", values::constant(&mut self.random, column)),
            18 => format!("ALTER COLUMN {name} DROP DEFAULT"),
            // Names of checks are unique within a schema on MySQL, within a table on MariaDB.
            _ if self.is_shared() => {
                let check = format!("ADD CONSTRAINT `c{}` CHECK (1 = 1)", self.counter());
                if self.random.chance(50) { check } else { "COMMENT='new'".to_owned() }
            }
            _ => self
                .random
                .word(&["ADD CONSTRAINT `c2` CHECK (1 = 1)", "DROP CONSTRAINT IF EXISTS `c1`", "COMMENT='new'"])
                .to_owned(),
        })
    }

    fn is_spared_key(&mut self, table: &Table, column: &Column) -> bool {
        let is_in_key = table.primary_key().is_some_and(|key| key.columns.contains(&column.name));
        is_in_key && self.random.chance(75)
    }

    /// Clauses that only some tables allow: foreign keys, system versioning, partitions.
    fn special_clause(&mut self, table: &Table) -> Option<String> {
        match self.random.below(4) {
            0 if self.has(Feature::ForeignKeys) && !table.is_versioned => self.foreign_key_clause(table),
            1 if self.has(Feature::SystemVersioning)
                && table.foreign_keys.is_empty()
                && (table.engine != "MEMORY" || self.may_be_in_memory(true)) =>
            {
                Some(if table.is_versioned { "DROP SYSTEM VERSIONING" } else { "ADD SYSTEM VERSIONING" }.to_owned())
            }
            2 | 3 if self.has(Feature::Partitions) => self.partition_alteration(table),
            _ => Some("COMMENT='other'".to_owned()),
        }
    }

    fn foreign_key_clause(&mut self, table: &Table) -> Option<String> {
        if let Some(name) = self.random.pick(&table.foreign_keys)
            && self.random.chance(40)
        {
            return Some(format!("DROP FOREIGN KEY {}", quote(name)));
        }
        let parents: Vec<(String, String, String)> = self.world.tables.iter().filter_map(parent_key).collect();
        let (parent, key, kind) = self.random.pick(&parents)?.clone();
        let columns: Vec<&Column> = table.columns.iter().filter(|column| column.column_type == kind).collect();
        let column = quote(&self.random.pick(&columns)?.name);
        // MySQL does not let a column refer to itself.
        if self.is_shared() && column == key && parent == table.quoted() {
            return None;
        }
        let actions = self.foreign_key_actions();
        Some(format!("ADD FOREIGN KEY ({column}) REFERENCES {parent} ({key}){actions}"))
    }

    fn partition_alteration(&mut self, table: &Table) -> Option<String> {
        if !table.is_partitioned && !self.may_alter_partitions() {
            return None;
        }
        if !table.is_partitioned {
            let column = table.integer_key()?.name.clone();
            return Some(self.partition_clause(Some(&column)).trim().to_owned());
        }
        let partition = quote(self.random.pick(&table.partitions)?);
        let method = table.partition_method.as_str();
        Some(match self.random.below(7) {
            0 => "REMOVE PARTITIONING".to_owned(),
            1 | 2 => format!("TRUNCATE PARTITION {partition}"),
            3 if method.starts_with("RANGE") || method.starts_with("LIST") => format!("DROP PARTITION {partition}"),
            3 => "COALESCE PARTITION 1".to_owned(),
            4 if method == "RANGE" => {
                let bound = 50 + 10 * self.random.below(20);
                format!("ADD PARTITION (PARTITION px{bound} VALUES LESS THAN ({bound}))")
            }
            4 => "ADD PARTITION PARTITIONS 1".to_owned(),
            5 => {
                let others: Vec<&Table> = self
                    .world
                    .tables
                    .iter()
                    .filter(|other| same_columns(other, table) && !other.is_partitioned)
                    .collect();
                format!("EXCHANGE PARTITION {partition} WITH TABLE {}", self.random.pick(&others)?.quoted())
            }
            _ => format!("REBUILD PARTITION {partition}"),
        })
    }

    /// A copy of a partitioned table without its partitions, for EXCHANGE PARTITION.
    pub(super) fn exchange_twin(&mut self) -> Option<Vec<String>> {
        let partitioned: Vec<&Table> = self.world.tables.iter().filter(|table| table.is_partitioned).collect();
        let like = self.random.pick(&partitioned)?.quoted();
        let new = self.new_table_name()?;
        Some(vec![format!("CREATE TABLE {new} LIKE {like}"), format!("ALTER TABLE {new} REMOVE PARTITIONING")])
    }

    fn rename(&mut self) -> Option<String> {
        let (table, other) = (self.table()?, self.table()?);
        if !self.may_change_name(&table) || !self.may_change_name(&other) {
            return None;
        }
        let (first, second) = (table.quoted(), other.quoted());
        let schema = self.schema()?;
        let between = format!("{}.`between`", quote(&schema));
        if first != second && self.random.chance(40) {
            return Some(format!("RENAME TABLE {first} TO {between}, {second} TO {first}, {between} TO {second}"));
        }
        let new = self.new_table_name()?;
        Some(match self.random.below(2) {
            0 => format!("RENAME TABLE {first} TO {new}"),
            _ => format!("ALTER TABLE {first} RENAME TO {new}"),
        })
    }

    fn index(&mut self) -> Option<String> {
        let table = self.table()?;
        if let Some(key) = self.dropped_key(&table)
            && self.random.chance(40)
        {
            return Some(format!("DROP INDEX {} ON {}", quote(&key), table.quoted()));
        }
        let column = self.random.pick(&table.columns)?;
        if self.is_shared() && is_large(column) {
            return None;
        }
        let kinds: &[&str] = if self.may_be_unique(column) {
            &["UNIQUE INDEX", "OR REPLACE INDEX"]
        } else {
            &["INDEX", "OR REPLACE INDEX"]
        };
        let kind = self.random.word(kinds);
        let name = quote(&column.name);
        Some(format!("CREATE {kind} `i{}` ON {} ({name})", self.random.below(4), table.quoted()))
    }

    /// A key that may be dropped.
    fn dropped_key(&mut self, table: &Table) -> Option<String> {
        let is_of_reference =
            |key: &Key| !table.foreign_keys.is_empty() && key.columns.first().is_some_and(|name| name == "f");
        let key = self.random.pick(&table.keys).filter(|key| !is_of_reference(key))?;
        (!(key.is_unique && self.has_unique_parents())).then(|| key.name.clone())
    }

    /// True if Spate would stop and ask a person after a kill: it cannot know which rows of a keyless table were
    /// changed, if the table's engine cannot roll back.
    fn is_asked_about(&self, table: &Table) -> bool {
        table.engine != "InnoDB" && self.kills_spate()
    }

    fn kills_spate(&self) -> bool {
        self.settings.failures.contains(&Failure::SpateKilled)
    }

    /// True if columns that foreign keys refer to must stay unique, as MySQL requires.
    fn has_unique_parents(&self) -> bool {
        self.is_shared() && self.has(Feature::ForeignKeys)
    }

    /// True unless the key would become a hash (a column that is too long for an index) and such keys are not allowed.
    fn may_be_unique(&self, column: &Column) -> bool {
        let is_long = column.data_type.ends_with("text") || column.data_type.ends_with("blob");
        self.has(Feature::LongKeys) || !(is_long || column.column_type.contains("(2000)"))
    }

    fn schema_definition(&mut self) -> Option<String> {
        let schema = quote(&self.schema()?);
        Some(match self.random.below(4) {
            0 => {
                let steps = self.use_again(&schema);
                self.next.extend(steps);
                let collation = types::collation(&mut self.random, &self.collations);
                let is_wide = ["utf16", "utf32", "ucs2"].iter().any(|charset| collation.contains(charset));
                if is_wide && self.logs_statements() {
                    return None;
                }
                format!("ALTER DATABASE {schema} {collation}")
            }
            1 => format!("CREATE DATABASE IF NOT EXISTS {schema}"),
            2 => "CREATE DATABASE IF NOT EXISTS `passing` CHARACTER SET latin1".to_owned(),
            _ => "DROP DATABASE IF EXISTS `passing`".to_owned(),
        })
    }

    fn place(&mut self, table: &Table) -> String {
        match self.random.below(5) {
            0 => " FIRST".to_owned(),
            1 => self
                .random
                .pick(&table.columns)
                .map(|column| format!(" AFTER {}", quote(&column.name)))
                .unwrap_or_default(),
            _ => String::new(),
        }
    }
}

/// A type, perhaps another, into which both vendors convert the column's values alike. They convert values of some
/// types into different texts or numbers.
fn wider(column: &Column) -> String {
    match column.data_type.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" => "VARCHAR(250)".to_owned(),
        "bigint" => "DECIMAL(38,10)".to_owned(),
        "date" => "DATETIME".to_owned(),
        "varbinary" => "BLOB".to_owned(),
        "binary" => "VARBINARY(200)".to_owned(),
        _ => column.column_type.clone(),
    }
}

/// True for columns of a unique key of several columns, which MariaDB does not drop.
fn shares_unique_key(table: &Table, column: &Column) -> bool {
    table.keys.iter().any(|key| key.is_unique && key.columns.len() > 1 && key.columns.contains(&column.name))
}

/// True for columns of the types that foreign keys use, including renamed columns.
fn may_be_connected(column: &Column) -> bool {
    matches!(column.name.as_str(), "id" | "f") || column.data_type.ends_with("int")
}

/// True for columns that the vendors convert into another character set differently: on MariaDB, JSON documents are
/// text, and ENUM and SET columns lose their values.
fn is_not_converted_alike(column: &Column) -> bool {
    column.name.starts_with('j') || matches!(column.data_type.as_str(), "enum" | "set")
}

/// True for columns that are too large for MySQL's keys, and whose default must be an expression on MySQL.
fn is_large(column: &Column) -> bool {
    let kind = column.data_type.as_str();
    kind.ends_with("text") || kind.ends_with("blob") || matches!(kind, "point" | "geometry" | "linestring")
}

/// True if MySQL also accepts both clauses in one statement: not two about one column, or about the table's character
/// set.
fn may_stand_together(one: &str, other: &str) -> bool {
    let named = |clause: &str| clause.split('`').nth(1).map(|name| format!("`{name}`"));
    let is_of_table = |clause: &str| clause.starts_with("CONVERT") || clause.starts_with("DEFAULT");
    let is_about = |clause: &str, name: Option<String>| name.is_some_and(|name| clause.contains(&name));
    !(is_of_table(one) && is_of_table(other) || is_about(one, named(other)) || is_about(other, named(one)))
}

/// The first letter of the column's name, which encodes its kind.
fn first_letter(column: &Column) -> char {
    column.name.chars().next().filter(char::is_ascii_alphabetic).unwrap_or('r')
}

fn same_columns(one: &Table, other: &Table) -> bool {
    one.columns.len() == other.columns.len()
        && one.engine == other.engine
        && one.columns.iter().zip(&other.columns).all(|(a, b)| a.name == b.name && a.column_type == b.column_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_about_one_column_are_not_combined() {
        assert!(may_stand_together("DROP COLUMN `a`", "ADD INDEX (`b`)"));
        assert!(may_stand_together("CONVERT TO CHARACTER SET latin1", "DROP COLUMN `a`"));
        assert!(!may_stand_together("CONVERT TO CHARACTER SET latin1", "DEFAULT CHARACTER SET latin2"));
        assert!(!may_stand_together("ALTER COLUMN `a` DROP DEFAULT", "ADD COLUMN `c` INT AFTER `a`"));
    }
}
