//! The runs of an experiment on disk, so that one that was interrupted goes on where it stopped.
//!
//! ```text
//! experiments/<experiment>-<size>-<server build>/header.json    what is measured
//!                                                runs/<order>.json   a run each, written once it has ended
//! ```
//! A header tells whether runs belong to what is measured now: the same server, program, machine, seed and number of repetitions.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::plan::Task;
use super::result::{ExperimentResult, Header, RESULT_VERSION, Run, now};
use crate::home::{self, create_private_directory};
use crate::{Error, Result};

/// Where the runs of one experiment are kept.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    /// Held while it is open, so that no two commands measure the same.
    _lock: File,
    header: Header,
    runs: Vec<Run>,
    /// Files of runs that cannot be read.
    damaged: Vec<PathBuf>,
}

impl Store {
    /// Opens the store. Runs that an interrupted experiment left are kept if they belong to `header`, whose beginning is then theirs.
    ///
    /// # Errors
    /// [`Error::OtherRuns`] if they do not belong to it; [`Error::File`], [`Error::State`].
    pub fn open(directory: PathBuf, header: Header) -> Result<Store> {
        let lock = lock(&directory)?;
        let place = directory.join("header.json");
        if !place.exists() {
            return Store::create(directory, header, lock);
        }
        let kept: Header = home::read_state(&place)?;
        if let Some(what) = difference(&kept, &header) {
            return Err(Error::OtherRuns { directory, what });
        }
        let (runs, damaged) = runs_in(&directory)?;
        Ok(Store { directory, _lock: lock, header: kept, runs, damaged })
    }

    /// What has been measured so far, by a store that is open elsewhere.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::State`].
    pub fn kept(directory: &Path) -> Result<ExperimentResult> {
        let (header, (runs, _)) = (home::read_state(&directory.join("header.json"))?, runs_in(directory)?);
        Ok(ExperimentResult { version: RESULT_VERSION, header, ended: now(), complete: false, runs })
    }

    /// Removes what is kept, and begins again.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::State`].
    pub fn fresh(directory: PathBuf, header: Header) -> Result<Store> {
        let lock = lock(&directory)?;
        home::remove_if_there(&directory)?;
        Store::create(directory, header, lock)
    }

    fn create(directory: PathBuf, header: Header, lock: File) -> Result<Store> {
        let runs = directory.join("runs");
        // Without a header, nobody knows what they were.
        home::remove_if_there(&runs)?;
        create_private_directory(&runs)?;
        home::write_state(&directory.join("header.json"), &header)?;
        Ok(Store { directory, _lock: lock, header, runs: Vec::new(), damaged: Vec::new() })
    }

    /// What is measured.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// True if this measurement, in the setting of this name, has been made.
    pub fn has(&self, task: &Task, setting: &str) -> bool {
        self.runs
            .iter()
            .any(|run| (run.repetition, run.setting.as_str(), &run.labels) == (task.repetition, setting, &task.labels))
    }

    /// What has been measured.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Files of runs that cannot be read. They are replaced when the same is measured again.
    pub fn damaged(&self) -> &[PathBuf] {
        &self.damaged
    }

    /// What has been measured, as a result.
    pub fn result(&self, complete: bool) -> ExperimentResult {
        ExperimentResult {
            version: RESULT_VERSION,
            header: self.header.clone(),
            ended: now(),
            complete,
            runs: self.runs.clone(),
        }
    }

    /// Keeps a run.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::State`].
    pub fn add(&mut self, run: Run) -> Result<()> {
        home::write_state(&self.directory.join("runs").join(format!("{:06}.json", run.order)), &run)?;
        self.runs.push(run);
        Ok(())
    }

    /// Removes everything from the disk: the result is elsewhere now.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn finish(self) -> Result<()> {
        fs::remove_dir_all(&self.directory).map_err(Error::file("remove", &self.directory))
    }
}

/// The runs, and the files of those that cannot be read.
fn runs_in(directory: &Path) -> Result<(Vec<Run>, Vec<PathBuf>)> {
    let (mut runs, mut damaged): (Vec<Run>, _) = (Vec::new(), Vec::new());
    let directory = directory.join("runs");
    for entry in fs::read_dir(&directory).map_err(Error::file("list", &directory))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            match home::read_state(&path) {
                Ok(run) => runs.push(run),
                Err(Error::State { .. }) => damaged.push(path),
                Err(error) => return Err(error),
            }
        }
    }
    runs.sort_by_key(|run| run.order);
    Ok((runs, damaged))
}

