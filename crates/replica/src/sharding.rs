//! How rows are divided among appliers, kept on the replica for as long as these are at different positions: whoever goes on there after a crash
//! must know which rows each of them has applied.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use spate_connection::{Connection, quote};
use spate_schedule::shards::{DivideBy, Passed, Rules, ShardMap, VERSION};

use crate::checkpoint::{self, APPLIER, Checkpoint};
use crate::error::{Error, Result};

/// The table: one row.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.sharding (\
     id TINYINT UNSIGNED NOT NULL PRIMARY KEY, \
     version BIGINT UNSIGNED NOT NULL, \
     appliers INT UNSIGNED NOT NULL, \
     divided_by VARCHAR(20) CHARACTER SET ascii NOT NULL, \
     rules MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     assigned MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the applier of each shard that was given one'\
     ) ENGINE=InnoDB COMMENT='how rows are divided among appliers'";

/// The table of how each table is divided, as numbers: whoever goes on after a crash must find the replica's tables as they were.
pub(crate) const CREATE_DEALT: &str = "CREATE TABLE IF NOT EXISTS spate.dealt (\
     table_hash BIGINT UNSIGNED NOT NULL PRIMARY KEY, way_hash BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB \
     COMMENT='how each table is divided among appliers'";

/// More appliers than any version has had: a row that says so was not written by Spate.
const APPLIERS_MAX: u32 = 1024;

/// Appliers that were interrupted at different positions.
#[derive(Debug, Clone)]
pub struct Uneven {
    map: Arc<ShardMap>,
    dealt: Arc<HashMap<u64, u64>>,
    /// Where those are that have come further than the replica as a whole.
    ahead: Vec<(u32, Checkpoint)>,
}

impl Uneven {
    /// Whose rows of the transaction are applied that comes after `checkpoint`. `None`: nobody's, nor of those behind it.
    pub fn passed(&self, checkpoint: &Checkpoint) -> Option<Passed> {
        let mut have = vec![false; self.map.appliers as usize];
        for (applier, place) in &self.ahead {
            // The appliers' rows are behind that of the replica as a whole.
            if let Some(has) = have.get_mut(*applier as usize - 1) {
                *has = place.is_beyond(checkpoint);
            }
        }
        have.contains(&true).then(|| Passed { map: Arc::clone(&self.map), dealt: Arc::clone(&self.dealt), have })
    }

    /// How many appliers there were.
    pub fn appliers(&self) -> u32 {
        self.map.appliers
    }
}

/// The appliers that were interrupted at different positions; `None` if all are where `whole` is. Their rows are removed then.
///
/// # Errors
/// As [`find_uneven`].
pub fn read_uneven(connection: &mut Connection, whole: &Checkpoint) -> Result<Option<Uneven>> {
    let appliers = checkpoint::read_appliers(connection)?;
    let has_rows = !appliers.is_empty();
    let uneven = uneven_of(connection, whole, appliers)?;
    if uneven.is_none() && has_rows {
        connection.execute(format!("{};COMMIT", end_sql()).as_bytes())?;
    }
    Ok(uneven)
}

/// The same, and changes nothing.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if that cannot be read, or another version of Spate has divided the rows.
pub fn find_uneven(connection: &mut Connection, whole: &Checkpoint) -> Result<Option<Uneven>> {
    let appliers = checkpoint::read_appliers(connection)?;
    uneven_of(connection, whole, appliers)
}

fn uneven_of(
    connection: &mut Connection,
    whole: &Checkpoint,
    mut ahead: Vec<(u32, Checkpoint)>,
) -> Result<Option<Uneven>> {
    ahead.retain(|(_, checkpoint)| checkpoint.is_beyond(whole));
    if ahead.is_empty() {
        return Ok(None);
    }
    let map = read(connection)?;
    let is_known = |applier: u32| (1..=map.appliers).contains(&applier);
    if let Some((applier, _)) = ahead.iter().find(|(applier, _)| !is_known(*applier)) {
        let why =
            format!("spate.checkpoint has a row of applier {applier}, of {} that spate.sharding knows", map.appliers);
        return Err(Error::Checkpoint { replica: connection.peer().to_string(), why });
    }
    let dealt = read_dealt(connection)?;
    Ok(Some(Uneven { map: Arc::new(map), dealt: Arc::new(dealt), ahead }))
}

