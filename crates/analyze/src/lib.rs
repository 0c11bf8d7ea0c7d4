//! Reads binlogs, and tells a database administrator what parallelism their transactions have: what happened when, which rows and tables
//! are hot, what folding would leave, and how fast a replica could be with each policy and number of appliers.
//!
//! ```text
//! binlogs ──▶ reading: transactions ──┬──▶ counts, tables
//!                                     └──▶ dependencies (one for each policy) ──blocks──▶ threads of simulations
//!                                                                    analysis ◀── all together; advice, page
//! ```
//!
//! It looks at nothing but the binlog, so it cannot know foreign keys, unique keys besides the primary, and how text is compared. Its
//! memory has a bound: what cannot be kept is counted together, or forgotten from the oldest on, and each place says which.

mod advice;
mod analysis;
mod calibration;
mod counts;
mod dependencies;
mod error;
mod hashed;
mod page;
mod reading;
mod simulating;
mod simulation;
mod tables;
mod transaction;

pub use analysis::{Analysis, Options, Progress, SpeedUp, analyze};
pub use calibration::{Calibration, Compared, Measured, calibrate};
pub use counts::{Folded, Moment, Outstanding, SizeCount};
pub use dependencies::{Dependencies, Dependency, Policy};
pub use error::{Error, Result};
pub use page::page;
pub use simulation::{CommitOrder, Costs, SerialShares, Setting, Simulation};
pub use tables::{HotRow, TableFacts};
pub use transaction::{Reach, TableNumber, Transaction};
