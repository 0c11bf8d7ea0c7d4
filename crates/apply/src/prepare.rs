//! The second stage: sorts and encodes a batch into the statements that the replica will execute. Rows are written by an emitter,
//! one for each dialect; everything else is the same in all of them.

mod gtids;
mod statements;

use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use spate_binlog::{RowsKind, Xid};
use spate_schedule::definition::{FoldPolicy, OrderedReason};
use spate_schedule::keyless::{KeylessRows, Step};
use spate_schedule::outdated::Outdated;
use spate_schedule::segment::{OrderedRows, Segment};
use spate_schedule::sequence::SequenceSetting;
use spate_schedule::statement::may_concern_accounts;
use spate_schedule::temporary::{TemporaryTable, TemporaryTables};
use spate_schedule::{Alone, Item, TablePlan};

use super::command::{Command, Commit, Execution};
use super::default_databases::DefaultDatabases;
use super::emit::RowEmitter;
use super::emit::sql::in_place;
use super::outlet::Outlet;
use super::unnamed::UnnamedTables;
use super::{Part, PartEnd};
use crate::coordinator::Lane;
use crate::found::Found;
use crate::halt::{Halt, Result};
use crate::sweep::Sweeper;
use spate_connection::{Vendor, quote};
use spate_replica::Error;
use spate_replica::checkpoint::{APPLIER, Checkpoint};
use spate_replica::choice::{self, Dialect, DialectChoice};
use spate_replica::gtids::GtidKeeping;
use spate_replica::journal::{self, Intent, IntentKind};
use spate_replica::records;
use spate_replica::sharding;
use spate_replica::statement_state::DefinerState;
use spate_replica::status::Status;
use spate_replica::temporary;
use spate_replica::told_defaults;

/// How long a batch that could be committed together with the next one waits for it. Nothing is locked meanwhile but what the batch has
/// changed, and a caught-up replica is late by as much.
const NEXT_PART_WAIT: Duration = Duration::from_millis(5);

/// Definitions that are committed together, of those that a restart may execute again.
const JOINED_DEFINITIONS_MAX: usize = 16;

/// Writes rows.
pub(crate) type Emitter<'a> = Box<dyn RowEmitter + Send + 'a>;

/// Prepares the parts of its lane.
pub(crate) struct Preparer<'a> {
    pub(crate) lane: Lane,
    /// One for each batch that may be prepared ahead of the applier.
    pub(crate) tickets: Receiver<()>,
    pub(crate) output: SyncSender<Command>,
    /// Makes the emitter, once the dialect is known.
    pub(crate) emitters: Box<dyn Fn(Dialect) -> Emitter<'a> + Send + 'a>,
    pub(crate) choice: DialectChoice,
    pub(crate) found: Found,
    /// Where the replica is before the first batch.
    pub(crate) from: Checkpoint,
    /// Take row changes apart, one a statement, each with a description.
    pub(crate) one_by_one: bool,
    /// Others apply before and behind its batches: nothing is committed together with one.
    pub(crate) stands_apart: bool,
    /// Whose GTIDs the replica's transactions have.
    pub(crate) gtids: GtidKeeping,
    /// The replica is part of a ring: its binlog must say which server a change comes from.
    pub(crate) is_in_ring: bool,
    pub(crate) status: &'a Status,
}

/// What the applier's session was told until now, and the batch that is being prepared.
struct Pending<'a> {
    outlet: Outlet<'a>,
    /// `None` before the first part.
    emitter: Option<Emitter<'a>>,
    /// Where the replica is once everything before the open batch is committed.
    from: Checkpoint,
    /// The statements that give the open batch its GTID, until they are sent.
    gtid: Vec<String>,
    /// The same for a batch that cannot be rolled back, whose changes are logged one by one under GTIDs of the replica's own: what moves the
    /// checkpoint has the source's.
    late_gtid: Vec<String>,
    /// It was said that some transactions do not keep their GTIDs.
    has_told_of_own_gtids: bool,
    /// The server that the session was last told to log changes for.
    origin: Option<u32>,
    /// What was said last of `explicit_defaults_for_timestamp`, to the session and for the next.
    told_defaults: Option<bool>,
    /// Of the session for definitions.
    definer: DefinerState,
    databases: DefaultDatabases,
    temporary: SessionTemporary,
    batch: OpenBatch,
    /// The end of the open batch, whose commit waits for what comes next. `None`: it has not ended.
    ending: Option<Ending>,
}

