//! The three servers of a torture: the source, the replica that follows by the server's own means, and Spate's.

use std::fs;
use std::path::{Path, PathBuf};

use super::settings::Settings;
use crate::home::{self, LabHome, create_private_directory};
use crate::sandbox::{self, Lifetime, Sandbox};
use crate::server_options::ServerOptions;
use crate::sql::Session;
use crate::version::ServerBinaries;
use crate::{Error, Result};

/// An empty data directory that servers start from fast, with the account that replicas use.
#[derive(Debug, Clone)]
pub(super) struct Template {
    data: PathBuf,
    password: String,
}

impl Template {
    /// From the cache, or made now.
    pub(super) fn open(home: &LabHome, binaries: &ServerBinaries) -> Result<Template> {
        let place = home.dataset(&format!("torture-{}", binaries.cache_key()));
        if !place.is_dir() {
            let work = home.work()?;
            let pristine = sandbox::pristine_data(home, binaries)?;
            let server = work.path().join("template");
            copy(&pristine, &server.join("data"))?;
            // With the size of redo log that the servers have, so that they need not make another one.
            let options = ServerOptions::base(binaries.vendor(), 1)
                .with_redo_log_mib(binaries.vendor(), 8)
                .with("skip-log-bin", 1);
            let running = Sandbox::start(binaries, &server, &options, Lifetime::Ours)?;
            let password = sandbox::random_password()?;
            running.create_account(&password)?;
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

/// The servers.
pub(super) struct Servers {
    pub(super) source: Sandbox,
    pub(super) native: Sandbox,
    pub(super) replica: Sandbox,
    pub(super) password: String,
    source_options: ServerOptions,
    replica_options: ServerOptions,
}

/// The server's own replication, as it says itself.
#[derive(Debug, Clone, Default)]
pub(super) struct NativeState {
    /// The applied position.
    pub(super) position: String,
    /// Why it stopped, if it has.
    pub(super) error: Option<String>,
}

impl Servers {
    /// Starts all three on copies of the template, and lets the native replica follow.
    pub(super) fn start(
        binaries: &ServerBinaries,
        template: &Template,
        settings: &Settings,
        directory: &Path,
    ) -> Result<Servers> {
        let files = files_directory(directory);
        create_private_directory(&files)?;
        let source_options = settings.source().with("secure-file-priv", files.display());
        let replica_options = settings.replica(3);
        let start = |name: &str, options: &ServerOptions| -> Result<Sandbox> {
            let place = directory.join(name);
            copy(&template.data, &place.join("data"))?;
            Sandbox::start(binaries, &place, options, Lifetime::Ours)
        };
        // A server dies with the thread that started it, so this one starts them, one after the other.
        let source = start("source", &source_options)?;
        let native = start("native", &settings.replica(2))?;
        let replica = start("replica", &replica_options)?;
        let servers =
            Servers { source, native, replica, password: template.password.clone(), source_options, replica_options };
        servers.native.connect()?.run(&format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = '{}',
             MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_PASSWORD = '{}'",
            servers.source.port(),
            sandbox::ACCOUNT,
            servers.password
        ))?;
        servers.native.connect()?.run("START SLAVE")?;
        Ok(servers)
    }

    /// Kills the source and starts it again.
    pub(super) fn crash_source(&mut self) -> Result<()> {
        self.source.crash_and_restart(&self.source_options)
    }

    /// Kills Spate's replica and starts it again.
    pub(super) fn crash_replica(&mut self) -> Result<()> {
        self.replica.crash_and_restart(&self.replica_options)
    }

    /// How far the server's own replication is.
    pub(super) fn native_state(&self, session: &mut Session) -> Result<NativeState> {
        let position = session.value("SELECT @@GLOBAL.gtid_slave_pos")?;
        let row = session.first_row("SHOW SLAVE STATUS")?;
        let text = |column: &str| {
            let row = row.as_ref()?;
            row.get_opt::<Option<String>, _>(column)?.ok()?
        };
        let stopped = |thread: &str, error: &str| {
            (text(thread).as_deref() == Some("No"))
                .then(|| text(error).unwrap_or_default())
                .filter(|why| !why.is_empty())
        };
        let error =
            stopped("Slave_SQL_Running", "Last_SQL_Error").or_else(|| stopped("Slave_IO_Running", "Last_IO_Error"));
        Ok(NativeState { position, error })
    }
}

/// Where the source may read data files.
pub(super) fn files_directory(directory: &Path) -> PathBuf {
    directory.join("files")
}

/// Copies a directory without waiting for the disk: nothing is measured, and nothing outlives the run.
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
