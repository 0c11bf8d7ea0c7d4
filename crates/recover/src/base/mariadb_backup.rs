//! MariaDB's own program, on the server's machine. Its stream is stored as it comes; `--extra-lsndir` tells the position at the end.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use spate_connection::Connection;
use spate_connection::endpoint::Address;

use super::{Work, data_bytes};
use crate::error::{Error, Result};
use crate::facts;
use crate::manifest::{Base, Position};
use crate::programs::{end_of, version_of};

const PROGRAM: &str = "mariadb-backup";
const PACKAGE: &str = "mariadb-backup";

pub(super) fn make(work: &Work<'_>, base: &mut Base, connection: &mut Connection) -> Result<()> {
    let program = work.options.programs.find(PROGRAM, PACKAGE)?;
    let version = version_of_backup(&program)?;
    if !version.starts_with(&format!("{}.", base.server.series())) {
        let why = format!(
            "it is of version {version}, and the server of {}: use the program of the server's own series (--programs DIR)",
            base.server.version
        );
        return Err(Error::program(program, why));
    }
    let data = Path::new(&base.server.data_directory);
    if !data.join("ibdata1").is_file() && !data.join("mysql").is_dir() {
        let why = format!(
            "it reads the server's files, and {} is not here, or not readable: run this on the server's machine, as a user who may read its data",
            data.display()
        );
        return Err(Error::program(program, why));
    }
    work.progress.expect(data_bytes(connection));
    work.progress.begin("mariadb-backup");
    let defaults = work.directory.join("my.cnf");
    write_defaults(&defaults, work, data)?;
    let facts_directory = work.directory.join("facts");
    std::fs::create_dir(&facts_directory).map_err(Error::file(&facts_directory))?;
    let log_path = work.directory.join("log");
    let log = std::fs::File::create(&log_path).map_err(Error::file(&log_path))?;
    let mut command = crate::programs::dying_with_us(&program);
    command
        .arg(format!("--defaults-file={}", defaults.display()))
        .args(["--backup", "--stream=mbstream"])
        .arg(format!("--target-dir={}", work.directory.join("target").display()))
        .arg(format!("--extra-lsndir={}", facts_directory.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    let mut running =
        Running(command.spawn().map_err(|error| Error::program(&program, format!("it does not run: {error}")))?);
    let Some(mut stream) = running.0.stdout.take() else { return Err(Error::program(&program, "it has no output")) };
    let stored = work.store(base, &mut Stoppable { stream: &mut stream, stop: work.stop });
    if stored.is_err() {
        let _gone = running.0.kill();
    }
    let status = running.0.wait().map_err(Error::file(&program))?;
    let said = String::from_utf8_lossy(&std::fs::read(&log_path).unwrap_or_default()).into_owned();
    stored?;
    if !status.success() || !said.contains("completed OK!") {
        return Err(Error::program(program, format!("it failed ({status}). It said:\n{}", end_of(said.as_bytes()))));
    }
    base.position = read_position(&facts_directory)?;
    base.position.server_seconds = facts::server_seconds(connection)?;
    Ok(())
}

/// A child that does not outlive us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A stream that ends with an error when somebody wants to stop.
struct Stoppable<'a, R> {
    stream: &'a mut R,
    stop: &'a AtomicBool,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.stop.load(Ordering::Acquire) {
            true => Err(std::io::Error::other("stopped by a signal")),
            false => self.stream.read(buffer),
        }
    }
}

fn version_of_backup(program: &Path) -> Result<String> {
    // "… based on MariaDB server 10.11.19-MariaDB debian-linux-gnu (x86_64)", on standard error.
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::program(program, format!("it does not run: {error}")))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let version = said.split_whitespace().skip_while(|word| *word != "server").nth(1);
    match version {
        Some(version) => Ok(version.to_owned()),
        None => version_of(program),
    }
}

/// The account goes over a file that nobody else may read.
fn write_defaults(path: &Path, work: &Work<'_>, data: &Path) -> Result<()> {
    const PRIVATE: u32 = 0o600;
    let endpoint = &work.options.source;
    let refused = |error: spate_connection::endpoint::EndpointError| Error::Refused(error.to_string());
    let mut text = format!(
        "[mariadb-backup]\ndatadir={}\nuser={}\n",
        quoted(&data.display().to_string())?,
        quoted(endpoint.user().map_err(refused)?)?
    );
    if let Some(password) = endpoint.password() {
        text += &format!("password={}\n", quoted(password.expose())?);
    }
    text += &match endpoint.address().map_err(refused)? {
        Address::Unix(socket) => format!("socket={}\n", quoted(&socket.display().to_string())?),
        Address::Tcp { host, port } => format!("host={}\nport={port}\nprotocol=tcp\n", quoted(&host)?),
    };
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(Error::file(path))
}

/// A value in an option file, which knows backslashes and quotation marks.
fn quoted(text: &str) -> Result<String> {
    if text.contains(['\n', '\r', '\0']) {
        return Err(Error::Refused(
            "a user's name, password or path with a line end cannot be given to mariadb-backup".into(),
        ));
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn read_position(directory: &Path) -> Result<Position> {
    let names = ["xtrabackup_info", "mariadb_backup_info"];
    let path = names.iter().map(|name| directory.join(name)).find(|path| path.is_file());
    let Some(path) = path else {
        return Err(Error::Refused(
            "mariadb-backup has not told the position of the backup (xtrabackup_info is missing)".into(),
        ));
    };
    let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
    parse_position(&text).map_err(|why| Error::Refused(format!("{}: {why}", path.display())))
}

/// Reads `binlog_pos = filename 'x', position '4', GTID of the last change '0-1-2'`; a server without a binlog has no such line, or an empty one.
fn parse_position(text: &str) -> std::result::Result<Position, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("binlog_pos ="));
    let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else { return Ok(Position::default()) };
    let part = |name: &str| {
        let begin = line.find(&format!("{name} '"))? + name.len() + 2;
        let length = line[begin..].find('\'')?;
        Some(line[begin..begin + length].to_owned())
    };
    let file = part("filename").ok_or("it names no binlog file")?;
    let offset = part("position").and_then(|text| text.parse().ok()).ok_or("it names no offset in the binlog")?;
    Ok(Position { gtid: part("GTID of the last change").unwrap_or_default(), file, offset, server_seconds: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_from_what_the_program_tells() {
        let info = "uuid = x\nbinlog_pos = filename 'bin.000002', position '345', GTID of the last change '0-1-7,1-2-9'\nlock_time = 0\n";
        let position = parse_position(info).unwrap();
        assert_eq!(
            (position.gtid.as_str(), position.file.as_str(), position.offset),
            ("0-1-7,1-2-9", "bin.000002", 345)
        );
        let without = parse_position("binlog_pos = filename 'bin.000002', position '4'\n").unwrap();
        assert_eq!((without.gtid.as_str(), without.offset), ("", 4));
        assert_eq!(parse_position("uuid = x\n").unwrap(), Position::default());
        assert!(parse_position("binlog_pos = filename 'bin.000002', position 'x'\n").is_err());
    }

    #[test]
    fn values_of_option_files_are_quoted() {
        assert_eq!(quoted("a\"b\\c").unwrap(), "\"a\\\"b\\\\c\"");
        assert!(quoted("a\nuser=root").is_err());
    }
}
