//! One run of the pipeline over one set of connections, from the checkpoint to the first failure or the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use spate_archive::{Archive, ReadOptions};

use super::gather::{GatherEnd, Gatherer, Gathering};
use super::sessions::{Ends, SILENCE_MAX, SessionMaker, Sessions};
use crate::concurrent::{Appliers, Encoder, Executor, Front, Hand, LockWaits, Pool, Tuner};
use crate::coordinator::{Beside, Coordinator};
use crate::definitions::ReplicaDefinitions;
use crate::files::Files;
use crate::found::Found;
use crate::halt::{self, Halt};
use crate::hold::{self, HoldState};
use crate::lanes::Crew;
use crate::pipeline::Pair;
use crate::plan::{PipelineWhen, PrefetchWhen, SessionPlan};
use crate::prefetch::{Prefetching, QUERIES_MAX, READERS, Reader};
use crate::progress::Progress;
use crate::report::Report;
use crate::stage::{join, spawn};
use crate::worker::{Employment, Tools, Worker};
use spate_connection::Connection;
use spate_replica::Result;
use spate_replica::applier_lock::{ApplierLock, Role};
use spate_replica::catalog::Catalog;
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::choice::DialectChoice;
use spate_replica::exclusions::Exclusions;
use spate_replica::journal::{self, Note};
use spate_replica::others::{Others, OwnDefinitions};
use spate_replica::own_schema;
use spate_replica::privileges;
use spate_replica::reached::Reached;
use spate_replica::sharding;
use spate_replica::spread;
use spate_replica::status::Status;

/// How a session went.
pub struct SessionReport {
    /// Why it ended.
    pub result: halt::Result<GatherEnd>,
    /// The last transaction that it had on its way.
    pub last_handed: u64,
    /// The last transaction that it committed.
    pub last_applied: u64,
    /// How many transactions were on their way and not committed.
    pub in_doubt: u64,
}

/// The connection that applies, logged in and set up, and the guard, which holds the lock.
pub struct Prepared {
    /// Applies.
    pub connection: Connection,
    /// Executes nothing of the source. To be dropped after `connection`.
    pub(crate) guard: Connection,
    pub(crate) lock: ApplierLock,
    /// Where the replica is; `None` if nothing was ever applied to it.
    pub checkpoint: Option<Checkpoint>,
    /// The note of an earlier session. `None`: there is none, or it is settled.
    pub note: Option<Note>,
    /// Up to this transaction, changes that cannot be rolled back may be half done. `None`: none are.
    pub repair_until: Option<u64>,
    /// How row changes may be written.
    pub(crate) choice: DialectChoice,
}

/// Connects the applier, takes the lock, and reads the checkpoint and the note of an earlier session.
/// `needs_silence`: some statements must be kept out of the replica's binlog.
///
/// # Errors
/// [`spate_replica::Error::Locked`], a missing privilege, or any error of the connection.
pub fn prepare_replica(maker: SessionMaker<'_>, needs_silence: bool) -> Result<Prepared> {
    let mut guard = maker.connect_with_timeout()?;
    spate_replica::known_servers::check_version(&guard)?;
    let choice = privileges::check(&mut guard, maker.dialect)?;
    maker.set_up(&mut guard)?;
    if needs_silence {
        maker.check_silence(&mut guard)?;
    }
    own_schema::create(&mut guard)?;
    let lock = ApplierLock::take(&mut guard)?;
    own_schema::upgrade(&mut guard)?;
    let mut connection = maker.connect_with_timeout()?;
    maker.set_up(&mut connection)?;
    lock.begin(Role::Main, &mut connection, &mut guard)?;
    let checkpoint = checkpoint::read(&mut connection)?;
    let note = journal::read(&mut connection)?;
    // Its statements may take any time; the watching connection finds out whether the replica is there.
    connection.set_read_timeout(None)?;
    Ok(Prepared { connection, guard, lock, checkpoint, note, repair_until: None, choice })
}

