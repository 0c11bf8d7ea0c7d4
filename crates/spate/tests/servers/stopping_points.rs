//! The real program stopped dead at every named point, once and again, and started again: nothing is lost, nothing comes
//! twice.
//!
//! Each stop meets a source at work, and the next run is stopped too: what a run makes of the remains of the run before is
//! itself interrupted. Only then is it let go, and everything compared.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Instant;

use crate::parallel::POINTS;
use crate::support::ledger::{Ledger, assert_same};
use crate::support::program::Running;
use crate::support::session::Session;
use crate::support::{Kind, PATIENCE, Site, wait_until};
use crate::{backup, failover, load, pipelining, shards};

/// Small batches and frequent syncs, so that each point is passed often.
const OPTIONS: [&str; 8] =
    ["--start", "earliest", "--memory", "64MiB", "--batch-transactions", "3", "--archive-sync", "always"];

/// In the archive and its recovery; what has to be done to the files so that recovery comes that way.
const ARCHIVE: [(&str, Remains); 10] = [
    ("after-archive-append", Remains::Whole),
    ("after-archive-sync", Remains::Whole),
    ("archive-file-listed", Remains::Whole),
    ("archive-file-created", Remains::Whole),
    ("archive-file-indexed", Remains::Whole),
    ("before-index-append", Remains::Whole),
    ("after-index-append", Remains::Whole),
    ("rebuilding-earlier-index", Remains::WithoutIndexes),
    ("rebuilding-last-index", Remains::WithoutIndexes),
    ("before-recovery-truncation", Remains::TornTransaction),
];

/// Reached from the same remains as the last of [`ARCHIVE`].
const AFTER_TRUNCATION: &str = "after-recovery-truncation";

/// From a gathered batch to its commit and what follows.
const PIPELINE: [&str; 6] = [
    "after-gathering",
    "before-checkpoint-update",
    "between-statements",
    "before-commit",
    "after-commit-sent",
    "after-commit",
];

/// On a replica that has never seen Spate.
const FIRST_START: [&str; 4] =
    ["after-own-table:1", "after-own-table:2", "before-first-checkpoint", "after-first-checkpoint"];

/// The source's temporary tables are copied, and the copies not committed.
const AFTER_COPIES: &str = "after-temporary-copies";

/// A routine is created, and its creator has not got the privileges on it.
const BEFORE_PRIVILEGES: &str = "before-creators-privileges";

const SEMI_SYNC: [&str; 2] = ["before-acknowledgement", "after-acknowledgement"];

const HOLD: [&str; 2] = ["before-hold-acknowledgement", "during-hold"];

/// Around a definition, where nothing is in doubt: either nothing of it has begun, or all of it is done and recorded.
const DEFINITION_CLEAR: [&str; 2] = ["before-intent", "after-fulfilment"];

/// Between the intent and its fulfilment.
const DEFINITION_IN_DOUBT: [&str; 2] = ["after-intent", "before-fulfilment"];

/// A definition of a table is executed, and what follows not committed.
const AFTER_DEFINITION: &str = "after-definition";

/// Rows of other tables are executed beside a definition (`beside_definitions.rs`).
const BESIDE_DEFINITION: &str = "beside-definition";

