//! Long transactions among short ones: what idles behind them. The timelines are drawn from what readers of the replica saw.
//!
//! Each transaction of the load begins with a row of its own in a table of markers. On the replica, a reader that sees uncommitted rows sees the
//! marker once the transaction has begun (B), and one that sees only committed rows sees it once it has committed (C).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use spate_page::{Bar, Lane};

use super::blocks::Block;
use super::driver::{Bench, Experiment, Stage};
use super::facts;
use super::on_course::{limit, measured};
use super::plan::{Setting, Size, labels};
use super::result::{ExperimentResult, Labels, Measured, Span};
use super::selection::Selection;
use crate::Result;
use crate::backlog::{Backlog, BacklogPlan};
use crate::binlog_format::Format;
use crate::contender::Contender;
use crate::course::{Conditions, Course};
use crate::dataset::DataSet;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::threads::{self, Stop};
use crate::vendor::Vendor;
use crate::workload::{Shape, Workload};

pub(super) const ABOUT: &str = "A source commits short transactions in four sessions, and now and then a long one that changes as many rows as hundreds of them. A replica applies what it has received. Drawn is, for each transaction, from the contender's start on, \
    the time from its first row (seen by a reader of uncommitted data) to its commit (seen by a reader of committed data). Native replication that keeps the order lets \
    workers wait behind a long transaction; Spate's delegated commit lets an applier go on while what it has executed waits for its turn; its batches commit everything together.";

/// Readers look this often.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const MARKERS: &str = "bench1.markers";

/// The load: long transactions, short ones after each, and the rows that a long one changes.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    rounds: u32,
    short_in_round: u32,
    long_rows: u64,
}

fn rounds(size: Size) -> Rounds {
    let (rounds, short_in_round, long_rows) = size.of((2, 10, 20_000), (3, 20, 100_000), (5, 40, 1_000_000));
    Rounds { rounds, short_in_round, long_rows }
}

fn shape(size: Size) -> Shape {
    let rows = rounds(size).long_rows;
    Shape::new(Workload::Cached, Some(2), Some(rows), Some(size.of(64, 512, 8_192))).with_schemas(1)
}

fn contenders(vendor: Vendor) -> Vec<&'static str> {
    let mut contenders = match vendor {
        Vendor::MariaDb => {
            vec!["native:2:optimistic", "native:4:optimistic", "native:2:conservative", "native:4:conservative"]
        }
        Vendor::MySql => vec!["native:2:order", "native:4:order"],
    };
    contenders.extend([
        "spate:consistency=transaction,appliers=2",
        "spate:consistency=transaction,appliers=4",
        "spate:batch-transactions=1000",
    ]);
    contenders
}

pub(super) struct LongTransactions;

impl Experiment for LongTransactions {
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting> {
        let vendor = bench.binaries.vendor();
        let cells = contenders(vendor).into_iter().map(|name| labels([("contender", name.to_owned())]));
        let cells: Vec<Labels> = cells.collect();
        let (shape, rounds) = (shape(bench.size), rounds(bench.size));
        let load = format!(
            "{} long transactions of {} updated rows, {} short ones after each begin",
            rounds.rounds, rounds.long_rows, rounds.short_in_round
        );
        vec![Setting {
            name: "long among short".to_owned(),
            facts: facts::of(vendor, &shape, &load, &cells),
            cells,
            disk_bytes: 3 * shape.server_bytes() + bench.size.of(1 << 28, 2 << 30, 50 << 30),
        }]
    }

    fn open<'a>(&self, bench: Bench<'a>, _setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>> {
        let (shape, rounds) = (shape(bench.size), rounds(bench.size));
        let step = bench.screen.spinner("the data set");
        let dataset = DataSet::open(bench.home, bench.binaries, &shape)?;
        step.finish_and_clear();
        let plan = BacklogPlan { shape, format: Format::Row, seconds: 0, rate: None, transactions: None, reuse: false };
        let write = |source: &Sandbox| write(source, rounds);
        let backlog =
            Backlog::written_by(bench.binaries, &dataset, &plan, &directory.join("source"), &bench.screen, &write)?;
        let course = Course::over(bench.binaries, shape, dataset, backlog, bench.screen);
        Ok(Box::new(Timelines { course, limit: limit(bench.size) }))
    }
}

/// Sessions that commit short transactions at the same time, so that some share a commit group.
const SHORT_SESSIONS: u32 = 4;

