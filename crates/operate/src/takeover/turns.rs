//! Taking turns: the server's own replication applies while it keeps up, and Spate when it does not.
//!
//! Whose turn it is shows on the server: a parked channel is Spate's. So an interrupted run goes on where it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spate_archive::stopping_point;
use spate_connection::backoff::Backoff;
use spate_connection::{ConnectOptions, Connection};
use spate_replica::native::{self, Channel};
use spate_replica::status::Status;
use spate_replica::until::Until;
use spate_replica::{Error, Result, asking};

use super::{Handback, hand_back, take_over};
use crate::ahead::unsuitable;
use crate::replicate::{Ended, ReplicateOptions, replicate};

/// How often the server's own replication is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Spate has caught up when it needed no longer than this for what had come meanwhile.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(5);

/// When to change.
#[derive(Debug, Clone, Copy)]
pub struct Turns<'a> {
    /// The channel; `None` takes the only one.
    pub channel: Option<&'a str>,
    /// Spate takes over when the server's own replication is this much behind.
    pub takeover_behind: Duration,
    /// Spate hands back when it has caught up. Otherwise it goes on.
    pub hands_back: bool,
}

/// Applies by turns until somebody asks Spate to stop, which leaves the turn where it is.
///
/// # Errors
/// Those of [`take_over`], [`replicate`] and [`hand_back`]; the error that the server's own replication has stopped with.
pub fn take_turns(options: &ReplicateOptions, turns: Turns<'_>, status: &Status, stop: &AtomicBool) -> Result<Ended> {
    while wait_until_behind(options, turns, status, stop)? {
        take_over(options, turns.channel, status, stop)?;
        if !turns.hands_back {
            return replicate(options, status, stop);
        }
        let run = ReplicateOptions { until: Until::CaughtUp, ..options.clone() };
        loop {
            let begun = Instant::now();
            if replicate(&run, status, stop)? == Ended::Stopped {
                return Ok(Ended::Stopped);
            }
            if begun.elapsed() <= CAUGHT_UP_WITHIN {
                break;
            }
        }
        stopping_point("turns-caught-up");
        let Handback { began_after_seconds, .. } = hand_back(&options.applying.replica, turns.channel)?;
        let message = format!("the replica's own replication goes on, and runs (after {began_after_seconds:.1} s)");
        status.note("takeover", &message);
    }
    Ok(Ended::Stopped)
}

/// Whose turn it is, and what a person should know.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Spate's: the reason.
    Spate(String),
    /// The server's: what it is at.
    Server(String),
    /// Nobody's: the error that stopped the server's own replication.
    Broken(String),
}

impl Turn {
    fn of(channel: &Channel, takeover_behind: Duration) -> Turn {
        let limit = takeover_behind.as_secs();
        match channel.seconds_behind {
            _ if channel.is_parked() => {
                Turn::Spate("the replica's own replication is parked: Spate goes on".to_owned())
            }
            _ if !channel.error.is_empty() => Turn::Broken(channel.error.clone()),
            _ if !channel.applies => {
                Turn::Server("waiting: somebody has stopped the replica's own replication".to_owned())
            }
            Some(behind) if behind >= limit => {
                Turn::Spate(format!("the replica's own replication is {behind} s behind: Spate takes over"))
            }
            Some(behind) => Turn::Server(format!("the replica's own replication applies, {behind} s behind")),
            None => Turn::Server("waiting: the replica's own replication does not receive".to_owned()),
        }
    }
}

/// Waits until it is Spate's turn. False if somebody asks Spate to stop first.
fn wait_until_behind(options: &ReplicateOptions, turns: Turns<'_>, status: &Status, stop: &AtomicBool) -> Result<bool> {
    let (mut connection, mut backoff) = (None, Backoff::default());
    while !stop.load(Ordering::Acquire) {
        match look(&mut connection, options, turns.channel) {
            Ok(channel) => match Turn::of(&channel, turns.takeover_behind) {
                Turn::Spate(why) => {
                    status.note("takeover", &why);
                    return Ok(true);
                }
                Turn::Server(what) => {
                    status.applier(what);
                    Backoff::default().wait(LOOK_EVERY, stop);
                }
                Turn::Broken(error) => {
                    let why =
                        format!("its own replication has stopped with an error, which must be mended first: {error}");
                    return Err(match &connection {
                        Some(connection) => unsuitable(connection, why),
                        None => Error::Unsuitable { peer: format!("replica ({})", options.applying.replica), why },
                    });
                }
            },
            Err(error) if error.is_transient() => {
                connection = None;
                status.applier(format!("waiting: {error}"));
                status.error("takeover", format!("{error}; trying again until it works"));
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn look(connection: &mut Option<Connection>, options: &ReplicateOptions, channel: Option<&str>) -> Result<Channel> {
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(asking::connect(&options.applying.replica, &ConnectOptions::new("replica"))?),
    };
    native::look(connection, channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(seconds_behind: Option<u64>) -> Channel {
        Channel { applies: true, receives: true, seconds_behind, ..Channel::default() }
    }

    #[test]
    fn turn_goes_by_what_the_server_says() {
        let turn = |channel: &Channel| Turn::of(channel, Duration::from_secs(60));
        assert!(matches!(turn(&channel(Some(59))), Turn::Server(_)));
        assert!(matches!(turn(&channel(Some(60))), Turn::Spate(_)));
        assert!(matches!(turn(&channel(None)), Turn::Server(_)));
        assert!(matches!(turn(&Channel { applies: false, ..channel(Some(90)) }), Turn::Server(_)));
        let parked = Channel { applies: false, delay_seconds: native::PARKED_SECONDS, ..channel(None) };
        assert!(matches!(turn(&parked), Turn::Spate(_)));
        let broken = Channel { error: "no such table".to_owned(), applies: false, ..channel(None) };
        assert_eq!(turn(&broken), Turn::Broken("no such table".to_owned()));
    }
}
