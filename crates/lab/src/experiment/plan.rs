//! What an experiment will measure: settings, and in each of them cells, which are measured in an order drawn from a seed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::result::{Labels, cell_name};
use crate::random::Random;

/// How large an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Less than five minutes on two processors: whether it works
    Tiny,
    /// Up to some hours on two processors: the shape of the curves
    Small,
    /// The original's sizes
    Paper,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Tiny => "tiny",
            Size::Small => "small",
            Size::Paper => "paper",
        })
    }
}

impl Size {
    /// The value for this size.
    pub fn of<T>(self, tiny: T, small: T, paper: T) -> T {
        match self {
            Size::Tiny => tiny,
            Size::Small => small,
            Size::Paper => paper,
        }
    }
}

/// What is made once, and then measured cell by cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name, unique in the experiment.
    pub name: String,
    /// What is measured in it.
    pub cells: Vec<Labels>,
    /// Disk that it takes at its peak, in bytes.
    pub disk_bytes: u64,
}

/// One measurement that will be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The place of its setting.
    pub setting: usize,
    /// Its cell.
    pub labels: Labels,
    /// From 1.
    pub repetition: u32,
    /// Its place in the whole, from 1.
    pub order: u32,
}

impl Task {
    /// Identifies it within the experiment.
    pub fn name(&self, settings: &[Setting]) -> String {
        let setting = settings.get(self.setting).map_or("", |setting| setting.name.as_str());
        format!("{} #{}", cell_name(setting, &self.labels), self.repetition)
    }
}

/// Labels of a cell.
pub fn labels<const N: usize>(pairs: [(&str, String); N]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// All measurements, setting by setting; within one, each repetition measures all cells in an order of its own, so that what drifts (the
/// machine's speed, the disk's fill) falls on all of them.
pub fn tasks(settings: &[Setting], repetitions: u32, seed: u64) -> Vec<Task> {
    let mut random = Random::new(seed);
    let mut tasks = Vec::new();
    for (place, setting) in settings.iter().enumerate() {
        for repetition in 1..=repetitions {
            let mut cells = setting.cells.clone();
            for last in (1..cells.len()).rev() {
                cells.swap(last, random.below(last + 1));
            }
            for labels in cells {
                tasks.push(Task { setting: place, labels, repetition, order: tasks.len() as u32 + 1 });
            }
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, contenders: usize) -> Setting {
        let cells = (0..contenders).map(|number| labels([("contender", number.to_string())])).collect();
        Setting { name: name.to_owned(), cells, disk_bytes: 0 }
    }

    #[test]
    fn each_cell_is_measured_once_in_each_repetition() {
        let settings = [setting("a", 5), setting("b", 3)];
        let tasks = tasks(&settings, 3, 42);
        assert_eq!(tasks.len(), 3 * 8);
        let mut names: Vec<String> = tasks.iter().map(|task| task.name(&settings)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 3 * 8);
        assert!(
            tasks.windows(2).all(|pair| (pair[0].setting, pair[0].repetition) <= (pair[1].setting, pair[1].repetition))
        );
    }

    #[test]
    fn seed_determines_the_order() {
        let settings = [setting("a", 20)];
        assert_eq!(tasks(&settings, 2, 7), tasks(&settings, 2, 7));
        assert_ne!(tasks(&settings, 2, 7), tasks(&settings, 2, 8));
        let order: Vec<_> = tasks(&settings, 1, 7).into_iter().map(|task| task.labels).collect();
        assert_ne!(order, settings[0].cells, "the cells are shuffled");
    }
}
