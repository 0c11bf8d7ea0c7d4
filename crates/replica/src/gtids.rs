//! The source's GTIDs on the replica: each transaction that Spate applies one to one has the GTID that it has on the source.

use spate_binlog::Gtid;
use spate_connection::Vendor;

/// MariaDB: the domain of what Spate writes by itself (its own schema), so that no number of it meets one of the source.
pub const OWN_DOMAIN: u32 = 0x5350_4154;

/// Whose GTIDs the replica's transactions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GtidKeeping {
    /// The replica's own.
    Own,
    /// The source's, which are of this vendor, as the replica is.
    Source(Vendor),
}

impl GtidKeeping {
    /// True if they are the source's.
    pub fn is_of_source(self) -> bool {
        self != GtidKeeping::Own
    }

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

    /// The statement behind a transaction with the source's GTID: what comes next is Spate's own. `None`: each has a GTID of the replica's own.
    pub fn end_sql(self) -> Option<String> {
        match self {
            GtidKeeping::Own => None,
            GtidKeeping::Source(Vendor::MariaDb) => {
                Some(format!("SET SESSION gtid_domain_id={OWN_DOMAIN},server_id=@@GLOBAL.server_id,gtid_seq_no=0"))
            }
            GtidKeeping::Source(Vendor::MySql) => Some("SET SESSION gtid_next='AUTOMATIC'".to_owned()),
        }
    }
}
