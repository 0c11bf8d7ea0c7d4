//! The tables of the binlog, and the rows that are changed most often.

use std::collections::HashMap;

use serde::Serialize;

use crate::transaction::TableNumber;

/// Tables that are told apart. What is beyond is counted together.
const TABLES_MAX: usize = 100_000;

/// Cells of each of the two rows of counters, of four bytes: rows that share both cells are counted together.
const CELLS: usize = 1 << 20;

/// A table of the binlog.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableFacts {
    /// `schema.table`.
    pub name: String,
    /// Row changes.
    pub rows: u64,
    /// Bytes of their images.
    pub bytes: u64,
    /// It has no key that the binlog tells, so that its rows cannot be told apart.
    pub is_keyless: bool,
    /// The source does not log which columns are the primary key: the first is taken for it.
    pub is_key_assumed: bool,
}

impl TableFacts {
    /// What a table of these says above each column.
    pub const HEADER: [&str; 4] = ["table", "row changes", "bytes", "key"];

    /// A line of such a table.
    pub fn cells(&self) -> Vec<String> {
        let key = match (self.is_keyless, self.is_key_assumed) {
            (true, _) => "none",
            (_, true) => "the first column, perhaps",
            _ => "yes",
        };
        vec![self.name.clone(), self.rows.to_string(), self.bytes.to_string(), key.to_owned()]
    }
}

/// A row that is changed often.
#[derive(Debug, Clone, Serialize)]
pub struct HotRow {
    /// `schema.table`.
    pub table: String,
    /// Its key.
    pub key: String,
    /// At most so many changes.
    pub changes: u32,
}

impl HotRow {
    /// What a table of these says above each column.
    pub const HEADER: [&str; 3] = ["row", "table", "changes"];

    /// A line of such a table.
    pub fn cells(&self) -> Vec<String> {
        vec![self.key.clone(), self.table.clone(), self.changes.to_string()]
    }
}

#[derive(Debug)]
struct Hot {
    table: TableNumber,
    hash: u64,
    text: String,
    count: u32,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Tables {
    numbers: HashMap<(String, String), TableNumber>,
    facts: Vec<TableFacts>,
    /// How often rows were changed: of the two cells of a row, the smaller is at least its count.
    cells: [Vec<u32>; 2],
    hot: Vec<Hot>,
    hot_max: usize,
    /// The smallest count in `hot`, once that is full.
    coolest: u32,
}

impl Tables {
    /// Keeps so many of the hottest rows.
    pub(crate) fn new(hot_max: usize) -> Tables {
        Tables {
            numbers: HashMap::new(),
            facts: Vec::new(),
            cells: [vec![0; CELLS], vec![0; CELLS]],
            hot: Vec::new(),
            hot_max,
            coolest: 0,
        }
    }

    /// The number of a table.
    pub(crate) fn number(&mut self, schema: &str, table: &str, is_keyless: bool, is_key_assumed: bool) -> TableNumber {
        let name = (schema.to_owned(), table.to_owned());
        if let Some(&known) = self.numbers.get(&name) {
            return known;
        }
        let facts =
            TableFacts { name: format!("{schema}.{table}"), is_keyless, is_key_assumed, ..TableFacts::default() };
        match self.facts.len() {
            len if len < TABLES_MAX => self.facts.push(facts),
            TABLES_MAX => self.facts.push(TableFacts { name: "all further tables".to_owned(), ..facts }),
            _ => return TABLES_MAX as TableNumber,
        }
        let number = self.facts.len() as TableNumber - 1;
        self.numbers.insert(name, number);
        number
    }

    /// Counts row changes.
    pub(crate) fn count(&mut self, table: TableNumber, rows: u64, bytes: u64) {
        let facts = &mut self.facts[table as usize];
        facts.rows += rows;
        facts.bytes += bytes;
    }

    /// Counts a change of a row, which `text` says for people.
    pub(crate) fn touch(&mut self, table: TableNumber, hash: u64, text: impl FnOnce() -> String) {
        let places = [hash as usize % CELLS, (hash >> 32) as usize % CELLS];
        let count = self.cells[0][places[0]].min(self.cells[1][places[1]]).saturating_add(1);
        for (cells, place) in self.cells.iter_mut().zip(places) {
            cells[place] = cells[place].max(count);
        }
        // A row that was changed once is not hot.
        if count < 2 || (count <= self.coolest && self.hot.len() == self.hot_max) || self.hot_max == 0 {
            return;
        }
        if let Some(known) = self.hot.iter_mut().find(|hot| hot.hash == hash) {
            known.count = count;
        } else {
            if self.hot.len() == self.hot_max {
                let coolest =
                    self.hot.iter().enumerate().min_by_key(|(_, hot)| hot.count).map_or(0, |(place, _)| place);
                self.hot.swap_remove(coolest);
            }
            self.hot.push(Hot { table, hash, text: text(), count });
        }
        self.coolest = self.hot.iter().map(|hot| hot.count).min().unwrap_or(0);
    }

    /// All tables, those with the most row changes first.
    pub(crate) fn by_rows(&self) -> Vec<TableFacts> {
        let mut all = self.facts.clone();
        all.sort_by(|a, b| b.rows.cmp(&a.rows).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// The rows that were changed most often, hottest first.
    pub(crate) fn hottest(&self) -> Vec<HotRow> {
        let mut all: Vec<HotRow> = self
            .hot
            .iter()
            .map(|hot| HotRow {
                table: self.facts[hot.table as usize].name.clone(),
                key: hot.text.clone(),
                changes: hot.count,
            })
            .collect();
        all.sort_by(|a, b| b.changes.cmp(&a.changes).then_with(|| (&a.table, &a.key).cmp(&(&b.table, &b.key))));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_rows_are_found_among_many_others() {
        let mut tables = Tables::new(3);
        let table = tables.number("d", "t", false, false);
        for number in 0..100_000u64 {
            let hash = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
            tables.touch(table, hash, || number.to_string());
            if number % 10 == 0 {
                tables.touch(table, 7 | 9 << 32, || "seven".to_owned());
            }
        }
        let hottest = tables.hottest();
        assert_eq!(hottest.len(), 3);
        assert_eq!((&*hottest[0].key, &*hottest[0].table), ("seven", "d.t"));
        assert!((10_000..10_100).contains(&hottest[0].changes), "{hottest:?}");
    }

    #[test]
    fn tables_without_end_are_counted_together() {
        let mut tables = Tables::new(0);
        for number in 0..TABLES_MAX + 10 {
            let table = tables.number("d", &format!("t{number}"), false, false);
            tables.count(table, 1, 10);
        }
        let facts = tables.by_rows();
        assert_eq!(facts.len(), TABLES_MAX + 1);
        assert_eq!((&*facts[0].name, facts[0].rows), ("all further tables", 10));
    }
}
