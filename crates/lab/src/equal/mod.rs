//! `spate lab equal`: native replication as an oracle for a user's statements. A source executes a script; one replica
//! follows by native replication, one by Spate, and both must end equal. If they differ, ever shorter beginnings of the
//! script show the statement that caused it.

mod script;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::binlog_format::Format;
use crate::home::{self, LabHome};
use crate::screen::{Screen, thousands};
use crate::server_options::ServerOption;
use crate::torture::feature::{Feature, FeatureSet};
use crate::torture::judge::Finding;
use crate::torture::options::SpateOptions;
use crate::torture::settings::{Beginning, Settings};
use crate::torture::step::Step;
use crate::torture::{Comparison, Comparisons};
use crate::version::{ServerBinaries, ServerVersion};
use crate::{Error, Result, output};

pub(crate) const EXAMPLES: &str = "\
Examples:
  # Does Spate make of these statements what MariaDB's own replication makes of them?
  spate lab equal statements.sql

  # In mixed format, on replicas whose keys were given away otherwise, Spate following from the first statement on
  spate lab equal statements.sql --format mixed --replica-option auto-increment-offset=2 \\
      --replica-option auto-increment-increment=2 --live

  # MySQL, and rows written as SQL
  spate lab equal statements.sql --server mysql-9.7 --spate dialect=sql --json equal.json

The script is SQL as the vendors' clients take it, DELIMITER included. Three comments, each a line of its own, direct it:
  -- session 2        what follows is executed in that session of the source
  -- on the replicas  what follows is executed on both replicas, once these have all that came before
  -- on the source    and what follows on the source again
A statement that the source refuses is named, and the next is executed.

Compared are definitions, rows of all columns, counters, programs, accounts and privileges, and prepared transactions. The exit status is 0
if the replicas are equal, 1 if they are not or on an error, and 2 if native replication itself stopped, so that there was nothing to compare with.";

/// Options of `lab equal`.
#[derive(Debug, Args)]
pub struct EqualOptions {
    /// File of statements; `-` is standard input
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// Server: mariadb-10.11, mariadb-11.8, mysql-9.7, mysql-8.4 or mysql-8.0; without it, what is installed
    #[arg(long, value_name = "VERSION")]
    server: Option<ServerVersion>,
    /// How the source logs changes, unless a session says otherwise
    #[arg(long, value_enum, default_value_t = Format::Row)]
    format: Format,
    /// Option of the source; may be given several times
    #[arg(long = "source-option", value_name = "NAME=VALUE")]
    source_options: Vec<ServerOption>,
    /// Option of both replicas; may be given several times
    #[arg(long = "replica-option", value_name = "NAME=VALUE")]
    replica_options: Vec<ServerOption>,
    /// Options of `spate replicate`, such as dialect=sql
    #[arg(long, value_name = "OPTION=VALUE,…")]
    spate: Option<SpateOptions>,
    /// Let Spate follow from the first statement on, instead of catching up after the last
    #[arg(long)]
    live: bool,
    /// Write the result to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result of a comparison.
#[derive(Debug, Serialize)]
struct EqualResult {
    verdict: Verdict,
    statements: u64,
    findings: Vec<Finding>,
    notes: Vec<String>,
    /// The statement at which the replicas began to differ; `None` if they are equal.
    first: Option<FirstDifference>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Equal,
    Different,
    /// Native replication stopped.
    NoOracle,
}

#[derive(Debug, Serialize)]
struct FirstDifference {
    /// The statement's number in the script, from 1.
    statement: usize,
    text: String,
}

impl EqualOptions {
    /// Compares, and prints the result.
    ///
    /// # Errors
    /// Those of the servers, of reading the script and of writing the result.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let steps = script::parse(&read(&self.script)?);
        if steps.is_empty() {
            let text = self.script.display().to_string();
            return Err(Error::BadArgument { what: "script", text, why: "it holds no statement".to_owned() });
        }
        let binaries = ServerBinaries::choose(self.server)?;
        let home = LabHome::open()?;
        let screen = Screen::default();
        // The source, Spate's replica, and that of native replication.
        screen.claim_disk(home.root(), 3 * home::SMALL_SERVER_BYTES)?;
        let comparisons = Comparisons::prepare(&home, &binaries)?;
        let settings = self.settings(&comparisons);
        let bar = screen.spinner("the script");
        let whole = comparisons.compare(&settings, &steps, &|what| bar.set_message(what.to_owned()));
        let first = match &whole {
            Ok(whole) if !whole.findings.is_empty() => {
                Some(first_difference(&comparisons, &settings, &steps, &|what| bar.set_message(what.to_owned())))
            }
            _ => None,
        };
        bar.finish_and_clear();
        let (whole, first) = (whole?, first.transpose()?.flatten());
        let verdict = match (&whole.findings[..], whole.has_oracle) {
            ([], true) => Verdict::Equal,
            ([], false) => Verdict::NoOracle,
            _ => Verdict::Different,
        };
        let Comparison { statements, findings, notes, .. } = whole;
        let result = EqualResult { verdict, statements, findings, notes, first };
        output::show(&result.story(), &result, self.json.as_deref())?;
        Ok(ExitCode::from(match verdict {
            Verdict::Equal => 0,
            Verdict::Different => 1,
            Verdict::NoOracle => 2,
        }))
    }

