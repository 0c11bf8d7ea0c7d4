//! The appliers of a session, with what they share.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use spate_connection::Connection;
use spate_replica::applier_lock::ApplierLock;
use spate_replica::others::OwnDefinitions;
use spate_replica::status::Status;
use spate_replica::{Result, sharding};

use super::board::BATCHES_MAX;
use super::divider::Given;
use super::{Board, Divider, Keeper, Sharding};
use crate::Part;
use crate::coordinator::Lane;
use crate::progress::Progress;
use crate::report::Report;
use crate::sessions::{Ends, SessionMaker};
use crate::stage::spawn;
use crate::worker::{Tools, Worker};

/// What the appliers of a session share.
#[derive(Debug)]
pub(crate) struct Crew<'a> {
    sharding: &'a Sharding,
    board: Board<'a>,
    /// Moves the checkpoint of the replica as a whole, and keeps the map.
    connection: Mutex<Connection>,
    /// The appliers that shards were given by earlier sessions.
    assigned: BTreeMap<String, u32>,
    /// Appliers execute no definitions. One of these for each says so.
    own_definitions: Vec<OwnDefinitions>,
    progress: &'a Progress<'a>,
    status: &'a Status,
}

impl<'a> Crew<'a> {
    /// The appliers, of which none works yet.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn hire(
        sharding: &'a Sharding,
        bytes_max: usize,
        (maker, ends): (SessionMaker<'a>, &Ends),
        (progress, status): (&'a Progress<'a>, &'a Status),
        over: &'a AtomicBool,
    ) -> Result<Crew<'a>> {
        let mut connection = maker.open()?;
        ends.add(&connection)?;
        ApplierLock::announce("keeper", &mut connection)?;
        Ok(Crew {
            sharding,
            board: Board::new(sharding, bytes_max, progress, status, over),
            assigned: sharding::remembered(&mut connection, sharding.appliers)?,
            connection: Mutex::new(connection),
            own_definitions: (0..sharding.appliers).map(|_| OwnDefinitions::default()).collect(),
            progress,
            status,
        })
    }

    pub(crate) fn board(&self) -> &Board<'a> {
        &self.board
    }

    /// The appliers, and who divides the work among them.
    ///
    /// # Errors
    /// Any error of the connections.
    pub(crate) fn workers<'c>(&'c self, tools: Tools<'c>) -> Result<(Divider<'c>, Vec<Worker<'c>>)> {
        // Each asks again once it has taken a share; nobody hears it before the next batch comes.
        let (asks, hunger) = bounded(self.sharding.appliers as usize * (BATCHES_MAX + 1));
        let (mut lanes, mut workers) = (Vec::new(), Vec::new());
        for (number, own_definitions) in (0..).zip(&self.own_definitions) {
            let (parts, parts_out) = bounded::<Part>(BATCHES_MAX);
            lanes.push(parts);
            workers.push(self.worker(number, own_definitions, (asks.clone(), parts_out), tools)?);
        }
        let given = Given {
            board: &self.board,
            progress: self.progress,
            status: self.status,
            sharding: self.sharding,
            choice: tools.choice.clone(),
            connection: &self.connection,
            lanes,
            hunger,
        };
        Ok((Divider::new(given, self.assigned.clone()), workers))
    }

    fn worker<'c>(
        &'c self,
        number: u32,
        own_definitions: &'c OwnDefinitions,
        (hunger, parts): (Sender<u32>, Receiver<Part>),
        tools: Tools<'c>,
    ) -> Result<Worker<'c>> {
        // Behind the row of the replica as a whole.
        let lane = Lane { applier: number + 1, hunger, parts };
        tools.worker(&format!("share-{number}"), lane, own_definitions, Report::Share(&self.board, number))
    }

    /// Has the keeper and the appliers work until there is no more to do.
    pub(crate) fn start<'w: 'scope, 'scope>(
        &'scope self,
        workers: Vec<Worker<'w>>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let keeper = Keeper { board: &self.board, connection: &self.connection };
        let mut handles = vec![spawn(scope, "keeper", move || keeper.run())];
        for worker in workers {
            let working = worker.start(scope);
            handles.push(spawn(scope, "share", move || working.run(|ended| self.board.end(ended))));
        }
        handles
    }
}
