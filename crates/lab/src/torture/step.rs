//! The recorded steps of a torture: the statements of all sessions, in the order of their execution.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::settings::{Failure, Settings};
use crate::{Error, Result};

/// A placeholder for the directory of the data files in recorded statements.
pub(super) const FILES: &str = "{FILES}";

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the client session.
    pub session: usize,
    /// The action.
    pub action: Action,
}

/// The action of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A statement.
    Sql(String),
    /// A data file is written, then LOAD DATA is executed.
    Load {
        /// The statement.
        sql: String,
        /// The file's name.
        file: String,
        /// The file's contents.
        content: String,
    },
    /// The session's connection ends, and another begins.
    Reconnect,
    /// A server or Spate is killed or started.
    Failure(Failure),
    /// A statement for both replicas, once these have applied all steps before it.
    OnReplicas(String),
}

impl Step {
    pub(super) fn sql(session: usize, sql: impl Into<String>) -> Step {
        Step { session, action: Action::Sql(sql.into()) }
    }

    /// The statement for people; empty if there is none.
    pub(crate) fn text(&self) -> &str {
        match &self.action {
            Action::OnReplicas(sql) => sql,
            _ => self.statement().unwrap_or_default(),
        }
    }

    pub(super) fn is_failure(&self) -> bool {
        matches!(self.action, Action::Failure(_))
    }

    /// The statement, if the step has one.
    pub(super) fn statement(&self) -> Option<&str> {
        match &self.action {
            Action::Sql(sql) | Action::Load { sql, .. } => Some(sql),
            Action::Reconnect | Action::Failure(_) | Action::OnReplicas(_) => None,
        }
    }
}

/// Steps as people read them: SQL with the session before each.
pub(super) fn as_text(steps: &[Step]) -> String {
    let line = |step: &Step| {
        let session = step.session;
        match &step.action {
            Action::Sql(sql) => format!("/* session {session} */ {sql};\n"),
            Action::Load { sql, file, content } => {
                format!("/* session {session}, {file} holds {content:?} */ {sql};\n")
            }
            Action::Reconnect => format!("/* session {session} */ -- disconnects and connects again\n"),
            Action::Failure(failure) => format!("-- {failure:?}\n"),
            Action::OnReplicas(sql) => format!("/* on both replicas */ {sql};\n"),
        }
    };
    steps.iter().map(line).collect()
}

/// Writes settings and steps, one JSON value a line.
pub(super) fn write(path: &Path, settings: &Settings, steps: &[Step]) -> Result<()> {
    let failed = |source| Error::File { action: "write", path: path.to_owned(), source };
    let state = |source| Error::State { path: path.to_owned(), source };
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    writeln!(file, "{}", serde_json::to_string(settings).map_err(state)?).map_err(failed)?;
    for step in steps {
        writeln!(file, "{}", serde_json::to_string(step).map_err(state)?).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

/// Reads settings and steps that [`write`] has written.
pub(super) fn read(path: &Path) -> Result<(Settings, Vec<Step>)> {
    let failed = |source| Error::File { action: "read", path: path.to_owned(), source };
    let state = |source| Error::State { path: path.to_owned(), source };
    let mut lines = BufReader::new(File::open(path).map_err(failed)?).lines();
    let first = lines.next().transpose().map_err(failed)?.unwrap_or_default();
    let settings = serde_json::from_str(&first).map_err(state)?;
    let mut steps = Vec::new();
    for line in lines {
        steps.push(serde_json::from_str(&line.map_err(failed)?).map_err(state)?);
    }
    Ok((settings, steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::feature::FeatureSet;
    use crate::torture::pair::Pair;
    use crate::torture::settings::Failures;

    #[test]
    fn recorded_steps_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("steps");
        let settings = Settings::draw(3, Pair::default(), None, &FeatureSet::chosen(&[], &[]), true, Failures::All);
        let load = Action::Load { sql: "LOAD DATA …".into(), file: "f1".into(), content: "1\tä\n".into() };
        let steps = [
            Step::sql(0, "SELECT 'a\nb'"),
            Step { session: 1, action: load },
            Step { session: 2, action: Action::Reconnect },
            Step { session: 0, action: Action::Failure(Failure::SourceKilled) },
        ];
        write(&path, &settings, &steps).unwrap();
        assert_eq!(read(&path).unwrap(), (settings, steps.to_vec()));
    }
}
