//! `spate backup` and `spate restore`: any moment, exactly.

use std::fs;
#[cfg(feature = "failpoints")]
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use spate_lab::vendor::Vendor;
use tempfile::TempDir;

use crate::support::ledger::Ledger;
use crate::support::program::{program, with_full_disk};
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Kind, Server, wait_until};

/// A server, its archive, and its backups.
struct Vault {
    source: Server,
    directory: TempDir,
}

fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Vault {
    fn of(kind: Kind) -> Vault {
        Vault::with(kind, &[])
    }

    fn with(kind: Kind, options: &[&str]) -> Vault {
        let source = Server::source(kind, options);
        if kind.vendor() == Vendor::MySql {
            source.sql("SET sql_log_bin = 0; INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
        }
        let directory = tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap();
        Vault { source, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn target(&self) -> PathBuf {
        self.path("target")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.args(words).env("SPATE_SERVER_PASSWORD", PASSWORD);
        command
    }

    fn programs(&self) -> PathBuf {
        self.source.kind.binaries().daemon.parent().unwrap().to_owned()
    }

    /// The end of the command line for the source.
    fn at_source(&self, mut command: Command) -> Command {
        command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.source.port));
        self.source.allow_password(&mut command, "source");
        command
    }

    fn base_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["backup", "base", "--json", "--target"]);
        command.arg(self.target()).arg("--programs").arg(self.programs()).args(options);
        self.at_source(command)
    }

    fn base(&self, options: &[&str]) -> Value {
        json(self.base_command(options))["base"].take()
    }

    /// Everything that the source has now, into the archive.
    fn fetch(&self) {
        let mut command =
            self.command(&["archive", "fetch", "--start", "earliest", "--until", "caught-up", "--archive"]);
        command.arg(self.path("archive"));
        succeeds(self.at_source(command));
    }

    fn ship_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["backup", "archive", "--json", "--archive"]);
        command.arg(self.path("archive")).arg("--target").arg(self.target()).args(options);
        command
    }

    fn ship(&self, options: &[&str]) -> Value {
        self.fetch();
        json(self.ship_command(options))
    }

    fn restore_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["restore", "--json", "--memory", "64MiB", "--target"]);
        command.arg(self.target()).arg("--programs").arg(self.programs()).args(options);
        command
    }

    /// Restores into a directory, and starts a server there.
    fn restore(&self, options: &[&str]) -> (Value, Server) {
        let to = self.path("restored");
        let restored = json(self.restore_command(&[&["--to", path_of(&to)], options].concat()));
        assert!(!self.path("restored.partial").exists(), "the place of the work is gone");
        (restored, Server::on(self.source.kind, &to, &["--server-id=9"]))
    }
}

fn output(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(PASSWORD), "the password shows: {said}");
    output
}

fn succeeds(command: Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(command: Command) -> Value {
    let said = succeeds(command);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Fails in an orderly way, and says all of `parts`.
fn fails(command: Command, parts: &[&str]) {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "'{part}' is missing in: {said}");
    }
}

/// Rows that would come twice without an error if what the base holds was applied again.
const TABLES: &str = "CREATE DATABASE shop; USE shop; \
    CREATE TABLE orders (id INT PRIMARY KEY, what VARCHAR(40)) ENGINE=InnoDB; \
    CREATE TABLE log (what VARCHAR(40)) ENGINE=InnoDB; \
    CREATE TABLE counter (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; INSERT INTO counter VALUES (1, 0)";

fn order(server: &Server, id: u32) {
    server.sql(&format!(
        "BEGIN; INSERT INTO shop.orders VALUES ({id}, 'order {id}'); INSERT INTO shop.log VALUES ('order {id}'); \
         UPDATE shop.counter SET n = n + 1; COMMIT"
    ));
}

fn orders(server: &Server) -> String {
    server.sql(
        "SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM shop.orders), (SELECT COUNT(*) FROM shop.log), (SELECT n FROM shop.counter))",
    )
}

