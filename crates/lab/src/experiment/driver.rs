//! Runs an experiment: opens each setting, measures its cells, keeps each run, and goes on after an interruption.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::HumanDuration;

use super::machine::{ProcessorTime, calibrate_milliseconds, flush_milliseconds, message_milliseconds};
use super::plan::{Compared, Setting, Size, Task, tasks};
use super::result::{Labels, Measured, Run, values};
use super::steadiness::Steadiness;
use super::store::Store;
use crate::home::{self, LabHome};
use crate::screen::{Screen, megabytes};
use crate::spate_program;
use crate::version::ServerBinaries;
use crate::{Error, Result};

/// The name of the metric that tells how fast the machine's processors were.
pub const CALIBRATION: &str = "machine_calibration_ms";
/// The name of the metric that tells how fast they woke each other.
pub const MESSAGE_CALIBRATION: &str = "message_calibration_ms";
/// The name of the metric that tells how fast its disk was.
pub const DISK_CALIBRATION: &str = "disk_calibration_ms";
/// The name of the metric that tells how much of the processors' time others had.
const STOLEN: &str = "machine_stolen_percent";
/// A computation that takes so many times as long as usual is slow; …
const SLOW: f64 = 1.25;
/// … so are messages, whose time is either about the same or half as long again; …
const SLOW_MESSAGES: f64 = 1.15;
/// … writes, which vary more, are if they take so many times as long.
const SLOW_DISK: f64 = 2.0;

/// What tells how fast the machine is, by the names of their metrics.
type Yardsticks<'a> = [(&'static str, Steadiness<'a>); 3];

/// What an experiment needs to measure.
#[derive(Debug, Clone, Copy)]
pub struct Bench<'a> {
    /// The laboratory's directory.
    pub home: &'a LabHome,
    /// The server.
    pub binaries: &'a ServerBinaries,
    /// How large it is.
    pub size: Size,
    /// For people.
    pub screen: Screen,
}

/// An experiment: what it measures, and how. What its report shows is in [`super::reports`].
pub trait Experiment {
    /// Its settings.
    fn settings(&self, bench: &Bench<'_>) -> Vec<Setting>;

    /// Whether its settings are compared with each other.
    fn compared(&self) -> Compared {
        Compared::Cells
    }

    /// Makes what is needed to measure the cells of a setting: data, load, servers.
    ///
    /// # Errors
    /// Those of the servers and programs.
    fn open<'a>(&self, bench: Bench<'a>, setting: &Setting, directory: &Path) -> Result<Box<dyn Stage + 'a>>;
}

/// A setting that is ready.
pub trait Stage {
    /// Measures a cell. Files go to `directory`, which is new and is removed afterwards.
    ///
    /// # Errors
    /// Those of the servers and programs. A contender that fails is part of the result.
    fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured>;
}

/// Measures what `store` does not have yet, which keeps each run.
///
/// # Errors
/// [`Error::DiskTooSmall`] before anything is done; those of the experiment.
pub fn run(experiment: &dyn Experiment, bench: Bench<'_>, store: &mut Store, directory: &Path) -> Result<()> {
    let looks = |name: &str| values(store.runs(), name);
    // A tiny experiment is over in minutes.
    let patience = Duration::from_secs(bench.size.of(30, 300, 300));
    let messages = message_milliseconds;
    let flushes = || flush_milliseconds(directory);
    let machine = [
        (CALIBRATION, Steadiness::new(calibrate_milliseconds, SLOW, patience, looks(CALIBRATION))),
        (MESSAGE_CALIBRATION, Steadiness::new(messages, SLOW_MESSAGES, patience, looks(MESSAGE_CALIBRATION))),
        (DISK_CALIBRATION, Steadiness::new(flushes, SLOW_DISK, patience, looks(DISK_CALIBRATION))),
    ];
    let built = store.header().spate_version.clone();
    // Who builds the program while it is measured has two in one result.
    let is_same = || match spate_program::version()? {
        found if found == built => Ok(()),
        found => Err(Error::ProgramReplaced { was: built.clone(), is: found }),
    };
    run_on(experiment, bench, store, directory, (machine, &is_same))
}

