//! What an experiment will measure: settings, and in each of them cells, which are measured in an order drawn from a seed.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::result::{Labels, cell_name};
use crate::Error;
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
    /// What a person needs to know to judge it, a line each: data, load, options of the servers.
    pub facts: Vec<String>,
}

impl Setting {
    /// The error of an experiment that has none of this name.
    pub(super) fn unknown(&self) -> Error {
        let why = "the experiment has none of this name".to_owned();
        Error::BadArgument { what: "setting", text: self.name.clone(), why }
    }
}

/// What is compared with each other, which is measured in an order drawn from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// The cells of a setting, which is made once for all its repetitions.
    Cells,
    /// The settings too: each repetition makes all of them again, in an order of its own.
    Settings,
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

/// All measurements. Each repetition measures what is compared in an order of its own, so that what drifts (the machine's speed, the disk's fill) falls on
/// all of it.
pub fn tasks(settings: &[Setting], compared: Compared, repetitions: u32, seed: u64) -> Vec<Task> {
    let mut random = Random::new(seed);
    let mut tasks = Vec::new();
    let mut measure = |random: &mut Random, place: usize, repetition: u32| {
        let mut cells = settings[place].cells.clone();
        random.shuffle(&mut cells);
        for labels in cells {
            tasks.push(Task { setting: place, labels, repetition, order: tasks.len() as u32 + 1 });
        }
    };
    let mut places: Vec<usize> = (0..settings.len()).collect();
    match compared {
        Compared::Cells => places
            .iter()
            .for_each(|&place| (1..=repetitions).for_each(|repetition| measure(&mut random, place, repetition))),
        Compared::Settings => {
            for repetition in 1..=repetitions {
                random.shuffle(&mut places);
                places.iter().for_each(|&place| measure(&mut random, place, repetition));
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
        Setting { name: name.to_owned(), cells, disk_bytes: 0, facts: Vec::new() }
    }

    #[test]
    fn each_cell_is_measured_once_in_each_repetition() {
        let settings = [setting("a", 5), setting("b", 3)];
        for compared in [Compared::Cells, Compared::Settings] {
            let tasks = tasks(&settings, compared, 3, 42);
            assert_eq!(tasks.len(), 3 * 8);
            let mut names: Vec<String> = tasks.iter().map(|task| task.name(&settings)).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 3 * 8);
            let is_before = |one: &Task, other: &Task| match compared {
                Compared::Cells => (one.setting, one.repetition) <= (other.setting, other.repetition),
                Compared::Settings => one.repetition <= other.repetition,
            };
            assert!(tasks.windows(2).all(|pair| is_before(&pair[0], &pair[1])));
        }
    }

    #[test]
    fn settings_that_are_compared_come_in_any_order() {
        let settings: Vec<Setting> = (0..10).map(|number| setting(&number.to_string(), 1)).collect();
        let order: Vec<usize> =
            tasks(&settings, Compared::Settings, 2, 42).into_iter().map(|task| task.setting).collect();
        assert!(order[..10] != order[10..] && !order[..10].is_sorted(), "{order:?}");
    }

    #[test]
    fn seed_determines_the_order() {
        let settings = [setting("a", 20)];
        assert_eq!(tasks(&settings, Compared::Cells, 2, 7), tasks(&settings, Compared::Cells, 2, 7));
        assert_ne!(tasks(&settings, Compared::Cells, 2, 7), tasks(&settings, Compared::Cells, 2, 8));
        let order: Vec<_> = tasks(&settings, Compared::Cells, 1, 7).into_iter().map(|task| task.labels).collect();
        assert_ne!(order, settings[0].cells, "the cells are shuffled");
    }
}
