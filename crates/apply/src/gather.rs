//! The first stage: reads the archive, folds, and decides where a batch ends.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spate_archive::{Archive, ArchiveReader, ArchivedEvent, ReadOptions, Waited};
use spate_binlog::payload::PayloadEvents;
use spate_binlog::{Boundary, EventHeader, EventType, Gtid};
use spate_schedule::outdated::Outdated;
use spate_schedule::shards::Passed;
use spate_schedule::versioning::LastMoment;
use spate_schedule::{Alone, Answer, Batch, BatchBuilder, Surprise, TableName};
use spate_sql::Servers;

use super::open::Open;
use crate::Part;
use crate::coordinator::Dispatch;
use crate::definitions::{Definitions, Reading};
use crate::halt::{Halt, Result};
use crate::plan::SessionPlan;
use crate::unfinished::{DefinitionChange, UnfinishedDefinitions};
use spate_connection::ServerVersion;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::exclusions::Exclusion;
use spate_replica::journal::IntentKind;
use spate_replica::sharding::Uneven;
use spate_replica::status::Status;
use spate_replica::{Error, TransactionPlace};

/// How long to wait for more of the archive before looking whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// With transactions at hand and nobody hungry, new arrivals are looked for this often: they still fit into the batch.
const ARRIVAL_CHECK: Duration = Duration::from_millis(1);

/// How long a batch waits for the end of the source's temporary tables. A source's session may keep one for hours, and readers
/// of the replica cannot wait for that.
const TEMPORARY_TABLES_WAIT_MAX: Duration = Duration::from_secs(3);

/// Why gathering ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatherEnd {
    /// `--until` was reached.
    Reached,
    /// It was told to stop.
    Stopped,
}

/// What a gatherer is given for its session.
#[derive(Debug, Clone, Copy)]
pub struct Gathering<'a> {
    /// Where events are read.
    pub archive: &'a Archive,
    /// What to gather.
    pub plan: &'a SessionPlan,
    /// Is told of tables and events that a person should know of.
    pub status: &'a Status,
    /// Set when gathering is to end.
    pub stop: &'a AtomicBool,
    /// Appliers that were interrupted at different positions. `None`: there are none.
    pub uneven: Option<&'a Uneven>,
}

/// Where batches take shape. It reads one event after the other; what it must know of the replica it asks of `replica`, and what it
/// has gathered it gives to `dispatch`.
pub struct Gatherer<'a, R, D> {
    given: Gathering<'a>,
    builder: BatchBuilder,
    replica: R,
    dispatch: D,
    /// Transactions of which it is known what they turn out to be, by their seqnos.
    expected: BTreeSet<(u64, Surprise)>,
    /// Transactions left to gather. `None`: as many as come.
    transactions_left: Option<u64>,
    open: Open,
    /// What was open when the last part was handed out. `None`: that part ended within a transaction.
    handed: Option<Open>,
    /// Definitions that were handed out: what they define is out of date until they are in effect.
    unfinished: UnfinishedDefinitions,
    /// A transaction of this session was read.
    has_begun: bool,
}

