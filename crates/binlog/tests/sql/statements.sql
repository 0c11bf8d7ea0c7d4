-- Statement format: the context that statements take from the events before them.
SET SESSION time_zone = '+00:00', timestamp = 1700000000.654321, binlog_format = STATEMENT;
CREATE OR REPLACE DATABASE statements CHARACTER SET utf8mb4;
USE statements;
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), d DECIMAL(30,10), n BIGINT UNSIGNED, f DOUBLE, at DATETIME(6));
INSERT INTO t (v, at) VALUES ('plain', NOW(6)), ('second', NOW(6));
INSERT INTO t (v) VALUES (CONCAT('last ', LAST_INSERT_ID()));
INSERT INTO t (f) VALUES (RAND());
SET @text = 'it''s', @bin = 0x00ff, @real = -1.5e0, @signed = -5, @unsigned = 18446744073709551615,
  @dec = -12345.678, @nothing = NULL, @shape = POINT(1, 2), @address = CAST('::1' AS INET6), @`odd name` = 'é';
INSERT INTO t (v, d, n, f) VALUES (CONCAT(@text, HEX(@bin), HEX(@shape), @address, @`odd name`), @dec, @unsigned, @real);
INSERT INTO t (v, n) VALUES (@nothing, ABS(@signed));
SET SESSION sql_mode = 'ANSI_QUOTES', auto_increment_increment = 5, auto_increment_offset = 3, foreign_key_checks = 0,
  unique_checks = 0, lc_time_names = 'de_DE', time_zone = 'SYSTEM', character_set_client = latin1, collation_connection = latin1_german1_ci;
INSERT INTO "t" (v) VALUES (DATE_FORMAT('2026-01-01', '%W'));
SET SESSION sql_mode = DEFAULT, auto_increment_increment = 1, auto_increment_offset = 1, foreign_key_checks = 1,
  unique_checks = 1, lc_time_names = 'en_US', time_zone = '+05:30', character_set_client = utf8mb4, collation_connection = utf8mb4_general_ci;
UPDATE t SET at = FROM_UNIXTIME(1700000000) WHERE id = 2;
DELETE FROM t WHERE id = 3;
CREATE TEMPORARY TABLE temp (a INT);
INSERT INTO temp VALUES (1);
INSERT INTO t (n) SELECT a FROM temp;
DROP TEMPORARY TABLE temp;
CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE = MyISAM;
INSERT INTO m VALUES (1, 1);
BEGIN;
INSERT INTO t (v) VALUES ('rolled back');
INSERT INTO m VALUES (2, 2);
ROLLBACK;
CREATE DEFINER = CURRENT_USER TRIGGER trig BEFORE INSERT ON m FOR EACH ROW SET NEW.v = 9;
CREATE DEFINER = CURRENT_USER PROCEDURE proc() INSERT INTO m VALUES (7, 7);
CALL proc();
SET SESSION skip_replication = 1;
INSERT INTO m VALUES (8, 8);
SET SESSION skip_replication = 0;
SELECT 'x,1\ny,2' INTO OUTFILE '@directory@/load.csv' FIELDS ESCAPED BY '';
LOAD DATA INFILE '@directory@/load.csv' INTO TABLE t FIELDS TERMINATED BY ',' (v, n);
SET SESSION binlog_format = MIXED;
INSERT INTO t (v) VALUES (UUID());
