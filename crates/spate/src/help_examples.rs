//! What each command's help ends with.

/// Of `spate replicate`.
pub(crate) const REPLICATE_EXAMPLES: &str = "\
Examples:
  # A replica restored from a backup that was taken at GTID position 0-1-5000
  SPATE_SOURCE_PASSWORD=… SPATE_REPLICA_PASSWORD=… \\
  spate replicate --source repl@db1:3306 --replica spate@db2:3306 --archive /var/lib/spate --start gtid:0-1-5000

  # Again after a stop: the checkpoint on the replica knows where to go on
  spate replicate --source repl@db1 --replica spate@/run/mysqld/mysqld.sock --archive /var/lib/spate \\
      --source-defaults-file /etc/spate/source.cnf --replica-defaults-file /etc/spate/replica.cnf

  # Catch up and end
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate --until caught-up

  # Only while the replica's own replication is more than a minute behind
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate --takeover-when-behind 60s --handback-when-caught-up

  # Everything but one transaction
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate --skip gtid:0-1-4711

  # A replica that somebody wrote to: make the rows that changes meet what the source says
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate --on-conflict repair

  # db1 (server id 1) and db2 (server id 2) replicate from each other
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate/to-2 --ignore-server-ids 2
  spate replicate --source repl@db2 --replica spate@db1 --archive /var/lib/spate/to-1 --ignore-server-ids 1

  # Over TLS, with a source whose certificate must be its own; all that concerns the connections is in one option file
  spate replicate --defaults-file /etc/spate.cnf --source-tls-mode verify-identity --source-tls-ca /etc/spate/ca.pem \\
      --archive /var/lib/spate

Privileges, on the source:
  GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO repl@…
on the replica:
  GRANT SELECT, INSERT, UPDATE, DELETE, BINLOG REPLAY ON *.* TO spate@…
  GRANT ALL PRIVILEGES ON spate.* TO spate@…
  GRANT READ_ONLY ADMIN ON *.* TO spate@…   if the replica is read_only
  GRANT BINLOG ADMIN ON *.* TO spate@…      for --no-replica-binlog and --ignore-server-ids
  GRANT TRIGGER ON *.* TO spate@…           for --on-conflict repair and --dialect sql, which needs no BINLOG REPLAY
and, to apply DDL, the privileges that the statements need, with the GRANT OPTION for statements about accounts:
  GRANT CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, TRIGGER, CREATE ROUTINE, ALTER ROUTINE, EXECUTE,
    EVENT, SET USER, RELOAD, PROCESS ON *.* TO spate@… WITH GRANT OPTION
  GRANT CREATE TEMPORARY TABLES ON *.* TO spate@…             for temporary tables, in statement and mixed format
  GRANT PROXY ON ''@'' TO spate@… WITH GRANT OPTION           for GRANT PROXY and REVOKE PROXY";

/// Of `spate check`.
pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  spate check --source repl@db1 --replica spate@db2 --archive /var/lib/spate
  # The GRANT statements that this source's definitions need on the replica: look at them, then execute them there
  spate check --source repl@db1 --replica spate@db2 --archive /var/lib/spate --grants
  spate check --defaults-file /etc/spate.cnf --json | jq '.findings[] | select(.level == \"error\")'

The exit status is 0 if nothing keeps Spate from working, 1 if something does. `spate replicate` looks at the same at its start, but for
what takes longer the more tables there are, and prints what is not good. docs/checks.md explains each check.";

/// Of `spate status`.
pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  spate status --archive /var/lib/spate
  spate status --archive /var/lib/spate --json | jq .lag_seconds";

/// Of `spate verify`.
pub(crate) const VERIFY_EXAMPLES: &str = "\
Examples:
  spate verify --source spate@db1 --replica spate@db2
  spate verify --source spate@db1 --replica spate@db2 --schema shop --connections 8 --json

The exit status is 0 if everything is identical, 1 if something differs or the comparison could not be made.";

/// Of `spate archive fetch`.
pub(crate) const FETCH_EXAMPLES: &str = "\
Examples:
  spate archive fetch --source repl@db1 --archive /var/lib/spate --start earliest --until caught-up";

