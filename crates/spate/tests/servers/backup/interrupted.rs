//! The program is killed at named points while it makes and restores bases.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{TABLES, Vault, json, order, orders, path_of};
use crate::support::{Kind, Server, wait_until};

/// From the first lineage to a directory that has its name.
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
pub const AFTER_RENAME: &str = "after-restored-rename";

#[test]
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

fn id_of(counts: &str) -> String {
    counts.split(' ').next().unwrap().to_owned()
}

/// True if a server still has its data there.
fn is_anybody_in(directory: &Path) -> bool {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    let wanted = path_of(directory).as_bytes().to_vec();
    processes.into_iter().any(|line| line.windows(wanted.len()).any(|window| window == wanted))
}
