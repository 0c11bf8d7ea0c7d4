//! A MariaDB server in a directory of its own, for as long as a test lasts.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server. It is killed when this is dropped.
pub struct Server {
    dir: tempfile::TempDir,
    child: Child,
    pub port: u16,
}

impl Server {
    /// Installs and starts a server that logs row events into `binlog/bin.NNNNNN` of its directory.
    pub fn start(server_id: u32, options: &[&str]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("binlog")).unwrap();
        let data = dir.path().join("data");
        let installed = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(format!("--datadir={}", data.display()))
            // Two installations at once must not share their temporary tables.
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let child = Command::new("mariadbd")
            .args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=32M"])
            .args(["--binlog-format=ROW", "--innodb-log-file-size=16M", "--secure-file-priv="])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", at("socket")))
            .arg(format!("--log-bin={}", at("binlog/bin")))
            .arg(format!("--log-error={}", at("error.log")))
            .arg(format!("--port={port}"))
            .arg(format!("--server-id={server_id}"))
            .args(options)
            .env("TMPDIR", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { dir, child, port };
        server.wait(|server| server.try_sql("SELECT 1").is_ok());
        server
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn binlog_dir(&self) -> PathBuf {
        self.dir.path().join("binlog")
    }

    /// The value of a line of SHOW SLAVE STATUS.
    pub fn replica_status(&self, name: &str) -> String {
        let output = self.client(&[]).args(["-e", "SHOW SLAVE STATUS\\G"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let prefix = format!("{name}: ");
        let found = text.lines().find_map(|line| line.trim_start().strip_prefix(&prefix));
        found.unwrap_or_default().trim().to_owned()
    }

    fn client(&self, options: &[&str]) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root"]).args(options);
        client.arg(format!("--socket={}", self.dir.path().join("socket").display()));
        client
    }

    /// Runs statements; returns the rows, tab-separated.
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    fn try_sql(&self, statements: &str) -> Result<String, String> {
        let output = self.client(&["--batch", "--skip-column-names"]).args(["-e", statements]).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Waits, with a bound, until `is_there`.
    pub fn wait(&self, is_there: impl Fn(&Server) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !is_there(self) {
            let log = || std::fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default();
            assert!(Instant::now() < end, "waited too long: {}", log());
            std::thread::yield_now();
        }
    }

    /// Kills the server as a power cut would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
