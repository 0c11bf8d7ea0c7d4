//! The ends of threads, and waiting for what others do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// What a thread has returned; its panic goes on here.
pub(crate) fn ended<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Tells threads to end, at the latest when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// What a thread looks at to know whether it has to end.
pub(crate) type Stopping = Arc<AtomicBool>;

impl Stop {
    /// For a thread.
    pub(crate) fn stopping(&self) -> Stopping {
        Arc::clone(&self.0)
    }

    /// Now.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.set();
    }
}

/// The first error of threads. All are waited for, also if one has failed.
pub(crate) fn all_ended(joined: impl Iterator<Item = thread::Result<Result<()>>>) -> Result<()> {
    let ended: Vec<Result<()>> = joined.map(ended).collect();
    ended.into_iter().collect()
}

/// Looks again and again until `look` finds that it is so. What it says otherwise is the advice of the error.
///
/// # Errors
/// [`Error::TimedOut`]; those of `look`.
pub(crate) fn wait_until(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<std::result::Result<(), String>>,
) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let begun = Instant::now();
    while let Err(advice) = look()? {
        if begun.elapsed() > limit {
            return Err(Error::TimedOut { what: what.to_owned(), limit, advice });
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_end_before_the_first_error_is_told() {
        let failed = || Error::UnexpectedResult { server: "a".into(), statement: "b".into() };
        let late = thread::spawn(|| {
            thread::sleep(Duration::from_millis(20));
            Ok(())
        });
        let results = [Ok(Err(failed())), late.join(), Ok(Ok(()))];
        assert!(matches!(all_ended(results.into_iter()), Err(Error::UnexpectedResult { .. })));
        assert!(all_ended([Ok(Ok(()))].into_iter()).is_ok());
    }

    #[test]
    fn what_never_comes_is_told_with_what_was_seen_last() {
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            Ok(if looks == 3 { Ok(()) } else { Err(format!("look {looks}")) })
        };
        assert!(wait_until("three looks", Duration::from_secs(60), &mut look).is_ok());
        let error = wait_until("a fourth", Duration::ZERO, &mut look).unwrap_err();
        assert!(matches!(error, Error::TimedOut { advice, .. } if advice == "look 4"));
    }
}
