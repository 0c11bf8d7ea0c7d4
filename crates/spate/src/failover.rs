//! `spate promote`, `spate follow` and `spate watch`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spate_archive::{ArchiveWriter, RealFileSystem, WriterOptions};
use spate_connection::ConnectOptions;
use spate_connection::endpoint::Endpoint;
use spate_failover::plan::{Allowed, Plan};
use spate_failover::{
    ArchiveToApply, FollowOptions, Followed, Patience, PromoteOptions, Promotion, ReplicationAccount, WatchOptions,
};
use spate_operate::{ApplyOptions, Ended};
use spate_replica::asking;
use spate_replica::new_source::{self, archive_of};
use spate_replica::status::Status;

use crate::arguments::made_server_id;
use crate::connection_arguments::{CommonArguments, replication_password};
use crate::failover_arguments::{FollowArguments, PromoteArguments, ReplicationArguments, WatchArguments};
use crate::{Failure, parallel_arguments, print, say, signals};

/// Memory to apply the rest of an archive, as `--memory` of `spate replicate` is without being told.
const DRAIN_MEMORY_BYTES: u64 = 512 << 20;

pub(crate) fn promote(arguments: &PromoteArguments) -> Result<ExitCode, Failure> {
    let common = &arguments.common;
    let candidate = arguments.replica.endpoint(common)?;
    let source = arguments.source.is_named().then(|| arguments.source.endpoint(common)).transpose()?;
    let others: Result<Vec<Endpoint>, Failure> =
        arguments.others.iter().map(|other| arguments.replica.another(other, common)).collect();
    let drain = Duration::from_secs(arguments.drain_seconds);
    let stop = signals::stop_flag()?;
    let directory = arguments.archive.as_ref().map(|directory| archive_at(directory, &candidate)).transpose()?;
    let apply = |keeps_gtids: bool| {
        let Some(directory) = &directory else { return Ok(()) };
        apply_archive(directory, &candidate, keeps_gtids, drain, &stop).map_err(|error| error.to_string())
    };
    let archive = match &directory {
        Some(directory) => {
            let end = (*open_archive(directory)?.end().gtid_position).clone();
            Some(ArchiveToApply { end, apply: &apply })
        }
        None => None,
    };
    let options = PromoteOptions {
        candidate: candidate.clone(),
        source: source.clone(),
        others: others?,
        allowed: Allowed {
            source_is_dead: arguments.source_is_dead,
            loss: arguments.accept_loss,
            errant: arguments.accept_errant,
        },
        archive,
        is_alone: false,
        address: arguments.address.as_deref().map(host_and_port).transpose()?,
        account: account(&arguments.replication, common)?,
        drain,
        patience: Patience::default(),
        guard: &|| if stop.load(Ordering::Acquire) { Err(spate_failover::Error::Interrupted) } else { Ok(()) },
        tell: &|line| say(&format!("spate promote: {line}")),
    };
    if arguments.dry_run {
        let plan = spate_failover::dry_run(&options)?;
        print(&if arguments.json { serde_json::to_string_pretty(&plan)? } else { plan_text(&plan) })?;
        return Ok(if plan.refusals.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut promotion = spate_failover::promote(&options)?;
    spate_failover::await_spate(&mut promotion, options.guard, options.tell)?;
    print(&if arguments.json { serde_json::to_string_pretty(&promotion)? } else { promotion_text(&promotion) })?;
    Ok(if promotion.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn follow(arguments: &FollowArguments) -> Result<ExitCode, Failure> {
    let common = &arguments.common;
    let server = arguments.replica.endpoint(common)?;
    let options = FollowOptions {
        server_id: made_server_id(Path::new(&server.to_string())),
        server,
        source: arguments.source.endpoint(common)?,
        address: arguments.address.as_deref().map(host_and_port).transpose()?,
        account: account(&arguments.replication, common)?,
        save: arguments.save.clone(),
        channel: arguments.channel.clone(),
        is_dry: arguments.dry_run,
        tell: &|line| say(&format!("spate follow: {line}")),
    };
    let followed = spate_failover::follow(&options)?;
    if arguments.json {
        print(&serde_json::to_string_pretty(&followed)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Followed { server, source, surplus, undone_changes, list, position } = &followed;
    if arguments.dry_run {
        print(&format!("{server} has {surplus} that {source} lacks"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(list) = list {
        print(&format!(
            "{surplus} were undone by {undone_changes} row changes; they are listed in {}",
            list.display()
        ))?;
    }
    print(&format!("{server} follows {source} from GTID position '{position}' on"))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn watch(arguments: &WatchArguments) -> Result<ExitCode, Failure> {
    let common = &arguments.common;
    let replicas: Result<Vec<Endpoint>, Failure> =
        arguments.replicas.iter().map(|replica| arguments.source.another(replica, common)).collect();
    if arguments.watchers.is_multiple_of(2) && !arguments.etcd.is_empty() {
        say(
            "spate watch: warning: --watchers is even: one watcher more decides no worse, and lives through one loss more",
        );
    }
    let stop = signals::stop_flag()?;
    spate_failover::watch(&WatchOptions {
        source: arguments.source.endpoint(common)?,
        replicas: replicas?,
        etcd: arguments.etcd.clone(),
        cluster: arguments.cluster.clone(),
        name: arguments.name.clone(),
        watchers: arguments.watchers,
        within: Duration::from_secs(arguments.within),
        hook: arguments.hook.clone(),
        check_listen: arguments.check_listen.clone(),
        account: account(&arguments.replication, common)?,
        stop: &stop,
        tell: &|line| say(&format!("spate watch: {line}")),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn account(arguments: &ReplicationArguments, common: &CommonArguments) -> Result<ReplicationAccount, Failure> {
    let password = match arguments.replication_user {
        Some(_) => replication_password(common)?,
        None => None,
    };
    Ok(ReplicationAccount {
        user: arguments.replication_user.clone(),
        password,
        requires_tls: arguments.replication_tls,
    })
}

fn host_and_port(text: &str) -> Result<(String, u16), Failure> {
    let endpoint: Endpoint = text.parse().map_err(|error| format!("--address {text}: {error}"))?;
    spate_failover::topology::host_and_port(&endpoint)
        .ok_or_else(|| format!("--address {text}: expected HOST:PORT").into())
}

/// The archive that a candidate's Spate has written last: after an earlier promotion, that is another one below its directory.
fn archive_at(directory: &Path, candidate: &Endpoint) -> Result<PathBuf, Failure> {
    let mut connection = asking::connect(candidate, &ConnectOptions::new("replica"))?;
    let named = new_source::read(&mut connection)?;
    let archive = archive_of(directory, named.as_ref());
    if named.is_some() && !archive.is_dir() {
        let why = "its Spate has received nothing since the last promotion, and what is older is another server's: leave --archive out";
        return Err(format!("--archive {}: {why}", directory.display()).into());
    }
    Ok(archive)
}

/// An archive that nobody is writing. As long as this exists, nobody can.
fn open_archive(directory: &Path) -> Result<ArchiveWriter, Failure> {
    if !directory.is_dir() {
        return Err(format!("--archive {}: there is no such directory", directory.display()).into());
    }
    ArchiveWriter::open(Arc::new(RealFileSystem), directory, WriterOptions::default()).map_err(|error| {
        format!("--archive {}: {error}; stop the spate replicate that works on it", directory.display()).into()
    })
}

/// Applies what an archive holds, without its source, within some time.
fn apply_archive(
    directory: &Path,
    replica: &Endpoint,
    keeps_gtids: bool,
    within: Duration,
    interrupted: &AtomicBool,
) -> Result<(), Failure> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let writer = open_archive(directory)?;
    let options = ApplyOptions {
        parallel: keeps_gtids.then(parallel_arguments::one_to_one),
        ..ApplyOptions::new(replica.clone(), DRAIN_MEMORY_BYTES)
    };
    let notify = |stage: &str, message: &str| say(&format!("spate {stage}: {message}"));
    let status = Status::new(directory.display().to_string(), replica.to_string(), Box::new(notify));
    let (stop, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let ended = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let deadline = Instant::now() + within;
            let is_interrupted = || interrupted.load(Ordering::Acquire);
            while !is_over.load(Ordering::Acquire) && !is_interrupted() && Instant::now() < deadline {
                thread::park_timeout(LOOK_EVERY.min(deadline.saturating_duration_since(Instant::now())));
            }
            stop.store(true, Ordering::Release);
        });
        let end = &writer.end().gtid_position;
        let ended = spate_operate::apply_rest(&options, writer.archive(), end, &status, &stop);
        is_over.store(true, Ordering::Release);
        waiting.thread().unpark();
        ended
    });
    match ended? {
        Ended::Reached => Ok(()),
        Ended::Stopped if interrupted.load(Ordering::Acquire) => Err("interrupted".to_owned().into()),
        Ended::Stopped => {
            let position = &status.report().positions.applied.gtid;
            let seconds = within.as_secs();
            Err(format!("after {seconds} s it was only at '{position}': wait longer with --drain-seconds").into())
        }
    }
}

fn plan_text(plan: &Plan) -> String {
    let mut lines = vec![format!("{}: {}", plan.candidate, plan.loss_in_words())];
    lines.extend(plan.lost.iter().map(|loss| format!("  {} has {}", loss.server, loss.surplus)));
    lines.push(format!("to apply: {}", plan.to_apply));
    lines.push("steps:".to_owned());
    lines.extend(plan.steps.iter().enumerate().map(|(number, step)| format!("  {}. {step}", number + 1)));
    lines.extend(plan.left_out.iter().map(|left| format!("left out: {}: {}", left.server, left.why)));
    lines.extend(plan.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.extend(plan.refusals.iter().map(|refusal| format!("refused: {refusal}")));
    lines.join("\n")
}

fn promotion_text(promotion: &Promotion) -> String {
    let mut lines = vec![
        format!("{} is the source, from GTID position '{}' on", promotion.new_source, promotion.position),
        promotion.plan.loss_in_words(),
    ];
    lines.extend(promotion.plan.lost.iter().map(|loss| format!("  {} has {}", loss.server, loss.surplus)));
    lines.extend(promotion.following.iter().map(|name| format!("{name} follows it")));
    lines.extend(promotion.left_out.iter().map(|left| format!("{} does not follow it: {}", left.server, left.why)));
    lines.extend(promotion.next.iter().cloned());
    lines.join("\n")
}
