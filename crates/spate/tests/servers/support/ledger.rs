//! Work on the source of which nothing can be lost or applied twice without showing.
//!
//! `trail` has no key: a row that comes twice is there twice. `tally` is counted up by statements (`times = times + 1`, in
//! statement format), which do it again if they are executed again. `entry` numbers its rows by AUTO_INCREMENT. In `place`
//! keys and unique values wander, so changes applied out of order collide.

use super::{Random, Server, Site};

const TABLES: &str = "CREATE DATABASE ledger; USE ledger; \
    CREATE TABLE entry (id BIGINT AUTO_INCREMENT PRIMARY KEY, round INT NOT NULL, what VARCHAR(40) NOT NULL, filler TEXT, \
        UNIQUE (round, what)); \
    CREATE TABLE trail (round INT NOT NULL, step INT NOT NULL); \
    CREATE TABLE tally (id INT PRIMARY KEY, times BIGINT NOT NULL); \
    CREATE TABLE place (id INT PRIMARY KEY, seat INT NOT NULL, UNIQUE (seat)); \
    INSERT INTO tally VALUES (1, 0), (2, 0); \
    INSERT INTO place WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT i, i FROM n;";

/// The next round of work.
pub struct Ledger {
    round: u64,
    random: Random,
}

impl Ledger {
    /// Creates the tables on the source.
    pub fn begin(source: &Server, seed: u64) -> Ledger {
        source.sql(TABLES);
        Ledger { round: 0, random: Random::new(seed) }
    }

    /// About a dozen transactions.
    pub fn work(&mut self, source: &Server) {
        source.sql(&self.round());
    }

    /// A few definitions, with changes that need them. Tables come, change and go.
    pub fn define(&self, source: &Server) {
        let round = self.round;
        source.sql(&format!(
            "USE ledger; DROP TABLE IF EXISTS defined; CREATE TABLE defined (id INT AUTO_INCREMENT PRIMARY KEY, round INT NOT NULL); \
             INSERT INTO defined (round) VALUES ({round}), ({round}); ALTER TABLE defined ADD COLUMN extra INT DEFAULT {round}; \
             INSERT INTO defined (round) VALUES ({round}); CREATE INDEX i ON defined (extra); \
             RENAME TABLE defined TO renamed, trail TO defined, defined TO trail; DROP TABLE renamed; \
             CREATE TABLE defined LIKE entry; INSERT INTO defined SELECT * FROM entry WHERE round = {round}; \
             TRUNCATE TABLE defined; INSERT INTO defined (round, what) VALUES ({round}, 'after')"
        ));
    }

    /// The same, as statements that the caller is to send.
    pub fn script(&mut self) -> String {
        self.round() + ";"
    }

    /// The number of the round that comes next.
    #[cfg(feature = "failpoints")]
    pub fn next_round(&self) -> u64 {
        self.round + 1
    }

    fn round(&mut self) -> String {
        self.round += 1;
        let round = self.round;
        let mut sql = format!(
            "USE ledger; INSERT INTO entry (round, what, filler) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) \
             SELECT {round}, CONCAT('e', i), REPEAT('f', i * 20) FROM n; \
             SET SESSION binlog_format = STATEMENT; UPDATE tally SET times = times + 1; SET SESSION binlog_format = ROW; \
             DELETE FROM entry WHERE round = {round} - 2 AND id % 3 = 0;"
        );
        for step in 0..8 {
            let (one, other) = (1 + self.random.below(40), 1 + self.random.below(40));
            sql.push_str(&format!("BEGIN; INSERT INTO trail VALUES ({round}, {step}), ({round}, {step});"));
            match step % 4 {
                // Two rows exchange their unique values.
                0 => sql.push_str(&format!(
                    "SET @a = (SELECT seat FROM place WHERE id = {one}), @b = (SELECT seat FROM place WHERE id = {other}); \
                     UPDATE place SET seat = -1 WHERE id = {one}; UPDATE place SET seat = -2 WHERE id = {other}; \
                     UPDATE place SET seat = IF({one} = {other}, @a, @b) WHERE id = {one}; \
                     UPDATE place SET seat = @a WHERE id = {other};"
                )),
                // A row takes another key and gives it back.
                1 => sql.push_str(&format!(
                    "UPDATE place SET id = 1000 + {one} WHERE id = {one}; UPDATE place SET id = {one} WHERE id = 1000 + {one};"
                )),
                2 => sql.push_str(&format!("UPDATE entry SET filler = '{one}' WHERE round = {round} AND id % 5 = 0;")),
                _ => sql.push_str(&format!(
                    "SET @s = (SELECT seat FROM place WHERE id = {one}); DELETE FROM place WHERE id = {one}; \
                     INSERT INTO place SELECT {one}, @s FROM DUAL WHERE @s IS NOT NULL;"
                )),
            }
            sql.push_str("COMMIT;");
        }
        // INSERT … SELECT takes numbers in advance and gives none back; a single row's number is the last again.
        sql.push_str(&format!("INSERT INTO entry (round, what) VALUES ({round}, 'last')"));
        sql
    }
}

/// Checks that the replica has the source's tables, row for row, and its AUTO_INCREMENT counters.
pub fn assert_same(site: &Site) {
    site.assert_identical();
    let counters =
        "SELECT table_name, auto_increment FROM information_schema.tables WHERE table_schema = 'ledger' ORDER BY 1";
    assert_eq!(site.source.sql(counters), site.replica.sql(counters), "AUTO_INCREMENT counters");
    let tally = "SELECT SUM(times), (SELECT COUNT(*) FROM ledger.trail) FROM ledger.tally";
    assert_eq!(site.source.sql(tally), site.replica.sql(tally));
}
