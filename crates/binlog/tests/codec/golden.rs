//! The dump of each file that MariaDB 10.11 wrote must equal the dump that a person checked.

use spate_binlog::{EventType, GtidEvent};

use crate::dump::dump;
use crate::events::read;
use crate::mirror::assert_boundaries;
use crate::scenario::{SCENARIOS, data_path, fixture, is_updating};

#[test]
fn every_fixture_dumps_as_its_golden_text() {
    for scenario in SCENARIOS {
        let path = data_path(&format!("{}.txt", scenario.name));
        let dumped = dump(&fixture(scenario.name));
        if is_updating() {
            std::fs::write(&path, &dumped).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        for (number, (dumped, golden)) in dumped.lines().zip(golden.lines()).enumerate() {
            assert_eq!(dumped, golden, "{}, line {}", path.display(), number + 1);
        }
        assert_eq!(dumped.lines().count(), golden.lines().count(), "{}", path.display());
    }
}

#[test]
fn boundaries_alternate_in_every_fixture() {
    for scenario in SCENARIOS {
        assert_boundaries(&read(&fixture(scenario.name)));
    }
}

/// Without this test, a fixture could lose the events that it is meant to show, and all other tests would still pass.
#[test]
fn fixtures_hold_every_event_that_mariadb_writes() {
    let mut missing = vec![
        EventType::QUERY,
        EventType::ROTATE,
        EventType::INTVAR,
        EventType::RAND,
        EventType::USER_VAR,
        EventType::FORMAT_DESCRIPTION,
        EventType::XID,
        EventType::BEGIN_LOAD_QUERY,
        EventType::EXECUTE_LOAD_QUERY,
        EventType::TABLE_MAP,
        EventType::WRITE_ROWS_V1,
        EventType::UPDATE_ROWS_V1,
        EventType::DELETE_ROWS_V1,
        EventType::XA_PREPARE,
        EventType::ANNOTATE_ROWS,
        EventType::BINLOG_CHECKPOINT,
        EventType::GTID_MARIADB,
        EventType::GTID_LIST,
        EventType::QUERY_COMPRESSED,
        EventType::WRITE_ROWS_COMPRESSED_V1,
        EventType::UPDATE_ROWS_COMPRESSED_V1,
        EventType::DELETE_ROWS_COMPRESSED_V1,
    ];
    let mut flags_missing = GtidEvent::STANDALONE
        | GtidEvent::TRANSACTIONAL
        | GtidEvent::ALLOW_PARALLEL
        | GtidEvent::DDL
        | GtidEvent::PREPARED_XA
        | GtidEvent::COMPLETED_XA
        | GtidEvent::GROUP_COMMIT_ID;
    for scenario in SCENARIOS {
        for event in read(&fixture(scenario.name)) {
            missing.retain(|&event_type| event_type != event.header.event_type);
            if event.header.event_type == EventType::GTID_MARIADB {
                flags_missing &= !GtidEvent::parse_mariadb(event.header.server_id, &event.body).unwrap().flags;
            }
        }
    }
    assert_eq!(missing, []);
    assert_eq!(flags_missing, 0, "{flags_missing:#x}");
}