/// How rows were divided.
///
/// # Errors
/// As [`find_uneven`].
fn read(connection: &mut Connection) -> Result<ShardMap> {
    let rows =
        connection.query("SELECT version,appliers,divided_by,rules,assigned FROM spate.sharding WHERE id = 0")?;
    let wrong = |why: String| Error::Checkpoint { replica: connection.peer().to_string(), why };
    let text = |column| rows.text_at(0, column).unwrap_or_default();
    if rows.rows.is_empty() {
        return Err(wrong(
            "appliers are at different positions, and spate.sharding has no row that says who applies what".to_owned(),
        ));
    }
    if text(0) != VERSION.to_string() {
        return Err(wrong(format!(
            "appliers were interrupted at different positions by another version of Spate, which divides rows in another way ({} instead of \
             {VERSION}): let that version finish it (--until caught-up, and a stop without a kill), then start this one",
            text(0)
        )));
    }
    let appliers = text(1).parse().ok().filter(|appliers| (1..=APPLIERS_MAX).contains(appliers));
    let appliers = appliers.ok_or_else(|| wrong(format!("spate.sharding: {:?} appliers", text(1))))?;
    let by = DivideBy::of_name(&text(2)).ok_or_else(|| wrong(format!("spate.sharding: divided by {:?}", text(2))))?;
    let rules =
        Rules::parse(&text(3), appliers).map_err(|error| wrong(format!("spate.sharding: its rules: {error}")))?;
    let assigned: BTreeMap<String, u32> = parse_assigned(&text(4))
        .ok_or_else(|| wrong("spate.sharding: it cannot be read which applier each shard was given".to_owned()))?;
    Ok(ShardMap { appliers, by, rules, assigned })
}

fn read_dealt(connection: &mut Connection) -> Result<HashMap<u64, u64>> {
    let rows = connection.query("SELECT table_hash,way_hash FROM spate.dealt")?;
    let number = |row, column| rows.text_at(row, column)?.parse().ok();
    Ok((0..rows.rows.len()).filter_map(|row| Some((number(row, 0)?, number(row, 1)?))).collect())
}

/// The statement that keeps how these tables are divided, which are some.
pub fn deal_sql(dealt: &[(u64, u64)]) -> String {
    let rows: Vec<String> = dealt.iter().map(|(table, way)| format!("({table},{way})")).collect();
    format!("REPLACE INTO spate.dealt (table_hash,way_hash) VALUES {}", rows.join(","))
}

/// Which applier each shard was given, if so many were as many as now.
///
/// # Errors
/// Any error of the connection.
pub fn remembered(connection: &mut Connection, appliers: u32) -> Result<BTreeMap<String, u32>> {
    let sql =
        format!("SELECT assigned FROM spate.sharding WHERE id = 0 AND version = {VERSION} AND appliers = {appliers}");
    let text = connection.query(&sql)?.single_text().unwrap_or_default();
    Ok(parse_assigned(&text).unwrap_or_default())
}

/// The statements after which appliers may come further than the replica as a whole, as the map says.
pub fn begin_sql(map: &ShardMap) -> String {
    format!(
        "START TRANSACTION;DELETE FROM spate.checkpoint WHERE applier<>{APPLIER};DELETE FROM spate.dealt;{};COMMIT",
        keep_sql(map)
    )
}

/// The statement that keeps the map.
pub fn keep_sql(map: &ShardMap) -> String {
    let lines: Vec<String> =
        map.assigned.iter().map(|(shard, applier)| format!("{applier} {}", escaped(shard))).collect();
    format!(
        "REPLACE INTO spate.sharding (id,version,appliers,divided_by,rules,assigned) VALUES (0,{VERSION},{},'{}',{},{})",
        map.appliers,
        map.by.name(),
        quote::text(map.rules.text()),
        quote::text(&lines.join("\n")),
    )
}

/// The statement after which nobody is ahead of others.
pub fn end_sql() -> String {
    format!("DELETE FROM spate.checkpoint WHERE applier<>{APPLIER}")
}

fn parse_assigned(text: &str) -> Option<BTreeMap<String, u32>> {
    text.lines()
        .map(|line| {
            let (applier, shard) = line.split_once(' ')?;
            Some((unescaped(shard)?, applier.parse().ok()?))
        })
        .collect()
}

/// A name without line breaks: names of schemas and tables may hold any letter.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        name.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                'r' => '\r',
                other => other,
            },
            other => other,
        });
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigned_shards_are_read_back_whatever_their_names() {
        let mut map = ShardMap::new(4, DivideBy::Row, Rules::default());
        for (number, name) in ["d.t", "a\n1 b", "back\\n", "\r\n", " two  words ", "über.\\"].into_iter().enumerate() {
            map.assigned.insert(name.to_owned(), number as u32 % 4);
        }
        let lines: Vec<String> =
            map.assigned.iter().map(|(shard, applier)| format!("{applier} {}", escaped(shard))).collect();
        assert_eq!(parse_assigned(&lines.join("\n")).as_ref(), Some(&map.assigned));
        assert_eq!(parse_assigned("x y"), None);
        assert_eq!(parse_assigned("1 y\\"), None);
    }
}
