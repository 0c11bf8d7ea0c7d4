//! The laboratory's commands alone, until the `spate` program has them.

use std::process::ExitCode;

use clap::Parser;
use spate_lab::LabCommand;

#[derive(Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: LabCommand,
}

#[allow(clippy::print_stderr)]
fn main() -> ExitCode {
    match spate_lab::run(CommandLine::parse().command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
