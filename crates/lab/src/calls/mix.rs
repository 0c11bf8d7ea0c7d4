//! The study's experiment with a captured log: large statements and small ones, each kind alone and both at once, by more and more threads.
//!
//! The tables are those that `spate load` makes of call records. A large statement returns a caller's whole day of a network, sorted, so that results dominate;
//! a small one looks up a caller's calls of a day. Each thread executes all statements of its kind, as the study's did.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::Table;
use serde::Serialize;

use super::{CallsPlan, Day, Random, layout, template, write_records};
use crate::home::{self, LabHome, create_private_directory};
use crate::sandbox::{Lifetime, Sandbox, pristine_data};
use crate::screen::{Screen, table};
use crate::server_options::{Durability, ServerOptions};
use crate::version::ServerBinaries;
use crate::{Error, Result, spate_program};

/// As many as the study had.
const LARGE: u32 = 63;
const SMALL: u32 = 100;
/// Rows of a large result.
const LARGE_ROWS: u32 = 20_000;
const BUFFER_POOL_MIB: u64 = 512;

/// What to do.
#[derive(Debug, Clone)]
pub struct MixPlan {
    /// The records.
    pub calls: CallsPlan,
    /// Threads of each kind, one run after the other.
    pub threads: Vec<u16>,
}

/// One kind of statements in one run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Kind {
    /// Statements that were answered.
    pub statements: u64,
    /// Seconds until the last was.
    pub seconds: f64,
    /// Half of them took no longer, in milliseconds.
    pub p50_ms: f64,
    /// 95 of 100 took no longer, in milliseconds.
    pub p95_ms: f64,
}

/// One number of threads.
#[derive(Debug, Clone, Serialize)]
pub struct MixRun {
    /// Threads of each kind.
    pub threads: u16,
    /// Large statements with nothing beside them.
    pub large_alone: Kind,
    /// Small statements with nothing beside them.
    pub small_alone: Kind,
    /// Large statements beside small ones.
    pub large_beside: Kind,
    /// Small statements beside large ones.
    pub small_beside: Kind,
    /// Temporary tables on disk while both ran.
    pub disk_tables: u64,
    /// Sorts that needed the disk while both ran.
    pub disk_sorts: u64,
    /// The part of the time that the busiest disk was busy while both ran. `None`: nobody could look.
    pub disk_busy: Option<f64>,
    /// Temporary files and data share a disk. `None`: nobody could look.
    pub shares_disk: Option<bool>,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct MixResult {
    /// The server's version.
    pub server: String,
    /// Records in its tables.
    pub records: u64,
    /// The runs.
    pub runs: Vec<MixRun>,
}

impl MixResult {
    /// For people.
    pub fn to_table(&self) -> Table {
        let milliseconds = |kind: &Kind| format!("{:.1} / {:.1}", kind.p50_ms, kind.p95_ms);
        let rows = self.runs.iter().map(|run| {
            vec![
                run.threads.to_string(),
                milliseconds(&run.large_alone),
                milliseconds(&run.large_beside),
                milliseconds(&run.small_alone),
                milliseconds(&run.small_beside),
                run.disk_tables.to_string(),
                run.disk_busy.map_or("?".to_owned(), |busy| format!("{:.0} %", busy * 100.0)),
            ]
        });
        let header =
            ["threads", "large alone", "beside small", "small alone", "beside large", "tables on disk", "disk busy"];
        table(&header, 0, rows.collect())
    }

