//! Golden scripts of whole incidents: a made-up source fills a real archive, the real gatherer reads it, a fake worker applies to a
//! fake replica, and the real supervision and settling decide what follows. An interruption can come at each point at which the tests on
//! running servers stop the program. At the end of a script's `run`, the replica must be what the source is, and every definition must have been
//! executed exactly once; a difference is printed.
//!
//! Commands:
//! - transactions of the source, each with the next GTID: `insert ID V`, `update ID V`, `delete ID`, of the table `t` or of `table=a`, whose
//!   engine cannot roll back; `rows FROM TO V` inserts many, one a transaction; `together FROM TO V` in one; `definition SQL`; `statement SQL`, and `irrevocable SQL` of tables that cannot roll back; `xa-prepare NAME ID V` and
//!   `xa-commit NAME`; `undone ID V` (an insert that the source has rolled back); `restart` (of the source);
//! - `options [batch=N] [repair=true] [skip=GTID] [interrupted=done|repeat]`: of the program;
//! - `replica insert|delete ID [V]`: somebody changes a row on the replica;
//! - `crash POINT SEQNO [kept=false]`, `lose POINT SEQNO [kept=false]`: the program is killed, or loses its connection, when it comes to the point
//!   with the transaction; `kept=false`: a COMMIT that was just sent does not arrive;
//! - `refuse TEXT`: the replica refuses statements that contain it;
//! - `run`: sessions follow each other, through crashes, until the archive is applied or the program stops.
//!
//! Set UPDATE_GOLDENFILES=1 to write the expected output again.

mod replica;
mod source;

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use goldenscript::{Command, Context, Runner};
use spate_apply::gather::{Gatherer, Gathering};
use spate_apply::halt::Halt;
use spate_apply::limits::BatchLimits;
use spate_apply::plan::SessionPlan;
use spate_apply::repair::RepairScope;
use spate_apply::session::SessionReport;
use spate_apply::settle::{Settled, Settling, settle};
use spate_archive::{ArchiveWriter, ReadOptions, RealFileSystem, SyncPolicy, WriterOptions};
use spate_binlog::Gtid;
use spate_replica::Error;
use spate_replica::exclusions::Exclusions;
use spate_replica::journal::InterruptedStatement;
use spate_replica::reached::Reached;
use spate_replica::status::Status;
use spate_replica::until::Until;
use spate_schedule::BatchBuilder;

use self::replica::{FakeDefinitions, FakeDispatch, FakeReplica, FakeWorker, Interruption};
use self::source::FakeSource;
use crate::supervision::{Directive, Said, Session, Supervision};

/// Bytes that a batch may take: little, so that a transaction outgrows it.
const MEMORY_BYTES_MAX: usize = 128 << 10;

/// More than any script prints.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// More sessions than any script needs.
const SESSIONS_MAX: usize = 60;

struct Incident {
    source: FakeSource,
    replica: FakeReplica,
    _directory: tempfile::TempDir,
    writer: ArchiveWriter,
    batch_max: u64,
    repairs: bool,
    exclusions: Exclusions,
    interrupted: Option<InterruptedStatement>,
    interruptions: Vec<Interruption>,
    /// Parts of statements that the replica refuses.
    refused: Vec<String>,
}

