//! The programs that a backup or a recovery runs: a server of the base's vendor and series, and what belongs to it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use spate_connection::Vendor;

use crate::error::{Error, Result};
use crate::manifest::ServerFacts;

/// Where servers are besides `PATH`.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"];

/// Where programs are looked for.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Looked into first, before `PATH`. `None`: nowhere else.
    pub directory: Option<PathBuf>,
}

impl Programs {
    /// The path of a program.
    ///
    /// # Errors
    /// [`Error::Program`] with what helps.
    pub(crate) fn find(&self, name: &str, package: &str) -> Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = self
            .directory
            .clone()
            .into_iter()
            .chain(std::env::split_paths(&path))
            .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
            .map(|directory| directory.join(name))
            .find(|candidate| candidate.is_file());
        found.ok_or_else(|| {
            let why = format!(
                "it is not there: install {package} on this machine, or say where the server's programs are (--programs DIR)"
            );
            Error::program(name, why)
        })
    }

    /// The server's own program, if it is of the series that the base is of: others may not read its data, or change them.
    pub(crate) fn server(&self, facts: &ServerFacts) -> Result<PathBuf> {
        let (name, package) = match facts.vendor() {
            Vendor::MariaDb => ("mariadbd", "mariadb-server-core"),
            Vendor::MySql => ("mysqld", "mysql-server-core"),
        };
        let program = self.find(name, package)?;
        let version = version_of(&program)?;
        let series = version.split('.').take(2).collect::<Vec<_>>().join(".");
        if series != facts.series() {
            let why = format!(
                "it is of version {version}, and the base of {}: restore with the same series (--programs DIR), and upgrade the server afterwards",
                facts.version
            );
            return Err(Error::program(program, why));
        }
        Ok(program)
    }

    /// The base directory that belongs to a server which stands elsewhere than the system's; `None` for the system's own.
    pub(crate) fn base_directory(program: &Path) -> Option<PathBuf> {
        let base = program.parent()?.parent()?;
        base.join("share/messages_to_error_log.txt").is_file().then(|| base.to_owned())
    }
}

/// The version that a server's program prints.
pub(crate) fn version_of(program: &Path) -> Result<String> {
    let output = Command::new(program).args(["--no-defaults", "--version"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::program(program, format!("it does not run: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().skip_while(|word| *word != "Ver").nth(1);
    version.map(str::to_owned).ok_or_else(|| Error::program(program, format!("it says no version: {}", text.trim())))
}

/// A command whose process the kernel kills when this one ends, however it ends.
pub(crate) fn dying_with_us(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// The end of what a program has said, for a message.
pub(crate) fn end_of(said: &[u8]) -> String {
    const SHOWN_BYTES: usize = 2_000;
    let begin = said.len().saturating_sub(SHOWN_BYTES);
    String::from_utf8_lossy(&said[begin..]).trim().to_owned()
}
