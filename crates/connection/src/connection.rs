//! [`Connection`]: statements, one at a time or many in flight, and the raw packets of a binlog dump.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::error::{CODE_INTERRUPTED, Error, Peer, Result, ServerError};
use super::link::Link;
use super::login::{Credentials, Greeting, Protection, log_in};
use super::options::ConnectOptions;
use super::packet::PAYLOAD_BYTES_MAX;
use super::password::Consent;
use super::result::{
    Answer, AnswerError, Discard, Kept, Outcome, ResultSet, Row, RowSink, StatementOutcome, StepResult, asks_for_file,
    is_error, is_stream_end, parse_error,
};
use super::stream::{ShutdownHandle, Stream};
use super::tls::Plan;
use super::version::ServerVersion;
use crate::endpoint::{Endpoint, PublicKey, Secret};

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_SET_OPTION: u8 = 0x1b;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// A session on a server, in the character set utf8mb4 and without a default database.
///
/// Answers come in the order of the statements. Invariant: `in_flight` has one entry for each packet sent whose answer
/// has not been received whole; all functions but those that send statements and receive results require it to be
/// empty. If `is_unusable` is set, an answer was abandoned halfway, and later packets have no meaning.
#[derive(Debug)]
pub struct Connection {
    link: Link,
    greeting: Greeting,
    answer: Answer,
    in_flight: VecDeque<InFlight>,
    /// True if the server accepts several statements in one packet.
    accepts_several: bool,
    is_unusable: bool,
    answer_bytes_max: usize,
}

/// A packet that was sent and not answered.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    /// The sequence number that its answer begins with.
    first_sequence: u8,
    /// The number of statements in it; 0 if only the server's flags tell.
    statements: usize,
    /// True for the option before a statement: no caller waits for its answer, which precedes that of the statement.
    is_option: bool,
}

