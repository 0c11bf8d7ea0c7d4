//! The rule file: which tables go to which applier, which wait for all, and what becomes of tables that nobody named.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use toml::Spanned;

use crate::TableName;

/// What becomes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// This applier has it, from 0.
    Applier(u32),
    /// Transactions that change it wait for all before them, and all others wait for them.
    Critical,
    /// Its rows are divided by their keys, if these allow it.
    ByRow,
    /// An applier has all of it.
    ByTable,
    /// The applier of its schema has it.
    BySchema,
}

/// How a table or schema finds its applier, where no rule says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hash {
    /// By a hash of its name.
    #[default]
    Name,
    /// One after the other, as they first come; remembered on the replica.
    RoundRobin,
}

/// A rule file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    text: String,
    hash: Hash,
    unknown: Option<Action>,
    schemas: BTreeMap<String, (Action, usize)>,
    tables: BTreeMap<TableName, (Action, usize)>,
}

/// What is wrong with a rule file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RuleError {
    /// From 1; `None` if the message says it.
    pub line: Option<usize>,
    /// For people.
    pub why: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    hash: Hash,
    unknown: Option<Spanned<Target>>,
    #[serde(default)]
    rule: Vec<Spanned<FileRule>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    tables: Vec<Spanned<String>>,
    to: Spanned<Target>,
}

/// An applier's number, or a word.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Target {
    Applier(u32),
    Word(String),
}

impl Rules {
    /// Reads a rule file, for so many appliers.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn parse(text: &str, appliers: u32) -> Result<Rules, RuleError> {
        let lines = Lines::of(text);
        let file: File = toml::from_str(text).map_err(|error| RuleError {
            line: error.span().map(|span| lines.at(span.start)),
            why: error.message().to_owned(),
        })?;
        let action = |target: &Spanned<Target>| {
            let wrong = |why| RuleError { line: Some(lines.at(target.span().start)), why };
            action_of(target.get_ref(), appliers).map_err(wrong)
        };
        let mut rules = Rules { text: text.to_owned(), hash: file.hash, ..Rules::default() };
        rules.unknown = file.unknown.as_ref().map(action).transpose()?;
        for rule in &file.rule {
            let FileRule { tables, to } = rule.get_ref();
            let action = action(to)?;
            if tables.is_empty() {
                let line = Some(lines.at(rule.span().start));
                return Err(RuleError { line, why: "the rule names no table".to_owned() });
            }
            for name in tables {
                let line = lines.at(name.span().start);
                let wrong = |why| RuleError { line: Some(line), why };
                let before = match parse_name(name.get_ref()).map_err(wrong)? {
                    (schema, None) => rules.schemas.insert(schema, (action, line)),
                    (schema, Some(table)) => rules.tables.insert(TableName { schema, table }, (action, line)),
                };
                if let Some((_, earlier)) = before {
                    return Err(wrong(format!("{:?} is named by the rule in line {earlier}, too", name.get_ref())));
                }
            }
        }
        Ok(rules)
    }

    /// What the file says.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What becomes of a table: the rule of the table, or that of its schema, or `otherwise`.
    pub(super) fn action(&self, name: &TableName, otherwise: Action) -> Action {
        let table = self.tables.get(name).map(|&(action, _)| action);
        let schema = || self.schemas.get(&name.schema).map(|&(action, _)| action);
        table.or_else(schema).or(self.unknown).unwrap_or(otherwise)
    }

    /// How tables and schemas find their appliers that no rule gives one.
    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    /// The schemas and tables that it names, with their lines.
    pub fn named(&self) -> impl Iterator<Item = (&str, Option<&str>, usize)> {
        let schemas = self.schemas.iter().map(|(schema, &(_, line))| (schema.as_str(), None, line));
        let tables =
            self.tables.iter().map(|(name, &(_, line))| (name.schema.as_str(), Some(name.table.as_str()), line));
        schemas.chain(tables)
    }
}

/// Where a text's lines end.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        Lines(text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(offset, _)| offset).collect())
    }

    /// The number of the line in which a byte stands. The first is 1.
    fn at(&self, offset: usize) -> usize {
        1 + self.0.partition_point(|&end| end < offset)
    }
}

