//! The archive's disk: bytes that change, and a disk that is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Site;
use crate::support::program::damage;

const TABLE: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)";

#[test]
fn a_changed_byte_is_found_and_named() {
    let site = Site::plain();
    site.both(TABLE);
    for id in 0..50 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('v', 200))"));
    }
    site.source.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (1000, 'later')");
    let mut fetch = crate::support::program::program();
    fetch.args(["archive", "fetch", "--start", "earliest", "--until", "caught-up", "--source"]);
    fetch.arg(format!("spate@127.0.0.1:{}", site.source.port)).arg("--archive").arg(site.archive());
    let ended = site.run(fetch);
    assert!(ended.status.success(), "{}", ended.output);
    let file = site.archive().join("source.000001");
    let middle = fs::metadata(&file).unwrap().len() / 2;
    damage(&file, middle, |byte| byte ^ 0x10);
    let ended = site.run(site.replicate(&["--start", "earliest"]));
    ended.assert_failed_saying(&["source.000001"]);
    let offsets = ended.output.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok());
    let mut near = offsets.filter(|offset| offset.abs_diff(middle) < 600);
    assert!(near.next().is_some(), "no offset near {middle}: {}", ended.output);
    let rows = site.replica.sql("SELECT COUNT(*) FROM d.t").parse::<u64>().unwrap();
    assert!(rows < 50, "{rows} rows came through");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t WHERE id = 1000"), "0");
}

/// A small disk in memory, unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(place: &Path) -> Option<SmallDisk<'_>> {
        fs::create_dir_all(place).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(place).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(SmallDisk(place))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _reported_by_the_system = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_stops_receiving_and_nothing_else() {
    let site = Site::plain();
    site.both(TABLE);
    let place = site.archive();
    let Some(disk) = SmallDisk::mount(&place) else {
        eprintln!("skipped: only root may mount a small disk");
        return;
    };
    let ballast = disk.0.join("ballast");
    fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    site.wait_for_status("the program to apply", |status| status["intake"] == "receiving");
    for id in 0..30 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('v', 60000))"));
    }
    let is_waiting =
        |status: &serde_json::Value| status["intake"].as_str().is_some_and(|text| text.starts_with("waiting"));
    site.wait_for_status("the intake to wait for space", is_waiting);
    site.wait_for_status("what was received to be applied", |status| {
        status["lag_transactions"] == 0 && status["transactions"].as_u64() > Some(0)
    });
    assert!(running.said().contains("no space left"), "{}", running.said());
    let applied = site.replica.sql("SELECT COUNT(*) FROM d.t").parse::<u32>().unwrap();
    assert!((1..30).contains(&applied), "{applied}");
    fs::remove_file(&ballast).unwrap();
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
}
