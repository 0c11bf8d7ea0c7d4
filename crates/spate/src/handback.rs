//! `spate handback`.

use std::process::ExitCode;

use spate_operate::takeover;

use crate::arguments::HandbackArguments;
use crate::{Failure, print};

pub(crate) fn run(arguments: &HandbackArguments) -> Result<ExitCode, Failure> {
    let done = takeover::hand_back(&arguments.replica.endpoint(&arguments.common)?, arguments.channel.as_deref())?;
    if arguments.json {
        print(&serde_json::to_string_pretty(&done)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(handover) = &done.handover {
        let position = if handover.gtid_position.is_empty() { "(none)" } else { &handover.gtid_position };
        let (file, offset) = (&handover.source_file, handover.source_position);
        print(&format!("Spate has applied up to GTID position {position}, {file}:{offset}"))?;
    }
    print(&format!(
        "the replica's own replication goes on from there, and runs (after {:.1} s)",
        done.began_after_seconds
    ))?;
    Ok(ExitCode::SUCCESS)
}