/// Of `spate archive list`.
pub(crate) const LIST_EXAMPLES: &str = "\
Examples:
  spate archive list /var/lib/spate
  spate archive list /var/lib/mysql --json | jq '.[-1].last_gtid'";

/// Of `spate archive purge`.
pub(crate) const PURGE_EXAMPLES: &str = "\
Examples:
  # What the replica has applied, up to a file of the source, or of which there is too much
  spate archive purge /var/lib/spate --replica spate@db2 --before file:binlog.000042
  spate archive purge /var/lib/spate --replica spate@db2 --keep-size 10GiB --keep-age 7d

  # An archive that no replica reads
  spate archive purge /backup/binlogs --even-unapplied --keep-age 90d

While `spate replicate` or `spate archive fetch` runs on the archive, its own options --keep-archive-size and
--keep-archive-age do this.";

/// Of `spate archive fold-stats`.
pub(crate) const FOLD_STATS_EXAMPLES: &str = "\
Examples:
  # What would folding save here, and how fast is it?
  spate archive fold-stats /var/lib/mysql
  spate archive fold-stats /var/lib/spate --batch-transactions 1000 --batch-transactions 100000 --json";

/// Of `spate prefetch`.
pub(crate) const PREFETCH_EXAMPLES: &str = "\
Runs on the replica's machine, as an account that may read the server's relay logs, and changes nothing. On the server it needs
REPLICA MONITOR (MariaDB from 10.5 on) or REPLICATION CLIENT (MySQL), and SELECT on the replicated tables. Stopped or killed, it is only missed.

Examples:
  spate prefetch --replica spate@localhost
  spate prefetch --replica spate@/run/mysqld/mysqld.sock --channel sales --threads 16";

/// Of `spate takeover`.
pub(crate) const TAKEOVER_EXAMPLES: &str = "\
Stops the replica's own replication with all its appliers at one place, keeps it from starting by itself (it is parked by a delay of 68
years), and replicates from there, as `spate replicate` with the same options does. It can be interrupted anywhere and repeated; `spate replicate`
goes on, too. Needs REPLICATION SLAVE ADMIN (MySQL: REPLICATION_SLAVE_ADMIN). Filters, delays and broken replication are refused by
name.

Examples:
  spate takeover --source repl@db1 --replica spate@db2 --archive /var/lib/spate
  spate takeover --source repl@db1 --replica spate@db2 --archive /var/lib/spate --until caught-up && spate handback --replica spate@db2
  spate takeover --channel north --source repl@db1 --replica spate@db2 --archive /var/lib/spate";

/// Of `spate handback`.
pub(crate) const HANDBACK_EXAMPLES: &str = "\
Tells the replica's own replication where Spate has ended (gtid_slave_pos, gtid_purged, or file and offset), starts it, and waits until it
runs. `spate replicate` must have been stopped. It can be interrupted anywhere and repeated.

Examples:
  spate handback --replica spate@db2
  spate handback --channel north --replica spate@db2 --json";

/// Of `spate handover`.
pub(crate) const HANDOVER_EXAMPLES: &str = "\
Makes what Spate has applied known to the replica: gtid_slave_pos on MariaDB (REPLICATION SLAVE ADMIN), gtid_purged on MySQL
(SYSTEM_VARIABLES_ADMIN). `spate replicate` must have been stopped. Prints the statement that starts native replication.

Examples:
  spate replicate --source repl@db1 --replica spate@db2 --archive /var/lib/spate --until caught-up
  spate handover --replica spate@db2";

/// Of `spate promote`.
pub(crate) const PROMOTE_EXAMPLES: &str = "\
Fences the old source (read_only, ends the connections of others), lets the replica apply all that it has received or that Spate's archive holds,
opens it, and points the other replicas at it with exact positions. It can be interrupted anywhere and repeated. docs/failover.md tells what is
lost when, and what the accounts need.

Examples:
  # What would be done, and what would be lost, in transactions
  spate promote --source spate@db1 --replica spate@db2 --other spate@db3 --dry-run

  # A planned switch: nothing is lost
  spate promote --source spate@db1 --replica spate@db2 --other spate@db3

  # The old source is dead
  spate promote --source spate@db1 --replica spate@db2 --other spate@db3 --source-is-dead

  # Spate applied to the replica; its archive has more than was applied
  spate promote --source spate@db1 --replica spate@db2 --archive /var/lib/spate --source-is-dead";

