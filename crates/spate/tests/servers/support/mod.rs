//! What the tests share: real servers in directories of their own, the built program, and a busy source.

pub mod contents;
pub mod kills;
pub mod kind;
pub mod ledger;
pub mod memory;
pub mod oracle;
pub mod program;
pub mod proxy;
pub mod random;
pub mod script;
pub mod server;
pub mod session;
pub mod writer;

use std::time::{Duration, Instant};

pub use kind::Kind;
pub use oracle::Oracle;
pub use program::{Ended, Site};
pub use random::Random;
pub use server::Server;

/// Long enough for anything that a test waits for, also on a machine that does other things or is slow: only a test that fails waits so
/// long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Looks again and again until `condition` holds.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    wait(what, LOOK_EVERY, condition);
}

/// As [`wait_until`], for what `information_schema.INNODB_TRX` shows: InnoDB answers from a copy, which it makes again only if nobody has asked
/// for 100 ms.
pub fn wait_until_innodb_shows(what: &str, condition: impl FnMut() -> bool) {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    wait(what, LOOK_EVERY, condition);
}

fn wait(what: &str, look_every: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(look_every);
    }
}
