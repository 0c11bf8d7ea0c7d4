//! Processor time and memory of the servers and of the programs that the laboratory runs, by process and by thread.
//! Source of the format: proc_pid_statm(5).

use std::collections::BTreeMap;
use std::fs;

use super::Look;
use super::series::Recorder;
use crate::process::{ProcessIdentity, Stat, processor_ticks};

/// Of a process with more threads, each has no look of its own: looking would take more than a hundredth of a processor.
const THREADS_MAX: usize = 128;

/// A thread's name without its number: the kernel's workers of `io_uring` have one each, and come and go.
fn kind_of_thread(name: &str) -> &str {
    let kind = name.trim_end_matches(|character: char| character.is_ascii_digit() || "- ".contains(character));
    if kind.is_empty() { name } else { kind }
}

pub(super) struct Processes {
    /// Those whose role is known.
    named: Vec<(String, ProcessIdentity)>,
    own: u32,
    ticks_per_second: f64,
    page_bytes: f64,
}

impl Processes {
    pub(super) fn new<'a>(named: impl Iterator<Item = (&'a str, ProcessIdentity)>) -> Processes {
        Processes {
            named: named.map(|(name, process)| (name.to_owned(), process)).collect(),
            own: std::process::id(),
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            page_bytes: rustix::param::page_size() as f64,
        }
    }

    fn process(&self, id: u32, name: &str, ticks: u64, recorder: &mut Recorder) {
        recorder.young_counter(&format!("{name} processor"), "cores", ticks as f64 / self.ticks_per_second);
        let pages = fs::read_to_string(format!("/proc/{id}/statm")).ok();
        let resident = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok());
        if let Some(pages) = resident {
            recorder.gauge(&format!("{name} memory"), "MiB", pages * self.page_bytes / f64::from(1 << 20));
        }
    }

    /// Threads of one kind count as one.
    fn threads(&self, id: u32, name: &str, recorder: &mut Recorder) {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        let threads: Vec<u32> = numbers_in(&format!("/proc/{id}/task")).collect();
        if threads.len() > THREADS_MAX {
            return;
        }
        for thread in threads {
            if let Some(stat) = Stat::read(&format!("/proc/{id}/task/{thread}/stat")) {
                *by_name.entry(kind_of_thread(&stat.name).to_owned()).or_default() += stat.cpu_ticks;
            }
        }
        for (thread, ticks) in by_name {
            let name = format!("{name} thread {thread} processor");
            recorder.young_counter(&name, "cores", ticks as f64 / self.ticks_per_second);
        }
    }
}

impl Look for Processes {
    fn look(&mut self, recorder: &mut Recorder) {
        if let Some(ticks) = busy_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default()) {
            recorder.counter("machine processor", "cores", ticks as f64 / self.ticks_per_second);
        }
        let mut others: BTreeMap<String, u64> = BTreeMap::new();
        for (name, process) in self.named.iter().filter(|(_, process)| process.is_running()) {
            if let Some(stat) = Stat::read(&format!("/proc/{}/stat", process.id)) {
                self.process(process.id, name, stat.cpu_ticks, recorder);
                self.threads(process.id, name, recorder);
            }
        }
        for id in numbers_in("/proc").filter(|id| self.named.iter().all(|(_, process)| process.id != *id)) {
            let Some(stat) = Stat::read(&format!("/proc/{id}/stat")) else { continue };
            match &*stat.name {
                "spate" if stat.parent == self.own => {
                    self.process(id, "spate", stat.cpu_ticks, recorder);
                    self.threads(id, "spate", recorder);
                }
                // A load is several processes; they count as one.
                "sysbench" if stat.parent == self.own => *others.entry(stat.name).or_default() += stat.cpu_ticks,
                _ if id == self.own => *others.entry("laboratory".to_owned()).or_default() += stat.cpu_ticks,
                _ => {}
            }
        }
        for (name, ticks) in others {
            recorder.young_counter(&format!("{name} processor"), "cores", ticks as f64 / self.ticks_per_second);
        }
    }
}

/// The time that all processors together did something. What was stolen was not idle, but did nothing here either.
fn busy_ticks(stat: &str) -> Option<u64> {
    let [user, nice, system, _idle, _waiting, interrupts, soft_interrupts, _stolen] = processor_ticks(stat)?;
    Some(user + nice + system + interrupts + soft_interrupts)
}

/// The entries of a directory whose names are numbers.
fn numbers_in(directory: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_that_come_and_go_are_one() {
        for (name, kind) in
            [("iou-wrk-31521", "iou-wrk"), ("applier 12", "applier"), ("mariadbd", "mariadbd"), ("17", "17")]
        {
            assert_eq!(super::kind_of_thread(name), kind);
        }
    }

    #[test]
    fn busy_time_is_without_idle_and_steal() {
        let stat = "cpu  100 20 30 4000 500 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!((super::busy_ticks(stat), super::busy_ticks("cpu x")), (Some(163), None));
    }
}
