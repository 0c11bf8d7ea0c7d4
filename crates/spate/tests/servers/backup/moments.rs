//! What is restored: any moment, whole servers and single tables.

use std::fs;

use serde_json::Value;
use spate_lab::vendor::Vendor;

use super::{TABLES, Vault, fails, files_below, json, order, orders, path_of, position_known_to};
use crate::support::ledger::Ledger;
use crate::support::server::ACCOUNT;
use crate::support::{Kind, Server, wait_until};

fn everything_is_restored(kind: Kind) {
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    (0..10).for_each(|id| order(&vault.source, id));
    let base = vault.base(&[]);
    assert_eq!(base["position"]["gtid"], vault.source.position().as_str(), "{base}");
    (10..30).for_each(|id| order(&vault.source, id));
    vault.source.sql(
        "ALTER TABLE shop.orders ADD COLUMN note TEXT; CREATE TABLE shop.later AS SELECT * FROM shop.log; \
         CREATE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM shop.log WHERE FALSE; CREATE EVENT shop.f ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1; \
         ALTER EVENT shop.f ENABLE; CREATE PROCEDURE shop.p () SELECT 1; CREATE USER late@localhost IDENTIFIED BY 'Later-Pass-1'; FLUSH LOGS",
    );
    (30..40).for_each(|id| order_with_note(&vault.source, id));
    let shipped = vault.ship(&[]);
    assert_eq!(shipped["broken"], Value::Null, "{shipped}");
    // The archive reaches back before the base: a recovery must not apply that again.
    let (restored, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "40 40 40", "{restored}");
    assert_eq!(server.checksums(), vault.source.checksums());
    assert_eq!(position_known_to(&server), vault.source.position());
    assert_eq!(server.sql("SELECT COUNT(*) FROM mysql.user WHERE user IN ('late', 'spate_restore')"), "1");
    assert_eq!(server.sql("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'spate'"), "0");
    assert_eq!(server.sql("SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'shop'"), "1");
    let events = "SELECT GROUP_CONCAT(event_name, ' ', status, ' ', definer ORDER BY 1) FROM information_schema.events";
    assert_eq!(server.sql(events), "e ENABLED root@localhost,f ENABLED root@localhost");
    if kind.vendor() == Vendor::MySql {
        assert_ne!(server.sql("SELECT @@server_uuid"), vault.source.sql("SELECT @@server_uuid"));
    }
    // It serves as a source's replica, exactly there.
    server.follow(&vault.source);
    order_with_note(&vault.source, 40);
    server.wait_followed(&vault.source.position());
    assert_eq!(orders(&server), "41 41 41");
}

fn order_with_note(server: &Server, id: u32) {
    server.sql(&format!(
        "BEGIN; INSERT INTO shop.orders VALUES ({id}, 'order {id}', 'n'); INSERT INTO shop.log VALUES ('order {id}'); \
         UPDATE shop.counter SET n = n + 1; COMMIT"
    ));
}

#[test]
fn everything_is_restored_mariadb() {
    everything_is_restored(Kind::Mariadb);
}

#[test]
fn everything_is_restored_mysql() {
    everything_is_restored(Kind::Mysql);
}

/// What was committed while the base was made is in the base, or behind it, and never in both.
fn a_base_under_load_is_exact(kind: Kind) {
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    let mut ledger = Ledger::begin(&vault.source, 7);
    (0..5).for_each(|_| ledger.work(&vault.source));
    let writes: String = (0..3000)
        .map(|id| {
            format!(
                "BEGIN; INSERT INTO shop.orders VALUES ({id}, 'x'); INSERT INTO shop.log VALUES ('{id}'); \
                 UPDATE shop.counter SET n = n + 1; COMMIT;\n"
            )
        })
        .collect();
    let script = writes + &ledger.script();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| vault.source.sql(&script));
        wait_until("the writes are under way", || {
            vault.source.sql("SELECT COUNT(*) FROM shop.orders").parse::<u32>().unwrap() > 50
        });
        vault.base(&[]);
        writing.join().unwrap();
    });
    ledger.work(&vault.source);
    vault.ship(&[]);
    let (restored, server) = vault.restore(&[]);
    assert!(restored["transactions"].as_u64().unwrap() > 10, "the base was made meanwhile: {restored}");
    assert_eq!(orders(&server), "3000 3000 3000");
    assert_eq!(server.checksums(), vault.source.checksums());
}

#[test]
fn a_base_under_load_is_exact_mariadb() {
    a_base_under_load_is_exact(Kind::Mariadb);
}

#[test]
fn a_base_under_load_is_exact_mysql() {
    a_base_under_load_is_exact(Kind::Mysql);
}