fn position_known_to(server: &Server) -> String {
    server.sql(match server.kind.vendor() {
        Vendor::MariaDb => "SELECT @@GLOBAL.gtid_slave_pos",
        Vendor::MySql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
    })
}

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
    let json = "d JSON,";
    vault.source.sql(&format!(
        "CREATE DATABASE shop; USE shop; CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO parent VALUES (1); \
         CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, p INT, f FLOAT, g DOUBLE, n DECIMAL(30,10), b VARBINARY(20), {json} \
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
    let restored = json_of(only("shop.t"));
    assert_eq!(restored["copied"][0]["rows"], 2, "{restored}");
    assert_eq!(values("shop.t_restored"), before);
    assert_eq!(vault.source.sql("SELECT COUNT(*) FROM shop.t"), "0", "the live table is as it was");
    assert_eq!(vault.source.sql("SELECT GROUP_CONCAT(twice) FROM shop.t_restored"), "2");
    fails(only("shop.t"), &["shop.t_restored already"]);
    fails(only("shop.nothing"), &["shop.nothing"]);
    json_of(only("shop.t=shop.second"));
    assert_eq!(vault.source.sql("SELECT COUNT(*) FROM shop.second"), "2");
}

fn json_of(command: Command) -> Value {
    json(command)
}

#[test]
fn single_tables_come_beside_the_live_ones_mariadb() {
    single_tables_come_beside_the_live_ones(Kind::Mariadb);
}

#[test]
fn single_tables_come_beside_the_live_ones_mysql() {
    single_tables_come_beside_the_live_ones(Kind::Mysql);
}

#[test]
fn what_is_encrypted_needs_its_key() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    let (key, other) = (vault.path("key"), vault.path("other"));
    let said = succeeds(vault.command(&["backup", "key", "--out", path_of(&key)]));
    succeeds(vault.command(&["backup", "key", "--out", path_of(&other)]));
    let public = said.lines().find_map(|line| line.strip_prefix("public key: ")).unwrap();
    vault.base(&["--encrypt-to", public]);
    order(&vault.source, 1);
    vault.ship(&["--encrypt-to", public]);
    for file in files_below(&vault.target()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"order 1"), "{} is readable", file.display());
    }
    let to = vault.path("restored");
    fails(vault.restore_command(&["--to", path_of(&to)]), &["encrypted", "--identity"]);
    fails(vault.restore_command(&["--to", path_of(&to), "--identity", path_of(&other)]), &["recipients"]);
    assert!(!to.exists() && !vault.path("restored.partial").exists());
    let (_, server) = vault.restore(&["--identity", path_of(&key)]);
    assert_eq!(orders(&server), "1 1 1");
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn a_gap_between_base_and_binlog_is_named() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    for id in 0..4 {
        order(&vault.source, id);
        vault.source.sql("FLUSH LOGS");
    }
    vault.ship(&[]);
    // One of several files is lost, then a part of one.
    let files = files_below(&vault.target().join("logs"));
    let of_a_file: Vec<&PathBuf> = files.iter().filter(|path| path.ends_with("file.json")).collect();
    assert!(of_a_file.len() >= 4);
    let (third, aside) = (of_a_file[2].parent().unwrap(), vault.path("aside"));
    fs::rename(third, &aside).unwrap();
    let to = vault.path("restored");
    fails(
        vault.restore_command(&["--to", path_of(&to)]),
        &["incomplete", "files between source.000002 and source.000004 are missing"],
    );
    fs::rename(&aside, third).unwrap();
    let part = files.iter().find(|path| path.starts_with(third) && path.extension().is_none()).unwrap();
    let bytes = fs::read(part).unwrap();
    fs::remove_file(part).unwrap();
    fails(vault.restore_command(&["--to", path_of(&to)]), &["of the file source.000003, bytes from 0"]);
    fs::write(part, [&bytes[..bytes.len() - 1], b"x"].concat()).unwrap();
    fails(vault.restore_command(&["--to", path_of(&to)]), &["damaged"]);
    fs::write(part, bytes).unwrap();
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "4 4 4");
}

#[test]
fn binlogs_that_begin_behind_the_base_are_refused() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    order(&vault.source, 1);
    vault.source.sql("FLUSH LOGS; FLUSH LOGS; FLUSH LOGS");
    order(&vault.source, 2);
    vault.source.sql("PURGE BINARY LOGS TO 'source.000004'");
    vault.ship(&[]);
    let to = vault.path("restored");
    fails(vault.restore_command(&["--to", path_of(&to)]), &["incomplete", "source.000001 to source.000003"]);
    fails(
        vault.restore_command(&[
            "--to",
            path_of(&to),
            "--archive",
            path_of(&vault.source.data_directory()),
            "--base-name",
            "source",
        ]),
        &["incomplete", "source.000001 to source.000003"],
    );
    assert!(!to.exists());
}

