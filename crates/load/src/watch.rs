//! Directories that are watched: each file is loaded once nobody has written to it for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, Result};
use crate::input::{self, InputName};
use crate::loader::lock;
use crate::report::Progress;
use crate::run::{Load, LoadOptions};

/// How often directories are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A file that could not be loaded is tried again after so long: its table may be there by then, or its rights.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The report names so many files, the latest ones: a watcher may run for years.
const FILES_REPORTED_MAX: usize = 10_000;

/// What became of a file.
enum Fate {
    /// It was loaded as it was changed then.
    Loaded(SystemTime),
    /// It was not, for this reason; it is tried again when it has changed, and at this time.
    Failed(SystemTime, String, Instant),
}

impl Fate {
    fn is_due(&self, changed: SystemTime) -> bool {
        match self {
            Fate::Loaded(then) => *then != changed,
            Fate::Failed(then, _, again) => *then != changed || Instant::now() >= *again,
        }
    }
}

/// Loads files as they come into directories, until a signal. Of a file that cannot be loaded, `tell` is told; it is tried again.
///
/// # Errors
/// Any that prevents a beginning; later ones are in the report.
pub fn watch(
    options: &LoadOptions,
    directories: &[PathBuf],
    settle: Duration,
    stop: &AtomicBool,
    progress: &Progress,
    tell: &dyn Fn(&str),
) -> Result<crate::Report> {
    let begun = Instant::now();
    let mut watcher = Watcher { load: Load::begin(options, stop, progress)?, settle, stop, files: BTreeMap::new() };
    let mut watched = Ok(());
    while watched.is_ok() && !stop.load(Ordering::Relaxed) {
        watched = watcher.look(directories, tell);
        progress.tell("waiting for files".to_owned());
        std::thread::sleep(LOOK_EVERY);
    }
    let failed = watcher.files.values().filter(|fate| matches!(fate, Fate::Failed(..))).count();
    let failure = match watched {
        Err(error) => Some(error.to_string()),
        Ok(()) if failed > 0 => Some(format!("{failed} files could not be loaded; each was said above")),
        Ok(()) => None,
    };
    Ok(watcher.load.end(begun, failure))
}

struct Watcher<'a> {
    load: Load<'a>,
    settle: Duration,
    stop: &'a AtomicBool,
    /// Those that are there.
    files: BTreeMap<PathBuf, Fate>,
}

impl Watcher<'_> {
    /// Loads what has come.
    fn look(&mut self, directories: &[PathBuf], tell: &dyn Fn(&str)) -> Result<()> {
        let mut there = BTreeSet::new();
        let mut is_any_loaded = false;
        for directory in directories {
            for path in input::files_of(directory)? {
                there.insert(path.clone());
                let Some(changed) = rested(&path, self.settle) else { continue };
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if self.files.get(&path).is_none_or(|fate| fate.is_due(changed)) {
                    is_any_loaded |= self.load_file(path, changed, tell)?;
                }
            }
        }
        self.files.retain(|path, _| there.contains(path));
        let mut report = lock(&self.load.report);
        let surplus = report.files.len().saturating_sub(FILES_REPORTED_MAX);
        report.files.drain(..surplus);
        drop(report);
        if is_any_loaded { self.load.make_indexes() } else { Ok(()) }
    }

    /// True if it is loaded.
    fn load_file(&mut self, path: PathBuf, changed: SystemTime, tell: &dyn Fn(&str)) -> Result<bool> {
        lock(&self.load.shared.tables).forget_all();
        let loaded = InputName::of(&path).and_then(|input| self.load.files(&[input]));
        let fate = match loaded {
            Ok(()) => Fate::Loaded(changed),
            Err(Error::Stopped) if self.stop.load(Ordering::Relaxed) => return Ok(false),
            // Of a table that cannot roll back, nobody knows what it holds: a new run finds it out.
            Err(error) if self.load.shared.is_uncertain.load(Ordering::Acquire) => return Err(error),
            Err(error) if error.is_of_file() || matches!(error, Error::Table { .. }) => {
                let message = error.to_string();
                let is_told = matches!(self.files.get(&path), Some(Fate::Failed(_, told, _)) if *told == message);
                if !is_told {
                    tell(&format!("{message}; the other files are loaded, and this one is tried again"));
                }
                Fate::Failed(changed, message, Instant::now() + RETRY_AFTER)
            }
            Err(error) => return Err(error),
        };
        let is_loaded = matches!(fate, Fate::Loaded(_));
        self.files.insert(path, fate);
        Ok(is_loaded)
    }
}

/// When a file was changed last, if nobody has written to it for so long.
fn rested(path: &Path, settle: Duration) -> Option<SystemTime> {
    let changed = std::fs::metadata(path).ok()?.modified().ok()?;
    // A clock that went back must not keep a file for ever: what lies in the future is as good as old.
    let age = SystemTime::now().duration_since(changed).unwrap_or(settle);
    (age >= settle).then_some(changed)
}
