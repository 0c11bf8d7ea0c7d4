//! The `spate` command: replication, a check before it, its status, comparison, files into tables, backups and recovery, the archive, and the laboratory.

mod analyze;
mod archive;
mod archive_files;
mod arguments;
mod check;
mod connection_arguments;
mod failover;
mod failover_arguments;
mod fold_stats;
mod handback;
mod handover;
mod help_examples;
mod lab;
mod load;
mod load_arguments;
mod parallel_arguments;
mod prefetch;
mod progress_line;
mod recover;
mod recover_arguments;
mod replay;
mod replay_arguments;
mod replicate;
mod signals;
mod status;
mod status_socket;
mod verify;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use arguments::{ArchiveCommand, Arguments, Command};
use replicate::Begins;

/// The end of a command that failed.
type Failure = Box<dyn std::error::Error>;

/// A developer who debugs Spate sets this, to have core dumps and to attach a debugger.
const CORE_DUMPS_VARIABLE: &str = "SPATE_CORE_DUMPS";

fn main() -> ExitCode {
    keep_memory_private();
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Replicate(options) => replicate::run(&options, Begins::AtCheckpoint),
        Command::Takeover(options) => replicate::run(&options.replicate, Begins::ByTakeover),
        Command::Handback(options) => handback::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Verify(options) => verify::run(&options),
        Command::Handover(options) => handover::run(&options),
        Command::Promote(options) => failover::promote(&options),
        Command::Follow(options) => failover::follow(&options),
        Command::Watch(options) => failover::watch(&options),
        Command::Prefetch(options) => prefetch::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Analyze(options) => analyze::run(&options),
        Command::Backup { command } => recover::backup(&command),
        Command::Restore(options) => recover::restore(&options),
        Command::Archive { command: ArchiveCommand::Fetch(options) } => archive::fetch(&options),
        Command::Archive { command: ArchiveCommand::FoldStats(options) } => fold_stats::fold_stats(&options),
        Command::Archive { command: ArchiveCommand::List(options) } => archive_files::list(&options),
        Command::Archive { command: ArchiveCommand::Purge(options) } => archive_files::purge(&options),
        Command::Lab { arguments } => lab::run(&arguments),
    };
    done.unwrap_or_else(|failure| {
        say(&format!("spate: {}", describe(failure.as_ref())));
        ExitCode::FAILURE
    })
}

/// Passwords are in memory from the beginning, with the environment, and would be in every core dump. (The laboratory is not concerned: a
/// new program begins as the system likes it.)
fn keep_memory_private() {
    if std::env::var(CORE_DUMPS_VARIABLE).is_ok_and(|value| value == "yes") {
        return;
    }
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        say(&format!("spate: warning: a core dump would hold passwords, and cannot be forbidden: {error}"));
    }
}

/// The error and its causes, each said once.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            let _always_fits = write!(text, ": {message}");
        }
        cause = error.source();
    }
    text
}

/// A line for people, on standard error. Nobody there to read it is no reason to fail.
fn say(line: &str) {
    let _unheard = writeln!(std::io::stderr(), "{}", harmless(line));
}

/// A line of the result, on standard output.
///
/// # Errors
/// The reader is gone.
fn print(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{}", harmless(text))
}

/// A text without characters that control a terminal, such as a source's users may put into names.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    match text.contains(is_harmful) {
        true => text.replace(is_harmful, "\u{fffd}").into(),
        false => text.into(),
    }
}
