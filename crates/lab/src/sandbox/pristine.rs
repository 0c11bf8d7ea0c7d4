//! Data directories as the servers' installers make them, and passwords for what is put into them.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::launch::as_root;
use super::tail_of;
use crate::home::{self, create_private_directory};
use crate::process::ProcessIdentity;
use crate::version::ServerBinaries;
use crate::{Error, Result};

/// Makes the pristine data directory of a server build, unless the cache has it, and says where it is.
///
/// # Errors
/// [`Error::ProgramFailed`] with the installer's output, [`Error::ProgramNotRun`], [`Error::File`].
pub fn pristine_data(home: &home::LabHome, binaries: &ServerBinaries) -> Result<PathBuf> {
    let place = home.pristine(&binaries.cache_key());
    if place.is_dir() {
        return Ok(place);
    }
    let work = home.work()?;
    let (data, temporary) = (work.path().join("pristine"), work.path().join("tmp"));
    create_private_directory(&temporary)?;
    let mut command = binaries.vendor().installer(&binaries.installer, &data);
    // A starting server removes all temporary tables that it finds, also those of another server.
    command.env("TMPDIR", &temporary);
    if let Some(base) = &binaries.base_directory {
        command.arg(format!("--basedir={}", base.display()));
    }
    command.args(as_root());
    home::need_disk(work.path(), DATA_BYTES)?;
    install(command, &binaries.installer, work.path())?;
    home::publish_directory(&data, &place)?;
    Ok(place)
}

/// What the data directory of an installer takes on disk, about, with its logs while it is made.
const DATA_BYTES: u64 = 512 << 20;

/// Runs an installer to its end. Its own servers are in its process group: if it takes too long, all of them are killed.
fn install(mut command: Command, program: &Path, directory: &Path) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(600);
    let name = program.display().to_string();
    let log_path = directory.join("installer.log");
    let log = File::create(&log_path).map_err(Error::file("create", &log_path))?;
    let errors = log.try_clone().map_err(Error::file("open", &log_path))?;
    command.process_group(0).stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut child = command.spawn().map_err(|source| Error::ProgramNotRun {
        program: name.clone(),
        advice: "It belongs to the server's package; `./x setup` installs it.",
        source,
    })?;
    let ended = ProcessIdentity::of(child.id()).is_none_or(|process| process.wait_for_end(LIMIT));
    if !ended && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _has_ended = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(Error::file("wait for", program))?;
    match (ended, status.success()) {
        (true, true) => Ok(()),
        (true, false) => {
            Err(Error::ProgramFailed { program: name, status: status.to_string(), output: tail_of(&log_path) })
        }
        (false, _) => Err(Error::TimedOut { what: name, limit: LIMIT, advice: tail_of(&log_path) }),
    }
}

/// A password for a sandbox's account.
///
/// # Errors
/// [`Error::File`] if the kernel's random source cannot be read.
pub fn random_password() -> Result<String> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::file("read", source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
