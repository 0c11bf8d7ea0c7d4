//! What cannot be backed up or restored is refused, and nothing is lost.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{TABLES, Vault, fails, files_below, json, order, orders, path_of, succeeds};
use crate::support::Kind;
use crate::support::program::program;
use crate::support::server::ACCOUNT;

#[test]
fn what_is_encrypted_needs_its_key() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    let (key, other) = (vault.path("key"), vault.path("other"));
    let said = succeeds(vault.command(&["backup", "key", "--out", path_of(&key)]));
    succeeds(vault.command(&["backup", "key", "--out", path_of(&other)]));
    let public = said.lines().find_map(|line| line.strip_prefix("public key: ")).unwrap();
    vault.base(&["--encrypt-to", public]);
    order(&vault.source, 1);
    vault.ship(&["--encrypt-to", public]);
    for file in files_below(&vault.target()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"order 1"), "{} is readable", file.display());
    }
    let to = vault.path("restored");
    fails(vault.restore_command(&["--to", path_of(&to)]), &["encrypted", "--identity"]);
    fails(vault.restore_command(&["--to", path_of(&to), "--identity", path_of(&other)]), &["recipients"]);
    assert!(!to.exists() && !vault.path("restored.partial").exists());
    let (_, server) = vault.restore(&["--identity", path_of(&key)]);
    assert_eq!(orders(&server), "1 1 1");
}

#[test]
fn a_gap_between_base_and_binlog_is_named() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    for id in 0..4 {
        order(&vault.source, id);
        vault.source.sql("FLUSH LOGS");
    }
    vault.ship(&[]);
    // One of several files is lost, then a part of one.
    let files = files_below(&vault.target().join("logs"));
    let of_a_file: Vec<&PathBuf> = files.iter().filter(|path| path.ends_with("file.json")).collect();
    assert!(of_a_file.len() >= 4);
    let (third, aside) = (of_a_file[2].parent().unwrap(), vault.path("aside"));
    fs::rename(third, &aside).unwrap();
    let to = vault.path("restored");
    fails(
        vault.restore_command(&["--to", path_of(&to)]),
        &["incomplete", "files between source.000002 and source.000004 are missing"],
    );
    fs::rename(&aside, third).unwrap();
    let part = files.iter().find(|path| path.starts_with(third) && path.extension().is_none()).unwrap();
    let bytes = fs::read(part).unwrap();
    fs::remove_file(part).unwrap();
    fails(vault.restore_command(&["--to", path_of(&to)]), &["of the file source.000003, bytes from 0"]);
    fs::write(part, [&bytes[..bytes.len() - 1], b"x"].concat()).unwrap();
    fails(vault.restore_command(&["--to", path_of(&to)]), &["damaged"]);
    fs::write(part, bytes).unwrap();
    let (_, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "4 4 4");
}

#[test]
fn binlogs_that_begin_behind_the_base_are_refused() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    vault.base(&[]);
    order(&vault.source, 1);
    vault.source.sql("FLUSH LOGS; FLUSH LOGS; FLUSH LOGS");
    order(&vault.source, 2);
    vault.source.sql("PURGE BINARY LOGS TO 'source.000004'");
    vault.ship(&[]);
    let to = vault.path("restored");
    fails(vault.restore_command(&["--to", path_of(&to)]), &["incomplete", "source.000001 to source.000003"]);
    fails(
        vault.restore_command(&[
            "--to",
            path_of(&to),
            "--archive",
            path_of(&vault.source.data_directory()),
            "--base-name",
            "source",
        ]),
        &["incomplete", "source.000001 to source.000003"],
    );
    assert!(!to.exists());
}

#[test]
fn a_base_of_another_server_is_refused() {
    let (one, other) = (Vault::of(Kind::Mariadb), Vault::of(Kind::Mariadb));
    for vault in [&one, &other] {
        vault.source.sql(TABLES);
    }
    // The same GTIDs and file names, and another history.
    (0..3).for_each(|id| order(&one.source, id));
    other.source.sql("INSERT INTO shop.log VALUES ('a')");
    (10..20).for_each(|id| order(&other.source, id));
    base_and_archive_do_not_fit(&one, &other, "source.000001");
}

/// A base of one server and the archive of the other are refused, and nothing is made.
fn base_and_archive_do_not_fit(one: &Vault, other: &Vault, named: &str) {
    one.base(&[]);
    other.fetch();
    let to = one.path("restored");
    let archive = other.path("archive");
    fails(one.restore_command(&["--to", path_of(&to), "--archive", path_of(&archive)]), &["the base", named]);
    assert!(!to.exists());
}

