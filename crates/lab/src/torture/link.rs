//! A Spate of a trial, between two of its servers: starts it, kills it, stops it, and reads its position.

use std::path::Path;

use super::servers::Ground;
use super::settings::Settings;
use crate::sandbox::Sandbox;
use crate::spate_program::{RunningSpate, SpateProgram};
use crate::{Error, Result};

/// One Spate, which is running or not.
pub(super) struct Link {
    program: SpateProgram,
    arguments: Vec<String>,
    running: Option<RunningSpate>,
}

/// The result of a request to stop Spate.
pub(super) enum End {
    /// It was not running.
    Away,
    /// It ended with success.
    Clean,
    /// It had ended before the request.
    Before(Error),
    /// It ended without success.
    Unclean(Error),
}

impl Link {
    /// A Spate from `from` to `to`, with its files in `directory`, which is created.
    pub(super) fn new(
        ground: &Ground,
        settings: &Settings,
        (from, to): (&Sandbox, &Sandbox),
        password: &str,
        directory: &Path,
    ) -> Result<Link> {
        let program = ground.program(from, to, password, directory)?;
        // `--start` matters only until there is a checkpoint.
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

    /// Asks it to stop, and waits until it has ended.
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

    /// The error with which it has ended by itself; `None` if it still runs or was stopped.
    pub(super) fn ended(&mut self) -> Option<Error> {
        let error = self.running.as_mut()?.check_running().err()?;
        self.running = None;
        Some(error)
    }

    /// The position that it has applied; empty if it does not answer.
    pub(super) fn position(&self) -> String {
        self.program.applied_position().unwrap_or_default()
    }

    /// The end of its output.
    pub(super) fn output(&self) -> String {
        self.running.as_ref().map(RunningSpate::output).unwrap_or_default()
    }
}
