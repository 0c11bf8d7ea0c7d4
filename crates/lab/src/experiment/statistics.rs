//! Medians, spreads, and whether two results differ by more than their noise.
//!
//! Two results are compared cell by cell by the logarithm of each metric, so that a difference is a ratio. The noise is taken from the
//! repetitions of both results: how far each run is from the mean of its cell. There are few repetitions in a cell, but many cells: the
//! deviations of all cells are drawn from together (a *residual bootstrap*; Efron and Tibshirani, An Introduction to the Bootstrap, chapter
//! 9). A deviation of `n` runs from their own mean is too small by √((n−1)/n), which is corrected; a cell that is noisier than the others
//! has its deviations enlarged accordingly, and so has the mean of all cells if those of a repetition are slow together.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use crate::random::Random;

/// Draws of each cell.
const DRAWS: usize = 10_000;
/// So many draws are to lie beyond the ends of an interval, …
const DRAWS_BEYOND: f64 = 20.0;
/// … which takes more of them where few cells have as many runs; but not more than take a second.
const DRAWS_MAX: usize = 4_000_000;
/// How sure the comparisons of all metrics and all their cells are together.
const CONFIDENCE: f64 = 0.99;

/// The middle value; of two in the middle, their mean. `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => sorted.get(middle).copied(),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// How far the farthest value is from the median, as a part of it; `None` for fewer than two values, or a median of 0.
pub fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|middle| *middle != 0.0 && values.len() > 1)?;
    values.iter().map(|value| ((value - middle) / middle).abs()).max_by(f64::total_cmp)
}

/// Who wins, from the worst for Spate to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The other.
    Loses,
    /// The other, as far as one measurement tells.
    LosesOnce,
    /// Nobody by more than the noise.
    Noise,
    /// Nobody.
    Nobody,
    /// Spate, as far as one measurement tells.
    WinsOnce,
    /// Spate.
    Wins,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Loses => "Spate LOSES",
            Outcome::LosesOnce => "Measured once: Spate LOSES",
            Outcome::Noise => "Nobody wins by more than the noise",
            Outcome::Nobody => "Nobody wins",
            Outcome::WinsOnce => "Measured once: Spate wins",
            Outcome::Wins => "Spate wins",
        })
    }
}

/// Who wins, in the same words for a win and a loss: Spate is `ratio` times as good as the other. `possible` is what the noise leaves possible; `None`: there
/// are no repetitions to tell it.
pub fn outcome(ratio: f64, possible: Option<&Ratio>) -> Outcome {
    // The means of logarithms, of which the noise is known, tell the direction where there are some.
    match possible {
        Some(possible) if !possible.is_significant() => Outcome::Noise,
        Some(possible) if possible.ratio > 1.0 => Outcome::Wins,
        Some(_) => Outcome::Loses,
        None if ratio > 1.0 => Outcome::WinsOnce,
        None => Outcome::LosesOnce,
    }
}

/// Who wins where not both come to their end.
pub fn failed(other_ends: bool, spate_ends: bool) -> Outcome {
    match spate_ends.cmp(&other_ends) {
        Ordering::Greater => Outcome::Wins,
        Ordering::Less => Outcome::Loses,
        Ordering::Equal => Outcome::Nobody,
    }
}

/// The values of two cells. All are greater than 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Of the first cell.
    pub first: Vec<f64>,
    /// Of the second.
    pub second: Vec<f64>,
}

/// How a metric of the second result relates to that of the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Second divided by first: 1.1 is a tenth more.
    pub ratio: f64,
    /// The least that the noise leaves possible.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Ratio {
    /// True if it is more than noise.
    pub fn is_significant(&self) -> bool {
        self.least > 1.0 || self.most < 1.0
    }
}

/// The values of one cell in two results, by repetition. All are greater than 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// In the first result.
    pub first: BTreeMap<u32, f64>,
    /// In the second.
    pub second: BTreeMap<u32, f64>,
}

/// The comparison of all cells of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Each cell; the intervals hold for all of them together.
    pub cells: Vec<Ratio>,
    /// Their geometric mean.
    pub overall: Ratio,
}