impl<'a, R: Definitions, D: Dispatch> Gatherer<'a, R, D> {
    /// A gatherer of what comes after `checkpoint`.
    pub fn new(
        given: Gathering<'a>,
        builder: BatchBuilder,
        replica: R,
        dispatch: D,
        checkpoint: Checkpoint,
    ) -> Gatherer<'a, R, D> {
        let mut open = Open::after(checkpoint);
        open.keeps_hints = given.plan.parallel.is_some();
        Gatherer {
            given,
            builder,
            replica,
            dispatch,
            expected: given.plan.expected.clone(),
            transactions_left: given.plan.transactions_max,
            handed: Some(open.clone()),
            open,
            unfinished: UnfinishedDefinitions::default(),
            has_begun: false,
        }
    }

    /// Gathers until told to stop, or the end of the plan is reached. `reader` stands at the checkpoint.
    ///
    /// # Errors
    /// A definite error of the archive or of a transaction; a signal to the supervisor.
    pub fn run(mut self, mut reader: ArchiveReader) -> Result<GatherEnd> {
        if self.given.plan.until.is_reached_by(&self.open.checkpoint, self.given.archive) {
            return Ok(GatherEnd::Reached);
        }
        let end = self.gather(&mut reader)?;
        // What was handed out is applied before the session ends.
        self.dispatch.finish()?;
        Ok(end)
    }

    fn gather(&mut self, reader: &mut ArchiveReader) -> Result<GatherEnd> {
        while !self.given.stop.load(Ordering::Acquire) {
            let gathered = match reader.next_event() {
                Ok(Some(event)) => self.take_event(&event),
                Ok(None) => self.hand_over_or_wait(reader),
                Err(error) => Err(error.into()),
            };
            match gathered {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(Halt::TurnedOut { seqno, surprise }) if self.handed.is_some() => {
                    *reader = self.rewind(seqno, surprise)?;
                }
                Err(Halt::Failed(error)) => return Err(self.apply_before(error)),
                Err(signal) => return Err(signal),
            }
        }
        Ok(GatherEnd::Stopped)
    }

    /// Reads again after the last part, and expects of a transaction what it turned out to be.
    fn rewind(&mut self, seqno: u64, surprise: Surprise) -> Result<ArchiveReader> {
        let handed = self.handed.clone().unwrap_or_default();
        if surprise == Surprise::Contradicts {
            self.builder.rewind();
            self.builder.fold_alone();
            return self.read_again(handed);
        }
        self.expected.retain(|&(known, _)| known > handed.checkpoint.seqno);
        if !self.expected.insert((seqno, surprise)) {
            // It was expected already: to read again would never end.
            return Err(Halt::TurnedOut { seqno, surprise });
        }
        self.builder.rewind();
        self.read_again(handed)
    }

    fn read_again(&mut self, handed: Open) -> Result<ArchiveReader> {
        let seek = handed.checkpoint.seek();
        self.open = handed;
        Ok(self.given.archive.reader(&seek, ReadOptions::default())?)
    }

    fn take_event(&mut self, event: &ArchivedEvent<'_>) -> Result<Option<GatherEnd>> {
        let bytes = event.header.event_length;
        if bytes as usize > self.given.plan.limits.memory_bytes_max {
            let place = format!("{}:{}", event.source_file, event.source_end_position.saturating_sub(u64::from(bytes)));
            self.given.status.large_event(u64::from(bytes), self.given.plan.limits.memory_bytes_max, &place);
        }
        match event.boundary {
            Boundary::Outside => {
                self.take_outside_event(event)?;
                return Ok(None);
            }
            Boundary::Begin | Boundary::Whole => {
                if let Some(end) = self.begin_transaction(event)? {
                    return Ok(Some(end));
                }
            }
            Boundary::Inside | Boundary::End => {}
        }
        let is_left_out = self.open.underway.as_ref().is_some_and(|underway| underway.excluded.is_some());
        if !is_left_out {
            self.take_events(event)?;
            if event.boundary == Boundary::Begin {
                for &(_, surprise) in self.expected.iter().filter(|(seqno, _)| *seqno == event.seqno) {
                    self.builder.expect(surprise);
                }
            }
        }
        match event.boundary {
            Boundary::End | Boundary::Whole => {
                if !is_left_out {
                    self.separate_if_alone()?;
                    self.builder.end_transaction();
                }
                self.open.end_transaction(event);
                self.end_batch_if_due()
            }
            _ if is_left_out => Ok(None),
            _ => self.keep_within_memory().map(|()| None),
        }
    }

    /// An event of no transaction. Temporary tables end with the source's sessions, and these with the source.
    fn take_outside_event(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        // A session begins to read with the first event of the file in which the checkpoint is.
        let is_behind = *self.open.checkpoint.source_file == **event.source_file
            && event.source_end_position <= self.open.checkpoint.source_position;
        let begins_file = event.header.event_type == EventType::FORMAT_DESCRIPTION;
        if begins_file {
            self.read_for(event)?;
        }
        if begins_file && event.format.created_seconds != 0 && !is_behind {
            self.builder.source_restarted();
        }
        Ok(())
    }

    /// Statements are read as the server that wrote this file and the replica read them.
    fn read_for(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        let source = ServerVersion::parse(&event.format.server_version);
        self.builder.read_for(Servers { source: Some(source.reader()), replica: self.replica.reader() });
        let last = LastMoment::of(source.reader());
        self.builder.time_stamps_reach(last, self.replica.last_moment()?.unwrap_or(last));
        Ok(())
    }

    /// A transaction that turns out to need a batch of its own is separated from those before it.
    fn separate_if_alone(&mut self) -> Result<()> {
        if self.open.batch.transactions > 0 && self.builder.stands_among_others() {
            self.separate()?;
        }
        Ok(())
    }

    /// Ends the batch before the transaction that is underway.
    fn separate(&mut self) -> Result<()> {
        self.gather_in()?;
        let earlier = self.builder.take_earlier();
        self.hand_over_batch(earlier, false, true)?;
        self.open.separate();
        Ok(())
    }

    fn begin_transaction(&mut self, event: &ArchivedEvent<'_>) -> Result<Option<GatherEnd>> {
        let begin = event.source_end_position.saturating_sub(u64::from(event.header.event_length));
        if self.given.plan.until.excludes(event.source_file, begin) {
            self.hand_over_whole()?;
            return Ok(Some(GatherEnd::Reached));
        }
        let gtid = event.gtid().map(|event| event.gtid);
        if event.header.event_type == EventType::ANONYMOUS_GTID {
            self.check_anonymous(event)?;
        }
        let excluded = self.given.plan.exclusions.of(gtid, event.header.server_id);
        self.look_for_others()?;
        let passed = self.given.uneven.map(|uneven| uneven.passed(&self.open.checkpoint));
        // What an earlier session has applied ahead of others is whole: it was left out for all appliers.
        let is_to_be_dropped = excluded.is_some_and(|why| why != Exclusion::Applied);
        if is_to_be_dropped && matches!(passed, Some(Some(_))) {
            return Err(left_out_in_part(event, gtid).into());
        }
        let is_level = self.pass_over(passed);
        let ends_before = is_level
            || excluded.is_none()
                && (self.builder.ends_before(event.gtid().as_ref()) || self.is_of_other_origin(event.header.server_id));
        let needs_fresh = excluded.is_none() && self.needs_fresh_definitions(event.seqno);
        let is_held = !self.dispatch.may_begin(gtid, event.seqno);
        if is_held || ends_before || needs_fresh {
            self.hand_over_whole()?;
        }
        if is_held {
            // Who asked looks for the checkpoint.
            self.dispatch.drain()?;
        }
        if is_level {
            self.given.uneven = None;
        }
        if is_held && !self.dispatch.wait_begin(gtid, event.seqno) {
            return Ok(Some(GatherEnd::Stopped));
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.replica.begin(event.format)?;
            self.read_for(event)?;
            self.dispatch.begin_after(event.seqno.saturating_sub(1));
        }
        if needs_fresh {
            self.forget(&Outdated::All);
            self.expect_definition(event.seqno.saturating_sub(1), Outdated::All, &DefinitionChange::ANY)?;
        }
        self.open.begin_transaction(event, excluded);
        self.open.batch.passes_over = self.given.uneven.is_some();
        if gtid.is_none() && excluded.is_none() {
            self.builder.begin_anonymous();
        }
        Ok(None)
    }

    /// Says whose rows of the next transaction are applied already. True if those are level from here on that were interrupted.
    fn pass_over(&mut self, passed: Option<Option<Passed>>) -> bool {
        let Some(passed) = passed else { return false };
        let is_level = passed.is_none();
        self.builder.pass_over(passed);
        is_level
    }

    /// True if a table map of this transaction contradicts the definition that rows before it were gathered by. Changes that were not applied yet
    /// may be why. (An interrupted batch is repaired as one batch: there, the first reading counts.)
    fn needs_fresh_definitions(&self, seqno: u64) -> bool {
        !self.given.plan.is_one_batch && self.expected.contains(&(seqno, Surprise::Redefined))
    }

    /// A batch does not begin by definitions that others have changed meanwhile.
    fn look_for_others(&mut self) -> Result<()> {
        if !self.open.batch.is_empty() {
            return Ok(());
        }
        let noticed = self.replica.look_for_others()?;
        if noticed.definitions {
            self.forget(&Outdated::All);
            // By the others, it was decided who applies what, and what waits for what.
            self.dispatch.drain()?;
        }
        noticed.ways.tell(&mut self.builder);
        Ok(())
    }

    /// Forgets outdated definitions, in the builder and in the catalog; returns which these were.
    fn forget(&mut self, outdated: &Outdated) -> Outdated {
        let outdated = self.replica.forget(outdated);
        self.builder.forget(&outdated);
        outdated
    }

    /// True if a definition that was handed out may not be in effect.
    fn has_unfinished(&mut self) -> bool {
        let Some(latest) = self.unfinished.latest() else { return false };
        let is_in_effect = self.dispatch.is_in_effect(latest);
        if is_in_effect {
            self.unfinished.finish(latest);
        }
        !is_in_effect
    }

    /// A definition was handed out: what it puts out of date is read only once it is in effect.
    fn expect_definition(&mut self, seqno: u64, outdated: Outdated, change: &DefinitionChange) -> Result<()> {
        match self.unfinished.hand_out(seqno, outdated, change) {
            Some(oldest) => self.wait_in_effect(oldest),
            None => Ok(()),
        }
    }

    fn note_contradiction(&self, surprise: Surprise) {
        let contradiction = self.builder.contradiction().filter(|_| surprise == Surprise::Redefined);
        if let Some(contradiction) = contradiction.filter(|contradiction| !contradiction.differences.is_empty()) {
            self.given.status.table_redefined(contradiction, &self.open.place.gtid);
        }
    }

    fn note_differing_tables(&mut self) {
        for table in self.builder.take_differing() {
            self.given.status.table_differs(&table);
        }
    }

    /// After a restart, the place behind a transaction without a GTID could not be told from the checkpoint's GTID position.
    fn check_anonymous(&self, event: &ArchivedEvent<'_>) -> Result<()> {
        let position = &self.open.checkpoint.gtid_position;
        if position.is_empty() {
            return Ok(());
        }
        let why = format!(
            "it has no GTID, and comes after others that have (GTID position '{position}'): a source must give GTIDs to all \
             transactions or to none"
        );
        let place = TransactionPlace {
            gtid: String::new(),
            file: event.source_file.to_string(),
            position: event.source_end_position,
        };
        let error = spate_schedule::Error::Refused { what: "a transaction".to_owned(), why };
        Err(Error::Transaction { place, error }.into())
    }

    /// In a ring, a transaction of the replica says which server it comes from, so it holds nothing from another.
    fn is_of_other_origin(&self, server_id: u32) -> bool {
        self.given.plan.exclusions.break_ring() && self.open.batch.origin.is_some_and(|origin| origin != server_id)
    }

    fn take_events(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        if event.header.event_type != EventType::TRANSACTION_PAYLOAD {
            return self.take_one(event, &event.header, event.body);
        }
        let place = self.open.place.clone();
        let bad = |error: spate_binlog::Error| Error::Transaction { place: place.clone(), error: error.into() };
        let mut events = PayloadEvents::open(event.body).map_err(bad)?;
        while let Some((header, body)) = events.next_event().map_err(bad)? {
            self.take_one(event, &header, body)?;
            self.keep_within_memory()?;
        }
        Ok(())
    }

    /// Takes an event that stands in `event`, or is `event` itself.
    fn take_one(&mut self, event: &ArchivedEvent<'_>, header: &EventHeader, body: &[u8]) -> Result<()> {
        loop {
            let answer = self.builder.event(header, body);
            if let Err(spate_schedule::Error::TurnedOut(surprise)) = answer {
                self.note_contradiction(surprise);
                return Err(Halt::TurnedOut { seqno: event.seqno, surprise });
            }
            let at = || TransactionPlace { position: event.source_end_position, ..self.open.place.clone() };
            let refused = |error| match error {
                spate_schedule::Error::NoTable(name) => no_table(at(), &name),
                error => Error::Transaction { place: at(), error },
            };
            match answer.map_err(refused)? {
                Answer::Taken => {
                    if header.event_type == EventType::TABLE_MAP {
                        self.note_differing_tables();
                    }
                    return Ok(());
                }
                Answer::NeedsForeignKeys => {
                    self.unfinished.latest().map_or(Ok(()), |latest| self.wait_in_effect(latest))?;
                    if self.replica.foreign_keys_have_changed()? {
                        return Err(Halt::ForeignKeysChanged);
                    }
                }
                Answer::NeedsDefinition(name) => {
                    if let Some(definition) = self.replica.at_hand(&name) {
                        self.builder.learn_ahead(definition);
                        continue;
                    }
                    self.unfinished.before_reading(&name).map_or(Ok(()), |seqno| self.wait_in_effect(seqno))?;
                    // Others may be of tables whose definitions are on their way.
                    let reading = if self.has_unfinished() { Reading::Alone } else { Reading::WithOthers };
                    let Some(definition) = self.replica.definition(&name, body, reading)? else {
                        let at = || TransactionPlace { position: event.source_end_position, ..self.open.place.clone() };
                        let taken = self.builder.absent(name, body);
                        return taken.map_err(|error| Error::Transaction { place: at(), error }.into());
                    };
                    self.builder.learn(definition);
                }
            }
        }
    }

    /// After a definition, those of the tables that it concerns are what the next events need only once it is in effect. (What was
    /// read before it, and is not forgotten, it does not change.)
    fn wait_in_effect(&mut self, seqno: u64) -> Result<()> {
        self.dispatch.wait_in_effect(seqno)?;
        self.unfinished.finish(seqno);
        Ok(())
    }

    /// A definite error in a transaction does not keep back the whole transactions before it. The builder holds a piece of
    /// the bad one by now, so they are gathered again by the next session, which ends with them. (What may pass by itself, such as
    /// a lost connection, is no fault of the transaction that happened to be read.)
    fn apply_before(&self, error: Error) -> Halt {
        let is_nothing_lost = self.open.batch.transactions == 0 || self.open.batch.is_continued;
        if error.is_transient() || is_nothing_lost {
            return Halt::Failed(error);
        }
        Halt::Behind { seqno: self.open.checkpoint.seqno, error }
    }

    /// True if the source's binlog goes on beyond the place where to end, and nothing was gathered before it: behind the last
    /// transaction may come a new file that holds none yet.
    fn is_past_end(&self, reader: &ArchiveReader) -> bool {
        let (file, position) = reader.source_position();
        self.open.batch.is_empty()
            && (self.given.plan.until.excludes(file, position)
                || self.given.plan.until.is_reached_by(&self.open.checkpoint, self.given.archive))
    }

    /// Everything received was read. The reader shows only whole transactions, so this is never within one.
    fn hand_over_or_wait(&mut self, reader: &ArchiveReader) -> Result<Option<GatherEnd>> {
        if self.is_past_end(reader) {
            return Ok(Some(GatherEnd::Reached));
        }
        if self.open.batch.transactions == 0 {
            self.dispatch.rest()?;
            return wait(reader);
        }
        if self.dispatch.is_hungry_within(ARRIVAL_CHECK)? {
            let gathered = self.open.batch.began.map_or(Duration::ZERO, |began| began.elapsed());
            if self.must_gather_more(gathered) {
                return wait(reader);
            }
            self.hand_over_whole()?;
        }
        Ok(None)
    }

    fn end_batch_if_due(&mut self) -> Result<Option<GatherEnd>> {
        self.transactions_left = self.transactions_left.map(|left| left.saturating_sub(1));
        let is_last = self.given.plan.last_seqno.is_some_and(|last| self.open.checkpoint.seqno >= last)
            || self.transactions_left == Some(0);
        let reached = is_last || self.given.plan.until.is_reached_by(&self.open.checkpoint, self.given.archive);
        let gathered = self.open.batch.began.map_or(Duration::ZERO, |began| began.elapsed());
        let alone = self.builder.alone().cloned();
        let change = alone.as_ref().map(|_| DefinitionChange::of(self.builder.open_statement()));
        // At the end of what was received, nothing waits for this.
        let gather_min =
            self.dispatch.pace().gather_min(self.builder.row_changes(), self.given.plan.limits.duration_max);
        // The end of a batch of which a part is executed is not kept from it.
        let is_worth_it = gathered >= gather_min
            && self.dispatch.is_hungry_within(Duration::ZERO)?
            && (self.open.batch.is_continued || !self.dispatch.would_wait());
        let is_due = (is_worth_it || self.is_full(gathered)) && !self.must_gather_more(gathered);
        if reached || alone.is_some() || is_due {
            self.hand_over_whole()?;
        } else if self.builder.memory_bytes() >= self.given.plan.limits.memory_bytes_max {
            self.hand_over(true)?;
        }
        if let (Some(Alone::Definition | Alone::CreateSelect), Some(change)) = (alone, change) {
            let outdated = self.builder.outdated().clone();
            let outdated = self.forget(&outdated);
            self.expect_definition(self.open.checkpoint.seqno, outdated, &change)?;
        }
        Ok(reached.then_some(GatherEnd::Reached))
    }

    /// A batch that ends while a session of the source has a temporary table could not be followed by one that uses the table,
    /// should the session that applies end in between. So a batch waits for the table's end, within reason.
    fn must_gather_more(&self, gathered: Duration) -> bool {
        if self.given.plan.is_one_batch {
            return true;
        }
        self.builder.has_temporary_tables() && gathered < TEMPORARY_TABLES_WAIT_MAX
    }

    fn is_full(&self, gathered: Duration) -> bool {
        self.open.batch.transactions >= self.given.plan.limits.transactions_max
            || self.builder.memory_bytes() >= self.given.plan.limits.memory_bytes_max
            || self.open.source_seconds() >= self.given.plan.limits.source_seconds_max
            || gathered >= self.given.plan.limits.duration_max
    }

    /// A transaction that outgrows memory goes on in pieces, all in one transaction of the replica.
    fn keep_within_memory(&mut self) -> Result<()> {
        self.separate_if_alone()?;
        if self.builder.memory_bytes() < self.given.plan.limits.memory_bytes_max {
            return Ok(());
        }
        if self.open.batch.transactions > 0 && self.builder.may_stand_alone() {
            return self.separate();
        }
        self.hand_over(true)
    }

    fn hand_over_whole(&mut self) -> Result<()> {
        if self.open.batch.transactions == 0 { Ok(()) } else { self.hand_over(false) }
    }

    /// Waits until the next stage is hungry, and gives it what was gathered. `goes_on`: the batch goes on in the next part.
    fn hand_over(&mut self, goes_on: bool) -> Result<()> {
        self.gather_in()?;
        let batch = self.builder.take();
        if goes_on {
            // What is handed out cannot be read again.
            self.builder.fold_alone();
        }
        self.hand_over_batch(batch, goes_on, false)
    }

    /// Has everything folded that other threads have.
    fn gather_in(&mut self) -> Result<()> {
        self.builder.gather_in().map_err(|error| match error {
            spate_schedule::Error::TurnedOut(surprise) => {
                Halt::TurnedOut { seqno: self.open.checkpoint.seqno, surprise }
            }
            error => Error::Transaction { place: self.open.place.clone(), error }.into(),
        })
    }

    /// What tells later whether the part's definition has taken effect, if it is a definition of tables. It is asked for here, while those before it
    /// are executed. `None`: it is none, or that cannot be told ahead.
    fn fingerprint(&mut self, part: &Part) -> Result<Option<String>> {
        let kind = part.intent_kind().filter(|_| self.replica.are_noted());
        let Some(kind @ (IntentKind::Definition | IntentKind::CreateSelect)) = kind else { return Ok(None) };
        let (intent, statement) = (part.intent(kind), part.statement());
        let Some(statement) = statement.filter(|_| intent.is_of_definitions_only()) else { return Ok(None) };
        if let Some(seqno) = self.unfinished.before_changing(&Outdated::changed_by(statement)) {
            self.wait_in_effect(seqno)?;
        }
        self.replica.fingerprint(&intent).map_err(Halt::from)
    }

    fn hand_over_batch(&mut self, batch: Batch, goes_on: bool, is_followed: bool) -> Result<()> {
        let Some(part) = self.open.close(batch, goes_on) else { return Ok(()) };
        let fingerprint = self.fingerprint(&part)?;
        let mut part = Part { is_followed, fingerprint, ..part };
        if let (Some(uneven), Some(end)) = (self.given.uneven.filter(|_| part.passes_over), &mut part.end) {
            end.levels = uneven.passed(&end.checkpoint).is_none();
        }
        // Underway and not ended, a transaction's first half is handed out.
        let is_whole = part.end.is_some() || self.open.underway.is_none();
        self.handed = is_whole.then(|| self.open.clone());
        self.dispatch.hand_out(part)
    }
}

