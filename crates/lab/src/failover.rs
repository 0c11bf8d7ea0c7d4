//! Failovers under write load: a source is killed at a random moment, `spate promote` makes a replica the source, and `spate follow` brings the old one
//! back. Clients count which commits were acknowledged, and the tables say which are lost.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Table;
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;

use crate::home::{self, LabHome};
use crate::sandbox::{ACCOUNT, Lifetime, Sandbox, pristine_data, random_password};
use crate::screen::{Screen, table};
use crate::server_options::{Durability, ServerOptions};
use crate::spate_program::program_path;
use crate::sql::Session;
use crate::vendor::Vendor;
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Error, Result, output, threads};

/// Of `spate lab failover`.
pub const EXAMPLES: &str = "\
Examples:
  spate lab failover --rounds 50 --json failover.json
  spate lab failover --rounds 50 --semi-sync --server mysql-9.7

Each round kills the source with kill -9 while clients write, promotes a replica, and lets the old source follow. Without --semi-sync, the replicas
stop receiving 100 ms before in every second round, so that something is lost. The exit status is 0 only if the number that was reported as lost is
the number that is lost, with --semi-sync no acknowledged commit is lost, and all servers have the same rows after each round.";

/// Servers of the scenario.
const SERVERS: u32 = 3;
/// Clients that write.
const CLIENTS: u64 = 4;
/// How long servers may take to have the same rows.
const SAME_LIMIT: Duration = Duration::from_secs(60);

/// Options of `lab failover`.
#[derive(Debug, Args)]
pub struct FailoverOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// Failovers, one after the other
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    /// Let the source wait for a replica before it acknowledges a commit
    #[arg(long)]
    semi_sync: bool,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One failover.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// Commits that clients were told of.
    pub acknowledged: u64,
    /// Those of them that the new source has not.
    pub acknowledged_lost: u64,
    /// Transactions that the old source has and the new one has not, by their rows.
    pub lost: u64,
    /// The same, as `spate follow` reports it.
    pub reported: u64,
    /// From the kill to the first commit on the new source.
    pub outage_milliseconds: u64,
    /// From its restart until the old source follows.
    pub rejoin_milliseconds: u64,
    /// All servers have the same rows afterwards.
    pub is_identical: bool,
}

/// All of them.
#[derive(Debug, Clone, Serialize)]
pub struct FailoverResult {
    /// The servers' version.
    pub server: String,
    /// True if commits waited for a replica.
    pub semi_sync: bool,
    /// Each failover.
    pub rounds: Vec<Round>,
}

impl FailoverResult {
    /// True if nothing was lost that must not be, and every number is right.
    pub fn is_good(&self) -> bool {
        let is_good = |round: &Round| {
            round.is_identical && round.reported == round.lost && (!self.semi_sync || round.acknowledged_lost == 0)
        };
        self.rounds.iter().all(is_good)
    }

    fn to_table(&self) -> Table {
        let header =
            ["round", "acknowledged", "of these lost", "lost", "reported", "outage ms", "rejoin ms", "identical"];
        let row = |round: &Round| {
            vec![
                round.number.to_string(),
                round.acknowledged.to_string(),
                round.acknowledged_lost.to_string(),
                round.lost.to_string(),
                round.reported.to_string(),
                round.outage_milliseconds.to_string(),
                round.rejoin_milliseconds.to_string(),
                round.is_identical.to_string(),
            ]
        };
        table(&header, 0, self.rounds.iter().map(row).collect())
    }

    fn summary(&self) -> String {
        let sum = |value: fn(&Round) -> u64| self.rounds.iter().map(value).sum::<u64>();
        let mut outages: Vec<u64> = self.rounds.iter().map(|round| round.outage_milliseconds).collect();
        outages.sort_unstable();
        format!(
            "{}, {}: {} failovers, {} commits acknowledged, {} of them lost; {} transactions lost, {} reported; outage: median {} ms, longest {} ms",
            self.server,
            if self.semi_sync { "semi-synchronous" } else { "asynchronous" },
            self.rounds.len(),
            sum(|round| round.acknowledged),
            sum(|round| round.acknowledged_lost),
            sum(|round| round.lost),
            sum(|round| round.reported),
            outages.get(outages.len() / 2).copied().unwrap_or(0),
            outages.last().copied().unwrap_or(0),
        )
    }
}

