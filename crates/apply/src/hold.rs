//! The applier's side of a comparison's request to wait: see [`spate_replica::hold_request`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spate_archive::stopping_point;
use spate_binlog::Gtid;

use crate::progress::Progress;
use spate_connection::Connection;
use spate_replica::Result;
use spate_replica::hold_request::{HOLD_QUERY, HoldLimit, HoldRequest};
use spate_replica::status::Status;

/// How often the request is looked for.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// How often a held applier looks whether to stop altogether.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// How far the gathering stage may go, and how far it went.
#[derive(Debug, Default)]
pub(crate) struct HoldState {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    limit: HoldLimit,
    /// The last transaction that was begun; 0 before the first.
    last_begun: u64,
}

impl HoldState {
    /// Notes that a transaction is begun, if it may be.
    pub(crate) fn try_begin(&self, gtid: Option<Gtid>, seqno: u64) -> bool {
        let mut inner = self.lock();
        let is_allowed = inner.allows(gtid);
        if is_allowed {
            inner.last_begun = seqno;
        }
        is_allowed
    }

    /// Waits until a transaction may be begun; false if told to stop first.
    pub(crate) fn wait_begin(&self, gtid: Option<Gtid>, seqno: u64, stop: &AtomicBool) -> bool {
        let mut inner = self.lock();
        while !inner.allows(gtid) {
            if stop.load(Ordering::Acquire) {
                return false;
            }
            inner = self.changed.wait_timeout(inner, STOP_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.last_begun = seqno;
        true
    }

    /// Sets the limit; returns the last transaction begun. Under [`HoldLimit::NowStop`] it stays the last.
    fn limit(&self, limit: HoldLimit) -> u64 {
        let mut inner = self.lock();
        inner.limit = limit;
        self.changed.notify_all();
        inner.last_begun
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn allows(&self, gtid: Option<Gtid>) -> bool {
        match gtid {
            Some(gtid) => self.limit.allows(gtid),
            None => self.limit == HoldLimit::None,
        }
    }
}

/// Looks for a request until `stop`, and acknowledges it once nothing is under way.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn watch(
    connection: &mut Connection,
    hold: &HoldState,
    progress: &Progress<'_>,
    status: &Status,
    stop: &AtomicBool,
) -> Result<()> {
    let mut was_held = false;
    while !stop.load(Ordering::Acquire) {
        let request = HoldRequest::parse(&connection.query(HOLD_QUERY)?)?;
        progress.replica_answers();
        let is_held = request.limit != HoldLimit::None;
        if is_held != was_held {
            status.applier(if is_held { "waiting: a comparison asked for it" } else { "applying" });
            was_held = is_held;
        }
        let last_begun = hold.limit(request.limit.clone());
        if let Some(sql) = request.acknowledgement()
            && progress.last_applied() >= last_begun
        {
            stopping_point("before-hold-acknowledgement");
            connection.execute(sql.as_bytes())?;
            stopping_point("during-hold");
        }
        // While somebody waits for us, look more often.
        let interval = if is_held { WATCH_INTERVAL / 10 } else { WATCH_INTERVAL };
        std::thread::park_timeout(interval);
    }
    Ok(())
}