#[test]
fn what_cannot_be_backed_up_is_refused() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    fails(vault.base_command(&["--method", "clone"]), &["clone", "mariadb-backup"]);
    fails(vault.base_command(&["--method", "snapshot"]), &["--hook"]);
    fails(vault.base_command(&["--encrypt-to", "age1wrong"]), &["age1wrong", "spate backup key"]);
    let empty = vault.path("empty");
    fs::create_dir(&empty).unwrap();
    let to = vault.path("restored");
    let mut command = vault.command(&["restore", "--target", path_of(&empty), "--to", path_of(&to)]);
    fails(std::mem::replace(&mut command, program()), &["no base", "spate backup base"]);
    vault.base(&[]);
    fs::create_dir(&to).unwrap();
    fs::write(to.join("something"), "x").unwrap();
    fails(vault.restore_command(&["--to", path_of(&to)]), &["not empty"]);
    assert!(to.join("something").exists());
    fails(
        vault.restore_command(&["--to", path_of(&vault.path("other")), "--until", "time:2099-01-01T00:00:00Z"]),
        &["no binlogs", "spate backup archive"],
    );
    // Without a binlog, the base alone.
    fs::remove_dir_all(&to).unwrap();
    let (restored, server) = vault.restore(&[]);
    assert!(restored["warnings"][0].as_str().unwrap().contains("the base itself"), "{restored}");
    assert_eq!(orders(&server), "0 0 0");
}

/// The clone plugin would make them empty.
#[test]
fn tables_that_a_clone_would_lose_are_refused_mysql() {
    let vault = Vault::of(Kind::Mysql);
    vault
        .source
        .sql("CREATE DATABASE shop; CREATE TABLE shop.old (id INT) ENGINE=MyISAM; INSERT INTO shop.old VALUES (1)");
    fails(vault.base_command(&[]), &["shop.old (MyISAM)", "--method snapshot"]);
}

/// Another server's base with the same numbers, of another server id: its GTIDs are not in the binlog.
#[test]
fn a_base_of_a_server_with_another_id_is_refused() {
    let (one, other) = (Vault::with(Kind::Mariadb, &["--server-id=5"]), Vault::of(Kind::Mariadb));
    for vault in [&one, &other] {
        vault.source.sql(TABLES);
    }
    (0..3).for_each(|id| order(&one.source, id));
    (10..20).for_each(|id| order(&other.source, id));
    base_and_archive_do_not_fit(&one, &other, "0-5-");
}

#[test]
fn tables_that_cannot_be_copied_as_they_are_are_refused() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE h (id INT PRIMARY KEY, n INT) ENGINE=InnoDB WITH SYSTEM VERSIONING; \
         INSERT INTO h VALUES (1, 1); UPDATE h SET n = 2; \
         CREATE TABLE odd (id INT PRIMARY KEY, u UUID, i INET6, e ENUM('', 'a')) ENGINE=InnoDB; \
         SET sql_mode = ''; INSERT INTO odd VALUES (1, '123e4567-e89b-12d3-a456-426655440000', '::1', 'nonsense'), (2, NULL, NULL, '')",
    );
    vault.base(&[]);
    let server = format!("{ACCOUNT}@127.0.0.1:{}", vault.source.port);
    let only = |table: &str| {
        vault.restore_command(&["--only", table, "--server", &server, "--work", path_of(vault.directory.path())])
    };
    fails(only("shop.h"), &["shop`.`h", "system-versioned"]);
    json(only("shop.odd"));
    let rows = |table: &str| vault.source.sql(&format!("SELECT id, u, i, e + 0 FROM shop.{table} ORDER BY id"));
    assert_eq!(rows("odd_restored"), rows("odd"));
    assert!(rows("odd").contains("::1\t0"), "{}", rows("odd"));
}

/// A binlog that was begun only after the base was made is another history, also where no GTIDs tell.
#[test]
fn a_history_that_was_begun_later_is_refused_mysql() {
    let vault = Vault::with(Kind::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]);
    vault.source.sql(TABLES);
    let base = vault.base(&[]);
    assert_eq!(base["position"]["gtid"], "", "{base}");
    order(&vault.source, 1);
    let data = vault.source.data_directory();
    let (_, server) = vault.restore(&["--archive", path_of(&data), "--base-name", "source"]);
    assert_eq!(orders(&server), "1 1 1");
    drop(server);
    std::thread::sleep(Duration::from_secs(2));
    vault.source.sql("RESET BINARY LOGS AND GTIDS");
    (2..9).for_each(|id| order(&vault.source, id));
    let to = vault.path("restored");
    fails(
        vault.restore_command(&[
            "--to",
            path_of(&to),
            "--archive",
            path_of(&vault.source.data_directory()),
            "--base-name",
            "source",
        ]),
        &["of another server", "begun only after"],
    );
}