/// Waits for nobody: another command that measures the same is told.
fn lock(directory: &Path) -> Result<File> {
    // Appended: versions have points.
    let path = PathBuf::from(format!("{}.lock", directory.display()));
    if let Some(parent) = path.parent() {
        create_private_directory(parent)?;
    }
    home::try_lock(&path)?.ok_or_else(|| Error::InUse { what: "this experiment".to_owned() })
}

/// In what two measurements differ that must not be in one result. When they began does not matter, nor what their command was called.
fn difference(kept: &Header, wanted: &Header) -> Option<&'static str> {
    let checks = [
        ("another version of the server", kept.server_version == wanted.server_version),
        ("another build of spate", kept.spate_version == wanted.spate_version),
        ("another build of spate-lab", kept.laboratory_version == wanted.laboratory_version),
        ("another machine", kept.machine.is_same(&wanted.machine)),
        ("another order of the runs (--seed)", kept.seed == wanted.seed),
        ("another number of repetitions", kept.repetitions == wanted.repetitions),
    ];
    checks.into_iter().find(|(_, same)| !same).map(|(what, _)| what)
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::result;
    use super::*;

    #[test]
    fn interrupted_experiment_goes_on_with_its_runs() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("shards-tiny");
        let measured = result(&[("cached", "native:0", 1, 9.0), ("cached", "spate", 1, 1.0)]);
        let mut store = Store::open(place.clone(), measured.header.clone()).unwrap();
        measured.runs.iter().for_each(|run| store.add(run.clone()).unwrap());
        let later = Header { begun: "2027-01-01T00:00:00Z".into(), ..measured.header.clone() };
        let message = Store::open(place.clone(), later.clone()).unwrap_err().to_string();
        assert!(message.contains("another command"), "{message}");
        drop(store);
        let again = Store::open(place.clone(), later).unwrap();
        assert_eq!((again.runs(), again.header()), (measured.runs.as_slice(), &measured.header));
        again.finish().unwrap();
        assert!(!place.exists());
    }

    #[test]
    fn damaged_run_is_measured_again_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("shards-tiny");
        let measured = result(&[("cached", "native:0", 1, 9.0), ("cached", "spate", 1, 1.0)]);
        let mut store = Store::open(place.clone(), measured.header.clone()).unwrap();
        measured.runs.iter().for_each(|run| store.add(run.clone()).unwrap());
        drop(store);
        let second = place.join("runs/000002.json");
        fs::write(&second, b"{\"setting\": \"cac").unwrap();
        let mut again = Store::open(place.clone(), measured.header.clone()).unwrap();
        assert_eq!((again.runs(), again.damaged()), (&measured.runs[..1], &[second][..]));
        again.add(measured.runs[1].clone()).unwrap();
        drop(again);
        assert_eq!(Store::open(place, measured.header).unwrap().runs(), measured.runs);
    }

    #[test]
    fn runs_without_a_header_belong_to_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("shards-tiny");
        let measured = result(&[("cached", "native:0", 1, 9.0)]);
        let mut store = Store::open(place.clone(), measured.header.clone()).unwrap();
        store.add(measured.runs[0].clone()).unwrap();
        drop(store);
        fs::remove_file(place.join("header.json")).unwrap();
        drop(Store::open(place.clone(), measured.header.clone()).unwrap());
        assert!(Store::open(place, measured.header).unwrap().runs().is_empty());
    }

    #[test]
    fn runs_of_another_build_are_not_mixed_in() {
        let directory = tempfile::tempdir().unwrap();
        let header = result(&[]).header;
        let place = directory.path().join("shards-tiny");
        Store::open(place.clone(), header.clone()).unwrap();
        let other = Header { spate_version: "0.2.0".into(), ..header };
        let message = Store::open(place.clone(), other.clone()).unwrap_err().to_string();
        assert!(message.contains("another build of spate") && message.contains("--fresh"), "{message}");
        assert_eq!(Store::fresh(place, other.clone()).unwrap().header(), &other);
    }
}
