//! One trial: fresh servers, statements on the source, failures, and the comparison at the end.

mod comparison;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::driver::{Driver, Outcome};
use super::fate::Fate;
use super::feature::Feature;
use super::generate::Generator;
use super::judge::Finding;
use super::link::{End, Link};
use super::mysql_only::MySqlOnly;
use super::picture::Picture;
use super::servers::{Ground, Servers, files_directory};
use super::settings::{Beginning, Failure, Settings};
use super::step::{Action, Step};
use super::world::World;
use super::{mysql_words, picture};
use crate::home::create_private_directory;
use crate::native::{self, NativeState};
use crate::position;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::vendor::Vendor;
use crate::{Error, Result};

/// A replica that makes no progress in this time is stuck. (Small transactions take milliseconds.)
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Part of Spate's error if an old session on the replica still holds its lock.
const OLD_SESSION: &str = "another Spate applies to the replica";
/// Part of MySQL's error about a table that it does not find after a kill, and finds after one more restart.
const LOST_TABLE: &str = "Tablespace is missing for table";
/// Restarts of Spate after such an error; each time Spate waits for 10 s.
const RESTARTS_MAX: u32 = 6;
/// Longer than Spate needs to notice definitions by other clients on its replica.
const NOTICED_AFTER: Duration = Duration::from_millis(400);
/// The directories of the Spates of a trial.
pub(super) const SPATE_DIRECTORIES: [&str; 2] = ["spate", "spate-downstream"];
/// Time between two reads of a position while the replicas catch up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A seed ends after this many steps, so that a record stays readable.
const STEPS_MAX: usize = 100_000;

/// The steps of a trial.
#[derive(Debug, Clone, Copy)]
pub(super) enum Script<'a> {
    /// Generate statements for this long.
    Generate(Duration),
    /// Repeat recorded steps.
    Repeat(&'a [Step]),
    /// Execute a user's steps, and note the statements that the source refuses.
    Given(&'a [Step]),
}

/// The result of a trial.
#[derive(Debug, Default)]
pub(super) struct TrialResult {
    pub(super) steps: Vec<Step>,
    pub(super) statements: u64,
    /// How often the source refused a statement, by error number.
    pub(super) errors: BTreeMap<u16, u64>,
    pub(super) transactions: u64,
    pub(super) failures: u64,
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<String>,
    /// Spate stopped where the native replica had stopped before it: no finding, but worth a look.
    pub(super) has_excused_stop: bool,
    /// True if the native replica reached the end, or the position of Spate's, and was compared with it.
    pub(super) has_oracle: bool,
}

impl TrialResult {
    /// The result of a trial without a comparison.
    pub(super) fn without_oracle(why: String) -> TrialResult {
        TrialResult { notes: vec![why], ..TrialResult::default() }
    }
}

struct Trial<'a> {
    settings: &'a Settings,
    servers: Servers,
    driver: Driver,
    /// The first Spate keeps the replica. The second, if there is one, keeps a replica of that replica.
    links: Vec<Link>,
    was_started: bool,
    restarts_left: u32,
    tells_refusals: bool,
    result: TrialResult,
}

/// Runs a trial in `directory`, which is empty. Calls `tell` with the progress.
pub(super) fn run(
    ground: &Ground,
    settings: &Settings,
    script: Script<'_>,
    directory: &Path,
    tell: &dyn Fn(&str),
) -> Result<TrialResult> {
    create_private_directory(directory)?;
    let servers = Servers::start(&ground.parties, settings, directory)?;
    let ahead = ground.prefetch_natively(&servers, directory)?;
    let link = |from, to, name| Link::new(ground, settings, (from, to), &servers.password, &directory.join(name));
    let mut links = vec![link(&servers.source, &servers.replica, SPATE_DIRECTORIES[0])?];
    if let Some(downstream) = &servers.downstream {
        links.push(link(&servers.replica, downstream, SPATE_DIRECTORIES[1])?);
    }
    let clients = settings.features.has(Feature::Clients).then(|| servers.password.clone());
    let driver = Driver::new(&servers.source, &files_directory(directory), clients);
    let result = TrialResult::default();
    let mut trial = Trial {
        settings,
        servers,
        driver,
        links,
        was_started: false,
        restarts_left: RESTARTS_MAX,
        tells_refusals: matches!(script, Script::Given(_)),
        result,
    };
    if settings.beginning == Beginning::AtOnce {
        trial.start_spate()?;
    }
    match script {
        Script::Generate(time) => trial.generate(time, tell)?,
        Script::Repeat(steps) | Script::Given(steps) => trial.repeat(steps)?,
    }
    tell("catching up");
    trial.finish()?;
    // It may end with the native replica's error, and in no other way.
    if let Some(output) = ahead.map(|ahead| ahead.output()).filter(|output| output.contains("panicked")) {
        return Err(Error::ProgramFailed { program: "spate prefetch".into(), status: "a panic".into(), output });
    }
    Ok(trial.result)
}

