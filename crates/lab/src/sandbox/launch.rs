//! How a server's process is started: its arguments, its port and its socket.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Lifetime, PROGRAMS, Sandbox, data_directory, error_log};
use crate::process::ProcessIdentity;
use crate::server_options::ServerOptions;
use crate::version::ServerBinaries;
use crate::{Error, Result};

/// Socket addresses hold 108 bytes, one of them the final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The file that says where the socket is when it is not in the sandbox's directory.
const SOCKET_MARKER: &str = "socket-directory";
/// How such a directory's name begins.
const SOCKET_PREFIX: &str = "spate-";

pub(super) fn spawn(
    binaries: &ServerBinaries,
    directory: &Path,
    socket: &Path,
    port: u16,
    options: &ServerOptions,
    lifetime: Lifetime,
) -> Result<Sandbox> {
    let log_path = error_log(directory);
    let log = File::create(&log_path).map_err(Error::file("create", &log_path))?;
    let (program, arguments) = match binaries.read_latency {
        None => (binaries.daemon.as_path(), vec![]),
        Some(latency) => (Path::new(STRACE), slow_reads(latency, &binaries.daemon)),
    };
    let mut command = match lifetime {
        Lifetime::Ours => dying_with_us(program),
        Lifetime::Detached => Command::new(program),
    };
    command.args(arguments).arg("--no-defaults");
    if let Some(base) = &binaries.base_directory {
        command.arg(format!("--basedir={}", base.display()));
    }
    command.args(options.arguments());
    command
        .arg(format!("--datadir={}", data_directory(directory).display()))
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--port={port}"))
        .arg("--bind-address=127.0.0.1")
        .args(binaries.vendor().sandbox_arguments())
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .arg(format!("--tmpdir={}", directory.join("tmp").display()))
        .args(as_root())
        .env("PATH", search_path(directory))
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(Error::file("open", &log_path))?)
        .stderr(log)
        // Its own process group: Ctrl-C is for the laboratory, which then stops its servers itself.
        .process_group(0);
    let child = command.spawn().map_err(|source| Error::ProgramNotRun {
        program: binaries.daemon.display().to_string(),
        advice: "`./x setup` installs the server.",
        source,
    })?;
    let process = ProcessIdentity::of(child.id()).unwrap_or(ProcessIdentity { id: child.id(), start_ticks: 0 });
    Ok(Sandbox {
        binaries: binaries.clone(),
        directory: directory.to_owned(),
        socket: socket.to_owned(),
        port,
        process,
        child: Some(child),
        lifetime,
    })
}

/// Where to look for programs that a server calls: first beside its directory.
fn search_path(directory: &Path) -> OsString {
    let own = directory.parent().unwrap_or(directory).join(PROGRAMS);
    let usual = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&usual))).unwrap_or(usual)
}

/// Delays system calls.
const STRACE: &str = "/usr/bin/strace";

/// Arguments with which `strace` runs a server whose threads wait so much longer for each page: a disk on which many reads at a time are
/// as fast as one. The tracer is a process beside the server, which keeps its own id. Reads that no thread waits for (read-ahead) stay as
/// fast as they are.
fn slow_reads(latency: Duration, daemon: &Path) -> Vec<OsString> {
    let delay = format!("inject=pread64:delay_enter={}", latency.as_micros());
    let fixed = ["-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-e"];
    let fixed = fixed.into_iter().map(OsString::from);
    fixed.chain([delay.into(), daemon.into()]).collect()
}

/// A command whose process the kernel kills when this one ends, however it ends. (`setpriv` becomes the program itself,
/// so the process id is the program's. The kernel looks at the *thread* that started it: start from long-lived ones.)
/// Ctrl-C ends this process alone, which would take the program's end by the same signal for a failure.
pub fn dying_with_us(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL"]).arg(program).process_group(0);
    command
}

/// Servers refuse to run as the machine's root unless told to.
pub(super) fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// The socket is in the sandbox's directory, or in a private one under the system's temporary directory if that path
/// would be longer than a socket address can be.
pub(super) fn socket_path(directory: &Path) -> Result<PathBuf> {
    let usual = directory.join("server.sock");
    if usual.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(usual);
    }
    // Somebody else may have taken the name of one that was removed.
    remove_socket_directory(directory);
    let marker = directory.join(SOCKET_MARKER);
    let elsewhere = tempfile::Builder::new().prefix(SOCKET_PREFIX).permissions(Permissions::from_mode(0o700)).tempdir();
    let elsewhere = elsewhere.map_err(Error::file("create a socket directory for", directory))?.keep();
    fs::write(&marker, elsewhere.to_string_lossy().as_bytes()).map_err(Error::file("write", &marker))?;
    Ok(elsewhere.join("s"))
}

/// Removes the directory that the socket is in when it is not in the sandbox, if there is one.
pub fn remove_socket_directory(directory: &Path) {
    let Ok(elsewhere) = fs::read_to_string(directory.join(SOCKET_MARKER)) else { return };
    let elsewhere = Path::new(&elsewhere);
    let is_name = elsewhere.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SOCKET_PREFIX));
    let is_own = || {
        fs::symlink_metadata(elsewhere)
            .is_ok_and(|data| data.is_dir() && data.uid() == rustix::process::geteuid().as_raw())
    };
    // Whatever the file says: only such a directory as was made for it, with nothing but a socket in it.
    if is_name && elsewhere.parent() == Some(&std::env::temp_dir()) && is_own() {
        for file in ["s", "s.lock"] {
            let _ = fs::remove_file(elsewhere.join(file));
        }
        let _ = fs::remove_dir(elsewhere);
    }
}

/// A port that the kernel says is free now.
pub(crate) fn free_port(directory: &Path) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(Error::file("find a free port on 127.0.0.1 for", directory))
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, getpgid};

    use super::*;

    #[test]
    fn a_signal_of_the_terminal_does_not_reach_what_is_started() {
        let mut child = dying_with_us(Path::new("sleep")).arg("60").spawn().unwrap();
        let group = getpgid(Some(Pid::from_child(&child))).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(group, getpgid(None).unwrap());
    }

    #[test]
    fn socket_of_a_long_path_is_where_nobody_else_gets() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("long".repeat(30));
        fs::create_dir(&directory).unwrap();
        let first = socket_path(&directory).unwrap();
        let place = first.parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
        // Somebody else could make what was removed.
        let again = socket_path(&directory).unwrap();
        assert!(again != first && !place.exists());
        remove_socket_directory(&directory);
        assert!(!again.parent().unwrap().exists());
        // Whatever the file names, only a socket's directory is removed.
        let treasure = tempfile::Builder::new().prefix(SOCKET_PREFIX).tempdir().unwrap();
        fs::write(treasure.path().join("gold"), "").unwrap();
        fs::write(directory.join(SOCKET_MARKER), treasure.path().to_string_lossy().as_bytes()).unwrap();
        remove_socket_directory(&directory);
        assert!(treasure.path().join("gold").exists());
    }
}