impl FailoverOptions {
    /// Runs the scenario and shows its result.
    ///
    /// # Errors
    /// Whatever keeps a round from its end.
    pub fn run(self) -> Result<ExitCode> {
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        Screen::default().claim_disk(work.path(), 3 * home::SMALL_SERVER_BYTES)?;
        let step = Screen::default().count_bar("failovers", u64::from(self.rounds));
        let mut servers = Servers::begin(&home, &binaries, self.semi_sync, work.path(), &program_path()?)?;
        let mut result =
            FailoverResult { server: binaries.full_version.clone(), semi_sync: self.semi_sync, rounds: vec![] };
        for number in 1..=self.rounds {
            result.rounds.push(servers.round(number)?);
            step.inc(1);
        }
        step.finish_and_clear();
        output::show(&format!("{}\n{}", result.to_table(), result.summary()), &result, self.json.as_deref())?;
        Ok(if result.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A source and its replicas.
pub struct Servers {
    program: PathBuf,
    directory: PathBuf,
    password: String,
    semi_sync: bool,
    sandboxes: Vec<(Sandbox, ServerOptions)>,
    /// Which of them is the source.
    source: usize,
    next_row: AtomicU64,
}

impl Servers {
    /// Starts them; the first is the source.
    ///
    /// # Errors
    /// Those of the servers.
    pub fn begin(
        home: &LabHome,
        binaries: &ServerBinaries,
        semi_sync: bool,
        directory: &Path,
        program: &Path,
    ) -> Result<Servers> {
        let frozen = pristine_data(home, binaries)?;
        let password = random_password()?;
        let vendor = binaries.vendor();
        let mut sandboxes = Vec::new();
        for id in 1..=SERVERS {
            let mut options = ServerOptions::base(vendor, id)
                .with_replica_log(vendor, true)
                .with("innodb-buffer-pool-size", "96M")
                .with_durability(Durability::Durable);
            if semi_sync {
                options = with_semi_sync(vendor, options);
            }
            let place = directory.join(format!("server-{id}"));
            let sandbox = Sandbox::restore(binaries, &frozen, &place, &options, Lifetime::Ours)?;
            sandbox.create_account(&password)?;
            sandboxes.push((sandbox, options));
        }
        let directory = directory.to_owned();
        let servers = Servers {
            program: program.to_owned(),
            directory,
            password,
            semi_sync,
            sandboxes,
            source: 0,
            next_row: AtomicU64::new(1),
        };
        for replica in 1..servers.sandboxes.len() {
            servers.follow(replica, "first")?;
        }
        let mut session = servers.source().connect()?;
        if semi_sync {
            session.run(match vendor {
                Vendor::MariaDb => "SET GLOBAL rpl_semi_sync_master_enabled=1",
                Vendor::MySql => "SET GLOBAL rpl_semi_sync_source_enabled=1",
            })?;
        }
        session.run("CREATE DATABASE f")?;
        session.run("CREATE TABLE f.t (id BIGINT PRIMARY KEY, round INT NOT NULL, v VARCHAR(100) NOT NULL)")?;
        Ok(servers)
    }

    fn source(&self) -> &Sandbox {
        &self.sandboxes[self.source].0
    }

    fn others(&self) -> Vec<usize> {
        (0..self.sandboxes.len()).filter(|&index| index != self.source).collect()
    }

    fn at(&self, index: usize) -> String {
        format!("{ACCOUNT}@127.0.0.1:{}", self.sandboxes[index].0.port())
    }

    /// Runs `spate` with the passwords; what it printed.
    fn spate(&self, arguments: &[&str]) -> Result<std::result::Result<String, String>> {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null());
        if self.source().vendor() == Vendor::MySql {
            command.args(["--source-allow-clear-password", "--replica-allow-clear-password"]);
        }
        for name in ["SPATE_SOURCE_PASSWORD", "SPATE_REPLICA_PASSWORD", "SPATE_REPLICATION_PASSWORD"] {
            command.env(name, &self.password);
        }
        let output = command.output().map_err(|source| Error::ProgramNotRun {
            program: self.program.display().to_string(),
            advice: "Build it, or name it in SPATE_BIN.",
            source,
        })?;
        match output.status.success() {
            true => Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned())),
            false => Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// Lets a server follow the source; what `spate follow` reports.
    fn follow(&self, index: usize, save: &str) -> Result<Value> {
        let save = self.directory.join(format!("surplus-{save}-{index}"));
        let (server, source) = (self.at(index), self.at(self.source));
        let arguments = ["follow", "--replica", &server, "--source", &source, "--replication-user", ACCOUNT, "--json"];
        let done = self.spate(&[&arguments[..], &["--save", &save.to_string_lossy()]].concat())?;
        done.map(|text| serde_json::from_str(&text).unwrap_or_default())
            .map_err(|output| failed("spate follow", output))
    }

    /// Promotes one of the replicas: the first, or the one that has more.
    fn promote(&self) -> Result<usize> {
        let others = self.others();
        let mut said = String::new();
        for &candidate in &others {
            let (source, replica) = (self.at(self.source), self.at(candidate));
            let mut arguments = vec!["promote", "--source", &source, "--replica", &replica, "--source-is-dead"];
            let rest: Vec<String> =
                others.iter().filter(|&&other| other != candidate).map(|&other| self.at(other)).collect();
            rest.iter().for_each(|other| arguments.extend(["--other", other]));
            match self.spate(&arguments)? {
                Ok(_) => return Ok(candidate),
                Err(output) => said = output,
            }
        }
        Err(failed("spate promote", said))
    }

    /// One failover.
    ///
    /// # Errors
    /// Whatever keeps it from its end.
    pub fn round(&mut self, number: u32) -> Result<Round> {
        const STOP_BEFORE: Duration = Duration::from_millis(100);
        /// Until something is written.
        const FIRST_LIMIT: Duration = Duration::from_secs(60);
        let moment = Duration::from_millis(300 + random()? % 900);
        let socket = self.source().socket().to_owned();
        let process = self.source().process();
        let next_row = &self.next_row;
        let is_written = AtomicBool::new(false);
        let (acknowledged, killed) = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| scope.spawn(|| write_until_lost(&socket, number, next_row, &is_written)))
                .collect();
            // Servers that have just started are slow, and replicas that have just connected.
            let written = threads::wait_until("the first row", FIRST_LIMIT, || {
                Ok(if is_written.load(Ordering::Relaxed) { Ok(()) } else { Err(String::new()) })
            });
            // If nothing can be written, the round's numbers tell it.
            drop(written);
            std::thread::sleep(moment);
            if !self.semi_sync && number.is_multiple_of(2) {
                for other in self.others() {
                    let stopped = self.sandboxes[other].0.connect().and_then(|mut session| {
                        session.run(match self.source().vendor() {
                            Vendor::MariaDb => "STOP SLAVE IO_THREAD",
                            Vendor::MySql => "STOP REPLICA IO_THREAD",
                        })
                    });
                    // A replica that goes on receiving only loses less.
                    drop(stopped);
                }
                std::thread::sleep(STOP_BEFORE);
            }
            process.signal(Signal::KILL);
            let killed = Instant::now();
            let rows: BTreeSet<u64> =
                clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
            (rows, killed)
        });
        let old = self.source;
        self.source = self.promote()?;
        self.source()
            .connect()?
            .run(&format!("INSERT INTO f.t VALUES ({}, 0, 'first')", self.next_row.fetch_add(1, Ordering::Relaxed)))?;
        let outage = killed.elapsed();
        let restarted = Instant::now();
        let (sandbox, options) = &mut self.sandboxes[old];
        sandbox.crash_and_restart(&options.clone())?;
        let (on_old, on_new) = (self.rows(old, number)?, self.rows(self.source, number)?);
        let report = self.follow(old, &number.to_string())?;
        let rejoin = restarted.elapsed();
        Ok(Round {
            number,
            acknowledged: acknowledged.len() as u64,
            acknowledged_lost: acknowledged.difference(&on_new).count() as u64,
            lost: on_old.difference(&on_new).count() as u64,
            reported: report["surplus"]["transactions"].as_u64().unwrap_or(u64::MAX),
            outage_milliseconds: outage.as_millis() as u64,
            rejoin_milliseconds: rejoin.as_millis() as u64,
            is_identical: self.become_identical()?,
        })
    }

    fn rows(&self, index: usize, round: u32) -> Result<BTreeSet<u64>> {
        let mut session = self.sandboxes[index].0.connect()?;
        Ok(session.rows::<u64>(&format!("SELECT id FROM f.t WHERE round = {round}"))?.into_iter().collect())
    }

    fn become_identical(&self) -> Result<bool> {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let deadline = Instant::now() + SAME_LIMIT;
        loop {
            let mut found = BTreeSet::new();
            for (sandbox, _) in &self.sandboxes {
                let mut session = sandbox.connect()?;
                let sum: String = session
                    .value("SELECT CONCAT(COUNT(*), ' ', SUM(id), ' ', SUM(CRC32(CONCAT(id, round, v)))) FROM f.t")?;
                found.insert(sum);
            }
            if found.len() == 1 || Instant::now() > deadline {
                return Ok(found.len() == 1);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn failed(program: &str, output: String) -> Error {
    Error::ProgramFailed { program: program.to_owned(), status: "an error".to_owned(), output }
}

fn random() -> Result<u64> {
    Ok(u64::from_str_radix(&random_password()?[..15], 16).unwrap_or(0))
}

/// Writes until the server is gone; the rows whose commit was acknowledged.
fn write_until_lost(socket: &Path, round: u32, next_row: &AtomicU64, is_written: &AtomicBool) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let Ok(mut session) = Session::open(socket, "source") else { return acknowledged };
    loop {
        let id = next_row.fetch_add(1, Ordering::Relaxed);
        if session.run(&format!("INSERT INTO f.t VALUES ({id}, {round}, REPEAT('v', {}))", id % 90)).is_err() {
            return acknowledged;
        }
        acknowledged.push(id);
        is_written.store(true, Ordering::Relaxed);
    }
}

/// Options of a server that may be either; the first source is told to wait by [`Servers::begin`], the others when they are promoted: a source that
/// waits for one replica before a commit is visible, for as long as it takes.
fn with_semi_sync(vendor: Vendor, options: ServerOptions) -> ServerOptions {
    const TIMEOUT_MILLISECONDS: u32 = 3_600_000;
    match vendor {
        Vendor::MariaDb => options
            .with("rpl-semi-sync-slave-enabled", 1)
            .with("rpl-semi-sync-master-wait-point", "AFTER_SYNC")
            .with("rpl-semi-sync-master-timeout", TIMEOUT_MILLISECONDS),
        Vendor::MySql => options
            .with("plugin-load-add", "semisync_source.so;semisync_replica.so")
            .with("rpl-semi-sync-replica-enabled", 1)
            .with("rpl-semi-sync-source-timeout", TIMEOUT_MILLISECONDS),
    }
}
