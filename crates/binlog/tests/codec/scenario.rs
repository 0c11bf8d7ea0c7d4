//! The scenarios of these tests: SQL scripts under various settings of the binlog.

use std::path::PathBuf;

/// A script and the settings that it runs under; its binlog is kept as `tests/data/NAME.bin`.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    /// Global variables set before the script runs, in a session of their own.
    pub(crate) settings: &'static str,
    /// Statements that sessions of their own run at the same time after the script.
    pub(crate) together: &'static [&'static str],
}

const TYPES: &str = include_str!("../sql/types.sql");

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "types_full",
        script: TYPES,
        settings: "SET GLOBAL binlog_row_image = FULL, GLOBAL binlog_row_metadata = FULL",
        together: &[],
    },
    Scenario {
        name: "types_minimal",
        script: TYPES,
        settings: "SET GLOBAL binlog_row_image = MINIMAL, GLOBAL binlog_row_metadata = MINIMAL",
        together: &[],
    },
    Scenario {
        name: "types_noblob",
        script: TYPES,
        settings: "SET GLOBAL binlog_row_image = NOBLOB, GLOBAL binlog_row_metadata = NO_LOG",
        together: &[],
    },
    Scenario {
        name: "types_compressed",
        script: TYPES,
        settings: "SET GLOBAL binlog_row_metadata = FULL, GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10",
        together: &[],
    },
    Scenario { name: "statements", script: include_str!("../sql/statements.sql"), settings: "", together: &[] },
    Scenario {
        name: "statements_compressed",
        script: include_str!("../sql/statements.sql"),
        settings: "SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10",
        together: &[],
    },
    Scenario {
        name: "transactions",
        script: include_str!("../sql/transactions.sql"),
        settings: "SET GLOBAL binlog_commit_wait_count = 2, GLOBAL binlog_commit_wait_usec = 200000",
        together: &[
            "INSERT INTO transactions.t VALUES (30, 'group commit', 1, 2)",
            "INSERT INTO transactions.t VALUES (31, 'group commit', 1, 2)",
        ],
    },
    Scenario { name: "old_temporals", script: include_str!("../sql/old_temporals.sql"), settings: "", together: &[] },
    Scenario {
        name: "unchecked",
        script: include_str!("../sql/small.sql"),
        settings: "SET GLOBAL binlog_checksum = NONE",
        together: &[],
    },
];

/// Resets the settings of every scenario.
pub(crate) const DEFAULT_SETTINGS: &str = "SET GLOBAL binlog_row_image = FULL, GLOBAL binlog_row_metadata = NO_LOG, \
    GLOBAL log_bin_compress = OFF, GLOBAL log_bin_compress_min_len = 256, GLOBAL binlog_checksum = CRC32, \
    GLOBAL binlog_commit_wait_count = 0, GLOBAL binlog_commit_wait_usec = 100000";

pub(crate) fn data_path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file)
}

/// The binlog that a server once wrote for the scenario.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(data_path(&format!("{name}.bin"))).unwrap()
}

/// True if the files in `tests/data` are to be rewritten.
pub(crate) fn is_updating() -> bool {
    std::env::var_os("SPATE_UPDATE_GOLDEN").is_some_and(|value| value == "1")
}
