//! Rows written as SQL statements: every type arrives exactly, and whatever is missing is noticed.

use crate::support::program::program;
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Kind, Server, Site};

const SQL: [&str; 4] = ["--start", "earliest", "--dialect", "sql"];

/// The same statements that the codec's golden files come from.
const TYPES: &str = include_str!("../../../binlog/tests/sql/types.sql");

fn catch_up(site: &Site) {
    site.catch_up(&SQL);
    site.assert_identical();
}

#[test]
fn every_type_arrives_exactly() {
    for options in [
        &["--binlog-row-image=FULL"][..],
        &["--binlog-row-image=MINIMAL", "--log-bin-compress=1", "--log-bin-compress-min-len=10"],
        &["--binlog-row-image=NOBLOB", "--binlog-row-metadata=FULL"],
    ] {
        let site = Site::new(options, &["--character-set-server=latin1", "--sql-mode=TRADITIONAL"]);
        site.source.sql(TYPES);
        site.source.sql(
            "CREATE TABLE types.wrapped (id INT PRIMARY KEY, b BLOB COMPRESSED); SET SESSION column_compression_zlib_wrap=1; \
             INSERT INTO types.wrapped VALUES (1, REPEAT('wrapped', 99))",
        );
        catch_up(&site);
        // Once more, so that updates and deletes meet rows that are there.
        site.replica.sql("DROP DATABASE types; DROP DATABASE spate");
        site.catch_up(&[&SQL[..], &["--batch-transactions", "1"]].concat());
        site.assert_identical();
    }
}

/// What both vendors have, with defaults and checks that the session must not act on.
const SHARED_TABLES: &str = "CREATE DATABASE d CHARACTER SET utf8mb4; USE d; \
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, ti TINYINT, u BIGINT UNSIGNED, f FLOAT, dd DOUBLE, de DECIMAL(65,30), \
        y YEAR, da DATE, ti2 TIME(2), dt DATETIME(6), ts TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), \
        b BIT(9), e ENUM('a','b','ö'), s SET('x','y','z'), c CHAR(10), vc VARCHAR(300), tx TEXT, bi BINARY(4), vb VARBINARY(20), \
        bl BLOB, g GEOMETRY, j JSON, l VARCHAR(20) CHARACTER SET latin1, gen INT AS (ti * 2) STORED, UNIQUE (u)); \
    CREATE TABLE two (a VARCHAR(20), b DATE, v INT NOT NULL, PRIMARY KEY (a, b)); \
    CREATE TABLE stamped (at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), n INT, v INT, \
        PRIMARY KEY (at, n)); \
    CREATE TABLE key_less (a INT, f FLOAT, s VARCHAR(20), j JSON); \
    CREATE TABLE parent (id INT PRIMARY KEY); \
    CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE);";

