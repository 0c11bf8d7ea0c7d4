//! The CSV file of a replay: a line for each response.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::measure::Response;

/// A line for each response.
pub(crate) struct ResponseLines {
    path: PathBuf,
    writer: csv::Writer<BufWriter<File>>,
}

impl ResponseLines {
    pub(crate) fn create(path: &PathBuf) -> Result<ResponseLines> {
        let file = File::create(path).map_err(|error| Error::file(path, error))?;
        let mut lines = ResponseLines { path: path.clone(), writer: csv::Writer::from_writer(BufWriter::new(file)) };
        lines.record(&[
            "input",
            "session",
            "digest",
            "due_s",
            "start_s",
            "latency_ms",
            "execution_ms",
            "rows",
            "bytes",
            "error",
        ])?;
        Ok(lines)
    }

    pub(crate) fn write(&mut self, response: &Response, input: &str) -> Result<()> {
        let error = response.error.as_ref().map_or(String::new(), |(code, _)| code.to_string());
        self.record(&[
            input,
            &response.session.to_string(),
            &format!("{:016x}", response.digest),
            &format!("{:.6}", response.due),
            &format!("{:.6}", response.began),
            &format!("{:.3}", (response.ended - response.due) * 1e3),
            &format!("{:.3}", (response.ended - response.began) * 1e3),
            &response.rows.to_string(),
            &response.bytes.to_string(),
            &error,
        ])
    }

    fn record(&mut self, fields: &[&str]) -> Result<()> {
        self.writer.write_record(fields).map_err(|error| Error::file(&self.path, std::io::Error::other(error)))
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.writer.flush().map_err(|error| Error::file(&self.path, error))
    }
}
