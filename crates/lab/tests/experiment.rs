//! Experiments, data sets and loads on real servers, with the programs that `cargo build` has built.

#![allow(clippy::unwrap_used)]

mod programs;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use programs::spate;
use rustix::process::Signal;
use spate_lab::Error;
use spate_lab::backlog::BacklogPlan;
use spate_lab::binlog_format::Format;
use spate_lab::contender::Contender;
use spate_lab::course::{BacklogPlace, Conditions, Course};
use spate_lab::dataset::DataSet;
use spate_lab::home::LabHome;
use spate_lab::loads::tpcc::books::Books;
use spate_lab::sandbox::{Lifetime, Sandbox};
use spate_lab::screen::Screen;
use spate_lab::server_options::{Durability, ServerOptions};
use spate_lab::vendor::Vendor;
use spate_lab::version::{ServerBinaries, ServerVersion};
use spate_lab::workload::{Shape, Workload};

fn home() -> LabHome {
    LabHome::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab")).unwrap()
}

fn server(name: &str) -> ServerBinaries {
    let binaries = name.parse::<ServerVersion>().and_then(ServerVersion::resolve);
    binaries.unwrap_or_else(|error| panic!("{error}"))
}

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(spate());
    command.arg("lab").args(arguments).env("SPATE_LAB_DIRECTORY", directory.join("lab"));
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

/// Native replication and Spate make of a load what the source has.
fn replicas_have_what_the_load_wrote(vendor_server: &str, workload: &str, rows: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments =
        vec!["race", "--server", vendor_server, "--workload", workload, "--tables", "2", "--rows", rows];
    arguments.extend(["--seconds", "2", "--buffer-pool-mib", "64", "--durability", "relaxed"]);
    arguments.extend(["--contender", "native:4", "--contender", "spate", "--json", "-"]);
    let output = lab(directory.path(), &arguments);
    assert!(output.status.success(), "{workload}: {}", text(&output));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("standard output is JSON only");
    let sampled = &result["contenders"][0]["series"];
    assert!(sampled.as_array().is_some_and(|series| !series.is_empty()), "what was sampled is in the result: {result}");
}

#[test]
fn replicas_have_what_each_load_wrote() {
    for (workload, rows) in [
        ("tpcc", "30"),
        ("skewed", "200"),
        ("wide", "50"),
        ("queue", "60"),
        ("counters", "50"),
        ("bulk", "500"),
        ("alters", "100"),
        ("keyless", "100"),
    ] {
        replicas_have_what_the_load_wrote("mariadb-10.11", workload, rows);
    }
}

#[test]
fn replicas_have_what_orders_and_alters_wrote_on_mysql() {
    for (workload, rows) in [("tpcc", "30"), ("alters", "100")] {
        replicas_have_what_the_load_wrote("mysql-9.7", workload, rows);
    }
}

