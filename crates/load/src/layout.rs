//! A layout: how records are cut from the input, how fields become values, and which table each row goes to. A person writes it as
//! TOML; what is wrong in it is told with its line.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::pattern::Pattern;

/// A record that is longer was not cut by the layout it was written with.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Default of [`RuleLayout::max_tables`]: a quarter of days. A damaged date in each record must not fill a server with tables.
const TABLES_MAX: usize = 100;
/// No server's table has more columns.
pub(crate) const COLUMNS_MAX: usize = 4096;

/// A whole layout.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Layout {
    /// How records and fields are cut.
    #[serde(default)]
    pub input: InputLayout,
    /// Where rows go: the first rule that fits.
    #[serde(default, rename = "table")]
    pub rules: Vec<RuleLayout>,
    /// The columns. None: the header names them, or the fields are the table's columns in their order.
    #[serde(default, rename = "column")]
    pub columns: Vec<ColumnLayout>,
}

/// The form of a file of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Fields at fixed places.
    Fixed,
    /// Fields between commas, as RFC 4180 has them.
    #[default]
    Csv,
    /// The same between tabs.
    Tsv,
    /// What LOAD DATA reads, with its own options.
    LoadData,
}

/// How records and fields are cut.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InputLayout {
    /// The form.
    #[serde(default)]
    pub format: Format,
    /// The character set, by a name that browsers know; without it, UTF-8.
    pub encoding: Option<String>,
    /// Fixed: the length of a record. Without it, each is a line.
    pub record_bytes: Option<usize>,
    /// Fixed: the length that a line may have at most, but for spaces; without it, what the columns cover. One that is longer is of another layout.
    pub line_bytes: Option<usize>,
    /// True if the first record names the columns.
    #[serde(default)]
    pub header: bool,
    /// Records at the beginning that are not data, before the header.
    #[serde(default)]
    pub skip_records: u64,
    /// CSV and TSV: the byte between fields.
    pub delimiter: Option<char>,
    /// CSV and TSV: the byte around fields; an empty text for none.
    pub quote: Option<String>,
    /// As in LOAD DATA.
    pub fields_terminated_by: Option<String>,
    /// As in LOAD DATA.
    pub fields_enclosed_by: Option<String>,
    /// As in LOAD DATA.
    pub fields_optionally_enclosed_by: Option<String>,
    /// As in LOAD DATA.
    pub fields_escaped_by: Option<String>,
    /// As in LOAD DATA.
    pub lines_starting_by: Option<String>,
    /// As in LOAD DATA.
    pub lines_terminated_by: Option<String>,
}

/// A rule: which rows go to which table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleLayout {
    /// The table, such as `cdr.cdr_{call_start:%Y%m%d}`.
    pub name: Pattern,
    /// The table that others are created like.
    pub template: Option<String>,
    /// A partition that the row needs, such as `p{call_start:%Y%m%d}`.
    pub partition: Option<Pattern>,
    /// What it holds: `LESS THAN (…)` or `IN (…)`.
    pub partition_values: Option<Pattern>,
    /// What a row must be to go there; all of these.
    #[serde(default, rename = "where")]
    pub conditions: BTreeMap<String, Condition>,
    /// So many tables and partitions may a run write to by this rule.
    #[serde(default = "tables_max")]
    pub max_tables: usize,
}

fn tables_max() -> usize {
    TABLES_MAX
}

/// What a value must be.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Condition {
    /// One of these texts.
    OneOf(Vec<String>),
    /// Something between.
    Between(Between),
}

/// Bounds of a value: as numbers if both are, else as texts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Between {
    /// At least this.
    pub min: Option<String>,
    /// At most this.
    pub max: Option<String>,
    /// It begins so.
    pub prefix: Option<String>,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueType {
    /// Text, which the server converts to what the column is.
    #[default]
    Text,
    /// A whole number.
    Integer,
    /// A number with a point, or with an implied one.
    Decimal,
    /// A day.
    Date,
    /// A time of day.
    Time,
    /// A day and a time.
    Datetime,
    /// Hexadecimal digits of a binary value.
    Hex,
    /// Bytes as they are.
    Binary,
}

