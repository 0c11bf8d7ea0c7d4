//! Statements in spellings that mislead who reads them, executed on the source by an account with few rights. Whatever they are, the
//! replica holds what the source holds, or the statement is refused by name; and no account, row or table is there that this
//! account could not have made.
//!
//! Each text has a schema of its own, with a parent and a child table, and rows that go wherever a foreign key that went unnoticed
//! would matter.

use std::collections::BTreeMap;

use spate_connection::{ConnectOptions, Connection};

use crate::support::{Kind, Server, Site};

/// What texts try to have executed with the rights of Spate.
const EVIL: &str = "; CREATE USER evil; UPDATE secret.pay SET amount=8; COMMIT; -- ";

/// Refusals that say that a text is not certain.
const REFUSALS: [&str; 3] =
    ["cannot be read with certainty", "would make another statement of it", "the applier's has one"];

/// What a session of the low account does.
struct Text {
    /// Settings of the session: modes, character sets.
    session: String,
    sql: Vec<u8>,
    /// Executed without a default schema.
    is_homeless: bool,
}

fn text(session: &str, sql: impl AsRef<[u8]>) -> Text {
    Text { session: session.to_owned(), sql: sql.as_ref().to_vec(), is_homeless: false }
}

const FOREIGN_KEY: &str = "ADD FOREIGN KEY (pid) REFERENCES p(id) ON DELETE CASCADE ON UPDATE CASCADE";

