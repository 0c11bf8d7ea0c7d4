//! Traps for `spate load`: what servers, files and people do to it.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use crate::load::{Loads, path_of};
use crate::support::session::Session;
use crate::support::{Kind, memory, wait_until};

/// MySQL only notes that it cuts letters off a number; a file's record must not become another one.
fn letters_behind_numbers_are_rejected(kind: Kind) {
    let loads = Loads::begin(kind, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, price DECIMAL(10,2))");
    let layout = loads.write("l.toml", "[input]\ndelimiter = \";\"\n[[table]]\nname = \"d.t\"\n");
    let file = loads.write("t.csv", "1;1,50\n2;7 EUR\n3;2026-02-30\n4;1_000\n5;3.25\n6;1.239\n");
    let report = loads.load(&["--layout", path_of(&layout), path_of(&file)]);
    assert_eq!(report["totals"]["rejected"], 4, "{report}");
    assert_eq!(loads.server.sql("SELECT id, price FROM d.t ORDER BY id"), "5\t3.25\n6\t1.24");
}

#[test]
fn letters_behind_numbers_are_rejected_on_mariadb() {
    letters_behind_numbers_are_rejected(Kind::Mariadb);
}

#[test]
fn letters_behind_numbers_are_rejected_on_mysql() {
    letters_behind_numbers_are_rejected(Kind::Mysql);
}

/// The doors differ there: one stores the time of the load.
#[test]
fn null_is_no_time_on_mysql() {
    let loads = Loads::begin(Kind::Mysql, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, at TIMESTAMP NOT NULL, b INT)");
    let layout = "[[table]]\nname = \"d.t\"\n[[column]]\nname = \"id\"\n[[column]]\nname = \"at\"\nnull = [\"\"]\n\
                  [[column]]\nname = \"b\"\ntype = \"hex\"\n";
    let layout = loads.write("l.toml", layout);
    let file = loads.write("t.csv", "1,2026-11-26 10:00:00,31\n2,,31\n1,2026-11-26 10:00:00,31\n");
    let report = loads.load(&["--layout", path_of(&layout), path_of(&file)]);
    assert_eq!(report["totals"]["rejected"], 2, "{report}");
    // The duplicate let its part go by the other door, where the digits mean the same.
    assert_eq!(loads.server.sql("SELECT id, b FROM d.t"), "1\t1");
}

#[test]
fn files_that_change_are_told() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); CREATE TABLE d.u LIKE d.t");
    // The same length, other bytes.
    let file = loads.write("t.csv", "101,1\n");
    let arguments = ["--table", "d.t", path_of(&file)];
    loads.load(&arguments);
    loads.write("t.csv", "102,1\n");
    let why = loads.refused(&arguments);
    assert!(why.contains("is another file of this name"), "{why}");
    // The same bytes at another time are the same.
    loads.write("t.csv", "101,1\n");
    assert_eq!(loads.load(&arguments)["files"][0]["was_loaded"], true);
    // What has no size is read, and compared.
    let pipe = |text: &str| {
        let mut command = loads.command(&["--table", "d.t", "--format", "csv", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(pipe("7,7\n").0 && pipe("7,7\n").0);
    let (is_loaded, why) = pipe("7,7\n8,8\n");
    assert!(!is_loaded && why.contains("holds something else now"), "{why}");
    // What is appended while the file is loaded is not taken for loaded.
    let file = loads.write("u.csv", "1,1\n2,2\n");
    let mut holder = Session::open(&loads.server);
    holder.sql("BEGIN; INSERT INTO d.u VALUES (2, 0)");
    let arguments = ["--table", "d.u", path_of(&file)];
    let mut child = loads.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the load", || {
        loads.server.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'LOAD DATA%'") == "1"
    });
    fs::File::options().append(true).open(&file).unwrap().write_all(b"3,3\n").unwrap();
    holder.sql("ROLLBACK");
    child.wait().unwrap();
    let why = loads.refused(&arguments);
    assert!(why.contains("it was loaded until") && why.contains("has 12 now"), "{why}");
}

/// With replace, the row that comes later in the file stays, whichever key they meet by.
#[test]
fn the_files_order_decides_what_replaces() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE, s VARCHAR(9)); \
         CREATE TABLE d.c (id VARCHAR(9) PRIMARY KEY, s VARCHAR(9))",
    );
    let file = loads.write("t.csv", "5,1,first\n3,1,last\n");
    loads.load(&["--table", "d.t", "--duplicates", "replace", path_of(&file)]);
    assert_eq!(loads.server.sql("SELECT * FROM d.t"), "3\t1\tlast");
    let file = loads.write("c.csv", "a,first\nA,last\n");
    loads.load(&["--table", "d.c", "--duplicates", "replace", path_of(&file)]);
    assert_eq!(loads.server.sql("SELECT * FROM d.c"), "A\tlast");
}