/// Of `spate follow`.
pub(crate) const FOLLOW_EXAMPLES: &str = "\
Makes the replica read_only, ends the connections of others, and points its own replication at the source, from exactly where it stands. Transactions
that the source lacks (an old source has them after a failover) are saved with --save and undone by folding their inverse, in one transaction that is
not logged. What cannot be undone exactly, such as definitions, is refused by name. It can be interrupted anywhere and repeated.

Examples:
  # What does the old source have that the new one lacks?
  spate follow --replica spate@db1 --source spate@db2 --dry-run

  # Save and undo that, and follow
  SPATE_REPLICATION_PASSWORD=… spate follow --replica spate@db1 --source spate@db2 --replication-user repl --save /var/lib/spate/db1-surplus";

/// Of `spate watch`.
pub(crate) const WATCH_EXAMPLES: &str = "\
Start one watcher on each of three machines. A source is dead if it does not answer a watcher, no replica that answers hears it, and a majority of all
watchers says so. The one that holds the lease in etcd then promotes the replica that has received the most. A watcher that does not reach
etcd promotes nothing. docs/failover.md has the configuration of HAProxy.

Examples:
  spate watch --name w1 --source spate@db1 --replica spate@db2 --replica spate@db3 --etcd http://e1:2379 --etcd http://e2:2379 --etcd http://e3:2379 \\
      --within 15 --check-listen 127.0.0.1:9306 --hook '/usr/local/bin/move-address \"$SPATE_NEW_SOURCE\"'

  # Without etcd: it only says what a person is to do
  spate watch --name w1 --source spate@db1 --replica spate@db2";

/// Of `spate analyze`.
pub(crate) const ANALYZE_EXAMPLES: &str = "\
It reads nothing but binlogs, so it knows no foreign keys, no unique keys besides the primary, and not how text is compared. Its
speed-ups are of a simulation: they are for comparing settings with each other.

Examples:
  # What parallelism do the source's binlogs have? With graphs:
  spate analyze /var/lib/mysql --base-name binlog --html analysis.html
  # The same of Spate's archive, for a replica whose commits take half a millisecond
  spate analyze /var/lib/spate --commit-cost 500
  # Of a server elsewhere, of all that it still has
  spate analyze --source spate@db1.example.com
  # All figures, for programs
  spate analyze /var/lib/spate --json";

/// Of `spate load`.
pub(crate) const LOAD_EXAMPLES: &str = "\
Examples:
  # Files with a header, into a table that is there
  spate load --server loader@db1 --table shop.orders --header orders-*.csv.gz

  # Call records into a table a day, made like a template; first a look
  spate load --server loader@db1 --layout calls.toml --dry-run incoming/
  spate load --server loader@db1 --layout calls.toml incoming/

  # The same for every file that comes, until a signal
  spate load --server loader@db1 --layout calls.toml --watch incoming/

  # What was rejected, after it was mended
  spate load --server loader@db1 --layout calls.toml calls.dat-1b2c3d4e.rejects

A layout, such as calls.toml:
  [input]
  format = \"fixed\"
  [[table]]
  name = \"cdr.calls_{start:%Y%m%d}\"
  template = \"cdr.calls_template\"
  [[column]]
  name = \"caller\"
  position = 1
  width = 15
  [[column]]
  name = \"start\"
  position = 16
  width = 14
  type = \"datetime\"
  format = \"%Y%m%d%H%M%S\"

Whatever is killed, the same command goes on where it was: no record comes twice, none is lost. docs/load.md has all of it.

Privileges:
  GRANT SELECT, INSERT, CREATE, ALTER, DROP, INDEX ON cdr.* TO loader@…   (SELECT and INSERT are enough for tables that are there)
  GRANT ALL PRIVILEGES ON spate_load.* TO loader@…                        what is loaded";

/// Of `spate replay`.
pub(crate) const REPLAY_EXAMPLES: &str = "\
Examples:
  # Each recorded session on a connection of its own, at the recorded pace
  spate replay --server app@db2 --json after.json --html after.html general.log

  # As fast as 8 connections can share the statements, a line for each response
  spate replay --server app@db2 --pace fastest --threads 8 --csv responses.csv slow.log

  # Large statements beside small ones
  spate replay --server app@db2 --pace fastest large.csv,threads=2,name=large small.csv,threads=8,name=small

  # What another version of the server, or other settings, change
  spate replay compare before.json after.json

