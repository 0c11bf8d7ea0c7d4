//! Where backups are kept: several bases, lineages, archives and places.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{TABLES, Vault, fails, files_below, json, order, orders, output, path_of};
use crate::support::{Kind, Server, wait_until};

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
    for (id, bad, seconds, part) in [
        (3, "exit 3", "60", "SPATE_HOOK=take"),
        (4, "echo nowhere", "60", "not the path"),
        (5, "sleep 20", "1", "longer than 1 s"),
    ] {
        fails(vault.base_command(&["--hook", bad, "--hook-seconds", seconds]), &[part]);
        order(&vault.source, id);
    }
    assert_eq!(bases(), there, "nothing half done stays");
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
