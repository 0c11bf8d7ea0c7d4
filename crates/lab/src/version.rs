//! Which database servers the laboratory knows, and where their binaries are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::{Error, Result};

/// A series of a vendor's server, such as `mariadb-10.11`. Whether it is installed is found out by [`ServerVersion::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerVersion {
    name: &'static str,
    series: &'static str,
}

/// The newest long-term series come last; [`ServerVersion::installed`] takes the first that the machine has.
const KNOWN: [ServerVersion; 2] = [
    ServerVersion { name: "mariadb-10.11", series: "10.11." },
    ServerVersion { name: "mariadb-11.8", series: "11.8." },
];

/// Names the server binary to use instead of the one in the usual places.
const DAEMON_VARIABLE: &str = "SPATE_MARIADBD";

/// Server binaries live here even when the user's `PATH` has no `sbin`.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin", "/usr/libexec"];

/// The programs of one installed server.
#[derive(Debug, Clone)]
pub struct ServerBinaries {
    /// The series that they belong to.
    pub version: ServerVersion,
    /// What the server calls itself, such as `10.11.19-MariaDB`.
    pub full_version: String,
    /// `mariadbd`.
    pub daemon: PathBuf,
    /// `mariadb-install-db`.
    pub installer: PathBuf,
    /// Where an unpacked tarball has its `share`; `None` for servers from packages.
    pub base_directory: Option<PathBuf>,
}

impl ServerVersion {
    /// The first known version that is installed on this machine.
    ///
    /// # Errors
    /// [`Error::ServerNotInstalled`] if none is.
    pub fn installed() -> Result<ServerBinaries> {
        let mut reasons = Vec::new();
        for version in KNOWN {
            match version.resolve() {
                Ok(binaries) => return Ok(binaries),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Error::ServerNotInstalled { server: "None of the known servers".into(), why: reasons.join("; ") })
    }

    /// Finds the version's binaries.
    ///
    /// # Errors
    /// [`Error::ServerNotInstalled`] if there are none, or only those of another version.
    pub fn resolve(self) -> Result<ServerBinaries> {
        let not_installed = |why: String| Error::ServerNotInstalled { server: self.name.to_owned(), why };
        let daemon = match std::env::var_os(DAEMON_VARIABLE) {
            Some(path) => PathBuf::from(path),
            None => find_program("mariadbd")
                .ok_or_else(|| not_installed("there is no mariadbd in PATH or /usr/sbin".into()))?,
        };
        let output = Command::new(&daemon)
            .args(["--no-defaults", "--version"])
            .output()
            .map_err(|error| not_installed(format!("{} does not run: {error}", daemon.display())))?;
        let announced = String::from_utf8_lossy(&output.stdout).into_owned();
        let full_version = parse_version(&announced)
            .filter(|version| version.starts_with(self.series))
            .ok_or_else(|| not_installed(format!("{} says: {}", daemon.display(), announced.trim())))?
            .to_owned();
        let (installer, base_directory) = find_installer(&daemon)
            .ok_or_else(|| not_installed(format!("no mariadb-install-db belongs to {}", daemon.display())))?;
        Ok(ServerBinaries { version: self, full_version, daemon, installer, base_directory })
    }
}

impl ServerBinaries {
    /// The binaries of `version`, or of whatever is installed.
    ///
    /// # Errors
    /// [`Error::ServerNotInstalled`].
    pub fn choose(version: Option<ServerVersion>) -> Result<ServerBinaries> {
        version.map_or_else(ServerVersion::installed, ServerVersion::resolve)
    }

    /// Distinguishes this exact build in names of cache directories.
    pub fn cache_key(&self) -> String {
        let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '.' };
        format!("{}-{}", self.version.name, self.full_version.chars().map(plain).collect::<String>())
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for ServerVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<ServerVersion> {
        KNOWN.into_iter().find(|version| version.name == text).ok_or_else(|| Error::UnknownServerVersion {
            name: text.to_owned(),
            known: KNOWN.map(|version| version.name).join(", "),
        })
    }
}

/// The word after "Ver" in what `mariadbd --version` prints.
fn parse_version(announced: &str) -> Option<&str> {
    announced.split_whitespace().skip_while(|word| *word != "Ver").nth(1)
}

/// A program in `PATH` or one of the system's directories for servers.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// The installer that came with `daemon`, and the base directory if both were unpacked from a tarball.
fn find_installer(daemon: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    const INSTALLER: &str = "mariadb-install-db";
    let base = daemon.parent()?.parent()?;
    let unpacked = base.join("scripts").join(INSTALLER);
    if unpacked.is_file() {
        return Some((unpacked, Some(base.to_owned())));
    }
    let neighbour = base.join("bin").join(INSTALLER);
    let installer = if neighbour.is_file() { neighbour } else { find_program(INSTALLER)? };
    Some((installer, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_lists_the_known_ones() {
        let message = "mysql-3.23".parse::<ServerVersion>().unwrap_err().to_string();
        assert_eq!(message, "unknown server version 'mysql-3.23'; known are: mariadb-10.11, mariadb-11.8");
    }

    #[test]
    fn known_names_parse_to_themselves() {
        for version in KNOWN {
            assert_eq!(version.to_string().parse::<ServerVersion>().unwrap(), version);
        }
    }

    #[test]
    fn the_version_is_the_word_after_ver() {
        let announced = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(parse_version(announced), Some("10.11.19-MariaDB-0+deb12u1"));
        assert_eq!(parse_version("nonsense"), None);
    }
}
