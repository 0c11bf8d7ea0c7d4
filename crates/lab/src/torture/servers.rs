//! The servers of a torture: the source, the replica with native replication (within a vendor), and Spate's replica.

use std::fs;
use std::path::{Path, PathBuf};

use super::driver::CLIENTS;
use super::feature::Feature;
use super::pair::Pair;
use super::settings::Settings;
use crate::home::{self, LabHome, create_private_directory};
use crate::sandbox::{self, Lifetime, Sandbox};
use crate::server_options::ServerOptions;
use crate::spate_program::{RunningSpate, SpateProgram};
use crate::sql::Session;
use crate::vendor::Vendor;
use crate::version::ServerBinaries;
use crate::{Error, Result, native};

/// An empty data directory that servers start from fast, with the account that replicas use.
#[derive(Debug, Clone)]
pub(super) struct Template {
    data: PathBuf,
    password: String,
}

impl Template {
    /// Takes it from the cache, or creates it.
    pub(super) fn open(home: &LabHome, binaries: &ServerBinaries) -> Result<Template> {
        let place = home.dataset(&format!("torture-2-{}", binaries.cache_key()));
        if !place.is_dir() {
            let work = home.work()?;
            let pristine = sandbox::pristine_data(home, binaries)?;
            let server = work.path().join("template");
            copy(&pristine, &server.join("data"))?;
            // The redo log has the servers' size, so that they need not resize it.
            let options = ServerOptions::base(binaries.vendor(), 1)
                .with_redo_log_mib(binaries.vendor(), 8)
                .with("skip-log-bin", 1);
            let running = Sandbox::start(binaries, &server, &options, Lifetime::Ours)?;
            let password = sandbox::random_password()?;
            running.create_account(&password)?;
            if binaries.vendor() == Vendor::MariaDb {
                create_clients(&mut running.connect()?, &password)?;
            }
            let made = work.path().join("made");
            create_private_directory(&made)?;
            running.freeze(&made.join("data"))?;
            home::write_state(&made.join("password.json"), &password)?;
            home::publish_directory(&made, &place)?;
        }
        let password = home::read_state(&place.join("password.json"))?;
        Ok(Template { data: place.join("data"), password })
    }
}

/// The templates and the program that trials share.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    pub(super) parties: Parties,
    /// The `spate` program; `None` is the one beside the laboratory.
    pub(super) spate: Option<PathBuf>,
    /// `spate prefetch` runs beside the native replica.
    pub(super) prefetches_natively: bool,
}

impl Ground {
    /// The program between two servers, with its files in `directory`, which is created.
    pub(super) fn program(
        &self,
        from: &Sandbox,
        to: &Sandbox,
        password: &str,
        directory: &Path,
    ) -> Result<SpateProgram> {
        create_private_directory(directory)?;
        let program = SpateProgram::new(from, password, to, directory)?;
        Ok(match &self.spate {
            Some(path) => program.with_path(path.clone()),
            None => program,
        })
    }

    /// Reads ahead of the native replica as eagerly as it goes, if that is wanted. Ended when dropped.
    pub(super) fn prefetch_natively(&self, servers: &Servers, directory: &Path) -> Result<Option<RunningSpate>> {
        let Some(native) = servers.native.as_ref().filter(|_| self.prefetches_natively) else { return Ok(None) };
        let program = self.program(&servers.source, native, &servers.password, &directory.join("prefetch"))?;
        let eagerly = ["--always", "--offset-events", "0", "--seconds-prefetch", "1000"].map(str::to_owned);
        program.prefetch(&eagerly).map(Some)
    }
}

/// The templates of the source and of the replicas.
#[derive(Debug, Clone)]
pub(super) struct Parties {
    pub(super) source: (ServerBinaries, Template),
    pub(super) replica: (ServerBinaries, Template),
}

