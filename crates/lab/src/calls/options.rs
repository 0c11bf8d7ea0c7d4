//! The command lines of `lab generate` and `lab study`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::mix::{self, MixPlan};
use super::points::{self, PointsPlan};
use super::published;
use super::study::{self, StudyPlan, WayName};
use super::{CallsPlan, RECORD_BYTES, layout, template, write_records};
use crate::home::{LabHome, create_private_directory};
use crate::screen::{self, Screen};
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Error, Result, output};

/// Shown behind the options of `lab generate`.
pub const GENERATE_EXAMPLES: &str = "\
Examples:
  # 200 MB of call records, with the layout and the template's statements
  spate lab generate cdr --size 200MB --out ./calls
  mariadb < ./calls/calls.sql
  spate load --server root@/run/mysqld/mysqld.sock --layout ./calls/calls.toml ./calls/calls.dat";

/// Shown behind the options of `lab study`.
pub const STUDY_EXAMPLES: &str = "\
Examples:
  spate lab study cdr --size 2GB --json study.json
  spate lab study cdr --size 200MB --server mysql-9.7 --load-option=--connections --load-option=2
  # the longest way by itself
  spate lab study cdr --size 20GB --way staging --json staging.json

The exit status is 0 only if all ways led to the same rows. Each way makes the records again, from the same seed, and leaves nothing. Without room for 3.2 times the records nothing begins.";

/// Shown behind the options of `lab study replay`.
pub const MIX_EXAMPLES: &str = "\
Examples:
  spate lab study replay --size 500MB --threads 1,4,8,12,28 --json replay.json";

/// Shown behind the options of `lab study points`.
pub const POINTS_EXAMPLES: &str = "\
Examples:
  spate lab study points --json points.json
  spate lab study points --queries 100000 --threads 8 --repetitions 5 --server mysql-9.7";

/// What to make.
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Call detail records of fixed width
    #[command(after_help = GENERATE_EXAMPLES)]
    Cdr(GenerateOptions),
}

/// What to study.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// The load of call detail records: a study's own way, one LOAD DATA a day, and spate load
    #[command(after_help = STUDY_EXAMPLES)]
    Cdr(StudyOptions),
    /// The replay of large statements beside small ones, by more and more threads
    #[command(after_help = MIX_EXAMPLES)]
    Replay(MixOptions),
    /// Recorded point queries, as fast as possible: by sysbench, and by spate replay
    #[command(after_help = POINTS_EXAMPLES)]
    Points(PointsOptions),
}

