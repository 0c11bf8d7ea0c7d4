//! Sandboxes that outlive the command that started them: a source and its replicas under one name.
//!
//! A state file per server contains its address and its process. The laboratory signals a process only if it is the
//! same one that was started.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::galera::{self, Cluster};
use crate::home::{self, LabHome, copy_directory_whole};
use crate::native;
use crate::process::ProcessIdentity;
use crate::sandbox::{self, Lifetime, Sandbox};
use crate::screen::Screen;
use crate::server_options::{ServerOption, ServerOptions};
use crate::vendor::Vendor;
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Error, Result};

/// One server of a named sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Name of the sandbox.
    pub sandbox: String,
    /// `source`, `replica-1`, …
    pub role: String,
    /// The server's series, such as `mariadb-10.11`.
    pub server: String,
    /// The TCP port on 127.0.0.1.
    pub port: u16,
    /// The Unix socket, through which `root` needs no password.
    pub socket: PathBuf,
    /// The account for TCP.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The options that the server was started with.
    pub options: ServerOptions,
    /// The server's process, which may have ended.
    pub process: ProcessIdentity,
}

impl ServerRecord {
    /// True while the server runs.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }
}

const STATE_FILE: &str = "sandbox.json";
/// Somebody stopped the sandbox, and wants its data.
const KEPT_MARKER: &str = "kept";

/// The servers of a sandbox, and who follows whom by the servers' own replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// How they are connected.
    pub topology: Topology,
    /// Replicas beside the source; of a cluster, nodes beside the first.
    pub replicas: usize,
    /// Replicas apply each transaction so many seconds after its commit on the source.
    pub delay_seconds: u32,
}

/// How the servers of a sandbox are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Topology {
    /// Not at all: Spate may follow
    Apart,
    /// Each replica follows the source
    Star,
    /// Each replica follows the one before it: A → B → C → D
    Chain,
    /// All are nodes of a Galera cluster (MariaDB)
    Galera,
}

impl Layout {
    /// A source and replicas that do not know each other.
    pub fn apart(replicas: usize) -> Layout {
        Layout { topology: Topology::Apart, replicas, delay_seconds: 0 }
    }

    fn roles(&self) -> Vec<String> {
        match self.topology {
            Topology::Galera => (1..=self.replicas + 1).map(galera::node_name).collect(),
            _ => {
                let replicas = (1..=self.replicas).map(|ordinal| format!("replica-{ordinal}"));
                std::iter::once("source".to_owned()).chain(replicas).collect()
            }
        }
    }
}

/// Starts the servers of a sandbox. If the data of stopped servers with this name was kept, starts those again.
///
/// # Errors
/// [`Error::Sandbox`] if the name is in use, or what was kept is another server's; [`Error::DiskTooSmall`]; those of starting servers.
pub fn start(
    home: &LabHome,
    binaries: &ServerBinaries,
    name: &str,
    layout: Layout,
    options: &[ServerOption],
) -> Result<Vec<ServerRecord>> {
    let (directory, _lock) = open(home, name)?;
    let refuse = |why: String| Error::Sandbox { name: name.to_owned(), why };
    let kept = records_in(&directory)?;
    if kept.iter().any(ServerRecord::is_running) {
        let why = "it is running already; choose another --name, or stop it with `spate lab sandbox stop`";
        return Err(refuse(why.into()));
    }
    if let Some(other) = kept.iter().find(|record| record.server != binaries.version.to_string()) {
        return Err(refuse(format!(
            "its data is of {0}; start it with --server {0}, or choose another --name",
            other.server
        )));
    }
    Screen::default().claim_disk(&directory, (layout.replicas as u64 + 1) * home::SMALL_SERVER_BYTES)?;
    sandbox::end_unknown_servers(&directory);
    let pristine = sandbox::pristine_data(home, binaries)?;
    let password = sandbox::random_password()?;
    let place = directory.as_path();
    let servers = match layout.topology {
        Topology::Galera => start_cluster(binaries, &pristine, place, layout, options)?,
        _ => start_servers(binaries, &pristine, place, layout, options)?,
    };
    let known = make_known(name, &directory, layout, &servers, &password);
    match known {
        Ok(records) => {
            servers.into_iter().for_each(|(server, _)| server.leave_running());
            Ok(records)
        }
        // Nobody would know them.
        Err(error) => {
            servers.into_iter().rev().for_each(|(server, _)| drop(server.stop()));
            Err(error)
        }
    }
}

/// Gives the servers accounts and sources, and writes down that they run.
fn make_known(
    name: &str,
    directory: &Path,
    layout: Layout,
    servers: &Started,
    password: &str,
) -> Result<Vec<ServerRecord>> {
    let mut records = Vec::new();
    for (role, (server, options)) in layout.roles().into_iter().zip(servers) {
        server.create_account(password)?;
        records.push(record_of(name, role, server, options, password));
    }
    for (place, (replica, _)) in servers.iter().enumerate().skip(1) {
        let source = match layout.topology {
            Topology::Star => 0,
            Topology::Chain => place - 1,
            Topology::Apart | Topology::Galera => continue,
        };
        native::begin_to_follow(&servers[source].0, password, replica, layout.delay_seconds)?;
    }
    for record in &records {
        home::write_state(&directory.join(&record.role).join(STATE_FILE), record)?;
    }
    let _not_any_more = fs::remove_file(directory.join(KEPT_MARKER));
    Ok(records)
}

