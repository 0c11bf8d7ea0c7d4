//! The general log, MariaDB's and MySQL's.
//!
//! A line begins with a time and a tab, or with two tabs if MariaDB has written that second before; then the session's number, the
//! command, a tab and its argument. All other lines go on with the statement before. So nothing says where the last statement ends.

use std::collections::HashMap;

use crate::error::Result;
use crate::lines::{Lines, STATEMENT_BYTES_MAX, seconds_of};
use crate::recorded::{Extent, Recorded, Schema, What};

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
                if is_header(&line) || !self.has_begun && line.trim_ascii().is_empty() {
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
            let mut is_followed = false;
            while let Some(next) = self.lines.next()? {
                is_followed = head_of(&next).is_some() || is_header(&next);
                if is_followed {
                    self.lines.put_back(next);
                    break;
                }
                argument.push(b'\n');
                argument.extend_from_slice(&next);
                if argument.len() > STATEMENT_BYTES_MAX {
                    return Err(self.lines.wrong("a statement of more than 1 GiB: the log is cut, or no general log"));
                }
            }
            if !is_followed {
                self.lines.check_end()?;
            }
            if let Some(recorded) = self.commands.step(self.at, session, &command, &argument) {
                let extent = if is_followed { Extent::Whole } else { Extent::Doubtful };
                return Ok(Some(Recorded { extent, ..recorded }));
            }
        }
        Ok(None)
    }
}

/// What the commands of sessions mean.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// The schema that a command has given a session, until its next statement.
    schemas: HashMap<u64, Schema>,
}

impl Commands {
    /// A command as a step; `None` if it is none, or if it shows in a later one.
    pub(crate) fn step(&mut self, at: f64, session: u64, command: &str, argument: &[u8]) -> Option<Recorded> {
        let step = |what| Some(Recorded::new(at, session, None, what));
        match command {
            // Parameters are in the statement that is executed.
            "Query" | "Execute" => {
                let schema = self.schemas.get(&session).cloned();
                let statement = Recorded::statement(at, session, schema, argument)?;
                self.schemas.remove(&session);
                Some(statement)
            }
            "Init DB" => {
                self.schemas.insert(session, Schema::of(String::from_utf8_lossy(argument)));
                None
            }
            "Connect" | "Change user" => {
                if let Some(schema) = schema_of_login(&String::from_utf8_lossy(argument)) {
                    self.schemas.insert(session, schema);
                }
                step(What::Reset)
            }
            "Reset connection" => step(What::Reset),
            "Quit" => {
                self.schemas.remove(&session);
                step(What::End)
            }
            _ => None,
        }
    }
}

