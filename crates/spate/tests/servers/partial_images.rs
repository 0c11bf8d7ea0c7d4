//! A source that logs only parts of rows.

use crate::support::Site;
use crate::support::writer::{TABLES, Writers};

/// Every column type; each table is filled, updated and emptied in part.
const TYPES: &str = include_str!("../../../binlog/tests/sql/types.sql");

#[test]
fn partial_images_of_all_types_are_folded() {
    for image in ["MINIMAL", "NOBLOB"] {
        let site = Site::new(&[&format!("--binlog-row-image={image}")], &[]);
        site.source.sql(TYPES);
        site.catch_up_from_earliest();
    }
}

#[test]
fn partial_images_of_a_busy_source_are_folded() {
    for (image, seed) in [("MINIMAL", 11), ("NOBLOB", 12)] {
        let site = Site::new(&[&format!("--binlog-row-image={image}")], &[]);
        site.source.sql(TABLES);
        let writers = Writers::start(&site.source, 3, seed);
        // Until then everything piles up, so that the first batch is a large one.
        crate::support::wait_until("a backlog", || {
            site.source.sql("SELECT COUNT(*) FROM busy.journal").parse::<u32>().unwrap() > 1500
        });
        let running = site.spawn(site.replicate(&["--start", "earliest"]));
        site.wait_for_status("batches among them", |status| status["batches"].as_u64() > Some(10));
        writers.stop();
        site.wait_applied();
        let status = site.status();
        assert!(!status["errors"].to_string().contains("ever smaller batches"), "{status}");
        assert!(running.terminate().status.success());
        site.assert_identical();
    }
}
