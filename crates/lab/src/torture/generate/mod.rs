//! Draws the statements from the seed, for the objects on the source, so that most of them succeed.

mod by_hand;
mod context;
mod ddl;
mod dml;
mod programs;
mod safety;
mod spelling;
mod tables;
mod types;
mod values;

use super::driver::Outcome;
use super::feature::Feature;
use super::settings::Settings;
use super::step::{Action, Step};
use super::world::{Table, World};
use crate::random::Random;
use types::Collation;

/// The schemas of a torture; their odd names are part of it.
const SCHEMAS: [&str; 3] = ["d1", "odd `name", "über x"];
/// No further tables are created when there are so many.
const TABLES_MAX: usize = 14;
/// Tables are created until there are so many.
const TABLES_MIN: usize = 5;

/// A state of a session's XA transaction, with its id as SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Xa {
    Active(String),
    Idle(String),
    Prepared(String),
}

/// The generator's assumptions about a session. If one is wrong, statements fail, which is no fault.
#[derive(Debug, Clone, Default)]
struct SessionState {
    in_transaction: bool,
    /// True without autocommit: then the end of a transaction begins the next.
    without_autocommit: bool,
    xa: Option<Xa>,
    has_temporary: bool,
    /// Its client's character set and SQL mode.
    language: safety::Language,
}

/// A kind of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Update,
    Delete,
    Swap,
    InsertSelect,
    Bulk,
    MultipleTables,
    FailsHalfWay,
    Transaction,
    Savepoint,
    CreateTable,
    CreateSelect,
    Definition,
    ExchangeTwin,
    View,
    Trigger,
    Routine,
    Sequence,
    Account,
    Temporary,
    Load,
    Xa,
    Setting,
    Domain,
    Reconnect,
    DeleteHistory,
    Event,
    ByHand,
}

/// Draws statements.
pub(super) struct Generator {
    random: Random,
    settings: Settings,
    pub(super) world: World,
    collations: Vec<Collation>,
    sessions: Vec<SessionState>,
    /// Prepared XA transactions whose session has ended.
    abandoned: Vec<String>,
    /// XA transactions that have not ended, and the tables that each has changed.
    held: Vec<(String, String)>,
    /// Steps that follow one that was drawn.
    next: Vec<Step>,
    count: usize,
}

impl Generator {
    /// A generator for a source that is empty. `collations` are the source's, with their character sets first.
    pub(super) fn new(settings: &Settings, collations: Vec<(String, String)>) -> Generator {
        let mut generator = Generator {
            random: Random::new(settings.seed).fork(),
            settings: settings.clone(),
            world: World::default(),
            collations: collations.into_iter().map(|(charset, name)| Collation { charset, name }).collect(),
            sessions: vec![SessionState::default(); settings.sessions],
            abandoned: vec![],
            held: vec![],
            next: vec![],
            count: 0,
        };
        for schema in SCHEMAS {
            let sql = format!("CREATE DATABASE {}", crate::sql::quote(schema));
            generator.next.push(Step::sql(0, sql));
        }
        let log =
            format!("CREATE TABLE {}.`log` (what VARCHAR(20), n INT) ENGINE=InnoDB", crate::sql::quote(SCHEMAS[0]));
        generator.next.push(Step::sql(0, log));
        generator.next.reverse();
        generator
    }

    /// The next step.
    pub(super) fn step(&mut self) -> Step {
        /// A kind of statement may find no object to work on; some kind always does.
        const TRIES: usize = 100;
        if let Some(step) = self.next.pop() {
            return step;
        }
        let session = self.random.below(self.sessions.len());
        for _ in 0..TRIES {
            // If a step is refused, the steps that would follow it are dropped too.
            let before = self.next.len();
            match self.draw(session) {
                Some(step) if self.is_replicated_faithfully(&step) => return step,
                _ => self.next.truncate(before),
            }
        }
        Step::sql(session, "COMMIT")
    }

