//! How the statements of an input come to connections: by recorded sessions, or shared among threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use crate::error::{Error, Result};
use crate::executor::{Executor, Task};
use crate::input::Steps;
use crate::queue::Queue;
use crate::recorded::What;
use crate::replay::{Prepare, Replay, Sharing};
use crate::slots::Slots;

/// Statements on their way to connections that share them.
const SHARED_MAX: usize = 1_000;

/// What comes to the connection of a session.
enum Order {
    Execute(Box<Task>),
    /// The session begins again.
    Reset,
}

impl Replay<'_> {
    fn executor(&self, input: usize, is_shared: bool) -> Executor<'_> {
        Executor::new(self.shared(), input, is_shared)
    }

    /// Reads an input and hands its statements out. `steps` are those of the input.
    ///
    /// # Errors
    /// Of the input.
    pub(crate) fn input<'scope, 'env>(
        &'scope self,
        number: usize,
        steps: Steps,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<()> {
        match self.sharing(number) {
            Sharing::Sessions => self.by_session(number, steps, scope),
            Sharing::Threads(threads) => {
                let queue = Arc::new(Queue::new(SHARED_MAX));
                for _ in 0..threads.max(1) {
                    let queue = Arc::clone(&queue);
                    scope.spawn(move || self.share(number, &queue));
                }
                let read = self.fill(steps, &queue);
                queue.close();
                read
            }
            Sharing::Each(threads) => {
                for _ in 1..threads.max(1) {
                    scope.spawn(move || {
                        let done = self.open(number).and_then(|steps| self.all(number, steps));
                        done.unwrap_or_else(|error| self.halt().note(error));
                    });
                }
                self.all(number, steps)
            }
        }
    }

    /// A connection that executes all statements of an input.
    fn all(&self, number: usize, steps: Steps) -> Result<()> {
        let mut executor = self.executor(number, true);
        let mut prepare = Prepare::shared();
        for step in steps {
            if self.halt().is_over() {
                break;
            }
            if let Some(task) = self.task(step?, &mut prepare) {
                executor.execute(task);
            }
        }
        Ok(())
    }

    /// Reads an input for connections that share it.
    fn fill(&self, steps: Steps, queue: &Queue<Task>) -> Result<()> {
        let mut prepare = Prepare::shared();
        for step in steps {
            if self.halt().is_over() {
                break;
            }
            let Some(task) = self.task(step?, &mut prepare) else { continue };
            self.wait_until_near(&task);
            self.hold_back(&task);
            self.queue(&task);
            if self.halt().is_over() || !queue.push(task) {
                break;
            }
        }
        Ok(())
    }

    /// A connection that takes the next statement.
    fn share(&self, number: usize, queue: &Queue<Task>) {
        let mut executor = self.executor(number, true);
        while let Some(task) = queue.pop() {
            self.unqueue(&task);
            // The reader waits for room: what is left is taken and dropped.
            if !self.halt().is_over() {
                executor.execute(task);
            }
        }
    }

    /// Gives each session's statements to a connection of its own. So many threads are begun as sessions were open at the same time.
    fn by_session<'scope, 'env>(
        &'scope self,
        number: usize,
        steps: Steps,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<()> {
        let sessions_max = self.sessions_max();
        let mut sessions: HashMap<u64, Sender<Order>> = HashMap::new();
        let (slots, begun) = (Arc::new(Slots::new(sessions_max)), Arc::new(Queue::new(sessions_max)));
        let mut threads = 0;
        let mut prepare = Prepare::default();
        let mut read = Ok(());
        for step in steps {
            if self.halt().is_over() {
                break;
            }
            let step = match step {
                Ok(step) => step,
                Err(error) => {
                    read = Err(error);
                    break;
                }
            };
            let (session, at) = (step.session, step.at);
            match step.what {
                What::End => drop(sessions.remove(&session)),
                What::Reset => {
                    let _is_there = sessions.get(&session).map(|session| session.send(Order::Reset));
                }
                What::Statement(_) => {}
            }
            let Some(task) = self.task(step, &mut prepare) else { continue };
            self.wait_until_near(&task);
            self.hold_back(&task);
            if !sessions.contains_key(&session) {
                let mut taken = slots.take();
                while taken.is_none() && sessions.len() < sessions_max && !self.halt().is_over() {
                    // A session whose record has ended still has statements to execute.
                    taken = self.delayed(&task, || slots.take());
                }
                let Some(taken) = taken else {
                    if !self.halt().is_over() {
                        let at = at - prepare.first().unwrap_or(at);
                        read = Err(Error::Sessions { max: sessions_max, at });
                    }
                    break;
                };
                let (give, take) = channel();
                sessions.insert(session, give);
                begun.push(take);
                if taken > threads {
                    threads += 1;
                    let (slots, begun) = (Arc::clone(&slots), Arc::clone(&begun));
                    scope.spawn(move || {
                        while let Some(session) = begun.pop() {
                            self.session(number, session);
                            slots.free();
                        }
                    });
                }
            }
            self.queue(&task);
            // A session that failed has told why.
            let _is_there = sessions[&session].send(Order::Execute(Box::new(task)));
        }
        begun.close();
        read
    }

    /// A connection that executes the statements of one session. It is closed at the end.
    fn session(&self, number: usize, take: Receiver<Order>) {
        let mut executor = self.executor(number, false);
        for order in take {
            match order {
                Order::Reset => executor.reset(),
                Order::Execute(task) => {
                    self.unqueue(&task);
                    if !self.halt().is_over() {
                        executor.execute(*task);
                    }
                }
            }
        }
    }
}
