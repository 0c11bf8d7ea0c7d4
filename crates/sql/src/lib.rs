//! SQL text, as the servers of MySQL and MariaDB read it.
//!
//! A statement of a binlog is text in the character set of its client, read under the `sql_mode` of its session by a server of some
//! version ([`reading`]). The [`lexer`] takes it apart as that server does, and says where it is not sure. Nothing else in Spate
//! looks for words in a statement's text, and nothing changes a text but [`edit`], which holds the outcome against what it was.
//!
//! People are shown only the [`excerpt`](mod@excerpt) of a statement.
//!
//! No I/O, no state, and nothing of ours is imported.

pub mod charset;
pub mod edit;
pub mod encoding;
pub mod excerpt;
pub mod lexer;
pub mod reading;
mod single_byte;
pub mod text;

pub use encoding::Encoding;
pub use excerpt::excerpt;
pub use lexer::{Doubt, Lexer, Token, TokenKind};
pub use reading::{Reading, Server, Servers, Vendor};
pub use text::SqlText;