/// The end of a batch that is prepared, and not committed.
struct Ending {
    end: PartEnd,
    oldest_seconds: f64,
    /// It is a definition, which is executed already: rows that follow can be committed with it.
    may_be_joined: bool,
    /// It is a definition and nothing else: readers see all of it before it is committed.
    is_definition: bool,
}

/// What has been prepared of the open batch.
#[derive(Default)]
struct OpenBatch {
    row_changes: u64,
    net_row_changes: u64,
    /// A part was prepared, and the batch goes on.
    is_open: bool,
    /// What was noted before the batch's changes. `None`: nothing.
    intent: Option<IntentKind>,
    /// Something of the batch changes the replica's data.
    has_changes: bool,
    /// The transaction that commits the batch has no GTID of the source: another session, or a definition, has it.
    is_own: bool,
    /// It is a definition, which another session executes: rows that follow can be committed with it.
    is_defined_apart: bool,
    /// Statements or sequences of it are executed and not committed: what they lock, another session could not look at.
    holds_locks: bool,
    /// Definitions before the batch's rows, which are committed with them. `None`: there are none.
    joined: Option<(PartEnd, f64)>,
    /// What these definitions change, and the one that was prepared last, if there is no other in the batch.
    defined: Vec<Outdated>,
    /// Rows behind them are of a table that one of them may change, or nobody knows of which.
    concerns_defined: bool,
}

/// Temporary tables of the source in the applier's session.
#[derive(Default)]
struct SessionTemporary {
    /// Those that are open, and the source's sessions that have used them in the batch.
    tables: TemporaryTables,
    has_copies: bool,
    /// Those that this session could not make again.
    lost: BTreeSet<TemporaryTable>,
    unnamed: UnnamedTables,
}

impl SessionTemporary {
    /// True if no session of the source has any that is known.
    fn are_none(&self) -> bool {
        let are_named = self.tables.open.is_empty() && !self.has_copies && self.lost.is_empty();
        are_named && self.unnamed.are_none()
    }
}

impl Pending<'_> {
    /// True if this part holds nothing but changes that can be rolled back, and the session is as they need it.
    fn may_join(&self, part: &Part) -> bool {
        let is_told = part.batch.explicit_defaults.is_none() || part.batch.explicit_defaults == self.told_defaults;
        part.batch.alone.is_none() && part.intent_kind().is_none() && is_told
    }

    /// True if this part is a definition that can be executed before those before it are committed: it has the same effect when a restart executes
    /// it again, and so have they, since they are of other tables, or have a note.
    fn may_be_defined_with(&self, part: &Part) -> bool {
        let is_repeatable = part.batch.alone == Some(Alone::Definition) && part.intent_kind().is_none();
        let Some(statement) = part.statement().filter(|_| is_repeatable) else { return false };
        let (changed, defined) = (Outdated::changed_by(statement), &self.batch.defined);
        !may_concern_accounts(statement.text())
            && (1..JOINED_DEFINITIONS_MAX).contains(&defined.len())
            && !defined.iter().any(|defined| defined.overlaps(&changed))
    }

    /// What was prepared until now commits, or is rolled back.
    fn end_transaction(&mut self) {
        if let Some(emitter) = &mut self.emitter {
            emitter.end_transaction();
        }
    }

    /// Ends a run of rows: the next statement of the session is none that changes rows.
    fn end_rows(&mut self) -> Result<()> {
        match &mut self.emitter {
            Some(emitter) => emitter.end_rows(&mut self.outlet),
            None => Ok(()),
        }
    }

    /// Keeps for the next session what was said of `explicit_defaults_for_timestamp`.
    fn keep_defaults(&mut self, is_explicit: bool) -> Result<()> {
        if self.told_defaults.replace(is_explicit) == Some(is_explicit) {
            return Ok(());
        }
        self.outlet.flush(None)?;
        let sql = told_defaults::keep_sql(is_explicit);
        self.outlet.send(Command::ExecuteApart(Execution { sql, statements: 1, ..Execution::default() }))
    }
}

