//! One run of the pipeline over one set of connections, from the checkpoint to the first failure or the end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use spate_archive::{Archive, ReadOptions};
use spate_schedule::outdated::Outdated;
use spate_schedule::temporary::TemporaryTable;
use spate_schedule::{BatchBuilder, Surprise, TableName};

use super::account_guard::AccountGuard;
use super::apply::Applier;
use super::emit::replay::ReplayEmitter;
use super::emit::sql::SqlEmitter;
use super::files::Files;
use super::gather::{GatherEnd, Gatherer};
use super::open::Open;
use super::prepare::{Emitter, Preparer};
use super::repair::{RepairScope, Repairer};
use super::sessions::{Ends, Preparing, SILENCE_MAX, SessionMaker, Sessions};
use crate::halt::{self, Halt};
use crate::hold::{self, HoldState};
use crate::limits::BatchLimits;
use crate::progress::Progress;
use spate_connection::{Connection, Vendor};
use spate_replica::Result;
use spate_replica::applier_lock::{ApplierLock, Role};
use spate_replica::catalog::{self, Catalog};
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::choice::{Dialect, DialectChoice};
use spate_replica::dialect::Collations;
use spate_replica::exclusions::Exclusions;
use spate_replica::journal::{self, Note};
use spate_replica::others::{Others, OwnDefinitions};
use spate_replica::own_schema;
use spate_replica::privileges;
use spate_replica::status::Status;
use spate_replica::temporary;
use spate_replica::told_defaults;
use spate_replica::until::Until;

/// Prepared statements on their way to the applier: enough to keep it busy while the next is encoded.
const COMMANDS_AHEAD_MAX: usize = 8;

/// Batches that were taken from the gathering stage and are not committed: one that executes, one that is prepared.
const BATCHES_AHEAD_MAX: usize = 2;

/// How one session differs from another.
#[derive(Debug, Clone)]
pub struct SessionPlan {
    /// How large batches may become.
    pub limits: BatchLimits,
    /// Where to end.
    pub until: Until,
    /// Take batches apart to find the change that fails: one transaction a batch, one row a statement, unfolded.
    pub one_by_one: bool,
    /// Go no further than this transaction.
    pub last_seqno: Option<u64>,
    /// Transactions of which it is known what they turn out to be.
    pub expected: BTreeSet<(u64, Surprise)>,
    /// Mend the row changes that the replica refuses; only row by row.
    pub repairs: Option<RepairScope>,
    /// All up to `last_seqno` is one batch.
    pub is_one_batch: bool,
    /// End after so many transactions.
    pub transactions_max: Option<u64>,
    /// What is left out.
    pub exclusions: Exclusions,
}

impl SessionPlan {
    /// The same, up to a transaction, in one batch, row by row, with rows that cannot be rolled back made what the source says.
    pub fn mending(self, last_seqno: u64) -> SessionPlan {
        SessionPlan {
            limits: BatchLimits { transactions_max: u64::MAX, duration_max: Duration::MAX, ..self.limits },
            one_by_one: true,
            repairs: Some(self.repairs.unwrap_or(RepairScope::Irrevocable)),
            last_seqno: Some(last_seqno),
            is_one_batch: true,
            transactions_max: None,
            ..self
        }
    }
}

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
    /// What an earlier session has noted, until it is settled.
    pub note: Option<Note>,
    /// Up to this transaction, changes that cannot be rolled back may have been made by halves.
    pub mend_until: Option<u64>,
    /// How row changes may be written.
    pub(crate) choice: DialectChoice,
}

/// Connects the applier, takes the lock, and reads where the replica is, and what an earlier session was in the midst of.
/// `needs_silence`: some of what is applied must be kept out of the replica's binlog.
///
/// # Errors
/// [`Error::Locked`], a missing privilege, or any error of the connection.
pub fn prepare_replica(maker: SessionMaker<'_>, needs_silence: bool) -> Result<Prepared> {
    let mut guard = maker.connect_impatiently()?;
    spate_replica::known_servers::check_version(&guard)?;
    let choice = privileges::check(&mut guard, maker.dialect)?;
    maker.set_up(&mut guard)?;
    if needs_silence {
        maker.check_silence(&mut guard)?;
    }
    own_schema::create(&mut guard)?;
    let lock = ApplierLock::take(&mut guard)?;
    let mut connection = maker.connect_impatiently()?;
    maker.set_up(&mut connection)?;
    lock.begin(Role::Main, &mut connection, &mut guard)?;
    let checkpoint = checkpoint::read(&mut connection)?;
    let note = journal::read(&mut connection)?;
    // What it will execute may take any time; whether the replica is there, the watching connection finds out.
    connection.set_read_timeout(None)?;
    Ok(Prepared { connection, guard, lock, checkpoint, note, mend_until: None, choice })
}

