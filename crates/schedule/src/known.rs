//! The definitions that a batch's builder knows, and how far each was compared with the source's table maps.

use std::collections::HashMap;
use std::sync::Arc;

use spate_binlog::TableMap;
use spate_binlog::column::ColumnType;

use crate::definition::{TableDefinition, TableName};
use crate::difference::{Contradiction, Difference, differences};
use crate::outdated::Outdated;

/// Bytes of the table's id at the start of a table map's body: the id changes whenever the source reopens the table.
const ID_BYTES: usize = 6;

/// The result of [`KnownTables::fit`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// This definition fits, or its difference is a fact.
    Fits(Arc<TableDefinition>),
    /// The definition must be read from the replica.
    Unknown,
    /// The definition by which rows were gathered does not fit.
    Contradicts(Contradiction),
}

/// Definitions by name.
#[derive(Debug, Default)]
pub(crate) struct KnownTables {
    tables: HashMap<TableName, Known>,
    /// Differences that are facts and not reported yet.
    facts: Vec<Contradiction>,
}

#[derive(Debug)]
struct Known {
    definition: Arc<TableDefinition>,
    standing: Standing,
    /// The table map that it was last compared with, without the id.
    compared: Vec<u8>,
    /// How it lays out the columns of unique keys.
    keys: Vec<ColumnType>,
    /// Differences that are facts.
    facts: Vec<Difference>,
}

/// How certain it is that the definition is still that of the replica's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was read for the next table map.
    JustRead,
    /// It was read ahead, along with others; no row was gathered by it.
    ReadAhead,
    /// Rows were gathered by it.
    Used,
}

impl KnownTables {
    /// Takes a definition that was read for the next table map.
    pub(crate) fn learn(&mut self, definition: TableDefinition) {
        self.insert(definition, Standing::JustRead);
    }

    /// Takes a definition that was read ahead of its table map.
    pub(crate) fn learn_ahead(&mut self, definition: TableDefinition) {
        self.insert(definition, Standing::ReadAhead);
    }

    fn insert(&mut self, definition: TableDefinition, standing: Standing) {
        let name = definition.name.clone();
        let known = Known { definition: Arc::new(definition), standing, compared: vec![], keys: vec![], facts: vec![] };
        self.tables.insert(name, known);
    }

    /// Forgets all definitions.
    pub(crate) fn clear(&mut self) {
        self.tables.clear();
    }

    /// Forgets definitions that are out of date.
    pub(crate) fn forget(&mut self, outdated: &Outdated) {
        self.tables.retain(|_, known| !outdated.includes(&known.definition));
    }

    /// Compares a table map with the table's definition. `is_read_again` means that all definitions were read for this
    /// transaction, with everything before it applied, so that a difference is a fact.
    pub(crate) fn fit(&mut self, name: &TableName, map: &TableMap, is_read_again: bool) -> Fit {
        let Some(known) = self.tables.get_mut(name) else { return Fit::Unknown };
        let said = map.body.get(ID_BYTES..).unwrap_or_default();
        if known.compared != said || known.standing != Standing::Used {
            let keys = key_columns(map, &known.definition);
            if known.standing == Standing::Used && !is_read_again && known.keys != keys {
                // The source has altered it without logging that: keys of rows before and behind cannot be compared.
                return Fit::Contradicts(Contradiction {
                    definition: Arc::clone(&known.definition),
                    differences: vec![],
                });
            }
            let mut differences = differences(map, &known.definition);
            differences.retain(|difference| !known.facts.contains(difference));
            if !differences.is_empty() {
                match known.standing {
                    Standing::ReadAhead => {
                        self.tables.remove(name);
                        return Fit::Unknown;
                    }
                    Standing::Used if !is_read_again => {
                        return Fit::Contradicts(Contradiction {
                            definition: Arc::clone(&known.definition),
                            differences,
                        });
                    }
                    Standing::JustRead | Standing::Used => {}
                }
                known.facts.extend_from_slice(&differences);
                self.facts.push(Contradiction { definition: Arc::clone(&known.definition), differences });
            }
            known.compared = said.to_vec();
            known.keys = keys;
            known.standing = Standing::Used;
        }
        Fit::Fits(Arc::clone(&known.definition))
    }