/// Lines are counted as an editor counts them; quotes that cannot be meant so are rejected.
#[test]
fn lines_and_quotes_are_what_people_see() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, s TEXT)");
    let file = loads.write("t.csv", "1,a\n\n\nx4,b\r\n5,\"c\"d\n6,5\" disk\n7,\"open\n8,e\n");
    let report = loads.load(&["--table", "d.t", path_of(&file)]);
    assert_eq!(report["totals"]["rejected"], 3, "{report}");
    assert_eq!(loads.server.sql("SELECT * FROM d.t ORDER BY id"), "1\ta\n6\t5\" disk");
    let why = fs::read_to_string(loads.only(".rejects.csv")).unwrap();
    assert!(why.contains("t.csv,4,") && why.contains("t.csv,5,") && why.contains("t.csv,7,"), "{why}");
    assert_eq!(fs::read(loads.only(".rejects")).unwrap(), b"x4,b\r\n5,\"c\"d\n7,\"open\n8,e\n");
}

/// Loads have files of rejects of their own.
#[test]
fn another_load_leaves_rejects_alone() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.a (id INT PRIMARY KEY, n TINYINT); CREATE TABLE d.b (id INT PRIMARY KEY, n INT)");
    let file = loads.write("t.csv", "1,1\n2,500\n");
    loads.load(&["--table", "d.a", path_of(&file)]);
    let rejects = fs::read(loads.only(".rejects")).unwrap();
    loads.load(&["--table", "d.b", path_of(&file)]);
    assert_eq!(fs::read(loads.only(".rejects")).unwrap(), rejects);
}

/// Modes of the server in which it reads statements and shows definitions otherwise; keys that it wants; columns that are not meant.
#[test]
fn unusual_servers_and_tables_are_loaded() {
    for mode in ["ANSI", "ORACLE", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", ""] {
        let loads = Loads::begin(Kind::Mariadb, &[&format!("--sql-mode={mode}")]);
        loads.server.sql(
            "SET sql_mode = ''; CREATE DATABASE d; CREATE TABLE d.template (id INT NOT NULL AUTO_INCREMENT, v VARCHAR(9), w INT INVISIBLE DEFAULT 4, \
             KEY (id), KEY by_v (v)); CREATE TABLE d.t_1 (id INT NOT NULL AUTO_INCREMENT, v VARCHAR(3), KEY (id))",
        );
        let file = loads.write("t.csv", "1,it\\'s\n2,b\n");
        let arguments = ["--table", "d.new", "--template", "d.template", "--indexes", "after", path_of(&file)];
        loads.load(&arguments);
        let rows = loads.server.sql("SELECT id, v, w FROM d.new ORDER BY id");
        assert_eq!(rows, "1\tit\\\\'s\t4\n2\tb\t4", "{mode}");
        let indexes =
            "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = 'd' AND table_name = 'new'";
        assert_eq!(loads.server.sql(indexes), "2", "{mode}");
        let layout = "[[table]]\nname = \"d.t_{id}\"\ntemplate = \"d.template\"\n[[column]]\nname = \"id\"\n[[column]]\nname = \"v\"\n";
        let layout = loads.write("l.toml", layout);
        let why = loads.refused(&["--layout", path_of(&layout), path_of(&file)]);
        assert!(why.contains("d.t_1: it is there with another shape"), "{mode}: {why}");
        // Without columns, those of the template are meant.
        loads.load(&["--table", "d.by_{id:mod 2}", "--template", "d.template", path_of(&file)]);
        assert_eq!(loads.server.sql("SELECT v FROM d.by_0"), "b", "{mode}");
        assert_eq!(loads.server.sql("SHOW TABLES IN spate_load LIKE '%sample%'"), "");
    }
}

/// Characters whose bytes are marks would be cut.
#[test]
fn encodings_that_cannot_be_cut_are_refused() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, s VARCHAR(20) CHARACTER SET utf8mb4)");
    let file = loads.write("t.csv", b"1,\x83\x5c\x83\x74\x83\x67\n");
    let layout = |input: &str| {
        loads.write("l.toml", format!("[input]\nencoding = \"shift_jis\"\n{input}\n[[table]]\nname = \"d.t\"\n"))
    };
    for input in ["delimiter = \"|\"", "format = \"load-data\""] {
        let why = loads.refused(&["--layout", path_of(&layout(input)), path_of(&file)]);
        assert!(why.contains("shift_jis cannot be cut"), "{why}");
    }
    loads.load(&["--layout", path_of(&layout("")), path_of(&file)]);
    assert_eq!(loads.server.sql("SELECT s FROM d.t"), "\u{30bd}\u{30d5}\u{30c8}");
}