/// Around taking over and handing back: `takeover.rs` stops at each.
const TAKEOVER: [&str; 12] = [
    "takeover-stopped",
    "takeover-archive-set-aside",
    "before-setting-aside",
    "after-setting-aside",
    "takeover-relay-logs",
    "takeover-parked",
    "takeover-checkpoint",
    "turns-caught-up",
    "handback-told",
    "handback-placed",
    "handback-forgotten",
    "handback-unparked",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remains {
    Whole,
    WithoutIndexes,
    TornTransaction,
}

/// A ledger whose tables are on the replica already: what is stopped are changes, not definitions.
fn begin(site: &Site, seed: u64) -> Ledger {
    let ledger = Ledger::begin(&site.source, seed);
    site.catch_up(&OPTIONS);
    ledger
}

/// Starts the program, which is to stop at `point` (`name` or `name:times`).
pub fn start_to_stop(site: &Site, point: &str, options: &[&str]) -> Running {
    let mut command = site.replicate(&[&OPTIONS, options].concat());
    command.env("SPATE_STOP_AT", point);
    site.spawn(command)
}

/// Works on the source until the program has stopped at `point`.
pub fn work_until_stopped(mut running: Running, point: &str, mut work: impl FnMut()) {
    let deadline = Instant::now() + PATIENCE;
    while running.is_running() {
        assert!(Instant::now() < deadline, "{point} is not passed: {}", running.said());
        work();
    }
    let ended = running.wait();
    let name = point.split([':', ',']).next().unwrap();
    assert_eq!(ended.status.signal(), Some(9), "{point}: {}", ended.output);
    ended.assert_says(&[&format!("stopped at {name}")]);
}

/// Stops the program at `point` the first, second and fifth time, one after the other, and then lets it catch up.
fn stop_often(site: &Site, point: &str, mut work: impl FnMut()) {
    for times in [1, 2, 5] {
        let point = format!("{point}:{times}");
        work();
        work_until_stopped(start_to_stop(site, &point, &[]), &point, &mut work);
    }
    work();
    site.catch_up(&OPTIONS);
    assert_same(site);
}

#[test]
fn kill_at_each_point_of_the_pipeline_loses_nothing() {
    stop_the_pipeline(Kind::Mariadb);
}

#[test]
fn kill_at_each_point_of_the_pipeline_loses_nothing_on_mysql() {
    stop_the_pipeline(Kind::Mysql);
}

fn stop_the_pipeline(kind: Kind) {
    let site = Site::of(kind);
    let mut ledger = Ledger::begin(&site.source, 1);
    for point in FIRST_START {
        work_until_stopped(start_to_stop(&site, point, &[]), point, || ());
    }
    site.catch_up(&OPTIONS);
    for point in PIPELINE {
        stop_often(&site, point, || ledger.work(&site.source));
    }
}

#[test]
fn kill_at_each_point_of_the_archive_loses_nothing() {
    let site = Site::plain();
    let mut ledger = begin(&site, 2);
    for (point, remains) in ARCHIVE {
        match remains {
            Remains::Whole => stop_often(&site, point, || {
                ledger.work(&site.source);
                site.source.sql("FLUSH BINARY LOGS");
            }),
            Remains::WithoutIndexes => {
                ledger.work(&site.source);
                site.catch_up(&OPTIONS);
                remove_indexes(&site.archive());
                work_until_stopped(start_to_stop(&site, point, &[]), point, || ());
                site.catch_up(&OPTIONS);
                assert_same(&site);
            }
            Remains::TornTransaction => {
                tear_a_transaction(&site);
                // Stopped before it truncates, the next start finds the same again.
                for point in [point, AFTER_TRUNCATION] {
                    work_until_stopped(start_to_stop(&site, point, &[]), point, || ());
                }
                site.catch_up(&OPTIONS);
                assert_same(&site);
            }
        }
    }
}

fn remove_indexes(archive: &Path) {
    let paths = fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    let indexes = paths.filter(|path| path.extension().is_some_and(|extension| extension == "index"));
    assert!(indexes.map(|path| fs::remove_file(path).unwrap()).count() > 2);
}

/// Stops the program in the midst of a transaction that is larger than its buffers.
fn tear_a_transaction(site: &Site) {
    site.source.sql("CREATE TABLE ledger.large (id INT PRIMARY KEY, v TEXT CHARACTER SET latin1 NOT NULL)");
    site.catch_up(&OPTIONS);
    site.source.sql("INSERT INTO ledger.large SELECT seq, REPEAT('l', 8000) FROM mysql.seq_1_to_2000");
    let point = "after-archive-append:3";
    work_until_stopped(start_to_stop(site, point, &[]), point, || ());
}

#[test]
fn kill_around_acknowledgements_loses_nothing() {
    let site = Site::new(&["--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=200"], &[]);
    let mut ledger = begin(&site, 3);
    for point in SEMI_SYNC {
        for times in [1, 6] {
            let point = format!("{point}:{times}");
            let running = start_to_stop(&site, &point, &["--semi-sync"]);
            work_until_stopped(running, &point, || ledger.work(&site.source));
        }
        site.catch_up(&OPTIONS);
        assert_same(&site);
    }
}

#[test]
fn kill_during_a_hold_ends_the_comparison() {
    let site = Site::plain();
    let mut ledger = begin(&site, 4);
    for point in HOLD {
        ledger.work(&site.source);
        let running = start_to_stop(&site, point, &[]);
        site.wait_applying();
        running.signal("STOP");
        let comparison = site.spawn(site.command("verify", &["--catch-up-seconds", "10"]));
        wait_until("the request to hold", || site.replica.sql("SELECT COUNT(*) FROM spate.hold") == "1");
        // It looks again when nobody applies any more, and the source is beyond the replica.
        comparison.signal("STOP");
        running.signal("CONT");
        work_until_stopped(running, point, || ledger.work(&site.source));
        ledger.work(&site.source);
        comparison.signal("CONT");
        let ended = comparison.wait();
        assert_eq!(ended.status.code(), Some(1), "a comparison without an applier: {}", ended.output);
        site.catch_up(&OPTIONS);
        assert_same(&site);
    }
    let running = site.spawn(site.replicate(&OPTIONS));
    site.wait_applying();
    let ended = site.run(site.command("verify", &[]));
    assert!(ended.status.success(), "{}", ended.output);
    assert!(running.terminate().status.success());
}

#[test]
fn kill_around_definitions_executes_them_once() {
    let site = Site::plain();
    let mut ledger = begin(&site, 5);
    for point in DEFINITION_CLEAR {
        stop_often(&site, point, || {
            ledger.work(&site.source);
            let round = ledger.next_round();
            site.source.sql(&format!(
                "CREATE TABLE ledger.t{round} (id INT PRIMARY KEY); INSERT INTO ledger.t{round} VALUES ({round}); \
                 ALTER TABLE ledger.t{round} ADD COLUMN v INT AUTO_INCREMENT UNIQUE"
            ));
        });
    }
}

/// One statement of each ordinary kind, each undone or followed by another that needs it.
const DEFINITIONS: [&str; 20] = [
    "CREATE TABLE defined.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
    "CREATE INDEX i ON defined.t (v)",
    "ALTER TABLE defined.t ADD COLUMN w VARCHAR(20) NOT NULL DEFAULT 'w' FIRST",
    "ALTER TABLE defined.t MODIFY w VARCHAR(30) NOT NULL DEFAULT 'x'",
    "TRUNCATE TABLE defined.t",
    "RENAME TABLE defined.t TO defined.s",
    "CREATE TABLE defined.t LIKE defined.s",
    "RENAME TABLE defined.t TO defined.u, defined.s TO defined.t, defined.u TO defined.s",
    "DROP INDEX i ON defined.s",
    "CREATE VIEW defined.seen AS SELECT id FROM defined.t",
    "CREATE OR REPLACE VIEW defined.seen AS SELECT id, v FROM defined.t",
    "CREATE PROCEDURE defined.p() INSERT INTO defined.t (v) VALUES (1)",
    "CREATE TRIGGER defined.g BEFORE INSERT ON defined.s FOR EACH ROW SET NEW.v = NEW.v + 1",
    "CREATE USER reader@'%' IDENTIFIED BY 'r'",
    "GRANT SELECT ON defined.* TO reader@'%'",
    "DROP USER reader@'%'",
    "DROP TRIGGER defined.g",
    "DROP PROCEDURE defined.p",
    "DROP VIEW defined.seen",
    "DROP TABLE defined.s",
];

/// Everything that [`DEFINITIONS`] define, as the server tells it.
const DEFINED: &str = "SELECT table_name, table_type, auto_increment FROM information_schema.tables \
        WHERE table_schema = 'defined' ORDER BY 1; \
    SELECT table_name, ordinal_position, column_name, column_type, column_default FROM information_schema.columns \
        WHERE table_schema = 'defined' ORDER BY 1, 2; \
    SELECT table_name, index_name, seq_in_index, column_name FROM information_schema.statistics \
        WHERE table_schema = 'defined' ORDER BY 1, 2, 3; \
    SELECT view_definition FROM information_schema.views WHERE table_schema = 'defined'; \
    SELECT routine_name, routine_definition FROM information_schema.routines WHERE routine_schema = 'defined'; \
    SELECT trigger_name, action_statement FROM information_schema.triggers WHERE trigger_schema = 'defined'; \
    SELECT COUNT(*) FROM mysql.db WHERE user = 'reader'";

#[test]
fn server_killed_during_definitions_executes_them_once() {
    stop_amid_definitions(Kind::Mariadb, "SELECT COUNT(*) FROM mysql.global_priv WHERE user = 'reader'");
}

#[test]
fn server_killed_during_definitions_executes_them_once_on_mysql() {
    stop_amid_definitions(Kind::Mysql, "SELECT COUNT(*) FROM mysql.user WHERE user = 'reader'");
}

/// `accounts`: what says whether an account is there.
fn stop_amid_definitions(kind: Kind, accounts: &str) {
    let site = Site::of(kind);
    let mut ledger = Ledger::begin(&site.source, 6);
    site.source.sql("CREATE DATABASE defined");
    site.catch_up(&OPTIONS);
    for point in DEFINITION_IN_DOUBT.into_iter().chain([AFTER_DEFINITION]) {
        for sql in DEFINITIONS {
            // They are executed again without a note; others are executed in the session that applies.
            let is_repeatable = sql.starts_with("TRUNCATE") || sql.starts_with("DROP TABLE");
            let is_of_tables = ["TABLE ", "INDEX "].iter().any(|kind| sql[..sql.len().min(16)].contains(kind));
            let is_passed = if point == AFTER_DEFINITION { is_of_tables } else { !is_repeatable };
            ledger.work(&site.source);
            // Without a default database, the session that applies executes it.
            let database = if point == AFTER_DEFINITION { "USE defined; " } else { "" };
            site.source.sql(&format!("{database}{sql}"));
            if sql.starts_with("CREATE TABLE") || sql.starts_with("ALTER TABLE") {
                site.source.sql("INSERT INTO defined.t (v) VALUES (5), (6)");
            }
            if is_passed {
                work_until_stopped(start_to_stop(&site, point, &[]), point, || ());
            }
            ledger.work(&site.source);
            site.catch_up(&OPTIONS);
            for look in [DEFINED, accounts] {
                assert_eq!(site.source.sql(look), site.replica.sql(look), "{point}, {sql}");
            }
            assert_same(&site);
        }
        site.source.sql("DROP TABLE defined.t");
    }
}

#[test]
fn kill_amid_definitions_that_are_committed_together_executes_them_again() {
    stop_amid_joined_definitions(Kind::Mariadb);
}

#[test]
fn kill_amid_definitions_that_are_committed_together_executes_them_again_on_mysql() {
    stop_amid_joined_definitions(Kind::Mysql);
}

fn stop_amid_joined_definitions(kind: Kind) {
    const ROUNDS: u32 = 3;
    let site = Site::of(kind);
    site.source.sql("CREATE DATABASE defined");
    let place = "SELECT seqno FROM spate.checkpoint";
    let mut joined = 0;
    for round in 0..ROUNDS {
        for times in 1..=6 {
            let tables: String = (0..6)
                .map(|table| {
                    format!("CREATE TABLE t{table} (id INT PRIMARY KEY); INSERT INTO t{table} VALUES ({round}), (7);")
                })
                .collect();
            site.source.sql(&format!("USE defined; {tables}"));
            site.catch_up(&OPTIONS);
            let before = site.replica.sql(place);
            site.source.sql(
                "USE defined; TRUNCATE TABLE t0; DROP TABLE t1; TRUNCATE TABLE t2; ALTER TABLE t3 ADD w INT; \
                 TRUNCATE TABLE t4; DROP TABLE t5; INSERT INTO t0 VALUES (8); INSERT INTO t4 VALUES (9); \
                 UPDATE t3 SET w = id",
            );
            let point = format!("{AFTER_DEFINITION}:{times}");
            work_until_stopped(start_to_stop(&site, &point, &[]), &point, || ());
            joined += u32::from(times > 1 && site.replica.sql(place) == before);
            site.catch_up(&OPTIONS);
            assert_eq!(site.source.sql(DEFINED), site.replica.sql(DEFINED), "{point}");
            site.assert_identical();
            site.source.sql("USE defined; DROP TABLE t0; DROP TABLE t2; DROP TABLE t3; DROP TABLE t4");
        }
    }
    assert!(joined > 0, "each definition was committed by itself");
}

/// A server that is killed while it replaces a table may come back with neither the old one nor the new.
#[test]
fn server_killed_after_the_drop_of_a_replacement_repeats_it() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)");
    site.catch_up(&OPTIONS);
    site.source.sql("CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (2, 2)");
    work_until_stopped(start_to_stop(&site, "after-intent", &[]), "after-intent", || ());
    site.replica.sql("DROP TABLE d.t");
    site.catch_up(&OPTIONS);
    site.assert_identical();
    // Or with the new one, and the note still there.
    site.source.sql("CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, w INT); INSERT INTO d.t VALUES (3, 3)");
    work_until_stopped(start_to_stop(&site, "before-fulfilment", &[]), "before-fulfilment", || ());
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

