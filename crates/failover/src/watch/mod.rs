//! `spate watch`: several watchers see that a source is dead, and one of them promotes the replica with the most.
//!
//! Each writes its view into etcd under a lease; one of them leads. The leader counts the views, promotes if a majority of all watchers (not only of
//! those that answer) says that the source is dead, and makes sure before each step that it still leads. Which server is the source stays in
//! etcd. Without etcd, a watcher only tells a person what to do.

mod check_endpoint;
mod etcd;
mod views;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spate_connection::endpoint::Endpoint;

use crate::error::{Error, Result};
use crate::fence;
use crate::plan::{self, Allowed};
use crate::promote::{PromoteOptions, Promotion, promote};
use crate::steps::{self, Channel, ReplicationAccount};
use crate::topology::{ChannelFacts, Patience, Server, ServerFacts, SourceNames, host_and_port, name_of};
use check_endpoint::{Role, Roles};
use etcd::Etcd;
use views::{Eyes, Seen};

pub use views::View;

/// How to watch.
pub struct WatchOptions<'a> {
    /// The source, until etcd says that another one is.
    pub source: Endpoint,
    /// The replicas; of those that have the same, the first is promoted.
    pub replicas: Vec<Endpoint>,
    /// The URLs of etcd's servers; none: nothing is promoted.
    pub etcd: Vec<String>,
    /// The name of these servers in etcd.
    pub cluster: String,
    /// This watcher's name.
    pub name: String,
    /// How many watchers there are.
    pub watchers: usize,
    /// Within which time after the source's death another one takes writes.
    pub within: Duration,
    /// Executed by a shell after a promotion.
    pub hook: Option<String>,
    /// Where proxies ask; `None`: nowhere.
    pub check_listen: Option<String>,
    /// The account with which servers replicate.
    pub account: ReplicationAccount,
    /// Set when the process is to end.
    pub stop: &'a AtomicBool,
    /// Told what happens.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

/// The times that follow from the stated one. The rest of it is for the promotion itself.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// Between two looks.
    interval: Duration,
    /// How long the source must be silent.
    dead_after: Duration,
    /// How long the lease of a watcher lives that is gone.
    lease: Duration,
    patience: Patience,
}

impl Times {
    fn of(within: Duration) -> Times {
        let patience = Patience { connect: within / 10, answer: within / 5 };
        Times {
            interval: within / 20,
            dead_after: within * 3 / 10,
            lease: (within * 3 / 10).max(Duration::from_secs(2)),
            patience,
        }
    }
}

struct Watcher<'a> {
    options: &'a WatchOptions<'a>,
    times: Times,
    source: Endpoint,
    eyes: Eyes,
    roles: &'a Roles,
    /// True if the present death was told.
    has_told: bool,
}

/// Watches until stopped.
///
/// # Errors
/// The check endpoint's address cannot be listened at.
pub fn watch(options: &WatchOptions<'_>) -> Result<()> {
    let (roles, over) = (Roles::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serving = options
            .check_listen
            .as_ref()
            .map(|address| scope.spawn(|| check_endpoint::serve(address, &roles, options.within, &over)));
        let times = Times::of(options.within);
        let mut watcher = Watcher {
            options,
            times,
            source: options.source.clone(),
            eyes: Eyes::default(),
            roles: &roles,
            has_told: false,
        };
        let mut store = (!options.etcd.is_empty()).then(|| {
            Etcd::new(options.etcd.clone(), &options.cluster, &options.name, times.lease, times.patience.connect)
        });
        let mut said = String::new();
        while !options.stop.load(Ordering::Acquire) && serving.as_ref().is_none_or(|serving| !serving.is_finished()) {
            let begun = Instant::now();
            let done = watcher.round(store.as_mut());
            let text = done.map_or_else(|error| error.to_string(), |()| String::new());
            if !text.is_empty() && text != said {
                (options.tell)(&text);
            }
            said = text;
            std::thread::sleep(times.interval.saturating_sub(begun.elapsed()));
        }
        over.store(true, Ordering::Release);
        match serving {
            Some(serving) => serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => Ok(()),
        }
    })
}

