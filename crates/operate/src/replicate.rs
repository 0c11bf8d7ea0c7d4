//! The whole: intake and pipeline side by side, and the supervisor that begins the pipeline again after a failure.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use spate_archive::{Archive, Retention, SyncPolicy, WriterOptions, stopping_point};
use spate_binlog::GtidPosition;
use spate_schedule::Surprise;

use crate::check::{self, CheckOptions, Finding, Level, Place};
use crate::narrowing::{Narrowing, Pace};
use spate_apply::gather::GatherEnd;
use spate_apply::limits::BatchLimits;
use spate_apply::repair::RepairScope;
use spate_apply::session::{self, Prepared, SessionPlan, SessionReport};
use spate_apply::sessions::SessionMaker;
use spate_apply::settle::{Settling, settle};
use spate_connection::Connection;
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_receive::intake::{Intake, IntakeOptions, Interrupt};
use spate_receive::patience::{connect_patiently, open_archive};
use spate_receive::retention::Retaining;
use spate_receive::source::{SourcePlace, current_place, resolve_start};
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::choice::WantedDialect;
use spate_replica::exclusions::Exclusions;
use spate_replica::journal::InterruptedStatement;
use spate_replica::lock_holders::{self, LockWaits};
use spate_replica::records;
use spate_replica::status::Status;
use spate_replica::until::{Start, Until};
use spate_replica::{Error, Result};

/// How to replicate.
#[derive(Debug, Clone)]
pub struct ReplicateOptions {
    /// How to receive.
    pub intake: IntakeOptions,
    /// The replica.
    pub replica: Endpoint,
    /// The archive's directory.
    pub archive_dir: PathBuf,
    /// When the archive is made durable.
    pub sync: SyncPolicy,
    /// Where to begin on a replica without a checkpoint.
    pub start: Option<Start>,
    /// Where to end.
    pub until: Until,
    /// Bounds of a batch.
    pub limits: BatchLimits,
    /// Keep what is applied out of the replica's own binlog.
    pub without_replica_binlog: bool,
    /// What became of a statement during which an earlier run was interrupted.
    pub interrupted: Option<InterruptedStatement>,
    /// What is not applied.
    pub exclusions: Exclusions,
    /// How row changes are written.
    pub dialect: WantedDialect,
    /// What to do with a row change that does not fit the replica's rows.
    pub on_conflict: OnConflict,
    /// What to keep of the archive beyond what is not applied yet; `None` keeps all.
    pub retention: Option<Retention>,
}

/// What to do with a row change that does not fit the replica's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Stop there, and say which.
    #[default]
    Stop,
    /// Make the row what the source says.
    Repair,
}

impl ReplicateOptions {
    fn session_maker(&self) -> SessionMaker<'_> {
        SessionMaker { replica: &self.replica, without_binlog: self.without_replica_binlog, dialect: self.dialect }
    }
}

/// Replicates until stopped or until [`ReplicateOptions::until`].
///
/// # Errors
/// A definite error, which says what to do.
pub fn replicate(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<()> {
    let until = resolve_until(options, status, stop)?;
    let (prepared, checkpoint) = begin_patiently(options, status, stop)?;
    status.applied(&checkpoint, None);
    say_what_is_behind(&options.exclusions, &checkpoint, status);
    let writer_options = WriterOptions {
        sync: options.sync,
        start_position: Some(checkpoint.gtid_position.clone()),
        ..WriterOptions::default()
    };
    let writer = open_archive(&options.archive_dir, &writer_options, status, stop)?;
    let archive = writer.archive().clone();
    status.archive(archive.clone());
    let over = AtomicBool::new(false);
    let interrupt = Interrupt::default();
    let retention = options.retention.map(|retention| Retaining::of_applied(retention, status));
    let start_place = checkpoint.place_without_gtid();
    let intake_options = IntakeOptions { start_place, ..options.intake.clone() };
    let intake =
        Intake { options: &intake_options, writer, status, stop: &over, until: None, retention, interrupt: &interrupt };
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let result = intake.run();
            result.inspect_err(|error| status.intake(format!("stopped: {error}")))
        });
        let applied = supervise(
            options,
            prepared,
            &archive,
            &until,
            status,
            &|| stop.load(Ordering::Acquire) || receiving.is_finished() && receiving_failed_for_good(status),
            stop,
        );
        if applied.as_ref().is_err_and(|error| !matches!(error, Error::StageEnded)) {
            settle_before_leaving(options, &archive, status, stop);
        }
        over.store(true, Ordering::Release);
        interrupt.now();
        let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        say_what_did_not_come(&options.exclusions, status);
        match (applied, received) {
            (Err(Error::StageEnded), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
            (Ok(()), _) if status.has_reached_end() => Ok(()),
            (Ok(()), received) => received,
        }
    })
}

