//! All servers that a promotion concerns: what they say, and how nothing more comes to them from the old source.

use spate_archive::stopping_point;

use crate::error::{Error, Result};
use crate::fence;
use crate::plan::{self, Plan, Situation};
use crate::promote::PromoteOptions;
use crate::steps::{self, Channel};
use crate::topology::{Server, ServerFacts, SourceNames, host_and_port, name_of};

/// All servers of one round.
pub(crate) struct Round {
    pub(crate) candidate: Server,
    pub(crate) source: Option<Server>,
    pub(crate) source_names: Option<SourceNames>,
    source_took_writes: bool,
    pub(crate) others: Vec<Server>,
    silent: Vec<String>,
}

impl Round {
    pub(crate) fn look(options: &PromoteOptions<'_>) -> Result<Round> {
        let candidate = Server::look(&options.candidate, "replica", options.patience)?;
        let mut others = Vec::new();
        let mut silent = Vec::new();
        for endpoint in &options.others {
            match Server::look(endpoint, "replica", options.patience) {
                Ok(server) => others.push(server),
                Err(error) => {
                    (options.tell)(&format!("{}: {error}", name_of(endpoint)));
                    silent.push(name_of(endpoint));
                }
            }
        }
        // Last, so that it has all that the others have got from it.
        let source = match &options.source {
            None => None,
            Some(endpoint) => match Server::look(endpoint, "source", options.patience) {
                Ok(server) => Some(server),
                Err(error @ Error::Replica(spate_replica::Error::Privilege { .. })) => return Err(error),
                Err(error) => {
                    (options.tell)(&format!("the old source: {error}"));
                    None
                }
            },
        };
        let address = options.source.as_ref().and_then(host_and_port);
        let server_id = source.as_ref().map(|source| source.facts.server_id);
        let source_names =
            options.source.is_some().then(|| recognise(&candidate.facts, SourceNames { address, server_id }));
        let source_took_writes = source.as_ref().is_some_and(|source| !source.facts.is_read_only);
        Ok(Round { candidate, source, source_names, source_took_writes, others, silent })
    }

    /// Fails if another promotion is at work on one of these servers. The locks last as long as the connections.
    pub(crate) fn lock(&mut self) -> Result<()> {
        for server in std::iter::once(&mut self.candidate).chain(&mut self.others).chain(&mut self.source) {
            if server.value("SELECT GET_LOCK('spate.promotion', 0)")? != "1" {
                let what = "another promotion is at work on it: wait until that has ended, and look again";
                return Err(Error::step(server.facts.name.clone(), what));
            }
        }
        Ok(())
    }

    pub(crate) fn look_again(&mut self) -> Result<()> {
        self.candidate.look_again()?;
        for other in &mut self.others {
            other.look_again()?;
        }
        if let Some(source) = &mut self.source {
            source.look_again()?;
        }
        Ok(())
    }

    pub(crate) fn plan(&self, options: &PromoteOptions<'_>) -> Plan {
        let others: Vec<ServerFacts> = self.others.iter().map(|other| other.facts.clone()).collect();
        plan::make(&Situation {
            candidate: &self.candidate.facts,
            source: self.source.as_ref().map(|source| &source.facts),
            source_names: self.source_names.clone(),
            others: &others,
            silent: &self.silent,
            archive_end: options.archive.as_ref().map(|archive| archive.end.clone()),
            source_took_writes: self.source_took_writes,
            allowed: options.allowed,
        })
    }
}

/// A source that does not answer is recognised by the only channel of the candidate, if its address is written in another way there.
fn recognise(candidate: &ServerFacts, names: SourceNames) -> SourceNames {
    if candidate.channel_from(Some(&names)).is_some() || names.server_id.is_some() {
        return names;
    }
    match candidate.channels.as_slice() {
        [channel] => SourceNames {
            address: Some((channel.source_host.clone(), channel.source_port)),
            server_id: Some(channel.source_server_id).filter(|&id| id != 0),
        },
        _ => names,
    }
}

/// What isolating has changed, to be undone if the promotion cannot go on.
#[derive(Debug, Default)]
pub(crate) struct Isolated {
    fenced: bool,
    had_events: bool,
    /// Others whose receiver was stopped: index and channel.
    stopped: Vec<(usize, String)>,
    candidate: Option<String>,
}

/// Nothing more comes from the old source: it takes no writes, or nobody receives from it.
pub(crate) fn isolate(round: &mut Round, options: &PromoteOptions<'_>) -> Result<Isolated> {
    let mut isolated = Isolated::default();
    if let Some(source) = &mut round.source {
        let fenced = fence::fence(source)?;
        isolated.fenced = fenced.was_open;
        isolated.had_events = fenced.had_events;
        if fenced.had_events {
            (options.tell)(&format!("{} executes no events any more (event_scheduler=OFF)", source.facts.name));
        }
        if fenced.keeps_events {
            (options.tell)(&format!(
                "warning: {} goes on executing events, those of accounts with READ_ONLY ADMIN also write: SET GLOBAL event_scheduler=OFF there",
                source.facts.name
            ));
        }
        (options.tell)(&format!(
            "{} takes no writes any more; {} connections were ended",
            source.facts.name, fenced.killed
        ));
        if !fenced.privileged.is_empty() {
            (options.tell)(&format!(
                "warning: these accounts may write to {} although it is read_only (READ_ONLY ADMIN): {}",
                source.facts.name,
                fenced.privileged.join(", ")
            ));
        }
        return Ok(isolated);
    }
    let names = round.source_names.clone();
    if let Some(channel) = round.candidate.channel_from(names.as_ref()).filter(|channel| channel.is_receiving) {
        steps::stop_receiver(&mut round.candidate, &channel)?;
        isolated.candidate = Some(channel.name);
    }
    stopping_point("promote-candidate-cut");
    for (index, other) in round.others.iter_mut().enumerate() {
        let channel = other.channel_from(names.as_ref());
        if let Some(channel) = channel.filter(|channel| channel.is_receiving) {
            steps::stop_receiver(other, &channel)?;
            isolated.stopped.push((index, channel.name));
        }
    }
    Ok(isolated)
}

/// Undoes [`isolate`]: a promotion that cannot go on leaves everything as it was.
pub(crate) fn release(round: &mut Round, options: &PromoteOptions<'_>, isolated: &Isolated) {
    let mut undone = Ok(());
    if let Some(source) = round.source.as_mut().filter(|_| isolated.fenced) {
        undone = fence::set_read_only(source, false);
    }
    if let Some(source) = round.source.as_mut().filter(|_| isolated.had_events) {
        undone = undone.and(source.execute("SET GLOBAL event_scheduler=ON"));
    }
    if let Some(channel) = &isolated.candidate {
        undone = undone.and(steps::steer(&mut round.candidate, Channel::StartReceiver, channel));
    }
    for (index, channel) in &isolated.stopped {
        undone = undone.and(steps::steer(&mut round.others[*index], Channel::StartReceiver, channel));
    }
    match undone {
        Ok(()) => (options.tell)("nothing was promoted, and all is as it was"),
        Err(error) => (options.tell)(&format!("nothing was promoted, but not all is as it was: {error}")),
    }
}
