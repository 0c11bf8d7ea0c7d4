-- Temporal columns in the format before MySQL 5.6, whose fractional digits the binlog does not tell.
SET SESSION time_zone = '+00:00', timestamp = 1700000000, sql_mode = '';
CREATE OR REPLACE DATABASE old_temporals;
USE old_temporals;
SET GLOBAL mysql56_temporal_format = OFF;
CREATE TABLE wholes (id INT PRIMARY KEY, s TIMESTAMP NULL, d DATETIME, t TIME);
CREATE TABLE fractions (id INT PRIMARY KEY, s TIMESTAMP(3) NULL, d DATETIME(6), t TIME(2));
SET GLOBAL mysql56_temporal_format = ON;
INSERT INTO wholes VALUES (1, '2026-01-01 00:00:01', '2026-01-02 03:04:05', '-10:11:12'), (2, NULL, NULL, NULL), (3, 0, 0, 0);
INSERT INTO fractions VALUES (1, '2026-01-01 00:00:01.123', '2026-01-02 03:04:05.123456', '-10:11:12.13'), (2, NULL, NULL, NULL);