impl<'a> Preparer<'a> {
    /// Prepares batches until the stage before is gone.
    ///
    /// # Errors
    /// [`Halt::StageEnded`] if the applier is gone; an encoding error.
    pub(crate) fn run(self) -> Result<()> {
        let mut pending = Pending {
            outlet: Outlet::new(self.output.clone(), self.status, self.found.max_allowed_packet),
            emitter: None,
            from: self.from.clone(),
            gtid: vec![],
            late_gtid: vec![],
            has_told_of_own_gtids: false,
            origin: None,
            told_defaults: self.found.told_defaults,
            definer: DefinerState::default(),
            databases: DefaultDatabases::default(),
            temporary: SessionTemporary {
                has_copies: !self.found.temporary_tables.is_empty(),
                ..SessionTemporary::default()
            },
            batch: OpenBatch::default(),
            ending: None,
        };
        while let Some(part) = self.next_part(&mut pending)? {
            let is_sure = self.one_by_one || part.batch.alone.is_some();
            self.prepare_part(part, &mut pending).map_err(|error| match error {
                // A part's place is that of its last transaction.
                Halt::Failed(Error::Transaction { error, .. }) if !is_sure => Error::SomeTransaction { error }.into(),
                other => other,
            })?;
        }
        Ok(())
    }

    /// Waits for the next part; `None` if there will be none. A batch whose commit waits for it is committed, or joined with it.
    fn next_part(&self, pending: &mut Pending<'a>) -> Result<Option<Part>> {
        if pending.ending.is_none() && !pending.batch.is_open {
            self.wait_ticket()?;
        }
        if self.lane.hunger.send(self.lane.applier).is_err() {
            self.end_batch(None, pending)?;
            return Ok(None);
        }
        if pending.ending.is_none() {
            return Ok(self.lane.parts.recv().ok());
        }
        let part = match self.lane.parts.recv_timeout(NEXT_PART_WAIT) {
            Ok(part) => part,
            Err(RecvTimeoutError::Disconnected) => return self.end_batch(None, pending).map(|()| None),
            Err(RecvTimeoutError::Timeout) => {
                self.end_batch(None, pending)?;
                self.wait_ticket()?;
                return Ok(self.lane.parts.recv().ok());
            }
        };
        let may_be_joined = pending.ending.as_ref().is_some_and(|ending| {
            ending.may_be_joined && pending.may_join(&part)
                || ending.is_definition && pending.may_be_defined_with(&part)
        });
        if let Some(Ending { mut end, mut oldest_seconds, .. }) = pending.ending.take_if(|_| may_be_joined) {
            if let Some((before, seconds)) = pending.batch.joined.take() {
                end.join(before);
                oldest_seconds = seconds;
            }
            pending.batch.joined = Some((end, oldest_seconds));
        } else {
            self.end_batch(Some(&part), pending)?;
            self.wait_ticket()?;
        }
        Ok(Some(part))
    }

    /// A ticket is worth a batch; a batch in several parts needs only one.
    fn wait_ticket(&self) -> Result<()> {
        self.tickets.recv().map_err(|_| Halt::StageEnded)
    }

