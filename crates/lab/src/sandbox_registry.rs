//! Sandboxes that outlive the command that started them: a source and its replicas under one name.
//!
//! A state file per server contains its address and its process. The laboratory signals a process only if it is the
//! same one that was started.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::home::{self, LabHome, copy_directory};
use crate::process::ProcessIdentity;
use crate::sandbox::{self, Lifetime, Sandbox};
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

/// Starts a source and replicas. If the data of stopped servers with this name was kept, starts those again.
///
/// # Errors
/// [`Error::Sandbox`] if the name is in use; those of starting servers.
pub fn start(
    home: &LabHome,
    binaries: &ServerBinaries,
    name: &str,
    replicas: usize,
    options: &[ServerOption],
) -> Result<Vec<ServerRecord>> {
    check_name(name)?;
    let directory = home.sandboxes().join(name);
    if records_in(&directory)?.iter().any(ServerRecord::is_running) {
        let why = "it is running already; choose another --name, or stop it with `spate lab sandbox stop`";
        return Err(Error::Sandbox { name: name.to_owned(), why: why.into() });
    }
    let pristine = sandbox::pristine_data(home, binaries)?;
    let password = sandbox::random_password()?;
    let roles = std::iter::once("source".to_owned()).chain((1..=replicas).map(|ordinal| format!("replica-{ordinal}")));
    let mut records = Vec::new();
    for (role, server_id) in roles.zip(1..) {
        let options = usual_options(binaries.vendor(), server_id).with_all(options);
        match start_server(binaries, &pristine, &directory.join(&role), &options, &password) {
            Ok(record) => records.push(ServerRecord { sandbox: name.to_owned(), role, ..record }),
            Err(error) => {
                // If one server fails, remove the whole sandbox.
                records.iter().for_each(|record: &ServerRecord| record.process.signal(rustix::process::Signal::KILL));
                return Err(error);
            }
        }
        if let Some(record) = records.last() {
            home::write_state(&directory.join(&record.role).join(STATE_FILE), record)?;
        }
    }
    Ok(records)
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
    let directory = home.sandboxes().join(name);
    if !directory.is_dir() {
        let why = "there is none of this name; `spate lab sandbox list` shows those that are";
        return Err(Error::Sandbox { name: name.to_owned(), why: why.into() });
    }
    for record in records_in(&directory)? {
        let place = directory.join(&record.role);
        let binaries = record.server.parse::<ServerVersion>()?.resolve()?;
        if let Some(server) = Sandbox::attach(&binaries, &place, &record.socket, record.port, record.process) {
            server.stop()?;
        }
        sandbox::remove_socket_directory(&place);
    }
    if keep_data { Ok(()) } else { fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory)) }
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
    password: &str,
) -> Result<ServerRecord> {
    let data = directory.join("data");
    if !data.is_dir() {
        copy_directory(pristine, &data)?;
    }
    let server = Sandbox::start(binaries, directory, options, Lifetime::Detached)?;
    server.create_account(password)?;
    Ok(ServerRecord {
        sandbox: String::new(),
        role: String::new(),
        server: binaries.version.to_string(),
        port: server.port(),
        socket: server.socket().to_owned(),
        user: sandbox::ACCOUNT.to_owned(),
        password: password.to_owned(),
        options: options.clone(),
        process: server.process(),
    })
}

fn records_in(directory: &Path) -> Result<Vec<ServerRecord>> {
    let mut records: Vec<ServerRecord> = Vec::new();
    for server in directories_in(directory)? {
        let state = server.join(STATE_FILE);
        if state.is_file() {
            records.push(home::read_state(&state)?);
        }
    }
    // The source comes first.
    records.sort_by_key(|record| (record.role != "source", record.role.clone()));
    Ok(records)
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

    #[test]
    fn stopping_unknown_sandbox_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let message = stop(&home, "ghost", false).unwrap_err().to_string();
        assert!(message.contains("sandbox 'ghost'") && message.contains("list"), "{message}");
        assert_eq!(list(&home).unwrap(), []);
    }
}