fn shared_rows(site: &Site, sql_mode: &str) {
    site.both(SHARED_TABLES);
    for id in 1..40 {
        site.source.sql(&format!(
            "SET time_zone = '+03:00', sql_mode = 'NO_AUTO_VALUE_ON_ZERO'; USE d; \
             INSERT INTO t (id, ti, u, f, dd, de, y, da, ti2, dt, ts, b, e, s, c, vc, tx, bi, vb, bl, g, j, l) VALUES \
             ({id} - 5, {id} - 20, 18446744073709551615 - {id}, {id} / 3, {id} / 7, {id} / 11, 1900 + {id}, '2020-02-29', \
              '-12:34:56.78', '2026-11-21 12:34:56.123456', '2026-03-29 02:30:00.5', {id} * 13, 1 + {id} % 3, {id} % 8, 'c ', \
              CONCAT('it''s \\\\ 🌊', REPEAT('ä', {id})), 'x\\ny', X'61', X'00FF27', REPEAT(X'5C27', {id}), ST_GeomFromText('POINT({id} 2)'), \
              JSON_OBJECT('a', {id}, 'b', JSON_ARRAY(1.5e0, 'x\\\"', NULL)), 'é'); \
             INSERT INTO two VALUES (CONCAT('k', {id}), '2020-01-01', {id}); \
             INSERT INTO stamped VALUES ('2020-01-01', {id}, 1); \
             INSERT INTO key_less VALUES ({id} % 3, {id} % 3 / 7, ELT(1 + {id} % 3, 'a', 'A', 'a '), '[1]'); \
             INSERT INTO parent VALUES ({id}); INSERT INTO child VALUES ({id}, {id});"
        ));
    }
    site.source.sql(&format!(
        "USE d; SET sql_mode = '{sql_mode}'; \
         INSERT INTO t (id, y, da, dt, e) VALUES (500, 0, '0000-00-00', '0000-00-00', 0), (501, 2155, '2020-00-10', '2020-02-00', 'nothing'); \
         UPDATE t SET e = 'nothing' WHERE id = 7; UPDATE t SET f = -f, vc = NULL WHERE id % 2; \
         UPDATE t SET u = u - 1 ORDER BY u LIMIT 9; UPDATE t SET id = id + 1000 WHERE id > 25; DELETE FROM t WHERE id % 5 = 0; \
         UPDATE stamped SET v = v + 1, at = at; UPDATE two SET v = v + 1; UPDATE two SET a = UPPER(a) WHERE v < 10; DELETE FROM two WHERE v > 30; \
         DELETE FROM key_less WHERE a = 1 LIMIT 4; UPDATE key_less SET s = 'b' WHERE a = 2 LIMIT 3; \
         DELETE FROM parent WHERE id < 6; INSERT INTO t (id, ts) VALUES (900, '2026-01-01')"
    ));
}

#[test]
fn rows_go_between_the_vendors() {
    const LENIENT: &str = "NO_ENGINE_SUBSTITUTION";
    for (source, replica) in [(Kind::Mariadb, Kind::Mysql), (Kind::Mysql, Kind::Mariadb118), (Kind::Mysql, Kind::Mysql)]
    {
        let site = Site::between((source, &[]), (replica, &[]));
        shared_rows(&site, LENIENT);
        let ended =
            site.catch_up(&["--start", "earliest", "--dialect", if source == replica { "sql" } else { "auto" }]);
        if source != replica {
            ended.assert_says(&["rows are written as SQL statements: source and replica are of different vendors"]);
        }
        site.assert_identical();
        // Once more, in as many batches as can be.
        site.replica.sql("DROP DATABASE d; DROP DATABASE spate");
        site.replica.sql(SHARED_TABLES);
        site.catch_up(&[&SQL[..], &["--batch-transactions", "1"]].concat());
        site.assert_identical();
    }
}

/// Columns without a default, which only a session that is not strict may leave out.
const WITHOUT_DEFAULTS: &str = "CREATE DATABASE d CHARACTER SET utf8mb4; USE d; \
    CREATE TABLE t (id INT PRIMARY KEY, i INT NOT NULL, u BIGINT UNSIGNED NOT NULL, de DECIMAL(10,2) NOT NULL, f FLOAT NOT NULL, \
        dd DOUBLE NOT NULL, b BIT(9) NOT NULL, y YEAR NOT NULL, da DATE NOT NULL, ti TIME(2) NOT NULL, dt DATETIME(3) NOT NULL, \
        e ENUM('x','y') NOT NULL, s SET('x','y') NOT NULL, c CHAR(5) NOT NULL, vc VARCHAR(9) NOT NULL, bi BINARY(4) NOT NULL, \
        vb VARBINARY(4) NOT NULL, bl BLOB NOT NULL, tx TEXT NOT NULL, u2 CHAR(3) CHARACTER SET ucs2 NOT NULL, en ENUM('x','y'), \
        n INT, five INT DEFAULT 5, gen INT AS (i + 1) STORED, uu VARCHAR(9) NOT NULL DEFAULT 'x', UNIQUE (uu, id)); \
    ALTER TABLE t ALTER COLUMN en DROP DEFAULT, ALTER COLUMN n DROP DEFAULT, ALTER COLUMN e DROP DEFAULT; \
    CREATE TABLE key_less (a INT, b INT NOT NULL); \
    CREATE TABLE parent (id INT PRIMARY KEY); \
    CREATE TABLE child (id INT PRIMARY KEY, p INT NOT NULL, v DATE NOT NULL, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE);";