    fn prepare_part(&self, part: Part, pending: &mut Pending<'a>) -> Result<()> {
        if let Some(seqno) = part.turn {
            pending.outlet.flush(None)?;
            pending.outlet.send(Command::AwaitTurn(seqno))?;
        }
        self.begin_session(&part, pending)?;
        self.tell_origin(&part, pending)?;
        self.tell_defaults(&part, pending)?;
        self.refuse_conversions(&part, pending)?;
        if self.lane.applier == APPLIER && !pending.batch.is_open && pending.batch.joined.is_none() {
            // Others may have applied what comes before. (An applier of shares has a row of its own, and is where its last share ended.)
            pending.from.clone_from(&part.from);
        }
        if self.stands_apart && !pending.batch.is_open {
            self.begin_gtid(&part, pending);
        }
        self.note_intention(&part, pending)?;
        let may_undo = part.batch.items.iter().any(|item| matches!(item, Item::Undo));
        if let (Some(Alone::Numbered), Some(end), false) =
            (&part.batch.alone, &part.end, may_undo || pending.batch.is_open)
        {
            pending.tell_gtid()?;
            // A server that changes another table afterwards does not register the transaction's number.
            pending.outlet.plain(end.checkpoint.update_sql(&pending.from).as_bytes())?;
            pending.from.clone_from(&end.checkpoint);
        }
        pending.batch.is_open = part.end.is_none();
        pending.batch.row_changes += part.batch.statistics.row_changes;
        pending.batch.has_changes |= !part.batch.items.is_empty() || part.batch.alone.is_some();
        pending.temporary.tables.open.clone_from(&part.batch.temporary.open);
        pending.temporary.tables.used_by.extend(&part.batch.temporary.used_by);
        let locks_more = |item: &Item| !matches!(item, Item::Rows(_));
        pending.batch.holds_locks |= part.batch.alone.is_none() && part.batch.items.iter().any(locks_more);
        let may_concern = |item: &Item| matches!(item, Item::Rows(rows) if rows.may_concern(&pending.batch.defined));
        pending.batch.concerns_defined |= part.batch.items.iter().any(may_concern);
        let has_sequences = self.set_sequences_first(&part, pending)?;
        for item in &part.batch.items {
            match item {
                Item::Rows(segment) if has_sequences && segment.is_of_sequences() => {}
                Item::Rows(segment) => self.prepare_segment(segment, &part, pending)?,
                Item::Statement(statement) => self.prepare_statement(statement, &part, pending)?,
                Item::LoadBlock(block) => pending.outlet.send(Command::LoadBlock(block.clone()))?,
                Item::Sequence(_) if has_sequences => {}
                Item::Sequence(setting) => {
                    pending.tell_gtid()?;
                    pending.outlet.plain(sequence_sql(setting).as_bytes())?;
                }
                Item::Undo => {
                    pending.end_transaction();
                    pending.outlet.plain(b"ROLLBACK")?;
                }
                Item::SourceRestarted => pending.temporary.unnamed.source_restarted(),
            }
        }
        let Some(end) = part.end.clone() else { return Ok(()) };
        if let Some(Alone::XaPrepare(xid)) = &part.batch.alone {
            end_branch(xid, pending)?;
        }
        let may_be_joined = std::mem::take(&mut pending.batch.is_defined_apart)
            && part.statement().is_some_and(|statement| !may_concern_accounts(statement.text()));
        let waits = (may_be_joined || part.is_followed && part.batch.alone.is_none()) && !self.one_by_one;
        let is_definition = may_be_joined && part.batch.alone == Some(Alone::Definition);
        pending.batch.defined.extend(part.statement().filter(|_| is_definition).map(Outdated::changed_by));
        pending.ending = Some(Ending { end, oldest_seconds: part.oldest_seconds, may_be_joined, is_definition });
        if waits && !self.is_in_ring && !self.stands_apart { Ok(()) } else { self.end_batch(None, pending) }
    }

    /// With the first part it is known how rows are written, and the session is told so.
    fn begin_session(&self, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        if pending.emitter.is_some() {
            return Ok(());
        }
        let source = choice::vendor_of(&part.format);
        let dialect = self.choice.choose(source)?;
        self.choice.say(dialect, source, self.status);
        let emitter = pending.emitter.insert((self.emitters)(dialect));
        for sql in emitter.session_sql(part) {
            pending.outlet.plain(&sql)?;
        }
        if pending.temporary.has_copies {
            pending.outlet.flush(None)?;
            pending.outlet.send(Command::RestoreTemporary)?;
            let answer = pending.outlet.ask(temporary::ASK_LOST.into(), None)?.unwrap_or_default();
            let lost = &mut pending.temporary.lost;
            *lost = answer.first().and_then(Option::as_deref).map(temporary::lost).unwrap_or_default();
            pending.temporary.unnamed.take_lost(lost);
            // A question begins a transaction.
            pending.outlet.plain(b"ROLLBACK")?;
        }
        Ok(())
    }

