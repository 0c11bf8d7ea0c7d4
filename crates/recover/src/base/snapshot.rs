//! A file system's snapshot, taken by a command of the person's own while nobody can write.
//!
//! The contract: the command is started twice, by `sh -c`, with `SPATE_HOOK`, `SPATE_DATADIR` and `SPATE_BASE` in its environment. With
//! `SPATE_HOOK=take`, it makes an atomic snapshot of the file system (or file systems) that hold `SPATE_DATADIR`, while the server is locked, and
//! prints the path at which the snapshot's data directory can be read, as the last line of its output. With `SPATE_HOOK=release`, which comes in any
//! case, it removes the snapshot. It exits with 0 if it has done so. While it takes the snapshot, no client can write, so it has
//! [`Hook::seconds_max`].

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spate_connection::{Connection, Vendor};

use super::{Work, with_grant};
use crate::error::{Error, Result};
use crate::facts;
use crate::manifest::Base;

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
    let taken = position.and_then(|position| Ok((position, run(work, hook, base, "take")?)));
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
    released.map(drop)
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
    let output_path = work.directory.join(format!("hook-{what}"));
    let output = std::fs::File::create(&output_path).map_err(Error::file(&output_path))?;
    let child = Command::new("/bin/sh")
        .args(["-c", &hook.command])
        .env("SPATE_HOOK", what)
        .env("SPATE_DATADIR", &base.server.data_directory)
        .env("SPATE_BASE", &base.id)
        .stdin(Stdio::null())
        .stdout(output)
        .spawn();
    let mut child = child.map_err(|error| Error::program(&hook.command, error.to_string()))?;
    let deadline = Instant::now() + Duration::from_secs(hook.seconds_max);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(Error::file("the hook's process"))? {
            break status;
        }
        if Instant::now() >= deadline {
            let _gone = child.kill();
            let _reaped = child.wait();
            let why = format!("with SPATE_HOOK={what}, it took longer than {} s (--hook-seconds)", hook.seconds_max);
            return Err(Error::program(&hook.command, why));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        return Err(Error::program(&hook.command, format!("with SPATE_HOOK={what}, it failed ({status})")));
    }
    std::fs::read_to_string(&output_path).map_err(Error::file(&output_path))
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
