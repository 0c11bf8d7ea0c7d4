//! The laboratory on real servers of both vendors: a sandbox's life, and a small race of native contenders.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use spate_lab::backlog::BacklogPlan;
use spate_lab::binlog_format::Format;
use spate_lab::contender::Contender;
use spate_lab::course::BacklogPlace;
use spate_lab::follower::LivePlan;
use spate_lab::galera::Cluster;
use spate_lab::home::LabHome;
use spate_lab::race::{Race, RacePlan};
use spate_lab::sandbox::{Lifetime, Sandbox, pristine_data, random_password};
use spate_lab::sandbox_registry::{self, Layout, Topology};
use spate_lab::screen::Screen;
use spate_lab::server_options::{Durability, ServerOption, ServerOptions};
use spate_lab::steady;
use spate_lab::vendor::Vendor;
use spate_lab::version::{ServerBinaries, ServerVersion};
use spate_lab::workload::{Shape, Workload};

/// One home for all tests of this file, so that the pristine data directory is made once.
fn home() -> LabHome {
    LabHome::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab")).unwrap()
}

/// An installed server; without it the panic's message says how to install it.
fn server(name: &str) -> ServerBinaries {
    let binaries = name.parse::<ServerVersion>().and_then(ServerVersion::resolve);
    binaries.unwrap_or_else(|error| panic!("{error}"))
}

fn small_options(vendor: Vendor) -> ServerOptions {
    ServerOptions::base(vendor, 1).with("innodb-buffer-pool-size", "32M").with_durability(Durability::Relaxed)
}

/// As the first tests on a new machine do.
#[test]
fn pristine_data_made_concurrently_is_made_once() {
    let binaries = ServerVersion::installed().unwrap();
    let makers: [_; 5] = std::array::from_fn(|_| {
        let binaries = binaries.clone();
        std::thread::spawn(move || {
            let root = tempfile::tempdir().unwrap();
            let place =
                pristine_data(&LabHome::at(root.path()).unwrap(), &binaries).unwrap_or_else(|error| panic!("{error}"));
            assert!(place.join("mysql").is_dir());
        })
    });
    makers.into_iter().for_each(|maker| maker.join().unwrap());
}

#[test]
fn frozen_sandbox_restarts_from_its_copy() {
    frozen_and_alive_again(&ServerVersion::installed().unwrap(), "0-1-3");
}

#[test]
fn frozen_mariadb_11_8_restarts_from_its_copy() {
    frozen_and_alive_again(&server("mariadb-11.8"), "0-1-3");
}

#[test]
fn frozen_mysql_restarts_from_its_copy() {
    frozen_and_alive_again(&server("mysql-9.7"), "00000000-0000-4000-8000-000000000001:1-3");
}

/// `written` is the position after three transactions.
fn frozen_and_alive_again(binaries: &ServerBinaries, written: &str) {
    let (home, small_options) = (home(), || small_options(binaries.vendor()));
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, binaries).unwrap();
    let first = work.path().join("first");
    let server = Sandbox::restore(binaries, &pristine, &first, &small_options(), Lifetime::Ours).unwrap();
    let mut session = server.connect().unwrap();
    server.create_account(&random_password().unwrap()).unwrap();
    session.run("CREATE DATABASE d").unwrap();
    session.run("CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB").unwrap();
    session.run("INSERT INTO d.t VALUES (1), (2)").unwrap();
    assert_eq!(server.logged_position().unwrap(), written, "the account must leave no trace in the binlog");
    assert_eq!(session.value::<String>("SELECT @@bind_address").unwrap(), "127.0.0.1");
    assert!(server.cpu_time() > Duration::ZERO);
    let process = server.process();
    let frozen = work.path().join("frozen");
    server.freeze(&frozen).unwrap();
    assert!(!process.is_running());

    // The copy has the rows, and changes to it do not reach the frozen directory.
    for name in ["second", "third"] {
        let server =
            Sandbox::restore(binaries, &frozen, &work.path().join(name), &small_options(), Lifetime::Ours).unwrap();
        let mut session = server.connect().unwrap();
        assert_eq!(session.value::<u64>("SELECT COUNT(*) FROM d.t").unwrap(), 2);
        session.run("DELETE FROM d.t").unwrap();
        let process = server.process();
        drop(server);
        assert!(!process.is_running(), "a dropped sandbox is killed");
    }
}

