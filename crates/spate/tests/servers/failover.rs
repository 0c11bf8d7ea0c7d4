//! `spate promote` and `spate follow`: a source that is given up or dies, and the servers around it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use spate_lab::failover::Servers;
use spate_lab::home::LabHome;
use spate_lab::vendor::Vendor;

use crate::support::program::program;
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Ended, Kind, Server, Site, wait_until};

/// Where the tests below stop the program.
#[cfg(feature = "failpoints")]
pub const POINTS: [&str; 16] = [
    "promote-candidate-cut",
    "promote-isolated",
    "promote-drained",
    "promote-detached",
    "promote-opened",
    "promote-pointed",
    "promote-handed-over",
    "promote-checkpoint-forgotten",
    "follow-fenced",
    "follow-saved",
    "follow-noted",
    "follow-undone-uncommitted",
    "follow-undone",
    "follow-reset",
    "follow-position-set",
    "follow-pointed",
];

/// A source and two replicas of its own replication, which log what they replicate.
pub struct Trio {
    pub site: Site,
    pub third: Server,
}

const LOGGING: [&str; 3] = ["--log-bin=binlog", "--log-slave-updates", "--sync-binlog=1"];

impl Trio {
    pub fn begin(kind: Kind) -> Trio {
        Trio::with(kind, &[])
    }

    fn with(kind: Kind, options: &[&str]) -> Trio {
        let replica = [LOGGING.as_slice(), options].concat();
        let site = Site::between((kind, &[&["--log-slave-updates"], options].concat()), (kind, &replica));
        let third = Server::replica(kind, &[replica.as_slice(), &["--server-id=3"]].concat());
        for server in [&site.replica, &third] {
            server.follow(&site.source);
            server.sql("SET GLOBAL read_only=1");
        }
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, k INT, v VARCHAR(100)); \
             CREATE USER writer@'127.0.0.1' IDENTIFIED BY 'w'; GRANT SELECT, INSERT, UPDATE, DELETE ON d.* TO writer@'127.0.0.1'; \
             INSERT INTO d.t (k, v) VALUES (1, 'one'), (2, 'two')",
        );
        let trio = Trio { site, third };
        trio.wait_followed();
        trio
    }

    fn wait_followed(&self) {
        let position = self.site.source.position();
        self.site.replica.wait_followed(&position);
        self.third.wait_followed(&position);
    }

    /// `spate promote` of the replica.
    pub fn promote(&self, options: &[&str]) -> Command {
        promote(&self.site.source, &self.site.replica, &[&self.third], options)
    }

    fn run(&self, command: Command) -> Ended {
        self.site.run(command)
    }

    /// The promoted server takes writes, and the third gets them.
    fn assert_promoted(&self) {
        let (new, third) = (&self.site.replica, &self.third);
        let rows = write_as_client(new, "INSERT INTO d.t (k) VALUES (77); SELECT COUNT(*) FROM d.t").unwrap();
        wait_until("the new source's row", || third.sql("SELECT COUNT(*) FROM d.t") == rows);
        assert_eq!(new.checksums(), third.checksums());
        assert!(write_as_client(third, "INSERT INTO d.t (k) VALUES (78)").unwrap_err().contains("read"));
    }
}

/// `spate promote` of a server, with others.
pub fn promote(source: &Server, candidate: &Server, others: &[&Server], options: &[&str]) -> Command {
    let mut command = program();
    let at = |server: &Server| format!("{ACCOUNT}@127.0.0.1:{}", server.port);
    command.arg("promote").arg("--source").arg(at(source)).arg("--replica").arg(at(candidate));
    for other in others {
        command.arg("--other").arg(at(other));
    }
    candidate.allow_password(&mut command, "source");
    candidate.allow_password(&mut command, "replica");
    command.args(options);
    command
}

/// Executes statements as an account without particular rights.
pub fn write_as_client(server: &Server, sql: &str) -> Result<String, String> {
    write_at_port(server.port, server.kind.vendor(), sql)
}

