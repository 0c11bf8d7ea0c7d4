//! The rule file of appliers that divide the rows among themselves: read at the start, and again when a person says so.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use spate_apply::lanes::Sharding;
use spate_connection::{Connection, quote};
use spate_replica::status::Status;
use spate_replica::{Error, Result};
use spate_schedule::shards::Rules;

use crate::ReplicateOptions;

/// The largest rule file. It is kept on the replica, too, in one statement.
const BYTES_MAX: u64 = 1 << 20;

/// A rule file.
#[derive(Debug, Clone)]
pub struct RuleFile {
    /// Where it is.
    pub path: PathBuf,
}

impl RuleFile {
    /// Reads it, for so many appliers.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(&self, appliers: u32) -> std::result::Result<Rules, String> {
        let file = self.path.display();
        let text = self.text().map_err(|error| format!("cannot read the rules in {file}: {error}"))?;
        Rules::parse(&text, appliers).map_err(|error| format!("the rules in {file}: {error}"))
    }

    fn text(&self) -> io::Result<String> {
        // A pipe may never end, or never begin.
        if !std::fs::metadata(&self.path)?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut text = String::new();
        File::open(&self.path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        match text.len() as u64 > BYTES_MAX {
            true => Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes"))),
            false => Ok(text),
        }
    }
}

/// Fails if rules name what the replica does not have.
///
/// # Errors
/// [`Error::Unsuitable`], which names the line; any error of the connection.
pub(crate) fn check(connection: &mut Connection, file: &Path, rules: &Rules) -> Result<()> {
    for (schema, table, line) in rules.named() {
        let (what, name, sql) = match table {
            None => (
                "schema",
                schema.to_owned(),
                format!("SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {}", quote::text(schema)),
            ),
            Some(table) => (
                "table",
                format!("{schema}.{table}"),
                format!(
                    "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
                    quote::text(schema),
                    quote::text(table)
                ),
            ),
        };
        if connection.query(&sql)?.single_text().as_deref() != Some("1") {
            let why = format!(
                "it has no {what} {name} (or Spate's account may not see it), which the rules in {} name in line {line}",
                file.display()
            );
            return Err(Error::Unsuitable { peer: connection.peer().to_string(), why });
        }
    }
    Ok(())
}

/// Has the rules of the file in force from the next batch on. If it cannot be used, the old ones stay.
pub fn reload(options: &ReplicateOptions, status: &Status) {
    let (Some(Sharding { appliers, rules, .. }), Some(file)) =
        (&options.applying.sharding, &options.applying.rule_file)
    else {
        return;
    };
    let read = file.read(*appliers).and_then(|new| {
        let checked = options
            .applying
            .session_maker()
            .connect()
            .and_then(|mut connection| check(&mut connection, &file.path, &new));
        checked.map(|()| new).map_err(|error| error.to_string())
    });
    match read {
        Ok(new) => rules.replace(new),
        Err(error) => status.error("applier", format!("{error}; the rules that were in force stay so")),
    }
}
