//! A session may be interrupted while it executes something that cannot be rolled back. The next session settles that before it begins.
//!
//! A note in `spate.intent` says which transaction it was. Spate reads the note as if an enemy had written it: the objects that Spate looks at,
//! drops or passes are those that the archive's transaction at that place names. A note that fits no transaction stops Spate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spate_archive::{Archive, ArchivedEvent, ReadOptions};
use spate_binlog::Boundary;
use spate_binlog::header::{EventHeader, EventType};
use spate_binlog::payload::PayloadEvents;
use spate_schedule::{Alone, BatchBuilder, EventStates, Item, Statement, Surprise};
use spate_sql::{Reading, Server, Servers};

use super::session::Prepared;
use super::sessions::SILENCE_MAX;
use spate_connection::{ServerVersion, Vendor};
use spate_replica::checkpoint::Checkpoint;
use spate_replica::creator;
use spate_replica::exclusions::Exclusions;
use spate_replica::journal::{self, Finding, Intent, IntentKind, InterruptedStatement, Note};
use spate_replica::reached::Reached;
use spate_replica::status::Status;
use spate_replica::{Error, Result};

/// How often to look whether to stop while the archive does not hold the noted transaction yet. The replica is told as often that
/// the session lives, which keeps the applier's lock.
const STOP_CHECK: Duration = Duration::from_millis(500);

/// What settling works with besides the note.
#[derive(Debug, Clone, Copy)]
pub struct Settling<'a> {
    /// Holds the statements.
    pub archive: &'a Archive,
    /// What a person found out.
    pub interrupted: Option<InterruptedStatement>,
    /// What is left out.
    pub exclusions: &'a Exclusions,
    /// Whether the replica is to execute the source's events.
    pub events: EventStates,
    /// How far the replica has come.
    pub reached: &'a Reached,
    /// Is told what was found.
    pub status: &'a Status,
    /// Set when the process is to end.
    pub stop: &'a AtomicBool,
}

/// What settling asks of the replica.
pub trait NotedReplica {
    /// The replica's version.
    fn version(&self) -> ServerVersion;

    /// `replica host:port`, for messages.
    fn peer(&self) -> String;

    /// Tells the server that the session lives.
    ///
    /// # Errors
    /// Any error of the connection.
    fn keep_alive(&mut self) -> Result<()>;

    /// Looks whether the intention took effect.
    ///
    /// # Errors
    /// Any error of the connection; [`Error::TableLost`].
    fn look(&mut self, intent: &Intent) -> Result<Finding>;

    /// Gives the creator of the intention's routine the privileges that a server would have given.
    ///
    /// # Errors
    /// A missing privilege; any error of the connection.
    fn give_to_creator(&mut self, intent: &Intent) -> Result<()>;

    /// Moves the checkpoint past an intention that took effect, and removes the note with it.
    ///
    /// # Errors
    /// Any error of the connection.
    fn accept(&mut self, from: &Checkpoint, intent: &Intent) -> Result<Checkpoint>;

    /// Removes the note.
    ///
    /// # Errors
    /// Any error of the connection.
    fn forget(&mut self) -> Result<()>;
}

/// What became of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The intention took effect; the checkpoint is behind it now.
    Done(Checkpoint),
    /// The intention took no effect, and will be executed again.
    NotDone,
    /// Up to the transaction with this seqno, rows are to be repaired: changes that cannot be rolled back may be half done.
    Repair(u64),
    /// The run ended before the archive held the noted transaction.
    RunEnded,
}

/// Settles the note that an earlier session left, if there is one. False if the run ended (`is_over`) before the archive held the
/// noted transaction.
///
/// # Errors
/// [`Error::Note`] if the note fits no transaction; [`Error::Interrupted`]; any error of the connection or the archive.
pub fn settle_prepared(settling: Settling<'_>, prepared: &mut Prepared, is_over: &dyn Fn() -> bool) -> Result<bool> {
    let Some(note) = prepared.note.take() else { return Ok(true) };
    let from = prepared.checkpoint.clone().unwrap_or_default();
    prepared.connection.set_read_timeout(Some(SILENCE_MAX))?;
    match settle(settling, prepared, &note, &from, is_over)? {
        Settled::Done(checkpoint) => prepared.checkpoint = Some(checkpoint),
        Settled::NotDone => {}
        Settled::Repair(seqno) => prepared.repair_until = Some(seqno),
        Settled::RunEnded => return Ok(false),
    }
    prepared.connection.set_read_timeout(None)?;
    Ok(true)
}

