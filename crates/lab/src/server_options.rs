//! Command-line options of a sandboxed server.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::vendor::Vendor;
use crate::{Error, Result};

/// Server options in the given order; of two with the same name the later wins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct ServerOptions {
    options: Vec<ServerOption>,
}

/// One option: `name=value`, or just `name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOption {
    name: String,
    value: Option<String>,
}

/// How much a server may lose if the machine crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: innodb_flush_log_at_trx_commit=1, sync_binlog=1.
    Durable,
    /// About a second: innodb_flush_log_at_trx_commit=2, sync_binlog=0.
    Relaxed,
}

/// When a commit reaches the disk, by the servers' settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flush {
    pub(crate) sync_binlog: u8,
    pub(crate) innodb_flush_log_at_trx_commit: u8,
}

impl Durability {
    /// The settings.
    pub(crate) const fn flush(self) -> Flush {
        match self {
            Durability::Durable => Flush { sync_binlog: 1, innodb_flush_log_at_trx_commit: 1 },
            Durability::Relaxed => Flush { sync_binlog: 0, innodb_flush_log_at_trx_commit: 2 },
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Durable => "durable",
            Durability::Relaxed => "relaxed",
        })
    }
}

/// Options with which a server would use files outside its sandbox, or the network.
const RESERVED: [&str; 9] = [
    "datadir",
    "socket",
    "port",
    "bind-address",
    "pid-file",
    "log-error",
    "tmpdir",
    "defaults-file",
    "defaults-extra-file",
];

impl ServerOption {
    /// Its name and its value.
    pub(crate) fn pair(&self) -> (String, String) {
        (self.name.clone(), self.value.clone().unwrap_or_else(|| "1".to_owned()))
    }
}

impl ServerOptions {
    /// Options of every server of the laboratory: row format, strict GTIDs, no name look-ups, an empty buffer pool.
    pub fn base(vendor: Vendor, server_id: u32) -> ServerOptions {
        let options = ServerOptions::default()
            .with("server-id", server_id)
            .with("log-bin", "binlog")
            .with("relay-log", "relay")
            .with("binlog-format", "ROW")
            .with("character-set-server", "utf8mb4")
            .with("skip-name-resolve", 1)
            .with("performance-schema", 0)
            .with("innodb-buffer-pool-load-at-startup", 0)
            .with("innodb-buffer-pool-dump-at-shutdown", 0);
        vendor.base_options().iter().fold(options, |options, (name, value)| options.with(name, value))
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> ServerOptions {
        self.set(ServerOption { name: name.to_owned(), value: Some(value.to_string()) });
        self
    }

    /// Adds the options of a durability.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> ServerOptions {
        self.with_flush(durability.flush())
    }

    /// Adds the options that say when a commit reaches the disk.
    #[must_use]
    pub(crate) fn with_flush(self, flush: Flush) -> ServerOptions {
        self.with("innodb-flush-log-at-trx-commit", flush.innodb_flush_log_at_trx_commit)
            .with("sync-binlog", flush.sync_binlog)
    }

    /// The server's id; without the option 1, the servers' own default.
    pub(crate) fn server_id(&self) -> u32 {
        self.value("server-id").and_then(|value| value.parse().ok()).unwrap_or(1)
    }

    /// Adds options that a user gave.
    #[must_use]
    pub fn with_all(mut self, options: &[ServerOption]) -> ServerOptions {
        options.iter().cloned().for_each(|option| self.set(option));
        self
    }

    /// Adds other options.
    #[must_use]
    pub(crate) fn with_options(self, others: ServerOptions) -> ServerOptions {
        self.with_all(&others.options)
    }

    /// Adds the size of the redo log.
    #[must_use]
    pub fn with_redo_log_mib(self, vendor: Vendor, mebibytes: u64) -> ServerOptions {
        self.with(vendor.redo_log_option(), format!("{mebibytes}M"))
    }

    /// Adds whether the server logs what it replicates.
    #[must_use]
    pub fn with_replica_log(self, vendor: Vendor, logs: bool) -> ServerOptions {
        self.with(vendor.replica_log_option(), u8::from(logs))
    }

    /// The value of an option that has one.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|option| option.name == name)?.value.as_deref()
    }

    /// As arguments for the server's command line.
    pub fn arguments(&self) -> impl Iterator<Item = String> + '_ {
        self.options.iter().map(|option| match &option.value {
            Some(value) => format!("--{}={value}", option.name),
            None => format!("--{}", option.name),
        })
    }

    fn set(&mut self, option: ServerOption) {
        self.options.retain(|existing| existing.name != option.name);
        self.options.push(option);
    }
}

impl From<ServerOptions> for Vec<String> {
    fn from(options: ServerOptions) -> Vec<String> {
        options.arguments().collect()
    }
}

impl TryFrom<Vec<String>> for ServerOptions {
    type Error = Error;

    fn try_from(arguments: Vec<String>) -> Result<ServerOptions> {
        let options: Vec<ServerOption> = arguments.iter().map(|argument| argument.parse()).collect::<Result<_>>()?;
        Ok(ServerOptions::default().with_all(&options))
    }
}

impl FromStr for ServerOption {
    type Err = Error;

    fn from_str(text: &str) -> Result<ServerOption> {
        let bad = |why: &str| Error::BadArgument { what: "server option", text: text.to_owned(), why: why.to_owned() };
        let text_without_dashes = text.trim_start_matches('-');
        let (name, value) = match text_without_dashes.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text_without_dashes, None),
        };
        let name = name.replace('_', "-").to_ascii_lowercase();
        if name.is_empty() || !name.chars().all(|character| character.is_ascii_alphanumeric() || character == '-') {
            return Err(bad("write name=value, such as innodb_buffer_pool_size=256M"));
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(bad("the sandbox itself decides this one; its servers stay in their directory on 127.0.0.1"));
        }
        Ok(ServerOption { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(text: &str) -> ServerOption {
        text.parse().unwrap()
    }

    #[test]
    fn later_server_option_wins_in_any_spelling() {
        let options = ServerOptions::default()
            .with("sync-binlog", 1)
            .with_all(&[option("--Sync_Binlog=0"), option("skip-networking")]);
        assert_eq!(options.arguments().collect::<Vec<_>>(), ["--sync-binlog=0", "--skip-networking"]);
    }

    #[test]
    fn server_option_outside_the_sandbox_is_refused() {
        for text in ["datadir=/var/lib/mysql", "--bind_address=0.0.0.0", "port=3306", "", "=x", "a b=c"] {
            assert!(text.parse::<ServerOption>().is_err(), "{text}");
        }
    }
}