/// With an intake that ended for good, what is in the archive is still applied; then that is the end.
fn receiving_failed_for_good(status: &Status) -> bool {
    let report = status.report();
    report.lag_transactions == 0
}

/// Looks at both ends. What is not good is said once; what keeps Spate from working is an error.
fn check_both(connection: &mut Connection, options: &ReplicateOptions, status: &Status) -> Result<()> {
    let what = CheckOptions {
        source: options.intake.source.clone(),
        replica: options.replica.clone(),
        archive_dir: Some(options.archive_dir.clone()),
        server_id: Some(options.intake.server_id),
        without_replica_binlog: options.without_replica_binlog,
        dialect: options.dialect,
        repairs: options.on_conflict == OnConflict::Repair,
        is_ring: !options.exclusions.server_ids.is_empty(),
    };
    let report = check::run_at_start(connection, &what)?;
    // A full disk is waited for.
    let is_waited_for = |finding: &Finding| finding.place == Place::Archive;
    let errors: Vec<String> =
        report.of_level(Level::Error).filter(|finding| !is_waited_for(finding)).map(Finding::to_string).collect();
    if !errors.is_empty() {
        return Err(Error::Check { found: errors.join("; ") });
    }
    for finding in report.findings.iter().filter(|finding| finding.level >= Level::Warning) {
        status.note("check", &finding.to_string());
    }
    Ok(())
}