impl NotedReplica for Prepared {
    fn version(&self) -> ServerVersion {
        self.connection.server_version().clone()
    }

    fn peer(&self) -> String {
        self.connection.peer().to_string()
    }

    fn keep_alive(&mut self) -> Result<()> {
        for session in [&mut self.connection, &mut self.guard] {
            session.execute(b"DO 0")?;
        }
        Ok(())
    }

    fn look(&mut self, intent: &Intent) -> Result<Finding> {
        intent.look(&mut self.connection)
    }

    fn give_to_creator(&mut self, intent: &Intent) -> Result<()> {
        match &intent.routine {
            Some(routine) => creator::give(&mut self.connection, routine),
            None => Ok(()),
        }
    }

    fn accept(&mut self, from: &Checkpoint, intent: &Intent) -> Result<Checkpoint> {
        journal::accept(&mut self.connection, from, intent)
    }

    fn forget(&mut self) -> Result<()> {
        self.connection.execute(journal::forget_sql().as_bytes())?;
        Ok(())
    }
}

/// Settles a note. `from`: the replica's checkpoint.
///
/// # Errors
/// As [`settle_prepared`].
pub fn settle(
    settling: Settling<'_>,
    replica: &mut impl NotedReplica,
    note: &Note,
    from: &Checkpoint,
    is_over: &dyn Fn() -> bool,
) -> Result<Settled> {
    let status = settling.status;
    let intent = match find(settling, note, from, replica, is_over) {
        Ok(Some(intent)) => intent,
        Ok(None) => return Ok(Settled::RunEnded),
        // A person has looked at the replica, and wants the archive applied as it comes.
        Err(Error::Note { .. }) if settling.interrupted == Some(InterruptedStatement::Repeat) => {
            status.note("applier", "a note in spate.intent that fits no transaction was dropped");
            replica.forget()?;
            return Ok(Settled::NotDone);
        }
        Err(error) => return Err(error),
    };
    let is_left_out = intent.gtid.parse().is_ok_and(|gtid| settling.exclusions.gtids.contains(&gtid));
    let finding = match (replica.look(&intent)?, settling.interrupted) {
        // A person has seen to its effects.
        (Finding::Unknown | Finding::Repairable, _) if is_left_out => Finding::NotDone,
        (Finding::Unknown | Finding::Repairable, Some(InterruptedStatement::Done)) => Finding::Done,
        (Finding::Unknown | Finding::Repairable, Some(InterruptedStatement::Repeat)) => Finding::NotDone,
        (finding, _) => finding,
    };
    match finding {
        Finding::Done => {
            status.note("applier", &format!("{} was executed before the interruption", intent.described()));
            // The interruption may have come before that.
            replica.give_to_creator(&intent)?;
            let checkpoint = replica.accept(from, &intent)?;
            settling.reached.find(&checkpoint);
            status.applied(&checkpoint, None);
            Ok(Settled::Done(checkpoint))
        }
        Finding::NotDone => replica.forget().map(|()| Settled::NotDone),
        // The note stays until they are made again.
        Finding::Repairable => {
            status.note("applier", &format!("{} were interrupted: repairing them", intent.described()));
            Ok(Settled::Repair(intent.checkpoint.seqno))
        }
        Finding::Unknown => {
            let place = format!("{}:{}", intent.checkpoint.source_file, intent.checkpoint.source_position);
            Err(Error::Interrupted { gtid: intent.gtid.clone(), place, statement: intent.described() })
        }
    }
}