/// The directory of a sandbox, which no other command uses as long as the lock is held.
fn open(home: &LabHome, name: &str) -> Result<(PathBuf, File)> {
    check_name(name)?;
    let directory = home.sandboxes().join(name);
    home::create_private_directory(&directory)?;
    let lock = lock(&directory)?.ok_or_else(|| Error::InUse { what: format!("the sandbox '{name}'") })?;
    Ok((directory, lock))
}

/// `None` if another command uses the sandbox.
fn lock(directory: &Path) -> Result<Option<File>> {
    home::try_lock(&directory.with_extension("lock"))
}

/// Running servers, with the options that they were started with.
type Started = Vec<(Sandbox, ServerOptions)>;

fn start_servers(
    binaries: &ServerBinaries,
    pristine: &Path,
    directory: &Path,
    layout: Layout,
    options: &[ServerOption],
) -> Result<Started> {
    let vendor = binaries.vendor();
    let mut servers: Started = Vec::new();
    for (role, server_id) in layout.roles().into_iter().zip(1..) {
        let mut own = usual_options(vendor, server_id);
        if layout.topology != Topology::Apart {
            own = own.with_replica_log(vendor, true);
        }
        let own = own.with_all(options);
        servers.push((start_server(binaries, pristine, &directory.join(&role), &own)?, own));
    }
    Ok(servers)
}

fn start_cluster(
    binaries: &ServerBinaries,
    pristine: &Path,
    directory: &Path,
    layout: Layout,
    options: &[ServerOption],
) -> Result<Started> {
    let own = usual_options(binaries.vendor(), 1).with_replica_log(binaries.vendor(), true).with_all(options);
    let cluster = Cluster::start(binaries, pristine, directory, layout.replicas + 1, &own, Lifetime::Detached)?;
    Ok(cluster.into_nodes().into_iter().map(|node| (node, own.clone())).collect())
}

/// All servers of all sandboxes.
///
/// # Errors
/// [`Error::File`], [`Error::State`].
pub fn list(home: &LabHome) -> Result<Vec<ServerRecord>> {
    let mut records = Vec::new();
    for directory in directories_in(&home.sandboxes())? {
        records.extend(records_in(&directory)?);
    }
    Ok(records)
}

/// Stops the servers of a sandbox, and removes their data unless `keep_data`.
///
/// # Errors
/// [`Error::Sandbox`] if there is none of this name; [`Error::TimedOut`]; [`Error::File`].
pub fn stop(home: &LabHome, name: &str, keep_data: bool) -> Result<()> {
    check_name(name)?;
    if !home.sandboxes().join(name).is_dir() {
        let why = "there is none of this name; `spate lab sandbox list` shows those that are";
        return Err(Error::Sandbox { name: name.to_owned(), why: why.into() });
    }
    let (directory, _lock) = open(home, name)?;
    if keep_data {
        // Before anything is stopped: what is interrupted half-way keeps the data.
        let marker = directory.join(KEPT_MARKER);
        fs::write(&marker, "").map_err(Error::file("write", &marker))?;
    }
    for place in directories_in(&directory)? {
        let Some(record) = record_in(&place)? else { continue };
        let binaries = record.server.parse::<ServerVersion>()?.resolve()?;
        // Whatever the file says, a process that is no server on this data is not signalled.
        if record.process.is_running()
            && sandbox::is_server_on(record.process, &place)
            && let Some(server) = Sandbox::attach(&binaries, &place, &record.socket, record.port, record.process)
        {
            server.stop()?;
        }
        sandbox::remove_socket_directory(&place);
    }
    sandbox::end_unknown_servers(&directory);
    if keep_data { Ok(()) } else { remove(&directory) }
}

/// Removes a sandbox whose lock is held.
fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).map_err(Error::file("remove", directory))?;
    let _next_one_makes_it = fs::remove_file(directory.with_extension("lock"));
    Ok(())
}

/// Removes sandboxes of which no server runs: those whose servers have ended by themselves, and with `all` also those that somebody stopped to use
/// them again.
///
/// # Errors
/// [`Error::File`], [`Error::State`].
pub fn clean(home: &LabHome, all: bool) -> Result<()> {
    for directory in directories_in(&home.sandboxes())? {
        // Another command starts or stops it.
        let Some(_lock) = lock(&directory)? else { continue };
        let is_kept = directory.join(KEPT_MARKER).exists() && !all;
        if is_kept || records_in(&directory)?.iter().any(ServerRecord::is_running) {
            continue;
        }
        sandbox::end_unknown_servers(&directory);
        directories_in(&directory)?.iter().for_each(|server| sandbox::remove_socket_directory(server));
        remove(&directory)?;
    }
    Ok(())
}

