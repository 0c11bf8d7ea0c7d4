//! Where a recovery ends.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Serialize;
use spate_archive::{Archive, ArchivedEvent, ReadOptions, Seek};
use spate_binlog::payload::PayloadEvents;
use spate_binlog::{Boundary, EventType, Gtid, GtidPosition, QueryEvent, compressed};
use spate_replica::checkpoint::Checkpoint;
use spate_replica::until::Until;

use crate::error::{Error, Result};

/// Where a recovery ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// With everything that there is.
    Latest,
    /// Before the first transaction that was committed at that time or later, by the source's clock, which tells whole seconds.
    Time(Timestamp),
    /// Once everything of this position is applied.
    Gtid(GtidPosition),
    /// Before this transaction.
    BeforeGtid(Gtid),
    /// Before the first transaction that begins at this place of the source's binlog, or later.
    File {
        /// The source's file.
        file: String,
        /// The offset in it, in bytes.
        position: u64,
    },
    /// Before the one transaction that holds this text in a statement: letters of any case, white space of any length.
    BeforeStatement(String),
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Goal, String> {
        let expected = "expected latest, time:2026-11-26T14:00:00Z, gtid:SET, before-gtid:GTID, file:NAME:OFFSET or before-statement:TEXT";
        if text == "latest" {
            return Ok(Goal::Latest);
        }
        let Some((kind, rest)) = text.split_once(':') else { return Err(format!("{expected}, not '{text}'")) };
        match kind {
            "time" => parse_time(rest).map(Goal::Time),
            "gtid" => rest.parse().map(Goal::Gtid).map_err(|error: spate_binlog::Error| error.to_string()),
            "before-gtid" => rest.parse().map(Goal::BeforeGtid).map_err(|error: spate_binlog::Error| error.to_string()),
            "before-statement" if rest.trim().is_empty() => Err("before-statement: the text is empty".into()),
            "before-statement" => Ok(Goal::BeforeStatement(rest.to_owned())),
            "file" => match rest.rsplit_once(':').map(|(file, position)| (file, position.parse())) {
                Some((file, Ok(position))) if !file.is_empty() => Ok(Goal::File { file: file.to_owned(), position }),
                _ => Err("expected file:NAME:OFFSET".into()),
            },
            _ => Err(format!("{expected}, not '{text}'")),
        }
    }
}

/// With an offset from UTC, or in UTC.
fn parse_time(text: &str) -> std::result::Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let civil: DateTime = text.parse().map_err(|_| {
        format!("'{text}' is no time: expected 2026-11-26T14:00:00Z, 2026-11-26T15:00:00+01:00, or 2026-11-26 14:00:00, which is UTC")
    })?;
    TimeZone::UTC.to_timestamp(civil).map_err(|error| error.to_string())
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::Latest => f.write_str("the end"),
            Goal::Time(time) => write!(f, "{time}"),
            Goal::Gtid(position) => write!(f, "GTID position '{position}'"),
            Goal::BeforeGtid(gtid) => write!(f, "before {gtid}"),
            Goal::File { file, position } => write!(f, "{file}:{position}"),
            Goal::BeforeStatement(text) => write!(f, "before the statement {text:?}"),
        }
    }
}

/// A transaction of the archive, as people look for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// `None`: it has none.
    pub gtid: Option<String>,
    /// The source's file.
    pub file: String,
    /// Where it begins in that.
    pub position: u64,
    /// When it was committed, in seconds since 1970, by the source's clock.
    pub commit_seconds: u64,
    /// Its ordinal in the archive.
    pub seqno: u64,
    /// The beginning of its first statement, as far as the binlog has it.
    pub statement: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gtid = self.gtid.as_deref().unwrap_or("(no GTID)");
        let time = i64::try_from(self.commit_seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        let time = time.map(|time| time.to_string()).unwrap_or_default();
        write!(f, "{gtid} at {}:{}, {time}", self.file, self.position)?;
        match self.statement.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.statement),
        }
    }
}

/// A goal, as a place in the archive.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) until: Until,
    /// The first transaction that is left out. `None`: none is, or nobody has looked.
    pub(crate) excluded: Option<Found>,
    /// What a person should know.
    pub(crate) warnings: Vec<String>,
}

/// How many transactions with the wanted statement a message shows.
const SHOWN_MAX: usize = 10;
/// Of a statement, a person sees so many letters.
const STATEMENT_LETTERS_MAX: usize = 200;

