//! `spate replay`: what real servers have logged, executed again.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::program;
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Kind, Server, wait_until};

/// Two sessions' work: reads, writes, a statement of several lines, an error, and the server's own affairs.
const FIRST: &str = "USE shop; SELECT COUNT(*) FROM item; SELECT name FROM item WHERE id = 1; SELECT name FROM item WHERE id = 2; \
     INSERT INTO item VALUES (1000, 'new'); SELECT id,\n name FROM item\n WHERE id IN (1, 2, 3); SET @n = 2; SELECT @n + id FROM item WHERE id = 1;";
const SECOND: &str = "USE shop; SELECT 'a\\tb;c' FROM item WHERE id = 3; SELECT nothing FROM item; SET GLOBAL max_connections = 77; UPDATE item SET name = 'x' WHERE id = 1;";

pub struct Replays {
    pub server: Server,
    directory: TempDir,
}

impl Replays {
    pub fn begin(kind: Kind, options: &[&str]) -> Replays {
        let server = Server::replica(kind, options);
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(20))");
        let values: Vec<String> = (1..=500).map(|id| format!("({id}, 'item {id}')")).collect();
        server.sql(&format!("INSERT INTO shop.item VALUES {}", values.join(",")));
        Replays { server, directory: tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap() }
    }

    /// Lets the server log while both sessions work.
    fn capture(&self, settings: &str) {
        self.server.sql(settings);
        self.server.sql(FIRST);
        // Its third statement fails, and the client goes on only if it is told so.
        let mut client = self.server.client();
        client.arg("--force");
        let mut child = client.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), SECOND.as_bytes()).unwrap();
        child.wait_with_output().unwrap();
        self.stop_logging();
        self.server.sql("SET GLOBAL max_connections = 151");
        self.restore();
    }

    /// Servers answer a statement before they write it to the slow log: what has ended is logged when its session has ended, too.
    fn stop_logging(&self) {
        let others =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'";
        wait_until("the sessions to have ended", || self.server.sql(others) == "0");
        self.server.sql("SET GLOBAL general_log = OFF, slow_query_log = OFF");
    }

    fn restore(&self) {
        self.server.sql("DELETE FROM shop.item WHERE id = 1000; UPDATE shop.item SET name = 'item 1' WHERE id = 1");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.arg("replay").arg("--server").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.server.port));
        command.env("SPATE_SERVER_PASSWORD", PASSWORD).env("SPATE_CAPTURED_PASSWORD", PASSWORD).args(arguments);
        self.server.allow_password(&mut command, "server");
        if arguments.contains(&"--captured") {
            self.server.allow_password(&mut command, "captured");
        }
        command.current_dir(self.directory.path());
        command
    }

    pub fn replay(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[&["--json", "-"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn items(&self) -> String {
        self.server.sql("SELECT COUNT(*), MIN(name), @@GLOBAL.max_connections FROM shop.item")
    }
}

pub fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The statement's figures in a report.
pub fn of<'a>(report: &'a Value, text: &str) -> &'a Value {
    let digests = report["sums"]["digests"].as_array().unwrap();
    digests.iter().find(|digest| digest["text"] == text).unwrap_or_else(|| panic!("no {text:?} in {report:#}"))
}

/// What every log holds.
fn assert_reads(report: &Value) {
    let one = of(report, "select name from item where id = ?");
    assert_eq!((&one["count"], &one["rows"], &one["errors"]), (&2.into(), &2.into(), &0.into()), "{report:#}");
    let several = of(report, "select id , name from item where id in (?+)".replace(" ,", ",").as_str());
    assert_eq!((&several["count"], &several["rows"]), (&1.into(), &3.into()), "{report:#}");
    // The session's variable came with it.
    assert_eq!(of(report, "select @n + id from item where id = ?")["rows"], 1, "{report:#}");
    assert_eq!(report["skipped_writes"], 2, "{report:#}");
}

/// What general logs hold, too: what fails, and what concerns the server.
fn assert_all(report: &Value) {
    assert_reads(report);
    assert_eq!(of(report, "select nothing from item")["errors"], 1, "{report:#}");
    assert_eq!(report["sums"]["errors"]["1054"][0], 1, "{report:#}");
    assert_eq!(report["skipped_of_server"], 2, "{report:#}");
}