    /// What was asked, and of what.
    pub fn summary(&self) -> String {
        let shares = self.runs.last().and_then(|run| run.shares_disk);
        let disk = match shares {
            Some(true) => "; temporary files and data share a disk",
            Some(false) => "; temporary files have a disk of their own",
            None => "",
        };
        format!(
            "{}: {} records; {LARGE} large statements and {SMALL} small ones, each by so many threads; milliseconds at 50 and at 95 of 100{disk}",
            self.server, self.records
        )
    }
}

/// Fills a server, and asks it. `measured` sees what is measured after each number of threads.
///
/// # Errors
/// Those of the server and of the program.
pub fn run(
    home: &LabHome,
    binaries: &ServerBinaries,
    plan: &MixPlan,
    directory: &Path,
    screen: &Screen,
    mut measured: impl FnMut(&MixResult) -> Result<()>,
) -> Result<MixResult> {
    // The records, the tables, and what is measured.
    screen.claim_disk(directory, 3 * plan.calls.records * super::RECORD_BYTES as u64 + home::SMALL_SERVER_BYTES)?;
    let server = fill(home, binaries, plan.calls, directory, screen)?;
    let (large, small) = (directory.join("large.csv"), directory.join("small.csv"));
    write_statements(&large, LARGE, plan.calls, large_statement)?;
    write_statements(&small, SMALL, plan.calls, small_statement)?;
    let mut result = MixResult { server: binaries.full_version.clone(), records: plan.calls.records, runs: vec![] };
    for &threads in &plan.threads {
        let step = screen.spinner(&format!("{threads} threads"));
        let input = |path: &Path, name: &str| format!("{},each={threads},name={name}", path.display());
        let (of_large, of_small) = (input(&large, "large"), input(&small, "small"));
        let replay = |inputs: &[&String]| {
            let inputs: Vec<String> = inputs.iter().map(|input| (*input).clone()).collect();
            spate_program::replay(&server, &inputs)
        };
        let (large_alone, small_alone) = (replay(&[&of_large])?, replay(&[&of_small])?);
        let both = replay(&[&of_large, &of_small])?;
        let counter = |name: &str| both["server"]["counters"][name].as_u64().unwrap_or_default();
        let disks = both["server"]["disks"].as_array().cloned().unwrap_or_default();
        let busy = disks.iter().filter_map(|disk| disk["busy"].as_f64());
        result.runs.push(MixRun {
            threads,
            large_alone: kind(&large_alone, "large"),
            small_alone: kind(&small_alone, "small"),
            large_beside: kind(&both, "large"),
            small_beside: kind(&both, "small"),
            disk_tables: counter("Created_tmp_disk_tables"),
            disk_sorts: counter("Sort_merge_passes"),
            disk_busy: busy.reduce(f64::max),
            shares_disk: both["server"]["shares_disk"].as_bool(),
        });
        step.finish_and_clear();
        measured(&result)?;
    }
    Ok(result)
}

fn fill(
    home: &LabHome,
    binaries: &ServerBinaries,
    calls: CallsPlan,
    directory: &Path,
    screen: &Screen,
) -> Result<Sandbox> {
    let records = directory.join("calls.dat");
    let bar = screen.count_bar("records are made", calls.records);
    write_records(calls, &records, &mut |number| bar.set_position(number))?;
    bar.finish_and_clear();
    let step = screen.spinner("spate load");
    let vendor = binaries.vendor();
    let options = ServerOptions::base(vendor, 1)
        .with("innodb-buffer-pool-size", format!("{BUFFER_POOL_MIB}M"))
        .with("local-infile", 1)
        .with_durability(Durability::Relaxed);
    let place = directory.join("server");
    create_private_directory(&place)?;
    let server = Sandbox::restore(binaries, &pristine_data(home, binaries)?, &place, &options, Lifetime::Ours)?;
    let mut session = server.connect()?;
    template().iter().try_for_each(|sql| session.run(sql))?;
    let layout_path = directory.join("calls.toml");
    std::fs::write(&layout_path, layout()).map_err(Error::file("write", &layout_path))?;
    spate_program::load(&server, &layout_path, &records, directory, &[])?;
    std::fs::remove_file(&records).map_err(Error::file("remove", &records))?;
    step.finish_and_clear();
    Ok(server)
}

fn write_statements(path: &PathBuf, count: u32, calls: CallsPlan, make: fn(&mut Random, &str) -> String) -> Result<()> {
    let mut random = Random(calls.seed ^ u64::from(count));
    let mut text = "time,schema,statement\n".to_owned();
    for number in 0..count {
        let Day { year, month, day } = Day::at(number % calls.days);
        let statement = make(&mut random, &format!("calls_{year:04}{month:02}{day:02}"));
        let _always_fits = writeln!(text, "{number},cdr,\"{statement}\"");
    }
    std::fs::write(path, text).map_err(Error::file("write", path))
}

fn large_statement(random: &mut Random, day: &str) -> String {
    let cost = random.below(10);
    format!("SELECT * FROM {day} WHERE cost >= {cost} ORDER BY volume DESC, call_id LIMIT {LARGE_ROWS}")
}

fn small_statement(random: &mut Random, day: &str) -> String {
    let caller = 33_600_000_000 + random.skewed(1_000_000);
    format!("SELECT called, start_time, seconds FROM {day} WHERE caller = {caller} ORDER BY start_time")
}

fn kind(report: &serde_json::Value, name: &str) -> Kind {
    let inputs = report["sums"]["inputs"].as_array().cloned().unwrap_or_default();
    let found = inputs.into_iter().find(|input| input["name"] == name).unwrap_or_default();
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_default();
    Kind {
        statements: found["statements"].as_u64().unwrap_or_default(),
        seconds: number(&found["seconds"]),
        p50_ms: number(&found["latency_ms"]["p50"]),
        p95_ms: number(&found["latency_ms"]["p95"]),
    }
}
