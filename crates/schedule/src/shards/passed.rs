//! Rows that are applied already: some appliers were ahead of others when they were interrupted.

use std::collections::HashMap;
use std::sync::Arc;

use spate_binlog::table_map::bit_is_set;
use spate_binlog::{ImagePlan, RowsEvent, RowsKind, Span};
use xxhash_rust::xxh3::xxh3_64;

use super::{ShardMap, Way};
use crate::plan::{TablePlan, write_locator};
use crate::segment::RowWalk;
use crate::{Error, Result};

/// Whose rows of a transaction are applied already.
#[derive(Debug, Clone)]
pub struct Passed {
    /// Who applied which rows.
    pub map: Arc<ShardMap>,
    /// How each table was divided: see [`ShardMap::dealt`].
    pub dealt: Arc<HashMap<u64, u64>>,
    /// Of each applier, whether it has applied the transaction.
    pub have: Vec<bool>,
}

/// What is left of a rows event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    All,
    /// Runs of rows, whose images hold the columns that the event's do.
    Runs(Vec<(RowsKind, Vec<u8>)>),
}

impl Passed {
    fn has(&self, applier: u32) -> bool {
        self.have.get(applier as usize).copied().unwrap_or_default()
    }

    /// What nobody has applied of a rows event.
    ///
    /// # Errors
    /// [`Error::Binlog`] if the images cannot be measured; [`Error::Refused`] if nobody could have applied such an event alone.
    pub(crate) fn left(&self, plan: &TablePlan, rows: &RowsEvent<'_>, images: &[u8]) -> Result<Left> {
        let (name, way) = self.map.dealt_as(plan);
        if self.have.contains(&true) && self.dealt.get(&name) != Some(&way) {
            return Err(altered(plan));
        }
        match self.map.way(plan) {
            Way::Applier(applier) if self.has(applier) => return Ok(Left::Runs(vec![])),
            Way::ByRow if self.have.contains(&true) => {}
            _ => return Ok(Left::All),
        }
        let before = KeyHash::new(plan, rows.columns)?;
        let after = match rows.kind {
            RowsKind::Update => KeyHash::new(plan, rows.columns_after)?,
            _ => None,
        };
        let Some(before) = before else { return Err(unexpected(plan)) };
        let walk = RowWalk::new(plan, rows.kind, (rows.columns, rows.columns_after), rows.has_partial_json)?;
        let mut runs: Vec<(RowsKind, Vec<u8>)> = Vec::new();
        for row in walk.rows(images) {
            let row = row?;
            let from = before.applier(&self.map, row.first)?;
            let to = match &after {
                Some(after) => after.applier(&self.map, row.second)?,
                None => from,
            };
            let (kind, images) = match (self.has(from), self.has(to)) {
                (true, true) => continue,
                (false, false) if row.is_partial() => return Err(unexpected(plan)),
                (false, false) => (rows.kind, [row.first, row.second]),
                _ if !rows.has_full_images() => return Err(unexpected(plan)),
                (false, true) => (RowsKind::Delete, [row.first, &[]]),
                (true, false) => (RowsKind::Insert, [row.second, &[]]),
            };
            if runs.last().is_none_or(|(last, _)| *last != kind) {
                runs.push((kind, Vec::new()));
            }
            if let Some((_, run)) = runs.last_mut() {
                images.iter().for_each(|image| run.extend_from_slice(image));
            }
        }
        Ok(Left::Runs(runs))
    }
}

fn altered(plan: &TablePlan) -> Error {
    Error::Refused {
        what: format!("a change of {}", plan.definition.name),
        why: "appliers were interrupted at different positions, and the replica's table is not defined as it was then, so nobody knows whose rows are \
              applied: undo the alteration, or what was altered of its foreign keys, and start again; alter it when all are at one position"
            .to_owned(),
    }
}

fn unexpected(plan: &TablePlan) -> Error {
    Error::Refused {
        what: format!("a change of {}", plan.definition.name),
        why: "appliers were interrupted at different positions, and only one of them alone could have applied this: the table or the \
              source's binlog is not what it was then"
            .to_owned(),
    }
}

/// Works out the hash of the row key of images with some columns.
struct KeyHash {
    walk: ImagePlan,
    columns: usize,
}

impl KeyHash {
    /// `None` if the images do not hold the whole key.
    fn new(plan: &TablePlan, columns: &[u8]) -> Result<Option<KeyHash>> {
        let mut key = plan.definition.row_key.clone();
        key.sort_unstable();
        if !key.iter().all(|&column| bit_is_set(columns, column)) {
            return Ok(None);
        }
        Ok(Some(KeyHash { walk: ImagePlan::new(&plan.map, columns, &key)?, columns: key.len() }))
    }

    fn applier(&self, map: &ShardMap, image: &[u8]) -> Result<u32> {
        let mut spans = vec![Span::default(); self.columns];
        self.walk.measure(image, &mut spans)?;
        let mut locator = Vec::new();
        write_locator(image, self.columns.div_ceil(8), spans.iter(), &mut locator);
        Ok(map.of_hash(xxh3_64(&locator)))
    }
}