fn action_of(target: &Target, appliers: u32) -> Result<Action, String> {
    match target {
        Target::Applier(number) if (1..=appliers).contains(number) => Ok(Action::Applier(number - 1)),
        Target::Applier(number) => Err(format!("there is no applier {number}: --appliers says {appliers}")),
        Target::Word(word) => match word.as_str() {
            "critical" => Ok(Action::Critical),
            "row" => Ok(Action::ByRow),
            "table" => Ok(Action::ByTable),
            "schema" => Ok(Action::BySchema),
            other => Err(format!(
                "{other:?} is none of \"row\", \"table\", \"schema\", \"critical\", and no applier's number"
            )),
        },
    }
}

/// `shop`, `shop.*`, `shop.item`; names with other characters in backticks.
fn parse_name(text: &str) -> Result<(String, Option<String>), String> {
    let wrong = || format!("{text:?} is no schema and no table: write schema, schema.table, or both in backticks");
    let (schema, rest) = parse_identifier(text).ok_or_else(wrong)?;
    match rest.strip_prefix('.') {
        None if rest.is_empty() => Ok((schema, None)),
        Some("*") => Ok((schema, None)),
        Some(rest) => match parse_identifier(rest) {
            Some((table, "")) => Ok((schema, Some(table))),
            _ => Err(wrong()),
        },
        None => Err(wrong()),
    }
}

fn parse_identifier(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('`') else {
        let end = text.find('.').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let is_plain = name.chars().all(|letter| letter.is_alphanumeric() || "_$-".contains(letter));
        return (is_plain && !name.is_empty()).then(|| (name.to_owned(), rest));
    };
    let mut name = String::new();
    loop {
        let (part, after) = rest.split_once('`')?;
        name.push_str(part);
        match after.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None => return (!name.is_empty()).then_some((name, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "hash = \"round-robin\"\nunknown = \"critical\"\n\n[[rule]]\ntables = [\"shop.item\", \
         \"log.*\"]\nto = 2\n\n[[rule]]\ntables = [\"shop\", \"`a.b`.`c``d`\"]\nto = \"table\"\n";

    fn name(schema: &str, table: &str) -> TableName {
        TableName { schema: schema.to_owned(), table: table.to_owned() }
    }

    #[test]
    fn the_rule_of_a_table_comes_before_that_of_its_schema() {
        let rules = Rules::parse(FILE, 2).unwrap();
        assert_eq!(rules.action(&name("shop", "item"), Action::ByRow), Action::Applier(1));
        assert_eq!(rules.action(&name("shop", "cart"), Action::ByRow), Action::ByTable);
        assert_eq!(rules.action(&name("log", "any"), Action::ByRow), Action::Applier(1));
        assert_eq!(rules.action(&name("a.b", "c`d"), Action::ByRow), Action::ByTable);
        assert_eq!(rules.action(&name("other", "any"), Action::ByRow), Action::Critical);
        assert_eq!(rules.hash(), Hash::RoundRobin);
        assert_eq!(rules.named().count(), 4);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let line_of = |text: &str| {
            let error = Rules::parse(text, 2).unwrap_err();
            (error.line.unwrap(), error.why)
        };
        assert_eq!(line_of("hash = \"name\"\nunknwon = 1\n").0, 2);
        assert_eq!(line_of("hash = \"nme\"\n").0, 1);
        assert_eq!(line_of("[[rule]]\ntables = [\"a\"]\nto = 3\n").0, 3);
        assert_eq!(line_of("[[rule]]\ntables = [\"a\"]\nto = \"critcal\"\n").0, 3);
        assert_eq!(line_of("[[rule]]\ntables = [\"a\",\n\"a.*\"]\nto = 1\n").0, 3);
        assert_eq!(line_of("[[rule]]\ntables = [\n\"a b\"]\nto = 1\n").0, 3);
        assert_eq!(line_of("\n[[rule]]\ntables = []\nto = 1\n").0, 2);
        assert_eq!(line_of("\n[[rule]]\ntables = [\"a\"]\n").0, 2);
        let (line, why) = line_of("[[rule]]\ntables = [\"a.b\"]\nto = 1\n[[rule]]\ntables = [\"a.b\"]\nto = 2\n");
        assert!(line == 5 && why.contains("line 2"), "{line} {why}");
    }
}
