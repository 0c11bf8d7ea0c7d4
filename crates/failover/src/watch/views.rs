//! What one watcher sees. All times are this machine's own, and only differences of them count: clocks that differ change nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spate_connection::endpoint::Endpoint;
use spate_connection::{Vendor, quote};

use crate::topology::{Patience, Server, ServerFacts, SourceNames, host_and_port, name_of};

/// What a watcher says of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// It answers, or somebody hears it, or it has not been silent for long enough.
    Alive,
    /// It has been silent for long enough, and nobody hears it.
    Dead,
    /// This watcher reaches no server at all: it may be cut off itself.
    Blind,
}

impl View {
    /// As other watchers read it.
    pub fn name(self) -> &'static str {
        match self {
            View::Alive => "alive",
            View::Dead => "dead",
            View::Blind => "blind",
        }
    }
}

/// What was seen of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// `None` if it does not answer.
    pub(crate) facts: Option<ServerFacts>,
    /// True if it hears the source.
    pub(crate) hears: bool,
    /// For how long it has not answered.
    pub(crate) silent: Duration,
}

/// When something came from the source last, at one replica.
#[derive(Debug, Clone)]
struct Sign {
    /// What it has received, and how many heartbeats.
    received: String,
    at: Instant,
}

/// All that a watcher remembers from round to round.
#[derive(Debug, Default)]
pub(crate) struct Eyes {
    sessions: BTreeMap<String, Server>,
    signs: BTreeMap<String, Sign>,
    silent_since: BTreeMap<String, Instant>,
}

impl Eyes {
    /// Looks at one server, and says for how long it has not answered.
    fn look(&mut self, endpoint: &Endpoint, patience: Patience) -> (Option<ServerFacts>, Duration) {
        let facts = self.ask(endpoint, patience);
        let name = name_of(endpoint);
        if facts.is_some() {
            self.silent_since.remove(&name);
            return (facts, Duration::ZERO);
        }
        let silent_since = self.silent_since.entry(name).or_insert_with(Instant::now);
        (None, silent_since.elapsed())
    }

    /// Asks one server, over the connection that is open, or a new one.
    fn ask(&mut self, endpoint: &Endpoint, patience: Patience) -> Option<ServerFacts> {
        let name = name_of(endpoint);
        if let Some(mut server) = self.sessions.remove(&name)
            && server.look_again().is_ok()
        {
            let facts = server.facts.clone();
            self.sessions.insert(name, server);
            return Some(facts);
        }
        let server = Server::look(endpoint, "server", patience).ok()?;
        let facts = server.facts.clone();
        self.sessions.insert(name, server);
        Some(facts)
    }

    /// How many heartbeats a channel of a server has received, and how often they come; nothing where it does not tell.
    fn heartbeats(&mut self, name: &str, channel: &str) -> Option<(String, Duration)> {
        let connection = &mut self.sessions.get_mut(name)?.connection;
        let (count, period) = match connection.server_version().vendor {
            Vendor::MariaDb => {
                let all = connection.query("SHOW ALL SLAVES STATUS").ok()?;
                let is_it = |row: &usize| all.text(*row, "Connection_name").as_deref() == Some(channel);
                let row = (0..all.rows.len()).find(is_it)?;
                (all.text(row, "Slave_received_heartbeats")?, all.text(row, "Slave_heartbeat_period")?)
            }
            Vendor::MySql => {
                let sql = format!(
                    "SELECT s.COUNT_RECEIVED_HEARTBEATS, c.HEARTBEAT_INTERVAL FROM performance_schema.replication_connection_status s \
                     JOIN performance_schema.replication_connection_configuration c USING (CHANNEL_NAME) WHERE CHANNEL_NAME = {}",
                    quote::text(channel)
                );
                let row = connection.query(&sql).ok()?;
                (row.text_at(0, 0)?, row.text_at(0, 1)?)
            }
        };
        let seconds: f64 = period.parse().ok()?;
        (seconds > 0.0).then(|| (count, Duration::from_secs_f64(seconds)))
    }

    /// True if a replica hears the source: it is connected, and something came within twice the time between heartbeats.
    fn hears(&mut self, name: &str, facts: &ServerFacts, source: &SourceNames) -> bool {
        let Some(channel) = facts.channel_from(Some(source)) else { return false };
        if !channel.is_connected {
            return false;
        }
        let Some((count, period)) = self.heartbeats(name, &channel.name) else { return true };
        let received = format!("{} {count}", channel.received);
        match self.signs.get(name) {
            Some(sign) if sign.received == received => sign.at.elapsed() < period * 2,
            _ => {
                self.signs.insert(name.to_owned(), Sign { received, at: Instant::now() });
                true
            }
        }
    }

    /// One round: what all servers say, and what follows for the source.
    pub(crate) fn round(
        &mut self,
        source: &Endpoint,
        replicas: &[Endpoint],
        dead_after: Duration,
        patience: Patience,
    ) -> (View, BTreeMap<String, Seen>) {
        let mut seen = BTreeMap::new();
        let (facts, silent) = self.look(source, patience);
        let names =
            SourceNames { address: host_and_port(source), server_id: facts.as_ref().map(|facts| facts.server_id) };
        let answers = facts.is_some();
        seen.insert(name_of(source), Seen { facts, hears: false, silent });
        let (mut is_heard, mut reached) = (false, answers);
        for replica in replicas {
            let name = name_of(replica);
            let (facts, silent) = self.look(replica, patience);
            let hears = facts.as_ref().is_some_and(|facts| self.hears(&name, facts, &names));
            is_heard |= hears;
            reached |= facts.is_some();
            seen.insert(name, Seen { facts, hears, silent });
        }
        let silent = (!answers).then_some(seen[&name_of(source)].silent);
        (judge(silent, is_heard, reached, dead_after), seen)
    }

    /// Begins again with another source.
    pub(crate) fn forget(&mut self) {
        self.silent_since.clear();
        self.signs.clear();
    }
}

/// What follows from how long the source has been silent, if it does not answer.
fn judge(silent: Option<Duration>, is_heard: bool, reached: bool, dead_after: Duration) -> View {
    match silent {
        None => View::Alive,
        Some(_) if !reached => View::Blind,
        Some(silent) if !is_heard && silent >= dead_after => View::Dead,
        Some(_) => View::Alive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_only_with_all_views_and_after_its_time() {
        let (short, limit) = (Some(Duration::from_secs(59)), Duration::from_secs(60));
        assert_eq!(judge(None, false, true, limit), View::Alive);
        assert_eq!(judge(short, false, true, limit), View::Alive);
        assert_eq!(judge(Some(limit), true, true, limit), View::Alive);
        assert_eq!(judge(Some(limit), false, false, limit), View::Blind);
        assert_eq!(judge(Some(limit), false, true, limit), View::Dead);
    }
}
