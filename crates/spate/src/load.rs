//! `spate load`.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use spate_load::layout::{Format, RuleLayout};
use spate_load::{Layout, LoadOptions, Pattern, Progress, Report};
use xxhash_rust::xxh3::xxh3_64;

use crate::load_arguments::{FormatArgument, LoadArguments};
use crate::{Failure, harmless, print, say, signals};

/// Lines of each list on the terminal; JSON has more.
const SHOWN: usize = 20;
/// A name of a load that the server can keep.
const NAME_LETTERS_MAX: usize = 40;

pub(crate) fn run(arguments: &LoadArguments) -> Result<ExitCode, Failure> {
    let options = options(arguments)?;
    let stop = signals::stop_flag()?;
    let progress = Progress::default();
    let line = line();
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let drawer = scope.spawn(|| draw(&line, &progress, &over));
        let report = match arguments.watch {
            true => {
                let tell = |text: &str| line.suspend(|| say(&format!("spate: {text}")));
                spate_load::watch(&options, &arguments.files, arguments.settle, &stop, &progress, &tell)
            }
            false => spate_load::run(&options, &arguments.files, &stop, &progress),
        };
        over.store(true, Ordering::Release);
        drawer.thread().unpark();
        report
    });
    line.finish_and_clear();
    let report = report?;
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&report)?)?,
        // Where nothing was done, there is only the failure to tell.
        false if report.failure.is_some() && report.totals.records == 0 => {}
        false => print(&text(&report))?,
    }
    report.failure.map_or(Ok(ExitCode::SUCCESS), |failure| Err(failure.into()))
}

fn options(arguments: &LoadArguments) -> Result<LoadOptions, Failure> {
    let (mut layout, text) = match &arguments.layout {
        Some(path) => read_layout(path)?,
        None => (Layout::default(), String::new()),
    };
    if arguments.layout.is_none() {
        layout.input.header = arguments.header;
        layout.input.format = match arguments.format {
            Some(FormatArgument::Csv) => Format::Csv,
            Some(FormatArgument::Tsv) => Format::Tsv,
            Some(FormatArgument::LoadData) => Format::LoadData,
            None => format_of_names(&arguments.files)?,
        };
    }
    if let Some(table) = &arguments.table {
        if !layout.rules.is_empty() {
            return Err("--table: the layout has tables of its own ([[table]])".into());
        }
        layout.rules.push(RuleLayout::new(Pattern::try_from(table.clone())?, arguments.template.clone()));
        layout.check().map_err(|why| format!("--table {table}: {why}"))?;
    }
    let Some(rule) = layout.rules.first() else {
        return Err("the layout names no table: add [[table]] with a name, or use --table".into());
    };
    let job = match &arguments.name {
        Some(name) if name.is_empty() || name.chars().count() > NAME_LETTERS_MAX => {
            return Err(format!("--name: between 1 and {NAME_LETTERS_MAX} letters").into());
        }
        Some(name) => name.clone(),
        None => short(rule.name.text()),
    };
    let facts = format!("{text}\0{:?}\0{:?}\0{:?}", layout.rules, layout.input, arguments.time_zone);
    let common = &arguments.common;
    if arguments.watch && !arguments.files.iter().all(|path| path.is_dir()) {
        return Err("--watch watches directories, and one of the arguments is none".into());
    }
    Ok(LoadOptions {
        server: arguments.server.endpoint(common)?,
        job,
        layout_hash: xxh3_64(facts.as_bytes()),
        layout,
        connections: usize::from(arguments.connections),
        memory_bytes: usize::try_from(arguments.memory).unwrap_or(usize::MAX),
        duplicates: arguments.duplicates.into(),
        indexes: arguments.indexes.into(),
        writes_binlog: !arguments.no_binlog,
        time_zone: arguments.time_zone.clone(),
        rejects: arguments.rejects.clone(),
        is_dry: arguments.dry_run,
    })
}

fn read_layout(path: &Path) -> Result<(Layout, String), Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("--layout {name}: {error}"))?;
    Ok((Layout::parse(&text, &name)?, text))
}

