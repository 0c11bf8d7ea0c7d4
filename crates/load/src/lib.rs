//! Loads files of records into tables of MySQL and MariaDB: each record once, whatever is killed.
//!
//! The way of a record:
//! - [`input`]: files, compressed or not; `pieces`: cut between records, each piece to be loaded by one transaction;
//! - [`layout`]: what a person says of the records; `split` and `load_data`: records and fields; `columns` and `values`: fields become values;
//! - `pattern` and `rows`: rows go to tables by rules, sorted by key; `tables` and `definition`: these are made on demand, like a template;
//! - `loader`: one connection, one piece after the other; `refused`: LOAD DATA LOCAL, and what the server had to say of it;
//! - `manifest`: what is loaded, written in the transaction that loads it; `rejects`: the records that were not loaded;
//! - `indexes`: before the rows or after them;
//! - [`run`](run()) and [`watch`](watch()): all together.

mod columns;
mod definition;
mod error;
mod indexes;
pub mod input;
pub mod layout;
mod load_data;
mod loader;
mod manifest;
mod pattern;
mod pieces;
mod refused;
mod rejects;
mod report;
mod rows;
mod run;
mod split;
mod tables;
mod values;
mod watch;

pub use error::{Error, Result};
pub use indexes::{IndexChoice, IndexStrategy};
pub use layout::Layout;
pub use manifest::Totals;
pub use pattern::Pattern;
pub use refused::Duplicates;
pub use report::{FileReport, Progress, Report, ShownReject};
pub use run::{LoadOptions, run};
pub use watch::watch;
