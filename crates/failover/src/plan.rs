//! The decision, without I/O: what a promotion would do, what it would lose, and why it may not be done.

use serde::Serialize;
use spate_binlog::GtidPosition;

use crate::history::{History, Range, Surplus};
use crate::topology::{ChannelFacts, ServerFacts, SourceNames};

/// What a person has allowed beforehand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The old source does not answer, and is known to be dead or cut off from its clients.
    pub source_is_dead: bool,
    /// Transactions that are known elsewhere may be lost.
    pub loss: bool,
    /// The candidate's own transactions, which others lack, become everybody's.
    pub errant: bool,
}

/// The facts of one round.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The server that is to be promoted.
    pub candidate: &'a ServerFacts,
    /// The old source; `None` if it does not answer, or was not named.
    pub source: Option<&'a ServerFacts>,
    /// True if the old source took writes when it was asked first.
    pub source_took_writes: bool,
    /// By what channels from the old source are recognised; `None` if nobody named it.
    pub source_names: Option<SourceNames>,
    /// The other replicas that answer.
    pub others: &'a [ServerFacts],
    /// The other servers that do not.
    pub silent: &'a [String],
    /// Where the archive of Spate ends that applies to the candidate; `None` if none was named.
    pub archive_end: Option<GtidPosition>,
    /// What was allowed.
    pub allowed: Allowed,
}

/// How far an earlier promotion of the candidate has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It still replicates.
    Replica,
    /// It replicates no more, and takes no writes.
    Detached,
    /// It takes writes.
    Source,
}

/// Transactions that a server has and the promoted one will not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The server that has them.
    pub server: String,
    /// Which.
    #[serde(flatten)]
    pub surplus: Surplus,
}

/// What a promotion will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The server that is promoted.
    pub candidate: String,
    /// How far it is.
    pub stage: Stage,
    /// The old source's name, if it answers.
    pub source: Option<String>,
    /// Transactions that will be lost, as far as they are known.
    pub lost: Vec<Loss>,
    /// How many that is. Servers may have the same: the largest number counts.
    pub lost_transactions: u64,
    /// False if there may be more: the old source does not answer.
    pub is_loss_known: bool,
    /// What the candidate still has to apply.
    pub to_apply: Surplus,
    /// Servers that cannot be pointed at the candidate, and why.
    pub left_out: Vec<LeftOut>,
    /// What will be done, in order.
    pub steps: Vec<String>,
    /// What should be known.
    pub warnings: Vec<String>,
    /// Why nothing is done; empty if all is well.
    pub refusals: Vec<String>,
}

/// A server that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Which server.
    pub server: String,
    /// Why, and what helps.
    pub why: String,
}

impl Plan {
    /// What will be lost, in words.
    pub fn loss_in_words(&self) -> String {
        match (self.is_loss_known, self.lost_transactions) {
            (true, 0) => "nothing will be lost".to_owned(),
            (true, count) => format!("{count} transactions will be lost"),
            (false, count) => format!(
                "unknown: at least {count} transactions will be lost, and those that only the old source has, which does not answer"
            ),
        }
    }
}

/// Makes the plan.
pub fn make(situation: &Situation<'_>) -> Plan {
    let candidate = situation.candidate;
    let channel = candidate.channel_from(situation.source_names.as_ref());
    let stage = match (channel.is_some() || candidate.checkpoint.is_some(), candidate.is_read_only) {
        (true, _) => Stage::Replica,
        (false, true) => Stage::Detached,
        (false, false) => Stage::Source,
    };
    let mut plan = Plan {
        candidate: candidate.name.clone(),
        stage,
        source: situation.source.map(|source| source.name.clone()),
        lost: vec![],
        lost_transactions: 0,
        is_loss_known: situation.source.is_some(),
        to_apply: reachable(situation).missing_from(&candidate.applied),
        left_out: vec![],
        steps: vec![],
        warnings: vec![],
        refusals: vec![],
    };
    refuse_unsuitable(situation, channel.as_ref(), &mut plan);
    count_losses(situation, channel.as_ref(), &mut plan);
    find_errant(situation, &mut plan);
    leave_out(situation, &mut plan);
    plan.steps = steps(situation, &plan);
    plan
}

/// What the candidate can have without anybody: what it has received, or what its archive holds.
fn reachable(situation: &Situation<'_>) -> History {
    let mut reachable = situation.candidate.received.clone();
    if let Some(end) = &situation.archive_end {
        end.domains().for_each(|gtid| reachable.add(gtid));
        reachable.position.advance_to(end);
    }
    reachable
}

