//! A Spate of a trial, between two of its servers: started, killed, asked to stop, and looked at.

use std::path::Path;

use super::servers::Ground;
use super::settings::Settings;
use crate::home::create_private_directory;
use crate::sandbox::Sandbox;
use crate::spate_program::{RunningSpate, SpateProgram};
use crate::{Error, Result};

/// One Spate, which is running or not.
pub(super) struct Link {
    program: SpateProgram,
    arguments: Vec<String>,
    running: Option<RunningSpate>,
}

/// How a Spate that was asked to stop has ended.
pub(super) enum End {
    /// It was not running.
    Away,
    /// With success.
    Clean,
    /// It had ended before it was asked.
    Before(Error),
    /// Not with success.
    Unclean(Error),
}

impl Link {
    /// From `from` to `to`; its files go to `directory`, which is made.
    pub(super) fn new(
        ground: &Ground,
        settings: &Settings,
        (from, to): (&Sandbox, &Sandbox),
        password: &str,
        directory: &Path,
    ) -> Result<Link> {
        create_private_directory(directory)?;
        let mut program = SpateProgram::new(from, password, to, directory)?;
        if let Some(path) = &ground.spate {
            program = program.with_path(path.clone());
        }
        // The start counts until there is a checkpoint.
        let mut arguments = settings.spate_arguments.clone();
        arguments.extend(["--start".to_owned(), "earliest".to_owned()]);
        Ok(Link { program, arguments, running: None })
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts it, unless it is running.
    pub(super) fn start(&mut self) -> Result<()> {
        if self.running.is_none() {
            self.running = Some(self.program.replicate(None, None, &self.arguments)?);
        }
        Ok(())
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        // Dropping it kills it.
        self.running = None;
    }

    /// Asks it to stop, and waits for that.
    pub(super) fn stop(&mut self) -> End {
        let Some(mut spate) = self.running.take() else { return End::Away };
        if let Err(error) = spate.check_running() {
            return End::Before(error);
        }
        match spate.stop() {
            Ok(_) => End::Clean,
            Err(error) => End::Unclean(error),
        }
    }

    /// Why it has ended, if it has although nobody stopped it. It is no longer running then.
    pub(super) fn ended(&mut self) -> Option<Error> {
        let error = self.running.as_mut()?.check_running().err()?;
        self.running = None;
        Some(error)
    }

    /// The position that it has applied; empty if nobody answers.
    pub(super) fn position(&self) -> String {
        self.program.applied_position().unwrap_or_default()
    }

    /// The end of what it has printed.
    pub(super) fn output(&self) -> String {
        self.running.as_ref().map(RunningSpate::output).unwrap_or_default()
    }
}