/// The same, through a proxy.
pub fn write_at_port(port: u16, vendor: Vendor, sql: &str) -> Result<String, String> {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "-uwriter", "-pw", "-h127.0.0.1", "-N", "-B", "-P", &port.to_string()]);
    if vendor == Vendor::MariaDb {
        command.arg("--skip-ssl");
    }
    let output = command.args(["-e", sql]).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

pub fn succeeds(ended: &Ended) {
    assert!(ended.status.success(), "{}", ended.output);
}

/// `STOP` or `START` of a server's own replication, or of a part of it.
pub fn replication(server: &Server, verb: &str, part: &str) {
    let word = if server.kind.vendor() == Vendor::MySql { "REPLICA" } else { "SLAVE" };
    server.sql(&format!("{verb} {word} {part}"));
}

fn json(ended: &Ended) -> Value {
    let begin = ended.output.find("{\n").unwrap_or_else(|| panic!("no JSON: {}", ended.output));
    serde_json::from_str(&ended.output[begin..]).unwrap()
}

fn planned_switch(kind: Kind) {
    let trio = Trio::begin(kind);
    // The replica has more to apply than it has yet.
    replication(&trio.site.replica, "STOP", "SQL_THREAD");
    for _ in 0..20 {
        trio.site.source.sql("INSERT INTO d.t (k, v) SELECT k + 1, v FROM d.t LIMIT 3; UPDATE d.t SET k = k + 1");
    }
    let position = trio.site.source.position();
    succeeds(&trio.run(trio.promote(&[])));
    trio.site.replica.wait_followed(&position);
    trio.third.wait_followed(&position);
    assert_eq!(trio.site.source.checksums(), trio.site.replica.checksums());
    assert!(write_as_client(&trio.site.source, "INSERT INTO d.t (k) VALUES (1)").unwrap_err().contains("read"));
    trio.assert_promoted();
    // Again: there is nothing left to do.
    succeeds(&trio.run(trio.promote(&[])));
    trio.assert_promoted();
}

#[test]
fn planned_switch_loses_nothing() {
    planned_switch(Kind::Mariadb);
}

#[test]
fn planned_switch_loses_nothing_on_mysql() {
    planned_switch(Kind::Mysql);
}

#[test]
fn planned_switch_loses_nothing_on_mariadb_118() {
    planned_switch(Kind::Mariadb118);
}

fn dead_source(kind: Kind) {
    let mut trio = Trio::begin(kind);
    replication(&trio.site.replica, "STOP", "SQL_THREAD");
    for number in 0..50 {
        trio.site.source.sql(&format!("INSERT INTO d.t (k, v) VALUES ({number}, 'received')"));
    }
    let position = trio.site.source.position();
    trio.third.wait_followed(&position);
    trio.site.replica.wait_received(&position);
    let sums = trio.site.source.checksums();
    trio.site.source.kill();
    trio.run(trio.promote(&[])).assert_failed_saying(&["does not answer", "--source-is-dead"]);
    succeeds(&trio.run(trio.promote(&["--source-is-dead"])));
    assert_eq!(trio.site.replica.checksums(), sums);
    trio.assert_promoted();
}

#[test]
fn dead_source_loses_nothing_that_was_received() {
    dead_source(Kind::Mariadb);
}

#[test]
fn dead_source_loses_nothing_that_was_received_on_mysql() {
    dead_source(Kind::Mysql);
}