/// Each condition is looked at: a change that breaks it is named.
#[test]
fn books_that_do_not_balance_are_named() {
    let (home, binaries) = (home(), server("mariadb-10.11"));
    let work = home.work().unwrap();
    let shape = Shape::new(Workload::Tpcc, Some(1), Some(30), Some(32)).with_schemas(1);
    let dataset = DataSet::open(&home, &binaries, &shape).unwrap();
    let options = ServerOptions::base(Vendor::MariaDb, 1).with_durability(Durability::Relaxed);
    let directory = work.path().join("server");
    let server = Sandbox::restore(&binaries, &dataset.frozen, &directory, &options, Lifetime::Ours).unwrap();
    let mut session = server.connect().unwrap();
    let schemas = shape.schema_names();
    assert_eq!(Books::audit(&mut session, &schemas).unwrap(), [""; 0], "as filled");
    // What breaks a condition, its numbers, and what makes up for it.
    let first = "w_id = 1";
    for (harm, conditions, remedy) in [
        ("UPDATE warehouse SET w_ytd = w_ytd + 1", &[1, 8][..], "UPDATE warehouse SET w_ytd = w_ytd - 1"),
        (
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 2",
            &[2],
            "UPDATE district SET d_next_o_id = d_next_o_id - 1 WHERE d_id = 2",
        ),
        (
            "UPDATE new_order SET no_o_id = 1 WHERE no_d_id = 3 AND no_o_id = 25",
            &[3, 5],
            "UPDATE new_order SET no_o_id = 25 WHERE no_d_id = 3 AND no_o_id = 1",
        ),
        (
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_d_id = 4 AND o_id = 5",
            &[4, 6],
            "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_d_id = 4 AND o_id = 5",
        ),
        (
            "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_d_id = 1 AND ol_o_id = 30 AND ol_number = 1",
            &[7, 10, 12],
            "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_d_id = 1 AND ol_o_id = 30 AND ol_number = 1",
        ),
        (
            "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 7",
            &[1, 9],
            "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_id = 7",
        ),
        (
            "UPDATE customer SET c_balance = c_balance + 1 WHERE c_d_id = 1 AND c_id = 1",
            &[10, 12],
            "UPDATE customer SET c_balance = c_balance - 1 WHERE c_d_id = 1 AND c_id = 1",
        ),
    ] {
        session.run(harm).unwrap();
        let broken = Books::audit(&mut session, &schemas).unwrap();
        for number in conditions {
            assert!(broken.iter().any(|line| line.contains(&format!("condition {number} "))), "{harm}: {broken:?}");
        }
        assert_eq!(broken.len(), conditions.len(), "{harm} ({first}): {broken:?}");
        session.run(remedy).unwrap();
    }
    assert_eq!(Books::audit(&mut session, &schemas).unwrap(), [""; 0], "at the end");
}

/// Readers of the replica find balanced books at every moment, while Spate follows.
#[test]
fn books_balance_on_the_replica_at_every_moment() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("steady.json");
    let mut arguments = vec!["steady", "--workload", "tpcc", "--tables", "1", "--rows", "20", "--rate", "60"];
    arguments.extend(["--seconds", "8", "--warm-up-seconds", "1", "--json", json.to_str().unwrap()]);
    let output = lab(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output));
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let books = &result["books"];
    assert_eq!(books["broken"], serde_json::json!([]), "{books}");
    assert!(books["looks"].as_u64().unwrap() >= 3 && books["states"].as_u64().unwrap() >= 2, "{books}");
}

/// A server that ends by itself is named, with the end of its log; that is no result of the contender.
#[test]
fn crashed_server_is_named_with_its_log() {
    let (home, binaries) = (home(), server("mariadb-10.11"));
    let work = home.work().unwrap();
    let shape = Shape::new(Workload::Cached, Some(1), Some(500), Some(32)).with_schemas(2);
    let plan =
        BacklogPlan { shape, format: Format::Row, seconds: 600, rate: None, transactions: Some(4_000), reuse: false };
    let course = Course::prepare(&home, &binaries, &plan, work.path(), Screen::default()).unwrap();
    let conditions = Conditions {
        place: BacklogPlace::Source,
        durability: Durability::Relaxed,
        ..Conditions::usual(Duration::from_secs(60))
    };
    let directory = work.path().join("replica");
    let replica = course.fresh_replica(&conditions, &directory).unwrap();
    // However fast the machine is, the contender has something to do when the server ends.
    let mut blocker = replica.connect().unwrap();
    blocker.run(&format!("LOCK TABLES {}.sbtest1 READ", shape.schema_names()[0])).unwrap();
    let process = replica.process();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        process.signal(Signal::KILL);
    });
    let contender = "native:0".parse::<Contender>().unwrap();
    let error = course.catch_up(&conditions, &contender, "native:0", &replica, &directory, None).unwrap_err();
    killer.join().unwrap();
    let message = error.to_string();
    assert!(matches!(error, Error::ServerCrashed { .. }), "{message}");
    assert!(
        message.contains("server 'replica'")
            && message.contains("signal 9")
            && message.contains("ready for connections"),
        "{message}"
    );
}