/// How far runs of the same cell are from each other, over all cells.
#[derive(Debug, Clone)]
pub struct Noise {
    /// The deviations of all cells, which are logarithms.
    pool: Vec<f64>,
    /// Their root mean square.
    usual: f64,
}

impl Noise {
    /// The noise of cells, whose values are all greater than 0. `None` if none has been measured more than once.
    pub fn of(cells: &[Vec<f64>]) -> Option<Noise> {
        Noise::of_deviations(cells.iter().flat_map(|cell| deviations(&logarithms(cell))).collect())
    }

    fn of_deviations(pool: Vec<f64>) -> Option<Noise> {
        let usual = root_mean_square(&pool);
        (!pool.is_empty()).then_some(Noise { pool, usual })
    }

    /// How a cell whose deviations are `own` is noisier than others: a single noisy cell must not be taken for quiet because the others are.
    fn scale(&self, own: &[f64]) -> f64 {
        if own.is_empty() || self.usual == 0.0 { 1.0 } else { (root_mean_square(own) / self.usual).max(1.0) }
    }

    /// How much noisier the sum of a repetition's cells is than if they had nothing in common. They are measured one soon after the other: what slows the
    /// machine for a minute slows them together, and their mean is not as sure as that of as many runs on as many days.
    fn together(&self, cells: &[Cell], residuals: &[[Vec<f64>; 2]]) -> f64 {
        let mut of_repetitions: BTreeMap<(usize, u32), Vec<f64>> = BTreeMap::new();
        for (cell, residuals) in cells.iter().zip(residuals) {
            for (side, (values, residuals)) in [&cell.first, &cell.second].into_iter().zip(residuals).enumerate() {
                for (repetition, residual) in values.keys().zip(residuals) {
                    of_repetitions.entry((side, *repetition)).or_default().push(*residual);
                }
            }
        }
        // The sum of n values that have nothing in common is √n times as far from its mean as one.
        let sums: Vec<f64> =
            of_repetitions.values().map(|own| own.iter().sum::<f64>() / (own.len() as f64).sqrt()).collect();
        self.scale(&sums)
    }

    /// What the noise alone makes of the difference between the means of so many runs.
    fn draw(&self, [first, second]: [usize; 2], random: &mut Random) -> f64 {
        let mut mean_of = |count: usize| {
            let drawn: f64 = (0..count).map(|_| self.pool[random.below(self.pool.len())]).sum();
            drawn / count.max(1) as f64
        };
        mean_of(second) - mean_of(first)
    }

    /// How the second of a pair relates to the first.
    pub fn ratio(&self, pair: &Pair, seed: u64) -> Ratio {
        let sides = [logarithms(&pair.first), logarithms(&pair.second)];
        let own: Vec<f64> = sides.iter().flat_map(|side| deviations(side)).collect();
        let mut random = Random::new(seed);
        let runs = [sides[0].len(), sides[1].len()];
        let mut draws: Vec<f64> = (0..DRAWS).map(|_| self.draw(runs, &mut random)).collect();
        draws.sort_by(f64::total_cmp);
        interval(mean(&sides[1]) - mean(&sides[0]), &draws, self.scale(&own), 1.0 - CONFIDENCE)
    }
}

