//! Data directories as the servers' installers make them, and passwords for what is put into them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::launch::as_root;
use crate::home::{self, create_private_directory};
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
    let output = command.stdin(Stdio::null()).output().map_err(|source| Error::ProgramNotRun {
        program: binaries.installer.display().to_string(),
        advice: "It belongs to the server's package; `./x setup` installs it.",
        source,
    })?;
    if !output.status.success() {
        return Err(Error::ProgramFailed {
            program: binaries.installer.display().to_string(),
            status: output.status.to_string(),
            output: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        });
    }
    home::publish_directory(&data, &place)?;
    Ok(place)
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