fn logs_are_replayed(kind: Kind) {
    let replays = Replays::begin(kind, &[]);
    let (general, slow) = (replays.path("general.log"), replays.path("slow.log"));
    let before = replays.items();
    replays.capture(&format!("SET GLOBAL general_log_file = '{}', general_log = ON", general.display()));
    let report = replays.replay(&["--pace", "fastest", path_of(&general)]);
    assert_all(&report);
    assert_eq!(replays.items(), before, "only what reads is replayed");
    replays.capture(&format!(
        "SET GLOBAL slow_query_log_file = '{}', long_query_time = 0, slow_query_log = ON",
        slow.display()
    ));
    assert_reads(&replays.replay(&["--pace", "100x", path_of(&slow)]));
    // Shared among connections, the schema comes with each statement of the slow log; of the general log, with the session's USE.
    let shared = replays.replay(&["--pace", "fastest", "--threads", "3", "--schema", "shop", path_of(&slow)]);
    assert_eq!(of(&shared, "select name from item where id = ?")["rows"], 2, "{shared:#}");
    let each = replays.replay(&["--pace", "fastest", "--threads", "3", "--each", path_of(&slow)]);
    assert_eq!(of(&each, "select name from item where id = ?")["rows"], 6, "{each:#}");
    // Writes on demand.
    replays.replay(&["--pace", "fastest", "--writes", path_of(&general)]);
    assert_ne!(replays.items(), before);
    assert!(replays.items().ends_with("\t151"), "the server's settings are its own");
}

#[test]
fn logs_of_mariadb_are_replayed() {
    logs_are_replayed(Kind::Mariadb);
}

#[test]
fn logs_of_mysql_are_replayed() {
    logs_are_replayed(Kind::Mysql);
}

fn tables_of_logs_are_replayed(kind: Kind) {
    let replays = Replays::begin(kind, &[]);
    let captured = format!("{ACCOUNT}@127.0.0.1:{}", replays.server.port);
    let replay = |table: &str, pace: &str| {
        let report = replays.replay(&["--pace", pace, "--from-table", table, "--captured", &captured]);
        replays.server.sql("TRUNCATE mysql.slow_log; TRUNCATE mysql.general_log");
        report
    };
    replays.capture("SET GLOBAL log_output = 'TABLE', general_log = ON");
    assert_all(&replay("general-log", "fastest"));
    replays.capture("SET GLOBAL log_output = 'TABLE', long_query_time = 0, slow_query_log = ON");
    assert_reads(&replay("slow-log", "fastest"));
    // MySQL's table has when a statement ended. The second of these begins while the first one runs.
    replays.server.sql("SET GLOBAL slow_query_log = ON");
    let server = &replays.server;
    std::thread::scope(|scope| {
        scope.spawn(|| server.sql("SELECT SLEEP(6) AS slow"));
        let runs = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(6)%'";
        wait_until("the slow statement to run", || server.sql(runs) == "1");
        server.sql("SELECT SLEEP(0.1) AS quick");
    });
    replays.stop_logging();
    let report = replay("slow-log", "recorded");
    let seconds = report["sums"]["seconds"].as_f64().unwrap();
    assert!(of(&report, "select sleep (?) as quick")["count"] == 1 && seconds < 9.0, "{report:#}");
}

