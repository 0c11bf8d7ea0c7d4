//! The machine's disk, network and memory. Sources of the formats: proc_diskstats in the kernel's documentation (iostats), proc_pid_net(5),
//! proc_meminfo(5).

use std::fs;
use std::path::Path;

use super::Look;
use super::series::Recorder;

/// Bytes of a sector in the kernel's counters, whatever the disk's own sectors are.
const SECTOR_BYTES: f64 = 512.0;

pub(super) struct Devices {
    /// The disk's numbers; `None`: the directory's file system is on no disk that the kernel counts.
    disk: Option<(u32, u32)>,
}

/// What the kernel has counted of a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Disk {
    reads: f64,
    read_sectors: f64,
    read_milliseconds: f64,
    writes: f64,
    written_sectors: f64,
    write_milliseconds: f64,
    busy_milliseconds: f64,
}

impl Devices {
    pub(super) fn new(directory: &Path) -> Devices {
        let device = rustix::fs::stat(directory).ok().map(|stat| stat.st_dev);
        Devices { disk: device.map(|device| (rustix::fs::major(device), rustix::fs::minor(device))) }
    }

    fn disk(&self, recorder: &mut Recorder) {
        let Some(disk) = self.disk.and_then(|numbers| {
            let text = fs::read_to_string("/proc/diskstats").ok()?;
            text.lines().find_map(|line| parse_disk(line, numbers))
        }) else {
            return;
        };
        recorder.counter("disk reads", "per second", disk.reads);
        recorder.counter("disk writes", "per second", disk.writes);
        recorder.counter("disk read", "MB/s", disk.read_sectors * SECTOR_BYTES / 1e6);
        recorder.counter("disk written", "MB/s", disk.written_sectors * SECTOR_BYTES / 1e6);
        recorder.counter("disk busy", "% of the time", disk.busy_milliseconds / 10.0);
        for (name, count, milliseconds) in [
            ("disk read latency", disk.reads, disk.read_milliseconds),
            ("disk write latency", disk.writes, disk.write_milliseconds),
        ] {
            let grown = recorder.growth(&format!("{name} count"), count);
            let spent = recorder.growth(&format!("{name} milliseconds"), milliseconds);
            if let (Some(grown), Some(spent)) = (grown, spent)
                && grown > 0.0
            {
                recorder.gauge(name, "ms", spent / grown);
            }
        }
    }
}

impl Look for Devices {
    fn look(&mut self, recorder: &mut Recorder) {
        self.disk(recorder);
        if let Some(bytes) = fs::read_to_string("/proc/net/dev").ok().map(|text| parse_received(&text)) {
            recorder.counter("network", "MB/s", bytes / 1e6);
        }
        if let Some(used) = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_used_mib(&text)) {
            recorder.gauge("memory used", "MiB", used);
        }
    }
}

fn parse_disk(line: &str, (major, minor): (u32, u32)) -> Option<Disk> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<f64>().ok();
    if number(0)? != f64::from(major) || number(1)? != f64::from(minor) {
        return None;
    }
    Some(Disk {
        reads: number(3)?,
        read_sectors: number(5)?,
        read_milliseconds: number(6)?,
        writes: number(7)?,
        written_sectors: number(9)?,
        write_milliseconds: number(10)?,
        busy_milliseconds: number(12)?,
    })
}

/// Bytes that all interfaces have received. What servers of one machine send each other is received once.
fn parse_received(text: &str) -> f64 {
    let received = |line: &str| line.split_once(':')?.1.split_whitespace().next()?.parse::<f64>().ok();
    text.lines().filter_map(received).sum()
}

fn parse_used_mib(text: &str) -> Option<f64> {
    let kibibytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some((kibibytes("MemTotal:")? - kibibytes("MemAvailable:")?) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_counters_are_those_of_the_device() {
        let line = " 254       0 vda 100 5 2048 40 200 6 4096 80 0 60 120 0 0 0 0 0 0";
        let disk = parse_disk(line, (254, 0)).unwrap();
        assert_eq!((disk.reads, disk.read_sectors, disk.read_milliseconds), (100.0, 2048.0, 40.0));
        assert_eq!((disk.writes, disk.written_sectors, disk.write_milliseconds), (200.0, 4096.0, 80.0));
        assert_eq!(disk.busy_milliseconds, 60.0);
        assert_eq!(parse_disk(line, (254, 1)), None);
        assert_eq!(parse_disk("254 0 vda x", (254, 0)), None);
    }

    #[test]
    fn network_and_memory_are_read() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 1000 1 0 0\n  eth0:24 1 0 0\n";
        assert_eq!(parse_received(text), 1024.0);
        assert_eq!(parse_used_mib("MemTotal: 4096 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n"), Some(3.0));
        assert_eq!(parse_used_mib(""), None);
    }
}
