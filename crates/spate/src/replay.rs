//! `spate replay`.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{Table, presets};
use spate_connection::endpoint::Address;
use spate_workload::{
    Comparison, InputPlan, Latency, Output, Place, ReplayOptions, ReplayProgress, ReplayReport, Sharing, Verdict,
    compare, page, replay,
};

use crate::replay_arguments::{CompareArguments, ReplayArguments, ReplayCommand};
use crate::{Failure, print, progress_line, say, signals};

/// Lines of each list on the terminal; the page and JSON have more.
const SHOWN: usize = 10;
/// Letters of a statement on the terminal.
const LETTERS: usize = 70;

pub(crate) fn run(arguments: &ReplayArguments) -> Result<ExitCode, Failure> {
    if let Some(ReplayCommand::Compare(files)) = &arguments.command {
        return compare_files(files);
    }
    let options = options(arguments)?;
    let outputs = Outputs::create(arguments, &options)?;
    let stop = signals::stop_flag()?;
    let progress = ReplayProgress::default();
    let (line, over) = (progress_line::line(), AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        let drawer = scope.spawn(|| {
            while !over.load(Ordering::Acquire) && !line.is_hidden() {
                let (executed, errors, recorded) = progress.now();
                line.set_message(format!(
                    "{executed} statements, {errors} errors; read until {recorded:.0} s of the record"
                ));
                line.tick();
                std::thread::park_timeout(Duration::from_millis(500));
            }
        });
        let report = replay(&options, outputs.csv, &stop, &progress);
        over.store(true, Ordering::Release);
        drawer.thread().unpark();
        report
    });
    line.finish_and_clear();
    let report = report?;
    // What can be told is told, even if a part of it cannot be written.
    let html = outputs.html.map(|output| -> Result<(), Failure> {
        let path = output.path().to_owned();
        output.finish_with(&page(&report)?)?;
        say(&format!("the page is {}", path.display()));
        Ok(())
    });
    let json = outputs.json.map(|output| -> Result<(), Failure> {
        output.finish_with(&serde_json::to_string_pretty(&report)?)?;
        Ok(())
    });
    match &arguments.json {
        Some(path) if path.as_os_str() == "-" => print(&serde_json::to_string_pretty(&report)?)?,
        _ => print(&text(&report))?,
    }
    json.transpose()?;
    html.transpose()?;
    match report.failure {
        Some(failure) => {
            Err(format!("the replay ended early, and reports what it measured until then: {failure}").into())
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The files that are written, open.
struct Outputs {
    csv: Option<Output>,
    html: Option<Output>,
    json: Option<Output>,
}

impl Outputs {
    fn create(arguments: &ReplayArguments, options: &ReplayOptions) -> Result<Outputs, Failure> {
        let json = arguments.json.as_ref().filter(|path| path.as_os_str() != "-");
        let paths: Vec<&PathBuf> =
            [arguments.csv.as_ref(), arguments.html.as_ref(), json].into_iter().flatten().collect();
        if let Some((_, path)) = paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path)) {
            return Err(
                format!("{}: several outputs have this name: each needs a file of its own", path.display()).into()
            );
        }
        let inputs: Vec<&Place> = options.inputs.iter().map(|plan| &plan.place).collect();
        let create = |path: Option<&PathBuf>| path.map(|path| Output::create(path, &inputs)).transpose();
        Ok(Outputs {
            csv: create(arguments.csv.as_ref())?,
            html: create(arguments.html.as_ref())?,
            json: create(json)?,
        })
    }
}

