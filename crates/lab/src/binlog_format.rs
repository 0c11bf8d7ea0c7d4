//! How a source logs changes.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How the source logs changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Rows.
    Row,
    /// Statements where they are safe.
    Mixed,
    /// Statements.
    Statement,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Row => "row",
            Format::Mixed => "mixed",
            Format::Statement => "statement",
        })
    }
}
