//! What real appliers take with these binlogs, and how near the simulation comes to that.
//!
//! A run of one applier says what a transaction costs. The simulation says how many times as fast more appliers could be, by what waits for what. They are
//! not: processors, locks, the log and the turns of an order are there once. What a run of many takes beyond the simulation is the *serial share* of its commit
//! order: the part of one applier's time that does not become shorter (Amdahl's law). With that, all other numbers of appliers and policies follow.

use serde::Serialize;
use spate_archive::Archive;

use crate::analysis::{Analysis, Options, analyze};
use crate::simulation::{CommitOrder, Costs, SerialShares, Setting};
use crate::{Error, Result};

/// What a replica's processors limit is in the serial share.
const PROCESSORS: u32 = 1024;

/// A run of a replica, with the transactions that are analysed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// How it is named.
    pub name: String,
    /// What it ran with.
    pub setting: Setting,
    /// How long it took.
    pub seconds: f64,
}

/// A run, and what the simulation says of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The run.
    #[serde(flatten)]
    pub measured: Measured,
    /// How long it should have taken.
    pub predicted_seconds: f64,
    /// The costs are worked out from it.
    pub is_calibration: bool,
}

impl Compared {
    /// How far the prediction is from what was measured: 0.1 is a tenth too long.
    pub fn difference(&self) -> f64 {
        self.predicted_seconds / self.measured.seconds - 1.0
    }
}

/// What runs say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// What things cost one applier.
    pub costs: Costs,
    /// What does not become faster.
    pub serial: SerialShares,
    /// All runs.
    pub compared: Vec<Compared>,
}

impl Calibration {
    /// The same analysis by these costs and shares.
    #[must_use]
    pub fn applied_to(&self, options: Options) -> Options {
        Options { costs: self.costs, serial: self.serial, processors: PROCESSORS, ..options }
    }
}

/// Works out the costs and the serial shares from a run of one applier, and from that of the most appliers in each order, and predicts all.
///
/// # Errors
/// [`Error::Runs`] if there is no run of one applier, or none of more; the errors of [`analyze`].
pub fn calibrate(archive: &Archive, options: &Options, runs: &[Measured]) -> Result<Calibration> {
    let appliers = |run: &Measured| run.setting.appliers.unwrap_or(u32::MAX);
    let one = runs.iter().find(|run| appliers(run) == 1).ok_or(Error::Runs { missing: "one applier" })?;
    let most_of = |order: CommitOrder| {
        let runs = runs.iter().filter(|run| run.setting.order == order && appliers(run) > 1);
        // Of policies with one number, the one that waits for the least: what it does not gain is no wait.
        runs.max_by_key(|run| (appliers(run), run.setting.policy as u8))
    };
    let most: Vec<&Measured> = CommitOrder::ALL.into_iter().filter_map(most_of).collect();
    if most.is_empty() {
        return Err(Error::Runs { missing: "several appliers" });
    }
    let mut numbers: Vec<u32> = runs.iter().map(appliers).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let plain = Options {
        fold: vec![],
        processors: PROCESSORS,
        serial: SerialShares::default(),
        appliers: numbers,
        ..options.clone()
    };
    let analysis = analyze(archive, &plain, &mut |_| {})?;
    // How many times as fast a setting is stays the same if everything takes so many times as long.
    let costs = options.costs.scaled(one.seconds / analysis.serial_seconds);
    let mut serial = SerialShares::default();
    for run in &most {
        let share = 1.0 / factor(&analysis, run.setting);
        serial.set(run.setting.order, (run.seconds / one.seconds - share) / (1.0 - share));
    }
    let compared = runs.iter().map(|run| Compared {
        predicted_seconds: one.seconds / serial.applied(run.setting.order, factor(&analysis, run.setting)),
        is_calibration: *run == *one || most.contains(&run),
        measured: run.clone(),
    });
    Ok(Calibration { costs, serial, compared: compared.collect() })
}

/// How many times as fast as one applier a setting is; not a number if it was not simulated.
fn factor(analysis: &Analysis, setting: Setting) -> f64 {
    let found = analysis.speed_ups_of(setting.policy, setting.order).find(|speed_up| speed_up.setting == setting);
    found.map_or(f64::NAN, |speed_up| speed_up.factor)
}
