//! `spate lab equal`, with the programs that `cargo build` has built.

#![allow(clippy::unwrap_used)]

mod programs;

use std::process::Command;

use programs::spate;

/// The oracle as a tool: `spate lab equal`.
#[test]
fn equal_script_difference_names_the_statement() {
    let directory = tempfile::tempdir().unwrap();
    let equal = |name: &str, script: &str| {
        let (file, json) = (directory.path().join(name), directory.path().join(format!("{name}.json")));
        std::fs::write(&file, script).unwrap();
        let mut command = Command::new(spate());
        command
            .args(["lab", "equal"])
            .arg(&file)
            .arg("--json")
            .arg(&json)
            .env("SPATE_LAB_DIRECTORY", directory.path().join("lab"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let result: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&json).unwrap_or_default()).unwrap_or_default();
        (output.status.code(), text, result)
    };
    let tables =
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO d.t VALUES (1, 'a;b');\n";
    let (code, text, result) =
        equal("equal.sql", &format!("{tables} SELECT nothing; UPDATE d.t SET v = 'c' WHERE id = 1;"));
    assert_eq!((code, result["verdict"].as_str()), (Some(0), Some("equal")), "{text}");
    assert!(text.contains("the source refused with error 1054: SELECT nothing"), "{text}");
    // The replicas' server ids differ.
    let other =
        "-- on the replicas\nUPDATE d.t SET v = @@server_id;\n-- on the source\nINSERT INTO d.t VALUES (2, 'x');";
    let (code, text, result) = equal("different.sql", &format!("{tables}{other}"));
    assert_eq!((code, result["verdict"].as_str()), (Some(1), Some("different")), "{text}");
    assert_eq!(result["first"]["statement"], 4, "{text}");
    let (code, text, _) = equal("empty.sql", "-- nothing\n");
    assert!(code == Some(1) && text.contains("no statement"), "{text}");
    // Native replication stops at a row that already exists, and so does Spate.
    let stops =
        "-- on the replicas\nINSERT INTO d.t VALUES (7, 'there');\n-- on the source\nINSERT INTO d.t VALUES (7, 'x');";
    let (code, text, _) = equal("stops.sql", &format!("{tables}{stops}"));
    assert_eq!(code, Some(2), "{text}");
}