#[test]
fn kill_with_temporary_tables_keeps_them() {
    let site = Site::plain();
    let mut ledger = begin(&site, 7);
    let mut session = Session::open(&site.source);
    session.sql("SET SESSION binlog_format=STATEMENT; CREATE TEMPORARY TABLE ledger.x (n INT) ENGINE=InnoDB");
    session.sql("CREATE TABLE ledger.counted (n INT, k INT AUTO_INCREMENT PRIMARY KEY)");
    for point in ["before-commit", AFTER_COPIES, "after-commit"] {
        stop_often(&site, point, || {
            ledger.work(&site.source);
            session.sql("INSERT INTO ledger.x SELECT COUNT(*) FROM ledger.x");
            session.sql("INSERT INTO ledger.counted (n) SELECT SUM(n) FROM ledger.x; UPDATE ledger.x SET n = n + 1");
        });
        site.assert_identical();
    }
}

#[test]
fn kill_before_a_creators_privileges_gives_them_later() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE USER maker@localhost IDENTIFIED BY 'x'; GRANT CREATE ROUTINE ON d.* TO maker@localhost",
        );
        let mut maker = site.source.client();
        maker.args(["-u", "maker", "-px", "-e", "CREATE PROCEDURE d.p() SELECT 1"]);
        assert!(maker.output().unwrap().status.success());
        let mut command = site.replicate(&OPTIONS);
        command.env("SPATE_STOP_AT", BEFORE_PRIVILEGES);
        site.run(command).assert_says(&["stopped at before-creators-privileges"]);
        let privileges = "SELECT COUNT(*) FROM mysql.procs_priv WHERE Routine_name = 'p'";
        assert_eq!(site.replica.sql(privileges), "0");
        site.catch_up(&OPTIONS);
        assert_eq!(site.replica.sql(privileges), "1", "{kind:?}");
    }
}

