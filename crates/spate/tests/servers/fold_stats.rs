//! What `spate archive fold-stats` counts, against what the source has done.

use serde_json::Value;

use crate::support::program::program;
use crate::support::{Kind, Site};

fn fold_stats(site: &Site, batch_transactions: &str) -> Value {
    let mut command = program();
    command.args(["archive", "fold-stats", "--json", "--batch-transactions", batch_transactions]).arg(site.archive());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].take()
}

fn fold_stats_count(kind: Kind) {
    let site = Site::of(kind);
    site.source
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 0), (2, 0)");
    for value in 1..=20 {
        site.source.sql(&format!("UPDATE d.t SET v = {value} WHERE id = 1"));
    }
    // The definition is known only from the binlog, also after it has changed.
    site.source.sql("ALTER TABLE d.t ADD w VARCHAR(10)");
    for value in 1..=20 {
        site.source.sql(&format!("UPDATE d.t SET v = {value}, w = 'w' WHERE id = 2"));
    }
    site.fetch(&["--start", "earliest"]);
    // Two rows inserted, of which one is updated; the other then.
    let whole = fold_stats(&site, "0");
    assert_eq!((&whole["row_changes"], &whole["net_row_changes"]), (&42.into(), &3.into()), "{whole}");
    // CREATE DATABASE, CREATE TABLE, INSERT, ALTER TABLE and forty updates.
    assert_eq!(whole["transactions"], 44, "{whole}");
    let single = fold_stats(&site, "1");
    assert_eq!((&single["batches"], &single["net_row_changes"]), (&44.into(), &42.into()), "{single}");
    assert!(whole["archive_bytes"].as_u64() > whole["net_bytes"].as_u64(), "{whole}");
}

#[test]
fn fold_stats_of_an_archive_count_net_row_changes() {
    fold_stats_count(Kind::Mariadb);
}

#[test]
fn fold_stats_of_an_archive_count_net_row_changes_on_mysql() {
    fold_stats_count(Kind::Mysql);
}