/// Writes the load: a long transaction is open while the short ones of its round commit, and commits among them. Each has a marker, which is its
/// first row; the markers are numbered by the order of the beginnings.
fn write(source: &Sandbox, rounds: Rounds) -> Result<()> {
    let mut long = source.connect()?;
    long.run(&format!("CREATE TABLE {MARKERS} (id INT PRIMARY KEY, is_long BOOLEAN NOT NULL) ENGINE=InnoDB"))?;
    let mut sessions = (0..SHORT_SESSIONS).map(|_| source.connect()).collect::<Result<Vec<Session>>>()?;
    let (last_marker, begun_shorts) = (AtomicU32::new(0), AtomicU32::new(0));
    let marker = |session: &mut Session, is_long: bool| {
        let id = last_marker.fetch_add(1, Ordering::Relaxed) + 1;
        session.run(&format!("INSERT INTO {MARKERS} VALUES ({id}, {is_long})"))
    };
    let short = |session: &mut Session, number: u32| -> Result<()> {
        session.run("BEGIN")?;
        marker(session, false)?;
        // No two change the same row.
        let row = 1 + u64::from(number) * 7 % rounds.long_rows;
        session.run(&format!("UPDATE bench1.sbtest2 SET k = k + 1 WHERE id = {row}"))?;
        session.run("COMMIT")
    };
    for round in 1..=rounds.rounds {
        let end = round * rounds.short_in_round;
        long.run("BEGIN")?;
        marker(&mut long, true)?;
        long.run(&format!("UPDATE bench1.sbtest1 SET k = k + 1 WHERE id <= {}", rounds.long_rows))?;
        let next = || {
            let taken = begun_shorts
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| (number < end).then_some(number + 1));
            taken.ok()
        };
        thread::scope(|scope| {
            let all = sessions.iter_mut().map(|session| {
                scope.spawn(|| {
                    while let Some(number) = next() {
                        short(session, number)?;
                    }
                    Ok(())
                })
            });
            let all: Vec<thread::ScopedJoinHandle<'_, Result<()>>> = all.collect();
            while begun_shorts.load(Ordering::Relaxed) + rounds.short_in_round * 3 / 4 < end {
                if all.iter().all(|session| session.is_finished()) {
                    break;
                }
                thread::sleep(LOOK_EVERY);
            }
            let committed = long.run("COMMIT");
            threads::all_ended(all.into_iter().map(thread::ScopedJoinHandle::join)).and(committed)
        })?;
    }
    Ok(())
}

struct Timelines<'a> {
    course: Course<'a>,
    limit: Duration,
}

impl Stage for Timelines<'_> {
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
        let text = &cell["contender"];
        let contender = text.parse::<Contender>()?.on(self.course.binaries().vendor())?;
        let conditions = Conditions::usual(self.limit);
        let place = directory.join("replica");
        let replica = self.course.fresh_replica(&conditions, &place)?;
        let watch = Watch::start(&replica)?;
        let result = self.course.catch_up(&conditions, &contender, text, &replica, &place, None)?;
        let seen = watch.stop();
        let mut measured = measured(result);
        if measured.failure.is_some() {
            return Ok(measured);
        }
        if seen.committed.is_empty() {
            measured.failure = Some("no reader of the replica saw a transaction".to_owned());
            return Ok(measured);
        }
        let is_long: BTreeMap<u32, bool> = replica
            .connect()?
            .rows::<(u32, bool)>(&format!("SELECT id, is_long FROM {MARKERS}"))?
            .into_iter()
            .collect();
        // The clock has stopped when the last one was there.
        let started = seen.committed.values().copied().fold(0.0, f64::max)
            - measured.metrics.get("seconds").copied().unwrap_or_default();
        measured.spans = spans(&seen, started, &is_long);
        let idle = measured.spans.iter().filter(|span| span.lane.starts_with("short"));
        let shorts: Vec<&Span> = idle.collect();
        let mean = |value: fn(&Span) -> f64| {
            1e3 * shorts.iter().map(|span| value(span)).sum::<f64>() / shorts.len().max(1) as f64
        };
        let (open, visible) = (mean(|span| span.end - span.begin), mean(|span| span.end));
        measured.metric("short_open_mean_ms", open);
        measured.metric("short_visible_mean_ms", visible);
        Ok(measured)
    }
}

/// When each marker was first seen, in seconds since the readers began.
#[derive(Debug, Default)]
struct Seen {
    begun: BTreeMap<u32, f64>,
    committed: BTreeMap<u32, f64>,
}

/// Two readers of the replica.
struct Watch {
    over: Stop,
    uncommitted: JoinHandle<BTreeMap<u32, f64>>,
    committed: JoinHandle<BTreeMap<u32, f64>>,
}

impl Watch {
    fn start(replica: &Sandbox) -> Result<Watch> {
        let over = Stop::default();
        let begun = Instant::now();
        let reader = |level: &str| -> Result<JoinHandle<BTreeMap<u32, f64>>> {
            let mut session = replica.connect()?;
            session.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
            let over = over.stopping();
            Ok(thread::spawn(move || read(&mut session, begun, &over)))
        };
        let (uncommitted, committed) = (reader("READ UNCOMMITTED")?, reader("READ COMMITTED")?);
        Ok(Watch { over, uncommitted, committed })
    }

