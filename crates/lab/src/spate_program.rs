//! The `spate` program, run as a user would: command line, environment, exit status.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde::Serialize;

use crate::process::ProcessIdentity;
use crate::sandbox::{ACCOUNT, Sandbox, dying_with_us, tail_of};
use crate::vendor::Vendor;
use crate::{Error, Result};

/// Environment variable with the path of another program than the one beside the laboratory.
const PROGRAM_VARIABLE: &str = "SPATE_BIN";
/// Time between two reads of the peak memory. The peak only grows, so a run can miss only this last interval.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// The program's path, and its source and replica.
#[derive(Debug, Clone)]
pub struct SpateProgram {
    path: PathBuf,
    source: String,
    source_password: String,
    /// The authority of the source's certificate, which MySQL's accounts need to log in; `None` if the server has none.
    source_authority: Option<PathBuf>,
    replica: String,
    /// The directory of its archive and its output.
    directory: PathBuf,
}

/// The resource usage of a run of the program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SpateUsage {
    /// Time from its start to its end.
    pub wall: Duration,
    /// Processor time of all its threads.
    pub cpu: Duration,
    /// Peak of its resident memory.
    pub peak_resident_bytes: u64,
    /// What it said at its end with `--json`; `None` without it.
    pub report: Option<serde_json::Value>,
}

/// A running `spate`; killed when dropped.
#[derive(Debug)]
pub struct RunningSpate {
    child: Child,
    process: ProcessIdentity,
    begun: Instant,
    shown: String,
    output: PathBuf,
    sampler: Option<Sampler>,
}

#[derive(Debug)]
struct Sampler {
    stop: Arc<AtomicBool>,
    peak_resident_bytes: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// Where the program is.
pub(crate) fn program_path() -> Result<PathBuf> {
    match std::env::var_os(PROGRAM_VARIABLE) {
        Some(path) => Ok(PathBuf::from(path)),
        None => std::env::current_exe().map(|laboratory| laboratory.with_file_name("spate")).map_err(|source| {
            Error::ProgramNotRun { program: "spate".into(), advice: "Name it in SPATE_BIN.", source }
        }),
    }
}

/// The program's version, and when it was built: two builds of one version are not the same program.
///
/// # Errors
/// [`Error::ProgramNotRun`], [`Error::ProgramFailed`], [`Error::File`].
pub fn version() -> Result<String> {
    let path = program_path()?;
    let mut command = Command::new(&path);
    command.arg("--version");
    let said = String::from_utf8_lossy(&run_to_end(command, "spate --version")?).trim().to_owned();
    Ok(said + &built(&path)?)
}

/// The laboratory's version, and when it was built.
///
/// # Errors
/// [`Error::File`].
pub fn laboratory_version() -> Result<String> {
    let path = std::env::current_exe().map_err(Error::file("find", Path::new("spate-lab")))?;
    Ok(format!("spate-lab {}{}", env!("CARGO_PKG_VERSION"), built(&path)?))
}

fn built(path: &Path) -> Result<String> {
    let at = std::fs::metadata(path).and_then(|file| file.modified()).map_err(Error::file("look at", path))?;
    Ok(jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!(" (built {at:.0})")))
}

/// What `spate analyze` says of the binlogs in a server's data directory.
///
/// # Errors
/// [`Error::ProgramNotRun`], [`Error::ProgramFailed`].
pub fn analyze(directory: &Path) -> Result<serde_json::Value> {
    let mut command = Command::new(program_path()?);
    command.arg("analyze").arg(directory).args(["--base-name", "binlog", "--appliers", "1", "--json"]);
    json_of(command, "spate analyze")
}

/// Loads a file by a layout into a server, and says what the program did. It writes rejects into `directory`.
///
/// # Errors
/// [`Error::ProgramNotRun`], [`Error::ProgramFailed`].
pub fn load(
    server: &Sandbox,
    layout: &Path,
    file: &Path,
    directory: &Path,
    arguments: &[String],
) -> Result<serde_json::Value> {
    let mut command = Command::new(program_path()?);
    command.args(["load", "--json", "--no-binlog", "--server"]).arg(format!("root@{}", server.socket().display()));
    command.arg("--layout").arg(layout).arg("--rejects").arg(directory).args(arguments).arg(file);
    json_of(command, "spate load")
}