Only what reads is replayed, in read-only sessions, unless --writes is given. Of a server's accounts, settings, files and replication nothing is.
docs/replay.md says what is measured, and from when.";

/// Of `spate backup`.
pub(crate) const BACKUP_EXAMPLES: &str = "\
Examples:
  # Once a night: a base. All the time: the archive's binlogs
  spate backup base --source backup@localhost --target s3://backups/shop --keep 7d,4w,12m
  spate backup archive --archive /var/lib/spate/archive --target s3://backups/shop --follow 10s

  # Can it be restored?
  spate backup verify --target s3://backups/shop --source backup@db1

docs/backup.md says what is promised, and which privileges it takes.";

/// Of `spate backup base`.
pub(crate) const BACKUP_BASE_EXAMPLES: &str = "\
Examples:
  # MariaDB, on its machine, as a user who may read its data directory; or MySQL, over the network, with its clone plugin
  spate backup base --source backup@localhost --target /backups/shop

  # Encrypted: this machine can write backups, and cannot read them
  spate backup key --out /safe/place/shop.key          # prints the public key
  spate backup base --source backup@localhost --target s3://backups/shop --encrypt-to age1…

  # A file system's snapshot
  spate backup base --source backup@localhost --target /backups/shop --hook /usr/local/bin/snapshot

Privileges on the source:
  MariaDB: GRANT RELOAD, PROCESS, REPLICATION CLIENT, REPLICATION SLAVE ADMIN (BINLOG MONITOR, CONNECTION ADMIN) ON *.* TO backup@…
  MySQL:   GRANT BACKUP_ADMIN, REPLICATION CLIENT ON *.* TO backup@…
  A hook:  GRANT RELOAD, REPLICATION CLIENT ON *.* TO backup@…";

/// Of `spate backup archive`.
pub(crate) const BACKUP_ARCHIVE_EXAMPLES: &str = "\
Examples:
  # What is there now
  spate backup archive --archive /var/lib/spate/archive --target /backups/shop

  # As it grows; beside it, spate archive fetch or spate replicate fills the archive
  spate backup archive --archive /var/lib/spate/archive --target /backups/shop --follow 10s";

/// Of `spate backup list`.
pub(crate) const BACKUP_LIST_EXAMPLES: &str = "\
Examples:
  spate backup list --target /backups/shop";

/// Of `spate backup prune`.
pub(crate) const BACKUP_PRUNE_EXAMPLES: &str = "\
Examples:
  spate backup prune --target /backups/shop --keep 7d,4w,12m --dry-run";

/// Of `spate backup verify`.
pub(crate) const BACKUP_VERIFY_EXAMPLES: &str = "\
Examples:
  # Every day; with a source, it is compared row by row while both are in use
  spate backup verify --target /backups/shop --source backup@db1 --every 24h";

/// Of `spate backup key`.
pub(crate) const BACKUP_KEY_EXAMPLES: &str = "\
Examples:
  spate backup key --out shop.key

Keep the file where the backups are not. Without it, nobody can read what was encrypted for it. It is a key of age: age-keygen makes such, too.";

/// Of `spate restore`.
pub(crate) const RESTORE_EXAMPLES: &str = "\
Examples:
  # Everything
  spate restore --target /backups/shop --to /var/lib/mysql-restored

  # Five minutes before the mistake, by the source's clock; or the transaction before it, whichever that is
  spate restore --target /backups/shop --to /var/lib/mysql-restored --until time:2026-11-26T14:00:00Z
  spate restore --target /backups/shop --to /var/lib/mysql-restored --until 'before-statement:DROP TABLE orders'

  # One table, beside the live one
  spate restore --target /backups/shop --only shop.orders --server admin@db1 --until before-gtid:0-1-4711

  # A server that holds the base already, as a replica
  spate restore --target /backups/shop --base 20261126T010000Z-0badcafe --replica admin@db2

The server that restores is of the same series as the one that was backed up (--programs DIR), and can be reached by nobody. What is restored takes
its place only when it is complete. docs/backup.md has all of it.";
