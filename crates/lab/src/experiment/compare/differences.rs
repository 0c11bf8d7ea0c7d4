//! What two results do not have in common, apart from their figures.

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::facts;
use crate::experiment::result::Header;

/// What two results do not have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// It is what was measured with: data and load.
    pub(super) is_load: bool,
    what: String,
    before: String,
    after: String,
}

impl Difference {
    pub(super) fn in_words(&self) -> String {
        let Difference { what, before, after, .. } = self;
        format!("{what}: '{before}' before, '{after}' after")
    }
}

/// The facts in which they differ, of settings that both have.
pub(super) fn differences(before: &Header, after: &Header) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut see = |is_load: bool, what: &str, before: &str, after: &str| {
        if before != after {
            let (what, before, after) = (what.to_owned(), before.to_owned(), after.to_owned());
            differences.push(Difference { is_load, what, before, after });
        }
    };
    see(false, "server", &before.server_version, &after.server_version);
    if !before.machine.is_same(&after.machine) {
        see(false, "machine", &before.machine.in_words(), &after.machine.in_words());
    }
    // Earlier laboratories wrote no facts.
    for (setting, facts) in &before.settings {
        let Some(others) = after.settings.get(setting) else { continue };
        let (facts, others) = (by_name(facts), by_name(others));
        let names: BTreeSet<&str> = facts.keys().chain(others.keys()).copied().collect();
        for name in names {
            let of = |facts: &BTreeMap<&str, String>| facts.get(name).cloned().unwrap_or_else(|| "nothing".to_owned());
            see(["data", "load"].contains(&name), &format!("{setting}, {name}"), &of(&facts), &of(&others));
        }
    }
    differences
}

/// Facts by what they are of, which stands before the colon.
fn by_name(facts: &[String]) -> BTreeMap<&str, String> {
    let mut named: BTreeMap<&str, String> = BTreeMap::new();
    for fact in facts {
        let (name, value) = facts::parts(fact);
        let values = named.entry(name).or_default();
        *values += if values.is_empty() { "" } else { "; " };
        *values += value;
    }
    named
}
