//! Output for people: progress on standard error while a command runs, results on standard output.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Result, home};

/// Shows progress. Without a terminal each step is one line, for logs.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    is_terminal: bool,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { is_terminal: io::stderr().is_terminal() }
    }
}

impl Screen {
    /// Shows a step of unknown duration.
    pub fn spinner(&self, what: &str) -> ProgressBar {
        let bar = self.announce(what, ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {msg} · {elapsed}"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    /// Shows a step that takes a known number of seconds.
    pub fn seconds_bar(&self, what: &str, seconds: u64) -> ProgressBar {
        let bar = self.announce(what, ProgressBar::new(seconds));
        bar.set_style(style("  {msg} {wide_bar} {pos} of {len} s"));
        bar.set_message(what.to_owned());
        bar
    }

    /// Shows a step that counts up to a known number.
    pub fn count_bar(&self, what: &str, length: u64) -> ProgressBar {
        let bar = self.announce(what, ProgressBar::new(length));
        bar.set_style(style("  {msg} {wide_bar} {human_pos} of {human_len} · {elapsed}"));
        bar.set_message(what.to_owned());
        bar
    }

    /// Says how much disk is needed, about, and refuses if it is not there.
    ///
    /// # Errors
    /// [`crate::Error::DiskTooSmall`], [`crate::Error::File`].
    pub fn claim_disk(&self, directory: &Path, bytes: u64) -> Result<()> {
        self.note(&format!("about {} of disk are needed", megabytes(bytes)));
        home::need_disk(directory, bytes)
    }

    /// Prints a permanent line above the progress.
    pub fn note(&self, line: &str) {
        let _ = writeln!(io::stderr(), "{}", harmless(line));
    }

    fn announce(&self, what: &str, bar: ProgressBar) -> ProgressBar {
        if self.is_terminal {
            return bar;
        }
        self.note(&format!("· {what}"));
        ProgressBar::hidden()
    }
}

/// Templates are constants of this file, but they are parsed at run time: a broken one shows the plain bar.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Prints a result. A reader that has closed the pipe (`| head`) is no error.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", harmless(text)).and_then(|()| out.flush());
}

/// A text without what a terminal would obey: names come from servers and files of others.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if text.contains(is_harmful) { text.replace(is_harmful, "\u{fffd}").into() } else { text.into() }
}

/// A table whose columns after the first `left_columns` contain numbers.
pub fn table(header: &[&str], left_columns: usize, rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header.to_vec()).add_rows(rows);
    for column in table.column_iter_mut().skip(left_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// `12,345,678`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `505.2 MB`.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn progress_templates_are_valid() {
        for template in ["{spinner} {msg} · {elapsed}", "  {msg} {wide_bar} {pos} of {len} s"] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