    /// Notes the outcome of a step. True if the objects on the source may have changed.
    pub(super) fn learn(&mut self, step: &Step, outcome: Outcome) -> bool {
        if outcome == Outcome::Lost {
            return self.lose(step.session);
        }
        let Action::Sql(sql) = &step.action else { return false };
        if outcome != Outcome::Done {
            return false;
        }
        self.note_held(step.session, sql);
        self.note_transaction(step.session, sql);
        self.sessions[step.session].language.note(sql);
        let words: Vec<String> =
            sql.trim_start_matches("/* why */ ").split(' ').take(2).map(str::to_ascii_uppercase).collect();
        let (first, second) = (words.first().map_or("", String::as_str), words.get(1).map_or("", String::as_str));
        if second == "TEMPORARY" {
            self.sessions[step.session].has_temporary = first == "CREATE";
            return false;
        }
        let is_definition = matches!(first, "CREATE" | "ALTER" | "DROP" | "RENAME" | "TRUNCATE");
        if is_definition {
            let state = &mut self.sessions[step.session];
            state.in_transaction = state.without_autocommit;
        }
        is_definition && !matches!(second, "USER" | "ROLE")
    }

    /// All sessions have lost their connections.
    pub(super) fn lose_all(&mut self) {
        (0..self.sessions.len()).for_each(|session| {
            self.lose(session);
        });
    }

    fn lose(&mut self, session: usize) -> bool {
        match std::mem::take(&mut self.sessions[session]).xa {
            Some(Xa::Prepared(id)) => self.abandoned.push(id),
            Some(Xa::Active(id) | Xa::Idle(id)) => self.held.retain(|(holder, _)| *holder != id),
            None => {}
        }
        false
    }

    fn note_transaction(&mut self, session: usize, sql: &str) {
        let state = &mut self.sessions[session];
        if let Some(rest) = sql.strip_prefix("XA ") {
            let (verb, id) = rest.split_once(' ').unwrap_or((rest, ""));
            let id = id.trim_end_matches(" ONE PHASE").to_owned();
            state.xa = match verb {
                "START" => Some(Xa::Active(id)),
                "END" => Some(Xa::Idle(id)),
                "PREPARE" => Some(Xa::Prepared(id)),
                _ => {
                    self.abandoned.retain(|abandoned| *abandoned != id);
                    self.held.retain(|(holder, _)| *holder != id);
                    None
                }
            };
        } else if sql.starts_with("BEGIN") || sql.starts_with("START") || sql.ends_with("CHAIN") {
            state.in_transaction = true;
        } else if let Some(value) = sql.strip_prefix("SET autocommit = ") {
            state.without_autocommit = value == "0";
            state.in_transaction = state.without_autocommit;
        } else if sql == "COMMIT" || sql == "ROLLBACK" {
            state.in_transaction = state.without_autocommit;
        }
    }

    fn draw(&mut self, session: usize) -> Option<Step> {
        let sql = |sql: Option<String>| sql.map(|sql| Step::sql(session, sql));
        if self.sessions[session].xa.is_some() {
            return self.draw_in_xa(session);
        }
        if self.world.tables.len() < TABLES_MIN {
            return sql(self.create_table());
        }
        match self.random.weighted(&self.weights(session))? {
            Kind::Insert => sql(self.insert()),
            Kind::Update => sql(self.update()),
            Kind::Delete => sql(self.delete()),
            Kind::Swap => sql(self.swap()),
            Kind::InsertSelect => sql(self.insert_select()),
            Kind::Bulk => sql(self.bulk()),
            Kind::MultipleTables => sql(self.multiple_tables()),
            Kind::FailsHalfWay => sql(self.fails_half_way()),
            Kind::Transaction => sql(self.transaction(session)),
            Kind::Savepoint => sql(self.savepoint()),
            Kind::CreateTable => sql(self.create_table()),
            Kind::CreateSelect => sql(self.create_select()),
            Kind::Definition => sql(self.definition()),
            Kind::ExchangeTwin => {
                if !self.may_alter_partitions() {
                    return None;
                }
                let [create, alter] = self.exchange_twin()?.try_into().ok()?;
                self.next.push(Step::sql(session, alter));
                sql(Some(create))
            }
            Kind::View => sql(self.view()),
            Kind::Trigger => sql(self.trigger()),
            Kind::Routine => sql(self.routine()),
            Kind::Sequence => sql(self.sequence()),
            Kind::Account => sql(self.account()),
            Kind::Temporary => sql(self.temporary(session)),
            Kind::Load => self.load(session),
            Kind::Xa => sql(self.xa()),
            Kind::Setting => sql(self.setting()),
            Kind::Domain => sql(self.domain()),
            Kind::Reconnect => Some(Step { session, action: Action::Reconnect }),
            Kind::DeleteHistory => sql(self.delete_history()),
            Kind::Event => sql(self.event()),
            Kind::ByHand => self.by_hand(),
        }
    }

