//! The command line of `lab experiment`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::blocks::to_text;
use super::driver::{self, Bench};
use super::machine::Machine;
use super::plan::Size;
use super::report::{blocks, write_html};
use super::reports::ExperimentName;
use super::result::{Header, now};
use super::store::Store;
use crate::home::LabHome;
use crate::screen::{self, Screen};
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Result, results, spate_program};

pub(crate) const EXAMPLES: &str = "\
Examples:
  # Does it work here? (less than five minutes)
  spate lab experiment lag --size tiny

  # Tungsten's benchmark, with its report; interrupted by Ctrl-C, the same command goes on
  spate lab experiment shards --size small --json shards.json --report shards.html

  # The annex's tables, on MySQL
  spate lab experiment durability --size small --server mysql-9.7 --json durability.json --report durability.html

  # Each measurement five times, for a comparison with another build
  spate lab experiment lag --size tiny --repetitions 5 --json before.json

The exit status is 0 only if every contender came to its end, and all tables were identical.";

/// Options of `lab experiment`.
#[derive(Debug, Args)]
pub struct ExperimentOptions {
    /// Which one
    #[arg(value_enum, value_name = "NAME")]
    name: ExperimentName,
    /// How large it is
    #[arg(long, value_enum, default_value_t = Size::Tiny)]
    size: Size,
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// How often each cell is measured; without it, once for tiny, else twice
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repetitions: Option<u32>,
    /// The order of the measurements is drawn from this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the result to this file, also that of an experiment that fails; without it, to NAME-SIZE-SERVER.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Forget what an interrupted run has measured
    #[arg(long)]
    fresh: bool,
}

impl ExperimentOptions {
    /// Runs the experiment and shows its result.
    ///
    /// # Errors
    /// Those of the servers and programs; what was measured is kept.
    pub fn run(self) -> Result<ExitCode> {
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let bench = Bench { home: &home, binaries: &binaries, size: self.size, screen: Screen::default() };
        let experiment = self.name.experiment();
        let facts = experiment.settings(&bench).into_iter().map(|setting| (setting.name, setting.facts));
        let header = Header { settings: facts.collect(), ..self.header(&home, &binaries)? };
        let place = home.experiment(&format!("{}-{}-{}", self.name.name(), self.size, binaries.cache_key()));
        let mut store = if self.fresh { Store::fresh(place, header)? } else { Store::open(place, header)? };
        let work = home.work()?;
        let ended = driver::run(&*experiment, bench, &mut store, work.path());
        let result = store.result(ended.is_ok());
        // It must be somewhere before the runs are removed.
        let usual = PathBuf::from(format!("{}-{}-{}.json", self.name.name(), self.size, binaries.version));
        // What an experiment without runs fails for is told below; what nobody asked for does not replace an earlier result.
        if ended.is_ok() || (!result.runs.is_empty() && self.json.is_some()) {
            results::write_json(&result, self.json.as_ref().unwrap_or(&usual))?;
            if let Some(path) = &self.report {
                write_html(std::slice::from_ref(&result), path)?;
            }
        }
        if let Err(error) = ended {
            let kept = result.runs.len();
            bench.screen.note(&format!("{kept} measurements are kept; the same command goes on with the others"));
            return Err(error);
        }
        store.finish()?;
        screen::print(&to_text(&blocks(&result)));
        Ok(if result.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn header(&self, home: &LabHome, binaries: &ServerBinaries) -> Result<Header> {
        let name = self.name.name();
        let repetitions = self.repetitions.unwrap_or(self.size.of(1, 2, 2));
        Ok(Header {
            experiment: name.to_owned(),
            size: self.size,
            server: binaries.version.to_string(),
            server_version: binaries.full_version.clone(),
            spate_version: spate_program::version()?,
            laboratory_version: spate_program::laboratory_version()?,
            machine: Machine::this(home.root()),
            command: format!(
                "spate lab experiment {name} --size {} --server {} --repetitions {repetitions} --seed {}",
                self.size, binaries.version, self.seed
            ),
            seed: self.seed,
            repetitions,
            begun: now(),
            settings: std::collections::BTreeMap::new(),
        })
    }
}