#[test]
fn a_base_of_another_server_is_refused() {
    let (one, other) = (Vault::of(Kind::Mariadb), Vault::of(Kind::Mariadb));
    for vault in [&one, &other] {
        vault.source.sql(TABLES);
    }
    // The same GTIDs and file names, and another history.
    (0..3).for_each(|id| order(&one.source, id));
    other.source.sql("INSERT INTO shop.log VALUES ('a')");
    (10..20).for_each(|id| order(&other.source, id));
    one.base(&[]);
    other.fetch();
    let to = one.path("restored");
    let archive = other.path("archive");
    fails(one.restore_command(&["--to", path_of(&to), "--archive", path_of(&archive)]), &["the base", "source.000001"]);
    assert!(!to.exists());
}

#[test]
fn old_bases_go_and_no_chain_breaks() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    for id in 0..3 {
        order(&vault.source, id);
        vault.base(&[]);
        vault.source.sql("FLUSH LOGS");
        vault.ship(&[]);
    }
    order(&vault.source, 3);
    vault.ship(&[]);
    let dry = json(vault.command(&[
        "backup",
        "prune",
        "--json",
        "--keep",
        "1d",
        "--dry-run",
        "--target",
        path_of(&vault.target()),
    ]));
    assert_eq!((dry["bases"].as_array().unwrap().len(), dry["kept"].as_array().unwrap().len()), (2, 1), "{dry}");
    let listed = || json(vault.command(&["backup", "list", "--json", "--target", path_of(&vault.target())]));
    assert_eq!(listed()["bases"].as_array().unwrap().len(), 3, "a dry run changes nothing");
    let pruned =
        json(vault.command(&["backup", "prune", "--json", "--keep", "1d", "--target", path_of(&vault.target())]));
    // The last base stands at the end of the third file.
    assert_eq!(pruned["binlogs"].as_array().unwrap().len(), 3, "{pruned}");
    assert_eq!(listed()["bases"].as_array().unwrap().len(), 1);
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "4 4 4");
    // What was shipped goes on where it was.
    order(&vault.source, 4);
    let shipped = vault.ship(&[]);
    assert_eq!(shipped["broken"], Value::Null, "{shipped}");
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "5 5 5");
}

#[test]
fn an_archive_that_was_made_anew_begins_another_lineage() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    order(&vault.source, 1);
    let first = vault.ship(&[]);
    fs::remove_dir_all(vault.path("archive")).unwrap();
    vault.source.sql("RESET MASTER");
    order(&vault.source, 2);
    let second = vault.ship(&[]);
    assert_ne!(first["lineage"], second["lineage"]);
    vault.base(&[]);
    order(&vault.source, 3);
    let third = vault.ship(&[]);
    assert_eq!(third["lineage"], second["lineage"]);
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "3 3 3");
    // The archive's own name is there, and its files are others.
    vault.source.sql("RESET MASTER");
    order(&vault.source, 4);
    let id = fs::read(vault.path("archive/backup.id")).unwrap();
    fs::remove_dir_all(vault.path("archive")).unwrap();
    vault.fetch();
    fs::write(vault.path("archive/backup.id"), id).unwrap();
    let fourth = vault.ship(&[]);
    assert!(fourth["broken"].as_str().is_some_and(|why| why.contains("source.000001")), "{fourth}");
}

#[test]
fn a_snapshot_by_a_hook_is_a_base() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    order(&vault.source, 1);
    // A snapshot is atomic: here, since nothing runs meanwhile.
    let hook = vault.path("hook.sh");
    let script = format!(
        "set -e\ncase $SPATE_HOOK in\ntake) kill -STOP {0}; trap 'kill -CONT {0}' EXIT; cp -a \"$SPATE_DATADIR\" {1}; echo copied; echo {1} ;;\n\
         release) rm -rf {1} ;;\nesac\n",
        vault.source.process(),
        path_of(&vault.path("snapshot"))
    );
    fs::write(&hook, script).unwrap();
    let base = vault.base(&["--hook", &format!("sh {}", path_of(&hook))]);
    assert_eq!(base["method"], "snapshot", "{base}");
    assert!(!vault.path("snapshot").exists(), "it was released");
    order(&vault.source, 2);
    vault.ship(&[]);
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "2 2 2");
    assert_eq!(server.checksums(), vault.source.checksums());
    let bases = || files_below(&vault.target().join("bases")).len();
    let there = bases();
    for (id, bad, part) in
        [(3, "exit 3", "SPATE_HOOK=take"), (4, "echo nowhere", "not the path"), (5, "sleep 20", "longer than 1 s")]
    {
        fails(vault.base_command(&["--hook", bad, "--hook-seconds", "1"]), &[part]);
        order(&vault.source, id);
    }
    assert_eq!(bases(), there, "nothing half done stays");
}

