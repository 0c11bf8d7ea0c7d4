//! Golden scripts: the folded changes of a history, written to be read like an incident.
//!
//! Commands: `insert ID U V`, `update ID U V [to=ID]`, `delete ID` (U may be NULL) change the source; the script prints
//! its refusals. `batch [chunk=BYTES]` ends the batch, prints the replica's changes, and applies them to a strict
//! replica. `images full|minimal` sets the images that the source logs from here on: whole rows, or only the key and
//! changed columns. `never-fold` switches folding off. Set UPDATE_GOLDENFILES=1 to rewrite the expected output.

#![allow(clippy::unwrap_used, reason = "tests")]
mod model;

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Command, Context, Runner};
use model::{Change, Server, Values, emitted, feed, feed_partial};
use spate_schedule::{BatchBuilder, Item};

#[derive(Default)]
struct Incident {
    source: Server,
    replica: Server,
    builder: BatchBuilder,
    has_partial_images: bool,
}

impl Runner for Incident {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let key = |args: &mut goldenscript::ArgumentConsumer<'_>, key: &str| -> Result<Option<i32>, Box<dyn Error>> {
            Ok(args.take_key(key).map(str::parse).transpose()?)
        };
        let (to, chunk) = (key(&mut args, "to")?, key(&mut args, "chunk")?);
        let mut number = |name: &str| -> Result<Option<i32>, Box<dyn Error>> {
            let text = args.next_pos().ok_or_else(|| format!("{name} is missing"))?;
            Ok(if text == "NULL" { None } else { Some(text.parse()?) })
        };
        match command.name.as_str() {
            "insert" => {
                let id = number("id")?.ok_or("id may not be NULL")?;
                let values = (number("u")?, number("v")?.ok_or("v may not be NULL")?);
                self.change(Change::Insert(id, values))
            }
            "update" => {
                let id = number("id")?.ok_or("id may not be NULL")?;
                let values = (number("u")?, number("v")?.ok_or("v may not be NULL")?);
                let to = to.unwrap_or(id);
                let before = self.row(id)?;
                self.change(Change::Update((id, before), (to, values)))
            }
            "delete" => {
                let id = number("id")?.ok_or("id may not be NULL")?;
                let before = self.row(id)?;
                self.change(Change::Delete(id, before))
            }
            "never-fold" => {
                self.builder.never_fold();
                Ok(String::new())
            }
            "images" => {
                self.has_partial_images = args.next_pos().ok_or("full or minimal?")? == "minimal";
                Ok(String::new())
            }
            "batch" => self.batch(chunk.map_or(1 << 20, |bytes| bytes as usize)),
            other => Err(format!("unknown command {other}").into()),
        }
    }
}

impl Incident {
    fn row(&self, id: i32) -> Result<Values, Box<dyn Error>> {
        self.source.rows.get(&id).copied().ok_or_else(|| format!("the source has no row {id}").into())
    }

    fn change(&mut self, change: Change) -> Result<String, Box<dyn Error>> {
        if let Err(refusal) = self.source.apply(change) {
            return Ok(format!("the source refuses: {refusal}"));
        }
        match self.has_partial_images {
            true => feed_partial(&mut self.builder, change, 0, 0),
            false => feed(&mut self.builder, change),
        }
        Ok(String::new())
    }

    fn batch(&mut self, chunk_bytes_max: usize) -> Result<String, Box<dyn Error>> {
        let batch = self.builder.take();
        let segments = batch.items.iter().filter(|item| matches!(item, Item::Rows(_))).count();
        let mut text = format!("{} row changes, {segments} segments\n", batch.statistics.row_changes);
        for change in emitted(&batch, chunk_bytes_max) {
            self.replica.apply(change)?;
            let show = |(u, v): Values| format!("u={} v={v}", u.map_or("NULL".to_owned(), |u| u.to_string()));
            match change {
                Change::Insert(id, values) => writeln!(text, "insert {id} {}", show(values))?,
                Change::Delete(id, _) => writeln!(text, "delete {id}")?,
                Change::Update((id, _), (to, values)) if id == to => writeln!(text, "update {id} {}", show(values))?,
                Change::Set(id, columns, (to, (u, v))) => {
                    let names = [format!(" to {to}"), format!(" u={u:?}"), format!(" v={v}")];
                    let set = (0..3).filter(|column| columns & 1 << column != 0).map(|column| names[column].as_str());
                    writeln!(text, "set {id}{}", set.collect::<String>())?;
                }
                Change::Update((id, _), (to, values)) => writeln!(text, "update {id} to {to} {}", show(values))?,
            }
        }
        if self.replica != self.source {
            return Err(format!("the replica differs: {:?}, not {:?}", self.replica, self.source).into());
        }
        write!(text, "identical, AUTO_INCREMENT above {}", self.replica.counter)?;
        Ok(text)
    }
}

#[test]
fn golden_scripts_fold_as_written() {
    let mut scripts: Vec<_> = std::fs::read_dir("tests/golden").unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 6);
    for script in scripts {
        goldenscript::run(&mut Incident::default(), &script)
            .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}
