//! `spate archive fetch` and `spate archive fold-stats`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use comfy_table::{Table, presets};
use serde::Serialize;
use spate_archive::{Archive, DirectoryOptions, ReadOptions, RealFileSystem, Seek};
use spate_binlog::payload::PayloadEvents;
use spate_binlog::{Boundary, EventHeader, EventType, QueryEvent, RowsVersion, TableMap};
use spate_receive::FetchOptions;
use spate_receive::intake::IntakeOptions;
use spate_replica::status::Status;
use spate_schedule::definition::ColumnDefinition;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::{Answer, Batch, BatchBuilder, Item, Surprise, TableDefinition, TableName};

use crate::arguments::{FetchArguments, FoldStatsArguments};
use crate::{Failure, print, progress_line, say, signals};

pub(crate) fn fetch(arguments: &FetchArguments) -> Result<ExitCode, Failure> {
    let archiving = &arguments.archiving;
    let source = arguments.source.endpoint(&arguments.common)?;
    let options = FetchOptions {
        intake: IntakeOptions {
            start_place: None,
            source: source.clone(),
            server_id: archiving.server_id(),
            semi_sync: archiving.semi_sync,
        },
        archive_dir: archiving.archive.clone(),
        sync: archiving.archive_sync,
        start: archiving.start.clone(),
        until: archiving.until.clone().unwrap_or_default(),
        retention: archiving.retention(),
    };
    let stop = signals::stop_flag()?;
    let line = progress_line::line();
    let told = line.clone();
    let notify = move |stage: &str, message: &str| told.suspend(|| say(&format!("spate {stage}: {message}")));
    let status = Status::new(source.to_string(), String::new(), Box::new(notify));
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let drawing = scope.spawn(|| progress_line::draw(&line, &status, &over));
        let done = spate_receive::fetch(&options, &status, &stop);
        over.store(true, Ordering::Release);
        drawing.thread().unpark();
        done
    });
    done?;
    let report = status.report();
    if archiving.json {
        print(&serde_json::to_string(&report)?)?;
    } else {
        let received = &report.received;
        let (bytes, place) = (report.received_bytes, format!("{}:{}", received.file, received.position));
        say(&format!("received {bytes} bytes, up to GTID position {} ({place})", received.gtid));
    }
    Ok(ExitCode::SUCCESS)
}

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
        let mut pass = Pass { batch_transactions, ..Pass::default() };
        pass.run(&archive)?;
        all.push(pass.stats);
        assumed = pass.assumed_keys;
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

/// One reading of the archive.
#[derive(Default)]
struct Pass {
    batch_transactions: u64,
    stats: FoldStats,
    assumed_keys: Vec<TableName>,
    in_batch: u64,
}

impl Pass {
    fn run(&mut self, archive: &Archive) -> Result<(), Failure> {
        let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default())?;
        let mut builder = BatchBuilder::new();
        let mut began = Instant::now();
        while let Some(event) = reader.next_event()? {
            if event.boundary == Boundary::Outside {
                continue;
            }
            self.stats.archive_bytes += u64::from(event.header.event_length);
            let place =
                |error: &dyn std::fmt::Display| format!("{} at offset {}: {error}", event.file.name(), event.offset);
            match event.header.event_type {
                EventType::TRANSACTION_PAYLOAD => {
                    let mut events = PayloadEvents::open(event.body).map_err(|error| place(&error))?;
                    while let Some((header, body)) = events.next_event().map_err(|error| place(&error))? {
                        self.take(&mut builder, &header, body, &place)?;
                    }
                }
                _ => self.take(&mut builder, &event.header, event.body, &place)?,
            }
            if matches!(event.boundary, Boundary::End | Boundary::Whole) {
                self.stats.transactions += 1;
                self.in_batch += 1;
                if self.in_batch == self.batch_transactions {
                    self.stats.fold_seconds += began.elapsed().as_secs_f64();
                    self.end_batch(builder.take())?;
                    began = Instant::now();
                }
            }
        }
        self.stats.fold_seconds += began.elapsed().as_secs_f64();
        self.end_batch(builder.take())?;
        self.stats.batch_transactions = self.batch_transactions;
        self.stats.megabytes_per_second = self.stats.archive_bytes as f64 / 1e6 / self.stats.fold_seconds.max(1e-9);
        Ok(())
    }

    fn take(
        &mut self,
        builder: &mut BatchBuilder,
        header: &EventHeader,
        body: &[u8],
        place: &dyn Fn(&dyn std::fmt::Display) -> String,
    ) -> Result<(), Failure> {
        loop {
            match builder.event(header, body) {
                Ok(Answer::Taken) => break,
                Ok(Answer::NeedsDefinition(name)) => builder.learn(self.definition(body, name)?),
                // There is no replica to ask.
                Ok(Answer::NeedsForeignKeys) => {}
                Err(spate_schedule::Error::TurnedOut(Surprise::Redefined)) => builder.forget_definitions(),
                Err(error) => return Err(place(&error).into()),
            }
        }
        let is_begin = || QueryEvent::parse(body).is_ok_and(|query| query.begins_group());
        if header.event_type == EventType::QUERY && !is_begin() {
            // It may be DDL.
            builder.forget_definitions();
        }
        Ok(())
    }

    fn end_batch(&mut self, batch: Batch) -> Result<(), Failure> {
        const CHUNK_BYTES_MAX: usize = 1 << 20;
        self.in_batch = 0;
        if batch.is_empty() {
            return Ok(());
        }
        self.stats.batches += 1;
        self.stats.row_changes += batch.statistics.row_changes;
        let mut net_bytes = 0;
        let mut writer = ChunkWriter::new(
            CHUNK_BYTES_MAX,
            0,
            RowsVersion::V1,
            |events: &[u8]| -> Result<(), spate_schedule::Error> {
                net_bytes += events.len() as u64;
                Ok(())
            },
        );
        for item in &batch.items {
            if let Item::Rows(segment) = item {
                writer.segment(segment)?;
            }
        }
        self.stats.net_row_changes += writer.finish()?;
        self.stats.net_bytes += net_bytes;
        Ok(())
    }

    /// Without a replica, the binlog itself must say the key; if it does not, the first column is taken.
    fn definition(&mut self, body: &[u8], name: TableName) -> Result<TableDefinition, Failure> {
        let map = TableMap::parse(body)?;
        let mut row_key = map.metadata.primary_key.clone();
        if row_key.is_empty() && !map.columns.is_empty() && !map.is_nullable(0) {
            row_key = vec![0];
            if !self.assumed_keys.contains(&name) {
                self.assumed_keys.push(name.clone());
            }
        }
        let column = |index: usize| ColumnDefinition {
            name: map.metadata.column_names.get(index).cloned().unwrap_or_else(|| format!("column {}", index + 1)),
            column_type: String::new(),
            is_unsigned: false,
            is_auto_increment: false,
            is_generated: false,
            ..ColumnDefinition::default()
        };
        Ok(TableDefinition {
            name,
            columns: (0..map.columns.len()).map(column).collect(),
            row_key,
            unique_columns: vec![],
            has_hidden_unique_key: false,
            engine: String::new(),
            row_end: None,
            is_sequence: false,
            is_transactional: true,
            has_engine_actions: false,
            ..TableDefinition::default()
        })
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
