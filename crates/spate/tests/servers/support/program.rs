//! The built program between a source and a replica.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::server::{ACCOUNT, PASSWORD};
use super::{Kind, PATIENCE, Server, contents, wait_until};

/// A source, a replica, and a directory for the archive.
#[derive(Debug)]
pub struct Site {
    pub source: Server,
    pub replica: Server,
    /// Where the program finds them: the servers' own ports, unless a test puts something in between.
    pub source_port: u16,
    pub replica_port: u16,
    directory: TempDir,
}

/// A program that runs; killed if it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: PathBuf,
}

/// How a program ended, and all that it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
}

impl Site {
    pub fn new(source_options: &[&str], replica_options: &[&str]) -> Site {
        Site::between((Kind::Mariadb, source_options), (Kind::Mariadb, replica_options))
    }

    /// A source and a replica of one kind with nothing special.
    pub fn of(kind: Kind) -> Site {
        Site::between((kind, &[]), (kind, &[]))
    }

    /// A source and a replica, each of a kind and with options of its own.
    pub fn between(source: (Kind, &[&str]), replica: (Kind, &[&str])) -> Site {
        let directory = tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap();
        let (source, replica) = (Server::source(source.0, source.1), Server::replica(replica.0, replica.1));
        Site { source_port: source.port, replica_port: replica.port, source, replica, directory }
    }

    /// A source and a replica with nothing special.
    pub fn plain() -> Site {
        Site::new(&[], &[])
    }

    /// Executes the same on both servers, without a trace in a binlog.
    pub fn both(&self, sql: &str) {
        for server in [&self.source, &self.replica] {
            server.sql(&format!("SET sql_log_bin=0; {sql}"));
        }
    }

    pub fn archive(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    /// `spate replicate` from the source to the replica.
    pub fn replicate(&self, options: &[&str]) -> Command {
        self.applying("replicate", options)
    }

    /// The same, as another account of the replica with the same password.
    pub fn replicate_as(&self, account: &str, options: &[&str]) -> Command {
        let mut command = program();
        command
            .arg("replicate")
            .arg("--source")
            .arg(format!("{ACCOUNT}@127.0.0.1:{}", self.source_port))
            .arg("--replica")
            .arg(format!("{account}@127.0.0.1:{}", self.replica_port))
            .arg("--archive")
            .arg(self.archive())
            .args(options);
        self.source.allow_password(&mut command, "source");
        self.replica.allow_password(&mut command, "replica");
        command
    }

    /// `spate takeover` from the source to the replica.
    pub fn takeover(&self, options: &[&str]) -> Command {
        self.applying("takeover", options)
    }

    /// A command that applies.
    fn applying(&self, name: &str, options: &[&str]) -> Command {
        let mut command = self.command(name, options);
        command.arg("--archive").arg(self.archive());
        // All of the tests, in another dialect.
        if let (Ok(dialect), false) = (std::env::var("SPATE_TEST_DIALECT"), options.contains(&"--dialect")) {
            command.args(["--dialect", &dialect]);
        }
        command
    }

    /// Any command that wants both servers.
    pub fn command(&self, name: &str, options: &[&str]) -> Command {
        let mut command = program();
        command
            .arg(name)
            .arg("--source")
            .arg(format!("{ACCOUNT}@127.0.0.1:{}", self.source_port))
            .arg("--replica")
            .arg(format!("{ACCOUNT}@127.0.0.1:{}", self.replica_port))
            .args(options);
        self.source.allow_password(&mut command, "source");
        self.replica.allow_password(&mut command, "replica");
        command
    }

    /// Any command that wants only the replica.
    pub fn replica_command(&self, name: &str) -> Command {
        let mut command = program();
        command.arg(name).arg("--replica").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.replica_port));
        self.replica.allow_password(&mut command, "replica");
        command
    }

    /// Any command that wants only the source.
    pub fn source_command(&self, name: &str) -> Command {
        let mut command = program();
        command.arg(name).arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.source_port));
        self.source.allow_password(&mut command, "source");
        command
    }

    /// Fills the archive with what the source has now, without a replica.
    pub fn fetch(&self, options: &[&str]) -> Ended {
        let mut command = program();
        command.args(["archive", "fetch", "--until", "caught-up", "--archive"]).arg(self.archive());
        command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.source_port)).args(options);
        self.source.allow_password(&mut command, "source");
        let ended = self.run(command);
        assert!(ended.status.success(), "{}", ended.output);
        ended
    }

    /// Starts a command; its output is kept.
    pub fn spawn(&self, mut command: Command) -> Running {
        let output = tempfile::Builder::new().prefix("output-").tempfile_in(self.directory.path()).unwrap();
        let (file, path) = output.keep().unwrap();
        let child = command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Running { child, output: path }
    }

    /// Runs a command to its end.
    pub fn run(&self, command: Command) -> Ended {
        self.spawn(command).wait()
    }

    /// Replicates until the replica has what the source has now.
    pub fn catch_up(&self, options: &[&str]) -> Ended {
        let ended = self.run(self.replicate(&[options, &["--until", "caught-up"]].concat()));
        assert!(ended.status.success(), "{}", ended.output);
        ended
    }

    /// Catches up from the beginning of the source's binlog, and compares all.
    pub fn catch_up_from_earliest(&self) {
        self.catch_up(&["--start", "earliest"]);
        self.assert_identical();
    }

    /// Checks that both servers hold the same tables: by checksums, which each vendor makes in its own way, or row by row.
    pub fn assert_identical(&self) {
        if self.source.kind.vendor() != self.replica.kind.vendor() {
            return contents::assert_same(&self.source, &self.replica);
        }
        assert_eq!(self.source.checksums(), self.replica.checksums(), "source and replica differ");
    }

    /// What a running program says of itself, once it answers.
    pub fn status(&self) -> Value {
        let mut status = Value::Null;
        wait_until("an answer of spate status", || match self.try_status() {
            Some(answer) => {
                status = answer;
                true
            }
            None => false,
        });
        status
    }

    fn try_status(&self) -> Option<Value> {
        let output = program().args(["status", "--json", "--archive"]).arg(self.archive()).output().unwrap();
        assert_no_password(&String::from_utf8_lossy(&output.stdout));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until the status fulfils `condition`.
    pub fn wait_for_status(&self, what: &str, condition: impl Fn(&Value) -> bool) {
        wait_until(what, || self.try_status().is_some_and(|status| condition(&status)));
    }

    /// Waits until a running program applies: until then, a comparison finds nobody to wait for.
    pub fn wait_applying(&self) {
        self.wait_for_status("the program to apply", |status| status["applier"] == "applying");
    }

    /// Waits until a running program has applied all that the source has. The source is asked each time: after a session is gone, the
    /// server still writes the end of its temporary tables.
    pub fn wait_applied(&self) {
        self.wait_for_status("the replica to have all that the source has", |status| {
            status["applied"]["gtid"] == self.source.position().as_str()
        });
    }

    /// The checkpoint's GTID position.
    pub fn checkpoint(&self) -> String {
        self.replica.sql("SELECT gtid_position FROM spate.checkpoint")
    }
}

