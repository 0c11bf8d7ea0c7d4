//! `kill -9` of the program, of the replica's server and of the source's, again and again, at named and at random moments,
//! while the source works.
//!
//! How many kills: `SPATE_TEST_KILLS`, which `./x kills` sets; few without it.

use std::fmt;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::ledger::{Ledger, assert_same};
use crate::support::program::Running;
use crate::support::{Kind, Random, Site};

const KILLS_DEFAULT: u64 = 20;

/// So often everything is compared.
const KILLS_BETWEEN_COMPARISONS: u64 = 10;

const OPTIONS: [&str; 8] =
    ["--start", "earliest", "--memory", "64MiB", "--batch-transactions", "5", "--archive-sync", "always"];

/// Those that are passed without anything special.
const POINTS: [&str; 17] = [
    "after-archive-append",
    "after-archive-sync",
    "archive-file-listed",
    "archive-file-created",
    "archive-file-indexed",
    "before-index-append",
    "after-index-append",
    "after-gathering",
    "before-checkpoint-update",
    "between-statements",
    "before-commit",
    "after-commit-sent",
    "after-commit",
    "before-intent",
    "after-intent",
    "before-fulfilment",
    "after-fulfilment",
];

/// What was killed, how often.
#[derive(Debug, Default)]
struct Count {
    at_points: u64,
    at_random: u64,
    replica: u64,
    source: u64,
    /// Kills of the program that found the checkpoint further on than the kill before did.
    advances: u64,
    comparisons: u64,
}

impl Count {
    fn kills(&self) -> u64 {
        self.at_points + self.at_random + self.replica + self.source
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { at_points, at_random, replica, source, advances, comparisons } = self;
        let program = at_points + at_random;
        write!(
            f,
            "{} kills: the program {program} times ({at_points} at named points, {advances} after it had advanced), \
             the replica {replica} times, the source {source} times; {comparisons} comparisons",
            self.kills()
        )
    }
}

/// A site, its work, and the program, if that runs.
struct Scene {
    site: Site,
    ledger: Ledger,
    random: Random,
    running: Option<Running>,
    checkpoint: String,
    count: Count,
}

#[test]
fn kills_at_any_moment_lose_nothing() {
    kill_everybody(Kind::Mariadb);
}

#[test]
fn kills_at_any_moment_lose_nothing_on_mysql() {
    kill_everybody(Kind::Mysql);
}

#[allow(clippy::print_stderr, reason = "tells how it goes on")]
fn kill_everybody(kind: Kind) {
    let wanted = std::env::var("SPATE_TEST_KILLS").map_or(KILLS_DEFAULT, |text| text.parse().unwrap());
    let began = Instant::now();
    let site = Site::of(kind);
    let ledger = Ledger::begin(&site.source, 7);
    site.catch_up(&OPTIONS);
    let (random, checkpoint) = (Random::new(20_261_121), site.checkpoint());
    let mut scene = Scene { site, ledger, random, running: None, checkpoint, count: Count::default() };
    while scene.count.kills() < wanted {
        scene.kill_somebody();
        if scene.count.kills() / KILLS_BETWEEN_COMPARISONS > scene.count.comparisons {
            scene.compare();
            eprintln!("{} in {:.0} s", scene.count, began.elapsed().as_secs_f64());
        }
    }
    scene.compare();
    let rounds = scene.ledger.next_round() - 1;
    eprintln!("{}; {rounds} rounds of work; nothing lost, nothing twice", scene.count);
    // Otherwise it would be the catching up before each comparison that applies everything.
    assert!(scene.count.advances > wanted / 10, "{}", scene.count);
    assert!(
        scene.count.replica > 0 && scene.count.source > 0 && scene.count.at_points > 0 && scene.count.at_random > 0
    );
}

impl Scene {
    fn kill_somebody(&mut self) {
        match self.random.below(10) {
            0..=2 => self.kill_program_at_a_point(),
            3 | 4 => self.kill_program(),
            5..=7 => self.kill_replica(),
            _ => self.kill_source(),
        }
    }

    fn start_program(&mut self) {
        if self.running.is_none() {
            self.running = Some(self.site.spawn(self.site.replicate(&OPTIONS)));
        }
    }

    fn kill_program_at_a_point(&mut self) {
        const WORK_MAX: u32 = 20;
        if let Some(running) = self.running.take() {
            // Only a new one can be told where to stop.
            self.count.at_random += u64::from(running.kill());
        }
        let point = POINTS[self.random.below(POINTS.len() as u64) as usize];
        let mut command = self.site.replicate(&OPTIONS);
        command.env("SPATE_STOP_AT", format!("{point}:{}", 1 + self.random.below(6)));
        let mut running = self.site.spawn(command);
        for _ in 0..WORK_MAX {
            self.ledger.work(&self.site.source);
            self.ledger.define(&self.site.source);
            if point.starts_with("archive-file") {
                self.site.source.sql("FLUSH BINARY LOGS");
            }
            if !running.is_running() {
                break;
            }
        }
        // It may have begun late, and still works: it waits until the sessions of a killed one are gone.
        running.wait().assert_says(&["stopped at "]);
        self.count.at_points += 1;
        self.note_advance();
    }

    fn kill_program(&mut self) {
        self.kill_program_unseen();
        self.note_advance();
    }

    fn kill_program_unseen(&mut self) {
        self.start_program();
        let mut work = self.begin_work();
        self.moment();
        let running = self.running.take().unwrap();
        let said = running.said();
        assert!(running.kill(), "it ended by itself: {said}");
        self.count.at_random += 1;
        work.wait().unwrap();
    }

    fn kill_replica(&mut self) {
        self.start_program();
        let mut work = self.begin_work();
        self.moment();
        self.site.replica.kill();
        self.count.replica += 1;
        work.wait().unwrap();
        if self.random.below(3) == 0 {
            // The next one starts before the replica does.
            self.kill_program_unseen();
            self.start_program();
        }
        self.site.replica.begin();
    }

    fn kill_source(&mut self) {
        self.start_program();
        let mut work = self.begin_work();
        self.moment();
        self.site.source.kill();
        self.count.source += 1;
        // Ends with its server, at whatever it was.
        work.wait().unwrap();
        self.site.source.begin();
    }

    /// After the program was killed, while the replica is there.
    fn note_advance(&mut self) {
        let checkpoint = self.site.checkpoint();
        self.count.advances += u64::from(checkpoint != self.checkpoint);
        self.checkpoint = checkpoint;
    }

    /// Work that goes on while something is killed.
    fn begin_work(&mut self) -> Child {
        if self.random.below(3) == 0 {
            self.ledger.define(&self.site.source);
        }
        self.site.source.begin_script(&[self.ledger.script(), self.ledger.script()].concat())
    }

    /// Random, and not a wait for a condition: the moment is the test.
    fn moment(&mut self) {
        sleep(Duration::from_millis(self.random.below(250)));
    }

    fn compare(&mut self) {
        if let Some(mut running) = self.running.take() {
            assert!(running.is_running(), "it ended by itself: {}", running.said());
            self.count.at_random += u64::from(running.kill());
        }
        self.ledger.work(&self.site.source);
        self.site.catch_up(&OPTIONS);
        assert_same(&self.site);
        self.count.comparisons += 1;
    }
}
