//! Threads of stages.

use std::thread;

/// Starts a stage's thread.
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, T> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
    // Without threads there is nothing that could be done, or even undone.
    spawned.unwrap_or_else(|error| panic!("cannot start the thread '{name}': {error}"))
}

/// Waits for a stage's thread, and panics if it did.
pub(crate) fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
