//! The torture: hostile statements, drawn from a seed, on a source that two replicas follow: one by the server's own
//! replication, which is the oracle, one by Spate. In the end both must be equal. Between vendors there is no such
//! replication; Spate's replica must equal the source.
//!
//! - [`feature`], [`settings`]: the features of a seed, and its settings;
//! - [`pair`], `vendor_options`: the vendors of the servers, their common features, and their options;
//! - `generate`, `world`: draws the statements, for the objects on the source;
//! - `mysql_words`, `mysql_only`: translates statements for MySQL, and draws those that only MySQL has;
//! - `driver`, `waits`, [`step`], `trial`: one thread drives all client sessions, records its steps, and injects
//!   failures;
//! - `servers`: the servers; `link`: a Spate between two of them;
//! - [`picture`], [`judge`]: the contents of a server, and their comparison; `shared_picture`: between vendors;
//! - `shrink`: the shortest record that still shows a finding; [`report`]: the results, for people and programs.

mod driver;
mod fate;
pub mod feature;
mod generate;
pub mod judge;
mod link;
mod mysql_only;
mod mysql_words;
pub mod options;
pub mod pair;
pub mod picture;
pub mod report;
mod servers;
pub mod settings;
mod shared_picture;
mod shrink;
pub mod step;
mod trial;
mod vendor_options;
mod waits;
mod world;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Result;
use crate::binlog_format::Format;
use crate::home::{self, LabHome};
use crate::screen::Screen;
use crate::version::ServerBinaries;
use feature::FeatureSet;
use report::SeedResult;
use servers::{Ground, Parties};
use settings::{Failures, Settings};
use step::Step;
use trial::{SPATE_DIRECTORIES, Script, TrialResult};

/// The plan of a torture.
#[derive(Debug, Clone)]
pub struct TorturePlan {
    /// The allowed features.
    pub features: FeatureSet,
    /// False: each seed uses all of these features, not only those that it draws.
    pub draw_features: bool,
    /// How the source logs; `None`: as the seed draws it.
    pub format: Option<Format>,
    /// The programs to kill.
    pub failures: Failures,
    /// How long each seed writes.
    pub time: Duration,
    /// How long a finding is shrunk; `None`: not at all.
    pub shrink: Option<Duration>,
    /// The directory for records, and for the files of seeds with findings; `None` keeps nothing.
    pub keep: Option<PathBuf>,
    /// The `spate` program; `None` is the one beside the laboratory.
    pub spate: Option<PathBuf>,
    /// Arguments of `spate replicate` beside those that a seed draws.
    pub spate_arguments: Vec<String>,
    /// `spate prefetch` runs beside the native replica.
    pub prefetches_natively: bool,
}

/// A laboratory for tortures.
pub struct Torture<'a> {
    home: &'a LabHome,
    plan: TorturePlan,
    ground: Ground,
    screen: Screen,
}

/// Comparisons of recorded steps, on fresh servers each.
pub(crate) struct Comparisons<'a> {
    home: &'a LabHome,
    ground: Ground,
}

/// What one has shown.
pub(crate) struct Comparison {
    pub(crate) statements: u64,
    pub(crate) findings: Vec<judge::Finding>,
    pub(crate) notes: Vec<String>,
    /// The native replica came to the end.
    pub(crate) has_oracle: bool,
}

impl<'a> Comparisons<'a> {
    /// Prepares the servers' data directories, which are made once.
    pub(crate) fn prepare(home: &'a LabHome, binaries: &ServerBinaries) -> Result<Comparisons<'a>> {
        Ok(Comparisons {
            home,
            ground: Ground {
                parties: Parties::open(home, binaries, binaries)?,
                spate: None,
                prefetches_natively: false,
            },
        })
    }

    pub(crate) fn pair(&self) -> pair::Pair {
        self.ground.parties.pair()
    }

    /// Repeats these steps.
    pub(crate) fn compare(&self, settings: &Settings, steps: &[Step], tell: &dyn Fn(&str)) -> Result<Comparison> {
        let work = self.home.work()?;
        let result = trial::run(&self.ground, settings, Script::Given(steps), &work.path().join("e"), tell)?;
        let TrialResult { statements, findings, notes, has_oracle, has_excused_stop, .. } = result;
        // Where both stopped alike, what comes after was not compared.
        Ok(Comparison { statements, findings, notes, has_oracle: has_oracle && !has_excused_stop })
    }
}

impl<'a> Torture<'a> {
    /// Prepares the servers' data directories, which are made once.
    ///
    /// # Errors
    /// Those of starting a server.
    pub fn prepare(
        home: &'a LabHome,
        source: &ServerBinaries,
        replica: &ServerBinaries,
        plan: TorturePlan,
        screen: Screen,
    ) -> Result<Torture<'a>> {
        let ground = Ground {
            parties: Parties::open(home, source, replica)?,
            spate: plan.spate.clone(),
            prefetches_natively: plan.prefetches_natively,
        };
        if let Some(keep) = &plan.keep {
            home::create_private_directory(keep)?;
        }
        Ok(Torture { home, plan, ground, screen })
    }

