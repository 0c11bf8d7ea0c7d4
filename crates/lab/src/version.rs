//! The database servers that the laboratory knows, and their binaries.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use crate::vendor::Vendor;
use crate::{Error, Result};

/// A series of a vendor's server, such as `mariadb-10.11`. [`ServerVersion::resolve`] finds out whether it is
/// installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerVersion {
    name: &'static str,
    series: &'static str,
    vendor: Vendor,
    /// Environment variables with the path of its daemon.
    variables: &'static [&'static str],
    /// How to install it.
    advice: &'static str,
}

/// The default comes first: [`ServerVersion::installed`] takes the first that is installed.
const KNOWN: [ServerVersion; 5] = [
    ServerVersion {
        name: "mariadb-10.11",
        series: "10.11.",
        vendor: Vendor::MariaDb,
        variables: &["SPATE_MARIADBD"],
        advice: "Run `./x setup`, or name its binary in SPATE_MARIADBD",
    },
    ServerVersion {
        name: "mariadb-11.8",
        series: "11.8.",
        vendor: Vendor::MariaDb,
        variables: &["SPATE_MARIADBD_11_8", "SPATE_MARIADBD"],
        advice: "Run `./x setup --mariadb-11.8`, or name its binary in SPATE_MARIADBD_11_8",
    },
    ServerVersion {
        name: "mysql-9.7",
        series: "9.7.",
        vendor: Vendor::MySql,
        variables: &["SPATE_MYSQLD"],
        advice: "Run `./x setup --mysql`, or name its binary in SPATE_MYSQLD",
    },
    ServerVersion {
        name: "mysql-8.4",
        series: "8.4.",
        vendor: Vendor::MySql,
        variables: &["SPATE_MYSQLD_8_4", "SPATE_MYSQLD"],
        advice: "Run `./x setup --mysql-8.4`, or name its binary in SPATE_MYSQLD_8_4",
    },
    ServerVersion {
        name: "mysql-8.0",
        series: "8.0.",
        vendor: Vendor::MySql,
        variables: &["SPATE_MYSQLD_8_0", "SPATE_MYSQLD"],
        advice: "Run `./x setup --mysql-8.0`, or name its binary in SPATE_MYSQLD_8_0",
    },
];

/// Server binaries live here even when the user's `PATH` has no `sbin`.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin", "/usr/libexec"];

/// The programs of one installed server.
#[derive(Debug, Clone)]
pub struct ServerBinaries {
    /// The series that they belong to.
    pub version: ServerVersion,
    /// The server's own version text, such as `10.11.19-MariaDB`.
    pub full_version: String,
    /// `mariadbd` or `mysqld`.
    pub daemon: PathBuf,
    /// The program that creates a data directory: `mariadb-install-db`, or `mysqld` itself.
    pub installer: PathBuf,
    /// The directory of an unpacked tarball, with its `share`; `None` for servers from packages.
    pub base_directory: Option<PathBuf>,
    /// Added to each read of a page for which a thread of the server waits; `None`: the machine's own.
    pub read_latency: Option<Duration>,
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
        Err(Error::ServerNotInstalled {
            server: "None of the known servers".into(),
            why: reasons.join("; "),
            advice: KNOWN[0].advice,
        })
    }

    /// Whose server it is.
    pub fn vendor(self) -> Vendor {
        self.vendor
    }

    /// Finds the version's binaries: the first daemon of this series among that of its environment variable, the one
    /// that `./x setup` has unpacked, and the one in the usual places.
    ///
    /// # Errors
    /// [`Error::ServerNotInstalled`] if there are none, or only those of another version.
    pub fn resolve(self) -> Result<ServerBinaries> {
        let mut reasons = Vec::new();
        for daemon in self.candidates() {
            match self.announced_by(&daemon) {
                Ok(full_version) => return self.binaries(daemon, full_version),
                Err(why) => reasons.push(why),
            }
        }
        if reasons.is_empty() {
            reasons.push(format!("there is no {} in PATH or /usr/sbin", self.vendor.daemon()));
        }
        Err(self.not_installed(reasons.join("; ")))
    }

    fn candidates(self) -> Vec<PathBuf> {
        let named = self.variables.iter().filter_map(std::env::var_os).filter(|path| !path.is_empty());
        let unpacked = cache_directory().map(|cache| cache.join(self.name).join("bin").join(self.vendor.daemon()));
        let unpacked = unpacked.filter(|daemon| daemon.is_file());
        named.map(PathBuf::from).chain(unpacked).chain(find_program(self.vendor.daemon())).collect()
    }

    /// The full version that a daemon prints, if it is of this series.
    fn announced_by(self, daemon: &Path) -> Result<String, String> {
        let output = Command::new(daemon).args(["--no-defaults", "--version"]).output();
        let output = output.map_err(|error| format!("{} does not run: {error}", daemon.display()))?;
        let announced = String::from_utf8_lossy(&output.stdout).into_owned();
        parse_version(&announced)
            .filter(|version| version.starts_with(self.series))
            .map(str::to_owned)
            .ok_or_else(|| format!("{} says: {}", daemon.display(), announced.trim()))
    }

    fn binaries(self, daemon: PathBuf, full_version: String) -> Result<ServerBinaries> {
        let (installer, base_directory) = match self.vendor {
            Vendor::MySql => (daemon.clone(), None),
            Vendor::MariaDb => find_installer(&daemon)
                .ok_or_else(|| self.not_installed(format!("no {INSTALLER} belongs to {}", daemon.display())))?,
        };
        Ok(ServerBinaries { version: self, full_version, daemon, installer, base_directory, read_latency: None })
    }

    fn not_installed(self, why: String) -> Error {
        Error::ServerNotInstalled { server: self.name.to_owned(), why, advice: self.advice }
    }
}

