//! GTID positions of both vendors: comparisons and counts.

use spate_binlog::GtidPosition;

/// True if `position` contains all transactions of `end`. False if either text is no position.
pub fn has_reached(position: &str, end: &str) -> bool {
    match (position.parse::<GtidPosition>(), end.parse::<GtidPosition>()) {
        (Ok(position), Ok(end)) => position.covers_all(&end),
        _ => false,
    }
}

/// Transactions in a position: the sequence numbers of MariaDB's domains, which all begin at 1, or the size of MySQL's
/// set.
pub fn transactions(position: &str) -> u64 {
    let position: GtidPosition = position.parse().unwrap_or_default();
    let in_sets = position.origins().flat_map(|(_, numbers)| numbers.ranges()).map(|range| range.end - range.start);
    position.domains().map(|gtid| gtid.sequence).chain(in_sets).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "00000000-0000-4000-8000-000000000001";

    #[test]
    fn position_is_reached_only_in_every_domain() {
        assert!(has_reached("0-1-9,2-1-4", "2-1-4,0-1-8"));
        assert!(!has_reached("0-1-9", "0-1-9,2-1-1"));
        assert!(!has_reached("0-1-9,2-1-3", "2-1-4"));
        assert!(has_reached("", ""));
        assert_eq!(transactions("0-1-42,2-1-4"), 46);
        assert_eq!(transactions(""), 0);
    }

    #[test]
    fn position_with_gaps_is_not_reached() {
        let set = |intervals: &str| format!("{ONE}{intervals}");
        assert!(has_reached(&set(":1-9:t:1-2"), &set(":2-8:t:2")));
        assert!(!has_reached(&set(":1-9"), &set(":1-9:t:1")));
        assert!(!has_reached(&set(":1-3:5"), &set(":1-4")));
        assert!(!has_reached("nonsense", &set(":1")));
        assert_eq!(transactions(&set(":1-5:9,00000000-0000-4000-8000-000000000002:1-3")), 9);
        assert_eq!(transactions(&set(":7:tag:1-2")), 3);
    }
}
