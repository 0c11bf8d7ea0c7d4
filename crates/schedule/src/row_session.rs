//! The part of a source's session state by which a MySQL server computes while rows are changed: columns that are computed from
//! others, indexes and checks of expressions. MySQL says it at the beginning of each transaction of rows, and its own replicas set it.

use spate_binlog::query::StatusVariables;

/// The state of a session in which row changes are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSession {
    /// The time when the transaction began, in seconds since 1970: it gives the date for a time of day.
    pub seconds: u32,
    /// `sql_mode` as a bit set, without the bits that only decide how text is read.
    pub sql_mode: u64,
    /// `time_zone`; `None` if the session had used none until then.
    pub time_zone: Option<Vec<u8>>,
    /// Number of `lc_time_names`.
    pub lc_time_names: u16,
}

impl RowSession {
    /// Bits of `sql_mode` that decide how text is read: PIPES_AS_CONCAT, ANSI_QUOTES, IGNORE_SPACE, ANSI (a name for
    /// these and others), NO_BACKSLASH_ESCAPES and HIGH_NOT_PRECEDENCE. The server read the expressions when it opened
    /// the table.
    const OF_TEXT: u64 = 0b1110 | 1 << 18 | 1 << 20 | 1 << 29;

    /// In any time zone, a day begins with one of these.
    const SECONDS_WITHIN_A_DAY: u32 = 900;

    /// The session of a transaction's first event, which was logged at this second.
    pub(crate) fn of(seconds: u32, status: &StatusVariables) -> RowSession {
        RowSession {
            seconds,
            sql_mode: status.sql_mode.unwrap_or_default() & !RowSession::OF_TEXT,
            time_zone: status.time_zone.clone(),
            lc_time_names: status.lc_time_names.unwrap_or_default(),
        }
    }

    /// The session in which the changes of both can be made; `None` if there is none. The time zone does not matter to
    /// a transaction that names none. Of the time, only the day matters.
    pub(crate) fn with(&self, other: &RowSession) -> Option<RowSession> {
        let zones_agree = match (&self.time_zone, &other.time_zone) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        let compared = |session: &RowSession| {
            (session.sql_mode, session.lc_time_names, session.seconds / RowSession::SECONDS_WITHIN_A_DAY)
        };
        let agree = zones_agree && compared(self) == compared(other);
        agree.then(|| RowSession { time_zone: self.time_zone.clone().or_else(|| other.time_zone.clone()), ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(sql_mode: u64, zone: Option<&str>) -> RowSession {
        let time_zone = zone.map(|zone| zone.as_bytes().to_vec());
        RowSession::of(9000, &StatusVariables { sql_mode: Some(sql_mode), time_zone, ..StatusVariables::default() })
    }

    #[test]
    fn row_sessions_merge_unless_computations_differ() {
        let both = session(0, None).with(&session(0, Some("+05:00"))).unwrap();
        assert_eq!(both, session(0, Some("+05:00")));
        assert_eq!(session(0, Some("+05:00")).with(&session(0, None)), Some(both));
        assert_eq!(session(0, Some("+05:00")).with(&session(0, Some("+04:00"))), None);
        // ANSI_QUOTES, and ERROR_FOR_DIVISION_BY_ZERO
        assert!(session(0, None).with(&session(1 << 2, None)).is_some());
        assert!(session(0, None).with(&session(1 << 26, None)).is_none());
        let at = |seconds| RowSession { seconds, ..session(0, None) };
        assert_eq!(at(9000).with(&at(9899)), Some(at(9000)));
        assert_eq!(at(9000).with(&at(9900)), None);
    }
}
