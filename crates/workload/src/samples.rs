//! What the server and its disks did meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spate_connection::Connection;

/// Counters of SHOW GLOBAL STATUS.
const COUNTERS: [&str; 6] = [
    "Created_tmp_tables",
    "Created_tmp_disk_tables",
    "Sort_merge_passes",
    "Innodb_data_reads",
    "Innodb_data_writes",
    "Questions",
];
const INTERVAL: Duration = Duration::from_secs(1);

/// A disk of this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Its name.
    pub name: String,
    /// It was busy for such a part of the time.
    pub busy: f64,
    /// The part of the busiest second.
    pub busiest_second: f64,
    /// Megabytes that were read and written.
    pub read_mb: f64,
    /// Megabytes that were written.
    pub written_mb: f64,
    /// It holds the server's data directory.
    pub has_data: bool,
    /// It holds the server's directory for temporary files.
    pub has_temporary: bool,
}

/// The server and its disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Vendor and version.
    pub version: String,
    /// How much the server's counters grew, others' statements included.
    pub counters: BTreeMap<String, u64>,
    /// The disks that were used, if the server is on this machine.
    pub disks: Vec<DiskReport>,
    /// Temporary files and data share a disk: they wait for each other there.
    pub shares_disk: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default)]
struct DiskCounts {
    busy_ms: u64,
    read: u64,
    written: u64,
}

/// Looks once a second until `over`. The connection was opened before others could take its place.
///
/// # Errors
/// Any error of the connection, at the beginning.
pub(crate) fn watch(mut connection: Connection, is_local: bool, over: &AtomicBool) -> crate::Result<ServerReport> {
    let facts = connection.query("SELECT VERSION(), @@datadir, @@tmpdir")?;
    let text = |column| facts.text_at(0, column).unwrap_or_default();
    let before = counters(&mut connection)?;
    let (first_disks, begun) = (disks(), Instant::now());
    let mut last_disks = first_disks.clone();
    let mut busiest: BTreeMap<String, f64> = BTreeMap::new();
    let mut at = Instant::now();
    while !over.load(Ordering::Acquire) {
        std::thread::park_timeout(INTERVAL);
        let (now, passed) = (disks(), at.elapsed().as_secs_f64());
        // The last look may come early.
        if passed > INTERVAL.as_secs_f64() / 2.0 {
            for (name, counts) in &now {
                let since = counts.busy_ms.saturating_sub(last_disks.get(name).copied().unwrap_or_default().busy_ms);
                let highest = busiest.entry(name.clone()).or_default();
                *highest = highest.max(since as f64 / 1e3 / passed);
            }
            (last_disks, at) = (now, Instant::now());
        }
    }
    let after = counters(&mut connection).unwrap_or_default();
    let grown = |(name, value): (String, u64)| {
        let since = value.saturating_sub(before.get(&name).copied().unwrap_or_default());
        (name, since)
    };
    let mut report =
        ServerReport { version: text(0), counters: after.into_iter().map(grown).collect(), ..ServerReport::default() };
    if is_local {
        // What file systems without a disk of their own are on, nobody knows; but two directories of one are together.
        let devices = (device_of(Path::new(&text(1))), device_of(Path::new(&text(2))));
        report.shares_disk = devices.0.zip(devices.1).map(|(data, temporary)| data == temporary);
        let (data, temporary) = (devices.0.and_then(disk_of), devices.1.and_then(disk_of));
        let seconds = begun.elapsed().as_secs_f64();
        for (name, counts) in disks() {
            let first = first_disks.get(&name).copied().unwrap_or_default();
            let busy = counts.busy_ms.saturating_sub(first.busy_ms) as f64 / 1e3 / seconds;
            const SECTOR_BYTES: f64 = 512.0;
            let disk = DiskReport {
                busy,
                busiest_second: busiest.get(&name).copied().unwrap_or_default().max(busy).min(1.0),
                read_mb: counts.read.saturating_sub(first.read) as f64 * SECTOR_BYTES / 1e6,
                written_mb: counts.written.saturating_sub(first.written) as f64 * SECTOR_BYTES / 1e6,
                has_data: data.as_ref() == Some(&name),
                has_temporary: temporary.as_ref() == Some(&name),
                name,
            };
            if disk.busy > 0.0 || disk.has_data || disk.has_temporary {
                report.disks.push(disk);
            }
        }
    }
    Ok(report)
}

fn counters(connection: &mut Connection) -> crate::Result<BTreeMap<String, u64>> {
    let names = COUNTERS.map(|name| format!("'{name}'")).join(",");
    let rows = connection.query(&format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({names})"))?;
    let pair = |row| Some((rows.text_at(row, 0)?, rows.text_at(row, 1)?.parse().ok()?));
    Ok((0..rows.rows.len()).filter_map(pair).collect())
}

/// The kernel's counts by device (Linux: Documentation/admin-guide/iostats.rst).
fn disks() -> BTreeMap<String, DiskCounts> {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let disk = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |field: usize| fields.get(field).and_then(|text| text.parse().ok());
        let counts = DiskCounts { read: number(5)?, written: number(9)?, busy_ms: number(12)? };
        Some(((*fields.get(2)?).to_owned(), counts))
    };
    text.lines().filter_map(disk).collect()
}

/// The device that holds a path of this machine.
fn device_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|facts| facts.dev())
}

/// The disk that it is; `None` if it is none, such as memory.
fn disk_of(device: u64) -> Option<String> {
    // Linux: makedev(3).
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    let text = fs::read_to_string("/proc/diskstats").ok()?;
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.first()?.parse() == Ok(major) && fields.get(1)?.parse() == Ok(minor);
        is_it.then(|| fields.get(2).map(|name| (*name).to_owned()))?
    })
}