/// Finds the place of a goal behind `begin`.
pub(crate) fn resolve(goal: &Goal, archive: &Archive, begin: &Checkpoint) -> Result<Resolved> {
    let end = archive.tail().received();
    let everything = || Until::File { file: end.source_file.to_string(), position: end.source_position };
    let plain = |until| Resolved { until, excluded: None, warnings: Vec::new() };
    let before = |found: Found| {
        let until = Until::File { file: found.file.clone(), position: found.position };
        Resolved { until, excluded: Some(found), warnings: Vec::new() }
    };
    match goal {
        Goal::Latest => Ok(plain(everything())),
        Goal::Gtid(position) if end.gtid_position.covers_all(position) => Ok(plain(Until::Gtid(position.clone()))),
        Goal::Gtid(position) => Err(Error::Refused(format!(
            "the binlog that is there ends at GTID position '{}', before '{position}'",
            end.gtid_position
        ))),
        Goal::File { file, position } => {
            let until = Until::File { file: file.clone(), position: *position };
            if !until.excludes(&end.source_file, end.source_position) {
                let place = format!("{}:{}", end.source_file, end.source_position);
                return Err(Error::Refused(format!("the binlog that is there ends at {place}, before {goal}")));
            }
            let first = look(archive, begin, |found| until.excludes(&found.file, found.position), 1)?;
            Ok(Resolved { excluded: first.into_iter().next(), ..plain(until) })
        }
        Goal::BeforeGtid(gtid) => {
            let wanted = gtid.to_string();
            let found = look(archive, begin, |found| found.gtid.as_deref() == Some(&wanted), 1)?;
            found
                .into_iter()
                .next()
                .map(before)
                .ok_or_else(|| Error::Refused(format!("the binlog behind the base has no transaction {gtid}")))
        }
        Goal::BeforeStatement(text) => {
            let found = look_for_statement(archive, begin, text)?;
            match found.len() {
                0 => Err(Error::Refused(format!(
                    "no statement in the binlog behind the base holds {text:?}. (Row format has the text of statements only with \
                     binlog_annotate_row_events or binlog_rows_query_log_events)"
                ))),
                1 => Ok(found.into_iter().next().map_or_else(|| plain(everything()), before)),
                count => {
                    let shown: Vec<String> = found.iter().take(SHOWN_MAX).map(Found::to_string).collect();
                    let more = if count > SHOWN_MAX { "\n  …" } else { "" };
                    Err(Error::Refused(format!(
                        "several transactions hold {text:?}; choose one with --until before-gtid or file:\n  {}{more}",
                        shown.join("\n  ")
                    )))
                }
            }
        }
        Goal::Time(time) => {
            let seconds = u64::try_from(time.as_second()).unwrap_or_default();
            // A time within a second excludes that second: the binlog's times have no parts of it.
            before_time(archive, begin, seconds, everything())
        }
    }
}

fn before_time(archive: &Archive, begin: &Checkpoint, seconds: u64, everything: Until) -> Result<Resolved> {
    let mut first: Option<Found> = None;
    let mut earlier = 0u64;
    let mut example = None;
    walk(archive, begin, &mut |found, _| {
        if first.is_none() {
            first = (found.commit_seconds >= seconds).then(|| found.clone());
        } else if found.commit_seconds < seconds {
            earlier += 1;
            example.get_or_insert_with(|| found.clone());
        }
        Ok(true)
    })?;
    let mut warnings = Vec::new();
    if let (Some(first), Some(example)) = (&first, example) {
        warnings.push(format!(
            "the source's clock went back: {earlier} transactions behind {first} have earlier times, the first of them {example}. They are left \
             out; choose another end with --until gtid or file if that is not meant"
        ));
    }
    let until = match &first {
        Some(found) => Until::File { file: found.file.clone(), position: found.position },
        None => everything,
    };
    Ok(Resolved { until, excluded: first, warnings })
}

/// The first transaction of the archive that a position, as text, does not cover.
pub(crate) fn after(archive: &Archive, position: &str) -> Result<Option<Found>> {
    let gtid_position = position.parse().map_err(|error: spate_binlog::Error| Error::Refused(error.to_string()))?;
    let begin = Checkpoint { gtid_position, ..Checkpoint::default() };
    Ok(look(archive, &begin, |_| true, 1)?.into_iter().next())
}

fn look(archive: &Archive, begin: &Checkpoint, is_it: impl Fn(&Found) -> bool, count_max: usize) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    walk(archive, begin, &mut |transaction, _| {
        if is_it(transaction) {
            found.push(transaction.clone());
        }
        Ok(found.len() < count_max)
    })?;
    Ok(found)
}

fn look_for_statement(archive: &Archive, begin: &Checkpoint, text: &str) -> Result<Vec<Found>> {
    /// Enough to say that it is not unique.
    const FOUND_MAX: usize = 1000;
    let wanted = plain_text(text);
    let mut found = Vec::new();
    walk(archive, begin, &mut |transaction, statements| {
        if let Some(statement) = statements.iter().find(|statement| plain_text(statement).contains(&wanted)) {
            found.push(Found { statement: excerpt(statement), ..transaction.clone() });
        }
        Ok(found.len() < FOUND_MAX)
    })?;
    Ok(found)
}

