//! Who takes part in a race: `native:THREADS[:MODE]` or `spate[:option=value,option=value…]`.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// One contender. Displays as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contender {
    /// The server's own replication.
    Native {
        /// slave_parallel_threads; 0 is the single-threaded applier.
        threads: u32,
        /// slave_parallel_mode.
        mode: NativeMode,
    },
    /// The `spate` program.
    Spate {
        /// Options of `spate replicate`, as they were written.
        text: Option<String>,
        /// The same as arguments of its command line.
        arguments: Vec<String>,
    },
}

/// How the server's own replication finds what may run in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeMode {
    /// Anything, rolling back on conflict. The server's default.
    Optimistic,
    /// What committed together on the source.
    Conservative,
    /// Like optimistic, with fewer cautions.
    Aggressive,
}

/// Options of `spate replicate` that the race itself decides.
const RESERVED: [&str; 9] = [
    "source",
    "replica",
    "archive",
    "start",
    "until",
    "json",
    "source-defaults-file",
    "replica-defaults-file",
    "no-replica-binlog",
];

impl fmt::Display for NativeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NativeMode::Optimistic => "optimistic",
            NativeMode::Conservative => "conservative",
            NativeMode::Aggressive => "aggressive",
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Native { threads: 0, .. } => f.write_str("native:0"),
            Contender::Native { threads, mode } => write!(f, "native:{threads}:{mode}"),
            Contender::Spate { text: None, .. } => f.write_str("spate"),
            Contender::Spate { text: Some(text), .. } => write!(f, "spate:{text}"),
        }
    }
}

impl FromStr for Contender {
    type Err = Error;

    fn from_str(text: &str) -> Result<Contender> {
        let bad = |why: &str| Error::BadArgument { what: "contender", text: text.to_owned(), why: why.to_owned() };
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("native", Some(rest)) => native(rest).map_err(|why| bad(&why)),
            ("native", None) => Err(bad("say how many threads, such as native:16:optimistic or native:0")),
            ("spate", None) => Ok(Contender::Spate { text: None, arguments: Vec::new() }),
            ("spate", Some(options)) => {
                let arguments = spate_arguments(options).map_err(|why| bad(&why))?;
                Ok(Contender::Spate { text: Some(options.to_owned()), arguments })
            }
            _ => Err(bad("contenders are native:THREADS[:MODE] and spate[:option=value,option=value…]")),
        }
    }
}

fn native(text: &str) -> Result<Contender, String> {
    /// The server's own limit of slave_parallel_threads.
    const THREADS_MAX: u32 = 16_383;
    let (threads, mode) = match text.split_once(':') {
        Some((threads, mode)) => (threads, Some(mode)),
        None => (text, None),
    };
    let threads = threads.parse::<u32>().ok().filter(|threads| *threads <= THREADS_MAX);
    let threads = threads.ok_or_else(|| format!("the number of threads is between 0 and {THREADS_MAX}"))?;
    let mode = match mode {
        None | Some("optimistic") => NativeMode::Optimistic,
        Some("conservative") => NativeMode::Conservative,
        Some("aggressive") => NativeMode::Aggressive,
        Some(_) => return Err("modes are optimistic, conservative and aggressive".into()),
    };
    Ok(Contender::Native { threads, mode })
}

/// `batch-transactions=1000,semi-sync` becomes `--batch-transactions=1000 --semi-sync`.
fn spate_arguments(options: &str) -> Result<Vec<String>, String> {
    let argument = |option: &str| {
        let name = option.split('=').next().unwrap_or_default();
        if name.is_empty() || !name.chars().all(|character| character.is_ascii_alphanumeric() || character == '-') {
            return Err("options follow as name=value, such as spate:batch-transactions=1000".to_owned());
        }
        if RESERVED.contains(&name) {
            return Err(format!("the race itself decides --{name}"));
        }
        Ok(format!("--{option}"))
    };
    options.split(',').map(str::trim).map(argument).collect()
}

/// The contenders' names, told apart if one runs more than once: `spate`, `spate #2`.
pub fn distinct_names(contenders: &[Contender]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (index, contender) in contenders.iter().enumerate() {
        let earlier = contenders[..index].iter().filter(|other| *other == contender).count();
        names.push(if earlier == 0 { contender.to_string() } else { format!("{contender} #{}", earlier + 1) });
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Contender {
        text.parse().unwrap()
    }

    #[test]
    fn contenders_read_as_they_are_written() {
        for text in
            ["native:0", "native:4:conservative", "native:16:aggressive", "spate", "spate:memory=64MiB,semi-sync"]
        {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("native:8").to_string(), "native:8:optimistic");
    }

    #[test]
    fn options_become_arguments() {
        let Contender::Spate { arguments, .. } = parse("spate:batch-transactions=1000,semi-sync") else { panic!() };
        assert_eq!(arguments, ["--batch-transactions=1000", "--semi-sync"]);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for (text, hint) in [
            ("native", "native:16"),
            ("native:", "threads"),
            ("native:-1", "threads"),
            ("native:4:eager", "modes"),
            ("spate:", "batch-transactions"),
            ("spate:archive=/tmp", "--archive"),
            ("spate:;rm", "batch-transactions"),
            ("mysql", "contenders are"),
            ("", "contenders are"),
        ] {
            let message = text.parse::<Contender>().unwrap_err().to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    #[test]
    fn a_contender_that_runs_twice_has_two_names() {
        let names = distinct_names(&[parse("spate"), parse("native:0"), parse("spate"), parse("spate")]);
        assert_eq!(names, ["spate", "native:0", "spate #2", "spate #3"]);
    }
}
