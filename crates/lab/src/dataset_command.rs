//! `lab dataset`: data sets on their own: made before they are needed, listed, taken to another machine.
//!
//! An exported data set is one file: a tar archive, compressed by zstd with its checksum, whose first entry is the manifest.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::comparison::{checksums, different_tables};
use crate::dataset::{DataSet, DataSetFacts, FACTS_FILE, Manifest, SOURCE_SERVER_ID};
use crate::home::{self, LabHome};
use crate::sandbox::{self, Lifetime, Sandbox};
use crate::screen::{self, Screen, megabytes, table, thousands};
use crate::server_options::ServerOptions;
use crate::version::{ServerBinaries, ServerVersion};
use crate::workload::{Shape, Workload};
use crate::{Error, Result, output};

pub(crate) const EXAMPLES: &str = "\
Examples:
  spate lab dataset make --workload io --rows 2000000
  spate lab dataset list
  spate lab dataset export mariadb-10.11-10.11.14-special-4x2x50000-redo512-v2 cached.tar.zst
  spate lab dataset import cached.tar.zst
  spate lab dataset remove mariadb-10.11-10.11.14-special-4x2x50000-redo512-v2

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
    /// Take a data set from a file that `export` wrote. Servers read its pages: take it only from those whom you trust
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
    /// The GTID position of its last transaction.
    position: String,
    manifest: Manifest,
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
    Screen::default().claim_disk(home.root(), 2 * shape.server_bytes())?;
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
            Ok(DataSetFacts { position, manifest, .. }) => {
                listed.push(Listed { name, bytes: size_of(&place)?, position, manifest });
            }
            Err(error) => Screen::default().note(&format!("the data set '{name}' is damaged: {error}")),
        }
    }
    Ok(listed)
}

fn list(home: &LabHome, json: bool) -> Result<()> {
    let all = all(home)?;
    if json {
        return output::print_json(&all);
    }
    let row = |set: &Listed| {
        let manifest = &set.manifest;
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
    if file.exists() && !file.is_file() {
        let why = format!("{} is no file, and is not replaced by one", file.display());
        return Err(Error::NoDataSet { name: name.to_owned(), why });
    }
    let step = Screen::default().spinner(&format!("{name} is written to {}", file.display()));
    // Whoever has the file has no account of servers here.
    let facts = DataSetFacts { password: String::new(), ..home::read_state(&place.join(FACTS_FILE))? };
    let facts = serde_json::to_vec_pretty(&facts).map_err(|source| Error::State { path: place.clone(), source })?;
    let write = || -> std::io::Result<()> {
        let mut half_written = home::half_written(file, Some(FILE_MODE))?;
        let mut encoder = zstd::Encoder::new(BufWriter::new(half_written.as_file_mut()), COMPRESSION_LEVEL)?;
        encoder.include_checksum(true)?;
        let mut archive = tar::Builder::new(encoder);
        // Zeros compress well; an import takes plain files only.
        archive.sparse(false);
        let mut header = tar::Header::new_gnu();
        header.set_size(facts.len() as u64);
        header.set_mode(FILE_MODE);
        archive.append_data(&mut header, FACTS_FILE, facts.as_slice())?;
        archive.append_dir_all("data", place.join("data"))?;
        archive.into_inner()?.finish()?.flush()?;
        half_written.as_file().sync_all()?;
        half_written.persist(file).map(drop).map_err(|error| error.error)
    };
    write().map_err(Error::file("write", file))?;
    step.finish_and_clear();
    Ok(())
}

/// An exported data set has the accounts of its server.
const FILE_MODE: u32 = 0o600;
/// What is read of a manifest at most: it has a line for each table.
const FACTS_BYTES_MAX: u64 = 16 << 20;
/// What an import leaves free on the disk.
const LEFT_FREE_BYTES: u64 = 256 << 20;

fn import(home: &LabHome, file: &Path) -> Result<()> {
    let step = Screen::default().spinner(&format!("{} is read", file.display()));
    let bad = |why: String| Error::NoDataSet { name: file.display().to_string(), why };
    let input = File::open(file).map_err(Error::file("open", file))?;
    let work = home.work()?;
    let unpacked = work.path().join("imported");
    home::create_private_directory(&unpacked)?;
    let room = home::free_disk(&unpacked)?.saturating_sub(LEFT_FREE_BYTES);
    unpack(input, &unpacked, room).map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::file("unpack into", &unpacked)(error)
        }
        _ => bad(format!("it is damaged, or no file that `export` wrote: {error}")),
    })?;
    let facts: DataSetFacts = home::read_state(&unpacked.join(FACTS_FILE))?;
    let name = facts.manifest.name.clone();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) || !unpacked.join("data").is_dir() {
        return Err(bad(format!("its manifest is of '{name}', and it has no data directory of one")));
    }
    let place = home.dataset(&name);
    if place.is_dir() {
        return Err(bad(format!("there is a data set '{name}' already; `spate lab dataset remove` removes it")));
    }
    let facts = look_into(facts, &unpacked, &bad)?;
    home::write_state(&unpacked.join(FACTS_FILE), &facts)?;
    home::publish_directory(&unpacked, &place)?;
    step.finish_and_clear();
    screen::print(&name);
    std::io::stdout().flush().map_err(Error::file("write to", Path::new("standard output")))
}

