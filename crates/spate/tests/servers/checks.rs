//! `spate check`: each check on servers where all is well and on servers where something is not, and what `replicate` makes of
//! the same.

use serde_json::Value;

use crate::clocks::other_time_library;
use crate::support::program::program;
use crate::support::server::PASSWORD;
use crate::support::{Ended, Kind, Site, wait_until};

/// What a good source and a good replica have.
const GOOD_SOURCE: &[&str] = &["--gtid-strict-mode=ON", "--binlog-expire-logs-seconds=864000"];
const GOOD_REPLICA: &[&str] = &["--read-only=ON"];
const GOOD_MYSQL_SOURCE: &[&str] = &["--binlog-expire-logs-seconds=864000"];

/// What was found, and how the program ended.
struct Found {
    report: Value,
    succeeded: bool,
}

impl Found {
    fn of(site: &Site, options: &[&str]) -> Found {
        let ended = site.run(site.command("check", &[options, &["--json"]].concat()));
        let report = serde_json::from_str(&ended.output).unwrap_or_else(|error| panic!("{error}: {}", ended.output));
        Found { report, succeeded: ended.status.success() }
    }

    fn all(&self) -> impl Iterator<Item = &Value> {
        self.report["findings"].as_array().unwrap().iter()
    }

    /// The findings of one check in one place; there is one at least.
    fn of_check(&self, check: &str, place: &str) -> Vec<&Value> {
        let found: Vec<&Value> =
            self.all().filter(|finding| finding["check"] == check && finding["place"] == place).collect();
        assert!(!found.is_empty(), "no finding of {check} ({place}): {:#}", self.report);
        found
    }

    /// One of the check's findings is of this level, and it and its advice say all of this.
    #[track_caller]
    fn assert(&self, check: &str, place: &str, level: &str, says: &[&str]) {
        let found = self.of_check(check, place);
        let is_it = |finding: &&&Value| {
            let text = finding.to_string();
            finding["level"] == level && says.iter().all(|part| text.contains(part))
        };
        assert!(found.iter().find(is_it).is_some(), "{check} ({place}) is not {level} with {says:?}: {found:#?}");
        assert_eq!(self.succeeded, !self.all().any(|finding| finding["level"] == "error"), "{:#}", self.report);
    }

    #[track_caller]
    fn assert_nothing_but_ok(&self) {
        let bad: Vec<&Value> = self.all().filter(|finding| finding["level"] != "ok").collect();
        assert!(bad.is_empty() && self.succeeded, "{bad:#?}");
    }
}

const TABLES: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, u INT NOT NULL UNIQUE); \
    CREATE TABLE d.u (a INT NOT NULL, b INT NOT NULL, UNIQUE (a, b));";

#[test]
fn check_of_a_good_pair_finds_nothing() {
    for (kind, source, replica) in [
        (Kind::Mariadb, GOOD_SOURCE, GOOD_REPLICA),
        (Kind::Mariadb118, GOOD_SOURCE, GOOD_REPLICA),
        (Kind::Mysql, GOOD_MYSQL_SOURCE, GOOD_REPLICA),
    ] {
        let site = Site::between((kind, source), (kind, replica));
        site.both(TABLES);
        let found = Found::of(&site, &[]);
        // MySQL's event scheduler is on by default, with nothing to do.
        found.assert_nothing_but_ok();
        for (check, place) in [
            ("version", "source"),
            ("version", "replica"),
            ("connection", "source"),
            ("login", "source"),
            ("login", "replica"),
            ("binlog", "source"),
            ("binlog format", "source"),
            ("row image", "source"),
            ("checksum", "source"),
            ("gtid mode", "source"),
            ("read_only", "replica"),
            ("versions", "both"),
            ("server ids", "both"),
            ("max_allowed_packet", "both"),
            ("lower_case_table_names", "both"),
            ("settings", "replica"),
            ("privileges", "source"),
            ("privileges", "replica"),
            ("binlog filters", "source"),
            ("own replication", "replica"),
            ("events", "replica"),
            ("retention", "source"),
            ("clocks", "both"),
            ("time zones", "both"),
            ("collations", "both"),
            ("keys", "replica"),
            ("engines", "replica"),
            ("cascades", "replica"),
        ] {
            found.assert(check, place, "ok", &[]);
        }
    }
}

