//! `spate replicate --follow-promotions`: it goes on from the server that was promoted.

use spate_lab::vendor::Vendor;

use crate::failover::{promote, succeeds, write_as_client};
use crate::support::program::{Site, program};
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Kind, Server, wait_until};

const LOGGING: [&str; 3] = ["--log-bin=binlog", "--log-slave-updates", "--sync-binlog=1"];

/// A source, a replica of Spate's, and one of the source's own replication, which may be promoted.
struct Three {
    site: Site,
    native: Server,
}

impl Three {
    fn of(kind: Kind) -> Three {
        let site = Site::between((kind, &["--log-slave-updates"]), (kind, &LOGGING));
        let native = Server::replica(kind, &[LOGGING.as_slice(), &["--server-id=3"]].concat());
        native.follow(&site.source);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, k INT, v VARCHAR(100)); \
             CREATE USER writer@'127.0.0.1' IDENTIFIED BY 'w'; GRANT SELECT, INSERT, UPDATE, DELETE ON d.* TO writer@'127.0.0.1'",
        );
        for server in [&site.replica, &native] {
            server.sql("SET GLOBAL read_only=1");
        }
        Three { site, native }
    }

    /// Rows that clients insert on `server`, and the replica of Spate's gets.
    fn insert(&self, server: &Server, rows: u32) {
        for number in 0..rows {
            write_as_client(server, &format!("INSERT INTO d.t (k, v) VALUES ({number}, 'row')")).unwrap();
        }
        let there = server.sql("SELECT COUNT(*), MAX(id) FROM d.t");
        let tables = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'";
        wait_until("the table", || self.site.replica.sql(tables) == "1");
        wait_until("the rows", || self.site.replica.sql("SELECT COUNT(*), MAX(id) FROM d.t") == there);
        assert_eq!(server.checksums(), self.site.replica.checksums());
    }

    fn archive_of_promotion(&self, number: u32) -> bool {
        self.site.archive().join(format!("promoted-{number}")).join("archive.list").exists()
    }
}

fn follows_promotions(kind: Kind, consistency: &str) {
    let three = Three::of(kind);
    let Three { site, native } = &three;
    let replicate = || site.replicate(&["--start", "earliest", "--consistency", consistency, "--follow-promotions"]);
    let mut running = site.spawn(replicate());
    three.insert(&site.source, 20);
    native.wait_followed(&site.source.position());

    // While it runs.
    let ended = site.run(promote(&site.source, native, &[&site.replica], &[]));
    succeeds(&ended);
    ended.assert_says(&["Spate goes on at"]);
    assert!(!ended.output.contains("go on with Spate"), "{}", ended.output);
    three.insert(native, 20);
    assert!(running.is_running());
    assert_eq!(site.status()["source"], format!("{ACCOUNT}@127.0.0.1:{}", native.port));
    assert!(three.archive_of_promotion(1));

    // A later start with the same command line.
    running.kill();
    write_as_client(native, "INSERT INTO d.t (k) VALUES (50)").unwrap();
    running = site.spawn(replicate());
    three.insert(native, 1);
    running.terminate();

    // Back, while it does not run.
    let mut follow = program();
    let at = |server: &Server| format!("{ACCOUNT}@127.0.0.1:{}", server.port);
    follow.args(["follow", "--replica", &at(&site.source), "--source", &at(native), "--replication-user", ACCOUNT]);
    follow.env("SPATE_REPLICATION_PASSWORD", PASSWORD);
    native.allow_password(&mut follow, "source");
    native.allow_password(&mut follow, "replica");
    succeeds(&site.run(follow));
    write_as_client(native, "INSERT INTO d.t (k) VALUES (51)").unwrap();
    site.source.wait_followed(&native.position());
    let ended = site.run(promote(native, &site.source, &[&site.replica], &[]));
    succeeds(&ended);
    ended.assert_says(&["go on with Spate", "--follow-promotions"]);
    running = site.spawn(replicate());
    three.insert(&site.source, 20);
    assert!(three.archive_of_promotion(2));
    running.terminate();

    // The server's own replication is not bound to what was said to Spate.
    succeeds(&site.run(site.replica_command("handover")));
    assert_eq!(site.replica.sql("SELECT CONCAT(number, ':', host) FROM spate.new_source"), "2:");
}

#[test]
fn the_promoted_server_is_followed() {
    follows_promotions(Kind::Mariadb, "snapshot");
}

#[test]
fn the_promoted_server_is_followed_on_mysql() {
    follows_promotions(Kind::Mysql, "snapshot");
}

#[test]
fn the_promoted_server_is_followed_transaction_by_transaction() {
    follows_promotions(Kind::Mariadb, "transaction");
}

#[test]
fn the_promoted_server_is_followed_transaction_by_transaction_on_mysql() {
    follows_promotions(Kind::Mysql, "transaction");
}

/// The source dies, and what Spate has received from it and not applied yet is not asked for at the new one again and again.
fn a_source_dies(kind: Kind) {
    let mut three = Three::of(kind);
    let mut running = three.site.spawn(three.site.replicate(&["--start", "earliest", "--follow-promotions"]));
    three.insert(&three.site.source, 20);
    three.native.wait_followed(&three.site.source.position());
    three.site.source.kill();
    let Three { site, native } = &three;
    let ended = site.run(promote(&site.source, native, &[&site.replica], &["--source-is-dead"]));
    succeeds(&ended);
    ended.assert_says(&["Spate goes on at"]);
    three.insert(native, 20);
    assert!(running.is_running());
}

#[test]
fn a_server_promoted_after_a_death_is_followed() {
    a_source_dies(Kind::Mariadb);
}

