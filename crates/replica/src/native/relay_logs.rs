//! Where a channel's relay logs are on disk.

use std::io::Read;
use std::path::{Path, PathBuf};

use spate_binlog::{EventHeader, EventType, FILE_MAGIC};
use spate_connection::Connection;

use super::Channel;
use crate::{Error, Result};

/// Where the relay logs are: a directory of this machine, and what their names begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayLogs {
    /// The directory.
    pub directory: PathBuf,
    /// The names without their numbers.
    pub base_name: String,
}

/// Finds the relay logs of a channel.
///
/// # Errors
/// [`Error::Unsuitable`] if they are on another machine, or cannot be read.
pub fn relay_logs(connection: &mut Connection, channel: &Channel) -> Result<RelayLogs> {
    let answer = connection.query("SELECT @@hostname, @@datadir, COALESCE(@@relay_log_basename, '')")?;
    let text = |column| answer.text_at(0, column).unwrap_or_default();
    let (host, data, base) = (text(0), text(1), text(2));
    let unsuitable = |why: String| Error::Unsuitable { peer: connection.peer().to_string(), why };
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if host != here {
        let why =
            format!("it runs on '{host}', and this is '{here}': its relay logs are read from disk, so run Spate there");
        return Err(unsuitable(why));
    }
    let directory = match Path::new(&base).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => Path::new(&data).join(parent),
        _ => PathBuf::from(&data),
    };
    let path = directory.join(&channel.relay_log);
    let unreadable = match begins_encrypted(&path) {
        Ok(false) => None,
        Ok(true) => Some("is encrypted, so that only the server can read it".to_owned()),
        Err(error) => Some(format!(
            "cannot be read ({error}): run Spate on the server's machine, as an account that may read its files"
        )),
    };
    if let Some(why) = unreadable {
        return Err(unsuitable(format!("its relay log {} {why}", path.display())));
    }
    let base_name = channel.relay_log.rsplit_once('.').map_or(channel.relay_log.as_str(), |(base, _)| base).to_owned();
    Ok(RelayLogs { directory, base_name })
}

/// True if the server has encrypted this file: MySQL all of it, MariaDB what follows its second event, which says so.
fn begins_encrypted(path: &Path) -> std::io::Result<bool> {
    /// What MySQL writes in the place of [`FILE_MAGIC`].
    const ENCRYPTED: [u8; 4] = *b"\xfdbin";
    /// Bytes that hold the first event and the second one's header.
    const BEGINNING: u64 = 4 << 10;
    let mut beginning = Vec::new();
    std::fs::File::open(path)?.take(BEGINNING).read_to_end(&mut beginning)?;
    let second = beginning.get(FILE_MAGIC.len()..).and_then(|events| {
        let first = EventHeader::parse(events).ok()?;
        EventHeader::parse(events.get(usize::try_from(first.event_length).ok()?..)?).ok()
    });
    let is_said = second.is_some_and(|second| second.event_type == EventType::START_ENCRYPTION);
    Ok(is_said || beginning.starts_with(&ENCRYPTED))
}