/// The history has the statements of procedures beside their CALL, texts without their ends, and prepared statements without their values.
fn the_history_is_replayed(kind: Kind) {
    let replays = Replays::begin(kind, &["--performance-schema=ON", "--performance-schema-max-sql-text-length=200"]);
    replays.server.sql(
        "UPDATE performance_schema.setup_consumers SET ENABLED = 'YES' WHERE NAME LIKE 'events_statements%'; \
         UPDATE performance_schema.setup_instruments SET ENABLED = 'YES', TIMED = 'YES' WHERE NAME LIKE 'statement/%'",
    );
    let captured = format!("{ACCOUNT}@127.0.0.1:{}", replays.server.port);
    replays.server.sql("CREATE PROCEDURE shop.p() REPLACE INTO shop.item VALUES (7, 'item 7')");
    replays.server.sql("TRUNCATE performance_schema.events_statements_history_long");
    replays.server.sql(FIRST);
    let condition = vec!["id <> 0"; 40].join(" AND ");
    replays.server.sql(&format!(
        "USE shop; CALL p(); DELETE FROM item WHERE {condition} AND id = 400; SELECT COUNT(*) AS cut FROM item WHERE {condition}; \
         PREPARE s FROM 'SELECT name AS prepared FROM item WHERE id = ?'; SET @n = 1; EXECUTE s USING @n"
    ));
    replays.restore();
    let before = replays.items();
    let report = replays.replay(&["--pace", "fastest", "--writes", "--from-table", "history", "--captured", &captured]);
    assert_eq!(of(&report, "select name from item where id = ?")["count"], 2, "{report:#}");
    assert_eq!(of(&report, "call p ()")["count"], 1, "{report:#}");
    let digests = report["sums"]["digests"].as_array().unwrap();
    let is_there = |part: &str| digests.iter().any(|digest| digest["text"].as_str().unwrap().contains(part));
    assert!(!is_there("replace into") && !is_there("prepared") && !is_there("as cut"), "{report:#}");
    assert!(report["skipped_unclear"].as_u64().unwrap() >= 2, "{report:#}");
    replays.restore();
    assert_eq!(replays.items(), before, "nothing was deleted by a statement without its end");
}

#[test]
fn tables_of_logs_are_replayed_mariadb() {
    tables_of_logs_are_replayed(Kind::Mariadb);
}

#[test]
fn tables_of_logs_are_replayed_mysql() {
    tables_of_logs_are_replayed(Kind::Mysql);
}

#[test]
fn the_history_is_replayed_mariadb() {
    the_history_is_replayed(Kind::Mariadb);
}

#[test]
fn the_history_is_replayed_mysql() {
    the_history_is_replayed(Kind::Mysql);
}

/// Connections that share statements execute none that needs its own session, if they write.
#[test]
fn shared_writes_are_those_that_need_no_session() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let csv = replays.path("timed.csv");
    let mut text = "time,session,statement\n".to_owned();
    for (session, statement) in [
        (1, "CREATE TEMPORARY TABLE shop.mine SELECT * FROM shop.item"),
        (1, "DELETE FROM shop.mine"),
        (1, "BEGIN"),
        (2, "UPDATE shop.item SET name = 'two' WHERE id = 2"),
        (1, "UPDATE shop.item SET name = @name WHERE id = 3"),
        (1, "ROLLBACK"),
        (1, "INSERT INTO shop.item VALUES (LAST_INSERT_ID() + 2000, 'x')"),
    ] {
        let _always_fits = writeln!(text, "0,{session},\"{statement}\"");
    }
    fs::write(&csv, text).unwrap();
    replays.server.sql("CREATE TABLE shop.mine AS SELECT * FROM shop.item");
    for arguments in [&["--threads", "2"][..], &["--threads", "2", "--each"]] {
        let report = replays.replay(&[&["--pace", "fastest", "--writes", path_of(&csv)], arguments].concat());
        let each = if arguments.len() > 2 { 2 } else { 1 };
        assert_eq!(report["skipped_of_session"], 6 * each, "{report:#}");
        assert_eq!(report["sums"]["statements"], each, "{report:#}");
    }
    assert_eq!(replays.server.sql("SELECT COUNT(*) FROM shop.mine"), "500");
    assert_eq!(
        replays.server.sql("SELECT GROUP_CONCAT(name) FROM shop.item WHERE id < 4 OR id > 500"),
        "item 1,two,item 3"
    );
}

/// A function that writes cannot, in a session that reads only.
#[test]
fn sessions_that_read_only_write_nothing() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    replays
        .server
        .sql("DELIMITER //\nCREATE FUNCTION shop.f() RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM shop.item; RETURN 1; END//\n");
    let csv = replays.path("timed.csv");
    fs::write(&csv, "time,statement\n0,SELECT shop.f()\n0,SET SESSION TRANSACTION READ WRITE\n0,SELECT shop.f()\n")
        .unwrap();
    let before = replays.items();
    let report = replays.replay(&[path_of(&csv)]);
    assert_eq!(report["sums"]["errors"]["1792"][0], 2, "{report:#}");
    assert_eq!(replays.items(), before);
}

