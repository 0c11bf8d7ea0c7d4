//! A MariaDB server of the tests' own: a fresh data directory, a socket, no network, killed when dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct MariaDb {
    directory: TempDir,
    process: Child,
}

impl MariaDb {
    /// Starts a server with a binlog in row format.
    ///
    /// Panics if MariaDB is not installed or does not start.
    pub(crate) fn start() -> MariaDb {
        let directory = tempfile::Builder::new().prefix("spate-codec").tempdir().unwrap();
        let data = directory.path().join("data");
        // Servers name temporary tables by process id, so two that share a directory for them, in containers for
        // example, can take each other's.
        let install = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(format!("--datadir={}", data.display()))
            .args(user_option())
            .env("TMPDIR", directory.path())
            .output()
            .expect("mariadb-install-db is not installed");
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
        let mut process = Command::new(server_program())
            .args(["--no-defaults", "--skip-networking", "--server-id=7", "--log-bin=bin", "--binlog-format=ROW"])
            .args(["--binlog-annotate-row-events=ON", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--secure-file-priv="])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", directory.path().join("socket").display()))
            .args(user_option())
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mariadbd is not installed");
        let log = BufReader::new(process.stderr.take().unwrap());
        let server = MariaDb { directory, process };
        wait_until_ready(log);
        server
    }

    /// The server's directory, which is removed with it.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "--user=root", "--batch", "--raw", "--skip-column-names"])
            .args(["--default-character-set=utf8mb4", "--max-allowed-packet=64M"])
            .arg(format!("--socket={}", self.directory.path().join("socket").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs statements in one session and returns their output, or the client's error message.
    pub(crate) fn try_run(&self, sql: &str) -> Result<String, String> {
        let mut client = self.client().spawn().expect("the mariadb client is not installed");
        let mut input = client.stdin.take().unwrap();
        let sql = sql.to_owned();
        let writer = std::thread::spawn(move || {
            // A client that stops at an error closes its input early.
            let _ = input.write_all(sql.as_bytes());
        });
        let output = client.wait_with_output().unwrap();
        writer.join().unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// As [`MariaDb::try_run`]; an error ends the test.
    pub(crate) fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The binlog file that the server writes now.
    pub(crate) fn current_binlog(&self) -> PathBuf {
        let status = self.run("SHOW MASTER STATUS");
        let name = status.split('\t').next().unwrap();
        self.directory.path().join("data").join(name)
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the line of the server's log that says that it is ready. Reads on after it, so that the pipe never fills.
fn wait_until_ready(log: BufReader<std::process::ChildStderr>) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut log_text = String::new();
        for line in log.lines().map_while(Result::ok) {
            if line.contains("ready for connections") {
                let _ = sender.send(Ok(()));
            }
            log_text = log_text + &line + "\n";
        }
        let _ = sender.send(Err(log_text));
    });
    match receiver.recv_timeout(START_TIMEOUT) {
        Ok(Ok(())) => {}
        Ok(Err(log_text)) => panic!("the server did not start:\n{log_text}"),
        Err(_) => panic!("the server was not ready after {START_TIMEOUT:?}"),
    }
}

/// A server started by root refuses to run without this option.
fn user_option() -> Option<&'static str> {
    let id = Command::new("id").arg("-u").output().expect("id is not installed");
    (id.stdout == b"0\n").then_some("--user=root")
}

/// Distributions install the server outside an ordinary user's path.
fn server_program() -> PathBuf {
    let sbin = PathBuf::from("/usr/sbin/mariadbd");
    if sbin.exists() { sbin } else { PathBuf::from("mariadbd") }
}