#[test]
fn check_reports_bad_settings() {
    let site = Site::new(
        &[
            "--binlog-format=MIXED",
            "--binlog-row-image=MINIMAL",
            "--binlog-checksum=NONE",
            "--binlog-do-db=d",
            "--binlog-expire-logs-seconds=3600",
            "--max-allowed-packet=128M",
            "--group-concat-max-len=2000",
            "--lower-case-table-names=1",
        ],
        &["--event-scheduler=ON", "--local-infile=OFF", "--innodb-strict-mode=OFF"],
    );
    site.replica.sql("CREATE DATABASE d; CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    let found = Found::of(&site, &[]);
    found.assert("binlog format", "source", "warning", &["MIXED", "binlog_format=ROW"]);
    found.assert("row image", "source", "warning", &["MINIMAL", "binlog_row_image=FULL"]);
    found.assert("checksum", "source", "warning", &["binlog_checksum=CRC32"]);
    found.assert("gtid mode", "source", "warning", &["gtid_strict_mode=ON"]);
    found.assert("binlog filters", "source", "warning", &["binlog_do_db=d"]);
    found.assert("retention", "source", "warning", &["60 minutes", "binlog_expire_logs_seconds"]);
    found.assert("max_allowed_packet", "both", "warning", &["134217728 on the source, 67108864 on the replica"]);
    found.assert("lower_case_table_names", "both", "warning", &["1 on the source, 0 on the replica"]);
    let of_statements =
        ["group_concat_max_len is 2000", "local_infile=OFF", "innodb_strict_mode is ON on the source and OFF"];
    found.assert("settings", "replica", "warning", &of_statements);
    found.assert("events", "replica", "warning", &["d.e", "event_scheduler=OFF"]);
    found.assert("read_only", "replica", "warning", &["read_only=ON", "READ_ONLY ADMIN ON *.* TO 'spate'@'127.0.0.1'"]);
    assert!(found.succeeded, "warnings are no errors");
}

#[test]
fn check_reports_bad_settings_of_mysql() {
    let site = Site::between(
        (Kind::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--lower-case-table-names=0"]),
        (Kind::Mysql, &["--super-read-only=OFF", "--sql-require-primary-key=ON"]),
    );
    site.replica.sql("CREATE DATABASE d; CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    let found = Found::of(&site, &[]);
    found.assert("gtid mode", "source", "warning", &["gtid_mode is OFF", "ON_PERMISSIVE"]);
    found.assert("settings", "replica", "warning", &["sql_require_primary_key"]);
    found.assert("events", "replica", "warning", &["d.e"]);
    found.assert("read_only", "replica", "warning", &["CONNECTION_ADMIN ON *.* TO 'spate'@'127.0.0.1'"]);
    site.replica.sql("SET GLOBAL super_read_only=ON");
    Found::of(&site, &[]).assert("read_only", "replica", "error", &["super_read_only=OFF"]);
}

#[test]
fn check_refuses_servers_that_do_not_fit() {
    let site = Site::new(&["--lower-case-table-names=0"], &["--lower-case-table-names=1", "--server-id=1"]);
    let found = Found::of(&site, &[]);
    found.assert("lower_case_table_names", "both", "error", &["0 on the source, 1 on the replica"]);
    found.assert("server ids", "both", "error", &["both have server_id 1"]);
    let ended = site.run(site.replicate(&["--start", "earliest"]));
    ended.assert_failed_saying(&["lower_case_table_names", "both have server_id 1", "spate check"]);
    let site = Site::new(&["--skip-log-bin"], &[]);
    Found::of(&site, &[]).assert("binlog", "source", "error", &["log_bin"]);
    site.run(site.replicate(&["--start", "earliest"])).assert_failed_saying(&["writes no binlog", "log_bin"]);
}

#[test]
fn check_reports_a_server_id_in_use() {
    let site = Site::plain();
    for own in ["1", "2"] {
        Found::of(&site, &["--server-id", own]).assert("server ids", "both", "error", &["--server-id"]);
        let ended = site.run(site.replicate(&["--start", "earliest", "--server-id", own]));
        ended.assert_failed_saying(&["Spate would have the id of a server", "--server-id"]);
    }
    Found::of(&site, &["--server-id", "3"]).assert("server ids", "both", "ok", &["Spate 3"]);
}

#[test]
fn check_reports_costly_tables() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.both(TABLES);
        site.both(
            "USE d; CREATE TABLE heap (a INT); CREATE TABLE nullable (a INT UNIQUE); CREATE TABLE old (a INT PRIMARY KEY) ENGINE=MyISAM; \
             CREATE TABLE parent (a INT PRIMARY KEY); \
             CREATE TABLE child (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES parent (a) ON DELETE CASCADE); \
             CREATE TABLE restricted (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES parent (a)); CREATE VIEW v AS SELECT 1 FROM heap",
        );
        let found = Found::of(&site, &[]);
        found.assert("keys", "replica", "warning", &["2 of 8 tables", "d.heap, d.nullable"]);
        found.assert("engines", "replica", "warning", &["1 tables", "d.old (MyISAM)"]);
        found.assert("cascades", "replica", "warning", &["of 1 tables: d.child"]);
    }
}

#[test]
fn check_reports_engines_and_plugins_that_the_replica_lacks() {
    // A system may have no more than the server's program, without plugins.
    let site = Site::between((Kind::Mariadb118, &["--plugin-load-add=ha_blackhole.so"]), (Kind::Mariadb118, &[]));
    let found = Found::of(&site, &[]);
    found.assert("plugins", "both", "warning", &["the replica lacks BLACKHOLE (storage engine)"]);
    found.assert("engines", "both", "ok", &[]);
    site.source
        .sql("CREATE DATABASE d; CREATE TABLE d.hole (a INT) ENGINE=BLACKHOLE; CREATE TABLE d.t (a INT PRIMARY KEY)");
    Found::of(&site, &[]).assert("engines", "both", "error", &["of 1 tables: d.hole (BLACKHOLE)"]);
    site.replica.sql("INSTALL SONAME 'ha_blackhole'");
    let found = Found::of(&site, &[]);
    found.assert("plugins", "both", "ok", &[]);
    found.assert("engines", "both", "ok", &[]);
}

/// What information_schema.REFERENTIAL_CONSTRAINTS of MariaDB 10.11.19 crashes the server over.
const MOVED: &str = "CREATE DATABASE d1; CREATE DATABASE `odd ``name`; CREATE DATABASE `über x`; \
    CREATE TABLE d1.log (id SMALLINT PRIMARY KEY, n INT); \
    CREATE TABLE `odd ``name`.`a b` (id INT AUTO_INCREMENT PRIMARY KEY, n INT, f SMALLINT, \
      FOREIGN KEY (f) REFERENCES d1.log (id) ON UPDATE CASCADE ON DELETE RESTRICT); \
    CREATE TABLE `über x`.`a b` (k VARCHAR(250) PRIMARY KEY, n INT, i0 INT, f INT, \
      FOREIGN KEY (f) REFERENCES `odd ``name`.`a b` (id) ON DELETE NO ACTION); \
    ALTER TABLE `über x`.`a b` CHANGE COLUMN i0 i0 INT, ALGORITHM=COPY; ALTER TABLE `über x`.`a b` RENAME TO `odd ``name`.t5;";

/// Foreign keys, by names that file names have in another form, and that are longer there than InnoDB's dictionary shows.
fn odd_foreign_keys() -> (String, Vec<String>) {
    let long = "長".repeat(45);
    let tables = [
        ("odd `na.me/@0020", "c't", "ON DELETE CASCADE", true),
        ("odd `na.me/@0020", "REFERENCES", "ON DELETE SET NULL", true),
        ("odd `na.me/@0020", "Жß-æ", "ON UPDATE CASCADE", true),
        ("über x", "a ) b", "ON UPDATE SET NULL", true),
        ("über x", "con", "ON DELETE NO ACTION ON UPDATE RESTRICT", false),
        ("über x", "d", "", false),
        (&long, &long, "ON DELETE CASCADE", true),
    ];
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    let mut sql = "CREATE DATABASE p; CREATE TABLE p.`p ü` (id INT PRIMARY KEY);".to_owned();
    let mut with_actions = Vec::new();
    for (schema, table, actions, has_action) in tables {
        sql += &format!(
            "CREATE DATABASE IF NOT EXISTS {0}; CREATE TABLE {0}.{1} (id INT PRIMARY KEY, f INT COMMENT 'it''s ON DELETE CASCADE', \
             CONSTRAINT {2} FOREIGN KEY (f) REFERENCES p.`p ü` (id) {actions});",
            quoted(schema),
            quoted(table),
            quoted(&format!("{table}/x").chars().take(60).collect::<String>())
        );
        if has_action {
            with_actions.push(format!("{schema}.{table}"));
        }
    }
    with_actions.sort_unstable();
    (sql, with_actions)
}

/// The check names just these tables.
#[track_caller]
fn assert_cascades(site: &Site, expected: &[String]) {
    let found = Found::of(site, &[]);
    let message = found.of_check("cascades", "replica")[0]["message"].as_str().unwrap().to_owned();
    let says = format!("of {} tables: {}", expected.len(), expected.join(", "));
    assert!(message.ends_with(&says), "{message}\n{says}");
}

#[test]
fn check_sees_foreign_keys_of_any_name_for_any_account() {
    for kind in [Kind::Mariadb, Kind::Mariadb118, Kind::Mysql] {
        let site = Site::of(kind);
        let (sql, mut expected) = odd_foreign_keys();
        site.replica.sql(&sql);
        // One name is too long for InnoDB's dictionary.
        assert_cascades(&site, &expected);
        site.replica.sql("REVOKE PROCESS ON *.* FROM spate@'127.0.0.1'");
        assert_cascades(&site, &expected);
        let long = "長".repeat(45);
        site.replica.sql(&format!("DROP DATABASE `{long}`; GRANT PROCESS ON *.* TO spate@'127.0.0.1'"));
        expected.retain(|name| !name.starts_with(&long));
        assert_cascades(&site, &expected);
    }
}

#[test]
fn check_of_moved_foreign_key_table_does_not_crash_the_server() {
    for account in ["GRANT PROCESS ON *.* TO", "REVOKE PROCESS ON *.* FROM"] {
        let site = Site::plain();
        site.replica.sql(&format!("{account} spate@'127.0.0.1'"));
        site.replica.sql(MOVED);
        assert_cascades(&site, &["odd `name.a b".to_owned()]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM `odd ``name`.t5"), "0");
    }
}

#[test]
fn check_reports_unknown_collations() {
    let site = Site::between((Kind::Mysql, &[]), (Kind::Mariadb, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (a VARCHAR(9) COLLATE utf8mb4_0900_as_cs PRIMARY KEY)");
    let found = Found::of(&site, &[]);
    found.assert("collations", "both", "warning", &["utf8mb4_0900_as_cs"]);
    found.assert("versions", "both", "warning", &["from MySQL ", "to MariaDB 10.11"]);
    // And one that only has another name in the catalogue.
    let site = Site::between((Kind::Mariadb118, &[]), (Kind::Mariadb, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (a VARCHAR(9) COLLATE utf8mb4_uca1400_ai_ci PRIMARY KEY)");
    let found = Found::of(&site, &[]);
    found.assert("collations", "both", "ok", &[]);
    found.assert("versions", "both", "warning", &["the replica is older"]);
}

#[test]
fn check_reports_differing_time_zones() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        let zone = |offset: u32| {
            format!(
                "SET sql_log_bin=0; USE mysql; REPLACE INTO time_zone (Time_zone_id) VALUES (9001); \
                 REPLACE INTO time_zone_name VALUES ('Nowhere/At_all', 9001); \
                 REPLACE INTO time_zone_transition_type VALUES (9001, 0, {offset}, 0, 'X'); \
                 REPLACE INTO time_zone_transition VALUES (9001, 0, 0)"
            )
        };
        site.source.sql(&zone(3600));
        Found::of(&site, &[]).assert("time zones", "both", "warning", &["loaded on the source, not on the replica"]);
        site.replica.sql(&zone(7200));
        Found::of(&site, &[]).assert("time zones", "both", "warning", &["they differ"]);
        site.replica.sql(&zone(3600));
        Found::of(&site, &[]).assert("time zones", "both", "ok", &["the same 1 named"]);
    }
}

#[test]
fn check_reports_native_replication_on_the_replica() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.both(TABLES);
        let (change, stop) = match kind {
            Kind::Mysql => ("CHANGE REPLICATION SOURCE TO SOURCE_SSL=1, SOURCE_AUTO_POSITION=1, SOURCE_", "REPLICA"),
            _ => ("CHANGE MASTER TO MASTER_USE_GTID=slave_pos, MASTER_", "SLAVE"),
        };
        let prefix = if kind == Kind::Mysql { "SOURCE_" } else { "MASTER_" };
        let to = |port: u16| {
            format!(
                "{change}HOST='127.0.0.1', {prefix}PORT={port}, {prefix}USER='spate', {prefix}PASSWORD='{PASSWORD}'; START {stop}"
            )
        };
        // Of a server that is not there: it may be any other's.
        site.replica.sql(&to(1));
        Found::of(&site, &[]).assert("own replication", "replica", "warning", &["STOP", "another source"]);
        site.replica.sql(&format!("STOP {stop}; {}", to(site.source.port)));
        wait_until("the replica's own replication to know its source", || {
            Found::of(&site, &[]).of_check("own replication", "replica")[0]["level"] != "warning"
        });
        Found::of(&site, &[]).assert("own replication", "replica", "error", &["from the same source", "STOP"]);
        site.run(site.replicate(&["--start", "earliest"])).assert_failed_saying(&["own replication", "STOP"]);
        site.replica.sql(&format!("STOP {stop}"));
        Found::of(&site, &[]).assert("own replication", "replica", "ok", &[]);
        if kind == Kind::Mariadb {
            Found::of(&site, &[]).assert("replication filters", "replica", "ok", &[]);
            site.replica
                .sql("SET GLOBAL replicate_ignore_table='d.log', replicate_events_marked_for_skip=FILTER_ON_SLAVE");
            let names = ["replicate_ignore_table=d.log", "replicate_events_marked_for_skip=FILTER_ON_SLAVE"];
            Found::of(&site, &[]).assert("replication filters", "replica", "warning", &names);
        }
    }
}

/// The server would put replayed rows into another schema than everything else.
#[test]
fn check_reports_rewritten_schemas() {
    let site = Site::new(&[], &["--replicate-rewrite-db=d->e"]);
    site.source.sql(TABLES);
    Found::of(&site, &[]).assert("replication filters", "replica", "error", &["replicate_rewrite_db=", "restart"]);
    site.run(site.replicate(&["--start", "earliest"])).assert_failed_saying(&["replicate_rewrite_db"]);
}

#[test]
fn check_reports_missing_privileges_and_counts_roles() {
    for (kind, replay, client, read_only) in [
        (Kind::Mariadb, "BINLOG REPLAY", "BINLOG MONITOR", "READ_ONLY ADMIN"),
        (Kind::Mysql, "REPLICATION_APPLIER", "REPLICATION CLIENT", "CONNECTION_ADMIN"),
    ] {
        let site = Site::between((kind, &[]), (kind, GOOD_REPLICA));
        for server in [&site.source, &site.replica] {
            server.sql(&format!(
                "SET sql_log_bin=0; CREATE USER l@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; CREATE ROLE r"
            ));
        }
        let check = || {
            let mut command = program();
            command.arg("check").arg("--source").arg(format!("l@127.0.0.1:{}", site.source.port));
            command.arg("--replica").arg(format!("l@127.0.0.1:{}", site.replica.port));
            site.source.allow_password(&mut command, "source");
            site.replica.allow_password(&mut command, "replica");
            let ended = site.run({
                command.args(["--json", "--on-conflict", "repair", "--no-replica-binlog"]);
                command
            });
            Found { report: serde_json::from_str(&ended.output).unwrap(), succeeded: ended.status.success() }
        };
        let found = check();
        let account = "TO 'l'@'127.0.0.1'";
        found.assert("privileges", "source", "error", &["GRANT REPLICATION SLAVE ON *.*", account]);
        found.assert("privileges", "source", "warning", &[&format!("GRANT {client} ON *.* {account}")]);
        for needed in [replay, read_only, "SELECT, INSERT, UPDATE, DELETE"] {
            found.assert("privileges", "replica", "error", &[&format!("GRANT {needed} ON *.* {account}")]);
        }
        found.assert("privileges", "replica", "error", &[&format!("GRANT ALL PRIVILEGES ON spate.* {account}")]);
        found.assert("privileges", "replica", "warning", &[&format!("GRANT TRIGGER ON *.* {account}")]);
        if kind == Kind::Mariadb {
            found.assert("privileges", "replica", "error", &[&format!("GRANT BINLOG ADMIN ON *.* {account}")]);
        }
        found.assert("privileges", "replica", "warning", &["CREATE ROUTINE", "WITH GRANT OPTION"]);
        found.assert("binlog filters", "source", "skipped", &["GRANT"]);
        // A role counts if it is active when Spate logs in, and not before.
        for server in [&site.source, &site.replica] {
            server.sql("SET sql_log_bin=0; GRANT ALL PRIVILEGES ON *.* TO r; GRANT r TO l@'127.0.0.1'");
        }
        check().assert("privileges", "source", "error", &["REPLICATION SLAVE"]);
        let default = match kind {
            Kind::Mysql => "SET DEFAULT ROLE r TO l@'127.0.0.1'",
            _ => "SET DEFAULT ROLE r FOR l@'127.0.0.1'",
        };
        for server in [&site.source, &site.replica] {
            server.sql(&format!("SET sql_log_bin=0; {default}"));
        }
        let found = check();
        found.assert("privileges", "source", "ok", &[]);
        found.assert("privileges", "replica", "ok", &[]);
    }
}

#[test]
fn check_reports_purged_binlog_files() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.both(TABLES);
        site.source.sql("INSERT INTO d.t VALUES (1, 1)");
        site.catch_up(&["--start", "earliest"]);
        Found::of(&site, &[]).assert("retention", "source", "ok", &["all of them are here"]);
        site.source.sql("INSERT INTO d.t VALUES (2, 2); FLUSH BINARY LOGS; INSERT INTO d.t VALUES (3, 3)");
        Found::of(&site, &[]).assert("retention", "source", "ok", &["last change was made"]);
        site.source.sql("PURGE BINARY LOGS TO 'source.000002'");
        let archive = site.archive();
        let found = Found::of(&site, &["--archive", archive.to_str().unwrap()]);
        found.assert("retention", "source", "error", &["no longer has", "source.000002", "newer backup"]);
    }
}

