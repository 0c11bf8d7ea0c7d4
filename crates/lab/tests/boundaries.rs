//! TPC-C's consistency conditions at every state that a reader of the replica can see, on real servers.
//!
//! Two sessions hold a share lock on the row of Spate's checkpoint in turns: each asks for it before the other one releases it. What moves the checkpoint
//! stands between them in the queue, so at most one batch commits from one look to the next, and no state passes unseen.

#![allow(clippy::unwrap_used)]

mod programs;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use programs::spate;
use spate_lab::backlog::BacklogPlan;
use spate_lab::binlog_format::Format;
use spate_lab::course::{BacklogPlace, Conditions, Course};
use spate_lab::home::LabHome;
use spate_lab::loads::tpcc::books::Books;
use spate_lab::sandbox::Sandbox;
use spate_lab::screen::Screen;
use spate_lab::server_options::Durability;
use spate_lab::spate_program::SpateProgram;
use spate_lab::sql::Session;
use spate_lab::version::ServerVersion;
use spate_lab::workload::{Shape, Workload};

const LIMIT: Duration = Duration::from_secs(300);

/// `innodb_trx` is made again for whoever asks if nobody has asked for 0.1 s; asked more often, it stays what it was.
const INNODB_TRX_EVERY: Duration = Duration::from_millis(110);

/// What was seen of the states between two batches.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The checkpoints' numbers of transactions.
    states: BTreeSet<u64>,
    /// The states with broken conditions, and the first of these.
    broken: Vec<(u64, String)>,
}

/// Looks at every state until `over`, and once more.
fn look_at_every_state(replica: &Sandbox, schemas: &[String], over: &AtomicBool) -> Seen {
    let mut holders = [replica.connect().unwrap(), replica.connect().unwrap()];
    let mut reader = replica.connect().unwrap();
    let mut seen = Seen::default();
    let mut held = hold(&mut holders[0]);
    for turn in 1.. {
        let is_last = over.load(Ordering::Acquire);
        if seen.states.insert(held) {
            let broken = Books::audit(&mut reader, schemas).unwrap();
            seen.broken.extend(broken.into_iter().next().map(|first| (held, first)));
        }
        let [one, two] = &mut holders;
        let (next, present) = if turn % 2 == 1 { (two, one) } else { (one, two) };
        let id: u64 = next.value("SELECT CONNECTION_ID()").unwrap();
        held = thread::scope(|scope| {
            let waiting = scope.spawn(|| hold(next));
            wait_until_asked(&mut reader, id, || waiting.is_finished());
            present.run("COMMIT").unwrap();
            waiting.join().unwrap()
        });
        if is_last {
            break;
        }
    }
    seen
}

/// Ends the looks, also when a test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Holds the checkpoint where it is, once it may, and says where that is.
fn hold(session: &mut Session) -> u64 {
    session.run("START TRANSACTION").unwrap();
    session.value("SELECT seqno FROM spate.checkpoint WHERE applier = 0 LOCK IN SHARE MODE").unwrap()
}

/// Until the session has its lock, or waits for it.
fn wait_until_asked(reader: &mut Session, id: u64, has_it: impl Fn() -> bool) {
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {id} AND trx_state = 'LOCK WAIT'"
    );
    // Soon, if nobody else waits for it.
    thread::sleep(Duration::from_millis(2));
    while !has_it() {
        thread::sleep(INNODB_TRX_EVERY);
        if reader.value::<u64>(&waits).unwrap() > 0 {
            break;
        }
    }
}

struct Place {
    home: LabHome,
    server: &'static str,
}

impl Place {
    fn of(server: &'static str, name: &str) -> Place {
        let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab").join(name);
        Place { home: LabHome::at(&directory).unwrap(), server }
    }
}