/// Which ends of a field lose their spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trim {
    /// Both.
    Both,
    /// The beginning.
    Left,
    /// The end.
    Right,
    /// Neither.
    None,
}

/// A field that is the number of a field or the name that the header has for it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum FieldName {
    /// From 1.
    Number(usize),
    /// As in the header.
    Name(String),
}

/// What comes with every record and is none of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The file's name as it was given.
    File,
    /// The number of its line, or of the record if it has no lines; from 1.
    Line,
}

/// A column, and how its value is made.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ColumnLayout {
    /// The column of the table; rules use it, too.
    pub name: String,
    /// Fixed: the first byte, from 1.
    pub position: Option<usize>,
    /// Fixed: the number of bytes.
    pub width: Option<usize>,
    /// CSV and the like: which field. Without it, the next one, or by a header the one of the column's name.
    pub field: Option<FieldName>,
    /// The same text in every row.
    pub constant: Option<String>,
    /// The file or the line.
    pub origin: Option<Origin>,
    /// What the field holds.
    #[serde(default, rename = "type")]
    pub value_type: ValueType,
    /// Spaces that go. Without it, those at both ends of a fixed field, and none of others.
    pub trim: Option<Trim>,
    /// Texts that mean NULL.
    #[serde(default)]
    pub null: Vec<String>,
    /// Days and times: their form, as in strptime. Without it, as the servers write them.
    pub format: Option<String>,
    /// Decimal: so many of the digits are behind the point, and no point is written.
    pub scale: Option<u32>,
    /// Decimal: the character before the fraction.
    pub decimal_point: Option<char>,
    /// Texts that stand for others.
    #[serde(default)]
    pub map: BTreeMap<String, String>,
    /// The least value that is taken.
    pub min: Option<String>,
    /// The greatest value that is taken.
    pub max: Option<String>,
    /// False: for rules only, not for the table.
    #[serde(default = "loads")]
    pub load: bool,
}

fn loads() -> bool {
    true
}

impl Layout {
    /// Reads a layout.
    ///
    /// # Errors
    /// [`Error::Layout`] with the line.
    pub fn parse(text: &str, name: &str) -> Result<Layout> {
        let layout: Layout =
            toml::from_str(text).map_err(|error| Error::layout(name, error.to_string().trim_end().to_owned()))?;
        layout.check().map_err(|why| Error::layout(name, why))?;
        Ok(layout)
    }