/// Another replica has received more: it is named, with the number, and promoted it loses nothing.
fn most_received(kind: Kind) {
    let mut trio = Trio::begin(kind);
    replication(&trio.site.replica, "STOP", "IO_THREAD");
    for number in 0..7 {
        trio.site.source.sql(&format!("INSERT INTO d.t (k, v) VALUES ({number}, 'seven')"));
    }
    trio.third.wait_followed(&trio.site.source.position());
    // Its receiver is stopped, so the reachable source does not help.
    let dry = trio.run(trio.promote(&["--dry-run", "--json"]));
    assert_eq!(json(&dry)["lost_transactions"], 7, "{}", dry.output);
    trio.run(trio.promote(&[])).assert_failed_saying(&["7 transactions", "--accept-loss"]);
    // Nothing has changed.
    write_as_client(&trio.site.source, "INSERT INTO d.t (k, v) VALUES (8, 'eight')").unwrap();
    trio.third.wait_followed(&trio.site.source.position());
    trio.site.source.kill();
    let dry = trio.run(trio.promote(&["--source-is-dead", "--dry-run", "--json"]));
    let plan = json(&dry);
    assert_eq!((&plan["lost_transactions"], &plan["is_loss_known"]), (&Value::from(8), &Value::from(false)));
    let instead = format!("promote 127.0.0.1:{} instead", trio.third.port);
    trio.run(trio.promote(&["--source-is-dead"])).assert_failed_saying(&["8 transactions", &instead]);
    let rows = trio.third.sql("SELECT COUNT(*) FROM d.t");
    let other = promote(&trio.site.source, &trio.third, &[&trio.site.replica], &["--source-is-dead"]);
    succeeds(&trio.run(other));
    wait_until("the other's rows", || trio.site.replica.sql("SELECT COUNT(*) FROM d.t") == rows);
}

#[test]
fn replica_that_received_most_is_named() {
    most_received(Kind::Mariadb);
}

#[test]
fn replica_that_received_most_is_named_on_mysql() {
    most_received(Kind::Mysql);
}

fn errant(kind: Kind) {
    let trio = Trio::begin(kind);
    trio.site.replica.sql("INSERT INTO d.t (id, k) VALUES (1000, 1)");
    trio.run(trio.promote(&[])).assert_failed_saying(&["errant", "--accept-errant"]);
    write_as_client(&trio.site.source, "INSERT INTO d.t (k) VALUES (5)").unwrap();
    // A third server with transactions of its own is left out.
    let trio = Trio::begin(kind);
    trio.third.sql("INSERT INTO d.t (id, k) VALUES (1000, 1)");
    let ended = trio.run(trio.promote(&[]));
    ended.assert_failed_saying(&["does not follow it", "spate follow"]);
    write_as_client(&trio.site.replica, "INSERT INTO d.t (k) VALUES (5)").unwrap();
}

#[test]
fn errant_transactions_are_refused() {
    errant(Kind::Mariadb);
}

#[test]
fn errant_transactions_are_refused_on_mysql() {
    errant(Kind::Mysql);
}

#[test]
fn servers_that_nobody_could_follow_are_refused() {
    let site = Site::between((Kind::Mysql, &["--gtid-mode=OFF"]), (Kind::Mysql, &["--gtid-mode=OFF", "--log-bin=b"]));
    let place = site.source.sql("SHOW BINARY LOG STATUS");
    let mut columns = place.split('\t');
    let (file, offset) = (columns.next().unwrap().to_owned(), columns.next().unwrap().to_owned());
    site.replica.sql(&format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_USER='{ACCOUNT}', SOURCE_PASSWORD='{PASSWORD}', \
         GET_SOURCE_PUBLIC_KEY=1, SOURCE_LOG_FILE='{file}', SOURCE_LOG_POS={offset}; START REPLICA",
        site.source.port
    ));
    site.run(promote(&site.source, &site.replica, &[], &[])).assert_failed_saying(&["gtid_mode", "OFF_PERMISSIVE"]);
    let site = Site::new(&[], &[]);
    site.replica.follow(&site.source);
    site.run(promote(&site.source, &site.replica, &[], &[])).assert_failed_saying(&["log_slave_updates"]);
    site.run(promote(&site.source, &site.source, &[], &[])).assert_failed_saying(&["same server"]);
}