fn refuse_unsuitable(situation: &Situation<'_>, channel: Option<&ChannelFacts>, plan: &mut Plan) {
    let candidate = situation.candidate;
    if let Some(own) = situation.source.filter(|source| is_same(source, candidate)) {
        plan.refusals.push(format!("--source and --replica are the same server, {}", own.name));
    }
    let replicates =
        |source: &&ServerFacts| source.channels.iter().any(|channel| channel.is_receiving || channel.is_applying);
    if let Some(source) = situation.source.filter(replicates).filter(|_| plan.stage == Stage::Replica) {
        // One that takes writes replicates something else beside them, or in a ring.
        match situation.source_took_writes {
            false => plan.refusals.push(format!(
                "{} is a replica itself: its own source would go on taking writes that {} does not get. Name that one with --source, or let {1} follow it \
                 directly (spate follow)",
                source.name, candidate.name
            )),
            true => plan.warnings.push(format!(
                "{} replicates from elsewhere, too: what comes to it from there does not reach {}",
                source.name, candidate.name
            )),
        }
    }
    plan.refusals.extend(unfitness(candidate, channel));
    if situation.archive_end.is_some() && candidate.checkpoint.is_none() && plan.stage == Stage::Replica {
        plan.refusals.push(
            "an archive is named for it, but it has no checkpoint: Spate does not apply to it, so the archive is not its own. Without --archive it is \
             promoted with what its own replication has received"
                .to_owned(),
        );
    }
    if channel.is_none() && !candidate.channels.is_empty() {
        let from: Vec<String> = candidate
            .channels
            .iter()
            .map(|channel| format!("{}:{}", channel.source_host, channel.source_port))
            .collect();
        plan.refusals.push(match situation.source_names {
            None => "it replicates over several channels: name the old source with --source".to_owned(),
            Some(_) => format!(
                "it does not replicate from --source, but from {}: name that one, which would go on writing to it. If an interrupted promotion has reset its \
                 channel to --source, and the others are to stay, open it yourself: SET GLOBAL read_only=0",
                from.join(", ")
            ),
        });
    }
    if let Some(source) = situation.source.filter(|source| plan.stage == Stage::Source && !source.is_read_only) {
        plan.refusals.push(format!(
            "both {} and {} take writes: close the one that is not to be the source (SET GLOBAL read_only=1), and let it follow the other with spate \
             follow, which finds what only it has",
            candidate.name, source.name
        ));
    }
    for server in std::iter::once(candidate).chain(situation.others) {
        let channel = server.channel_from(situation.source_names.as_ref());
        if channel.is_some_and(|channel| !channel.tells_gtids && !channel.has_applied_all) {
            plan.warnings.push(format!(
                "{} replicates by file and position (MASTER_USE_GTID=no): what it has received is known only when it has applied it",
                server.name
            ));
        }
    }
    if plan.stage == Stage::Source
        && situation.source.is_none_or(|source| !source.is_read_only)
        && situation.others.is_empty()
    {
        plan.refusals.push(format!(
            "{} does not replicate and takes writes already: there is nothing to promote. If it is another server's replica, is its channel reset?",
            candidate.name
        ));
    }
    if situation.source.is_none() && plan.stage == Stage::Replica && !situation.allowed.source_is_dead {
        plan.refusals.push(
            "the old source does not answer, so it cannot be kept from taking writes, and what only it has is lost: make sure that it is dead or that no \
             client reaches it, then go on with --source-is-dead"
                .to_owned(),
        );
    }
    for name in situation.silent {
        plan.warnings.push(format!(
            "{name} does not answer: what only it has is lost, and it must be pointed later (spate follow --replica {name} --source {})",
            candidate.name
        ));
    }
}

