//! `spate replicate`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use spate_archive::{FileSystem, RealFileSystem};
use spate_connection::endpoint::Endpoint;
use spate_operate::rules;
use spate_operate::takeover::{self, Turns};
use spate_operate::{ApplyOptions, Ended, OnConflict, ReplicateOptions};
use spate_receive::intake::IntakeOptions;
use spate_replica::journal::InterruptedStatement;
use spate_replica::status::Status;
use spate_schedule::EventStates;

use crate::arguments::{Conflict, Outcome, ReplicateArguments};
use crate::parallel_arguments::Applied;
use crate::status_socket::StatusSocket;
use crate::{Failure, print, progress_line, say, signals};

/// How it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begins {
    /// At the replica's checkpoint, or where the options say.
    AtCheckpoint,
    /// Where the server's own replication is stopped.
    ByTakeover,
}

/// What the command line says.
pub(crate) fn options(
    arguments: &ReplicateArguments,
    source: Endpoint,
    replica: Endpoint,
) -> Result<ReplicateOptions, Failure> {
    let archiving = &arguments.archiving;
    let (parallel, sharding, rule_file) = match arguments.applied()? {
        Applied::Snapshot => (None, None, None),
        Applied::Transaction(parallel) => (Some(parallel), None, None),
        Applied::Shard(sharding, rule_file) => (None, Some(sharding), rule_file),
    };
    let applying = ApplyOptions {
        replica,
        limits: arguments.limits(),
        without_replica_binlog: arguments.no_replica_binlog,
        interrupted: arguments.interrupted_statement.map(|outcome| match outcome {
            Outcome::Done => InterruptedStatement::Done,
            Outcome::Repeat => InterruptedStatement::Repeat,
        }),
        exclusions: arguments.exclusions(),
        dialect: arguments.dialect.wanted(),
        parallel,
        sharding,
        rule_file,
        fold_helpers: arguments.fold_helpers(),
        pipeline: arguments.pipelining.when(),
        prefetch: arguments.prefetch.when(),
        on_conflict: match arguments.on_conflict {
            Conflict::Stop => OnConflict::Stop,
            Conflict::Repair => OnConflict::Repair,
        },
        events: EventStates::default(),
    };
    Ok(ReplicateOptions {
        intake: IntakeOptions {
            start_place: None,
            source,
            server_id: archiving.server_id(),
            semi_sync: archiving.semi_sync,
        },
        archive_dir: archiving.archive.clone(),
        sync: archiving.archive_sync,
        start: archiving.start.clone(),
        until: archiving.until.clone().unwrap_or_default(),
        retention: archiving.retention(),
        applying,
    })
}

pub(crate) fn run(arguments: &ReplicateArguments, begins: Begins) -> Result<ExitCode, Failure> {
    let archiving = &arguments.archiving;
    let (source, replica) =
        (arguments.source.endpoint(&arguments.common)?, arguments.replica.endpoint(&arguments.common)?);
    if arguments.follow_promotions && matches!(begins, Begins::ByTakeover) {
        return Err("--follow-promotions is for spate replicate: take over first, then go on with that".into());
    }
    let options = options(arguments, source, replica)?;
    let stop = signals::stop_flag()?;
    let reload = options.applying.rule_file.is_some().then(signals::reload_flag).transpose()?;
    let line = progress_line::line();
    let told = line.clone();
    let notify = move |stage: &str, message: &str| told.suspend(|| say(&format!("spate {stage}: {message}")));
    let status = Status::new(options.intake.source.to_string(), options.applying.replica.to_string(), Box::new(notify));
    RealFileSystem
        .create_dir(&options.archive_dir)
        .map_err(|error| format!("cannot make the archive's directory {}: {error}", options.archive_dir.display()))?;
    let socket = StatusSocket::listen(&options.archive_dir)
        .map_err(|error| format!("cannot offer the status in {}: {error}", options.archive_dir.display()))?;
    let over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let serving = scope.spawn(|| socket.serve(&status, &over));
        let drawing = scope.spawn(|| progress_line::draw(&line, &status, &over));
        let reloading = reload.as_ref().map(|reload| scope.spawn(|| reload_rules(&options, reload, &status, &over)));
        let channel = arguments.channel.as_deref();
        let done = match (arguments.takeover_when_behind, begins) {
            (Some(takeover_behind), _) => {
                let turns = Turns { channel, takeover_behind, hands_back: arguments.handback_when_caught_up };
                takeover::take_turns(&options, turns, &status, &stop)
            }
            (None, Begins::ByTakeover) => takeover::take_over(&options, channel, &status, &stop)
                .and_then(|()| spate_operate::replicate(&options, &status, &stop)),
            (None, Begins::AtCheckpoint) if arguments.follow_promotions => {
                spate_operate::replicate_from_the_promoted(&options, &status, &stop)
            }
            (None, Begins::AtCheckpoint) => spate_operate::replicate(&options, &status, &stop),
        };
        over.store(true, Ordering::Release);
        serving.thread().unpark();
        drawing.thread().unpark();
        reloading.iter().for_each(|reloading| reloading.thread().unpark());
        done
    });
    if archiving.json {
        print(&serde_json::to_string(&status.report())?)?;
    }
    let ended = done?;
    if !archiving.json && (ended == Ended::Reached || stop.load(Ordering::Acquire)) {
        let report = status.report();
        say(&format!(
            "applied {} transactions ({} row changes, {} net) in {} batches, up to GTID position {} ({}:{})",
            report.counters.transactions,
            report.counters.row_changes,
            report.counters.net_row_changes,
            report.counters.batches,
            report.positions.applied.gtid,
            report.positions.applied.file,
            report.positions.applied.position,
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the rules read again whenever a signal says so.
fn reload_rules(options: &ReplicateOptions, reload: &AtomicBool, status: &Status, over: &AtomicBool) {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    while !over.load(Ordering::Acquire) {
        if reload.swap(false, Ordering::AcqRel) {
            rules::reload(options, status);
        }
        thread::park_timeout(LOOK_EVERY);
    }
}
