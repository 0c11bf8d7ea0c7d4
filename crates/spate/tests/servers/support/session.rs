//! A session on a server that stays open, for those who look again and again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use super::Server;

/// What the server is asked for at the end of each answer.
const END: &str = "that is all";

#[derive(Debug)]
pub struct Session {
    client: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    pub fn open(server: &Server) -> Session {
        let mut client = server.client().arg("--unbuffered").spawn().unwrap();
        let (input, output) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
        Session { client, input, output: BufReader::new(output) }
    }

    /// Sends a statement without waiting for its end.
    pub fn send(&mut self, sql: &str) {
        writeln!(self.input, "{sql};").unwrap();
    }

    /// Executes statements, none of which may fail; their answers' lines, of columns separated by tabs.
    pub fn sql(&mut self, sql: &str) -> Vec<String> {
        writeln!(self.input, "{sql}; SELECT '{END}';").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = self.output.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the session ended at: {sql}");
            match line.trim_end_matches('\n') {
                END => return lines,
                line => lines.push(line.to_owned()),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _is_gone = self.client.kill();
        let _was_waited_for = self.client.wait();
    }
}
