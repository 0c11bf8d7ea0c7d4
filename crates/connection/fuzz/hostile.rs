//! A server that plays damaged dialogues, and a client that must survive them: logins, answers, TLS.
//!
//! Each dialogue is that of a correct server, with damage drawn from a seed. In every case there must be no panic, no
//! endless wait, no memory beyond the limits, no password in the clear, no accepted certificate without an authority's
//! signature, and no login over a TLS stream in which a byte was changed.

use std::fs;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use spate_connection::endpoint::{Endpoint, PublicKey, Secret, TlsMode, TlsOptions};
use spate_connection::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::mutate::{Random, mutate};

mod dialogues;
mod server;

use dialogues::{OK, answer_packets, damaged, endless, framed, greeting, login_packets};
use server::{Damage, Play, Seen, TlsPlay, serve, server_config};

/// No dialogue contains these bytes, so the server notices them wherever the client leaks them.
const PASSWORD: &str = "geheim-4711-fuzz";

/// No dialogue takes longer, unless one side waits without end.
const DIALOGUE_TIME_MAX: Duration = Duration::from_secs(8);

/// How long either side waits for the other's next byte. A damaged length makes the client wait for the end of the
/// stream, which comes at once.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The same for TLS, where a damaged length makes both sides wait.
const TLS_SILENCE_MAX: Duration = Duration::from_millis(500);

/// Memory that the client may use for one answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The part to damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Login,
    Answers,
    Tls,
}

impl Subject {
    pub(crate) const ALL: [Subject; 3] = [Subject::Login, Subject::Answers, Subject::Tls];
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) dialogues: u64,
    pub(crate) logins: u64,
    pub(crate) answers: u64,
    pub(crate) handshakes: u64,
}

/// The server, and its addresses and keys.
pub(crate) struct World {
    directory: TempDir,
    port: u16,
    plays: SyncSender<Play>,
    seen: Receiver<Seen>,
    authority: Issuer<'static, KeyPair>,
    authority_file: PathBuf,
    pub(crate) tally: Tally,
}