/// Killed at each point and repeated, it goes on.
#[cfg(feature = "failpoints")]
fn stopped_everywhere(kind: Kind, options: &[&str], points: &[&str]) {
    let mut trio = Trio::begin(kind);
    replication(&trio.site.replica, "STOP", "SQL_THREAD");
    for number in 0..20 {
        trio.site.source.sql(&format!("INSERT INTO d.t (k, v) VALUES ({number}, 'received')"));
    }
    let position = trio.site.source.position();
    trio.third.wait_followed(&position);
    trio.site.replica.wait_received(&position);
    let sums = trio.site.source.checksums();
    if options.contains(&"--source-is-dead") {
        trio.site.source.kill();
    }
    for point in points {
        let mut command = trio.promote(options);
        command.env("SPATE_STOP_AT", point);
        trio.run(command).assert_says(&[&format!("stopped at {point}")]);
    }
    succeeds(&trio.run(trio.promote(options)));
    assert_eq!(trio.site.replica.checksums(), sums);
    trio.assert_promoted();
}

#[cfg(feature = "failpoints")]
#[test]
fn promotion_killed_at_each_point_goes_on() {
    stopped_everywhere(Kind::Mariadb, &["--source-is-dead"], &POINTS[..6]);
    stopped_everywhere(Kind::Mariadb, &[], &POINTS[1..6]);
}

#[cfg(feature = "failpoints")]
#[test]
fn promotion_killed_at_each_point_goes_on_mysql() {
    stopped_everywhere(Kind::Mysql, &["--source-is-dead"], &POINTS[..6]);
    stopped_everywhere(Kind::Mysql, &[], &POINTS[1..6]);
}

/// Spate applies to the replica that is promoted; its archive has more than is applied.
fn spate_replica(kind: Kind, consistency: &str) {
    let mut site = Site::between((kind, &[]), (kind, &LOGGING));
    let third = Server::replica(kind, &[LOGGING.as_slice(), &["--server-id=3"]].concat());
    third.follow(&site.source);
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, k INT, v VARCHAR(100)); \
         CREATE USER writer@'127.0.0.1' IDENTIFIED BY 'w'; GRANT SELECT, INSERT, UPDATE, DELETE ON d.* TO writer@'127.0.0.1'; \
         CREATE EVENT d.nightly ON SCHEDULE EVERY 1 DAY STARTS '2037-01-01' DO DELETE FROM d.t",
    );
    site.catch_up(&["--start", "earliest", "--consistency", consistency]);
    for number in 0..30 {
        site.source.sql(&format!("INSERT INTO d.t (k, v) VALUES ({number}, 'archived')"));
    }
    site.fetch(&[]);
    third.wait_followed(&site.source.position());
    for server in [&site.replica, &third] {
        server.sql("SET GLOBAL read_only=1");
    }
    let sums = site.source.checksums();
    site.source.kill();
    let archive = site.archive();
    let archive = archive.to_str().unwrap();
    let command = || promote(&site.source, &site.replica, &[&third], &["--source-is-dead", "--archive", archive]);
    #[cfg(feature = "failpoints")]
    for point in ["promote-handed-over", "promote-checkpoint-forgotten"] {
        let mut command = command();
        command.env("SPATE_STOP_AT", point);
        site.run(command).assert_says(&[&format!("stopped at {point}")]);
    }
    let ended = site.run(command());
    succeeds(&ended);
    ended.assert_says(&["these events sleep", "nightly"]);
    assert_eq!(site.replica.checksums(), sums);
    let rows = write_as_client(&site.replica, "INSERT INTO d.t (k) VALUES (77); SELECT COUNT(*) FROM d.t").unwrap();
    wait_until("the new source's row", || third.sql("SELECT COUNT(*) FROM d.t") == rows);
    assert_eq!(site.replica.checksums(), third.checksums());
}

#[test]
fn replica_of_spate_is_promoted() {
    spate_replica(Kind::Mariadb, "transaction");
}

#[test]
fn replica_of_spate_is_promoted_on_mysql() {
    spate_replica(Kind::Mysql, "transaction");
}

#[test]
fn replica_of_spate_with_batches_is_promoted() {
    spate_replica(Kind::Mariadb, "snapshot");
}

