//! The whole: intake and pipeline side by side, and the supervisor that begins the pipeline again after a failure.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use spate_archive::{Archive, ReadOptions, Retention, SyncPolicy, WriterOptions, stopping_point};
use spate_binlog::GtidPosition;

use crate::ahead::{check_not_overtaken, unsuitable};
use crate::check::{self, CheckOptions, Finding, Level, Place};
use crate::gtids_fit;
use crate::rules::{self, RuleFile};
use crate::supervision::{Directive, Said, Session, Supervision};
use spate_apply::limits::BatchLimits;
use spate_apply::plan::{Parallel, PipelineWhen, PrefetchWhen, SessionPlan, Sharding};
use spate_apply::repair::RepairScope;
use spate_apply::session::{self, Prepared, SessionReport, Surroundings};
use spate_apply::sessions::SessionMaker;
use spate_apply::settle::{Settling, settle_prepared};
use spate_connection::Connection;
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_receive::intake::{Intake, IntakeOptions, Interrupt};
use spate_receive::patience::{connect_with_retry, open_archive_with_retry};
use spate_receive::retention::Purger;
use spate_receive::source::{SourcePlace, current_place, resolve_start};
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::choice::WantedDialect;
use spate_replica::exclusions::Exclusions;
use spate_replica::journal::InterruptedStatement;
use spate_replica::lock_holders;
use spate_replica::native;
use spate_replica::new_source;
use spate_replica::reached::Reached;
use spate_replica::records;
use spate_replica::status::Status;
use spate_replica::until::{Start, Until};
use spate_replica::{Error, Result};
use spate_schedule::EventStates;

/// How to replicate.
#[derive(Debug, Clone)]
pub struct ReplicateOptions {
    /// How to receive.
    pub intake: IntakeOptions,
    /// The archive's directory.
    pub archive_dir: PathBuf,
    /// When the archive is made durable.
    pub sync: SyncPolicy,
    /// Where to begin on a replica without a checkpoint.
    pub start: Option<Start>,
    /// Where to end.
    pub until: Until,
    /// What to keep of the archive beyond what is not applied yet; `None` keeps all.
    pub retention: Option<Retention>,
    /// How to apply.
    pub applying: ApplyOptions,
}

/// How to apply what is in an archive.
/// Flat, since each field is one option of the command.
#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// The replica.
    pub replica: Endpoint,
    /// Bounds of a batch.
    pub limits: BatchLimits,
    /// Keep applied changes out of the replica's own binlog.
    pub without_replica_binlog: bool,
    /// What became of a statement during which an earlier run was interrupted.
    pub interrupted: Option<InterruptedStatement>,
    /// Transactions that are left out.
    pub exclusions: Exclusions,
    /// How row changes are written.
    pub dialect: WantedDialect,
    /// Transactions stay what they are, and are applied beside each other. `None`: they become batches.
    pub parallel: Option<Parallel>,
    /// Rows are divided among appliers that commit independently of each other. `None`: one applies all.
    pub sharding: Option<Sharding>,
    /// Where the rules of that stand. `None`: there are none.
    pub rule_file: Option<RuleFile>,
    /// When a batch of rows is begun before the one before it is committed.
    pub pipeline: PipelineWhen,
    /// Threads that fold large tables beside the one that reads.
    pub fold_helpers: usize,
    /// When rows are read by other connections before they are applied.
    pub prefetch: PrefetchWhen,
    /// What to do with a row change that does not fit the replica's rows.
    pub on_conflict: OnConflict,
    /// Whether the replica is to execute the source's events: not unless it becomes what the source was.
    pub events: EventStates,
}

impl ApplyOptions {
    /// Batches of the usual kind and size, into this replica.
    pub fn new(replica: Endpoint, memory_bytes: u64) -> ApplyOptions {
        ApplyOptions {
            replica,
            limits: BatchLimits::within(memory_bytes),
            without_replica_binlog: false,
            interrupted: None,
            exclusions: Exclusions::default(),
            dialect: None,
            parallel: None,
            sharding: None,
            rule_file: None,
            pipeline: PipelineWhen::Helpful,
            fold_helpers: 0,
            prefetch: PrefetchWhen::Helpful,
            on_conflict: OnConflict::Stop,
            events: EventStates::default(),
        }
    }
}