/// A data set goes into a file, and comes back as it was; a damaged file changes nothing.
#[test]
fn exported_data_set_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = lab(directory.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let file = directory.path().join("set.tar.zst");
    let path = file.to_str().unwrap();
    let make = ["dataset", "make", "--tables", "1", "--rows", "100", "--schemas", "1", "--server", "mariadb-10.11"];
    let name = run(&make);
    let manifest = |list: String| serde_json::from_str::<serde_json::Value>(&list).unwrap()[0]["manifest"].clone();
    let before = manifest(run(&["dataset", "list", "--json"]));
    run(&["dataset", "export", &name, path]);
    let refused = lab(directory.path(), &["dataset", "import", path]);
    assert!(!refused.status.success() && text(&refused).contains("already"), "{}", text(&refused));
    run(&["dataset", "remove", &name]);
    assert_eq!(run(&["dataset", "list", "--json"]), "[]");
    let whole = std::fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"nonsense".as_slice()] {
        let bad = directory.path().join("bad.tar.zst");
        std::fs::write(&bad, damaged).unwrap();
        let refused = lab(directory.path(), &["dataset", "import", bad.to_str().unwrap()]);
        assert!(!refused.status.success() && text(&refused).contains("bad.tar.zst"), "{}", text(&refused));
        assert_eq!(run(&["dataset", "list", "--json"]), "[]");
    }
    assert_eq!(run(&["dataset", "import", path]), name);
    assert_eq!(manifest(run(&["dataset", "list", "--json"])), before);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it has the accounts of its server");
    for wrong in ["../datasets", "nothing", ""] {
        let refused = lab(directory.path(), &["dataset", "remove", wrong]);
        assert!(
            !refused.status.success() && text(&refused).contains("none of this name"),
            "{wrong}: {}",
            text(&refused)
        );
    }
    run(&["clean", "--all"]);
    assert_eq!(run(&["dataset", "list", "--json"]), "[]");
}

