//! A file system's snapshot, taken by a command of the person's own while nobody can write.
//!
//! The contract: the command is started twice, by `sh -c`, with `SPATE_HOOK`, `SPATE_DATADIR` and `SPATE_BASE` in its environment. With
//! `SPATE_HOOK=take`, it makes an atomic snapshot of the file system (or file systems) that hold `SPATE_DATADIR`, while the server is locked, and
//! prints the path at which the snapshot's data directory can be read, as the last line of its output. With `SPATE_HOOK=release`, which comes in any
//! case, it removes the snapshot. It exits with 0 if it has done so. While it takes the snapshot, no client can write, so it has
//! [`Hook::seconds_max`].

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use spate_connection::{Connection, Vendor};

use super::{Work, with_grant};
use crate::error::{Error, Result};
use crate::facts;
use crate::manifest::Base;

/// What the hook is told to do while nobody can write.
const TAKE: &str = "take";
/// More than a path and some lines of progress is not read.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// So long may the output of a hook that has ended stay open.
const SAID_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The command that makes a snapshot.
#[derive(Debug, Clone)]
pub struct Hook {
    /// For `sh -c`.
    pub command: String,
    /// So long may the server be locked, in seconds.
    pub seconds_max: u64,
}

pub(super) fn make(work: &Work<'_>, base: &mut Base, connection: &mut Connection) -> Result<()> {
    let Some(hook) = &work.options.hook else { return Err(Error::Refused("--hook is missing".into())) };
    work.progress.begin("locking the server");
    lock(connection, hook)?;
    let position = facts::position_now(connection);
    work.progress.begin("taking the snapshot");
    let taken = position.and_then(|position| Ok((position, run(work, hook, base, TAKE)?)));
    // What a lock protects is over, whatever happened; the connection's end would release it, too.
    let unlocked = connection.execute(b"UNLOCK TABLES").map(drop).map_err(Error::from);
    let stored = taken.and_then(|(position, said)| {
        unlocked?;
        base.position = position;
        let directory = path_of(&said, hook)?;
        work.store_directory(base, &directory)
    });
    let released = run(work, hook, base, "release");
    stored?;
    // The base is whole.
    if let Err(error) = released {
        base.warnings.push(format!("the snapshot may still be there: {error}"));
    }
    Ok(())
}

/// While this waits for a long query, nobody can write: not for long.
fn lock(connection: &mut Connection, hook: &Hook) -> Result<()> {
    const WAIT_SECONDS: u64 = 10;
    connection.execute(format!("SET SESSION lock_wait_timeout = {}", WAIT_SECONDS.min(hook.seconds_max)).as_bytes())?;
    let grant = match connection.server_version().vendor {
        Vendor::MariaDb => "GRANT RELOAD ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT RELOAD ON *.* TO <the user of Spate> (or FLUSH_TABLES)",
    };
    let denied = |error| with_grant(error, "lock all tables for a moment", grant);
    connection.execute(b"FLUSH TABLES WITH READ LOCK").map_err(denied)?;
    // Else the last transactions of the binlog are only prepared on disk, and a server would need its binlog to recover.
    connection.execute(b"FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS").map(drop).map_err(denied)
}

fn run(work: &Work<'_>, hook: &Hook, base: &Base, what: &str) -> Result<String> {
    let child = Command::new("/bin/sh")
        .args(["-c", &hook.command])
        .env("SPATE_HOOK", what)
        .env("SPATE_DATADIR", &base.server.data_directory)
        .env("SPATE_BASE", &base.id)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // With all that it starts, so that nothing of it stays.
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| Error::program(&hook.command, error.to_string()))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let kill = || group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
    let said = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        // More closes the pipe, and ends what writes on.
        let read = said.map(|said| said.take(SAID_BYTES_MAX).read_to_end(&mut text));
        read.transpose().map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let ended = wait(&mut child, work, hook, what);
    if ended.is_err() {
        let _gone = kill();
        let _reaped = child.wait();
    }
    let status = ended?;
    if !status.success() {
        let _gone = kill();
        return Err(Error::program(&hook.command, format!("with SPATE_HOOK={what}, it failed ({status})")));
    }
    // What it has left in the background may keep the pipe open.
    let deadline = Instant::now() + SAID_WITHIN;
    while !reading.is_finished() {
        if Instant::now() >= deadline {
            let _gone = kill();
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let text = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    text.map_err(|error| Error::program(&hook.command, format!("what it prints cannot be read: {error}")))
}

fn wait(child: &mut Child, work: &Work<'_>, hook: &Hook, what: &str) -> Result<ExitStatus> {
    let deadline = Instant::now() + Duration::from_secs(hook.seconds_max);
    loop {
        if let Some(status) = child.try_wait().map_err(Error::file("the hook's process"))? {
            return Ok(status);
        }
        // A snapshot that was taken is released all the same.
        if what == TAKE && work.stop.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        if Instant::now() >= deadline {
            let why = format!("with SPATE_HOOK={what}, it took longer than {} s (--hook-seconds)", hook.seconds_max);
            return Err(Error::program(&hook.command, why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn path_of(said: &str, hook: &Hook) -> Result<PathBuf> {
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let path = line.map(Path::new).filter(|path| path.is_absolute() && path.is_dir());
    path.map(Path::to_owned).ok_or_else(|| {
        let why = format!(
            "the last line that it printed is not the path of the snapshot's data directory: {:?}",
            line.unwrap_or("")
        );
        Error::program(&hook.command, why)
    })
}
