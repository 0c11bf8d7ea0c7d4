//! `spate promote`: a replica becomes the source.
//!
//! ```text
//! look ──▶ plan ──▶ fence the old source ──▶ drain ──▶ detach ──▶ open ──▶ point the others ──▶ check
//! ```
//! Where it stands is noted nowhere: it shows on the servers. So it can be interrupted anywhere, and repeated. The plan is made twice: from the
//! first look, and again once nothing more can come from the old source.

use std::thread;
use std::time::Duration;

use serde::Serialize;
use spate_archive::stopping_point;
use spate_binlog::GtidPosition;
use spate_connection::Vendor;
use spate_connection::endpoint::Endpoint;
use spate_operate::handover;

use crate::error::{Error, Result};
use crate::fence;
use crate::of_spate::{self, OfSpate};
use crate::plan::{Allowed, LeftOut, Plan, Stage};
use crate::round::{Isolated, Round, isolate, release};
use crate::steps::{self, NewSource, ReplicationAccount};
use crate::topology::{ChannelFacts, Patience, Server, SourceNames, host_and_port, name_of};

/// What Spate's archive still holds for the candidate.
pub struct ArchiveToApply<'a> {
    /// Where it ends.
    pub end: GtidPosition,
    /// Applies all of it; true if each transaction is to keep its GTID.
    pub apply: &'a dyn Fn(bool) -> std::result::Result<(), String>,
}

/// Who is promoted, and what is allowed.
pub struct PromoteOptions<'a> {
    /// The replica that becomes the source.
    pub candidate: Endpoint,
    /// The old source; `None` if nobody named it.
    pub source: Option<Endpoint>,
    /// The other replicas.
    pub others: Vec<Endpoint>,
    /// What may be lost.
    pub allowed: Allowed,
    /// Spate's archive for the candidate; `None` if Spate does not apply to it.
    pub archive: Option<ArchiveToApply<'a>>,
    /// The address by which the others reach the candidate; `None`: as this program does.
    pub address: Option<(String, u16)>,
    /// The account with which the others replicate; without a name each keeps its own.
    pub account: ReplicationAccount,
    /// True if nobody else promotes at the same time, as a watcher's lease says. Else locks on all servers make sure of it.
    pub is_alone: bool,
    /// How long the candidate may take to apply what it has.
    pub drain: Duration,
    /// How long servers may take to answer.
    pub patience: Patience,
    /// Called before each step that cannot be undone, and again and again while something is waited for: a watcher keeps its lease, and makes sure that it
    /// still has it; a person may interrupt.
    pub guard: &'a dyn Fn() -> Result<()>,
    /// Told what is done.
    pub tell: &'a dyn Fn(&str),
}

/// What a promotion did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Promotion {
    /// The plan that was carried out.
    pub plan: Plan,
    /// The new source, as other servers reach it.
    pub new_source: String,
    /// Its GTID position when it was opened.
    pub position: String,
    /// Servers that follow it.
    pub following: Vec<String>,
    /// Servers that do not, and why.
    pub left_out: Vec<LeftOut>,
    /// Commands for people.
    pub next: Vec<String>,
    /// Other replicas to which Spate applies.
    #[serde(skip)]
    pub of_spate: Vec<OfSpate>,
}

/// Only looks, and says what a promotion would do and lose.
///
/// # Errors
/// The candidate does not answer.
pub fn dry_run(options: &PromoteOptions<'_>) -> Result<Plan> {
    Ok(Round::look(options)?.plan(options))
}