/// Waits until there may be more to read.
fn wait(reader: &ArchiveReader) -> Result<Option<GatherEnd>> {
    match reader.wait(STOP_CHECK) {
        Waited::Closed => Err(Halt::StageEnded),
        Waited::Ready | Waited::TimedOut => Ok(None),
    }
}

/// The error of a transaction that is to be left out, and of which some appliers have applied their rows.
fn left_out_in_part(event: &ArchivedEvent<'_>, gtid: Option<Gtid>) -> Error {
    let place = TransactionPlace {
        gtid: gtid.map(|gtid| gtid.to_string()).unwrap_or_default(),
        file: event.source_file.to_string(),
        position: event.source_end_position,
    };
    let why = "several appliers were interrupted at different positions, and some of them have applied their rows of it: half of it would stay. Make \
               the replica's rows such that it can be applied, or let them be made so (--on-conflict repair)"
        .to_owned();
    Error::Transaction {
        place,
        error: spate_schedule::Error::Refused { what: "a transaction that is left out".to_owned(), why },
    }
}

fn no_table(place: TransactionPlace, name: &TableName) -> Error {
    let hint = format!("GRANT SELECT ON {}.* TO the user of Spate", spate_connection::quote::identifier(&name.schema));
    Error::NoTable { place, table: name.to_string(), hint }
}
