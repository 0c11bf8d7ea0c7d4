//! A worker: a stage that prepares and a stage that executes, over one connection to the replica. What the one must ask of the
//! connection passes through the other, and stays within the worker.

use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Sender, bounded};
use spate_connection::Vendor;
use spate_replica::Result;
use spate_replica::catalog::Catalog;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::choice::{Dialect, DialectChoice};
use spate_replica::gtids::GtidKeeping;
use spate_replica::others::OwnDefinitions;
use spate_replica::status::Status;
use spate_schedule::TableName;
use spate_schedule::outdated::Outdated;

use crate::account_guard::AccountGuard;
use crate::apply::{Applier, ApplierTools};
use crate::coordinator::Lane;
use crate::emit::replay::ReplayEmitter;
use crate::emit::sql::SqlEmitter;
use crate::files::Files;
use crate::found::Found;
use crate::halt;
use crate::plan::SessionPlan;
use crate::prefetch::{FeederState, Lookup, Prefetching};
use crate::prepare::{Emitter, Preparer};
use crate::progress::Progress;
use crate::repair::Repairer;
use crate::sessions::{SessionMaker, Sessions};
use crate::stage::{join, spawn};

/// Prepared statements on their way to the applier: enough to keep it busy while the next is encoded.
const COMMANDS_AHEAD_MAX: usize = 8;

/// Batches that were taken from the gathering stage and are not committed: one that executes, one that is prepared.
const BATCHES_AHEAD_MAX: usize = 2;

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
    pub(crate) progress: &'a Progress<'a>,
    pub(crate) status: &'a Status,
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
            progress,
            status,
        } = given;
        let vendor = sessions.main().server_version().vendor;
        // A channel that drops messages which nobody will receive: with them go the senders of answers that others wait for.
        let (commands_in, commands) = mpsc::sync_channel(COMMANDS_AHEAD_MAX);
        let (tickets, tickets_out) = bounded(BATCHES_AHEAD_MAX);
        for _ in 0..BATCHES_AHEAD_MAX {
            let _has_room = tickets.try_send(());
        }
        let tools = ApplierTools {
            files,
            repairer: plan.repairs.map(|scope| Repairer::new(maker, scope, choice.clone())),
            accounts: AccountGuard::new(maker),
            own_definitions,
            prefetching: prefetch.as_ref().map(|(prefetching, _)| *prefetching),
            progress,
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
            keeps_transactions: plan.parallel.is_some(),
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
        Dialect::Replay => Box::new(ReplayEmitter { one_by_one, session: None, feeder, own: None }),
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
