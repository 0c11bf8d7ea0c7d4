//! The laboratory as a program of its own; `spate lab` runs it.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use spate_lab::LabCommand;

/// The laboratory: sandboxes of real servers, races, lag under a live load
#[derive(Debug, Parser)]
#[command(name = "spate-lab", bin_name = "spate lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

fn main() -> ExitCode {
    spate_lab::run(Arguments::parse().command).unwrap_or_else(|error| {
        let _unheard = writeln!(std::io::stderr(), "spate lab: {}", spate_lab::screen::harmless(&error.to_string()));
        ExitCode::FAILURE
    })
}
