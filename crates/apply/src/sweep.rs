//! Deleting or updating many rows of a table without a key in one pass over it.
//!
//! A row event makes the server look through such a table for each row. A sweep instead first counts how many rows have each of
//! the wanted fingerprints; equal rows share one. Where as many are there as are wanted, it does not matter which is taken first,
//! and one statement takes them all: a delete does it here, updates are written by the emitter, which knows the values. Where more are there,
//! the first are to be taken, as the server finds them: these are left to it.
//!
//! All of it happens within the open transaction. A wanted row that is missing is an error: nothing is applied then, and the
//! transactions are taken apart to find which one it was.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::ControlFlow;

use spate_binlog::RowsKind;
use spate_schedule::keyless::{KeylessRows, Step};

use crate::fingerprint::{Fingerprint, Fingerprinter};
use spate_connection::{Connection, quote};
use spate_replica::{Error, Result};

/// Changes for which the server's own search costs less than a sweep: an image is compared some ten times faster than a
/// fingerprint is made, and on the average is found half-way.
const CHANGES_MIN: u64 = 24;

/// Images in one sweep, which is one statement. Each takes 35 bytes in it, some 100 here and some 200 in the server; more
/// sweeps are more passes.
const IMAGES_MAX: usize = 200_000;

/// Bytes of an image in the statement: `0x`, 32 digits, a comma.
const IMAGE_SQL_BYTES: usize = 35;

/// Takes a step apart into sweeps.
pub(crate) struct Sweeper<'a> {
    rows: &'a KeylessRows,
    step: &'a Step,
    fingerprinter: Fingerprinter,
    images_max: usize,
}

/// Rows to find in one table.
#[derive(Debug)]
pub(crate) struct Sweep {
    table: String,
    quoted_table: String,
    /// Sees that it is a table.
    hold_table: String,
    expression: String,
    kind: RowsKind,
    wanted: HashMap<Fingerprint, Wanted>,
}

#[derive(Debug, Default)]
struct Wanted {
    /// Images of this fingerprint, by their numbers: usually one.
    images: BTreeSet<u32>,
    copies: u64,
    found: u64,
}

/// The images, by their numbers, whose rows a sweep leaves to the server's own search.
pub(crate) type Left = HashSet<u32>;

impl<'a> Sweeper<'a> {
    /// A sweeper for a step, if sweeps are possible and cost less than the server's own search.
    pub(crate) fn of(rows: &'a KeylessRows, step: &'a Step, max_allowed_packet: usize) -> Option<Sweeper<'a>> {
        let lookup = &rows.plan().definition.lookup;
        let changes: u64 = match step.kind {
            RowsKind::Delete => rows.deletes(step).map(|(_, _, copies)| copies).sum(),
            RowsKind::Update => rows.updates(step).count() as u64,
            RowsKind::Insert => 0,
        };
        if !lookup.by_statement || changes < CHANGES_MIN.saturating_mul(lookup.distinct_values.max(1)) {
            return None;
        }
        if step.kind == RowsKind::Update && !maps_each_copy_alike(rows, step) {
            return None;
        }
        let fingerprinter = Fingerprinter::new(rows.plan())?;
        let images_max = (max_allowed_packet / 2 / IMAGE_SQL_BYTES).clamp(1, IMAGES_MAX);
        Some(Sweeper { rows, step, fingerprinter, images_max })
    }

    /// Gives each sweep to `execute`; returns what they left.
    ///
    /// # Errors
    /// What `execute` returns.
    pub(crate) fn each<E: From<Error>>(
        mut self,
        mut execute: impl FnMut(Sweep) -> std::result::Result<Left, E>,
    ) -> std::result::Result<Left, E> {
        let name = &self.rows.plan().definition.name;
        let mut left = Left::new();
        let images: Box<dyn Iterator<Item = (u32, &[u8], u64)>> = match self.step.kind {
            RowsKind::Delete => Box::new(self.rows.deletes(self.step)),
            _ => Box::new(self.rows.updates(self.step).map(|((number, before), _)| (number, before, 1))),
        };
        let mut images = images.peekable();
        while images.peek().is_some() {
            let mut wanted: HashMap<Fingerprint, Wanted> = HashMap::new();
            while wanted.len() < self.images_max
                && let Some((image, bytes, copies)) = images.next()
            {
                let Some(fingerprint) = self.fingerprinter.of(bytes) else {
                    return Err(Error::RowsMissing { table: name.to_string(), missing: copies }.into());
                };
                let entry = wanted.entry(fingerprint).or_default();
                entry.images.insert(image);
                entry.copies += copies;
            }
            left.extend(execute(Sweep {
                table: name.to_string(),
                quoted_table: quote::qualified(&name.schema, &name.table),
                hold_table: quote::hold_table(&name.schema, &name.table),
                expression: self.fingerprinter.expression().to_owned(),
                kind: self.step.kind,
                wanted,
            })?);
        }
        Ok(left)
    }
}

