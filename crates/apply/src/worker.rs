//! A worker: a stage that prepares and a stage that executes, over one connection to the replica. What the one must ask of the
//! connection passes through the other, and stays within the worker.

use std::path::Path;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Sender, bounded};
use spate_connection::Vendor;
use spate_replica::applier_lock::ApplierLock;
use spate_replica::catalog::Catalog;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::choice::{Dialect, DialectChoice};
use spate_replica::gtids::GtidKeeping;
use spate_replica::others::OwnDefinitions;
use spate_replica::status::Status;
use spate_replica::{Error, Result};
use spate_schedule::TableName;
use spate_schedule::outdated::Outdated;

use crate::account_guard::AccountGuard;
use crate::apply::{Applier, ApplierTools};
use crate::coordinator::Lane;
use crate::emit::replay::ReplayEmitter;
use crate::emit::sql::SqlEmitter;
use crate::files::Files;
use crate::found::Found;
use crate::halt::{self, Halt};
use crate::plan::SessionPlan;
use crate::prefetch::{FeederState, Lookup, Prefetching};
use crate::prepare::{Emitter, Preparer};
use crate::repair::Repairer;
use crate::report::Report;
use crate::sessions::{Ends, SessionMaker, Sessions};
use crate::stage::{join, spawn};

/// Prepared statements on their way to the applier: enough to keep it busy while the next is encoded.
const COMMANDS_AHEAD_MAX: usize = 8;

/// The same for one of several appliers.
const COMMANDS_AHEAD_OF_SHARE_MAX: usize = 2;

/// Batches that were taken from the gathering stage and are not committed: one that executes, one that is prepared.
const BATCHES_AHEAD_MAX: usize = 2;

/// The same for one of two that apply in turn: the other executes meanwhile.
const BATCHES_AHEAD_OF_TURN_MAX: usize = 1;

/// What a worker is given for its session.
pub(crate) struct Employment<'a> {
    pub(crate) lane: Lane,
    pub(crate) plan: &'a SessionPlan,
    pub(crate) found: Found,
    /// Where the replica is before the first batch.
    pub(crate) from: Checkpoint,
    pub(crate) choice: DialectChoice,
    pub(crate) maker: SessionMaker<'a>,
    pub(crate) sessions: Sessions<'a>,
    pub(crate) files: Files,
    pub(crate) own_definitions: &'a OwnDefinitions,
    pub(crate) gtids: GtidKeeping,
    /// `None`: rows are not prefetched.
    pub(crate) prefetch: Option<(&'a Prefetching<'a>, Sender<Lookup>)>,
    pub(crate) report: Report<'a>,
    pub(crate) status: &'a Status,
}

/// What workers beside others are made with.
#[derive(Clone, Copy)]
pub(crate) struct Tools<'a> {
    pub(crate) plan: &'a SessionPlan,
    pub(crate) maker: SessionMaker<'a>,
    pub(crate) ends: &'a Ends,
    pub(crate) lock: &'a ApplierLock,
    pub(crate) found: &'a Found,
    pub(crate) choice: &'a DialectChoice,
    pub(crate) files: &'a Path,
    pub(crate) status: &'a Status,
}

impl<'a> Tools<'a> {
    /// A worker that applies nothing but rows, over a connection of its own, which others know by this name. It executes no definitions, as
    /// `own_definitions` says.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn worker(
        self,
        name: &str,
        lane: Lane,
        own_definitions: &'a OwnDefinitions,
        report: Report<'a>,
    ) -> Result<Worker<'a>> {
        let Tools { plan, maker, ends, lock, found, choice, files, status } = self;
        let mut connection = maker.open()?;
        ends.add(&connection)?;
        ApplierLock::announce(name, &mut connection)?;
        // It locks nothing between rows, for which others would wait.
        if found.logging.may_read_committed {
            connection.execute(b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        }
        own_definitions.count([&mut connection])?;
        Ok(Worker::new(Employment {
            lane,
            plan,
            found: found.of_share(),
            from: Checkpoint::default(),
            choice: choice.clone(),
            maker,
            sessions: Sessions::new(maker, connection, lock.clone(), ends),
            files: Files::in_directory(files.to_path_buf()),
            own_definitions,
            gtids: GtidKeeping::Own,
            prefetch: None,
            report,
            status,
        }))
    }
}

/// A pair of stages that have not begun.
pub(crate) struct Worker<'a> {
    preparer: Preparer<'a>,
    applier: Applier<'a>,
}

