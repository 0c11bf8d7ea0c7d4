//! Statements that only MySQL has: changes within JSON documents, sessions that choose how they log, invisible keys.

use super::settings::Settings;
use super::vendor_options;
use super::world::{Table, World};
use crate::random::Random;
use crate::sql::quote;

/// One statement in this many is of this kind.
const PERCENT: usize = 7;

/// Draws such statements, from random numbers of its own, so that the other statements do not change.
pub(super) struct MySqlOnly {
    random: Random,
    /// True if tables may be keyless.
    may_be_keyless: bool,
    /// True if documents are replicated as text, which does not distinguish decimals.
    writes_documents: bool,
}

impl MySqlOnly {
    pub(super) fn new(settings: &Settings) -> MySqlOnly {
        let may_be_keyless = !vendor_options::needs_keys(&settings.features);
        let is_sql = settings.spate_arguments.iter().any(|argument| argument == "--dialect=sql");
        let writes_documents = is_sql && !settings.pair.is_mixed();
        MySqlOnly { random: Random::new(settings.seed ^ 0x5a1), may_be_keyless, writes_documents }
    }

    /// A statement now and then.
    pub(super) fn draw(&mut self, world: &World) -> Option<String> {
        if !self.random.chance(PERCENT) {
            return None;
        }
        match self.random.below(10) {
            0..=4 => self.json(world),
            5 => Some(format!("SET binlog_row_image = {}", self.random.word(&["FULL", "MINIMAL", "NOBLOB"]))),
            6 => Some(format!("SET binlog_row_value_options = '{}'", self.random.word(&["", "PARTIAL_JSON"]))),
            7 => Some(format!("SET binlog_transaction_compression = {}", self.random.below(2))),
            8 if self.may_be_keyless => {
                Some(format!("SET sql_generate_invisible_primary_key = {}", self.random.below(2)))
            }
            _ => self.key(world),
        }
    }

    /// Replaces a document by a large one, or changes it in one place, which is logged as a partial update.
    fn json(&mut self, world: &World) -> Option<String> {
        let with_json = |table: &&Table| table.columns.iter().any(|column| column.column_type == "json");
        let tables: Vec<&Table> = world.tables.iter().filter(with_json).collect();
        let table = *self.random.pick(&tables)?;
        let columns: Vec<_> = table.columns.iter().filter(|column| column.column_type == "json").collect();
        let name = quote(&self.random.pick(&columns)?.name);
        let number = self.random.below(1000);
        let value = match self.random.below(8) {
            0 | 1 => format!(
                "'{{\"a\": {number}, \"b\": [1, \"zwei\", {{\"c\": null}}], \"long\": \"{}\", \"d\": {{\"e\": true}}}}'",
                "x".repeat(self.random.below(300))
            ),
            2 => format!("JSON_SET({name}, '$.a', {number})"),
            3 => format!("JSON_SET({name}, '$.b[1]', 'ä{number}', '$.new{}', {})", number % 4, self.half()),
            4 => format!("JSON_REPLACE({name}, '$.d.e', FALSE, '$.long', REPEAT('y', {}))", number % 200),
            5 => format!("JSON_REMOVE({name}, '$.b[0]')"),
            6 => format!("JSON_REPLACE({name}, '$.a', CAST('{{\"k\": 1}}' AS JSON))"),
            _ => format!("JSON_ARRAY_APPEND({name}, '$.b', {number})"),
        };
        let condition = match table.integer_key() {
            Some(key) => format!("{} <= {}", quote(&key.name), self.random.below(30)),
            None => "1 = 1".to_owned(),
        };
        Some(format!("UPDATE {} SET {name} = {value} WHERE {condition}", table.quoted()))
    }

    /// A decimal, which has its own type in a document.
    fn half(&self) -> &'static str {
        if self.writes_documents { "1.5e0" } else { "1.5" }
    }

    fn key(&mut self, world: &World) -> Option<String> {
        let table = self.random.pick(&world.tables)?.clone();
        Some(match self.random.below(3) {
            0 => format!("CREATE INDEX `fi` ON {} ((`n` + 1))", table.quoted()),
            1 => format!("CREATE UNIQUE INDEX `di` ON {} (`n` DESC)", table.quoted()),
            _ => {
                let keys: Vec<_> = table.keys.iter().filter(|key| key.name != "PRIMARY").collect();
                let key = quote(&self.random.pick(&keys)?.name);
                let seen = self.random.word(&["VISIBLE", "INVISIBLE"]);
                format!("ALTER TABLE {} ALTER INDEX {key} {seen}", table.quoted())
            }
        })
    }
}