/// The source dies while a client writes: what its client was told of is in the archive, and so in the recovery.
fn nothing_that_was_acknowledged_is_lost(kind: Kind) {
    let clients = match kind.vendor() {
        Vendor::MariaDb => "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'",
        Vendor::MySql => "SHOW STATUS LIKE 'Rpl_semi_sync_source_clients'",
    };
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    vault.base(&[]);
    vault.source.sql(&format!("SET sql_log_bin = 0; {}", kind.vendor().semi_sync_statements().join("; ")));
    let mut fetch = vault.command(&["archive", "fetch", "--start", "earliest", "--semi-sync", "--archive"]);
    fetch.arg(vault.path("archive"));
    let mut fetching = vault.at_source(fetch).spawn().unwrap();
    wait_until("the source to know its replica", || vault.source.sql(clients).ends_with("\t1"));
    let acknowledged = AtomicU32::new(0);
    let count = || acknowledged.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while vault.source.try_sql(&format!("INSERT INTO shop.orders VALUES ({}, 'x')", count())).is_ok() {
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until("some commits", || count() > 20);
        let killed = Command::new("kill").args(["-9", &vault.source.process().to_string()]).status().unwrap();
        assert!(killed.success());
    });
    let acknowledged = count();
    Command::new("kill").arg(fetching.id().to_string()).status().unwrap();
    fetching.wait().unwrap();
    assert!(acknowledged > 20, "{acknowledged} were acknowledged");
    json(vault.ship_command(&[]));
    let (_, restored) = vault.restore(&[]);
    let there = restored.sql(&format!("SELECT COUNT(*) FROM shop.orders WHERE id < {acknowledged}"));
    assert_eq!(there, acknowledged.to_string(), "of those that were acknowledged");
}

#[test]
fn nothing_that_was_acknowledged_is_lost_mariadb() {
    nothing_that_was_acknowledged_is_lost(Kind::Mariadb);
}

#[test]
fn nothing_that_was_acknowledged_is_lost_mysql() {
    nothing_that_was_acknowledged_is_lost(Kind::Mysql);
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

fn a_server_that_holds_the_base_becomes_a_replica(kind: Kind) {
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    order(&vault.source, 1);
    let base = vault.base(&[]);
    let (_, server) = vault.restore(&[]);
    (2..6).for_each(|id| order(&vault.source, id));
    vault.ship(&[]);
    let endpoint = format!("{ACCOUNT}@127.0.0.1:{}", server.port);
    let at_replica = |options: &[&str]| {
        let mut command = vault.restore_command(&[&["--replica", &endpoint], options].concat());
        server.allow_password(&mut command, "replica");
        command
    };
    // MySQL's own gtid_executed shows that it holds the base.
    if kind.vendor() == Vendor::MariaDb {
        fails(at_replica(&[]), &["--base"]);
        json(at_replica(&["--base", base["id"].as_str().unwrap()]));
    } else {
        json(at_replica(&[]));
    }
    assert_eq!(orders(&server), "5 5 5");
    order(&vault.source, 6);
    vault.ship(&[]);
    let again = json(at_replica(&[]));
    assert_eq!((orders(&server).as_str(), &again["transactions"]), ("6 6 6", &1.into()));
}

#[test]
fn a_server_that_holds_the_base_becomes_a_replica_mariadb() {
    a_server_that_holds_the_base_becomes_a_replica(Kind::Mariadb);
}

#[test]
fn a_server_that_holds_the_base_becomes_a_replica_mysql() {
    a_server_that_holds_the_base_becomes_a_replica(Kind::Mysql);
}

#[test]
fn what_cannot_be_backed_up_is_refused() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    fails(vault.base_command(&["--method", "clone"]), &["clone", "mariadb-backup"]);
    fails(vault.base_command(&["--method", "snapshot"]), &["--hook"]);
    fails(vault.base_command(&["--encrypt-to", "age1wrong"]), &["age1wrong", "spate backup key"]);
    let empty = vault.path("empty");
    fs::create_dir(&empty).unwrap();
    let to = vault.path("restored");
    let mut command = vault.command(&["restore", "--target", path_of(&empty), "--to", path_of(&to)]);
    fails(std::mem::replace(&mut command, program()), &["no base", "spate backup base"]);
    vault.base(&[]);
    fs::create_dir(&to).unwrap();
    fs::write(to.join("something"), "x").unwrap();
    fails(vault.restore_command(&["--to", path_of(&to)]), &["not empty"]);
    assert!(to.join("something").exists());
    fails(
        vault.restore_command(&["--to", path_of(&vault.path("other")), "--until", "time:2099-01-01T00:00:00Z"]),
        &["no binlogs", "spate backup archive"],
    );
    // Without a binlog, the base alone.
    fs::remove_dir_all(&to).unwrap();
    let (restored, server) = vault.restore(&[]);
    assert!(restored["warnings"][0].as_str().unwrap().contains("the base itself"), "{restored}");
    assert_eq!(orders(&server), "0 0 0");
}

