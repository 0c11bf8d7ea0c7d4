//! Names with values in them: `cdr_{call_start:%Y%m%d}`.
//!
//! Between braces stands a column, and behind a colon what is taken of it: a form of a day or time as strftime has it, `prefix N`,
//! `suffix N`, `hash N` (a number below N), `div N` or `mod N`. Behind a bar, something is taken of that: `{call_start:%H|div 6}`. Several columns
//! are hashed together: `{caller+callee:hash 16}`. Two braces are one.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::civil::{Date, DateTime};
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

/// A name with values in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    /// What is taken of the columns, of that, and so on.
    Value {
        columns: Vec<String>,
        steps: Vec<What>,
    },
}

#[derive(Debug, Clone)]
enum What {
    Time(String),
    Prefix(usize),
    Suffix(usize),
    Hash(u64),
    Divided(i128),
    Modulo(i128),
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        let parts = parse(&text).map_err(|why| format!("{text:?}: {why}"))?;
        Ok(Pattern { text, parts })
    }
}

impl Pattern {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The columns that it needs.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        let columns = self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Value { columns, .. } => Some(columns),
        });
        columns.flatten().map(String::as_str)
    }

    /// True if it is the same for all rows.
    pub(crate) fn names_nothing(&self) -> bool {
        self.columns().next().is_none()
    }

    /// Writes it for one row as part of a statement: what is not within quotes must be a number.
    ///
    /// # Errors
    /// As [`Pattern::write`].
    pub(crate) fn write_sql<'a>(
        &self,
        sql: &mut String,
        mut value: impl FnMut(&str) -> Option<&'a str>,
    ) -> Result<(), String> {
        for part in &self.parts {
            let begin = sql.len();
            let one = Pattern { text: String::new(), parts: vec![part.clone()] };
            one.write(sql, &mut value)?;
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let written = sql[begin..].strip_prefix('-').unwrap_or(&sql[begin..]);
            if matches!(part, Part::Value { .. }) && !sql[..begin].ends_with('\'') && !is_number(written) {
                return Err(format!("{written:?} is no number, and stands without quotes in partition-values"));
            }
        }
        Ok(())
    }

    /// Writes it for one row. `value` finds what a column holds, `None` for NULL.
    ///
    /// # Errors
    /// Why there is no name for this row.
    pub(crate) fn write<'a>(
        &self,
        name: &mut String,
        mut value: impl FnMut(&str) -> Option<&'a str>,
    ) -> Result<(), String> {
        for part in &self.parts {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Value { columns, steps } => {
                    let mut of = |column: &String| {
                        value(column).ok_or_else(|| format!("{column} is NULL, and the table depends on it"))
                    };
                    let found = match &columns[..] {
                        [column] => Cow::Borrowed(of(column)?),
                        // The columns stay apart.
                        _ => columns.iter().map(of).collect::<Result<Vec<_>, _>>()?.join("\0").into(),
                    };
                    take(steps, &found, name).map_err(|why| format!("{} = {found:?}: {why}", columns.join("+")))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes what the steps take of a value.
fn take(steps: &[What], value: &str, name: &mut String) -> Result<(), String> {
    let start = name.len();
    let mut taken = Cow::Borrowed(value);
    for (place, step) in steps.iter().enumerate() {
        if place + 1 == steps.len() {
            step.write(name, &taken)?;
        } else {
            let mut written = String::new();
            step.write(&mut written, &taken)?;
            taken = written.into();
        }
    }
    if steps.is_empty() {
        name.push_str(value);
    }
    // What a record says must not become another part of a statement.
    match name[start..].chars().find(|character| !character.is_alphanumeric() && !"_-$: ".contains(*character)) {
        Some(character) => Err(format!("{character:?} cannot be part of a name")),
        None => Ok(()),
    }
}

impl What {
    fn write(&self, name: &mut String, value: &str) -> Result<(), String> {
        match self {
            What::Time(format) => {
                let time = read_time(value)?;
                let time = jiff::fmt::strtime::BrokenDownTime::from(time);
                time.format(format, &mut *name).map_err(|error| error.to_string())?;
            }
            What::Prefix(length) => name.extend(value.chars().take(*length)),
            What::Suffix(length) => {
                let skipped = value.chars().count().saturating_sub(*length);
                name.extend(value.chars().skip(skipped));
            }
            What::Hash(of) => {
                let _always_fits = write!(name, "{}", xxh3_64(value.as_bytes()) % of);
            }
            What::Divided(by) => {
                let _always_fits = write!(name, "{}", number(value)?.div_euclid(*by));
            }
            What::Modulo(of) => {
                let _always_fits = write!(name, "{}", number(value)?.rem_euclid(*of));
            }
        }
        Ok(())
    }
}

fn number(value: &str) -> Result<i128, String> {
    let whole = value.split_once('.').map_or(value, |(whole, _)| whole);
    whole.parse().map_err(|_| "it is no number".to_owned())
}

/// A day, or a day and a time, as values are written here.
fn read_time(value: &str) -> Result<DateTime, String> {
    let wrong = |_| "it is no day".to_owned();
    match value.len() > "2026-01-01".len() {
        true => value.parse().map_err(wrong),
        false => value.parse::<Date>().map(DateTime::from).map_err(wrong),
    }
}

fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let (brace, behind) = rest[at..].split_at(1);
        if behind.starts_with(brace) {
            plain.push_str(brace);
            rest = &behind[1..];
            continue;
        }
        if brace == "}" {
            return Err("a } without its {".to_owned());
        }
        let (inner, behind) = behind.split_once('}').ok_or("a { without its }")?;
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        let (names, steps) = match inner.split_once(':') {
            Some((names, steps)) => (names, steps.split('|').map(parse_what).collect::<Result<Vec<What>, String>>()?),
            None => (inner, vec![]),
        };
        let columns: Vec<String> = names.split('+').map(|name| name.trim().to_owned()).collect();
        if columns.iter().any(String::is_empty) {
            return Err("a column's name stands between { and }".to_owned());
        }
        if columns.len() > 1 && !matches!(steps.first(), Some(What::Hash(_))) {
            return Err("several columns are hashed together, such as {a+b:hash 16}".to_owned());
        }
        parts.push(Part::Value { columns, steps });
        rest = behind;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(parts)
}

fn parse_what(text: &str) -> Result<What, String> {
    if text.contains('%') {
        // A form that nothing can be written in is found now, not at the first row.
        let example = jiff::fmt::strtime::BrokenDownTime::from(DateTime::default());
        let mut written = String::new();
        example.format(text, &mut written).map_err(|error| format!("{text:?}: {error}"))?;
        return Ok(What::Time(text.to_owned()));
    }
    let (word, number) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let wrong = || format!("{text:?} is none of %…, prefix N, suffix N, hash N, div N, mod N");
    let number: u32 = number.trim().parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    match word {
        "prefix" => Ok(What::Prefix(number as usize)),
        "suffix" => Ok(What::Suffix(number as usize)),
        "hash" => Ok(What::Hash(u64::from(number))),
        "div" => Ok(What::Divided(i128::from(number))),
        "mod" => Ok(What::Modulo(i128::from(number))),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pattern: &str, value: Option<&str>) -> Result<String, String> {
        let mut name = String::new();
        Pattern::try_from(pattern.to_owned())?.write(&mut name, |_| value)?;
        Ok(name)
    }

    #[test]
    fn values_become_parts_of_names() {
        let at = Some("2026-11-26 11:26:53");
        assert_eq!(written("cdr.cdr_{t:%Y%m%d}", at).unwrap(), "cdr.cdr_20261126");
        assert_eq!(written("{t:%Y}_{t:%H}", at).unwrap(), "2026_11");
        assert_eq!(written("d{t:%d}", Some("2026-02-28")).unwrap(), "d28");
        assert_eq!(written("p{n:prefix 3}", Some("336123")).unwrap(), "p336");
        assert_eq!(written("p{n:suffix 2}", Some("336123")).unwrap(), "p23");
        assert_eq!(written("p{n:div 1000}", Some("336123")).unwrap(), "p336");
        assert_eq!(written("p{n:mod 10}", Some("-1")).unwrap(), "p9");
        assert_eq!(written("{{{n}}}", Some("7")).unwrap(), "{7}");
        let hashed: u64 = written("{n:hash 16}", Some("336123")).unwrap().parse().unwrap();
        assert!(hashed < 16);
        assert_eq!(written("q{t:%H|div 6}", at).unwrap(), "q1");
        assert_eq!(written("{n:suffix 4|mod 100}", Some("336123")).unwrap(), "23");
        assert_eq!(written("{n:prefix 3|hash 16}", Some("336123")), written("{n:hash 16}", Some("336")));
    }

    #[test]
    fn columns_are_hashed_together() {
        let of = |a: &'static str, b: &'static str| {
            let mut name = String::new();
            let pattern = Pattern::try_from("{a + b:hash 4294967295}".to_owned()).unwrap();
            assert_eq!(pattern.columns().collect::<Vec<_>>(), ["a", "b"]);
            pattern.write(&mut name, |column| Some(if column == "a" { a } else { b })).unwrap();
            name
        };
        assert_eq!(of("1", "23"), of("1", "23"));
        assert_ne!(of("1", "23"), of("12", "3"));
        assert_ne!(of("1", "23"), of("23", "1"));
    }

    #[test]
    fn rows_without_a_name_say_why() {
        assert!(written("{t:%Y}", None).unwrap_err().contains("t is NULL"));
        assert!(written("{t:%Y}", Some("soon")).unwrap_err().contains("no day"));
        assert!(written("{n}", Some("a`b")).unwrap_err().contains("'`' cannot be part of a name"));
        assert!(written("{n:div 3}", Some("x")).unwrap_err().contains("no number"));
    }

    #[test]
    fn wrong_patterns_are_told_at_once() {
        for (pattern, why) in [
            ("a{b", "without its }"),
            ("a}b", "without its {"),
            ("{}", "a column's name"),
            ("{a:prefix}", "none of"),
            ("{a:hash 0}", "none of"),
            ("{a:%!}", "%!"),
            ("{a+b}", "hashed together"),
            ("{a+b:prefix 2}", "hashed together"),
            ("{a+:hash 2}", "a column's name"),
            ("{a:prefix 2|}", "none of"),
        ] {
            let error = Pattern::try_from(pattern.to_owned()).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }
}