/// Texts for any server. `SCHEMA` stands for the text's own.
fn texts() -> Vec<Text> {
    let mut texts = vec![
        text("", format!("CREATE TABLE x (event int) --\t'\n COMMENT 'ENABLE # ' \n COMMENT ' {EVIL}'")),
        text("", "CREATE TABLE x (id INT, event VARCHAR(20) COMMENT 'what happened')"),
        text("", "CREATE TABLE x (event INT, enable INT, disable INT COMMENT 'DISABLE ON SLAVE')"),
        text("", r"CREATE TABLE x (a INT COMMENT 'it\'s START TRANSACTION')"),
        text("", format!("CREATE TABLE x (a INT COMMENT '{EVIL}', event INT COMMENT \"{EVIL}\")")),
        text("", format!("CREATE TABLE `x{EVIL}` (event INT)")),
        text("", "CREATE TABLE x AS SELECT * FROM c"),
        text("", "RENAME TABLE c TO `#sql-child`, `#sql-child` TO c"),
        text("", format!("ALTER TABLE c RENAME TO `#sql-c`, {FOREIGN_KEY}")),
        text("", "CREATE VIEW v AS SELECT 'CREATE EVENT e ENABLE' AS event"),
        text("", "CREATE EVENT e ON SCHEDULE EVERY 1 DAY COMMENT 'x ENABLE y' DO SELECT 'COMMENT'"),
        text("", "CREATE EVENT enable ON SCHEDULE AT NOW() + INTERVAL 1 DAY ON COMPLETION PRESERVE ENABLE DO DO 1"),
        text("SET sql_mode=ANSI_QUOTES", "CREATE EVENT \"do\" ON SCHEDULE EVERY 1 DAY COMMENT 'a\\'' DO DO 1"),
        text(
            "SET sql_mode=NO_BACKSLASH_ESCAPES",
            format!("CREATE EVENT e ON SCHEDULE EVERY 1 DAY COMMENT '\\' DO SET @a = ' ENABLE {EVIL}'"),
        ),
        text(
            "SET sql_mode=NO_BACKSLASH_ESCAPES",
            format!("CREATE TABLE x (event INT COMMENT '\\', a INT COMMENT 'ENABLE {EVIL}')"),
        ),
        text("SET sql_mode=ANSI_QUOTES", format!("ALTER TABLE c ADD \"x\\\" INT, {FOREIGN_KEY}")),
        text("SET sql_mode=ANSI_QUOTES", format!("CREATE TABLE \"x\\\" (event INT) COMMENT 'ENABLE \" {EVIL}'")),
        text(
            "SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
            format!("ALTER TABLE c ADD \"'\" INT COMMENT '\\', {FOREIGN_KEY}"),
        ),
        text("", format!("ALTER TABLE c /*! {FOREIGN_KEY} */")),
        text("", format!("ALTER TABLE c /*!40101 {FOREIGN_KEY} */")),
        text("", format!("ALTER TABLE c /*!50701 {FOREIGN_KEY}, */ ADD x INT")),
        text("", format!("ALTER TABLE c /*M!100100 {FOREIGN_KEY}, */ ADD x INT")),
        text("", format!("ALTER TABLE c /*!99999 ' */ ADD x INT /* ' */, {FOREIGN_KEY}")),
        text("", format!("ALTER TABLE c /*!999999 /* ' */ ' */ ADD x INT, {FOREIGN_KEY} -- '")),
        text("", format!("ALTER TABLE c ADD x INT DEFAULT (2*/*'*/3), {FOREIGN_KEY} /* ' */")),
        text("", format!("ALTER TABLE c ADD x INT DEFAULT 5 #'\n, {FOREIGN_KEY}")),
        text(
            "",
            format!("ALTER TABLE c ADD x INT COMMENT 'a' 'b''c' \"d'\"\"e\", {FOREIGN_KEY}")
                .replace(" \"d'\"\"e\"", ""),
        ),
        text("", format!("ALTER TABLE c ADD `'` INT, {FOREIGN_KEY}")),
        text("", format!("ALTER TABLE c ADD `\"``--` INT, {FOREIGN_KEY}")),
        text("", format!("/* ' */ ALTER /*`*/ TABLE/**/c/**/ADD/*\"*/x INT,{FOREIGN_KEY}")),
        text("", "ALTER TABLE c ADD b INT NOT NULL DEFAULT 7, DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)"),
        text("SET NAMES latin1", b"ALTER TABLE t\xe4 DROP PRIMARY KEY, ADD PRIMARY KEY (b)"),
        text("SET NAMES latin1", b"ALTER TABLE `t\xe4` DROP PRIMARY KEY, ADD PRIMARY KEY (b)"),
        text("SET NAMES latin2", b"ALTER TABLE t\xe4 DROP PRIMARY KEY, ADD PRIMARY KEY (b)"),
        text("SET NAMES utf8mb4", "ALTER TABLE tä DROP PRIMARY KEY, ADD PRIMARY KEY (b)"),
        text("SET NAMES utf8mb3", "ALTER TABLE `tä` DROP PRIMARY KEY, ADD PRIMARY KEY (b)"),
        text("SET NAMES latin1", b"ALTER TABLE\xa0t\xe4\xa0DROP\xa0PRIMARY\xa0KEY, ADD PRIMARY KEY (b)"),
        text("SET NAMES latin1", [b"ALTER TABLE c ADD x INT --\xa0'\n, ".as_slice(), FOREIGN_KEY.as_bytes()].concat()),
        text("", "DROP TABLE IF EXISTS nothing, `no;thing`"),
        text("", "TRUNCATE TABLE t -- p"),
        text("", "CREATE TABLE x (a INT) COMMENT 'x' /* */ COMMENT='START TRANSACTION'"),
        text("", "CREATE TABLE x LIKE c"),
        text("", "CREATE INDEX `on` ON c (pid) COMMENT 'ON p'"),
        text("", "ALTER TABLE c COMMENT 'RENAME TO t, RENAME t'"),
        text("", format!("INSERT INTO t VALUES (5, '{EVIL}')")),
        text("SET sql_mode=NO_BACKSLASH_ESCAPES", "INSERT INTO t VALUES (5, '\\'), (6, ', DATABASE()')"),
        text("SET sql_mode=ANSI_QUOTES", "INSERT INTO \"t\" VALUES (5, DATABASE())"),
        text(
            &format!("SET @`a``b{}` = '{EVIL}'", EVIL.replace('`', "")),
            format!("INSERT INTO t VALUES (5, @`a``b{EVIL}`)"),
        ),
        text("SET NAMES latin1", b"INSERT INTO t VALUES (5, @`\xe4`)"),
        text("SET NAMES gbk", b"INSERT INTO t VALUES (5, '\xbf\x5c'), (6, ' DATABASE()')"),
        text("SET NAMES sjis", b"INSERT INTO t VALUES (5, '\x95\x5c'), (6, ' DATABASE() \x95\x5c')"),
    ];
    for blank in ["\t", "\n", "\r", "\x0b", "\x0c", "\x01", "\x1f", "\x7f"] {
        texts.push(text("", format!("ALTER TABLE c ADD x INT --{blank}'\n, {FOREIGN_KEY}")));
        texts.push(text(
            "",
            format!("CREATE TABLE x (event int) --{blank}'\n COMMENT 'ENABLE # ' \n COMMENT ' {EVIL}'"),
        ));
    }
    for (charset, character) in [
        ("sjis", b"\x95\x5c".as_slice()),
        ("cp932", b"\x95\x5c"),
        ("gbk", b"\xbf\x5c"),
        ("big5", b"\xa5\x5c"),
        ("gb18030", b"\xbf\x5c"),
        ("euckr", b"\xb0\xa1"),
        ("ujis", b"\xb0\xa1"),
        ("latin1", b"\x95"),
        ("cp1251", b"\x95"),
    ] {
        let session = format!("SET NAMES {charset}");
        let foreign_key = FOREIGN_KEY.as_bytes();
        texts.push(text(&session, [b"ALTER TABLE c ADD x INT COMMENT '", character, b"', ", foreign_key].concat()));
        texts.push(text(&session, [b"ALTER TABLE c ADD `", character, b"` INT, ", foreign_key].concat()));
        texts.push(text(
            &session,
            [b"CREATE TABLE x (event INT COMMENT '", character, b"') COMMENT 'ENABLE ", EVIL.as_bytes(), b"'"].concat(),
        ));
        texts.push(text(
            &session,
            [b"CREATE EVENT e ON SCHEDULE EVERY 1 DAY COMMENT '", character, b"' DO SET @a='ENABLE'"].concat(),
        ));
    }
    for (session, sql) in [
        ("", "INSERT INTO SCHEMA.t VALUES (5, DATABASE())"),
        ("", "INSERT INTO SCHEMA.t VALUES (5, /*!40101 DATABASE( */ ))"),
        (
            "SET sql_mode=NO_BACKSLASH_ESCAPES",
            "INSERT INTO SCHEMA.t VALUES (5, '\\'), (6, DATABASE()), (7, 'SCHEMA()')",
        ),
        ("SET sql_mode=ANSI_QUOTES", "INSERT INTO SCHEMA.\"t\" VALUES (5, ' DATABASE() \\' \"'), (6, SCHEMA())"),
        ("", "INSERT INTO SCHEMA.t VALUES (5, ' DATABASE() '), (6, IFNULL(DATABASE(), \"'\"))"),
        ("", "CREATE TABLE SCHEMA.x (event INT)"),
        ("", "UPDATE SCHEMA.t SET b = CONCAT('DATABASE()', IFNULL(DATABASE(), 'none')) -- DATABASE()"),
    ] {
        texts.push(Text { is_homeless: true, ..text(session, sql) });
    }
    texts
}

