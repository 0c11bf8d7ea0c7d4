//! Experiments: everything of the field's public measurements as one command each, at any size.
//!
//! ```text
//! name, size ──▶ settings and cells ──▶ order from a seed ──▶ a run for each cell and repetition ──▶ result (JSON) ──▶ report, comparison
//!                    (plan)                  (plan)               (driver, store)                     (result)        (report, compare)
//! ```
//! - [`plan`]: what will be measured, and the `facts` by which a person judges it; [`driver`]: measures it; [`store`]: keeps each run, so that an
//!   interruption costs one of them;
//! - `shards`, `durability`, `prefetch`, `masters`, `long_transactions`, `lag`, `folding`: the experiments; `on_course`: what those share in which
//!   contenders catch up with a backlog; [`reports`]: the experiments by name;
//! - [`result`]: what was measured, on which [`machine`], and whether that was steady (`steadiness`); [`selection`], [`statistics`]: questions to it;
//! - [`blocks`], [`report`]: for people; [`compare`]: what became slower.

pub mod blocks;
pub mod compare;
pub mod driver;
mod durability;
mod facts;
mod folding;
mod interruption;
mod lag;
mod long_transactions;
pub mod machine;
mod masters;
mod on_course;
pub mod options;
pub mod plan;
mod prefetch;
pub mod report;
pub mod reports;
pub mod result;
pub mod selection;
mod shards;
pub mod statistics;
mod steadiness;
pub mod store;
