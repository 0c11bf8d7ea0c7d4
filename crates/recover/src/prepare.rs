//! mariadb-backup's stream as a data directory.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::error::{Error, Result};
use crate::manifest::ServerFacts;
use crate::programs::{Programs, dying_with_us, end_of};
use crate::scratch::innodb_options;

/// What a restored server does not need, and what the program has told of the backup.
const LEFT_OVERS: [&str; 9] = [
    "backup-my.cnf",
    "xtrabackup_info",
    "xtrabackup_checkpoints",
    "xtrabackup_binlog_info",
    "xtrabackup_slave_info",
    "mariadb_backup_info",
    "mariadb_backup_checkpoints",
    "mariadb_backup_binlog_info",
    "mariadb_backup_slave_info",
];

/// Unpacks the stream.
pub(crate) fn unpack(programs: &Programs, stream: &mut dyn Read, data: &Path) -> Result<()> {
    let program = programs.find("mbstream", "mariadb-backup")?;
    let mut command = dying_with_us(&program);
    command.arg("-x").arg("-C").arg(data).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Error::program(&program, format!("it does not run: {error}")))?;
    let mut copied = Ok(0);
    if let Some(mut input) = child.stdin.take() {
        copied = std::io::copy(stream, &mut input);
        copied = copied.and_then(|bytes| input.flush().map(|()| bytes));
    }
    let output = child.wait_with_output().map_err(Error::file(&program))?;
    if !output.status.success() {
        return Err(Error::program(program, format!("it failed ({}): {}", output.status, end_of(&output.stderr))));
    }
    copied.map(drop).map_err(|error| Error::program(program, format!("the base's stream broke: {error}")))
}

/// Makes the files those of a server that was stopped cleanly.
pub(crate) fn prepare(programs: &Programs, facts: &ServerFacts, data: &Path, memory_bytes: u64) -> Result<()> {
    let program = programs.find("mariadb-backup", "mariadb-backup")?;
    let mut command = dying_with_us(&program);
    // Without --no-defaults, the machine's own settings would be those of another server.
    command
        .args(["--no-defaults", "--prepare"])
        .arg(format!("--target-dir={}", data.display()))
        .arg(format!("--use-memory={memory_bytes}"))
        .args(innodb_options(facts))
        .stdin(Stdio::null());
    let output = command.output().map_err(|error| Error::program(&program, format!("it does not run: {error}")))?;
    let said = [output.stdout, output.stderr].concat();
    if !output.status.success() || !String::from_utf8_lossy(&said).contains("completed OK!") {
        return Err(Error::program(
            program,
            format!("it cannot prepare the base ({}): {}", output.status, end_of(&said)),
        ));
    }
    for name in LEFT_OVERS {
        let path = data.join(name);
        if path.exists() {
            std::fs::remove_file(&path).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}
