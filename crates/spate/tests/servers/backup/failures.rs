//! Servers, disks and files that fail while bases are made and restored.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use spate_lab::vendor::Vendor;

use super::{TABLES, Vault, fails, files_below, json, order, orders, path_of};
use crate::support::program::with_full_disk;
use crate::support::{Kind, wait_until};

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

/// Nobody waits for a server that does not come back.
#[test]
fn a_recovery_whose_server_dies_ends() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    vault.source.sql(
        "CREATE TABLE shop.seen (i INT PRIMARY KEY); SET STATEMENT max_statement_time=100+SLEEP(9) FOR CREATE TABLE shop.slow (i INT)",
    );
    vault.ship(&[]);
    let to = vault.path("restored");
    let mut command = vault.restore_command(&["--to", path_of(&to)]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let data = vault.path("restored.partial/data");
    // The next one takes seconds.
    wait_until("tables come", || data.join("shop/seen.frm").exists());
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