/// Two replays are equal, whatever the order of their answers; until the data is another, or the statement is slower.
#[test]
fn replays_are_compared() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let mut text = "time,session,statement\n".to_owned();
    for number in 0..200 {
        let _always_fits = writeln!(text, "0,{},SELECT name FROM shop.item WHERE id = {}", number % 7, 1 + number % 5);
    }
    text += "0,1,SELECT name FROM shop.item\n0,1,SELECT SLEEP(@@max_statement_time)\n";
    let csv = replays.path("timed.csv");
    fs::write(&csv, text).unwrap();
    let (first, second) = (replays.path("a.json"), replays.path("b.json"));
    let run = |json: &Path, threads: &str| {
        let page = replays.path("page.html");
        let lines = replays.path("lines.csv");
        let arguments = ["--pace", "fastest", "--threads", threads, "--json", path_of(json), "--html", path_of(&page)];
        let output =
            replays.command(&[&arguments[..], &["--csv", path_of(&lines), path_of(&csv)]].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(lines).unwrap().lines().count(), 203);
        assert!(fs::read_to_string(page).unwrap().contains("<figure class=\"graph\">"));
    };
    let compare = || -> (Output, Value) {
        let output =
            program().args(["replay", "compare", "--json", path_of(&first), path_of(&second)]).output().unwrap();
        let comparison = serde_json::from_slice(&output.stdout).unwrap();
        (output, comparison)
    };
    let verdict = |comparison: &Value, text: &str| {
        let digests = comparison["digests"].as_array().unwrap();
        digests.iter().find(|digest| digest["text"] == text).unwrap()["verdict"].clone()
    };
    run(&first, "1");
    run(&second, "5");
    let (_, comparison) = compare();
    assert_ne!(verdict(&comparison, "select name from shop.item where id = ?"), "different-result");
    assert_ne!(verdict(&comparison, "select name from shop.item"), "different-result");
    replays.server.sql("UPDATE shop.item SET name = 'other' WHERE id = 3");
    run(&second, "5");
    let (output, comparison) = compare();
    assert!(!output.status.success());
    assert_eq!(verdict(&comparison, "select name from shop.item where id = ?"), "different-result");
    assert_eq!(verdict(&comparison, "select name from shop.item"), "different-result");
}

