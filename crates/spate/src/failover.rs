//! `spate promote`, `spate follow` and `spate watch`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use spate_archive::{ArchiveWriter, RealFileSystem, WriterOptions};
use spate_binlog::GtidPosition;
use spate_connection::endpoint::Endpoint;
use spate_failover::plan::{Allowed, Plan};
use spate_failover::{
    ArchiveToApply, FollowOptions, Followed, Patience, PromoteOptions, Promotion, ReplicationAccount, WatchOptions,
};
use spate_replica::status::Status;
use spate_replica::until::Until;

use crate::arguments::{Arguments, Command, made_server_id};
use crate::connection_arguments::{CommonArguments, replication_password};
use crate::failover_arguments::{FollowArguments, PromoteArguments, ReplicationArguments, WatchArguments};
use crate::{Failure, print, replicate, say, signals};

pub(crate) fn promote(arguments: &PromoteArguments) -> Result<ExitCode, Failure> {
    let common = &arguments.common;
    let candidate = arguments.replica.endpoint(common)?;
    let source = arguments.source.is_named().then(|| arguments.source.endpoint(common)).transpose()?;
    let others: Result<Vec<Endpoint>, Failure> =
        arguments.others.iter().map(|other| arguments.replica.another(other, common)).collect();
    let apply = |keeps_gtids: bool| {
        let (Some(directory), Some(source)) = (&arguments.archive, &source) else { return Ok(()) };
        apply_archive(directory, source, &candidate, keeps_gtids).map_err(|error| error.to_string())
    };
    let archive = match &arguments.archive {
        Some(directory) => Some(ArchiveToApply { end: archive_end(directory)?, apply: &apply }),
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
        address: arguments.address.as_deref().map(host_and_port).transpose()?,
        account: account(&arguments.replication, common)?,
        drain: Duration::from_secs(arguments.drain_seconds),
        patience: Patience::default(),
        guard: &|| Ok(()),
        tell: &|line| say(&format!("spate promote: {line}")),
    };
    if arguments.dry_run {
        let plan = spate_failover::dry_run(&options)?;
        print(&if arguments.json { serde_json::to_string_pretty(&plan)? } else { plan_text(&plan) })?;
        return Ok(if plan.refusals.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let promotion = spate_failover::promote(&options)?;
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

/// Where an archive ends. Nobody may be writing it.
fn archive_end(directory: &Path) -> Result<GtidPosition, Failure> {
    if !directory.is_dir() {
        return Err(format!("--archive {}: there is no such directory", directory.display()).into());
    }
    let writer =
        ArchiveWriter::open(Arc::new(RealFileSystem), directory, WriterOptions::default()).map_err(|error| {
            format!("--archive {}: {error}; stop the spate replicate that works on it", directory.display())
        })?;
    Ok((*writer.end().gtid_position).clone())
}

/// Applies what an archive holds, without its source.
fn apply_archive(directory: &Path, source: &Endpoint, replica: &Endpoint, keeps_gtids: bool) -> Result<(), Failure> {
    let end = archive_end(directory)?;
    let consistency = if keeps_gtids { "transaction" } else { "snapshot" };
    let line = ["spate", "replicate", "--consistency", consistency, "--archive"].map(std::ffi::OsString::from);
    let parsed = Arguments::try_parse_from(line.into_iter().chain([directory.as_os_str().to_owned()]))?;
    let Command::Replicate(arguments) = parsed.command else { return Err("no replication".into()) };
    let mut options = replicate::options(&arguments, source.clone(), replica.clone())?;
    options.until = Until::Gtid(end);
    let notify = |stage: &str, message: &str| say(&format!("spate {stage}: {message}"));
    let status = Status::new(options.intake.source.to_string(), options.applying.replica.to_string(), Box::new(notify));
    spate_operate::replicate(&options, &status, &AtomicBool::new(false))?;
    Ok(())
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
