//! What an earlier session was in the midst of, and could not have rolled back, is settled before the next session begins.
//!
//! A note in `spate.intent` says that there is something, and where. It is read as if an enemy had written it: what is looked at,
//! dropped or gone past is what the archive's transaction at that place says. A note that fits no such transaction stops Spate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spate_archive::{Archive, ArchiveReader, ArchivedEvent, ReadOptions};
use spate_binlog::Boundary;
use spate_binlog::header::{EventHeader, EventType};
use spate_binlog::payload::PayloadEvents;
use spate_schedule::{Alone, BatchBuilder, Item, Statement, Surprise};
use spate_sql::{Reading, Server, Servers};

use super::session::Prepared;
use super::sessions::SILENCE_MAX;
use spate_connection::{Connection, ServerVersion, Vendor};
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

/// What decides besides the note and the archive.
#[derive(Debug, Clone, Copy)]
pub struct Settling<'a> {
    /// Holds the statements.
    pub archive: &'a Archive,
    /// What a person found out.
    pub interrupted: Option<InterruptedStatement>,
    /// What is left out.
    pub exclusions: &'a Exclusions,
    /// How far the replica has come.
    pub reached: &'a Reached,
    /// Is told what was found.
    pub status: &'a Status,
    /// Set when the process is to end.
    pub stop: &'a AtomicBool,
}

/// Settles the note that an earlier session left, if there is one. False if the run ended (`is_over`) before the archive held the
/// noted transaction.
///
/// # Errors
/// [`Error::Note`] if the note fits no transaction; [`Error::Interrupted`]; any error of the connection or the archive.
pub fn settle(settling: Settling<'_>, prepared: &mut Prepared, is_over: &dyn Fn() -> bool) -> Result<bool> {
    let Some(note) = prepared.note.take() else { return Ok(true) };
    let (connection, guard, status) = (&mut prepared.connection, &mut prepared.guard, settling.status);
    connection.set_read_timeout(Some(SILENCE_MAX))?;
    let from = prepared.checkpoint.clone().unwrap_or_default();
    let intent = match find(settling, &note, &from, (connection, guard), is_over) {
        Ok(Some(intent)) => intent,
        Ok(None) => return Ok(false),
        // A person has looked, and what is there is to be applied as it comes.
        Err(Error::Note { .. }) if settling.interrupted == Some(InterruptedStatement::Repeat) => {
            status.note("applier", "a note in spate.intent that fits no transaction was dropped");
            connection.execute(journal::forget_sql().as_bytes())?;
            connection.set_read_timeout(None)?;
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    let is_left_out = intent.gtid.parse().is_ok_and(|gtid| settling.exclusions.gtids.contains(&gtid));
    let finding = match (intent.look(connection)?, settling.interrupted) {
        // What it was to do, a person has seen to.
        (Finding::Unknown | Finding::Mendable, _) if is_left_out => Finding::NotDone,
        (Finding::Unknown | Finding::Mendable, Some(InterruptedStatement::Done)) => Finding::Done,
        (Finding::Unknown | Finding::Mendable, Some(InterruptedStatement::Repeat)) => Finding::NotDone,
        (finding, _) => finding,
    };
    match finding {
        Finding::Done => {
            status.note("applier", &format!("{} was executed before the interruption", intent.described()));
            // The interruption may have come before that.
            if let Some(routine) = &intent.routine {
                creator::give(connection, routine)?;
            }
            let checkpoint = journal::accept(connection, &from, &intent)?;
            settling.reached.find(&checkpoint);
            status.applied(&checkpoint, None);
            prepared.checkpoint = Some(checkpoint);
        }
        Finding::NotDone => connection.execute(journal::forget_sql().as_bytes()).map(drop)?,
        // The note stays until they are made again.
        Finding::Mendable => {
            status.note("applier", &format!("{} were interrupted: mending them", intent.described()));
            prepared.mend_until = Some(intent.checkpoint.seqno);
        }
        Finding::Unknown => {
            let place = format!("{}:{}", intent.checkpoint.source_file, intent.checkpoint.source_position);
            return Err(Error::Interrupted { gtid: intent.gtid.clone(), place, statement: intent.described() });
        }
    }
    connection.set_read_timeout(None)?;
    Ok(true)
}

/// Looks for the noted transaction behind `from`, and waits for it. `None` if the run ended before it came.
fn find(
    settling: Settling<'_>,
    note: &Note,
    from: &Checkpoint,
    (connection, guard): (&mut Connection, &mut Connection),
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Intent>> {
    let replica = connection.peer().to_string();
    let foreign = |why: String| Error::Note { replica: replica.clone(), what: note.described(), why };
    if note.is_at(from) || note.is_before(from) {
        return Err(foreign("the checkpoint is there or beyond".to_owned()));
    }
    let mut reader = settling.archive.reader(&from.seek(), ReadOptions::default())?;
    let mut search = Search::new(note, from, settling.exclusions, connection.server_version());
    loop {
        match reader.next_event()? {
            Some(event) => match search.event(&event).map_err(foreign)? {
                Some(intent) => return Ok(Some(intent)),
                None if settling.stop.load(Ordering::Acquire) => return Ok(None),
                None => {}
            },
            None => {
                if !wait(&reader, settling, [&mut *connection, &mut *guard], is_over)? {
                    return Ok(None);
                }
            }
        }
    }
}

/// Waits for more of the archive. False if there will be none in this run.
fn wait(
    reader: &ArchiveReader,
    settling: Settling<'_>,
    sessions: [&mut Connection; 2],
    is_over: &dyn Fn() -> bool,
) -> Result<bool> {
    let waiting = "waiting: the archive does not hold yet what an earlier run was in the midst of (spate.intent)";
    settling.status.applier(waiting);
    reader.wait(STOP_CHECK);
    for session in sessions {
        session.execute(b"DO 0")?;
    }
    Ok(!is_over())
}

/// Goes through the archive's transactions from the checkpoint on.
struct Search<'a> {
    note: &'a Note,
    exclusions: &'a Exclusions,
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
    /// How its statements are read.
    servers: Servers,
}

impl<'a> Search<'a> {
    fn new(note: &'a Note, from: &Checkpoint, exclusions: &'a Exclusions, version: &ServerVersion) -> Search<'a> {
        let (replica, vendor) = (version.reader(), version.vendor);
        Search { note, exclusions, replica, vendor, position: from.clone(), transaction: Transaction::default() }
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
