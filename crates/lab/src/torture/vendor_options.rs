//! Options of the servers of a torture, by vendor: small, so that they start fast, and drawn from the seed where they
//! decide how the source logs.

use super::feature::{Feature, FeatureSet};
use super::pair::Pair;
use crate::binlog_format::Format;
use crate::random::Random;
use crate::server_options::ServerOptions;
use crate::vendor::Vendor;

/// MySQL executes the actions of foreign keys either in the engine, or above it and then logs them. Source and
/// replica must do the same. (Before 9.6 the engine alone does it, and there is no such option.)
pub(super) const FOREIGN_KEYS_IN_ENGINE: &str = "loose-innodb-native-foreign-keys";

/// Settings that replace the vendors' different defaults between vendors.
const SHARED_COLLATION: &str = "utf8mb4_general_ci";

/// Options of every server. Options that change the effect of a statement and are not logged must be equal on all
/// servers, as an administrator would have it.
pub(super) fn common(vendor: Vendor, is_mixed: bool, server_id: u32) -> ServerOptions {
    let options = ServerOptions::base(vendor, server_id)
        .with("innodb-buffer-pool-size", "32M")
        .with_redo_log_mib(vendor, 8)
        .with("innodb-undo-log-truncate", 0)
        .with("key-buffer-size", "1M")
        .with("log-bin-trust-function-creators", 1)
        .with_replica_log(vendor, false)
        .with("max-connections", 40);
    let options = match vendor {
        Vendor::MariaDb => {
            options.with("aria-pagecache-buffer-size", "8M").with("system-versioning-alter-history", "KEEP")
        }
        // One worker, as MariaDB has it, so that native replication is as simple as it can be. With statistics the
        // server would renew histograms in the background, which wait for prepared XA transactions and keep definitions
        // waiting.
        Vendor::MySql => options
            .with("replica-parallel-workers", 1)
            .with("innodb-stats-auto-recalc", 0)
            .with("local-infile", 1)
            .with("information-schema-stats-expiry", 0),
    };
    if is_mixed { options.with("collation-server", SHARED_COLLATION) } else { options }
}

/// Further options of a replica. It soon notices a silent source. A replica of MySQL keeps no gap locks for
/// transactions that stay prepared: the source kept none, and other transactions would wait for them without end.
pub(super) fn of_replica(options: ServerOptions, vendor: Vendor) -> ServerOptions {
    const SECONDS: u32 = 10;
    match vendor {
        Vendor::MariaDb => options.with("slave-net-timeout", SECONDS),
        Vendor::MySql => options.with("replica-net-timeout", SECONDS).with("transaction-isolation", "READ-COMMITTED"),
    }
}

/// A statement that would have to wait for another session fails as soon as the server lets it: one driver drives all
/// sessions.
pub(super) fn without_waits(options: ServerOptions, vendor: Vendor) -> ServerOptions {
    let seconds = match vendor {
        Vendor::MariaDb => 0,
        Vendor::MySql => 1,
    };
    options.with("innodb-lock-wait-timeout", seconds).with("lock-wait-timeout", seconds)
}

/// Draws settings of replicas that affect every new session, but not replicated statements.
pub(super) fn unusual(random: &mut Random, vendor: Vendor) -> Vec<(String, String)> {
    const OF_BOTH: [(&str, &str); 10] = [
        ("auto-increment-increment", "3"),
        ("auto-increment-offset", "2"),
        ("lc-time-names", "de_DE"),
        ("default-time-zone", "+05:00"),
        ("sql-mode", "STRICT_ALL_TABLES,PIPES_AS_CONCAT,NO_ZERO_DATE,NO_AUTO_VALUE_ON_ZERO"),
        ("character-set-server", "utf8mb3"),
        ("explicit-defaults-for-timestamp", "0"),
        ("transaction-isolation", "SERIALIZABLE"),
        ("autocommit", "0"),
        ("completion-type", "CHAIN"),
    ];
    const OF_MARIADB: [(&str, &str); 3] =
        [("innodb-autoinc-lock-mode", "0"), ("old-mode", "NO_PROGRESS_INFO"), ("div-precision-increment", "7")];
    let mut options = random.some(&OF_BOTH, 40);
    if vendor == Vendor::MariaDb {
        options.extend(random.some(&OF_MARIADB, 30));
    }
    options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// MySQL's own replication scans a keyless table for a row, and waits without end at a row that an XA transaction has
/// locked and left prepared, which the source has passed over. So such seeds have keys everywhere.
pub(super) fn needs_keys(features: &FeatureSet) -> bool {
    features.has(Feature::Xa)
}

/// Draws how the source logs.
pub(super) fn draw(random: &mut Random, pair: Pair, format: Format, features: &FeatureSet) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let mut set = |name: &str, value: &str| options.push((name.to_owned(), value.to_owned()));
    set("binlog-row-image", random.word(&["FULL", "FULL", "MINIMAL", "NOBLOB"]));
    set("binlog-checksum", random.word(&["CRC32", "CRC32", "NONE"]));
    set("max-binlog-size", random.word(&["16384", "131072", "1048576", "1073741824"]));
    let says_statements = random.word(&["0", "1"]);
    let compresses = random.chance(35);
    match pair.source {
        Vendor::MariaDb => {
            set("binlog-annotate-row-events", says_statements);
            if compresses {
                set("log-bin-compress", "1");
                set("log-bin-compress-min-len", "10");
            }
        }
        Vendor::MySql => {
            set("binlog-rows-query-log-events", says_statements);
            set("binlog-transaction-compression", if compresses { "1" } else { "0" });
        }
    }
    let charset = random.word(&["utf8mb4", "utf8mb4", "latin1"]);
    if !pair.is_mixed() {
        set("character-set-server", charset);
    }
    if format != Format::Statement {
        set("innodb-autoinc-lock-mode", random.word(&["1", "2"]));
        // Statements lock no more than the rows that they change, so that more of them succeed.
        set("transaction-isolation", random.word(&["READ-COMMITTED", "READ-COMMITTED", "REPEATABLE-READ"]));
    }
    if features.has(Feature::Events) {
        set("event-scheduler", "ON");
    }
    if features.has(Feature::TwoPhaseAlter) && random.chance(70) {
        set("binlog-alter-two-phase", "1");
    }
    if pair.source == Vendor::MySql {
        set("binlog-row-metadata", random.word(&["MINIMAL", "FULL"]));
        set("binlog-row-value-options", random.word(&["", "PARTIAL_JSON"]));
        set(FOREIGN_KEYS_IN_ENGINE, random.word(&["0", "1"]));
        if needs_keys(features) {
            set("sql-generate-invisible-primary-key", "1");
            set("sql-require-primary-key", "1");
        }
    }
    options
}