/// Disks that are full, of the target and of the place of a recovery: nothing half done stays, and with room all goes on.
#[test]
fn full_disks_leave_nothing_half_done() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    (0..5).for_each(|id| order(&vault.source, id));
    fails(with_full_disk(&vault.base_command(&[]), 64), &["File too large"]);
    let left = files_below(&vault.target());
    assert!(left.is_empty(), "nothing half done stays: {left:?}");
    vault.base(&[]);
    (5..9).for_each(|id| order(&vault.source, id));
    vault.fetch();
    fails(with_full_disk(&vault.ship_command(&[]), 1), &["File too large"]);
    vault.ship(&[]);
    let to = vault.path("restored");
    fails(with_full_disk(&vault.restore_command(&["--to", path_of(&to)]), 64), &["File too large"]);
    assert!(!to.exists());
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "9 9 9");
}

/// From the first lineage to a directory that has its name.
#[cfg(feature = "failpoints")]
pub const POINTS: [&str; 10] = [
    "after-base-data",
    "before-base-manifest",
    "after-base-manifest",
    "after-backup-lineage",
    "after-backup-part",
    "before-backup-file-end",
    "after-restored-data",
    "after-restored-apply",
    "before-restored-rename",
    "after-pruned-manifest",
];

/// Where the wanted directory is there, and the program has not said so yet.
#[cfg(feature = "failpoints")]
pub const AFTER_RENAME: &str = "after-restored-rename";

#[test]
#[cfg(feature = "failpoints")]
fn killed_backups_and_recoveries_leave_nothing_half_done() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    let mut id = 0;
    let mut killed = |command: fn(&Vault) -> Command, point: &str| {
        order(&vault.source, id);
        vault.source.sql("FLUSH LOGS");
        vault.fetch();
        id += 1;
        let mut command = command(&vault);
        let output = command.env("SPATE_STOP_AT", point).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), Some(9), "{point}: {said}");
    };
    let base: fn(&Vault) -> Command = |vault| vault.base_command(&[]);
    let ship: fn(&Vault) -> Command = |vault| vault.ship_command(&[]);
    let restore: fn(&Vault) -> Command = |vault| vault.restore_command(&["--to", path_of(&vault.path("restored"))]);
    let prune: fn(&Vault) -> Command =
        |vault| vault.command(&["backup", "prune", "--keep", "1d", "--target", path_of(&vault.target())]);
    killed(ship, "after-backup-lineage");
    killed(base, "after-base-data");
    killed(base, "before-base-manifest");
    let bases = || json(vault.command(&["backup", "list", "--json", "--target", path_of(&vault.target())]));
    assert_eq!(bases()["bases"], Value::Array(vec![]), "none of them is a base");
    killed(base, "after-base-manifest");
    vault.base(&[]);
    for times in [1, 2] {
        killed(ship, &format!("after-backup-part:{times}"));
        killed(ship, &format!("before-backup-file-end:{times}"));
    }
    vault.ship(&[]);
    for point in ["after-restored-data", "after-restored-apply", "before-restored-rename"] {
        killed(restore, point);
        assert!(!vault.path("restored").exists(), "{point}");
        wait_until("the server that restored is gone", || !is_anybody_in(&vault.path("restored.partial")));
    }
    killed(prune, "after-pruned-manifest");
    assert_eq!(bases()["bases"].as_array().unwrap().len(), 1);
    vault.ship(&[]);
    killed(restore, AFTER_RENAME);
    let server = Server::on(Kind::Mariadb, &vault.path("restored"), &["--server-id=9"]);
    let counts = orders(&server);
    assert!(counts.split(' ').all(|count| *count == id_of(&counts)), "{counts}");
    fs::remove_dir_all(vault.path("restored.partial")).unwrap();
    drop(server);
    vault.ship(&[]);
    let (_, server) = vault.restore(&[]);
    assert_eq!(server.checksums(), vault.source.checksums());
}

#[cfg(feature = "failpoints")]
fn id_of(counts: &str) -> String {
    counts.split(' ').next().unwrap().to_owned()
}

/// True if a server still has its data there.
#[cfg(feature = "failpoints")]
fn is_anybody_in(directory: &Path) -> bool {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    let wanted = path_of(directory).as_bytes().to_vec();
    processes.into_iter().any(|line| line.windows(wanted.len()).any(|window| window == wanted))
}

