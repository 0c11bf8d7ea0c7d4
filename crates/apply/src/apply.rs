//! The last stage: one connection to the replica, which executes what was prepared and commits it with its checkpoint.
//!
//! The session runs without autocommit, so nothing that it sends can become permanent before a COMMIT is sent; and a COMMIT
//! is only sent when every statement before it has succeeded. A deadlock that rolls back the transaction under statements
//! still in flight therefore does no harm: what they do is rolled back when the session ends.

mod beside;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use spate_archive::stopping_point;
use spate_binlog::load::LoadDuplicates;
use spate_schedule::item::LoadFile;

use super::account_guard::AccountGuard;
use super::answers::{
    CODE_DUPLICATE_KEY, answered, checked, compare_with_expected, is_final_refusal, refused, refused_checkpoint,
    skipped_rows,
};
use super::command::{Change, Command, Commit, Definition, Execution, Expected, FoundRow, RowCheck};
use super::files::Files;
use super::repair::Repairer;
use super::sessions::{Sessions, refusal};
use crate::pipeline::{Turn, Turns};
use crate::prefetch::{ChunkMark, Prefetching};
use crate::report::Report;
use crate::sweep::{Left, Sweep};
use spate_replica::applier_lock::PING_EVERY;
use spate_replica::creator;
use spate_replica::journal::{self, Intent, IntentKind};
use spate_replica::others::OwnDefinitions;
use spate_replica::status::Status;
use spate_replica::temporary::{self, CopyBudget};
use spate_replica::{Error, Result};

/// Packets sent and not yet answered. Enough that the server never waits for us; few, since each is held in its buffers.
pub(crate) const IN_FLIGHT_MAX: usize = 3;

/// The same for packets of a statement of the source and of what sets the session up for it: each is small, and a statement
/// takes about four of them.
const SINGLES_IN_FLIGHT_MAX: usize = 16;

/// So long a commit goes without a look at its answer, if what follows at once does not come.
const COMMIT_AFTER: Duration = Duration::from_millis(1);

/// After so long without work, the definitions that the session has executed are counted. In a stream of definitions, that would cost a
/// third of each.
const COUNT_AFTER: Duration = Duration::from_millis(20);

/// What counts as small, in bytes.
const SMALL_SQL_BYTES: usize = 16 << 10;

/// Statements whose answers nobody has read when something more is sent. The server reads no further while it cannot write an
/// answer, and with a full socket nobody could send either: a Unix socket takes some 280 answers.
const UNREAD_STATEMENTS_MAX: usize = 256;

/// Executes what was prepared.
pub(crate) struct Applier<'a> {
    sessions: Sessions<'a>,
    input: Receiver<Command>,
    /// Lets the preparing stage begin one more batch.
    tickets: Sender<()>,
    tools: ApplierTools<'a>,
    /// The commit that has no answer yet, before all that is in flight. `None`: all have their answers.
    committing: Option<Committing>,
    /// What comes next, if it was taken while a definition was executed.
    next: Option<Command>,
    /// What was sent and not answered, oldest first.
    in_flight: VecDeque<Sent>,
    batch: OpenBatch,
    /// What copies of temporary tables may write.
    copies: CopyBudget,
    /// When the latest measured chunk had its answer.
    answered_at: Option<Instant>,
}

/// What an applier works with besides its sessions.
pub(crate) struct ApplierTools<'a> {
    pub(crate) files: Files,
    /// Repairs refused row changes. A change must then have its answer before the next is sent. `None`: a refusal is the end.
    pub(crate) repairer: Option<Repairer<'a>>,
    pub(crate) accounts: AccountGuard<'a>,
    pub(crate) own_definitions: &'a OwnDefinitions,
    /// Is told how long chunks of rows take. `None`: rows are not prefetched.
    pub(crate) prefetching: Option<&'a Prefetching<'a>>,
    pub(crate) report: Report<'a>,
    pub(crate) status: &'a Status,
}

/// A commit that was sent.
struct Committing {
    commit: Commit,
    /// The note that it makes.
    note: Option<Box<Intent>>,
    /// It removes the note of what it commits.
    fulfils: bool,
}

/// A commit that has its answer, and is not reported.
struct Committed {
    commit: Commit,
    /// How long its batch has taken.
    took: Duration,
    /// Its batch had a definition.
    had_definition: bool,
}

