//! Judges whether Spate applied the binlog to the same result as the server's own replication.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::picture::{Class, Picture, Subject};

/// Lines shown of a difference.
const SHOWN_LINES: usize = 3;
/// Characters shown of a line of a difference.
const SHOWN_CHARACTERS: usize = 400;

/// A fault that a trial found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Finding {
    /// The replicas differ.
    Difference {
        /// The kind of the object.
        class: Class,
        /// The table, sequence or program.
        name: String,
        /// The first lines that only one of them has.
        lines: Vec<String>,
    },
    /// Spate ended although the server's own replication continued.
    Stopped {
        /// The end of its output.
        output: String,
    },
    /// Spate made no more progress.
    Stuck {
        /// Its position and the end of its output.
        output: String,
    },
    /// Spate was asked to stop and did not end with success.
    UncleanEnd {
        /// The end of its output.
        output: String,
    },
}

impl Finding {
    /// A text that is probably equal for two findings with the same cause.
    pub(super) fn signature(&self) -> String {
        match self {
            Finding::Difference { class, .. } => format!("difference {class:?}"),
            Finding::Stopped { output } => format!("stopped {}", essence(output)),
            Finding::Stuck { .. } => "stuck".to_owned(),
            Finding::UncleanEnd { .. } => "unclean end".to_owned(),
        }
    }

    /// The finding in one line.
    pub(crate) fn headline(&self) -> String {
        match self {
            Finding::Difference { class, name, .. } => format!("{class:?} of {name} differ"),
            Finding::Stopped { output } => format!("Spate stopped: {}", last_line(output)),
            Finding::Stuck { output } => format!("Spate is stuck: {}", last_line(output)),
            Finding::UncleanEnd { output } => format!("Spate did not end cleanly: {}", last_line(output)),
        }
    }

    /// All facts of the finding.
    pub(crate) fn details(&self) -> String {
        match self {
            Finding::Difference { lines, .. } => lines.join("\n"),
            Finding::Stopped { output } | Finding::Stuck { output } | Finding::UncleanEnd { output } => output.clone(),
        }
    }
}

/// Findings, and notes beside them.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<String>,
}

impl Judgement {
    /// The same, with the name of one of several replicas.
    pub(super) fn of_server(mut self, server: &str) -> Judgement {
        for finding in &mut self.findings {
            if let Finding::Difference { name, .. } = finding {
                *name = format!("{name} on {server}");
            }
        }
        self.notes.iter_mut().for_each(|note| *note = format!("{server}: {note}"));
        self
    }
}

/// Compares the replicas, and both with the source. Where the native replica differs from the source, Spate's must
/// equal the source. `was_killed` means that Spate or its replica was killed: then a counter may be higher than the
/// native one, because a rolled-back change has raised it.
pub(super) fn judge(source: &Picture, native: &Picture, spate: &Picture, was_killed: bool) -> Judgement {
    let mut judgement = Judgement::default();
    let mut native_differs = 0;
    let subjects: BTreeSet<&Subject> = source.keys().chain(native.keys()).chain(spate.keys()).collect();
    for subject in subjects {
        let (of_source, of_native, of_spate) = (source.get(subject), native.get(subject), spate.get(subject));
        // The binlog has no unfinished transactions of the source's clients, and no rows of temporary tables.
        let source_counts = !matches!(subject.0, Class::Counter | Class::Leftover);
        if source_counts && of_native != of_source {
            native_differs += 1;
        }
        if of_spate == of_native {
            continue;
        }
        if source_counts && of_spate == of_source {
            judgement
                .notes
                .push(format!("{:?} of {}: native differs from the source, Spate does not", subject.0, subject.1));
        } else if subject.0 == Class::Counter && was_killed && number(of_spate) > number(of_native) {
            judgement.notes.push(format!("the counter of {} is higher than native's after a kill", subject.1));
        } else if subject.0 == Class::Leftover && number(of_spate) < number(of_native) {
            judgement.notes.push(format!("native leaves more {} behind", subject.1));
        } else {
            judgement.findings.push(difference(subject, of_native, of_spate));
        }
    }
    if native_differs > 0 {
        judgement.notes.push(format!("native differs from the source in {native_differs} things"));
    }
    judgement
}

fn number(lines: Option<&Vec<String>>) -> u64 {
    lines.and_then(|lines| lines.first()?.split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn difference(subject: &Subject, native: Option<&Vec<String>>, spate: Option<&Vec<String>>) -> Finding {
    let mut lines = Vec::new();
    for (title, have, other) in [("native", native, spate), ("spate ", spate, native)] {
        match have {
            None => lines.push(format!("{title} has no such thing")),
            Some(have) => {
                let surplus = surplus(have, other.map_or(&[], Vec::as_slice));
                let more = surplus.len().saturating_sub(SHOWN_LINES);
                lines.extend(surplus.iter().take(SHOWN_LINES).map(|line| format!("{title} only: {}", cut(line))));
                if more > 0 {
                    lines.push(format!("{title} only: … and {more} more"));
                }
            }
        }
    }
    Finding::Difference { class: subject.0, name: subject.1.clone(), lines }
}

/// The lines that `have` has more often than `other`; both are sorted multisets.
fn surplus<'a>(have: &'a [String], other: &[String]) -> Vec<&'a str> {
    let mut rest: Vec<&str> = other.iter().map(String::as_str).collect();
    rest.sort_unstable();
    let mut sorted: Vec<&str> = have.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut rest = rest.into_iter().peekable();
    sorted
        .into_iter()
        .filter(|line| {
            while rest.peek().is_some_and(|next| next < line) {
                rest.next();
            }
            rest.next_if(|next| next == line).is_none()
        })
        .collect()
}