fn options(arguments: &ReplayArguments) -> Result<ReplayOptions, Failure> {
    let sharing = match (arguments.threads, arguments.each) {
        (Some(threads), true) => Sharing::Each(usize::from(threads)),
        (Some(threads), false) => Sharing::Threads(usize::from(threads)),
        (None, _) => Sharing::Sessions,
    };
    let format = arguments.format.map(Into::into).unwrap_or_default();
    let mut inputs = Vec::new();
    for text in &arguments.inputs {
        inputs.push(input_plan(text, sharing, format)?);
    }
    if let Some(table) = arguments.from_table {
        let server = arguments.captured.endpoint(&arguments.common)?;
        let name = format!("{table:?}");
        inputs.push(InputPlan { name, place: Place::Table(server, table.into()), sharing });
    }
    let server = arguments.server.endpoint(&arguments.common)?;
    let is_local = match server.address()? {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => ["localhost", "127.0.0.1", "::1"].contains(&host.as_str()),
    };
    Ok(ReplayOptions {
        server,
        is_local,
        inputs,
        pace: arguments.pace.0,
        writes: arguments.writes,
        schema: arguments.schema.clone(),
        sessions_max: arguments.sessions_max.max(1),
    })
}

/// `file`, or `file,threads=4,name=large`.
fn input_plan(text: &str, sharing: Sharing, format: spate_workload::InputFormat) -> Result<InputPlan, Failure> {
    let mut parts = text.split(',');
    let path = PathBuf::from(parts.next().unwrap_or_default());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut plan = InputPlan { name, place: Place::File(path, format), sharing };
    for part in parts {
        let number = |text: &str| {
            let number = text.parse::<u16>().ok().filter(|number| *number > 0);
            number.map(usize::from).ok_or_else(|| format!("{part:?} of {text:?}: expected a number"))
        };
        match part.split_once('=') {
            Some(("threads", threads)) => plan.sharing = Sharing::Threads(number(threads)?),
            Some(("each", threads)) => plan.sharing = Sharing::Each(number(threads)?),
            Some(("name", name)) => name.clone_into(&mut plan.name),
            None if part == "sessions" => plan.sharing = Sharing::Sessions,
            _ => return Err(format!("{text:?}: {part:?} is none of threads=N, each=N, sessions, name=NAME").into()),
        }
    }
    Ok(plan)
}

