//! Bases of replicas, and replicas made of bases.

use spate_lab::vendor::Vendor;

use super::{TABLES, Vault, fails, json, order, orders, path_of, succeeds};
use crate::support::server::ACCOUNT;
use crate::support::{Kind, Server};

fn a_server_that_holds_the_base_becomes_a_replica(kind: Kind) {
    let vault = Vault::of(kind);
    vault.source.sql(TABLES);
    order(&vault.source, 1);
    let base = vault.base(&[]);
    let (_, server) = vault.restore(&[]);
    (2..6).for_each(|id| order(&vault.source, id));
    vault.ship(&[]);
    let endpoint = format!("{ACCOUNT}@127.0.0.1:{}", server.port);
    let at_replica = |options: &[&str]| {
        let mut command = vault.restore_command(&[&["--replica", &endpoint], options].concat());
        server.allow_password(&mut command, "replica");
        command
    };
    // MySQL's own gtid_executed shows that it holds the base.
    if kind.vendor() == Vendor::MariaDb {
        fails(at_replica(&[]), &["--base"]);
        json(at_replica(&["--base", base["id"].as_str().unwrap()]));
    } else {
        json(at_replica(&[]));
    }
    assert_eq!(orders(&server), "5 5 5");
    order(&vault.source, 6);
    vault.ship(&[]);
    let again = json(at_replica(&[]));
    assert_eq!((orders(&server).as_str(), &again["transactions"]), ("6 6 6", &1.into()));
}

#[test]
fn a_server_that_holds_the_base_becomes_a_replica_mariadb() {
    a_server_that_holds_the_base_becomes_a_replica(Kind::Mariadb);
}

#[test]
fn a_server_that_holds_the_base_becomes_a_replica_mysql() {
    a_server_that_holds_the_base_becomes_a_replica(Kind::Mysql);
}

/// A replica of Spate's says in its own checkpoint where it stands in its source's binlog; its own file names and GTIDs mean nothing there.
#[test]
fn a_base_of_a_replica_serves() {
    let vault = Vault::of(Kind::Mariadb);
    vault.source.sql(TABLES);
    (0..5).for_each(|id| order(&vault.source, id));
    // Both have the same names of files, as servers with the same settings have.
    let replica = Server::replica(Kind::Mariadb, &["--log-bin=source", "--server-id=2"]);
    let catch_up = || {
        let mut command = vault.command(&["replicate", "--start", "earliest", "--until", "caught-up", "--archive"]);
        command.arg(vault.path("archive")).arg("--replica").arg(format!("{ACCOUNT}@127.0.0.1:{}", replica.port));
        succeeds(vault.at_source(command));
    };
    catch_up();
    let mut base = vault.command(&["backup", "base", "--json", "--target", path_of(&vault.target())]);
    base.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", replica.port));
    json(base);
    (5..9).for_each(|id| order(&vault.source, id));
    catch_up();
    json(vault.ship_command(&[]));
    let (restored, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "9 9 9", "{restored}");
    assert_eq!(restored["transactions"], 4, "{restored}");
    assert!(restored["warnings"][0].as_str().unwrap().contains("checkpoint"), "{restored}");
}

/// The servers' own replication keeps the source's GTIDs, in files of the replica's own.
fn a_base_of_a_native_replica_serves(kind: Kind) {
    let vault = Vault::of(kind);
    let log = match kind.vendor() {
        Vendor::MariaDb => "--log-slave-updates",
        Vendor::MySql => "--log-replica-updates",
    };
    let replica = Server::replica(kind, &["--log-bin=source", log, "--server-id=2"]);
    if kind.vendor() == Vendor::MySql {
        replica.sql("SET sql_log_bin = 0; INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    }
    replica.follow(&vault.source);
    vault.source.sql(TABLES);
    // Its files are longer or shorter than the source's, so that offsets differ.
    replica.sql("FLUSH LOGS; FLUSH LOGS");
    (0..5).for_each(|id| order(&vault.source, id));
    replica.wait_followed(&vault.source.position());
    let mut base = vault.command(&["backup", "base", "--json", "--target", path_of(&vault.target())]);
    base.arg("--programs").arg(vault.programs()).arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", replica.port));
    replica.allow_password(&mut base, "source");
    json(base);
    (5..9).for_each(|id| order(&vault.source, id));
    vault.source.sql("FLUSH LOGS; FLUSH LOGS; FLUSH LOGS");
    (9..11).for_each(|id| order(&vault.source, id));
    vault.ship(&[]);
    let (restored, server) = vault.restore(&[]);
    assert_eq!(orders(&server), "11 11 11", "{restored}");
    assert_eq!(restored["transactions"], 6, "{restored}");
}

#[test]
fn a_base_of_a_native_replica_serves_mariadb() {
    a_base_of_a_native_replica_serves(Kind::Mariadb);
}

#[test]
fn a_base_of_a_native_replica_serves_mysql() {
    a_base_of_a_native_replica_serves(Kind::Mysql);
}