impl Trial<'_> {
    fn generate(&mut self, time: Duration, tell: &dyn Fn(&str)) -> Result<()> {
        let mut observer = self.servers.source.connect()?;
        let mut generator = Generator::new(self.settings, self.collations()?);
        let mut mysql_only = MySqlOnly::new(self.settings);
        // Statements and failures draw from generators of their own, so that failures do not change the statements.
        let mut fate = Fate::new(self.settings, time);
        let begun = Instant::now();
        while begun.elapsed() < time && self.result.steps.len() < STEPS_MAX && self.result.findings.is_empty() {
            if let Some(failure) = fate.strikes(begun.elapsed(), self.was_started, self.links[0].is_running()) {
                self.record(Step { session: 0, action: Action::Failure(failure) })?;
                if failure == Failure::SourceKilled {
                    generator.lose_all();
                    observer = self.servers.source.connect()?;
                }
            }
            let step = self.adapted(generator.step(), &mut mysql_only, &generator.world);
            let outcome = self.record(generator.spelled(&step))?;
            if generator.learn(&step, outcome) {
                generator.world = World::read(&mut observer, self.settings.pair.source)?;
            }
            if self.result.steps.len().is_multiple_of(100) {
                tell(&format!("{} statements", self.result.statements));
                self.check_spate();
            }
        }
        Ok(())
    }

    /// The step in words that the servers understand; sometimes replaced by a statement that only MySQL has.
    fn adapted(&self, step: Step, mysql_only: &mut MySqlOnly, world: &World) -> Step {
        let pair = self.settings.pair;
        let has_own_words = pair.source == Vendor::MySql && !pair.is_mixed();
        let translate = match self.settings.features.has(Feature::Xa) {
            true => mysql_words::translate_beside_xa,
            false => mysql_words::translate,
        };
        let Step { session, action } = step;
        let action = match action {
            Action::Sql(sql) if pair.speaks_mysql() => Action::Sql(
                // A CREATE must be executed, because the next steps need its object.
                (has_own_words && !sql.starts_with("CREATE"))
                    .then(|| mysql_only.draw(world))
                    .flatten()
                    .unwrap_or_else(|| translate(&sql)),
            ),
            other => other,
        };
        Step { session, action }
    }

    /// The collations that columns can have on all servers, with their character sets first.
    fn collations(&self) -> Result<Vec<(String, String)>> {
        let mut known = collations(&mut self.servers.source.connect()?, self.settings.pair.source)?;
        if self.settings.pair.is_mixed() {
            let others = collations(&mut self.servers.replica.connect()?, self.settings.pair.replica)?;
            known.retain(|collation| others.contains(collation));
        }
        Ok(known)
    }

    fn repeat(&mut self, steps: &[Step]) -> Result<()> {
        for (number, step) in steps.iter().enumerate() {
            if self.settings.beginning == Beginning::HalfWay && number == steps.len() / 2 && !self.was_started {
                self.start_spate()?;
            }
            self.record(step.clone())?;
        }
        Ok(())
    }

    /// Executes a step and records it.
    fn record(&mut self, step: Step) -> Result<Outcome> {
        if let Action::Failure(failure) = step.action {
            self.fail(failure)?;
            self.result.steps.push(step);
            return Ok(Outcome::Done);
        }
        if let Action::OnReplicas(sql) = &step.action {
            self.on_replicas(sql)?;
            self.result.steps.push(step);
            return Ok(Outcome::Done);
        }
        let outcome = self.driver.execute(&step)?;
        if step.statement().is_some() {
            self.result.statements += 1;
            if let Outcome::Failed(code) = outcome {
                if self.tells_refusals {
                    self.result.notes.push(format!("the source refused with error {code}: {}", step.text()));
                }
                *self.result.errors.entry(code).or_default() += 1;
            }
        }
        self.result.steps.push(step);
        Ok(outcome)
    }

    /// Executes a statement on both replicas, at the same position of the source.
    fn on_replicas(&mut self, sql: &str) -> Result<()> {
        let end = self.servers.source.logged_position()?;
        if self.wait_for_native(&end)?.is_some_and(|state| state.error.is_some()) {
            // The end of the trial reports the error.
            return Ok(());
        }
        self.start_spate()?;
        self.wait_for_links(&end)?;
        for server in self.servers.native.iter().chain([&self.servers.replica]).chain(&self.servers.downstream) {
            let mut session = server.connect()?;
            // Triggers contain the time of their creation, so both servers get the same time.
            session.run("SET SESSION sql_log_bin = 0, timestamp = 1800000000")?;
            // Both servers refuse alike.
            if let Err(error) = session.run(sql) {
                self.result.notes.push(format!("a replica refused: {error}"));
            }
        }
        // Spate checks from time to time for definitions by other clients.
        std::thread::sleep(NOTICED_AFTER);
        Ok(())
    }

    fn fail(&mut self, failure: Failure) -> Result<()> {
        self.result.failures += u64::from(failure != Failure::SpateStarts);
        match failure {
            Failure::SpateKilled => self.links.iter_mut().for_each(Link::kill),
            Failure::SpateStopped => self.stop_spate(),
            Failure::SpateStarts => self.start_spate()?,
            Failure::ReplicaKilled => self.servers.crash_replica()?,
            Failure::SourceKilled => {
                self.servers.crash_source()?;
                self.driver.lose_all();
            }
        }
        Ok(())
    }

    fn start_spate(&mut self) -> Result<()> {
        if self.result.findings.is_empty() {
            self.links.iter_mut().try_for_each(Link::start)?;
            self.was_started = true;
        }
        Ok(())
    }

    fn stop_spate(&mut self) {
        for link in &mut self.links {
            match link.stop() {
                End::Away | End::Clean => {}
                End::Before(error) => self.result.findings.push(Finding::Stopped { output: error.to_string() }),
                End::Unclean(error) => {
                    let output = error.to_string();
                    match output.contains("SIGTERM") || output.contains(OLD_SESSION) {
                        true => self.result.notes.push("Spate was asked to stop before it had begun".to_owned()),
                        false => self.result.findings.push(Finding::UncleanEnd { output }),
                    }
                }
            }
        }
    }

    /// Checks whether a Spate has ended by itself.
    fn check_spate(&mut self) {
        for number in 0..self.links.len() {
            if let Some(error) = self.links[number].ended() {
                self.ended(&error);
            }
        }
    }

    /// Handles the end of a Spate that nobody stopped. If it found the session of a killed Spate still at a statement,
    /// it is started again, as a service manager would. If the replica's server has lost a table in a kill, it is
    /// restarted too.
    fn ended(&mut self, error: &Error) {
        let output = error.to_string();
        let has_lost_table = output.contains(LOST_TABLE) && self.settings.failures.contains(&Failure::ReplicaKilled);
        if (output.contains(OLD_SESSION) || has_lost_table) && self.restarts_left > 0 {
            self.restarts_left -= 1;
            let restarted = if has_lost_table { self.find_lost_table() } else { Ok(()) };
            if let Err(error) = restarted.and_then(|()| self.start_spate()) {
                self.result.findings.push(Finding::Stopped { output: error.to_string() });
            }
            return;
        }
        self.result.findings.push(Finding::Stopped { output });
    }

    fn find_lost_table(&mut self) -> Result<()> {
        self.result.notes.push("the replica's server had lost a table, and was started once more".to_owned());
        self.servers.crash_replica()
    }

    fn picture_of_replica(&mut self, take: fn(&Sandbox) -> Result<Picture>) -> Result<Picture> {
        match take(&self.servers.replica) {
            Err(error) if error.to_string().contains(LOST_TABLE) => {
                self.find_lost_table()?;
                take(&self.servers.replica)
            }
            picture => picture,
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.driver.disconnect_all();
        self.end_events()?;
        // After a restart the first read of a MEMORY table logs that it is empty.
        picture::take(&self.servers.source)?;
        let end = self.servers.source.logged_position()?;
        self.result.transactions = position::transactions(&end);
        let native = self.wait_for_native(&end)?;
        self.check_spate();
        if self.result.findings.is_empty() {
            self.start_spate()?;
            self.wait_for_links(&end)?;
            self.stop_spate();
        }
        match &native {
            Some(state) => self.compare(state),
            None => self.compare_with_source(),
        }
    }

    /// Ends the source's event scheduler, and waits for its running events.
    fn end_events(&self) -> Result<()> {
        if !self.settings.features.has(Feature::Events) {
            return Ok(());
        }
        let mut source = self.servers.source.connect()?;
        source.run("SET GLOBAL event_scheduler = OFF")?;
        let deadline = Instant::now() + STUCK_AFTER;
        let events = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Connect'";
        while source.value::<u64>(events)? > 0 && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn wait_for_native(&self, end: &str) -> Result<Option<NativeState>> {
        let Some(native) = &self.servers.native else { return Ok(None) };
        let mut session = native.connect()?;
        let mut progress = Progress::new();
        loop {
            let mut state = native::state(native.vendor(), &mut session)?;
            // MySQL's status says only that a worker has failed; the reason is in its log.
            if let (Some(error), Some(why)) = (&mut state.error, native.last_error("Worker")) {
                *error = why;
            }
            if state.error.is_some() || position::has_reached(&state.position, end) {
                return Ok(Some(state));
            }
            if progress.is_stuck(&state.position) {
                // It waits without end, for example for the locks of a prepared XA transaction that a later transaction
                // ends.
                state.error = Some(format!("it stood still for {STUCK_AFTER:?}, before {end}"));
                state.stands_still = true;
                return Ok(Some(state));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until Spate has applied the source's binlog up to `end`, and the second Spate the replica's binlog.
    fn wait_for_links(&mut self, end: &str) -> Result<()> {
        self.wait_for_link(0, end);
        if self.servers.downstream.is_some() && self.result.findings.is_empty() {
            let end = self.servers.replica.logged_position()?;
            self.wait_for_link(1, &end);
        }
        Ok(())
    }

    fn wait_for_link(&mut self, number: usize, end: &str) {
        let mut progress = Progress::new();
        while self.links[number].is_running() {
            if let Some(error) = self.links[number].ended() {
                self.ended(&error);
                continue;
            }
            let link = &mut self.links[number];
            let position = link.position();
            if position::has_reached(&position, end) {
                break;
            }
            if progress.is_stuck(&position) {
                let output = format!("at {position} of {end}\n{}", link.output());
                self.result.findings.push(Finding::Stuck { output });
                link.kill();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Notices that a position does not change.
struct Progress {
    position: String,
    since: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { position: String::new(), since: Instant::now() }
    }

    fn is_stuck(&mut self, position: &str) -> bool {
        if self.position != position {
            *self = Progress { position: position.to_owned(), since: Instant::now() };
        }
        self.since.elapsed() > STUCK_AFTER
    }
}

/// The collations that columns of a server can have, with their character sets first.
fn collations(session: &mut Session, vendor: Vendor) -> Result<Vec<(String, String)>> {
    let name = match vendor {
        Vendor::MariaDb => "FULL_COLLATION_NAME",
        Vendor::MySql => "COLLATION_NAME",
    };
    session.rows(&format!(
        "SELECT CHARACTER_SET_NAME, {name} FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY ORDER BY 2"
    ))
}