#[test]
fn insert_without_a_column_writes_its_types_default() {
    for (source, replica) in [
        (Kind::Mariadb, Kind::Mariadb),
        (Kind::Mariadb, Kind::Mysql),
        (Kind::Mysql, Kind::Mariadb118),
        (Kind::Mysql, Kind::Mysql),
    ] {
        let site = Site::between((source, &["--binlog-row-image=MINIMAL"]), (replica, &[]));
        site.both(WITHOUT_DEFAULTS);
        if replica == Kind::Mysql {
            // Columns that only the replica has.
            site.replica.sql("ALTER TABLE d.t ADD COLUMN only_here DATE NOT NULL");
        }
        // MySQL's documents begin with `null`.
        let with_document = source == Kind::Mysql;
        if with_document {
            site.both("CREATE TABLE d.doc (id INT PRIMARY KEY, j JSON NOT NULL)");
            site.source
                .sql("SET sql_mode = ''; INSERT INTO d.doc (id) VALUES (1); INSERT INTO d.doc VALUES (2, '[1]')");
        }
        site.source.sql(
            "USE d; SET sql_mode = ''; INSERT INTO t (id) VALUES (1), (2), (3), (4); INSERT INTO t (id, i, n) VALUES (5, 5, 5); \
             INSERT INTO key_less (a) VALUES (1), (1), (2); INSERT INTO parent VALUES (1); INSERT INTO child (id, p) VALUES (1, 1), (2, 1)",
        );
        // The row comes back without what it had, and with another unique value.
        site.source.sql(
            "USE d; SET sql_mode = ''; UPDATE t SET vc = 'v', i = 9 WHERE id = 2; BEGIN; DELETE FROM t WHERE id = 2; INSERT INTO t (id) VALUES (2); \
             COMMIT; UPDATE t SET uu = 'y' WHERE id = 3; INSERT INTO t (id, vc) VALUES (6, 'v')",
        );
        site.catch_up(&SQL);
        if replica == Kind::Mysql {
            let only_here = site.replica.sql("SELECT DISTINCT CAST(only_here AS CHAR) FROM d.t");
            assert_eq!(only_here, "0000-00-00");
            site.replica.sql("ALTER TABLE d.t DROP COLUMN only_here");
        }
        site.assert_identical();
    }
}

#[test]
fn missing_and_surplus_rows_are_noticed() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE two (a INT, b INT, v INT, PRIMARY KEY (a, b)); \
         CREATE TABLE key_less (a INT, f FLOAT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); INSERT INTO two SELECT id, id, id FROM t; \
         INSERT INTO key_less SELECT id, id / 3 FROM t",
    );
    catch_up(&site);
    for (change, damage, said) in [
        ("UPDATE d.t SET v = 9 WHERE id = 2", "DELETE FROM d.t WHERE id = 2", "update of d.t, the row with id=2"),
        ("DELETE FROM d.t WHERE id = 3", "DELETE FROM d.t WHERE id = 3", "delete from d.t, the row with id=3"),
        ("DELETE FROM d.two WHERE a = 3", "DELETE FROM d.two WHERE a = 3", "delete from d.two, the row with a=3, b=3"),
        ("INSERT INTO d.t VALUES (7, 7)", "INSERT INTO d.t VALUES (7, 8)", "insert into d.t, the row with id=7"),
        ("DELETE FROM d.key_less WHERE a = 1", "UPDATE d.key_less SET f = 0.25 WHERE a = 1", "delete from d.key_less"),
    ] {
        site.replica.sql(damage);
        site.source.sql(change);
        let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
        let ended = site.run(site.replicate(&["--dialect", "sql", "--until", "caught-up"]));
        ended.assert_failed_saying(&[said, &gtid, "source.000001:"]);
        site.catch_up(&["--dialect", "sql", "--skip", &format!("gtid:{gtid}")]);
    }
}