/// The schema of `user@host [as …] on schema [using …]`. `None` if it is no login. Names may hold the words between them: no host does.
fn schema_of_login(text: &str) -> Option<Schema> {
    let text = match text.rsplit_once(" using ") {
        // The kind of connection is one or two words.
        Some((login, kind)) if kind.split(' ').count() <= 2 && !kind.contains(['@', '`']) => login,
        _ => text,
    };
    let behind_host = text.match_indices(" on").filter_map(|(at, on)| {
        let (before, behind) = (&text[..at], &text[at + on.len()..]);
        let host = before.rsplit_once('@').map(|(_, host)| host)?;
        let is_end = behind.is_empty() || behind.starts_with(' ');
        (is_end && !host.contains(' ')).then(|| behind.strip_prefix(' ').unwrap_or(behind))
    });
    let schemas: Vec<&str> = behind_host.collect();
    match schemas[..] {
        [] => None,
        [schema] => Some(Schema::of(schema)),
        _ => Some(Schema::Unknown),
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
        || (text.starts_with("Tcp port: ") && text.contains("Unix socket: "))
        || text.split_whitespace().eq(["Time", "Id", "Command", "Argument"])
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
        let halt = crate::halt::Halt::new(&std::sync::Arc::default());
        GeneralLog::new(Lines::new(crate::source::Source::open(&path, &halt).unwrap())).collect()
    }

    #[test]
    fn both_vendors_logs_are_read() {
        let of_mariadb = "/usr/sbin/mariadbd, Version: 10.11.19 started with:\nTcp port: 0  Unix socket: s\nTime\t\t    Id Command\tArgument\n\
            261126 11:26:53\t     5 Connect\troot@localhost on shop using Socket\n\t\t     5 Query\tselect 1,\n  2\n\
            261126 11:26:55\t     6 Execute\tselect 'a\tb'\n\t\t     5 Quit\t\n";
        let steps: Vec<Recorded> = steps(of_mariadb).into_iter().map(Result::unwrap).collect();
        assert_eq!(steps.len(), 4, "{steps:?}");
        assert_eq!((steps[0].session, &steps[0].what), (5, &What::Reset));
        assert_eq!(steps[1].what, What::Statement(b"select 1,\n  2".to_vec()));
        assert_eq!((steps[1].session, &steps[1].schema), (5, &Some(Schema::of("shop"))));
        assert_eq!(steps[2].what, What::Statement(b"select 'a\tb'".to_vec()));
        assert_eq!(steps[2].at - steps[1].at, 2.0);
        assert_eq!((steps[3].session, &steps[3].what), (5, &What::End));
    }

    #[test]
    fn mysql_writes_each_time() {
        let of_mysql = "2026-11-26T11:26:53.100000Z\t    8 Query\tselect 1\n2026-11-26T12:26:53.350000+01:00\t    8 Init DB\tx\n\
            2026-11-26T11:26:53.500000Z\t    8 Query\tselect 2;\n";
        let steps: Vec<Recorded> = steps(of_mysql).into_iter().map(Result::unwrap).collect();
        assert_eq!(steps.len(), 2);
        assert!((steps[1].at - steps[0].at - 0.4).abs() < 1e-6);
        assert_eq!(steps[1].schema, Some(Schema::of("x")));
        assert_eq!(steps[1].what, What::Statement(b"select 2".to_vec()));
    }

    #[test]
    fn logins_tell_their_schema() {
        for (text, schema) in [
            ("root@localhost on a using Socket", Some(Schema::of("a"))),
            ("root@localhost on a using SSL/TLS", Some(Schema::of("a"))),
            ("root@localhost on  using TCP/IP", Some(Schema::Absent)),
            ("root@localhost on", Some(Schema::Absent)),
            ("root@localhost on b", Some(Schema::of("b"))),
            ("root@localhost as root@% on my db using Socket", Some(Schema::of("my db"))),
            ("job on call@localhost on a using Socket", Some(Schema::of("a"))),
            ("a@b on c@localhost on d", Some(Schema::Unknown)),
            ("Access denied for user 'x'@'localhost' (using password: YES)", None),
        ] {
            assert_eq!(schema_of_login(text), schema, "{text}");
        }
    }

    #[test]
    fn a_login_and_a_reset_begin_a_session_again() {
        let mut commands = Commands::default();
        let mut step = |command: &str, argument: &str| commands.step(0.0, 1, command, argument.as_bytes());
        assert_eq!(step("Connect", "root@localhost on a using Socket").unwrap().what, What::Reset);
        assert_eq!(step("Query", "SELECT 1").unwrap().schema, Some(Schema::of("a")));
        assert_eq!(step("Query", "SELECT 1").unwrap().schema, None, "it is as before");
        assert_eq!(step("Change user", "root@localhost on ").unwrap().what, What::Reset);
        assert_eq!(step("Query", "SELECT 1").unwrap().schema, Some(Schema::Absent));
        assert_eq!(step("Reset connection", "").unwrap().what, What::Reset);
        assert_eq!(step("Query", "SELECT 1").unwrap().schema, None);
    }

    #[test]
    fn lines_of_statements_are_no_headers() {
        let log = "2026-11-26T11:26:53.100000Z\t    8 Query\tSELECT 'x\nTime flies, an Argument\nTcp port: 1\n', 2\n";
        let steps: Vec<Recorded> = steps(log).into_iter().map(Result::unwrap).collect();
        let text = b"SELECT 'x\nTime flies, an Argument\nTcp port: 1\n', 2".to_vec();
        assert_eq!(steps[0].what, What::Statement(text));
    }

    #[test]
    fn what_is_no_general_log_is_told() {
        let error = steps("hello\nworld\n")[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("general.log, line 1: this line belongs to no statement"), "{error}");
        assert!(steps("").is_empty() && steps("\n").is_empty());
    }

    #[test]
    fn a_log_that_is_cut_is_told() {
        let entry = "2026-11-26T11:26:53.100000Z\t    8 Query\t";
        let told = |text: &str| {
            steps(text).into_iter().map(|step| step.map_err(|error| error.to_string())).collect::<Vec<_>>()
        };
        // At its beginning.
        let cut = told(&format!("   WHERE id = 1\n{entry}SELECT 1\n"));
        assert!(
            cut[0].as_ref().is_err_and(|error| error.contains("line 1: this line belongs to no statement")),
            "{cut:?}"
        );
        // Within the last line, and within the line of a command.
        let cut = told(&format!("{entry}SELECT 1\n{entry}DELETE FROM t\n WHERE id = 1 AND"));
        assert!(cut[1].as_ref().is_err_and(|error| error.contains("line 3: the log ends within this line")), "{cut:?}");
        let cut = told(&format!("{entry}SELECT 1\n2026-11-26T11:26:53.100000Z\t    8 Qu"));
        assert!(cut[0].as_ref().is_err_and(|error| error.contains("line 2: the log ends within this line")), "{cut:?}");
        // Between two lines of a statement: nobody can tell.
        let doubtful = told(&format!("{entry}SELECT 1\n{entry}DELETE FROM t\n"));
        let extents: Vec<Extent> = doubtful.iter().map(|step| step.as_ref().unwrap().extent).collect();
        assert_eq!(extents, [Extent::Whole, Extent::Doubtful]);
        let known = told(&format!("{entry}DELETE FROM t\n2026-11-26T11:26:53.100000Z\t    8 Quit\t\n"));
        assert_eq!(known[0].as_ref().unwrap().extent, Extent::Whole);
    }
}