/// A worker whose preparing stage runs.
pub(crate) struct Working<'a, 'scope> {
    preparing: ScopedJoinHandle<'scope, halt::Result<()>>,
    applier: Applier<'a>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(given: Employment<'a>) -> Worker<'a> {
        let Employment {
            lane,
            plan,
            found,
            from,
            choice,
            maker,
            mut sessions,
            files,
            own_definitions,
            gtids,
            prefetch,
            report,
            status,
        } = given;
        let (is_whole, is_in_turn) = (matches!(report, Report::Whole(_)), matches!(report, Report::InTurn(_)));
        let vendor = sessions.main().server_version().vendor;
        // A channel that drops messages which nobody will receive: with them go the senders of answers that others wait for.
        let (commands_in, commands) = mpsc::sync_channel(match is_whole || is_in_turn {
            true => COMMANDS_AHEAD_MAX,
            false => COMMANDS_AHEAD_OF_SHARE_MAX,
        });
        let batches_max = if is_in_turn { BATCHES_AHEAD_OF_TURN_MAX } else { BATCHES_AHEAD_MAX };
        let (tickets, tickets_out) = bounded(batches_max);
        for _ in 0..batches_max {
            let _has_room = tickets.try_send(());
        }
        let tools = ApplierTools {
            files,
            repairer: plan.repairs.filter(|_| is_whole).map(|scope| Repairer::new(maker, scope, choice.clone())),
            accounts: AccountGuard::new(maker),
            own_definitions,
            prefetching: prefetch.as_ref().map(|(prefetching, _)| *prefetching),
            report,
            status,
        };
        let one_by_one = plan.one_by_one;
        let preparer = Preparer {
            lane,
            tickets: tickets_out,
            output: commands_in,
            emitters: Box::new(move |dialect| {
                let feeder =
                    prefetch.clone().map(|(prefetching, lookups)| FeederState::new(prefetching, lookups, vendor));
                emitter(dialect, vendor, one_by_one, maker, feeder)
            }),
            choice,
            found,
            from,
            one_by_one,
            stands_apart: is_in_turn || is_whole && (plan.parallel.is_some() || plan.sharding.is_some()),
            gtids,
            is_in_ring: plan.exclusions.break_ring() && !maker.without_binlog,
            status,
        };
        Worker { preparer, applier: Applier::new(sessions, commands, tickets, tools) }
    }

    /// Begins to prepare what comes.
    pub(crate) fn start<'scope>(self, scope: &'scope Scope<'scope, '_>) -> Working<'a, 'scope>
    where
        'a: 'scope,
    {
        let preparer = self.preparer;
        Working { preparing: spawn(scope, "prepare", move || preparer.run()), applier: self.applier }
    }
}

impl<'scope> Working<'_, 'scope> {
    /// Applies until there is no more to prepare, or the replica refuses something. Returns how that ended, and the preparing stage, which
    /// ends by itself after that.
    pub(crate) fn apply(self) -> (Result<()>, Preparing<'scope>) {
        (self.applier.run(), Preparing(self.preparing))
    }
}

impl<'scope> Working<'_, 'scope> {
    /// Applies until there is no more to do, and tells how each of its stages has ended.
    pub(crate) fn run(self, tell: impl Fn(Result<()>)) {
        let (applied, preparing) = self.apply();
        // Told before the other is waited for, which may wait for parts until somebody ends the session.
        tell(applied);
        tell(match preparing.join() {
            Ok(()) | Err(Halt::StageEnded) => Ok(()),
            Err(Halt::Failed(error)) => Err(error),
            Err(_) => Err(Error::Unexplained),
        });
    }
}

/// A preparing stage that is about to end.
pub(crate) struct Preparing<'scope>(ScopedJoinHandle<'scope, halt::Result<()>>);

impl Preparing<'_> {
    /// Waits for its end, and returns how it ended.
    pub(crate) fn join(self) -> halt::Result<()> {
        join(self.0)
    }
}

fn emitter<'a>(
    dialect: Dialect,
    vendor: Vendor,
    one_by_one: bool,
    maker: SessionMaker<'a>,
    feeder: Option<FeederState<'a>>,
) -> Emitter<'a> {
    match dialect {
        Dialect::Replay => Box::new(ReplayEmitter::new(one_by_one, feeder)),
        Dialect::Sql => {
            let mut catalog = None;
            let late = move |name: &TableName| {
                let catalog = match &mut catalog {
                    Some(catalog) => catalog,
                    none => none.insert(Catalog::new(maker.connect_with_timeout()?)),
                };
                catalog.include_triggers();
                catalog.forget(&Outdated::All);
                Ok(catalog.definition(name)?)
            };
            Box::new(SqlEmitter::new(one_by_one, vendor, Box::new(late), feeder))
        }
    }
}
