//! `lab dataset`: data sets on their own: made before they are needed, listed, taken to another machine.
//!
//! An exported data set is one file: a tar archive, compressed by zstd with its checksum, whose first entry is the manifest.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::dataset::{DataSet, DataSetFacts, FACTS_FILE};
use crate::home::{self, LabHome};
use crate::screen::{self, Screen, megabytes, table, thousands};
use crate::version::{ServerBinaries, ServerVersion};
use crate::workload::{Shape, Workload};
use crate::{Error, Result, results};

pub(crate) const EXAMPLES: &str = "\
Examples:
  spate lab dataset make --workload io --rows 2000000
  spate lab dataset list
  spate lab dataset export mariadb-10.11-10.11.14-4x2x50000-redo512 cached.tar.zst
  spate lab dataset import cached.tar.zst
  spate lab dataset remove mariadb-10.11-10.11.14-4x2x50000-redo512

Races and experiments make the data sets that they need, and find those that were made or imported. Each run gets a copy, which takes no time on a
file system that can share blocks (XFS, Btrfs).";

/// The level of compression: data pages compress well at any.
const COMPRESSION_LEVEL: i32 = 3;

/// The commands for data sets.
#[derive(Debug, Subcommand)]
pub enum DatasetCommand {
    /// Make a data set, unless there is one
    Make(MakeOptions),
    /// Show all data sets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove data sets
    Remove {
        /// Which ones, as `list` names them
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All of them
        #[arg(long)]
        all: bool,
    },
    /// Write a data set to a file
    Export {
        /// Which one, as `list` names it
        name: String,
        /// The file, usually named .tar.zst
        file: PathBuf,
    },
    /// Take a data set from a file that `export` wrote
    Import {
        /// The file
        file: PathBuf,
    },
}

/// Options of `lab dataset make`.
#[derive(Debug, Args)]
pub struct MakeOptions {
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// The tables
    #[arg(long, value_enum, default_value_t = Workload::Cached)]
    workload: Workload,
    /// Schemas, instead of the workload's number
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    schemas: Option<u16>,
    /// Tables in each schema, instead of the workload's number
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=5_000))]
    tables: Option<u16>,
    /// Rows in each table, instead of the workload's number
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: Option<u64>,
}

/// A data set that there is.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    bytes: u64,
    #[serde(flatten)]
    facts: DataSetFacts,
}