/// Looks for the noted transaction behind `from`, and waits for it. `None` if the run ended before it came.
fn find(
    settling: Settling<'_>,
    note: &Note,
    from: &Checkpoint,
    replica: &mut impl NotedReplica,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Intent>> {
    let peer = replica.peer();
    let foreign = |why: String| Error::Note { replica: peer.clone(), what: note.described(), why };
    if note.is_at(from) || note.is_before(from) {
        return Err(foreign("the checkpoint is there or beyond".to_owned()));
    }
    let mut reader = settling.archive.reader(&from.seek(), ReadOptions::default())?;
    let mut search = Search::new(note, from, settling, &replica.version());
    loop {
        match reader.next_event()? {
            Some(event) => match search.event(&event).map_err(foreign)? {
                Some(intent) => return Ok(Some(intent)),
                None if settling.stop.load(Ordering::Acquire) => return Ok(None),
                None => {}
            },
            None => {
                let waiting =
                    "waiting: the archive does not hold yet what an earlier run was in the midst of (spate.intent)";
                settling.status.applier(waiting);
                reader.wait(STOP_CHECK);
                replica.keep_alive()?;
                if is_over() {
                    return Ok(None);
                }
            }
        }
    }
}

/// Goes through the archive's transactions from the checkpoint on.
struct Search<'a> {
    note: &'a Note,
    exclusions: &'a Exclusions,
    events: EventStates,
    replica: Server,
    vendor: Vendor,
    /// Behind the last whole transaction.
    position: Checkpoint,
    transaction: Transaction,
}

/// What is gathered of the transaction that is being read: all but its rows.
#[derive(Default)]
struct Transaction {
    events: Vec<(EventHeader, Vec<u8>)>,
    has_gtid: bool,
    gtid: String,
    is_excluded: bool,
    /// The note's place is that of its first event, as it is when a transaction is applied in pieces.
    is_noted: bool,
    /// How its statements are read,
    servers: Servers,
    /// and what becomes of its definitions of events.
    states: EventStates,
}

impl<'a> Search<'a> {
    fn new(note: &'a Note, from: &Checkpoint, settling: Settling<'a>, version: &ServerVersion) -> Search<'a> {
        let (replica, vendor) = (version.reader(), version.vendor);
        let Settling { exclusions, events, .. } = settling;
        Search {
            note,
            exclusions,
            events,
            replica,
            vendor,
            position: from.clone(),
            transaction: Transaction::default(),
        }
    }

    /// The intention, once the noted transaction has ended.
    ///
    /// # Errors
    /// Why the note cannot be of what the archive holds.
    fn event(&mut self, event: &ArchivedEvent<'_>) -> std::result::Result<Option<Intent>, String> {
        match event.boundary {
            Boundary::Outside => return Ok(None),
            Boundary::Begin | Boundary::Whole => {
                let gtid = event.gtid().map(|event| event.gtid);
                let mut underway = self.position.clone();
                underway.pass(event);
                self.transaction = Transaction {
                    events: vec![],
                    has_gtid: gtid.is_some(),
                    gtid: gtid.map(|gtid| gtid.to_string()).unwrap_or_default(),
                    is_excluded: self.exclusions.of(gtid, event.header.server_id).is_some(),
                    is_noted: self.note.is_at(&underway),
                    servers: Servers {
                        source: Some(ServerVersion::parse(&event.format.server_version).reader()),
                        replica: Some(self.replica),
                    },
                    states: self.events,
                };
            }
            Boundary::Inside | Boundary::End => {}
        }
        if self.note.kind.is_of_one_transaction() {
            self.transaction.gather(event).map_err(|error| error.to_string())?;
        }
        if !matches!(event.boundary, Boundary::End | Boundary::Whole) {
            return Ok(None);
        }
        self.position.pass(event);
        if self.transaction.is_noted || self.note.is_at(&self.position) {
            return self.intent().map(Some);
        }
        if self.note.is_before(&self.position) {
            return Err("the archive has no transaction that ends there".to_owned());
        }
        if self.note.kind.is_of_one_transaction() && !self.transaction.is_excluded {
            return Err(format!("{} comes before, and is not applied yet", self.transaction.named()));
        }
        Ok(None)
    }

    fn intent(&mut self) -> std::result::Result<Intent, String> {
        let (note, transaction) = (self.note, &self.transaction);
        let replica = self.vendor;
        let intent = |statement: Vec<u8>, database: String, reading: Reading| Intent {
            kind: note.kind,
            checkpoint: self.position.clone(),
            gtid: transaction.gtid.clone(),
            database,
            reading,
            statement,
            fingerprint: note.fingerprint.clone(),
            routine: None,
        };
        if !note.kind.is_of_one_transaction() {
            return Ok(intent(vec![], String::new(), Reading::default()));
        }
        let (alone, statement) = transaction.read().map_err(|error| error.to_string())?;
        match (note.kind, alone, statement) {
            (IntentKind::Definition, Some(Alone::Definition), Some(statement))
            | (IntentKind::CreateSelect, Some(Alone::CreateSelect), Some(statement)) => {
                let unclear = |_| "it is not certain whether it creates a routine".to_owned();
                let routine = creator::routine(&statement, replica).map_err(unclear)?;
                Ok(Intent { routine, ..intent(statement.sql, statement.database, statement.reading) })
            }
            (IntentKind::XaPrepare, Some(Alone::XaPrepare(xid)), _)
            | (IntentKind::XaEnd, Some(Alone::XaEnd(xid)), _) => {
                Ok(intent(xid.to_string().into_bytes(), String::new(), Reading::default()))
            }
            _ => Err(format!("{} is of another kind", transaction.named())),
        }
    }
}

