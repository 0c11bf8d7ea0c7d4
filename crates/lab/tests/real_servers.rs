//! The laboratory on real servers: a sandbox's life, and a small race of native contenders.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use spate_lab::backlog::BacklogPlan;
use spate_lab::contender::Contender;
use spate_lab::follower::LivePlan;
use spate_lab::home::LabHome;
use spate_lab::race::{BacklogPlace, Race, RacePlan};
use spate_lab::sandbox::{Lifetime, Sandbox, create_account, pristine_data, random_password};
use spate_lab::sandbox_registry;
use spate_lab::screen::Screen;
use spate_lab::server_options::{Durability, ServerOptions};
use spate_lab::steady;
use spate_lab::version::ServerVersion;
use spate_lab::workload::{Shape, Workload};

/// One home for all tests of this file, so that the pristine data directory is made once.
fn home() -> LabHome {
    LabHome::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab")).unwrap()
}

fn small_options() -> ServerOptions {
    ServerOptions::base(1).with("innodb-buffer-pool-size", "32M").with_durability(Durability::Relaxed)
}

#[test]
fn a_sandbox_is_frozen_and_lives_again_from_the_copy() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let first = work.path().join("first");
    let server = Sandbox::restore(&binaries, &pristine, &first, &small_options(), Lifetime::Ours).unwrap();
    let mut session = server.connect().unwrap();
    create_account(&mut session, &random_password().unwrap()).unwrap();
    session.run("CREATE DATABASE d").unwrap();
    session.run("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    session.run("INSERT INTO d.t VALUES (1), (2)").unwrap();
    let position: String = session.value("SELECT @@GLOBAL.gtid_binlog_pos").unwrap();
    assert_eq!(position, "0-1-3", "the account must leave no trace in the binlog");
    assert_eq!(session.value::<String>("SELECT @@bind_address").unwrap(), "127.0.0.1");
    assert!(server.cpu_time() > Duration::ZERO);
    let process = server.process();
    let frozen = work.path().join("frozen");
    server.freeze(&frozen).unwrap();
    assert!(!process.is_running());

    // The copy knows the rows; what happens to it does not reach the frozen state.
    for name in ["second", "third"] {
        let server =
            Sandbox::restore(&binaries, &frozen, &work.path().join(name), &small_options(), Lifetime::Ours).unwrap();
        let mut session = server.connect().unwrap();
        assert_eq!(session.value::<u64>("SELECT COUNT(*) FROM d.t").unwrap(), 2);
        session.run("DELETE FROM d.t").unwrap();
        let process = server.process();
        drop(server);
        assert!(!process.is_running(), "a dropped sandbox is killed");
    }
}

#[test]
fn a_server_that_does_not_start_shows_its_error_log() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let options = small_options().with("no-such-option", 1);
    let result = Sandbox::restore(&binaries, &pristine, &work.path().join("broken"), &options, Lifetime::Ours);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("did not start") && message.contains("no-such-option"), "{message}");
}

#[test]
fn a_path_too_long_for_a_socket_still_works() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let deep = work.path().join("d".repeat(100));
    let server = Sandbox::restore(&binaries, &pristine, &deep, &small_options(), Lifetime::Ours).unwrap();
    let socket = server.socket().to_owned();
    assert_eq!(server.connect().unwrap().value::<u64>("SELECT 1").unwrap(), 1);
    drop(server);
    assert!(!socket.parent().unwrap().exists(), "the socket's directory is removed with the sandbox");
}