/// What the endings of names say.
fn format_of_names(paths: &[std::path::PathBuf]) -> Result<Format, Failure> {
    let is_of = |path: &Path, ending: &str| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let plain = name.trim_end_matches(".gz").trim_end_matches(".zst").to_owned();
        plain.ends_with(ending)
    };
    match paths.iter().all(|path| is_of(path, ".tsv")) {
        _ if paths.iter().all(|path| is_of(path, ".csv")) => Ok(Format::Csv),
        true => Ok(Format::Tsv),
        false => {
            Err("the files' names do not end in .csv or .tsv: say --format, or describe them with --layout".into())
        }
    }
}

/// A name that fits, and is another one for another text.
fn short(text: &str) -> String {
    if text.chars().count() <= NAME_LETTERS_MAX {
        return text.to_owned();
    }
    const HASH_LETTERS: usize = 9;
    let begin: String = text.chars().take(NAME_LETTERS_MAX - HASH_LETTERS).collect();
    format!("{begin}-{:08x}", xxh3_64(text.as_bytes()) as u32)
}

fn line() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:30} {percent}% {bytes}/{total_bytes} {bytes_per_sec} {eta}  {wide_msg}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn draw(line: &ProgressBar, progress: &Progress, over: &AtomicBool) {
    const INTERVAL: Duration = Duration::from_millis(250);
    while !over.load(Ordering::Acquire) && !line.is_hidden() {
        let (read, all) = progress.bytes();
        line.set_length(all.max(read));
        line.set_position(read);
        let totals = progress.totals();
        let doing = harmless(&progress.doing()).replace(['\n', '\t'], " ");
        line.set_message(format!("{} rows, {} rejected; {doing}", totals.loaded, totals.rejected));
        std::thread::park_timeout(INTERVAL);
    }
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    let totals = report.totals;
    let megabytes = report.bytes as f64 / 1e6;
    let did = if report.dry_run { "would be loaded" } else { "loaded" };
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["table", "rows"]);
    for (name, rows) in report.tables.iter().take(SHOWN) {
        table.add_row([name.clone(), rows.to_string()]);
    }
    lines.push(table.to_string());
    if report.tables.len() > SHOWN {
        lines.push(format!("… and {} more tables", report.tables.len() - SHOWN));
    }
    lines.push(format!(
        "{} of {} records {did}, {} rejected, in {:.1} s: {megabytes:.1} MB, {:.0} records/s",
        totals.loaded,
        totals.records,
        totals.rejected,
        report.seconds,
        totals.records as f64 / report.seconds.max(1e-3)
    ));
    let made = if report.dry_run { "would be made" } else { "were made" };
    for (what, names) in [("tables", &report.new_tables), ("partitions", &report.new_partitions)] {
        if !names.is_empty() {
            let more = if names.len() > SHOWN { ", …" } else { "" };
            let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
            lines.push(format!("{} {what} {made}: {shown}{more}", names.len()));
        }
    }
    for file in report.files.iter().filter(|file| file.was_loaded).take(SHOWN) {
        lines.push(format!("{} was loaded before: {} rows", file.file, file.totals.loaded));
    }
    for file in &report.files {
        if let Some(path) = &file.rejects {
            let here = file.totals.rejected - file.rejects_elsewhere;
            lines.push(format!("rejected of {}: {here} in {}", file.file, path.display()));
        }
        if file.rejects_elsewhere > 0 {
            let (count, file) = (file.rejects_elsewhere, &file.file);
            lines.push(format!("rejected of {file}: {count} in the --rejects directory of an earlier run"));
        }
    }
    for reject in &report.first_rejects {
        lines.push(format!("{}:{}: {}: {}", reject.file, reject.line, reject.reason, reject.record));
    }
    if !report.dry_run {
        if let Some(choice) = &report.indexes {
            let when = if choice.after { "after the rows" } else { "with the tables" };
            lines.push(format!("indexes of new tables: {when}: {} ({:.1} s)", choice.why, report.index_seconds));
        }
        lines.push(format!("{} connections by {}", report.connections, report.door));
        lines.push(report.durability.clone());
    }
    lines.join("\n")
}
