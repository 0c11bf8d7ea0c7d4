//! A real `mariadbd` in a directory of its own, for tests.

#![expect(clippy::unwrap_used, reason = "a test that has no server fails")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{ConnectOptions, Connection};
use crate::endpoint::Endpoint;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that is killed when this value is dropped.
pub struct TestServer {
    directory: TempDir,
    /// Keeps the template for the next server.
    _template: Arc<TempDir>,
    child: Child,
    /// Its TCP port on 127.0.0.1.
    pub port: u16,
}

/// An empty data directory that each server copies. It is created once, and removed with the last server that copied
/// it.
fn template() -> Arc<TempDir> {
    static TEMPLATE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut template = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(directory) = template.upgrade() {
        return directory;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(user_option())
        .arg(format!("--datadir={}", directory.path().join("data").display()))
        .env("TMPDIR", directory.path())
        .output()
        .expect("mariadb-install-db is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let directory = Arc::new(directory);
    *template = Arc::downgrade(&directory);
    directory
}

/// The option without which the server refuses to run as root; `None` for other users.
fn user_option() -> Option<String> {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "root".to_owned());
    (user == "root").then(|| "--user=root".to_owned())
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl TestServer {
    /// Starts a server with these options, and waits until it answers.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(options: &[&str]) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let template = template();
        let copied =
            Command::new("cp").arg("-a").arg(template.path().join("data")).arg(directory.path()).status().unwrap();
        assert!(copied.success());
        let port = free_port();
        let child = Command::new("mariadbd")
            // A starting server removes files that look like temporary tables of another.
            .env("TMPDIR", directory.path())
            .arg("--no-defaults")
            .args(user_option())
            .arg(format!("--datadir={}", directory.path().join("data").display()))
            .arg(format!("--socket={}", directory.path().join("server.sock").display()))
            .arg(format!("--pid-file={}", directory.path().join("server.pid").display()))
            .arg(format!("--port={port}"))
            .args(["--bind-address=127.0.0.1", "--skip-log-error", "--innodb-flush-log-at-trx-commit=0"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("server.log")).unwrap())
            .spawn()
            .expect("mariadbd is installed");
        let mut server = TestServer { directory, _template: template, child, port };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let error = match Connection::connect(&self.root(), &ConnectOptions::new("server")) {
                Ok(_) => return,
                Err(error) => error,
            };
            let exited = self.child.try_wait().unwrap();
            if exited.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.directory.path().join("server.log")).unwrap();
                panic!("the server did not start: {exited:?}, {error}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("server.sock")
    }

    /// Root over the socket, without a password.
    pub fn root(&self) -> Endpoint {
        Endpoint::unix("root", self.socket())
    }

    /// A connection of root.
    ///
    /// # Panics
    /// If it is refused.
    pub fn connect(&self) -> Connection {
        Connection::connect(&self.root(), &ConnectOptions::new("server")).unwrap()
    }

    /// Kills the server at once, as a crash would.
    pub fn kill(&mut self) {
        let _already_dead = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}
