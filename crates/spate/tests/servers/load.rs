//! `spate load`: files into tables, each record once, whatever is killed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
#[cfg(feature = "failpoints")]
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::{program, wait_until_it_listens, with_full_disk};
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Kind, Random, Server, wait_until};

/// Call records of fixed width: caller, begin, seconds, cell.
const LAYOUT: &str = r#"
[input]
format = "fixed"
encoding = "latin1"

[[table]]
name = "cdr.calls_{begin:%Y%m%d}"
template = "cdr.template"

[[column]]
name = "caller"
position = 1
width = 8
type = "integer"

[[column]]
name = "begin"
position = 9
width = 14
type = "datetime"
format = "%Y%m%d%H%M%S"
min = "2026-01-01"

[[column]]
name = "seconds"
position = 23
width = 6
type = "integer"
null = [""]

[[column]]
name = "cell"
position = 29
width = 10
"#;

const TEMPLATE: &str = "CREATE DATABASE cdr; CREATE TABLE cdr.template (caller INT NOT NULL, begin DATETIME NOT NULL, seconds INT, \
     cell VARCHAR(10) CHARACTER SET utf8mb4, PRIMARY KEY (caller, begin), KEY by_cell (cell), KEY by_seconds (seconds))";

/// What each table must hold: its rows by their key, as the client shows them.
type Expected = BTreeMap<String, BTreeMap<(u32, String), String>>;

pub struct Loads {
    pub server: Server,
    pub directory: TempDir,
}