/// What a session works with.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// Makes connections to the replica.
    pub maker: SessionMaker<'a>,
    /// Where transactions are read.
    pub archive: &'a Archive,
    /// How far the replica has come.
    pub reached: &'a Reached,
    /// Is told what happens.
    pub status: &'a Status,
    /// Set when the process is to end.
    pub stop: &'a AtomicBool,
}

/// Runs the stages until the first of them ends, and waits for all.
pub fn run(given: Surroundings<'_>, prepared: Prepared, plan: &SessionPlan) -> SessionReport {
    let progress = Progress::new(given.reached);
    let result = run_stages(given, prepared, plan, &progress);
    given.status.timeline().clear();
    SessionReport {
        result,
        last_handed: progress.last_handed(),
        last_applied: progress.last_applied(),
        in_doubt: progress.in_doubt(),
    }
}

fn run_stages(
    given: Surroundings<'_>,
    prepared: Prepared,
    plan: &SessionPlan,
    progress: &Progress<'_>,
) -> halt::Result<GatherEnd> {
    let Surroundings { maker, archive, status, stop, .. } = given;
    let Prepared { mut connection, guard: mut watching, lock, checkpoint, choice, .. } = prepared;
    let from = checkpoint.unwrap_or_default();
    given.reached.begin_session();
    connection.set_read_timeout(Some(SILENCE_MAX))?;
    let spread = spread::read(&mut connection)?;
    // Those that the checkpoint covers do not come any more.
    let ahead = spread::beyond(&spread, &from.gtid_position);
    let found = Found::ask(&mut connection, maker.keeps_gtids, !ahead.is_empty())?;
    let bytes_max = plan.limits.memory_bytes_max;
    // Where a batch is taken apart, or repaired, one applies all.
    let is_usual = !plan.one_by_one && !plan.is_one_batch;
    let sharding = plan.sharding.as_ref().filter(|_| is_usual);
    let is_pipelined = is_usual && plan.parallel.is_none() && sharding.is_none() && may_pipeline(plan, &found, maker);
    let limits = match sharding {
        Some(sharding) => plan.limits.shared(sharding.spread_max),
        None if is_pipelined => plan.limits.in_turn(),
        None => plan.limits,
    };
    let plan =
        &SessionPlan { exclusions: Exclusions { applied: spread, ..plan.exclusions.clone() }, limits, ..plan.clone() };
    let gtids = found.gtids(plan, connection.server_version().vendor);
    connection.set_read_timeout(None)?;
    wait_for_place(archive, &from, stop);
    let reader = archive.reader(&from.seek(), ReadOptions::default())?;
    let mut asking = maker.connect()?;
    let uneven = sharding::read_uneven(&mut connection, &from)?;
    if let Some(uneven) = &uneven {
        let message =
            format!("{} appliers were interrupted at different positions: making them even first", uneven.appliers());
        status.note("applier", &message);
    }
    let own_definitions = OwnDefinitions::default();
    own_definitions.count([&mut connection])?;
    let others = Others::begin(&mut asking, &own_definitions)?;
    let ends = Ends::new([connection.shutdown_handle()?, asking.shutdown_handle()?]);
    let watching_end = watching.shutdown_handle()?;
    let (hold, over, is_applied) = (HoldState::default(), AtomicBool::new(false), AtomicBool::new(false));
    let parallel = plan.parallel.filter(|_| is_usual);
    let pool = parallel.map(|parallel| Pool::new(&parallel, bytes_max, progress, status, &over));
    let when = if plan.one_by_one || plan.parallel.is_some() || sharding.is_some() {
        PrefetchWhen::Never
    } else {
        plan.prefetch
    };
    let prefetching = Prefetching::new(when, status);
    let hire = |sharding| Crew::hire(sharding, bytes_max, (maker, &ends), (progress, status), &over);
    let crew = sharding.map(hire).transpose()?;
    let pair = (is_pipelined && uneven.is_none()).then(|| Pair::new(progress, &over));
    let (mut beside, mut executors) = (None::<Box<dyn Beside + Send + '_>>, Vec::<Hand<'_>>::new());
    if let (Some(pool), Some(parallel)) = (&pool, parallel) {
        let mut keeper = maker.open()?;
        ends.add(&keeper)?;
        ApplierLock::announce("keeper", &mut keeper)?;
        // It may have nothing to do for hours, and locks nothing meanwhile.
        keeper.execute(b"SET SESSION wait_timeout=28800")?;
        spread::make_rows(&mut keeper, parallel.connections())?;
        let hand = |number| Hand {
            number,
            maker,
            ends: &ends,
            may_read_committed: found.logging.may_read_committed,
            pool,
            encoder: Encoder::new(status, found.max_allowed_packet),
            gtids,
            keeps_order: parallel.keeps_order,
        };
        executors = (0..parallel.connections()).map(hand).collect();
        let front = Front::new(pool, progress, status, parallel, choice.clone(), keeper, ahead);
        beside = Some(Box::new(front));
    }
    let files = archive.dir();
    let tools = Tools { plan, maker, ends: &ends, lock: &lock, found: &found, choice: &choice, files, status };
    let mut workers = Vec::new();
    if let Some(crew) = &crew {
        let (divider, own) = crew.workers(tools)?;
        beside = Some(Box::new(divider));
        workers = own;
    }
    let mut in_turn = None;
    if let Some(pair) = &pair {
        let (alternator, own) = pair.workers(tools)?;
        beside = Some(Box::new(alternator));
        in_turn = Some(own);
    }
    let (coordinator, lane) = Coordinator::new(progress, &hold, &over, beside);
    let mut builder = found.builder(plan, &others);
    let fold_helpers = builder.fold_beside(if is_usual && plan.parallel.is_none() { plan.fold_helpers } else { 0 });
    let replica = ReplicaDefinitions { catalog: Catalog::new(asking), others, choice: choice.clone() };
    let gathering = Gathering { archive, plan, status, stop: &over, uneven: uneven.as_ref() };
    let gatherer = Gatherer::new(gathering, builder, replica, coordinator, from.clone());
    let (lookups_in, lookups) = bounded(QUERIES_MAX);
    let worker = Worker::new(Employment {
        lane,
        plan,
        found: found.clone(),
        from,
        choice: choice.clone(),
        maker,
        sessions: Sessions::new(maker, connection, lock.clone(), &ends),
        files: Files::in_directory(archive.dir().to_path_buf()),
        own_definitions: &own_definitions,
        gtids,
        prefetch: prefetching.as_ref().map(|prefetching| (prefetching, lookups_in)),
        report: Report::Whole(progress),
        status,
    });
    thread::scope(|scope| {
        let gathering = spawn(scope, "gather", move || gatherer.run(reader));
        for helper in fold_helpers {
            spawn(scope, "fold", move || helper.run());
        }
        let working = worker.start(scope);
        for prefetching in prefetching.iter().flat_map(|prefetching| std::iter::repeat_n(prefetching, READERS)) {
            let reader = Reader { maker, ends: &ends, lookups: lookups.clone(), prefetching };
            spawn(scope, "prefetch", move || reader.run());
        }
        let holding = spawn(scope, "hold", || {
            let watched = hold::watch(&mut watching, &hold, progress, status, &is_applied);
            if watched.is_err() && !is_applied.load(Ordering::Acquire) {
                // The others may wait for answers that never come.
                over.store(true, Ordering::Release);
                ends.end();
                return watched;
            }
            Ok(())
        });
        let forwarding = spawn(scope, "stop", || {
            if forward_stop(stop, &over, &is_applied) {
                ends.end();
            }
        });
        let mut pooled = vec![];
        for hand in executors {
            pooled.push(spawn(scope, "apply", move || Executor::new(hand).run()));
        }
        if let Some(pool) = pool.as_ref().filter(|_| parallel.is_some_and(|parallel| parallel.keeps_order)) {
            pooled.push(spawn(scope, "locks", move || LockWaits { maker, pool }.run()));
        }
        if let Some(pool) =
            pool.as_ref().filter(|_| parallel.is_some_and(|parallel| parallel.appliers == Appliers::Auto))
        {
            pooled.push(spawn(scope, "tuning", move || Tuner { pool, status }.run()));
        }
        if let Some(crew) = &crew {
            pooled.extend(crew.start(workers, scope));
        }
        if let (Some(pair), Some(workers)) = (&pair, in_turn) {
            pooled.extend(pair.start(workers, scope));
        }
        let (applied, preparing) = working.apply();
        // What the worker has failed at ends the gathering stage, and that the pool.
        over.store(true, Ordering::Release);
        pooled.into_iter().for_each(join);
        let failed = pool.as_ref().and_then(Pool::take_error).or_else(|| crew.as_ref()?.board().take_error());
        let failed = failed.or_else(|| pair.as_ref()?.turns().take_error());
        let applied = failed.map_or(applied, Err);
        is_applied.store(true, Ordering::Release);
        over.store(true, Ordering::Release);
        prefetching.iter().for_each(Prefetching::end);
        watching_end.shutdown();
        holding.thread().unpark();
        forwarding.thread().unpark();
        let gathered = join(gathering);
        let prepared = preparing.join();
        let held = join(holding);
        join(forwarding);
        outcome(applied, held, prepared, gathered, stop)
    })
}

