//! What is known of a base: one JSON object, written last, so that a base without it was never finished.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use spate_binlog::GtidPosition;
use spate_connection::Vendor;

use crate::chunks::Chunk;
use crate::error::{Error, Result};
use crate::sealing;
use crate::target::Target;

/// Of the objects' layout. Another number is another layout.
const FORMAT: u32 = 1;
/// Where bases are in a target.
pub(crate) const BASES: &str = "bases";
const MANIFEST: &str = "manifest.json";

/// One base backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Version of this layout.
    pub format: u32,
    /// Its name: when it began (UTC), and a random number.
    pub id: String,
    /// When it began, by the clock of the machine that made it.
    pub began: Timestamp,
    /// When it was complete.
    pub ended: Timestamp,
    /// How it was made.
    pub method: Method,
    /// The server that it is of.
    pub server: ServerFacts,
    /// What of the server's binlog it holds.
    pub position: Position,
    /// The server had a schema `spate` of its own: it was a replica of Spate's, or was loaded by it.
    pub has_own_schema: bool,
    /// What a person should know of it.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// True if the chunks are encrypted.
    pub is_encrypted: bool,
    /// The data: a stream, in chunks.
    pub chunks: Vec<Chunk>,
}

/// How a base is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// By MariaDB's own program: a stream of its format (mbstream), which is to be prepared.
    MariadbBackup,
    /// By MySQL's own plugin: a tar stream of the data directory of a server that was stopped cleanly.
    Clone,
    /// A file system's snapshot: a tar stream of a data directory as a crash would have left it.
    Snapshot,
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Method::MariadbBackup => "mariadb-backup",
            Method::Clone => "clone",
            Method::Snapshot => "snapshot",
        })
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// `mariadb` or `mysql`.
    pub vendor: String,
    /// As it tells it.
    pub version: String,
    /// Its id among servers that replicate.
    pub server_id: u32,
    /// MySQL: its UUID.
    pub uuid: Option<String>,
    /// Where its data are.
    pub data_directory: String,
    /// Settings without which its data cannot be read, or mean something else.
    pub variables: BTreeMap<String, String>,
}

impl ServerFacts {
    /// Whose server it is.
    pub fn vendor(&self) -> Vendor {
        if self.vendor == "mariadb" { Vendor::MariaDb } else { Vendor::MySql }
    }

    /// `10.11` of `10.11.19-MariaDB-…`.
    pub fn series(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }
}

/// A place in a server's binlog, between two transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// All that is before it; empty without GTIDs.
    pub gtid: String,
    /// The binlog file; empty if the server logs nothing.
    pub file: String,
    /// Offset in it, in bytes.
    pub offset: u64,
    /// The server's own clock then, in seconds since 1970.
    pub server_seconds: u64,
}

impl Position {
    /// The GTIDs, which were checked when it was read.
    pub(crate) fn gtid_position(&self) -> GtidPosition {
        self.gtid.parse().unwrap_or_default()
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.gtid.is_empty(), self.file.is_empty()) {
            (true, true) => f.write_str("no position (its binlog was off)"),
            (true, false) => write!(f, "{}:{}", self.file, self.offset),
            (false, true) => f.write_str(&self.gtid),
            (false, false) => write!(f, "{} ({}:{})", self.gtid, self.file, self.offset),
        }
    }
}

impl Base {
    pub(crate) fn new(id: String, began: Timestamp, method: Method, server: ServerFacts) -> Base {
        Base {
            format: FORMAT,
            id,
            began,
            ended: began,
            method,
            server,
            position: Position::default(),
            has_own_schema: false,
            warnings: Vec::new(),
            is_encrypted: false,
            chunks: Vec::new(),
        }
    }

    /// Where its objects are.
    pub(crate) fn place(&self) -> String {
        place_of(&self.id)
    }

