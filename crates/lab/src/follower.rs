//! Follows a source under a live load: Spate, or the server's own replication for comparison.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::beat::{BEAT_EVERY, Beats, Lag};
use crate::comparison::{checksums, different_tables};
use crate::contender::{Contender, NativeMode};
use crate::loads::tpcc::books::{Auditor, Books};
use crate::native::NativeReplication;
use crate::position::{has_reached, transactions};
use crate::sampling::{Sampling, Series, Watched};
use crate::sandbox::Sandbox;
use crate::screen::Screen;
use crate::spate_program::{RunningSpate, SpateProgram, SpateUsage, prepare_replica};
use crate::workload::{LoadLimits, Shape, Workload};
use crate::{Error, Result, threads};

/// A replication that runs until it is stopped.
pub enum Follower<'a> {
    /// The server's own, and perhaps a program that reads ahead of it.
    Native(Box<NativeReplication<'a>>, Option<Box<RunningSpate>>),
    /// The `spate` program.
    Spate(Box<RunningSpate>),
}

/// The parameters of a live load.
#[derive(Debug, Clone, Copy)]
pub struct LivePlan {
    /// The tables.
    pub shape: Shape,
    /// Transactions per second in all.
    pub rate: u64,
    /// Time before the measurement, in seconds.
    pub warm_up_seconds: u64,
    /// Time of the measurement, in seconds.
    pub seconds: u64,
}

/// The result of a follower under a live load.
#[derive(Debug, Clone, Serialize)]
pub struct LiveResult {
    /// The follower.
    pub follower: String,
    /// Transactions per second that were requested.
    pub rate: u64,
    /// Transactions per second of the load that the source committed.
    pub achieved_rate: f64,
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
    /// The lag.
    #[serde(flatten)]
    pub lag: Lag,
    /// Processors that `spate` kept busy; `None` for the server's own replication.
    pub spate_cpu_cores: Option<f64>,
    /// Peak of the resident memory of `spate`.
    pub spate_peak_rss_bytes: Option<u64>,
    /// Processors that the replica's server kept busy, the watching of the beats included.
    pub server_cpu_cores: f64,
    /// Processors that the source's server kept busy.
    pub source_cpu_cores: f64,
    /// What the machine, the servers and `spate` did meanwhile, once a second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// What readers of the replica found of the consistency conditions of the load; `None`: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub books: Option<Books>,
    /// True if all tables are equal after the load.
    pub identical: bool,
    /// Tables that differ.
    pub different_tables: Vec<String>,
}

impl LiveResult {
    /// True if all tables are equal, and no reader found anything broken.
    pub fn is_sound(&self) -> bool {
        self.identical && self.books.as_ref().is_none_or(|books| books.broken.is_empty())
    }
}

impl<'a> Follower<'a> {
    /// Starts to follow, from the GTID position `start`; `None`: from the replica's own position.
    ///
    /// # Errors
    /// [`Error::Sql`], [`Error::ProgramNotRun`].
    pub fn start(
        contender: &Contender,
        name: &'a str,
        (source, password): (&Sandbox, &str),
        replica: &Sandbox,
        start: Option<&str>,
        directory: &Path,
    ) -> Result<Follower<'a>> {
        match contender {
            Contender::Native { threads, mode, prefetch } => {
                let appliers = (*threads, mode.unwrap_or(NativeMode::usual(replica.vendor())));
                let mut native =
                    NativeReplication::prepare(name, appliers, source, password, replica, "", Duration::MAX)?;
                native.follow()?;
                let ahead = prefetch.as_ref().map(|arguments| {
                    SpateProgram::new(source, password, replica, directory)?.prefetch(arguments).map(Box::new)
                });
                Ok(Follower::Native(Box::new(native), ahead.transpose()?))
            }
            Contender::Spate { arguments, .. } => {
                let program = SpateProgram::new(source, password, replica, directory)?;
                prepare_replica(replica, arguments)?;
                let mut arguments = arguments.clone();
                let option = replica.vendor().replica_log_option().replace('-', "_");
                // As the server's own replication would do.
                if !replica.connect()?.value::<bool>(&format!("SELECT @@GLOBAL.{option}"))? {
                    arguments.push("--no-replica-binlog".into());
                }
                Ok(Follower::Spate(Box::new(program.replicate(start, None, &arguments)?)))
            }
        }
    }

    /// Checks that it still follows.
    ///
    /// # Errors
    /// [`Error::ReplicationStopped`], [`Error::ProgramFailed`].
    pub fn check(&mut self) -> Result<()> {
        match self {
            Follower::Native(native, ahead) => {
                native.check_errors()?;
                ahead.as_mut().map_or(Ok(()), |ahead| ahead.check_running())
            }
            Follower::Spate(spate) => spate.check_running(),
        }
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// [`Error::Sql`]; [`Error::ProgramFailed`] if `spate` did not end with success.
    pub fn stop(self) -> Result<Option<SpateUsage>> {
        match self {
            Follower::Native(mut native, ahead) => {
                let usage = ahead.map(|ahead| ahead.stop()).transpose()?;
                native.stop().map(|()| usage)
            }
            Follower::Spate(spate) => spate.stop().map(Some),
        }
    }

    fn cpu_time(&self) -> Option<Duration> {
        match self {
            Follower::Native(_, ahead) => ahead.as_ref().and_then(|ahead| ahead.process().cpu_time()),
            Follower::Spate(spate) => spate.process().cpu_time(),
        }
    }
}

