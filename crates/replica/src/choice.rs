//! Which dialect row changes are written in: replay wherever it is possible, since it is faster and takes whatever the source
//! has; SQL for replicas of another vendor, and for accounts that may not replay.

use spate_binlog::FormatDescription;

use crate::error::{Error, Result};
use crate::status::Status;
use spate_connection::Vendor;

/// How row changes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The source's row images, replayed.
    Replay,
    /// SQL statements.
    Sql,
}

/// Which dialect is wanted; `None` is the best that source and replica allow.
pub type WantedDialect = Option<Dialect>;

/// The vendor of the server whose binlog begins with this.
pub fn vendor_of(format: &FormatDescription) -> Vendor {
    if format.is_mariadb() { Vendor::MariaDb } else { Vendor::MySql }
}

/// All that the choice depends on, but for the source's vendor, which the binlog tells.
#[derive(Debug, Clone)]
pub struct DialectChoice {
    /// The dialect that a person asked for.
    pub wanted: WantedDialect,
    /// The account has the privilege to replay.
    pub may_replay: bool,
    /// It sees every trigger.
    pub sees_triggers: bool,
    /// The replica's vendor.
    pub replica: Vendor,
    /// The replica, for messages.
    pub peer: String,
}

impl DialectChoice {
    /// The dialect for rows of a source of this vendor.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if replay was asked for and cannot be; [`Error::Privilege`] names the GRANT that is missing.
    pub fn choose(&self, source: Vendor) -> Result<Dialect> {
        let is_same = source == self.replica;
        let best = if is_same && self.may_replay { Dialect::Replay } else { Dialect::Sql };
        let dialect = self.wanted.unwrap_or(best);
        match dialect {
            Dialect::Replay if !is_same => {
                let why = "it cannot replay row events of the other vendor: use --dialect sql, or auto".to_owned();
                Err(Error::Unsuitable { peer: self.peer.clone(), why })
            }
            Dialect::Replay if !self.may_replay => {
                let wanted = self.replay_privilege();
                Err(self.missing("replay row changes", wanted))
            }
            // Nobody asked for statements: the lesser privilege is the better one.
            Dialect::Sql if !self.sees_triggers && self.wanted.is_none() && is_same => {
                let wanted = self.replay_privilege();
                Err(self.missing("replay row changes", wanted))
            }
            // A trigger that is not shown would fire.
            Dialect::Sql if !self.sees_triggers => {
                Err(self.missing("see the triggers that statements would fire", "TRIGGER"))
            }
            dialect => Ok(dialect),
        }
    }

    /// The same before the source's vendor is known: what would be missing for a source of the replica's own.
    ///
    /// # Errors
    /// As [`DialectChoice::choose`].
    pub(crate) fn check(&self) -> Result<()> {
        self.choose(self.replica).map(drop)
    }

    /// Says which dialect it is, and why, if nobody asked for it.
    pub fn say(&self, dialect: Dialect, source: Vendor, status: &Status) {
        let why = match dialect {
            _ if self.wanted.is_some() => None,
            Dialect::Replay => None,
            Dialect::Sql if source != self.replica => {
                Some("rows are written as SQL statements: source and replica are of different vendors".to_owned())
            }
            Dialect::Sql => Some(format!(
                "rows are written as SQL statements, since the account may not replay them: GRANT {} ON *.*, and it is faster",
                self.replay_privilege()
            )),
        };
        status.dialect(if dialect == Dialect::Replay { "replay" } else { "sql" }, why.as_deref());
    }

    /// The least privilege that allows replay.
    pub fn replay_privilege(&self) -> &'static str {
        match self.replica {
            Vendor::MariaDb => "BINLOG REPLAY",
            Vendor::MySql => "REPLICATION_APPLIER",
        }
    }

    fn missing(&self, action: &'static str, wanted: &str) -> Error {
        Error::Privilege {
            peer: self.peer.clone(),
            action,
            message: format!("the account lacks {wanted}, says SHOW GRANTS"),
            grant: format!("GRANT {wanted} ON *.* TO <the user of Spate>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_is_replay_where_vendor_and_privileges_allow() {
        use Dialect::{Replay, Sql};
        use Vendor::{MariaDb, MySql};
        for (wanted, may_replay, sees_triggers, source, expected) in [
            (None, true, false, MariaDb, Some(Replay)),
            (None, true, true, MySql, Some(Sql)),
            (None, true, false, MySql, None),
            (None, false, true, MariaDb, Some(Sql)),
            (None, false, false, MariaDb, None),
            (Some(Sql), true, true, MariaDb, Some(Sql)),
            (Some(Sql), true, false, MariaDb, None),
            (Some(Replay), true, true, MySql, None),
            (Some(Replay), false, true, MariaDb, None),
            (Some(Replay), true, false, MariaDb, Some(Replay)),
        ] {
            let choice = DialectChoice { wanted, may_replay, sees_triggers, replica: MariaDb, peer: String::new() };
            assert_eq!(choice.choose(source).ok(), expected, "{choice:?} for {source:?}");
        }
    }
}
