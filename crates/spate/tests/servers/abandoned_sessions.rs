//! Sessions on the replica that outlive the program they belonged to: its server does not look at a connection while it executes
//! a statement.

use crate::support::session::Session;
use crate::support::{Site, wait_until};

const OPTIONS: [&str; 4] = ["--start", "earliest", "--memory", "64MiB"];

/// The program dies after it has noted the end of an XA transaction, and the session that was to end it still tries to: it
/// must be gone before the next program looks what became of it.
#[test]
fn xa_commit_after_an_abandoned_session_is_executed_once() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
         XA START 'x'; INSERT INTO d.t VALUES (1); XA END 'x'; XA PREPARE 'x'",
    );
    site.catch_up(&OPTIONS);
    assert_eq!(site.replica.sql("XA RECOVER").lines().count(), 1);
    site.source.sql("XA COMMIT 'x'");
    let mut command = site.replicate(&OPTIONS);
    command.env("SPATE_STOP_AT", "after-intent");
    site.run(command).assert_says(&["stopped at after-intent"]);

    let mut backup = Session::open(&site.replica);
    backup.sql("BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT");
    let mut abandoned = Session::open(&site.replica);
    abandoned.sql("SELECT GET_LOCK(CONCAT(name, '.journal'), 0) FROM spate.lock_name");
    abandoned.send("XA COMMIT 'x'");
    wait_until("the abandoned session to be at it", || {
        site.replica
            .sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'XA COMMIT%' AND state <> ''")
            == "1"
    });
    let running = site.spawn(site.replicate(&OPTIONS));
    wait_until("the abandoned session to be ended", || {
        site.replica.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'XA COMMIT%'") == "0"
    });
    backup.sql("BACKUP STAGE END");
    site.wait_applied();
    assert_eq!(site.replica.sql("XA RECOVER"), "");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "1");
    assert!(running.terminate().status.success());
    site.assert_identical();
}
