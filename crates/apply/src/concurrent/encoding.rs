//! A job's rows as statements.

use spate_replica::status::Status;
use spate_schedule::Item;

use crate::Part;
use crate::command::{Command, Execution};
use crate::emit::RowEmitter;
use crate::emit::replay::ReplayEmitter;
use crate::halt::Result;
use crate::outlet::Outlet;

/// Writes jobs, and what their session needs first.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    emitter: ReplayEmitter<'a>,
    status: &'a Status,
    max_allowed_packet: usize,
    is_begun: bool,
}

/// A job as statements.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// Packets, in order.
    pub(crate) executions: Vec<Execution>,
    pub(crate) net_row_changes: u64,
}

impl<'a> Encoder<'a> {
    /// For a session that was not told anything yet.
    pub(crate) fn new(status: &'a Status, max_allowed_packet: usize) -> Encoder<'a> {
        let emitter = ReplayEmitter { one_by_one: false, session: None, feeder: None };
        Encoder { emitter, status, max_allowed_packet, is_begun: false }
    }

    /// What the session is to be told before its first job.
    pub(crate) fn session_sql(&mut self, part: &Part) -> Vec<Vec<u8>> {
        match std::mem::replace(&mut self.is_begun, true) {
            true => vec![],
            false => self.emitter.session_sql(part),
        }
    }

    /// The job's rows.
    ///
    /// # Errors
    /// A row that cannot be written.
    pub(crate) fn encode(&mut self, part: &Part) -> Result<Encoded> {
        let mut outlet = Outlet::keeping(self.status, self.max_allowed_packet);
        let mut net_row_changes = 0;
        for item in &part.batch.items {
            let Item::Rows(segment) = item else { continue };
            self.emitter.begin_segment(segment, part, &mut outlet)?;
            net_row_changes += self.emitter.segment(segment, &[], part, &mut outlet)?;
        }
        self.emitter.end_transaction();
        self.emitter.end_rows(&mut outlet)?;
        outlet.flush(None)?;
        let execution = |command| match command {
            Command::Execute(execution) => Some(execution),
            _ => None,
        };
        Ok(Encoded { executions: outlet.take_kept().into_iter().filter_map(execution).collect(), net_row_changes })
    }
}