#[test]
fn replica_of_spate_with_batches_is_promoted_on_mysql() {
    spate_replica(Kind::Mysql, "snapshot");
}

/// An archive that is another server's is applied to nobody.
#[test]
fn archive_of_another_server_promotes_nobody() {
    let mut trio = Trio::begin(Kind::Mariadb);
    trio.site.fetch(&["--start", "earliest"]);
    trio.wait_followed();
    trio.site.source.kill();
    let archive = trio.site.archive();
    let archive = archive.to_str().unwrap();
    let command =
        promote(&trio.site.source, &trio.site.replica, &[&trio.third], &["--source-is-dead", "--archive", archive]);
    let ended = trio.site.run(command);
    assert!(!ended.status.success());
    ended.assert_says(&["the archive is not its own"]);
    assert_eq!(trio.site.replica.sql("SELECT @@read_only"), "1");
}

/// Stops a server's own replication, executes one of these statements, and starts it again.
fn change_replication(server: &Server, mariadb: &str, mysql: &str) {
    match server.kind.vendor() {
        Vendor::MariaDb => server.sql(&format!("STOP SLAVE; {mariadb}; START SLAVE")),
        Vendor::MySql => server.sql(&format!("STOP REPLICA; {mysql}; START REPLICA")),
    };
}

fn delay(server: &Server, seconds: u32) {
    let mariadb = format!("CHANGE MASTER TO MASTER_DELAY={seconds}");
    change_replication(server, &mariadb, &format!("CHANGE REPLICATION SOURCE TO SOURCE_DELAY={seconds}"));
}

/// A replica that leaves something out, or is late on purpose, is not promoted; another one that is late holds nobody up.
fn unfit_replicas(kind: Kind) {
    let trio = Trio::begin(kind);
    change_replication(
        &trio.site.replica,
        "SET GLOBAL replicate_ignore_table='d.left_out'",
        "CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE=(d.left_out)",
    );
    trio.run(trio.promote(&[])).assert_failed_saying(&["is filtered", "d.left_out"]);
    change_replication(
        &trio.site.replica,
        "SET GLOBAL replicate_ignore_table=''",
        "CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE=()",
    );
    delay(&trio.site.replica, 1000);
    trio.run(trio.promote(&[])).assert_failed_saying(&["1000 s late"]);
    delay(&trio.site.replica, 0);
    delay(&trio.third, 1000);
    trio.site.source.sql("INSERT INTO d.t (k) VALUES (3)");
    assert_eq!(trio.site.source.sql("SELECT @@GLOBAL.read_only"), "0");
    succeeds(&trio.run(trio.promote(&[])));
    delay(&trio.third, 0);
    trio.assert_promoted();
}

#[test]
fn unfit_replicas_are_not_promoted() {
    unfit_replicas(Kind::Mariadb);
}

#[test]
fn unfit_replicas_are_not_promoted_on_mysql() {
    unfit_replicas(Kind::Mysql);
}

/// `spate follow` of a server.
pub fn follow(server: &Server, source: &Server, options: &[&str]) -> Command {
    let mut command = program();
    let at = |server: &Server| format!("{ACCOUNT}@127.0.0.1:{}", server.port);
    command.arg("follow").arg("--replica").arg(at(server)).arg("--source").arg(at(source));
    command.args(["--replication-user", ACCOUNT]).env("SPATE_REPLICATION_PASSWORD", PASSWORD);
    server.allow_password(&mut command, "replica");
    server.allow_password(&mut command, "source");
    command.args(options);
    command
}