/// Compares the cells of one of so many `metrics` that are compared. `None` if no cell has been measured more than once, so that nothing tells the noise.
pub fn compare(cells: &[Cell], metrics: usize, seed: u64) -> Option<Comparison> {
    let logarithms = |side: &BTreeMap<u32, f64>| logarithms(&side.values().copied().collect::<Vec<_>>());
    let logs: Vec<[Vec<f64>; 2]> =
        cells.iter().map(|cell| [logarithms(&cell.first), logarithms(&cell.second)]).collect();
    let residuals: Vec<[Vec<f64>; 2]> =
        logs.iter().map(|sides| sides.each_ref().map(|side| deviations(side))).collect();
    let noise = Noise::of_deviations(residuals.iter().flatten().flatten().copied().collect())?;
    let scales: Vec<f64> = residuals.iter().map(|own| noise.scale(&own.concat())).collect();
    let together = noise.together(cells, &residuals);
    let mut random = Random::new(seed);
    // What cells with as many runs on both sides draw has the same distribution, but for its scale: so their far ends are drawn often enough too.
    let mut draws_by_runs: BTreeMap<[usize; 2], Vec<f64>> = BTreeMap::new();
    let mut overall_draws = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let mut sum = 0.0;
        for (sides, scale) in logs.iter().zip(&scales) {
            let runs = [sides[0].len(), sides[1].len()];
            let drawn = noise.draw(runs, &mut random);
            sum += scale * drawn;
            draws_by_runs.entry(runs).or_default().push(drawn);
        }
        overall_draws.push(sum / logs.len() as f64);
    }
    let seen: Vec<f64> = logs.iter().map(|sides| mean(&sides[1]) - mean(&sides[0])).collect();
    // Of many cells and metrics, one is off by chance: each has to be surer, so that all of them together are as sure as one. Half of a metric's doubt is for
    // its cells, and half for their mean.
    let of_metric = (1.0 - CONFIDENCE) / metrics.max(1) as f64 / 2.0;
    let doubt = of_metric / logs.len() as f64;
    let enough = ((DRAWS_BEYOND / doubt).ceil() as usize).min(DRAWS_MAX);
    for (runs, draws) in &mut draws_by_runs {
        draws.resize_with(draws.len().max(enough), || noise.draw(*runs, &mut random));
        draws.sort_by(f64::total_cmp);
    }
    overall_draws.sort_by(f64::total_cmp);
    let cells = seen.iter().zip(&logs).zip(&scales).map(|((seen, sides), scale)| {
        let draws = draws_by_runs.get(&[sides[0].len(), sides[1].len()]).map_or(&[][..], Vec::as_slice);
        interval(*seen, draws, *scale, doubt)
    });
    let cells = cells.collect();
    Some(Comparison { cells, overall: interval(mean(&seen), &overall_draws, together, of_metric) })
}

/// What is seen, less what the noise alone makes of nothing: the draws, which are sorted, times `scale`.
fn interval(seen: f64, draws: &[f64], scale: f64, doubt: f64) -> Ratio {
    let at = |part: f64| {
        let place = (part * draws.len() as f64).floor().clamp(0.0, draws.len().saturating_sub(1) as f64);
        scale * draws.get(place as usize).copied().unwrap_or_default()
    };
    let (low, high) = (at(doubt / 2.0), at(1.0 - doubt / 2.0));
    Ratio { ratio: seen.exp(), least: (seen - high).exp(), most: (seen - low).exp() }
}

fn logarithms(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.max(f64::MIN_POSITIVE).ln()).collect()
}

