//! The general log, MariaDB's and MySQL's.
//!
//! A line begins with a time and a tab, or with two tabs if MariaDB has written that second before; then the session's number, the
//! command, a tab and its argument. All other lines go on with the statement before.

use std::collections::HashMap;

use crate::error::Result;
use crate::lines::{Lines, STATEMENT_BYTES_MAX, seconds_of};
use crate::recorded::{Recorded, What};

/// The steps of a general log.
pub(crate) struct GeneralLog {
    lines: Lines,
    at: f64,
    has_begun: bool,
    commands: Commands,
}

/// The beginning of an entry.
#[derive(Debug, PartialEq)]
struct Head<'a> {
    at: Option<f64>,
    session: u64,
    command: &'a str,
    argument: &'a [u8],
}

impl GeneralLog {
    pub(crate) fn new(lines: Lines) -> GeneralLog {
        GeneralLog { lines, at: 0.0, has_begun: false, commands: Commands::default() }
    }

    fn step(&mut self) -> Result<Option<Recorded>> {
        while let Some(line) = self.lines.next()? {
            let Some(head) = head_of(&line) else {
                // The server writes a few lines whenever it opens the log.
                if !self.has_begun || is_header(&line) {
                    continue;
                }
                return Err(self.lines.wrong("this line belongs to no statement: the log is cut, or no general log"));
            };
            self.has_begun = true;
            if let Some(at) = head.at {
                self.at = at;
            }
            let (session, command) = (head.session, head.command.to_owned());
            let mut argument = head.argument.to_vec();
            while let Some(next) = self.lines.next()? {
                if head_of(&next).is_some() || is_header(&next) {
                    self.lines.put_back(next);
                    break;
                }
                argument.push(b'\n');
                argument.extend_from_slice(&next);
                if argument.len() > STATEMENT_BYTES_MAX {
                    return Err(self.lines.wrong("a statement of more than 1 GiB: the log is cut, or no general log"));
                }
            }
            if let Some(recorded) = self.commands.step(self.at, session, &command, &argument) {
                return Ok(Some(recorded));
            }
        }
        Ok(None)
    }
}

/// What the commands of sessions mean.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// The schema that each session has chosen, until its next statement.
    schemas: HashMap<u64, String>,
}

impl Commands {
    /// A command as a step; `None` if it is none, or if it shows in a later one.
    pub(crate) fn step(&mut self, at: f64, session: u64, command: &str, argument: &[u8]) -> Option<Recorded> {
        match command {
            // Parameters are in the statement that is executed.
            "Query" | "Execute" => Recorded::statement(at, session, self.schemas.remove(&session), argument),
            "Init DB" => {
                self.schemas.insert(session, String::from_utf8_lossy(argument).into_owned());
                None
            }
            "Connect" => {
                // user@host on schema [as …] [using …]
                let text = String::from_utf8_lossy(argument).into_owned();
                let schema = text.split_once(" on ").map(|(_, rest)| rest.split(' ').next().unwrap_or("").to_owned());
                if let Some(schema) = schema.filter(|schema| !schema.is_empty()) {
                    self.schemas.insert(session, schema);
                }
                None
            }
            "Quit" => Some(Recorded { at, session, schema: None, what: What::End }),
            _ => None,
        }
    }
}

impl Iterator for GeneralLog {
    type Item = Result<Recorded>;

    fn next(&mut self) -> Option<Result<Recorded>> {
        self.step().transpose()
    }
}

/// `…, Version: … started with:`, `Tcp port: …` and `Time  Id Command  Argument`.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    (text.contains(", Version: ") && text.ends_with("started with:"))
        || text.starts_with("Tcp port: ")
        || (text.starts_with("Time") && text.ends_with("Argument"))
}

fn head_of(line: &[u8]) -> Option<Head<'_>> {
    const COMMANDS: [&str; 32] = [
        "Query",
        "Execute",
        "Prepare",
        "Connect",
        "Quit",
        "Init DB",
        "Field List",
        "Statistics",
        "Close stmt",
        "Reset stmt",
        "Ping",
        "Change user",
        "Reset connection",
        "Set option",
        "Fetch",
        "Long Data",
        "Binlog Dump",
        "Binlog Dump GTID",
        "Register Slave",
        "Register Replica",
        "Kill",
        "Debug",
        "Refresh",
        "Shutdown",
        "Processlist",
        "Delayed insert",
        "Daemon",
        "Sleep",
        "Error",
        "Create DB",
        "Drop DB",
        "Bulk_execute",
    ];
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let time = std::str::from_utf8(&line[..tab]).ok()?;
    let at = match time.is_empty() {
        true if line.get(1) == Some(&b'\t') => None,
        true => return None,
        false => Some(seconds_of(time)?),
    };
    let rest = line[tab..].trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let session = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = rest[digits..].strip_prefix(b" ")?;
    let end = rest.iter().position(|byte| *byte == b'\t').unwrap_or(rest.len());
    let command = std::str::from_utf8(&rest[..end]).ok()?.trim_end();
    COMMANDS.contains(&command).then(|| Head {
        at,
        session,
        command,
        argument: rest.get(end + 1..).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Result<Recorded>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("general.log");
        std::fs::write(&path, text).unwrap();
        GeneralLog::new(Lines::open(&path).unwrap()).collect()
    }

    #[test]
    fn both_vendors_logs_are_read() {
        let of_mariadb = "/usr/sbin/mariadbd, Version: 10.11.19 started with:\nTcp port: 0  Unix socket: s\nTime\t\t    Id Command\tArgument\n\
            261126 11:26:53\t     5 Connect\troot@localhost on shop using Socket\n\t\t     5 Query\tselect 1,\n  2\n\
            261126 11:26:55\t     6 Execute\tselect 'a\tb'\n\t\t     5 Quit\t\n";
        let steps: Vec<Recorded> = steps(of_mariadb).into_iter().map(Result::unwrap).collect();
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert_eq!(steps[0].what, What::Statement(b"select 1,\n  2".to_vec()));
        assert_eq!((steps[0].session, steps[0].schema.as_deref()), (5, Some("shop")));
        assert_eq!(steps[1].what, What::Statement(b"select 'a\tb'".to_vec()));
        assert_eq!(steps[1].at - steps[0].at, 2.0);
        assert_eq!((steps[2].session, &steps[2].what), (5, &What::End));
    }

    #[test]
    fn mysql_writes_each_time() {
        let of_mysql = "2026-11-26T11:26:53.100000Z\t    8 Query\tselect 1\n2026-11-26T12:26:53.350000+01:00\t    8 Init DB\tx\n\
            2026-11-26T11:26:53.500000Z\t    8 Query\tselect 2;\n";
        let steps: Vec<Recorded> = steps(of_mysql).into_iter().map(Result::unwrap).collect();
        assert_eq!(steps.len(), 2);
        assert!((steps[1].at - steps[0].at - 0.4).abs() < 1e-6);
        assert_eq!(steps[1].schema.as_deref(), Some("x"));
        assert_eq!(steps[1].what, What::Statement(b"select 2".to_vec()));
    }

    #[test]
    fn what_is_no_general_log_is_told() {
        assert!(steps("hello\nworld\n").is_empty());
        assert!(steps("").is_empty());
    }
}
