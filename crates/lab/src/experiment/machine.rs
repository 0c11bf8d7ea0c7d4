//! The machine on which something was measured, and how fast it is at the moment.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::statistics::median;
use crate::process::processor_ticks;
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
    /// True if they are the same as far as this tells. The kernel takes some of the memory, and not always as much.
    pub(super) fn is_same(&self, other: &Machine) -> bool {
        const MEMORY_TOLERANCE: u64 = 100;
        let memory = self.memory_mib.max(other.memory_mib);
        let is_close = self.memory_mib.abs_diff(other.memory_mib) <= memory / MEMORY_TOLERANCE;
        is_close && *self == Machine { memory_mib: self.memory_mib, ..other.clone() }
    }

    /// For people, in a line.
    pub(super) fn in_words(&self) -> String {
        let Machine { processor, processors, memory_mib, kernel, system, file_system } = self;
        format!("{processors} × {processor}, {memory_mib} MiB, {system}, Linux {kernel}, {file_system}")
    }

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

/// What the processors' time was used for since the machine began, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    all: u64,
    /// What another guest of the same host had instead.
    stolen: u64,
}

impl ProcessorTime {
    /// Until now.
    pub(super) fn now() -> ProcessorTime {
        ProcessorTime::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    pub(super) fn parse(stat: &str) -> Option<ProcessorTime> {
        let ticks = processor_ticks(stat)?;
        let [.., stolen] = ticks;
        Some(ProcessorTime { all: ticks.iter().sum(), stolen })
    }

    /// How much of the time since then was stolen, in percent; of too short a time, nothing.
    pub(super) fn stolen_percent_since(self, then: ProcessorTime) -> f64 {
        const TICKS_MIN: u64 = 100;
        let (all, stolen) = (self.all.saturating_sub(then.all), self.stolen.saturating_sub(then.stolen));
        if all < TICKS_MIN { 0.0 } else { 100.0 * stolen as f64 / all as f64 }
    }
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

/// How long a fixed number of messages between threads takes now, in milliseconds: each wakes a thread on the other of two processors. That is most of what
/// a server does, and what the host of a virtual machine has a part in: it can take half as long again while a computation takes no longer than before.
pub fn message_milliseconds() -> f64 {
    const PAIRS: usize = 8;
    const MESSAGES: usize = 1_000;
    const TIMES: usize = 5;
    let places = two_processors();
    let exchange = |mut stream: UnixStream, place: usize, begins: bool| -> std::io::Result<()> {
        if let Some(places) = places {
            // Wherever it runs, messages are exchanged.
            let _as_it_was = sched_setaffinity(None, &places[place]);
        }
        let mut message = [0; 64];
        for _ in 0..MESSAGES {
            if begins {
                stream.write_all(&message)?;
            }
            stream.read_exact(&mut message)?;
            if !begins {
                stream.write_all(&message)?;
            }
        }
        Ok(())
    };
    let once = |_| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for pair in 0..PAIRS {
                let Ok((one, other)) = UnixStream::pair() else { continue };
                scope.spawn(move || exchange(one, pair % 2, true));
                scope.spawn(move || exchange(other, (pair + 1) % 2, false));
            }
        });
        begun.elapsed().as_secs_f64() * 1e3
    };
    median(&(0..TIMES).map(once).collect::<Vec<f64>>()).unwrap_or_default()
}

/// The first two processors that this program may use, each for itself; `None` if there is only one.
fn two_processors() -> Option<[CpuSet; 2]> {
    let all = sched_getaffinity(None).ok()?;
    let mut each = (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)).map(|processor| {
        let mut one = CpuSet::new();
        one.set(processor);
        one
    });
    Some([each.next()?, each.next()?])
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
    fn machine_is_the_same_with_some_memory_less() {
        let machine = Machine { memory_mib: 24_000, processors: 2, ..Machine::default() };
        assert!(machine.is_same(&Machine { memory_mib: 23_990, ..machine.clone() }));
        assert!(!machine.is_same(&Machine { memory_mib: 20_000, ..machine.clone() }));
        assert!(!machine.is_same(&Machine { processors: 4, ..machine.clone() }));
    }

    #[test]
    fn messages_are_timed_and_this_thread_stays_where_it_may_be() {
        let before = sched_getaffinity(None).unwrap();
        assert!(message_milliseconds() > 1.0);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        if let Some([one, other]) = two_processors() {
            assert!(one != other && one.count() == 1 && other.count() == 1);
        }
    }

    #[test]
    fn stolen_time_is_a_part_of_all() {
        let at = |text: &str| ProcessorTime::parse(text).unwrap();
        let then = at("cpu  100 0 50 800 40 0 5 5 7 0\ncpu0 1 1 1 1 1 1 1 1\n");
        assert_eq!(then, ProcessorTime { all: 1000, stolen: 5 });
        let now = at("cpu  180 0 60 880 50 0 5 25 7 0\n");
        assert!((now.stolen_percent_since(then) - 10.0).abs() < 1e-9);
        assert_eq!(at("cpu  101 0 50 800 40 0 5 15 7 0\n").stolen_percent_since(then), 0.0, "too short");
        assert_eq!(ProcessorTime::parse("cpu  1 2 3\n"), None);
        assert!(ProcessorTime::now().all > 0);
    }

    #[test]
    fn file_system_is_that_of_the_nearest_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(file_system_of(Path::new("/nowhere/at/all"), mounts).as_deref(), Some("ext4"));
        assert_eq!(file_system_of(Path::new("/"), mounts).as_deref(), Some("ext4"));
        assert_eq!(file_system_of(Path::new("/"), ""), None);
    }
}
