//! Results of commands: a text for people, JSON for programs, and where each goes.

use std::io::{self, Write};
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
    let text = json_of(result)? + "\n";
    if !is_standard_output(path) {
        return home::write_whole(path, text.as_bytes());
    }
    write_to(io::stdout().lock(), &text)
}

/// Prints a list for programs. A reader that has closed the pipe is no error.
///
/// # Errors
/// [`Error::State`]: it cannot be written as JSON.
pub fn print_json<T: Serialize>(result: &T) -> Result<()> {
    screen::print(&json_of(result)?);
    Ok(())
}

/// What measured for hours must know whether its result has gone anywhere.
fn write_to(mut out: impl Write, text: &str) -> Result<()> {
    let written = out.write_all(screen::harmless(text).as_bytes()).and_then(|()| out.flush());
    written.map_err(Error::file("write", Path::new("standard output")))
}

fn json_of<T: Serialize>(result: &T) -> Result<String> {
    serde_json::to_string_pretty(result).map_err(|source| Error::State { path: "the result".into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_goes_nowhere_is_an_error() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let message = write_to(full, "{}").unwrap_err().to_string();
        assert!(message.contains("standard output"), "{message}");
    }
}
