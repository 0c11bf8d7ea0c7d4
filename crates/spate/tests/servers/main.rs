//! The built program between real servers: what it survives, what it refuses, what it says.
//!
//! Each test has servers of its own, in directories of its own, on ports that the kernel gave.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

#[cfg(feature = "failpoints")]
mod abandoned_sessions;
mod analyze;
mod applied_as_a_replica;
mod archive_faults;
mod backup;
#[cfg(feature = "failpoints")]
mod beside_definitions;
mod beyond_transactions;
mod checks;
mod clocks;
mod comparison;
mod conflicts;
mod consistency;
mod conversions;
mod crashes;
mod differing_replica;
mod documents;
mod equal_to_native;
mod failover;
mod fold_stats;
mod following_promotions;
mod gtid_order;
mod hostile_texts;
mod keyless;
#[cfg(feature = "failpoints")]
mod kills;
#[cfg(feature = "failpoints")]
mod kills_of_definitions;
mod large;
mod large_rows;
mod letter_case;
mod lexing;
mod load;
mod load_traps;
mod locks;
mod logging;
mod logins;
mod many_tables;
mod mariadb_118;
mod mysql;
mod mysql_privileges;
mod networks;
#[cfg(feature = "failpoints")]
mod notes;
mod own_schema;
mod parallel;
mod partial_images;
mod pipelining;
mod prefetch;
mod prefetch_native;
mod privileges;
mod refusals;
mod rejoining;
mod replay;
mod replay_outputs;
mod replay_safety;
mod replay_sessions;
mod retention;
mod rings;
mod secrets;
mod sequences;
mod session_defaults;
mod session_variables;
mod sessions_of_rows;
mod shapes;
mod shards;
mod shards_altered;
mod skipping;
mod sql_dialect;
mod start_and_end;
mod statements;
#[cfg(feature = "failpoints")]
mod stopping_points;
mod support;
mod table_maps;
mod takeover;
mod temporary_tables;
mod transactions;
mod unusual_globals;
mod vendors;
mod versioned;
mod watching;