impl Incident {
    fn new() -> Incident {
        let directory = tempfile::tempdir().unwrap();
        let options = WriterOptions { sync: SyncPolicy::Os, ..WriterOptions::default() };
        let writer = ArchiveWriter::open(Arc::new(RealFileSystem), directory.path(), options).unwrap();
        Incident {
            source: FakeSource::new(),
            replica: FakeReplica::new(),
            _directory: directory,
            writer,
            batch_max: u64::MAX,
            repairs: false,
            exclusions: Exclusions::default(),
            interrupted: None,
            interruptions: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Process after process, until one ends by itself.
    fn run(&mut self) -> String {
        self.source.send(&mut self.writer);
        let mut text = String::new();
        let mut interrupted = self.interrupted.take();
        while self.process(interrupted.take(), &mut text) {
            let _ = writeln!(text, "started again");
            assert!(text.len() < TEXT_BYTES_MAX, "it never ends:\n{text}");
        }
        let compared = self.replica.compare(&self.source);
        let is_explained =
            ["stops: ", "left out"].iter().any(|why| text.contains(why)) || compared.ends_with("identical");
        assert!(is_explained, "the replica is not what the source is, and nothing says why:\n{text}{compared}");
        let _ = writeln!(text, "{compared}");
        text
    }

    /// One process. True if it was killed.
    fn process(&mut self, mut interrupted: Option<InterruptedStatement>, text: &mut String) -> bool {
        let notify = |_: &str, _: &str| {};
        let status = Status::new(String::new(), String::new(), Box::new(notify));
        let reached = Reached::default();
        reached.find(&self.replica.checkpoint);
        let limits =
            BatchLimits { transactions_max: self.batch_max, memory_bytes_max: MEMORY_BYTES_MAX, ..BatchLimits::NONE };
        let base = SessionPlan {
            repairs: self.repairs.then_some(RepairScope::All),
            exclusions: self.exclusions.clone(),
            ..SessionPlan::new(limits, Until::Gtid(self.source.position()))
        };
        let mut supervision = Supervision::new(self.repairs);
        for _ in 0..SESSIONS_MAX {
            let ended = self.session(&base, &supervision, (&reached, &status), interrupted.take(), text);
            let Some(session) = ended else { return true };
            let archive = self.writer.archive();
            let is_end_applied = || base.until.is_reached_by(&reached.checkpoint(), archive);
            let _ = match supervision.ended(session, &is_end_applied) {
                Directive::Continue(Said::Nothing) => Ok(()),
                Directive::Continue(Said::Error(message)) => writeln!(text, "  says: {message}"),
                Directive::Continue(Said::Note(message)) => writeln!(text, "  notes: {message}"),
                Directive::Retry { error, .. } => writeln!(text, "  waits: {error}"),
                Directive::End { .. } | Directive::EndWithIntake => return false,
                Directive::Stop(error) => {
                    let _ = writeln!(text, "stops: {error}");
                    return false;
                }
            };
        }
        let _ = writeln!(text, "more than {SESSIONS_MAX} sessions");
        false
    }

    /// One session. `None`: the process was killed.
    fn session(
        &mut self,
        base: &SessionPlan,
        supervision: &Supervision,
        (reached, status): (&Reached, &Status),
        interrupted: Option<InterruptedStatement>,
        text: &mut String,
    ) -> Option<Session> {
        let archive = self.writer.archive().clone();
        let stop = AtomicBool::new(false);
        let mut plan = supervision.next_plan(base);
        let mut is_repairing = false;
        let from = self.replica.checkpoint.clone();
        if let Some(note) = self.replica.note.clone() {
            let exclusions = &base.exclusions;
            let settling = Settling {
                archive: &archive,
                interrupted,
                exclusions,
                events: spate_schedule::EventStates::default(),
                reached,
                status,
                stop: &stop,
            };
            match settle(settling, &mut self.replica, &note, &from, &|| true) {
                Ok(Settled::Done(_)) => drop(writeln!(text, "settled: it was done")),
                Ok(Settled::NotDone) => drop(writeln!(text, "settled: it was not done")),
                Ok(Settled::Repair(seqno)) => {
                    let _ = writeln!(text, "settled: rows up to {seqno} are repaired");
                    plan = plan.repairing(seqno);
                    is_repairing = true;
                }
                Ok(Settled::RunEnded) => drop(writeln!(text, "settled: the run ended")),
                Err(error) => {
                    let report =
                        SessionReport { result: Err(error.into()), last_handed: 0, last_applied: 0, in_doubt: 0 };
                    return Some(Session {
                        report,
                        one_by_one: plan.one_by_one,
                        is_alone: plan.limits.transactions_max == 1,
                        repairs: false,
                        applied_seqno: reached.seqno(),
                    });
                }
            }
        }
        let from = self.replica.checkpoint.clone();
        let reader = archive.reader(&from.seek(), ReadOptions::default()).unwrap();
        let shared = std::cell::RefCell::new(FakeWorker::new(
            &mut self.replica,
            &mut self.interruptions,
            &self.refused,
            &plan,
            reached,
            text,
        ));
        let mut builder = BatchBuilder::new();
        if plan.one_by_one {
            builder.never_fold();
        }
        let given = Gathering { archive: &archive, plan: &plan, status, stop: &stop, uneven: None };
        let gathered = Gatherer::new(given, builder, FakeDefinitions(&shared), FakeDispatch(&shared), from).run(reader);
        let worker = shared.into_inner();
        if worker.is_crashed {
            return None;
        }
        let (last_handed, last_applied) = (worker.last_handed, worker.last_applied);
        let result = match (worker.failed, gathered) {
            (Some(error), _) => Err(Halt::Failed(error)),
            (None, gathered) => gathered,
        };
        let report = SessionReport { result, last_handed, last_applied, in_doubt: last_handed - last_applied };
        Some(Session {
            report,
            one_by_one: plan.one_by_one,
            is_alone: plan.limits.transactions_max == 1,
            repairs: is_repairing,
            applied_seqno: reached.seqno(),
        })
    }
}

impl Runner for Incident {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Result<String, Box<dyn StdError>> {
        let mut args = command.consume_args();
        let mut key = |name: &str| args.take_key(name).map(str::to_owned);
        let (table, kept) = (key("table").unwrap_or_else(|| "t".to_owned()), key("kept"));
        let (batch, repair, skip, interrupted) = (key("batch"), key("repair"), key("skip"), key("interrupted"));
        let mut word = |name: &str| args.next_pos().map(str::to_owned).ok_or_else(|| format!("{name} is missing"));
        match command.name.as_str() {
            "insert" => self.source.insert(&table, word("id")?.parse()?, word("v")?.parse()?),
            "update" => self.source.update(&table, word("id")?.parse()?, word("v")?.parse()?),
            "delete" => self.source.delete(&table, word("id")?.parse()?),
            "rows" => {
                let (first, last, value): (i32, i32, i32) =
                    (word("from")?.parse()?, word("to")?.parse()?, word("v")?.parse()?);
                (first..=last).for_each(|id| self.source.insert(&table, id, value));
            }
            "together" => {
                self.source.insert_all(&table, word("from")?.parse()?, word("to")?.parse()?, word("v")?.parse()?);
            }
            "definition" => self.source.definition(&word("sql")?),
            "statement" => self.source.statement(&word("sql")?),
            "irrevocable" => self.source.irrevocable(&word("sql")?),
            "xa-prepare" => self.source.xa_prepare(&word("name")?, word("id")?.parse()?, word("v")?.parse()?),
            "xa-commit" => self.source.xa_commit(&word("name")?),
            "undone" => self.source.undone(word("id")?.parse()?, word("v")?.parse()?),
            "restart" => self.source.restart(),
            "options" => {
                self.batch_max = batch.map_or(Ok(self.batch_max), |batch| batch.parse())?;
                self.repairs |= repair.is_some();
                self.exclusions.gtids.extend(skip.map(|gtid| gtid.parse::<Gtid>()).transpose()?);
                self.interrupted = match interrupted.as_deref() {
                    Some("done") => Some(InterruptedStatement::Done),
                    Some("repeat") => Some(InterruptedStatement::Repeat),
                    _ => None,
                };
            }
            "replica" => {
                let (what, id): (String, i32) = (word("what")?, word("id")?.parse()?);
                match what.as_str() {
                    "insert" => self.replica.put(&table, id, word("v")?.parse()?),
                    _ => self.replica.remove(&table, id),
                }
            }
            "crash" | "lose" => {
                let is_crash = command.name == "crash";
                let (point, seqno) = (word("point")?, word("seqno")?.parse()?);
                self.interruptions.push(Interruption { point, seqno, is_crash, is_kept: kept.is_none() });
            }
            "refuse" => self.refused.push(word("text")?),
            "run" => {
                args.reject_next()?;
                return Ok(Incident::run(self));
            }
            other => return Err(format!("unknown command: {other}").into()),
        }
        args.reject_next()?;
        Ok(String::new())
    }
}

/// A server's refusal.
fn refusal(code: u16, message: &str) -> spate_connection::Error {
    let error =
        spate_connection::ServerError { code, sql_state: String::new(), message: message.to_owned(), statement: 0 };
    spate_connection::Error::Server { peer: spate_connection::Peer::new("replica", "fake"), error }
}

/// A connection that is gone.
fn lost() -> Error {
    let peer = spate_connection::Peer::new("replica", "fake");
    Error::Wire(spate_connection::Error::Lost { peer, error: std::io::ErrorKind::BrokenPipe.into() })
}

#[test]
fn incidents_end_as_golden_scripts_say() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/incidents");
    let mut scripts: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 28, "{} scripts", scripts.len());
    for script in &scripts {
        goldenscript::run(&mut Incident::new(), script).unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}
