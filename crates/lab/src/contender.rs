//! The contenders of a race: `native:THREADS[:MODE]` or `spate[:option=value,option=value…]`.

use std::fmt;
use std::str::FromStr;

use crate::vendor::Vendor;
use crate::{Error, Result};

/// One contender. `Display` gives the text that it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contender {
    /// The server's own replication.
    Native {
        /// slave_parallel_threads (0: the single-threaded applier), or replica_parallel_workers.
        threads: u32,
        /// The mode of parallel replication; `None`: the server's default.
        mode: Option<NativeMode>,
        /// Options of a `spate prefetch` that reads ahead of it. `None`: nothing does.
        prefetch: Option<Vec<String>>,
    },
    /// The `spate` program.
    Spate {
        /// Options of `spate replicate`, in the contender's notation.
        text: Option<String>,
        /// The same options as command-line arguments.
        arguments: Vec<String>,
    },
}

/// How the server's own replication chooses transactions to run in parallel, and how it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeMode {
    /// MariaDB: all transactions, with a rollback on conflict. The server's default.
    Optimistic,
    /// MariaDB: transactions that committed together on the source.
    Conservative,
    /// MariaDB: like optimistic, with fewer restrictions.
    Aggressive,
    /// MySQL: commits in the source's order. The server's default.
    Order,
    /// MySQL: commits in any order.
    Free,
}

/// Every mode, by its name.
const MODES: [(&str, NativeMode); 5] = [
    ("optimistic", NativeMode::Optimistic),
    ("conservative", NativeMode::Conservative),
    ("aggressive", NativeMode::Aggressive),
    ("order", NativeMode::Order),
    ("free", NativeMode::Free),
];

impl NativeMode {
    /// The vendor whose server knows this mode.
    fn vendor(self) -> Vendor {
        match self {
            NativeMode::Optimistic | NativeMode::Conservative | NativeMode::Aggressive => Vendor::MariaDb,
            NativeMode::Order | NativeMode::Free => Vendor::MySql,
        }
    }

    /// The default of a vendor's server.
    pub fn usual(vendor: Vendor) -> NativeMode {
        match vendor {
            Vendor::MariaDb => NativeMode::Optimistic,
            Vendor::MySql => NativeMode::Order,
        }
    }
}

impl Contender {
    /// The contender with the vendor's defaults where it has no values.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if the vendor's server does not support it.
    pub fn on(self, vendor: Vendor) -> Result<Contender> {
        let text = self.to_string();
        let Contender::Native { threads, mode, prefetch } = self else { return Ok(self) };
        let bad = |why: &str| Error::BadArgument { what: "contender here", text: text.clone(), why: why.to_owned() };
        match (vendor, threads, mode) {
            (Vendor::MySql, 0, _) => Err(bad("MySQL has at least one worker; native:1 is the fewest")),
            (_, _, Some(mode)) if mode.vendor() != vendor => Err(bad(match vendor {
                Vendor::MariaDb => "MariaDB's modes are optimistic, conservative and aggressive",
                Vendor::MySql => "MySQL's modes are order and free",
            })),
            _ => Ok(Contender::Native { threads, mode: Some(mode.unwrap_or(NativeMode::usual(vendor))), prefetch }),
        }
    }
}

/// Options of `spate replicate` that the race itself sets.
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
        f.write_str(MODES.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contender::Native { threads, mode, prefetch } => {
                match mode.filter(|_| *threads > 0) {
                    None => write!(f, "native:{threads}")?,
                    Some(mode) => write!(f, "native:{threads}:{mode}")?,
                }
                let Some(options) = prefetch else { return Ok(()) };
                f.write_str("+prefetch")?;
                for (number, option) in options.iter().enumerate() {
                    write!(f, "{}{}", if number == 0 { ':' } else { ',' }, option.trim_start_matches("--"))?;
                }
                Ok(())
            }
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
            _ => Err(bad(
                "contenders are native:THREADS[:MODE][+prefetch[:option=value,option=value…]] and spate[:option=value,option=value…]",
            )),
        }
    }
}

fn native(text: &str) -> Result<Contender, String> {
    /// MariaDB's own limit of slave_parallel_threads; MySQL's is 1024.
    const THREADS_MAX: u32 = 16_383;
    let (text, prefetch) = match text.split_once("+prefetch") {
        Some((text, "")) => (text, Some(vec![])),
        Some((text, options)) => {
            let options = options.strip_prefix(':').ok_or("options follow as +prefetch:name=value,name=value")?;
            (text, Some(spate_arguments(options)?))
        }
        None => (text, None),
    };
    let (threads, mode) = match text.split_once(':') {
        Some((threads, mode)) => (threads, Some(mode)),
        None => (text, None),
    };
    let threads = threads.parse::<u32>().ok().filter(|threads| *threads <= THREADS_MAX);
    let threads = threads.ok_or_else(|| format!("the number of threads is between 0 and {THREADS_MAX}"))?;
    let find = |name: &str| MODES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode);
    let mode = match mode {
        None => None,
        Some(name) => Some(find(name).ok_or_else(|| {
            "modes are optimistic, conservative and aggressive on MariaDB, order and free on MySQL".to_owned()
        })?),
    };
    Ok(Contender::Native { threads, mode, prefetch })
}

/// `batch-transactions=1000,semi-sync` becomes `--batch-transactions=1000 --semi-sync`.
pub(crate) fn spate_arguments(options: &str) -> Result<Vec<String>, String> {
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

/// The contenders' names, made distinct if one runs more than once: `spate`, `spate #2`.
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
    fn contender_text_round_trips() {
        for text in [
            "native:0",
            "native:4:conservative",
            "native:16:aggressive",
            "native:4:free",
            "native:0+prefetch",
            "native:16:optimistic+prefetch:always,threads=4",
            "spate",
            "spate:memory=64MiB,semi-sync",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("native:8").to_string(), "native:8");
    }

    #[test]
    fn contender_mode_of_other_vendor_is_refused() {
        let on = |text: &str, vendor| parse(text).on(vendor).map(|contender| contender.to_string());
        assert_eq!(on("native:8", Vendor::MariaDb).unwrap(), "native:8:optimistic");
        assert_eq!(on("native:8", Vendor::MySql).unwrap(), "native:8:order");
        assert_eq!(on("native:8:free", Vendor::MySql).unwrap(), "native:8:free");
        assert_eq!(on("spate", Vendor::MySql).unwrap(), "spate");
        for (text, vendor, hint) in [
            ("native:4:free", Vendor::MariaDb, "optimistic"),
            ("native:4:aggressive", Vendor::MySql, "order and free"),
            ("native:0", Vendor::MySql, "native:1"),
        ] {
            let message = on(text, vendor).unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
        }
    }

    #[test]
    fn contender_options_become_arguments() {
        let Contender::Spate { arguments, .. } = parse("spate:batch-transactions=1000,semi-sync") else { panic!() };
        assert_eq!(arguments, ["--batch-transactions=1000", "--semi-sync"]);
    }

    #[test]
    fn wrong_contender_is_refused_with_an_example() {
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
    fn contender_that_runs_twice_has_two_names() {
        let names = distinct_names(&[parse("spate"), parse("native:0"), parse("spate"), parse("spate")]);
        assert_eq!(names, ["spate", "native:0", "spate #2", "spate #3"]);
    }
}
