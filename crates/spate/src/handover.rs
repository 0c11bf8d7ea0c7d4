//! `spate handover`.

use std::process::ExitCode;

use spate_operate::handover;

use crate::arguments::HandoverArguments;
use crate::{Failure, print};

pub(crate) fn run(arguments: &HandoverArguments) -> Result<ExitCode, Failure> {
    let done = handover::hand_over(&arguments.replica.endpoint(&arguments.common)?)?;
    if arguments.json {
        print(&serde_json::to_string_pretty(&done)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let position = if done.gtid_position.is_empty() { "(none)" } else { &done.gtid_position };
    print(&format!("Spate has applied up to GTID position {position}, {}:{}", done.source_file, done.source_position))?;
    print(&match &done.executed {
        Some(sql) => format!("told the replica: {sql}"),
        None => "the replica had nothing to be told".to_owned(),
    })?;
    print(&format!("its own replication goes on there with:\n  {}", done.next))?;
    Ok(ExitCode::SUCCESS)
}