impl Loads {
    pub fn begin(kind: Kind, options: &[&str]) -> Loads {
        let server = Server::replica(kind, options);
        Loads { server, directory: tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap() }
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.arg("load").arg("--server").arg(format!("{ACCOUNT}@127.0.0.1:{}", self.server.port));
        command.env("SPATE_SERVER_PASSWORD", PASSWORD).arg("--rejects").arg(self.directory.path()).args(arguments);
        self.server.allow_password(&mut command, "server");
        command.current_dir(self.directory.path());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Loads, and says what the program did.
    pub fn load(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Fails to load, and says why.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The file in the directory whose name ends so.
    pub fn only(&self, ending: &str) -> PathBuf {
        let mut found = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        found.find(|path| path.to_str().unwrap().ends_with(ending)).unwrap_or_else(|| panic!("no file …{ending}"))
    }

    /// All rows of the tables of a day, with their table.
    fn rows(&self) -> BTreeMap<String, String> {
        let tables = self.server.sql(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'cdr' AND table_name LIKE 'calls%'",
        );
        let of = |table: &str| {
            let rows = self
                .server
                .sql(&format!("SELECT caller, begin, seconds, cell FROM cdr.{table} ORDER BY caller, begin"));
            (table.to_owned(), rows)
        };
        tables.lines().map(of).collect()
    }
}

pub fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn record(caller: &str, begin: &str, seconds: &str, cell: &str) -> Vec<u8> {
    let mut record = format!("{caller:0>8}{begin:<14}{seconds:>6}{cell:<10}").into_bytes();
    record.push(b'\n');
    record
}

/// Random records, some of them damaged; what the tables must hold, and how many are to be rejected.
fn random_records(random: &mut Random, count: u32) -> (Vec<u8>, Expected, u64) {
    let mut bytes = Vec::new();
    let mut tables = Expected::new();
    let mut rejected = 0;
    for number in 0..count {
        let day = 1 + random.below(4);
        let (hour, minute, second) = (random.below(24), random.below(60), random.below(60));
        let begin = format!("202611{day:02}{hour:02}{minute:02}{second:02}");
        let cell = ["Z\u{fc}rich", "Bern", "", "a\\b"][random.below(4) as usize];
        let seconds = if random.below(10) == 0 { String::new() } else { random.below(4000).to_string() };
        match random.below(50) {
            0 => {
                bytes.extend_from_slice(&record(&number.to_string(), "20261399", &seconds, "x"));
                rejected += 1;
            }
            1 => {
                bytes.extend_from_slice(b"short\n");
                rejected += 1;
            }
            _ => {
                let latin1: Vec<u8> = format!("{number:0>8}{begin:<14}{seconds:>6}{cell:<10}\n")
                    .chars()
                    .map(|character| u8::try_from(u32::from(character)).unwrap())
                    .collect();
                bytes.extend_from_slice(&latin1);
                let time = format!("2026-11-{day:02} {hour:02}:{minute:02}:{second:02}");
                let seconds = if seconds.is_empty() { "NULL" } else { &seconds };
                let shown = cell.replace('\\', "\\\\");
                let row = format!("{number}\t{time}\t{seconds}\t{shown}");
                tables.entry(format!("calls_202611{day:02}")).or_default().insert((number, time), row);
            }
        }
    }
    (bytes, tables, rejected)
}

fn as_text(tables: &Expected) -> BTreeMap<String, String> {
    let text = |rows: &BTreeMap<_, String>| rows.values().cloned().collect::<Vec<_>>().join("\n");
    tables.iter().map(|(name, rows)| (name.clone(), text(rows))).collect()
}

fn assert_rows(loads: &Loads, tables: &Expected) {
    let (found, expected) = (loads.rows(), as_text(tables));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (table, rows) in &expected {
        let found = &found[table];
        let differing =
            found.lines().zip(rows.lines()).find(|(found, expected)| found.trim_end() != expected.trim_end());
        assert_eq!(differing, None, "{table}");
        assert_eq!(found.lines().count(), rows.lines().count(), "{table}");
    }
}

fn records_go_to_their_tables(kind: Kind) {
    let loads = Loads::begin(kind, &[]);
    loads.server.sql(TEMPLATE);
    let layout = loads.write("layout.toml", LAYOUT);
    let (bytes, tables, rejected) = random_records(&mut Random::new(1), 5_000);
    let file = loads.write("calls.dat", &bytes);
    let arguments = ["--layout", path_of(&layout), path_of(&file)];
    // A dry run tells the same, and does nothing.
    let dry = loads.load(&[&arguments[..], &["--dry-run"]].concat());
    assert!(loads.rows().is_empty());
    let report = loads.load(&arguments);
    let expected: u64 = tables.values().map(|rows| rows.len() as u64).sum();
    assert_eq!(report["totals"]["loaded"], expected, "{report}");
    assert_eq!(report["totals"]["rejected"], rejected, "{report}");
    assert_eq!(dry["totals"], report["totals"]);
    assert_eq!(dry["tables"], report["tables"]);
    let made: Vec<&str> = report["new_tables"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(made.len() > 1 && made.iter().all(|table| report["tables"].get(table).is_some()), "{report}");
    assert_eq!(dry["new_tables"], report["new_tables"]);
    assert_eq!(dry["first_rejects"].as_array().unwrap().len(), 20);
    assert_rows(&loads, &tables);
    let indexes = loads.server.sql(
        "SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = 'cdr' AND table_name = 'calls_20261101'",
    );
    assert_eq!(indexes, "3");
    // Again: nothing.
    let again = loads.load(&arguments);
    assert_eq!(again["totals"]["records"], 0, "{again}");
    assert_eq!(again["files"][0]["was_loaded"], true, "{again}");
    // The rejects, byte for byte, and corrected.
    let rejects = fs::read(loads.only(".rejects")).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let is_damaged = |line: &&&[u8]| line.starts_with(b"short") || line[8..].starts_with(b"20261399");
    assert_eq!(rejects, lines.iter().filter(is_damaged).copied().collect::<Vec<_>>().concat());
    let mut mended = Vec::new();
    for number in 0..rejected {
        mended.extend_from_slice(&record(&(90_000 + number).to_string(), "20261105000000", "1", "mended"));
    }
    let mended = loads.write("mended.dat", mended);
    let report = loads.load(&["--layout", path_of(&layout), path_of(&mended)]);
    assert_eq!(report["totals"]["loaded"], rejected, "{report}");
    assert_eq!(report["tables"]["cdr.calls_20261105"], rejected, "{report}");
    // Another content under the same name.
    loads.write("mended.dat", record("1", "20261105000000", "1", "x"));
    let why = loads.refused(&["--layout", path_of(&layout), path_of(&mended)]);
    assert!(why.contains("mended.dat: it was loaded until"), "{why}");
}

#[test]
fn records_go_to_their_tables_on_mariadb() {
    records_go_to_their_tables(Kind::Mariadb);
}

#[test]
fn records_go_to_their_tables_on_mysql() {
    records_go_to_their_tables(Kind::Mysql);
}

/// The server's refusals: what LOAD DATA LOCAL would bend or skip with a warning is rejected, by whichever door.
fn refused_rows_are_rejected(kind: Kind, options: &[&str]) {
    let loads = Loads::begin(kind, options);
    loads.server.sql(
        "CREATE DATABASE d; CREATE TABLE d.parent (id INT PRIMARY KEY); INSERT INTO d.parent VALUES (1), (2); \
         CREATE TABLE d.t (id INT PRIMARY KEY, n TINYINT, s VARCHAR(3) NOT NULL, e ENUM('a','b'), u INT UNIQUE, p INT, \
         d DATE, CONSTRAINT f FOREIGN KEY (p) REFERENCES d.parent (id), CONSTRAINT c CHECK (n <> 13))",
    );
    let mut csv = "id,n,s,e,u,p,d\n".to_owned();
    let mut reasons = Vec::new();
    for id in 0..3_000 {
        let (mut n, mut s, mut e, mut u, mut p, mut d) =
            ("1".to_owned(), "abc", "a", id.to_string(), "1", "2026-11-26");
        match id {
            100 => n = "200".to_owned(),
            200 => s = "abcd",
            300 => e = "z",
            400 => u = "7".to_owned(),
            500 => p = "3",
            600 => d = "2026-02-30",
            700 => n = "1x".to_owned(),
            800 => n = "13".to_owned(),
            900 => n = String::new(),
            _ => {}
        }
        if id % 100 == 0 && (100..=900).contains(&id) {
            reasons.push(id);
        }
        let _always_fits = writeln!(csv, "{id},{n},{s},{e},{u},{p},{d}");
    }
    csv += "5,1,abc,a,99999,1,2026-11-26\n";
    let file = loads.write("t.csv", &csv);
    let report = loads.load(&["--table", "d.t", "--header", path_of(&file)]);
    let door = report["door"].as_str().unwrap();
    assert_eq!(door.starts_with("LOAD"), options.is_empty(), "{door}");
    assert_eq!(report["totals"]["rejected"], 10, "{report}");
    assert_eq!(report["totals"]["loaded"], 2_991, "{report}");
    assert_eq!(loads.server.sql("SELECT COUNT(*), SUM(n), COUNT(DISTINCT u) FROM d.t"), "2991\t2991\t2991");
    let rejects = fs::read_to_string(loads.only(".rejects")).unwrap();
    let mut expected = vec!["id,n,s,e,u,p,d".to_owned()];
    expected.extend(
        csv.lines().filter(|line| reasons.iter().any(|id| line.starts_with(&format!("{id},")))).map(str::to_owned),
    );
    expected.push("5,1,abc,a,99999,1,2026-11-26".to_owned());
    assert_eq!(rejects.lines().collect::<Vec<_>>(), expected);
    let why = fs::read_to_string(loads.only(".rejects.csv")).unwrap();
    assert!(why.contains("t.csv,102,") && why.contains("error 1264") && why.contains("error 1062"), "{why}");
}

#[test]
fn refused_rows_are_rejected_on_mariadb() {
    refused_rows_are_rejected(Kind::Mariadb, &[]);
}

#[test]
fn refused_rows_are_rejected_on_mysql() {
    refused_rows_are_rejected(Kind::Mysql, &[]);
}

#[test]
fn refused_rows_are_rejected_where_local_files_are_closed() {
    refused_rows_are_rejected(Kind::Mariadb, &["--local-infile=OFF"]);
}

/// What duplicates do, in the order of the file.
#[test]
fn duplicates_are_ignored_or_replace() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    let mut csv = String::new();
    for number in 0..30_000 {
        let _always_fits = writeln!(csv, "{},{number}", number % 1_000);
    }
    let file = loads.write("t.csv", csv);
    let report = loads.load(&["--table", "d.t", "--duplicates", "ignore", "--memory", "1MiB", path_of(&file)]);
    assert_eq!((&report["totals"]["loaded"], &report["totals"]["rejected"]), (&1_000.into(), &0.into()), "{report}");
    assert_eq!(loads.server.sql("SELECT COUNT(*), MAX(v) FROM d.t"), "1000\t999");
    let arguments =
        ["--table", "d.t", "--duplicates", "replace", "--name", "again", "--memory", "1MiB", path_of(&file)];
    loads.load(&arguments);
    assert_eq!(loads.server.sql("SELECT COUNT(*), MIN(v) FROM d.t"), "1000\t29000");
}

/// The server's own LOAD DATA is the oracle for its dialect.
fn load_data_reads_as_the_server_does(kind: Kind) {
    let loads = Loads::begin(kind, &[]);
    loads.server.sql("CREATE DATABASE d");
    let forms = [
        ("", "", "\\t", "", "\\\\", "\\n"),
        ("", "OPTIONALLY ENCLOSED BY '\"'", ",", "\"", "\\\\", "\\n"),
        ("", "OPTIONALLY ENCLOSED BY '\\''", "||", "'", "", "\\r\\n"),
        ("xx", "", ";", "", "\\\\", "\\n"),
    ];
    let mut random = Random::new(7);
    for (number, (start, enclosed_sql, field, enclosed, escaped, line)) in forms.into_iter().enumerate() {
        let real = |text: &str| text.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r");
        let mut bytes = String::new();
        for row in 0..400 {
            let mut text = String::new();
            for _ in 0..random.below(12) {
                let pieces = ["a", "\u{e9}", "\\N", "\\\\", "\\t", "\\0", "NULL", "x", enclosed, " ", "\\Z", "\\q"];
                text += pieces[random.below(pieces.len() as u64) as usize];
            }
            let is_enclosed = !enclosed.is_empty() && random.below(2) == 0;
            let value = match is_enclosed {
                true => format!("{enclosed}{}{enclosed}", text.replace(enclosed, &format!("{enclosed}{enclosed}"))),
                false => text.trim_start_matches(enclosed).to_owned(),
            };
            let value = if escaped.is_empty() { value } else { value.trim_end_matches('\\').to_owned() };
            bytes += &format!("{}{row}{}{value}{}", real(start), real(field), real(line));
        }
        let name = format!("t{number}");
        let path = loads.write(&format!("{name}.txt"), &bytes);
        let create = |table: &str| format!("CREATE TABLE d.{table} (id INT, s VARCHAR(200) CHARACTER SET utf8mb4)");
        loads.server.sql(&create(&format!("n{number}")));
        loads.server.sql(&create(&name));
        loads.server.sql(&format!(
            "LOAD DATA INFILE '{}' INTO TABLE d.n{number} CHARACTER SET utf8mb4 FIELDS TERMINATED BY '{field}' {enclosed_sql} \
             ESCAPED BY '{escaped}' LINES STARTING BY '{start}' TERMINATED BY '{line}'",
            path.display()
        ));
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\\\""));
        let layout = format!(
            "[input]\nformat = \"load-data\"\nfields-terminated-by = {}\nfields-optionally-enclosed-by = {}\nfields-escaped-by = {}\n\
             lines-starting-by = {}\nlines-terminated-by = {}\n[[table]]\nname = \"d.{name}\"\n",
            quoted(field),
            quoted(enclosed),
            quoted(escaped),
            quoted(start),
            quoted(line)
        );
        let layout = loads.write(&format!("{name}.toml"), layout);
        let report = loads.load(&["--layout", path_of(&layout), path_of(&path)]);
        assert_eq!(report["totals"]["rejected"], 0, "{report}: {}", fs::read_to_string(path).unwrap());
        let all = |table: String| loads.server.sql(&format!("SELECT id, s IS NULL, HEX(s) FROM d.{table} ORDER BY id"));
        let (native, ours) = (all(format!("n{number}")), all(name));
        let differing = native.lines().zip(ours.lines()).find(|(native, ours)| native != ours);
        assert_eq!(differing, None, "form {number}");
        assert_eq!(native.lines().count(), 400);
        assert_eq!(native, ours);
    }
}

