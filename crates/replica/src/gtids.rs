//! The source's GTIDs on the replica: each transaction that Spate applies one to one has the GTID that it has on the source.

use spate_binlog::{Gtid, MariaDbGtid};
use spate_connection::{Connection, Vendor};

use crate::error::Result;

/// MariaDB: no two replicas have the same domain for what Spate writes by itself, since they may replicate from each other.
const OWN_DOMAIN: u32 = 0x5350_4154;

/// MariaDB: the domain of what Spate writes by itself (its own schema) on the replica with this server id, so that no number of it meets one of
/// the source.
pub fn own_domain(server_id: u32) -> u32 {
    OWN_DOMAIN ^ server_id
}

/// MariaDB: the last GTIDs in the server's binlog, of each domain and server; none if it has no binlog.
///
/// # Errors
/// Any error of the connection.
pub fn logged(connection: &mut Connection) -> Result<Vec<MariaDbGtid>> {
    let state = connection.query("SELECT @@GLOBAL.gtid_binlog_state")?.single_text().unwrap_or_default();
    Ok(state.split(',').filter_map(|gtid| gtid.trim().parse().ok()).collect())
}

/// Whose GTIDs the replica's transactions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GtidKeeping {
    /// The replica's own.
    Own,
    /// The source's, which are of this vendor, as the replica is.
    Source(Vendor),
}

impl GtidKeeping {
    /// The statements before a transaction that give it this GTID; none if it has one of the replica's own. MariaDB compares the number with those
    /// of the domain that the session has before the statement, so it has a statement of its own.
    pub fn begin_sql(self, gtid: Option<Gtid>) -> Vec<String> {
        match (self, gtid) {
            (GtidKeeping::Source(Vendor::MariaDb), Some(Gtid::MariaDb(gtid))) => vec![
                format!("SET SESSION gtid_domain_id={},server_id={}", gtid.domain_id, gtid.server_id),
                format!("SET SESSION gtid_seq_no={}", gtid.sequence),
            ],
            (GtidKeeping::Source(Vendor::MySql), Some(gtid @ Gtid::MySql(_))) => {
                vec![format!("SET SESSION gtid_next='{gtid}'")]
            }
            _ => vec![],
        }
    }

    /// The same in a session whose last transaction had the GTID `before`.
    pub fn next_sql(self, gtid: Option<Gtid>, before: Option<Gtid>) -> Vec<String> {
        let mut statements = self.begin_sql(gtid);
        if let (Some(Gtid::MariaDb(gtid)), Some(Gtid::MariaDb(before))) = (gtid, before)
            && (gtid.domain_id, gtid.server_id) == (before.domain_id, before.server_id)
            && !statements.is_empty()
        {
            statements.remove(0);
        }
        statements
    }

    /// The statement behind what may have been logged by itself: if it has used up the GTID, what comes next is Spate's own. Else the server of
    /// MariaDB would give that the source's next GTID. (A server of MySQL refuses it, as one of MariaDB refuses this within a transaction.)
    pub fn end_if_used_sql(self) -> Option<String> {
        let end = self.end_sql().filter(|_| self == GtidKeeping::Source(Vendor::MariaDb))?;
        Some(format!("BEGIN NOT ATOMIC IF @@SESSION.gtid_seq_no=0 THEN {end}; END IF; END"))
    }

    /// The statement behind a transaction with the source's GTID: what comes next is Spate's own. `None`: each has a GTID of the replica's own.
    pub fn end_sql(self) -> Option<String> {
        match self {
            GtidKeeping::Own => None,
            GtidKeeping::Source(Vendor::MariaDb) => {
                const OWN: &str = "server_id=@@GLOBAL.server_id,gtid_seq_no=0";
                Some(format!("SET SESSION gtid_domain_id={OWN_DOMAIN}^@@GLOBAL.server_id,{OWN}"))
            }
            GtidKeeping::Source(Vendor::MySql) => Some("SET SESSION gtid_next='AUTOMATIC'".to_owned()),
        }
    }
}
