//! Call detail records: made by a seed, as realistic as a load of them needs to be; and the study that loads them.
//!
//! Callers are skewed, the day has its curve, one record in fifty is late and belongs to an earlier day, some are from abroad, and one in a
//! thousand is damaged: cut, without a day that there is, or with letters among its digits.

pub mod mix;
pub mod options;
pub mod points;
mod published;
pub mod study;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::{Error, Result};

/// The bytes of a record, with the end of its line.
pub const RECORD_BYTES: usize = 147;

/// The fields: the column, its width, and its type in the template.
pub const FIELDS: [(&str, usize, &str); 15] = [
    ("call_id", 12, "BIGINT UNSIGNED NOT NULL"),
    ("kind", 2, "CHAR(2) NOT NULL"),
    ("caller", 15, "BIGINT UNSIGNED NOT NULL"),
    ("called", 15, "BIGINT UNSIGNED NOT NULL"),
    ("imsi", 15, "BIGINT UNSIGNED NOT NULL"),
    ("imei", 15, "BIGINT UNSIGNED"),
    ("start_time", 14, "DATETIME NOT NULL"),
    ("seconds", 6, "INT UNSIGNED NOT NULL"),
    ("cell", 10, "VARCHAR(10) NOT NULL"),
    ("area", 5, "INT UNSIGNED NOT NULL"),
    ("switch", 8, "VARCHAR(8) NOT NULL"),
    ("network", 6, "MEDIUMINT UNSIGNED"),
    ("volume", 10, "BIGINT UNSIGNED NOT NULL"),
    ("cost", 10, "DECIMAL(12,2) NOT NULL"),
    ("cause", 3, "SMALLINT UNSIGNED NOT NULL"),
];