impl ServerBinaries {
    /// The binaries of `version`, or of the first installed server.
    ///
    /// # Errors
    /// [`Error::ServerNotInstalled`].
    pub fn choose(version: Option<ServerVersion>) -> Result<ServerBinaries> {
        version.map_or_else(ServerVersion::installed, ServerVersion::resolve)
    }

    /// Of a server that nobody starts.
    #[cfg(test)]
    pub(crate) fn for_tests() -> ServerBinaries {
        ServerBinaries {
            version: KNOWN[0],
            full_version: "10.11.0".to_owned(),
            daemon: PathBuf::from("mariadbd"),
            installer: PathBuf::from("mariadb-install-db"),
            base_directory: None,
            read_latency: None,
        }
    }

    /// Whose server it is.
    pub fn vendor(&self) -> Vendor {
        self.version.vendor
    }

    /// A program that came with the server, such as `mysqlbinlog`; else the name alone, for `PATH`.
    pub fn program(&self, name: &str) -> PathBuf {
        let beside = self.daemon.with_file_name(name);
        if beside.is_file() { beside } else { PathBuf::from(name) }
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

/// The word after "Ver" in the output of `mariadbd --version` or `mysqld --version`.
fn parse_version(announced: &str) -> Option<&str> {
    announced.split_whitespace().skip_while(|word| *word != "Ver").nth(1)
}

/// The directory in which `./x setup` unpacks servers: `spate` in the user's cache directory.
fn cache_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("spate"))
}

/// A program in `PATH` or one of the system's directories for servers.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

const INSTALLER: &str = "mariadb-install-db";

/// The installer that belongs to `daemon`, and the base directory if both were unpacked from a tarball.
fn find_installer(daemon: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
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
    fn unknown_version_error_lists_the_known_ones() {
        let message = "mysql-3.23".parse::<ServerVersion>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown server version 'mysql-3.23'; known are: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4, mysql-8.0"
        );
    }

    #[test]
    fn known_version_names_round_trip() {
        for version in KNOWN {
            assert_eq!(version.to_string().parse::<ServerVersion>().unwrap(), version);
        }
    }

    #[test]
    fn server_version_is_the_word_after_ver() {
        let announced = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(parse_version(announced), Some("10.11.19-MariaDB-0+deb12u1"));
        let announced = "/some/where/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))";
        assert_eq!(parse_version(announced), Some("9.7.4-2"));
        assert_eq!(parse_version("nonsense"), None);
    }
}