#[test]
fn following_ships_what_comes() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    vault.fetch();
    let mut child = vault.ship_command(&["--follow", "1s"]).spawn().unwrap();
    for id in 0..3 {
        order(&vault.source, id);
        vault.fetch();
        std::thread::sleep(Duration::from_millis(700));
    }
    let end = vault.source.position();
    wait_until("everything is shipped", || {
        let restored = output(vault.restore_command(&[
            "--to",
            path_of(&vault.path("restored")),
            "--until",
            &format!("gtid:{end}"),
        ]));
        restored.status.success()
    });
    let signalled = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success() && child.wait().unwrap().success());
    let server = Server::on(Kind::Mariadb, &vault.path("restored"), &["--server-id=9"]);
    assert_eq!(orders(&server), "3 3 3");
}

/// A real server of the S3 protocol keeps the backups, and asks for a signature.
#[test]
fn an_object_store_keeps_backups() {
    let vault = Vault::of(Kind::Mariadb);
    let store = S3::begin(&vault.path("s3"));
    vault.source.sql(TABLES);
    let at_store = |words: &[&str]| {
        let mut command = vault.command(words);
        command.args(["--target", "s3://backups/shop/one"]).envs(store.environment());
        command
    };
    let mut base = at_store(&["backup", "base", "--json", "--keep", "1d", "--programs", path_of(&vault.programs())]);
    base = vault.at_source(base);
    json(base);
    (0..3).for_each(|id| order(&vault.source, id));
    vault.fetch();
    json(at_store(&["backup", "archive", "--json", "--archive", path_of(&vault.path("archive"))]));
    let listed = json(at_store(&["backup", "list", "--json"]));
    assert_eq!(listed["bases"].as_array().unwrap().len(), 1, "{listed}");
    let to = vault.path("restored");
    let mut wrong = at_store(&["restore", "--to", path_of(&to)]);
    wrong.env("AWS_SECRET_ACCESS_KEY", "wrong");
    fails(wrong, &["s3://backups/shop/one"]);
    json(at_store(&["restore", "--json", "--memory", "64MiB", "--to", path_of(&to)]));
    let server = Server::on(Kind::Mariadb, &to, &["--server-id=9"]);
    assert_eq!(orders(&server), "3 3 3");
    // A store lists a thousand objects at a time. What goes with a base is all of them.
    let first = vault.path("s3/backups/shop/one/bases").join(listed["bases"][0]["id"].as_str().unwrap());
    (0..2_100).for_each(|number| fs::write(first.join(format!("data.{number:08}")), "part").unwrap());
    let base = at_store(&["backup", "base", "--json", "--programs", path_of(&vault.programs())]);
    json(vault.at_source(base));
    let pruned = json(at_store(&["backup", "prune", "--json", "--keep", "1d"]));
    assert_eq!(pruned["bases"].as_array().unwrap().len(), 1, "{pruned}");
    assert_eq!(if first.exists() { files_below(&first) } else { Vec::new() }, Vec::<PathBuf>::new());
}

/// A server of the S3 protocol on a directory.
struct S3 {
    port: u16,
    _running: tokio::runtime::Runtime,
}

impl S3 {
    const KEY: &'static str = "test-key";
    const SECRET: &'static str = "test-secret-0123456789";

    fn begin(directory: &Path) -> S3 {
        fs::create_dir_all(directory.join("backups")).unwrap();
        let mut builder = s3s::service::S3ServiceBuilder::new(s3s_fs::FileSystem::new(directory).unwrap());
        builder.set_auth(s3s::auth::SimpleAuth::from_single(S3::KEY, S3::SECRET));
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let server = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                    let _client_is_gone = server.serve_connection(hyper_util::rt::TokioIo::new(socket), service).await;
                });
            }
        });
        S3 { port, _running: runtime }
    }

    fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ACCESS_KEY_ID", S3::KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET.to_owned()),
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }
}

/// The clone plugin would make them empty.
#[test]
fn tables_that_a_clone_would_lose_are_refused_mysql() {
    let vault = Vault::of(Kind::Mysql);
    vault
        .source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.old (id INT) ENGINE=MyISAM; INSERT INTO shop.old VALUES (1)");
    fails(vault.base_command(&[]), &["shop.old (MyISAM)", "--method snapshot"]);
}