impl DatasetCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Error::NoDataSet`], [`Error::File`], [`Error::State`]; those of running servers.
    pub fn run(self) -> Result<ExitCode> {
        let home = LabHome::open()?;
        match self {
            DatasetCommand::Make(options) => make(&home, &options)?,
            DatasetCommand::List { json } => list(&home, json)?,
            DatasetCommand::Remove { names, all } => remove(&home, &names, all)?,
            DatasetCommand::Export { name, file } => export(&home, &name, &file)?,
            DatasetCommand::Import { file } => import(&home, &file)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn make(home: &LabHome, options: &MakeOptions) -> Result<()> {
    let binaries = ServerBinaries::choose(options.server)?;
    let mut shape = Shape::new(options.workload, options.tables.map(usize::from), options.rows, None);
    if let Some(schemas) = options.schemas {
        shape = shape.with_schemas(schemas.into());
    }
    // The server that is filled, and the copy that is kept.
    home::need_disk(home.root(), 2 * shape.server_bytes())?;
    let step = Screen::default().spinner(&format!("{} tables", shape.schemas * shape.tables));
    let dataset = DataSet::open(home, &binaries, &shape)?;
    step.finish_and_clear();
    screen::print(&dataset.name());
    Ok(())
}

/// The names of all data sets, damaged ones too.
fn names(home: &LabHome) -> Result<Vec<String>> {
    let directory = home.datasets();
    let entries = fs::read_dir(&directory).map_err(Error::file("list", &directory))?.flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// All data sets, by name. Those that are damaged are told.
fn all(home: &LabHome) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for name in names(home)? {
        let place = home.dataset(&name);
        match home::read_state(&place.join(FACTS_FILE)) {
            Ok(facts) => listed.push(Listed { name, bytes: size_of(&place)?, facts }),
            Err(error) => Screen::default().note(&format!("the data set '{name}' is damaged: {error}")),
        }
    }
    Ok(listed)
}

fn list(home: &LabHome, json: bool) -> Result<()> {
    let all = all(home)?;
    if json {
        return results::write_json(&all, "-".as_ref());
    }
    let row = |set: &Listed| {
        let manifest = &set.facts.manifest;
        vec![
            set.name.clone(),
            manifest.server.clone(),
            manifest.checksums.len().to_string(),
            thousands(manifest.rows),
            megabytes(set.bytes),
        ]
    };
    screen::print(
        &table(&["name", "server", "tables", "rows each", "size"], 2, all.iter().map(row).collect()).to_string(),
    );
    Ok(())
}

fn remove(home: &LabHome, names: &[String], everything: bool) -> Result<()> {
    let names = if everything { self::names(home)? } else { names.to_vec() };
    // Of several, none is removed if one is not there.
    let places: Vec<PathBuf> = names.iter().map(|name| directory_of(home, name)).collect::<Result<_>>()?;
    places.iter().try_for_each(|place| fs::remove_dir_all(place).map_err(Error::file("remove", place)))
}

/// Where the data set of this name is, which may be damaged.
fn directory_of(home: &LabHome, name: &str) -> Result<PathBuf> {
    if names(home)?.iter().any(|known| known == name) {
        return Ok(home.dataset(name));
    }
    Err(Error::NoDataSet {
        name: name.to_owned(),
        why: "there is none of this name; `spate lab dataset list` shows all".into(),
    })
}

/// Where the data set of this name is.
fn place(home: &LabHome, name: &str) -> Result<PathBuf> {
    let place = directory_of(home, name)?;
    home::read_state::<DataSetFacts>(&place.join(FACTS_FILE))?;
    Ok(place)
}

fn size_of(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).map_err(Error::file("list", directory))?.flatten() {
        let data = entry.metadata().map_err(Error::file("look at", &entry.path()))?;
        bytes += if data.is_dir() { size_of(&entry.path())? } else { data.len() };
    }
    Ok(bytes)
}

fn export(home: &LabHome, name: &str, file: &Path) -> Result<()> {
    let place = place(home, name)?;
    let step = Screen::default().spinner(&format!("{name} is written to {}", file.display()));
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Compressed, it takes less.
    home::need_disk(parent, size_of(&place)?)?;
    let half_written = file.with_extension("new");
    let failed = |source: std::io::Error| Error::file("write", &half_written)(source);
    let out = BufWriter::new(File::create(&half_written).map_err(failed)?);
    let write = || -> std::io::Result<()> {
        let mut encoder = zstd::Encoder::new(out, COMPRESSION_LEVEL)?;
        encoder.include_checksum(true)?;
        let mut archive = tar::Builder::new(encoder);
        archive.append_path_with_name(place.join(FACTS_FILE), FACTS_FILE)?;
        archive.append_dir_all("data", place.join("data"))?;
        let file = archive.into_inner()?.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.sync_all()
    };
    if let Err(error) = write() {
        let _nothing_half_done = fs::remove_file(&half_written);
        return Err(failed(error));
    }
    fs::rename(&half_written, file).map_err(Error::file("write", file))?;
    step.finish_and_clear();
    Ok(())
}

fn import(home: &LabHome, file: &Path) -> Result<()> {
    let step = Screen::default().spinner(&format!("{} is read", file.display()));
    let bad = |why: String| Error::NoDataSet { name: file.display().to_string(), why };
    let input = File::open(file).map_err(Error::file("open", file))?;
    let work = home.work()?;
    let unpacked = work.path().join("imported");
    home::create_private_directory(&unpacked)?;
    let read = || -> std::io::Result<()> {
        let mut archive = tar::Archive::new(zstd::Decoder::new(BufReader::new(input))?);
        archive.set_preserve_permissions(false);
        archive.unpack(&unpacked)
    };
    read().map_err(|error| bad(format!("it is damaged, or no file that `export` wrote: {error}")))?;
    let facts: DataSetFacts = home::read_state(&unpacked.join(FACTS_FILE))?;
    let manifest = &facts.manifest;
    if Path::new(&manifest.name).components().count() != 1 || !unpacked.join("data").is_dir() {
        return Err(bad(format!("its manifest is of '{}', and it has no data directory of one", manifest.name)));
    }
    let place = home.dataset(&manifest.name);
    if place.is_dir() {
        return Err(bad(format!(
            "there is a data set '{}' already; `spate lab dataset remove` removes it",
            manifest.name
        )));
    }
    home::publish_directory(&unpacked, &place)?;
    step.finish_and_clear();
    screen::print(&manifest.name);
    std::io::stdout().flush().map_err(Error::file("write to", Path::new("standard output")))
}