#[test]
fn a_server_promoted_after_a_death_is_followed_on_mysql() {
    a_source_dies(Kind::Mysql);
}

/// What a server says of itself in `spate.new_source`.
fn identity(server: &Server) -> String {
    let uuid = match server.kind.vendor() {
        Vendor::MariaDb => String::new(),
        Vendor::MySql => server.sql("SELECT @@server_uuid"),
    };
    format!("{}, '{uuid}'", server.sql("SELECT @@server_id"))
}

/// Spate has applied what the promoted server never received: that is an error, and nothing from the new source is applied.
fn diverged(kind: Kind) {
    let mut three = Three::of(kind);
    const OPTIONS: [&str; 3] = ["--start", "earliest", "--follow-promotions"];
    let running = three.site.spawn(three.site.replicate(&OPTIONS));
    three.insert(&three.site.source, 5);
    three.native.wait_followed(&three.site.source.position());
    three.native.sql(match kind.vendor() {
        Vendor::MariaDb => "STOP SLAVE IO_THREAD",
        Vendor::MySql => "STOP REPLICA IO_THREAD",
    });
    three.insert(&three.site.source, 1);
    running.terminate();
    three.site.source.kill();
    let Three { site, native } = &three;
    let at =
        |options: &[&str]| promote(&site.source, native, &[&site.replica], &[&["--source-is-dead"], options].concat());
    let ended = site.run(at(&[]));
    assert!(!ended.status.success(), "{}", ended.output);
    let ended = site.run(at(&["--accept-loss"]));
    ended.assert_failed_saying(&["does not follow it", "lacks"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.new_source"), "0", "it was given no address");
    // Nothing of this could collide with what the replica has.
    write_as_client(native, "INSERT INTO d.t (id, k) VALUES (1000, 60), (1001, 61)").unwrap();
    let before = site.replica.checksums();
    let insists = |identity: &str, saying: &[&str]| {
        let row = format!("1, 1, '127.0.0.1', {}, {identity}, 0", native.port);
        site.replica.sql(&format!("SET sql_log_bin=0; REPLACE INTO spate.new_source VALUES ({row})"));
        site.run(site.replicate(&OPTIONS)).assert_failed_saying(saying);
        assert_eq!(site.replica.checksums(), before);
        assert!(!three.archive_of_promotion(1));
    };
    insists(&identity(native), &["lacks what the replica has applied"]);
    insists(&identity(&site.replica), &["not the server that was promoted"]);
}

#[test]
fn a_promoted_server_that_lacks_something_is_not_followed() {
    diverged(Kind::Mariadb);
}

#[test]
fn a_promoted_server_that_lacks_something_is_not_followed_on_mysql() {
    diverged(Kind::Mysql);
}

/// A replica of Spate's that has followed a promotion is promoted itself, with what its latest archive holds.
fn latest_archive_is_drained(kind: Kind, consistency: &str) {
    let mut three = Three::of(kind);
    let options = ["--start", "earliest", "--consistency", consistency, "--follow-promotions"];
    let running = three.site.spawn(three.site.replicate(&options));
    three.insert(&three.site.source, 5);
    three.native.wait_followed(&three.site.source.position());
    succeeds(&three.site.run(promote(&three.site.source, &three.native, &[&three.site.replica], &[])));
    three.insert(&three.native, 5);
    running.terminate();
    write_as_client(&three.native, "INSERT INTO d.t (k, v) VALUES (1, 'archived'), (2, 'archived')").unwrap();
    let mut fetch = program();
    let archive = three.site.archive();
    fetch.args(["archive", "fetch", "--until", "caught-up", "--archive"]).arg(archive.join("promoted-1"));
    fetch.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", three.native.port));
    three.native.allow_password(&mut fetch, "source");
    succeeds(&three.site.run(fetch));
    let mut ship = program();
    ship.args(["backup", "archive", "--archive"]).arg(&archive).arg("--target").arg(archive.join("../backups"));
    three.site.run(ship).assert_says(&["which this command does not store", "promoted-1"]);
    let sums = three.native.checksums();
    three.native.kill();
    let Three { site, native } = &three;
    let options = ["--source-is-dead", "--archive", archive.to_str().unwrap()];
    succeeds(&site.run(promote(native, &site.replica, &[], &options)));
    assert_eq!(site.replica.checksums(), sums);
    write_as_client(&site.replica, "INSERT INTO d.t (k) VALUES (90)").unwrap();
}

#[test]
fn the_latest_archive_is_drained_before_a_promotion() {
    latest_archive_is_drained(Kind::Mariadb, "transaction");
}

#[test]
fn the_latest_archive_is_drained_before_a_promotion_on_mysql() {
    latest_archive_is_drained(Kind::Mysql, "snapshot");
}

#[test]
fn a_missing_privilege_is_named_at_the_start() {
    const LIMITED: &str = "limited";
    let site = Site::of(Kind::Mariadb);
    site.replica.sql(&format!(
        "CREATE USER {LIMITED}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT, INSERT, UPDATE, DELETE, BINLOG REPLAY ON *.* TO \
         {LIMITED}@'127.0.0.1'; GRANT ALL PRIVILEGES ON spate.* TO {LIMITED}@'127.0.0.1'"
    ));
    let ended = site.run(site.replicate_as(LIMITED, &["--start", "earliest", "--follow-promotions"]));
    ended.assert_failed_saying(&["GRANT BINLOG ADMIN", "follow promotions"]);
    site.replica.sql(&format!("GRANT BINLOG ADMIN ON *.* TO {LIMITED}@'127.0.0.1'"));
    let options = ["--start", "earliest", "--until", "caught-up", "--follow-promotions"];
    succeeds(&site.run(site.replicate_as(LIMITED, &options)));
}