#[test]
fn check_reports_a_replica_far_behind() {
    let site = Site::new(&["--binlog-expire-logs-seconds=86400"], &[]);
    site.both(TABLES);
    site.source.sql("INSERT INTO d.t VALUES (1, 1)");
    site.catch_up(&["--start", "earliest"]);
    site.source.sql("INSERT INTO d.t VALUES (2, 2)");
    site.replica.sql("UPDATE spate.checkpoint SET source_seconds = UNIX_TIMESTAMP() - 60000");
    Found::of(&site, &[]).assert("retention", "source", "warning", &["16 hours ago", "files may go"]);
}

#[test]
fn check_reports_unreachable_servers() {
    let site = Site::plain();
    site.replica.sql("SET sql_log_bin=0; ALTER USER spate@'127.0.0.1' IDENTIFIED BY 'another'");
    let mut command = site.command("check", &["--json"]);
    command.args(["--source-tls-mode", "required"]);
    let ended = site.run(command);
    let found = Found { report: serde_json::from_str(&ended.output).unwrap(), succeeded: ended.status.success() };
    found.assert("connection", "source", "error", &["offers no TLS"]);
    found.assert("connection", "replica", "error", &["Access denied"]);
}

#[test]
fn check_reports_differing_clocks() {
    let Some(library) = other_time_library() else { panic!("`./x setup` installs the package faketime") };
    let mut site = Site::plain();
    Found::of(&site, &[]).assert("clocks", "both", "ok", &["the same"]);
    site.replica.kill();
    let environment =
        [("LD_PRELOAD", library.to_str().unwrap()), ("FAKETIME", "-10"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    site.replica.environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    site.replica.begin();
    let found = Found::of(&site, &[]);
    found.assert("clocks", "both", "warning", &["s before the replica's"]);
}

fn times(ended: &Ended, part: &str) -> usize {
    ended.output.matches(part).count()
}

#[test]
fn replicate_prints_warnings_once() {
    let site = Site::new(&["--binlog-checksum=NONE"], &[]);
    site.both(TABLES);
    site.source.sql("INSERT INTO d.t VALUES (1, 1)");
    for options in [["--start", "earliest"].as_slice(), &[]] {
        let ended = site.catch_up(options);
        assert_eq!(times(&ended, "checksum (source):"), 1, "{}", ended.output);
        assert_eq!(times(&ended, "read_only (replica):"), 1, "{}", ended.output);
    }
    let ended = site.run(site.command("check", &[]));
    ended.assert_says(&["warning", "checksum", "→ SET GLOBAL binlog_checksum=CRC32", "errors", "warnings"]);
}
