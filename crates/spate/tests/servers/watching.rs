//! `spate watch`: watchers that decide through etcd. Without etcd (Debian's package etcd-server) only the test without it runs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use spate_lab::vendor::Vendor;

use crate::failover::{Trio, write_as_client, write_at_port};
use crate::support::program::{Running, program};
use crate::support::server::ACCOUNT;
use crate::support::{Kind, wait_until};

/// The stated time of all tests.
const WITHIN: Duration = Duration::from_secs(10);

/// A store of one server; killed if it is dropped.
struct Store {
    child: Child,
    url: String,
    _directory: tempfile::TempDir,
}

impl Store {
    /// `None` if etcd is not installed.
    fn begin() -> Option<Store> {
        const ETCD: &str = "/usr/bin/etcd";
        if !Path::new(ETCD).exists() {
            tell(format_args!("etcd is not installed (./x setup does it): not tested"));
            return None;
        }
        let directory = tempfile::Builder::new().prefix("spate-etcd-").tempdir().unwrap();
        let (url, peer) = (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new(ETCD)
            .args(["--data-dir", directory.path().join("data").to_str().unwrap()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let store = Store { child, url, _directory: directory };
        let address = store.url.trim_start_matches("http://").to_owned();
        wait_until("etcd", || get(&address, "/health").contains("true"));
        Some(store)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _is_gone = self.child.kill();
        let _was_waited_for = self.child.wait();
    }
}

/// A line for people who look at the tests' output.
fn tell(line: std::fmt::Arguments<'_>) {
    let _unheard = writeln!(std::io::stderr(), "{line}");
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// What an HTTP server answers; empty if nobody does.
fn get(address: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    let mut text = String::new();
    let _sent = write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let _read = stream.read_to_string(&mut text);
    text
}

fn watcher(trio: &Trio, name: &str, etcd: Option<&str>, options: &[&str]) -> Running {
    trio.site.spawn(watch_command(trio, name, etcd, options))
}

fn watch_command(trio: &Trio, name: &str, etcd: Option<&str>, options: &[&str]) -> Command {
    let mut command = program();
    let at = |port: u16| format!("{ACCOUNT}@127.0.0.1:{port}");
    command.args(["watch", "--name", name, "--source", &at(trio.site.source.port)]);
    if !options.contains(&"--within") {
        command.args(["--within", &WITHIN.as_secs().to_string()]);
    }
    for replica in [&trio.site.replica, &trio.third] {
        command.args(["--replica", &at(replica.port)]);
    }
    if let Some(url) = etcd {
        command.args(["--etcd", url]);
    }
    trio.site.source.allow_password(&mut command, "source");
    command.args(options);
    command
}

fn takes_writes(trio: &Trio) -> bool {
    write_as_client(&trio.site.replica, "INSERT INTO d.t (k) VALUES (5)").is_ok()
}

fn three_watchers(kind: Kind) {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(kind);
    let check = format!("127.0.0.1:{}", free_port());
    let moved = tempfile::NamedTempFile::new().unwrap();
    let hook = format!("echo $SPATE_EVENT $SPATE_OLD_SOURCE $SPATE_NEW_SOURCE > {}", moved.path().display());
    let name = |port: u16| format!("127.0.0.1:{port}");
    let (old, new) = (name(trio.site.source.port), name(trio.site.replica.port));
    let watchers: Vec<Running> = ["w1", "w2", "w3"]
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let listen = if number == 0 { vec!["--check-listen", &check] } else { vec![] };
            watcher(&trio, name, Some(&store.url), &[vec!["--hook", &hook], listen].concat())
        })
        .collect();
    let is = |path: String| get(&check, &path).starts_with("HTTP/1.1 200");
    wait_until("the source's role", || is(format!("/source/{old}")) && is(format!("/replica/{new}")));
    trio.site.source.kill();
    let begun = Instant::now();
    wait_until("another source", || takes_writes(&trio));
    let took = begun.elapsed();
    tell(format_args!("{kind:?}: without a source for {took:?}, stated {WITHIN:?}"));
    assert!(took < WITHIN, "{took:?}");
    wait_until("the new source's role", || is(format!("/source/{new}")) && !is(format!("/source/{old}")));
    let told = format!("promoted {old} {new}\n");
    wait_until("the hook", || std::fs::read_to_string(moved.path()).unwrap() == told);
    let rows = trio.site.replica.sql("SELECT COUNT(*) FROM d.t");
    wait_until("the other replica's rows", || trio.third.sql("SELECT COUNT(*) FROM d.t") == rows);
    // Nobody takes the new source for the old one.
    sleep(WITHIN / 2);
    assert!(takes_writes(&trio));
    // The old source comes back, and takes writes until the leader closes it.
    trio.site.source.begin();
    wait_until("the old source to be closed", || {
        trio.site.source.try_sql("SELECT @@GLOBAL.read_only").is_ok_and(|found| found == "1")
    });
    let said: String = watchers.into_iter().map(|watcher| watcher.terminate().output).collect();
    assert!(said.contains("spate follow --replica"), "{said}");
    assert_eq!(said.matches("takes writes").count(), 1, "{said}");
}

#[test]
fn three_watchers_promote_within_the_stated_time() {
    three_watchers(Kind::Mariadb);
}

#[test]
fn three_watchers_promote_within_the_stated_time_on_mysql() {
    three_watchers(Kind::Mysql);
}

/// One watcher of three is no majority; neither is one that is cut off from etcd.
#[test]
fn minority_promotes_nothing() {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(Kind::Mariadb);
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let first = watcher(&trio, "w1", Some(&store.url), &[]);
    let cut_off = watcher(&trio, "w2", Some(&nowhere), &[]);
    sleep(WITHIN / 2);
    trio.site.source.kill();
    sleep(WITHIN + WITHIN / 2);
    assert!(!takes_writes(&trio), "{}{}", first.said(), cut_off.said());
    assert!(cut_off.said().contains("etcd"), "{}", cut_off.said());
    let second = watcher(&trio, "w3", Some(&store.url), &[]);
    wait_until("a majority", || takes_writes(&trio));
    for watcher in [first, second, cut_off] {
        assert!(watcher.terminate().status.success());
    }
}

/// Without a store, a person is told what to do.
#[test]
fn watcher_without_a_store_only_tells() {
    let mut trio = Trio::begin(Kind::Mariadb);
    let watcher = watcher(&trio, "w1", None, &[]);
    sleep(Duration::from_secs(2));
    trio.site.source.kill();
    wait_until("the advice", || watcher.said().contains("spate promote --source"));
    assert!(!takes_writes(&trio));
    assert!(watcher.terminate().status.success());
}

/// Three watchers that stop at a named point, if they get there.
fn watchers_that_stop(trio: &Trio, store: &Store, point: Option<&str>) -> Vec<Running> {
    let begin = |name: &&str| {
        let mut command = watch_command(trio, name, Some(&store.url), &[]);
        if let Some(point) = point {
            command.env("SPATE_STOP_AT", point);
        }
        trio.site.spawn(command)
    };
    ["w1", "w2", "w3"].iter().map(begin).collect()
}

/// Watchers of which two have stopped in the middle of a promotion: no majority is left.
fn interrupt_promotion(trio: &mut Trio, store: &Store) {
    let watchers = watchers_that_stop(trio, store, Some("promote-isolated"));
    sleep(WITHIN / 4);
    trio.site.source.kill();
    let stopped = || watchers.iter().filter(|watcher| watcher.said().contains("stopped at promote-isolated")).count();
    wait_until("two leaders to be interrupted", || stopped() >= 2);
}

/// While the replica applies what it has received, however long that takes, the leader leads.
#[test]
fn leader_leads_while_the_replica_applies() {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(Kind::Mariadb);
    let watchers = watchers_that_stop(&trio, &store, None);
    let locked = "FLUSH TABLES WITH READ LOCK; SELECT SLEEP(600)";
    let mut lock = trio.site.replica.begin_script(locked);
    wait_until("the lock", || trio.site.replica.sql("SHOW PROCESSLIST").contains("SLEEP(600)"));
    trio.site.source.sql("INSERT INTO d.t (k) VALUES (1), (2), (3)");
    let position = trio.site.source.position();
    trio.site.replica.wait_received(&position);
    trio.site.source.kill();
    let said = || watchers.iter().map(Running::said).collect::<String>();
    wait_until("the leader to wait", || said().contains("applies what it has received"));
    // Longer than its lease, and than the others need to notice.
    sleep(WITHIN);
    let sleeping =
        "SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(600)%' AND id <> CONNECTION_ID()";
    trio.site.replica.sql(&format!("KILL {}", trio.site.replica.sql(sleeping)));
    lock.wait().unwrap();
    wait_until("another source", || takes_writes(&trio));
    assert_eq!(said().matches("watchers say that").count(), 1, "{}", said());
    drop(watchers);
}

/// Leaders were interrupted when the replicas were cut off already, and the source is back: the replicas follow it again.
#[test]
fn interrupted_promotion_is_undone_if_the_source_is_back() {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(Kind::Mariadb);
    interrupt_promotion(&mut trio, &store);
    trio.site.source.begin();
    trio.site.source.sql("INSERT INTO d.t (k) VALUES (99)");
    let watchers = watchers_that_stop(&trio, &store, None);
    for replica in [&trio.site.replica, &trio.third] {
        wait_until("the row", || replica.sql("SELECT COUNT(*) FROM d.t WHERE k = 99") == "1");
    }
    sleep(WITHIN / 2);
    assert!(!takes_writes(&trio));
    assert_eq!(trio.site.source.sql("SELECT @@read_only"), "0");
    // It can still be replaced.
    trio.site.source.kill();
    wait_until("another source", || takes_writes(&trio));
    drop(watchers);
}

/// The replica that was to be promoted is dead, too: another one is promoted.
#[test]
fn another_replica_is_promoted_if_the_chosen_one_dies() {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(Kind::Mariadb);
    interrupt_promotion(&mut trio, &store);
    trio.site.replica.kill();
    let watchers = watchers_that_stop(&trio, &store, None);
    wait_until("another source", || write_as_client(&trio.third, "INSERT INTO d.t (k) VALUES (5)").is_ok());
    drop(watchers);
}

/// A replica that leaves something out is never promoted, though it has the most.
#[test]
fn filtered_replica_is_not_promoted() {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(Kind::Mariadb);
    trio.site.replica.sql("STOP SLAVE; SET GLOBAL replicate_ignore_table='d.left_out'; START SLAVE");
    let watchers = watchers_that_stop(&trio, &store, None);
    sleep(WITHIN / 4);
    trio.site.source.kill();
    wait_until("another source", || write_as_client(&trio.third, "INSERT INTO d.t (k) VALUES (5)").is_ok());
    assert_eq!(trio.site.replica.sql("SELECT @@read_only"), "1");
    drop(watchers);
}

/// A person has promoted a replica, and nobody told the watchers: they promote nobody beside it.
#[test]
fn server_that_a_person_promoted_is_not_replaced() {
    let Some(store) = Store::begin() else { return };
    let mut trio = Trio::begin(Kind::Mariadb);
    let watchers = watchers_that_stop(&trio, &store, None);
    let ended = trio.site.run(trio.promote(&[]));
    assert!(ended.status.success(), "{}", ended.output);
    trio.site.source.kill();
    let said = || watchers.iter().map(Running::said).collect::<String>();
    wait_until("the watchers to say it", || said().contains("did somebody promote it?"));
    sleep(WITHIN / 4);
    assert_eq!(trio.third.sql("SELECT @@read_only"), "1");
    assert!(takes_writes(&trio));
    drop(watchers);
}

/// HAProxy asks a watcher which server is the source. Without it (Debian's package haproxy) this is not tested.
#[test]
fn haproxy_sends_clients_to_the_new_source() {
    const HAPROXY: &str = "/usr/sbin/haproxy";
    let Some(store) = Store::begin() else { return };
    if !Path::new(HAPROXY).exists() {
        tell(format_args!("HAProxy is not installed (./x setup does it): not tested"));
        return;
    }
    let mut trio = Trio::begin(Kind::Mariadb);
    let (check, front) = (free_port(), free_port());
    let listen = format!("127.0.0.1:{check}");
    let watchers: Vec<Running> = ["w1", "w2", "w3"]
        .map(|name| {
            let options = if name == "w1" { vec!["--check-listen", &listen] } else { vec![] };
            watcher(&trio, name, Some(&store.url), &options)
        })
        .into();
    // The configuration of docs/failover.md.
    let ports = [trio.site.source.port, trio.site.replica.port, trio.third.port];
    let mut text = format!(
        "defaults\n mode tcp\n timeout connect 2s\n timeout client 1h\n timeout server 1h\n timeout check 1s\nfrontend source\n bind 127.0.0.1:{front}\n"
    );
    for port in ports {
        text += &format!(" use_backend db{port} if {{ nbsrv(db{port}) gt 0 }}\n");
    }
    for port in ports {
        text += &format!(
            "backend db{port}\n option httpchk GET /source/127.0.0.1:{port}\n \
             server db 127.0.0.1:{port} check addr 127.0.0.1 port {check} inter 300ms fall 1 rise 1 on-marked-down shutdown-sessions\n"
        );
    }
    let configuration = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(configuration.path(), text).unwrap();
    let mut proxy = Command::new(HAPROXY)
        .args(["-db", "-f", configuration.path().to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let writes = || write_at_port(front, Vendor::MariaDb, "INSERT INTO d.t (k) VALUES (6); SELECT @@port");
    wait_until("the proxy to find the source", || writes().is_ok_and(|port| port == ports[0].to_string()));
    trio.site.source.kill();
    let begun = Instant::now();
    // Either replica may have received the most.
    let is_new = |port: &str| ports[1..].iter().any(|new| new.to_string() == port);
    wait_until("the proxy to find the new source", || writes().is_ok_and(|port| is_new(&port)));
    let took = begun.elapsed();
    tell(format_args!("behind HAProxy without a source for {took:?}, stated {WITHIN:?}"));
    let _is_gone = proxy.kill();
    proxy.wait().unwrap();
    assert!(took < WITHIN, "{took:?}");
    drop(watchers);
}

/// A source that does not say anything any more, while its connections stay: replicas hear no heartbeat.
#[test]
fn source_that_hangs_is_replaced() {
    /// Of the stated time, a server that hangs takes most. Of a longer one, more is left for a machine that is busy.
    const WITHIN: Duration = Duration::from_secs(30);
    let Some(store) = Store::begin() else { return };
    let trio = Trio::begin(Kind::Mariadb);
    for server in [&trio.site.replica, &trio.third] {
        server.sql("STOP SLAVE; CHANGE MASTER TO MASTER_HEARTBEAT_PERIOD=1; START SLAVE");
    }
    let within = WITHIN.as_secs().to_string();
    let options = ["--within", within.as_str()];
    let watchers: Vec<Running> = ["w1", "w2"].map(|name| watcher(&trio, name, Some(&store.url), &options)).into();
    sleep(WITHIN / 2);
    let pid = std::fs::read_to_string(trio.site.source.data_directory().with_file_name("pid")).unwrap();
    let signal = |name: &str| assert!(Command::new("kill").args(["-s", name, pid.trim()]).status().unwrap().success());
    signal("STOP");
    let begun = Instant::now();
    wait_until("another source", || takes_writes(&trio));
    let took = begun.elapsed();
    tell(format_args!("a source that hangs is replaced after {took:?}, stated {WITHIN:?}"));
    signal("CONT");
    wait_until("the old source to be closed", || {
        trio.site.source.try_sql("SELECT @@GLOBAL.read_only").is_ok_and(|found| found == "1")
    });
    assert!(took < WITHIN, "{took:?}");
    drop(watchers);
}
