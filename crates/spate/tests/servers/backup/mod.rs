//! `spate backup` and `spate restore`: any moment, exactly.

mod failures;
#[cfg(feature = "failpoints")]
mod interrupted;
mod moments;
mod refusals;
mod replicas;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use spate_lab::vendor::Vendor;
use tempfile::TempDir;

use crate::support::program::program;
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Kind, Server};

#[cfg(feature = "failpoints")]
pub use interrupted::{AFTER_RENAME, POINTS};

/// A server, its archive, and its backups.
struct Vault {
    source: Server,
    directory: TempDir,
}

fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Vault {
    fn of(kind: Kind) -> Vault {
        Vault::with(kind, &[])
    }

    fn with(kind: Kind, options: &[&str]) -> Vault {
        let source = Server::source(kind, options);
        if kind.vendor() == Vendor::MySql {
            source.sql("SET sql_log_bin = 0; INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
        }
        let directory = tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap();
        Vault { source, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn target(&self) -> PathBuf {
        self.path("target")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.args(words).env("SPATE_SERVER_PASSWORD", PASSWORD);
        command
    }

    fn programs(&self) -> PathBuf {
        self.source.kind.binaries().daemon.parent().unwrap().to_owned()
    }

    /// The end of the command line for the source.
    fn at_source(&self, mut command: Command) -> Command {
        command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.source.port));
        self.source.allow_password(&mut command, "source");
        command
    }

    fn base_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["backup", "base", "--json", "--target"]);
        command.arg(self.target()).arg("--programs").arg(self.programs()).args(options);
        self.at_source(command)
    }

    fn base(&self, options: &[&str]) -> Value {
        json(self.base_command(options))["base"].take()
    }

    /// Everything that the source has now, into the archive.
    fn fetch(&self) {
        let mut command =
            self.command(&["archive", "fetch", "--start", "earliest", "--until", "caught-up", "--archive"]);
        command.arg(self.path("archive"));
        succeeds(self.at_source(command));
    }

    fn ship_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["backup", "archive", "--json", "--archive"]);
        command.arg(self.path("archive")).arg("--target").arg(self.target()).args(options);
        command
    }

    fn ship(&self, options: &[&str]) -> Value {
        self.fetch();
        json(self.ship_command(options))
    }

    fn restore_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["restore", "--json", "--memory", "64MiB", "--target"]);
        command.arg(self.target()).arg("--programs").arg(self.programs()).args(options);
        command
    }

    /// Restores into a directory, and starts a server there.
    fn restore(&self, options: &[&str]) -> (Value, Server) {
        let to = self.path("restored");
        let restored = json(self.restore_command(&[&["--to", path_of(&to)], options].concat()));
        assert!(!self.path("restored.partial").exists(), "the place of the work is gone");
        (restored, Server::on(self.source.kind, &to, &["--server-id=9"]))
    }
}

fn output(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(PASSWORD), "the password shows: {said}");
    output
}

fn succeeds(command: Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(command: Command) -> Value {
    let said = succeeds(command);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Fails in an orderly way, and says all of `parts`.
fn fails(command: Command, parts: &[&str]) {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "'{part}' is missing in: {said}");
    }
}

/// Rows that would come twice without an error if what the base holds was applied again.
const TABLES: &str = "CREATE DATABASE shop; USE shop; \
    CREATE TABLE orders (id INT PRIMARY KEY, what VARCHAR(40)) ENGINE=InnoDB; \
    CREATE TABLE log (what VARCHAR(40)) ENGINE=InnoDB; \
    CREATE TABLE counter (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; INSERT INTO counter VALUES (1, 0)";

fn order(server: &Server, id: u32) {
    server.sql(&format!(
        "BEGIN; INSERT INTO shop.orders VALUES ({id}, 'order {id}'); INSERT INTO shop.log VALUES ('order {id}'); \
         UPDATE shop.counter SET n = n + 1; COMMIT"
    ));
}

fn orders(server: &Server) -> String {
    server.sql(
        "SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM shop.orders), (SELECT COUNT(*) FROM shop.log), (SELECT n FROM shop.counter))",
    )
}

fn position_known_to(server: &Server) -> String {
    server.sql(match server.kind.vendor() {
        Vendor::MariaDb => "SELECT @@GLOBAL.gtid_slave_pos",
        Vendor::MySql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
    })
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}