#[test]
fn named_sandboxes_are_listed_and_stopped() {
    let binaries = ServerVersion::installed().unwrap();
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = LabHome::at(root.path()).unwrap();
    let options = ["innodb_buffer_pool_size=32M".parse().unwrap()];
    let started = sandbox_registry::start(&home, &binaries, "pair", 1, &options).unwrap();
    // Whatever fails below, no server may be left behind.
    let stop = stopping_pair(&home);
    assert_eq!(started.iter().map(|record| record.role.as_str()).collect::<Vec<_>>(), ["source", "replica-1"]);
    assert_eq!(sandbox_registry::list(&home).unwrap(), started);
    assert!(started.iter().all(sandbox_registry::ServerRecord::is_running));
    let taken = sandbox_registry::start(&home, &binaries, "pair", 0, &[]).unwrap_err().to_string();
    assert!(taken.contains("running already"), "{taken}");

    sandbox_registry::stop(&home, "pair", true).unwrap();
    assert!(!started.iter().any(sandbox_registry::ServerRecord::is_running));
    let again = sandbox_registry::start(&home, &binaries, "pair", 1, &options).unwrap();
    assert!(again.iter().all(sandbox_registry::ServerRecord::is_running));
    drop(stop);
    assert!(!again.iter().any(sandbox_registry::ServerRecord::is_running));
    assert_eq!(sandbox_registry::list(&home).unwrap(), []);
}

/// Stops the sandbox `pair` when dropped.
fn stopping_pair(home: &LabHome) -> impl Drop + '_ {
    struct Stop<'a>(&'a LabHome);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            let _ = sandbox_registry::stop(self.0, "pair", false);
        }
    }
    Stop(home)
}

#[test]
fn native_contenders_race_and_differences_are_found() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let plan = RacePlan {
        backlog: BacklogPlan {
            shape: Shape::new(Workload::Cached, Some(1), Some(500), Some(32)),
            seconds: 2,
            rate: Some(400),
            reuse: false,
        },
        place: BacklogPlace::Received,
        durability: Durability::Relaxed,
        replica_binlog: false,
        replica_options: vec!["slave_parallel_max_queued=1000000".parse().unwrap()],
        limit: Duration::from_secs(120),
    };
    let mut race = Race::prepare(&home, &binaries, &plan, work.path(), Screen::default()).unwrap();
    let contenders: Vec<Contender> = ["native:0", "native:4:optimistic"].map(|text| text.parse().unwrap()).into();
    let result = race.run(&contenders, work.path()).unwrap();
    assert!(result.all_identical(), "{result:?}");
    assert!(result.transactions > 100, "{result:?}");
    assert_eq!(result.row_changes, 4 * result.transactions, "two updates, a delete and an insert each: {result:?}");
    assert!(result.contenders.iter().all(|contender| contender.seconds.unwrap() > 0.0));
    assert_eq!(result.ratio_vs_best_native[&result.best_native.clone().unwrap()], 1.0);
    assert!(!work.path().join("replica").exists(), "each replica is removed after its race");

    // A table that is not what it should be must be found, or "identical" says nothing.
    let checksum = race.backlog.facts.checksums.get_mut("bench1.sbtest1").unwrap();
    *checksum = checksum.map(|checksum| checksum ^ 1);
    let result = race.run(&contenders[..1], work.path()).unwrap();
    assert_eq!(result.contenders[0].different_tables, ["bench1.sbtest1"]);
    assert!(!result.all_identical());
}

#[test]
fn the_lag_under_a_live_load_is_measured() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let shape = Shape::new(Workload::Cached, Some(1), Some(500), Some(32));
    let plan = LivePlan { shape, rate: 100, warm_up_seconds: 1, seconds: 2 };
    let follower = "native:2:conservative".parse().unwrap();
    let result = steady::measure(&home, &binaries, &follower, &plan, work.path(), &Screen::default()).unwrap();
    assert!(result.identical, "{result:?}");
    assert!(result.achieved_rate > 20.0, "{result:?}");
    let lag = result.lag;
    assert!(lag.commit_to_visible_ms.count > 10, "{result:?}");
    assert!(lag.insert_to_visible_ms.p50 >= lag.commit_to_visible_ms.p50, "{result:?}");
    assert!(lag.commit_to_visible_ms.p50 <= lag.commit_to_visible_ms.p99, "{result:?}");
    assert_eq!(result.spate_cpu_cores, None);
}
