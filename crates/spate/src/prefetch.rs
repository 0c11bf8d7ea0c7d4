//! `spate prefetch`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{Table, presets};
use spate_prefetch::{Counted, Counters, Options};

use crate::arguments::PrefetchArguments;
use crate::{Failure, print, progress_line, say, signals};

/// How often the line of progress is renewed.
const SHOW_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run(arguments: &PrefetchArguments) -> Result<ExitCode, Failure> {
    let options = Options {
        replica: arguments.replica.endpoint(&arguments.common)?,
        channel: arguments.channel.clone(),
        threads: usize::from(arguments.threads),
        seconds_max: arguments.seconds_prefetch,
        rows_min: arguments.offset_events,
        look_every: Duration::from_millis(arguments.millis_sleep),
        always: arguments.always,
    };
    let stop = signals::stop_flag()?;
    let (counters, over, line) = (Counters::default(), AtomicBool::new(false), progress_line::line());
    let result = std::thread::scope(|scope| {
        let shown = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                line.set_message(summary(&counters.values()));
                line.tick();
                std::thread::park_timeout(SHOW_EVERY);
            }
        });
        let tell = |message: &str| line.suspend(|| say(&format!("spate prefetch: {message}")));
        let result = spate_prefetch::run(&options, &counters, &tell, &stop);
        over.store(true, Ordering::Release);
        shown.thread().unpark();
        result
    });
    line.finish_and_clear();
    let counted = counters.values();
    match arguments.json {
        true => print(&serde_json::to_string_pretty(&counted)?)?,
        false => print(&table(&counted)?)?,
    }
    result?;
    Ok(ExitCode::SUCCESS)
}

fn summary(counted: &Counted) -> String {
    format!(
        "{} transactions read, {} rows looked up in {} queries, {} dropped",
        counted.transactions, counted.looked_up_rows, counted.queries, counted.dropped_queries
    )
}

/// A line for each counter.
fn table(counted: &Counted) -> Result<String, Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let serde_json::Value::Object(values) = serde_json::to_value(counted)? {
        for (name, value) in values {
            table.add_row([name.replace('_', " "), value.to_string()]);
        }
    }
    Ok(table.to_string())
}
