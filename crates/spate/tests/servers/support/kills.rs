//! Kills at random moments.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::Random;
use super::ledger::{Ledger, assert_same};
use super::program::{Running, Site};

/// What is done to a program again and again.
pub struct Kills<'a> {
    pub times: u64,
    /// After so many, it catches up.
    pub check_every: u64,
    pub points: &'a [&'a str],
    /// Changes of the source, before the program runs and while it does.
    pub work: &'a dyn Fn(&mut Random) -> String,
    /// The options of the next run.
    pub next: &'a dyn Fn(&mut Random) -> Vec<&'a str>,
    /// The options of a run that catches up.
    pub catch_up: &'a dyn Fn(&mut Random) -> Vec<&'a str>,
}

impl Kills<'_> {
    /// Kills it, and sees to it that nothing is lost; `check` looks for more whenever it has caught up.
    pub fn run(self, site: &mut Site, ledger: &mut Ledger, random: &mut Random, check: impl Fn(&Site)) {
        for kill in 1..=self.times {
            let mut command = site.replicate(&(self.next)(random));
            stop_at_random(&mut command, self.points, random);
            site.source.sql(&(self.work)(random));
            match random.below(4) {
                0 => ledger.work(&site.source),
                1 => ledger.define(&site.source),
                _ => {}
            }
            let running = site.spawn(command);
            site.source.sql(&(self.work)(random));
            kill_at_random(site, running, random);
            if kill % self.check_every == 0 {
                site.catch_up(&(self.catch_up)(random));
                assert_same(site);
                site.assert_identical();
                check(site);
            }
        }
    }
}

/// Has the program end at one of these points, every other time.
pub fn stop_at_random(command: &mut Command, points: &[&str], random: &mut Random) {
    if cfg!(feature = "failpoints") && random.below(2) == 0 {
        let point = points[random.below(points.len() as u64) as usize];
        command.env("SPATE_STOP_AT", format!("{point}:{}", 1 + random.below(25)));
    }
}

/// Kills the program after a moment, and every third time the replica before it.
pub fn kill_at_random(site: &mut Site, running: Running, random: &mut Random) {
    sleep(Duration::from_millis(random.below(400)));
    if random.below(3) == 0 {
        site.replica.kill();
        site.replica.begin();
        sleep(Duration::from_millis(random.below(300)));
    }
    running.kill();
}
