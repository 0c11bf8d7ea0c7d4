//! The machine on which something was measured, and how fast it is at the moment.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::workload::machine_memory_mib;

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its processors' name.
    pub processor: String,
    /// How many it has.
    pub processors: usize,
    /// Its memory.
    pub memory_mib: u64,
    /// Its kernel.
    pub kernel: String,
    /// Its operating system.
    pub system: String,
    /// The file system of the laboratory's directory.
    pub file_system: String,
}

impl Machine {
    /// This machine. `directory`: where the servers' files are.
    pub fn this(directory: &Path) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_matches(['=', ':', '"', ' ', '\t']).to_owned()).unwrap_or_default()
        };
        Machine {
            processor: value(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: machine_memory_mib(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: value(&read("/etc/os-release"), "PRETTY_NAME"),
            file_system: file_system_of(directory, &read("/proc/mounts")).unwrap_or_default(),
        }
    }
}

/// The type of the file system that a directory is on: the mount with the longest path before it.
fn file_system_of(directory: &Path, mounts: &str) -> Option<String> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mount = |line: &str| {
        let mut fields = line.split(' ');
        let (place, kind) = (fields.nth(1)?.to_owned(), fields.next()?.to_owned());
        directory.starts_with(&place).then_some((place, kind))
    };
    // Of two mounts at one place, the later one covers the earlier.
    mounts.lines().filter_map(mount).max_by_key(|(place, _)| place.len()).map(|(_, kind)| kind)
}

/// How long a fixed computation takes now, in milliseconds. A virtual machine's processors may be shared: two results are comparable only if
/// this was about the same.
pub fn calibrate_milliseconds() -> f64 {
    const ROUNDS: u64 = 20_000_000;
    let begun = Instant::now();
    let mut number = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..ROUNDS {
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(round);
    }
    std::hint::black_box(number);
    begun.elapsed().as_secs_f64() * 1e3
}

/// How long a fixed number of small writes takes now in `directory`, each of which waits until it is on disk, in milliseconds.
pub fn flush_milliseconds(directory: &Path) -> f64 {
    const WRITES: u64 = 32;
    let write = || -> std::io::Result<()> {
        let file = tempfile::tempfile_in(directory)?;
        for number in 0..WRITES {
            file.write_at(&[0x5a; 4096], number * 4096)?;
            file.sync_data()?;
        }
        Ok(())
    };
    let begun = Instant::now();
    // A disk that cannot be written to is told by what is measured.
    let _is_told_there = write();
    begun.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_read_from_the_kernel() {
        let machine = Machine::this(Path::new("/proc"));
        assert!(machine.processors > 0 && machine.memory_mib > 0 && !machine.kernel.is_empty(), "{machine:?}");
        assert_eq!(machine.file_system, "proc");
    }

    #[test]
    fn file_system_is_that_of_the_nearest_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(file_system_of(Path::new("/nowhere/at/all"), mounts).as_deref(), Some("ext4"));
        assert_eq!(file_system_of(Path::new("/"), mounts).as_deref(), Some("ext4"));
        assert_eq!(file_system_of(Path::new("/"), ""), None);
    }
}
