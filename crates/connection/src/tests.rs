//! Tests of the connection with a real MariaDB, and with a server that sends without end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::test_server::TestServer;
use super::{ConnectOptions, Connection, Error, Vendor, quote};
use crate::endpoint::{Endpoint, Secret};

fn options() -> ConnectOptions {
    ConnectOptions::new("replica")
}

fn tcp(server: &TestServer, user: &str, password: &str) -> Endpoint {
    Endpoint::tcp(user, "127.0.0.1", server.port).with_password(Secret::new(password))
}

fn current_user(connection: &mut Connection) -> String {
    connection.query("SELECT CURRENT_USER()").unwrap().single_text().unwrap()
}

#[test]
fn native_password_login_works_over_tcp_and_socket() {
    let server = TestServer::start(&[]);
    let mut root = server.connect();
    assert_eq!(root.server_version().vendor, Vendor::MariaDb);
    let reported = root.query("SELECT VERSION() v, CONNECTION_ID() id").unwrap();
    assert_eq!(reported.text(0, "v").unwrap(), root.server_version().text);
    assert_eq!(reported.text(0, "ID").unwrap(), root.connection_id().to_string());
    root.execute(b"CREATE USER plain@'%' IDENTIFIED BY 'geheim'; CREATE USER empty@'%'").unwrap();

    let mut over_tcp = Connection::connect(&tcp(&server, "plain", "geheim"), &options()).unwrap();
    assert_eq!(current_user(&mut over_tcp), "plain@%");
    let unix = Endpoint::unix("plain", server.socket()).with_password(Secret::new("geheim"));
    assert_eq!(current_user(&mut Connection::connect(&unix, &options()).unwrap()), "plain@%");
    let without = Endpoint::tcp("empty", "localhost", server.port);
    assert_eq!(current_user(&mut Connection::connect(&without, &options()).unwrap()), "empty@%");

    let wrong = Connection::connect(&tcp(&server, "plain", "falsch"), &options()).unwrap_err();
    let text = format!("{wrong} {wrong:?}");
    assert!(matches!(wrong, Error::Login { .. }) && !wrong.is_transient(), "{text}");
    assert!(text.contains(&format!("plain@127.0.0.1:{}", server.port)) && text.contains("Access denied"), "{text}");
    assert!(!text.contains("falsch"), "{text}");
    assert!(!format!("{over_tcp:?}").contains("geheim"));

    let attributes = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%geheim%'";
    assert_eq!(root.query(attributes).unwrap().single_text().unwrap(), "1", "only this very statement");
}

#[test]
fn unix_socket_account_logs_in_without_password() {
    let server = TestServer::start(&[]);
    let who = std::process::Command::new("id").arg("-un").output().unwrap();
    let who = String::from_utf8(who.stdout).unwrap().trim().to_owned();
    let mut root = server.connect();
    let create = format!("CREATE OR REPLACE USER {0}@'localhost' IDENTIFIED VIA unix_socket", quote::text(&who));
    root.execute(create.as_bytes()).unwrap();
    root.execute(b"CREATE USER somebody@'localhost' IDENTIFIED VIA unix_socket").unwrap();
    let mut as_ourselves = Connection::connect(&Endpoint::unix(&who, server.socket()), &options()).unwrap();
    assert_eq!(current_user(&mut as_ourselves), format!("{who}@localhost"));
    let as_another = Connection::connect(&Endpoint::unix("somebody", server.socket()), &options()).unwrap_err();
    assert!(matches!(as_another, Error::Login { .. }), "{as_another}");
}

