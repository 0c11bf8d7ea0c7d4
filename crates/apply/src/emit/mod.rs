//! How a segment's row changes become statements: one way for each dialect.

pub(crate) mod replay;
pub(crate) mod sql;

use spate_binlog::RowsVersion;
use spate_schedule::keyless::{KeylessRows, Step};
use spate_schedule::segment::{OrderedRows, Segment};

use super::Part;
use super::command::Change;
use super::outlet::Outlet;
use crate::halt::Result;

/// Writes row changes as statements. The order is the same in every dialect: table by table the net changes, of each table
/// deletes, then updates, then inserts, each in key order; then the ordered changes.
pub(crate) trait RowEmitter {
    /// Statements that a session needs before it applies rows.
    fn session_sql(&self, part: &Part) -> Vec<Vec<u8>>;

    /// The transaction ends, and with it what the session holds.
    fn end_transaction(&mut self) {}

    /// Puts the session back into the state in which anything else than rows is executed. After it, or with a new session, what
    /// rows need is set again.
    ///
    /// # Errors
    /// [`crate::halt::Halt::StageEnded`].
    fn end_rows(&mut self, outlet: &mut Outlet<'_>) -> Result<()>;

    /// Puts the session into the state in which the segment's rows were changed on the source, if that matters to them. What is done for
    /// the segment comes after it.
    ///
    /// # Errors
    /// [`crate::halt::Halt::StageEnded`].
    fn begin_segment(&mut self, segment: &Segment, part: &Part, outlet: &mut Outlet<'_>) -> Result<()>;

    /// Writes a segment; of each table without a row key only these steps. Returns the number of net row changes.
    ///
    /// # Errors
    /// [`crate::halt::Halt::StageEnded`]; a row that cannot be written names its transaction.
    fn segment(
        &mut self,
        segment: &Segment,
        keyless: &[Vec<Step>],
        part: &Part,
        outlet: &mut Outlet<'_>,
    ) -> Result<u64>;

    /// Writes these steps of the changes of one table without a row key, and returns how many rows they change.
    ///
    /// # Errors
    /// As [`RowEmitter::segment`].
    fn keyless(&mut self, rows: &KeylessRows, steps: &[Step], part: &Part, outlet: &mut Outlet<'_>) -> Result<u64>;
}

/// For each ordered row change of a segment, what it does: for messages and repairs.
fn changes<'a>(segment: &'a Segment, part: &'a Part) -> impl Iterator<Item = Change> + 'a {
    segment.ordered().iter().flat_map(|ordered| changes_of(ordered, part))
}

/// The same for the rows of one event.
fn changes_of<'a>(ordered: &OrderedRows, part: &'a Part) -> impl Iterator<Item = Change> + use<'a> {
    let version = RowsVersion::of(&part.format);
    let rows = ordered.describe().into_iter().zip(ordered.row_changes(part.server_id, version));
    rows.map(|(what, row)| Change {
        has_shares: part.passes_over,
        place: part.place.clone(),
        what,
        row: Some(Box::new(row)),
    })
}
