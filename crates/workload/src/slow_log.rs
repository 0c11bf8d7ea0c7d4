//! The slow log, MariaDB's and MySQL's: lines with a `#`, then the statement.

use crate::error::Result;
use crate::lines::{Lines, STATEMENT_BYTES_MAX, number_of_seconds, seconds_of};
use crate::recorded::{Recorded, Schema, What};

/// The steps of a slow log. They are in the order in which statements ended.
pub(crate) struct SlowLog {
    lines: Lines,
    /// MariaDB writes the time only when the second is another.
    at: f64,
    /// The log's last `use`: it has one wherever the schema is another than that of the statement before, whatever its session.
    used: Option<Schema>,
}

/// What the lines before a statement say.
#[derive(Debug, Default)]
struct Head {
    /// When it ended, by the line `# Time`.
    ended: Option<f64>,
    took: f64,
    session: u64,
    /// By MariaDB.
    schema: Option<Schema>,
}

impl SlowLog {
    pub(crate) fn new(lines: Lines) -> SlowLog {
        SlowLog { lines, at: 0.0, used: None }
    }

    fn step(&mut self) -> Result<Option<Recorded>> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            let mut text: Vec<u8> = Vec::new();
            let (mut began, mut is_followed) = (None, false);
            while let Some(line) = self.lines.next()? {
                if text.is_empty() && line.starts_with(b"# administrator command: ") {
                    text = line;
                    continue;
                }
                is_followed = is_mark(&line) || crate::general_log::is_header(&line);
                if is_followed {
                    self.lines.put_back(line);
                    break;
                }
                let words = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
                if text.is_empty() && words.starts_with("use ") && words.ends_with(';') {
                    let name = words[4..words.len() - 1].trim().trim_matches('`').replace("``", "`");
                    self.used = Some(Schema::of(name));
                    continue;
                }
                if text.is_empty() && words.starts_with("SET timestamp=") {
                    let text = words[14..].trim_end_matches(';');
                    began =
                        Some(number_of_seconds(text).ok_or_else(|| self.lines.wrong(format!("{text:?} is no time")))?);
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
            if !is_followed {
                self.lines.check_end()?;
            }
            // The server puts one behind every statement.
            if !text.ends_with(b";") {
                return Err(self.lines.wrong("no ; ends this statement, which is not executed: the log is cut there"));
            }
            if text.starts_with(b"# administrator command: Quit") {
                return Ok(Some(Recorded::new(self.at, head.session, None, What::End)));
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
            let schema = head.schema.or_else(|| self.used.clone());
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
            // MariaDB's, behind an execution plan.
            let is_end_of_plan = has_marks && line == b"#";
            if !is_mark(&line) && !is_end_of_plan {
                if has_marks {
                    self.lines.put_back(line);
                    return Ok(Some(head));
                }
                if !crate::general_log::is_header(&line) && !line.is_empty() {
                    return Err(self.lines.wrong("this line belongs to no statement: the log is cut, or no slow log"));
                }
                continue;
            }
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
            if let Some(took) = word("Query_time:") {
                let seconds = number_of_seconds(&took);
                head.took = seconds.ok_or_else(|| self.lines.wrong(format!("Query_time: {took:?} is no time")))?;
            }
            if let Some(session) = word("Thread_id:").or_else(|| word("  Id:")).and_then(|word| word.parse().ok()) {
                head.session = session;
            }
            if let Some((_, schema)) = text.split_once("  Schema: ") {
                let name = schema.rsplit_once("  QC_hit: ").map_or(schema, |(name, _)| name);
                head.schema = Some(Schema::of(name));
            }
        }
        match has_marks {
            true => Err(self.lines.wrong("no statement follows: the log is cut there")),
            false => Ok(None),
        }
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

    fn read(path: &std::path::Path) -> SlowLog {
        let halt = crate::halt::Halt::new(&std::sync::Arc::default());
        SlowLog::new(Lines::new(crate::source::Source::open(path, &halt).unwrap()))
    }

    #[test]
    fn what_is_no_time_is_told_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slow.log");
        let log = "# User@Host: a[a] @ localhost []\n# Query_time: inf  Lock_time: 0\nselect 1;\n";
        std::fs::write(&path, log).unwrap();
        let error = read(&path).next().unwrap().unwrap_err().to_string();
        assert!(error.ends_with("slow.log, line 2: Query_time: \"inf\" is no time"), "{error}");
    }

    #[test]
    fn a_log_that_is_cut_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slow.log");
        let head = "# User@Host: a[a] @ localhost []\n# Query_time: 0.1  Lock_time: 0\nSET timestamp=1795692413;\n";
        for (text, whole, why) in [
            (format!(" WHERE id = 1;\n{head}SELECT 1;\n"), 0, "line 1: this line belongs to no statement"),
            (format!("{head}SELECT 1;\n{head}DELETE FROM t\n"), 1, "line 8: no ; ends this statement"),
            (format!("{head}DELETE FROM t\n{head}SELECT 1;\n"), 0, "line 4: no ; ends this statement"),
            (format!("{head}SELECT 1;\n{head}DELETE FROM t WHERE a = ';"), 1, "line 8: the log ends within this line"),
            (format!("{head}SELECT 1;\n{head}"), 1, "line 7: no ; ends this statement"),
            (format!("{head}SELECT 1;\n# User@Host: a[a] @ localhost []\n"), 1, "line 5: no statement follows"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let steps: Vec<Result<Recorded>> = read(&path).take(whole + 1).collect();
            assert!(steps[..whole].iter().all(Result::is_ok), "{text}");
            let error = steps[whole].as_ref().unwrap_err().to_string();
            assert!(error.contains(why), "{error}\n{text}");
        }
    }

    #[test]
    fn execution_plans_are_no_statements() {
        let steps = steps(
            "# User@Host: a[a] @ localhost []\n# Query_time: 0.1  Lock_time: 0\n#\n# explain: id\tselect_type\n# explain: 1\tSIMPLE\n#\n\
             SET timestamp=1795692413;\nselect 1;\n",
        );
        assert_eq!(steps[0].what, What::Statement(b"select 1".to_vec()));
    }

    fn steps(text: &str) -> Vec<Recorded> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slow.log");
        std::fs::write(&path, text).unwrap();
        read(&path).map(Result::unwrap).collect()
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
        assert_eq!((steps[0].session, &steps[0].schema), (5, &Some(Schema::of("shop"))));
        assert_eq!((steps[1].session, &steps[1].schema), (6, &Some(Schema::Absent)));
        assert_eq!(steps[1].at - steps[0].at, 2.0);
        assert_eq!(steps[2].what, What::End);
    }

    #[test]
    fn mysqls_times_are_those_of_the_end() {
        let steps = steps(
            "# Time: 2026-11-26T11:26:53.500000Z\n# User@Host: root[root] @ localhost []  Id:     8\n\
             # Query_time: 0.250000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\nuse shop;\nSET timestamp=1795692413;\nselect sleep(0.25);\n\
             # Time: 2026-11-26T11:26:53.600000Z\n# User@Host: root[root] @ localhost []  Id:     9\n\
             # Query_time: 0.100000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\nSET timestamp=1795692413;\nselect 2;\n",
        );
        assert_eq!(steps.len(), 2);
        assert!((steps[1].at - steps[0].at - 0.25).abs() < 1e-6, "{steps:?}");
        assert_eq!((steps[0].session, steps[1].session), (8, 9));
        // The log says a schema only where it is another than before.
        assert_eq!(steps[1].schema, Some(Schema::of("shop")));
    }
}