#[test]
fn ed25519_account_logs_in() {
    // Some distributions install the plugin elsewhere; SPATE_TEST_PLUGIN_DIR names its directory.
    let directory = std::env::var("SPATE_TEST_PLUGIN_DIR").map(|path| format!("--plugin-dir={path}")).ok();
    let server = TestServer::start(directory.as_deref().as_slice());
    let mut root = server.connect();
    if let Err(error) = root.execute(b"INSTALL SONAME 'auth_ed25519'") {
        eprintln!("skipped: this server lacks the ed25519 plugin: {error}");
        return;
    }
    root.execute(b"CREATE USER ed@'%' IDENTIFIED VIA ed25519 USING PASSWORD('geheim')").unwrap();
    let mut connection = Connection::connect(&tcp(&server, "ed", "geheim"), &options()).unwrap();
    assert_eq!(current_user(&mut connection), "ed@%");
    let wrong = Connection::connect(&tcp(&server, "ed", "falsch"), &options()).unwrap_err();
    assert!(matches!(wrong, Error::Login { .. }), "{wrong}");
}

#[test]
fn packets_above_16_mib_pass_both_ways() {
    let server = TestServer::start(&["--max-allowed-packet=64M"]);
    let mut connection = server.connect();
    for length in [0xff_ffff - 20, 0xff_ffff, 20_000_000, 2 * 0xff_ffff + 1] {
        // The statement around the value moves its own length across the limit of a packet.
        let value: Vec<u8> = (0..length).map(|index: usize| b'a' + (index * 7 % 26) as u8).collect();
        connection.send_query_parts(&[b"SET @value = '", &value, b"'"]).unwrap();
        connection.receive_result().unwrap();
        let back = connection.query("SELECT @value, LENGTH(@value), NULL").unwrap();
        assert!(back.rows[0][0].as_deref() == Some(&value), "{length}");
        assert_eq!(back.text_at(0, 1).unwrap(), length.to_string());
        assert_eq!(back.rows[0][2], None);
        let exact = 0xff_ffff - 1 - b"SET @value = ''".len();
        connection.send_query_parts(&[b"SET @value = '", &value[..exact.min(length)], b"'"]).unwrap();
        connection.receive_result().unwrap();
    }
}

#[test]
fn packet_over_the_server_limit_is_a_definite_error() {
    let server = TestServer::start(&["--max-allowed-packet=1M"]);
    let mut connection = server.connect();
    let value = vec![b'a'; 30_000_000];
    let sent = connection.send_query_parts(&[b"SET @value = '", &value, b"'"]);
    let error = sent.and_then(|()| connection.receive_result()).unwrap_err();
    match error.code() {
        Some(code) => assert!(code == 1153 && !error.is_transient(), "{error}"),
        // The server may have closed the connection before we could read its error.
        None => assert!(matches!(error, Error::Lost { .. }), "{error}"),
    }
}

#[test]
fn error_within_multi_statement_names_the_failed_statement() {
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    connection.execute(b"CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)").unwrap();
    let outcome =
        connection.execute(b"BEGIN; INSERT INTO s.t VALUES (1), (2); SELECT * FROM s.t; INSERT INTO s.t VALUES (3)");
    let outcome = outcome.unwrap();
    assert_eq!((outcome.statements, outcome.affected_rows), (4, 3));
    assert!(outcome.is_in_transaction());
    assert!(!connection.execute(b"COMMIT").unwrap().is_in_transaction());
    let error = connection
        .execute(b"INSERT INTO s.t VALUES (4); SELECT 1; INSERT INTO s.t VALUES (5), (1); INSERT INTO s.t VALUES (6)")
        .unwrap_err();
    let server_error = error.server_error().unwrap();
    assert_eq!((server_error.code, server_error.sql_state.as_str(), server_error.statement), (1062, "23000", 2));
    assert!(!error.is_transient() && !error.is_connection_lost());
    assert_eq!(connection.query("SELECT GROUP_CONCAT(id) FROM s.t").unwrap().single_text().unwrap(), "1,2,3,4");
}