/// Over a Unix socket the answers to some 280 statements are all that a server can write before somebody reads them.
#[test]
fn thousands_of_small_statements_do_not_block() {
    let site = Site::of(Kind::Mysql);
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE k (what VARCHAR(20), n INT); CREATE TABLE l (large VARCHAR(2000)); SET SESSION cte_max_recursion_depth = 9999; \
         INSERT INTO k WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 700) SELECT CONCAT('row ', n), n FROM s",
    );
    site.catch_up(&SQL);
    site.replica.sql(&format!(
        "CREATE USER {ACCOUNT}@localhost IDENTIFIED BY '{PASSWORD}'; GRANT ALL PRIVILEGES ON *.* TO {ACCOUNT}@localhost"
    ));
    site.source.sql(
        "BEGIN; UPDATE d.k SET n = n + 1 WHERE n < 10; INSERT INTO d.l SELECT REPEAT('large', 300) FROM d.k; DELETE FROM d.k; COMMIT",
    );
    let mut command = program();
    command.args(["replicate", "--dialect", "sql", "--until", "caught-up"]);
    command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", site.source.port));
    command.arg("--replica").arg(format!("{ACCOUNT}@{}", site.replica.socket().display()));
    command.arg("--archive").arg(site.archive());
    let ended = site.run(command);
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
}

#[test]
fn trigger_that_would_fire_is_an_error() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE log (id INT PRIMARY KEY); \
         INSERT INTO t VALUES (1, 1); CREATE TRIGGER seen AFTER INSERT ON t FOR EACH ROW INSERT INTO log VALUES (NEW.id); \
         INSERT INTO t VALUES (2, 2)",
    );
    let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
    ended.assert_failed_saying(&["d.t", "trigger seen", "DROP TRIGGER"]);
    site.replica.sql("DROP TRIGGER d.seen");
    site.catch_up(&["--dialect", "sql"]);
    site.assert_identical();
}

#[test]
fn values_that_would_not_arrive_exactly_are_errors() {
    for (source, replica) in [("DECIMAL(9,4)", "DECIMAL(9,2)"), ("DATETIME(6)", "DATETIME"), ("DOUBLE", "FLOAT")] {
        let site = Site::plain();
        site.source
            .sql(&format!("SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v {source})"));
        site.replica.sql(&format!("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v {replica})"));
        site.source.sql("INSERT INTO d.t (id) VALUES (1)");
        let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
        ended.assert_failed_saying(&["table d.t", "the column v", "without change"]);
    }
}

#[test]
fn json_with_values_of_other_types_is_an_error_where_they_would_be_lost() {
    let site = Site::of(Kind::Mysql);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, j JSON); INSERT INTO d.t VALUES (1, JSON_ARRAY(1.50))");
    let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
    ended.assert_failed_saying(&["d.t", "`j`", "--dialect replay"]);
    site.catch_up(&["--dialect", "replay"]);
    site.assert_identical();
}

#[test]
fn account_without_replay_writes_statements() {
    let site = Site::plain();
    site.replica.sql("REVOKE BINLOG REPLAY, SUPER ON *.* FROM spate@'127.0.0.1'");
    site.both("CREATE DATABASE e; CREATE TABLE e.t (id INT PRIMARY KEY)");
    site.source.sql("INSERT INTO e.t VALUES (1)");
    let ended = site.run(site.replicate(&["--start", "earliest", "--dialect", "replay", "--until", "caught-up"]));
    ended.assert_failed_saying(&["GRANT BINLOG REPLAY ON *.*"]);
    let ended = site.catch_up(&["--start", "earliest", "--dialect", "auto"]);
    ended.assert_says(&["rows are written as SQL statements, since the account may not replay them"]);
    site.assert_identical();
}