/// Texts that only MariaDB takes.
fn texts_of_mariadb() -> Vec<Text> {
    vec![
        text("SET sql_mode=ORACLE", format!("ALTER TABLE c ADD \"x'\" INT, {FOREIGN_KEY}")),
        text("SET sql_mode=MSSQL", format!("ALTER TABLE c ADD [x'] INT, {FOREIGN_KEY}")),
        text("SET sql_mode=MSSQL", format!("CREATE TABLE [x'] ([event] INT) COMMENT 'ENABLE {EVIL}'")),
        text("", format!("SET STATEMENT sql_mode='ANSI_QUOTES' FOR ALTER TABLE c ADD x INT, {FOREIGN_KEY}")),
        text("", format!("SET STATEMENT max_statement_time=10 FOR ALTER TABLE c ADD x INT, {FOREIGN_KEY}")),
        text("", "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, b VARCHAR(300), event INT)"),
        text("", "CREATE SEQUENCE `s;q`"),
        text("", format!("CREATE PROCEDURE q() INSERT INTO t VALUES (5, '{EVIL}')")),
    ]
}

/// A session that sends any bytes as they are.
fn connect(server: &Server, user: &str) -> Connection {
    let endpoint = format!("{user}@{}", server.socket().display()).parse().unwrap();
    Connection::connect(&endpoint, &ConnectOptions::new("source")).unwrap()
}

