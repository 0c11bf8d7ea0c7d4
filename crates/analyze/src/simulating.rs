//! Threads that simulate while the binlogs are read.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use crate::dependencies::{Dependencies, Dependency, Policy};
use crate::simulation::{Costs, Setting, Simulation, Waits};
use crate::transaction::Transaction;

/// Transactions that are simulated as one piece.
const BLOCK: usize = 8 << 10;

/// Pieces that wait for a thread, at some hundred kilobytes each.
const BLOCKS_WAITING: usize = 4;

/// So many pieces are simulated one after the other; of what comes then, each second, then each fourth, and so on. A speed-up is a ratio,
/// which more transactions of the same kind do not change.
const BLOCKS_OF_A_DENSITY: u64 = 128;

/// What transactions cost and wait for.
struct Block {
    executions: Vec<u64>,
    waits: Vec<Waits>,
}

/// A thread's input, and the thread.
type SimulatingThread<'scope> = (SyncSender<Arc<Block>>, ScopedJoinHandle<'scope, Vec<Simulation>>);

/// Simulations of all settings.
pub(crate) struct Simulating<'scope> {
    costs: Costs,
    policies: Vec<Dependencies>,
    block: Block,
    found: Dependency,
    threads: Vec<SimulatingThread<'scope>>,
    /// Transactions of the current piece, simulated or not.
    in_piece: usize,
    pieces: u64,
    is_simulated: bool,
    transactions: u64,
    serial_nanoseconds: u64,
}

/// What came out.
pub(crate) struct Simulated {
    pub(crate) simulations: Vec<Simulation>,
    /// Transactions that were simulated.
    pub(crate) transactions: u64,
    /// How long one applier takes that commits each by itself.
    pub(crate) serial_nanoseconds: u64,
}

impl<'scope> Simulating<'scope> {
    /// Begins so many threads.
    pub(crate) fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        threads: usize,
        (costs, processors): (Costs, u32),
        policies: &[Policy],
        settings: &[Setting],
    ) -> Simulating<'scope> {
        let mut shares: Vec<Vec<(usize, Simulation)>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
        let of = |wanted: Policy| policies.iter().position(|&policy| policy == wanted);
        for (number, setting) in settings.iter().enumerate() {
            if let Some(policy) = of(setting.policy) {
                let share = number % shares.len();
                shares[share].push((policy, Simulation::new(*setting, &costs, processors)));
            }
        }
        let begin = |mut share: Vec<(usize, Simulation)>| {
            let (input, blocks) = sync_channel::<Arc<Block>>(BLOCKS_WAITING);
            let thread = scope.spawn(move || {
                for block in blocks {
                    for (policy, simulation) in &mut share {
                        for (&execution, (all_before, some)) in block.executions.iter().zip(block.waits[*policy].iter())
                        {
                            simulation.next(execution, all_before, some);
                        }
                    }
                }
                share.into_iter().map(|(_, simulation)| simulation).collect()
            });
            (input, thread)
        };
        Simulating {
            costs,
            policies: policies.iter().map(|&policy| Dependencies::new(policy)).collect(),
            block: empty(policies.len()),
            found: Dependency::default(),
            threads: shares.into_iter().map(begin).collect(),
            in_piece: 0,
            pieces: 0,
            is_simulated: true,
            transactions: 0,
            serial_nanoseconds: 0,
        }
    }

    pub(crate) fn add(&mut self, transaction: &Transaction) {
        if self.is_simulated {
            let execution = self.costs.execution(transaction.rows, transaction.statements);
            self.block.executions.push(execution);
            for (dependencies, waits) in self.policies.iter_mut().zip(&mut self.block.waits) {
                dependencies.next(transaction, &mut self.found);
                waits.push(&self.found);
            }
            self.transactions += 1;
            self.serial_nanoseconds += execution + (1e3 * self.costs.commit) as u64;
        }
        self.in_piece += 1;
        if self.in_piece == BLOCK {
            self.send();
            self.in_piece = 0;
            self.pieces += 1;
            let density = (self.pieces / BLOCKS_OF_A_DENSITY + 1).next_power_of_two();
            self.is_simulated = self.pieces.is_multiple_of(density);
        }
    }

    fn send(&mut self) {
        let block = Arc::new(std::mem::replace(&mut self.block, empty(self.policies.len())));
        if block.executions.is_empty() {
            return;
        }
        for (input, _) in &self.threads {
            // A thread that is gone has panicked, which joining it shows.
            let _is_gone = input.send(block.clone());
        }
    }

    pub(crate) fn finish(mut self) -> Simulated {
        self.send();
        let mut simulations = Vec::new();
        for (input, thread) in self.threads {
            drop(input);
            simulations.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        Simulated { simulations, transactions: self.transactions, serial_nanoseconds: self.serial_nanoseconds }
    }
}

fn empty(policies: usize) -> Block {
    Block { executions: Vec::new(), waits: (0..policies).map(|_| Waits::default()).collect() }
}
