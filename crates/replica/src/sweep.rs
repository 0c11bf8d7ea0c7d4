//! Deleting many rows of a table without a key in one pass over it.
//!
//! A row event makes the server look through such a table for each row that it deletes. A sweep instead is one statement that
//! deletes every row whose fingerprint is among the wanted ones and returns the fingerprints of what it deleted. Equal rows
//! share a fingerprint, and all copies of a row are deleted although only some may be wanted; how many were too many is counted,
//! and they are inserted again. So that a table of a few rows in very many copies is not emptied and filled again, the statement
//! ends after a bounded surplus, and goes on without the images that are served.
//!
//! All of it happens within the open transaction. A wanted row that is missing is an error: nothing is applied then, and the
//! transactions are taken apart to find which one it was.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use spate_schedule::multiset::RowMultiset;

use crate::error::{Error, Result};
use crate::fingerprint::{Fingerprint, Fingerprinter};
use crate::wire::{Connection, quote};

/// Deletes for which the server's own search costs less than a sweep: an image is compared some ten times faster than a
/// fingerprint is made, and on the average is found half-way.
const DELETES_MIN: u64 = 24;

/// Images in one sweep, which is one statement. Each takes 35 bytes in it, some 100 here and some 200 in the server; more
/// sweeps are more passes.
const IMAGES_MAX: usize = 200_000;

/// Bytes of an image in the statement: `0x`, 32 digits, a comma.
const IMAGE_SQL_BYTES: usize = 35;

/// Copies that a statement may delete beyond those wanted, if that is more than as many again.
const SURPLUS_MIN: u64 = 10_000;

/// Takes what a multiset takes away apart into sweeps.
pub(crate) struct Sweeper<'a> {
    multiset: &'a RowMultiset,
    fingerprinter: Fingerprinter,
    images_max: usize,
}

/// Rows to delete from one table.
#[derive(Debug)]
pub(crate) struct Sweep {
    table: String,
    quoted_table: String,
    expression: String,
    wanted: HashMap<Fingerprint, Wanted>,
}

#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The image's number in the multiset.
    image: usize,
    copies: u64,
    found: u64,
}

/// By an image's number: how many copies too many were deleted.
pub(crate) type Surplus = HashMap<usize, u64>;

impl<'a> Sweeper<'a> {
    /// A sweeper for a multiset, if sweeps are possible and cost less than the server's own search.
    pub(crate) fn of(multiset: &'a RowMultiset, max_allowed_packet: usize) -> Option<Sweeper<'a>> {
        let lookup = &multiset.plan().definition.lookup;
        if !lookup.by_statement || multiset.deletes() < DELETES_MIN.saturating_mul(lookup.distinct_values.max(1)) {
            return None;
        }
        let fingerprinter = Fingerprinter::new(multiset.plan())?;
        let images_max = (max_allowed_packet / 2 / IMAGE_SQL_BYTES).clamp(1, IMAGES_MAX);
        Some(Sweeper { multiset, fingerprinter, images_max })
    }

    /// Gives each sweep to `execute`; returns what was deleted beyond, of all.
    ///
    /// # Errors
    /// What `execute` returns.
    pub(crate) fn each(mut self, mut execute: impl FnMut(Sweep) -> Result<Surplus>) -> Result<Surplus> {
        let name = &self.multiset.plan().definition.name;
        let mut surplus = Surplus::new();
        let mut images = self.multiset.net().filter(|&(_, _, copies)| copies < 0).peekable();
        while images.peek().is_some() {
            let mut wanted: HashMap<Fingerprint, Wanted> = HashMap::new();
            for (image, bytes, copies) in images.by_ref().take(self.images_max) {
                let Some(fingerprint) = self.fingerprinter.of(bytes) else {
                    return Err(Error::RowsMissing { table: name.to_string(), missing: copies.unsigned_abs() });
                };
                let entry = wanted.entry(fingerprint).or_insert(Wanted { image, copies: 0, found: 0 });
                entry.copies += copies.unsigned_abs();
            }
            surplus.extend(execute(Sweep {
                table: name.to_string(),
                quoted_table: quote::qualified(&name.schema, &name.table),
                expression: self.fingerprinter.expression().to_owned(),
                wanted,
            })?);
        }
        Ok(surplus)
    }
}

impl Sweep {
    /// Deletes the rows; returns what was deleted beyond.
    ///
    /// # Errors
    /// [`Error::RowsMissing`]; any error of the connection.
    pub(crate) fn run(mut self, connection: &mut Connection) -> Result<Surplus> {
        let mut surplus = Surplus::new();
        while !self.wanted.is_empty() {
            let copies: u64 = self.wanted.values().map(Wanted::missing).sum();
            let limit = copies + copies.max(SURPLUS_MIN);
            let is_all = self.pass(connection, limit)? < limit;
            self.wanted.retain(|_, wanted| {
                if wanted.found > wanted.copies {
                    surplus.insert(wanted.image, wanted.found - wanted.copies);
                }
                wanted.found < wanted.copies
            });
            let missing: u64 = self.wanted.values().map(Wanted::missing).sum();
            if is_all && missing > 0 {
                return Err(Error::RowsMissing { table: self.table, missing });
            }
        }
        Ok(surplus)
    }

    /// One statement; returns how many rows it deleted.
    fn pass(&mut self, connection: &mut Connection, limit: u64) -> Result<u64> {
        let sql = self.sql(limit);
        let wanted = &mut self.wanted;
        let mut deleted = 0;
        connection.for_each_row(&sql, |row| {
            deleted += 1;
            let print = row.get(0).and_then(|value| Fingerprint::try_from(value).ok());
            if let Some(wanted) = print.and_then(|print| wanted.get_mut(&print)) {
                wanted.found += 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(deleted)
    }

    fn sql(&self, limit: u64) -> String {
        // What the source checked is not checked again, and no limit for sessions of users holds; long lists stay lists.
        let mut sql = String::with_capacity(self.wanted.len() * IMAGE_SQL_BYTES + 2 * self.expression.len() + 300);
        sql.push_str(
            "SET STATEMENT foreign_key_checks=0, sql_safe_updates=0, max_statement_time=0, \
             in_predicate_conversion_threshold=0 FOR DELETE FROM ",
        );
        // Writing to a String does not fail.
        let _ = write!(sql, "{} WHERE {} IN (", self.quoted_table, self.expression);
        for (number, image) in self.wanted.keys().enumerate() {
            sql.push_str(if number == 0 { "0x" } else { ",0x" });
            let _ = write!(sql, "{:032x}", u128::from_be_bytes(*image));
        }
        let _ = write!(sql, ") LIMIT {limit} RETURNING {}", self.expression);
        sql
    }
}

impl Wanted {
    fn missing(&self) -> u64 {
        self.copies.saturating_sub(self.found)
    }
}
