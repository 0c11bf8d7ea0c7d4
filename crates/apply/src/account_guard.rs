//! Notices when a replicated statement locks the applier out.

use super::command::Change;
use super::sessions::SessionMaker;
use spate_replica::privileges::check;
use spate_replica::{Error, Result};

/// Looks after statements that may be about the applier's own account.
#[derive(Debug)]
pub(crate) struct AccountGuard<'a> {
    maker: SessionMaker<'a>,
}

impl<'a> AccountGuard<'a> {
    /// A guard of the account that makes sessions.
    pub(crate) fn new(maker: SessionMaker<'a>) -> AccountGuard<'a> {
        AccountGuard { maker }
    }

    /// Whether Spate can still work after `change`, which ended as `result` says.
    ///
    /// # Errors
    /// [`Error::LockedOut`] if it cannot; else that of `result`.
    pub(crate) fn look(&self, change: Change, result: Result<()>) -> Result<()> {
        let is_refusal = |error: &Error| matches!(error, Error::Privilege { .. }) || is_denied(error);
        // A session knows its account's privileges as they were when it began.
        let again = self.maker.connect_with_timeout();
        let refusal = match again.and_then(|mut connection| check(&mut connection, self.maker.dialect)) {
            Err(error) if is_refusal(&error) => error,
            _ => match result {
                Err(error) if is_denied(&error) => error,
                other => return other,
            },
        };
        Err(Error::LockedOut { place: change.place, change: change.what, error: Box::new(refusal) })
    }
}

/// The server does not know the account any more, or refuses it something.
fn is_denied(error: &Error) -> bool {
    /// Access denied in all its forms; no such grant; the account is locked; its password expired.
    const CODES: [u16; 11] = [1044, 1045, 1130, 1141, 1142, 1143, 1227, 1370, 1698, 1820, 4151];
    match error {
        Error::Wire(error) | Error::Batch { source: error } => error.code().is_some_and(|code| CODES.contains(&code)),
        _ => false,
    }
}