#[test]
fn single_statement_with_semicolon_is_not_split() {
    const SYNTAX_ERROR: u16 = 1064;
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    connection.execute(b"CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)").unwrap();
    let error = connection.execute_single(b"INSERT INTO s.t VALUES (1); INSERT INTO s.t VALUES (2)").unwrap_err();
    assert_eq!(error.code(), Some(SYNTAX_ERROR));
    // Singles and others may be in flight together, and each has its own answer.
    connection.send_single(b"INSERT INTO s.t VALUES (3)").unwrap();
    connection.send_single(b"INSERT INTO s.t VALUES (4);").unwrap();
    connection.send_statements(b"INSERT INTO s.t VALUES (5);INSERT INTO s.t VALUES (6)", 2).unwrap();
    connection.send_single(b"INSERT INTO s.t VALUES (7); DELETE FROM s.t").unwrap();
    connection.send_statements(b"INSERT INTO s.t VALUES (8)", 1).unwrap();
    assert_eq!(connection.in_flight(), 5);
    for statements in [1, 1, 2] {
        assert_eq!(connection.receive_result().unwrap().statements, statements);
    }
    assert_eq!(connection.receive_result().unwrap_err().code(), Some(SYNTAX_ERROR));
    assert_eq!(connection.receive_result().unwrap().affected_rows, 1);
    assert_eq!(connection.in_flight(), 0);
    assert_eq!(connection.query("SELECT GROUP_CONCAT(id) FROM s.t").unwrap().single_text().unwrap(), "3,4,5,6,8");
}

#[test]
fn pipelined_statements_are_answered_in_order() {
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    connection.execute(b"CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)").unwrap();
    for id in 0..10 {
        let id = if id == 7 { 3 } else { id };
        connection.send_query(format!("INSERT INTO s.t VALUES ({id}); SELECT 1").as_bytes()).unwrap();
    }
    assert_eq!(connection.in_flight(), 10);
    assert!(matches!(connection.query("SELECT 1"), Err(Error::Protocol { .. })), "answers are due first");
    for id in 0..10 {
        match connection.receive_result() {
            Ok(outcome) => assert_eq!((outcome.statements, outcome.affected_rows), (2, 1)),
            Err(error) => assert_eq!((id, error.code()), (7, Some(1062))),
        }
    }
    assert!(matches!(connection.receive_result(), Err(Error::Protocol { .. })), "none is due");
    assert_eq!(connection.query("SELECT COUNT(*) FROM s.t").unwrap().single_text().unwrap(), "9");
}

/// A server that is told to end a query between two statements of a packet leaves the rest undone, and says nothing.
#[test]
fn packet_that_is_left_unfinished_is_a_lost_connection() {
    // So many that they take longer than the time before the kill, on fast machines too.
    const STATEMENTS: usize = 2_000;
    // Of a hundred kills or two, one comes between two statements.
    const LIMIT: Duration = Duration::from_secs(120);
    let server = TestServer::start(&[]);
    let mut killer = server.connect();
    let began = Instant::now();
    let packet = ["DO 0"; STATEMENTS].join(";");
    let is_left_unfinished = (0..).take_while(|_| began.elapsed() < LIMIT).any(|attempt| {
        let mut connection = server.connect();
        connection.send_statements(packet.as_bytes(), STATEMENTS).unwrap();
        connection.send_query(b"SELECT 1").unwrap();
        std::thread::sleep(Duration::from_micros(attempt % 20 * 50));
        killer.execute(format!("KILL QUERY {}", connection.connection_id()).as_bytes()).unwrap();
        match connection.receive_result() {
            Err(error @ Error::Lost { .. }) => {
                assert!(error.is_transient() && error.to_string().contains("KILL QUERY"), "{error}");
                true
            }
            Err(error) => {
                assert_eq!(error.code(), Some(1317), "{error}");
                false
            }
            Ok(_) => false,
        }
    });
    assert!(is_left_unfinished);
}

