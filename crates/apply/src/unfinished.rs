//! Definitions of the source that are on their way to the replica: what they define is read there only once they are in effect, and
//! what has nothing to do with them need not wait for them.

use std::collections::VecDeque;

use spate_schedule::outdated::Outdated;
use spate_schedule::statement::may_concern_accounts;
use spate_schedule::{Statement, TableName};

/// How many definitions are remembered. More cannot be on their way: each is a batch, and two batches are at most before the applier.
const UNFINISHED_MAX: usize = 4;

/// Definitions that were handed out, the latest last.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedDefinitions(VecDeque<Unfinished>);

#[derive(Debug)]
struct Unfinished {
    seqno: u64,
    /// The definitions that are to be read only when it is in effect.
    outdated: Outdated,
    /// What it changes.
    changed: Outdated,
}

/// What is known of a definition by its text.
#[derive(Debug)]
pub(crate) struct DefinitionChange {
    /// What it changes.
    changed: Outdated,
    /// It may change what Spate's account sees of tables.
    is_of_accounts: bool,
}

impl DefinitionChange {
    /// Of any.
    pub(crate) const ANY: DefinitionChange = DefinitionChange { changed: Outdated::All, is_of_accounts: true };

    /// Of this statement, if there is one.
    pub(crate) fn of(statement: Option<&Statement>) -> DefinitionChange {
        statement.map_or(DefinitionChange::ANY, |statement| DefinitionChange {
            changed: Outdated::changed_by(statement),
            is_of_accounts: may_concern_accounts(statement.text()),
        })
    }
}

impl UnfinishedDefinitions {
    /// A definition was handed out, which puts these definitions out of date. Returns a transaction that is no longer remembered, and so must be in effect.
    pub(crate) fn hand_out(&mut self, seqno: u64, outdated: Outdated, change: &DefinitionChange) -> Option<u64> {
        // TRUNCATE puts nothing out of date, and changes its table.
        let changed = if outdated == Outdated::Nothing { change.changed.clone() } else { outdated.clone() };
        let outdated = if change.is_of_accounts { Outdated::All } else { outdated };
        self.0.push_back(Unfinished { seqno, outdated, changed });
        let is_full = self.0.len() > UNFINISHED_MAX;
        is_full.then(|| self.0.pop_front()).flatten().map(|oldest| oldest.seqno)
    }

    /// The transaction that must be in effect before this table is read. `None`: none must.
    pub(crate) fn before_reading(&self, table: &TableName) -> Option<u64> {
        self.0.iter().rev().find(|unfinished| unfinished.outdated.may_include(table)).map(|unfinished| unfinished.seqno)
    }

    /// The transaction that must be in effect before it is known what a definition is about to change.
    pub(crate) fn before_changing(&self, changed: &Outdated) -> Option<u64> {
        self.0.iter().rev().find(|unfinished| unfinished.changed.overlaps(changed)).map(|unfinished| unfinished.seqno)
    }

    /// The latest of all. `None`: there is none.
    pub(crate) fn latest(&self) -> Option<u64> {
        self.0.back().map(|unfinished| unfinished.seqno)
    }

    /// This transaction and all before it are in effect.
    pub(crate) fn finish(&mut self, seqno: u64) {
        self.0.retain(|unfinished| unfinished.seqno > seqno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName { schema: "d".into(), table: name.into() }
    }

    const OF_TABLES: DefinitionChange = DefinitionChange { changed: Outdated::All, is_of_accounts: false };

    fn of(name: &str) -> Outdated {
        Outdated::Tables(vec![table(name)])
    }

    #[test]
    fn table_waits_for_the_latest_definition_that_may_be_its_own() {
        let mut unfinished = UnfinishedDefinitions::default();
        assert_eq!(unfinished.before_reading(&table("t")), None);
        unfinished.hand_out(3, of("t"), &OF_TABLES);
        unfinished.hand_out(5, of("u"), &OF_TABLES);
        unfinished.hand_out(7, Outdated::Nothing, &OF_TABLES);
        assert_eq!(unfinished.before_reading(&table("T")), Some(3), "names may differ in case only");
        assert_eq!(unfinished.before_reading(&table("u")), Some(5));
        assert_eq!(unfinished.before_reading(&table("v")), None);
        assert_eq!(unfinished.latest(), Some(7));
        unfinished.finish(4);
        assert_eq!(unfinished.before_reading(&table("t")), None);
        assert_eq!(unfinished.before_reading(&table("u")), Some(5));
    }

    #[test]
    fn every_table_waits_for_definitions_of_accounts_and_of_all() {
        let mut unfinished = UnfinishedDefinitions::default();
        unfinished.hand_out(3, Outdated::Nothing, &DefinitionChange::ANY);
        assert_eq!(unfinished.before_reading(&table("t")), Some(3));
        unfinished.hand_out(4, Outdated::All, &OF_TABLES);
        assert_eq!(unfinished.before_reading(&table("t")), Some(4));
    }

    #[test]
    fn oldest_is_returned_when_there_are_too_many() {
        let mut unfinished = UnfinishedDefinitions::default();
        let popped: Vec<_> = (1..=6).map(|seqno| unfinished.hand_out(seqno, of("t"), &OF_TABLES)).collect();
        assert_eq!(popped, [None, None, None, None, Some(1), Some(2)]);
    }
}
