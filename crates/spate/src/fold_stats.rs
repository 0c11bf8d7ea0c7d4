//! `spate archive fold-stats`: gathers an archive without a replica, and counts what folding makes of it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use serde::Serialize;
use spate_apply::gather::{Gatherer, Gathering};
use spate_apply::halt::{self, Halt};
use spate_apply::limits::BatchLimits;
use spate_apply::plan::SessionPlan;
use spate_apply::{Definitions, Dispatch, Pace, Part, Reading};
use spate_archive::{Archive, DirectoryOptions, ReadOptions, RealFileSystem, Seek};
use spate_binlog::{FormatDescription, Gtid, RowsVersion, TableMap};
use spate_replica::TransactionPlace;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::others::Noticed;
use spate_replica::status::Status;
use spate_replica::until::Until;
use spate_schedule::definition::ColumnDefinition;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::outdated::Outdated;
use spate_schedule::versioning::LastMoment;
use spate_schedule::{BatchBuilder, TableDefinition, TableName};
use spate_sql::Server;

use crate::arguments::FoldStatsArguments;
use crate::{Failure, print, say};

/// What folding makes of an archive with one size of batch.
#[derive(Debug, Default, Serialize)]
struct FoldStats {
    /// Transactions in a batch; 0 is everything at once.
    batch_transactions: u64,
    transactions: u64,
    batches: u64,
    row_changes: u64,
    net_row_changes: u64,
    /// Bytes of the archive's events.
    archive_bytes: u64,
    /// Bytes of the net changes as events for replay.
    net_bytes: u64,
    /// Time spent reading, verifying, decoding and folding, on one core; without encoding the net changes.
    fold_seconds: f64,
    megabytes_per_second: f64,
}

pub(crate) fn fold_stats(arguments: &FoldStatsArguments) -> Result<ExitCode, Failure> {
    let archive = open_directory(arguments)?;
    if archive.files().is_empty() {
        return Err(format!("{} holds no binlog files", arguments.directory.display()).into());
    }
    let mut all = Vec::new();
    let mut assumed = Vec::new();
    for &batch_transactions in &arguments.batch_transactions {
        all.push(fold(&archive, batch_transactions, &mut assumed)?);
    }
    if !assumed.is_empty() {
        let (count, first) = (assumed.len(), &assumed[0]);
        say(&format!(
            "{count} tables (such as {first}) do not say their primary key in the binlog (binlog_row_metadata=FULL would): \
             the first column is taken for it"
        ));
    }
    if arguments.json {
        print(&serde_json::to_string_pretty(&all)?)?;
    } else {
        print(&text(&all))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn open_directory(arguments: &FoldStatsArguments) -> Result<Archive, Failure> {
    let options = DirectoryOptions { base_name: arguments.base_name.clone() };
    Ok(Archive::open(Arc::new(RealFileSystem), &arguments.directory, options)?)
}

/// Folds the archive in batches of so many transactions; 0 is everything at once.
fn fold(archive: &Archive, batch_transactions: u64, assumed_keys: &mut Vec<TableName>) -> Result<FoldStats, Failure> {
    let limits = BatchLimits {
        transactions_max: if batch_transactions == 0 { u64::MAX } else { batch_transactions },
        ..BatchLimits::NONE
    };
    let end = archive.tail().received().seqno;
    let plan = SessionPlan { last_seqno: Some(end), ..SessionPlan::new(limits, Until::Forever) };
    let status = Status::new(String::new(), String::new(), Box::new(|_, _| {}));
    let given = Gathering { archive, plan: &plan, status: &status, stop: &AtomicBool::new(false), uneven: None };
    let mut stats = FoldStats { batch_transactions, ..FoldStats::default() };
    let mut encoding = Duration::ZERO;
    let began = Instant::now();
    if end > 0 {
        let tables = LoggedTables { assumed_keys };
        let counter = Counter { stats: &mut stats, encoding: &mut encoding };
        let gatherer = Gatherer::new(given, BatchBuilder::new(), tables, counter, Checkpoint::default());
        gatherer.run(archive.reader(&Seek::Earliest, ReadOptions::default())?).map_err(|halt| match halt {
            Halt::Failed(error) | Halt::Behind { error, .. } => Failure::from(error),
            signal => format!("the archive cannot be folded: {signal:?}").into(),
        })?;
    }
    stats.fold_seconds = (began.elapsed() - encoding).as_secs_f64();
    stats.archive_bytes = archive.total_bytes()?;
    stats.megabytes_per_second = stats.archive_bytes as f64 / 1e6 / stats.fold_seconds.max(1e-9);
    Ok(stats)
}

/// Takes batches for a replica that applies each at once, and counts what is in them.
struct Counter<'a> {
    stats: &'a mut FoldStats,
    /// Time that was spent in here, on encoding.
    encoding: &'a mut Duration,
}

impl Dispatch for Counter<'_> {
    fn begin_after(&mut self, _seqno: u64) {}

    fn may_begin(&mut self, _gtid: Option<Gtid>, _seqno: u64) -> bool {
        true
    }

    fn wait_begin(&mut self, _gtid: Option<Gtid>, _seqno: u64) -> bool {
        true
    }

    /// Only the number of transactions ends a batch.
    fn is_hungry_within(&mut self, _timeout: Duration) -> halt::Result<bool> {
        Ok(false)
    }

    fn pace(&self) -> Pace {
        Pace::Unknown
    }

    fn hand_out(&mut self, part: Part) -> halt::Result<()> {
        const CHUNK_BYTES_MAX: usize = 1 << 20;
        let began = Instant::now();
        let Part { batch, place, end, .. } = part;
        self.stats.transactions += end.map_or(0, |end| end.transactions);
        self.stats.batches += 1;
        self.stats.row_changes += batch.statistics.row_changes;
        let mut net_bytes = 0;
        let count = |events: &[u8]| -> Result<(), spate_schedule::Error> {
            net_bytes += events.len() as u64;
            Ok(())
        };
        let mut writer = ChunkWriter::new(CHUNK_BYTES_MAX, 0, RowsVersion::V1, count);
        let written = batch.segments().try_for_each(|segment| writer.segment(segment)).and_then(|()| writer.finish());
        let net = written.map_err(|error| spate_replica::Error::Transaction { place, error })?;
        self.stats.net_row_changes += net;
        self.stats.net_bytes += net_bytes;
        *self.encoding += began.elapsed();
        Ok(())
    }

    fn is_in_effect(&mut self, _seqno: u64) -> bool {
        true
    }

    fn wait_in_effect(&mut self, _seqno: u64) -> halt::Result<()> {
        Ok(())
    }
}