/// Takes plain files and directories, as `export` writes them, as long as there is room.
fn unpack(input: File, to: &Path, mut room: u64) -> std::io::Result<()> {
    let refuse = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    let mut archive = tar::Archive::new(zstd::Decoder::new(BufReader::new(input))?);
    // Raw: long names and extended headers are entries of their own, which are refused before anything of them is read.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let (kind, path, size) = (entry.header().entry_type(), entry.path()?.into_owned(), entry.size());
        if !matches!(kind, tar::EntryType::Directory | tar::EntryType::Regular) {
            return Err(refuse(format!("{} is neither a file nor a directory ({kind:?})", path.display())));
        }
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(refuse(format!("it has an entry {}", path.display())));
        }
        let place = to.join(&path);
        if kind.is_dir() {
            fs::create_dir_all(&place)?;
            continue;
        }
        if path == Path::new(FACTS_FILE) && size > FACTS_BYTES_MAX {
            return Err(refuse(format!("its manifest has {size} bytes")));
        }
        room = room.checked_sub(size).ok_or(std::io::ErrorKind::StorageFull)?;
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        std::io::copy(&mut entry, &mut File::create_new(&place)?)?;
    }
    Ok(())
}

/// Has a server look into imported data: its rows are those that the manifest says, no trigger, routine or event is in it, no other engine or plugin,
/// and nobody else has an account. (The server has read it by then.) The password is drawn again: the one before is known where the data set comes
/// from.
fn look_into(facts: DataSetFacts, unpacked: &Path, bad: &dyn Fn(String) -> Error) -> Result<DataSetFacts> {
    let manifest = &facts.manifest;
    let binaries = manifest.server.parse::<ServerVersion>()?.resolve()?;
    if binaries.full_version != manifest.server_version {
        return Err(bad(format!(
            "it was made by {} {}, and here is {}",
            manifest.server, manifest.server_version, binaries.full_version
        )));
    }
    let vendor = binaries.vendor();
    let redo_log =
        manifest.options.value(vendor.redo_log_option()).and_then(|size| size.strip_suffix('M')?.parse().ok());
    let options = ServerOptions::base(vendor, SOURCE_SERVER_ID).with("event-scheduler", "OFF");
    let options = redo_log.map_or(options.clone(), |mebibytes| options.with_redo_log_mib(vendor, mebibytes));
    let server = Sandbox::start(&binaries, unpacked, &options, Lifetime::Ours)?;
    let mut session = server.connect()?;
    let active: Vec<String> = session.rows(
        "SELECT CONCAT('trigger ', trigger_schema, '.', trigger_name) FROM information_schema.triggers WHERE trigger_schema <> 'sys' \
         UNION ALL SELECT CONCAT('routine ', routine_schema, '.', routine_name) FROM information_schema.routines WHERE routine_schema NOT IN ('sys', 'mysql') \
         UNION ALL SELECT CONCAT('event ', event_schema, '.', event_name) FROM information_schema.events \
         UNION ALL SELECT CONCAT('table ', table_schema, '.', table_name, ' of engine ', engine) FROM information_schema.tables \
             WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') AND engine <> 'InnoDB' \
         UNION ALL SELECT CONCAT('plugin ', name) FROM mysql.plugin UNION ALL SELECT CONCAT('function ', name) FROM mysql.func",
    )?;
    let accounts: Vec<String> = session.rows(
        "SELECT CONCAT('account ', user, '@', host) FROM mysql.user \
         WHERE NOT (host = 'localhost' AND user IN ('root', 'mysql', 'mariadb.sys', 'mysql.sys', 'mysql.session', 'mysql.infoschema') \
             OR user = 'PUBLIC' AND host = '' OR user = 'spate' AND host = '127.0.0.1')",
    )?;
    if let Some(foreign) = active.iter().chain(&accounts).next() {
        return Err(bad(format!("no data set of the laboratory has the {foreign}")));
    }
    if let Some(table) = different_tables(&manifest.checksums, &checksums(&server)?).first() {
        return Err(bad(format!("the rows of {table} are not those that its manifest says")));
    }
    let password = sandbox::random_password()?;
    server.create_account(&password)?;
    drop(session);
    server.stop()?;
    // What the server has beside its data is not part of a data set.
    for entry in fs::read_dir(unpacked).map_err(Error::file("list", unpacked))?.flatten() {
        match entry.file_name().to_str() {
            Some("data" | FACTS_FILE) => {}
            _ if entry.path().is_dir() => home::remove_if_there(&entry.path())?,
            _ => fs::remove_file(entry.path()).map_err(Error::file("remove", &entry.path()))?,
        }
    }
    Ok(DataSetFacts { password, ..facts })
}