fn any_moment_is_restored(kind: Kind) {
    let annotated = match kind.vendor() {
        Vendor::MariaDb => "--binlog-annotate-row-events=ON",
        Vendor::MySql => "--binlog-rows-query-log-events=ON",
    };
    let vault = Vault::with(kind, &[annotated]);
    vault.source.sql(TABLES);
    vault.base(&[]);
    (0..5).for_each(|id| order(&vault.source, id));
    let five = vault.source.position();
    let place =
        vault.source.sql(if kind.vendor() == Vendor::MySql { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" });
    let place: Vec<&str> = place.split('\t').collect();
    vault.source.sql("SELECT SLEEP(1.2)");
    let time = vault.source.sql("SELECT UTC_TIMESTAMP()");
    vault.source.sql("SELECT SLEEP(1.2)");
    vault.source.sql("UPDATE shop.orders SET what = 'oops' WHERE id IN (1, 3)");
    let mistake = mistake_of(&vault.source);
    vault.source.sql("UPDATE shop.orders SET what = 'other' WHERE id = 2");
    vault.source.sql("UPDATE shop.orders SET what = 'touched' WHERE id = 3; DROP TABLE shop.log");
    vault.ship(&[]);
    let gtid_of = |server: &Server| server.sql("SELECT GROUP_CONCAT(what ORDER BY id) FROM shop.orders");
    let before = "order 0,order 1,order 2,order 3,order 4";
    for until in [
        format!("gtid:{five}"),
        format!("before-gtid:{mistake}"),
        format!("time:{time}"),
        format!("file:{}:{}", place[0], place[1]),
        "before-statement:what = 'OOPS'  WHERE".to_owned(),
    ] {
        let (restored, server) = vault.restore(&["--until", &until]);
        assert_eq!(gtid_of(&server), before, "{until}: {restored}");
        assert_eq!(restored["excluded"]["gtid"], mistake.as_str(), "{until}: {restored}");
        if until.starts_with("before-gtid") {
            let later = &restored["later"];
            assert_eq!((&later["rows"], &later["transactions"]), (&2.into(), &3.into()), "{restored}");
            assert_eq!((&later["touching_count"], &later["unclear_count"]), (&1.into(), &1.into()), "{restored}");
        }
    }
    let (_, server) = vault.restore(&["--until", "before-statement:drop table"]);
    assert_eq!(gtid_of(&server), "order 0,oops,other,touched,order 4");
    assert_eq!(server.sql("SELECT COUNT(*) FROM shop.log"), "5");
    let to = vault.path("restored");
    let refused =
        |until: &str, parts: &[&str]| fails(vault.restore_command(&["--to", path_of(&to), "--until", until]), parts);
    refused("before-statement:update", &["several transactions", &mistake]);
    refused("before-statement:truncate", &["no statement", "truncate"]);
    refused("before-gtid:0-77-7", &["no transaction 0-77-7"]);
    refused("time:1999-01-01T00:00:00Z", &["oldest base", "behind"]);
    refused("file:source.999999:4", &["ends at"]);
    assert!(!to.exists());
}

/// A source whose clock went back: the first transaction of a later time is the end, and what that leaves out is told.
#[test]
fn a_clock_that_went_back_is_told() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    let at = |seconds: i64, id: u32| {
        vault.source.sql(&format!(
            "SET timestamp = UNIX_TIMESTAMP() + {seconds}; INSERT INTO shop.orders VALUES ({id}, 'order {id}')"
        ));
    };
    [(600, 0), (1_200, 1), (2_400, 2), (900, 3), (3_000, 4)].into_iter().for_each(|(seconds, id)| at(seconds, id));
    vault.ship(&[]);
    let time = vault.source.sql("SELECT UTC_TIMESTAMP() + INTERVAL 1800 SECOND");
    let (restored, server) = vault.restore(&["--until", &format!("time:{time}")]);
    assert_eq!(server.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM shop.orders"), "0,1", "{restored}");
    let told = restored["warnings"].to_string();
    assert!(told.contains("the source's clock went back: 1 transactions"), "{told}");
}

/// The GTID of the transaction that was logged last.
fn mistake_of(server: &Server) -> String {
    let position = server.position();
    match server.kind.vendor() {
        Vendor::MariaDb => position,
        Vendor::MySql => {
            let (uuid, numbers) = position.split_once(':').unwrap();
            format!("{uuid}:{}", numbers.rsplit('-').next().unwrap())
        }
    }
}

#[test]
fn any_moment_is_restored_mariadb() {
    any_moment_is_restored(Kind::Mariadb);
}

#[test]
fn any_moment_is_restored_mysql() {
    any_moment_is_restored(Kind::Mysql);
}

fn single_tables_come_beside_the_live_ones(kind: Kind) {
    let vault = Vault::of(kind);
    let document = "d JSON,";
    vault.source.sql(&format!(
        "CREATE DATABASE shop; USE shop; CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO parent VALUES (1); \
         CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, p INT, f FLOAT, g DOUBLE, n DECIMAL(30,10), b VARBINARY(20), {document} \
         l VARCHAR(20) CHARACTER SET latin1, e ENUM('a','ö'), bits BIT(10), z TIMESTAMP NULL, dt DATETIME(6), y YEAR, \
         geo GEOMETRY, twice INT GENERATED ALWAYS AS (p * 2) STORED, CONSTRAINT fk FOREIGN KEY (p) REFERENCES parent (id), \
         KEY by_l (l)) ENGINE=InnoDB; \
         INSERT INTO t (p, f, g, n, b, d, l, e, bits, z, dt, y, geo) VALUES \
         (1, 0.1, 0.1, 12345678901234567890.0123456789, x'00ff27', '{{\"a\": 1}}', 'grün', 'ö', b'1010101010', '2026-03-29 02:30:00', \
          '2026-01-01 00:00:00.000001', 2026, ST_GeomFromText('POINT(1 2)')), \
         (NULL, 3.4028234e38, -1e300, 0, '', NULL, '', NULL, 0, NULL, NULL, NULL, NULL)"
    ));
    let values = |table: &str| {
        let columns = [
            "id",
            "p",
            "f + 0e0",
            "g",
            "n",
            "HEX(b)",
            "d",
            "HEX(l)",
            "e + 0",
            "bits + 0",
            "z",
            "dt",
            "y",
            "ST_AsText(geo)",
            "twice",
        ];
        let columns = columns.map(|column| format!("COALESCE({column}, '-')")).join(", ");
        vault.source.sql(&format!("SELECT CONCAT_WS('|', {columns}) FROM {table} ORDER BY id"))
    };
    let before = values("shop.t");
    vault.base(&[]);
    vault.source.sql("DELETE FROM shop.t");
    let mistake = mistake_of(&vault.source);
    vault.ship(&[]);
    let server = format!("{ACCOUNT}@127.0.0.1:{}", vault.source.port);
    let only = |table: &str| {
        let mut command = vault.restore_command(&[
            "--only",
            table,
            "--server",
            &server,
            "--until",
            &format!("before-gtid:{mistake}"),
        ]);
        command.arg("--work").arg(vault.directory.path());
        vault.source.allow_password(&mut command, "server");
        command
    };
    let restored = json(only("shop.t"));
    assert_eq!(restored["copied"][0]["rows"], 2, "{restored}");
    assert_eq!(values("shop.t_restored"), before);
    assert_eq!(vault.source.sql("SELECT COUNT(*) FROM shop.t"), "0", "the live table is as it was");
    assert_eq!(vault.source.sql("SELECT GROUP_CONCAT(twice) FROM shop.t_restored"), "2");
    fails(only("shop.t"), &["shop.t_restored already"]);
    fails(only("shop.nothing"), &["shop.nothing"]);
    json(only("shop.t=shop.second"));
    assert_eq!(vault.source.sql("SELECT COUNT(*) FROM shop.second"), "2");
}

#[test]
fn single_tables_come_beside_the_live_ones_mariadb() {
    single_tables_come_beside_the_live_ones(Kind::Mariadb);
}

#[test]
fn single_tables_come_beside_the_live_ones_mysql() {
    single_tables_come_beside_the_live_ones(Kind::Mysql);
}

fn backups_are_verified(kind: Kind) {
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    (0..5).for_each(|id| order(&vault.source, id));
    vault.base(&[]);
    (5..9).for_each(|id| order(&vault.source, id));
    vault.ship(&[]);
    // These are not backed up yet: the recovered server fetches them from the source.
    (9..12).for_each(|id| order(&vault.source, id));
    let mut command = vault.command(&["backup", "verify", "--json", "--memory", "64MiB", "--target"]);
    command.arg(vault.target()).arg("--programs").arg(vault.programs()).arg("--work").arg(vault.directory.path());
    let verified = json(vault.at_source(command));
    assert_eq!(verified["compared"]["tables"].as_array().unwrap().len(), 3, "{verified}");
    assert!(verified["checked"]["tables"].as_u64().unwrap() >= 3, "{verified}");
    assert!(
        fs::read_dir(vault.directory.path()).unwrap().all(|entry| !entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("spate-verify"))
    );
}

#[test]
fn backups_are_verified_mariadb() {
    backups_are_verified(Kind::Mariadb);
}

#[test]
fn backups_are_verified_mysql() {
    backups_are_verified(Kind::Mysql);
}

/// What is prepared on the source is prepared on the recovered server.
fn prepared_transactions_stay_prepared(kind: Kind) {
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    vault.base(&[]);
    order(&vault.source, 1);
    vault.source.sql("XA START 'x'; INSERT INTO shop.orders VALUES (2, 'two'); XA END 'x'; XA PREPARE 'x'");
    order(&vault.source, 3);
    vault.ship(&[]);
    let (restored, server) = vault.restore(&[]);
    assert!(restored["warnings"][0].as_str().unwrap().contains("1 XA transactions are prepared"), "{restored}");
    assert_eq!(server.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM shop.orders"), "1,3");
    server.sql("XA COMMIT 'x'; DROP DATABASE spate");
    assert_eq!(server.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM shop.orders"), "1,2,3");
}

#[test]
fn prepared_transactions_stay_prepared_mariadb() {
    prepared_transactions_stay_prepared(Kind::Mariadb);
}

#[test]
fn prepared_transactions_stay_prepared_mysql() {
    prepared_transactions_stay_prepared(Kind::Mysql);
}

/// Of several domains, what came until the last of the wanted GTIDs is in it, too.
#[test]
fn the_first_that_is_left_out_is_the_first_in_any_domain() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    let in_domain = |domain: u32, id: u32| {
        vault.source.sql(&format!("SET gtid_domain_id={domain}; INSERT INTO shop.orders VALUES ({id}, 'x')"));
    };
    in_domain(9, 1);
    in_domain(0, 2);
    let wanted = vault.source.sql("SELECT REGEXP_SUBSTR(@@global.gtid_binlog_pos, '0-1-[0-9]+')");
    in_domain(9, 3);
    vault.ship(&[]);
    let (restored, server) = vault.restore(&["--until", &format!("gtid:{wanted}")]);
    assert_eq!(server.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM shop.orders"), "1,2", "{restored}");
    assert_eq!(restored["excluded"]["gtid"], "9-1-2", "{restored}");
}

/// What an engine changes by itself, and what a definition moves, cannot be told apart from the mistake's rows.
#[test]
fn what_may_touch_the_same_rows_is_unclear() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB; \
         CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL) ENGINE=InnoDB; \
         CREATE TABLE apart (id INT PRIMARY KEY) ENGINE=InnoDB; \
         INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (1, 1), (2, 2)",
    );
    vault.base(&[]);
    vault.source.sql("DELETE FROM shop.parent WHERE id = 1");
    let mistake = mistake_of(&vault.source);
    vault.source.sql("UPDATE shop.child SET p = 2 WHERE id = 1");
    vault.source.sql("INSERT INTO shop.apart VALUES (1)");
    vault.source.sql("ALTER TABLE shop.parent ADD COLUMN first_column INT FIRST");
    vault.source.sql("INSERT INTO shop.parent VALUES (7, 1); INSERT INTO shop.apart VALUES (2)");
    vault.ship(&[]);
    let (restored, _server) = vault.restore(&["--until", &format!("before-gtid:{mistake}")]);
    let later = &restored["later"];
    assert_eq!((&later["transactions"], &later["touching_count"]), (&5.into(), &0.into()), "{restored}");
    // The child's row, the definition, and the parent's row behind it.
    assert_eq!(later["unclear_count"], 3, "{restored}");
}

/// Settings that decide what a statement means are those of the source.
#[test]
fn statements_mean_what_they_meant_on_the_source() {
    let vault = Vault::with(Kind::Mariadb, &["--old-mode=", "--default-time-zone=+09:00"]);
    vault.source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE ti (id INT PRIMARY KEY, ts TIMESTAMP) ENGINE=InnoDB; \
         SET time_zone='+00:00'; INSERT INTO ti VALUES (1, '2026-01-01 00:00:00')",
    );
    vault.base(&[]);
    let outside = vault.path("outside");
    fs::create_dir(&outside).unwrap();
    vault.source.sql(&format!(
        "USE shop; CREATE TABLE u (a VARCHAR(10) CHARACTER SET utf8) ENGINE=InnoDB; INSERT INTO u VALUES ('😀'); \
         ALTER TABLE ti MODIFY ts DATETIME; CREATE TABLE d (i INT PRIMARY KEY) ENGINE=InnoDB DATA DIRECTORY='{}'; INSERT INTO d VALUES (1)",
        outside.display()
    ));
    vault.ship(&[]);
    let there = files_below(&outside).len();
    let (_, server) = vault.restore(&[]);
    assert_eq!(
        server.sql("SELECT ts FROM shop.ti; SELECT a FROM shop.u; SELECT i FROM shop.d"),
        "2026-01-01 09:00:00\n😀\n1"
    );
    assert_eq!(files_below(&outside).len(), there, "nothing is written outside");
    assert_eq!(
        server.sql("SELECT character_set_name FROM information_schema.columns WHERE table_name = 'u'"),
        "utf8mb4"
    );
}
