//! Results of commands: a text for people, JSON for programs, and where each goes.

use std::path::Path;

use serde::Serialize;

use crate::screen::{self, Screen};
use crate::{Error, Result, home};

/// The path that means standard output.
const STANDARD_OUTPUT: &str = "-";

/// Shows a result to people, and writes it for programs if that is wanted.
///
/// # Errors
/// Those of [`write_json`].
pub fn show<T: Serialize>(text: &str, result: &T, json: Option<&Path>) -> Result<()> {
    tell(text, json);
    json.map_or(Ok(()), |path| write_json(result, path))
}

/// Prints a text for people. If programs read standard output, people read standard error.
pub fn tell(text: &str, json: Option<&Path>) {
    match json {
        Some(path) if is_standard_output(path) => Screen::default().note(text),
        _ => screen::print(text),
    }
}

/// True for `-`.
pub fn is_standard_output(path: &Path) -> bool {
    path == Path::new(STANDARD_OUTPUT)
}

/// Writes a result to a file, or to standard output for `-`.
///
/// # Errors
/// [`Error::File`].
pub fn write_json<T: Serialize>(result: &T, path: &Path) -> Result<()> {
    if is_standard_output(path) {
        return print_json(result);
    }
    home::write_whole(path, (json_of(result)? + "\n").as_bytes())
}

/// Prints a result for programs.
///
/// # Errors
/// [`Error::State`]: it cannot be written as JSON.
pub fn print_json<T: Serialize>(result: &T) -> Result<()> {
    screen::print(&json_of(result)?);
    Ok(())
}

fn json_of<T: Serialize>(result: &T) -> Result<String> {
    serde_json::to_string_pretty(result).map_err(|source| Error::State { path: "the result".into(), source })
}
