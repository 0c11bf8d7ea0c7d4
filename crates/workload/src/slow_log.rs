//! The slow log, MariaDB's and MySQL's: lines with a `#`, then the statement.

use std::collections::HashMap;

use crate::error::Result;
use crate::lines::{Lines, STATEMENT_BYTES_MAX, seconds_of};
use crate::recorded::{Recorded, What};

/// The steps of a slow log. They are in the order in which statements ended.
pub(crate) struct SlowLog {
    lines: Lines,
    has_begun: bool,
    /// MariaDB writes the time only when the second is another.
    at: f64,
    /// Of sessions whose schema is known.
    schemas: HashMap<u64, String>,
}

/// What the lines before a statement say.
#[derive(Debug, Default)]
struct Head {
    /// When it ended, by the line `# Time`.
    ended: Option<f64>,
    took: f64,
    session: u64,
    schema: Option<String>,
}

impl SlowLog {
    pub(crate) fn new(lines: Lines) -> SlowLog {
        SlowLog { lines, has_begun: false, at: 0.0, schemas: HashMap::new() }
    }

    fn step(&mut self) -> Result<Option<Recorded>> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            let mut text: Vec<u8> = Vec::new();
            let mut began = None;
            while let Some(line) = self.lines.next()? {
                if text.is_empty() && line.starts_with(b"# administrator command: ") {
                    text = line;
                    continue;
                }
                if is_mark(&line) || crate::general_log::is_header(&line) {
                    self.lines.put_back(line);
                    break;
                }
                let words = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
                if text.is_empty() && words.starts_with("use ") && words.ends_with(';') {
                    let name = words[4..words.len() - 1].trim().trim_matches('`').replace("``", "`");
                    self.schemas.insert(head.session, name);
                    continue;
                }
                if text.is_empty() && words.starts_with("SET timestamp=") {
                    began = words[14..].trim_end_matches(';').parse::<f64>().ok();
                    continue;
                }
                if !text.is_empty() {
                    text.push(b'\n');
                }
                text.extend_from_slice(&line);
                if text.len() > STATEMENT_BYTES_MAX {
                    return Err(self.lines.wrong("a statement of more than 1 GiB: the log is cut, or no slow log"));
                }
            }
            if text.starts_with(b"# administrator command: Quit") {
                return Ok(Some(Recorded { at: self.at, session: head.session, schema: None, what: What::End }));
            }
            if text.starts_with(b"# administrator command") {
                continue;
            }
            // Fractions are in the time of the end only; MariaDB's has none.
            self.at = match (head.ended, began) {
                (Some(ended), _) => ended - head.took,
                (None, Some(began)) => began,
                (None, None) => self.at,
            };
            let schema =
                head.schema.filter(|schema| !schema.is_empty()).or_else(|| self.schemas.get(&head.session).cloned());
            if let Some(recorded) = Recorded::statement(self.at, head.session, schema, &text) {
                return Ok(Some(recorded));
            }
        }
    }

    /// Reads the lines before a statement; `None` at the end.
    fn head(&mut self) -> Result<Option<Head>> {
        let mut head = Head::default();
        let mut has_marks = false;
        while let Some(line) = self.lines.next()? {
            if line.starts_with(b"# administrator command: ") && has_marks {
                self.lines.put_back(line);
                return Ok(Some(head));
            }
            if !is_mark(&line) {
                if has_marks {
                    self.lines.put_back(line);
                    return Ok(Some(head));
                }
                if self.has_begun && !crate::general_log::is_header(&line) && !line.is_empty() {
                    return Err(self.lines.wrong("this line belongs to no statement: the log is cut, or no slow log"));
                }
                continue;
            }
            self.has_begun = true;
            has_marks = true;
            let text = String::from_utf8_lossy(&line);
            if let Some(time) = text.strip_prefix("# Time: ") {
                // MySQL's times have fractions; of MariaDB's, the second is that of SET timestamp.
                head.ended = if time.contains('T') { seconds_of(time.trim()) } else { None };
            }
            let word = |name: &str| {
                let (_, rest) = text.split_once(name)?;
                rest.split_whitespace().next().map(str::to_owned)
            };
            let number = |name: &str| word(name).and_then(|word| word.parse::<f64>().ok());
            if let Some(took) = number("Query_time:") {
                head.took = took;
            }
            if let Some(session) = number("Thread_id:").or_else(|| number("  Id:")) {
                head.session = session as u64;
            }
            if text.contains("Schema:") {
                head.schema = word("Schema:").filter(|name| !name.ends_with(':'));
            }
        }
        Ok(None)
    }
}