fn run_on(
    experiment: &dyn Experiment,
    bench: Bench<'_>,
    store: &mut Store,
    directory: &Path,
    (mut machine, is_same_program): (Yardsticks<'_>, &dyn Fn() -> Result<()>),
) -> Result<()> {
    let settings = experiment.settings(&bench);
    let disk = settings.iter().map(|setting| setting.disk_bytes).max().unwrap_or_default();
    home::need_disk(directory, disk)?;
    let header = store.header().clone();
    let compared = experiment.compared();
    let all = tasks(&settings, compared, header.repetitions, header.seed);
    let open: Vec<&Task> = all.iter().filter(|task| !store.has(task, &settings[task.setting].name)).collect();
    let (done, screen) = (all.len() - open.len(), bench.screen);
    screen.note(&format!("{} measurements; {} of disk at most", all.len(), megabytes(disk)));
    if done > 0 {
        screen.note(&format!("{done} of them have been made before the interruption; --fresh forgets them"));
    }
    for path in store.damaged() {
        screen.note(&format!("{} cannot be read: this measurement is made again", path.display()));
    }
    let mut pace = Pace::new(open.len());
    let mut in_row = 0;
    let is_made_once = |one: &&Task, other: &&Task| {
        one.setting == other.setting && (compared == Compared::Cells || one.repetition == other.repetition)
    };
    for of_setting in open.chunk_by(is_made_once) {
        let Some(setting) = of_setting.first().and_then(|task| settings.get(task.setting)) else { continue };
        let setting_directory = directory.join("setting");
        screen.note(&format!("== {}", setting.name));
        let mut stage = None;
        for task in of_setting {
            is_same_program()?;
            let ready = stage.take().map_or_else(|| experiment.open(bench, setting, &setting_directory), Ok);
            let cell_directory = directory.join(format!("run-{}", task.order));
            home::create_private_directory(&cell_directory)?;
            home::need_disk(directory, FREE_MIN_BYTES)?;
            let measured = ready.and_then(|mut ready| {
                let came = measure_undisturbed(
                    &mut *ready,
                    (&task.labels, &cell_directory),
                    (&mut machine, &mut ProcessorTime::now),
                    &screen,
                )?;
                Ok((came, ready))
            });
            let came = match measured {
                Ok((came, ready)) => {
                    (stage, in_row) = (Some(ready), 0);
                    if came.failure.is_some() {
                        home::need_disk(directory, FREE_MIN_BYTES)?;
                    }
                    came
                }
                // What cannot be measured is a result too. The others are measured with what is made for them.
                Err(error) if is_a_result(&error) && in_row + 1 < FAILURES_IN_ROW => {
                    in_row += 1;
                    // A full disk is nobody's fault who is measured.
                    home::need_disk(directory, FREE_MIN_BYTES)?;
                    home::remove_if_there(&setting_directory)?;
                    Measured { failure: Some(error.to_string()), ..Measured::default() }
                }
                Err(error) => return Err(error),
            };
            home::remove_if_there(&cell_directory)?;
            screen.note(&told(task, &settings, &came, &pace.step()));
            store.add(Run {
                setting: setting.name.clone(),
                labels: task.labels.clone(),
                repetition: task.repetition,
                order: task.order,
                measured: came,
            })?;
        }
        drop(stage);
        home::remove_if_there(&setting_directory)?;
    }
    Ok(())
}

/// What the yardsticks take when none of them is slow. While one is waited for, those looked at before it may have become slow: they are looked at
/// again.
fn settle<'n>(machine: &mut [(&'n str, Steadiness<'_>)], screen: &Screen) -> Vec<(&'n str, f64)> {
    let mut rounds = 0;
    loop {
        rounds += 1;
        let has_waited = Cell::new(false);
        let look = |(name, yardstick): &mut (&'n str, Steadiness<'_>)| {
            let is_slow = || {
                has_waited.set(true);
                screen.note(&format!("the machine is slower than usual ({name}); waiting"));
            };
            (*name, yardstick.settle(is_slow))
        };
        let speeds = machine.iter_mut().map(look).collect();
        if !has_waited.get() || rounds == SETTLE_ROUNDS {
            return speeds;
        }
    }
}