impl Transaction {
    fn gather(&mut self, event: &ArchivedEvent<'_>) -> spate_binlog::Result<()> {
        if event.header.event_type != EventType::TRANSACTION_PAYLOAD {
            self.gather_one(event.header, event.body);
            return Ok(());
        }
        let mut events = PayloadEvents::open(event.body)?;
        while let Some((header, body)) = events.next_event()? {
            self.gather_one(header, body);
        }
        Ok(())
    }

    /// Rows and files are no part of an intention, and may be larger than memory.
    fn gather_one(&mut self, header: EventHeader, body: &[u8]) {
        let kind = header.event_type;
        let is_statement = matches!(kind, EventType::QUERY | EventType::QUERY_COMPRESSED | EventType::XA_PREPARE);
        if is_statement || kind.is_gtid() {
            self.events.push((header, body.to_vec()));
        }
    }

    /// Why it is a batch of its own, if it is, and its first statement: as the pipeline reads them.
    fn read(&self) -> spate_schedule::Result<(Option<Alone>, Option<Statement>)> {
        let mut expected = vec![];
        loop {
            match self.read_expecting(&expected) {
                Err(spate_schedule::Error::TurnedOut(surprise)) if !expected.contains(&surprise) => {
                    expected.push(surprise);
                }
                read => return read,
            }
        }
    }

    fn read_expecting(&self, expected: &[Surprise]) -> spate_schedule::Result<(Option<Alone>, Option<Statement>)> {
        let mut builder = BatchBuilder::new();
        builder.read_for(self.servers);
        builder.treat_events(self.states);
        let mut alone = None;
        if !self.has_gtid {
            builder.begin_anonymous();
        }
        for (number, (header, body)) in self.events.iter().enumerate() {
            builder.event(header, body)?;
            if number == 0 {
                expected.iter().for_each(|&surprise| builder.expect(surprise));
            }
            // The end of an XA transaction that is committed in one phase takes it back.
            alone = alone.or_else(|| builder.alone().cloned());
        }
        builder.end_transaction();
        let statement = builder.take().items.into_iter().find_map(|item| match item {
            Item::Statement(statement) => Some(statement),
            _ => None,
        });
        Ok((alone, statement))
    }

    fn named(&self) -> String {
        if self.gtid.is_empty() { "a transaction".to_owned() } else { format!("transaction {}", self.gtid) }
    }
}