/// Runs the stages until the first of them ends, and waits for all.
pub fn run(
    maker: SessionMaker<'_>,
    prepared: Prepared,
    archive: &Archive,
    plan: &SessionPlan,
    status: &Status,
    stop: &AtomicBool,
) -> SessionReport {
    let progress = Progress::default();
    let result = run_stages(maker, prepared, archive, plan, status, stop, &progress);
    SessionReport {
        result,
        last_handed: progress.last_handed(),
        last_applied: progress.last_applied(),
        in_doubt: progress.in_doubt(),
    }
}

fn run_stages(
    maker: SessionMaker<'_>,
    prepared: Prepared,
    archive: &Archive,
    plan: &SessionPlan,
    status: &Status,
    stop: &AtomicBool,
    progress: &Progress,
) -> halt::Result<GatherEnd> {
    let Prepared { mut connection, guard: mut watching, lock, checkpoint, choice, .. } = prepared;
    let checkpoint = checkpoint.unwrap_or_default();
    let vendor = connection.server_version().vendor;
    connection.set_read_timeout(Some(SILENCE_MAX))?;
    let found = Found::ask(&mut connection)?;
    connection.set_read_timeout(None)?;
    let reader = archive.reader(&checkpoint.seek(), ReadOptions::default())?;
    let mut asking = maker.connect()?;
    let own_definitions = OwnDefinitions::default();
    own_definitions.count(&mut connection)?;
    let others = Others::begin(&mut asking, &own_definitions)?;
    let ends = Ends::new([connection.shutdown_handle()?, asking.shutdown_handle()?]);
    let watching_end = watching.shutdown_handle()?;
    let catalog = Catalog::new(asking);
    let builder = found.builder(plan, &others);
    let (parts_in, parts_out) = bounded(1);
    let (hunger_in, hunger_out) = bounded(1);
    // One that drops what nobody will receive: with it go the senders of answers that others wait for.
    let (commands_in, commands_out) = mpsc::sync_channel(COMMANDS_AHEAD_MAX);
    let (tickets_in, tickets_out) = bounded(BATCHES_AHEAD_MAX);
    for _ in 0..BATCHES_AHEAD_MAX {
        let _has_room = tickets_in.try_send(());
    }
    let hold = HoldState::default();
    let over = AtomicBool::new(false);
    let is_applied = AtomicBool::new(false);
    let from = checkpoint.clone();
    let gatherer = Gatherer {
        builder,
        catalog,
        output: parts_in,
        hunger: hunger_out,
        limits: plan.limits,
        until: plan.until.clone(),
        hold: &hold,
        stop: &over,
        progress,
        last_seqno: plan.last_seqno,
        expected: plan.expected.clone(),
        archive,
        handed: Some(Open::after(checkpoint.clone())),
        is_one_batch: plan.is_one_batch,
        transactions_left: plan.transactions_max,
        exclusions: &plan.exclusions,
        choice: choice.clone(),
        status,
        others,
        open: Open::after(checkpoint),
    };
    let (one_by_one, repair_choice) = (plan.one_by_one, choice.clone());
    let preparer = Preparer {
        from,
        emitters: Box::new(move |dialect| emitter(dialect, vendor, one_by_one, maker)),
        choice,
        input: parts_out,
        hunger: hunger_in,
        tickets: tickets_out,
        output: commands_in,
        collations: found.collations,
        status,
        max_allowed_packet: found.max_allowed_packet,
        one_by_one: plan.one_by_one,
        has_temporary_copies: !found.temporary_tables.is_empty(),
        preparing: found.preparing,
        told_defaults: found.told_defaults,
        is_in_ring: plan.exclusions.break_ring() && !maker.without_binlog,
    };
    let sessions = Sessions::new(maker, connection, lock, &ends);
    let files = Files::in_directory(archive.dir().to_path_buf());
    let repairer = plan.repairs.map(|scope| Repairer::new(maker, scope, repair_choice));
    let accounts = AccountGuard::new(maker);
    let applier =
        Applier::new(sessions, files, commands_out, tickets_in, status, progress, repairer, accounts, &own_definitions);
    thread::scope(|scope| {
        let gathering = spawn(scope, "gather", move || gatherer.run(reader));
        let preparing = spawn(scope, "prepare", move || preparer.run());
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
        let applied = applier.run();
        is_applied.store(true, Ordering::Release);
        over.store(true, Ordering::Release);
        watching_end.shutdown();
        holding.thread().unpark();
        forwarding.thread().unpark();
        let gathered = join(gathering);
        let prepared = join(preparing);
        let held = join(holding);
        join(forwarding);
        outcome(applied, held, prepared, gathered, stop)
    })
}

