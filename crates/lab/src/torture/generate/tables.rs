//! CREATE TABLE.

use super::super::feature::Feature;
use super::super::world::Table;
use super::types::{self, Use};
use super::{Generator, values};
use crate::sql::quote;

/// Names of tables; few, so that they are used again.
const NAMES: [&str; 9] = ["t1", "t2", "t3", "t4", "t5", "T-odd", "über", "a b", "t`q"];

/// A table that is being defined.
#[derive(Default)]
struct Draft {
    parts: Vec<String>,
    /// Integer columns, for generated columns and checks.
    integers: Vec<String>,
    /// Integer columns that are in every unique key: a partition may depend on them.
    partitionable: Option<String>,
}

impl Generator {
    /// A name for a new table, mostly one that is free.
    pub(super) fn new_table_name(&mut self) -> Option<String> {
        let schema = self.schema()?;
        let is_free =
            |name: &&str| !self.world.tables.iter().any(|table| table.schema == schema && table.name == **name);
        let free: Vec<&str> = NAMES.iter().copied().filter(is_free).collect();
        let name = self.random.pick(&free).copied().unwrap_or(NAMES[0]);
        Some(format!("{}.{}", quote(&schema), quote(name)))
    }

    pub(super) fn create_table(&mut self) -> Option<String> {
        if self.random.chance(10) && !self.world.tables.is_empty() {
            let (new, like) = (self.new_table_name()?, self.table()?.quoted());
            return Some(format!("CREATE TABLE {new} LIKE {like}"));
        }
        let existing = self.random.chance(12).then(|| self.table()).flatten();
        let (verb, name) = match existing {
            Some(table) => {
                (self.random.word(&["CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"]), table.quoted())
            }
            None => ("CREATE TABLE", self.new_table_name()?),
        };
        let mut draft = Draft::default();
        self.key_columns(&mut draft);
        self.payload_columns(&mut draft);
        let is_partitioned = self.has(Feature::Partitions) && draft.partitionable.is_some() && self.random.chance(35);
        if !is_partitioned {
            self.other_keys(&mut draft);
            self.foreign_key(&mut draft);
        }
        // Two changes of one row by foreign keys in one second give equal history rows.
        let has_foreign_key = draft.parts.iter().any(|part| part.contains("FOREIGN KEY"));
        let versioning = if has_foreign_key { String::new() } else { self.versioning(&mut draft) };
        let partition =
            if is_partitioned { self.partition_clause(draft.partitionable.as_deref()) } else { String::new() };
        let options = self.table_options(is_partitioned, !versioning.is_empty());
        Some(format!("{verb} {name} ({}){options}{versioning}{partition}", draft.parts.join(", ")))
    }

    fn key_columns(&mut self, draft: &mut Draft) {
        let kinds: &[(usize, u8)] = if self.has(Feature::Keys) {
            &[(30, 0), (16, 1), (16, 2), (8, 3), (8, 4), (8, 5), (7, 6), (5, 7)]
        } else {
            &[(1, 0)]
        };
        match self.random.weighted(kinds) {
            Some(1) => {
                let (_, kind) = self.draw_type(Use::Key);
                draft.parts.push(format!("`k` {} NOT NULL PRIMARY KEY", kind.trim_end_matches(" NULL")));
            }
            Some(2) => self.composite_key(draft),
            Some(3) => {
                let (_, kind) = self.draw_type(Use::Key);
                draft.parts.push(format!("`k` {} NOT NULL UNIQUE", kind.trim_end_matches(" NULL")));
            }
            Some(4) => {
                let (_, kind) = self.draw_type(Use::Key);
                draft.parts.push(format!("`k` {kind} UNIQUE"));
            }
            Some(5) => draft.parts.push("`k` INT".to_owned()),
            Some(6) => {
                let kind = self.random.word(&["VARCHAR(100)", "TEXT", "BLOB", "VARBINARY(60)"]);
                let key = self.random.word(&["PRIMARY KEY", "UNIQUE KEY"]);
                let length = 1 + self.random.below(4);
                draft.parts.push(format!("`k` {kind} NOT NULL, {key} (`k`({length}))"));
            }
            // The AUTO_INCREMENT column is not in the row key.
            Some(7) => {
                draft.parts.push("`k` INT NOT NULL PRIMARY KEY, `ai` INT NOT NULL AUTO_INCREMENT UNIQUE".to_owned());
                draft.integers.push("k".to_owned());
            }
            _ => self.integer_key(draft),
        }
    }

    fn integer_key(&mut self, draft: &mut Draft) {
        let kind = self.random.word(&["INT", "INT", "BIGINT UNSIGNED", "SMALLINT"]);
        let counter = if self.random.chance(50) { " AUTO_INCREMENT" } else { "" };
        draft.parts.push(format!("`id` {kind} NOT NULL{counter} PRIMARY KEY"));
        draft.partitionable = Some("id".to_owned());
    }