/// The old source comes back with transactions that nobody has received.
fn old_source_with_surplus(kind: Kind, surplus: &str) -> Trio {
    let mut trio = Trio::begin(kind);
    trio.site.source.sql(
        "CREATE TABLE d.u (a INT, b VARCHAR(20) NOT NULL, f FLOAT, e ENUM('x','y'), n DECIMAL(10,3), j TEXT, z DATETIME(3), PRIMARY KEY (b), \
         UNIQUE (a)); INSERT INTO d.u VALUES (1, 'one', 1.1, 'x', 1.5, 'text', '2020-01-01 01:01:01.5'), (2, 'two', 2.2, NULL, NULL, NULL, NULL); \
         CREATE TABLE d.keyless (a INT); INSERT INTO d.keyless VALUES (1), (1), (2)",
    );
    trio.wait_followed();
    for server in [&trio.site.replica, &trio.third] {
        replication(server, "STOP", "IO_THREAD");
    }
    sleep(Duration::from_millis(300));
    trio.site.source.sql(surplus);
    trio.site.source.kill();
    succeeds(&trio.run(trio.promote(&["--source-is-dead"])));
    trio.assert_promoted();
    trio.site.source.begin();
    trio
}

const SURPLUS: &str = "INSERT INTO d.t (k, v) VALUES (100, 'lost'), (101, 'lost'); UPDATE d.t SET v = 'changed' WHERE id = 1; DELETE FROM d.t WHERE id = 2; \
    UPDATE d.u SET f = 3.3, e = 'y', n = 7.125, j = NULL, z = '2021-02-03 04:05:06.789' WHERE a = 1; UPDATE d.u SET a = 3 WHERE a = 2; \
    UPDATE d.u SET b = 'uno' WHERE b = 'one'; INSERT INTO d.u (a, b) VALUES (2, 'new'); DELETE FROM d.keyless WHERE a = 2; \
    INSERT INTO d.keyless VALUES (3), (1); UPDATE d.t SET k = 5; \
    INSERT INTO d.t (id, k) VALUES (5000, 1); DELETE FROM d.t WHERE id = 5000";

fn assert_rejoined(trio: &Trio) {
    let (old, new) = (&trio.site.source, &trio.site.replica);
    let rows =
        write_as_client(new, "INSERT INTO d.t (k) VALUES (99); UPDATE d.u SET j = 'again'; SELECT COUNT(*) FROM d.t")
            .unwrap();
    wait_until("the new source's row", || old.sql("SELECT COUNT(*) FROM d.t") == rows);
    wait_until("the same rows", || old.checksums() == new.checksums());
    assert!(write_as_client(old, "INSERT INTO d.t (k) VALUES (78)").unwrap_err().contains("read"));
}

fn rejoin(kind: Kind) {
    let trio = old_source_with_surplus(kind, SURPLUS);
    let (old, new) = (&trio.site.source, &trio.site.replica);
    let dry = trio.run(follow(old, new, &["--dry-run", "--json"]));
    assert_eq!(json(&dry)["surplus"]["transactions"], 12, "{}", dry.output);
    trio.run(follow(old, new, &[])).assert_failed_saying(&["12 transactions", "--save DIR"]);
    assert_eq!(old.sql("SELECT @@GLOBAL.read_only"), "0");
    let directory = trio.site.archive();
    let ended = trio.run(follow(old, new, &["--save", directory.to_str().unwrap(), "--json"]));
    succeeds(&ended);
    assert_eq!(json(&ended)["surplus"]["transactions"], 12);
    let list = std::fs::read_to_string(directory.join("surplus-1/surplus.txt")).unwrap();
    assert!(list.contains("delete from d.t, the row with id=2") && list.contains("d.keyless"), "{list}");
    assert_rejoined(&trio);
    // Again, and the servers change roles once more.
    succeeds(&trio.run(follow(old, new, &[])));
    assert_rejoined(&trio);
    succeeds(&trio.run(promote(new, old, &[&trio.third], &[])));
    let rows = write_as_client(old, "INSERT INTO d.t (k) VALUES (7); SELECT COUNT(*) FROM d.t").unwrap();
    wait_until("the row of the source that is one again", || trio.third.sql("SELECT COUNT(*) FROM d.t") == rows);
}

#[test]
fn old_source_rejoins_without_its_surplus() {
    rejoin(Kind::Mariadb);
}