#[test]
fn server_that_fails_to_start_shows_its_error_log() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let options = small_options(binaries.vendor()).with("no-such-option", 1);
    let result = Sandbox::restore(&binaries, &pristine, &work.path().join("broken"), &options, Lifetime::Ours);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("did not start") && message.contains("no-such-option"), "{message}");
}

#[test]
fn path_too_long_for_a_socket_works() {
    let (home, binaries) = (home(), ServerVersion::installed().unwrap());
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let deep = work.path().join("d".repeat(100));
    let server =
        Sandbox::restore(&binaries, &pristine, &deep, &small_options(binaries.vendor()), Lifetime::Ours).unwrap();
    let socket = server.socket().to_owned();
    assert_eq!(server.connect().unwrap().value::<u64>("SELECT 1").unwrap(), 1);
    drop(server);
    assert!(!socket.parent().unwrap().exists(), "the socket's directory is removed with the sandbox");
}

#[test]
fn cluster_takes_writes_on_every_node_and_the_first_of_two_that_conflict() {
    let (home, binaries) = (home(), server("mariadb-10.11"));
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let options = small_options(binaries.vendor());
    let cluster =
        Cluster::start(&binaries, &pristine, &work.path().join("cluster"), 2, &options, Lifetime::Ours).unwrap();
    let [mut first, mut second] = [0, 1].map(|node| cluster.nodes[node].connect().unwrap());
    first.run("CREATE DATABASE d").unwrap();
    first.run("CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB").unwrap();
    first.run("INSERT INTO d.t VALUES (1, 0)").unwrap();
    cluster.settle().unwrap();
    second.run("INSERT INTO d.t VALUES (2, 0)").unwrap();
    cluster.settle().unwrap();

    first.run("BEGIN").unwrap();
    first.run("UPDATE d.t SET v = 1 WHERE id = 1").unwrap();
    second.run("UPDATE d.t SET v = 2 WHERE id = 1").unwrap();
    cluster.settle().unwrap();
    let refused = first.run("COMMIT").unwrap_err().to_string();
    assert!(refused.to_lowercase().contains("deadlock"), "{refused}");
    for session in [&mut first, &mut second] {
        assert_eq!(session.rows::<(u32, u32)>("SELECT id, v FROM d.t ORDER BY id").unwrap(), [(1, 2), (2, 0)]);
    }
}

/// A member can do everything, on all nodes: who does not have the cluster's key is none.
#[test]
fn strangers_do_not_join_a_cluster() {
    let (home, binaries) = (home(), server("mariadb-10.11"));
    let work = home.work().unwrap();
    let pristine = pristine_data(&home, &binaries).unwrap();
    let options = small_options(binaries.vendor());
    let cluster =
        Cluster::start(&binaries, &pristine, &work.path().join("cluster"), 1, &options, Lifetime::Ours).unwrap();
    let mut member = cluster.nodes[0].connect().unwrap();
    let settings: String = member.value("SELECT @@GLOBAL.wsrep_provider_options").unwrap();
    let listening = settings.split(';').find_map(|one| one.trim().strip_prefix("gmcast.listen_addr = ")).unwrap();
    let address = listening.split("//").nth(1).unwrap();
    let stranger = small_options(binaries.vendor())
        .with("wsrep-on", 1)
        .with("wsrep-provider", "/usr/lib/galera/libgalera_smm.so")
        .with("wsrep-cluster-name", "spate-lab")
        .with("wsrep-node-address", "127.0.0.1")
        .with("wsrep-cluster-address", format!("gcomm://{address}"))
        .with("wsrep-sst-method", "rsync")
        .with("wsrep-provider-options", "gmcast.listen_addr=tcp://127.0.0.1:0;socket.ssl=NO;pc.wait_prim_timeout=PT5S");
    let joined = Sandbox::restore(&binaries, &pristine, &work.path().join("stranger"), &stranger, Lifetime::Ours);
    assert!(joined.is_err(), "{joined:?}");
    assert_eq!(member.status_text("wsrep_cluster_size").unwrap(), "1");
}