/// Waits until a replica of Spate's has applied all that its source has committed.
///
/// # Errors
/// [`Error::Sql`]; [`Error::TimedOut`]; those of `follower`, if it ends meanwhile.
pub fn wait_until_applied(source: &Sandbox, replica: &Sandbox, follower: &mut Follower<'_>) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(600);
    let (end, mut session) = (source.logged_position()?, replica.connect()?);
    threads::wait_until(&format!("applying up to {end}"), LIMIT, || {
        follower.check()?;
        let applied: String = session.value("SELECT gtid_position FROM spate.checkpoint WHERE applier = 0")?;
        Ok(if has_reached(&applied, &end) { Ok(()) } else { Err(format!("the replica has come to {applied}")) })
    })
}

impl LivePlan {
    /// Runs the load on the source while `follower`, whose files are in `directory`, follows, measures the lag, waits until the replica has caught up,
    /// stops the follower, and compares all tables.
    ///
    /// # Errors
    /// Those of the load, the servers and the follower. Tables that differ are part of the result.
    pub fn run(
        &self,
        name: &str,
        mut follower: Follower<'_>,
        source: &Sandbox,
        replica: &Sandbox,
        directory: &Path,
        screen: &Screen,
    ) -> Result<LiveResult> {
        /// The load continues for this long after the measurement.
        const MARGIN_SECONDS: u64 = 60;
        let duration = Duration::from_secs(self.warm_up_seconds + self.seconds + MARGIN_SECONDS);
        let load = self.shape.start_load(source, LoadLimits { duration, rate: Some(self.rate), transactions: None })?;
        self.pass(name, "warms up", self.warm_up_seconds, &mut follower, screen, String::new)?;
        let before = Reading::take(&follower, source, replica)?;
        let servers = vec![("replica", replica), ("source", source)];
        let sampling = Sampling::start(&Watched { servers, directory, archive: Some(directory.join("archive")) })?;
        let has_books = self.shape.workload == Workload::Tpcc;
        let auditor = has_books.then(|| Auditor::start(replica, self.shape.schema_names())).transpose()?;
        let beats = Beats::start(source, replica)?;
        self.pass(name, "follows", self.seconds, &mut follower, screen, || {
            format!("lag {:.1} ms", beats.latest_lag().as_secs_f64() * 1e3)
        })?;
        let after = Reading::take(&follower, source, replica)?;
        let series = sampling.stop();
        let books = auditor.map(Auditor::finish).transpose()?;
        if !load.is_running() {
            let why = load
                .finish()
                .err()
                .map_or_else(|| "it had nothing more to write".to_owned(), |error| error.to_string());
            return Err(Error::LoadEnded { why });
        }
        load.stop(source)?;
        let step = screen.spinner(&format!("{name}: the last transactions"));
        // Beats continue after the load: when the last one appears, all earlier changes are on the replica too.
        std::thread::sleep(3 * BEAT_EVERY);
        let lag = beats.finish()?;
        step.finish_and_clear();
        let step = screen.spinner("all tables identical?");
        let books = match books {
            None => None,
            Some(books) => {
                let of_source = Books::audit_if_any(source, &self.shape, "source")?;
                Some(Books { broken: [of_source, books.broken].concat(), ..books })
            }
        };
        let expected = checksums(source)?;
        let different_tables = different_tables(&expected, &checksums(replica)?);
        let usage = follower.stop()?;
        step.finish_and_clear();
        let wall = (after.at - before.at).as_secs_f64();
        let cores = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / wall;
        Ok(LiveResult {
            follower: name.to_owned(),
            rate: self.rate,
            // The beats are no part of the load.
            achieved_rate: ((after.sequence - before.sequence) as f64 / wall - 1.0 / BEAT_EVERY.as_secs_f64()).max(0.0),
            seconds: wall,
            lag,
            spate_cpu_cores: before.spate.zip(after.spate).map(|(before, after)| cores(before, after)),
            spate_peak_rss_bytes: usage.map(|usage| usage.peak_resident_bytes),
            server_cpu_cores: cores(before.replica, after.replica),
            source_cpu_cores: cores(before.source, after.source),
            series,
            books,
            identical: different_tables.is_empty(),
            different_tables,
        })
    }

    /// Waits, and checks meanwhile that the follower still follows.
    fn pass(
        &self,
        name: &str,
        what: &str,
        seconds: u64,
        follower: &mut Follower<'_>,
        screen: &Screen,
        show: impl Fn() -> String,
    ) -> Result<()> {
        const LOOK_EVERY: Duration = Duration::from_millis(250);
        let bar = screen.seconds_bar(&format!("{name} {what}"), seconds);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(LOOK_EVERY);
            follower.check()?;
            bar.set_position(begun.elapsed().as_secs());
            bar.set_message(format!("{name} {what} {}", show()));
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Resource usage up to a moment.
struct Reading {
    at: Instant,
    sequence: u64,
    spate: Option<Duration>,
    source: Duration,
    replica: Duration,
}

impl Reading {
    fn take(follower: &Follower<'_>, source: &Sandbox, replica: &Sandbox) -> Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            sequence: transactions(&source.logged_position()?),
            spate: follower.cpu_time(),
            source: source.cpu_time(),
            replica: replica.cpu_time(),
        })
    }
}
