//! What is around the servers: their clocks, their time zones, the disk of the archive.

use std::path::Path;
use std::time::{Duration, Instant};

use super::facts::Facts;
use super::{Finding, Place};
use spate_connection::Connection;
use spate_replica::{Error, Result};

/// More than this, and the lag that people see is wrong by as much.
const CLOCK_DIFFERENCE_MAX: f64 = 1.0;

pub(super) fn clocks(source: &mut Connection, replica: &mut Connection) -> Result<Vec<Finding>> {
    let (check, place) = ("clocks", Place::Both);
    let begun = Instant::now();
    let (of_source, uncertain) = offset(source, begun)?;
    let (of_replica, also_uncertain) = offset(replica, begun)?;
    let difference = of_source - of_replica;
    let doubt = (uncertain + also_uncertain).as_secs_f64() / 2.0;
    Ok(vec![match difference.abs() > CLOCK_DIFFERENCE_MAX + doubt {
        true => Finding::warning(
            check,
            place,
            format!(
                "the source's is {:.1} s {} the replica's",
                difference.abs(),
                if difference > 0.0 { "before" } else { "behind" }
            ),
        )
        .advise("Let both machines take their time from the network: what is said of the lag is wrong by as much"),
        false => Finding::ok(check, place, "the same, within a second"),
    }])
}

/// A server's clock in seconds, less the time since `begun`; and how long the question was under way.
fn offset(server: &mut Connection, begun: Instant) -> Result<(f64, Duration)> {
    let asked = begun.elapsed();
    let text = server.query("SELECT UNIX_TIMESTAMP(NOW(6))")?.single_text().unwrap_or_default();
    let answered = begun.elapsed();
    let seconds: f64 = text.parse().unwrap_or(0.0);
    Ok((seconds - (asked + answered).as_secs_f64() / 2.0, answered - asked))
}

/// Named time zones, as statements use them. The hash holds each zone's name and all its changes.
pub(super) fn time_zones(source: &mut Connection, replica: &mut Connection) -> Result<Vec<Finding>> {
    let (check, place) = ("time zones", Place::Both);
    let (of_source, of_replica) = (zones(source)?, zones(replica)?);
    let load = "mariadb-tzinfo-to-sql (or mysql_tzinfo_to_sql) /usr/share/zoneinfo, into its schema mysql";
    Ok(vec![match (of_source.0, of_replica.0) {
        (0, 0) => Finding::ok(check, place, "no named ones are loaded on either"),
        (_, 0) => Finding::warning(
            check,
            place,
            "loaded on the source, not on the replica: statements that name one will fail",
        )
        .advise(format!("Load them there: {load}")),
        _ if of_source == of_replica => Finding::ok(check, place, format!("the same {} named ones", of_source.0)),
        (0, _) => Finding::ok(check, place, "loaded on the replica only"),
        _ => Finding::warning(check, place, "they differ: a time may mean another moment there")
            .advise(format!("Load the same on both: {load}")),
    }])
}

/// How many zones there are, and a hash over them.
fn zones(server: &mut Connection) -> Result<(u64, String)> {
    const GRANT: &str = "GRANT SELECT ON mysql.* TO <the user of Spate>";
    let refused =
        |error: spate_connection::Error| Error::from(error).with_missing_privilege("show its time zones", GRANT);
    let count = server.query("SELECT COUNT(*) FROM mysql.time_zone_name").map_err(refused)?;
    let hash = server
        .query(
            "SELECT CAST(COALESCE(SUM(CRC32(CONCAT_WS(',', n.Name, t.Transition_time, k.Offset, k.Is_DST))), 0) AS CHAR) \
             FROM mysql.time_zone_name n JOIN mysql.time_zone_transition t ON t.Time_zone_id = n.Time_zone_id \
             JOIN mysql.time_zone_transition_type k ON k.Time_zone_id = t.Time_zone_id \
             AND k.Transition_type_id = t.Transition_type_id",
        )
        .map_err(refused)?;
    let count = count.single_text().and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok((count, hash.single_text().unwrap_or_default()))
}

/// With less, receiving can stop at any moment.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// Room for the file that is being received and for one more; not less than this of the disk.
const FREE_SHARE_MIN: u64 = 20;

pub(super) fn disk(directory: &Path, source: &Facts) -> Finding {
    let (check, place) = ("disk", Place::Archive);
    // The directory is made when it is needed.
    let there = directory.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let space = match rustix::fs::statvfs(there) {
        Ok(space) => space,
        Err(error) => return Finding::skipped(check, place, format!("{}: {error}", there.display())),
    };
    let (free, all) = (space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize);
    room(free, all, source.number("max_binlog_size"), directory)
}

fn room(free: u64, all: u64, binlog_file_bytes: u64, directory: &Path) -> Finding {
    let (check, place) = ("disk", Place::Archive);
    let said = format!("{} MiB of {} MiB are free for {}", free >> 20, all >> 20, directory.display());
    let advice = "Make room, or bound the archive with --keep-archive-size";
    match free {
        ..FREE_BYTES_MIN => Finding::error(check, place, said).advise(advice),
        _ if free < (2 * binlog_file_bytes).max(all / FREE_SHARE_MIN) => {
            Finding::warning(check, place, said).advise(advice)
        }
        _ => Finding::ok(check, place, said),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn archive_directory_without_room_is_an_error() {
        const GIB: u64 = 1 << 30;
        let level = |free, all| room(free, all, GIB, Path::new("a")).level;
        assert_eq!(level(10 << 20, 100 * GIB), Level::Error);
        assert_eq!(level(GIB, 2 * GIB), Level::Warning);
        assert_eq!(level(4 * GIB, 100 * GIB), Level::Warning);
        assert_eq!(level(10 * GIB, 100 * GIB), Level::Ok);
        let facts = Facts::made_of("8.4.3", &[]);
        let found = disk(Path::new("/nowhere/at/all"), &facts);
        assert!(found.message.contains("/nowhere/at/all") && found.level != Level::Skipped, "{found}");
    }
}