/// Statements come when they are due, and several inputs at once.
#[test]
fn the_recorded_pace_is_kept() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let timed = |name: &str, count: u32, step: f64| {
        let mut text = "time,session,statement\n".to_owned();
        for number in 0..count {
            let _always_fits = writeln!(text, "{:.3},{},SELECT {number}", f64::from(number) * step, number % 10);
        }
        let path = replays.path(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (many, few) = (timed("many.csv", 200, 0.01), timed("few.csv", 5, 0.2));
    let few = format!("{},threads=2,name=few", few.display());
    let report = replays.replay(&["--pace", "2x", path_of(&many), &few]);
    let seconds = report["sums"]["seconds"].as_f64().unwrap();
    assert!(seconds >= 1.99 / 2.0, "{report:#}");
    assert_eq!(report["sums"]["statements"], 205, "{report:#}");
    assert_eq!(report["sums"]["inputs"][1]["name"], "few", "{report:#}");
    assert_eq!(report["sums"]["inputs"][1]["statements"], 5, "{report:#}");
}

/// Temporary tables that go to the disk are counted, and whether they go to the disk of the data is said.
#[test]
fn where_temporary_tables_go_shows() {
    let apart = tempfile::Builder::new().prefix("spate-test-").tempdir_in("/dev/shm").unwrap();
    let apart = format!("--tmpdir={}", apart.path().display());
    for (options, is_shared) in [(&[][..], true), (&[apart.as_str()], false)] {
        let replays = Replays::begin(Kind::Mariadb, options);
        let csv = replays.path("timed.csv");
        let large = "SELECT COUNT(*) FROM (SELECT name, COUNT(*) FROM shop.item GROUP BY REPEAT(name, 50)) AS t";
        fs::write(&csv, format!("time,session,statement\n0,1,SET SESSION tmp_table_size = 1024\n0,1,\"{large}\"\n"))
            .unwrap();
        let report = replays.replay(&[path_of(&csv)]);
        assert!(report["server"]["counters"]["Created_tmp_disk_tables"].as_u64().unwrap() > 0, "{report:#}");
        assert_eq!(report["server"]["shares_disk"], is_shared, "{report:#}");
    }
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let refused = |name: &str, text: &str, arguments: &[&str]| {
        let path = replays.path(name);
        fs::write(&path, text).unwrap();
        let output = replays.command(&[arguments, &[path_of(&path)]].concat()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = refused("a.log", "Dear diary,\ntoday\n", &[]);
    assert!(unknown.contains("a.log: it is neither a general log"), "{unknown}");
    let cut = refused("b.log", "261126 11:26:53\t  5 Query\tSELECT 1\n", &["--format", "slow-log"]);
    assert!(cut.contains("b.log, line 1: this line belongs to no statement"), "{cut}");
    let entry = "261126 11:26:53\t  5 Query\t";
    let cut =
        refused("b.log", &format!("{entry}SELECT 1\n{entry}DELETE FROM shop.item\nWHERE id = 1 AND"), &["--writes"]);
    assert!(cut.contains("b.log, line 3: the log ends within this line"), "{cut}");
    assert_eq!(replays.server.sql("SELECT COUNT(*) FROM shop.item"), "500");
    let report = {
        fs::write(replays.path("b.log"), format!("{entry}SELECT 1\n{entry}DELETE FROM shop.item\n")).unwrap();
        replays.replay(&["--writes", path_of(&replays.path("b.log"))])
    };
    assert_eq!((&report["skipped_unclear"], &report["sums"]["statements"]), (&1.into(), &1.into()), "{report:#}");
    assert_eq!(replays.server.sql("SELECT COUNT(*) FROM shop.item"), "500");
    let time = refused("c.csv", "time,statement\nsoon,SELECT 1\n", &[]);
    assert!(time.contains("c.csv, line 2: \"soon\" is no time"), "{time}");
    let many: String =
        (0..20).fold("time,session,statement\n".to_owned(), |text, session| text + &format!("0,{session},SELECT 1\n"));
    let sessions = refused("d.csv", &many, &["--sessions-max", "10"]);
    assert!(sessions.contains("more than 10 recorded sessions"), "{sessions}");
    let writes = replays.command(&["e.csv,frobnicate"]).output().unwrap();
    assert!(String::from_utf8_lossy(&writes.stderr).contains("is none of threads=N"));
}

/// What an archive has the text of: statements, and what is noted beside row changes.
fn binlogs_are_replayed(kind: Kind, note: &str) {
    let source = Server::source(kind, &[note]);
    source.sql("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(20)); USE shop; \
         INSERT INTO item VALUES (1, 'one'), (2, 'two'); \
         BEGIN; UPDATE item SET name = 'uno' WHERE id = 1; DELETE FROM item WHERE id = 2; COMMIT; \
         SET binlog_format = STATEMENT; INSERT INTO item VALUES (3, 'three'); ALTER TABLE item ADD COLUMN n INT DEFAULT 7");
    let replays = Replays { server: Server::replica(kind, &[]), directory: tempfile::tempdir().unwrap() };
    let archive = replays.path("archive");
    let mut fetch = program();
    fetch.args(["archive", "fetch", "--start", "earliest", "--until", "caught-up", "--archive"]).arg(&archive);
    fetch.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", source.port));
    source.allow_password(&mut fetch, "source");
    assert!(fetch.output().unwrap().status.success());
    let archive = archive.to_str().unwrap();
    let output = replays.command(&["--pace", "fastest", "--threads", "1", archive]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(replays.server.try_sql("SELECT * FROM shop.item").is_err(), "nothing is written unless it is said");
    let output = replays.command(&["--pace", "fastest", "--threads", "1", "--writes", archive]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        replays.server.sql("SELECT * FROM shop.item ORDER BY id"),
        source.sql("SELECT * FROM shop.item ORDER BY id")
    );
}

#[test]
fn binlogs_are_replayed_mariadb() {
    binlogs_are_replayed(Kind::Mariadb, "--binlog-annotate-row-events=ON");
}

#[test]
fn binlogs_are_replayed_mysql() {
    binlogs_are_replayed(Kind::Mysql, "--binlog-rows-query-log-events=ON");
}