    /// In an XA transaction only changes are allowed, and its end.
    fn draw_in_xa(&mut self, session: usize) -> Option<Step> {
        let is_active = matches!(self.sessions[session].xa, Some(Xa::Active(_)));
        if is_active && self.random.chance(65) {
            let sql = match self.random.below(4) {
                0 | 1 if self.logs_statements() => self.change_by_key(),
                0 => self.update(),
                1 => self.delete(),
                _ => self.insert(),
            };
            return sql.map(|sql| Step::sql(session, sql));
        }
        if matches!(self.sessions[session].xa, Some(Xa::Prepared(_))) && self.random.chance(40) {
            return Some(Step { session, action: Action::Reconnect });
        }
        self.xa_continues(session).map(|sql| Step::sql(session, sql))
    }

    fn weights(&self, session: usize) -> Vec<(usize, Kind)> {
        let state = &self.sessions[session];
        let when = |feature, weight| if self.has(feature) { weight } else { 0 };
        let tables = self.world.tables.len();
        // Statements with an implicit commit would end most transactions early.
        let outside = |weight: usize| if state.in_transaction { weight / 4 } else { weight };
        let ddl = if self.has(Feature::Ddl) { 22 } else { 0 };
        vec![
            (100, Kind::Insert),
            (70, Kind::Update),
            (32, Kind::Delete),
            (15, Kind::Swap),
            (when(Feature::Dml, 12), Kind::InsertSelect),
            (when(Feature::Dml, 3), Kind::Bulk),
            (when(Feature::Dml, 12), Kind::MultipleTables),
            (when(Feature::Dml, 8), Kind::FailsHalfWay),
            (if state.in_transaction { 110 } else { 25 }, Kind::Transaction),
            (if state.in_transaction { when(Feature::Dml, 18) } else { 0 }, Kind::Savepoint),
            (outside(if tables < TABLES_MAX { ddl / 2 + 1 } else { 0 }), Kind::CreateTable),
            (outside(if tables < TABLES_MAX { when(Feature::CreateSelect, 8) } else { 0 }), Kind::CreateSelect),
            (outside(ddl + if tables < TABLES_MAX { 0 } else { ddl }), Kind::Definition),
            (outside(if tables < TABLES_MAX { when(Feature::Partitions, 2) } else { 0 }), Kind::ExchangeTwin),
            (outside(when(Feature::Views, 12)), Kind::View),
            (outside(when(Feature::Triggers, 7)), Kind::Trigger),
            (outside(when(Feature::Routines, 14)), Kind::Routine),
            (outside(if self.may_create_sequences() { when(Feature::Sequences, 12) } else { 0 }), Kind::Sequence),
            (outside(when(Feature::Accounts, 10)), Kind::Account),
            (when(Feature::TemporaryTables, 16), Kind::Temporary),
            (when(Feature::LoadData, 8), Kind::Load),
            (if state.in_transaction { 0 } else { when(Feature::Xa, 12) }, Kind::Xa),
            (when(Feature::StatementContext, 35), Kind::Setting),
            (outside(when(Feature::Domains, 10)), Kind::Domain),
            (2, Kind::Reconnect),
            (outside(when(Feature::SystemVersioning, 3)), Kind::DeleteHistory),
            (outside(when(Feature::Events, 8)), Kind::Event),
            // Each waits for both replicas.
            (if self.may_alter_replicas() { when(Feature::ByHand, 1) } else { 0 }, Kind::ByHand),
        ]
    }

    fn delete_history(&mut self) -> Option<String> {
        let versioned: Vec<&Table> =
            self.world.tables.iter().filter(|table| table.is_versioned && table.foreign_keys.is_empty()).collect();
        Some(format!("DELETE HISTORY FROM {}", self.random.pick(&versioned)?.quoted()))
    }

    fn has(&self, feature: Feature) -> bool {
        self.settings.features.has(feature)
    }

    /// True between vendors: then statements must be such that both understand them.
    fn is_shared(&self) -> bool {
        self.settings.pair.is_mixed()
    }

    fn table(&mut self) -> Option<Table> {
        self.random.pick(&self.world.tables).cloned()
    }

    fn schema(&mut self) -> Option<String> {
        let own: Vec<&String> = self.world.schemas.iter().filter(|schema| SCHEMAS.contains(&schema.as_str())).collect();
        self.random.pick(&own).map(|schema| (*schema).clone())
    }

    /// A number that no earlier call returned.
    fn counter(&mut self) -> String {
        self.count += 1;
        self.count.to_string()
    }
}