/// MariaDB answers a query of its information schema that is interrupted as if it had found nothing.
#[test]
fn interrupted_query_has_not_found_nothing() {
    let server = TestServer::start(&[]);
    let (mut killer, mut connection) = (server.connect(), server.connect());
    let columns: String = (0..300).map(|number| format!(", c{number} INT")).collect();
    killer.execute(format!("CREATE SCHEMA s; CREATE TABLE s.t (id INT{columns})").as_bytes()).unwrap();
    let kill = format!("KILL QUERY {}", connection.connection_id());
    let (is_over, mut interrupted) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                killer.execute(kill.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_micros(round % 20 * 200));
            }
        });
        let wrong = (0..2000).find_map(|_| {
            match connection.query(
                "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 's' AND TABLE_NAME = 't' ORDER BY ORDINAL_POSITION",
            ) {
                Ok(found) => (found.rows.len() != 301).then(|| format!("{} rows", found.rows.len())),
                Err(error) => {
                    interrupted += 1;
                    (error.code() != Some(1317)).then(|| error.to_string())
                }
            }
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
    assert!(interrupted > 0);
}

#[test]
fn streamed_rows_arrive_one_by_one_and_can_stop() {
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    let (mut count, mut sum) = (0, 0);
    let outcome = connection.for_each_row("SELECT seq, NULL, 'x' FROM mysql.seq_1_to_1000000", |row| {
        assert_eq!((row.len(), row.get(1), row.get(2)), (3, None, Some(b"x".as_slice())));
        count += 1;
        sum += std::str::from_utf8(row.get(0).unwrap()).unwrap().parse::<u64>().unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(outcome.unwrap().statements, 1);
    assert_eq!((count, sum), (1_000_000, 500_000_500_000));
    let mut seen = 0;
    let stopped = connection.for_each_row("SELECT seq FROM mysql.seq_1_to_1000", |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(stopped.is_ok() && seen == 3);
    assert_eq!(connection.query("SELECT 2").unwrap().single_text().unwrap(), "2");
    let partway = "SELECT 1 UNION ALL SELECT seq FROM mysql.seq_1_to_9 WHERE seq > (SELECT 1 UNION SELECT 2)";
    let error = connection.for_each_row(partway, |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.code(), Some(1242));
}

#[test]
fn killed_connection_is_a_transient_error() {
    let mut server = TestServer::start(&[]);
    let mut root = server.connect();
    let mut victim = server.connect();
    root.execute(format!("KILL {}", victim.connection_id()).as_bytes()).unwrap();
    let error = victim.query("SELECT 1").unwrap_err();
    assert!(error.is_transient() && error.is_connection_lost(), "{error}");

    root.send_query(b"SELECT SLEEP(600)").unwrap();
    server.kill();
    let error = root.receive_result().unwrap_err();
    assert!(error.is_transient() && error.is_connection_lost(), "{error}");
    let refused = Connection::connect(&tcp(&server, "root", ""), &options()).unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }) && refused.is_transient(), "{refused}");
}

#[test]
fn read_timeout_loses_no_bytes() {
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    connection.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    // It waits for as long as the other wants.
    let mut other = server.connect();
    other.query("SELECT GET_LOCK('busy', 0)").unwrap();
    connection.send_query(b"SELECT GET_LOCK('busy', 600); SELECT 1; SELECT SLEEP(0.1); SELECT 2").unwrap();
    let mut timeouts = 0;
    let outcome = loop {
        match connection.receive_result() {
            Ok(outcome) => break outcome,
            Err(error) => {
                assert!(error.is_timeout() && error.is_transient() && !error.is_connection_lost(), "{error}");
                timeouts += 1;
                if timeouts == 3 {
                    other.query("SELECT RELEASE_LOCK('busy')").unwrap();
                }
            }
        }
    };
    assert_eq!(outcome.statements, 4);
    assert!(timeouts >= 3);
    connection.set_read_timeout(None).unwrap();
    assert_eq!(connection.query("SELECT 3").unwrap().single_text().unwrap(), "3");
    connection.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    assert!(connection.query("SELECT SLEEP(600)").unwrap_err().is_timeout());
    assert!(matches!(connection.query("SELECT 3"), Err(Error::Protocol { .. })), "its answer would be the other's");
}

#[test]
fn shutdown_from_another_thread_ends_a_read() {
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    let handle = connection.shutdown_handle().unwrap();
    connection.send_query(b"SELECT SLEEP(600)").unwrap();
    let waiting = std::thread::spawn(move || connection.receive_result());
    handle.shutdown();
    assert!(waiting.join().unwrap().unwrap_err().is_connection_lost());
}

#[test]
fn binlog_dump_arrives_in_raw_packets() {
    const COM_BINLOG_DUMP: u8 = 0x12;
    let server = TestServer::start(&["--log-bin=binlog", "--server-id=1", "--max-allowed-packet=64M"]);
    let mut root = server.connect();
    root.execute(b"CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v LONGBLOB)").unwrap();
    root.execute(b"SET binlog_format=ROW; INSERT INTO s.t VALUES (1, REPEAT('a', 20000000)), (2, 'b')").unwrap();

    let mut dump = server.connect();
    dump.execute(b"SET @mariadb_slave_capability=4, @master_binlog_checksum='CRC32'").unwrap();
    let mut request = Vec::new();
    request.extend_from_slice(&4_u32.to_le_bytes());
    // Do not wait at the end: an end packet follows the last event.
    request.extend_from_slice(&1_u16.to_le_bytes());
    request.extend_from_slice(&99_u32.to_le_bytes());
    request.extend_from_slice(b"binlog.000001");
    dump.send_command(COM_BINLOG_DUMP, &request).unwrap();
    let (mut types, mut longest, mut buffered) = (Vec::new(), 0, 0);
    loop {
        buffered += usize::from(dump.has_buffered_packet());
        let Some(packet) = dump.next_packet().unwrap() else { break };
        assert_eq!(packet[0], 0);
        types.push(packet[5]);
        longest = longest.max(packet.len());
    }
    assert!(types.contains(&23) && types.ends_with(&[16]), "{types:?}");
    assert!(longest > 20_000_000 && buffered > 0);

    let mut refused = server.connect();
    request.truncate(10);
    request.extend_from_slice(b"binlog.000999");
    refused.send_command(COM_BINLOG_DUMP, &request).unwrap();
    assert_eq!(refused.next_packet().unwrap_err().code(), Some(1236));
}

#[test]
fn quoted_values_are_equal_in_every_sql_mode() {
    let server = TestServer::start(&[]);
    let mut connection = server.connect();
    let text = "it's \"q\" back\\slash \\' ü\u{1F980}\0\n%_`";
    for mode in ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "ANSI"] {
        connection.execute(format!("SET sql_mode='{mode}'").as_bytes()).unwrap();
        let name = "a`b\"c\\d ü";
        let sql =
            format!("SELECT {} AS {}, {}", quote::text(text), quote::identifier(name), quote::bytes(b"\0'\\\xff"));
        let set = connection.query(&sql).unwrap();
        assert_eq!(set.columns[0], name);
        assert_eq!(set.text(0, name).unwrap(), text);
        assert_eq!(set.rows[0][1].as_deref().unwrap(), b"\0'\\\xff");
    }
}

