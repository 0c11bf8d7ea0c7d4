//! The definitions that a batch's builder knows, and how far each was held against the source's table maps.

use std::collections::HashMap;
use std::sync::Arc;

use spate_binlog::TableMap;

use crate::definition::{TableDefinition, TableName};
use crate::difference::{Contradiction, Difference, differences};
use crate::outdated::Outdated;

/// Bytes of a table map's body before what it says of the table: the table's id, which is another whenever the source reopens it.
const ID_BYTES: usize = 6;

/// What [`KnownTables::fit`] says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// This definition fits, or what differs is a fact.
    Fits(Arc<TableDefinition>),
    /// The replica has to be asked.
    Unknown,
    /// The definition by which rows were gathered does not fit.
    Contradicts(Contradiction),
}

/// Definitions by name.
#[derive(Debug, Default)]
pub(crate) struct KnownTables {
    tables: HashMap<TableName, Known>,
    /// Differences that are facts, and nobody was told of.
    facts: Vec<Contradiction>,
}

#[derive(Debug)]
struct Known {
    definition: Arc<TableDefinition>,
    standing: Standing,
    /// The table map that it was last held against, but for the id.
    compared: Vec<u8>,
    /// Differences that are facts.
    facts: Vec<Difference>,
}

/// How sure it is that the replica's table is still so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was read for the table map that comes.
    JustRead,
    /// It was read some time ago, along with others; no row was gathered by it.
    ReadAhead,
    /// Rows were gathered by it.
    Used,
}

impl KnownTables {
    /// Takes a definition that was read for the table map that comes.
    pub(crate) fn learn(&mut self, definition: TableDefinition) {
        self.insert(definition, Standing::JustRead);
    }

    /// Takes a definition that was read before its table map came.
    pub(crate) fn learn_ahead(&mut self, definition: TableDefinition) {
        self.insert(definition, Standing::ReadAhead);
    }

    fn insert(&mut self, definition: TableDefinition, standing: Standing) {
        let name = definition.name.clone();
        let known = Known { definition: Arc::new(definition), standing, compared: vec![], facts: vec![] };
        self.tables.insert(name, known);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.tables.clear();
    }

    /// Forgets what is out of date.
    pub(crate) fn forget(&mut self, outdated: &Outdated) {
        self.tables.retain(|_, known| !outdated.includes(&known.definition));
    }

    /// Holds a table map against the table's definition. `is_read_anew`: whatever is known was read for this transaction, with
    /// everything before it applied, so that what differs is a fact.
    pub(crate) fn fit(&mut self, name: &TableName, map: &TableMap, is_read_anew: bool) -> Fit {
        let Some(known) = self.tables.get_mut(name) else { return Fit::Unknown };
        let said = map.body.get(ID_BYTES..).unwrap_or_default();
        if known.compared != said || known.standing != Standing::Used {
            let mut differences = differences(map, &known.definition);
            differences.retain(|difference| !known.facts.contains(difference));
            if !differences.is_empty() {
                match known.standing {
                    Standing::ReadAhead => {
                        self.tables.remove(name);
                        return Fit::Unknown;
                    }
                    Standing::Used if !is_read_anew => {
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
            known.standing = Standing::Used;
        }
        Fit::Fits(Arc::clone(&known.definition))
    }

    /// The differences that were found to be facts since this was last called.
    pub(crate) fn take_facts(&mut self) -> Vec<Contradiction> {
        std::mem::take(&mut self.facts)
    }
}

#[cfg(test)]
mod tests {
    use spate_binlog::column::ColumnType;
    use spate_binlog::table_map::OptionalMetadata;

    use super::*;
    use crate::definition::ColumnDefinition;

    /// A table map of so many integers.
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
    fn a_difference_from_what_was_just_read_is_a_fact_and_told_once() {
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
    fn a_definition_read_ahead_is_read_again_before_it_is_used() {
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
