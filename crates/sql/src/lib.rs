//! SQL text, as the servers of MySQL and MariaDB read it.
//!
//! A statement of a binlog is text in the character set of its client. A server of some version reads it under the
//! `sql_mode` of its session ([`reading`]). The [`lexer`] splits it into tokens as that server does, and says where it
//! is not sure. No other code in Spate looks for words in a statement's text. Only [`edit`] changes a text, and
//! compares the result with the original.
//!
//! People are shown only the [`excerpt`](mod@excerpt) of a statement.
//!
//! This crate does no I/O, keeps no state, and imports no other crate of Spate.

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