/// Replays captured statements against a server, as fast as its connections can, and says what came of it.
///
/// # Errors
/// [`Error::ProgramNotRun`], [`Error::ProgramFailed`], [`Error::File`].
pub fn replay(server: &Sandbox, inputs: &[String]) -> Result<serde_json::Value> {
    let report = tempfile::NamedTempFile::new().map_err(Error::file("create", Path::new("a temporary file")))?;
    let mut command = Command::new(program_path()?);
    command.args(["replay", "--pace", "fastest", "--server"]).arg(format!("root@{}", server.socket().display()));
    command.arg("--json").arg(report.path()).args(inputs);
    run_to_end(command, "spate replay")?;
    let text = std::fs::read(report.path()).map_err(Error::file("read", report.path()))?;
    serde_json::from_slice(&text).map_err(|error| Error::ProgramFailed {
        program: "spate replay".to_owned(),
        status: "0".to_owned(),
        output: error.to_string(),
    })
}

/// Sets what a replica needs for these options of `spate replicate`: MariaDB's strict mode takes GTIDs into the binlog only in their order.
///
/// # Errors
/// [`Error::Sql`].
pub(crate) fn prepare_replica(replica: &Sandbox, arguments: &[String]) -> Result<()> {
    let is_refused =
        replica.vendor() == Vendor::MariaDb && arguments.iter().any(|argument| argument == "--commit-order=free");
    if is_refused { replica.connect()?.run("SET GLOBAL gtid_strict_mode = OFF") } else { Ok(()) }
}

/// Runs the program, and reads what it says as JSON.
///
/// # Errors
/// [`Error::ProgramNotRun`], [`Error::ProgramFailed`].
pub fn run(arguments: &[String], environment: &[(&str, &str)]) -> Result<serde_json::Value> {
    let mut command = Command::new(program_path()?);
    command.args(arguments).envs(environment.iter().copied());
    let name = arguments.first().map_or("spate".to_owned(), |first| format!("spate {first}"));
    json_of(command, &name)
}

fn json_of(command: Command, name: &str) -> Result<serde_json::Value> {
    let output = run_to_end(command, name)?;
    serde_json::from_slice(&output).map_err(|error| Error::ProgramFailed {
        program: name.to_owned(),
        status: "0".to_owned(),
        output: error.to_string(),
    })
}