/// What a session finds on the replica before it begins.
struct Found {
    /// In bytes.
    max_allowed_packet: usize,
    collations: Collations,
    preparing: Preparing,
    /// Copies of the source's temporary tables.
    temporary_tables: BTreeSet<TemporaryTable>,
    /// See `told_defaults.rs`.
    told_defaults: Option<bool>,
    /// There are tables that are system-versioned by transactions.
    numbers_transactions: bool,
}

impl Found {
    fn ask(connection: &mut Connection) -> Result<Found> {
        const PACKET_BYTES: usize = 16 << 20;
        let packet = connection.query("SELECT @@max_allowed_packet")?.single_text();
        Ok(Found {
            max_allowed_packet: packet.and_then(|text| text.parse().ok()).unwrap_or(PACKET_BYTES),
            collations: Collations::read(connection)?,
            preparing: Preparing::ask(connection)?,
            temporary_tables: temporary::kept(connection)?,
            told_defaults: told_defaults::go_on(connection)?,
            numbers_transactions: catalog::has_versions_by_transactions(connection)?,
        })
    }

    /// A builder that begins with it.
    fn builder(&self, plan: &SessionPlan, others: &Others<'_>) -> BatchBuilder {
        let mut builder = BatchBuilder::new();
        if plan.one_by_one {
            builder.never_fold();
        }
        others.ways().tell(&mut builder);
        builder.begin_with_defaults(self.told_defaults);
        builder.begin_with(self.temporary_tables.iter().filter(|table| !table.is_unnamed()).cloned().collect());
        if self.numbers_transactions {
            builder.number_transactions();
        }
        builder
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

fn emitter<'a>(dialect: Dialect, vendor: Vendor, one_by_one: bool, maker: SessionMaker<'a>) -> Emitter<'a> {
    match dialect {
        Dialect::Replay => Box::new(ReplayEmitter { one_by_one, session: None }),
        Dialect::Sql => {
            let mut catalog = None;
            let late = move |name: &TableName| {
                let catalog = match &mut catalog {
                    Some(catalog) => catalog,
                    none => none.insert(Catalog::new(maker.connect_impatiently()?)),
                };
                catalog.say_triggers();
                catalog.forget(&Outdated::All);
                Ok(catalog.definition(name)?)
            };
            Box::new(SqlEmitter::new(one_by_one, vendor, Box::new(late)))
        }
    }
}

/// Makes the session end when the process is told to. True if a statement does not let it: what it has done is rolled back then, or
/// found out by the next start, as after a crash.
fn forward_stop(stop: &AtomicBool, over: &AtomicBool, is_applied: &AtomicBool) -> bool {
    const STOP_CHECK: Duration = Duration::from_millis(50);
    /// A statement may wait for a lock for as long as innodb_lock_wait_timeout, and nobody waits for that: supervisors kill.
    const STATEMENT_GRACE: Duration = Duration::from_secs(10);
    let mut deadline = None;
    while !is_applied.load(Ordering::Acquire) {
        if stop.load(Ordering::Acquire) {
            over.store(true, Ordering::Release);
            if *deadline.get_or_insert_with(|| Instant::now() + STATEMENT_GRACE) <= Instant::now() {
                return true;
            }
        }
        thread::park_timeout(STOP_CHECK);
    }
    false
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, T> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
    // Without threads there is nothing that could be done, or even undone.
    spawned.unwrap_or_else(|error| panic!("cannot start the thread '{name}': {error}"))
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