/// True if two connections may apply batches in turn: they read committed rows, repair none, and do not say which server of a ring a change is from.
fn may_pipeline(plan: &SessionPlan, found: &Found, maker: SessionMaker<'_>) -> bool {
    let is_in_ring = plan.exclusions.break_ring() && !maker.without_binlog;
    plan.pipeline != PipelineWhen::Never && plan.repairs.is_none() && found.logging.may_read_committed && !is_in_ring
}

/// Waits for a moment until the archive reaches the checkpoint's place, where a source without GTIDs is followed: the intake may be about to fetch
/// what an earlier run had applied and not kept. If it does not come, the reader says so.
fn wait_for_place(archive: &Archive, from: &Checkpoint, stop: &AtomicBool) {
    const PATIENCE: Duration = Duration::from_secs(10);
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let Some((file, position)) = from.place_without_gtid() else { return };
    let begun = Instant::now();
    let is_short = || {
        let end = archive.tail().received();
        *end.source_file == *file && end.source_position < position
    };
    while is_short() && begun.elapsed() < PATIENCE && !stop.load(Ordering::Acquire) {
        thread::sleep(LOOK_EVERY);
    }
}

/// How the session went, as its stages tell it.
fn outcome(
    applied: Result<()>,
    held: Result<()>,
    prepared: halt::Result<()>,
    gathered: halt::Result<GatherEnd>,
    stop: &AtomicBool,
) -> halt::Result<GatherEnd> {
    // The applier's own error first: the others only noticed that it was gone. But if its connection was ended by the one
    // that watches, that one knows why.
    match (applied, held) {
        (Err(error), Ok(())) => return Err(error.into()),
        (Err(error), Err(cause)) => return Err(if error.is_transient() { cause } else { error }.into()),
        (Ok(()), held) => held?,
    }
    match prepared {
        // The gathering stage knows why.
        Err(Halt::StageEnded) => {}
        other => other?,
    }
    let end = match gathered {
        Err(Halt::StageEnded) if stop.load(Ordering::Acquire) => GatherEnd::Stopped,
        other => other?,
    };
    Ok(end)
}

/// Makes the session end when the process is told to, or a stage has failed. True if a statement does not let it: what it has done is rolled back then, or
/// found out by the next start, as after a crash.
fn forward_stop(stop: &AtomicBool, over: &AtomicBool, is_applied: &AtomicBool) -> bool {
    const STOP_CHECK: Duration = Duration::from_millis(50);
    /// A statement may wait for a lock for as long as innodb_lock_wait_timeout, and nobody waits for that: supervisors kill.
    const STATEMENT_GRACE: Duration = Duration::from_secs(10);
    let mut deadline = None;
    while !is_applied.load(Ordering::Acquire) {
        if stop.load(Ordering::Acquire) {
            over.store(true, Ordering::Release);
        }
        // Also if one of several appliers has failed, and another waits.
        if over.load(Ordering::Acquire)
            && *deadline.get_or_insert_with(|| Instant::now() + STATEMENT_GRACE) <= Instant::now()
        {
            return true;
        }
        thread::park_timeout(STOP_CHECK);
    }
    false
}