/// Measures a cell once the machine is about as fast as usual, and again if others had the machine meanwhile: if that is always so, the last one counts.
/// So does the first that is wrong.
fn measure_undisturbed(
    stage: &mut dyn Stage,
    (cell, directory): (&Labels, &Path),
    (machine, clock): (&mut [(&str, Steadiness<'_>)], &mut dyn FnMut() -> ProcessorTime),
    screen: &Screen,
) -> Result<Measured> {
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let place = directory.join(attempts.next().unwrap_or(ATTEMPTS).to_string());
        home::create_private_directory(&place)?;
        let speeds = settle(machine, screen);
        let begun = clock();
        let mut came = stage.measure(cell, &place)?;
        let stolen = clock().stolen_percent_since(begun);
        came.metric(STOLEN, stolen);
        speeds.iter().for_each(|(name, milliseconds)| came.metric(name, *milliseconds));
        // What is wrong is told, however rarely it happens.
        if stolen <= STOLEN_MAX_PERCENT || attempts.is_empty() || came.is_wrong() {
            return Ok(came);
        }
        screen.note(&format!("others had the machine for {stolen:.0} % of the time: measured again"));
        home::remove_if_there(&place)?;
    }
}

/// A run is repeated if more than this of the processors' time was stolen.
const STOLEN_MAX_PERCENT: f64 = 8.0;
/// So often is measured at most.
const ATTEMPTS: u32 = 3;
/// So often the machine is waited for before a measurement: each time for a while at most.
const SETTLE_ROUNDS: u32 = 3;

/// With less disk than this, what fails fails for want of it.
const FREE_MIN_BYTES: u64 = 256 << 20;
/// If so many measurements fail one after the other, it is not what is measured that fails.
const FAILURES_IN_ROW: u32 = 5;

/// Whether an error says something about what is measured, and not about the laboratory.
fn is_a_result(error: &Error) -> bool {
    matches!(
        error,
        Error::TimedOut { .. }
            | Error::ReplicationStopped { .. }
            | Error::ProgramFailed { .. }
            | Error::ServerCrashed { .. }
            | Error::ServerNotStarted { .. }
    )
}

/// A run in a line.
fn told(task: &Task, settings: &[Setting], measured: &Measured, pace: &str) -> String {
    let mut line = task.name(settings);
    for name in ["seconds", "transactions_per_second", "lag_p99_ms"] {
        if let Some(value) = measured.metrics.get(name) {
            line += &format!(" · {name} {value:.2}");
        }
    }
    if let Some(failure) = &measured.failure {
        line += &format!(" · FAILED: {}", failure.lines().next().unwrap_or_default());
    }
    for check in measured.checks.iter().filter(|check| !check.holds) {
        line += &format!(" · NOT {}: {}", check.name, check.details);
    }
    format!("{line} · {pace}")
}

/// How many measurements are left, and how long they may take.
#[derive(Debug)]
struct Pace {
    begun: Instant,
    done: usize,
    all: usize,
}

impl Pace {
    fn new(all: usize) -> Pace {
        Pace { begun: Instant::now(), done: 0, all }
    }

    /// One more is done.
    fn step(&mut self) -> String {
        self.done += 1;
        let left = self.all - self.done;
        if left == 0 {
            return "the last".to_owned();
        }
        let each = self.begun.elapsed().as_secs_f64() / self.done as f64;
        let rest = Duration::from_secs_f64((each * left as f64).round());
        format!("{left} left, about {}", HumanDuration(rest))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;
    use std::rc::Rc;

    use super::super::plan::labels;
    use super::super::result::tests::result;
    use super::super::steadiness::tests::{scripted, steady};
    use super::*;

    /// Measures nothing, fails at a chosen measurement, and notes what it was asked for.
    struct Scripted {
        asked: Rc<RefCell<Vec<String>>>,
        fails_at: usize,
        gives_up_at: usize,
        opened: Rc<RefCell<u32>>,
        opens_not_at: u32,
    }

    impl Experiment for Scripted {
        fn settings(&self, _bench: &Bench<'_>) -> Vec<Setting> {
            let cells = |names: [&str; 2]| names.map(|name| labels([("contender", name.to_owned())])).to_vec();
            ["first", "second"]
                .map(|name| {
                    let cells = cells(["native:0", "spate"]);
                    Setting { name: name.to_owned(), cells, disk_bytes: 1, facts: Vec::new() }
                })
                .to_vec()
        }

        fn open<'a>(&self, _bench: Bench<'a>, setting: &Setting, _directory: &Path) -> Result<Box<dyn Stage + 'a>> {
            let (asked, fails_at, gives_up_at) = (Rc::clone(&self.asked), self.fails_at, self.gives_up_at);
            *self.opened.borrow_mut() += 1;
            if *self.opened.borrow() == self.opens_not_at {
                let (directory, why) = (PathBuf::from("b"), "c".to_owned());
                return Err(Error::ServerNotStarted { directory, why, log_tail: String::new() });
            }
            Ok(Box::new(ScriptedStage { setting: setting.name.clone(), asked, fails_at, gives_up_at }))
        }
    }

    struct ScriptedStage {
        setting: String,
        asked: Rc<RefCell<Vec<String>>>,
        fails_at: usize,
        gives_up_at: usize,
    }

    impl Stage for ScriptedStage {
        fn measure(&mut self, cell: &Labels, directory: &Path) -> Result<Measured> {
            assert!(directory.is_dir());
            if self.asked.borrow().len() == self.fails_at {
                return Err(Error::UnexpectedResult { server: "b".into(), statement: "c".into() });
            }
            self.asked.borrow_mut().push(format!("{} {}", self.setting, cell["contender"]));
            if self.asked.borrow().len() == self.gives_up_at {
                let (what, advice) = ("the load".to_owned(), "wait".to_owned());
                return Err(Error::TimedOut { what, limit: Duration::from_secs(1), advice });
            }
            Ok(Measured { metrics: [("seconds".to_owned(), 1.0)].into(), ..Measured::default() })
        }
    }

    #[test]
    fn a_yardstick_that_slows_down_while_another_is_waited_for_is_waited_for() {
        let computation = scripted(vec![50.0, 50.0, 50.0, 50.0, 90.0, 52.0]);
        let disk = scripted(vec![50.0, 50.0, 50.0, 90.0, 51.0]);
        let mut machine = [(CALIBRATION, computation), (DISK_CALIBRATION, disk)];
        for expected in [50.0, 50.0, 50.0] {
            assert_eq!(settle(&mut machine, &Screen::default())[0], (CALIBRATION, expected));
        }
        assert_eq!(settle(&mut machine, &Screen::default()), [(CALIBRATION, 52.0), (DISK_CALIBRATION, 51.0)]);
    }

    #[test]
    fn what_others_disturb_is_measured_again() {
        let measured = |stolen: &[u64]| {
            let directory = tempfile::tempdir().unwrap();
            let asked = Rc::new(RefCell::new(Vec::new()));
            let (fails_at, gives_up_at) = (usize::MAX, usize::MAX);
            let mut stage =
                ScriptedStage { setting: "first".to_owned(), asked: Rc::clone(&asked), fails_at, gives_up_at };
            let (mut all, mut sum, mut calls) = (0, 0, 0);
            let mut clock = || {
                if calls % 2 == 1 {
                    (all, sum) = (all + 1_000, sum + stolen[calls / 2]);
                }
                calls += 1;
                ProcessorTime::parse(&format!("cpu  {} 0 0 0 0 0 0 {sum} 0 0", all - sum)).unwrap()
            };
            let mut machine = [(CALIBRATION, steady())];
            let cell = labels([("contender", "spate".to_owned())]);
            let place = (&cell, directory.path());
            let came = measure_undisturbed(&mut stage, place, (&mut machine, &mut clock), &Screen::default()).unwrap();
            assert!(came.metrics.contains_key(CALIBRATION));
            let times = asked.borrow().len();
            (times, came.metrics[STOLEN])
        };
        assert_eq!(measured(&[20]), (1, 2.0));
        assert_eq!(measured(&[200, 0]), (2, 0.0));
        assert_eq!(measured(&[200, 150, 300, 0]), (3, 30.0));
    }

    #[test]
    fn what_is_wrong_is_told_even_if_others_disturbed_it() {
        struct Differing(u32);
        impl Stage for Differing {
            fn measure(&mut self, _cell: &Labels, _directory: &Path) -> Result<Measured> {
                let mut measured = Measured::default();
                let different = ["a.b".to_owned()];
                measured.check_tables(if self.0 == 0 { &different } else { &[] });
                self.0 += 1;
                Ok(measured)
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let mut stage = Differing(0);
        let mut stolen = 0;
        let mut clock = || {
            stolen += 100;
            ProcessorTime::parse(&format!("cpu  0 0 0 0 0 0 0 {stolen} 0 0")).unwrap()
        };
        let place = (&labels([]), directory.path());
        let came = measure_undisturbed(&mut stage, place, (&mut [], &mut clock), &Screen::default()).unwrap();
        assert!(!came.is_sound() && stage.0 == 1);
    }

    #[test]
    fn interrupted_experiment_measures_each_cell_once() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        // No server is started.
        let binaries = ServerBinaries::for_tests();
        let bench = Bench { home: &home, binaries: &binaries, size: Size::Tiny, screen: Screen::default() };
        let (asked, opened) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(0)));
        let header = super::super::result::Header { repetitions: 2, ..result(&[]).header };
        let place = root.path().join("kept");
        let run_once = |fails_at: usize, is_same: &dyn Fn() -> Result<()>| {
            let (asked, opened) = (Rc::clone(&asked), Rc::clone(&opened));
            let experiment = Scripted { asked, fails_at, gives_up_at: 6, opened, opens_not_at: 3 };
            let mut store = Store::open(place.clone(), header.clone()).unwrap();
            let work = home.work().unwrap();
            let came = run_on(
                &experiment,
                bench,
                &mut store,
                work.path(),
                ([CALIBRATION, MESSAGE_CALIBRATION, DISK_CALIBRATION].map(|name| (name, steady())), is_same),
            );
            (came, store.result(true))
        };
        let replaced = || Err(Error::ProgramReplaced { was: "a".to_owned(), is: "b".to_owned() });
        let (refused, kept) = run_once(usize::MAX, &replaced);
        assert!(refused.unwrap_err().to_string().contains("it was a, and is b") && kept.runs.is_empty());
        let (interrupted, kept) = run_once(3, &|| Ok(()));
        assert!(interrupted.is_err());
        assert_eq!(kept.runs.len(), 3, "what was measured is kept");
        let (came, finished) = run_once(usize::MAX, &|| Ok(()));
        came.unwrap();
        assert_eq!(finished.runs.iter().map(|run| run.order).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
        assert_eq!(asked.borrow().len(), 7);
        // Each setting once, the first again after the interruption, the second again after it did not open, and after it gave up.
        assert_eq!(*opened.borrow(), 5);
        let failed: Vec<u32> =
            finished.runs.iter().filter(|run| run.measured.failure.is_some()).map(|run| run.order).collect();
        assert_eq!(failed, [5, 7]);
        let is_calibrated =
            |run: &Run| run.measured.failure.is_some() || run.measured.metrics.contains_key(CALIBRATION);
        assert!(finished.runs.iter().all(is_calibrated));
    }
}