impl Text {
    /// Executes it in its schema. True if the server took it.
    fn execute(&self, session: &mut Connection, schema: &str) -> bool {
        if !self.is_homeless {
            session.execute(format!("USE {schema}").as_bytes()).unwrap();
        }
        if !self.session.is_empty() && session.execute(self.session.as_bytes()).is_err() {
            return false;
        }
        session.execute_single(&self.sql_in(schema)).is_ok()
    }

    fn sql_in(&self, schema: &str) -> Vec<u8> {
        match String::from_utf8(self.sql.clone()) {
            Ok(sql) => sql.replace("SCHEMA.", &format!("{schema}.")).into_bytes(),
            Err(_) => self.sql.clone(),
        }
    }
}

fn schema(format: &str, number: usize) -> String {
    format!("app_{}_{number}", format.to_lowercase())
}

/// What a server holds, by schema: rows, and definitions if servers of one vendor are compared. Events are switched off on a replica,
/// so only what they do is compared.
fn contents(server: &Server, with_definitions: bool) -> BTreeMap<String, Vec<String>> {
    const MARK: &str = "== ";
    let tables = server.sql(
        "SELECT table_schema, CONCAT('`', table_schema, '`.`', REPLACE(table_name, '`', '``'), '`') \
         FROM information_schema.tables WHERE table_schema LIKE 'app%' ORDER BY 1, 2",
    );
    // The client writes a backslash twice.
    let tables = tables.replace("\\\\", "\\");
    let questions = tables.lines().filter_map(|line| line.split_once('\t')).map(|(schema, table)| {
        let definition = if with_definitions { format!("SHOW CREATE TABLE {table};") } else { String::new() };
        format!("SELECT '{MARK}{schema}'; {definition} SELECT * FROM {table};\n")
    });
    let events = "SELECT CONCAT('== ', event_schema), '\n', event_name, event_definition, event_comment, definer \
                  FROM information_schema.events WHERE event_schema LIKE 'app%'";
    let mut contents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut schema = String::new();
    let mut questions: Vec<String> = questions.collect();
    questions.extend(with_definitions.then(|| events.to_owned()));
    // Few at a time: nobody reads the client's answers while it is still asked.
    let answers: Vec<String> = questions.chunks(20).map(|questions| server.sql(&questions.concat())).collect();
    for line in answers.iter().flat_map(|answer| answer.lines()) {
        if let Some(name) = line.strip_prefix(MARK) {
            schema = name.split('\t').next().unwrap_or_default().to_owned();
        }
        contents.entry(schema.clone()).or_default().push(without_counter(line));
    }
    contents.values_mut().for_each(|lines| lines.sort_unstable());
    contents
}

fn without_counter(definition: &str) -> String {
    definition.split(' ').filter(|word| !word.starts_with("AUTO_INCREMENT=")).collect::<Vec<_>>().join(" ")
}

/// What nobody but an administrator may change.
fn protected(server: &Server) -> String {
    server.sql(
        "SELECT user, host FROM mysql.user WHERE user NOT LIKE 'mysql%' AND user NOT LIKE 'mariadb%' ORDER BY 1, 2; \
         SELECT * FROM secret.pay; SHOW TABLES FROM secret",
    )
}

fn prepare(site: &Site) {
    let accounts = "CREATE USER low@localhost; GRANT ALL PRIVILEGES ON `app\\_%`.* TO low@localhost";
    let secret =
        "CREATE DATABASE secret; CREATE TABLE secret.pay (amount INT PRIMARY KEY); INSERT INTO secret.pay VALUES (7)";
    site.both(&format!("{accounts}; {secret}"));
}