/// A replica of Spate's says in its own checkpoint where it stands in its source's binlog; its own file names and GTIDs mean nothing there.
#[test]
fn a_base_of_a_replica_serves() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    (0..5).for_each(|id| order(&vault.source, id));
    // Both have the same names of files, as servers with the same settings have.
    let replica = Server::replica(Kind::Mariadb, &["--log-bin=source", "--server-id=2"]);
    let catch_up = || {
        let mut command = vault.command(&["replicate", "--start", "earliest", "--until", "caught-up", "--archive"]);
        command.arg(vault.path("archive")).arg("--replica").arg(format!("{ACCOUNT}@127.0.0.1:{}", replica.port));
        succeeds(vault.at_source(command));
    };
    catch_up();
    let mut base = vault.command(&["backup", "base", "--json", "--target", path_of(&vault.target())]);
    base.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", replica.port));
    json(base);
    (5..9).for_each(|id| order(&vault.source, id));
    catch_up();
    json(vault.ship_command(&[]));
    let (restored, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "9 9 9", "{restored}");
    assert_eq!(restored["transactions"], 4, "{restored}");
    assert!(restored["warnings"][0].as_str().unwrap().contains("checkpoint"), "{restored}");
}

/// The servers' own replication keeps the source's GTIDs, in files of the replica's own.
fn a_base_of_a_native_replica_serves(kind: Kind) {
    let vault = Vault::of(kind);
    let log = match kind.vendor() {
        Vendor::MariaDb => "--log-slave-updates",
        Vendor::MySql => "--log-replica-updates",
    };
    let replica = Server::replica(kind, &["--log-bin=source", log, "--server-id=2"]);
    if kind.vendor() == Vendor::MySql {
        replica.sql("SET sql_log_bin = 0; INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    }
    replica.follow(&vault.source);
    vault.source.sql(TABLES);
    // Its files are longer or shorter than the source's, so that offsets differ.
    replica.sql("FLUSH LOGS; FLUSH LOGS");
    (0..5).for_each(|id| order(&vault.source, id));
    replica.wait_followed(&vault.source.position());
    let mut base = vault.command(&["backup", "base", "--json", "--target", path_of(&vault.target())]);
    base.arg("--programs").arg(vault.programs()).arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", replica.port));
    replica.allow_password(&mut base, "source");
    json(base);
    (5..9).for_each(|id| order(&vault.source, id));
    vault.source.sql("FLUSH LOGS; FLUSH LOGS; FLUSH LOGS");
    (9..11).for_each(|id| order(&vault.source, id));
    vault.ship(&[]);
    let (restored, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "11 11 11", "{restored}");
    assert_eq!(restored["transactions"], 6, "{restored}");
}

#[test]
fn a_base_of_a_native_replica_serves_mariadb() {
    a_base_of_a_native_replica_serves(Kind::Mariadb);
}

#[test]
fn a_base_of_a_native_replica_serves_mysql() {
    a_base_of_a_native_replica_serves(Kind::Mysql);
}

/// Another server's base with the same numbers, of another server id: its GTIDs are not in the binlog.
#[test]
fn a_base_of_a_server_with_another_id_is_refused() {
    let (one, other) = (Vault::with(Kind::Mariadb, &["--server-id=5"]), Vault::of(Kind::Mariadb));
    for vault in [&one, &other] {
        vault.source.sql(TABLES);
    }
    (0..3).for_each(|id| order(&one.source, id));
    (10..20).for_each(|id| order(&other.source, id));
    one.base(&[]);
    other.fetch();
    let to = one.path("restored");
    let archive = other.path("archive");
    fails(one.restore_command(&["--to", path_of(&to), "--archive", path_of(&archive)]), &["the base", "0-5-"]);
    assert!(!to.exists());
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

#[test]
fn tables_that_cannot_be_copied_as_they_are_are_refused() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE h (id INT PRIMARY KEY, n INT) ENGINE=InnoDB WITH SYSTEM VERSIONING; \
         INSERT INTO h VALUES (1, 1); UPDATE h SET n = 2; \
         CREATE TABLE odd (id INT PRIMARY KEY, u UUID, i INET6, e ENUM('', 'a')) ENGINE=InnoDB; \
         SET sql_mode = ''; INSERT INTO odd VALUES (1, '123e4567-e89b-12d3-a456-426655440000', '::1', 'nonsense'), (2, NULL, NULL, '')",
    );
    vault.base(&[]);
    let server = format!("{ACCOUNT}@127.0.0.1:{}", vault.source.port);
    let only = |table: &str| {
        vault.restore_command(&["--only", table, "--server", &server, "--work", path_of(vault.directory.path())])
    };
    fails(only("shop.h"), &["shop`.`h", "system-versioned"]);
    json(only("shop.odd"));
    let rows = |table: &str| vault.source.sql(&format!("SELECT id, u, i, e + 0 FROM shop.{table} ORDER BY id"));
    assert_eq!(rows("odd_restored"), rows("odd"));
    assert!(rows("odd").contains("::1\t0"), "{}", rows("odd"));
}

/// One archive may be kept in several places; each goes on where it was.
#[test]
fn two_targets_keep_one_archive() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    let ship = |target: &str| {
        let mut command = vault.command(&["backup", "archive", "--json", "--archive"]);
        command.arg(vault.path("archive")).arg("--target").arg(vault.path(target));
        json(command)
    };
    let mut lineages = Vec::new();
    for id in 0..2 {
        order(&vault.source, id);
        vault.fetch();
        lineages.push([ship("one"), ship("two")]);
    }
    for (first, second) in lineages[0].iter().zip(&lineages[1]) {
        assert_eq!(first["lineage"], second["lineage"]);
        assert!(second["bytes"].as_u64().unwrap() < first["bytes"].as_u64().unwrap());
    }
}

