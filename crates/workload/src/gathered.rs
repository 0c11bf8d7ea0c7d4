//! Responses on their way to the collector. It looks for them by itself, a few times a second, and is woken only when there are many: each wake of a thread
//! takes connections from the processors that they share with the server's threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::Response;

/// The collector is woken when there are so many responses, and connections wait when there are twice as many.
const MANY: usize = 16_384;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The responses.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    state: Mutex<State>,
    are_many: Condvar,
    has_room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    responses: Vec<Response>,
    is_closed: bool,
}

impl Gathered {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds responses, and waits while there are too many.
    pub(crate) fn add(&self, responses: &mut Vec<Response>) {
        let are_too_many = |state: &mut State| state.responses.len() >= 2 * MANY;
        let mut state = self.has_room.wait_while(self.lock(), are_too_many).unwrap_or_else(PoisonError::into_inner);
        let before = state.responses.len();
        state.responses.append(responses);
        if before < MANY && state.responses.len() >= MANY {
            self.are_many.notify_one();
        }
    }

    /// No more are added.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.are_many.notify_one();
    }

    /// All that have come in a while; `None` at the end.
    pub(crate) fn take(&self) -> Option<Vec<Response>> {
        let are_few = |state: &mut State| state.responses.len() < MANY && !state.is_closed;
        let waited = self.are_many.wait_timeout_while(self.lock(), LOOK_EVERY, are_few);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.responses.is_empty() && state.is_closed {
            return None;
        }
        self.has_room.notify_all();
        Some(std::mem::take(&mut state.responses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_come_once_and_never_too_many_at_a_time() {
        const EACH: u64 = 100_000;
        let gathered = Gathered::default();
        let mut sessions = vec![vec![]; 3];
        std::thread::scope(|scope| {
            let adding: Vec<_> = (0..3)
                .map(|session| {
                    let gathered = &gathered;
                    scope.spawn(move || {
                        (0..EACH).for_each(|number| {
                            gathered.add(&mut vec![Response {
                                session,
                                statement_hash: number,
                                ..Response::default()
                            }]);
                        });
                    })
                })
                .collect();
            scope.spawn(|| {
                adding.into_iter().for_each(|thread| thread.join().unwrap());
                gathered.close();
            });
            while let Some(responses) = gathered.take() {
                assert!(responses.len() <= 2 * MANY, "{}", responses.len());
                responses.iter().for_each(|one| sessions[one.session as usize].push(one.statement_hash));
            }
        });
        assert!(sessions.iter().all(|numbers| numbers.iter().copied().eq(0..EACH)));
    }

    /// A live view of a slow replay shows its responses soon.
    #[test]
    fn a_few_come_soon() {
        let gathered = Gathered::default();
        gathered.add(&mut vec![Response::default()]);
        assert_eq!(gathered.take().map(|responses| responses.len()), Some(1));
        assert_eq!(gathered.take().map(|responses| responses.len()), Some(0), "nothing came");
        gathered.close();
        assert!(gathered.take().is_none());
    }
}
