//! `spate archive fetch`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use spate_receive::FetchOptions;
use spate_receive::intake::IntakeOptions;
use spate_replica::status::{Status, StatusReport};

use crate::arguments::FetchArguments;
use crate::{Failure, print, progress_line, say, signals};

pub(crate) fn fetch(arguments: &FetchArguments) -> Result<ExitCode, Failure> {
    let archiving = &arguments.archiving;
    let source = arguments.source.endpoint(&arguments.common)?;
    let options = FetchOptions {
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
    };
    let stop = signals::stop_flag()?;
    let report = receive(&options, &stop)?;
    if archiving.json {
        print(&serde_json::to_string(&report)?)?;
    } else {
        let received = &report.positions.received;
        let (bytes, place) = (report.counters.received_bytes, format!("{}:{}", received.file, received.position));
        say(&format!("received {bytes} bytes, up to GTID position {} ({place})", received.gtid));
    }
    Ok(ExitCode::SUCCESS)
}

/// Receives what the options say, and shows how far it is.
pub(crate) fn receive(options: &FetchOptions, stop: &AtomicBool) -> Result<StatusReport, Failure> {
    let line = progress_line::line();
    let told = line.clone();
    let notify = move |stage: &str, message: &str| told.suspend(|| say(&format!("spate {stage}: {message}")));
    let status = Status::new(options.intake.source.to_string(), String::new(), Box::new(notify));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let drawing = scope.spawn(|| progress_line::draw(&line, &status, &over));
        let done = spate_receive::fetch(options, &status, stop);
        over.store(true, Ordering::Release);
        drawing.thread().unpark();
        done
    })?;
    Ok(status.report())
}