fn cut(line: &str) -> String {
    let mut short: String = line.chars().take(SHOWN_CHARACTERS).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

fn last_line(output: &str) -> String {
    cut(last_nonempty_line(output).unwrap_or("nothing"))
}

/// The last line that is not empty.
fn last_nonempty_line(output: &str) -> Option<&str> {
    output.lines().rfind(|line| !line.trim().is_empty())
}

/// An error without its numbers, names and paths, so that two errors with one cause are equal.
fn essence(output: &str) -> String {
    let line = last_line(output);
    let words = line.split(' ').filter(|word| !word.contains('/'));
    let mut essence = String::new();
    let mut quote = None;
    for character in words.collect::<Vec<_>>().join(" ").chars() {
        match quote {
            Some(end) if character == end => quote = None,
            Some(_) => {}
            None if matches!(character, '\'' | '`' | '"') => quote = Some(character),
            None if character.is_ascii_digit() => {}
            None => essence.push(character),
        }
    }
    essence
}

/// The transaction that an error of Spate names.
pub(super) fn named_transaction(output: &str) -> Option<&str> {
    let (_, rest) = last_nonempty_line(output)?.split_once("transaction ")?;
    let gtid = rest.split(' ').next()?;
    (gtid.split('-').count() == 3).then_some(gtid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(rows: &[&str]) -> Picture {
        Picture::from([((Class::Rows, "t".to_owned()), rows.iter().map(|row| row.to_string()).collect())])
    }

    #[test]
    fn native_replica_is_the_oracle_unless_it_is_off() {
        let (a, b) = (picture(&["1", "2"]), picture(&["1", "3"]));
        assert!(judge(&a, &a, &a, false).findings.is_empty());
        assert_eq!(judge(&a, &a, &b, false).findings.len(), 1);
        let native_off = judge(&a, &b, &a, false);
        assert!(native_off.findings.is_empty());
        assert_eq!(native_off.notes.len(), 2);
        assert!(judge(&a, &b, &b, false).findings.is_empty());
        assert_eq!(judge(&a, &b, &picture(&[]), false).findings.len(), 1);
    }

    #[test]
    fn difference_lists_rows_of_one_side_with_counts() {
        let judgement = judge(&picture(&["1", "1"]), &picture(&["1", "1"]), &picture(&["1", "4"]), false);
        assert_eq!(judgement.findings[0].details(), "native only: 1\nspate  only: 4");
        assert_eq!(judge(&Picture::new(), &Picture::new(), &picture(&[]), false).findings.len(), 1);
    }

    #[test]
    fn auto_increment_may_be_higher_only_after_a_kill() {
        let counter = |number: &str| Picture::from([((Class::Counter, "t".to_owned()), vec![number.to_owned()])]);
        assert!(judge(&counter("5"), &counter("5"), &counter("9"), true).findings.is_empty());
        assert_eq!(judge(&counter("5"), &counter("5"), &counter("9"), false).findings.len(), 1);
        assert_eq!(judge(&counter("5"), &counter("5"), &counter("4"), true).findings.len(), 1);
        assert!(judge(&counter("9"), &counter("5"), &counter("5"), false).findings.is_empty());
    }

    #[test]
    fn fewer_leftovers_than_native_is_no_finding() {
        let files =
            |number: &str| Picture::from([((Class::Leftover, "t".to_owned()), vec![format!("{number} files")])]);
        assert!(judge(&files("0"), &files("4"), &files("0"), true).findings.is_empty());
        assert_eq!(judge(&files("0"), &files("0"), &files("10"), true).findings.len(), 1);
    }

    #[test]
    fn errors_of_one_cause_have_one_signature() {
        let stopped = |output: &str| Finding::Stopped { output: output.to_owned() }.signature();
        assert_eq!(stopped("x\nerror: key 7 of `a`.`b` at 0-1-9\n"), stopped("error: key 12 of `q`.`b` at 0-1-88"));
        assert_ne!(stopped("error: no row"), stopped("error: no table"));
        assert_eq!(stopped("error at /tmp/a/socket): x"), stopped("error at /tmp/b/c/socket): x"));
        assert_eq!(named_transaction("x\nspate: transaction 0-1-17 at binlog.000001:4: no"), Some("0-1-17"));
        assert_eq!(named_transaction("spate: the transaction is lost"), None);
    }
}