/// The batch that is being executed.
#[derive(Default)]
struct OpenBatch {
    /// When its first command came. `None`: none came yet.
    began: Option<Instant>,
    /// How long it has waited for its turn.
    waited: Duration,
    /// What it does was noted before.
    has_intent: bool,
    /// The definition that was noted, until the replica has executed it.
    unexecuted: Option<Box<Intent>>,
    /// It is a definition.
    has_definition: bool,
    /// A statement of the source was executed in it: it may have released our locks.
    has_foreign_sql: bool,
    /// A statement of it that may lock us out.
    watched: Option<Change>,
}

/// What was sent: what it does, how it should end, and how many rows its statements should find.
#[derive(Debug, Default)]
struct Sent {
    statements: usize,
    change: Option<Change>,
    expected: Expected,
    checks: Vec<RowCheck>,
    is_careful: bool,
    mark: Option<ChunkMark>,
    /// `None` if nobody asks how long it takes.
    sent_at: Option<Instant>,
}

impl From<Execution> for Sent {
    fn from(execution: Execution) -> Sent {
        Sent {
            statements: execution.statements,
            change: execution.change,
            expected: execution.expected,
            checks: execution.checks,
            is_careful: execution.is_careful,
            sent_at: execution.mark.map(|_| Instant::now()),
            mark: execution.mark,
        }
    }
}