/// Spate applies orders and payments in small batches.
fn conditions_hold_at_every_state(place: &Place, transactions: u64, options: &[&str]) {
    let binaries = place.server.parse::<ServerVersion>().and_then(ServerVersion::resolve).unwrap();
    let work = place.home.work().unwrap();
    let shape = Shape::new(Workload::Tpcc, Some(1), Some(30), Some(64)).with_schemas(1);
    let format = Format::Row;
    let plan = BacklogPlan { shape, format, seconds: 600, rate: None, transactions: Some(transactions), reuse: false };
    let course = Course::prepare(&place.home, &binaries, &plan, work.path(), Screen::default()).unwrap();
    let conditions =
        Conditions { place: BacklogPlace::Source, durability: Durability::Relaxed, ..Conditions::usual(LIMIT) };
    let directory = work.path().join("replica");
    let replica = course.fresh_replica(&conditions, &directory).unwrap();
    let facts = &course.backlog.facts;
    let program = SpateProgram::new(&course.backlog.source, &facts.password, &replica, &directory).unwrap();
    let program = program.with_path(spate());
    let replicate = |until: &str| {
        let options: Vec<String> = options.iter().chain(&["--json"]).map(|option| (*option).to_owned()).collect();
        program.replicate(Some(&facts.start), Some(until), &options).and_then(|running| running.wait(LIMIT)).unwrap()
    };
    // The checkpoint is there before anything is applied.
    replicate(&facts.start);
    let (over, schemas) = (AtomicBool::new(false), shape.schema_names());
    let (seen, usage) = thread::scope(|scope| {
        let looking = scope.spawn(|| look_at_every_state(&replica, &schemas, &over));
        let ending = Ending(&over);
        let usage = replicate(&facts.end);
        drop(ending);
        (looking.join().unwrap(), usage)
    });
    assert_eq!(seen.broken, []);
    let report = usage.report.unwrap();
    let batches = report["batches"].as_u64().unwrap();
    assert!(batches > 50, "{batches} batches");
    assert_eq!(seen.states.len() as u64, batches + 1, "each batch's state was seen, and the one before the first");
    let audit = |server: &Sandbox| Books::audit(&mut server.connect().unwrap(), &schemas).unwrap();
    assert_eq!((audit(&replica), audit(&course.backlog.source)), (vec![], vec![]));
}

#[test]
fn conditions_hold_at_every_batch() {
    conditions_hold_at_every_state(&Place::of("mariadb-10.11", "batches"), 1_000, &["--batch-transactions", "9"]);
}

#[test]
fn conditions_hold_at_every_batch_on_mysql() {
    conditions_hold_at_every_state(&Place::of("mysql-9.7", "batches-mysql"), 600, &["--batch-transactions", "9"]);
}

/// The looks find what is broken for one state only, and no other.
#[test]
fn each_broken_state_is_seen() {
    let place = Place::of("mariadb-10.11", "broken");
    let binaries = place.server.parse::<ServerVersion>().and_then(ServerVersion::resolve).unwrap();
    let work = place.home.work().unwrap();
    let shape = Shape::new(Workload::Tpcc, Some(1), Some(30), Some(64)).with_schemas(1);
    let dataset = spate_lab::dataset::DataSet::open(&place.home, &binaries, &shape).unwrap();
    let options =
        spate_lab::server_options::ServerOptions::base(binaries.vendor(), 1).with_durability(Durability::Relaxed);
    let lifetime = spate_lab::sandbox::Lifetime::Ours;
    let server = Sandbox::restore(&binaries, &dataset.frozen, &work.path().join("server"), &options, lifetime).unwrap();
    let mut session = server.connect().unwrap();
    session.run("CREATE DATABASE spate").unwrap();
    session.run("CREATE TABLE spate.checkpoint (applier INT PRIMARY KEY, seqno BIGINT UNSIGNED NOT NULL)").unwrap();
    session.run("INSERT INTO spate.checkpoint VALUES (0, 0)").unwrap();
    let (over, schemas) = (AtomicBool::new(false), shape.schema_names());
    let seen = thread::scope(|scope| {
        let looking = scope.spawn(|| look_at_every_state(&server, &schemas, &over));
        let ending = Ending(&over);
        let deadline = Instant::now() + LIMIT;
        // The first look holds the checkpoint before it moves.
        while session
            .value::<u64>("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_locked > 0")
            .unwrap()
            == 0
        {
            assert!(Instant::now() < deadline);
            thread::sleep(INNODB_TRX_EVERY);
        }
        for state in 1..=100 {
            session.run("START TRANSACTION").unwrap();
            // Of seven states, one is broken.
            let change = match state % 7 {
                3 => "w_ytd + 1",
                4 => "w_ytd - 1",
                _ => "w_ytd",
            };
            session.run(&format!("UPDATE {}.warehouse SET w_ytd = {change} WHERE w_id = 1", schemas[0])).unwrap();
            session.run("UPDATE spate.checkpoint SET seqno = seqno + 1 WHERE applier = 0").unwrap();
            session.run("COMMIT").unwrap();
        }
        drop(ending);
        looking.join().unwrap()
    });
    assert_eq!(seen.states, (0..=100).collect());
    let broken: Vec<u64> = seen.broken.iter().map(|(state, _)| *state).collect();
    assert_eq!(broken, (0..=100).filter(|state| state % 7 == 3).collect::<Vec<u64>>());
}
