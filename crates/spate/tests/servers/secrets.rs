//! The password is seen nowhere: not in what is printed, not in what is kept, not in what a process list shows.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

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
fn password_is_in_no_file_or_command_line() {
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

/// The account that `/proc/<id>` belongs to: the process's own if its memory may be dumped and looked into, root if not.
fn owner_below_proc(core_dumps: Option<&str>) -> u32 {
    // Root's processes belong to root in any case, so root starts it as nobody, who must be able to read the program.
    const NOBODY: u32 = 65534;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("spate");
    // By another program: what this one has open for writing, the children of other tests have open for a moment, too.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_spate")).arg(&program).status().unwrap().success());
    // A server that says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("spate@{}", listener.local_addr().unwrap());
    let mut command = Command::new(&program);
    command.args(["check", "--source", &endpoint, "--replica", &endpoint]).env("SPATE_SOURCE_PASSWORD", PASSWORD);
    command.env("SPATE_REPLICA_PASSWORD", PASSWORD).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(value) = core_dumps {
        command.env("SPATE_CORE_DUMPS", value);
    }
    let own = fs::metadata("/proc/self/environ").unwrap().uid();
    if own == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut running = command.spawn().unwrap();
    // It has called: it has begun.
    listener.accept().unwrap();
    let owner = fs::metadata(format!("/proc/{}/environ", running.id())).unwrap().uid();
    running.kill().unwrap();
    running.wait().unwrap();
    owner
}

#[test]
fn memory_is_closed_to_dumps_and_debuggers() {
    assert_eq!(owner_below_proc(None), 0);
    assert_eq!(owner_below_proc(Some("no")), 0);
    assert_ne!(owner_below_proc(Some("yes")), 0);
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn assert_files_are_closed(directory: &Path) {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    for name in ["archive.list", "archive.lock", "status.socket"] {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
    assert!(names.iter().any(|name| name.ends_with(".index")), "{names:?}");
}

/// `umask 0`: what keeps others out is what Spate asks for.
fn without_umask(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

#[test]
fn archive_is_closed_to_other_accounts() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)");
    let running = site.spawn(without_umask(&site.replicate(&["--start", "earliest"])));
    site.wait_applied();
    site.source.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (2)");
    site.wait_applied();
    assert_eq!(mode(&site.archive()), 0o700);
    assert_files_are_closed(&site.archive());
    let ended = running.terminate();
    assert!(ended.status.success() && !ended.output.contains("other accounts"), "{}", ended.output);

    // Of a directory that a person has opened, Spate says so once, and leaves it as it is.
    fs::set_permissions(site.archive(), Permissions::from_mode(0o755)).unwrap();
    site.source.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (3)");
    let running = site.spawn(without_umask(&site.replicate(&[])));
    site.wait_applied();
    assert_eq!(mode(&site.archive()), 0o755);
    assert_files_are_closed(&site.archive());
    let ended = running.terminate();
    assert_eq!(ended.output.matches("other accounts of this machine").count(), 1, "{}", ended.output);
    ended.assert_says(&["mode 0755", "chmod -R go-rwx"]);
}