impl<'a> Applier<'a> {
    /// An applier over sessions of which the first holds the lock.
    pub(crate) fn new(
        sessions: Sessions<'a>,
        input: Receiver<Command>,
        tickets: Sender<()>,
        tools: ApplierTools<'a>,
    ) -> Applier<'a> {
        Applier {
            sessions,
            input,
            tickets,
            tools,
            committing: None,
            next: None,
            in_flight: VecDeque::new(),
            batch: OpenBatch::default(),
            copies: CopyBudget::new(Instant::now()),
            answered_at: None,
        }
    }

    /// Applies until the stage before is gone. A batch that it left unfinished is rolled back with the connection.
    ///
    /// # Errors
    /// [`Error::Batch`] or [`Error::Change`] if the replica refuses something; an error of the connection.
    pub(crate) fn run(mut self) -> Result<()> {
        self.sessions.main().execute(b"SET SESSION autocommit=0")?;
        while let Some(command) = self.next_command()? {
            self.batch.began.get_or_insert_with(Instant::now);
            self.run_command(command)?;
        }
        self.end_commit()
    }

    fn run_command(&mut self, command: Command) -> Result<()> {
        // What executes in another session may begin before a commit has its answer.
        if !matches!(command, Command::Define(_)) {
            self.end_commit()?;
        }
        if command.needs_answers() {
            self.receive_all()?;
        }
        let status = self.tools.status;
        let tell = |message: &str| status.note("applier", message);
        match command {
            Command::Execute(execution) => {
                self.execute(execution)?;
                stopping_point("between-statements");
            }
            Command::AwaitTurn(seqno) => self.await_turn(seqno)?,
            Command::LoadBlock(block) => self.tools.files.append(&block)?,
            Command::Load(execution, load) => self.load(execution, &load)?,
            Command::Intend(intent) => self.note_intention(intent)?,
            // The preparing stage may be gone already; this session then ends without a commit.
            Command::Settle(answer) => drop(answer.send(())),
            Command::ExecuteApart(execution) => self.execute_apart(execution)?,
            Command::Define(definition) => self.define(&definition)?,
            Command::OpenBranch(statements) => self.sessions.open_branch(&statements)?,
            Command::MarkBranch(xid) => self.sessions.mark_branch(&xid)?,
            Command::CloseBranch => self.sessions.close_branch()?,
            Command::WatchAccount(change) => self.batch.watched = Some(change),
            Command::GiveToCreator(routine) => {
                stopping_point("before-creators-privileges");
                creator::give(self.sessions.main(), &routine)?;
            }
            Command::Sweep { sweep, answer } => self.sweep(sweep, &answer)?,
            Command::RestoreTemporary => temporary::restore(self.sessions.main(), tell)?,
            Command::Ask { sql, change, answer } => self.answer_question(&sql, change, &answer)?,
            Command::KeepTemporary(tables) => {
                temporary::keep(self.sessions.main(), &tables, &mut self.copies, tell)?;
                stopping_point("after-temporary-copies");
            }
            Command::Commit(commit) => self.end_batch(commit)?,
        }
        Ok(())
    }

    /// Waits until another has applied everything up to this transaction. What was executed before stays, and what it locks is not committed
    /// before.
    fn await_turn(&mut self, seqno: u64) -> Result<()> {
        let Report::InTurn(turns) = self.tools.report else { return Ok(()) };
        let begun = Instant::now();
        let mut pinged = begun;
        stopping_point("ahead-of-turn");
        loop {
            match turns.wait(seqno) {
                Turn::Come => break,
                Turn::Never => return Err(Error::Unexplained),
                Turn::NotYet if pinged.elapsed() >= PING_EVERY => {
                    self.receive_all()?;
                    self.sessions.main().execute(b"DO 0")?;
                    pinged = Instant::now();
                }
                Turn::NotYet => {}
            }
        }
        stopping_point("in-turn");
        self.batch.waited += begun.elapsed();
        Ok(())
    }

    /// How long the batch has taken, which ends.
    fn took(&mut self) -> Duration {
        let waited = std::mem::take(&mut self.batch.waited);
        self.batch.began.take().map_or(Duration::ZERO, |began| began.elapsed().saturating_sub(waited))
    }

    fn note_intention(&mut self, intent: Box<Intent>) -> Result<()> {
        stopping_point("before-intent");
        intent.note(self.sessions.journal()?)?;
        self.begin_noted(intent);
        Ok(())
    }

    /// What comes next is noted, and the note is durable.
    fn begin_noted(&mut self, intent: Box<Intent>) {
        self.batch.has_intent = true;
        let is_definition = matches!(intent.kind, IntentKind::Definition | IntentKind::CreateSelect);
        self.batch.has_definition |= is_definition;
        if is_definition {
            self.tools.own_definitions.begin();
        }
        self.batch.unexecuted = is_definition.then_some(intent);
        stopping_point("after-intent");
    }

    /// Executes a definition in the session for definitions, which is set up while the commit before has no answer.
    fn define(&mut self, definition: &Definition) -> Result<()> {
        let definer = self.sessions.definer()?;
        for sql in &definition.before {
            definer.send_single(sql)?;
        }
        // What comes before is committed then, and the note durable.
        let committed = self.receive_committing()?;
        self.receive_all()?;
        self.tools.own_definitions.begin();
        self.batch.has_definition = true;
        let definer = self.sessions.definer()?;
        let refused = |error| refused(error, definition.change.clone());
        for _ in &definition.before {
            definer.receive_result().map_err(refused)?;
        }
        let sent = definer.send_single(&definition.sql);
        // The server is busy now, so there is time for this.
        committed.map_or(Ok(()), |committed| self.report_commit(committed))?;
        sent.map_err(refused)?;
        self.execute_beside()?;
        let answer = self.receive_definition()?;
        match &answer {
            Ok(()) => self.batch.unexecuted = None,
            Err(error) if is_final_refusal(error) => self.forget_refused(true),
            Err(_) => {}
        }
        compare_with_expected(self.sessions.definer()?, answer, definition.expected).map_err(refused)?;
        stopping_point("after-definition");
        if let Some(progress) = self.tools.report.progress() {
            progress.execute(definition.seqno);
        }
        Ok(())
    }

    /// Adds the statement that makes a note, with a semicolon behind it. Returns how many statements that are.
    fn add_note(&mut self, note: Option<&Intent>, sql: &mut Vec<u8>) -> Result<usize> {
        let Some(intent) = note else { return Ok(0) };
        stopping_point("before-intent");
        sql.extend_from_slice(intent.note_sql(self.sessions.journal()?)?.as_bytes());
        sql.push(b';');
        Ok(1)
    }

    fn execute_apart(&mut self, execution: Execution) -> Result<()> {
        let connection = self.sessions.journal()?;
        let answer = match execution.is_single {
            true => connection.execute_single(&execution.sql),
            false => connection.execute(&execution.sql),
        };
        answered(connection, answer.map(drop), execution)
    }

    /// Sends a commit. Its answer is waited for, unless a definition follows at once.
    fn end_batch(&mut self, mut commit: Commit) -> Result<()> {
        if self.tools.report.progress().is_some() {
            self.tools.status.applying(commit.oldest_seconds);
        }
        let note = commit.note.take();
        self.receive_all()?;
        if commit.is_sent {
            self.receive_of_commit()?;
        }
        self.sessions.count_definitions_if_wanted(self.tools.own_definitions)?;
        let fulfils = self.send_commit(&mut commit, note.as_deref())?;
        let is_followed = commit.is_before_definition;
        self.committing = Some(Committing { commit, note, fulfils });
        if is_followed { Ok(()) } else { self.end_commit() }
    }

    /// Waits for the answer of a commit that was sent.
    fn end_commit(&mut self) -> Result<()> {
        match self.receive_committing()? {
            Some(committed) => self.report_commit(committed),
            None => Ok(()),
        }
    }

    /// The same, and leaves it to the caller to report it. `None`: none was sent, or it is reported.
    fn receive_committing(&mut self) -> Result<Option<Committed>> {
        let Some(Committing { commit, note, fulfils }) = self.committing.take() else { return Ok(None) };
        let committed = self.receive_commit(fulfils).map(|()| Committed {
            commit,
            took: self.took(),
            had_definition: std::mem::take(&mut self.batch.has_definition),
        });
        if let (Ok(_), Some(intent)) = (&committed, note) {
            self.begin_noted(intent);
        }
        match self.batch.watched.take() {
            Some(change) => {
                let reported = committed.and_then(|committed| self.report_commit(committed));
                self.tools.accounts.look(change, reported).map(|()| None)
            }
            None => committed.map(Some),
        }
    }

    /// Waits for the next command, and meanwhile keeps the session alive. `None`: there will be none.
    fn next_command(&mut self) -> Result<Option<Command>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        loop {
            let is_counted = self.tools.own_definitions.is_counted();
            let patience = match () {
                () if self.committing.is_some() => COMMIT_AFTER,
                () if is_counted => PING_EVERY,
                () => COUNT_AFTER,
            };
            match self.input.recv_timeout(patience) {
                Ok(command) => return Ok(Some(command)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.committing.is_some() => self.end_commit()?,
                Err(RecvTimeoutError::Timeout) if !is_counted => {
                    self.receive_all()?;
                    self.sessions.count_definitions(self.tools.own_definitions)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.receive_all()?;
                    self.sessions.main().execute(b"DO 0")?;
                }
            }
        }
    }

    fn execute(&mut self, execution: Execution) -> Result<()> {
        let in_flight_max = match () {
            () if execution.is_careful || self.tools.repairer.is_some() => 0,
            () if execution.is_single && execution.sql.len() < SMALL_SQL_BYTES => SINGLES_IN_FLIGHT_MAX - 1,
            () => IN_FLIGHT_MAX - 1,
        };
        while self.in_flight.len() > in_flight_max || self.unread_statements() > UNREAD_STATEMENTS_MAX {
            self.receive()?;
        }
        self.batch.has_foreign_sql |= execution.is_single && !execution.keeps_lock;
        let connection = self.sessions.current();
        match execution.is_single {
            true => connection.send_single(&execution.sql)?,
            false => connection.send_statements(&execution.sql, execution.statements)?,
        }
        let is_careful = execution.is_careful;
        self.in_flight.push_back(execution.into());
        if is_careful { self.receive_all() } else { Ok(()) }
    }

    fn load(&mut self, execution: Execution, load: &LoadFile) -> Result<()> {
        self.batch.has_foreign_sql = true;
        let file = self.tools.files.open(load.file_id)?;
        let connection = self.sessions.current();
        let mut answer = connection.load_local(&execution.sql, file);
        if load.duplicates == LoadDuplicates::Fail
            && let Ok(outcome) = &answer
            && skipped_rows(&outcome.info) > 0
        {
            let message = format!("rows of LOAD DATA were there already: {}", outcome.info);
            answer = Err(refusal(connection, CODE_DUPLICATE_KEY, message));
        }
        self.tools.files.remove(load.file_id);
        answered(self.sessions.current(), answer.map(drop), execution)
    }

    /// Statements whose answers were not read yet.
    fn unread_statements(&self) -> usize {
        self.in_flight.iter().map(|sent| sent.statements).sum()
    }

    fn receive_all(&mut self) -> Result<()> {
        self.end_commit()?;
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let Sent { change, expected, checks, is_careful, mark, sent_at, .. } =
            self.in_flight.pop_front().unwrap_or_default();
        let answer = self.sessions.current().receive_result();
        self.measure(mark, sent_at);
        match &answer {
            Ok(_) if is_careful => self.batch.unexecuted = None,
            Err(error) if is_final_refusal(error) => self.forget_refused(is_careful),
            _ => {}
        }
        let connection = self.sessions.current();
        let answer = answer.and_then(|outcome| checked(connection, &outcome, &checks));
        let Err(error) = compare_with_expected(connection, answer, expected) else { return Ok(()) };
        match (&mut self.tools.repairer, change) {
            (Some(repairer), Some(change)) if error.server_error().is_some() && !error.is_transient() => {
                let message = repairer.repair(connection, &change, error)?;
                self.tools.status.note("applier", &message);
                Ok(())
            }
            (_, change) => Err(refused(error, change)),
        }
    }

    /// Says how long the server took for what was answered now. It began when it was sent, or when what was sent before had its answer.
    fn measure(&mut self, mark: Option<ChunkMark>, sent_at: Option<Instant>) {
        let Some(prefetching) = self.tools.prefetching else { return };
        let (Some(mark), Some(sent_at)) = (mark, sent_at) else { return };
        let now = Instant::now();
        let began = self.answered_at.replace(now).map_or(sent_at, |answered_at| answered_at.max(sent_at));
        prefetching.finish(mark, Some(now - began));
    }

    /// Removes the note of a definition that the replica has refused, if nothing of it can have stayed: later changes of its objects are not
    /// its own. (For others, the next session looks at the objects that they name.) `was_sent`: the definition itself was refused, not a
    /// statement before it.
    fn forget_refused(&mut self, was_sent: bool) {
        let Some(intent) = self.batch.unexecuted.take() else { return };
        if was_sent && !intent.is_whole_or_nothing() {
            return;
        }
        // If it cannot be removed, the next session looks at it.
        let _removed =
            self.sessions.journal().and_then(|journal| Ok(journal.execute(journal::forget_sql().as_bytes())?));
    }

    fn sweep(&mut self, sweep: Sweep, answer: &Sender<Left>) -> Result<()> {
        let surplus = sweep.run(self.sessions.current()).map_err(|error| match error {
            Error::Wire(error) => refused(error, None),
            other => other,
        })?;
        // The preparing stage may be gone already; this session then ends without a commit.
        let _is_gone = answer.send(surplus);
        Ok(())
    }

    fn answer_question(&mut self, sql: &[u8], change: Option<Change>, answer: &Sender<FoundRow>) -> Result<()> {
        let mut found = None;
        let see = |row: spate_connection::Row<'_>| {
            found = Some((0..row.len()).map(|column| row.get(column).map(<[u8]>::to_vec)).collect());
            ControlFlow::Break(())
        };
        self.sessions.current().for_each_row(sql, see).map_err(|error| refused(error, change))?;
        // As for a sweep.
        let _is_gone = answer.send(found);
        Ok(())
    }

    /// Executes what is left of the batch, notes what comes next, and commits.
    /// True if it removes the note of what it commits.
    fn send_commit(&mut self, commit: &mut Commit, note: Option<&Intent>) -> Result<bool> {
        let (mut sql, mut statements) = match commit.is_sent {
            true => (Vec::new(), 1),
            false => (std::mem::take(&mut commit.sql), commit.statements),
        };
        statements += self.add_note(note.filter(|_| !commit.is_sent), &mut sql)?;
        sql.extend_from_slice(b"COMMIT");
        sql.extend_from_slice(&commit.after);
        if std::mem::take(&mut self.batch.has_foreign_sql) {
            self.sessions.keep_lock()?;
        }
        let fulfils = std::mem::take(&mut self.batch.has_intent);
        if fulfils {
            stopping_point("before-fulfilment");
        } else {
            stopping_point("before-commit");
        }
        self.sessions.main().send_statements(&sql, statements)?;
        stopping_point("after-commit-sent");
        Ok(fulfils)
    }

    fn receive_commit(&mut self, fulfils: bool) -> Result<()> {
        self.receive_of_commit()?;
        if fulfils {
            stopping_point("after-fulfilment");
        } else {
            stopping_point("after-commit");
        }
        Ok(())
    }

    /// Waits for the answer of a commit, or of what comes before it.
    fn receive_of_commit(&mut self) -> Result<()> {
        let main = self.sessions.main();
        let answer = main.receive_result();
        answer.map(drop).map_err(|error| refused_checkpoint(error, main.peer(), |error| refused(error, None)))
    }

    fn report_commit(&mut self, committed: Committed) -> Result<()> {
        let Committed { commit, took, had_definition } = committed;
        if let (Some(prefetching), Some(mark)) = (self.tools.prefetching, commit.mark) {
            prefetching.finish(mark, None);
        }
        // What was sent behind it began now.
        self.answered_at = self.answered_at.map(|_| Instant::now());
        let tools = &mut self.tools;
        match tools.report {
            Report::Share(board, applier) => board.commit(applier, &commit.end, commit.net_row_changes, took),
            Report::Whole(progress) | Report::InTurn(&Turns { progress, .. }) => {
                // A definition before them is no part of what rows cost.
                if !had_definition {
                    progress.measure(commit.row_changes, took);
                }
                let batch = commit.status(took.as_secs_f64() * 1e3);
                tools.status.applied(&commit.end.checkpoint, Some(&batch));
                tools.status.left_out(&commit.end.skipped, commit.end.ignored);
                // Behind this, another may report the next batch.
                progress.commit(&commit.end);
            }
        }
        // The preparing stage may be gone already, at the end of a run.
        let _is_gone = self.tickets.try_send(());
        if let Some(repairer) = &mut tools.repairer {
            tools.status.repaired(repairer.committed()?);
        }
        Ok(())
    }
}