/// A server that sends `first` at once, and then the result of `again` repeatedly, until the client closes the
/// connection.
fn sending(first: Vec<u8>, again: impl Fn(u8) -> Vec<u8> + Send + 'static) -> Endpoint {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut sent = stream.write_all(&first);
        let mut number = 0_u8;
        while sent.is_ok() {
            let pieces: Vec<u8> = (0..1000_u32).flat_map(|step| again(number.wrapping_add(step as u8))).collect();
            sent = stream.write_all(&pieces);
            number = number.wrapping_add(1000_u32 as u8);
        }
    });
    Endpoint::tcp("spate", "127.0.0.1", port)
}

fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b, c, ..] = (payload.len() as u32).to_le_bytes();
    [&[a, b, c, number], payload].concat()
}

/// A greeting and the end of a login.
fn login() -> Vec<u8> {
    let mut greeting = b"\x0a11.8.3-MariaDB\0\x01\0\0\0abcdefgh\0\xff\xf7\x2d\x02\0\xff\x81\x15".to_vec();
    greeting.extend_from_slice(&[0; 10]);
    greeting.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
    [packet(0, &greeting), packet(2, b"\0\0\0\x02\0\0\0")].concat()
}

fn assert_protocol_error<T: std::fmt::Debug>(outcome: Result<T, Error>, says: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }) && error.to_string().contains(says), "{error}");
}