#[test]
fn definitions_go_between_the_vendors() {
    for (source, replica, own) in [
        (
            Kind::Mariadb,
            Kind::Mysql,
            "CREATE TABLE e.own (a INT PRIMARY KEY, b TEXT COMPRESSED) ENGINE=Aria TRANSACTIONAL=1",
        ),
        (
            Kind::Mysql,
            Kind::Mariadb118,
            "CREATE TABLE e.own (a INT PRIMARY KEY, b VARCHAR(9) COLLATE utf8mb4_0900_as_cs, KEY k (b) INVISIBLE)",
        ),
    ] {
        let site = Site::between((source, &[]), (replica, &[]));
        site.source.sql(
            "CREATE DATABASE e; USE e; CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20), x TIMESTAMP NULL); \
             INSERT INTO t (s) VALUES ('a'), ('B'); ALTER TABLE t ADD COLUMN n DECIMAL(5,2) NOT NULL DEFAULT 1.5, ADD KEY (s); \
             INSERT INTO t (s, n) VALUES ('c', 2); CREATE INDEX i ON t (n); CREATE VIEW v AS SELECT id FROM t; \
             CREATE TABLE gone (a INT); DROP TABLE gone; RENAME TABLE t TO u; UPDATE u SET s = CONCAT(s, '!'); \
             CREATE TABLE like_u LIKE u; TRUNCATE TABLE like_u; INSERT INTO like_u SELECT * FROM u",
        );
        site.source.sql(own);
        site.source.sql("INSERT INTO e.own VALUES (1, 'own')");
        site.catch_up(&["--start", "earliest"]);
        site.assert_identical();
        site.source.sql("CREATE USER somebody IDENTIFIED BY 'secret'");
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["CREATE USER", "passwords in other forms"]);
    }
}

#[test]
fn column_of_another_character_set_is_refused() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &["--binlog-row-metadata=MINIMAL"]), (kind, &[]));
        let columns = |charset| {
            format!(
                "id INT PRIMARY KEY, a VARCHAR(9) CHARACTER SET ascii, b TEXT CHARACTER SET {charset}, c VARBINARY(9)"
            )
        };
        site.source.sql(&format!(
            "CREATE DATABASE d; CREATE TABLE d.t ({}); CREATE TABLE d.last (id INT)",
            columns("utf8mb3")
        ));
        site.catch_up(&SQL);
        // A larger set of the same bytes takes all values as they are.
        site.replica
            .sql("ALTER TABLE d.t MODIFY a VARCHAR(9) CHARACTER SET latin1, MODIFY b TEXT CHARACTER SET utf8mb4");
        site.source.sql("INSERT INTO d.t VALUES (1, 'a', 'ä', X'FF')");
        site.catch_up(&SQL);
        assert_eq!(site.source.sql("SELECT * FROM d.t"), site.replica.sql("SELECT * FROM d.t"));
        site.replica.sql("ALTER TABLE d.t MODIFY b TEXT CHARACTER SET latin1");
        site.source.sql("INSERT INTO d.t VALUES (2, 'a', 'ä', X'FF')");
        let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
        ended.assert_failed_saying(&["d.t", "column b", "utf8mb3 on the source and latin1 on the replica"]);
        site.replica.sql("ALTER TABLE d.t MODIFY b TEXT CHARACTER SET utf8mb3");
        site.catch_up(&SQL);
        assert_eq!(site.source.sql("SELECT * FROM d.t"), site.replica.sql("SELECT * FROM d.t"));
    }
}

/// MySQL counts vectors among the columns of which it tells the collation.
#[test]
fn character_sets_beside_a_vector_are_known() {
    let site = Site::of(Kind::Mysql);
    let (vector, value) =
        if Kind::Mysql.is_at_least(9, 0) { ("VECTOR(2)", "TO_VECTOR('[1,2]')") } else { ("BLOB", "'12345678'") };
    site.source.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v {vector}, a VARCHAR(9) CHARACTER SET latin1, \
            b VARCHAR(9) CHARACTER SET utf8mb4, c VARCHAR(9) CHARACTER SET utf8mb4, w {vector}, x TEXT CHARACTER SET ucs2); \
         INSERT INTO d.t VALUES (1, {value}, 'é', '🌊', 'c', {value}, 'x')",
    ));
    catch_up(&site);
    site.replica.sql("ALTER TABLE d.t MODIFY x TEXT CHARACTER SET latin1");
    site.source.sql("UPDATE d.t SET x = 'y'");
    let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
    ended.assert_failed_saying(&["column x", "ucs2 on the source and latin1 on the replica"]);
}