    /// Runs one seed. An error that prevents a verdict is part of the result.
    pub fn seed(&self, seed: u64) -> SeedResult {
        let plan = &self.plan;
        let pair = self.ground.parties.pair();
        let mut settings = Settings::draw(seed, pair, plan.format, &plan.features, plan.draw_features, plan.failures);
        settings.spate_arguments.extend(plan.spate_arguments.iter().cloned());
        self.torture(settings, Script::Generate(plan.time))
    }

    /// Repeats a record that `--keep` has kept.
    ///
    /// # Errors
    /// [`crate::Error::File`], [`crate::Error::State`]; [`crate::Error::BadArgument`] if it was made for other servers.
    pub fn replay(&self, record: &Path) -> Result<SeedResult> {
        let (settings, steps) = step::read(record)?;
        let (recorded, pair) = (settings.pair, self.ground.parties.pair());
        if recorded != pair {
            return Err(crate::Error::BadArgument {
                what: "record for these servers",
                text: record.display().to_string(),
                why: format!(
                    "it is from {:?} to {:?}; --server and --replica say so",
                    recorded.source, recorded.replica
                ),
            });
        }
        Ok(self.torture(settings, Script::Repeat(&steps)))
    }

    fn torture(&self, settings: Settings, script: Script<'_>) -> SeedResult {
        let begun = Instant::now();
        let bar = self.screen.spinner(&format!(
            "seed {} · {} · {}",
            settings.seed,
            settings.format,
            if settings.failures.is_empty() { "no failures" } else { "with failures" }
        ));
        let tell = |what: &str| bar.set_message(format!("seed {} · {} · {what}", settings.seed, settings.format));
        let outcome = self.home.work().and_then(|work| {
            let directory = work.path().join("t");
            let result = trial::run(&self.ground, &settings, script, &directory, &tell);
            let result = result.or_else(|error| {
                drop(self.keep_logs(&settings, &directory));
                crash(&directory).map(TrialResult::without_oracle).ok_or(error)
            })?;
            self.keep(&settings, &result, &directory)?;
            let _ = std::fs::remove_dir_all(&directory);
            let shrunk = match (self.plan.shrink, result.findings.first()) {
                (Some(time), Some(finding)) => {
                    let place = work.path().join("s");
                    shrink::shrink(&self.ground, &settings, (&result.steps, finding), time, &place, &tell)?
                }
                _ => None,
            };
            if let Some(shrunk) = &shrunk {
                self.keep_steps(&shrunk.settings, &shrunk.steps, "shrunk")?;
            }
            Ok((result, shrunk))
        });
        bar.finish_and_clear();
        SeedResult::new(&settings, outcome, begun.elapsed())
    }

    /// Keeps the record; with a finding, or a stop that is excused, also Spate's files and the servers' logs.
    fn keep(&self, settings: &Settings, result: &TrialResult, directory: &Path) -> Result<()> {
        self.keep_steps(settings, &result.steps, "steps")?;
        if !result.findings.is_empty() || result.has_excused_stop || !result.has_oracle && settings.pair.has_native() {
            self.keep_logs(settings, directory)?;
        }
        Ok(())
    }

    /// Keeps Spate's files and the servers' logs.
    fn keep_logs(&self, settings: &Settings, directory: &Path) -> Result<()> {
        let Some(keep) = &self.plan.keep else { return Ok(()) };
        let place = keep.join(format!("seed-{}", settings.seed));
        let _ = std::fs::remove_dir_all(&place);
        let [first, second] = SPATE_DIRECTORIES.map(|name| directory.join(name));
        home::copy_directory(&first, &place)?;
        if second.is_dir() {
            home::copy_directory(&second, &place.join("downstream"))?;
        }
        for server in ["source", "native", "replica", "downstream"] {
            let log = directory.join(server).join("error.log");
            if !log.is_file() {
                continue;
            }
            let target = place.join(format!("{server}.log"));
            std::fs::copy(&log, &target).map_err(crate::Error::file("copy to", &target))?;
        }
        Ok(())
    }

    fn keep_steps(&self, settings: &Settings, steps: &[Step], name: &str) -> Result<()> {
        let Some(keep) = &self.plan.keep else { return Ok(()) };
        step::write(&keep.join(format!("seed-{}.{name}.jsonl", settings.seed)), settings, steps)
    }
}

/// Finds a server, among those that Spate does not write to, that has crashed by itself, and the line of its log about
/// it.
fn crash(directory: &Path) -> Option<String> {
    ["source", "native"].into_iter().find_map(|server| {
        let log = std::fs::read(directory.join(server).join("error.log")).ok()?;
        let log = String::from_utf8_lossy(&log).into_owned();
        let line = log.lines().find(|line| line.contains("got signal "))?;
        Some(format!("native stopped: the {server}'s server crashed by itself: {line}"))
    })
}
