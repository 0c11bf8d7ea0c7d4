//! Lines of a log, with their numbers. A log may be larger than memory; a line, and a statement of many lines, may not.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::source::Source;

/// No client sends more than max_allowed_packet's maximum; what is longer is no log of statements.
pub(crate) const STATEMENT_BYTES_MAX: usize = 1 << 30;
/// No record is longer, in seconds: some ten thousand years.
const SECONDS_MAX: f64 = 1e12;

/// The lines of a file.
pub(crate) struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    number: u64,
    /// A line that was looked at and not taken.
    pending: Option<Vec<u8>>,
    /// The last line had no end.
    is_cut: bool,
}

impl Lines {
    pub(crate) fn new(source: Source) -> Lines {
        Lines { path: source.path, reader: source.reader, number: 0, pending: None, is_cut: false }
    }

    /// The next line, without its end; `None` behind the last.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Log`] if it is too long.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.number += 1;
        if let Some(line) = self.pending.take() {
            return Ok(Some(line));
        }
        let mut line = Vec::new();
        let mut limited = Read::by_ref(&mut self.reader).take(STATEMENT_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut line).map_err(|error| Error::file(&self.path, error))?;
        if read == 0 {
            self.number -= 1;
            return Ok(None);
        }
        if read == STATEMENT_BYTES_MAX {
            return Err(self.wrong("this line has more than 1 GiB: it is no log of statements"));
        }
        self.is_cut = line.pop_if(|last| *last == b'\n').is_none();
        Ok(Some(line))
    }

    /// The error of a log whose last line, which was returned, has no end: servers end every line.
    ///
    /// # Errors
    /// [`Error::Log`] then.
    pub(crate) fn check_end(&self) -> Result<()> {
        match self.is_cut {
            true => Err(self.wrong("the log ends within this line: it is cut, and what stands there is not executed")),
            false => Ok(()),
        }
    }

    /// Lets [`Lines::next`] return this line again.
    pub(crate) fn put_back(&mut self, line: Vec<u8>) {
        self.number -= 1;
        self.pending = Some(line);
    }

    pub(crate) fn wrong(&self, why: impl Into<String>) -> Error {
        Error::Log { path: self.path.clone(), line: self.number, why: why.into() }
    }
}

/// A number of seconds; `None` if it is no number, or no time.
pub(crate) fn number_of_seconds(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|seconds| seconds.abs() <= SECONDS_MAX)
}

/// Seconds of a time as logs write it: `2026-11-26T11:26:53.123456Z`, with or without an offset, or `261126 11:26:53`.
pub(crate) fn seconds_of(text: &str) -> Option<f64> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_second() as f64 + f64::from(time.subsec_nanosecond()) / 1e9);
    }
    // Local times: only their differences matter.
    let compact = || {
        let (date, clock) = text.trim().split_once(' ')?;
        let clock = clock.trim();
        let clock = if clock.len() == 7 { format!("0{clock}") } else { clock.to_owned() };
        jiff::civil::DateTime::strptime("%y%m%d %H:%M:%S", format!("{date} {clock}")).ok()
    };
    let time = compact().or_else(|| text.trim().parse::<jiff::civil::DateTime>().ok())?;
    let since = time.duration_since(jiff::civil::DateTime::constant(2000, 1, 1, 0, 0, 0, 0));
    Some(since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_none() {
        assert_eq!(number_of_seconds(" -1.5 "), Some(-1.5));
        for text in ["inf", "-inf", "nan", "1e300", "1.8e19", "-1e13", "", "soon"] {
            assert_eq!(number_of_seconds(text), None, "{text}");
        }
    }
}