fn login_timed_out(timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the login had not ended after {} s", timeout.as_secs_f64()))
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Login`], [`Error::LoginMethod`] and [`Error::Insecure`] with the user and the
    /// address, never the password; [`Error::Endpoint`] if the endpoint is incomplete.
    pub fn connect(endpoint: &Endpoint, options: &ConnectOptions) -> Result<Connection> {
        let address = endpoint.address()?;
        let peer = Peer::new(&options.role, endpoint);
        let insecure = |why: String| Error::Insecure { peer: peer.clone(), why };
        let plan = Plan::of(endpoint, &address, &options.role).map_err(insecure)?;
        let public_key = read_public_key(endpoint, &options.role).map_err(insecure)?;
        let credentials = Credentials {
            user: endpoint.user()?,
            password: endpoint.password().map(Secret::expose).unwrap_or_default(),
            tls: plan.as_ref(),
            tls_options: endpoint.tls(),
            public_key: public_key.as_deref(),
            consent: Consent {
                clear: endpoint.allows_clear_password(),
                any_key: endpoint.public_key() == Some(&PublicKey::Request),
                known_key: public_key.is_some(),
            },
            local_files: options.local_files,
        };
        let connect = |error| Error::Connect { peer: peer.clone(), error };
        let deadline = Instant::now() + options.login_timeout;
        let mut stream = Stream::connect(&address, options.connect_timeout, deadline).map_err(connect)?;
        stream.set_read_timeout(Some(options.connect_timeout)).map_err(connect)?;
        stream.set_write_timeout(options.write_timeout).map_err(connect)?;
        let mut link = Link::new(peer.clone(), stream);
        let greeting = log_in(&mut link, &credentials).map_err(|error| match error {
            Error::Timeout { .. } | Error::Lost { .. } if Instant::now() >= deadline => {
                connect(login_timed_out(options.login_timeout))
            }
            other => other,
        })?;
        link.stream.lift_deadline().map_err(|error| link.lost(error))?;
        let mut connection = Connection {
            link,
            greeting,
            answer: Answer::default(),
            in_flight: VecDeque::new(),
            accepts_several: true,
            is_unusable: false,
            answer_bytes_max: options.answer_bytes_max,
        };
        connection.set_read_timeout(options.read_timeout)?;
        Ok(connection)
    }

    /// Gives the session the server's global settings, and takes its temporary tables, locks and user variables away. (In MySQL 9.7 `enable_cascade_triggers`
    /// has no effect in a session that was reset, whatever it is set to.)
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub fn reset_session(&mut self) -> Result<()> {
        self.check_answered()?;
        self.push(COM_RESET_CONNECTION, &[], InFlight { first_sequence: 0, statements: 1, is_option: false })?;
        self.receive_into(&mut Discard).map(drop)
    }

    /// The other end, for messages.
    pub fn peer(&self) -> &Peer {
        &self.link.peer
    }

    /// The server's vendor and version.
    pub fn server_version(&self) -> &ServerVersion {
        &self.greeting.version
    }

    /// The server's number of this connection, as in its process list and in `KILL`.
    pub fn connection_id(&self) -> u32 {
        self.greeting.connection_id
    }

    /// How this connection is protected from others.
    pub fn protection(&self) -> &Protection {
        &self.greeting.protection
    }

    /// Why a later login of the same account would fail, and the options that help. The server has a hash of the
    /// password until it restarts; then it requests the password itself, and may not get it. `None` if later logins
    /// will work.
    pub fn withheld_password(&self) -> Option<&str> {
        self.greeting.withheld.as_deref()
    }

    /// Sets how long to wait for the server's next bytes; `None`: no limit.
    ///
    /// # Errors
    /// [`Error::Lost`] if the operating system refuses.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.link.stream.set_read_timeout(timeout).map_err(|error| self.link.lost(error))
    }

    /// A handle that ends this connection from another thread.
    ///
    /// # Errors
    /// [`Error::Lost`] if the operating system refuses.
    pub fn shutdown_handle(&self) -> Result<ShutdownHandle> {
        self.link.stream.shutdown_handle().map_err(|error| self.link.lost(error))
    }

    /// Executes a statement and keeps its rows: for small results. Of a multi-statement it keeps the rows of the first
    /// statement. A statement without rows gives an empty set without columns.
    ///
    /// # Errors
    /// [`Error::Server`]; any other error, a timeout too, leaves the connection unusable.
    pub fn query(&mut self, sql: &str) -> Result<ResultSet> {
        let mut kept = Kept::new(self.answer_bytes_max);
        let outcome = self.run(sql.as_bytes(), &mut kept)?;
        self.refuse_interrupted(&outcome)?;
        Ok(kept.into_set())
    }

    /// A query of MariaDB's information schema that is interrupted is answered as if it had found nothing. Only a warning says it.
    fn refuse_interrupted(&mut self, outcome: &Outcome) -> Result<()> {
        if outcome.warnings == 0 {
            return Ok(());
        }
        let mut kept = Kept::new(self.answer_bytes_max);
        self.run(b"SHOW WARNINGS", &mut kept)?;
        let warnings = kept.into_set();
        let is_it = |row: &usize| warnings.text_at(*row, 1) == Some(CODE_INTERRUPTED.to_string());
        let Some(row) = (0..warnings.rows.len()).find(is_it) else { return Ok(()) };
        let error = ServerError {
            code: CODE_INTERRUPTED,
            sql_state: "70100".to_owned(),
            message: warnings.text_at(row, 2).unwrap_or_default(),
            statement: 0,
        };
        Err(Error::Server { peer: self.link.peer.clone(), error })
    }

    /// Executes a statement and calls `see` with each row, without keeping any: for large results. After `Break` it
    /// receives the remaining rows without calling `see`.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub fn for_each_row(
        &mut self,
        sql: impl AsRef<[u8]>,
        see: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome> {
        let outcome = self.run(sql.as_ref(), &mut CallForRows { see, is_over: false })?;
        self.refuse_interrupted(&outcome)?;
        Ok(outcome)
    }

    /// Executes a text as exactly one statement and calls `see` with each row: see [`Connection::for_each_row`] and
    /// [`Connection::send_single`].
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub fn for_each_row_of_single(
        &mut self,
        sql: &[u8],
        see: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome> {
        self.check_answered()?;
        self.send_single(sql)?;
        self.receive_into(&mut CallForRows { see, is_over: false })
    }

    /// As [`Connection::for_each_row_of_single`], but calls `see` also before the rows of each result.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub fn for_each_result_of_single(&mut self, sql: &[u8], see: &mut dyn FnMut(Seen<'_>)) -> Result<Outcome> {
        self.check_answered()?;
        self.send_single(sql)?;
        self.receive_into(&mut CallForResults { see })
    }

    /// Executes a statement, or several separated by semicolons, and waits for all answers. Rows are dropped.
    ///
    /// # Errors
    /// [`Error::Server`] with the number of the statement that failed; those after it were not executed. Any other
    /// error, a timeout too, leaves the connection unusable.
    pub fn execute(&mut self, sql: &[u8]) -> Result<Outcome> {
        self.run(sql, &mut Discard)
    }

    /// Executes a `LOAD DATA LOCAL INFILE` with the bytes of `file`; the file name in the statement does not matter.
    /// Needs [`ConnectOptions::local_files`].
    ///
    /// # Errors
    /// [`Error::Server`]; [`Error::Protocol`] if `file` cannot be read, which leaves the connection unusable, as any
    /// other error does.
    pub fn load_local(&mut self, sql: &[u8], file: &mut dyn Read) -> Result<Outcome> {
        self.check_answered()?;
        self.send_single(sql)?;
        self.receive_with(&mut Discard, Some(file))
    }

    /// Executes a text as exactly one statement and waits for the answer: see [`Connection::send_single`].
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub fn execute_single(&mut self, sql: &[u8]) -> Result<Outcome> {
        self.check_answered()?;
        self.send_single(sql)?;
        self.receive_into(&mut Discard)
    }

    /// Sends a file in answer to the server's request.
    fn send_file(&mut self, file: &mut dyn Read) -> Result<()> {
        const PIECE_BYTES: usize = 256 << 10;
        let mut piece = vec![0; PIECE_BYTES];
        let mut sequence = self.link.next_sequence();
        loop {
            let length = match file.read(&mut piece) {
                Ok(length) => length,
                Err(error) => {
                    self.is_unusable = true;
                    return Err(self.link.protocol(format!("the file to load cannot be read: {error}")));
                }
            };
            // An empty piece is the file's end.
            sequence = self.link.send(sequence, &[&piece[..length]])?;
            if length == 0 {
                self.link.expect_sequence(Some(sequence));
                return Ok(());
            }
        }
    }

    fn run(&mut self, sql: &[u8], sink: &mut dyn RowSink) -> Result<Outcome> {
        self.check_answered()?;
        self.send_query(sql)?;
        self.receive_into(sink)
    }

    /// A statement whose answer a caller waits for has the connection to itself.
    fn check_answered(&self) -> Result<()> {
        match self.in_flight.is_empty() {
            true => Ok(()),
            false => Err(self.link.protocol("a query while answers of earlier ones are still to be received")),
        }
    }

    /// Receives an answer into a sink that the caller drops after a timeout.
    fn receive_into(&mut self, sink: &mut dyn RowSink) -> Result<Outcome> {
        let outcome = self.receive(sink);
        if outcome.as_ref().is_err_and(|error| error.is_timeout()) {
            // The caller drops the sink, so the rest of the answer cannot be received.
            self.is_unusable = true;
        }
        outcome
    }

    /// Sends a statement without waiting for its answer: [`Connection::receive_result`] does. Several may be in flight;
    /// their answers must be small, because a server that cannot write stops reading.
    ///
    /// # Errors
    /// [`Error::Lost`], or the server's last error as [`Error::Server`].
    pub fn send_query(&mut self, sql: &[u8]) -> Result<()> {
        self.send_query_parts(&[sql])
    }

    /// Sends a statement given in parts, without joining them in memory.
    ///
    /// # Errors
    /// As [`Connection::send_query`].
    pub fn send_query_parts(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.send_parts(parts, 0)
    }

    /// Sends several statements, separated by semicolons. The number is needed if one of them is a `BINLOG`: MariaDB's
    /// answer to it lacks the flag that more results follow.
    ///
    /// # Errors
    /// As [`Connection::send_query`].
    pub fn send_statements(&mut self, sql: &[u8], statements: usize) -> Result<()> {
        self.send_parts(&[sql], statements)
    }

    /// Sends a text that comes from outside, without waiting for its answer. The server executes it as one statement or
    /// refuses it: a semicolon in it cannot begin another statement. All text from a binlog, or from a table that
    /// others can write to, must be sent this way.
    ///
    /// # Errors
    /// As [`Connection::send_query`].
    pub fn send_single(&mut self, sql: &[u8]) -> Result<()> {
        self.set_accepts_several(false)?;
        self.push(COM_QUERY, &[sql], InFlight { first_sequence: 0, statements: 1, is_option: false })
    }

    fn send_parts(&mut self, parts: &[&[u8]], statements: usize) -> Result<()> {
        self.set_accepts_several(true)?;
        self.push(COM_QUERY, parts, InFlight { first_sequence: 0, statements, is_option: false })
    }

    /// Tells the server whether a packet may contain several statements, unless its setting is already so.
    fn set_accepts_several(&mut self, several: bool) -> Result<()> {
        /// `MYSQL_OPTION_MULTI_STATEMENTS_ON` and `…_OFF`, in two bytes.
        const ON: [u8; 2] = [0, 0];
        const OFF: [u8; 2] = [1, 0];
        if self.accepts_several == several {
            return Ok(());
        }
        let option = if several { ON } else { OFF };
        self.push(COM_SET_OPTION, &[&option], InFlight { first_sequence: 0, statements: 1, is_option: true })?;
        self.accepts_several = several;
        Ok(())
    }

    fn push(&mut self, command: u8, parts: &[&[u8]], in_flight: InFlight) -> Result<()> {
        let first_sequence = self.send(command, parts)?;
        if self.in_flight.is_empty() {
            self.link.expect_sequence(Some(first_sequence));
            self.answer.expect_statements(in_flight.statements);
        }
        self.in_flight.push_back(InFlight { first_sequence, ..in_flight });
        self.expect_answer_behind();
        Ok(())
    }

    /// Waits for the answer to the oldest statement in flight. Rows are dropped.
    ///
    /// # Errors
    /// [`Error::Server`] with the number of the failed statement within its multi-statement: the answer has been
    /// received. After [`Error::Timeout`] the caller may retry: no bytes are lost.
    pub fn receive_result(&mut self) -> Result<Outcome> {
        self.receive(&mut Discard)
    }

    /// Waits for the answer to the oldest statement in flight and keeps its rows, as [`Connection::query`] does.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub fn receive_rows(&mut self) -> Result<ResultSet> {
        let mut kept = Kept::new(self.answer_bytes_max);
        self.receive_into(&mut kept)?;
        Ok(kept.into_set())
    }

    /// The number of packets with statements whose answer has not been received.
    pub fn in_flight(&self) -> usize {
        self.in_flight.iter().filter(|sent| !sent.is_option).count()
    }

    fn receive(&mut self, sink: &mut dyn RowSink) -> Result<Outcome> {
        self.receive_with(sink, None)
    }

    /// Waits until so many statements of the oldest packet in flight are answered, which has more: [`Connection::receive_result`] waits for the
    /// others. Returns the outcome of the last of them.
    ///
    /// # Errors
    /// As [`Connection::receive_result`].
    pub fn receive_statements(&mut self, statements: usize) -> Result<StatementOutcome> {
        while self.answer.statements() < statements {
            if self.receive_packet(&mut Discard, &mut None)?.is_some() {
                return Err(self.link.protocol("an answer to fewer statements than the packet has"));
            }
        }
        Ok(self.answer.outcome_of(statements))
    }

    fn receive_with(&mut self, sink: &mut dyn RowSink, mut file: Option<&mut dyn Read>) -> Result<Outcome> {
        loop {
            if let Some(outcome) = self.receive_packet(sink, &mut file)? {
                return Ok(outcome);
            }
        }
    }

    /// Takes the next packet of an answer; the answer, if it ends with that.
    fn receive_packet(&mut self, sink: &mut dyn RowSink, file: &mut Option<&mut dyn Read>) -> Result<Option<Outcome>> {
        self.check_usable()?;
        if self.in_flight.is_empty() {
            return Err(self.link.protocol("no answer is due"));
        }
        let place = self.link.receive(self.answer.payload_bytes_max(sink))?;
        if asks_for_file(self.link.payload(&place))
            && let Some(file) = file.take()
        {
            self.send_file(file)?;
            return Ok(None);
        }
        match self.answer.step(self.link.payload(&place), self.greeting.deprecate_eof, sink) {
            Ok(None) => Ok(None),
            Ok(Some(outcome)) => Ok((!self.end_answer()).then_some(outcome)),
            Err(AnswerError::Server(error)) => {
                if self.end_answer() {
                    // The server executes the later statements under the wrong option.
                    self.is_unusable = true;
                }
                Err(Error::Server { peer: self.link.peer.clone(), error })
            }
            Err(AnswerError::Malformed(why)) => {
                self.is_unusable = true;
                Err(self.link.protocol(why))
            }
        }
    }

    fn expect_answer_behind(&mut self) {
        self.link.expect_answer_behind(self.in_flight.get(1).map(|sent| sent.first_sequence));
    }

    /// Moves on to the answer to the next packet. True if the answer that ended was that to an option, for which no
    /// caller waits.
    fn end_answer(&mut self) -> bool {
        let ended = self.in_flight.pop_front();
        if let Some(next) = self.in_flight.front() {
            self.link.expect_sequence(Some(next.first_sequence));
            self.answer.expect_statements(next.statements);
        }
        self.expect_answer_behind();
        ended.is_some_and(|ended| ended.is_option)
    }

    /// Sends any command, such as a binlog dump. [`Connection::next_packet`] reads the answer.
    ///
    /// # Errors
    /// As [`Connection::send_query`].
    pub fn send_command(&mut self, command: u8, payload: &[u8]) -> Result<()> {
        if !self.in_flight.is_empty() {
            return Err(self.link.protocol("a command while answers are still to be received"));
        }
        let first = self.send(command, &[payload])?;
        self.link.expect_sequence(Some(first));
        Ok(())
    }

    /// Waits for the next packet after [`Connection::send_command`] and returns its payload; `None` is the packet that
    /// ends a stream. Payloads over 16 MiB are joined from several packets.
    ///
    /// # Errors
    /// [`Error::Server`] if the packet is an error. After [`Error::Timeout`] the caller may retry: no bytes are lost.
    pub fn next_packet(&mut self) -> Result<Option<&[u8]>> {
        self.check_usable()?;
        let place = self.link.receive(PAYLOAD_BYTES_MAX)?;
        if is_error(self.link.payload(&place)) {
            return Err(match parse_error(self.link.payload(&place), 0) {
                Some(error) => Error::Server { peer: self.link.peer.clone(), error },
                None => self.link.protocol("an error packet is cut short"),
            });
        }
        let payload = self.link.payload(&place);
        Ok((!is_stream_end(payload)).then_some(payload))
    }

    /// True if [`Connection::next_packet`] will not wait. (False also for a packet that is too large for the buffer.)
    pub fn has_buffered_packet(&self) -> bool {
        self.link.has_buffered_packet()
    }

    /// Sends a payload within a stream of packets, such as a semi-synchronous acknowledgement. From then on the
    /// connection ignores the sequence numbers of received packets: servers disagree on how to continue them.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn write_packet_raw(&mut self, payload: &[u8]) -> Result<()> {
        self.check_usable()?;
        self.link.send(0, &[payload])?;
        self.link.expect_sequence(None);
        Ok(())
    }

    /// Sends a command, and returns the sequence number that the answer begins with. It rises by one for each packet
    /// sent.
    fn send(&mut self, command: u8, parts: &[&[u8]]) -> Result<u8> {
        self.check_usable()?;
        let command = [command];
        let mut all = Vec::with_capacity(parts.len() + 1);
        all.push(command.as_slice());
        all.extend_from_slice(parts);
        match self.link.send(0, &all) {
            Ok(next) => Ok(next),
            Err(error) => {
                self.is_unusable = true;
                match self.in_flight.is_empty() {
                    true => Err(self.link.read_last_error(error)),
                    false => Err(error),
                }
            }
        }
    }

    fn check_usable(&self) -> Result<()> {
        match self.is_unusable {
            // Whoever met the error before this has told it.
            true => Err(self.link.lost(std::io::Error::other("it was given up within an answer"))),
            false => Ok(()),
        }
    }
}

impl Drop for Connection {
    /// Sends COM_QUIT, so that the server does not count an aborted client. A failure does not matter.
    fn drop(&mut self) {
        if self.in_flight.is_empty() && !self.is_unusable {
            let _ignored = self.link.send(0, &[&[COM_QUIT]]);
        }
    }
}

/// Reads the server's RSA key, if the endpoint names a file with it.
fn read_public_key(endpoint: &Endpoint, role: &str) -> std::result::Result<Option<Vec<u8>>, String> {
    match endpoint.public_key() {
        Some(PublicKey::File(path)) => match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(format!("--{role}-public-key {}: {error}", path.display())),
        },
        _ => Ok(None),
    }
}

/// Calls `see` with each row, until it breaks.
struct CallForRows<F> {
    see: F,
    is_over: bool,
}

impl<F: FnMut(Row<'_>) -> ControlFlow<()>> RowSink for CallForRows<F> {
    fn row(&mut self, _statement: usize, row: Row<'_>) -> StepResult<()> {
        self.is_over = self.is_over || (self.see)(row).is_break();
        Ok(())
    }
}

/// A part of an answer.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// A result with so many columns begins.
    Columns(usize),
    /// A row of it.
    Row(Row<'a>),
}

/// Calls `see` with each part.
struct CallForResults<'a> {
    see: &'a mut dyn FnMut(Seen<'_>),
}

impl RowSink for CallForResults<'_> {
    fn columns(&mut self, _statement: usize, names: &[String]) {
        (self.see)(Seen::Columns(names.len()));
    }

    fn row(&mut self, _statement: usize, row: Row<'_>) -> StepResult<()> {
        (self.see)(Seen::Row(row));
        Ok(())
    }
}