    /// Has a note made of the batch's intention, if it cannot be rolled back.
    fn note_intention(&self, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        let Some(kind) = part.intent_kind() else { return Ok(()) };
        // Rows that cannot be rolled back may come in several parts; the note must cover all of them. Others may be noted already, by the
        // commit before.
        if pending.batch.intent.is_some_and(|noted| noted != IntentKind::IrrevocableRows) {
            return Ok(());
        }
        if let (true, Some(Alone::XaPrepare(xid))) = (self.found.logging.loses_prepared, &part.batch.alone) {
            let why = "MySQL loses a prepared transaction that is not in its binlog when the server crashes: start without \
                       --no-replica-binlog, or run the replica with skip-log-bin";
            let error = spate_schedule::Error::Refused { what: format!("XA PREPARE {xid}"), why: why.to_owned() };
            return Err(Error::Transaction { place: part.place.clone(), error }.into());
        }
        pending.batch.intent = Some(kind);
        pending.outlet.send(Command::Intend(Box::new(part.intent(kind))))?;
        match &part.batch.alone {
            Some(Alone::XaPrepare(xid)) => {
                let mut statements: Vec<Vec<u8>> = self.is_in_ring.then(|| origin_sql(part)).into_iter().collect();
                statements.extend(pending.emitter.iter().flat_map(|emitter| emitter.session_sql(part)));
                statements.extend(pending.told_defaults.map(told_defaults::set_sql));
                // Rows that the servers' own replication prepares hold no locks between them: MySQL's applies them so, and
                // MariaDB's gives such locks away. Transactions that did not wait on the source would wait for their end.
                if self.found.logging.may_read_committed && part.statement().is_none() && part.end.is_some() {
                    statements.push(b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_vec());
                }
                statements.extend(std::mem::take(&mut pending.gtid).into_iter().map(String::into_bytes));
                pending.batch.is_own = true;
                statements.push(format!("XA START {xid}").into_bytes());
                pending.end_rows()?;
                pending.outlet.flush(None)?;
                pending.outlet.send(Command::OpenBranch(statements))
            }
            _ => Ok(()),
        }
    }