/// Of the records.
#[derive(Debug, Clone, Copy, Args)]
pub struct RecordOptions {
    /// Size of the file of records, such as 200MB or 2GB
    #[arg(long, value_name = "SIZE", default_value = "200MB", value_parser = parse_size)]
    size: u64,
    /// Days that they are spread over
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: u32,
    /// The same seed makes the same records
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Options of `lab generate cdr`.
#[derive(Debug, Args)]
pub struct GenerateOptions {
    #[command(flatten)]
    records: RecordOptions,
    /// Directory for the records, the layout and the template
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Options of `lab study cdr`.
#[derive(Debug, Args)]
pub struct StudyOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    #[command(flatten)]
    records: RecordOptions,
    /// A further argument of spate load; may be given several times
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    load_option: Vec<String>,
    /// The ways to load them, in this order
    #[arg(long, value_name = "WAY[,…]", value_delimiter = ',', default_values = ["staging", "by-day", "spate"])]
    way: Vec<WayName>,
    /// Stop the study's own way after so long: it is then told to take longer
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    staging_limit_seconds: Option<u64>,
    /// Write the result to this file, after each way; `-` is standard output, at the end
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of `lab study replay`.
#[derive(Debug, Args)]
pub struct MixOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    #[command(flatten)]
    records: RecordOptions,
    /// Threads of each kind of statements, one run after the other
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_values_t = [1, 4, 8, 12, 28],
          value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Vec<u16>,
    /// Write the result to this file, after each number of threads; `-` is standard output, at the end
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl MixOptions {
    /// Runs the study and shows its result.
    ///
    /// # Errors
    /// Those of [`mix::run`].
    pub fn run(self) -> Result<ExitCode> {
        let plan = MixPlan { calls: self.records.plan(), threads: self.threads };
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        let json = self.json.as_deref();
        let result =
            mix::run(&home, &binaries, &plan, work.path(), &Screen::default(), |measured| keep(measured, json))?;
        show(&format!("{}\n{}", result.summary(), result.to_table()), &result, json)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Options of `lab study points`.
#[derive(Debug, Args)]
pub struct PointsOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// Queries of each run
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    queries: u64,
    /// Connections of each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// How often both execute them, in turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Write the result to this file, after each turn; `-` is standard output, at the end
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl PointsOptions {
    /// Runs the study and shows its result.
    ///
    /// # Errors
    /// Those of [`points::run`].
    pub fn run(self) -> Result<ExitCode> {
        let plan = PointsPlan { queries: self.queries, threads: self.threads, repetitions: self.repetitions };
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        let json = self.json.as_deref();
        let result =
            points::run(&home, &binaries, plan, work.path(), &Screen::default(), |measured| keep(measured, json))?;
        show(&format!("{}\n{}", result.summary(), result.to_table()), &result, json)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl RecordOptions {
    fn plan(self) -> CallsPlan {
        CallsPlan { records: (self.size / RECORD_BYTES as u64).max(1), days: self.days, seed: self.seed }
    }
}

impl GenerateOptions {
    /// Makes the files.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn run(self) -> Result<ExitCode> {
        create_private_directory(&self.out)?;
        let (plan, screen) = (self.records.plan(), Screen::default());
        screen.claim_disk(&self.out, plan.records * RECORD_BYTES as u64)?;
        let bar = screen.count_bar("records are made", plan.records);
        write_records(plan, &self.out.join("calls.dat"), &mut |number| bar.set_position(number))?;
        bar.finish_and_clear();
        for (name, text) in [("calls.toml", layout()), ("calls.sql", template().join(";\n") + ";\n")] {
            let path = self.out.join(name);
            std::fs::write(&path, text).map_err(Error::file("write", &path))?;
        }
        screen::print(&format!("{} records in {}", plan.records, self.out.join("calls.dat").display()));
        Ok(ExitCode::SUCCESS)
    }
}

impl StudyOptions {
    /// Runs the study and shows its result.
    ///
    /// # Errors
    /// Those of [`study::run`].
    pub fn run(self) -> Result<ExitCode> {
        let plan = StudyPlan {
            calls: self.records.plan(),
            load_options: self.load_option,
            ways: self.way,
            limit: self.staging_limit_seconds.map(Duration::from_secs),
        };
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let work = home.work()?;
        let json = self.json.as_deref();
        let result =
            study::run(&home, &binaries, &plan, work.path(), &Screen::default(), |measured| keep(measured, json))?;
        let beside = published::beside(&result).map_or_else(String::new, |table| format!("\n{table}"));
        show(&format!("{}\n{}{beside}", result.summary(), result.to_table()), &result, json)?;
        Ok(if result.all_identical() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Writes what is measured so far to a file. Standard output gets it once, at the end.
fn keep<T: Serialize>(measured: &T, json: Option<&Path>) -> Result<()> {
    json.filter(|path| !output::is_standard_output(path)).map_or(Ok(()), |path| output::write_json(measured, path))
}

/// Shows a result; it is in its file already.
fn show<T: Serialize>(text: &str, result: &T, json: Option<&Path>) -> Result<()> {
    output::show(text, result, json.filter(|path| output::is_standard_output(path)))
}

/// `200MB`, `2GB`: powers of 1000, as disks are sold.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[digits..].to_ascii_lowercase().as_str() {
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err("expected a size such as 200MB or 2GB".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "expected a size such as 200MB or 2GB".to_owned())?;
    number.checked_mul(factor).filter(|size| *size > 0).ok_or_else(|| "that is no size".to_owned())
}