impl Watcher<'_> {
    fn servers(&self) -> Vec<Endpoint> {
        std::iter::once(&self.options.source).chain(&self.options.replicas).cloned().collect()
    }

    fn others(&self) -> Vec<Endpoint> {
        let source = name_of(&self.source);
        self.servers().into_iter().filter(|server| name_of(server) != source).collect()
    }

    fn round(&mut self, store: Option<&mut Etcd>) -> Result<()> {
        let (view, seen) = self.eyes.round(&self.source, &self.others(), self.times.dead_after, self.times.patience);
        self.tell_roles(&seen);
        let Some(store) = store else {
            self.tell_person(view, &seen);
            return Ok(());
        };
        store.keep_alive()?;
        let watched = name_of(&self.source);
        self.take_source(store)?;
        if name_of(&self.source) != watched {
            // What was seen is of another server.
            return Ok(());
        }
        store.vote(&format!("{} {}", view.name(), name_of(&self.source)))?;
        if !store.lead()? {
            return Ok(());
        }
        if let Some(chosen) = store.get("candidate")?.filter(|chosen| !chosen.is_empty()) {
            return self.go_on(store, &seen, &chosen);
        }
        let dead = format!("{} {}", View::Dead.name(), name_of(&self.source));
        let votes = store.votes()?;
        let count = votes.iter().filter(|(_, said)| *said == dead).count();
        // The leader must see it, too.
        if view == View::Dead && count * 2 > self.options.watchers {
            (self.options.tell)(&format!(
                "{count} of {} watchers say that {} is dead",
                self.options.watchers,
                name_of(&self.source)
            ));
            let candidate = self.candidate(&seen)?;
            return self.replace_source(store, &candidate);
        }
        self.fence_strays(store, &seen)
    }

    /// Which server is the source is what etcd says.
    fn take_source(&mut self, store: &mut Etcd) -> Result<()> {
        let Some(known) = store.get("source")? else { return Ok(()) };
        if known == name_of(&self.source) {
            return Ok(());
        }
        let found = self.servers().into_iter().find(|server| name_of(server) == known);
        self.source = found.ok_or_else(|| {
            Error::Etcd(format!(
                "it says that {known} is the source, which is none of --source and --replica: add it there"
            ))
        })?;
        (self.options.tell)(&format!("the source is {known}"));
        self.eyes.forget();
        self.has_told = false;
        Ok(())
    }

    fn tell_roles(&self, seen: &BTreeMap<String, Seen>) {
        let source = name_of(&self.source);
        let role = |name: &String, seen: &Seen| match &seen.facts {
            Some(facts) if *name == source && !facts.is_read_only => Role::Source,
            Some(_) if *name != source && seen.hears => Role::Replica,
            _ => Role::Other,
        };
        self.roles.set(seen.iter().map(|(name, seen)| (name.clone(), role(name, seen))).collect());
    }

    /// Without a store, a person decides.
    fn tell_person(&mut self, view: View, seen: &BTreeMap<String, Seen>) {
        if view != View::Dead || std::mem::replace(&mut self.has_told, view == View::Dead) {
            self.has_told = view == View::Dead;
            return;
        }
        let source = steps::shell(&self.source.to_string());
        let text = match self.candidate(seen) {
            Ok(candidate) => {
                let others: String = self
                    .others()
                    .iter()
                    .filter(|other| name_of(other) != name_of(&candidate))
                    .map(|other| format!(" --other {}", steps::shell(&other.to_string())))
                    .collect();
                format!(
                    "{source} is dead, as far as this watcher sees. Nothing is promoted without --etcd; if it is dead: spate promote --source {source} \
                     --replica {}{others} --source-is-dead",
                    steps::shell(&candidate.to_string())
                )
            }
            Err(error) => format!("{source} is dead, as far as this watcher sees: {error}"),
        };
        (self.options.tell)(&text);
    }

    /// The replica that has received the most.
    fn candidate(&self, seen: &BTreeMap<String, Seen>) -> Result<Endpoint> {
        let facts = |server: &Endpoint| seen.get(&name_of(server)).and_then(|seen| seen.facts.as_ref());
        let answering: Vec<(Endpoint, &ServerFacts)> = self
            .others()
            .into_iter()
            .filter_map(|server| facts(&server).map(|found| (server.clone(), found)))
            .collect();
        // A replica may call the source by another address, but no channel from another one of these servers is meant.
        let names = self.source_names(seen);
        let addresses: Vec<(String, u16)> = self.others().iter().filter_map(host_and_port).collect();
        let channel_of = |facts: &ServerFacts| {
            let is_meant =
                |channel: &ChannelFacts| !addresses.contains(&(channel.source_host.clone(), channel.source_port));
            facts.channel_from(Some(&names)).or_else(|| facts.channel_from(None).filter(is_meant))
        };
        if let Some((open, _)) = answering.iter().find(|(_, facts)| !facts.is_read_only && facts.channels.is_empty()) {
            let what = format!(
                "it takes writes and replicates from nobody, though {} was the source: did somebody promote it? Nothing is promoted now; begin the watchers \
                 again under another --cluster, with the servers' roles as they are",
                name_of(&self.source)
            );
            return Err(Error::step(name_of(open), what));
        }
        let able: Vec<&(Endpoint, &ServerFacts)> = answering
            .iter()
            .filter(|(_, facts)| {
                let channel = channel_of(facts);
                channel.is_some() && plan::unfitness(facts, channel.as_ref()).is_empty()
            })
            .collect();
        let has_most =
            |facts: &ServerFacts| answering.iter().all(|(_, other)| facts.received.has_all_of(&other.received));
        let found = able.iter().find(|(_, facts)| has_most(facts)).map(|(server, _)| server.clone());
        found.ok_or_else(|| {
            Error::step(
                name_of(&self.source),
                "no replica has all that the others have received (they have parted, or none can be promoted): a person must choose one, see spate \
                 promote --dry-run",
            )
        })
    }

    /// A promotion that was begun, by a leader that is gone or could not go on, is ended; or undone, if the source takes writes again and the chosen replica
    /// still is one.
    fn go_on(&mut self, store: &mut Etcd, seen: &BTreeMap<String, Seen>, chosen: &str) -> Result<()> {
        let source = seen.get(&name_of(&self.source)).and_then(|seen| seen.facts.as_ref());
        if source.is_some() {
            self.resume_receivers(store, seen)?;
        }
        let candidate = self.others().into_iter().find(|server| name_of(server) == chosen);
        let facts = seen.get(chosen).and_then(|seen| seen.facts.as_ref());
        let (Some(candidate), Some(facts)) = (candidate, facts) else {
            if seen.get(chosen).is_none_or(|seen| seen.silent >= self.times.dead_after) {
                (self.options.tell)(&format!("{chosen} was to be promoted, and does not answer"));
                store.put_as_leader(&[("candidate", "")])?;
            }
            return Ok(());
        };
        let is_replica = facts.channel_from(Some(&self.source_names(seen))).is_some();
        if is_replica && source.is_some_and(|source| !source.is_read_only) {
            (self.options.tell)(&format!("{} takes writes again: {chosen} is not promoted", name_of(&self.source)));
            return store.put_as_leader(&[("candidate", "")]);
        }
        (self.options.tell)(&format!("the promotion of {chosen} was begun: it goes on"));
        self.replace_source(store, &candidate)
    }

    /// The source answers again: replicas that were cut off from it receive again.
    fn resume_receivers(&self, store: &mut Etcd, seen: &BTreeMap<String, Seen>) -> Result<()> {
        for server in self.others() {
            let facts = seen.get(&name_of(&server)).and_then(|seen| seen.facts.as_ref());
            let channel = facts.and_then(|facts| facts.channel_from(Some(&self.source_names(seen))));
            if let Some(channel) = channel.filter(|channel| !channel.is_receiving) {
                store.check_lead()?;
                let mut replica = Server::look(&server, "server", self.times.patience)?;
                steps::steer(&mut replica, Channel::StartReceiver, &channel.name)?;
                (self.options.tell)(&format!("{} receives from {} again", name_of(&server), name_of(&self.source)));
            }
        }
        Ok(())
    }

    /// By its id, too, while it answers: replicas may call it by another address.
    fn source_names(&self, seen: &BTreeMap<String, Seen>) -> SourceNames {
        let facts = seen.get(&name_of(&self.source)).and_then(|seen| seen.facts.as_ref());
        SourceNames { address: host_and_port(&self.source), server_id: facts.map(|facts| facts.server_id) }
    }

    fn replace_source(&mut self, store: &mut Etcd, candidate: &Endpoint) -> Result<()> {
        let old = self.source.clone();
        let name = name_of(candidate);
        store.put_as_leader(&[("candidate", &name)])?;
        let promoted = self.promote(store, candidate);
        let promotion = match promoted {
            Ok(promotion) => promotion,
            Err(error) => {
                if matches!(error, Error::Refused { .. }) {
                    // Another one may be better the next time.
                    store.put_as_leader(&[("candidate", "")])?;
                }
                return Err(error);
            }
        };
        store.put_as_leader(&[("source", &name), ("candidate", "")])?;
        (self.options.tell)(&format!("{} is the source; {}", promotion.new_source, promotion.plan.loss_in_words()));
        for left in &promotion.left_out {
            (self.options.tell)(&format!("{} does not follow it: {}", left.server, left.why));
        }
        self.run_hook(&name_of(&old), &name);
        self.take_source(store)
    }

    fn promote(&self, store: &mut Etcd, candidate: &Endpoint) -> Result<Promotion> {
        let others = self.others().into_iter().filter(|other| name_of(other) != name_of(candidate)).collect();
        let store = RefCell::new(store);
        promote(&PromoteOptions {
            candidate: candidate.clone(),
            source: Some(self.source.clone()),
            others,
            allowed: Allowed { source_is_dead: true, loss: false, errant: false },
            archive: None,
            is_alone: true,
            address: host_and_port(candidate),
            account: self.options.account.clone(),
            drain: Duration::from_secs(3600),
            patience: self.times.patience,
            guard: &|| store.borrow_mut().check_lead(),
            tell: &|line| (self.options.tell)(line),
        })
    }

    fn run_hook(&self, old: &str, new: &str) {
        let Some(hook) = &self.options.hook else { return };
        let run = Command::new("sh")
            .args(["-c", hook])
            .env("SPATE_EVENT", "promoted")
            .env("SPATE_NEW_SOURCE", new)
            .env("SPATE_OLD_SOURCE", old)
            .status();
        match run {
            Ok(status) if status.success() => {}
            Ok(status) => (self.options.tell)(&format!("--hook {hook}: {status}")),
            Err(error) => (self.options.tell)(&format!("--hook {hook}: {error}")),
        }
    }

    /// A server that takes writes and is not the source is an old one that is back: it is closed.
    fn fence_strays(&mut self, store: &mut Etcd, seen: &BTreeMap<String, Seen>) -> Result<()> {
        // Before the first failover, who takes writes is the people's affair.
        if store.get("source")?.is_none() {
            return Ok(());
        }
        for server in self.others() {
            let is_stray = seen
                .get(&name_of(&server))
                .and_then(|seen| seen.facts.as_ref())
                .is_some_and(|facts| !facts.is_read_only && facts.channels.is_empty());
            if is_stray {
                store.check_lead()?;
                let mut stray = Server::look(&server, "server", self.times.patience)?;
                let fenced = fence::fence(&mut stray)?;
                (self.options.tell)(&format!(
                    "{} is back and took writes: it is closed, {} connections were ended. Let it follow: spate follow --replica {} --source {} --save DIR",
                    name_of(&server),
                    fenced.killed,
                    steps::shell(&server.to_string()),
                    steps::shell(&self.source.to_string())
                ));
            }
        }
        Ok(())
    }
}