/// Small letters, single spaces.
fn plain_text(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

fn excerpt(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    match plain.chars().count() > STATEMENT_LETTERS_MAX {
        true => plain.chars().take(STATEMENT_LETTERS_MAX).chain(['…']).collect(),
        false => plain,
    }
}

/// Calls `take` for each transaction behind `begin`, with the texts of its statements, until it returns false.
pub(crate) fn walk(
    archive: &Archive,
    begin: &Checkpoint,
    take: &mut dyn FnMut(&Found, &[String]) -> Result<bool>,
) -> Result<()> {
    let mut reader = archive.reader(&begin.seek(), ReadOptions::default())?;
    let mut current: Option<Found> = None;
    let mut statements = Vec::new();
    while let Some(event) = reader.next_event()? {
        if event.boundary == Boundary::Outside {
            continue;
        }
        if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
            statements.clear();
            current = Some(Found {
                gtid: event.gtid().map(|gtid| gtid.gtid.to_string()),
                file: event.source_file.to_string(),
                position: begin_of(&event),
                commit_seconds: 0,
                seqno: event.seqno,
                statement: String::new(),
            });
        }
        let Some(found) = &mut current else { continue };
        collect_texts(&event, &mut statements);
        if matches!(event.boundary, Boundary::End | Boundary::Whole) {
            found.commit_seconds = u64::from(event.header.timestamp_seconds);
            found.statement = statements.first().map(|text| excerpt(text)).unwrap_or_default();
            if !take(found, &statements)? {
                return Ok(());
            }
            current = None;
        }
    }
    Ok(())
}

fn begin_of(event: &ArchivedEvent<'_>) -> u64 {
    event.source_end_position.saturating_sub(u64::from(event.header.event_length))
}

/// What cannot be read holds no statement that could be looked for; applying says what is wrong with it.
fn collect_texts(event: &ArchivedEvent<'_>, statements: &mut Vec<String>) {
    if event.header.event_type == EventType::TRANSACTION_PAYLOAD {
        let Ok(mut events) = PayloadEvents::open(event.body) else { return };
        while let Ok(Some((header, body))) = events.next_event() {
            statements.extend(text_of(header.event_type, body));
        }
        return;
    }
    statements.extend(text_of(event.header.event_type, event.body));
}

fn text_of(event_type: EventType, body: &[u8]) -> Option<String> {
    let mut buffer = Vec::new();
    match event_type {
        EventType::QUERY => {
            let query = QueryEvent::parse(body).ok()?;
            (!query.begins_group() && !query.ends_group()).then(|| query.statement_text())
        }
        EventType::QUERY_COMPRESSED => Some(compressed::parse_query(body, &mut buffer).ok()?.statement_text()),
        EventType::ANNOTATE_ROWS => Some(String::from_utf8_lossy(body).into_owned()),
        // One byte of a length that is cut, then the text.
        EventType::ROWS_QUERY => Some(String::from_utf8_lossy(body.get(1..)?).into_owned()),
        _ => None,
    }
}

/// What a position holds, as a place to begin at.
pub(crate) fn checkpoint_at(position: &crate::manifest::Position) -> Checkpoint {
    Checkpoint {
        gtid_position: position.gtid_position(),
        source_file: position.file.clone(),
        source_position: position.offset,
        ..Checkpoint::default()
    }
}

/// The same place by the source's file, whatever GTIDs say. `None`: the position has no file.
pub(crate) fn seek_by_file(position: &crate::manifest::Position) -> Option<Seek> {
    (!position.file.is_empty()).then(|| Seek::Source { file: position.file.clone(), position: position.offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_parse_or_say_what_is_expected() {
        assert_eq!("latest".parse(), Ok(Goal::Latest));
        let noon: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        for text in ["time:2026-11-26T12:00:00Z", "time:2026-11-26 12:00:00", "time:2026-11-26T13:00:00+01:00"] {
            assert_eq!(text.parse(), Ok(Goal::Time(noon)), "{text}");
        }
        assert!(matches!("gtid:0-1-7".parse(), Ok(Goal::Gtid(_))));
        assert!(matches!("before-gtid:0-1-7".parse(), Ok(Goal::BeforeGtid(_))));
        assert_eq!("file:a:b.000001:4".parse(), Ok(Goal::File { file: "a:b.000001".into(), position: 4 }));
        assert_eq!("before-statement:DROP TABLE a:b".parse(), Ok(Goal::BeforeStatement("DROP TABLE a:b".into())));
        for wrong in ["", "now", "time:yesterday", "gtid:x", "file:a", "file::4", "before-statement: ", "until:x"] {
            assert!(wrong.parse::<Goal>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn statements_are_compared_without_case_and_white_space() {
        assert!(plain_text("drop\n  TABLE  x").contains(&plain_text("DROP TABLE")));
        assert_eq!(excerpt("a\nb"), "a b");
        assert!(excerpt(&"x".repeat(500)).ends_with('…'));
    }
}