/// Runs a command to its end; what it wrote to standard output.
fn run_to_end(mut command: Command, name: &str) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| Error::ProgramNotRun {
        program: command.get_program().to_string_lossy().into_owned(),
        advice: "Name it in SPATE_BIN.",
        source,
    })?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Error::ProgramFailed {
            program: name.to_owned(),
            status: output.status.to_string(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

impl SpateProgram {
    /// The program for this source and replica; its files go to `directory`. It reaches the source over TCP with a
    /// password, as over a network, and the replica through its socket, as beside it.
    ///
    /// # Errors
    /// [`Error::ProgramNotRun`] if the program's path is unknown.
    pub fn new(source: &Sandbox, source_password: &str, replica: &Sandbox, directory: &Path) -> Result<SpateProgram> {
        Ok(SpateProgram {
            path: program_path()?,
            source: format!("{ACCOUNT}@127.0.0.1:{}", source.port()),
            source_password: source_password.to_owned(),
            source_authority: Some(source.data_directory().join("ca.pem")).filter(|file| file.exists()),
            replica: format!("root@{}", replica.socket().display()),
            directory: directory.to_owned(),
        })
    }

    /// Runs the program at `path` instead of the one beside the laboratory.
    #[must_use]
    pub fn with_path(mut self, path: PathBuf) -> SpateProgram {
        self.path = path;
        self
    }

    /// The GTID position that a running `spate replicate` has applied, from `spate status`; `None` if none answers.
    pub fn applied_position(&self) -> Option<String> {
        let mut command = self.command(&["status"]);
        command.arg("--archive").arg(self.archive()).arg("--json");
        let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(report["applied"]["gtid"].as_str()?.to_owned())
    }

    /// Fills the archive from `start` on, until it is caught up.
    ///
    /// # Errors
    /// [`Error::ProgramNotRun`], [`Error::ProgramFailed`], [`Error::TimedOut`].
    pub fn fetch(&self, start: &str, limit: Duration) -> Result<SpateUsage> {
        let mut command = self.command(&["archive", "fetch"]);
        self.name_source(&mut command);
        command.arg("--archive").arg(self.archive());
        command.args(["--start", &format!("gtid:{start}"), "--until", "caught-up"]);
        self.run(command, "fetch")?.wait(limit)
    }

    /// Starts `spate replicate`. Without `until` it runs until it is stopped.
    ///
    /// # Errors
    /// [`Error::ProgramNotRun`].
    pub fn replicate(&self, start: Option<&str>, until: Option<&str>, arguments: &[String]) -> Result<RunningSpate> {
        let mut command = self.command(&["replicate"]);
        self.name_source(&mut command);
        command.args(["--replica", &self.replica]);
        command.arg("--archive").arg(self.archive());
        if let Some(start) = start {
            command.args(["--start", &format!("gtid:{start}")]);
        }
        if let Some(until) = until {
            command.args(["--until", &format!("gtid:{until}")]);
        }
        command.args(arguments);
        self.run(command, "replicate")
    }

    /// Starts `spate prefetch`, which runs until it is stopped.
    ///
    /// # Errors
    /// [`Error::ProgramNotRun`].
    pub fn prefetch(&self, arguments: &[String]) -> Result<RunningSpate> {
        let mut command = self.command(&["prefetch", "--json"]);
        command.args(["--replica", &self.replica]).args(arguments);
        self.run(command, "prefetch")
    }

    /// Runs `spate verify`; its own report goes to the log in the directory.
    ///
    /// # Errors
    /// [`Error::ProgramFailed`] if it found a difference or failed, [`Error::ProgramNotRun`], [`Error::TimedOut`].
    pub fn verify(&self, limit: Duration) -> Result<SpateUsage> {
        let mut command = self.command(&["verify"]);
        self.name_source(&mut command);
        command.args(["--replica", &self.replica]);
        self.run(command, "verify")?.wait(limit)
    }

    fn name_source(&self, command: &mut Command) {
        command.args(["--source", &self.source]);
        if let Some(authority) = &self.source_authority {
            command.arg("--source-tls-ca").arg(authority);
        }
    }

    fn archive(&self) -> PathBuf {
        self.directory.join("archive")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = dying_with_us(&self.path);
        command.args(words);
        command.env("SPATE_SOURCE_PASSWORD", &self.source_password).env("SPATE_REPLICA_PASSWORD", "");
        command
    }

    fn run(&self, mut command: Command, name: &str) -> Result<RunningSpate> {
        let output = self.directory.join(format!("spate-{name}.log"));
        let file = File::create(&output).map_err(Error::file("create", &output))?;
        let errors = file.try_clone().map_err(Error::file("open", &output))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let begun = Instant::now();
        let child = command.spawn().map_err(|source| Error::ProgramNotRun {
            program: self.path.display().to_string(),
            advice: "It must stand beside spate-lab; SPATE_BIN can name another.",
            source,
        })?;
        let process = ProcessIdentity::of(child.id()).unwrap_or(ProcessIdentity { id: child.id(), start_ticks: 0 });
        let shown = format!("spate {}", name.replace("fetch", "archive fetch"));
        Ok(RunningSpate { child, process, begun, shown, output, sampler: Some(Sampler::start(process)) })
    }
}

impl RunningSpate {
    /// The program's process.
    pub fn process(&self) -> ProcessIdentity {
        self.process
    }

    /// Peak of its resident memory so far.
    pub fn peak_resident_bytes(&self) -> u64 {
        self.sampler.as_ref().map_or(0, |sampler| sampler.peak_resident_bytes.load(Ordering::Relaxed))
    }

    /// The end of its output so far.
    pub fn output(&self) -> String {
        tail_of(&self.output)
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// [`Error::ProgramFailed`].
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(self.failed(&status.to_string())),
            _ => Ok(()),
        }
    }

    /// Waits for its end, which must be a success.
    ///
    /// # Errors
    /// [`Error::ProgramFailed`] with the end of its output; [`Error::TimedOut`].
    pub fn wait(mut self, limit: Duration) -> Result<SpateUsage> {
        let ended = self.ended_within(limit);
        let wall = self.begun.elapsed();
        if !ended {
            let advice = format!("the end of its output:\n{}", tail_of(&self.output));
            return Err(Error::TimedOut { what: self.shown.clone(), limit, advice });
        }
        // It has ended, but until it is reaped the kernel still reports its resource usage.
        let cpu = self.process.cpu_time().unwrap_or_default();
        let peak_resident_bytes = self.sampler.take().map_or(0, Sampler::finish);
        let status = self.reap()?;
        if !status.success() {
            return Err(self.failed(&status.to_string()));
        }
        Ok(SpateUsage { wall, cpu, peak_resident_bytes, report: last_json(&self.output) })
    }

    /// Asks it to stop, and waits until it has ended cleanly.
    ///
    /// # Errors
    /// Those of [`RunningSpate::wait`].
    pub fn stop(self) -> Result<SpateUsage> {
        const LIMIT: Duration = Duration::from_secs(60);
        self.process.signal(Signal::TERM);
        self.wait(LIMIT)
    }

    /// Waits without reaping, and without looking again and again: the contender has the machine for itself.
    fn ended_within(&self, limit: Duration) -> bool {
        let asked = Instant::now();
        let id = i32::try_from(self.process.id).ok().and_then(Pid::from_raw);
        // A process that has ended and is not reaped still has its number.
        let Some(Ok(process)) = id.map(|id| pidfd_open(id, PidfdFlags::empty())) else { return true };
        loop {
            let left = limit.saturating_sub(asked.elapsed());
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
                Ok(0) => return false,
                Err(rustix::io::Errno::INTR) => continue,
                _ => return true,
            }
        }
    }

    fn reap(&mut self) -> Result<ExitStatus> {
        self.child.wait().map_err(|source| Error::ProgramNotRun {
            program: self.shown.clone(),
            advice: "It was started, but its end cannot be seen.",
            source,
        })
    }

    fn failed(&self, status: &str) -> Error {
        Error::ProgramFailed { program: self.shown.clone(), status: status.to_owned(), output: tail_of(&self.output) }
    }
}

