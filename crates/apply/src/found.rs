//! What a session finds on the replica before it begins.

use std::collections::BTreeSet;

use spate_binlog::{Gtid, MariaDbGtid};
use spate_connection::{Connection, Vendor};
use spate_replica::dialect::Collations;
use spate_replica::gtids::{self, GtidKeeping};
use spate_replica::others::Others;
use spate_replica::{Result, catalog, temporary, told_defaults};
use spate_schedule::BatchBuilder;
use spate_schedule::temporary::TemporaryTable;

use crate::plan::{Parallel, SessionPlan};
use crate::sessions::Logging;

/// What a session finds on the replica before it begins.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The replica's limit of a packet, in bytes.
    pub(crate) max_allowed_packet: usize,
    pub(crate) collations: Collations,
    /// How the replica logs what is applied.
    pub(crate) logging: Logging,
    /// Copies of the source's temporary tables, which earlier sessions have kept.
    pub(crate) temporary_tables: BTreeSet<TemporaryTable>,
    /// What the source said last of `explicit_defaults_for_timestamp`: see `told_defaults.rs`. `None`: nothing yet.
    pub(crate) told_defaults: Option<bool>,
    /// Transactions can have the source's GTIDs, and are to have them.
    has_gtids: bool,
    /// MariaDB: the last GTIDs in the replica's binlog, of each domain and server.
    logged: Vec<MariaDbGtid>,
    /// There are tables that are system-versioned by transactions.
    numbers_transactions: bool,
}

impl Found {
    /// Asks the replica, over the session that will apply. `keeps_gtids`: transactions are to keep the source's GTIDs. `has_spread`: some are applied
    /// ahead of others, so that a number in the binlog says nothing of the smaller ones.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn ask(connection: &mut Connection, keeps_gtids: bool, has_spread: bool) -> Result<Found> {
        const PACKET_BYTES: usize = 16 << 20;
        let (has_gtids, logged) = match connection.server_version().vendor {
            _ if !keeps_gtids => (false, vec![]),
            Vendor::MariaDb if has_spread => (true, vec![]),
            Vendor::MariaDb => (true, gtids::logged(connection)?),
            Vendor::MySql => {
                let mode = connection.query("SELECT @@GLOBAL.gtid_mode")?.single_text();
                (mode.as_deref() == Some("ON"), vec![])
            }
        };
        let packet = connection.query("SELECT @@max_allowed_packet")?.single_text();
        Ok(Found {
            max_allowed_packet: packet.and_then(|text| text.parse().ok()).unwrap_or(PACKET_BYTES),
            collations: Collations::read(connection)?,
            logging: Logging::ask(connection)?,
            temporary_tables: temporary::kept(connection)?,
            told_defaults: told_defaults::resume(connection)?,
            has_gtids,
            logged,
            numbers_transactions: catalog::has_versions_by_transactions(connection)?,
        })
    }

    /// Whose GTIDs the transactions of a session with this plan have on the replica, which is of this vendor. On MySQL, a transaction has one, and
    /// those of the others that it holds would be missing for ever.
    pub(crate) fn gtids(&self, plan: &SessionPlan, vendor: Vendor) -> GtidKeeping {
        let is_possible = |parallel: &Parallel| {
            self.logging.is_on && self.has_gtids && (vendor == Vendor::MariaDb || parallel.group == 1)
        };
        match plan.parallel.as_ref().is_some_and(is_possible) {
            true => GtidKeeping::Source(vendor),
            false => GtidKeeping::Own,
        }
    }

    /// True if the replica's binlog had the GTID when the session began: what it is of was begun before, and could not be rolled back.
    pub(crate) fn has_logged(&self, gtid: Gtid) -> bool {
        let Gtid::MariaDb(gtid) = gtid else { return false };
        let is_behind = |logged: &MariaDbGtid| {
            (logged.domain_id, logged.server_id) == (gtid.domain_id, gtid.server_id) && logged.sequence >= gtid.sequence
        };
        self.logged.iter().any(is_behind)
    }

    /// The same for one of several appliers: nothing but rows comes there.
    pub(crate) fn of_share(&self) -> Found {
        Found { temporary_tables: BTreeSet::new(), logged: vec![], ..self.clone() }
    }

    /// A builder that begins with it.
    pub(crate) fn builder(&self, plan: &SessionPlan, others: &Others<'_>) -> BatchBuilder {
        let mut builder = BatchBuilder::new();
        if plan.one_by_one {
            builder.never_fold();
        }
        if plan.parallel.is_some() {
            builder.keep_transactions_apart();
        }
        builder.treat_events(plan.events);
        others.ways().tell(&mut builder);
        builder.begin_with_defaults(self.told_defaults);
        builder.begin_with(self.temporary_tables.iter().filter(|table| !table.is_unnamed()).cloned().collect());
        if self.numbers_transactions {
            builder.number_transactions();
        }
        builder
    }
}
