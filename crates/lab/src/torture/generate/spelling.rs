//! Odd spellings of definitions: comments and line ends between words, and letters in either case. A parser that
//! searches for words in the text, or loses its place in a comment, misreads such a definition; a server does not.

use super::super::feature::Feature;
use super::super::step::{Action, Step};
use super::Generator;

/// Separators of two words that every server accepts, under every SQL mode and character set.
const BETWEEN: [&str; 8] =
    ["/* ' */", "\t", "\n", "/*\"*/ ", " -- it's\n", " #`\n", "/* ; DROP DATABASE d1; -- */", " /*!*/ "];

impl Generator {
    /// The step, sometimes in an odd spelling. ([`Generator::learn`] gets the plain one.)
    pub(in super::super) fn spelled(&mut self, step: &Step) -> Step {
        let Action::Sql(sql) = &step.action else { return step.clone() };
        let is_definition =
            ["CREATE ", "ALTER ", "DROP ", "RENAME ", "TRUNCATE "].iter().any(|word| sql.starts_with(word));
        if !(is_definition && self.has(Feature::Spellings) && self.random.chance(40)) {
            return step.clone();
        }
        let mut words: Vec<&str> = sql.splitn(3, ' ').collect();
        let rest = if words.len() == 3 { words.pop() } else { None };
        let mut spelled = String::new();
        for word in words {
            let word = if self.random.chance(50) { word.to_ascii_lowercase() } else { word.to_owned() };
            // The split may cut a name in quotes.
            spelled += if word.contains('`') { return step.clone() } else { &word };
            spelled += self.random.word(&BETWEEN);
        }
        Step { session: step.session, action: Action::Sql(spelled + rest.unwrap_or_default()) }
    }
}