/// Warnings are counted where one is expected; of names that will go away one day MySQL warns too.
#[test]
fn empty_enum_values_in_old_character_sets_arrive() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        let table = |name| {
            format!(
                "CREATE TABLE {name} (k VARCHAR(9) CHARACTER SET utf8mb3, l CHAR(3) CHARACTER SET latin1, e ENUM('a','b')"
            )
        };
        site.source.sql(&format!(
            "CREATE DATABASE d; USE d; SET sql_mode = ''; {}, PRIMARY KEY (k, l)); {}); \
             INSERT INTO t VALUES ('ä', 'é', 'a'), ('b', 'x', 'none'); INSERT INTO u SELECT * FROM t",
            table("t"),
            table("u")
        ));
        site.catch_up(&SQL);
        site.source.sql("SET sql_mode = ''; UPDATE d.t SET e = 'none' WHERE k = 'ä'; UPDATE d.u SET e = 'none'; UPDATE d.t SET e = 'b' WHERE k = 'b'");
        site.catch_up(&SQL);
        site.assert_identical();
    }
}

/// What a server makes of a character set alone depends on its vendor and version.
#[test]
fn character_sets_without_a_collation_keep_the_sources() {
    for (source, replica, expected) in [
        (Kind::Mariadb, Kind::Mysql, "utf8mb4_general_ci"),
        (Kind::Mariadb118, Kind::Mysql, "utf8mb4_0900_ai_ci"),
        (Kind::Mysql, Kind::Mariadb118, "utf8mb4_uca1400_nopad_ai_ci"),
    ] {
        let site = Site::between((source, &[]), (replica, &[]));
        site.source.sql(
            "CREATE DATABASE d CHARACTER SET latin1; CREATE TABLE d.t (a VARCHAR(9) CHARACTER SET utf8mb4); \
             CREATE TABLE d.u (a VARCHAR(9)) CHARACTER SET utf8mb4; CREATE TABLE d.v (a VARCHAR(9)); \
             ALTER TABLE d.v CONVERT TO CHARACTER SET utf8mb4",
        );
        site.catch_up(&["--start", "earliest"]);
        let collations = site.replica.sql(
            "SELECT GROUP_CONCAT(DISTINCT COLLATION_NAME) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'd'",
        );
        assert_eq!(collations, expected, "{source:?} to {replica:?}");
    }
}

/// Numbers of collations are written down in the program: a server may not have those of another vendor.
#[test]
fn every_collation_of_every_server_is_known() {
    for (kind, sql) in [
        (Kind::Mariadb, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"),
        (
            Kind::Mariadb118,
            "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
        ),
        (Kind::Mysql, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"),
    ] {
        let server = Server::source(kind, &[]);
        let answer = server.sql(sql);
        let collations: Vec<(u32, &str)> = answer
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter_map(|(number, charset)| Some((number.parse().ok()?, charset)))
            .collect();
        assert!(collations.len() > 200, "{answer}");
        for (number, charset) in collations {
            assert_eq!(spate_sql::charset::of_collation(number), Some(charset), "{kind:?}: {number}");
        }
    }
}

/// In a batch of several transactions, an error names the one that cannot be applied, and those before it are.
#[test]
fn row_that_cannot_be_written_is_named() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
    );
    site.catch_up(&["--start", "earliest", "--dialect", "sql"]);
    site.source.sql("INSERT INTO d.t VALUES (1); INSERT INTO d.v VALUES (1)");
    let named = site.source.position();
    site.source.sql("INSERT INTO d.t VALUES (2); INSERT INTO d.t VALUES (3); INSERT INTO d.t VALUES (4)");
    let ended = site.run(site.replicate(&["--dialect", "sql", "--until", "caught-up"]));
    ended.assert_failed_saying(&[&format!("transaction {named} at"), "d.v"]);
    assert_eq!(site.replica.sql("SELECT * FROM d.t"), "1");
}
