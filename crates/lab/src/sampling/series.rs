//! Values over time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Points that any series of a result has at most.
pub const POINTS_MAX: usize = 2_000;
/// Points of what is sampled beside a measurement. With more, two become one.
const SAMPLES_MAX: usize = 600;

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

impl Series {
    /// Whether a measurement can have such points: not too many, and none a month after the beginning.
    pub fn is_possible(&self) -> bool {
        const SECONDS_MAX: f64 = 31.0 * 86_400.0;
        self.points.len() <= POINTS_MAX
            && self.points.iter().all(|(at, value)| (0.0..=SECONDS_MAX).contains(at) && value.is_finite())
    }

    /// The mean over time: each value counts for the time since the one before it.
    pub fn mean(&self) -> f64 {
        let mut before = 0.0;
        let (mut sum, mut time) = (0.0, 0.0);
        for &(at, value) in &self.points {
            sum += value * (at - before);
            time += at - before;
            before = at;
        }
        if time > 0.0 { sum / time } else { self.points.first().map_or(0.0, |&(_, value)| value) }
    }
}

/// Makes series of what is seen in each look.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    now: Duration,
    /// The recorded look before this one.
    before: Option<Duration>,
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
        if self.looks > 0 && self.is_recorded() {
            self.before = Some(self.now);
        }
        self.now = at;
        self.looks += 1;
    }

    /// A value as it is.
    pub(super) fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        if !self.is_recorded() || !value.is_finite() {
            return;
        }
        let series = self.series.entry(name.to_owned()).or_insert_with(|| Series {
            name: name.to_owned(),
            unit: unit.to_owned(),
            points: Vec::new(),
        });
        series.points.push((rounded(self.now.as_secs_f64()), rounded(value)));
        if series.points.len() > SAMPLES_MAX {
            self.thin();
        }
    }

    /// A value that only grows: what is recorded is its growth per second. The first look has none, and one at which it has shrunk
    /// (the process is another one) has none either. Between two looks that are recorded nothing is lost.
    pub(super) fn counter(&mut self, name: &str, unit: &str, value: f64) {
        if !self.is_recorded() {
            return;
        }
        let before = self.counters.insert(name.to_owned(), (self.now, value));
        if let Some((at, before)) = before
            && value >= before
            && self.now > at
        {
            self.gauge(name, unit, (value - before) / (self.now - at).as_secs_f64());
        }
    }

    /// The same of a counter that has begun at zero since the recorded look before, if it is seen for the first time: what it has counted until now is
    /// growth, too.
    pub(super) fn young_counter(&mut self, name: &str, unit: &str, value: f64) {
        if let Some(before) = self.before.filter(|_| self.is_recorded() && !self.counters.contains_key(name)) {
            self.counters.insert(name.to_owned(), (before, 0.0));
            let points = vec![(rounded(before.as_secs_f64()), 0.0)];
            self.series.insert(name.to_owned(), Series { name: name.to_owned(), unit: unit.to_owned(), points });
        }
        self.counter(name, unit, value);
    }

    /// How much a counter has grown since the recorded look before, without recording it; `None` at the first look.
    pub(super) fn growth(&mut self, name: &str, value: f64) -> Option<f64> {
        if !self.is_recorded() {
            return None;
        }
        let (_, before) = self.counters.insert(name.to_owned(), (self.now, value))?;
        (value >= before).then_some(value - before)
    }

    fn is_recorded(&self) -> bool {
        self.looks.is_multiple_of(self.stride.max(1))
    }

    /// What was seen, without what was zero all the time.
    pub(super) fn into_series(self) -> Vec<Series> {
        self.series.into_values().filter(|series| series.points.iter().any(|&(_, value)| value != 0.0)).collect()
    }

    /// Two neighbours become one, whose value is their mean.
    fn thin(&mut self) {
        self.stride = self.stride.max(1) * 2;
        for series in self.series.values_mut() {
            let both = |pair: &[(f64, f64)]| {
                let mean = pair.iter().map(|(_, value)| value).sum::<f64>() / pair.len() as f64;
                pair.last().map(|(at, _)| (*at, rounded(mean)))
            };
            series.points = series.points.chunks(2).filter_map(both).collect();
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
    fn what_begins_later_is_counted_from_its_beginning() {
        let mut recorder = Recorder::default();
        for second in 0..=4 {
            recorder.begin_look(Duration::from_secs(second));
            if second >= 2 {
                recorder.young_counter("young", "cores", (second - 1) as f64);
                recorder.counter("old", "cores", (second - 1) as f64);
            }
        }
        let series = recorder.into_series();
        assert_eq!(series[0].points, [(3.0, 1.0), (4.0, 1.0)]);
        assert_eq!(series[1].points, [(1.0, 0.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)]);
        assert_eq!(series[1].mean(), 0.75, "three of four seconds");
        // What is there at the first look may have begun long ago.
        let mut recorder = Recorder::default();
        for (second, value) in [(0, 100.0), (1, 101.0)] {
            recorder.begin_look(Duration::from_secs(second));
            recorder.young_counter("a", "cores", value);
        }
        assert_eq!(recorder.into_series()[0].points, [(1.0, 1.0)]);
    }

    #[test]
    fn mean_is_over_time() {
        let series = |points: &[(f64, f64)]| Series { points: points.to_vec(), ..Series::default() };
        assert_eq!(series(&[(1.0, 10.0), (2.0, 20.0), (2.5, 40.0)]).mean(), 20.0);
        assert_eq!((series(&[]).mean(), series(&[(0.0, 5.0)]).mean()), (0.0, 5.0));
    }

    #[test]
    fn long_series_keep_what_came() {
        let mut recorder = Recorder::default();
        // Ten come in each odd second, none in an even one.
        for second in 0..4_000_u32 {
            recorder.begin_look(Duration::from_secs(second.into()));
            recorder.counter("a", "per second", f64::from(second.div_ceil(2) * 10));
        }
        let series = &recorder.into_series()[0];
        assert!((series.mean() - 5.0).abs() < 0.05, "{}", series.mean());
        assert!(series.points[400..].iter().all(|&(_, rate)| (rate - 5.0).abs() < 0.1), "{:?}", series.points);
    }

    #[test]
    fn long_series_keep_their_span() {
        let mut recorder = Recorder::default();
        for second in 0..10_000 {
            recorder.begin_look(Duration::from_secs(second));
            recorder.gauge("a", "rows", second as f64);
        }
        let points = &recorder.into_series()[0].points;
        assert!(points.len() <= SAMPLES_MAX && points.len() > SAMPLES_MAX / 4, "{}", points.len());
        assert!(points[0].0 < 100.0 && points[points.len() - 1].0 > 9_900.0, "{points:?}");
    }
}