/// Why a server cannot become the source, whatever the others have; empty if it can.
pub(crate) fn unfitness(candidate: &ServerFacts, channel: Option<&ChannelFacts>) -> Vec<String> {
    let mut reasons = Vec::new();
    if !candidate.has_gtids {
        reasons.push(
            "it runs without GTIDs (gtid_mode is not ON), so other servers could not be pointed at it exactly: on all servers, SET GLOBAL \
             enforce_gtid_consistency=ON, then gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE and ON, one after the other"
                .to_owned(),
        );
    }
    if !candidate.logs_all && candidate.checkpoint.is_none() {
        reasons.push(
            "it does not log what it replicates, so nobody could follow it exactly: set log_bin and log_slave_updates (MySQL: \
             log_replica_updates) in its configuration, restart it, and let it replicate"
                .to_owned(),
        );
    }
    if !candidate.binlog_filters.is_empty() {
        reasons.push(format!(
            "its binlog leaves something out, which nobody who follows it would get: {}",
            candidate.binlog_filters.join(", ")
        ));
    }
    let Some(channel) = channel else { return reasons };
    if !channel.filters.is_empty() {
        reasons.push(format!(
            "it does not have all that its source has, since its own replication is filtered: {}. Promote another one; this one would make the loss \
             everybody's",
            channel.filters.join(", ")
        ));
    }
    if channel.delay_seconds > 0 {
        reasons.push(format!(
            "it applies {} s late on purpose: let it catch up first, with CHANGE MASTER TO MASTER_DELAY=0 (MySQL: CHANGE REPLICATION SOURCE TO \
             SOURCE_DELAY=0)",
            channel.delay_seconds
        ));
    }
    if !channel.error.is_empty() {
        reasons.push(format!(
            "its own replication has stopped with an error, so that it lacks what it has received: {}. Repair that first, then START SLAVE (MySQL: \
             START REPLICA)",
            channel.error
        ));
    }
    reasons
}

fn is_same(one: &ServerFacts, other: &ServerFacts) -> bool {
    one.is_mysql == other.is_mysql && one.server_id == other.server_id && one.uuid == other.uuid
}

/// Transactions that others have and the candidate cannot have.
fn count_losses(situation: &Situation<'_>, channel: Option<&ChannelFacts>, plan: &mut Plan) {
    let candidate = situation.candidate;
    let reachable = reachable(situation);
    if let Some(source) = situation.source {
        let missing = source.applied.missing_from(&reachable);
        let receives = channel.is_some_and(|channel| channel.is_receiving && channel.receive_error.is_empty());
        let is_on_its_way = plan.stage == Stage::Replica && (receives || candidate.checkpoint.is_some());
        if !missing.is_empty() && is_on_its_way {
            plan.to_apply = source.applied.missing_from(&candidate.applied);
        } else if !missing.is_empty() {
            if let Some(channel) = channel.filter(|_| plan.stage == Stage::Replica) {
                let error = if channel.receive_error.is_empty() { "it is stopped" } else { &channel.receive_error };
                plan.warnings.push(format!("{} does not receive from the old source: {error}", candidate.name));
            }
            plan.lose(&source.name, missing);
        }
    }
    for other in situation.others {
        let (_, missing) = split_own(other, &other.received.missing_from(&reachable));
        let is_on_its_way = situation.source.is_some() && plan.lost.is_empty() && plan.stage == Stage::Replica;
        if !missing.is_empty() && !is_on_its_way {
            plan.lose(&other.name, missing);
        }
    }
    plan.lost_transactions = plan.lost.iter().map(|loss| loss.surplus.transactions).max().unwrap_or(0);
    // After the candidate was opened, nothing can be changed any more about what it lacks.
    if situation.allowed.loss || plan.lost.is_empty() || plan.stage == Stage::Source {
        return;
    }
    let most = plan.lost.iter().max_by_key(|loss| loss.surplus.transactions);
    if let Some(most) = most {
        let is_source = plan.source.as_ref() == Some(&most.server);
        let advice = match is_source {
            true if plan.stage == Stage::Detached => {
                format!("let {} follow it again (spate follow), then promote it", candidate.name)
            }
            true => format!("let {} receive them (START SLAVE, MySQL: START REPLICA)", candidate.name),
            false => format!("promote {} instead", most.server),
        };
        plan.refusals.push(format!(
            "{} has {} that {} lacks: {advice}, or accept their loss with --accept-loss",
            most.server, most.surplus, candidate.name
        ));
    }
}

impl Plan {
    fn lose(&mut self, server: &str, surplus: Surplus) {
        self.lost.push(Loss { server: server.to_owned(), surplus });
    }
}

