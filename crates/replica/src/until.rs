//! Where to begin and where to end.

use std::str::FromStr;

use spate_archive::Archive;
use spate_binlog::{Gtid, GtidPosition, MariaDbGtid};

use crate::checkpoint::Checkpoint;

/// Where replication begins on a replica without a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// After this GTID position.
    Gtid(GtidPosition),
    /// At this place in the source's binlog, which must be between two transactions.
    File {
        /// Name of the binlog file.
        file: String,
        /// Offset in it, in bytes.
        position: u64,
    },
    /// At the oldest transaction that the source still has.
    Earliest,
    /// Now: nothing of the past.
    Current,
}

/// Where replication ends by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Until {
    /// Nowhere.
    #[default]
    Forever,
    /// Once every domain of this position was reached.
    Gtid(GtidPosition),
    /// Once the transactions of this position were reached, which is the end of a source's binlog: their numbers may not be the highest.
    End(GtidPosition),
    /// Before the first transaction that begins there or later.
    File {
        /// Name of the binlog file.
        file: String,
        /// Offset in it, in bytes.
        position: u64,
    },
    /// Once everything is applied that the source had when it was first asked.
    CaughtUp,
}

/// A place that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}: {why}")]
pub struct PlaceError {
    text: String,
    expected: &'static str,
    why: String,
}

impl FromStr for Start {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Start, PlaceError> {
        let expected = "gtid:<set>, file:<name>:<offset>, earliest or current";
        match (text, parse(text, expected)) {
            ("earliest", _) => Ok(Start::Earliest),
            ("current", _) => Ok(Start::Current),
            (_, Ok(Place::Gtid(position))) => Ok(Start::Gtid(position)),
            (_, Ok(Place::File(file, position))) => Ok(Start::File { file, position }),
            (_, Err(error)) => Err(error),
        }
    }
}

impl FromStr for Until {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Until, PlaceError> {
        let expected = "gtid:<set>, file:<name>:<offset> or caught-up";
        match (text, parse(text, expected)) {
            ("caught-up", _) => Ok(Until::CaughtUp),
            (_, Ok(Place::Gtid(position))) => Ok(Until::Gtid(position)),
            (_, Ok(Place::File(file, position))) => Ok(Until::File { file, position }),
            (_, Err(error)) => Err(error),
        }
    }
}

enum Place {
    Gtid(GtidPosition),
    File(String, u64),
}

fn parse(text: &str, expected: &'static str) -> Result<Place, PlaceError> {
    let error = |why: &str| PlaceError { text: text.to_owned(), expected, why: why.to_owned() };
    if let Some(set) = text.strip_prefix("gtid:") {
        return set.parse().map(Place::Gtid).map_err(|wrong: spate_binlog::Error| error(&wrong.to_string()));
    }
    let Some(place) = text.strip_prefix("file:") else { return Err(error("unknown kind of place")) };
    let Some((file, position)) = place.rsplit_once(':') else { return Err(error("the offset is missing")) };
    let Ok(position) = position.parse() else { return Err(error("the offset is not a number")) };
    if file.is_empty() {
        return Err(error("the file name is missing"));
    }
    Ok(Place::File(file.to_owned(), position))
}

impl Until {
    /// True if nothing is left to do at `checkpoint`.
    pub fn is_reached_by(&self, checkpoint: &Checkpoint, archive: &Archive) -> bool {
        match self {
            Until::Forever | Until::CaughtUp => false,
            Until::Gtid(position) => checkpoint.gtid_position.covers_all(position),
            Until::End(position) => {
                let seqno_of = |gtid| archive.seqno_of(Gtid::MariaDb(gtid));
                // What the archive has not was applied before the first that it has.
                let stands_before = |last, now| seqno_of(last).is_some_and(|last| seqno_of(now) >= Some(last));
                checkpoint.gtid_position.covers_all(position)
                    && position.domains().all(|last| {
                        // Numbers of one server rise; those of others may be anything.
                        let of_domain = |now: &MariaDbGtid| now.domain_id == last.domain_id;
                        let now = checkpoint.gtid_position.domains().find(of_domain);
                        now.is_some_and(|now| now.server_id == last.server_id || stands_before(last, now))
                    })
            }
            Until::File { .. } => self.excludes(&checkpoint.source_file, checkpoint.source_position),
        }
    }

    /// True if a transaction that begins at `position` of `file` is beyond the end. Files of one source sort by name.
    pub fn excludes(&self, file: &str, position: u64) -> bool {
        match self {
            Until::File { file: last_file, position: last_position } => {
                (file.len(), file, position) >= (last_file.len(), last_file.as_str(), *last_position)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_parse_or_name_what_is_expected() {
        assert_eq!("earliest".parse(), Ok(Start::Earliest));
        assert_eq!("file:a:b.000001:4".parse(), Ok(Start::File { file: "a:b.000001".into(), position: 4 }));
        assert!(matches!("gtid:0-1-5,1-2-7".parse(), Ok(Until::Gtid(_))));
        assert_eq!("gtid:".parse(), Ok(Start::Gtid(GtidPosition::default())));
        for wrong in ["", "gtid:x", "file:a", "file:a:b", "file::4", "latest"] {
            let error = wrong.parse::<Start>().unwrap_err().to_string();
            assert!(error.contains("earliest"), "{error}");
        }
    }

    #[test]
    fn until_place_excludes_later_transactions() {
        let until: Until = "file:bin.000002:500".parse().unwrap();
        for (file, position, excluded) in [
            ("bin.000001", 900, false),
            ("bin.000002", 499, false),
            ("bin.000002", 500, true),
            ("bin.000003", 4, true),
            ("bin.1000000", 4, true),
            ("", 0, false),
        ] {
            assert_eq!(until.excludes(file, position), excluded, "{file}:{position}");
        }
    }
}