/// Promotes a replica. Repeated, it goes on where it was interrupted.
///
/// # Errors
/// [`Error::Refused`] before anything was changed; [`Error::Step`] names the server that does not do its part.
pub fn promote(options: &PromoteOptions<'_>) -> Result<Promotion> {
    let mut round = Round::look(options)?;
    let mut plan = round.plan(options);
    refuse(&plan)?;
    if !options.is_alone {
        round.lock()?;
        // Another promotion may just have ended.
        round.look_again()?;
        plan = round.plan(options);
        refuse(&plan)?;
    }
    plan.warnings.iter().for_each(|warning| (options.tell)(&format!("warning: {warning}")));
    let address = options.address.clone().or_else(|| host_and_port(&options.candidate)).ok_or_else(|| {
        let what = "other servers cannot reach it through a socket: name its address with --address HOST:PORT";
        Error::step(name_of(&options.candidate), what)
    })?;
    let mut isolated = Isolated::default();
    if plan.stage != Stage::Source {
        (options.guard)()?;
        isolated = isolate(&mut round, options)?;
        stopping_point("promote-isolated");
        let checked = apply_untold(&mut round, options).and_then(|()| check_again(&mut round, options));
        let drained = checked.and_then(|checked| {
            plan = checked;
            // One that was detached already has nothing more to get.
            if plan.stage == Stage::Replica { drain(&mut round, options) } else { Ok(()) }
        });
        let drained = drained.and_then(|()| {
            stopping_point("promote-drained");
            (options.guard)()
        });
        if let Err(error) = drained {
            // Who leads now goes on from here.
            if !matches!(error, Error::LeaseLost) {
                release(&mut round, options, &isolated);
            }
            return Err(error);
        }
    }
    let new = match become_source(&mut round, options, address) {
        Err(error @ Error::Replica(spate_replica::Error::Locked { .. })) => {
            // A Spate still applies: nothing was changed on the candidate.
            release(&mut round, options, &isolated);
            return Err(error);
        }
        new => new?,
    };
    let position = round.candidate.facts.logged.to_string();
    let mut promotion = Promotion {
        new_source: format!("{}:{}", new.host, new.port),
        position,
        following: vec![],
        left_out: plan.left_out.clone(),
        next: vec![],
        of_spate: vec![],
        plan,
    };
    // Others can be pointed only while nothing new is there, if they must stand at the same place or be told what not to ask for.
    let is_spate = round.candidate.facts.checkpoint.is_some();
    if is_spate {
        point_others(&mut round, options, &new, &mut promotion);
    }
    (options.guard)()?;
    open(&mut round, options)?;
    if !is_spate {
        point_others(&mut round, options, &new, &mut promotion);
    }
    advise(&mut round, options, &mut promotion);
    Ok(promotion)
}

fn refuse(plan: &Plan) -> Result<()> {
    match plan.refusals.is_empty() {
        true => Ok(()),
        false => Err(Error::Refused { candidate: plan.candidate.clone(), reasons: plan.refusals.clone() }),
    }
}

/// Where nobody can tell what a server has received, it must be applied before servers are compared.
fn apply_untold(round: &mut Round, options: &PromoteOptions<'_>) -> Result<()> {
    if round.source.is_some() {
        return Ok(());
    }
    let Round { candidate, source_names, others, .. } = round;
    for server in std::iter::once(candidate).chain(others) {
        let is_untold = |channel: ChannelFacts| !channel.tells_gtids;
        if server.channel_from(source_names.as_ref()).is_some_and(is_untold) {
            (options.tell)(&format!(
                "{} applies what it has received, before it is known what that is",
                server.facts.name
            ));
            steps::drain(server, source_names.as_ref(), None, options.drain, options.guard)?;
        }
    }
    Ok(())
}

/// The plan once more, now that nothing can come any more.
fn check_again(round: &mut Round, options: &PromoteOptions<'_>) -> Result<Plan> {
    round.look_again()?;
    let plan = round.plan(options);
    refuse(&plan)?;
    (options.tell)(&plan.loss_in_words());
    Ok(plan)
}

/// The candidate gets and applies all that it can have.
fn drain(round: &mut Round, options: &PromoteOptions<'_>) -> Result<()> {
    let names = round.source_names.clone();
    // A replica that waits for acknowledgements itself would not get to the end of what it has received.
    let servers = std::iter::once(&mut round.candidate).chain(&mut round.others);
    for server in servers {
        if steps::set_semi_sync_source(server, false)? {
            (options.tell)(&format!("{} waits for no acknowledgements while it is a replica", server.facts.name));
        }
    }
    let wanted = match (&round.source, options.allowed.loss) {
        (Some(source), false) => Some(source.facts.applied.clone()),
        _ => None,
    };
    if round.candidate.facts.checkpoint.is_some() {
        return drain_archive(round, options, wanted.as_ref());
    }
    (options.tell)(&format!("{} applies what it has received", round.candidate.facts.name));
    steps::drain(&mut round.candidate, names.as_ref(), wanted.as_ref(), options.drain, options.guard)
}

