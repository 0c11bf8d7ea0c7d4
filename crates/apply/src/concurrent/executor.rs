//! One connection that executes jobs and commits them.

mod runs;

use spate_archive::stopping_point;
use spate_binlog::Gtid;
use spate_connection::{CODE_DEADLOCK, CODE_LOCK_WAIT, Connection, Vendor};
use spate_replica::applier_lock::ApplierLock;
use spate_replica::gtids::GtidKeeping;
use spate_replica::{Error, Result, spread};
use spate_schedule::emit::OwnUpdate;

use super::encoding::{Encoded, Encoder};
use super::pool::{Next, Pool, Sealing, Turn};
use crate::Part;
use crate::answers::{checked, refused, refused_checkpoint};
use crate::apply::IN_FLIGHT_MAX;
use crate::command::Execution;
use crate::halt::Halt;
use crate::sessions::{Ends, SessionMaker};

/// How often a job is executed again although all before it are committed: those behind it may hold locks, each for a moment.
const LATE_ATTEMPTS_MAX: u32 = 20;

/// What an executor is given.
#[derive(Debug)]
pub(crate) struct Hand<'a> {
    /// From 0.
    pub(crate) number: usize,
    pub(crate) maker: SessionMaker<'a>,
    pub(crate) ends: &'a Ends,
    /// Rows may be changed at READ COMMITTED: no gap is locked that need not be.
    pub(crate) may_read_committed: bool,
    pub(crate) pool: &'a Pool<'a>,
    pub(crate) encoder: Encoder<'a>,
    /// How transactions keep the source's GTIDs.
    pub(crate) gtids: GtidKeeping,
    pub(crate) keeps_order: bool,
}

/// One connection that executes jobs.
#[derive(Debug)]
pub(crate) struct Executor<'a> {
    hand: Hand<'a>,
    /// Made for the first job.
    connection: Option<Connection>,
    /// What it has committed behind the checkpoint; only without the order kept.
    committed: Vec<(u64, Gtid)>,
}