/// What to do with a row change that does not fit the replica's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Stop there, and say which.
    #[default]
    Stop,
    /// Make the row as the source's is.
    Repair,
}

impl ApplyOptions {
    pub(crate) fn session_maker(&self) -> SessionMaker<'_> {
        SessionMaker {
            replica: &self.replica,
            without_binlog: self.without_replica_binlog,
            dialect: self.dialect,
            keeps_gtids: self.parallel.is_some(),
        }
    }
}

/// Replicates until stopped or until [`ReplicateOptions::until`].
///
/// # Errors
/// A definite error, which says what to do.
pub fn replicate(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<Ended> {
    let reached = Reached::default();
    let until = resolve_until(options, status, stop)?;
    let (prepared, checkpoint) = begin_with_retries(options, &reached, status, stop)?;
    reached.find(&checkpoint);
    status.applied(&checkpoint, None);
    note_skips_already_applied(&options.applying.exclusions, &reached, status);
    let writer_options = WriterOptions {
        sync: options.sync,
        start_position: Some(checkpoint.gtid_position.clone()),
        ..WriterOptions::default()
    };
    let writer = open_archive_with_retry(&options.archive_dir, &writer_options, status, stop)?;
    let archive = writer.archive().clone();
    status.archive(archive.clone());
    reached.find(&Checkpoint { seqno: seqno_in(&archive, &checkpoint), ..checkpoint.clone() });
    let over = AtomicBool::new(false);
    let interrupt = Interrupt::default();
    let retention = options.retention.map(|retention| Purger::of_applied(retention, &reached, status));
    let start_place = checkpoint.place_without_gtid();
    let intake_options = IntakeOptions { start_place, ..options.intake.clone() };
    let intake =
        Intake { options: &intake_options, writer, status, stop: &over, until: None, retention, interrupt: &interrupt };
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let result = intake.run();
            result.inspect_err(|error| status.intake(format!("stopped: {error}")))
        });
        let given = Surroundings {
            maker: options.applying.session_maker(),
            archive: &archive,
            reached: &reached,
            status,
            stop,
        };
        // With an intake that has ended, everything in the archive is still applied.
        let is_drained = || archive.tail().received().seqno <= reached.seqno();
        let is_over = || stop.load(Ordering::Acquire) || receiving.is_finished() && is_drained();
        let applied = supervise(&options.applying, given, prepared, &until, &is_over);
        if applied.is_err() {
            settle_before_leaving(&options.applying, given);
        }
        over.store(true, Ordering::Release);
        interrupt.now();
        let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        note_skips_that_never_came(&options.applying.exclusions, &reached, status);
        match (applied?, received) {
            (Supervised::Reached, _) => Ok(Ended::Reached),
            (Supervised::Stopped, received) => received.map(|()| Ended::Stopped),
            (Supervised::IntakeEnded, received) => received.and(Err(Error::Unexplained)),
        }
    })
}

/// Applies what an archive holds to a replica, without a source, from `begin` (or where an earlier run has come to) to `until`. Ends at the
/// archive's end, too.
///
/// # Errors
/// A definite error, which says what to do.
pub fn apply_archive(
    options: &ApplyOptions,
    archive: &Archive,
    begin: &Checkpoint,
    until: &Until,
    status: &Status,
    stop: &AtomicBool,
) -> Result<Ended> {
    let mut prepared = prepare(options)?;
    if prepared.checkpoint.is_none() {
        checkpoint::begin(&mut prepared.connection, begin)?;
        prepared.checkpoint = Some(begin.clone());
    }
    apply_prepared(options, archive, prepared, until, status, stop)
}

/// Applies the rest of an archive to the replica that it is of, without its source, as far as `end`.
///
/// # Errors
/// [`Error::Unsuitable`] if Spate has not applied to this replica, or it is not where Spate left it; any other definite error, which says what to do.
pub fn apply_rest(
    options: &ApplyOptions,
    archive: &Archive,
    end: &GtidPosition,
    status: &Status,
    stop: &AtomicBool,
) -> Result<Ended> {
    let mut prepared = prepare(options)?;
    let connection = &mut prepared.connection;
    let Some(checkpoint) = &prepared.checkpoint else {
        let why = "it has no checkpoint: Spate does not apply to it, so the archive is not its own";
        return Err(unsuitable(connection, why.to_owned()));
    };
    check_not_overtaken(connection, checkpoint)?;
    gtids_fit::check(connection, options, checkpoint, status)?;
    apply_prepared(options, archive, prepared, &Until::End(end.clone()), status, stop)
}