#[test]
fn old_source_rejoins_without_its_surplus_on_mysql() {
    rejoin(Kind::Mysql);
}

fn surplus_that_stays(kind: Kind) {
    let trio = old_source_with_surplus(
        kind,
        "INSERT INTO d.t (k) VALUES (1); ALTER TABLE d.t ADD COLUMN w INT; CREATE TABLE d.more (i INT); \
         CREATE USER somebody IDENTIFIED BY 'TopSecret-1'",
    );
    let (old, new) = (&trio.site.source, &trio.site.replica);
    let directory = trio.site.archive();
    let save = ["--save", directory.to_str().unwrap()];
    let sums = old.checksums();
    trio.run(follow(old, new, &save)).assert_failed_saying(&[
        "ALTER TABLE d.t",
        "CREATE TABLE d.more",
        "No row was changed",
    ]);
    let list = directory.join("surplus-1/surplus.txt");
    let mode = std::fs::metadata(&list).unwrap().permissions().mode();
    let text = std::fs::read_to_string(&list).unwrap();
    assert!(mode & 0o077 == 0 && text.contains("CREATE USER"), "{mode:o} {text}");
    assert!(!text.contains("TopSecret"), "{text}");
    assert_eq!(old.checksums(), sums);
    // A row that somebody has changed without the binlog.
    let trio = old_source_with_surplus(kind, "UPDATE d.t SET k = 9 WHERE id = 1");
    let (old, new) = (&trio.site.source, &trio.site.replica);
    old.sql("SET sql_log_bin=0; UPDATE d.t SET k = 10 WHERE id = 1");
    let sums = old.checksums();
    let directory = trio.site.archive();
    let save = ["--save", directory.to_str().unwrap()];
    trio.run(follow(old, new, &save)).assert_failed_saying(&["the row of d.t with id=1 is not as they left it"]);
    assert_eq!(old.checksums(), sums);
}

#[test]
fn surplus_that_cannot_be_undone_stays() {
    surplus_that_stays(Kind::Mariadb);
}

#[test]
fn surplus_that_cannot_be_undone_stays_on_mysql() {
    surplus_that_stays(Kind::Mysql);
}

#[cfg(feature = "failpoints")]
fn rejoin_killed(kind: Kind) {
    let trio = old_source_with_surplus(kind, SURPLUS);
    let directory = trio.site.archive();
    let save = ["--save", directory.to_str().unwrap()];
    for point in &POINTS[8..] {
        let mut command = follow(&trio.site.source, &trio.site.replica, &save);
        command.env("SPATE_STOP_AT", point);
        trio.run(command).assert_says(&[&format!("stopped at {point}")]);
    }
    succeeds(&trio.run(follow(&trio.site.source, &trio.site.replica, &save)));
    assert_rejoined(&trio);
}

#[cfg(feature = "failpoints")]
#[test]
fn rejoining_killed_at_each_point_goes_on() {
    rejoin_killed(Kind::Mariadb);
}

#[cfg(feature = "failpoints")]
#[test]
fn rejoining_killed_at_each_point_goes_on_mysql() {
    rejoin_killed(Kind::Mysql);
}

