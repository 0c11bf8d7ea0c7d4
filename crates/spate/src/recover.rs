//! `spate backup` and `spate restore`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_operate::{ApplyOptions, ReplicateOptions};
use spate_receive::intake::IntakeOptions;
use spate_recover::base::{self, BaseOptions, Hook};
use spate_recover::goal::Goal;
use spate_recover::keep::{self, Pruned};
use spate_recover::manifest::{self, Base, Known};
use spate_recover::programs::Programs;
use spate_recover::restore::{self, Around, Checked, RestoreOptions, Restored};
use spate_recover::sealing::{self, Identities, Recipients};
use spate_recover::shipping::{self, Shipped};
use spate_recover::target::Target;
use spate_recover::{Error, Progress};
use spate_replica::new_source::latest_archive_below;
use spate_replica::status::Status;
use spate_replica::until::Until;
use spate_verify::VerifyOptions;

use crate::recover_arguments::{
    BackupCommand, BackupListArguments, BackupVerifyArguments, BaseArguments, PruneArguments, RecoveryArguments,
    RestoreArguments, ShipArguments,
};
use crate::{Failure, harmless, print, progress_line, say, signals};

/// Lines of each list on the terminal; JSON has more.
const SHOWN: usize = 20;

pub(crate) fn backup(command: &BackupCommand) -> Result<ExitCode, Failure> {
    keep_files_private();
    match command {
        BackupCommand::Base(arguments) => make_base(arguments),
        BackupCommand::Archive(arguments) => ship(arguments),
        BackupCommand::List(arguments) => list(arguments),
        BackupCommand::Prune(arguments) => prune(arguments),
        BackupCommand::Verify(arguments) => verify(arguments),
        BackupCommand::Key { out } => {
            let public = sealing::make_key(out)?;
            print(&format!("public key: {public}\nsecret key: {}", out.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Backups hold every row.
fn keep_files_private() {
    let _before = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

fn make_base(arguments: &BaseArguments) -> Result<ExitCode, Failure> {
    let target = Target::open(&arguments.target.target, true)?;
    let options = BaseOptions {
        source: arguments.source.endpoint(&arguments.common)?,
        method: arguments.method.map(Into::into),
        recipients: Recipients::read(&arguments.encrypt_to)?,
        programs: Programs { directory: arguments.programs.clone() },
        work_directory: arguments.work.clone(),
        hook: arguments.hook.clone().map(|command| Hook { command, seconds_max: arguments.hook_seconds }),
    };
    let stop = signals::stop_flag()?;
    let progress = Progress::default();
    let base = watched(&progress, None, || base::make(&options, &target, &progress, &stop))?;
    base.warnings.iter().for_each(|warning| say(&format!("spate: warning: {warning}")));
    let pruned = arguments.keep.map(|kept| keep::prune(&target, kept, false)).transpose();
    let pruned =
        pruned.map_err(|error| format!("the base {} is made, and old ones are still there: {error}", base.id))?;
    #[derive(Serialize)]
    struct Made<'a> {
        base: &'a Base,
        pruned: Option<&'a Pruned>,
    }
    if arguments.json {
        print(&serde_json::to_string_pretty(&Made { base: &base, pruned: pruned.as_ref() })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (plain, stored) = base.bytes();
    print(&format!(
        "base {} of {} {} by {}: {:.1} MB, {:.1} MB stored{}, at {}",
        base.id,
        base.server.vendor,
        base.server.version,
        base.method,
        megabytes(plain),
        megabytes(stored),
        if base.is_encrypted { " and encrypted" } else { "" },
        base.position
    ))?;
    pruned.iter().try_for_each(|pruned| print(&pruned_text(pruned, false)))?;
    Ok(ExitCode::SUCCESS)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn ship(arguments: &ShipArguments) -> Result<ExitCode, Failure> {
    let target = Target::open(&arguments.target.target, true)?;
    let recipients = Recipients::read(&arguments.encrypt_to)?;
    let stop = signals::stop_flag()?;
    let progress = Progress::default();
    let mut told = None;
    loop {
        let newer = latest_archive_below(&arguments.archive);
        if newer != told {
            if let Some(newer) = &newer {
                say(&format!(
                    "spate: warning: since a promotion, the replica's binlogs come into {}, which this command does not store: name that with --archive, and make a base \
                     of the new source",
                    newer.display()
                ));
            }
            told = newer;
        }
        let once = || shipping::ship(&arguments.archive, &target, &recipients, &progress, &stop);
        let shipped = match (watched(&progress, None, once), arguments.follow) {
            (Ok(shipped), _) => shipped,
            (Err(Error::Stopped), Some(_)) => return Ok(ExitCode::SUCCESS),
            // A store that is away for a while is waited for.
            (Err(error @ Error::Target { .. }), Some(pause)) => {
                say(&format!("spate: {error}; trying again in {} s", pause.as_secs()));
                if !wait(pause, &stop) {
                    return Ok(ExitCode::SUCCESS);
                }
                continue;
            }
            (Err(error), _) => return Err(error.into()),
        };
        if let Some(why) = &shipped.broken {
            say(&format!("spate: warning: {why}. The binlogs that follow are a lineage of their own: make a base now"));
        }
        if arguments.json {
            print(&serde_json::to_string(&shipped)?)?;
        } else if arguments.follow.is_none() || shipped.bytes > 0 {
            print(&shipped_text(&shipped))?;
        }
        match arguments.follow {
            Some(pause) if wait(pause, &stop) => {}
            _ => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// False if somebody asks to stop meanwhile.
fn wait(pause: Duration, stop: &AtomicBool) -> bool {
    Backoff::default().wait(pause, stop);
    !stop.load(Ordering::Acquire)
}

fn shipped_text(shipped: &Shipped) -> String {
    let place = format!("{}:{}", shipped.source_file, shipped.source_position);
    format!(
        "stored {:.1} MB of binlog, up to GTID position '{}' ({place})",
        megabytes(shipped.bytes),
        shipped.gtid_position
    )
}

fn list(arguments: &BackupListArguments) -> Result<ExitCode, Failure> {
    let target = Target::open(&arguments.target.target, false)?;
    let Known { bases, damaged } = manifest::bases(&target)?;
    let binlogs = shipping::summary(&target)?;
    #[derive(Serialize)]
    struct Listed {
        bases: Vec<Base>,
        binlogs: Vec<shipping::Summary>,
        damaged: Vec<String>,
    }
    let of_binlogs = binlogs.iter().flat_map(|found| &found.damaged);
    damaged.iter().chain(of_binlogs).for_each(|what| say(&format!("spate: warning: {what}")));
    if arguments.json {
        print(&serde_json::to_string_pretty(&Listed { bases, binlogs, damaged })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["base", "ended (UTC)", "server", "by", "MB", "stored", "position"]);
    for base in &bases {
        let (plain, stored) = base.bytes();
        table.add_row([
            base.id.clone(),
            base.ended.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            format!("{} {}", base.server.vendor, base.server.version),
            format!("{}{}", base.method, if base.is_encrypted { ", encrypted" } else { "" }),
            format!("{:.1}", megabytes(plain)),
            format!("{:.1}", megabytes(stored)),
            base.position.to_string(),
        ]);
    }
    print(&table.to_string())?;
    for found in &binlogs {
        print(&format!(
            "binlogs {}: {} files, {:.1} MB, from {} to {}, from GTID position '{}' on",
            found.lineage,
            found.files,
            megabytes(found.bytes),
            found.first_file,
            found.last_file,
            found.start
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn prune(arguments: &PruneArguments) -> Result<ExitCode, Failure> {
    let target = Target::open(&arguments.target.target, false)?;
    let pruned = keep::prune(&target, arguments.keep, arguments.dry_run)?;
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&pruned)?)?,
        false => print(&pruned_text(&pruned, arguments.dry_run))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn pruned_text(pruned: &Pruned, is_dry: bool) -> String {
    let what = if is_dry { "would be removed" } else { "removed" };
    let names = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut lines = vec![
        format!("bases that stay: {}", names(&pruned.kept)),
        format!("bases that {what}: {}", names(&pruned.bases)),
        format!("binlog files that {what}: {}", names(&pruned.binlogs)),
    ];
    if !pruned.unfinished.is_empty() {
        lines.push(format!("unfinished bases that {what}: {}", names(&pruned.unfinished)));
    }
    lines.join("\n")
}

fn options(arguments: &RecoveryArguments, goal: Goal) -> Result<RestoreOptions, Failure> {
    Ok(RestoreOptions {
        base: arguments.base.clone(),
        archive: arguments.archive.clone(),
        base_name: arguments.base_name.clone(),
        goal,
        identities: arguments.identity.as_deref().map(Identities::read).transpose()?.unwrap_or_default(),
        programs: Programs { directory: arguments.programs.clone() },
        memory_bytes: arguments.memory,
        server_options: arguments.server_option.clone(),
        becomes_replica: false,
    })
}

/// A status for transactions that come out of the binlogs of backups.
fn status() -> Status {
    let notify = |stage: &str, message: &str| say(&format!("spate {stage}: {message}"));
    Status::new("the backup's binlogs".into(), "the server that is restored".into(), Box::new(notify))
}

pub(crate) fn restore(arguments: &RestoreArguments) -> Result<ExitCode, Failure> {
    keep_files_private();
    let target = Target::open(&arguments.recovery.target.target, false)?;
    let mut options = options(&arguments.recovery, arguments.until.clone())?;
    options.becomes_replica = arguments.keep_checkpoint || arguments.to.is_none() && arguments.only.is_empty();
    let stop = signals::stop_flag()?;
    let (progress, status) = (Progress::default(), status());
    let around = Around { target: &target, progress: &progress, status: &status, stop: &stop };
    let done: Result<Restored, Failure> = watched(&progress, Some(&status), || match &arguments.to {
        Some(directory) => {
            let directory = std::path::absolute(directory)?;
            Ok(restore::to_directory(&directory, &options, around)?)
        }
        None if !arguments.only.is_empty() => {
            let live = arguments.server.endpoint(&arguments.common)?;
            let work = arguments.work.clone().unwrap_or_else(std::env::temp_dir);
            Ok(restore::single_tables(&work, &live, &arguments.only, &options, around)?)
        }
        None => {
            let replica = arguments.replica.endpoint(&arguments.common)?;
            Ok(restore::to_replica(&replica, &options, around)?)
        }
    });
    let restored = done?;
    if arguments.json {
        print(&serde_json::to_string_pretty(&restored)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&restored_text(&restored, arguments.to.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

fn restored_text(restored: &Restored, directory: Option<&Path>) -> String {
    let mut lines: Vec<String> = restored.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    lines.push(format!("base {} at {}", restored.base, restored.base_position));
    lines.push(format!(
        "and {} transactions ({} row changes, {} net), up to GTID position '{}' ({}:{})",
        restored.transactions,
        restored.row_changes,
        restored.net_row_changes,
        restored.gtid_position,
        restored.source_file,
        restored.source_position
    ));
    if let Some(excluded) = &restored.excluded {
        lines.push(format!("the first transaction that is left out: {excluded}"));
    }
    if let Some(later) = &restored.later {
        let listed = |names: &[String], count: u64| {
            let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
            let more = count.saturating_sub(names.len().min(SHOWN) as u64);
            if more > 0 { format!("{shown} … and {more} more") } else { shown }
        };
        match &later.unknown {
            Some(why) => lines.push(format!("its rows cannot be followed: {why}")),
            None => lines.push(format!("it changed {} rows", later.rows)),
        }
        lines.push(format!("behind it are {} transactions", later.transactions));
        lines.push(format!(
            "that touch the same rows: {}: {}",
            later.touching_count,
            listed(&later.touching, later.touching_count)
        ));
        lines.push(format!(
            "that may, since they hold statements, definitions, or tables without a primary key: {}: {}",
            later.unclear_count,
            listed(&later.unclear, later.unclear_count)
        ));
    }
    for copied in &restored.copied {
        lines.push(format!("{} is now {} ({} rows)", copied.table, copied.copy, copied.rows));
    }
    lines.push(format!(
        "in {:.1} s: binlogs {:.1}, base {:.1}, transactions {:.1}",
        restored.seconds, restored.binlog_seconds, restored.base_seconds, restored.apply_seconds
    ));
    if let Some(directory) = directory {
        lines.push(format!(
            "start the server with --datadir={0} (as its own user: chown -R mysql:mysql {0})",
            directory.display()
        ));
    }
    lines.join("\n")
}

/// What a verification found.
#[derive(Debug, Serialize)]
struct Verified {
    restored: Restored,
    checked: Checked,
    /// `None`: there was no source to compare with.
    compared: Option<spate_verify::Report>,
}

fn verify(arguments: &BackupVerifyArguments) -> Result<ExitCode, Failure> {
    let target = Target::open(&arguments.recovery.target.target, false)?;
    let mut options = options(&arguments.recovery, Goal::Latest)?;
    options.becomes_replica = true;
    let source = arguments.source.is_named().then(|| arguments.source.endpoint(&arguments.common)).transpose()?;
    let work = arguments.work.clone().unwrap_or_else(std::env::temp_dir);
    let stop = signals::stop_flag()?;
    let mut is_good = true;
    loop {
        let verified = verify_once(&target, &options, source.as_ref(), &work, &stop);
        match &verified {
            Ok(verified) if arguments.json => print(&serde_json::to_string_pretty(verified)?)?,
            Ok(verified) => print(&verified_text(verified))?,
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) if arguments.every.is_some() => {
                let message = crate::describe(error.as_ref());
                say(&format!("spate: {message}"));
                if arguments.json {
                    print(&serde_json::to_string_pretty(&serde_json::json!({ "failure": message }))?)?;
                }
            }
            Err(_) => {}
        }
        is_good &= match &verified {
            Ok(verified) => verified.compared.as_ref().is_none_or(spate_verify::Report::is_identical),
            // A signal interrupts what may be good.
            Err(_) => stop.load(Ordering::Relaxed),
        };
        match arguments.every {
            Some(pause) if wait(pause, &stop) => {}
            every => {
                if every.is_none() {
                    verified?;
                }
                return Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
    }
}

fn verify_once(
    target: &Target,
    options: &RestoreOptions,
    source: Option<&Endpoint>,
    work: &Path,
    stop: &AtomicBool,
) -> Result<Verified, Failure> {
    let (progress, status) = (Progress::default(), status());
    let around = Around { target, progress: &progress, status: &status, stop };
    let done = watched(&progress, Some(&status), || {
        restore::verify(work, options, around, |server, restored| {
            let Some(source) = source else { return Ok(Ok(None)) };
            Ok(compare(source, server, restored, options.memory_bytes, stop).map(Some))
        })
    })?;
    let (restored, checked, compared) = done;
    Ok(Verified { restored, checked, compared: compared? })
}

/// Lets the recovered server follow the source for a while, and compares both.
fn compare(
    source: &Endpoint,
    server: &Endpoint,
    restored: &Restored,
    memory_bytes: u64,
    stop: &AtomicBool,
) -> Result<spate_verify::Report, Failure> {
    if restored.transactions == 0 && restored.gtid_position.is_empty() && restored.source_file.is_empty() {
        return Err("the base has no position in a binlog: it cannot be compared with its source".into());
    }
    let archive = tempfile::tempdir()?;
    let following = ReplicateOptions {
        intake: IntakeOptions {
            start_place: None,
            source: source.clone(),
            server_id: crate::arguments::made_server_id(archive.path()),
            semi_sync: false,
        },
        archive_dir: archive.path().join("archive"),
        sync: spate_archive::SyncPolicy::Os,
        start: None,
        until: Until::Forever,
        retention: None,
        applying: ApplyOptions::new(server.clone(), memory_bytes),
    };
    let (over, status) = (AtomicBool::new(false), status());
    // What stands in the way is said at once; the comparison would wait for it.
    let until = Until::CaughtUp;
    spate_operate::replicate(&ReplicateOptions { until, ..following.clone() }, &status, stop)?;
    std::thread::scope(|scope| {
        let replicating = scope.spawn(|| spate_operate::replicate(&following, &status, &over));
        let watching = scope.spawn(|| {
            while !over.load(Ordering::Acquire) && !stop.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(100));
            }
            over.store(true, Ordering::Release);
        });
        let options = VerifyOptions::new(source.clone(), server.clone());
        let compared = spate_verify::run(&options, &|_| ());
        over.store(true, Ordering::Release);
        watching.thread().unpark();
        let replicated = replicating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // Why nothing could be compared is what replication says, if it says anything.
        replicated?;
        Ok(compared?)
    })
}

fn verified_text(verified: &Verified) -> String {
    let mut text = restored_text(&verified.restored, None);
    text += &format!(
        "\n{} tables checked by the server, about {} rows: sound",
        verified.checked.tables, verified.checked.rows_estimated
    );
    match &verified.compared {
        None => text += "\nnot compared with a source (--source)",
        Some(report) if report.is_identical() => {
            text +=
                &format!("\nidentical with the source: {} tables, {} rows", report.tables.len(), report.rows_compared);
        }
        Some(report) => {
            let differing = report.tables.iter().filter(|table| table.verdict != spate_verify::Verdict::Identical);
            let names: Vec<String> = differing.map(|table| format!("{}.{}", table.schema, table.table)).collect();
            text += &format!("\nNOT identical with the source: {}", names.join(", "));
        }
    }
    text
}

/// Does it, and shows on the terminal how far it is.
fn watched<T, E>(progress: &Progress, status: Option<&Status>, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let line = progress_line::line();
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let drawing = scope.spawn(|| draw(&line, progress, status, &over));
        let done = work();
        over.store(true, Ordering::Release);
        drawing.thread().unpark();
        done
    });
    line.finish_and_clear();
    done
}

fn draw(line: &ProgressBar, progress: &Progress, status: Option<&Status>, over: &AtomicBool) {
    const INTERVAL: Duration = Duration::from_millis(250);
    while !over.load(Ordering::Acquire) && !line.is_hidden() {
        let doing = progress.doing();
        let text = match (doing.is_empty(), status) {
            (true, Some(status)) => progress_line::text(&status.report()),
            _ => {
                let (plain, stored, expected) = progress.bytes();
                let of = if expected > 0 { format!(" of about {:.1}", megabytes(expected)) } else { String::new() };
                format!("{doing}: {:.1}{of} MB, {:.1} MB stored", megabytes(plain), megabytes(stored))
            }
        };
        line.set_message(harmless(&text).replace(['\n', '\t'], " "));
        line.tick();
        std::thread::park_timeout(INTERVAL);
    }
}