/// The last JSON object that begins a line of a program's output, which also has its messages.
fn last_json(output: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(output).ok()?;
    let begin = if text.starts_with('{') { Some(0) } else { None };
    let begin = text.rfind("\n{").map(|line_end| line_end + 1).or(begin)?;
    serde_json::Deserializer::from_str(text.get(begin..)?).into_iter().next()?.ok()
}

impl Drop for RunningSpate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(sampler) = self.sampler.take() {
            sampler.finish();
        }
    }
}

impl Sampler {
    fn start(process: ProcessIdentity) -> Sampler {
        let (stop, peak_resident_bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, peak) = (Arc::clone(&stop), Arc::clone(&peak_resident_bytes));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(bytes) = process.peak_resident_bytes() {
                    peak.fetch_max(bytes, Ordering::Relaxed);
                }
                std::thread::sleep(SAMPLE_EVERY);
            }
        });
        Sampler { stop, peak_resident_bytes, thread }
    }

    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.peak_resident_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// A program that is a shell script, in place of `spate`.
    fn program(directory: &Path, script: &str) -> SpateProgram {
        let path = directory.join("program");
        // Not by this process: what it has open for writing, a program that another thread just starts may have, too, and then it cannot be executed.
        let write = "printf '%s\\n' \"$1\" > \"$0\" && chmod 700 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(&path).arg(format!("#!/bin/sh\n{script}")).status();
        assert!(written.unwrap().success());
        SpateProgram {
            path,
            source: "spate@127.0.0.1:1".into(),
            source_password: "hush".into(),
            source_authority: None,
            replica: "root@/socket".into(),
            directory: directory.to_owned(),
        }
    }

    #[test]
    fn spate_command_line_is_as_documented_without_password() {
        let directory = tempfile::tempdir().unwrap();
        let program = program(directory.path(), "echo \"$@\"; test \"$SPATE_SOURCE_PASSWORD\" = hush");
        program.replicate(Some("0-1-2"), Some("0-1-9"), &["--semi-sync".into()]).unwrap().wait(LIMIT).unwrap();
        let archive = directory.path().join("archive");
        assert_eq!(
            std::fs::read_to_string(directory.path().join("spate-replicate.log")).unwrap().trim(),
            format!(
                "replicate --source spate@127.0.0.1:1 --replica root@/socket --archive {} --start gtid:0-1-2 \
                 --until gtid:0-1-9 --semi-sync",
                archive.display()
            )
        );
        program.fetch("0-1-2", LIMIT).unwrap();
        assert_eq!(
            std::fs::read_to_string(directory.path().join("spate-fetch.log")).unwrap().trim(),
            format!(
                "archive fetch --source spate@127.0.0.1:1 --archive {} --start gtid:0-1-2 --until caught-up",
                archive.display()
            )
        );
    }

    #[test]
    fn resource_usage_is_measured_until_the_program_ends() {
        let directory = tempfile::tempdir().unwrap();
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let usage = program(directory.path(), busy).verify(LIMIT).unwrap();
        assert!(usage.cpu >= Duration::from_millis(20), "{usage:?}");
        assert!(usage.wall >= usage.cpu / 2, "{usage:?}");
        assert!(usage.peak_resident_bytes > 100_000, "{usage:?}");
    }

    #[test]
    fn report_is_found_among_messages() {
        let directory = tempfile::tempdir().unwrap();
        let says = "echo 'spate intake: connected'; echo '{\"batches\": 7}'; echo 'the end'";
        let usage = program(directory.path(), says).verify(LIMIT).unwrap();
        assert_eq!(usage.report.unwrap()["batches"], 7);
        assert_eq!(program(directory.path(), "echo 'no { here }'").verify(LIMIT).unwrap().report, None);
    }

    #[test]
    fn failed_program_error_shows_its_last_output() {
        let directory = tempfile::tempdir().unwrap();
        let program = program(directory.path(), "echo 'duplicate key in 0-1-7' >&2; exit 3");
        let message = program.verify(LIMIT).unwrap_err().to_string();
        assert!(message.contains("`spate verify` failed") && message.contains("duplicate key in 0-1-7"), "{message}");
        assert!(!message.contains("hush"), "{message}");
    }

    #[test]
    fn program_over_its_time_limit_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let running = program(directory.path(), "exec sleep 600").replicate(None, None, &[]).unwrap();
        let process = running.process();
        assert!(matches!(running.wait(Duration::from_millis(50)), Err(Error::TimedOut { .. })));
        assert!(!process.is_running());
    }

    #[test]
    fn program_that_is_stopped_must_end_with_success() {
        let directory = tempfile::tempdir().unwrap();
        let waits = |answer| format!("trap '{answer}' TERM; echo ready; while :; do sleep 0.01; done");
        for (answer, is_success) in [("exit 0", true), ("exit 1", false)] {
            let program = program(directory.path(), &waits(answer));
            let mut running = program.replicate(None, None, &[]).unwrap();
            let log = directory.path().join("spate-replicate.log");
            let deadline = Instant::now() + LIMIT;
            while !tail_of(&log).contains("ready") && Instant::now() < deadline {
                std::thread::yield_now();
            }
            running.check_running().unwrap();
            assert_eq!(running.stop().is_ok(), is_success, "{answer}");
        }
    }
}