/// The program, with the passwords in its environment.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spate"));
    command.env("SPATE_SOURCE_PASSWORD", PASSWORD).env("SPATE_REPLICA_PASSWORD", PASSWORD);
    command
}

/// The same command where no file can grow beyond so many blocks of 512 bytes, as on a disk that is full.
pub fn with_full_disk(command: &Command, blocks: u32) -> Command {
    let mut limited = Command::new("sh");
    // Without the signal, a write beyond the limit is an error like that of a full disk.
    limited.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""));
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited
}

/// Waits until a process has a handler for SIGTERM, which ends it without a word before that.
pub fn wait_until_it_listens(id: u32) {
    const TERM: u32 = 15;
    wait_until("a handler of signals", || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (TERM - 1) & 1 == 1
    });
}

fn assert_no_password(output: &str) {
    assert!(!output.contains(PASSWORD), "the password shows: {output}");
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`. True if it still ran.
    pub fn kill(mut self) -> bool {
        let ran = self.is_running();
        let _is_gone = self.child.kill();
        self.child.wait().unwrap();
        ran
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// SIGTERM, and then its end.
    pub fn terminate(self) -> Ended {
        self.signal("TERM");
        self.wait()
    }

    /// Sends it this signal, such as STOP or CONT.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        const LOOK_EVERY: Duration = Duration::from_millis(10);
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < deadline, "the program does not end; it said: {}", self.said());
            std::thread::sleep(LOOK_EVERY);
        }
        Ended { status: self.child.wait().unwrap(), output: self.said() }
    }

    /// Everything that it has said until now.
    pub fn said(&self) -> String {
        let output = read_lossy(&self.output);
        assert_no_password(&output);
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _is_gone = self.child.kill();
        let _was_waited_for = self.child.wait();
    }
}

impl Ended {
    /// Checks that it failed, in an orderly way, and said all of `parts`.
    pub fn assert_failed_saying(&self, parts: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{}", self.output);
        self.assert_says(parts);
    }

    pub fn assert_says(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.output.contains(part), "'{part}' is missing in: {}", self.output);
        }
    }
}

fn read_lossy(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Overwrites bytes in the midst of a file.
pub fn damage(path: &Path, offset: u64, change: impl Fn(u8) -> u8) {
    use std::os::unix::fs::FileExt;
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[change(byte[0])], offset).unwrap();
}
