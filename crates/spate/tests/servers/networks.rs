//! Networks that cut, stall, come late and lose connections: nothing is lost, nothing comes twice, and what is waited for is
//! said.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::ledger::{Ledger, assert_same};
use crate::support::program::Running;
use crate::support::proxy::{Cut, Place, Proxy, Way};
use crate::support::session::Session;
use crate::support::{PATIENCE, Random, Site, wait_until};

const OPTIONS: [&str; 6] = ["--start", "earliest", "--memory", "64MiB", "--batch-transactions", "4"];

/// A site whose ledger is on both sides, and networks before both servers.
fn site_behind_networks(seed: u64) -> (Site, Ledger, Proxy, Proxy) {
    let mut site = Site::plain();
    let ledger = Ledger::begin(&site.source, seed);
    site.catch_up(&OPTIONS);
    let (source, replica) = (Proxy::start(site.source.port), Proxy::start(site.replica.port));
    (site.source_port, site.replica_port) = (source.port, replica.port);
    (site, ledger, source, replica)
}

fn is_waiting(status: &Value, stage: &str) -> bool {
    status[stage].as_str().is_some_and(|text| text.starts_with("waiting: "))
}

/// Works until the traps of `proxy` have cut their connections, while the program runs; no more than is needed, since all of
/// it has to be applied.
fn work_until_sprung(site: &Site, ledger: &mut Ledger, proxy: &Proxy, running: &mut Running, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !proxy.is_sprung() {
        assert!(running.is_running(), "{what}: it ended: {}", running.said());
        assert!(Instant::now() < deadline, "{what} is never reached: {}", running.said());
        ledger.work(&site.source);
        let soon = Instant::now() + Duration::from_millis(50);
        while !proxy.is_sprung() && Instant::now() < soon {
            sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn dump_stream_cut_at_many_places_loses_nothing() {
    let (site, mut ledger, source, _replica) = site_behind_networks(1);
    let mut random = Random::new(11);
    let mut running = site.spawn(site.replicate(&OPTIONS));
    site.wait_for_status("the program to receive", |status| status["intake"] == "receiving");
    for round in 0..30 {
        // In the login and the first questions; in the stream's first events; anywhere.
        let bytes = match round % 3 {
            0 => random.below(600),
            1 => 600 + random.below(1_500),
            _ => random.below(30_000),
        };
        let cut = if round % 2 == 0 { Cut::Closed } else { Cut::Reset };
        // Ends the connection that there is, so that the next one begins at byte 0; not before it has brought something, or
        // the pauses between the tries become long.
        source.trap(Way::FromServer, Place::Text("trail", 3), Cut::Reset);
        source.trap(Way::FromServer, Place::Bytes(bytes), cut);
        work_until_sprung(&site, &mut ledger, &source, &mut running, &format!("byte {bytes}"));
    }
    site.wait_applied();
    assert_same(&site);
    assert!(source.connections() >= 60, "{}", source.connections());
    assert!(running.terminate().status.success());
    assert_same(&site);
}

#[test]
fn applier_cut_around_its_commit_loses_nothing() {
    let (site, mut ledger, _source, replica) = site_behind_networks(2);
    let mut random = Random::new(12);
    let mut running = site.spawn(site.replicate(&OPTIONS));
    const COMMIT: &str = ";COMMIT";
    for round in 0..3 {
        // Not begun, begun, almost there; there, with the answer on its way. (What the server does on a reset that overtakes
        // the statement is its affair: the checkpoint says it.)
        for after in [0, 4, COMMIT.len() - 1, COMMIT.len()] {
            for cut in [Cut::Closed, Cut::Reset] {
                replica.trap(Way::ToServer, Place::Text(COMMIT, after), cut);
                let what = format!("round {round}, {after} bytes of COMMIT, {cut:?}");
                work_until_sprung(&site, &mut ledger, &replica, &mut running, &what);
                // Something that succeeds in between, or the pauses between the tries become long.
                site.wait_applied();
            }
        }
        for way in [Way::ToServer, Way::FromServer] {
            let (bytes, cut) = (random.below(6_000), if round == 1 { Cut::Closed } else { Cut::Reset });
            // Whatever connection comes so far: the applier's, the one that asks for definitions, or the one that watches.
            replica.trap(Way::ToServer, Place::Text("gtid_position", 5), Cut::Closed);
            replica.trap(way, Place::Bytes(bytes), cut);
            work_until_sprung(&site, &mut ledger, &replica, &mut running, &format!("byte {bytes}"));
        }
        site.wait_applied();
        assert_same(&site);
    }
    assert!(running.terminate().status.success());
}

#[test]
fn lost_answer_to_a_commit_is_not_guessed() {
    let (site, mut ledger, _source, replica) = site_behind_networks(3);
    for after in [0, 7] {
        ledger.work(&site.source);
        replica.trap(Way::ToServer, Place::Text(";COMMIT", after), Cut::Closed);
        let running = site.spawn(site.replicate(&OPTIONS));
        wait_until("the commit", || replica.is_sprung());
        assert!(running.kill());
        site.catch_up(&OPTIONS);
        assert_same(&site);
    }
}

#[test]
fn silent_connections_are_given_up() {
    let (site, mut ledger, source, replica) = site_behind_networks(4);
    let running = site.spawn(site.replicate(&OPTIONS));
    ledger.work(&site.source);
    site.wait_applied();
    // The servers keep their sessions, and with them the applier's lock.
    source.stall(true);
    replica.lose_connections();
    ledger.work(&site.source);
    site.wait_for_status("the intake to notice", |status| is_waiting(status, "intake"));
    source.stall(false);
    site.wait_for_status("the intake to go on", |status| status["intake"] == "receiving");
    ledger.work(&site.source);
    site.wait_for_status("the applier to notice", |status| {
        let told = status["errors"].to_string();
        told.contains("no answer from the replica") && told.contains("trying again")
    });
    site.wait_applied();
    assert_same(&site);
    assert_eq!(site.status()["applier"], "applying");
    assert!(running.terminate().status.success());
}

#[test]
fn slow_network_is_only_slow() {
    let (site, mut ledger, source, replica) = site_behind_networks(5);
    source.slow_down(Duration::from_millis(20), 300_000);
    replica.slow_down(Duration::from_millis(10), 300_000);
    let running = site.spawn(site.replicate(&OPTIONS));
    for _ in 0..5 {
        ledger.work(&site.source);
    }
    site.wait_applied();
    assert_same(&site);
    let status = site.status();
    assert_eq!((&status["intake"], &status["applier"]), (&"receiving".into(), &"applying".into()));
    assert!(
        status["errors"].as_array().unwrap().iter().all(|error| !error.to_string().contains("trying again")),
        "{status}"
    );
    assert!(running.terminate().status.success());
}

/// The connection that asks for definitions is lost while transactions were gathered that need none: no fault of theirs, nor of
/// the one that does.
#[test]
fn asking_connection_lost_within_a_batch_is_replaced() {
    let options = &OPTIONS[..4];
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE DATABASE e; CREATE TABLE e.u (id INT PRIMARY KEY)");
    site.catch_up(options);
    let running = site.spawn(site.replicate(options));
    site.source.sql("INSERT INTO d.t VALUES (1)");
    site.wait_applied();
    let mut blocker = Session::open(&site.replica);
    blocker.sql("LOCK TABLES d.t WRITE");
    // One for the applier, one that is prepared, one that is gathered.
    for id in 2..5 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id})"));
        sleep(Duration::from_millis(100));
    }
    let applier = "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'";
    wait_until("the applier to wait", || !site.replica.sql(applier).is_empty());
    let applier = site.replica.sql(applier);
    let asking = site
        .replica
        .sql(&format!("SELECT MIN(id) FROM information_schema.processlist WHERE id > {applier} AND command = 'Sleep'"));
    site.replica.sql(&format!("KILL {asking}"));
    site.source.sql("INSERT INTO e.u VALUES (1)");
    sleep(Duration::from_millis(300));
    blocker.sql("UNLOCK TABLES");
    site.wait_applied();
    let errors = site.status()["errors"].to_string();
    assert!(errors.contains("trying again until it works"), "{errors}");
    assert!(running.terminate().status.success());
    site.assert_identical();
}
