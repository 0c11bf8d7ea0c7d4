//! Which bases stay, and which binlogs with them: for each of the last days, weeks and months one base, and every binlog since the oldest of them.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use serde::Serialize;
use spate_archive::stopping_point;

use crate::error::{Error, Result};
use crate::manifest::{self, BASES, Base, Known};
use crate::shipping::{self, Stored, StoredFile};
use crate::target::Target;

/// A base that is not finished after so long was given up: a day.
const UNFINISHED_SECONDS: i64 = 24 * 3600;

/// Clocks of machines differ by as much.
const FUTURE_SECONDS: i64 = 3600;

/// How many bases stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// The newest of each of so many days (UTC) that have one,
    pub days: u32,
    /// of so many weeks (from Monday),
    pub weeks: u32,
    /// and of so many months.
    pub months: u32,
}

impl FromStr for Keep {
    type Err = String;

    /// `7d,4w,12m`.
    fn from_str(text: &str) -> std::result::Result<Keep, String> {
        let expected = || format!("expected such as 7d,4w,12m (days, weeks, months), not '{text}'");
        let mut keep = Keep::default();
        for part in text.split(',') {
            let part = part.trim();
            let (number, unit) = part.split_at(part.len().saturating_sub(1));
            let number: u32 = number.parse().map_err(|_| expected())?;
            let count = match unit {
                "d" => &mut keep.days,
                "w" => &mut keep.weeks,
                "m" => &mut keep.months,
                _ => return Err(expected()),
            };
            *count = number;
        }
        match keep == Keep::default() {
            true => Err("that would keep nothing".into()),
            false => Ok(keep),
        }
    }
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Bases that stay, oldest first.
    pub kept: Vec<String>,
    /// Bases that went.
    pub bases: Vec<String>,
    /// Binlog files that went.
    pub binlogs: Vec<String>,
    /// Bases that were never finished, and went.
    pub unfinished: Vec<String>,
}

/// The ids of the bases that stay. The newest always does, and what claims to be of the future, which makes no other superfluous.
fn kept(bases: &[Base], keep: Keep, now: Timestamp) -> BTreeSet<&str> {
    let (bases, of_future): (Vec<&Base>, Vec<&Base>) =
        bases.iter().partition(|base| base.began.as_second() <= now.as_second().saturating_add(FUTURE_SECONDS));
    let mut stay: BTreeSet<&str> = bases.last().into_iter().chain(&of_future).map(|base| base.id.as_str()).collect();
    let day_of = |base: &Base| TimeZone::UTC.to_datetime(base.began).date();
    let mut of_each = |count: u32, period: fn(Date) -> Date| {
        let mut seen: Vec<Date> = Vec::new();
        for base in bases.iter().rev() {
            let period = period(day_of(base));
            if seen.last() == Some(&period) {
                continue;
            }
            if seen.len() >= count as usize {
                break;
            }
            seen.push(period);
            stay.insert(&base.id);
        }
    };
    of_each(keep.days, |day| day);
    of_each(keep.weeks, |day| {
        let since_monday = day.weekday().since(Weekday::Monday);
        day.checked_sub(jiff::Span::new().days(since_monday)).unwrap_or(day)
    });
    of_each(keep.months, |day| day.first_of_month());
    stay
}

/// Removes the bases that do not stay, and the binlogs that no base needs any more. A crash leaves nothing that looks like a base and is none.
///
/// # Errors
/// [`crate::Error::Target`], [`crate::Error::Damaged`].
pub fn prune(target: &Target, keep: Keep, is_dry: bool) -> Result<Pruned> {
    let Known { bases, damaged } = manifest::bases(target)?;
    if let Some(first) = damaged.first() {
        return Err(Error::Refused(format!("nothing is removed while something is damaged: {first}")));
    }
    let stay = kept(&bases, keep, Timestamp::now());
    let mut pruned = Pruned { kept: stay.iter().map(|id| (*id).to_owned()).collect(), ..Pruned::default() };
    for base in bases.iter().filter(|base| !stay.contains(base.id.as_str())) {
        pruned.bases.push(base.id.clone());
        if !is_dry {
            // Without its manifest, it is none any more.
            target.delete(&format!("{}/manifest.json", base.place()))?;
            stopping_point("after-pruned-manifest");
            remove_all(target, &base.place())?;
        }
    }
    remove_unfinished(target, &bases, is_dry, &mut pruned)?;
    let kept: Vec<&Base> = bases.iter().filter(|base| stay.contains(base.id.as_str())).collect();
    if let Some(oldest) = kept.first() {
        for Stored { files, damaged, .. } in shipping::stored(target)? {
            if !damaged.is_empty() {
                continue;
            }
            for file in not_needed(&files, &kept, oldest) {
                pruned.binlogs.push(file.source_name().to_owned());
                if !is_dry {
                    file.objects().iter().try_for_each(|object| target.delete(object))?;
                }
            }
        }
    }
    Ok(pruned)
}

