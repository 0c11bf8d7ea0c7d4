//! Golden scripts: incidents over a fake archive, a fake replica and fake stages.
//!
//! Commands:
//! - `archive COUNT`: so many transactions are in the archive;
//! - `options [repair=true] [batch=N] [until=SEQNO]`;
//! - `fault KIND SEQNO [times=N]`: what happens when a session comes to the transaction; without `times`, each time. KIND is
//!   `duplicate` (the replica refuses its change; a repair makes it whole), `refused` (Spate does not apply it), `lock` (a lock wait
//!   timeout), `lost` (the connection), `late` (the connection is lost, but the commit was done), `interrupted` (a statement that was
//!   noted, and of which nothing is known), `undone` (it turns out to be rolled back), `keys` (the replica's foreign keys are
//!   others), `privilege`, `ended` (the intake has ended for good);
//! - `stop SEQNO`: somebody asks Spate to stop when it comes there;
//! - `run [sessions=N]`: sessions follow each other until the supervisor ends or stops, N at most, each in a line.
//!
//! Set UPDATE_GOLDENFILES=1 to write the expected output again.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt::Write as _;

use goldenscript::{Command, Context, Runner};
use spate_apply::gather::GatherEnd;
use spate_apply::halt::{Halt, Result as HaltResult};
use spate_apply::session::SessionReport;
use spate_connection::{Error as ConnectionError, Peer, ServerError};
use spate_replica::{Error, TransactionPlace};
use spate_schedule::Surprise;

use super::{Directive, Said, Session, Supervision};
use crate::narrowing::Pace;

const SESSIONS_MAX: u64 = 40;

struct Incident {
    archive_end: u64,
    repairs: bool,
    batch_max: u64,
    until: Option<u64>,
    applied: u64,
    /// What happens at a transaction, and how often it still does.
    faults: BTreeMap<u64, (String, u64)>,
    stop_at: Option<u64>,
    supervision: Supervision,
}

/// What a fake session did before it ended.
struct Played {
    session: Session,
    batches: Vec<(u64, u64)>,
    repaired: Vec<u64>,
}

impl Incident {
    fn new() -> Incident {
        Incident {
            archive_end: 0,
            repairs: false,
            batch_max: u64::MAX,
            until: None,
            applied: 0,
            faults: BTreeMap::new(),
            stop_at: None,
            supervision: Supervision::new(false),
        }
    }

    /// The fault of a transaction, if it has one that still happens.
    fn fault(&self, seqno: u64) -> Option<&str> {
        self.faults.get(&seqno).filter(|(_, times)| *times > 0).map(|(kind, _)| kind.as_str())
    }

    fn spend(&mut self, seqno: u64) {
        if let Some((_, times)) = self.faults.get_mut(&seqno)
            && *times != u64::MAX
        {
            *times -= 1;
        }
    }

    /// One session: gathers, folds and applies as its plan says.
    fn play(&mut self) -> Played {
        let pace = self.supervision.pace();
        let one_by_one = pace.by_rows().is_some();
        let batch = pace.batch_max().min(self.batch_max);
        let ends = [self.supervision.last_seqno(), self.until, Some(self.archive_end)];
        let mut end = ends.into_iter().flatten().min().unwrap_or(0);
        end = end.min(self.applied.saturating_add(pace.by_rows().unwrap_or(u64::MAX)));
        let (mut batches, mut repaired, mut last_handed) = (Vec::new(), Vec::new(), self.applied);
        let mut result = Ok(GatherEnd::Reached);
        let mut in_doubt = 0;
        while self.applied < end {
            let first = self.applied + 1;
            let mut last = self.applied.saturating_add(batch).min(end);
            match self.gather(first, last) {
                Ok(gathered) => last = gathered,
                Err(ended) => {
                    result = ended;
                    break;
                }
            }
            last_handed = last;
            batches.push((first, last));
            match self.apply(first, last, one_by_one, &mut repaired) {
                Ok(()) => self.applied = last,
                Err(error) => {
                    in_doubt = last - self.applied;
                    result = Err(error.into());
                    break;
                }
            }
        }
        let report = SessionReport { result, last_handed, last_applied: self.applied, in_doubt };
        let session = Session { report, one_by_one, is_alone: batch == 1, repairs: false, applied_seqno: self.applied };
        Played { session, batches, repaired }
    }