#[test]
fn oversized_greeting_is_refused_by_its_header() {
    let piece = |number| [[0xff, 0xff, 0xff, number].as_slice(), &[b'x'; 0xff_ffff]].concat();
    let endpoint = sending(piece(0), |_| Vec::from([b'x'; 1000]));
    assert_protocol_error(Connection::connect(&endpoint, &options()), "longer than 65536 bytes");
}

#[test]
fn endless_result_is_refused_if_kept_in_memory() {
    const COLUMN: &[u8] = b"\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x81\x00\x00\x00\x00";
    let begin = [login(), packet(1, b"\x01"), packet(2, COLUMN)].concat();
    let endpoint = sending(begin, |number| packet(number.wrapping_add(3), b"\x05hello"));
    let options = ConnectOptions { answer_bytes_max: 10 << 20, ..options() };
    let mut connection = Connection::connect(&endpoint, &options).unwrap();
    assert_protocol_error(connection.query("SELECT 1"), "more rows than fit");
    assert_protocol_error(connection.query("SELECT 1"), "still to be received");

    let endpoint = sending(login(), |number| packet(number.wrapping_add(1), b"\0\0\0\x0a\0\0\0"));
    let mut connection = Connection::connect(&endpoint, &options).unwrap();
    assert_protocol_error(connection.execute(b"SELECT 1"), "more results");

    let begin = [login(), packet(1, b"\xfc\0\x10")].concat();
    let wide = [b"\x03def\x00\x00\x00\xfd\x00\x80\x00".as_slice(), &[b'n'; 0x8000], &[0]].concat();
    let endpoint = sending(begin, move |number| packet(number.wrapping_add(2), &wide));
    let mut connection = Connection::connect(&endpoint, &options).unwrap();
    assert_protocol_error(connection.execute(b"SELECT 1"), "names of an answer's columns");
}

/// A server that sends `first` at once, and `then` byte by byte with pauses, until the client closes the connection.
fn trickling(first: Vec<u8>, then: Vec<u8>) -> Endpoint {
    use std::io::Write;
    const BYTE_EVERY: Duration = Duration::from_millis(20);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut sent = stream.write_all(&first);
        for byte in then {
            if sent.is_err() {
                return;
            }
            std::thread::sleep(BYTE_EVERY);
            sent = stream.write_all(&[byte]);
        }
    });
    Endpoint::tcp("spate", "127.0.0.1", port)
}

#[test]
fn endless_login_dialogue_ends_at_its_deadline() {
    let options = ConnectOptions { login_timeout: Duration::from_millis(400), ..options() };
    let large = packet(0, &[b'x'; 60_000]);
    let greeting = {
        let length = login().len() - packet(2, b"\0\0\0\x02\0\0\0").len();
        login()[..length].to_vec()
    };
    let of_tls = {
        let mut greeting = greeting.clone();
        // The capability CLIENT_SSL, in the second of the low bytes.
        let at = greeting.windows(2).position(|bytes| bytes == b"\xff\xf7").unwrap();
        greeting[at + 1] |= 0x08;
        greeting
    };
    let record = [b"\x16\x03\x03\x40\x00".as_slice(), &[2; 0x4000]].concat();
    for (dialogue, endpoint) in [
        ("the greeting", trickling(vec![], large)),
        ("the answer to the password", trickling(greeting, packet(2, &[1; 60_000]))),
        ("the handshake of TLS", trickling(of_tls, record)),
    ] {
        let began = Instant::now();
        let error = Connection::connect(&endpoint, &options).unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("the login had not ended"), "{dialogue}: {error}");
        let took = began.elapsed();
        assert!((Duration::from_millis(400)..Duration::from_secs(5)).contains(&took), "{dialogue}: {took:?}");
    }
}

/// The deadline applies to the login only.
#[test]
fn session_continues_after_its_login_deadline() {
    let server = TestServer::start(&[]);
    let options = ConnectOptions { login_timeout: Duration::from_secs(8), ..options() };
    let mut connection = Connection::connect(&server.root(), &options).unwrap();
    assert_eq!(connection.query("SELECT SLEEP(9)").unwrap().single_text().unwrap(), "0");
}
