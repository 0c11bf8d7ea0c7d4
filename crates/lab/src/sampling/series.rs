//! Values over time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Points of a series. With more, every second one is left out from then on.
const POINTS_MAX: usize = 600;

/// A value over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is: `replica processor`, `disk reads`.
    pub name: String,
    /// Its unit: `cores`, `per second`, `MiB`.
    pub unit: String,
    /// Seconds since the measurement began, and the value there.
    pub points: Vec<(f64, f64)>,
}

/// Makes series of what is seen in each look.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    now: Duration,
    /// By name, with its unit.
    series: BTreeMap<String, Series>,
    /// Counters at the look before, and when that was.
    counters: BTreeMap<String, (Duration, f64)>,
    /// Each look so many is recorded.
    stride: u32,
    looks: u32,
}

impl Recorder {
    /// All that follows is seen at this moment.
    pub(super) fn begin_look(&mut self, at: Duration) {
        self.now = at;
        self.looks += 1;
    }

    /// A value as it is.
    pub(super) fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        if !self.looks.is_multiple_of(self.stride.max(1)) || !value.is_finite() {
            return;
        }
        let series = self.series.entry(name.to_owned()).or_insert_with(|| Series {
            name: name.to_owned(),
            unit: unit.to_owned(),
            points: Vec::new(),
        });
        series.points.push((rounded(self.now.as_secs_f64()), rounded(value)));
        if series.points.len() > POINTS_MAX {
            self.thin();
        }
    }

    /// A value that only grows: what is recorded is its growth per second. The first look has none, and one at which it has shrunk
    /// (the process is another one) has none either.
    pub(super) fn counter(&mut self, name: &str, unit: &str, value: f64) {
        let before = self.counters.insert(name.to_owned(), (self.now, value));
        if let Some((at, before)) = before
            && value >= before
            && self.now > at
        {
            self.gauge(name, unit, (value - before) / (self.now - at).as_secs_f64());
        }
    }

    /// How much a counter has grown since the look before, without recording it; `None` at the first look.
    pub(super) fn growth(&mut self, name: &str, value: f64) -> Option<f64> {
        let (_, before) = self.counters.insert(name.to_owned(), (self.now, value))?;
        (value >= before).then_some(value - before)
    }

    /// What was seen, without what was zero all the time.
    pub(super) fn into_series(self) -> Vec<Series> {
        self.series.into_values().filter(|series| series.points.iter().any(|&(_, value)| value != 0.0)).collect()
    }

    fn thin(&mut self) {
        self.stride = self.stride.max(1) * 2;
        for series in self.series.values_mut() {
            let mut number = 0;
            series.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }
}

/// Three digits behind the point: results hold many values.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_becomes_a_rate() {
        let mut recorder = Recorder::default();
        for (second, value) in [(0, 100.0), (1, 150.0), (3, 250.0), (4, 10.0), (5, 30.0)] {
            recorder.begin_look(Duration::from_secs(second));
            recorder.counter("commits", "per second", value);
            recorder.gauge("nothing", "rows", 0.0);
        }
        let series = recorder.into_series();
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].points, [(1.0, 50.0), (3.0, 50.0), (5.0, 20.0)]);
    }

    #[test]
    fn long_series_keep_their_span() {
        let mut recorder = Recorder::default();
        for second in 0..10_000 {
            recorder.begin_look(Duration::from_secs(second));
            recorder.gauge("a", "rows", second as f64);
        }
        let points = &recorder.into_series()[0].points;
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 4, "{}", points.len());
        assert!(points[0].0 < 100.0 && points[points.len() - 1].0 > 9_900.0, "{points:?}");
    }
}
