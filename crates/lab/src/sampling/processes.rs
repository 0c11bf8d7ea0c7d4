//! Processor time and memory of the servers and of the programs that the laboratory runs, by process and by thread.
//! Source of the formats: proc_pid_stat(5), proc_pid_statm(5).

use std::collections::BTreeMap;
use std::fs;

use super::Look;
use super::series::Recorder;
use crate::process::ProcessIdentity;

pub(super) struct Processes {
    /// Those whose role is known.
    named: Vec<(String, ProcessIdentity)>,
    own: u32,
    ticks_per_second: f64,
    page_bytes: f64,
}

/// What a `stat` file says.
#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    parent: u32,
    ticks: u64,
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
        recorder.counter(&format!("{name} processor"), "cores", ticks as f64 / self.ticks_per_second);
        let pages = fs::read_to_string(format!("/proc/{id}/statm")).ok();
        let resident = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok());
        if let Some(pages) = resident {
            recorder.gauge(&format!("{name} memory"), "MiB", pages * self.page_bytes / f64::from(1 << 20));
        }
    }

    /// Threads of one name count as one.
    fn threads(&self, id: u32, name: &str, recorder: &mut Recorder) {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for thread in numbers_in(&format!("/proc/{id}/task")) {
            if let Some(stat) = read_stat(&format!("/proc/{id}/task/{thread}/stat")) {
                *by_name.entry(stat.name).or_default() += stat.ticks;
            }
        }
        for (thread, ticks) in by_name {
            let name = format!("{name} thread {thread} processor");
            recorder.counter(&name, "cores", ticks as f64 / self.ticks_per_second);
        }
    }
}

impl Look for Processes {
    fn look(&mut self, recorder: &mut Recorder) {
        let mut others: BTreeMap<String, u64> = BTreeMap::new();
        for (name, process) in self.named.iter().filter(|(_, process)| process.is_running()) {
            if let Some(stat) = read_stat(&format!("/proc/{}/stat", process.id)) {
                self.process(process.id, name, stat.ticks, recorder);
                self.threads(process.id, name, recorder);
            }
        }
        for id in numbers_in("/proc").filter(|id| self.named.iter().all(|(_, process)| process.id != *id)) {
            let Some(stat) = read_stat(&format!("/proc/{id}/stat")) else { continue };
            match &*stat.name {
                "spate" if stat.parent == self.own => {
                    self.process(id, "spate", stat.ticks, recorder);
                    self.threads(id, "spate", recorder);
                }
                // A load is several processes; they count as one.
                "sysbench" if stat.parent == self.own => *others.entry(stat.name).or_default() += stat.ticks,
                _ if id == self.own => *others.entry("laboratory".to_owned()).or_default() += stat.ticks,
                _ => {}
            }
        }
        for (name, ticks) in others {
            recorder.counter(&format!("{name} processor"), "cores", ticks as f64 / self.ticks_per_second);
        }
    }
}

/// The entries of a directory whose names are numbers.
fn numbers_in(directory: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn read_stat(path: &str) -> Option<Stat> {
    parse_stat(&fs::read_to_string(path).ok()?)
}

/// The name is in parentheses and may contain any character: fields are counted from the last `)`.
fn parse_stat(text: &str) -> Option<Stat> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: text.get(open + 1..close)?.to_owned(),
        parent: u32::try_from(number(4)?).ok()?,
        ticks: number(14)? + number(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_gives_name_parent_and_time() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 100 0 0 0 70 30 0 0 20 0 1 0 987654 1000 100 1";
        assert_eq!(parse_stat(text), Some(Stat { name: "a) b (c".to_owned(), parent: 7, ticks: 100 }));
        for damaged in ["", "42 (x", "42 )x( S 1", "42 (x) S -1 2 3"] {
            assert_eq!(parse_stat(damaged), None, "{damaged}");
        }
    }
}