    /// What is wrong with it, beyond its words.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> std::result::Result<(), String> {
        if self.columns.len() > COLUMNS_MAX {
            return Err(format!("{} columns are more than a table can have", self.columns.len()));
        }
        let mut names = BTreeSet::new();
        for column in &self.columns {
            if !names.insert(column.name.to_lowercase()) {
                return Err(format!("column {:?} is there twice", column.name));
            }
            self.check_column(column).map_err(|why| format!("column {:?}: {why}", column.name))?;
        }
        self.input.check(self.columns.is_empty())?;
        for rule in &self.rules {
            self.check_rule(rule).map_err(|why| format!("table {:?}: {why}", rule.name.text()))?;
        }
        Ok(())
    }

    fn check_column(&self, column: &ColumnLayout) -> std::result::Result<(), String> {
        let is_made = column.constant.is_some() || column.origin.is_some();
        if column.constant.is_some() && column.origin.is_some() {
            return Err("constant and origin exclude each other".to_owned());
        }
        if self.input.format == Format::Fixed {
            match (column.position, column.width) {
                _ if is_made => {}
                (Some(1..), Some(1..)) => {}
                _ => return Err("a fixed field needs a position (from 1) and a width (in bytes)".to_owned()),
            }
            if column.field.is_some() {
                return Err("a fixed field has a position and a width, no number".to_owned());
            }
            self.input.check_covers(column)?;
        } else if column.position.is_some() || column.width.is_some() {
            return Err("position and width are of fixed records only".to_owned());
        }
        if column.field == Some(FieldName::Number(0)) {
            return Err("fields are counted from 1".to_owned());
        }
        if matches!(column.field, Some(FieldName::Name(_))) && !self.input.header {
            return Err("a field has a name only if the input has a header (header = true)".to_owned());
        }
        let is_time = matches!(column.value_type, ValueType::Date | ValueType::Time | ValueType::Datetime);
        if column.format.is_some() && !is_time {
            return Err("format is of the types date, time and datetime".to_owned());
        }
        if column.value_type != ValueType::Decimal && (column.scale.is_some() || column.decimal_point.is_some()) {
            return Err("scale and decimal-point are of the type decimal".to_owned());
        }
        if column.scale.is_some_and(|scale| scale > 38) {
            return Err("the scale is at most 38".to_owned());
        }
        Ok(())
    }

    fn check_rule(&self, rule: &RuleLayout) -> std::result::Result<(), String> {
        if !rule.name.text().contains('.') {
            return Err("write it as schema.table".to_owned());
        }
        if rule.name.names_nothing() && rule.template.as_ref().is_some_and(|name| name == rule.name.text()) {
            return Err("it is its own template".to_owned());
        }
        if rule.partition.is_some() != rule.partition_values.is_some() {
            return Err("partition and partition-values belong together".to_owned());
        }
        if rule.template.as_ref().is_some_and(|template| !template.contains('.')) {
            return Err("write the template as schema.table".to_owned());
        }
        if rule.max_tables == 0 {
            return Err("max-tables is at least 1".to_owned());
        }
        if self.columns.is_empty() {
            return Ok(());
        }
        let patterns = [Some(&rule.name), rule.partition.as_ref(), rule.partition_values.as_ref()];
        let used = patterns.into_iter().flatten().flat_map(|pattern| pattern.columns());
        for name in used.chain(rule.conditions.keys().map(String::as_str)) {
            if !self.columns.iter().any(|column| column.name == name) {
                return Err(format!("there is no column {name:?}"));
            }
        }
        Ok(())
    }
}

impl RuleLayout {
    /// All rows into one table, or into tables of these names.
    pub fn new(name: Pattern, template: Option<String>) -> RuleLayout {
        RuleLayout {
            name,
            template,
            partition: None,
            partition_values: None,
            conditions: BTreeMap::new(),
            max_tables: TABLES_MAX,
        }
    }
}