    /// The differences that were found to be facts since this was last called.
    pub(crate) fn take_facts(&mut self) -> Vec<Contradiction> {
        std::mem::take(&mut self.facts)
    }
}

/// The types of the columns that unique keys are on, in the source's table.
fn key_columns(map: &TableMap, definition: &TableDefinition) -> Vec<ColumnType> {
    let others = definition.unique_keys.iter().flat_map(|key| &key.columns);
    let columns = definition.row_key.iter().chain(others);
    columns.filter_map(|&column| map.columns.get(column)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use spate_binlog::table_map::OptionalMetadata;

    use super::*;
    use crate::definition::ColumnDefinition;

    /// A table map of this many integers.
    fn map(columns: usize) -> TableMap {
        TableMap {
            table_id: 1,
            schema: "d".into(),
            table: "t".into(),
            columns: vec![ColumnType::Int; columns],
            nullable: vec![0],
            metadata: OptionalMetadata::default(),
            body: [&[0; ID_BYTES], [columns as u8].as_slice()].concat(),
        }
    }

    fn definition(columns: usize) -> TableDefinition {
        let column = ColumnDefinition { column_type: "int".into(), ..ColumnDefinition::default() };
        TableDefinition { name: name(), columns: vec![column; columns], ..TableDefinition::default() }
    }

    fn name() -> TableName {
        TableName { schema: "d".into(), table: "t".into() }
    }

    fn fits(fit: &Fit, columns: usize) -> bool {
        matches!(fit, Fit::Fits(definition) if definition.columns.len() == columns)
    }

    #[test]
    fn difference_from_a_fresh_definition_is_a_fact_reported_once() {
        let mut known = KnownTables::default();
        assert_eq!(known.fit(&name(), &map(2), false), Fit::Unknown);
        known.learn(definition(3));
        for _ in 0..3 {
            assert!(fits(&known.fit(&name(), &map(2), false), 3));
        }
        let facts = known.take_facts();
        assert_eq!((facts.len(), &facts[0].differences), (1, &vec![Difference::Columns(2)]));
        assert_eq!(known.take_facts(), []);
    }

    #[test]
    fn definition_read_ahead_that_differs_is_read_again() {
        let mut known = KnownTables::default();
        known.learn_ahead(definition(3));
        assert_eq!(known.fit(&name(), &map(2), false), Fit::Unknown);
        known.learn(definition(2));
        assert!(fits(&known.fit(&name(), &map(2), false), 2));
        known.learn_ahead(definition(2));
        assert!(fits(&known.fit(&name(), &map(2), false), 2));
        assert_eq!(known.take_facts(), []);
    }

    #[test]
    fn other_layout_of_a_key_is_a_contradiction_each_time() {
        let mut known = KnownTables::default();
        known.learn(TableDefinition { row_key: vec![0], ..definition(2) });
        let mut other = map(2);
        other.columns[0] = ColumnType::BigInt;
        other.body.push(1);
        let mut of_value = map(2);
        of_value.columns[1] = ColumnType::BigInt;
        of_value.body.push(2);
        assert!(fits(&known.fit(&name(), &map(2), false), 2));
        // Of another column than the key's, it does not matter.
        assert!(!matches!(known.fit(&name(), &of_value, true), Fit::Unknown));
        for map in [&other, &of_value] {
            assert!(matches!(known.fit(&name(), map, false), Fit::Contradicts(_)));
            assert!(fits(&known.fit(&name(), map, true), 2));
            assert!(fits(&known.fit(&name(), map, false), 2));
        }
    }

    #[test]
    fn definition_in_use_is_contradicted_until_read_again() {
        let mut known = KnownTables::default();
        known.learn(definition(2));
        assert!(fits(&known.fit(&name(), &map(2), false), 2));
        for _ in 0..2 {
            let Fit::Contradicts(contradiction) = known.fit(&name(), &map(3), false) else { panic!("it fits") };
            assert_eq!(contradiction.differences, [Difference::Columns(3)]);
        }
        assert!(fits(&known.fit(&name(), &map(3), true), 2));
        // From now on it is a fact.
        assert!(fits(&known.fit(&name(), &map(3), false), 2));
        assert!(fits(&known.fit(&name(), &map(2), false), 2));
        assert!(fits(&known.fit(&name(), &map(3), false), 2));
        assert_eq!(known.take_facts().len(), 1);
    }
}