/// What is damaged is named, and what is not serves.
#[test]
fn a_damaged_manifest_does_not_stand_in_the_way() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    order(&vault.source, 1);
    let second = vault.base(&[]);
    vault.ship(&[]);
    let path = vault.target().join("bases").join(second["id"].as_str().unwrap()).join("manifest.json");
    fs::write(&path, "nonsense").unwrap();
    let listed = json(vault.command(&["backup", "list", "--json", "--target", path_of(&vault.target())]));
    assert_eq!(listed["damaged"].as_array().unwrap().len(), 1, "{listed}");
    fails(
        vault.command(&["backup", "prune", "--keep", "1d", "--target", path_of(&vault.target())]),
        &["nothing is removed", "manifest.json"],
    );
    let (restored, server) = vault.restore(&[]);
    assert!(restored["warnings"][0].as_str().unwrap().contains("manifest.json"), "{restored}");
    assert_eq!(orders(&server), "1 1 1");
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

/// A binlog that was begun only after the base was made is another history, also where no GTIDs tell.
#[test]
fn a_history_that_was_begun_later_is_refused_mysql() {
    let vault = Vault::with(Kind::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]);
    vault.source.sql(TABLES);
    let base = vault.base(&[]);
    assert_eq!(base["position"]["gtid"], "", "{base}");
    order(&vault.source, 1);
    let data = vault.source.data_directory();
    let (_, server) = vault.restore(&["--archive", path_of(&data), "--base-name", "source"]);
    assert_eq!(orders(&server), "1 1 1");
    drop(server);
    std::thread::sleep(Duration::from_secs(2));
    vault.source.sql("RESET BINARY LOGS AND GTIDS");
    (2..9).for_each(|id| order(&vault.source, id));
    let to = vault.path("restored");
    fails(
        vault.restore_command(&[
            "--to",
            path_of(&to),
            "--archive",
            path_of(&vault.source.data_directory()),
            "--base-name",
            "source",
        ]),
        &["of another server", "begun only after"],
    );
}

/// Nobody waits for a server that does not come back.
#[test]
fn a_recovery_whose_server_dies_ends() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    let inserts: String =
        (0..400).map(|id| format!("CREATE TABLE shop.t{id} (i INT PRIMARY KEY) ENGINE=InnoDB;")).collect();
    vault.source.sql(&inserts);
    vault.ship(&[]);
    let to = vault.path("restored");
    let mut command = vault.restore_command(&["--to", path_of(&to)]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let data = vault.path("restored.partial/data");
    wait_until("tables come", || data.join("shop/t5.frm").exists());
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse::<u32>().ok());
    let option = format!("--datadir={}", data.display());
    for pid in pids {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).split('\0').any(|word| word == option) {
            assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        }
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("has ended"), "{ended:?}");
    assert!(!to.exists());
}

/// Two archives of one source in one target: the one that reaches further serves, whichever was begun later.
#[test]
fn of_two_archives_the_one_that_reaches_further_serves() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    order(&vault.source, 1);
    vault.fetch();
    let ship = |archive: &str| {
        let mut command =
            vault.command(&["backup", "archive", "--json", "--target", path_of(&vault.target()), "--archive"]);
        command.arg(vault.path(archive));
        json(command)
    };
    ship("archive");
    let copied = Command::new("cp").arg("-a").arg(vault.path("archive")).arg(vault.path("second")).status().unwrap();
    assert!(copied.success());
    fs::remove_file(vault.path("second/backup.id")).unwrap();
    assert!(ship("second")["broken"].as_str().is_some());
    order(&vault.source, 2);
    vault.fetch();
    ship("archive");
    let (restored, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "2 2 2", "{restored}");
}
