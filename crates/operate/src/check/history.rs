//! Whether the source still has what the replica needs, and for how long.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use spate_archive::{Archive, DirectoryOptions, RealFileSystem};
use spate_binlog::GtidPosition;

use super::{Finding, Place};
use spate_connection::Connection;
use spate_receive::source::{current_place, find_oldest_binlog};
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::{Error, Result};

const CHECK: &str = "retention";

/// Less than this is less than a night.
const RETENTION_SECONDS_MIN: u64 = 12 * 3600;

pub(super) fn look(source: &mut Connection, replica: &mut Connection, archive: Option<&Path>) -> Result<Vec<Finding>> {
    let retention = retention_seconds(source)?;
    let kept = match retention {
        None => "binlog files are kept until somebody removes them".to_owned(),
        Some(seconds) => format!("binlog files are kept for {}", duration(seconds)),
    };
    let Some(checkpoint) = checkpoint_of(replica)? else {
        return Ok(vec![was_kept_long_enough(retention, format!("{kept}; the replica has no checkpoint yet"))]);
    };
    let received = archive.and_then(end_of_archive);
    let needed = received.unwrap_or_else(|| checkpoint.gtid_position.clone());
    let oldest = find_oldest_binlog(source)?;
    let now = current_place(source)?;
    // Without GTIDs, the file's name would tell.
    if now.file.is_none() && !needed.covers_all(&oldest.position) {
        return Ok(vec![
            Finding::error(
                CHECK,
                Place::Source,
                format!("it no longer has what follows GTID position '{needed}': the oldest it has is {oldest}"),
            )
            .advise("Rebuild the replica from a newer backup, or copy the missing binlog files into an archive"),
        ]);
    }
    let is_behind = now.file.is_some() || !needed.covers_all(&now.gtid_position);
    let seconds = if is_behind { seconds_since(&checkpoint) } else { 0 };
    let state = match is_behind {
        true => format!("{kept}; the replica's last change was made {} ago", duration(seconds)),
        false => format!("{kept}; all of them are here already"),
    };
    Ok(vec![match retention {
        Some(retention) if seconds > retention / 2 => {
            Finding::warning(CHECK, Place::Source, format!("{state}: files may go before they are read")).advise(
                "SET GLOBAL binlog_expire_logs_seconds to more than the replica is behind, until it has caught up",
            )
        }
        _ => was_kept_long_enough(retention, state),
    }])
}

fn was_kept_long_enough(retention: Option<u64>, state: String) -> Finding {
    match retention {
        Some(seconds) if seconds < RETENTION_SECONDS_MIN => {
            Finding::warning(CHECK, Place::Source, format!("{state}: a longer stop of Spate would cost the replica"))
                .advise("SET GLOBAL binlog_expire_logs_seconds=259200 (three days) or more, and in its configuration")
        }
        _ => Finding::ok(CHECK, Place::Source, state),
    }
}

/// For how long the source keeps its binlog; `None` is for ever.
fn retention_seconds(source: &mut Connection) -> Result<Option<u64>> {
    let rows = source.query(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
         ('binlog_expire_logs_seconds', 'expire_logs_days', 'binlog_expire_logs_auto_purge')",
    )?;
    let value = |name: &str| {
        let row = (0..rows.rows.len()).find(|&row| rows.text_at(row, 0).as_deref() == Some(name))?;
        rows.text_at(row, 1)
    };
    if value("binlog_expire_logs_auto_purge").as_deref() == Some("OFF") {
        return Ok(None);
    }
    let seconds = value("binlog_expire_logs_seconds").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let days = value("expire_logs_days").and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    // MariaDB shows the same time in both.
    let seconds = seconds.max((days * 86_400.0) as u64);
    Ok((seconds > 0).then_some(seconds))
}

/// The checkpoint, if Spate was ever here.
fn checkpoint_of(replica: &mut Connection) -> Result<Option<Checkpoint>> {
    /// No such table or database.
    const MISSING: [u16; 2] = [1146, 1049];
    match checkpoint::read(replica) {
        Err(Error::Wire(error)) if error.code().is_some_and(|code| MISSING.contains(&code)) => Ok(None),
        other => other,
    }
}

/// Up to where the archive reaches, if there is one and it knows.
fn end_of_archive(directory: &Path) -> Option<GtidPosition> {
    let archive = Archive::open(Arc::new(RealFileSystem), directory, DirectoryOptions::default()).ok()?;
    let end = archive.tail().durable();
    (end.gtid_position_known && end.seqno > 0).then(|| GtidPosition::clone(&end.gtid_position))
}

fn seconds_since(checkpoint: &Checkpoint) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    match checkpoint.source_seconds {
        0 => 0,
        then => now.saturating_sub(then),
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
