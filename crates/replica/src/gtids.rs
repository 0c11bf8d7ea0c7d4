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

    /// The statement before a transaction that gives it this GTID. `None`: it has one of the replica's own.
    pub fn begin_sql(self, gtid: Option<Gtid>) -> Option<String> {
        match (self, gtid?) {
            (GtidKeeping::Source(Vendor::MariaDb), Gtid::MariaDb(gtid)) => Some(format!(
                "SET SESSION gtid_domain_id={},server_id={},gtid_seq_no={}",
                gtid.domain_id, gtid.server_id, gtid.sequence
            )),
            (GtidKeeping::Source(Vendor::MySql), gtid @ Gtid::MySql(_)) => {
                Some(format!("SET SESSION gtid_next='{gtid}'"))
            }
            _ => None,
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
