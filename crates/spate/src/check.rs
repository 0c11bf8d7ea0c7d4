//! `spate check`.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use spate_operate::check::{self, CheckOptions, Grants, Level, Report};

use crate::arguments::{CheckArguments, Conflict};
use crate::{Failure, print};

pub(crate) fn run(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let options = CheckOptions {
        source: arguments.source.endpoint(&arguments.common)?,
        replica: arguments.replica.endpoint(&arguments.common)?,
        archive_dir: arguments.archive.clone(),
        server_id: arguments.server_id,
        without_replica_binlog: arguments.no_replica_binlog,
        dialect: arguments.dialect.wanted(),
        repairs: arguments.on_conflict == Conflict::Repair,
        is_ring: !arguments.ignore_server_ids.is_empty(),
    };
    if arguments.grants {
        let grants = check::grants(&options)?;
        match arguments.json {
            true => print(&serde_json::to_string_pretty(&grants)?)?,
            false => print(&script(&grants))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = check::run(&options)?;
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&report)?)?,
        false => print(&text(&report))?,
    }
    Ok(if report.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["", "check", "where", "found"]);
    for finding in &report.findings {
        let found = match finding.advice.is_empty() {
            true => finding.message.clone(),
            false => format!("{}\n→ {}", finding.message, finding.advice),
        };
        table.add_row([finding.level.to_string(), finding.check.to_owned(), finding.place.to_string(), found]);
    }
    let count = |level| report.of_level(level).count();
    let conclusion = format!(
        "{} errors, {} warnings, {} ok, {} not looked at",
        count(Level::Error),
        count(Level::Warning),
        count(Level::Ok),
        count(Level::Skipped)
    );
    format!("{table}\n{conclusion}")
}

/// What a client of the replica can execute.
fn script(grants: &Grants) -> String {
    let (first, last) = &grants.files;
    let mut lines = vec![
        format!("-- on the {}, for {}", one_line(&grants.replica), one_line(&grants.account)),
        format!("-- as needed by {first} to {last} in the archive: rows, and {} statements", grants.statements),
        "-- (What comes later may need more: Spate stops there, and names the privilege.)".to_owned(),
    ];
    for grant in &grants.grants {
        lines.push(format!("-- {}", grant.why));
        lines.push(format!("{};", grant.statement));
    }
    if grants.schemas_left_out > 0 {
        let count = grants.schemas_left_out;
        lines
            .push(format!("-- INCOMPLETE: {count} more schemas need privileges of their own, which are left out here"));
    }
    if !grants.untold.is_empty() {
        lines.push("-- Nobody can tell what these statements need:".to_owned());
        lines.extend(grants.untold.iter().map(|statement| format!("--   {}", one_line(statement))));
    }
    lines.join("\n")
}

/// A comment ends with its line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