#[test]
fn named_sandboxes_are_listed_and_stopped() {
    listed_and_stopped(&ServerVersion::installed().unwrap());
}

#[test]
fn named_sandboxes_of_mysql_are_listed_and_stopped() {
    listed_and_stopped(&server("mysql-9.7"));
}

fn listed_and_stopped(binaries: &ServerBinaries) {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = LabHome::at(root.path()).unwrap();
    let options = ["innodb_buffer_pool_size=32M".parse().unwrap()];
    let started = sandbox_registry::start(&home, binaries, "pair", Layout::apart(1), &options).unwrap();
    // If an assertion below fails, no server may keep running.
    let stop = StoppedAtTheEnd(&home, "pair");
    assert_eq!(started.iter().map(|record| record.role.as_str()).collect::<Vec<_>>(), ["source", "replica-1"]);
    assert_eq!(sandbox_registry::list(&home).unwrap(), started);
    assert!(started.iter().all(sandbox_registry::ServerRecord::is_running));
    let taken = sandbox_registry::start(&home, binaries, "pair", Layout::apart(0), &[]).unwrap_err().to_string();
    assert!(taken.contains("running already"), "{taken}");

    sandbox_registry::stop(&home, "pair", true).unwrap();
    assert!(!started.iter().any(sandbox_registry::ServerRecord::is_running));
    let again = sandbox_registry::start(&home, binaries, "pair", Layout::apart(1), &options).unwrap();
    assert!(again.iter().all(sandbox_registry::ServerRecord::is_running));
    drop(stop);
    assert!(!again.iter().any(sandbox_registry::ServerRecord::is_running));
    assert_eq!(sandbox_registry::list(&home).unwrap(), []);
}

#[test]
fn native_contenders_race_and_differences_are_found() {
    let option = "slave_parallel_max_queued=1000000".parse().unwrap();
    race(&ServerVersion::installed().unwrap(), option, ["native:0", "native:4:optimistic"]);
}

#[test]
fn mariadb_11_8_native_contenders_race() {
    let option = "slave_parallel_max_queued=1000000".parse().unwrap();
    race(&server("mariadb-11.8"), option, ["native:0", "native:4:conservative"]);
}

#[test]
fn mysql_native_contenders_race() {
    let option = "replica_pending_jobs_size_max=64M".parse().unwrap();
    race(&server("mysql-9.7"), option, ["native:1", "native:4:free"]);
}

/// Two native contenders catch up; then the test changes a row, and the comparison must find it.
fn race(binaries: &ServerBinaries, replica_option: ServerOption, contenders: [&str; 2]) {
    let home = home();
    let work = home.work().unwrap();
    let plan = RacePlan {
        backlog: BacklogPlan {
            format: Format::Row,
            shape: Shape::new(Workload::Cached, Some(1), Some(500), Some(32)),
            seconds: 2,
            rate: Some(400),
            transactions: None,
            reuse: false,
        },
        place: BacklogPlace::Received,
        durability: Durability::Relaxed,
        chain: None,
        replica_binlog: false,
        replica_options: vec![replica_option],
        read_latency: None,
        limit: Duration::from_secs(120),
        report: None,
    };
    let mut race = Race::prepare(&home, binaries, &plan, work.path(), Screen::default()).unwrap();
    let contenders: Vec<Contender> = contenders.map(|text| text.parse().unwrap()).into();
    let result = race.run(&contenders, work.path()).unwrap();
    assert!(result.all_identical(), "{result:?}");
    assert!(result.transactions > 100, "{result:?}");
    assert_eq!(result.row_changes, 4 * result.transactions, "two updates, a delete and an insert each: {result:?}");
    assert!(result.contenders.iter().all(|contender| contender.seconds.unwrap() > 0.0));
    assert_eq!(result.ratio_vs_best_native[&result.best_native.clone().unwrap()], 1.0);
    assert!(!work.path().join("replica").exists(), "each replica is removed after its race");

    // The comparison must find a changed table; otherwise "identical" proves nothing.
    let checksum = race.course.backlog.facts.checksums.get_mut("bench1.sbtest1").unwrap();
    *checksum = checksum.map(|checksum| checksum ^ 1);
    let result = race.run(&contenders[..1], work.path()).unwrap();
    assert_eq!(result.contenders[0].different_tables, ["bench1.sbtest1"]);
    assert!(!result.all_identical());
}

