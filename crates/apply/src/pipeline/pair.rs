//! The two workers.

use std::sync::atomic::AtomicBool;
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::bounded;
use spate_replica::Result;
use spate_replica::checkpoint::APPLIER;
use spate_replica::others::OwnDefinitions;

use super::alternator::{Alternator, Given, Way};
use super::turns::Turns;
use crate::coordinator::Lane;
use crate::progress::Progress;
use crate::report::Report;
use crate::stage::spawn;
use crate::worker::{Tools, Worker};

/// Parts on their way to a worker: what goes ahead of a batch, and the rest of it.
const PARTS_MAX: usize = 2;

/// What the two workers of a session share.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    turns: Turns<'a>,
    /// They execute no definitions. One of these for each says so.
    own_definitions: [OwnDefinitions; 2],
}

impl<'a> Pair<'a> {
    pub(crate) fn new(progress: &'a Progress<'a>, over: &'a AtomicBool) -> Pair<'a> {
        Pair { turns: Turns::new(progress, over), own_definitions: Default::default() }
    }

    pub(crate) fn turns(&self) -> &Turns<'a> {
        &self.turns
    }

    /// The workers, and who gives them batches.
    ///
    /// # Errors
    /// Any error of the connections.
    pub(crate) fn workers<'p>(&'p self, tools: Tools<'p>) -> Result<(Alternator<'p>, [Worker<'p>; 2])> {
        let [one, other] = &self.own_definitions;
        let ((way, worker), (other_way, other_worker)) =
            (self.worker("turn-0", one, tools)?, self.worker("turn-1", other, tools)?);
        let given = Given {
            turns: &self.turns,
            status: tools.status,
            when: tools.plan.pipeline,
            choice: tools.choice.clone(),
            ways: [way, other_way],
        };
        Ok((Alternator::new(given), [worker, other_worker]))
    }

    fn worker<'p>(
        &'p self,
        name: &str,
        own_definitions: &'p OwnDefinitions,
        tools: Tools<'p>,
    ) -> Result<(Way, Worker<'p>)> {
        let (parts, parts_out) = bounded(PARTS_MAX);
        let (hunger_in, hunger) = bounded(PARTS_MAX);
        let lane = Lane { applier: APPLIER, hunger: hunger_in, parts: parts_out };
        let worker = tools.worker(name, lane, own_definitions, Report::InTurn(&self.turns))?;
        Ok((Way { parts, hunger }, worker))
    }

    /// Has them work until there is no more to do.
    pub(crate) fn start<'w: 'scope, 'scope>(
        &'scope self,
        workers: [Worker<'w>; 2],
        scope: &'scope Scope<'scope, '_>,
    ) -> [ScopedJoinHandle<'scope, ()>; 2] {
        workers.map(|worker| {
            let working = worker.start(scope);
            spawn(scope, "turn", move || working.run(|ended| self.turns.end(ended)))
        })
    }
}
