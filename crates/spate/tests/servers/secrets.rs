//! The password is seen nowhere: not in what is printed, not in what is kept, not in what a process list shows.

use std::fs;
use std::path::Path;

use crate::support::server::PASSWORD;
use crate::support::{Ended, Kind, Site};

/// A password that is wrong is a secret too: it may be right elsewhere.
const WRONG: &str = "falsch-8116-nobody-sees";

#[track_caller]
fn assert_nowhere(what: &str, bytes: &[u8]) {
    for secret in [PASSWORD, WRONG] {
        let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there, "a password is in {what}");
    }
}

fn assert_not_in_files_below(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_not_in_files_below(&path);
        } else if path.is_file() {
            assert_nowhere(&path.display().to_string(), &fs::read(&path).unwrap());
        }
    }
}

fn assert_quiet(ended: &Ended, succeeds: bool) {
    assert_eq!(ended.status.success(), succeeds, "{}", ended.output);
    assert_nowhere("what was printed", ended.output.as_bytes());
}

#[test]
fn the_password_is_seen_nowhere() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let general_log = ["--general-log=1", "--general-log-file=general.log", "--performance-schema=ON"];
        let site = Site::between((kind, &general_log), (kind, &general_log));
        let data = [site.source.data_directory(), site.replica.data_directory()];
        // What the tests themselves said while they made the accounts.
        for directory in &data {
            fs::write(directory.join("general.log"), "").unwrap();
        }
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        let files = tempfile::tempdir().unwrap();
        let option_file = |name: &str, password: &str| {
            let path = files.path().join(name);
            fs::write(&path, format!("[client]\nuser=spate\npassword={password}\n")).unwrap();
            path.display().to_string()
        };
        let (right, wrong) = (option_file("right.cnf", PASSWORD), option_file("wrong.cnf", WRONG));

        let running = site.spawn(site.replicate(&["--start", "earliest", "--json", "--defaults-file", &right]));
        site.source.sql("INSERT INTO d.t VALUES (1); ALTER TABLE d.t ADD COLUMN v INT; INSERT INTO d.t VALUES (2, 2)");
        site.wait_applied();
        let arguments = fs::read(format!("/proc/{}/cmdline", running.id())).unwrap();
        assert_nowhere("the process list", &arguments);
        for server in [&site.source, &site.replica] {
            // Including this question, were it to hold one.
            assert_nowhere("the server's process list", server.sql("SHOW FULL PROCESSLIST").as_bytes());
            let attributes = "SELECT * FROM performance_schema.session_connect_attrs";
            assert_nowhere("the connection's attributes", server.sql(attributes).as_bytes());
        }
        assert_nowhere("the status", site.status().to_string().as_bytes());
        for table in ["checkpoint", "intent", "prepared", "hold"] {
            let rows = site.replica.sql(&format!("SELECT * FROM spate.{table}"));
            assert_nowhere(&format!("spate.{table}"), rows.as_bytes());
        }
        for options in [["--json"].as_slice(), &[]] {
            assert_quiet(&site.run(site.command("verify", &[options, &["--no-position"]].concat())), true);
            assert_quiet(&site.run(site.command("check", options)), true);
        }
        assert_quiet(&running.terminate(), true);

        for command in ["replicate", "check", "verify"] {
            for tls in ["disabled", "required", "verify-ca"] {
                let options = ["--source-defaults-file", &wrong, "--source-tls-mode", tls];
                let mut failing = site.command(command, &options);
                if command == "replicate" {
                    failing.arg("--archive").arg(site.archive()).args(["--until", "caught-up", "--json"]);
                }
                assert_quiet(&site.run(failing), false);
            }
        }
        let mut pasted = site.command("check", &[]);
        pasted.arg("--defaults-file").arg(files.path().join("broken.cnf"));
        fs::write(files.path().join("broken.cnf"), format!("[client]\nuser=spate\nport={WRONG}\n")).unwrap();
        assert_quiet(&site.run(pasted), false);
        let mut pasted = crate::support::program::program();
        pasted.args(["check", "--source", &format!("spate:{WRONG}@127.0.0.1"), "--replica", "spate@127.0.0.1"]);
        assert_quiet(&site.run(pasted), false);

        assert_not_in_files_below(&site.archive());
        for directory in &data {
            assert_nowhere("the server's log of statements", &fs::read(directory.join("general.log")).unwrap());
        }
    }
}
