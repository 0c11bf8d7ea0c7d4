//! `spate verify`.

use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use spate_verify::{Progress, Report, TableName, TableReport, Verdict, VerifyOptions};

use crate::arguments::VerifyArguments;
use crate::{Failure, print, progress_line};

/// Differing keys shown per table; JSON has more.
const SHOWN_KEYS_MAX: usize = 10;

pub(crate) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    let options = VerifyOptions {
        connections: arguments.connections.max(1),
        schemas: arguments.schemas.clone(),
        tables: arguments.tables.iter().map(|text| table_name(text)).collect::<Result<_, _>>()?,
        without_position: arguments.no_position,
        catch_up_timeout: Duration::from_secs_f64(arguments.catch_up_seconds),
        ..VerifyOptions::new(
            arguments.source.endpoint(&arguments.common)?,
            arguments.replica.endpoint(&arguments.common)?,
        )
    };
    let line = progress_line::line();
    let report = spate_verify::run(&options, &|progress| {
        line.set_message(describe(progress));
        line.tick();
    });
    line.finish_and_clear();
    let report = report?;
    if arguments.json {
        print(&serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&text(&report))?;
    }
    Ok(if report.is_identical() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table_name(text: &str) -> Result<TableName, Failure> {
    match text.split_once('.') {
        Some((schema, table)) => Ok(TableName { schema: schema.to_owned(), table: table.to_owned() }),
        None => Err(format!("--table {text}: write it as schema.table").into()),
    }
}

fn describe(progress: &Progress) -> String {
    match progress {
        Progress::Holding => "asking the applier to stop for a moment".to_owned(),
        Progress::CatchingUp { position } => format!("the replica is on its way to {position}"),
        Progress::Comparing { rows_compared, rows_estimated } => {
            format!("{rows_compared} rows compared, of about {rows_estimated}")
        }
    }
}

fn text(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["table", "rows on the source", "on the replica", "verdict"]);
    for found in &report.tables {
        table.add_row([
            format!("{}.{}", found.schema, found.table),
            found.source_rows.to_string(),
            found.replica_rows.to_string(),
            match found.own_columns.as_slice() {
                [] => verdict(found),
                own => format!("{}; the replica's own columns ({}) were left out", verdict(found), own.join(", ")),
            },
        ]);
    }
    let place = report.position.source_gtid.as_deref().unwrap_or("an unknown position");
    let exactness = if report.position.is_exact { "both exactly at" } else { "NOT at one position, the source at" };
    let differing = report.tables.iter().filter(|table| table.verdict != Verdict::Identical).count();
    let conclusion = match differing {
        0 => "identical".to_owned(),
        differing => format!("{differing} of {} tables differ", report.tables.len()),
    };
    let (rows, seconds) = (report.rows_compared, report.seconds);
    format!("{table}\n{conclusion}: {rows} rows compared in {seconds:.1} s, {exactness} GTID position {place}")
}

fn verdict(found: &TableReport) -> String {
    match &found.verdict {
        Verdict::Identical => "identical".to_owned(),
        Verdict::MissingOnReplica => "missing on the replica".to_owned(),
        Verdict::MissingOnSource => "missing on the source".to_owned(),
        Verdict::ColumnsDiffer { differences } => format!("columns differ: {}", differences.join("; ")),
        Verdict::RowsDiffer(rows) => {
            let mut lines = vec![format!("{} rows differ, in {} key ranges", rows.rows, rows.ranges.len())];
            lines.extend(
                rows.keys.iter().take(SHOWN_KEYS_MAX).map(|key| format!("  {}: {:?}", key.key, key.difference)),
            );
            if rows.keys.len() > SHOWN_KEYS_MAX {
                lines.push(format!("  … and {} more", rows.keys.len() - SHOWN_KEYS_MAX));
            }
            lines.join("\n")
        }
    }
}