/// A watch makes indexes when it has nothing else to do, and outlives a server that closes idle connections.
#[test]
fn watches_go_on_for_long() {
    let loads = Loads::begin(Kind::Mariadb, &["--wait-timeout=2"]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.template (id INT PRIMARY KEY, v INT, KEY by_v (v))");
    let directory = loads.directory.path().join("in");
    fs::create_dir(&directory).unwrap();
    let arguments = [
        "--table",
        "d.t_{id:mod 2}",
        "--template",
        "d.template",
        "--format",
        "csv",
        "--watch",
        "--settle",
        "1s",
        "--indexes",
        "after",
        path_of(&directory),
    ];
    let child = loads.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    fs::write(directory.join("1.csv"), "1,1\n").unwrap();
    // A table has its index for a moment before it loses it: what is owed is settled only when the row is there.
    let is_done = |table: &str| {
        let indexes = format!(
            "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = 'd' AND table_name = '{table}'"
        );
        loads.server.try_sql(&format!("SELECT COUNT(*) FROM d.{table}")).is_ok_and(|rows| rows == "1")
            && loads.server.sql("SELECT COUNT(*) FROM spate_load.load_index") == "0"
            && loads.server.sql(&indexes) == "2"
    };
    wait_until("the first index", || is_done("t_1"));
    wait_until("the server to close the idle connection", || {
        loads.server.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'spate'") == "0"
    });
    fs::write(directory.join("2.csv"), "2,2\n").unwrap();
    wait_until("the second index", || is_done("t_0"));
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Tiny records do not take the memory that their reasons would.
#[test]
fn tiny_records_take_little_memory() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT, b INT)");
    let file = loads.write("t.csv", "x\n".repeat(1_000_000));
    let arguments = ["--table", "d.t", "--memory", "64MiB", "--connections", "1", path_of(&file)];
    let mut child = loads.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut peak_kib = 0;
    while child.try_wait().unwrap().is_none() {
        peak_kib = peak_kib.max(memory::peak_kib(child.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("0 of 1000000 records loaded, 1000000 rejected"));
    // Without a limit of records in a piece, it is ten times as much.
    assert!(peak_kib < 200 << 10, "{peak_kib} KiB");
}

/// Somebody with rights on the schema only puts something else in the table's place, between two files of a watch.
#[test]
fn tables_that_are_replaced_give_nobody_rights() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql(
        "DELIMITER //\nCREATE DATABASE app// CREATE DATABASE secret// CREATE TABLE secret.money (v INT)// \
         CREATE TABLE app.calls (id INT PRIMARY KEY, v INT)// CREATE TABLE app.base LIKE app.calls// \
         CREATE FUNCTION app.f(i INT) RETURNS INT SQL SECURITY INVOKER BEGIN INSERT INTO secret.money VALUES (i); RETURN 1; END//\n",
    );
    let directory = loads.directory.path().join("in");
    fs::create_dir(&directory).unwrap();
    let arguments = [
        "--table",
        "app.calls",
        "--format",
        "csv",
        "--watch",
        "--settle",
        "1s",
        "--connections",
        "1",
        path_of(&directory),
    ];
    let said = loads.directory.path().join("said");
    let file = fs::File::create(&said).unwrap();
    let mut child = loads.command(&arguments).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    fs::write(directory.join("1.csv"), "1,1\n").unwrap();
    let count = |table: &str| loads.server.sql(&format!("SELECT COUNT(*) FROM {table}"));
    wait_until("the first file", || count("app.calls") == "1");
    loads.server.sql(
        "DROP TABLE app.calls; CREATE SQL SECURITY INVOKER VIEW app.calls AS SELECT id, v FROM app.base WHERE app.f(id) = 1 WITH CHECK OPTION",
    );
    fs::write(directory.join("2.csv"), "2,2\n").unwrap();
    wait_until("the second file's refusal", || fs::read_to_string(&said).unwrap().contains("app.calls"));
    // Its file is told of; the watch goes on when the table is there again, of another engine.
    loads.server.sql("DROP VIEW app.calls; CREATE TABLE app.calls (id INT, v TINYINT) ENGINE=MyISAM");
    fs::write(directory.join("3.csv"), "3,3\n4,999\n").unwrap();
    wait_until("the third file", || count("app.calls") == "1");
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    child.wait().unwrap();
    assert_eq!((count("secret.money").as_str(), count("app.base").as_str()), ("0", "0"));
    assert_eq!(loads.server.sql("SELECT id, v FROM app.calls"), "3\t3");
}

/// Names in a template are not clauses of our statements, nor are values of records.
#[test]
fn names_and_values_do_not_become_statements() {
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql(
        "CREATE DATABASE d; CREATE TABLE d.template (id INT PRIMARY KEY, `a\nKEY x(id), RENAME TO d.stolen #` INT, KEY r (id)); \
         CREATE TABLE d.p (v INT) PARTITION BY RANGE (v) (PARTITION p0 VALUES LESS THAN (10))",
    );
    let file = loads.write("t.csv", "id\n1\n");
    let arguments =
        ["--table", "d.t_{id}", "--template", "d.template", "--header", "--indexes", "after", path_of(&file)];
    let why = loads.refused(&arguments);
    assert!(why.contains("has a control character"), "{why}");
    let layout = "[[table]]\nname = \"d.p\"\npartition = \"q{v}\"\npartition-values = \"LESS THAN ({v})\"\n[[column]]\nname = \"v\"\n";
    let layout = loads.write("l.toml", layout);
    let file = loads.write("p.csv", "20\nMAXVALUE\na b-- x\nv\n15\n");
    let report = loads.load(&["--layout", path_of(&layout), path_of(&file)]);
    assert_eq!((&report["totals"]["loaded"], &report["totals"]["rejected"]), (&1.into(), &4.into()), "{report}");
    let file = loads.write("template.csv", "template\n");
    let layout = "[[table]]\nname = \"d.{v}\"\ntemplate = \"d.template\"\n[[column]]\nname = \"v\"\nload = false\n[[column]]\nname = \"id\"\nconstant = \"1\"\n";
    loads.server.sql("DROP TABLE d.template; CREATE TABLE d.template (id INT AUTO_INCREMENT PRIMARY KEY)");
    let layout = loads.write("m.toml", layout);
    assert_eq!(loads.load(&["--layout", path_of(&layout), path_of(&file)])["totals"]["rejected"], 1);
    // A zero is a zero.
    let zero = loads.write("zero.csv", "0\n");
    loads.load(&["--table", "d.template", path_of(&zero)]);
    assert_eq!(loads.server.sql("SELECT * FROM d.template"), "0");
}

/// Rejects are for nobody else, and go where they are to go.
#[test]
fn rejects_follow_no_links() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let loads = Loads::begin(Kind::Mariadb, &[]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let file = loads.write("t.csv", "x\n");
    let arguments = ["--table", "d.t", path_of(&file)];
    loads.load(&arguments);
    let (records, reasons) = (loads.only(".rejects"), loads.only(".rejects.csv"));
    for path in [&records, &reasons] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(path).unwrap();
    }
    let victim = loads.write("victim", "mine");
    symlink(&victim, &reasons).unwrap();
    loads.server.sql("DELETE FROM spate_load.load_piece; DELETE FROM spate_load.load_file");
    loads.load(&arguments);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert!(fs::symlink_metadata(&reasons).unwrap().is_file());
    // A directory's links are not its files.
    let directory = loads.directory.path().join("in");
    fs::create_dir(&directory).unwrap();
    symlink(&victim, directory.join("link.csv")).unwrap();
    let report = loads.load(&["--table", "d.t", "--format", "csv", path_of(&directory)]);
    assert_eq!(report["totals"]["records"], 0, "{report}");
}

/// A record whose statement would be too large is judged by the server's warnings.
#[test]
fn large_refused_records_are_rejected() {
    let loads = Loads::begin(Kind::Mariadb, &["--max-allowed-packet=16M"]);
    loads.server.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, s LONGTEXT CHARACTER SET utf8mb4)");
    let large = "\u{fc}".repeat(4_600_000);
    let file = loads.write("t.csv", format!("1,{large}\n1,{large}\n2,b\n"));
    let report = loads.load(&["--table", "d.t", path_of(&file)]);
    assert_eq!((&report["totals"]["loaded"], &report["totals"]["rejected"]), (&2.into(), &1.into()), "{report}");
    assert_eq!(loads.server.sql("SELECT id, LENGTH(s) FROM d.t ORDER BY id"), "1\t9200000\n2\t1");
}