impl World {
    pub(crate) fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let unix = UnixListener::bind(directory.path().join("socket")).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let (plays, to_play) = sync_channel::<Play>(1);
        let (see, seen) = sync_channel(1);
        thread::spawn(move || {
            for play in to_play {
                let Ok(()) = see.send(serve(&tcp, &unix, play)) else { return };
            }
        });
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority_file = directory.path().join("ca.pem");
        fs::write(&authority_file, parameters.self_signed(&key).unwrap().pem()).unwrap();
        let authority = Issuer::new(parameters, key);
        World { directory, port, plays, seen, authority, authority_file, tally: Tally::default() }
    }

    /// Plays one dialogue. Panics if the client misbehaves.
    pub(crate) fn run(&mut self, seed: u64, subject: Subject) {
        let mut random = Random::new(seed);
        let begun = Instant::now();
        self.tally.dialogues += 1;
        match subject {
            Subject::Login => self.login(&mut random),
            Subject::Answers => self.answers(&mut random),
            Subject::Tls => self.tls(&mut random),
        }
        assert!(begun.elapsed() < DIALOGUE_TIME_MAX, "a dialogue took {:?}", begun.elapsed());
    }

    fn login(&mut self, random: &mut Random) {
        let is_local = random.below(2) == 0;
        let mut packets = login_packets(is_local, random);
        packets.extend(answer_packets(true, random));
        self.plays.send(Play::Bytes { bytes: damaged(packets, random), is_local }).unwrap();
        let outcome = Connection::connect(&self.endpoint(is_local, random), &options());
        self.tally.logins += u64::from(outcome.is_ok());
        if let Ok(mut connection) = outcome {
            let _any_answer = connection.query("SELECT 1");
        }
        let seen = self.seen.recv().unwrap();
        assert!(is_local || !has_password(&seen.received), "the password was sent over TCP");
    }

    fn answers(&mut self, random: &mut Random) {
        let is_new = random.below(4) != 0;
        let (mut bytes, after) = (framed(&greeting(b"mysql_native_password", is_new), 0), framed(OK, 2));
        bytes.extend(after);
        let mut packets = Vec::new();
        for _ in 0..=random.below(4) {
            packets.extend(answer_packets(is_new, random));
        }
        bytes.extend(damaged(packets, random));
        if random.below(200) == 0 {
            bytes.extend(endless(random));
        }
        self.plays.send(Play::Bytes { bytes, is_local: true }).unwrap();
        let mut connection = Connection::connect(&self.endpoint(true, random), &options()).unwrap();
        self.tally.logins += 1;
        while use_connection(&mut connection, random) {
            self.tally.answers += 1;
        }
        drop(connection);
        self.seen.recv().unwrap();
    }

    fn tls(&mut self, random: &mut Random) {
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, "server");
        let key = KeyPair::generate().unwrap();
        let good = parameters.signed_by(&key, &self.authority).unwrap().der().to_vec();
        let mut shown = good.clone();
        if random.below(2) == 0 {
            mutate(&mut shown, random);
        }
        let is_forged = shown != good;
        let damage = match random.below(if is_forged { 8 } else { 3 }) {
            0 => Some(Damage::Changed { at: random.below(1500), by: 1 + random.below(255) as u8 }),
            1 if !is_forged => Some(Damage::Cut { at: random.below(1500) }),
            _ => None,
        };
        let mode = [TlsMode::Required, TlsMode::VerifyCa, TlsMode::VerifyIdentity][random.below(3)];
        let packets = match random.below(4) {
            0 => vec![b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0".to_vec(), b"\x01\x04".to_vec()],
            _ => vec![OK.to_vec()],
        };
        let config = server_config(shown, &key);
        let greeting = framed(&greeting(b"mysql_native_password", true), 0);
        self.plays.send(Play::Tls(TlsPlay { greeting, config, packets, damage })).unwrap();
        let tls = TlsOptions {
            mode: Some(mode),
            authorities: mode.is_verifying().then(|| self.authority_file.clone()),
            ..TlsOptions::default()
        };
        let endpoint =
            Endpoint::tcp("spate", "127.0.0.1", self.port).with_password(Secret::new(PASSWORD)).with_tls(tls);
        // A damaged length makes either side wait for bytes that the other never sends.
        let options = ConnectOptions { connect_timeout: TLS_SILENCE_MAX, ..options() };
        let outcome = Connection::connect(&endpoint, &options);
        let is_in = outcome.is_ok();
        self.tally.handshakes += u64::from(is_in);
        drop(outcome);
        let seen = self.seen.recv().unwrap();
        assert!(!is_in || !is_forged || !mode.is_verifying(), "a forged certificate was accepted, {mode}");
        assert!(!is_in || !seen.is_damaged, "TLS went on over a changed byte, {damage:?}");
        let may_have = mode.is_verifying() && !is_forged;
        assert!(may_have || !has_password(&seen.received), "an unproven server has the password");
    }

    fn endpoint(&self, is_local: bool, random: &mut Random) -> Endpoint {
        let endpoint = match is_local {
            true => Endpoint::unix("spate", self.directory.path().join("socket")),
            // Many addresses, since each remembers the ports of ended connections for a minute.
            false => {
                let host = format!("127.0.{}.{}", random.below(250), 1 + random.below(250));
                let tls = TlsOptions { mode: Some(TlsMode::Disabled), ..TlsOptions::default() };
                Endpoint::tcp("spate", host, self.port).with_tls(tls).with_public_key(Some(PublicKey::Request))
            }
        };
        endpoint.with_password(Secret::new(PASSWORD))
    }
}

fn options() -> ConnectOptions {
    ConnectOptions {
        connect_timeout: SILENCE_MAX,
        read_timeout: Some(SILENCE_MAX),
        answer_bytes_max: ANSWER_BYTES_MAX,
        ..ConnectOptions::new("source")
    }
}

fn has_password(bytes: &[u8]) -> bool {
    bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

/// Uses the connection in a drawn way; `false` if it is unusable afterwards.
fn use_connection(connection: &mut Connection, random: &mut Random) -> bool {
    let asked = match random.below(6) {
        0 => connection.execute(b"SELECT 1").map(drop),
        1 => connection
            .for_each_row("SELECT 1", |row| {
                let _values = row.iter().map(|value| value.map_or(0, <[u8]>::len)).sum::<usize>();
                ControlFlow::Continue(())
            })
            .map(drop),
        2 => connection
            .send_statements(b"SELECT 1; SELECT 2; SELECT 3", 3)
            .and_then(|()| connection.receive_result())
            .map(drop),
        3 => {
            let sent = (0..3).try_for_each(|_| connection.send_query(b"SELECT 1"));
            let mut received = Ok(());
            while received.is_ok() && connection.in_flight() > 0 {
                received = connection.receive_result().map(drop);
            }
            sent.and(received)
        }
        4 => connection.send_command(0x12, b"dump").and_then(|()| {
            while connection.next_packet()?.is_some() {}
            Ok(())
        }),
        _ => connection.query("SELECT 1").map(|set| {
            let bytes: usize = set.rows.iter().flatten().flatten().map(Vec::len).sum();
            assert!(bytes <= ANSWER_BYTES_MAX, "{bytes} bytes of an answer are kept");
            let _text = set.text(0, "a");
        }),
    };
    match asked {
        Ok(()) => true,
        Err(error) => {
            assert!(error.to_string().len() < 10_000, "an error of {} bytes", error.to_string().len());
            !error.is_connection_lost()
        }
    }
}

/// The process's peak of resident memory.
pub(crate) fn peak_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
