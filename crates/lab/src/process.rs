//! Processes, from `/proc`: their identity, whether they run, and their resource usage.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// The identity of a process. The start time tells it from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id.
    pub id: u32,
    /// Its start time, in clock ticks since the machine's boot.
    pub start_ticks: u64,
}

/// The fields of `/proc/<id>/stat` that the laboratory uses. A thread's file has the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) parent: u32,
    pub(crate) cpu_ticks: u64,
    is_zombie: bool,
    start_ticks: u64,
}

impl ProcessIdentity {
    /// The process that has this id now; `None` if there is none.
    pub fn of(id: u32) -> Option<ProcessIdentity> {
        let stat = read_stat(id)?;
        Some(ProcessIdentity { id, start_ticks: stat.start_ticks })
    }

    /// This process itself.
    pub fn own() -> Option<ProcessIdentity> {
        ProcessIdentity::of(std::process::id())
    }

    /// All processes of now.
    pub(crate) fn all() -> impl Iterator<Item = ProcessIdentity> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter_map(ProcessIdentity::of)
    }

    /// Its command line; empty if it has ended, or belongs to somebody else.
    pub(crate) fn arguments(self) -> Vec<String> {
        let text = fs::read(format!("/proc/{}/cmdline", self.id)).unwrap_or_default();
        text.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
    }

    /// True while the process runs. A zombie does not run.
    pub fn is_running(self) -> bool {
        self.stat().is_some_and(|stat| !stat.is_zombie)
    }

    /// Processor time of all its threads so far. Also known for a zombie; `None` once the process has been reaped.
    pub fn cpu_time(self) -> Option<Duration> {
        let ticks = self.stat()?.cpu_ticks;
        Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Peak of its resident memory, in bytes; `None` once it has ended.
    pub fn peak_resident_bytes(self) -> Option<u64> {
        self.stat()?;
        parse_peak_resident(&fs::read_to_string(format!("/proc/{}/status", self.id)).ok()?)
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(self, signal: Signal) {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        if let (true, Some(id)) = (self.is_running(), id) {
            // The process may end between the check and the signal, which is no error.
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// Waits at most `limit` until the process has ended; true if it has.
    pub fn wait_for_end(self, limit: Duration) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(10);
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }

    fn stat(self) -> Option<Stat> {
        read_stat(self.id).filter(|stat| stat.start_ticks == self.start_ticks)
    }
}

fn read_stat(id: u32) -> Option<Stat> {
    Stat::read(&format!("/proc/{id}/stat"))
}

impl Stat {
    /// `None` if the process or thread has ended.
    pub(crate) fn read(path: &str) -> Option<Stat> {
        parse_stat(&fs::read_to_string(path).ok()?)
    }
}

/// Fields are counted from the last `)`, because the program's name before it may contain any character.
/// Source: proc_pid_stat(5): state is field 3, ppid 4, utime 14, stime 15, starttime 22.
fn parse_stat(text: &str) -> Option<Stat> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: text.get(open + 1..close)?.to_owned(),
        parent: u32::try_from(number(4)?).ok()?,
        is_zombie: matches!(fields.first(), Some(&"Z" | &"X")),
        cpu_ticks: number(14)? + number(15)?,
        start_ticks: number(22)?,
    })
}

/// `VmHWM:   123456 kB`.
fn parse_peak_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// What the time of all processors together was used for, in ticks since the machine began, from the text of `/proc/stat`: user, nice, system, idle,
/// waiting for the disk, interrupts and soft interrupts, and what was stolen by other guests of the host. Guests of this machine are within user.
pub(crate) fn processor_ticks(stat: &str) -> Option<[u64; 8]> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    ticks.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn stat_line_with_odd_program_name_keeps_its_fields() {
        let text =
            "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 70 30 0 0 20 0 1 0 987654 1000 100 18446744073709551615";
        let name = "a) b (c".to_owned();
        assert_eq!(
            parse_stat(text),
            Some(Stat { name, parent: 1, is_zombie: false, cpu_ticks: 100, start_ticks: 987654 })
        );
    }

    #[test]
    fn damaged_stat_line_gives_none() {
        for text in [
            "",
            "42 (x",
            "42 (x) S 1 2 3",
            "42 )x( S 1",
            "42 (x) S -1 2 3",
            "42 (x) S a b c d e f g h i j k l m n o p q r s t",
        ] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
    }

    #[test]
    fn peak_memory_is_read_in_bytes() {
        assert_eq!(parse_peak_resident("Name:\tx\nVmPeak:\t9 kB\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_peak_resident("Name:\tx\n"), None);
    }

    #[test]
    fn reused_process_id_is_not_ours() {
        let own = ProcessIdentity::own().unwrap();
        assert!(own.is_running());
        assert!(own.peak_resident_bytes().unwrap() > 0);
        let later = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own };
        assert!(!later.is_running());
        assert_eq!(later.cpu_time(), None);
    }

    #[test]
    fn signalled_child_has_readable_cpu_time_until_reaped() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(!identity.wait_for_end(Duration::from_millis(20)));
        identity.signal(Signal::TERM);
        assert!(identity.wait_for_end(Duration::from_secs(10)));
        assert!(identity.cpu_time().is_some());
        child.wait().unwrap();
        assert_eq!(identity.cpu_time(), None);
    }
}
