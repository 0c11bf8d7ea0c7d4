//! A job's rows as statements.

use spate_replica::status::Status;
use spate_schedule::Item;
use spate_schedule::emit::OwnUpdate;

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
    /// Spate's own row is among them.
    pub(crate) has_own: bool,
}

impl Encoded {
    /// True if nothing has to be looked at before more is sent.
    pub(crate) fn is_one_packet(&self) -> bool {
        self.executions.len() <= 1 && self.executions.iter().all(|execution| execution.checks.is_empty())
    }

    /// True if one statement has everything: it needs no transaction around it.
    pub(crate) fn is_one_statement(&self) -> bool {
        self.has_own
            && matches!(&self.executions[..], [execution] if execution.statements == 1 && execution.checks.is_empty())
    }
}

impl<'a> Encoder<'a> {
    /// For a session that was not told anything yet.
    pub(crate) fn new(status: &'a Status, max_allowed_packet: usize) -> Encoder<'a> {
        Encoder { emitter: ReplayEmitter::new(false, None), status, max_allowed_packet, is_begun: false }
    }

    /// The most bytes of a packet.
    pub(crate) fn max_allowed_packet(&self) -> usize {
        self.max_allowed_packet
    }

    /// What the session is to be told before its first job.
    pub(crate) fn session_sql(&mut self, part: &Part) -> Vec<Vec<u8>> {
        match std::mem::replace(&mut self.is_begun, true) {
            true => vec![],
            false => self.emitter.session_sql(part),
        }
    }

    /// The job's rows, and one of Spate's own behind them.
    ///
    /// # Errors
    /// A row that cannot be written.
    pub(crate) fn encode(&mut self, part: &Part, mut own: Option<OwnUpdate>) -> Result<Encoded> {
        let mut outlet = Outlet::keeping(self.status, self.max_allowed_packet);
        let mut net_row_changes = 0;
        let is_to_have_own = own.is_some();
        for (place, item) in part.batch.items.iter().enumerate() {
            let Item::Rows(segment) = item else { continue };
            if place + 1 == part.batch.items.len() {
                self.emitter.own = own.take();
            }
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
        let executions: Vec<Execution> = outlet.take_kept().into_iter().filter_map(execution).collect();
        Ok(Encoded { executions, net_row_changes, has_own: is_to_have_own && own.is_none() })
    }
}
