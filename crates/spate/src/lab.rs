//! `spate lab`: the laboratory, a program of its own beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::Failure;

/// The laboratory's program.
const PROGRAM: &str = "spate-lab";

/// Becomes the laboratory, which takes the arguments.
///
/// # Errors
/// It cannot be run.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let error = Command::new(&program).args(arguments).exec();
    Err(format!(
        "cannot run {}: {error}. The laboratory is a program of its own: `cargo build --release --bin {PROGRAM}` makes it, and it must \
         stand beside spate",
        program.display()
    )
    .into())
}