#[test]
fn lag_under_live_load_is_measured() {
    lag_is_measured(&ServerVersion::installed().unwrap(), "native:2:conservative");
}

#[test]
fn mysql_lag_under_live_load_is_measured() {
    lag_is_measured(&server("mysql-9.7"), "native:2");
}

fn lag_is_measured(binaries: &ServerBinaries, follower: &str) {
    let home = home();
    let work = home.work().unwrap();
    let shape = Shape::new(Workload::Cached, Some(1), Some(500), Some(32));
    let plan = LivePlan { shape, rate: 100, warm_up_seconds: 1, seconds: 2 };
    let follower = follower.parse().unwrap();
    let result =
        steady::measure(&home, binaries, &follower, &plan, Durability::Durable, work.path(), &Screen::default())
            .unwrap();
    assert!(result.identical, "{result:?}");
    assert!(result.achieved_rate > 20.0, "{result:?}");
    let lag = result.lag;
    assert!(lag.commit_to_visible_ms.count > 10, "{result:?}");
    assert!(lag.insert_to_visible_ms.p50 >= lag.commit_to_visible_ms.p50, "{result:?}");
    assert!(lag.commit_to_visible_ms.p50 <= lag.commit_to_visible_ms.p99, "{result:?}");
    assert_eq!(result.spate_cpu_cores, None);
}

/// A chain of servers, each with the server's own replication of the one before, also after a restart on other ports.
#[test]
fn chain_of_sandboxes_replicates_after_a_restart() {
    for name in ["mariadb-10.11", "mysql-9.7"] {
        let root = tempfile::tempdir().unwrap();
        let (home, binaries) = (LabHome::at(root.path()).unwrap(), server(name));
        let layout = Layout { topology: Topology::Chain, replicas: 2, delay_seconds: 0 };
        let options =
            [("innodb_buffer_pool_size=32M"), ("sync_binlog=0")].map(|text| text.parse::<ServerOption>().unwrap());
        let _stopped = StoppedAtTheEnd(&home, "abc");
        for value in 1..=2 {
            let started = sandbox_registry::start(&home, &binaries, "abc", layout, &options).unwrap();
            let connect =
                |place: usize| spate_lab::sql::Session::open(&started[place].socket, &started[place].role).unwrap();
            let (mut source, mut last) = (connect(0), connect(2));
            if value == 1 {
                source.run("CREATE DATABASE a").unwrap();
                source.run("CREATE TABLE a.t (id INT PRIMARY KEY)").unwrap();
            }
            source.run(&format!("INSERT INTO a.t VALUES ({value})")).unwrap();
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while last.value::<u64>("SELECT COUNT(*) FROM a.t").unwrap_or_default() < value {
                assert!(std::time::Instant::now() < deadline, "{name}: the row {value} does not arrive");
                std::thread::sleep(Duration::from_millis(20));
            }
            sandbox_registry::stop(&home, "abc", true).unwrap();
        }
    }
}

/// Stops a sandbox when dropped.
struct StoppedAtTheEnd<'a>(&'a LabHome, &'a str);

impl Drop for StoppedAtTheEnd<'_> {
    fn drop(&mut self) {
        let _ = sandbox_registry::stop(self.0, self.1, false);
    }
}