impl InputLayout {
    fn check(&self, has_no_columns: bool) -> std::result::Result<(), String> {
        let is_csv = matches!(self.format, Format::Csv | Format::Tsv);
        if self.format == Format::Fixed && has_no_columns {
            return Err("fixed records need columns, with their positions and widths".to_owned());
        }
        if self.format == Format::Fixed && self.header {
            return Err("fixed records have no header; skip-records leaves lines out".to_owned());
        }
        if self.format != Format::Fixed && (self.record_bytes.is_some() || self.line_bytes.is_some()) {
            return Err("record-bytes and line-bytes are of fixed records".to_owned());
        }
        if self.record_bytes.is_some_and(|bytes| bytes == 0 || bytes > RECORD_BYTES_MAX) {
            return Err(format!("record-bytes is between 1 and {RECORD_BYTES_MAX}"));
        }
        if !is_csv && (self.delimiter.is_some() || self.quote.is_some()) {
            return Err("delimiter and quote are of csv and tsv".to_owned());
        }
        if self.delimiter.is_some_and(|delimiter| !delimiter.is_ascii() || matches!(delimiter, '\n' | '\r')) {
            return Err("the delimiter is one byte, and no end of a line".to_owned());
        }
        if self.quote.as_ref().is_some_and(|quote| quote.len() > 1 || !quote.is_ascii()) {
            return Err("the quote is one byte, or empty".to_owned());
        }
        if self.format != Format::LoadData && self.of_load_data().iter().any(|given| given.is_some()) {
            return Err("fields-… and lines-… are of the format load-data".to_owned());
        }
        let enclosed = [&self.fields_enclosed_by, &self.fields_optionally_enclosed_by];
        if enclosed.iter().all(|given| given.is_some()) {
            return Err("fields are enclosed or optionally enclosed".to_owned());
        }
        let is_short = |given: &Option<String>| given.as_ref().is_none_or(|text| text.len() <= 1);
        if !enclosed.iter().all(|given| is_short(given)) || !is_short(&self.fields_escaped_by) {
            return Err("fields are enclosed and escaped by one byte, or an empty text for none".to_owned());
        }
        if self.lines_terminated_by.as_deref() == Some("") {
            return Err("lines-terminated-by must not be empty".to_owned());
        }
        if self.fields_terminated_by.as_deref() == Some("") {
            return Err("without fields-terminated-by, fields are at fixed places: use format = \"fixed\"".to_owned());
        }
        self.encoding()?;
        if self.skip_records > 1_000_000 {
            return Err("skip-records is at most 1000000".to_owned());
        }
        Ok(())
    }

    /// The layout's record must hold the column.
    fn check_covers(&self, column: &ColumnLayout) -> std::result::Result<(), String> {
        let Some((position, width)) = column.position.zip(column.width) else { return Ok(()) };
        let length = self.record_bytes.or(self.line_bytes).unwrap_or(RECORD_BYTES_MAX);
        let end = position.saturating_add(width).saturating_sub(1);
        match end <= length {
            true => Ok(()),
            false => Err(format!("it ends at byte {end}, and the record at {length}")),
        }
    }

    /// The character set.
    ///
    /// # Errors
    /// Nobody knows the name.
    pub(crate) fn encoding(&self) -> std::result::Result<&'static encoding_rs::Encoding, String> {
        let Some(name) = &self.encoding else { return Ok(encoding_rs::UTF_8) };
        let found = encoding_rs::Encoding::for_label(name.as_bytes());
        let known = found.ok_or_else(|| format!("encoding {name:?} is unknown; utf-8, latin1 or shift_jis is one"))?;
        let is_wide = [encoding_rs::UTF_16LE, encoding_rs::UTF_16BE, encoding_rs::ISO_2022_JP].contains(&known);
        // The second byte of a character may be a letter, a backslash or a bar.
        let has_letters_within =
            [encoding_rs::SHIFT_JIS, encoding_rs::BIG5, encoding_rs::GBK, encoding_rs::GB18030, encoding_rs::EUC_KR]
                .contains(&known);
        match is_wide || (has_letters_within && self.marks().iter().any(|byte| (0x30..0x7f).contains(byte))) {
            true => Err(format!(
                "records in {name} cannot be cut by these marks, whose bytes are parts of its characters, too; convert the file first, with iconv"
            )),
            false => Ok(known),
        }
    }

    /// The options that only LOAD DATA has.
    fn of_load_data(&self) -> [&Option<String>; 6] {
        [
            &self.fields_terminated_by,
            &self.fields_enclosed_by,
            &self.fields_optionally_enclosed_by,
            &self.fields_escaped_by,
            &self.lines_starting_by,
            &self.lines_terminated_by,
        ]
    }

    /// The bytes by which records and fields are cut.
    fn marks(&self) -> Vec<u8> {
        let mut marks: Vec<u8> = self.delimiter.map(|delimiter| delimiter as u8).into_iter().collect();
        marks.extend([&self.quote].into_iter().chain(self.of_load_data()).flatten().flat_map(|text| text.bytes()));
        if self.format == Format::LoadData && self.fields_escaped_by.is_none() {
            marks.push(b'\\');
        }
        marks
    }
}
