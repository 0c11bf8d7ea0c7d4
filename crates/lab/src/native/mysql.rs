//! MySQL's own replication, by GTID sets.

use super::Dialect;
use crate::Result;
use crate::contender::NativeMode;
use crate::sandbox::ACCOUNT;
use crate::sql::Session;

pub(super) struct MySql;

impl Dialect for MySql {
    fn set_appliers(&self, threads: u32, mode: NativeMode) -> Vec<String> {
        vec![
            format!("SET GLOBAL replica_parallel_workers = {threads}"),
            format!("SET GLOBAL replica_preserve_commit_order = {}", u8::from(mode != NativeMode::Free)),
        ]
    }

    fn name_source(&self, port: u16, password: &str) -> String {
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = '{ACCOUNT}',
             SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_PASSWORD = '{password}'"
        )
    }

    fn delay(&self, seconds: u32) -> String {
        format!("CHANGE REPLICATION SOURCE TO SOURCE_DELAY = {seconds}")
    }

    fn start_receiver(&self) -> &'static str {
        "START REPLICA IO_THREAD"
    }

    fn start(&self) -> &'static str {
        "START REPLICA"
    }

    fn stop(&self) -> &'static str {
        "STOP REPLICA"
    }

    fn status(&self) -> &'static str {
        "SHOW REPLICA STATUS"
    }

    fn running_columns(&self) -> [&'static str; 2] {
        ["Replica_SQL_Running", "Replica_IO_Running"]
    }

    fn received_column(&self) -> &'static str {
        "Retrieved_Gtid_Set"
    }

    /// The status shows only transactions received since the last reset; the replica had the others before.
    fn has_received(&self, session: &mut Session, received: &str, end: &str) -> Result<bool> {
        session.value(&format!("SELECT GTID_SUBSET('{end}', CONCAT(@@GLOBAL.gtid_executed, ',', '{received}'))"))
    }

    fn wait(&self, end: &str, seconds: f64) -> String {
        format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{end}', {seconds})")
    }
}