/// True if updates make the same of each copy of a row.
fn maps_each_copy_alike(rows: &KeylessRows, step: &Step) -> bool {
    let mut ways = HashMap::new();
    rows.updates(step).all(|((before, _), (after, _))| *ways.entry(before).or_insert(after) == after)
}

impl Sweep {
    /// Finds the rows. A sweep that deletes, deletes those whose copies all go. Returns the others.
    ///
    /// # Errors
    /// [`Error::RowsMissing`]; any error of the connection.
    pub(crate) fn run(mut self, connection: &mut Connection) -> Result<Left> {
        connection.execute(self.hold_table.as_bytes())?;
        self.count(connection)?;
        let missing: u64 = self.wanted.values().map(|wanted| wanted.copies.saturating_sub(wanted.found)).sum();
        // One statement of the source may have turned one row into the former value of another.
        if missing > 0 && self.kind == RowsKind::Delete {
            return Err(Error::RowsMissing { table: self.table, missing });
        }
        let mut left = Left::new();
        self.wanted.retain(|_, wanted| {
            let goes_whole = wanted.found == wanted.copies;
            if !goes_whole {
                left.extend(&wanted.images);
            }
            goes_whole
        });
        if self.wanted.is_empty() || self.kind != RowsKind::Delete {
            return Ok(left);
        }
        let copies: u64 = self.wanted.values().map(|wanted| wanted.copies).sum();
        // The limit, which nothing reaches, has a replica that logs statements log the rows.
        let sql = self.sql("DELETE", &format!(" LIMIT {copies}"));
        let deleted = connection.execute(sql.as_bytes())?.affected_rows;
        match deleted == copies {
            true => Ok(left),
            // Nothing else changes rows that this transaction has locked; whatever it was, the batch must not stand.
            false => Err(Error::RowsMissing { table: self.table, missing: copies.abs_diff(deleted) }),
        }
    }

    /// Counts the rows of each fingerprint. It reads the latest rows, as a delete does, and locks them.
    fn count(&mut self, connection: &mut Connection) -> Result<()> {
        let sql = self.sql(&format!("SELECT {}", self.expression), " FOR UPDATE");
        let wanted = &mut self.wanted;
        connection.for_each_row(&sql, |row| {
            let print = row.get(0).and_then(|value| Fingerprint::try_from(value).ok());
            if let Some(wanted) = print.and_then(|print| wanted.get_mut(&print)) {
                wanted.found += 1;
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn sql(&self, what: &str, end: &str) -> String {
        // Checks that the source made are not made again; limits for users' sessions do not apply; long lists stay lists.
        let mut sql = String::with_capacity(self.wanted.len() * IMAGE_SQL_BYTES + 2 * self.expression.len() + 300);
        // Writing to a String does not fail.
        let _ = write!(
            sql,
            "SET STATEMENT foreign_key_checks=0, sql_safe_updates=0, max_statement_time=0, sql_select_limit=DEFAULT, \
             in_predicate_conversion_threshold=0 FOR {what} FROM {} WHERE {} IN (",
            self.quoted_table, self.expression
        );
        for (number, image) in self.wanted.keys().enumerate() {
            sql.push_str(if number == 0 { "0x" } else { ",0x" });
            let _ = write!(sql, "{:032x}", u128::from_be_bytes(*image));
        }
        let _ = write!(sql, "){end}");
        sql
    }
}