    /// Has the batch committed whose commit has waited. `next`: what comes next; if that needs a note, the commit makes it.
    fn end_batch(&self, next: Option<&Part>, pending: &mut Pending<'a>) -> Result<()> {
        let Some(Ending { mut end, mut oldest_seconds, .. }) = pending.ending.take() else { return Ok(()) };
        if let Some((before, seconds)) = pending.batch.joined.take() {
            end.join(before);
            oldest_seconds = seconds;
        }
        let defined = std::mem::take(&mut pending.batch.defined);
        let concerns_defined = std::mem::take(&mut pending.batch.concerns_defined);
        self.end_gtid(pending)?;
        keep_temporary(pending)?;
        pending.end_transaction();
        let (mut sql, mut statements, mark) = pending.outlet.take_for_commit()?;
        spate_archive::stopping_point("before-checkpoint-update");
        for skipped in &end.skipped {
            statements += 1;
            sql.extend_from_slice(records::skip_sql(skipped).as_bytes());
            sql.push(b';');
        }
        if pending.from != end.checkpoint {
            statements += 1;
            sql.extend_from_slice(end.checkpoint.update_sql_of(self.lane.applier, &pending.from).as_bytes());
            sql.push(b';');
            pending.from.clone_from(&end.checkpoint);
        }
        if end.levels {
            statements += 1;
            sql.extend_from_slice(sharding::end_sql().as_bytes());
            sql.push(b';');
        }
        let holds_locks = std::mem::take(&mut pending.batch.holds_locks);
        let note = next.filter(|_| !holds_locks && !self.stands_apart).and_then(|next| self.note_with_commit(next));
        let is_before_definition =
            note.is_some() || next.is_some_and(|next| next.batch.alone == Some(Alone::Definition));
        // A note replaces the one before.
        if pending.batch.intent.take().is_some() && note.is_none() {
            statements += 1;
            sql.extend_from_slice(journal::forget_sql().as_bytes());
            sql.push(b';');
        }
        pending.batch.intent = note.as_ref().map(|intent| intent.kind);
        let is_beside = !(defined.is_empty() || concerns_defined || holds_locks || self.is_in_ring);
        let mut after = Vec::new();
        // A checkpoint alone would go round the ring for ever.
        if !std::mem::take(&mut pending.batch.has_changes) && self.is_in_ring {
            statements += 2;
            sql = [b"SET SESSION sql_log_bin=0;", sql.as_slice()].concat();
            after = b";SET SESSION sql_log_bin=1".to_vec();
        }
        if let Some(sql) = self.gtids.end_sql().filter(|_| !std::mem::take(&mut pending.batch.is_own)) {
            statements += 1;
            after.extend_from_slice(format!(";{sql}").as_bytes());
        }
        let row_changes = std::mem::take(&mut pending.batch.row_changes);
        let net_row_changes = std::mem::take(&mut pending.batch.net_row_changes);
        pending.outlet.send(Command::Commit(Commit {
            sql,
            mark,
            note,
            is_before_definition,
            is_beside,
            is_sent: false,
            after,
            statements: statements + 1,
            end,
            oldest_seconds,
            row_changes,
            net_row_changes,
        }))
    }

    /// The note of what comes next, if it can be made in the transaction before: what it says is known by now. (What rows or other definitions may
    /// change of that must be read behind them.)
    fn note_with_commit(&self, next: &Part) -> Option<Box<Intent>> {
        next.fingerprint.as_ref()?;
        Some(Box::new(next.intent(next.intent_kind()?)))
    }

    /// In a ring, the replica logs a change under the id of the server that it comes from.
    fn tell_origin(&self, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        if !self.is_in_ring || pending.batch.is_open || pending.origin == Some(part.server_id) {
            return Ok(());
        }
        pending.origin = Some(part.server_id);
        pending.outlet.plain(&origin_sql(part))
    }

    /// Sets up the session for the temporary tables that MySQL has created.
    fn tell_defaults(&self, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        let Some(is_explicit) = part.batch.explicit_defaults.filter(|_| !pending.batch.is_open) else { return Ok(()) };
        if self.choice.replica != Vendor::MySql || pending.told_defaults == Some(is_explicit) {
            return Ok(());
        }
        pending.keep_defaults(is_explicit)?;
        pending.outlet.plain(&told_defaults::set_sql(is_explicit))
    }

    fn prepare_segment(&self, segment: &Segment, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        self.warn_of_missing_keys(segment);
        pending.tell_gtid()?;
        if let Some(emitter) = &mut pending.emitter {
            emitter.begin_segment(segment, part, &mut pending.outlet)?;
        }
        let keyless: Result<Vec<_>> =
            segment.keyless().iter().map(|rows| self.sweep_keyless(rows, part, pending)).collect();
        let keyless = keyless?;
        if let Some(emitter) = &mut pending.emitter {
            pending.batch.net_row_changes += emitter.segment(segment, &keyless, part, &mut pending.outlet)?;
        }
        Ok(())
    }