/// Applies what an archive holds behind the checkpoint of a replica.
fn apply_prepared(
    options: &ApplyOptions,
    archive: &Archive,
    prepared: Prepared,
    until: &Until,
    status: &Status,
    stop: &AtomicBool,
) -> Result<Ended> {
    let reached = Reached::default();
    let checkpoint = prepared.checkpoint.clone().unwrap_or_default();
    status.applied(&checkpoint, None);
    status.archive(archive.clone());
    reached.find(&Checkpoint { seqno: seqno_in(archive, &checkpoint), ..checkpoint });
    let given = Surroundings { maker: options.session_maker(), archive, reached: &reached, status, stop };
    let is_drained = || archive.tail().received().seqno <= reached.seqno();
    let is_over = || stop.load(Ordering::Acquire) || is_drained();
    match supervise(options, given, prepared, until, &is_over)? {
        Supervised::Stopped if stop.load(Ordering::Acquire) => Ok(Ended::Stopped),
        _ => Ok(Ended::Reached),
    }
}

/// Looks at both ends. Warnings are told once; a finding that keeps Spate from working is an error.
fn check_both(connection: &mut Connection, options: &ReplicateOptions, status: &Status) -> Result<()> {
    let what = CheckOptions {
        source: options.intake.source.clone(),
        replica: options.applying.replica.clone(),
        archive_dir: Some(options.archive_dir.clone()),
        server_id: Some(options.intake.server_id),
        without_replica_binlog: options.applying.without_replica_binlog,
        dialect: options.applying.dialect,
        repairs: options.applying.on_conflict == OnConflict::Repair,
        is_ring: !options.applying.exclusions.server_ids.is_empty(),
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
    let mut connection = connect_with_retry(&options.intake.source, status, stop)?;
    Ok(match current_place(&mut connection)? {
        SourcePlace { file: Some((file, position)), .. } => Until::File { file, position },
        SourcePlace { gtid_position, .. } => Until::End(gtid_position),
    })
}

/// Seqno of the last transaction of this archive before a checkpoint, whose own may be another archive's. An archive that lacks the place
/// ends the first session, which says so.
fn seqno_in(archive: &Archive, checkpoint: &Checkpoint) -> u64 {
    let first_after = || {
        let mut reader = archive.reader(&checkpoint.seek(), ReadOptions::default())?;
        let first = reader.next_event()?.map(|event| event.seqno.saturating_sub(1));
        Ok::<u64, spate_archive::Error>(first.unwrap_or_else(|| reader.seqno()))
    };
    first_after().unwrap_or(0)
}

/// The connection that applies, and where it begins; a replica that is not there is waited for, at the start as later.
fn begin_with_retries(
    options: &ReplicateOptions,
    reached: &Reached,
    status: &Status,
    stop: &AtomicBool,
) -> Result<(Prepared, Checkpoint)> {
    let mut backoff = Backoff::default();
    loop {
        match begin(options, reached, status, stop) {
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

fn begin(
    options: &ReplicateOptions,
    reached: &Reached,
    status: &Status,
    stop: &AtomicBool,
) -> Result<(Prepared, Checkpoint)> {
    let mut prepared = prepare(&options.applying)?;
    let connection = &mut prepared.connection;
    check_both(connection, options, status)?;
    if let (Some(sharding), Some(file)) = (&options.applying.sharding, &options.applying.rule_file) {
        rules::check(connection, &file.path, &sharding.rules.now())?;
    }
    for gtid in records::skipped_of(connection, &options.applying.exclusions.gtids)? {
        reached.leave_out(gtid);
    }
    status.skipped_before(records::latest_skips(connection)?);
    let checkpoint = match prepared.checkpoint.take() {
        Some(checkpoint) => {
            check_not_overtaken(connection, &checkpoint)?;
            gtids_fit::check(connection, &options.applying, &checkpoint, status)?;
            begin_again(checkpoint, options, status)
        }
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
    let Some(start) = &options.start else {
        return Err(Error::NoStart { replica: options.applying.replica.to_string() });
    };
    let place = match start {
        Start::Gtid(position) => SourcePlace { gtid_position: position.clone(), file: None },
        _ => {
            let mut source = connect_with_retry(&options.intake.source, status, stop)?;
            resolve_start(&mut source, start)?
        }
    };
    let (source_file, source_position) = place.file.unwrap_or_default();
    let gtid_position = place.gtid_position;
    let checkpoint = Checkpoint { gtid_position, source_file, source_position, ..Checkpoint::default() };
    gtids_fit::check(connection, &options.applying, &checkpoint, status)?;
    new_source::take_away(connection)?;
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

/// How replication ended, if no error ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// [`ReplicateOptions::until`] was reached.
    Reached,
    /// Somebody asked Spate to stop.
    Stopped,
}

/// How supervision ended, if no error ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Supervised {
    /// The end was reached.
    Reached,
    /// Somebody asked Spate to stop, or there is no more to apply after the end of the intake.
    Stopped,
    /// The intake ended, and tells the reason.
    IntakeEnded,
}

/// Runs session after session until the end, a stop, or a definite error.
fn supervise(
    options: &ApplyOptions,
    given: Surroundings<'_>,
    first: Prepared,
    until: &Until,
    is_over: &dyn Fn() -> bool,
) -> Result<Supervised> {
    let Surroundings { archive, reached, status, stop, .. } = given;
    let mut supervision = Supervision::new(options.on_conflict == OnConflict::Repair);
    let group = options.parallel.map_or(u64::MAX, |parallel| parallel.group);
    let limits = BatchLimits { transactions_max: options.limits.transactions_max.min(group), ..options.limits };
    let base = SessionPlan {
        parallel: options.parallel,
        sharding: options.sharding.clone(),
        pipeline: options.pipeline,
        fold_helpers: options.fold_helpers,
        repairs: (options.on_conflict == OnConflict::Repair).then_some(RepairScope::All),
        exclusions: options.exclusions.clone(),
        prefetch: options.prefetch,
        events: options.events,
        ..SessionPlan::new(limits, until.clone())
    };
    let mut backoff = Backoff::default();
    let mut prepared = Some(first);
    let mut ended = Supervised::Stopped;
    while !is_over() {
        // `--interrupted-statement` answers for the run before this one.
        let interrupted = options.interrupted.filter(|_| prepared.is_some());
        let settling = Settling {
            archive,
            interrupted,
            exclusions: &options.exclusions,
            events: options.events,
            reached,
            status,
            stop,
        };
        let ready = match prepared.take() {
            Some(prepared) => Ok(prepared),
            None => prepare(options),
        };
        let ready = match ready.and_then(|mut ready| Ok((settle_prepared(settling, &mut ready, is_over)?, ready))) {
            Ok((false, _)) => continue,
            Ok((true, ready)) => Ok(ready),
            Err(error) => Err(error),
        };
        let began = Instant::now();
        let batches_before = reached.batches();
        let session = run_session(given, &base, &supervision, ready);
        let is_end_applied = || until.is_reached_by(&reached.checkpoint(), archive);
        match supervision.ended(session, &is_end_applied) {
            Directive::Continue(Said::Nothing) => {}
            Directive::Continue(Said::Error(message)) => status.error("applier", message),
            Directive::Continue(Said::Note(message)) => status.note("applier", message),
            Directive::Retry { error, waits_in_vain } => {
                tell_wait(options, &error, waits_in_vain, status);
                backoff.note_success_after(began.elapsed());
                if reached.batches() > batches_before {
                    backoff = Backoff::default();
                }
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            Directive::End { is_reached } => {
                if is_reached {
                    ended = Supervised::Reached;
                }
                break;
            }
            Directive::EndWithIntake => return Ok(Supervised::IntakeEnded),
            Directive::Stop(error) => return Err(stopped(status, error)),
        }
    }
    status.applier("stopped");
    Ok(ended)
}

/// One session, as the supervision has it. `ready`: the connections, or why there are none.
fn run_session(
    given: Surroundings<'_>,
    base: &SessionPlan,
    supervision: &Supervision,
    ready: Result<Prepared>,
) -> Session {
    let mut plan = supervision.next_plan(base);
    let repair_until = ready.as_ref().ok().and_then(|prepared| prepared.repair_until);
    if let Some(seqno) = repair_until {
        plan = plan.repairing(seqno);
    }
    let report = match ready.and_then(|prepared| has_place(prepared, given.reached)) {
        Ok(prepared) => {
            given.status.applier(if plan.one_by_one { "applying one by one" } else { "applying" });
            session::run(given, prepared, &plan)
        }
        Err(error) => SessionReport { result: Err(error.into()), last_handed: 0, last_applied: 0, in_doubt: 0 },
    };
    Session {
        report,
        one_by_one: plan.one_by_one,
        is_alone: plan.limits.transactions_max == 1,
        repairs: repair_until.is_some(),
        applied_seqno: given.reached.seqno(),
    }
}

/// Fails if this process has applied something to the replica, and the replica's checkpoint is gone: it may be another server by now.
fn has_place(prepared: Prepared, reached: &Reached) -> Result<Prepared> {
    if prepared.checkpoint.is_some() || reached.seqno() == 0 {
        return Ok(prepared);
    }
    let why = format!(
        "it has no row any more, and said before: '{}'. Somebody has removed it, or the replica was made anew. Make sure what the replica holds, then \
         start again, and say where to begin (--start)",
        reached.checkpoint().gtid_position
    );
    Err(Error::Checkpoint { replica: prepared.connection.peer().to_string(), why })
}

fn tell_wait(options: &ApplyOptions, error: &Error, waits_in_vain: bool, status: &Status) {
    status.applier(format!("waiting: {error}"));
    let holders = match waits_in_vain {
        true => {
            let answer = options.session_maker().connect().map(|mut asking| lock_holders::told(&mut asking));
            answer.map_or_else(|_| String::new(), |told| format!(". {told}"))
        }
        false => String::new(),
    };
    status.error("applier", format!("{error}{holders}; trying again until it works"));
}

fn prepare(options: &ApplyOptions) -> Result<Prepared> {
    let mut prepared = session::prepare_replica(options.session_maker(), options.exclusions.break_ring())?;
    // The replica may have been restarted.
    native::stop_parked(&mut prepared.connection)?;
    Ok(prepared)
}

/// Settles the note of a statement that the replica has refused, while the objects that it names are as they were. A person is going to change
/// something there, such as the privileges of an account, and the next start would take that for the statement's effect.
fn settle_before_leaving(options: &ApplyOptions, given: Surroundings<'_>) {
    let Surroundings { archive, reached, status, stop, .. } = given;
    let settling = Settling {
        archive,
        interrupted: None,
        exclusions: &options.exclusions,
        events: options.events,
        reached,
        status,
        stop,
    };
    // Why Spate stops is said already. If the replica cannot be reached, the note stays.
    let Ok(mut prepared) = prepare(options) else { return };
    if prepared.note.as_ref().is_some_and(|note| note.kind.is_of_one_transaction()) {
        let _settled = settle_prepared(settling, &mut prepared, &|| true);
    }
}

/// Tells of named transactions that the replica has behind it: somebody may believe that they were left out.
fn note_skips_already_applied(exclusions: &Exclusions, reached: &Reached, status: &Status) {
    let checkpoint = reached.checkpoint();
    for gtid in exclusions.behind(&checkpoint.gtid_position) {
        let message = match reached.has_left_out(gtid) {
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
fn note_skips_that_never_came(exclusions: &Exclusions, reached: &Reached, status: &Status) {
    let position = reached.checkpoint().gtid_position;
    for &gtid in exclusions.gtids.iter().filter(|&&gtid| !reached.has_left_out(gtid)) {
        let why = match position.covers(gtid) {
            true => "the source's binlog went past its number without it, or it had been applied before",
            false => "it had not come by the end",
        };
        status
            .note("applier", &format!("--skip gtid:{gtid}: nothing was left out: {why} (GTID position '{position}')"));
    }
}

fn stopped(status: &Status, error: Error) -> Error {
    status.applier(format!("stopped: {error}"));
    status.error("applier", error.to_string());
    error
}
