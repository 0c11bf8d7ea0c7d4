//! The demonstration: a replica that is a minute behind, caught up by the server itself and by Spate from the same
//! frozen copy; then Spate follows a live load.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::backlog::BacklogPlan;
use crate::binlog_format::Format;
use crate::contender::Contender;
use crate::course::BacklogPlace;
use crate::follower::{Follower, LivePlan, LiveResult};
use crate::home::LabHome;
use crate::race::{Race, RacePlan};
use crate::results::RaceResult;
use crate::screen::Screen;
use crate::server_options::Durability;
use crate::spate_program::SpateProgram;
use crate::steady;
use crate::version::ServerBinaries;
use crate::workload::{Shape, Workload};
use crate::{Error, Result, output};

/// The replica is down for this long.
const BEHIND_SECONDS: u64 = 60;
/// The source's rate meanwhile. Without a limit, a fast source would write more than native replication can apply in
/// the time of a demonstration.
const BACKLOG_RATE: u64 = 5_000;
/// Time limit of native replication; the demonstration then shows that it had not caught up.
const PATIENCE: Duration = Duration::from_secs(75);
const LIVE_SECONDS: u64 = 20;
const LIVE_RATE: u64 = 1_000;
/// Enough for the tables, on machines with little memory too.
const BUFFER_POOL_MIB: u64 = 512;
const VERIFY_LIMIT: Duration = Duration::from_secs(60);

/// The results of the demonstration.
#[derive(Debug, serde::Serialize)]
pub struct DemoResult {
    /// The race.
    pub race: RaceResult,
    /// The live load.
    pub live: LiveResult,
    /// True if `spate verify` found source and replica equal.
    pub verified: bool,
}

impl DemoResult {
    /// True if all comparisons found equal tables.
    pub fn is_sound(&self) -> bool {
        let spate = self.race.contenders.iter().filter(|contender| !contender.native);
        self.verified && self.live.identical && spate.into_iter().all(|contender| contender.identical)
    }
}

/// Runs the demonstration, and explains each step.
///
/// # Errors
/// Those of the servers, the load and the contenders.
pub fn run(home: &LabHome, binaries: &ServerBinaries, json: Option<&Path>) -> Result<DemoResult> {
    let (begun, screen, work) = (Instant::now(), Screen::default(), home.work()?);
    let shape = Shape::new(Workload::Cached, None, None, Some(BUFFER_POOL_MIB));
    let plan = RacePlan {
        backlog: BacklogPlan {
            shape,
            format: Format::Row,
            seconds: BEHIND_SECONDS,
            rate: Some(BACKLOG_RATE),
            transactions: None,
            reuse: false,
        },
        place: BacklogPlace::Received,
        durability: Durability::Durable,
        chain: None,
        replica_binlog: false,
        replica_options: Vec::new(),
        read_latency: None,
        limit: PATIENCE,
        report: None,
    };
    screen.note(&format!(
        "A source and a replica, {} {}. The replica is away while sysbench writes to the source for {BEHIND_SECONDS} s.",
        binaries.version, binaries.full_version
    ));
    screen.claim_disk(work.path(), shape.disk_bytes(2, shape.binlog_bytes(Some(BACKLOG_RATE), BEHIND_SECONDS)))?;
    let race = Race::prepare(home, binaries, &plan, work.path(), screen)?;
    screen.note(
        "Now the replica is back. Both contenders have received the backlog; they apply it with full durability.",
    );
    let native = Contender::Native { threads: 16, mode: None, prefetch: None }.on(binaries.vendor())?;
    let spate = Contender::Spate { text: None, arguments: Vec::new() };
    let mut result = race.result();
    let (outcome, replica) = race.run_one(&native, &native.to_string(), &work.path().join("native"), &result)?;
    drop(replica);
    result.contenders.push(outcome);
    let directory = work.path().join("spate");
    let (outcome, replica) = race.run_one(&spate, "spate", &directory, &result)?;
    let failure = outcome.error.clone();
    result.contenders.push(outcome);
    result.rank();
    output::tell(&format!("\n{}\n{}", result.summary(), result.to_table()), json);
    if let Some(why) = failure {
        return Err(Error::ContenderFailed { contender: "spate".into(), why });
    }

    screen.note(&format!(
        "\nThe source writes {LIVE_RATE} transactions per second, and Spate follows on the same replica."
    ));
    let source = &race.course.backlog.source;
    let password = race.course.backlog.facts.password.as_str();
    let follower = Follower::start(&spate, "spate", (source, password), &replica, None, &directory)?;
    let live = LivePlan { shape, rate: LIVE_RATE, warm_up_seconds: 2, seconds: LIVE_SECONDS };
    let live = live.run("spate", follower, source, &replica, &directory, &screen)?;
    output::tell(&steady::to_table(&[&live]).to_string(), json);

    let step = screen.spinner("spate verify");
    let verified = SpateProgram::new(source, password, &replica, &directory)?.verify(VERIFY_LIMIT);
    step.finish_and_clear();
    if let Err(error) = &verified {
        screen.note(&error.to_string());
    }
    let demo = DemoResult { race: result, live, verified: verified.is_ok() };
    output::show(&demo.closing_words(begun.elapsed()), &demo, json)?;
    Ok(demo)
}

impl DemoResult {
    fn closing_words(&self, elapsed: Duration) -> String {
        let ratio = self.race.ratio_vs_best_native.get("spate");
        let native_stopped = self.race.contenders.iter().any(|contender| contender.gave_up_after_seconds.is_some());
        let at_least = if native_stopped { "at least " } else { "" };
        let faster = ratio.map_or_else(
            || "There is no comparison with native replication.".to_owned(),
            |ratio| format!("Spate caught up {at_least}{ratio:.1} times as fast as the server's own replication."),
        );
        let equal = if self.is_sound() { "Source and replica are equal." } else { "Source and replica DIFFER." };
        format!("{faster} {equal} ({} s in all)", elapsed.as_secs())
    }
}
