//! Rows that are changed unevenly, by Zipf's law: the changes of a transaction of sysbench's oltp_write_only, with keys of a chosen skew.

use super::{Load, LoadSize, Worker, insert_rows, letters};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

pub(super) struct Skewed;

impl Load for Skewed {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            session.run(&format!(
                "CREATE TABLE skewed{table} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, KEY by_k (k)) ENGINE=InnoDB"
            ))?;
            insert_rows(session, &format!("skewed{table}"), 1..=size.rows, |id| {
                format!(
                    "{id}, {}, '{}', '{}'",
                    random.below(size.rows as usize),
                    letters(random, 119, 119),
                    letters(random, 59, 59)
                )
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        4
    }

    fn worker(&self, _number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Changing { size, keys: Zipf::new(size.rows, f64::from(size.skew_hundredths) / 100.0), random })
    }
}

struct Changing {
    size: LoadSize,
    keys: Zipf,
    random: Random,
}

impl Worker for Changing {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        let table = 1 + self.random.below(self.size.tables as usize);
        let mut keys: [u64; 3] = std::array::from_fn(|_| self.keys.draw(&mut self.random));
        // In the order of the keys, so that two transactions do not wait for each other.
        keys.sort_unstable();
        let [first, second, third] = keys;
        let (k, c) = (self.random.below(self.size.rows as usize), letters(&mut self.random, 119, 119));
        session.run("BEGIN")?;
        session.run(&format!("UPDATE skewed{table} SET k = k + 1 WHERE id = {first}"))?;
        session.run(&format!("UPDATE skewed{table} SET c = '{c}' WHERE id = {second}"))?;
        session.run(&format!("DELETE FROM skewed{table} WHERE id = {third}"))?;
        session.run(&format!(
            "INSERT INTO skewed{table} VALUES ({third}, {k}, '{c}', '{}')",
            letters(&mut self.random, 59, 59)
        ))?;
        session.run("COMMIT")
    }
}

/// Draws numbers from 1 to `count`, number `n` with a probability proportional to n^−exponent; an exponent of 0 draws evenly. Source: Hörmann and Derflinger,
/// Rejection-inversion to generate variates from monotone discrete distributions (1996).
#[derive(Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral of the density from the beginning to one half after the first, and to one half after the last number.
    first: f64,
    last: f64,
    /// Numbers so near after a draw are taken at once.
    shortcut: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { count: count.max(1) as f64, exponent, first: 0.0, last: 0.0, shortcut: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// ∫ x^−s dx, with the logarithm where s is 1.
    fn integral(&self, x: f64) -> f64 {
        let (log, rest) = (x.ln(), 1.0 - self.exponent);
        if rest.abs() < 1e-9 { log } else { (rest * log).exp_m1() / rest }
    }

    fn inverse(&self, y: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < 1e-9 { y.exp() } else { ((rest * y).max(-1.0).ln_1p() / rest).exp() }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let unit = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
            let y = self.last + unit * (self.first - self.last);
            let x = self.inverse(y);
            let number = (x + 0.5).floor().clamp(1.0, self.count);
            if number - x <= self.shortcut || y >= self.integral(number + 0.5) - self.density(number) {
                return number as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the numbers from 1 to 100 were drawn.
    fn counts(exponent: f64) -> [f64; 100] {
        const DRAWS: u32 = 200_000;
        let (zipf, mut random, mut counts) = (Zipf::new(100, exponent), Random::new(5), [0.0; 100]);
        for _ in 0..DRAWS {
            counts[zipf.draw(&mut random) as usize - 1] += 1.0 / f64::from(DRAWS);
        }
        counts
    }

    #[test]
    fn draws_follow_the_law() {
        for exponent in [0.0, 0.7, 1.0, 1.2] {
            let sum: f64 = (1..=100).map(|number| f64::from(number).powf(-exponent)).sum();
            for (number, count) in (1..).zip(counts(exponent)) {
                let expected = f64::from(number).powf(-exponent) / sum;
                assert!((count - expected).abs() < 0.004, "{number} with {exponent}: {count} instead of {expected}");
            }
        }
    }

    #[test]
    fn one_row_is_always_drawn() {
        assert_eq!(Zipf::new(1, 1.2).draw(&mut Random::new(1)), 1);
    }
}
