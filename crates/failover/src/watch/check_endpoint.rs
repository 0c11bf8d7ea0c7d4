//! What a proxy asks: `GET /source/HOST:PORT` is answered 200 if that server is the source and takes writes, `GET /replica/HOST:PORT` if it follows
//! the source; else 503. Also 503 if this watcher has not looked for longer than the stated time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The source, which takes writes.
    Source,
    /// Follows the source.
    Replica,
    /// Neither.
    Other,
}

/// The roles as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    seen: Mutex<Option<(Instant, BTreeMap<String, Role>)>>,
}

impl Roles {
    pub(crate) fn set(&self, roles: BTreeMap<String, Role>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), roles));
    }

    fn is(&self, path: &str, age_max: Duration) -> bool {
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let wanted = match parts.next() {
            Some("source") => Role::Source,
            Some("replica") => Role::Replica,
            _ => return false,
        };
        let name = parts.next().unwrap_or_default();
        match &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, roles)) => at.elapsed() < age_max && roles.get(name) == Some(&wanted),
            None => false,
        }
    }
}

/// Answers until `over`.
pub(crate) fn serve(address: &str, roles: &Roles, age_max: Duration, over: &AtomicBool) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    let server = tiny_http::Server::http(address).map_err(|error| Error::Io {
        action: format!("listen at {address} (--check-listen)"),
        source: std::io::Error::other(error.to_string()),
    })?;
    while !over.load(Ordering::Acquire) {
        let Ok(Some(request)) = server.recv_timeout(LOOK_EVERY) else { continue };
        let is_so = roles.is(request.url(), age_max);
        let (code, text) = if is_so { (200, "yes\n") } else { (503, "no\n") };
        // Who asked may be gone.
        let _unheard = request.respond(tiny_http::Response::from_string(text).with_status_code(code));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_role_that_is_asked_for_is_confirmed() {
        let roles = Roles::default();
        let age = Duration::from_secs(60);
        assert!(!roles.is("/source/a:1", age));
        roles.set(BTreeMap::from([("a:1".to_owned(), Role::Source), ("b:1".to_owned(), Role::Replica)]));
        assert!(roles.is("/source/a:1", age) && roles.is("/replica/b:1", age));
        assert!(!roles.is("/replica/a:1", age) && !roles.is("/source/b:1", age) && !roles.is("/", age));
        assert!(!roles.is("/source/a:1", Duration::ZERO));
    }
}