impl Parties {
    /// Prepares both sides' data directories.
    pub(super) fn open(home: &LabHome, source: &ServerBinaries, replica: &ServerBinaries) -> Result<Parties> {
        let party = |binaries: &ServerBinaries| Ok((binaries.clone(), Template::open(home, binaries)?));
        Ok(Parties { source: party(source)?, replica: party(replica)? })
    }

    /// The vendors of the servers.
    pub(super) fn pair(&self) -> Pair {
        Pair { source: self.source.0.vendor(), replica: self.replica.0.vendor() }
    }
}

/// Creates the accounts of sessions beside root's. They are not replicated.
fn create_clients(session: &mut Session, password: &str) -> Result<()> {
    let [writer, clerk] = CLIENTS;
    for user in CLIENTS {
        session.run(&format!("CREATE USER '{user}'@'localhost' IDENTIFIED BY '{password}'"))?;
    }
    session.run(&format!("GRANT ALL PRIVILEGES ON *.* TO '{writer}'@'localhost' WITH GRANT OPTION"))?;
    session.run(&format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE, DELETE HISTORY, CREATE TEMPORARY TABLES, CREATE VIEW, SHOW VIEW, \
         CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT, FILE ON *.* TO '{clerk}'@'localhost'"
    ))
}

/// The servers.
pub(super) struct Servers {
    pub(super) source: Sandbox,
    /// Follows by the servers' own replication; `None` between vendors.
    pub(super) native: Option<Sandbox>,
    pub(super) replica: Sandbox,
    /// Follows Spate's replica, by another Spate.
    pub(super) downstream: Option<Sandbox>,
    pub(super) password: String,
    source_options: ServerOptions,
    replica_options: ServerOptions,
}

impl Servers {
    /// Starts all on copies of the templates, and lets the native replica follow.
    pub(super) fn start(parties: &Parties, settings: &Settings, directory: &Path) -> Result<Servers> {
        let files = files_directory(directory);
        create_private_directory(&files)?;
        let source_options = settings.source().with("secure-file-priv", files.display());
        let replica_options = settings.replica(3);
        let start = |name: &str, (binaries, template): &(ServerBinaries, Template), options: &ServerOptions| {
            let place = directory.join(name);
            copy(&template.data, &place.join("data"))?;
            Sandbox::start(binaries, &place, options, Lifetime::Ours)
        };
        // The kernel kills a server with the thread that started it, so this thread starts them, one after the other.
        let source = start("source", &parties.source, &source_options)?;
        let native = match settings.pair.has_native() {
            true => Some(start("native", &parties.replica, &settings.native(2))?),
            false => None,
        };
        let replica = start("replica", &parties.replica, &replica_options)?;
        let downstream = match settings.features.has(Feature::Chain) {
            true => Some(start("downstream", &parties.replica, &settings.replica(4))?),
            false => None,
        };
        let password = parties.source.1.password.clone();
        if let Some(native) = &native {
            native::begin_to_follow(&source, &password, native, 0)?;
        }
        Ok(Servers { source, native, replica, downstream, password, source_options, replica_options })
    }

    /// Kills the source and starts it again.
    pub(super) fn crash_source(&mut self) -> Result<()> {
        self.source.crash_and_restart(&self.source_options)
    }

    /// Kills Spate's replica and starts it again.
    pub(super) fn crash_replica(&mut self) -> Result<()> {
        self.replica.crash_and_restart(&self.replica_options)
    }
}

/// The directory from which the source may read data files.
pub(super) fn files_directory(directory: &Path) -> PathBuf {
    directory.join("files")
}

/// Copies a directory without a sync: the torture measures nothing, and the copy does not outlive the run.
fn copy(from: &Path, to: &Path) -> Result<()> {
    create_private_directory(to)?;
    for entry in fs::read_dir(from).map_err(Error::file("list", from))? {
        let entry = entry.map_err(Error::file("list", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(Error::file("copy to", &target))?;
        }
    }
    Ok(())
}