#[test]
fn load_data_reads_as_mariadb_does() {
    load_data_reads_as_the_server_does(Kind::Mariadb);
}

#[test]
fn load_data_reads_as_mysql_does() {
    load_data_reads_as_the_server_does(Kind::Mysql);
}

/// Compressed files, directories, standard input, binary values, NULLs, constants, partitions.
fn all_inputs_and_columns_are_loaded(kind: Kind) {
    let loads = Loads::begin(kind, &[]);
    loads.server.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, b VARBINARY(20), raw VARBINARY(20), price DECIMAL(8,2), origin TEXT, \
         line INT, kind VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p3 VALUES LESS THAN (40))",
    );
    let layout = loads.write(
        "layout.toml",
        r#"
[input]
format = "csv"
delimiter = ";"
header = true
[[table]]
name = "d.t"
partition = "p{id:div 10}"
partition-values = "LESS THAN (10 * {id:div 10} + 10)"
where = { id = { min = "0", max = "99" } }
[[column]]
name = "id"
[[column]]
name = "b"
type = "hex"
[[column]]
name = "raw"
type = "binary"
[[column]]
name = "price"
field = "amount"
type = "decimal"
scale = 2
[[column]]
name = "origin"
origin = "file"
[[column]]
name = "line"
origin = "line"
[[column]]
name = "kind"
field = "k"
map = { 1 = "voice", 2 = "text" }
null = ["-"]
"#,
    );
    let directory = loads.directory.path().join("in");
    fs::create_dir(&directory).unwrap();
    let gzip = Command::new("sh")
        .args(["-c", "printf 'k;id;amount;raw;b\\n1;5;1250;\"\\377;\n\";00ff\\n2;15;7;;\\n' | gzip > a.csv.gz"])
        .current_dir(&directory)
        .status()
        .unwrap();
    assert!(gzip.success());
    fs::write(directory.join("b.csv"), "id;b;raw;amount;k\r\n25;61;x;0;-\r\n100;61;x;0;-\r\n").unwrap();
    fs::write(directory.join("c.csv.part"), "on its way").unwrap();
    // Frames one behind the other, as `cat a.zst b.zst` makes them.
    let frames = ["id;b;raw;amount;k\n26;62;y;100;1\n", "27;63;z;200;2\n"]
        .map(|text| zstd::encode_all(text.as_bytes(), 3).unwrap());
    fs::write(directory.join("d.csv.zst"), frames.concat()).unwrap();
    let dry = loads.load(&["--layout", path_of(&layout), "--dry-run", path_of(&directory)]);
    let report = loads.load(&["--layout", path_of(&layout), path_of(&directory)]);
    assert_eq!((&report["totals"]["loaded"], &report["totals"]["rejected"]), (&5.into(), &1.into()), "{report}");
    assert_eq!(report["new_partitions"], serde_json::json!(["d.t p1", "d.t p2"]), "{report}");
    assert_eq!(dry["new_partitions"], report["new_partitions"]);
    let cut = loads.write("cut.csv.zst", &frames[0][..frames[0].len() - 4]);
    let cut = loads.refused(&["--layout", path_of(&layout), path_of(&cut)]);
    assert!(cut.contains("cut.csv.zst"), "{cut}");
    let rows = loads
        .server
        .sql("SELECT id, HEX(b), HEX(raw), price, SUBSTRING_INDEX(origin, '/', -1), line, kind FROM d.t ORDER BY id");
    assert_eq!(
        rows,
        "5\t00FF\tFF3B0A\t12.50\ta.csv.gz\t2\tvoice\n15\t\t\t0.07\ta.csv.gz\t4\ttext\n25\t61\t78\t0.00\tb.csv\t2\tNULL\n\
         26\t62\t79\t1.00\td.csv.zst\t2\tvoice\n27\t63\t7A\t2.00\td.csv.zst\t3\ttext"
    );
    let partitions = loads.server.sql(
        "SELECT partition_name, partition_description FROM information_schema.partitions WHERE table_name = 't' ORDER BY \
         partition_ordinal_position",
    );
    assert_eq!(partitions, "p0\t10\np1\t20\np2\t30\np3\t40");
    // Standard input, once under its name.
    let mut command = loads.command(&["--layout", path_of(&layout), "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"id;b;raw;amount;k\n77;;;1;1").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(loads.server.sql("SELECT COUNT(*) FROM d.t PARTITION (p7)"), "1");
}

#[test]
fn all_inputs_and_columns_are_loaded_mariadb() {
    all_inputs_and_columns_are_loaded(Kind::Mariadb);
}

#[test]
fn all_inputs_and_columns_are_loaded_mysql() {
    all_inputs_and_columns_are_loaded(Kind::Mysql);
}

/// One signal ends the wait for a writer, and for bytes.
#[test]
fn signal_ends_a_load_that_waits_for_its_pipe() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let pipe = loads.directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (input, sent) in [("-", "1\n"), ("-", ""), (path_of(&pipe), "")] {
        let mut command = loads.command(&["--table", "d.t", "--format", "csv", input]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut writer = child.stdin.take().unwrap();
        writer.write_all(sent.as_bytes()).unwrap();
        wait_until_it_listens(child.id());
        std::thread::sleep(Duration::from_millis(1_500));
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
        wait_until("the end of the load", || child.try_wait().unwrap().is_some());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("stopped by a signal"), "{input}: {:?} {said}", ended.status);
        drop(writer);
    }
    // What comes through a pipe later than the load begins is loaded.
    let mut child = loads.command(&["--table", "d.t", "--format", "csv", path_of(&pipe)]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    for id in 1..=3 {
        writer.write_all(format!("{id}\n").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(writer);
    assert!(child.wait().unwrap().success());
    assert_eq!(loads.server.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t"), "1,2,3");
}

/// From a table that is made to a file that is ended.
#[cfg(feature = "failpoints")]
pub const POINTS: [&str; 7] = [
    "load-before-table",
    "load-after-table",
    "load-after-rows",
    "load-before-commit",
    "load-after-commit",
    "load-before-end",
    "load-after-indexes",
];

#[cfg(feature = "failpoints")]
fn stopped_loads_go_on(kind: Kind) {
    let loads = Loads::begin(kind, &[]);
    loads.server.sql(TEMPLATE);
    let layout = loads.write("layout.toml", LAYOUT);
    let (bytes, tables, rejected) = random_records(&mut Random::new(2), 20_000);
    let file = loads.write("calls.dat", &bytes);
    // Small pieces; and indexes later, so that there is something to make at the end.
    let arguments = ["--layout", path_of(&layout), "--memory", "2MiB", "--indexes", "after", path_of(&file)];
    for times in [1, 3] {
        for point in POINTS {
            let stopped = loads.command(&arguments).env("SPATE_STOP_AT", format!("{point}:{times}")).output().unwrap();
            let said = String::from_utf8_lossy(&stopped.stderr);
            // The last points are passed by the first run that comes to the end.
            assert!(stopped.status.success() || stopped.status.signal() == Some(9), "{point}: {said}");
        }
    }
    let report = loads.load(&arguments);
    assert_rows(&loads, &tables);
    let totals = &report["files"][0]["totals"];
    assert_eq!((&totals["records"], &totals["rejected"]), (&20_000.into(), &rejected.into()), "{report}");
    let rejects = fs::read(loads.only(".rejects")).unwrap();
    assert_eq!(rejects.iter().filter(|byte| **byte == b'\n').count() as u64, rejected);
    let keys = loads.server.sql(
        "SELECT COUNT(DISTINCT table_name, index_name) FROM information_schema.statistics WHERE table_schema = 'cdr' AND table_name LIKE 'calls%'",
    );
    assert_eq!(keys, "12");
    assert_eq!(loads.server.sql("SELECT COUNT(*) FROM spate_load.load_index"), "0");
}

#[cfg(feature = "failpoints")]
#[test]
fn stopped_loads_go_on_on_mariadb() {
    stopped_loads_go_on(Kind::Mariadb);
}

#[cfg(feature = "failpoints")]
#[test]
fn stopped_loads_go_on_on_mysql() {
    stopped_loads_go_on(Kind::Mysql);
}

/// Both the program and the server are killed at random.
fn killed_servers_lose_no_record(kind: Kind) {
    let mut loads = Loads::begin(kind, &[]);
    loads.server.sql(TEMPLATE);
    let layout = loads.write("layout.toml", LAYOUT);
    let mut random = Random::new(3);
    let (bytes, tables, rejected) = random_records(&mut random, 60_000);
    let file = loads.write("calls.dat", &bytes);
    let arguments = ["--layout", path_of(&layout), "--memory", "2MiB", path_of(&file)];
    for _ in 0..6 {
        let mut child = loads.command(&arguments).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100 + random.below(500)));
        if random.below(2) == 0 {
            let _has_ended = child.kill();
        } else {
            loads.server.kill();
            loads.server.begin();
        }
        child.wait().unwrap();
    }
    let report = loads.load(&arguments);
    assert_rows(&loads, &tables);
    assert_eq!(report["files"][0]["totals"]["rejected"], rejected, "{report}");
}

#[test]
fn killed_servers_lose_no_record_mariadb() {
    killed_servers_lose_no_record(Kind::Mariadb);
}

#[test]
fn killed_servers_lose_no_record_mysql() {
    killed_servers_lose_no_record(Kind::Mysql);
}

/// Rejects that cannot be written: nothing of their piece is loaded, and nothing is twice when there is room again.
#[test]
fn full_disks_lose_no_record() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql(TEMPLATE);
    let layout = loads.write("layout.toml", LAYOUT);
    let (bytes, tables, rejected) = random_records(&mut Random::new(5), 20_000);
    let file = loads.write("calls.dat", &bytes);
    let arguments = ["--layout", path_of(&layout), "--memory", "2MiB", path_of(&file)];
    let mut failed = 0;
    for blocks in [1, 20, 40] {
        let command = loads.command(&[&arguments[..], &["--json"]].concat());
        let output = with_full_disk(&command, blocks).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            failed += 1;
            assert!(said.contains(".rejects") && said.contains("File too large"), "{said}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(report["failure"].as_str().unwrap().contains("File too large"), "{report:#}");
        }
    }
    assert!(failed > 1);
    let report = loads.load(&arguments);
    assert_rows(&loads, &tables);
    assert_eq!(report["files"][0]["totals"]["rejected"], rejected, "{report}");
    let rejects = fs::read(loads.only(".rejects")).unwrap();
    assert_eq!(rejects.iter().filter(|byte| **byte == b'\n').count() as u64, rejected);
}

/// A sample, or the sizes, say when indexes of new tables are made.
#[test]
fn indexes_are_made_when_that_costs_less() {
    for (options, why) in [
        (&[][..], "rows took"),
        (&["--innodb-buffer-pool-size=6M"], "MB of rows outgrow the server's buffer pool of 6 MB"),
    ] {
        let loads = Loads::begin(Kind::Mariadb, options);
        loads.server.sql(TEMPLATE);
        let layout = loads.write("layout.toml", LAYOUT);
        let (bytes, tables, _) = random_records(&mut Random::new(4), 120_000);
        let file = loads.write("calls.dat", &bytes);
        let report = loads.load(&["--layout", path_of(&layout), path_of(&file)]);
        let said = report["indexes"]["why"].as_str().unwrap();
        assert!(said.contains(why), "{report:#}");
        assert_rows(&loads, &tables);
        let left = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'spate_load' AND table_name LIKE 'sample%'";
        assert_eq!(loads.server.sql(left), "0");
    }
}

/// Engines that cannot roll back: after a kill, a person is told what to do, if anything; then it goes on.
#[cfg(feature = "failpoints")]
fn engines_that_cannot_roll_back_are_not_loaded_twice(kind: Kind) {
    for (point, is_uncertain) in [("load-after-rows", true), ("load-before-commit", true), ("load-after-commit", false)]
    {
        let loads = Loads::begin(kind, &[]);
        // One piece goes to two tables, of which one could.
        loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT) ENGINE=MyISAM; CREATE TABLE d.u (id INT PRIMARY KEY, v INT)");
        let mut csv = String::new();
        for number in 0..5_000 {
            let value = if number == 4_321 { "x".to_owned() } else { (number % 2).to_string() };
            let _always_fits = writeln!(csv, "{number},{value}");
        }
        let file = loads.write("t.csv", csv);
        let layout = loads.write(
            "l.toml",
            "[[table]]\nname = \"d.u\"\nwhere = { v = [\"1\"] }\n[[table]]\nname = \"d.t\"\n[[column]]\nname = \"id\"\n[[column]]\nname = \"v\"\n",
        );
        let arguments = ["--layout", path_of(&layout), "--memory", "1MiB", path_of(&file)];
        let stopped = loads.command(&arguments).env("SPATE_STOP_AT", format!("{point}:2")).output().unwrap();
        assert!(stopped.status.signal() == Some(9) || stopped.status.success(), "{point}: {stopped:?}");
        if is_uncertain && loads.server.sql("SELECT COUNT(*) FROM spate_load.load_open") != "0" {
            let why = loads.refused(&arguments);
            assert!(why.contains("on their way into d.t") && why.contains("Delete the rows of these lines"), "{why}");
            let before: u64 =
                why.split("it had ").nth(1).and_then(|text| text.split(' ').next()).unwrap().parse().unwrap();
            loads.server.sql(&format!(
                "DELETE FROM d.t WHERE id >= (SELECT * FROM (SELECT COALESCE(MIN(id), 0) FROM d.t) AS t) ORDER BY id DESC LIMIT {}",
                loads.server.sql("SELECT COUNT(*) FROM d.t").parse::<u64>().unwrap() - before
            ));
        }
        loads.load(&arguments);
        assert_eq!(loads.server.sql("SELECT COUNT(*), SUM(v) FROM d.t"), "2500\t0", "{point}");
        assert_eq!(loads.server.sql("SELECT COUNT(*), SUM(v) FROM d.u"), "2499\t2499", "{point}");
        assert!(fs::read_to_string(loads.only(".rejects.csv")).unwrap().contains(",4322,"));
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn engines_that_cannot_roll_back_are_not_loaded_twice_mariadb() {
    engines_that_cannot_roll_back_are_not_loaded_twice(Kind::Mariadb);
}

#[cfg(feature = "failpoints")]
#[test]
fn engines_that_cannot_roll_back_are_not_loaded_twice_mysql() {
    engines_that_cannot_roll_back_are_not_loaded_twice(Kind::Mysql);
}

/// Files that come, until a signal.
#[test]
fn watched_directories_are_loaded_as_files_come() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let directory = loads.directory.path().join("in");
    fs::create_dir(&directory).unwrap();
    let layout = loads.write("l.toml", "[[table]]\nname = \"d.t\"\n[[column]]\nname = \"id\"\ntype = \"integer\"\n");
    let arguments = [
        "--layout",
        path_of(&layout),
        "--watch",
        "--settle",
        "1s",
        "--indexes",
        "before",
        "--json",
        path_of(&directory),
    ];
    let mut child = loads.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    fs::write(directory.join("1.csv"), "1\n2\n").unwrap();
    let count = || loads.server.sql("SELECT COUNT(*) FROM d.t");
    wait_until("the first file", || count() == "2");
    // Not a file of this layout: the others are loaded all the same.
    fs::write(directory.join("2.csv.gz"), [0x1f, 0x8b, 0, 0]).unwrap();
    fs::write(directory.join("3.csv"), "3\n").unwrap();
    wait_until("the third file", || count() == "3");
    // What keeps a file from being loaded may pass.
    loads.server.sql("RENAME TABLE d.t TO d.away");
    fs::write(directory.join("4.csv"), "4\n").unwrap();
    let mut said = String::new();
    while !said.contains("table d.t: it is not there") {
        said += &lines.next().unwrap();
    }
    loads.server.sql("RENAME TABLE d.away TO d.t");
    wait_until("the fourth file", || {
        loads.server.sql("SELECT COUNT(*) FROM spate_load.load_file WHERE name LIKE '%4.csv' AND ended IS NOT NULL")
            == "1"
    });
    assert_eq!(count(), "4");
    let signalled = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(signalled.success());
    let ended = child.wait_with_output().unwrap();
    said.extend(lines);
    assert!(!ended.status.success() && said.contains("2.csv.gz") && said.contains("1 files"), "{said}");
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&report["totals"]["loaded"], report["files"].as_array().unwrap().len()), (&4.into(), 3), "{report:#}");
    assert_eq!(report["failure"], "1 files could not be loaded; each was said above", "{report:#}");
}