    /// Bytes of its data, and bytes that are stored of them.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |of: fn(&Chunk) -> u64| self.chunks.iter().map(of).sum();
        (sum(|chunk| chunk.plain_bytes), sum(|chunk| chunk.bytes))
    }

    pub(crate) fn write(&self, target: &Target) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::Refused(error.to_string()))?;
        target.put(&format!("{}/{MANIFEST}", self.place()), text)
    }

    fn read(target: &Target, id: &str) -> Result<Base> {
        let name = format!("{}/{MANIFEST}", place_of(id));
        let base: Base =
            serde_json::from_slice(&target.get(&name)?).map_err(|error| target.damaged(&name, error.to_string()))?;
        if base.format != FORMAT {
            return Err(target.damaged(&name, format!("its format is {}, and this Spate knows {FORMAT}", base.format)));
        }
        if base.id != id {
            return Err(target.damaged(&name, format!("it says that it is of the base {}", base.id)));
        }
        let readable = base.position.gtid.parse::<GtidPosition>();
        readable.map_err(|error| target.damaged(&name, format!("its GTID position cannot be read: {error}")))?;
        if !base.position.file.is_empty() {
            spate_archive::check_source_name(&base.position.file).map_err(|why| target.damaged(&name, why))?;
        }
        Ok(base)
    }
}

fn place_of(id: &str) -> String {
    format!("{BASES}/{id}")
}

/// A name of a base that begins now.
pub(crate) fn new_id(began: Timestamp) -> Result<String> {
    let bytes = sealing::random()?;
    Ok(format!("{}-{:08x}", began.strftime("%Y%m%dT%H%M%S.%3fZ"), u32::from_le_bytes(bytes)))
}

/// What is known of a target's bases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// All finished bases, oldest first.
    pub bases: Vec<Base>,
    /// What cannot be read of others.
    pub damaged: Vec<String>,
}

/// All bases of a target.
///
/// # Errors
/// [`Error::Target`].
pub fn bases(target: &Target) -> Result<Known> {
    let mut known = Known::default();
    for listed in target.list(BASES)? {
        let parts: Vec<&str> = listed.name.split('/').collect();
        if let [_, id, MANIFEST] = parts[..] {
            match Base::read(target, id) {
                Ok(base) => known.bases.push(base),
                Err(error @ Error::Damaged { .. }) => known.damaged.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
    }
    known.bases.sort_by(|one: &Base, other: &Base| (one.began, &one.id).cmp(&(other.began, &other.id)));
    Ok(known)
}

#[cfg(test)]
pub(crate) fn test_base(id: &str, began: &str) -> Base {
    let facts = ServerFacts {
        vendor: "mariadb".into(),
        version: "10.11.19-MariaDB-log".into(),
        server_id: 1,
        uuid: None,
        data_directory: "/x".into(),
        variables: BTreeMap::new(),
    };
    Base::new(id.into(), began.parse().unwrap(), Method::MariadbBackup, facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_read_as_they_were_written_and_unfinished_ones_are_not_seen() {
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path().to_str().unwrap(), true).unwrap();
        let base = test_base("20260102T030405Z-00000001", "2026-01-02T03:04:05Z");
        base.write(&target).unwrap();
        target.put("bases/20260102T030405Z-00000002/data.0000000", b"x".to_vec()).unwrap();
        assert_eq!(bases(&target).unwrap().bases, [base]);
    }

    #[test]
    fn a_manifest_that_is_damaged_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path().to_str().unwrap(), true).unwrap();
        let mut base = test_base("one", "2026-01-02T03:04:05Z");
        for (gtid, file) in [("nonsense", ""), ("", "../../etc/passwd")] {
            base.position = Position { gtid: gtid.into(), file: file.into(), ..Position::default() };
            base.write(&target).unwrap();
            let error = bases(&target).unwrap().damaged.remove(0);
            assert!(error.contains("bases/one/manifest.json"), "{error}");
        }
        base.format = 2;
        base.write(&target).unwrap();
        assert!(bases(&target).unwrap().damaged[0].contains("format is 2"));
    }
}
