//! `spate verify` beside a running `spate replicate`.

use serde_json::Value;

use crate::support::writer::{TABLES, Writers};
use crate::support::{Ended, Kind, Site, wait_until};

fn report(ended: &Ended) -> Value {
    let start = ended.output.find('{').unwrap_or_else(|| panic!("no JSON: {}", ended.output));
    let mut values = serde_json::Deserializer::from_str(&ended.output[start..]).into_iter();
    values.next().unwrap().unwrap()
}

#[test]
fn verify_finds_tampering_under_a_live_load() {
    compare_under_load(Kind::Mariadb);
}

#[test]
fn verify_finds_tampering_under_a_live_load_on_mysql() {
    compare_under_load(Kind::Mysql);
}

fn compare_under_load(kind: Kind) {
    let site = Site::of(kind);
    site.source.sql(TABLES);
    let writers = Writers::start(&site.source, 2, 11);
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    wait_until("rows to compare", || site.source.sql("SELECT COUNT(*) > 100 FROM busy.journal") == "1");
    site.wait_for_status("batches", |status| status["batches"].as_u64() > Some(5));
    for _ in 0..3 {
        let ended = site.run(site.command("verify", &["--json"]));
        assert_eq!(ended.status.code(), Some(0), "{}", ended.output);
        let report = report(&ended);
        assert_eq!(report["position"]["is_exact"], true, "{report}");
        assert!(report["rows_compared"].as_u64() > Some(100), "{report}");
    }
    let before = site.status()["transactions"].as_u64();
    site.wait_for_status("replication to go on", |status| status["transactions"].as_u64() > before);
    let sent = writers.stop();
    assert!(sent > 100, "{sent}");
    site.wait_applied();
    site.replica.sql("UPDATE busy.journal SET writer = 77 ORDER BY id LIMIT 1");
    let ended = site.run(site.command("verify", &["--json"]));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    let report = report(&ended);
    let tables = report["tables"].as_array().unwrap();
    let differing = tables.iter().filter(|table| !table["verdict"].to_string().to_lowercase().contains("identical"));
    assert_eq!(differing.map(|table| table["table"].as_str().unwrap()).collect::<Vec<_>>(), ["journal"], "{report}");
    assert!(running.terminate().status.success());
}
