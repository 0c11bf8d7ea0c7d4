//! The archive's disk: bytes that change, and a disk that is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::program::damage;
use crate::support::{Kind, Site, wait_until};

const TABLE: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)";

#[test]
fn archive_with_changed_byte_stops_at_its_place() {
    let site = Site::plain();
    site.both(TABLE);
    for id in 0..50 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('v', 200))"));
    }
    site.source.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (1000, 'later')");
    site.fetch(&["--start", "earliest"]);
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

/// Without checksums of events, what was damaged in a compressed transaction shows when it is unpacked.
#[test]
fn damaged_compressed_transaction_is_named() {
    let options = ["--binlog-transaction-compression=ON", "--binlog-checksum=NONE"];
    let site = Site::between((Kind::Mysql, &options), (Kind::Mysql, &[]));
    site.source.sql(TABLE);
    for id in 0..5 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('v', 2000))"));
    }
    site.fetch(&["--start", "earliest"]);
    let file = site.archive().join("source.000001");
    let frames: Vec<u64> = frames_in(&fs::read(&file).unwrap());
    assert_eq!(frames.len(), 5, "each transaction is compressed");
    // Of the fourth row.
    damage(&file, frames[3], |byte| byte ^ 0x10);
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&[":6", "source.000001", "Transaction_payload"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "3", "{}", ended.output);
    damage(&file, frames[3], |byte| byte ^ 0x10);
    site.catch_up(&[]);
    site.assert_identical();
}

/// Where the payloads of compressed transactions begin.
fn frames_in(binlog: &[u8]) -> Vec<u64> {
    const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
    let starts = binlog.windows(4).enumerate().filter(|(_, window)| *window == ZSTD_MAGIC);
    starts.map(|(offset, _)| offset as u64).collect()
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

/// A site whose archive is on a small disk, of which most is taken; `None` if that cannot be had here.
fn site_on_a_small_disk<'a>(site: &Site, place: &'a Path) -> Option<(SmallDisk<'a>, PathBuf)> {
    site.both(TABLE);
    let disk = SmallDisk::mount(place)?;
    let ballast = disk.0.join("ballast");
    fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    Some((disk, ballast))
}

/// More than the disk has room for.
fn fill(site: &Site, from: u32) {
    for id in from..from + 30 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('v', 60000))"));
    }
}

fn wait_until_full(site: &Site) {
    site.wait_for_status("the intake to wait for space", |status| {
        status["intake"].as_str().is_some_and(|text| text.starts_with("waiting: no space left"))
    });
}

#[test]
fn full_disk_stops_only_the_intake() {
    let site = Site::plain();
    let place = site.archive();
    let Some((_disk, ballast)) = site_on_a_small_disk(&site, &place) else {
        eprintln!("skipped: only root may mount a small disk");
        return;
    };
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    site.wait_for_status("the program to receive", |status| status["intake"] == "receiving");
    fill(&site, 0);
    wait_until_full(&site);
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

#[test]
fn restart_on_full_disk_loses_nothing() {
    let site = Site::plain();
    let place = site.archive();
    let Some((disk, ballast)) = site_on_a_small_disk(&site, &place) else {
        eprintln!("skipped: only root may mount a small disk");
        return;
    };
    for (round, sync) in ["always", "interval", "os"].into_iter().enumerate() {
        fs::write(&ballast, vec![1; 3 << 20]).unwrap();
        let options = ["--start", "earliest", "--archive-sync", sync];
        let running = site.spawn(site.replicate(&options));
        site.wait_for_status("the program to receive", |status| status["intake"] == "receiving");
        fill(&site, 100 * round as u32);
        wait_until_full(&site);
        // Not a byte is left for whoever comes next.
        let _until_it_is_full = fs::write(disk.0.join("last"), vec![1; 4 << 20]);
        assert!(running.kill());
        let running = site.spawn(site.replicate(&options));
        wait_until("the next start to meet the full disk", || running.said().contains("no space left"));
        assert!(running.kill());
        let running = site.spawn(site.replicate(&options));
        wait_until("the one after to meet it", || running.said().contains("no space left"));
        fs::remove_file(disk.0.join("last")).unwrap();
        fs::remove_file(&ballast).unwrap();
        site.wait_applied();
        assert!(running.terminate().status.success());
        site.assert_identical();
        // All of it is applied; the next round begins with an empty archive.
        for entry in fs::read_dir(&place).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}