/// Tables as the binlog describes them: there is no replica to ask.
struct LoggedTables<'a> {
    /// Those that do not say their key.
    assumed_keys: &'a mut Vec<TableName>,
}

impl Definitions for LoggedTables<'_> {
    fn reader(&self) -> Option<Server> {
        None
    }

    fn last_moment(&mut self) -> spate_replica::Result<Option<LastMoment>> {
        Ok(None)
    }

    fn begin(&mut self, _format: &FormatDescription) -> spate_replica::Result<()> {
        Ok(())
    }

    fn look_for_others(&mut self) -> spate_replica::Result<Noticed> {
        Ok(Noticed::default())
    }

    fn forget(&mut self, outdated: &Outdated) -> Outdated {
        outdated.clone()
    }

    fn foreign_keys_have_changed(&mut self) -> spate_replica::Result<bool> {
        Ok(false)
    }

    fn at_hand(&mut self, _name: &TableName) -> Option<TableDefinition> {
        None
    }

    /// The binlog itself must tell the key; if it does not, the first column is taken for it.
    fn definition(
        &mut self,
        name: &TableName,
        map: &[u8],
        _reading: Reading,
    ) -> spate_replica::Result<Option<TableDefinition>> {
        let unreadable = |error: spate_binlog::Error| spate_replica::Error::Transaction {
            place: TransactionPlace::default(),
            error: error.into(),
        };
        let map = TableMap::parse(map).map_err(unreadable)?;
        let mut row_key = map.metadata.primary_key.clone();
        if row_key.is_empty() && !map.columns.is_empty() && !map.is_nullable(0) {
            row_key = vec![0];
            if !self.assumed_keys.contains(name) {
                self.assumed_keys.push(name.clone());
            }
        }
        let column = |index: usize| ColumnDefinition {
            name: map.metadata.column_names.get(index).cloned().unwrap_or_else(|| format!("column {}", index + 1)),
            ..ColumnDefinition::default()
        };
        Ok(Some(TableDefinition {
            name: name.clone(),
            columns: (0..map.columns.len()).map(column).collect(),
            row_key,
            is_transactional: true,
            ..TableDefinition::default()
        }))
    }
}

fn text(all: &[FoldStats]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["batch of", "batches", "row changes", "net", "bytes", "net bytes", "decode + fold"]);
    for stats in all {
        let size = match stats.batch_transactions {
            0 => "all".to_owned(),
            size => size.to_string(),
        };
        table.add_row([
            size,
            stats.batches.to_string(),
            stats.row_changes.to_string(),
            stats.net_row_changes.to_string(),
            stats.archive_bytes.to_string(),
            stats.net_bytes.to_string(),
            format!("{:.0} MB/s", stats.megabytes_per_second),
        ]);
    }
    table.to_string()
}
