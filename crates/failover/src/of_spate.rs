//! Other replicas to which Spate applies: they are told where the source is, and waited for.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use spate_connection::ConnectOptions;
use spate_connection::endpoint::Endpoint;
use spate_replica::applier_lock::{self, ApplierLock};
use spate_replica::asking;
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::new_source::{self, Identity};
use spate_replica::own_schema;

use crate::error::{Error, Result};
use crate::promote::{PromoteOptions, Promotion, check_exact};
use crate::steps::{self, NewSource};
use crate::topology::{Server, host_and_port};

/// Another replica to which Spate applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfSpate {
    endpoint: Endpoint,
    name: String,
    /// What lets it follow.
    command: String,
}

impl OfSpate {
    /// `candidate`: the new source, as a shell takes it.
    pub(crate) fn new(other: &Server, candidate: &str) -> OfSpate {
        let endpoint = steps::shell(&other.endpoint.to_string());
        let command = format!(
            "go on with Spate: spate replicate --source {candidate} --replica {endpoint} --archive <a new directory>, with the options as before (or \
             --follow-promotions instead of another source and directory)"
        );
        OfSpate { endpoint: other.endpoint.clone(), name: other.facts.name.clone(), command }
    }
}

/// A replica to which Spate applies: its checkpoint says where it goes on, at any source that has these GTIDs. The address is given to a Spate with
/// `--follow-promotions`.
pub(crate) fn point(
    candidate: &mut Server,
    other: &mut Server,
    new: &NewSource,
    options: &PromoteOptions<'_>,
) -> Result<()> {
    let identity = Identity::of(&mut candidate.connection)?;
    if new.exactly_at.is_some() {
        // Nobody applies there until it is told where it is.
        let mut connection = asking::connect(&other.endpoint, &ConnectOptions::new("replica"))?;
        let _until_the_connection_ends = ApplierLock::take(&mut connection)?;
        check_exact(other, new)?;
        own_schema::upgrade(&mut connection)?;
        let checkpoint = Checkpoint { gtid_position: new.own.clone(), ..Checkpoint::default() };
        checkpoint::begin(&mut connection, &checkpoint)?;
        give_address(other, new, &identity, options);
        return Ok(());
    }
    // Its Spate may have gone on since the servers were compared; and it looks itself once more, when nothing is applied any more.
    candidate.look_again()?;
    other.look_again()?;
    let surplus = other.facts.applied.missing_from(&candidate.facts.applied);
    if !surplus.is_empty() {
        return Err(Error::step(other.facts.name.clone(), format!("it has {surplus} that the new source lacks")));
    }
    give_address(other, new, &identity, options);
    Ok(())
}

/// Without the address, a person names the new source to Spate.
fn give_address(other: &mut Server, new: &NewSource, identity: &Identity, options: &PromoteOptions<'_>) {
    let is_local =
        |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let name = &other.facts.name;
    if is_local(&new.host) && host_and_port(&other.endpoint).is_some_and(|(host, _)| !is_local(&host)) {
        (options.tell)(&format!(
            "warning: {}:{} is another server for {name}: name the new source's address with --address, and Spate there can follow by itself",
            new.host, new.port
        ));
        return;
    }
    if let Err(error) = new_source::give(&mut other.connection, &new.host, new.port, identity) {
        (options.tell)(&format!("warning: {name}: a Spate with --follow-promotions is not told: {error}"));
    }
}

/// Waits until each Spate with `--follow-promotions` receives from the new source, as far as any runs; the commands for the others are added to
/// [`Promotion::next`].
///
/// # Errors
/// That of `guard`.
pub fn await_spate(promotion: &mut Promotion, guard: &dyn Fn() -> Result<()>, tell: &dyn Fn(&str)) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    /// More than ten times what it takes such a Spate to ask again.
    const WAIT_FOR: Duration = Duration::from_secs(15);
    /// One that goes over to the new source applies to nobody for a moment.
    const ABSENT_FOR: Duration = Duration::from_secs(3);
    let begun = Instant::now();
    // With when a Spate was last seen to apply there.
    let of_spate = std::mem::take(&mut promotion.of_spate).into_iter();
    let mut waiting: Vec<(OfSpate, Instant)> = of_spate.map(|replica| (replica, begun)).collect();
    if !waiting.is_empty() {
        tell("waiting whether Spate follows (--follow-promotions)");
    }
    loop {
        let (now, mut may_come) = (Instant::now(), false);
        waiting.retain_mut(|(replica, present)| {
            let state = state_of(replica);
            match state {
                Following::Yes => tell(&format!("Spate goes on at {}", replica.name)),
                Following::Perhaps => {
                    *present = now;
                    may_come = true;
                }
                Following::Absent => may_come |= now.duration_since(*present) < ABSENT_FOR,
                Following::No => {}
            }
            !matches!(state, Following::Yes)
        });
        if !may_come || begun.elapsed() >= WAIT_FOR {
            break;
        }
        guard()?;
        thread::sleep(LOOK_EVERY);
    }
    promotion.next.extend(waiting.into_iter().map(|(replica, _)| replica.command));
    Ok(())
}

/// Whether a Spate receives from the new source.
enum Following {
    Yes,
    /// One runs, and may not have asked yet.
    Perhaps,
    /// None runs at this moment.
    Absent,
    /// It was not told.
    No,
}

fn state_of(replica: &OfSpate) -> Following {
    let asked = asking::connect(&replica.endpoint, &ConnectOptions::new("replica")).map_err(spate_replica::Error::from);
    let asked = asked.and_then(|mut connection| {
        let given = new_source::read(&mut connection)?;
        Ok((given, applier_lock::is_applier_present(&mut connection)?))
    });
    match asked {
        Ok((Some(given), _)) if given.is_followed => Following::Yes,
        Ok((Some(_), true)) => Following::Perhaps,
        Ok((Some(_), false)) => Following::Absent,
        _ => Following::No,
    }
}