#[test]
fn what_cannot_be_loaded_is_told() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql(TEMPLATE);
    loads.server.sql("CREATE TABLE cdr.calls_20261101 (caller INT PRIMARY KEY, begin DATETIME)");
    let file = loads.write("calls.dat", record("1", "20261101000000", "1", "x"));
    let try_layout = |text: &str| {
        let layout = loads.write("l.toml", text);
        loads.refused(&["--layout", path_of(&layout), path_of(&file)])
    };
    let shape = try_layout(LAYOUT);
    assert!(shape.contains("cdr.calls_20261101: it is there with another shape"), "{shape}");
    let typo = try_layout(&LAYOUT.replace("width = 8", "widht = 8"));
    assert!(typo.contains("line 14") || typo.contains("widht"), "{typo}");
    let beyond = try_layout(&LAYOUT.replace("format = \"fixed\"", "format = \"fixed\"\nrecord-bytes = 30"));
    assert!(beyond.contains("column \"cell\": it ends at byte 38, and the record at 30"), "{beyond}");
    let missing = try_layout(&LAYOUT.replace("cdr.template", "cdr.nothing"));
    assert!(missing.contains("its template cdr.nothing is not there"), "{missing}");
    let unknown = try_layout(&LAYOUT.replace("latin1", "klingon"));
    assert!(unknown.contains("encoding \"klingon\" is unknown"), "{unknown}");
    let other = loads.write(
        "other.dat",
        [record("1", "20261102000000", "1", "x"), record("2", "20261103000000", "1", "x")].concat(),
    );
    let layout = loads.write("l.toml", LAYOUT.replace("[[table]]", "[[table]]\nmax-tables = 1"));
    let many = loads.refused(&["--layout", path_of(&layout), path_of(&other)]);
    assert!(many.contains("it would be number 2 of the rule"), "{many}");
    let gone = loads.refused(&["--layout", path_of(&layout), "nowhere.dat"]);
    assert!(gone.contains("nowhere.dat: No such file"), "{gone}");
    let form = loads.refused(&["--table", "cdr.t", path_of(&file)]);
    assert!(form.contains("say --format"), "{form}");
}