/// A text that the source took.
struct Taken<'a> {
    schema: String,
    text: &'a Text,
    /// The number of its transaction.
    number: u64,
    /// That of the last that changes rows of its schema.
    last_number: u64,
}

/// The number of a transaction, or of the last in a position.
fn number(gtid: &str) -> u64 {
    gtid.rsplit(['-', ':']).next().unwrap_or_default().parse().unwrap()
}

/// Executes all texts; those that the source took.
fn execute<'a>(site: &Site, format: &str, texts: &'a [Text]) -> Vec<Taken<'a>> {
    let mut taken = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let schema = schema(format, at);
        site.source.sql(&format!(
            "CREATE DATABASE {schema} CHARACTER SET utf8mb4; USE {schema}; CREATE TABLE p (id INT PRIMARY KEY); \
             CREATE TABLE c (id INT PRIMARY KEY, pid INT); CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(300)); \
             CREATE TABLE tä (id INT PRIMARY KEY, b INT NOT NULL); INSERT INTO tä VALUES (1, 2), (2, 3); \
             INSERT INTO p VALUES (1), (2), (3); INSERT INTO c VALUES (1, 1), (2, 2), (3, 3); \
             INSERT INTO t VALUES (1, 'one'), (2, 'two')"
        ));
        let is_taken = text.execute(&mut connect(&site.source, "low"), &schema);
        let number_of_text = number(&site.source.position());
        // What goes with its parents, and what is found by another key, if that was noticed.
        site.source.sql(&format!(
            "USE {schema}; SET binlog_format=ROW; DELETE FROM p WHERE id = 1; UPDATE p SET id = 20 WHERE id = 2; \
             UPDATE tä SET id = 9 WHERE b = 3; DELETE FROM tä WHERE b = 2"
        ));
        if is_taken {
            let last_number = number(&site.source.position());
            taken.push(Taken { schema, text, number: number_of_text, last_number });
        }
    }
    taken
}

/// Schemas of texts that Spate refused.
#[derive(Debug, Default)]
struct Refused {
    schemas: Vec<String>,
    /// Those of texts that the replica's vendor does not take either.
    foreign: Vec<String>,
}