    /// The last transaction of the batch, or how gathering ends.
    fn gather(&mut self, first: u64, last: u64) -> Result<u64, HaltResult<GatherEnd>> {
        for seqno in first..=last {
            if self.stop_at == Some(seqno) {
                return Err(Ok(GatherEnd::Stopped));
            }
            let expected = self.supervision.expected.contains(&(seqno, Surprise::Undone));
            let Some(kind) = self.fault(seqno).map(str::to_owned) else { continue };
            let error = match kind.as_str() {
                "undone" if !expected => Halt::TurnedOut { seqno, surprise: Surprise::Undone },
                "undone-again" => Halt::TurnedOut { seqno, surprise: Surprise::Undone },
                "keys" => Halt::ForeignKeysChanged,
                "ended" => Halt::StageEnded,
                "refused" => {
                    let why = "it is not applied".to_owned();
                    let refused = spate_schedule::Error::Refused { what: format!("statement {seqno}"), why };
                    let error = Error::Transaction { place: place(seqno), error: refused };
                    match seqno == first {
                        true => error.into(),
                        false => Halt::Behind { seqno: seqno - 1, error },
                    }
                }
                _ => continue,
            };
            self.spend(seqno);
            return Err(Err(error));
        }
        Ok(last)
    }

    fn apply(&mut self, first: u64, last: u64, one_by_one: bool, repaired: &mut Vec<u64>) -> Result<(), Error> {
        let lost = || ConnectionError::Lost {
            peer: Peer::new("replica", "fake"),
            error: std::io::ErrorKind::BrokenPipe.into(),
        };
        let mut late = None;
        for seqno in first..=last {
            let Some(kind) = self.fault(seqno).map(str::to_owned) else { continue };
            if kind == "duplicate" && one_by_one && self.repairs {
                repaired.push(seqno);
                continue;
            }
            let server = |code: u16, message: &str| {
                let error = ServerError { code, sql_state: String::new(), message: message.to_owned(), statement: 0 };
                ConnectionError::Server { peer: Peer::new("replica", "fake"), error }
            };
            let error = match kind.as_str() {
                "duplicate" | "stubborn" => match one_by_one {
                    false => Error::Batch { source: server(1062, "Duplicate entry") },
                    true => Error::Change {
                        has_shares: false,
                        place: place(seqno),
                        change: "insert".to_owned(),
                        source: server(1062, "Duplicate entry"),
                        advice: "",
                    },
                },
                "lock" => Error::Wire(server(1205, "Lock wait timeout exceeded")),
                "lost" => Error::Wire(lost()),
                // Only what commits is committed without an answer.
                "late" => {
                    late = Some(seqno);
                    continue;
                }
                "interrupted" => {
                    let (gtid, place) = (format!("0-1-{seqno}"), format!("binlog:{seqno}"));
                    Error::Interrupted { gtid, place, statement: "ALTER".to_owned() }
                }
                "privilege" => Error::Privilege {
                    peer: "replica".to_owned(),
                    action: "alter",
                    message: "denied".to_owned(),
                    grant: "GRANT ALTER".to_owned(),
                },
                "undone" => continue,
                other => panic!("no such fault: {other}"),
            };
            self.spend(seqno);
            return Err(error);
        }
        let Some(seqno) = late else { return Ok(()) };
        self.spend(seqno);
        self.applied = last;
        Err(Error::Wire(lost()))
    }