/// How far each value is from their mean, corrected for that mean being their own. A single value tells nothing.
fn deviations(values: &[f64]) -> Vec<f64> {
    if values.len() < 2 {
        return Vec::new();
    }
    let (mean, count) = (mean(values), values.len() as f64);
    values.iter().map(|value| (value - mean) * (count / (count - 1.0)).sqrt()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A noise like that of runs: mostly small, sometimes slow; about 3 %.
    fn noisy(random: &mut Random, true_value: f64) -> f64 {
        let unit = |random: &mut Random| random.below(1_000_000) as f64 / 1e6;
        let bell: f64 = (0..6).map(|_| unit(random) - 0.5).sum::<f64>() / (0.5_f64).sqrt();
        let straggler = if random.chance(5) { 0.05 * unit(random) } else { 0.0 };
        true_value * (1.0 + 0.03 * bell + straggler)
    }

    fn trial(random: &mut Random, cells: usize, repetitions: u32, slowdown: f64) -> Comparison {
        let cells: Vec<Cell> = (0..cells)
            .map(|cell| {
                let value = 2.0 + cell as f64 * 3.0;
                Cell {
                    first: (0..repetitions).map(|repetition| (repetition, noisy(random, value))).collect(),
                    second: (0..repetitions).map(|repetition| (repetition, noisy(random, value * slowdown))).collect(),
                }
            })
            .collect();
        compare(&cells, 1, random.next()).unwrap()
    }

    #[test]
    fn equal_results_raise_no_alarm() {
        let mut random = Random::new(11);
        for (cells, trials) in [(1, 100), (4, 100), (20, 20)] {
            let alarms = (0..trials).filter(|_| {
                let comparison = trial(&mut random, cells, 5, 1.0);
                comparison.overall.is_significant() || comparison.cells.iter().any(Ratio::is_significant)
            });
            let alarms = alarms.count();
            assert!(alarms <= trials / 20, "{alarms} false alarms of {trials} with {cells} cells");
        }
    }

    /// A machine that is slow for a whole repetition is no slowdown: without regard to it, 25 of these 100 would be alarms.
    #[test]
    fn slow_repetitions_raise_no_alarm() {
        let mut random = Random::new(14);
        let alarms = (0..100).filter(|_| {
            let mut cells = vec![Cell::default(); 4];
            for repetition in 0..6 {
                let [first, second] = [0; 2].map(|_| noisy(&mut random, 1.0).powi(2));
                for cell in &mut cells {
                    cell.first.insert(repetition, noisy(&mut random, first));
                    cell.second.insert(repetition, noisy(&mut random, second));
                }
            }
            compare(&cells, 1, random.next()).unwrap().overall.is_significant()
        });
        let alarms = alarms.count();
        assert!(alarms <= 8, "{alarms} of 100");
    }

    #[test]
    fn slowdown_of_a_tenth_is_found() {
        let mut random = Random::new(12);
        for (cells, trials) in [(1, 100), (4, 100), (20, 20)] {
            let found = (0..trials).filter(|_| trial(&mut random, cells, 5, 1.1).overall.is_significant()).count();
            assert!(found >= trials * 19 / 20, "{found} of {trials} with {cells} cells");
        }
    }

    /// Two repetitions of each, as experiments have them: of two contenders that are equally fast, nobody wins.
    #[test]
    fn nobody_wins_by_chance() {
        let mut random = Random::new(13);
        let wins = (0..300).filter(|_| {
            let cells: Vec<Vec<f64>> =
                (0..10).map(|cell| (0..2).map(|_| noisy(&mut random, 2.0 + f64::from(cell))).collect()).collect();
            let pair = Pair {
                first: (0..2).map(|_| noisy(&mut random, 5.0)).collect(),
                second: (0..2).map(|_| noisy(&mut random, 5.0)).collect(),
            };
            Noise::of(&cells).unwrap().ratio(&pair, random.next()).is_significant()
        });
        let wins = wins.count();
        assert!(wins <= 9, "{wins} of 300");
        assert!(Noise::of(&[vec![1.0], vec![2.0]]).is_none());
    }

    #[test]
    fn wins_and_losses_are_told_alike() {
        let sure = |ratio: f64| Ratio { ratio, least: ratio * 0.99, most: ratio * 1.01 };
        let told = |ratio: f64, possible: Option<Ratio>| outcome(ratio, possible.as_ref()).to_string();
        assert_eq!(told(2.0, Some(sure(2.0))), "Spate wins");
        assert_eq!(told(0.5, Some(sure(0.5))), "Spate LOSES");
        assert_eq!(told(1.005, Some(sure(1.005))), "Nobody wins by more than the noise");
        assert_eq!((&*told(2.0, None), &*told(0.5, None)), ("Measured once: Spate wins", "Measured once: Spate LOSES"));
    }

    #[test]
    fn ratio_is_second_by_first() {
        let cells = [Cell { first: [(1, 1.0), (2, 1.01)].into(), second: [(1, 2.0), (2, 2.02)].into() }];
        let overall = compare(&cells, 1, 1).unwrap().overall;
        assert!((overall.ratio - 2.0).abs() < 0.001 && overall.least > 1.9 && overall.most < 2.1, "{overall:?}");
    }

    #[test]
    fn single_runs_tell_nothing() {
        assert_eq!(compare(&[Cell { first: [(1, 1.0)].into(), second: [(1, 2.0)].into() }], 1, 1), None);
        assert_eq!(compare(&[], 1, 1), None);
    }

    #[test]
    fn median_and_spread_of_few_values() {
        assert_eq!(
            (median(&[]), median(&[3.0]), median(&[4.0, 1.0]), median(&[9.0, 1.0, 2.0])),
            (None, Some(3.0), Some(2.5), Some(2.0))
        );
        assert_eq!((spread(&[1.0]), spread(&[10.0, 12.0, 11.0])), (None, Some(1.0 / 11.0)));
    }
}
