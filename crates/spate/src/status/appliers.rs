//! The table of appliers.

use spate_replica::status::{ApplierStatus, ShardingStatus};

use super::empty_table;

/// Names of shards that are shown of an applier; `--json` has all.
const SHARDS_SHOWN_MAX: usize = 4;

/// What each applier has done, and how even that is.
pub(super) fn text(sharding: &ShardingStatus) -> String {
    let mut table = empty_table();
    table.set_header(["applier", "shares", "row changes", "load", "busy s", "waiting", "behind s", "shards"]);
    for applier in &sharding.appliers {
        let ApplierStatus { applier, shares, row_changes, load, busy_seconds, waiting, behind_seconds, shards } =
            applier;
        table.add_row([
            applier.to_string(),
            shares.to_string(),
            row_changes.to_string(),
            format!("{:.1}%", load * 1e2),
            format!("{busy_seconds:.1}"),
            waiting.to_string(),
            format!("{behind_seconds:.0}"),
            shown(shards),
        ]);
    }
    let ShardingStatus { divided_by, skew, waited_for_spread_seconds, went_on_beyond_spread, .. } = sharding;
    format!(
        "{table}\nTables are divided by {divided_by}; the busiest applier has {skew:.2} times its part. One applied while the others waited: {} batches \
         with more than rows, {} of critical tables, {} with keys that change. Batches waited {waited_for_spread_seconds:.1} s because of \
         --max-spread, and {went_on_beyond_spread} went on beyond it after --max-delay.",
        sharding.together_statements, sharding.together_critical, sharding.together_order,
    )
}

fn shown(shards: &[String]) -> String {
    // Whoever names a table may put there what a terminal would obey.
    let visible = |shard: &String| shard.replace(char::is_control, "?");
    let mut text = shards.iter().take(SHARDS_SHOWN_MAX).map(visible).collect::<Vec<_>>().join(", ");
    if shards.len() > SHARDS_SHOWN_MAX {
        text += &format!(", {} more", shards.len() - SHARDS_SHOWN_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appliers_are_shown_line_by_line() {
        let shards = (0..6).map(|number| format!("s{number}")).collect();
        let one = ApplierStatus { applier: 1, row_changes: 345, load: 0.75, shards, ..ApplierStatus::default() };
        let two = ApplierStatus { applier: 2, row_changes: 115, load: 0.25, ..ApplierStatus::default() };
        let (divided_by, appliers) = ("row".to_owned(), vec![one, two]);
        let text = text(&ShardingStatus { divided_by, skew: 1.5, appliers, ..ShardingStatus::default() });
        assert!(text.contains("75.0%") && text.contains("s0, s1, s2, s3, 2 more"), "{text}");
        assert!(text.contains("has 1.50 times its part"), "{text}");
    }
}