impl Iterator for SlowLog {
    type Item = Result<Recorded>;

    fn next(&mut self) -> Option<Result<Recorded>> {
        self.step().transpose()
    }
}

/// A line that the server has written about a statement, rather than a comment of the statement's.
fn is_mark(line: &[u8]) -> bool {
    [
        &b"# Time: "[..],
        b"# User@Host: ",
        b"# Thread_id: ",
        b"# Query_time: ",
        b"# Rows_affected: ",
        b"# Full_scan: ",
        b"# Filesort: ",
        b"# Tmp_tables: ",
        b"# Pages_accessed: ",
        b"# Bytes_sent: ",
        b"# explain: ",
        b"# Stored_routine: ",
        b"# Priority_queue: ",
        b"# administrator command: ",
    ]
    .iter()
    .any(|mark| line.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Recorded> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slow.log");
        std::fs::write(&path, text).unwrap();
        SlowLog::new(Lines::open(&path).unwrap()).map(Result::unwrap).collect()
    }

    #[test]
    fn mariadbs_log_is_read() {
        let steps = steps(
            "/usr/sbin/mariadbd, Version: 10.11.19 started with:\nTcp port: 0  Unix socket: s\nTime\t\t    Id Command\tArgument\n\
             # Time: 261126 11:26:53\n# User@Host: root[root] @ localhost []\n# Thread_id: 5  Schema: shop  QC_hit: No\n\
             # Query_time: 0.000123  Lock_time: 0.000012  Rows_sent: 1  Rows_examined: 0\n# Rows_affected: 0  Bytes_sent: 64\n\
             use shop;\nSET timestamp=1795692413;\nselect 1,\n# a comment\n2;\n\
             # User@Host: root[root] @ localhost []\n# Thread_id: 6  Schema:   QC_hit: No\n\
             # Query_time: 0.1  Lock_time: 0.0  Rows_sent: 1  Rows_examined: 0\nSET timestamp=1795692415;\nselect 2;\n\
             # User@Host: root[root] @ localhost []\n# Thread_id: 5  Schema: shop  QC_hit: No\n\
             # Query_time: 0.1  Lock_time: 0.0  Rows_sent: 1  Rows_examined: 0\nSET timestamp=1795692415;\n# administrator command: Quit;\n",
        );
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert_eq!(steps[0].what, What::Statement(b"select 1,\n# a comment\n2".to_vec()));
        assert_eq!((steps[0].session, steps[0].schema.as_deref()), (5, Some("shop")));
        assert_eq!((steps[1].session, steps[1].schema.as_deref()), (6, None));
        assert_eq!(steps[1].at - steps[0].at, 2.0);
        assert_eq!(steps[2].what, What::End);
    }

    #[test]
    fn mysqls_times_are_those_of_the_end() {
        let steps = steps(
            "# Time: 2026-11-26T11:26:53.500000Z\n# User@Host: root[root] @ localhost []  Id:     8\n\
             # Query_time: 0.250000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\nSET timestamp=1795692413;\nselect sleep(0.25);\n\
             # Time: 2026-11-26T11:26:53.600000Z\n# User@Host: root[root] @ localhost []  Id:     9\n\
             # Query_time: 0.100000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\nSET timestamp=1795692413;\nselect 2;\n",
        );
        assert_eq!(steps.len(), 2);
        assert!((steps[1].at - steps[0].at - 0.25).abs() < 1e-6, "{steps:?}");
        assert_eq!((steps[0].session, steps[1].session), (8, 9));
    }
}