/// How an attempt ended that did not fail.
enum Attempted {
    Committed,
    RolledBack,
    /// The session ends.
    Ended,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(hand: Hand<'a>) -> Executor<'a> {
        Executor { hand, connection: None, committed: Vec::new() }
    }

    /// Executes until there is no more. An error ends the session.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.run_jobs() {
            self.hand.pool.fail(error);
        }
    }

    fn run_jobs(&mut self) -> Result<()> {
        loop {
            match self.hand.pool.next(self.hand.number) {
                Next::Job(part) => self.apply(&part)?,
                Next::Run(run) => self.apply_run(run)?,
                Next::Ping => self.ping()?,
                Next::End => return Ok(()),
            }
        }
    }

    /// The server hears of its client.
    fn ping(&mut self) -> Result<()> {
        if let Some(connection) = &mut self.connection {
            connection.execute(b"DO 0")?;
        }
        Ok(())
    }

    fn encode(&mut self, part: &Part, own: Option<OwnUpdate>) -> Result<Encoded> {
        self.hand.encoder.encode(part, own).map_err(|halt| match halt {
            Halt::Failed(error) => error,
            _ => Error::Unexplained,
        })
    }

    fn connect_for(&mut self, part: &Part) -> Result<()> {
        if self.connection.is_none() {
            self.connection = Some(self.connect(part)?);
        }
        Ok(())
    }

    fn apply(&mut self, part: &Part) -> Result<()> {
        self.connect_for(part)?;
        let is_spread = !self.hand.keeps_order && self.counts_in_rows();
        let own = is_spread.then(|| spread::update_row(self.hand.number, self.applied_with(part)));
        let encoded = self.encode(part, own)?;
        let mut late_attempts = 0;
        loop {
            match self.attempt(part, &encoded) {
                Ok(Attempted::Committed) => {
                    let sealing = self.hand.pool.commit(part, encoded.net_row_changes);
                    return self.seal(sealing);
                }
                Ok(Attempted::RolledBack) => {}
                Ok(Attempted::Ended) => return Ok(()),
                Err(error) if self.may_try_again(&error, part, late_attempts) => self.roll_back()?,
                Err(error) => return Err(error),
            }
            late_attempts += u32::from(self.hand.pool.is_its_turn(part));
            loop {
                match self.hand.pool.wait_late(self.hand.number, part) {
                    Turn::Commit => break,
                    Turn::Ping => self.ping()?,
                    Turn::RollBack | Turn::End => return Ok(()),
                }
            }
        }
    }

    /// A session that the next Spate knows of, and that knows how the source lays out its events.
    fn connect(&mut self, part: &Part) -> Result<Connection> {
        let hand = &mut self.hand;
        let mut connection = hand.maker.open()?;
        hand.ends.add(&connection)?;
        ApplierLock::announce(&format!("rows-{}", hand.number), &mut connection)?;
        hand.pool.connected(hand.number, connection.connection_id());
        if hand.may_read_committed {
            connection.execute(b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        }
        if hand.keeps_order {
            connection.execute(b"SET SESSION autocommit=0")?;
        }
        for sql in hand.encoder.session_sql(part) {
            connection.execute(&sql)?;
        }
        Ok(connection)
    }

    fn connection(&mut self) -> Result<&mut Connection> {
        self.connection.as_mut().ok_or(Error::Unexplained)
    }

    /// True if the job may succeed once all before it are committed, or those behind it hold no locks.
    fn may_try_again(&self, error: &Error, part: &Part, late_attempts: u32) -> bool {
        let code = match error {
            Error::Wire(error) | Error::Batch { source: error } => error.code(),
            _ => None,
        };
        let is_of_locks = matches!(code, Some(CODE_LOCK_WAIT | CODE_DEADLOCK));
        let is_early = late_attempts == 0 && !self.hand.pool.is_its_turn(part);
        match error {
            Error::Batch { .. } => is_early || is_of_locks && late_attempts < LATE_ATTEMPTS_MAX,
            Error::Wire(_) => is_of_locks && (is_early || late_attempts < LATE_ATTEMPTS_MAX),
            _ => false,
        }
    }

    /// What was sent behind the refused statement is answered, and undone.
    fn roll_back(&mut self) -> Result<()> {
        let connection = self.connection()?;
        while connection.in_flight() > 0 {
            match connection.receive_result() {
                Err(error) if error.server_error().is_none() => return Err(error.into()),
                _ => {}
            }
        }
        connection.execute(b"ROLLBACK")?;
        Ok(())
    }

    /// True if where the replica is may be written as a row of the job's own statement. A server of MySQL passes over a transaction whose
    /// GTID it has, and only a statement of its own shows that.
    fn counts_in_rows(&self) -> bool {
        self.hand.gtids != GtidKeeping::Source(Vendor::MySql)
    }

    /// What this executor has applied behind the checkpoint once the job is.
    fn applied_with<'p>(&'p self, part: &'p Part) -> impl Iterator<Item = Gtid> + 'p {
        let own = part.hints.iter().filter_map(|known| known.gtid);
        self.committed.iter().map(|&(_, gtid)| gtid).chain(own)
    }

    fn attempt(&mut self, part: &Part, encoded: &Encoded) -> Result<Attempted> {
        let commits_at_once = !self.hand.keeps_order || self.hand.pool.is_its_turn(part);
        let mut begin = Statements::default();
        for sql in self.hand.gtids.begin_sql(part.gtid()) {
            begin.add(Some(&sql));
        }
        if encoded.is_one_statement() {
            begin.execute(&encoded.executions);
            return self.commit(part, begin, None);
        }
        if !self.hand.keeps_order {
            begin.add(Some("START TRANSACTION"));
        }
        if commits_at_once && encoded.is_one_packet() {
            begin.execute(&encoded.executions);
            return self.commit_with_position(part, begin, encoded);
        }
        if begin.count > 0 {
            self.connection()?.send_statements(&begin.sql, begin.count)?;
        }
        self.execute(&encoded.executions)?;
        stopping_point("before-turn");
        if commits_at_once {
            return self.commit_with_position(part, Statements::default(), encoded);
        }
        loop {
            match self.hand.pool.wait_turn(self.hand.number, part) {
                Turn::Commit => return self.commit_with_position(part, Statements::default(), encoded),
                Turn::Ping => self.ping()?,
                Turn::RollBack => {
                    self.roll_back()?;
                    return Ok(Attempted::RolledBack);
                }
                Turn::End => return Ok(Attempted::Ended),
            }
        }
    }

    /// Executes packets, and waits for all answers.
    fn execute(&mut self, executions: &[Execution]) -> Result<()> {
        let connection = self.connection()?;
        // That of the statement before them.
        let ahead = connection.in_flight();
        let mut answered = 0;
        for execution in executions {
            while connection.in_flight() >= IN_FLIGHT_MAX {
                receive(connection, answered, ahead, executions)?;
                answered += 1;
            }
            connection.send_statements(&execution.sql, execution.statements)?;
        }
        while connection.in_flight() > 0 {
            receive(connection, answered, ahead, executions)?;
            answered += 1;
        }
        Ok(())
    }

    /// Commits behind these statements, with what says that the job is applied.
    fn commit_with_position(&mut self, part: &Part, mut sql: Statements, encoded: &Encoded) -> Result<Attempted> {
        let position = sql.count;
        if self.hand.keeps_order {
            let Some(end) = &part.end else { return Ok(Attempted::Ended) };
            sql.add(Some(&end.checkpoint.update_sql(&part.from)));
        } else if !encoded.has_own {
            sql.add(Some(&spread::update_sql(self.hand.number, self.applied_with(part))));
        }
        let has_position = sql.count > position;
        sql.add(Some("COMMIT"));
        self.commit(part, sql, has_position.then_some(position))
    }

    /// Sends what commits the job. `position`: the number of the statement that says so; a row has to change by it.
    fn commit(&mut self, part: &Part, sql: Statements, position: Option<usize>) -> Result<Attempted> {
        stopping_point("before-commit");
        let (keeps_order, pool) = (self.hand.keeps_order, self.hand.pool);
        let connection = self.connection()?;
        let peer = connection.peer().clone();
        let answer = connection.send_statements(&sql.sql, sql.count).and_then(|()| {
            stopping_point("after-commit-sent");
            if let Some(position) = position.filter(|_| keeps_order) {
                // Who is next waits for the row until this is committed, and is committed behind it: both may wait for the disk together.
                connection.receive_statements(position + 1)?;
                pool.wrote(part);
            }
            connection.receive_result()
        });
        let outcome = answer.map_err(|error| refused_checkpoint(error, &peer, |error| refused(error, None)))?;
        // A server of MySQL executes nothing of a transaction whose GTID it has already, and says that all is well.
        let is_unwritten = |position: usize| outcome.each.get(position).is_none_or(|each| each.affected_rows == 0);
        if position.is_some_and(is_unwritten) {
            return Err(spread::not_executed(&peer, &part.place));
        }
        stopping_point("after-commit");
        if !keeps_order {
            self.committed.extend(part.hints.iter().filter_map(|known| Some((known.hint.seqno, known.gtid?))));
        }
        Ok(Attempted::Committed)
    }

    /// Without the order kept: moves the checkpoint, if that is due.
    fn seal(&mut self, sealing: Sealing) -> Result<()> {
        self.committed.retain(|&(seqno, _)| seqno > sealing.sealed_seqno);
        let Some((from, to)) = sealing.moves else { return Ok(()) };
        let mut sql = Statements::default();
        sql.add(self.hand.gtids.end_sql().as_deref());
        sql.add(Some(&to.update_sql(&from)));
        let connection = self.connection()?;
        let sealed = connection.send_statements(&sql.sql, sql.count).and_then(|()| connection.receive_result());
        sealed.map_err(|error| refused_checkpoint(error, connection.peer(), Error::from))?;
        self.hand.pool.sealed(to);
        Ok(())
    }
}

/// Statements of one packet.
#[derive(Debug, Default)]
struct Statements {
    sql: Vec<u8>,
    count: usize,
}

impl Statements {
    fn add(&mut self, sql: Option<&str>) {
        if let Some(sql) = sql {
            self.append(sql.as_bytes(), 1);
        }
    }

    fn execute(&mut self, executions: &[Execution]) {
        for execution in executions {
            self.append(&execution.sql, execution.statements);
        }
    }

    fn append(&mut self, sql: &[u8], count: usize) {
        if self.count > 0 {
            self.sql.push(b';');
        }
        self.sql.extend_from_slice(sql);
        self.count += count;
    }
}

/// Receives the next answer of what was sent: the first `ahead` are not of the executions.
fn receive(connection: &mut Connection, answered: usize, ahead: usize, executions: &[Execution]) -> Result<()> {
    let outcome = connection.receive_result().map_err(|error| refused(error, None))?;
    let Some(execution) = answered.checked_sub(ahead).and_then(|place| executions.get(place)) else { return Ok(()) };
    checked(connection, &outcome, &execution.checks).map_err(|error| refused(error, None))
}