/// Options that let several servers fit on a laptop, with the durability of a production server.
fn usual_options(vendor: Vendor, server_id: u32) -> ServerOptions {
    ServerOptions::base(vendor, server_id)
        .with("innodb-buffer-pool-size", "256M")
        .with_durability(crate::server_options::Durability::Durable)
}

fn start_server(
    binaries: &ServerBinaries,
    pristine: &Path,
    directory: &Path,
    options: &ServerOptions,
) -> Result<Sandbox> {
    let data = directory.join("data");
    if !data.is_dir() {
        copy_directory_whole(pristine, &data)?;
    }
    Sandbox::start(binaries, directory, options, Lifetime::Detached)
}

fn record_of(name: &str, role: String, server: &Sandbox, options: &ServerOptions, password: &str) -> ServerRecord {
    ServerRecord {
        sandbox: name.to_owned(),
        role,
        server: server.binaries().version.to_string(),
        port: server.port(),
        socket: server.socket().to_owned(),
        user: sandbox::ACCOUNT.to_owned(),
        password: password.to_owned(),
        options: options.clone(),
        process: server.process(),
    }
}

fn records_in(directory: &Path) -> Result<Vec<ServerRecord>> {
    let mut records: Vec<ServerRecord> = Vec::new();
    for server in directories_in(directory)? {
        records.extend(record_in(&server)?);
    }
    // The source comes first.
    records.sort_by_key(|record| (record.role != "source", record.role.clone()));
    Ok(records)
}

fn record_in(server: &Path) -> Result<Option<ServerRecord>> {
    let state = server.join(STATE_FILE);
    if state.is_file() { home::read_state(&state).map(Some) } else { Ok(None) }
}

fn directories_in(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(directory).map_err(Error::file("list", directory))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    paths.sort();
    Ok(paths)
}

/// Checks that a name, which becomes a directory, cannot lead elsewhere.
fn check_name(name: &str) -> Result<()> {
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '_';
    if !name.is_empty() && name.chars().all(plain) {
        return Ok(());
    }
    Err(Error::Sandbox { name: name.to_owned(), why: "names are made of letters, digits, '-' and '_'".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_name_cannot_leave_its_directory() {
        for name in ["", "..", "a/b", "a b"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        check_name("test_1-a").unwrap();
    }

    /// Runs like a server whose starting command was killed: it knows its data directory, nobody knows it, and its parent has ended.
    fn orphan(directory: &Path) -> ProcessIdentity {
        let script = "sh -c 'while :; do sleep 0.1; done' sh --datadir=\"$0\"/source/data >/dev/null 2>&1 & echo $!";
        let output = std::process::Command::new("sh").arg("-c").arg(script).arg(directory).output().unwrap();
        ProcessIdentity::of(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()).unwrap()
    }

    #[test]
    fn servers_that_nobody_knows_end_before_their_data_does() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let directory = home.sandboxes().join("lost");
        fs::create_dir_all(directory.join("source/data")).unwrap();
        let (own, other) = (orphan(&directory), orphan(&home.sandboxes().join("lost-and-found")));
        clean(&home, false).unwrap();
        assert!(!own.is_running() && !directory.exists());
        assert!(other.is_running(), "a sandbox whose name begins in the same way is another one");
        other.signal(rustix::process::Signal::KILL);
    }

    #[test]
    fn sandbox_that_another_command_uses_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let (directory, lock) = open(&home, "new").unwrap();
        fs::create_dir_all(directory.join("source/data")).unwrap();
        clean(&home, true).unwrap();
        assert!(directory.exists());
        let message = stop(&home, "new", false).unwrap_err().to_string();
        assert!(message.contains("another command works on the sandbox 'new'"), "{message}");
        drop(lock);
        clean(&home, false).unwrap();
        assert!(!directory.exists());
        assert_eq!(fs::read_dir(home.sandboxes()).unwrap().count(), 0);
    }

    /// A file that somebody else has written names a process that is no server of this sandbox, and a directory that is no socket's.
    #[test]
    fn records_name_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let place = home.sandboxes().join("evil/source");
        fs::create_dir_all(&place).unwrap();
        let (other, treasure) = (orphan(&root.path().join("elsewhere")), root.path().join("treasure"));
        fs::create_dir(&treasure).unwrap();
        fs::write(place.join("socket-directory"), treasure.to_string_lossy().as_bytes()).unwrap();
        let record = ServerRecord {
            sandbox: "evil".into(),
            role: "../../..".into(),
            server: ServerVersion::installed().unwrap().version.to_string(),
            port: 1,
            socket: "s".into(),
            user: "u".into(),
            password: "p".into(),
            options: ServerOptions::default(),
            process: other,
        };
        home::write_state(&place.join(STATE_FILE), &record).unwrap();
        stop(&home, "evil", false).unwrap();
        assert!(other.is_running() && treasure.is_dir() && !place.exists());
        other.signal(rustix::process::Signal::KILL);
    }

    #[test]
    fn stopping_unknown_sandbox_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let message = stop(&home, "ghost", false).unwrap_err().to_string();
        assert!(message.contains("sandbox 'ghost'") && message.contains("list"), "{message}");
        assert_eq!(list(&home).unwrap(), []);
    }
}