    fn composite_key(&mut self, draft: &mut Draft) {
        let mut names = Vec::new();
        for number in 0..2 + self.random.below(2) {
            let (_, kind) = self.draw_type(Use::Key);
            let name = format!("k{number}");
            // Three long columns would not fit into one key.
            let kind = kind.replace("VARCHAR(250)", "VARCHAR(30)");
            draft.parts.push(format!("`{name}` {} NOT NULL", kind.trim_end_matches(" NULL")));
            names.push(format!("`{name}`"));
        }
        if self.random.chance(30) {
            draft.parts.push("`id` INT NOT NULL".to_owned());
            names.insert(0, "`id`".to_owned());
            draft.partitionable = Some("id".to_owned());
        }
        draft.parts.push(format!("PRIMARY KEY ({})", names.join(", ")));
    }

    fn payload_columns(&mut self, draft: &mut Draft) {
        draft.parts.push("`n` INT".to_owned());
        draft.integers.push("n".to_owned());
        for number in 0..self.random.below(6) {
            let definition = self.payload_column(&number.to_string());
            draft.parts.push(definition);
        }
        if self.has(Feature::Generated) && self.random.chance(35) {
            let kind = self.random.word(&["VIRTUAL", "STORED", "PERSISTENT"]);
            let (type_of, expression) =
                [("BIGINT", "`n` * 2 + 1"), ("VARCHAR(40)", "CONCAT('g', `n`)"), ("INT", "`n` MOD 3")]
                    [self.random.below(3)];
            draft.parts.push(format!("`g` {type_of} AS ({expression}) {kind}"));
            if self.has(Feature::Keys) && self.random.chance(40) {
                let mut key = self.random.word(&["KEY", "UNIQUE KEY"]);
                // MariaDB damages such keys when a foreign key's action runs, and then accepts duplicates.
                if self.is_shared() && self.has(Feature::ForeignKeys) {
                    key = "KEY";
                }
                draft.parts.push(format!("{key} (`g`)"));
                draft.partitionable = None;
            }
        }
        if self.random.chance(8) {
            let name = if self.is_shared() { format!("c{}", self.counter()) } else { "c1".to_owned() };
            draft.parts.push(format!("CONSTRAINT `{name}` CHECK (`n` IS NULL OR `n` <> 11)"));
        }
    }

    /// A column's definition; its name encodes its kind.
    pub(super) fn payload_column(&mut self, suffix: &str) -> String {
        if self.has(Feature::Compressed) && self.random.chance(8) {
            let kind = self.random.word(&["VARCHAR(2000) COMPRESSED", "BLOB COMPRESSED", "TEXT COMPRESSED=zlib"]);
            return format!("`z{suffix}` {kind}");
        }
        let (prefix, kind) = self.draw_type(Use::Payload);
        let name = format!("`{prefix}{suffix}`");
        let invisible = if self.random.chance(6) { " INVISIBLE" } else { "" };
        match self.random.below(12) {
            0 if kind == "DATETIME(6)" => {
                format!("{name} {kind} DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)")
            }
            1 if kind == "INT" => format!("{name} {kind}{invisible} NOT NULL DEFAULT 7"),
            2 if kind == "VARCHAR(20)" => format!("{name} {kind}{invisible} DEFAULT (CONCAT('d', 1 + 1))"),
            // A NOT NULL column of MariaDB may contain an invalid geometry.
            3 if invisible.is_empty() && !(self.is_shared() && prefix == "l") => {
                format!("{name} {} NOT NULL", kind.trim_end_matches(" NULL"))
            }
            _ => format!("{name} {kind}{invisible}"),
        }
    }

    fn other_keys(&mut self, draft: &mut Draft) {
        if !self.has(Feature::Keys) {
            return;
        }
        if self.random.chance(30) {
            let (_, kind) = self.draw_type(Use::Key);
            draft.parts.push(format!("`u1` {kind}, UNIQUE KEY `u1` (`u1`)"));
        }
        if self.random.chance(20) {
            draft.parts.push("`u2` VARCHAR(60), UNIQUE KEY `u2` (`u2`(2), `n`)".to_owned());
        }
        if self.random.chance(20) {
            draft.parts.push("KEY `n1` (`n`)".to_owned());
        }
        if self.has(Feature::LongKeys) && self.random.chance(12) {
            draft.parts.push("`h` TEXT, UNIQUE KEY `h` (`h`) USING HASH".to_owned());
        }
    }

    /// A column that refers to another table's key, or to this one's.
    fn foreign_key(&mut self, draft: &mut Draft) {
        if !self.has(Feature::ForeignKeys) || !self.random.chance(55) {
            return;
        }
        let parents: Vec<(String, String, String)> = self.world.tables.iter().filter_map(parent_key).collect();
        let Some((parent, column, kind)) = self.random.pick(&parents).cloned() else { return };
        let actions = self.foreign_key_actions();
        draft.parts.push(format!("`f` {kind}, FOREIGN KEY (`f`) REFERENCES {parent} ({column}){actions}"));
        draft.partitionable = None;
    }