fn shown(text: &str) -> String {
    match text.chars().count() > LETTERS {
        true => text.chars().take(LETTERS).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn cells(latency: &Latency) -> [String; 5] {
    [latency.mean, latency.p50, latency.p95, latency.p99, latency.max].map(|milliseconds| format!("{milliseconds:.2}"))
}

fn text(report: &ReplayReport) -> String {
    let sums = &report.sums;
    let errors: u64 = sums.errors.values().map(|(count, _)| count).sum();
    let mut lines = vec![format!(
        "{} statements in {:.2} s: {:.0} a second, {} rows, {errors} errors; {}",
        sums.statements,
        sums.seconds,
        sums.statements as f64 / sums.seconds.max(1e-9),
        sums.rows,
        report.pace
    )];
    let table = |first: &str, rows: Vec<(String, u64, &Latency)>| {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([first, "answers", "mean ms", "p50", "p95", "p99", "max"]);
        for (name, count, latency) in rows {
            table.add_row([vec![name, count.to_string()], cells(latency).to_vec()].concat());
        }
        table.to_string()
    };
    let inputs = sums
        .inputs
        .iter()
        .map(|input| (format!("{} ({})", input.name, input.sharing), input.statements, &input.latency_ms));
    lines.push(table("input", inputs.collect()));
    let digests = sums.digests.iter().take(SHOWN).map(|digest| (shown(&digest.text), digest.count, &digest.latency_ms));
    lines.push(table("statement", digests.collect()));
    let sizes = sums.sizes.iter().map(|size| (format!("≤ {} bytes", size.bytes_max), size.count, &size.latency_ms));
    lines.push(table("answers of", sizes.collect()));
    for (code, (count, message)) in sums.errors.iter().take(SHOWN) {
        lines.push(format!("error {code}, {count} times, such as: {message}"));
    }
    if report.skipped_writes > 0 {
        lines
            .push(format!("{} statements that may write were left out (--writes replays them)", report.skipped_writes));
    }
    if report.skipped_of_server > 0 {
        lines.push(format!(
            "{} statements of the server's accounts, settings, files or replication were left out",
            report.skipped_of_server
        ));
    }
    if report.skipped_unclear > 0 {
        lines.push(format!(
            "{} statements were left out since a server may read them in several ways, since they may be cut or lack their values, or since they \
             change how it reads others",
            report.skipped_unclear
        ));
    }
    if report.skipped_of_session > 0 {
        lines.push(format!(
            "{} statements were left out since they need the session that they were recorded in (without --threads, each has its own)",
            report.skipped_of_session
        ));
    }
    if report.held_back_seconds > 0.0 {
        lines.push(format!(
            "statements waited {:.1} s in all until there was memory for them",
            report.held_back_seconds
        ));
    }
    if sums.late_ms.p99 > 0.0 && report.pace != "as fast as possible" {
        lines.push(format!("statements began {:.2} ms after they were due at the 99th percentile", sums.late_ms.p99));
    }
    let counters: Vec<String> = report.server.counters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    lines.push(format!("the server meanwhile: {}", counters.join(", ")));
    for disk in report.server.disks.iter().filter(|disk| disk.has_data || disk.has_temporary || disk.busy > 0.01) {
        let holds = match (disk.has_data, disk.has_temporary) {
            (true, true) => " (holds data and temporary files: they wait for each other there)",
            (true, false) => " (holds data)",
            (false, true) => " (holds temporary files)",
            (false, false) => "",
        };
        lines.push(format!(
            "disk {}{holds}: busy {:.0} % of the time, {:.0} % in the busiest second",
            disk.name,
            disk.busy * 1e2,
            disk.busiest_second * 1e2
        ));
    }
    lines.join("\n")
}

fn compare_files(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let (first, second) = (read(&arguments.first)?, read(&arguments.second)?);
    let comparison = compare(&first, &second);
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&comparison)?)?,
        false => print(&comparison_text(&comparison))?,
    }
    let is_worse = comparison.count(Verdict::DifferentResult) + comparison.count(Verdict::Slower) > 0;
    Ok(if is_worse { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(path: &Path) -> Result<ReplayReport, Failure> {
    let file = std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_reader(BufReader::new(file))
        .map_err(|error| format!("{}: it is not what spate replay --json writes: {error}", path.display()).into())
}

fn comparison_text(comparison: &Comparison) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["statement", "answers", "mean ms", "then", "p95", "then", "verdict"]);
    for digest in comparison.digests.iter().filter(|digest| digest.verdict != Verdict::Same).take(2 * SHOWN) {
        let verdict = match digest.verdict {
            Verdict::DifferentResult => "other result".to_owned(),
            Verdict::Slower => format!("{:.2} × slower", digest.mean_ms[1] / digest.mean_ms[0]),
            Verdict::Faster => format!("{:.2} × faster", digest.mean_ms[0] / digest.mean_ms[1]),
            Verdict::NotComparable => format!("not comparable: {} answers then", digest.counts[1]),
            Verdict::Same => String::new(),
        };
        let [mean, p95] = [digest.mean_ms, digest.p95_ms].map(|pair| pair.map(|ms| format!("{ms:.2}")));
        let row = [vec![shown(&digest.text), digest.counts[0].to_string()], mean.to_vec(), p95.to_vec(), vec![verdict]];
        table.add_row(row.concat());
    }
    format!(
        "{table}\n{:.2} s, then {:.2} s; {} kinds of statements: {} with other results, {} slower, {} faster, {} as before, {} not comparable",
        comparison.seconds[0],
        comparison.seconds[1],
        comparison.digests.len(),
        comparison.count(Verdict::DifferentResult),
        comparison.count(Verdict::Slower),
        comparison.count(Verdict::Faster),
        comparison.count(Verdict::Same),
        comparison.count(Verdict::NotComparable)
    )
}