/// Sources are killed under load; the numbers must be right. `spate lab failover` does it for longer.
fn failovers_under_load(kind: Kind, semi_sync: bool) {
    const ROUNDS: u32 = 3;
    let home = LabHome::at(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lab")).unwrap();
    let directory = tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_spate"));
    let mut servers = Servers::begin(&home, kind.binaries(), semi_sync, directory.path(), &program).unwrap();
    for number in 1..=ROUNDS {
        let round = servers.round(number).unwrap();
        assert!(round.is_identical && round.acknowledged > 0, "{round:?}");
        assert_eq!(round.lost, round.reported, "{round:?}");
        assert!(!semi_sync || round.acknowledged_lost == 0, "{round:?}");
    }
}

#[test]
fn failovers_under_load_report_what_is_lost() {
    failovers_under_load(Kind::Mariadb, false);
}

#[test]
fn failovers_under_load_report_what_is_lost_on_mysql() {
    failovers_under_load(Kind::Mysql, false);
}

#[test]
fn failovers_with_semi_sync_lose_no_acknowledged_commit() {
    failovers_under_load(Kind::Mariadb, true);
}

#[test]
fn failovers_with_semi_sync_lose_no_acknowledged_commit_on_mysql() {
    failovers_under_load(Kind::Mysql, true);
}

/// The privileges of docs/privileges.md are enough.
fn limited_account(kind: Kind) {
    const LIMITED: &str = "limited";
    let mut trio = Trio::begin(kind);
    let grants = match kind.vendor() {
        Vendor::MariaDb => {
            "READ_ONLY ADMIN, CONNECTION ADMIN, PROCESS, RELOAD, REPLICATION SLAVE ADMIN, REPLICATION MASTER ADMIN, REPLICA MONITOR, BINLOG MONITOR, BINLOG ADMIN, \
             REPLICATION SLAVE, SELECT, INSERT, UPDATE, DELETE, BINLOG REPLAY, EVENT"
        }
        Vendor::MySql => {
            "SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN, PROCESS, RELOAD, REPLICATION_SLAVE_ADMIN, REPLICATION CLIENT, REPLICATION SLAVE, \
             SELECT, INSERT, UPDATE, DELETE, REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN, EVENT"
        }
    };
    trio.site.source.sql(&format!(
        "CREATE USER {LIMITED}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; GRANT {grants} ON *.* TO {LIMITED}@'127.0.0.1'; \
         GRANT ALL PRIVILEGES ON spate.* TO {LIMITED}@'127.0.0.1'; \
         GRANT CREATE, SELECT, INSERT ON spate_failover.* TO {LIMITED}@'127.0.0.1'; CREATE EVENT d.nightly ON SCHEDULE EVERY 1 DAY STARTS '2037-01-01' \
         DO DELETE FROM d.t"
    ));
    trio.wait_followed();
    for server in [&trio.site.replica, &trio.third] {
        replication(server, "STOP", "IO_THREAD");
    }
    sleep(Duration::from_millis(300));
    trio.site.source.sql("INSERT INTO d.t (k, v) VALUES (100, 'lost'); UPDATE d.t SET v = 'changed'");
    trio.site.source.kill();
    let at = |server: &Server| format!("{LIMITED}@127.0.0.1:{}", server.port);
    let (old, new, third) = (at(&trio.site.source), at(&trio.site.replica), at(&trio.third));
    let mut command = program();
    command.args(["promote", "--source", &old, "--replica", &new, "--other", &third, "--source-is-dead"]);
    trio.site.source.allow_password(&mut command, "source");
    trio.site.source.allow_password(&mut command, "replica");
    let ended = trio.run(command);
    succeeds(&ended);
    ended.assert_says(&["nightly"]);
    trio.assert_promoted();
    trio.site.source.begin();
    let mut command = program();
    let directory = trio.site.archive();
    command
        .args(["follow", "--replica", &old, "--source", &new, "--replication-user", ACCOUNT, "--save"])
        .arg(&directory);
    command.env("SPATE_REPLICATION_PASSWORD", PASSWORD);
    trio.site.source.allow_password(&mut command, "source");
    trio.site.source.allow_password(&mut command, "replica");
    succeeds(&trio.run(command));
    let rows =
        write_as_client(&trio.site.replica, "INSERT INTO d.t (k) VALUES (99); SELECT COUNT(*) FROM d.t").unwrap();
    wait_until("the new source's row", || trio.site.source.sql("SELECT COUNT(*) FROM d.t") == rows);
    assert_eq!(trio.site.source.checksums(), trio.site.replica.checksums());
}

#[test]
fn documented_privileges_are_enough() {
    limited_account(Kind::Mariadb);
}

#[test]
fn documented_privileges_are_enough_on_mysql() {
    limited_account(Kind::Mysql);
}