/// Spate's archive is applied: by a Spate that runs, or here.
fn drain_archive(
    round: &mut Round,
    options: &PromoteOptions<'_>,
    wanted: Option<&crate::history::History>,
) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let candidate = &mut round.candidate;
    let is_there = |candidate: &Server| {
        let archive_is_applied = options.archive.as_ref().is_none_or(|archive| {
            candidate.facts.checkpoint.as_ref().is_some_and(|found| found.covers_all(&archive.end))
        });
        archive_is_applied && wanted.is_none_or(|wanted| candidate.facts.applied.has_all_of(wanted))
    };
    let rounds = (options.drain.as_millis() / LOOK_EVERY.as_millis()).max(1);
    for number in 0..rounds {
        candidate.look_again()?;
        if is_there(candidate) {
            return Ok(());
        }
        // Without a source there is nothing to wait for, but a Spate that is still at work.
        if let Some(archive) = options.archive.as_ref().filter(|_| wanted.is_none() || number + 1 == rounds) {
            (options.tell)(&format!("applying what the archive holds to {}", candidate.facts.name));
            (archive.apply)(candidate.facts.keeps_gtids).map_err(|why| {
                Error::step(candidate.facts.name.clone(), format!("the archive cannot be applied: {why}"))
            })?;
            candidate.look_again()?;
            if is_there(candidate) {
                return Ok(());
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    let lacks = wanted.map(|wanted| wanted.missing_from(&candidate.facts.applied).to_string());
    let what = format!(
        "Spate has not applied everything within {} s{}: let spate replicate run until it has, or name its archive with --archive DIR",
        options.drain.as_secs(),
        lacks.map_or_else(String::new, |lacks| format!(", it lacks {lacks}"))
    );
    Err(Error::step(candidate.facts.name.clone(), what))
}

/// The candidate replicates no more. Says how others are pointed at it.
fn become_source(round: &mut Round, options: &PromoteOptions<'_>, (host, port): (String, u16)) -> Result<NewSource> {
    let candidate = &mut round.candidate;
    let is_spate = candidate.facts.checkpoint.is_some();
    let exactly_at = candidate.facts.checkpoint.clone().filter(|_| candidate.facts.has_own_gtids());
    let mut new = NewSource { host, port, own: GtidPosition::default(), exactly_at };
    if is_spate {
        if candidate.vendor() == Vendor::MySql {
            candidate.execute("SET GLOBAL super_read_only=0")?;
        }
        let told = handover::hand_over(&options.candidate)?;
        stopping_point("promote-handed-over");
        (options.tell)(&format!("{} stands at {}", candidate.facts.name, told.gtid_position));
        let before = candidate.facts.clone();
        candidate.look_again()?;
        // What the handover made known does not say any more whether GTIDs were kept.
        candidate.facts.keeps_gtids = before.keeps_gtids;
        // The checkpoint is forgotten only after the others were pointed: it says where they must stand, and that they must be told.
        steps::bump_number(candidate)?;
        candidate.look_again()?;
        candidate.facts.keeps_gtids = before.keeps_gtids;
        new.own = steps::own_of(candidate)?;
    }
    let channel = candidate.channel_from(round.source_names.as_ref());
    if let Some(channel) = channel {
        steps::detach(candidate, &channel)?;
        (options.tell)(&format!("{} replicates no more", candidate.facts.name));
        stopping_point("promote-detached");
    }
    Ok(new)
}

fn open(round: &mut Round, options: &PromoteOptions<'_>) -> Result<()> {
    let candidate = &mut round.candidate;
    if candidate.facts.has_own_gtids() || candidate.facts.checkpoint.is_some() {
        steps::forget_checkpoint(candidate)?;
        stopping_point("promote-checkpoint-forgotten");
    }
    if !candidate.facts.is_read_only {
        return Ok(());
    }
    if steps::set_semi_sync_source(candidate, true)? {
        (options.tell)(&format!("{} waits for acknowledgements (semi-synchronous replication)", candidate.facts.name));
    }
    fence::set_read_only(candidate, false)?;
    stopping_point("promote-opened");
    (options.tell)(&format!("{} takes writes", candidate.facts.name));
    candidate.look_again()?;
    Ok(())
}

/// Points all that can follow. One that fails does not keep the others from it.
fn point_others(round: &mut Round, options: &PromoteOptions<'_>, new: &NewSource, promotion: &mut Promotion) {
    let Round { candidate, source_names, others, .. } = round;
    for other in others {
        let name = other.facts.name.clone();
        if promotion.left_out.iter().any(|left| left.server == name) {
            continue;
        }
        let pointed = (options.guard)().and_then(|()| {
            match other.facts.checkpoint.is_some() && other.facts.channels.is_empty() {
                true => of_spate::point(candidate, other, new, options),
                false => point_native(candidate, other, source_names.as_ref(), new, options),
            }
        });
        stopping_point("promote-pointed");
        match pointed {
            Ok(()) => {
                (options.tell)(&format!("{name} follows {}:{}", new.host, new.port));
                promotion.following.push(name);
            }
            Err(error) => promotion.left_out.push(LeftOut { server: name, why: error.to_string() }),
        }
    }
}

/// Others that stand elsewhere than the candidate cannot ask it for GTIDs that it does not have.
pub(crate) fn check_exact(other: &mut Server, new: &NewSource) -> Result<()> {
    other.look_again()?;
    let Some(exactly_at) = &new.exactly_at else { return Ok(()) };
    let at = &other.facts.applied.position;
    if at == exactly_at || other.facts.applied.position.covers_all(&new.own) && !new.own.is_empty() {
        return Ok(());
    }
    let what = format!(
        "it stands at '{at}', and the new source at '{exactly_at}': Spate applied there in batches (--consistency snapshot), so the new source has not \
         the old one's GTIDs in its binlog, and only servers at exactly the same place can follow. Rebuild this replica from a backup of the new \
         source, or use --consistency transaction on replicas that may be promoted"
    );
    Err(Error::step(other.facts.name.clone(), what))
}

fn point_native(
    candidate: &mut Server,
    other: &mut Server,
    names: Option<&SourceNames>,
    new: &NewSource,
    options: &PromoteOptions<'_>,
) -> Result<()> {
    // What it has received is dropped when it is pointed, and then comes from the new source, unless that has it no more. Applying may take long, so it is
    // waited for only then; one that is late on purpose is not.
    let must_apply = new.exactly_at.is_some() || steps::has_purged(candidate, &other.facts)?;
    let waits = |channel: ChannelFacts| channel.delay_seconds == 0;
    if must_apply && other.channel_from(names).is_some_and(waits) {
        match steps::drain(other, names, None, options.drain, options.guard) {
            Err(error @ Error::LeaseLost) => return Err(error),
            Err(error) => (options.tell)(&format!("warning: {error}")),
            Ok(()) => {}
        }
    }
    check_exact(other, new)?;
    let old = other.channel_from(names);
    let at_new = SourceNames { address: Some((new.host.clone(), new.port)), server_id: None };
    if old.is_none() && !other.facts.channels.is_empty() && other.channel_from(Some(&at_new)).is_none() {
        let what = format!(
            "it does not replicate from the old source, but from elsewhere, which stays: if it is to follow, spate follow --replica {0} --source {1}",
            other.facts.name, candidate.facts.name
        );
        return Err(Error::step(other.facts.name.clone(), what));
    }
    steps::point(other, old, false, new, &options.account)
}

/// What is left to people.
fn advise(round: &mut Round, options: &PromoteOptions<'_>, promotion: &mut Promotion) {
    let candidate = steps::shell(&options.candidate.to_string());
    promotion.next.push(match round.candidate.vendor() {
        Vendor::MariaDb => {
            format!("let {candidate} take writes after a restart, too: read_only=0 in its configuration")
        }
        Vendor::MySql => format!("let {candidate} take writes after a restart, too: SET PERSIST read_only=OFF"),
    });
    match fence::sleeping_events(&mut round.candidate) {
        Ok(None) => promotion.next.push(
            "enable the events that ran on the old source (ALTER EVENT … ENABLE), which sleep on a replica: which ones cannot be seen without GRANT EVENT \
             ON *.* TO <the user of Spate>"
                .to_owned(),
        ),
        Ok(Some(events)) if events.is_empty() => {}
        Ok(Some(events)) => promotion.next.push(format!(
            "these events sleep, as on a replica: ALTER EVENT … ENABLE each that ran on the old source: {}",
            events.join(", ")
        )),
        Err(error) => {
            promotion.next.push(format!("look for events that sleep, as on a replica; asking failed: {error}"))
        }
    }
    for other in round.others.iter().filter(|other| other.facts.checkpoint.is_some()) {
        promotion.of_spate.push(OfSpate::new(other, &candidate));
    }
    if let Some(source) = &options.source {
        let source = steps::shell(&source.to_string());
        promotion.next.push(format!(
            "let the old source follow, once it is back: spate follow --replica {source} --source {candidate} --save <a directory>"
        ));
    }
}