/// A point that no test stops at proves nothing.
#[test]
fn stopping_points_each_have_a_test() {
    let name = |point: &'static str| point.split(':').next().unwrap().to_owned();
    let lists = [
        &PIPELINE[..],
        &FIRST_START,
        &SEMI_SYNC,
        &HOLD,
        &DEFINITION_CLEAR,
        &DEFINITION_IN_DOUBT,
        &TAKEOVER,
        &POINTS,
        &shards::POINTS,
        &pipelining::POINTS,
        &load::POINTS,
        &backup::POINTS,
        &failover::POINTS,
    ];
    let mut tested: BTreeSet<String> = lists.into_iter().flatten().map(|point| name(point)).collect();
    tested.extend(ARCHIVE.map(|(point, _)| name(point)));
    tested.extend(
        [AFTER_TRUNCATION, AFTER_COPIES, AFTER_DEFINITION, BESIDE_DEFINITION, BEFORE_PRIVILEGES, backup::AFTER_RENAME]
            .map(str::to_owned),
    );
    let mut present = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in fs::read_dir(crates).unwrap() {
        collect_points(&entry.unwrap().path().join("src"), &mut present);
    }
    assert_eq!(tested, present);
}

fn collect_points(directory: &Path, points: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_points(&path, points);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let after = text.split("stopping_point(\"").skip(1);
        points.extend(after.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
}