    /// The readers look once more, and say what they have seen.
    fn stop(self) -> Seen {
        self.over.set();
        Seen { begun: threads::ended(self.uncommitted.join()), committed: threads::ended(self.committed.join()) }
    }
}

/// Until the table has come, nothing is seen.
fn read(session: &mut Session, begun: Instant, over: &AtomicBool) -> BTreeMap<u32, f64> {
    let mut seen = BTreeMap::new();
    loop {
        let is_last = over.load(Ordering::Acquire);
        let ids = session.rows::<u32>(&format!("SELECT id FROM {MARKERS}")).unwrap_or_default();
        let now = begun.elapsed().as_secs_f64();
        for id in ids {
            seen.entry(id).or_insert(now);
        }
        if is_last {
            return seen;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A bar for each transaction, from the moment on at which the contender `started`. Transactions that are open at the same time are in different lanes: the
/// first lane that is free.
fn spans(seen: &Seen, started: f64, is_long: &BTreeMap<u32, bool>) -> Vec<Span> {
    let bars = seen.committed.iter().map(|(id, committed)| {
        // A marker that no look saw uncommitted was committed within the time between two looks.
        let begun = seen.begun.get(id).copied().unwrap_or(*committed).min(*committed);
        ((begun - started).max(0.0), (committed - started).max(0.0), *id)
    });
    let mut bars: Vec<(f64, f64, u32)> = bars.collect();
    bars.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    let mut lanes: Vec<f64> = Vec::new();
    let mut spans = Vec::new();
    for (begin, end, id) in bars {
        let free = lanes.iter().position(|busy_until| *busy_until <= begin);
        let lane = free.unwrap_or(lanes.len());
        if free.is_none() {
            lanes.push(0.0);
        }
        lanes[lane] = end.max(begin + f64::EPSILON);
        let kind = if is_long.get(&id).copied().unwrap_or_default() { "long" } else { "short" };
        spans.push(Span { lane: format!("{kind} {}", lane + 1), name: format!("{kind} #{id}"), begin, end });
    }
    spans
}

pub(super) fn blocks(result: &ExperimentResult) -> Vec<Block> {
    let all = Selection::of(result);
    let rows = all.values_of("contender").into_iter().map(|contender| {
        let own = all.with("contender", contender);
        vec![
            contender.to_owned(),
            own.shown("seconds", |seconds| format!("{seconds:.2}")),
            own.shown("short_visible_mean_ms", |milliseconds| format!("{milliseconds:.1}")),
            own.shown("short_open_mean_ms", |milliseconds| format!("{milliseconds:.1}")),
        ]
    });
    let header = [
        "contender",
        "seconds",
        "short ones are visible so long after the start, ms (mean)",
        "short ones are open for, ms (mean)",
    ];
    let mut blocks = vec![Block::table("Long transactions among short ones", &header, rows.collect())];
    for run in
        all.sorted_by("contender").runs().iter().filter(|run| run.repetition == 1 && !run.measured.spans.is_empty())
    {
        blocks.push(Block::Timeline {
            title: format!("{}: from the first row to the commit", run.label("contender")),
            lanes: lanes(&run.measured.spans),
        });
    }
    blocks
}

/// Long and short transactions that were open beside each other share a lane's number.
fn lanes(spans: &[Span]) -> Vec<Lane> {
    let mut lanes: BTreeMap<u32, Vec<Bar>> = BTreeMap::new();
    for span in spans {
        let number = span.lane.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        let kind = usize::from(span.name.starts_with("long"));
        let bar = Bar { begin: span.begin, end: span.end, name: span.name.clone(), kind };
        lanes.entry(number).or_default().push(bar);
    }
    lanes.into_iter().map(|(number, bars)| Lane { name: format!("open {number}"), bars }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_that_overlap_are_in_different_lanes() {
        let seen = Seen {
            begun: BTreeMap::from([(1, 10.0), (2, 10.5), (3, 12.0)]),
            committed: BTreeMap::from([(1, 11.0), (2, 11.0), (3, 12.5), (4, 13.0)]),
        };
        let spans = spans(&seen, 9.5, &BTreeMap::from([(1, true)]));
        let told: Vec<(&str, &str, f64, f64)> =
            spans.iter().map(|span| (span.lane.as_str(), span.name.as_str(), span.begin, span.end)).collect();
        assert_eq!(
            told,
            [
                ("long 1", "long #1", 0.5, 1.5),
                ("short 2", "short #2", 1.0, 1.5),
                ("short 1", "short #3", 2.5, 3.0),
                ("short 1", "short #4", 3.5, 3.5),
            ]
        );
        let lanes = lanes(&spans);
        assert_eq!(lanes.iter().map(|lane| lane.bars.len()).collect::<Vec<_>>(), [3, 1]);
    }
}