/// Where the start is in a record.
const START_AT: usize = 12 + 2 + 15 + 15 + 15 + 15;
/// The first day of all records.
const FIRST_DAY: Day = Day { year: 2026, month: 3, day: 1 };

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct CallsPlan {
    /// The records.
    pub records: u64,
    /// The days that they are spread over.
    pub days: u32,
    /// The same seed makes the same records.
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Day {
    year: u32,
    month: u32,
    day: u32,
}

impl Day {
    /// So many days behind the first.
    fn at(number: u32) -> Day {
        const LENGTHS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let Day { mut year, mut month, day } = FIRST_DAY;
        let mut rest = day - 1 + number;
        loop {
            let is_leap = month == 2 && year.is_multiple_of(4);
            let length = LENGTHS[month as usize - 1] + u32::from(is_leap);
            if rest < length {
                return Day { year, month, day: rest + 1 };
            }
            rest -= length;
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
    }
}

/// The generator of Steele, Lea and Flood (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `end`, small numbers far more often.
    fn skewed(&mut self, end: u64) -> u64 {
        ((self.part().powi(3) * end as f64) as u64).min(end - 1)
    }
}

/// How busy each hour of the day is.
const HOURS: [u32; 24] = [8, 5, 3, 2, 2, 4, 10, 25, 48, 62, 66, 64, 60, 58, 60, 62, 66, 74, 82, 80, 66, 46, 28, 14];

/// The second of the day at which such a part of its calls have begun.
fn second_of_day(part: f64) -> u64 {
    let all: u32 = HOURS.iter().sum();
    let mut wanted = part * f64::from(all);
    for (hour, busy) in HOURS.iter().enumerate() {
        if wanted < f64::from(*busy) {
            return hour as u64 * 3600 + (wanted / f64::from(*busy) * 3600.0) as u64;
        }
        wanted -= f64::from(*busy);
    }
    86_399
}

/// Writes records to a file.
///
/// # Errors
/// [`Error::File`].
pub fn write_records(plan: CallsPlan, path: &Path, tell: &mut dyn FnMut(u64)) -> Result<()> {
    const TOLD_EVERY: u64 = 100_000;
    let file = File::create(path).map_err(Error::file("create", path))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut random = Random(plan.seed);
    let mut record = Vec::with_capacity(RECORD_BYTES);
    let per_day = plan.records.div_ceil(u64::from(plan.days.max(1))).max(1);
    for number in 0..plan.records {
        record.clear();
        make(&mut random, number, per_day, &mut record);
        file.write_all(&record).map_err(Error::file("write to", path))?;
        if number % TOLD_EVERY == 0 {
            tell(number);
        }
    }
    file.flush().map_err(Error::file("write to", path))
}

fn make(random: &mut Random, number: u64, per_day: u64, record: &mut Vec<u8>) {
    const SUBSCRIBERS: u64 = 1_000_000;
    const CELLS: u64 = 4_000;
    let mut day = (number / per_day) as u32;
    let mut second = second_of_day((number % per_day) as f64 / per_day as f64);
    if random.below(50) == 0 && day > 0 {
        day -= 1 + random.below(u64::from(day.min(3))) as u32;
        second = random.below(86_400);
    }
    let (caller, called) = (random.skewed(SUBSCRIBERS), random.skewed(SUBSCRIBERS));
    let kind = [b"MO", b"MT", b"SM", b"GP"][random.below(4) as usize];
    let is_abroad = random.below(33) == 0;
    let seconds = if kind == b"SM" { 0 } else { (random.part().powi(4) * 7_200.0) as u64 };
    let cell = random.skewed(CELLS);
    let Day { year, month, day } = Day::at(day);
    let (hour, minute, left) = (second / 3600, second / 60 % 60, second % 60);
    let network = if is_abroad { format!("{:>6}", 200_000 + random.below(90_000)) } else { "      ".to_owned() };
    let imei = if random.below(20) == 0 { String::new() } else { format!("35{:013}", caller * 7 + 1) };
    let volume = if kind == b"GP" { random.below(50_000_000) } else { 0 };
    let _always_fits = writeln!(
        record,
        "{number:012}{}{:015}{:015}{:015}{imei:<15}{year:04}{month:02}{day:02}{hour:02}{minute:02}{left:02}{seconds:>6}{:<10}{:>5}{:<8}{network}{volume:>10}{:010}{:>3}",
        String::from_utf8_lossy(kind),
        33_600_000_000 + caller,
        33_600_000_000 + called,
        208_010_000_000_000 + caller,
        format!("C{cell}"),
        cell / 40,
        format!("MSC{}", cell / 400),
        seconds * 7 + 15,
        16 + 15 * u64::from(random.below(30) == 0),
    );
    if random.below(1000) == 0 {
        damage(random, record);
    }
}

/// Something that happens to records on their way.
fn damage(random: &mut Random, record: &mut Vec<u8>) {
    match random.below(3) {
        0 => {
            record.truncate(40 + random.below(60) as usize);
            record.push(b'\n');
        }
        1 => record[START_AT + 4..START_AT + 6].copy_from_slice(b"13"),
        _ => record[20..23].copy_from_slice(b"x?x"),
    }
}

/// The layout by which `spate load` reads them.
pub fn layout() -> String {
    let mut text =
        "# Call detail records, as `spate-lab generate cdr` makes them.\n[input]\nformat = \"fixed\"\n\n[[table]]\n\
                    name = \"cdr.calls_{start_time:%Y%m%d}\"\ntemplate = \"cdr.calls_template\"\nmax-tables = 400\n"
            .to_owned();
    let mut position = 1;
    for (name, width, sql_type) in FIELDS {
        text += &format!("\n[[column]]\nname = \"{name}\"\nposition = {position}\nwidth = {width}\n");
        text += match name {
            "start_time" => "type = \"datetime\"\nformat = \"%Y%m%d%H%M%S\"\n",
            "cost" => "type = \"decimal\"\nscale = 2\n",
            _ if sql_type.contains("INT") => "type = \"integer\"\n",
            _ => "",
        };
        if !sql_type.contains("NOT NULL") {
            text += "null = [\"\"]\n";
        }
        position += width;
    }
    text
}

/// The statements that make the template.
pub fn template() -> Vec<String> {
    let columns: Vec<String> = FIELDS.iter().map(|(name, _, sql_type)| format!("{name} {sql_type}")).collect();
    vec![
        "CREATE DATABASE IF NOT EXISTS cdr".to_owned(),
        format!(
            "CREATE TABLE IF NOT EXISTS cdr.calls_template ({}, PRIMARY KEY (call_id), KEY by_caller (caller, start_time), \
             KEY by_called (called, start_time), KEY by_cell (cell, start_time))",
            columns.join(", ")
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_their_length_and_their_days() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.dat");
        let plan = CallsPlan { records: 30_000, days: 33, seed: 1 };
        write_records(plan, &path, &mut |_| {}).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), 30_000);
        let whole = lines.iter().filter(|line| line.len() == RECORD_BYTES).count();
        assert!((29_950..30_000).contains(&whole), "{whole}");
        let start = |line: &[u8]| String::from_utf8_lossy(&line[START_AT..START_AT + 8]).into_owned();
        assert_eq!(start(lines[0]), "20260301");
        assert!(start(lines[29_999]).as_str() >= "20260330", "{}", start(lines[29_999]));
        let again = directory.path().join("again.dat");
        write_records(plan, &again, &mut |_| {}).unwrap();
        assert!(bytes == std::fs::read(again).unwrap(), "the same seed makes the same records");
    }

    #[test]
    fn days_follow_each_other() {
        assert_eq!(Day::at(31), Day { year: 2026, month: 4, day: 1 });
        assert_eq!(Day::at(365), Day { year: 2027, month: 3, day: 1 });
    }
}
