//! How a comparison and an applier meet at one position while the source is live.
//!
//! A source cannot be read at an old position, and a replica that is being applied to does not stand still. So the
//! comparison asks the applier to wait for it, through the one row of the table `spate.hold` on the replica:
//!
//! | | verify | applier |
//! | --- | --- | --- |
//! | 1 | writes "stop now" | |
//! | 2 | | finishes the batch in flight, starts none, acknowledges |
//! | 3 | takes its snapshots of the source, at P; P cannot be behind the applier, which stands still | |
//! | 4 | writes "until P" | applies up to P and nothing beyond |
//! | 5 | sees P in the checkpoint, takes its snapshots of the replica: each must hold P | |
//! | 6 | deletes the row, and compares at leisure | goes on |
//!
//! Archiving goes on all the time; only applying waits, for as long as the way to P takes. A verify that dies cannot hold
//! anybody: it renews a heartbeat in the row, and a request without one for [`EXPIRY_SECONDS`] by the replica's own clock
//! counts for nothing. Nothing depends on the applier's good conduct either: step 5 proves the position inside the very
//! snapshots that are compared.
//!
//! What the applier does: it creates the table once ([`CREATE_TABLE`]), and between two batches, at most
//! about a second apart, whether it has something to apply or not, it asks [`HOLD_QUERY`], reads the answer with
//! [`HoldRequest::parse`], obeys [`HoldRequest::limit`], and acknowledges with [`HoldRequest::acknowledgement`] when it is
//! told to stop and has no batch in flight. It must hold its lock (`lock_names.rs`) for as long as it applies: that is how
//! verify knows whether anybody is there to ask.

use spate_binlog::{Gtid, GtidPosition};

use spate_connection::ResultSet;

/// A request whose holder has not renewed it for this long counts for nothing.
pub const EXPIRY_SECONDS: u64 = 30;

/// The column of the position.
macro_rules! until_position {
    () => {
        concat!(
            "until_position ",
            crate::checkpoint::position_type!(),
            " NULL COMMENT 'apply up to here; NULL: stop now'"
        )
    };
}
pub(crate) use until_position;

/// Creates the table of the request. Not to be logged in the replica's own binlog, if that can be helped.
pub const CREATE_TABLE: &str = concat!(
    "CREATE TABLE IF NOT EXISTS spate.hold (\
     id INT NOT NULL PRIMARY KEY COMMENT 'always 1', \
     token BIGINT UNSIGNED NOT NULL COMMENT 'names this request', ",
    until_position!(),
    ", heartbeat DATETIME(6) NOT NULL COMMENT 'UTC; an old one makes the request void', \
     acknowledged_token BIGINT UNSIGNED NULL COMMENT 'the applier has stopped for this request'\
     ) ENGINE=InnoDB COMMENT='spate verify asks the applier to wait'"
);

/// Reads the request, or no row. Cheap enough for every second and every round trip.
pub const HOLD_QUERY: &str = "SELECT token, until_position, COALESCE(acknowledged_token = token, 0) AS is_acknowledged \
    FROM spate.hold WHERE id = 1 AND heartbeat > UTC_TIMESTAMP(6) - INTERVAL 30 SECOND";

/// The row of the request makes no sense: somebody else has written it.
#[derive(Debug, thiserror::Error)]
pub enum HoldRequestError {
    /// It names no request.
    #[error("spate.hold has a token that is no number")]
    Token,
    /// It asks for a position that is none.
    #[error("spate.hold asks for the position {text:?}, which cannot be read: {error}")]
    Position {
        /// What was found.
        text: String,
        /// What is wrong with it.
        error: spate_binlog::Error,
    },
}

/// How far an applier may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HoldLimit {
    /// As far as it likes.
    #[default]
    None,
    /// Start no further transaction.
    NowStop,
    /// Apply the transactions up to and including this position, and none beyond.
    Until(GtidPosition),
}

impl HoldLimit {
    /// True if this transaction may be applied. In the source's order: after the first that may not, none may.
    pub fn allows(&self, gtid: Gtid) -> bool {
        match self {
            HoldLimit::None => true,
            HoldLimit::NowStop => false,
            HoldLimit::Until(position) => position.covers(gtid),
        }
    }
}

/// The applier's view of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldRequest {
    /// How far to go.
    pub limit: HoldLimit,
    /// Names the request.
    token: u64,
    is_acknowledged: bool,
}

impl HoldRequest {
    /// Reads the answer to [`HOLD_QUERY`].
    ///
    /// # Errors
    /// The row makes no sense.
    pub fn parse(answer: &ResultSet) -> Result<HoldRequest, HoldRequestError> {
        if answer.rows.is_empty() {
            return Ok(HoldRequest::default());
        }
        let token = answer.text(0, "token").and_then(|token| token.parse().ok());
        let limit = match answer.text(0, "until_position") {
            None => HoldLimit::NowStop,
            Some(text) => HoldLimit::Until(
                text.parse().map_err(|error| HoldRequestError::Position { text: text.clone(), error })?,
            ),
        };
        Ok(HoldRequest {
            limit,
            token: token.ok_or(HoldRequestError::Token)?,
            is_acknowledged: answer.text(0, "is_acknowledged").as_deref() == Some("1"),
        })
    }

    /// The statement with which an applier that has stopped says so; `None` if nobody waits to hear it. To be executed
    /// with autocommit, outside a batch.
    pub fn acknowledgement(&self) -> Option<String> {
        let is_due = self.limit == HoldLimit::NowStop && !self.is_acknowledged;
        is_due.then(|| {
            format!("UPDATE spate.hold SET acknowledged_token = token WHERE id = 1 AND token = {}", self.token)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_query_expires_as_the_constant_says() {
        assert!(HOLD_QUERY.contains(&format!("INTERVAL {EXPIRY_SECONDS} SECOND")));
    }

    #[test]
    fn hold_limit_allows_transactions_up_to_it() {
        let gtid = |text: &str| text.parse::<Gtid>().unwrap();
        assert!(HoldLimit::None.allows(gtid("0-1-5")));
        assert!(!HoldLimit::NowStop.allows(gtid("0-1-5")));
        let until = HoldLimit::Until("0-1-5,2-1-9".parse().unwrap());
        assert!(until.allows(gtid("0-3-5")) && until.allows(gtid("2-1-1")));
        assert!(!until.allows(gtid("0-1-6")) && !until.allows(gtid("1-1-1")));
    }

    #[test]
    fn hold_request_reads_each_answer() {
        let answer = |until: Option<&str>, acknowledged: &str| ResultSet {
            columns: ["token", "until_position", "is_acknowledged"].map(String::from).to_vec(),
            rows: vec![vec![Some(b"77".to_vec()), until.map(|text| text.into()), Some(acknowledged.into())]],
        };
        assert_eq!(HoldRequest::parse(&ResultSet::default()).unwrap(), HoldRequest::default());
        let stop = HoldRequest::parse(&answer(None, "0")).unwrap();
        assert_eq!(stop.limit, HoldLimit::NowStop);
        assert!(stop.acknowledgement().unwrap().contains("token = 77"));
        assert_eq!(HoldRequest::parse(&answer(None, "1")).unwrap().acknowledgement(), None);
        let until = HoldRequest::parse(&answer(Some("0-1-5"), "0")).unwrap();
        assert_eq!(until.limit, HoldLimit::Until("0-1-5".parse().unwrap()));
        assert_eq!(until.acknowledgement(), None);
        assert!(HoldRequest::parse(&answer(Some("nonsense"), "0")).is_err());
    }
}
