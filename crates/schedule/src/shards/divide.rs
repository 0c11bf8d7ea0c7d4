//! Divides a batch into those of the appliers.

use super::{ShardMap, Together, Way};
use crate::segment::Segment;
use crate::{Batch, Item};

impl ShardMap {
    /// Why the batch cannot be divided; `None` if it can. Its shards have appliers.
    pub fn keeps_together(&self, batch: &Batch) -> Option<Together> {
        if !batch.is_of_rows() {
            return Some(Together::Statement);
        }
        if batch.is_unfolded {
            return Some(Together::Order);
        }
        batch.segments().find_map(|segment| self.keeps_segment_together(segment))
    }

    fn keeps_segment_together(&self, segment: &Segment) -> Option<Together> {
        if segment.plans().any(|plan| matches!(self.way(plan), Way::Critical | Way::Unassigned(_))) {
            return Some(Together::Critical);
        }
        let moves = |fold: &crate::fold::TableFold| fold.has_order_among_rows() && self.way(fold.plan()) == Way::ByRow;
        let is_ordered = |plan: &crate::TablePlan| self.way(plan) == Way::ByRow;
        let has_order =
            segment.folds().iter().any(moves) || segment.ordered().iter().any(|rows| is_ordered(rows.plan()));
        has_order.then_some(Together::Order)
    }

    /// The batches of the appliers that have anything to do, of one that need not be kept together.
    pub fn divide(&self, batch: Batch) -> Vec<(u32, Batch)> {
        let mut batches: Vec<Batch> = (0..self.appliers).map(|_| Batch::default()).collect();
        for item in batch.items {
            let Item::Rows(segment) = item else { continue };
            for (batch, segment) in batches.iter_mut().zip(self.divide_segment(segment)) {
                if !segment.is_empty() {
                    batch.statistics.row_changes += segment.net_rows();
                    batch.items.push(Item::Rows(segment));
                }
            }
        }
        (0..).zip(batches).filter(|(_, batch)| !batch.items.is_empty()).collect()
    }

    fn divide_segment(&self, segment: Segment) -> Vec<Segment> {
        let mut parts: Vec<Segment> = (0..self.appliers).map(|_| Segment::empty_like(&segment)).collect();
        let (folds, keyless, ordered) = segment.into_tables();
        for fold in folds {
            match self.way(fold.plan()) {
                Way::ByRow => {
                    for (part, fold) in parts.iter_mut().zip(fold.divide(self.appliers, |hash| self.of_hash(hash))) {
                        part.add_fold(fold);
                    }
                }
                way => parts[self.place_of(&way)].add_fold(fold),
            }
        }
        for rows in keyless {
            parts[self.place_of(&self.way(rows.plan()))].add_keyless(rows);
        }
        for rows in ordered {
            parts[self.place_of(&self.way(rows.plan()))].add_ordered(rows);
        }
        parts
    }

    fn place_of(&self, way: &Way) -> usize {
        match way {
            Way::Applier(number) => (*number).min(self.appliers.saturating_sub(1)) as usize,
            _ => 0,
        }
    }
}