    /// Has those changes of a table without a key made that cost less in one pass over it than by the server's search, and all that
    /// come before them; returns what is left to do.
    fn sweep_keyless(&self, rows: &KeylessRows, part: &Part, pending: &mut Pending<'a>) -> Result<Vec<Step>> {
        let mut waiting = Vec::new();
        for mut step in rows.steps() {
            if let Some(sweeper) = Sweeper::of(rows, &step, self.found.max_allowed_packet) {
                if let (Some(emitter), false) = (&mut pending.emitter, waiting.is_empty()) {
                    pending.batch.net_row_changes += emitter.keyless(rows, &waiting, part, &mut pending.outlet)?;
                    waiting.clear();
                }
                pending.outlet.flush(None)?;
                let left = sweeper.each(|sweep| {
                    let (answer, answered) = bounded(1);
                    pending.outlet.send(Command::Sweep { sweep, answer })?;
                    answered.recv().map_err(|_| Halt::StageEnded)
                })?;
                if step.kind == RowsKind::Delete {
                    let swept = rows.deletes(&step).filter(|(image, _, _)| !left.contains(image));
                    pending.batch.net_row_changes += swept.map(|(_, _, copies)| copies).sum::<u64>();
                    step.left = Some(left);
                } else if left.is_empty()
                    && let Some(written) = in_place(rows, &step, self.choice.replica, self.found.max_allowed_packet)
                {
                    pending.end_rows()?;
                    for (sql, check) in written {
                        pending.batch.net_row_changes += check.as_ref().map_or(0, |check| check.rows);
                        pending.outlet.make_room(sql.len())?;
                        pending.outlet.statement(|packet| packet.extend_from_slice(&sql), check, None)?;
                    }
                    continue;
                }
            }
            waiting.push(step);
        }
        Ok(waiting)
    }

    fn warn_of_missing_keys(&self, segment: &Segment) {
        let ordered = segment.ordered().iter().map(OrderedRows::plan);
        let plans = segment.keyless().iter().map(|rows| &**rows.plan()).chain(ordered);
        // Of a table that the same transaction creates, the replica was not asked.
        let is_known = |plan: &&TablePlan| plan.policy != FoldPolicy::Ordered(OrderedReason::JustCreated);
        for plan in plans.filter(is_known).filter(|plan| plan.definition.row_key.is_empty()) {
            self.status.table_without_key(&plan.definition.name.to_string());
        }
    }
}

fn sequence_sql(setting: &SequenceSetting) -> String {
    let name = quote::qualified(&setting.name.schema, &setting.name.table);
    // A parser does not take the lowest number of all: it comes after the one above it.
    let (value, is_used) = match setting.value == i128::from(i64::MIN) {
        true => (setting.value + 1, 1),
        false => (setting.value, 0),
    };
    format!("DO SETVAL({name}, {value}, {is_used}, {})", setting.round)
}

/// Has copies made of the temporary tables that the batch leaves behind, where they are outdated.
fn keep_temporary(pending: &mut Pending<'_>) -> Result<()> {
    let used_by = std::mem::take(&mut pending.temporary.tables.used_by);
    let mut open = pending.temporary.tables.open.clone();
    open.extend(pending.temporary.unnamed.kept());
    // A table that waits to be copied is copied without a use of it; but in a ring, a batch without changes must not write.
    let may_be_outdated = pending.batch.has_changes || !used_by.is_empty();
    if open.is_empty() != pending.temporary.has_copies && (open.is_empty() || !may_be_outdated) {
        return Ok(());
    }
    pending.end_rows()?;
    pending.outlet.flush(None)?;
    pending.temporary.has_copies = !open.is_empty();
    pending.outlet.send(Command::KeepTemporary(TemporaryTables { open, used_by, ..TemporaryTables::default() }))
}

/// Ends an XA transaction in the session of its own, which ends with it.
fn end_branch(xid: &Xid, pending: &mut Pending<'_>) -> Result<()> {
    pending.end_rows()?;
    pending.outlet.flush(None)?;
    pending.outlet.send(Command::MarkBranch(xid.clone()))?;
    pending.outlet.plain(format!("XA END {xid}").as_bytes())?;
    pending.outlet.plain(format!("XA PREPARE {xid}").as_bytes())?;
    pending.outlet.send(Command::CloseBranch)
}

/// Tells a session where the changes come from that it will log.
fn origin_sql(part: &Part) -> Vec<u8> {
    format!("SET SESSION server_id={}", part.server_id).into_bytes()
}
