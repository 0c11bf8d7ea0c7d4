//! The study's own figures, beside those that were measured here.

use comfy_table::Table;

use super::study::{INDEXES, ONE_TABLE, PROCEDURE, StudyResult, WayName};
use crate::screen::table;

const GB: f64 = 1e9;
const MINUTE: f64 = 60.0;

/// A step, as it was published.
struct Published {
    what: &'static str,
    bytes: f64,
    seconds: f64,
    /// The steps here that do the same.
    steps: &'static [&'static str],
}

const STEPS: [Published; 4] = [
    Published { what: "LOAD DATA: 22 GB in 42 min", bytes: 22.0 * GB, seconds: 42.0 * MINUTE, steps: &[ONE_TABLE] },
    Published {
        what: "its indexes: 22 GB in 1 h 47 (before tuning, 12 h 32)",
        bytes: 22.0 * GB,
        seconds: 107.0 * MINUTE,
        steps: &[INDEXES],
    },
    Published {
        what: "dispatch into tables a day: 66 GB, 210 million rows in 57 min",
        bytes: 66.0 * GB,
        seconds: 57.0 * MINUTE,
        steps: &[PROCEDURE],
    },
    Published {
        what: "dispatch with indexes: 66 GB in 3 h 20",
        bytes: 66.0 * GB,
        seconds: 200.0 * MINUTE,
        steps: &[PROCEDURE, INDEXES],
    },
];

/// The study's figures, and those of its own way and of `spate load` here, as megabytes of records a second. Its machine and its records were others:
/// the last column says how much faster `spate load`, which does all of it, is than its own way's step here. `None` if either way was not measured.
pub(super) fn beside(result: &StudyResult) -> Option<Table> {
    let way = |name: WayName| result.ways.iter().find(|way| way.way == name && !way.stopped);
    let (own, spate) = (way(WayName::Staging)?, way(WayName::Spate)?);
    let bytes = result.bytes as f64;
    let line = |what: &str, published: Option<f64>, seconds: f64| {
        let shown = |rate: f64| format!("{:.1}", rate / 1e6);
        vec![
            what.to_owned(),
            published.map_or_else(|| "–".to_owned(), shown),
            shown(bytes / seconds),
            shown(bytes / spate.seconds),
            format!("{:.1}", seconds / spate.seconds),
        ]
    };
    let mut rows = Vec::new();
    for published in &STEPS {
        let same = own.steps.iter().filter(|step| published.steps.contains(&step.what.as_str()));
        let seconds: f64 = same.map(|step| step.seconds).sum();
        rows.push(line(published.what, Some(published.bytes / published.seconds), seconds));
    }
    // A gigabyte is loaded once and dispatched once.
    let seconds_per_byte = [&STEPS[0], &STEPS[3]].map(|step| step.seconds / step.bytes).iter().sum::<f64>();
    rows.push(line("all of it", Some(1.0 / seconds_per_byte), own.seconds));
    let header = ["the study", "there, MB/s", "its way here, MB/s", "spate load here, MB/s", "ratio"];
    Some(table(&header, 1, rows))
}

#[cfg(test)]
mod tests {
    use super::super::study::{Step, Way};
    use super::*;

    #[test]
    fn figures_are_beside_each_other() {
        let step = |what: &str, seconds: f64| Step { what: what.to_owned(), seconds };
        let way = |way: WayName, steps: Vec<Step>| Way {
            way,
            name: String::new(),
            seconds: steps.iter().map(|step| step.seconds).sum(),
            steps,
            stopped: false,
            rows: 1,
            checksum: String::new(),
        };
        let own = way(WayName::Staging, vec![step(ONE_TABLE, 10.0), step(PROCEDURE, 50.0), step(INDEXES, 20.0)]);
        let mut result = StudyResult { server: String::new(), bytes: 1_000_000_000, records: 1, ways: vec![own] };
        assert!(beside(&result).is_none());
        result.ways.push(way(WayName::Spate, vec![step("spate load", 10.0)]));
        let shown = beside(&result).unwrap().to_string();
        let cells = |part: &str| {
            let line = shown.lines().find(|line| line.contains(part)).unwrap();
            let cells = line.split('┆').map(|cell| cell.trim_matches(['│', ' ']).to_owned());
            cells.skip(1).collect::<Vec<_>>()
        };
        assert_eq!(cells("42 min"), ["8.7", "100.0", "100.0", "1.0"], "{shown}");
        assert_eq!(cells("3 h 20"), ["5.5", "14.3", "100.0", "7.0"], "{shown}");
        assert_eq!(cells("all of it"), ["3.4", "12.5", "100.0", "8.0"], "{shown}");
    }
}