/// Divides what a server has and others lack into what it wrote itself and what it got from elsewhere.
fn split_own(server: &ServerFacts, surplus: &Surplus) -> (Surplus, Surplus) {
    let is_own = |range: &&Range| match server.is_mysql {
        true => range.origin.starts_with(&server.uuid.to_ascii_lowercase()),
        false => range.origin.split('-').nth(1) == Some(&server.server_id.to_string()),
    };
    let (own, foreign): (Vec<Range>, Vec<Range>) = {
        let (own, foreign): (Vec<&Range>, Vec<&Range>) = surplus.ranges.iter().partition(is_own);
        (own.into_iter().cloned().collect(), foreign.into_iter().cloned().collect())
    };
    let of = |ranges: Vec<Range>| {
        let transactions =
            ranges.iter().map(|range| range.last - range.first + 1).sum::<u64>().min(surplus.transactions);
        Surplus { transactions, is_exact: surplus.is_exact, ranges }
    };
    (of(own), of(foreign))
}

/// What was written to the candidate itself and nobody else has.
fn find_errant(situation: &Situation<'_>, plan: &mut Plan) {
    let candidate = situation.candidate;
    if plan.stage != Stage::Replica {
        return;
    }
    let others: Vec<&ServerFacts> = situation.source.into_iter().chain(situation.others).collect();
    let lacking = others.iter().map(|other| {
        let (own, _) = split_own(candidate, &candidate.applied.missing_from(&other.applied));
        (other, own)
    });
    // A server that is behind may lack what came before the candidate was a replica; with one that has it, nothing is errant.
    let found: Vec<_> = lacking.collect();
    if found.is_empty() || found.iter().any(|(_, own)| own.is_empty()) {
        return;
    }
    let Some((other, own)) = found.into_iter().min_by_key(|(_, own)| own.transactions) else { return };
    let text = format!(
        "it has {own} of its own, which {} lacks (errant transactions: somebody wrote to the replica)",
        other.name
    );
    match situation.allowed.errant {
        true => plan.warnings.push(format!("{text}; all servers that follow it get them")),
        false => plan.refusals.push(format!(
            "{text}: all servers that follow it would get them, or could not follow it. Undo them, or make them everybody's with --accept-errant"
        )),
    }
}

/// Servers that cannot follow the candidate exactly.
fn leave_out(situation: &Situation<'_>, plan: &mut Plan) {
    let candidate = situation.candidate;
    let mut reachable = reachable(situation);
    if let Some(source) = situation.source.filter(|_| plan.lost.is_empty() && plan.stage == Stage::Replica) {
        reachable.position.advance_to(&source.applied.position);
        source.applied.origins.iter().for_each(|(origin, last)| {
            let known = reachable.origins.entry(*origin).or_default();
            *known = (*known).max(*last);
        });
    }
    for other in situation.others {
        let surplus = other.applied.missing_from(&reachable);
        let why = if other.is_mysql != candidate.is_mysql && other.checkpoint.is_none() {
            "it is of another vendor than the new source, so its own replication cannot follow: let spate replicate do it".to_owned()
        } else if !surplus.is_empty() {
            format!(
                "it has {surplus} that the new source lacks: undo them with spate follow --replica {} --source {} --save DIR",
                other.name, candidate.name
            )
        } else if !other.has_gtids {
            "it runs without GTIDs (gtid_mode is not ON), so it cannot be pointed exactly: set gtid_mode=ON there"
                .to_owned()
        } else {
            continue;
        };
        plan.left_out.push(LeftOut { server: other.name.clone(), why });
    }
}

fn steps(situation: &Situation<'_>, plan: &Plan) -> Vec<String> {
    let candidate = &situation.candidate.name;
    let mut steps = Vec::new();
    let is_spate = situation.candidate.checkpoint.is_some();
    if plan.stage == Stage::Replica {
        match &plan.source {
            Some(source) => steps.push(format!("fence {source}: read_only, end the connections of others")),
            None => steps.push("cut the replicas off from the old source: stop receiving".to_owned()),
        }
        steps.push(match is_spate {
            true => format!("apply what the archive holds to {candidate} ({})", plan.to_apply),
            false => format!("let {candidate} apply what it has received ({})", plan.to_apply),
        });
        steps.push(match is_spate {
            true => format!("hand {candidate} over to the server's own coordinates, and forget Spate's checkpoint"),
            false => format!("reset the replication of {candidate}"),
        });
    }
    if plan.stage != Stage::Source {
        steps.push(format!("open {candidate} for writes"));
    }
    let is_left_out = |other: &ServerFacts| plan.left_out.iter().any(|left| left.server == other.name);
    for other in situation.others.iter().filter(|other| !is_left_out(other)) {
        steps.push(format!("point {} at {candidate}", other.name));
    }
    steps.push("check that all follow".to_owned());
    steps
}

#[cfg(test)]
mod tests;
