//! GTID positions of several domains, as far as a torture must understand them.

use std::collections::BTreeMap;

/// The last sequence number of each domain.
fn domains(position: &str) -> BTreeMap<u64, u64> {
    let domain = |gtid: &str| {
        let mut parts = gtid.trim().split('-').map(str::parse::<u64>);
        Some((parts.next()?.ok()?, parts.nth(1)?.ok()?))
    };
    position.split(',').filter_map(domain).collect()
}

/// True if `position` holds everything that `end` holds.
pub(super) fn has_reached(position: &str, end: &str) -> bool {
    let position = domains(position);
    domains(end).iter().all(|(domain, sequence)| position.get(domain).is_some_and(|reached| reached >= sequence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_domain_counts() {
        assert!(has_reached("0-1-9,2-1-4", "2-1-4,0-1-8"));
        assert!(!has_reached("0-1-9", "0-1-9,2-1-1"));
        assert!(!has_reached("0-1-9,2-1-3", "2-1-4"));
        assert!(has_reached("", ""));
    }
}