    pub(super) fn foreign_key_actions(&mut self) -> String {
        let mut actions = String::new();
        for event in ["UPDATE", "DELETE"] {
            if self.random.chance(75) {
                let action = self.random.word(&["CASCADE", "CASCADE", "SET NULL", "RESTRICT", "NO ACTION"]);
                actions += &format!(" ON {event} {action}");
            }
        }
        actions
    }

    fn versioning(&mut self, draft: &mut Draft) -> String {
        let has_long_key = draft.parts.iter().any(|part| part.contains(" USING HASH"));
        if !self.has(Feature::SystemVersioning) || has_long_key || !self.random.chance(25) {
            return String::new();
        }
        match self.random.below(4) {
            0 => draft.parts.push(
                "`rs` TIMESTAMP(6) GENERATED ALWAYS AS ROW START, `re` TIMESTAMP(6) GENERATED ALWAYS AS ROW END, \
                 PERIOD FOR SYSTEM_TIME (`rs`, `re`)"
                    .to_owned(),
            ),
            1 => {
                draft.parts.push("`pf` DATE NOT NULL, `pt` DATE NOT NULL, PERIOD FOR `ap` (`pf`, `pt`)".to_owned());
                return String::new();
            }
            2 => draft.parts.push("`w` INT WITHOUT SYSTEM VERSIONING".to_owned()),
            _ => {}
        }
        " WITH SYSTEM VERSIONING".to_owned()
    }

    fn table_options(&mut self, is_partitioned: bool, is_versioned: bool) -> String {
        let mut options = String::new();
        if self.has(Feature::Engines) && self.random.chance(30) {
            options += " ENGINE=";
            options += self.random.word(match is_partitioned || !self.may_be_in_memory(is_versioned) {
                true => &["MyISAM", "Aria"],
                false => &["MyISAM", "Aria", "MEMORY"],
            });
        } else {
            options += " ENGINE=InnoDB";
            if self.random.chance(15) {
                options += self.random.word(&[" ROW_FORMAT=COMPACT", " ROW_FORMAT=REDUNDANT", " ROW_FORMAT=DYNAMIC"]);
            }
        }
        if self.has(Feature::Types) && self.random.chance(30) {
            options += &format!(" {}", types::collation(&mut self.random, &self.collations));
        }
        if self.random.chance(8) {
            options += " COMMENT='it''s; a -- \"comment\" /* ä'";
        }
        options
    }

    /// `PARTITION BY …` on an integer column.
    pub(super) fn partition_clause(&mut self, column: Option<&str>) -> String {
        let Some(column) = column else { return String::new() };
        let column = quote(column);
        match self.random.below(5) {
            0 => format!(" PARTITION BY HASH ({column}) PARTITIONS {}", 2 + self.random.below(3)),
            1 => format!(" PARTITION BY KEY ({column}) PARTITIONS {}", 2 + self.random.below(3)),
            2 => format!(
                " PARTITION BY LIST ({column} MOD 3) (PARTITION p0 VALUES IN (0, 1), PARTITION p1 VALUES IN (2))"
            ),
            3 => format!(
                " PARTITION BY RANGE COLUMNS ({column}) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS \
                 THAN (30), PARTITION pm VALUES LESS THAN (MAXVALUE))"
            ),
            _ => format!(
                " PARTITION BY RANGE ({column}) (PARTITION p0 VALUES LESS THAN (8), PARTITION p1 VALUES LESS THAN (40))"
            ),
        }
    }

    pub(super) fn draw_type(&mut self, usage: Use) -> (&'static str, String) {
        types::draw(&mut self.random, &self.settings.features, usage, &self.collations)
    }

    /// CREATE TABLE … SELECT.
    pub(super) fn create_select(&mut self) -> Option<String> {
        let (new, table) = (self.new_table_name()?, self.table()?);
        let condition = values::condition(&mut self.random, &table);
        let order = table.order().unwrap_or_default();
        if self.random.chance(20) {
            let rows = 1 + self.random.below(20);
            return Some(format!(
                "CREATE TABLE {new} (PRIMARY KEY (pk)) SELECT seq AS pk, CONCAT('s', seq) AS v FROM seq_1_to_{rows}"
            ));
        }
        let more = self.random.word(&["", "", "(x1 INT) ", "ENGINE=InnoDB "]);
        let verb = self.random.word(&[
            "CREATE TABLE",
            "CREATE TABLE",
            "CREATE OR REPLACE TABLE",
            "CREATE TABLE IF NOT EXISTS",
        ]);
        Some(format!("{verb} {new} {more}SELECT * FROM {} WHERE {condition} {order}", table.quoted()))
    }
}

/// The table, its key column and that column's type, if other tables can refer to it.
pub(super) fn parent_key(table: &Table) -> Option<(String, String, String)> {
    let column = table.integer_key()?;
    if table.engine != "InnoDB" || table.is_partitioned || table.is_versioned {
        return None;
    }
    Some((table.quoted(), quote(&column.name), column.column_type.clone()))
}
