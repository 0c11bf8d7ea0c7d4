//! Runs that were measured: what `spate lab race --json` writes.

use std::path::Path;

use serde::Deserialize;
use spate_analyze::{CommitOrder, Measured, Policy, Setting};

use crate::arguments::APPLIERS_SIMULATED_MAX;

/// The appliers of a commit kept in order wait for it in the server's own replication, and go on in Spate's.
const NATIVE: &str = "native";

#[derive(Debug, Deserialize)]
struct Race {
    server: String,
    contenders: Vec<Contender>,
}

#[derive(Debug, Deserialize)]
struct Contender {
    name: String,
    seconds: Option<f64>,
    error: Option<String>,
    gave_up_after_seconds: Option<f64>,
}

/// The runs of one kind of applier, which cost alike.
#[derive(Debug)]
pub(super) struct Runs {
    /// `native` or `spate`.
    pub(super) of: &'static str,
    pub(super) measured: Vec<Measured>,
}

/// Reads the runs that can be simulated: of native replication, and of Spate's transactions one for one.
pub(super) fn read(path: &Path) -> Result<Vec<Runs>, String> {
    let wrong = |why: String| format!("{}: {why}: give what spate lab race --json has written", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let race: Race = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let is_mysql = race.server.starts_with("mysql");
    let mut runs: Vec<Runs> = [NATIVE, "spate"].map(|of| Runs { of, measured: vec![] }).into();
    for contender in race.contenders {
        let (Some(seconds), None, None) = (contender.seconds, &contender.error, contender.gave_up_after_seconds) else {
            continue;
        };
        let (of, rest) = contender.name.split_once(':').unwrap_or((&contender.name, ""));
        let setting = match of {
            NATIVE => native(rest, is_mysql),
            _ => of_spate(rest),
        };
        let setting = setting.filter(|setting| is_measurable(setting, seconds));
        if let (Some(runs), Some(setting)) = (runs.iter_mut().find(|runs| runs.of == of), setting) {
            runs.measured.push(Measured { name: contender.name, setting, seconds });
        }
    }
    runs.retain(|runs| !runs.measured.is_empty());
    match runs.is_empty() {
        true => Err(wrong("no contender of it can be simulated".to_owned())),
        false => Ok(runs),
    }
}

/// True for a number of appliers that can be simulated, and for a time.
fn is_measurable(setting: &Setting, seconds: f64) -> bool {
    let is_number = setting.appliers.is_some_and(|appliers| (1..=APPLIERS_SIMULATED_MAX).contains(&appliers));
    is_number && seconds.is_finite() && seconds > 0.0
}

/// `16`, `16:optimistic`.
fn native(text: &str, is_mysql: bool) -> Option<Setting> {
    let (threads, mode) = text.split_once(':').unwrap_or((text, if is_mysql { "order" } else { "optimistic" }));
    let (policy, order) = match mode {
        "optimistic" | "aggressive" => (Policy::WriteSet, CommitOrder::Preserve),
        "conservative" => (Policy::CommitGroup, CommitOrder::Preserve),
        "order" => (Policy::LogicalClock, CommitOrder::Preserve),
        "free" => (Policy::LogicalClock, CommitOrder::Free),
        _ => return None,
    };
    let threads: u32 = threads.parse().ok()?;
    Some(Setting { policy, order, appliers: Some(threads.max(1)) })
}

/// `consistency=transaction,appliers=4,commit-order=free`.
fn of_spate(text: &str) -> Option<Setting> {
    const APPLIERS: u32 = 16;
    let mut setting =
        Setting { policy: Policy::WriteSet, order: CommitOrder::PreserveDelegated, appliers: Some(APPLIERS) };
    let mut is_one_for_one = false;
    for option in text.split(',') {
        match option.split_once('=')? {
            ("consistency", "transaction") => is_one_for_one = true,
            ("parallel-by", "write-set") => setting.policy = Policy::WriteSet,
            ("parallel-by", "shard") => setting.policy = Policy::Shard,
            ("parallel-by", "commit-group") => setting.policy = Policy::CommitGroup,
            ("parallel-by", "logical-clock") => setting.policy = Policy::LogicalClock,
            ("commit-order", "free") => setting.order = CommitOrder::Free,
            ("commit-order", "preserve") => setting.order = CommitOrder::PreserveDelegated,
            ("appliers", number) => setting.appliers = Some(number.parse().ok()?),
            _ => return None,
        }
    }
    is_one_for_one.then_some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_are_settings() {
        let setting = |policy, order, appliers| Some(Setting { policy, order, appliers: Some(appliers) });
        assert_eq!(native("0", false), setting(Policy::WriteSet, CommitOrder::Preserve, 1));
        assert_eq!(native("8:conservative", false), setting(Policy::CommitGroup, CommitOrder::Preserve, 8));
        assert_eq!(native("4", true), setting(Policy::LogicalClock, CommitOrder::Preserve, 4));
        let text = "consistency=transaction,parallel-by=shard,commit-order=free,appliers=4";
        assert_eq!(of_spate(text), setting(Policy::Shard, CommitOrder::Free, 4));
        assert_eq!(of_spate("consistency=transaction"), setting(Policy::WriteSet, CommitOrder::PreserveDelegated, 16));
        let is_taken = |appliers, seconds| {
            is_measurable(
                &Setting { policy: Policy::Shard, order: CommitOrder::Free, appliers: Some(appliers) },
                seconds,
            )
        };
        assert!(is_taken(1024, 1e-3) && !is_taken(0, 1.0) && !is_taken(u32::MAX, 1.0));
        assert!(![0.0, -1.0, f64::NAN, f64::INFINITY].into_iter().any(|seconds| is_taken(4, seconds)));
        for other in ["", "batch-transactions=100", "consistency=shard", "consistency=transaction,group=32"] {
            assert_eq!(of_spate(other), None, "{other}");
        }
    }
}
