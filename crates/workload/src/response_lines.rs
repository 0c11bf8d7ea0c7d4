//! The CSV file of a replay: a line for each response.

use std::io::BufWriter;

use crate::error::{Error, Result};
use crate::measure::Response;
use crate::output::Output;

/// A line for each response.
pub(crate) struct ResponseLines {
    writer: csv::Writer<BufWriter<Output>>,
}

impl ResponseLines {
    pub(crate) fn new(output: Output) -> Result<ResponseLines> {
        let mut lines = ResponseLines { writer: csv::Writer::from_writer(BufWriter::new(output)) };
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
            "affected_rows",
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
            &response.affected_rows.to_string(),
            &error,
        ])
    }

    fn record(&mut self, fields: &[&str]) -> Result<()> {
        self.writer.write_record(fields).map_err(|error| self.error(std::io::Error::other(error)))
    }

    fn error(&self, error: std::io::Error) -> Error {
        Error::file(self.writer.get_ref().get_ref().path(), error)
    }

    /// The file has its name from here on.
    pub(crate) fn end(self) -> Result<()> {
        let unwritten = |error: csv::IntoInnerError<_>| std::io::Error::new(error.error().kind(), error.to_string());
        let path = self.writer.get_ref().get_ref().path().to_owned();
        let buffer = self.writer.into_inner().map_err(unwritten).map_err(|error| Error::file(&path, error))?;
        let output = buffer.into_inner().map_err(|error| Error::file(&path, error.into_error()))?;
        output.finish()
    }
}