/// Lets Spate follow; what it refuses by name is executed by hand, as its message says, and left out.
fn follow(site: &Site, texts: &[Taken<'_>]) -> Refused {
    let is_one_vendor = site.source.kind.vendor() == site.replica.kind.vendor();
    let mut skipped: Vec<String> = Vec::new();
    let mut refused = Refused::default();
    let before = protected(&site.replica);
    loop {
        let mut options = vec!["--until", "caught-up", "--start", "earliest"];
        for gtid in &skipped {
            options.extend(["--skip", &**gtid]);
        }
        let ended = site.run(site.replicate(&options));
        assert_eq!(before, protected(&site.replica), "{}", ended.output);
        if ended.status.success() {
            return refused;
        }
        let is_by_name = REFUSALS.iter().any(|refusal| ended.output.contains(refusal));
        assert!(is_by_name || !is_one_vendor, "{}", ended.output);
        let gtid = ended.output.split_once("spate: transaction ").and_then(|(_, rest)| rest.split_once(" at "));
        let gtid = gtid.unwrap_or_else(|| panic!("no GTID: {}", ended.output)).0;
        assert!(!skipped.contains(&format!("gtid:{gtid}")), "refused again: {}", ended.output);
        skipped.push(format!("gtid:{gtid}"));
        let text = texts.iter().find(|text| (text.number..=text.last_number).contains(&number(gtid)));
        let Taken { schema, text, number: number_of_text, .. } =
            text.unwrap_or_else(|| panic!("no text: {}", ended.output));
        if *number_of_text != number(gtid) {
            // A table that nobody could alter is another one.
            assert!(refused.foreign.contains(schema), "{}", ended.output);
            continue;
        }
        let is_taken = text.execute(&mut connect(&site.replica, "root"), schema);
        assert!(is_taken || !is_one_vendor);
        refused.schemas.push(schema.clone());
        refused.foreign.extend((!is_taken).then(|| schema.clone()));
    }
}

/// At least `taken_min` of the texts must be such that the source takes them.
fn survive(source: Kind, replica: Kind, taken_min: usize) {
    let site = Site::between((source, &[]), (replica, &[]));
    let is_one_vendor = source.vendor() == replica.vendor();
    let mut texts = texts();
    if source != Kind::Mysql {
        texts.extend(texts_of_mariadb());
    }
    prepare(&site);
    let mut taken = Vec::new();
    // Between the vendors, changes as statements are refused.
    let formats: &[&str] = if is_one_vendor { &["ROW", "MIXED", "STATEMENT"] } else { &["ROW"] };
    for format in formats {
        site.source.sql(&format!("SET GLOBAL binlog_format={format}"));
        taken.extend(execute(&site, format, &texts));
    }
    assert!(taken.len() >= taken_min, "the source took only {} of {} texts", taken.len(), formats.len() * texts.len());
    let refused = follow(&site, &taken);
    let (at_source, at_replica) = (contents(&site.source, is_one_vendor), contents(&site.replica, is_one_vendor));
    for Taken { schema, text, .. } in &taken {
        // A person who executes a refused text has another default schema, and the other vendor's server reads another text.
        let is_other = (text.is_homeless || !is_one_vendor) && refused.schemas.contains(schema);
        if !is_other {
            let told = format!("{schema}: {} {}", text.session, text.sql.escape_ascii());
            assert!(at_source.contains_key(schema), "{told}");
            assert_eq!(at_source.get(schema), at_replica.get(schema), "{told}");
        }
    }
    #[expect(clippy::print_stdout, reason = "what the test has seen")]
    {
        println!(
            "{source:?} to {replica:?}: {} texts were taken by the source, {} refused by Spate",
            taken.len(),
            refused.schemas.len()
        );
    }
    assert!(!is_one_vendor || refused.schemas.len() * 20 < taken.len(), "too many are refused: {refused:?}");
}

#[test]
fn mariadb_survives_hostile_texts() {
    survive(Kind::Mariadb, Kind::Mariadb, 250);
}

#[test]
fn mysql_survives_hostile_texts() {
    survive(Kind::Mysql, Kind::Mysql, 200);
}

/// `./x hostile-texts` runs this and those that follow, and the one above with MySQL 8.4.
#[test]
#[ignore = "takes minutes"]
fn mariadb_11_8_survives_hostile_texts() {
    survive(Kind::Mariadb118, Kind::Mariadb118, 250);
}

#[test]
#[ignore = "takes minutes"]
fn a_newer_mariadb_survives_hostile_texts() {
    survive(Kind::Mariadb, Kind::Mariadb118, 250);
}

#[test]
#[ignore = "takes minutes"]
fn mysql_survives_hostile_texts_of_mariadb() {
    survive(Kind::Mariadb, Kind::Mysql, 83);
}

#[test]
#[ignore = "takes minutes"]
fn mariadb_survives_hostile_texts_of_mysql() {
    survive(Kind::Mysql, Kind::Mariadb, 66);
}

#[test]
fn user_variable_named_like_a_statement_executes_nothing() {
    let site = Site::new(&["--binlog-format=STATEMENT"], &[]);
    prepare(&site);
    site.source.sql("CREATE DATABASE app_v; CREATE TABLE app_v.t (id INT PRIMARY KEY, b INT)");
    site.catch_up(&["--start", "earliest"]);
    let mut session = connect(&site.source, "low");
    let name = format!("a',0) {EVIL}");
    let body = format!("BEGIN DECLARE `{name}` INT DEFAULT 1; INSERT INTO app_v.t VALUES (5, `{name}`); END");
    session.execute_single(format!("CREATE PROCEDURE app_v.q() {body}").as_bytes()).unwrap();
    session.execute_single(b"CALL app_v.q()").unwrap();
    // The source logs the variable's name without quoting it, so native replication stops here, too.
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&["1064"]);
    assert_eq!(protected(&site.source), protected(&site.replica));
}
