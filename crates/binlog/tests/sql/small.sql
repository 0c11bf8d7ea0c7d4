-- A few transactions, to be logged without checksums.
CREATE OR REPLACE DATABASE small;
USE small;
CREATE TABLE t (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1, 1), (2, 2);
UPDATE t SET v = 3 WHERE id = 1;
DELETE FROM t WHERE id = 2;