fn remove_all(target: &Target, under: &str) -> Result<()> {
    let is_ours = |name: &str| name.rsplit('/').next().is_some_and(|name| name.starts_with("data."));
    target.list(under)?.iter().filter(|listed| is_ours(&listed.name)).try_for_each(|listed| target.delete(&listed.name))
}

/// Data without a manifest: a backup that is under way, unless it is old.
fn remove_unfinished(target: &Target, bases: &[Base], is_dry: bool, pruned: &mut Pruned) -> Result<()> {
    let now = Timestamp::now().as_second();
    let mut newest: std::collections::BTreeMap<String, i64> = std::collections::BTreeMap::new();
    for listed in target.list(BASES)? {
        let mut words = listed.name.split('/').skip(1);
        let (Some(id), Some(object)) = (words.next(), words.next()) else { continue };
        // What Spate has not written is not Spate's to remove.
        if !object.starts_with("data.") {
            continue;
        }
        let seconds = newest.entry(id.to_owned()).or_insert(i64::MIN);
        *seconds = listed.modified_seconds.max(*seconds);
    }
    for (id, modified) in newest {
        let is_finished = bases.iter().any(|base| base.id == id);
        if is_finished || now.saturating_sub(modified) < UNFINISHED_SECONDS {
            continue;
        }
        if !is_dry {
            remove_all(target, &format!("{BASES}/{id}"))?;
        }
        pruned.unfinished.push(id);
    }
    Ok(())
}

/// The files at the beginning of a lineage that end before every kept base. If it is not certain, a file stays.
fn not_needed<'a>(files: &'a [StoredFile], kept: &[&Base], oldest: &Base) -> &'a [StoredFile] {
    let is_before_all = |next: &StoredFile| {
        let start = next.start();
        kept.iter().all(|base| {
            let wanted = base.position.gtid_position();
            let by_gtid = start.as_ref().is_some_and(|start| !start.is_empty() && wanted.covers_all(start));
            let by_name = base.position.gtid.is_empty() && {
                let place = |name: &str| (name.len(), name.to_owned());
                base.server == oldest.server && place(next.source_name()) <= place(&base.position.file)
            };
            // A replica's base stands in its source's binlog by a checkpoint that nobody sees here.
            (by_gtid || by_name) && !base.has_own_schema
        })
    };
    let needed = files.windows(2).take_while(|pair| is_before_all(&pair[1])).count();
    &files[..needed]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::test_base;

    fn stay(times: &[&str], keep: &str) -> Vec<String> {
        let bases: Vec<Base> = times.iter().map(|time| test_base(time, time)).collect();
        kept(&bases, keep.parse().unwrap(), "2027-01-01T00:00:00Z".parse().unwrap())
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn keeps_are_parsed_or_refused() {
        assert_eq!("7d,4w,12m".parse(), Ok(Keep { days: 7, weeks: 4, months: 12 }));
        assert_eq!("3w".parse(), Ok(Keep { days: 0, weeks: 3, months: 0 }));
        for wrong in ["", "7", "d", "7y", "0d", "7d,", "-1d"] {
            assert!(wrong.parse::<Keep>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_newest_of_each_day_stays() {
        let times = ["2026-01-01T01:00:00Z", "2026-01-01T13:00:00Z", "2026-01-02T01:00:00Z", "2026-01-04T01:00:00Z"];
        assert_eq!(stay(&times, "1d"), ["2026-01-04T01:00:00Z"]);
        assert_eq!(stay(&times, "2d"), ["2026-01-02T01:00:00Z", "2026-01-04T01:00:00Z"]);
        assert_eq!(stay(&times, "9d"), ["2026-01-01T13:00:00Z", "2026-01-02T01:00:00Z", "2026-01-04T01:00:00Z"]);
    }

    #[test]
    fn weeks_and_months_have_one_each() {
        // Mondays are the 5th and the 12th of January 2026.
        let times = [
            "2025-11-30T01:00:00Z",
            "2025-12-31T01:00:00Z",
            "2026-01-04T01:00:00Z",
            "2026-01-05T01:00:00Z",
            "2026-01-11T01:00:00Z",
            "2026-01-12T01:00:00Z",
        ];
        assert_eq!(stay(&times, "2w"), ["2026-01-11T01:00:00Z", "2026-01-12T01:00:00Z"]);
        assert_eq!(stay(&times, "3w"), ["2026-01-04T01:00:00Z", "2026-01-11T01:00:00Z", "2026-01-12T01:00:00Z"]);
        assert_eq!(stay(&times, "3m"), ["2025-11-30T01:00:00Z", "2025-12-31T01:00:00Z", "2026-01-12T01:00:00Z"]);
    }
}