    fn run_sessions(&mut self, sessions_max: u64) -> String {
        let mut text = String::new();
        for _ in 0..sessions_max {
            let pace = match self.supervision.pace() {
                Pace::Full => "full".to_owned(),
                Pace::Narrow(batch) => format!("batches of {batch}"),
                Pace::Rows { transactions, batch } => format!("rows of {transactions}, batches of {batch}"),
            };
            let last = self.supervision.last_seqno().map_or_else(String::new, |last| format!(", to {last}"));
            let played = self.play();
            let how = match &played.session.report.result {
                Ok(end) => format!("{end:?}").to_lowercase(),
                Err(Halt::Failed(error)) => error.to_string(),
                Err(Halt::Behind { seqno, error }) => format!("signal: apply up to {seqno}, then: {error}"),
                Err(Halt::TurnedOut { seqno, surprise }) => format!("signal: {seqno} turned out: {surprise}"),
                Err(signal) => format!("signal: {signal:?}"),
            };
            let shown = |(first, last): &(u64, u64)| format!("{first}-{last}");
            let batches: Vec<String> = match played.batches.as_slice() {
                [first, .., last] if played.batches.len() > 4 => {
                    vec![shown(first), format!("{} more", played.batches.len() - 2), shown(last)]
                }
                few => few.iter().map(shown).collect(),
            };
            let repaired = match played.repaired.len() {
                0 => String::new(),
                count => format!("; {count} repaired"),
            };
            let _ = writeln!(text, "{pace}{last}: [{}]{repaired}: {how}", batches.join(" "));
            let (archive_end, until, applied) = (self.archive_end, self.until, self.applied);
            let is_end_applied = || until.is_some_and(|until| applied >= until.min(archive_end));
            let directive = self.supervision.ended(played.session, &is_end_applied);
            let is_last = matches!(directive, Directive::End { .. } | Directive::Stop(_) | Directive::EndWithIntake);
            let _ = match directive {
                Directive::Continue(Said::Nothing) => Ok(()),
                Directive::Continue(Said::Error(message)) => writeln!(text, "  says: {message}"),
                Directive::Continue(Said::Note(message)) => writeln!(text, "  notes: {message}"),
                Directive::Retry { waits_in_vain, .. } => {
                    writeln!(text, "  waits{}", if waits_in_vain { ", and names who holds locks" } else { "" })
                }
                Directive::End { is_reached } => {
                    writeln!(text, "ends{} at {applied}", if is_reached { ", all applied," } else { "" })
                }
                Directive::EndWithIntake => writeln!(text, "ends at {applied}: the intake has ended"),
                Directive::Stop(error) => writeln!(text, "stops at {applied}: {error}"),
            };
            if is_last {
                return text;
            }
        }
        let _ = writeln!(text, "… at {}", self.applied);
        text
    }
}

fn place(seqno: u64) -> TransactionPlace {
    TransactionPlace { gtid: format!("0-1-{seqno}"), file: "binlog".to_owned(), position: seqno }
}

impl Runner for Incident {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Result<String, Box<dyn StdError>> {
        let mut args = command.consume_args();
        let mut key = |name: &str| -> Result<Option<u64>, Box<dyn StdError>> {
            Ok(args.take_key(name).map(str::parse).transpose()?)
        };
        let (times, batch, until, sessions) = (key("times")?, key("batch")?, key("until")?, key("sessions")?);
        let repair = args.take_key("repair");
        let mut word = |name: &str| args.next_pos().map(str::to_owned).ok_or_else(|| format!("{name} is missing"));
        match command.name.as_str() {
            "archive" => self.archive_end = word("count")?.parse()?,
            "options" => {
                self.batch_max = batch.unwrap_or(self.batch_max);
                self.until = until.or(self.until);
                if let Some(repair) = repair {
                    self.repairs = repair == "true";
                    self.supervision = Supervision::new(self.repairs);
                }
            }
            "fault" => {
                let (kind, seqno) = (word("kind")?, word("seqno")?.parse()?);
                self.faults.insert(seqno, (kind, times.unwrap_or(u64::MAX)));
            }
            "stop" => self.stop_at = Some(word("seqno")?.parse()?),
            "run" => {
                args.reject_next()?;
                return Ok(self.run_sessions(sessions.unwrap_or(SESSIONS_MAX)));
            }
            other => return Err(format!("unknown command: {other}").into()),
        }
        args.reject_next()?;
        Ok(String::new())
    }
}

#[test]
fn incidents() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/supervision");
    let mut scripts: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 40, "{} scripts", scripts.len());
    for script in scripts {
        goldenscript::run(&mut Incident::new(), &script)
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}
