//! MariaDB's own replication.

use super::Dialect;
use crate::Result;
use crate::contender::NativeMode;
use crate::sandbox::ACCOUNT;
use crate::sql::Session;

pub(super) struct MariaDb;

impl Dialect for MariaDb {
    fn set_appliers(&self, threads: u32, mode: NativeMode) -> Vec<String> {
        vec![
            format!("SET GLOBAL slave_parallel_threads = {threads}"),
            format!("SET GLOBAL slave_parallel_mode = '{mode}'"),
        ]
    }

    fn name_source(&self, port: u16, password: &str) -> String {
        format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = '{ACCOUNT}',
             MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_PASSWORD = '{password}'"
        )
    }

    fn delay(&self, seconds: u32) -> String {
        format!("CHANGE MASTER TO MASTER_DELAY = {seconds}")
    }

    fn start_receiver(&self) -> &'static str {
        "START SLAVE IO_THREAD"
    }

    fn start(&self) -> &'static str {
        "START SLAVE"
    }

    fn stop(&self) -> &'static str {
        "STOP SLAVE"
    }

    fn status(&self) -> &'static str {
        "SHOW SLAVE STATUS"
    }

    fn running_columns(&self) -> [&'static str; 2] {
        ["Slave_SQL_Running", "Slave_IO_Running"]
    }

    fn received_column(&self) -> &'static str {
        "Gtid_IO_Pos"
    }

    fn has_received(&self, _session: &mut Session, received: &str, end: &str) -> Result<bool> {
        Ok(received == end)
    }

    fn wait(&self, end: &str, seconds: f64) -> String {
        format!("SELECT MASTER_GTID_WAIT('{end}', {seconds})")
    }
}