/// "Caught up" means: everything that the source has now.
fn resolve_until(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<Until> {
    if options.until != Until::CaughtUp {
        return Ok(options.until.clone());
    }
    let mut connection = connect_patiently(&options.intake.source, status, stop)?;
    Ok(match current_place(&mut connection)? {
        SourcePlace { file: Some((file, position)), .. } => Until::File { file, position },
        SourcePlace { gtid_position, .. } => Until::End(gtid_position),
    })
}

/// The connection that applies, and where it begins; a replica that is not there is waited for, at the start as later.
fn begin_patiently(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<(Prepared, Checkpoint)> {
    let mut backoff = Backoff::default();
    loop {
        match begin(options, status, stop) {
            Err(error) if error.is_transient() && !stop.load(Ordering::Acquire) => {
                status.applier(format!("waiting: {error}"));
                status.error("applier", format!("{error}; trying again until it works"));
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            other => return other,
        }
    }
}

fn begin(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<(Prepared, Checkpoint)> {
    let mut prepared = prepare(options)?;
    let connection = &mut prepared.connection;
    check_both(connection, options, status)?;
    status.skipped_before(records::latest_skips(connection)?);
    let checkpoint = match prepared.checkpoint.take() {
        Some(checkpoint) => begin_again(checkpoint, options, status),
        None => begin_first(connection, options, status, stop)?,
    };
    prepared.checkpoint = Some(checkpoint.clone());
    Ok((prepared, checkpoint))
}

fn begin_first(
    connection: &mut Connection,
    options: &ReplicateOptions,
    status: &Status,
    stop: &AtomicBool,
) -> Result<Checkpoint> {
    let Some(start) = &options.start else { return Err(Error::NoStart { replica: options.replica.to_string() }) };
    let place = match start {
        Start::Gtid(position) => SourcePlace { gtid_position: position.clone(), file: None },
        _ => {
            let mut source = connect_patiently(&options.intake.source, status, stop)?;
            resolve_start(&mut source, start)?
        }
    };
    let (source_file, source_position) = place.file.unwrap_or_default();
    let gtid_position = place.gtid_position;
    let checkpoint = Checkpoint { gtid_position, source_file, source_position, ..Checkpoint::default() };
    stopping_point("before-first-checkpoint");
    checkpoint::begin(connection, &checkpoint)?;
    stopping_point("after-first-checkpoint");
    Ok(checkpoint)
}

fn begin_again(checkpoint: Checkpoint, options: &ReplicateOptions, status: &Status) -> Checkpoint {
    let position: &GtidPosition = &checkpoint.gtid_position;
    if options.start.is_some() {
        status.note(
            "applier",
            &format!("the replica has a checkpoint, GTID position '{position}': going on there, not at --start"),
        );
    }
    checkpoint
}

/// Runs session after session until the end, a stop, or a definite error.
fn supervise(
    options: &ReplicateOptions,
    first: Prepared,
    archive: &Archive,
    until: &Until,
    status: &Status,
    is_over: &dyn Fn() -> bool,
    stop: &AtomicBool,
) -> Result<()> {
    let mut narrowing = Narrowing::new(options.on_conflict == OnConflict::Repair);
    let mut expected = BTreeSet::new();
    // A transaction that cannot be applied, while those before it are: the last of these, and why.
    let mut known_error: Option<(u64, Error)> = None;
    // Why the batch that was tried last was refused.
    let mut refusal: Option<String> = None;
    let mut lock_waits = LockWaits::default();
    let mut backoff = Backoff::default();
    let mut prepared = Some(first);
    while !is_over() {
        // What a person found out is of what was interrupted before this run.
        let interrupted = options.interrupted.filter(|_| prepared.is_some());
        let settling = Settling { archive, interrupted, exclusions: &options.exclusions, status, stop };
        let ready = match prepared.take() {
            Some(prepared) => Ok(prepared),
            None => prepare(options),
        };
        let ready = match ready.and_then(|mut ready| Ok((settle(settling, &mut ready, is_over)?, ready))) {
            Ok((false, _)) => continue,
            Ok((true, ready)) => Ok(ready),
            Err(error) => Err(error),
        };
        let began = Instant::now();
        let known_good = known_error.as_ref().map(|(seqno, _)| *seqno);
        let mut plan = session_plan(options, until, &narrowing, known_good, &expected);
        let mend_until = ready.as_ref().ok().and_then(|prepared| prepared.mend_until);
        if let Some(seqno) = mend_until {
            plan = plan.mending(seqno);
        }
        let batches_before = status.report().batches;
        let report = match ready {
            Ok(prepared) => {
                status.applier(if plan.one_by_one { "applying one by one" } else { "applying" });
                session::run(options.session_maker(), prepared, archive, &plan, status, stop)
            }
            Err(error) => SessionReport { result: Err(error), last_handed: 0, last_applied: 0, in_doubt: 0 },
        };
        let refused_before = refusal.take();
        match report.result {
            Ok(GatherEnd::Stopped) => break,
            Ok(GatherEnd::Reached) => {
                let is_all = known_error.as_ref().is_none_or(|(seqno, _)| report.last_applied >= *seqno);
                match known_error.take_if(|_| is_all) {
                    Some((_, error)) => return Err(stopped(status, error)),
                    None if until.is_reached_by(&status.applied_checkpoint(), archive) => {
                        status.reached_end();
                        break;
                    }
                    None if mend_until.is_some() || narrowing.reached(report.last_applied) => {}
                    None => {
                        status.reached_end();
                        break;
                    }
                }
            }
            Err(
                error @ (Error::Batch { .. }
                | Error::RowsMissing { .. }
                | Error::Misfit { .. }
                | Error::SomeTransaction { .. }
                | Error::PacketTooLarge { .. }),
            ) => {
                refusal = Some(error.to_string());
                if narrowing.pace() == Pace::Full {
                    let how = "applying its transactions in ever smaller batches to find out which";
                    status.error("applier", format!("a batch failed ({error}): {how}"));
                }
                // Alone, too, it fails before any change of it: what is missing is not a row.
                if !narrowing.refused(report.in_doubt, report.last_handed) {
                    let grant = "GRANT BINLOG REPLAY ON *.* TO <the user of Spate>";
                    let error = match error {
                        Error::Batch { source } => Error::from(source).or_privilege("replay row changes", grant),
                        other => other,
                    };
                    return Err(stopped(status, error));
                }
            }
            // What could not be repaired keeps back nothing that comes before it.
            Err(error @ (Error::Change { .. } | Error::Transaction { .. }))
                if plan.one_by_one && !error.is_transient() =>
            {
                if plan.limits.transactions_max == 1 || !narrowing.refused(report.in_doubt, report.last_handed) {
                    return Err(stopped(status, error));
                }
            }
            Err(Error::Interrupted { gtid, place, statement }) => {
                let error = match refused_before {
                    Some(refusal) => Error::HalfDone { gtid, place, statement, refusal },
                    None => Error::Interrupted { gtid, place, statement },
                };
                return Err(stopped(status, error));
            }
            Err(Error::TurnedOut { seqno, surprise }) => {
                let applied = status.report().applied.seqno;
                expected.retain(|(known, _)| *known > applied);
                if !expected.insert((seqno, surprise)) {
                    return Err(stopped(status, Error::TurnedOut { seqno, surprise }));
                }
            }
            Err(Error::ForeignKeysChanged) => {
                status.note(
                    "applier",
                    "the replica's foreign keys are others than its definitions said: reading all anew",
                );
            }
            Err(Error::Behind { seqno, error }) => known_error = Some((seqno, *error)),
            Err(error) if error.is_transient() => {
                status.applier(format!("waiting: {error}"));
                let holders = match lock_waits.is_in_vain(&error, status.report().applied.seqno) {
                    true => {
                        // Until the statement stands alone, and is named; everything before it is applied.
                        narrowing.refused(report.in_doubt, report.last_handed);
                        let answer =
                            options.session_maker().connect().map(|mut asking| lock_holders::told(&mut asking));
                        answer.map_or_else(|_| String::new(), |told| format!(". {told}"))
                    }
                    false => String::new(),
                };
                status.error("applier", format!("{error}{holders}; trying again until it works"));
                backoff.note_success_after(began.elapsed());
                if status.report().batches > batches_before {
                    backoff = Backoff::default();
                }
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            // The intake ended for good, and says itself why.
            Err(Error::StageEnded) => return Err(Error::StageEnded),
            Err(error) => return Err(stopped(status, error)),
        }
    }
    status.applier("stopped");
    Ok(())
}

fn prepare(options: &ReplicateOptions) -> Result<Prepared> {
    session::prepare_replica(options.session_maker(), options.exclusions.break_ring())
}

/// Settles the note of a statement that the replica has refused, while what it would have changed is as it was. A person is going to change
/// something there, such as the privileges of an account, and the next start would take that for the statement's effect.
fn settle_before_leaving(options: &ReplicateOptions, archive: &Archive, status: &Status, stop: &AtomicBool) {
    let settling = Settling { archive, interrupted: None, exclusions: &options.exclusions, status, stop };
    // Why Spate stops is said already. If the replica cannot be reached, the note stays.
    let Ok(mut prepared) = prepare(options) else { return };
    if prepared.note.as_ref().is_some_and(|note| note.kind.is_of_one_transaction()) {
        let _settled = settle(settling, &mut prepared, &|| true);
    }
}

/// What the next session is to do. `known_good`: no further than this transaction.
fn session_plan(
    options: &ReplicateOptions,
    until: &Until,
    narrowing: &Narrowing,
    known_good: Option<u64>,
    expected: &BTreeSet<(u64, Surprise)>,
) -> SessionPlan {
    let (one_by_one, transactions_max, batch) = match narrowing.pace() {
        Pace::Full => (false, None, u64::MAX),
        Pace::Narrow(batch) => (false, None, batch),
        Pace::Rows { transactions, batch } => (true, Some(transactions), batch),
    };
    let batch = batch.min(options.limits.transactions_max);
    SessionPlan {
        limits: BatchLimits { transactions_max: batch, ..options.limits },
        until: until.clone(),
        one_by_one,
        repairs: (one_by_one && options.on_conflict == OnConflict::Repair).then_some(RepairScope::All),
        last_seqno: [narrowing.last_seqno(), known_good].into_iter().flatten().min(),
        is_one_batch: false,
        transactions_max,
        exclusions: options.exclusions.clone(),
        expected: expected.clone(),
    }
}

/// Tells of named transactions that the replica has behind it: somebody may believe that they were left out.
fn say_what_is_behind(exclusions: &Exclusions, checkpoint: &Checkpoint, status: &Status) {
    let left_out = status.report().skipped;
    for gtid in exclusions.behind(&checkpoint.gtid_position) {
        let was_left_out = left_out.iter().any(|skipped| skipped.gtid == gtid.to_string());
        let message = match was_left_out {
            true => format!("--skip gtid:{gtid}: it was left out by an earlier run already"),
            false => format!(
                "--skip gtid:{gtid}: there is nothing to leave out, since the replica is behind it already, at GTID position '{}' \
                 (spate.skipped there has the transactions that were left out)",
                checkpoint.gtid_position
            ),
        };
        status.note("applier", &message);
    }
}

/// Tells of named transactions that never came.
fn say_what_did_not_come(exclusions: &Exclusions, status: &Status) {
    let report = status.report();
    let reached = status.applied_checkpoint().gtid_position;
    for gtid in &exclusions.gtids {
        if report.skipped.iter().any(|skipped| skipped.gtid == gtid.to_string()) {
            continue;
        }
        let why = match reached.covers(*gtid) {
            true => "the source's binlog went past its number without it, or it had been applied before",
            false => "it had not come by the end",
        };
        status.note("applier", &format!("--skip gtid:{gtid}: nothing was left out: {why} (GTID position '{reached}')"));
    }
}

fn stopped(status: &Status, error: Error) -> Error {
    status.applier(format!("stopped: {error}"));
    status.error("applier", error.to_string());
    error
}
