//! The command line of `lab experiment`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::blocks::to_text;
use super::driver::{self, Bench};
use super::interruption::Interruption;
use super::machine::Machine;
use super::plan::Size;
use super::report::{blocks, write_html};
use super::reports::ExperimentName;
use super::result::{ExperimentResult, Header, now};
use super::store::Store;
use crate::home::LabHome;
use crate::screen::Screen;
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Error, Result, output, spate_program};

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
    /// Write the result to this file, also that of an experiment that fails; without it, to NAME-SIZE-SERVER.json; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Forget what an interrupted run has measured
    #[arg(long)]
    fresh: bool,
}

/// Where the result is wanted.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    json: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Wanted {
    /// Writes a result to where it was asked for. `usual`: where else it must be.
    fn write(&self, result: &ExperimentResult, usual: Option<&PathBuf>) -> Result<()> {
        if let Some(path) = self.json.as_ref().or(usual) {
            output::write_json(result, path)?;
        }
        match &self.report {
            Some(path) => write_html(std::slice::from_ref(result), path),
            None => Ok(()),
        }
    }

    /// The same of one that has not come to its end. Without runs, it does not replace an earlier one.
    pub(super) fn write_part(&self, result: &ExperimentResult) -> Result<()> {
        if result.runs.is_empty() { Ok(()) } else { self.write(result, None) }
    }
}

/// What becomes of a result that is a part.
pub(super) fn goes_on(result: &ExperimentResult) -> String {
    format!("{} measurements are kept; the same command goes on with the others", result.runs.len())
}

impl ExperimentOptions {
    /// Runs the experiment and shows its result.
    ///
    /// # Errors
    /// Those of the servers and programs; what was measured is kept.
    pub fn run(self) -> Result<ExitCode> {
        if self.json.is_some() && self.json == self.report {
            let text = self.report.unwrap_or_default().display().to_string();
            return Err(Error::BadArgument { what: "--report", text, why: "--json names the same file".to_owned() });
        }
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let bench = Bench { home: &home, binaries: &binaries, size: self.size, screen: Screen::default() };
        let experiment = self.name.experiment();
        let facts = experiment.settings(&bench).into_iter().map(|setting| (setting.name, setting.facts));
        let header = Header { settings: facts.collect(), ..self.header(&home, &binaries)? };
        let place = home.experiment(&format!("{}-{}-{}", self.name.name(), self.size, binaries.cache_key()));
        let wanted = Wanted { json: self.json.clone(), report: self.report.clone() };
        let mut store =
            if self.fresh { Store::fresh(place.clone(), header)? } else { Store::open(place.clone(), header)? };
        let interruption = Interruption::watch(place, wanted.clone(), bench.screen)?;
        let work = home.work()?;
        let ended = driver::run(&*experiment, bench, &mut store, work.path());
        drop(interruption);
        let result = store.result(ended.is_ok());
        // It must be somewhere before the runs are removed.
        if let Err(error) = ended {
            if let Err(second) = wanted.write_part(&result) {
                bench.screen.note(&second.to_string());
            }
            bench.screen.note(&goes_on(&result));
            return Err(error);
        }
        let usual = PathBuf::from(format!("{}-{}-{}.json", self.name.name(), self.size, binaries.version));
        wanted.write(&result, Some(&usual))?;
        store.finish()?;
        output::tell(&to_text(&blocks(&result)), self.json.as_deref());
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