/// Writes an archive like those of `export`, of a directory with a manifest and a data directory.
fn archived(from: &Path, file: &Path, more: impl Fn(&mut tar::Builder<zstd::Encoder<'static, std::fs::File>>)) {
    let encoder = zstd::Encoder::new(std::fs::File::create(file).unwrap(), 1).unwrap();
    let mut archive = tar::Builder::new(encoder);
    archive.sparse(false);
    archive.append_path_with_name(from.join("facts.json"), "facts.json").unwrap();
    archive.append_dir_all("data", from.join("data")).unwrap();
    more(&mut archive);
    archive.into_inner().unwrap().finish().unwrap();
}

/// A file of somebody else's is taken only if it is a data set: nothing in it is executed, nobody else has an account, and its rows are what it says.
#[test]
fn hostile_data_sets_are_refused() {
    for name in ["mariadb-10.11", "mysql-9.7"] {
        let root = tempfile::tempdir().unwrap();
        let (home, binaries) = (LabHome::at(&root.path().join("made")).unwrap(), server(name));
        let shape = Shape::new(Workload::Cached, Some(1), Some(50), Some(64)).with_schemas(1);
        let made = DataSet::open(&home, &binaries, &shape).unwrap();
        let place = made.frozen.parent().unwrap();
        let file = root.path().join("set.tar.zst");
        let import = || lab(root.path(), &["dataset", "import", file.to_str().unwrap()]);
        let refused = |why: &str| {
            let output = import();
            assert!(!output.status.success() && text(&output).contains(why), "{name}: {}", text(&output));
            let list = lab(root.path(), &["dataset", "list", "--json"]);
            assert_eq!(String::from_utf8_lossy(&list.stdout).trim(), "[]");
        };
        archived(place, &file, |archive| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            archive.append_link(&mut header, "data/elsewhere", "/etc").unwrap();
        });
        refused("neither a file nor a directory");
        archived(place, &file, |archive| {
            archive.append_path_with_name(place.join("facts.json"), format!("data/{}", "long".repeat(60))).unwrap();
        });
        refused("neither a file nor a directory");

        let tampered = root.path().join("tampered");
        for (statement, why) in [
            ("UPDATE bench1.sbtest1 SET k = k + 1 WHERE id = 7", "the rows of bench1.sbtest1"),
            ("CREATE TRIGGER bench1.t BEFORE INSERT ON bench1.sbtest1 FOR EACH ROW SET NEW.k = 1", "trigger bench1.t"),
            ("CREATE EVENT bench1.e ON SCHEDULE EVERY 1 SECOND DO SELECT 1", "event bench1.e"),
            ("CREATE PROCEDURE bench1.p() SELECT 1", "routine bench1.p"),
            ("CREATE USER thief@'%' IDENTIFIED BY 'x'", "account thief@%"),
            ("CREATE TABLE bench1.m (a INT) ENGINE=MyISAM", "table bench1.m of engine MyISAM"),
        ] {
            spate_lab::home::remove_if_there(&tampered).unwrap();
            spate_lab::home::copy_directory(place, &tampered).unwrap();
            let options = ServerOptions::base(binaries.vendor(), 1).with("log-bin-trust-function-creators", 1);
            let server = Sandbox::start(&binaries, &tampered, &options, Lifetime::Ours).unwrap();
            server.connect().unwrap().run(statement).unwrap();
            server.stop().unwrap();
            archived(&tampered, &file, |_| {});
            refused(why);
        }
        archived(place, &file, |_| {});
        let output = import();
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// What the disk has no room for is not begun, and what is no result is not reported.
#[test]
fn impossible_requests_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("race.json");
    std::fs::write(&file, "{\"workload\": \"cached\"}").unwrap();
    let path = file.to_str().unwrap();
    for (arguments, word) in [
        (&["experiment", "shards", "--size", "paper"][..], "are needed"),
        (&["experiment", "unknown"], "shards"),
        (&["report", path, "--html", "/tmp/never.html"], "has no version"),
        (&["compare", path, path], "has no version"),
    ] {
        let output = lab(directory.path(), arguments);
        assert!(!output.status.success() && text(&output).contains(word), "{arguments:?}: {}", text(&output));
    }
}

/// An experiment that is killed goes on with what it has measured; its result becomes a page and Markdown.
#[test]
fn killed_experiment_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, page, markdown) = (path("folding.json"), path("folding.html"), path("folding.md"));
    let arguments = ["experiment", "folding", "--size", "tiny", "--server", "mariadb-10.11", "--json", &json];
    let mut command = Command::new(spate());
    command.arg("lab").args(arguments).env("SPATE_LAB_DIRECTORY", directory.path().join("lab"));
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let kept = || {
        let stores = std::fs::read_dir(directory.path().join("lab/experiments")).into_iter().flatten().flatten();
        stores.map(|store| store.path().join("runs/000001.json")).find(|run| run.exists())
    };
    while kept().is_none() {
        assert!(Instant::now() < deadline && running.try_wait().unwrap().is_none(), "nothing was measured");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let read = |path: &Path| serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).unwrap()).unwrap();
    let kept = read(&kept().unwrap());
    let count = || {
        let stores = std::fs::read_dir(directory.path().join("lab/experiments")).unwrap().flatten();
        let runs = stores.filter_map(|store| std::fs::read_dir(store.path().join("runs")).ok());
        runs.flat_map(|runs| runs.flatten()).filter(|run| run.path().extension().is_some_and(|it| it == "json")).count()
    };
    // A signal ends it with a word, and with the result so far where it was asked for.
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("have been made before the interruption")));
    assert!(Command::new("kill").arg(running.id().to_string()).status().unwrap().success());
    assert!(said.any(|line| line.contains("measurements are kept; the same command goes on")));
    assert_eq!(running.wait().unwrap().code(), Some(128 + 15));
    let result = read(Path::new(&json));
    assert_eq!((&result["complete"], result["runs"].as_array().unwrap().len()), (&false.into(), count()), "{result}");
    let output = lab(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("have been made before the interruption"), "{}", text(&output));
    let result = read(Path::new(&json));
    assert_eq!((&result["complete"], result["runs"].as_array().unwrap().len()), (&true.into(), 4), "{result}");
    assert_eq!(result["runs"][0], kept, "what was measured is not measured again");
    let output = lab(directory.path(), &["report", &json, "--html", &page, "--markdown", &markdown]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(std::fs::read_to_string(&page).unwrap().contains("<figure class=\"graph\">"));
    assert!(std::fs::read_to_string(&markdown).unwrap().contains("| zipf 1.0 | 100 |"));
    let output = lab(directory.path(), &["compare", &json, &json]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("--repetitions"), "{}", text(&output));
}