    fn settings(&self, comparisons: &Comparisons<'_>) -> Settings {
        let pairs = |options: &[ServerOption]| options.iter().map(ServerOption::pair).collect();
        Settings {
            seed: 0,
            pair: comparisons.pair(),
            format: self.format,
            features: FeatureSet::chosen(&[], Feature::ALL),
            sessions: 1,
            source_options: pairs(&self.source_options),
            replica_options: pairs(&self.replica_options),
            spate_arguments: self.spate.clone().map(|options| options.0).unwrap_or_default(),
            beginning: if self.live { Beginning::AtOnce } else { Beginning::AtTheEnd },
            failures: vec![],
        }
    }
}

/// Finds, by bisection, a step after which the replicas differ and before which they do not.
fn first_difference(
    comparisons: &Comparisons<'_>,
    settings: &Settings,
    steps: &[Step],
    tell: &dyn Fn(&str),
) -> Result<Option<FirstDifference>> {
    let (mut equal, mut different) = (0, steps.len());
    while different - equal > 1 {
        let middle = equal.midpoint(different);
        tell(&format!("which statement it was: between {} and {different}", equal + 1));
        match comparisons.compare(settings, &steps[..middle], &|_| {})?.findings.is_empty() {
            true => equal = middle,
            false => different = middle,
        }
    }
    Ok(steps.get(different - 1).map(|step| FirstDifference { statement: different, text: step.text().to_owned() }))
}

impl EqualResult {
    fn story(&self) -> String {
        let mut story = match self.verdict {
            Verdict::Equal => format!("Equal after {} statements.\n", thousands(self.statements)),
            Verdict::Different => "The replicas differ.\n".to_owned(),
            Verdict::NoOracle => "Native replication stopped: there is nothing to compare with.\n".to_owned(),
        };
        for finding in &self.findings {
            story += &format!("{}\n  {}\n", finding.headline(), finding.details().replace('\n', "\n  "));
        }
        if let Some(first) = &self.first {
            story += &format!("Equal before statement {}, different after it:\n  {}\n", first.statement, first.text);
        }
        for note in &self.notes {
            story += &format!("note: {note}\n");
        }
        story
    }
}

fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    read.map_err(Error::file("read", path))?;
    String::from_utf8(bytes).map_err(|_| Error::BadArgument {
        what: "script",
        text: path.display().to_string(),
        why: "it is not UTF-8; write other bytes as hexadecimal literals".to_owned(),
    })
}
