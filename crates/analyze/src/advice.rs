//! What the figures mean, in plain words.

use crate::analysis::{Analysis, SpeedUp};
use crate::dependencies::Policy;
use crate::simulation::CommitOrder;

/// From here on, a row that everybody changes decides.
const HOT_SHARE: f64 = 0.02;

/// More appliers that bring less than this are not worth having.
const WORTHWHILE: f64 = 1.05;

/// What limits parallelism, and what helps: the most important first.
pub(crate) fn of(analysis: &Analysis) -> Vec<String> {
    if analysis.transactions == 0 {
        return vec!["There is no transaction in these files.".to_owned()];
    }
    let all = [folding(analysis), write_set(analysis), groups(analysis), hot_row(analysis), long(analysis)];
    let more = [keyless(analysis), definitions(analysis), statements(analysis), assumed(analysis)];
    all.into_iter().chain(more).flatten().collect()
}

/// The fewest appliers that bring nearly all that the policy can bring in this order.
fn best(analysis: &Analysis, policy: Policy, order: CommitOrder) -> Option<SpeedUp> {
    let of = || analysis.speed_ups_of(policy, order);
    let most = of().map(|speed_up| speed_up.factor).fold(0.0, f64::max);
    of().find(|speed_up| speed_up.factor * WORTHWHILE >= most).copied()
}

fn folding(analysis: &Analysis) -> Option<String> {
    let folded =
        analysis.folded.iter().filter(|folded| folded.rows > 0).max_by_key(|folded| folded.rows - folded.net_rows)?;
    let left = folded.net_rows as f64 / folded.rows as f64;
    let size = match folded.batch_transactions {
        0 => "everything that is there".to_owned(),
        size => format!("batches of {size} transactions"),
    };
    Some(if left < 0.95 {
        format!(
            "Folding {size} leaves {:.0} % of the row changes: the same rows change again and again, and a replica that is behind need not \
             repeat that (`replicate` does so by default).",
            100.0 * left
        )
    } else {
        "Rows hardly change twice, so folding saves no row changes; it still saves commits, and brings rows into the order of their keys."
            .to_owned()
    })
}

fn write_set(analysis: &Analysis) -> Option<String> {
    let limit = analysis.limit_of(Policy::WriteSet)?;
    let best = best(analysis, Policy::WriteSet, CommitOrder::Preserve)?;
    let shard = self::best(analysis, Policy::Shard, CommitOrder::Preserve)?;
    let mut text = format!(
        "Applied one to one in the source's order, with transactions that change different rows at the same time, {} appliers are {:.1} times as \
         fast as one, and more bring little. Whatever the number, the longest chain of transactions that wait for each other allows {:.1} times.",
        best.setting.appliers.unwrap_or_default(),
        best.factor,
        limit.factor
    );
    if shard.factor * WORTHWHILE < best.factor {
        text += &format!(" By schemas alone it is {:.1} times.", shard.factor);
    }
    Some(text)
}

fn groups(analysis: &Analysis) -> Option<String> {
    let hint = analysis.hint?;
    let hinted = best(analysis, hint, CommitOrder::Preserve)?;
    let by_rows = best(analysis, Policy::WriteSet, CommitOrder::Preserve)?;
    let mean = analysis.group_size_mean;
    if hinted.factor * WORTHWHILE >= by_rows.factor {
        return Some(format!(
            "The source's own groups ({mean:.1} transactions on average) allow as much as the rows themselves do."
        ));
    }
    let widen = match hint {
        Policy::CommitGroup => {
            "binlog_commit_wait_count and binlog_commit_wait_usec on the source (or on an intermediate one) make the groups larger; optimistic \
             parallel replication does not need them"
        }
        _ => {
            "binlog_group_commit_sync_delay on the source makes the groups larger; write sets (binlog_transaction_dependency_tracking=WRITESET, \
             always on since 8.4) do not need them"
        }
    };
    Some(format!(
        "The source's groups have {mean:.1} transactions on average, which is all that replication by {} can use: it is {:.1} times as fast as one \
         applier, where the rows would allow {:.1} times. {widen}.",
        hint.name(),
        hinted.factor,
        by_rows.factor
    ))
}

fn hot_row(analysis: &Analysis) -> Option<String> {
    let hot = analysis.hottest_rows.first()?;
    let share = f64::from(hot.changes) / analysis.transactions as f64;
    (share >= HOT_SHARE).then(|| {
        format!(
            "The row {} of {} is changed by about {:.0} % of the transactions: they can only be applied one after the other. Folded, it is \
             changed once a batch.",
            hot.key,
            hot.table,
            100.0 * share.min(1.0)
        )
    })
}

fn long(analysis: &Analysis) -> Option<String> {
    /// A replica behind by that is noticed.
    const LONG_SECONDS: u64 = 5;
    let longest = analysis.longest.first().filter(|longest| longest.seconds >= LONG_SECONDS)?;
    Some(format!(
        "The transaction {} took {} s on the source ({} row changes): where the order is kept, all behind it wait for its commit.",
        longest.gtid, longest.seconds, longest.rows
    ))
}

fn keyless(analysis: &Analysis) -> Option<String> {
    let first = analysis.keyless_tables.first()?;
    Some(format!(
        "{} tables with changes have no primary key that the binlog tells (such as {}): their rows are looked for one by one, and their \
         transactions wait for each other. Give them a primary key.",
        analysis.keyless_tables.len(),
        first.name
    ))
}

fn definitions(analysis: &Analysis) -> Option<String> {
    let share = analysis.definitions as f64 / analysis.transactions as f64;
    (share >= HOT_SHARE).then(|| {
        format!(
            "{:.0} % of the transactions are definitions (CREATE, ALTER, DROP …), beside which nothing is applied.",
            100.0 * share
        )
    })
}

fn statements(analysis: &Analysis) -> Option<String> {
    let others = analysis.statements.saturating_sub(analysis.definitions);
    let share = others as f64 / analysis.transactions as f64;
    (share >= HOT_SHARE).then(|| {
        "The source logs statements. Which rows they change is not in the binlog, so they are not folded, and write sets cannot tell them apart: \
         binlog_format=ROW would help."
            .to_owned()
    })
}

fn assumed(analysis: &Analysis) -> Option<String> {
    (analysis.tables_with_assumed_key > 0).then(|| {
        format!(
            "The binlog does not say what the primary keys of {} tables are (binlog_row_metadata=FULL would): their first column is taken \
             for it. Where that is wrong, the figures are.",
            analysis.tables_with_assumed_key
        )
    })
}
