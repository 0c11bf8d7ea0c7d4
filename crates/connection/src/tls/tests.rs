//! TLS against a real MariaDB, with good certificates and bad ones.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

use super::super::test_server::TestServer;
use super::super::{ConnectOptions, Connection, Error, Proof, Protection};
use crate::endpoint::{Endpoint, Secret, TlsMode, TlsOptions};

const PASSWORD: &str = "geheim";

/// An authority, and files of certificates that it has issued.
struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = date_time_ymd(2000, 1, 1);
    parameters.not_after = date_time_ymd(2999, 1, 1);
    parameters
}

impl Authority {
    fn new() -> Authority {
        Authority::named("an authority")
    }

    fn named(name: &str) -> Authority {
        let mut parameters = named(name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), parameters.self_signed(&key).unwrap().pem()).unwrap();
        Authority { directory, issuer: Issuer::new(parameters, key) }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    fn issue(&self, file: &str, parameters: &CertificateParams) -> Files {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| self.directory.path().join(format!("{file}-{end}.pem"));
        let files = Files { certificate: path("cert"), key: path("key") };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// For hosts and addresses.
    fn server(&self, hosts: &[&str]) -> Files {
        let mut parameters = named("server");
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        parameters.subject_alt_names = CertificateParams::new(hosts).unwrap().subject_alt_names;
        self.issue("server", &parameters)
    }
}

fn start(authority: &Path, files: &Files) -> TestServer {
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let options = [option("ssl-ca", authority), option("ssl-cert", &files.certificate), option("ssl-key", &files.key)];
    let server = TestServer::start(&options.each_ref().map(String::as_str));
    let sql = format!(
        "CREATE USER spate@'%' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON *.* TO spate@'%'; CREATE USER nothing@'%'; \
         CREATE USER tls@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL; \
         CREATE USER x509@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509"
    );
    server.connect().execute(sql.as_bytes()).unwrap();
    server
}

fn options(mode: TlsMode, authority: Option<&Path>) -> TlsOptions {
    TlsOptions { mode: Some(mode), authorities: authority.map(Path::to_owned), ..TlsOptions::default() }
}

fn connect_to(server: &TestServer, host: &str, user: &str, tls: TlsOptions) -> Result<Connection, Error> {
    let endpoint = Endpoint::tcp(user, host, server.port).with_password(Secret::new(PASSWORD)).with_tls(tls);
    Connection::connect(&endpoint, &ConnectOptions::new("source"))
}

fn connect(server: &TestServer, tls: TlsOptions) -> Result<Connection, Error> {
    connect_to(server, "127.0.0.1", "spate", tls)
}

/// The proof that a connection rests on, if it is encrypted; the server must say the same.
fn proof(mut connection: Connection) -> Option<Proof> {
    let status = connection.query("SHOW SESSION STATUS LIKE 'Ssl_version'").unwrap().text_at(0, 1).unwrap();
    match connection.protection() {
        Protection::Tls { version, proof } => {
            assert_eq!(*version, status);
            Some(*proof)
        }
        _ => {
            assert_eq!(status, "");
            None
        }
    }
}

/// Definite, says all of this, and does not say the password.
#[track_caller]
fn assert_refused(outcome: Result<Connection, Error>, parts: &[&str]) {
    let error = outcome.map(drop).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!error.is_transient(), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

#[test]
fn each_mode_against_a_server_with_a_good_certificate() {
    let authority = Authority::new();
    let server = start(&authority.file(), &authority.server(&["127.0.0.1", "localhost"]));
    let ca = authority.file();
    assert_eq!(proof(connect(&server, options(TlsMode::Disabled, Some(&ca))).unwrap()), None);
    assert_eq!(proof(connect(&server, TlsOptions::default()).unwrap()), Some(Proof::None));
    assert_eq!(proof(connect(&server, options(TlsMode::Required, None)).unwrap()), Some(Proof::None));
    let verified = TlsOptions { mode: None, ..options(TlsMode::Preferred, Some(&ca)) };
    assert_eq!(proof(connect(&server, verified).unwrap()), Some(Proof::Authority));
    let identified = options(TlsMode::VerifyIdentity, Some(&ca));
    assert_eq!(proof(connect(&server, identified.clone()).unwrap()), Some(Proof::Identity));
    assert_eq!(proof(connect_to(&server, "localhost", "spate", identified.clone()).unwrap()), Some(Proof::Identity));
    // A directory of authorities.
    let directory = tempfile::tempdir().unwrap();
    fs::copy(&ca, directory.path().join("one.pem")).unwrap();
    fs::copy(Authority::new().file(), directory.path().join("another.pem")).unwrap();
    let by_directory = options(TlsMode::VerifyCa, Some(directory.path()));
    assert_eq!(proof(connect(&server, by_directory).unwrap()), Some(Proof::Authority));
    // Over the socket, only if it is insisted on.
    let over_socket = |tls| {
        let endpoint = Endpoint::unix("spate", server.socket()).with_password(Secret::new(PASSWORD)).with_tls(tls);
        Connection::connect(&endpoint, &ConnectOptions::new("source")).unwrap()
    };
    assert_eq!(*over_socket(TlsOptions::default()).protection(), Protection::Local);
    assert_eq!(proof(over_socket(options(TlsMode::Required, None))), Some(Proof::None));
    assert_eq!(proof(over_socket(identified)), Some(Proof::Authority));
}

#[test]
fn everything_works_through_tls() {
    let authority = Authority::new();
    let server = start(&authority.file(), &authority.server(&["127.0.0.1"]));
    let mut connection = connect(&server, options(TlsMode::VerifyIdentity, Some(&authority.file()))).unwrap();
    for length in [0, 1, 16_384, 262_144, 0xff_ffff, 20_000_000] {
        connection.execute(b"SET SESSION max_statement_time=0").unwrap();
        let sql = format!("SELECT REPEAT('x', {length}), 'end'");
        let set = connection.query(&sql);
        match set {
            Ok(set) if set.rows[0][0].is_some() => {
                assert_eq!(set.rows[0][0].as_ref().map(Vec::len), Some(length));
                assert_eq!(set.text_at(0, 1).unwrap(), "end");
            }
            // More than the server's max_allowed_packet.
            other => assert!(length >= 0xff_ffff, "{length}: {other:?}"),
        }
    }
    let value = vec![b'a'; 15_000_000];
    connection.send_query_parts(&[b"SET @value = '", &value, b"'"]).unwrap();
    connection.receive_result().unwrap();
    assert_eq!(connection.query("SELECT LENGTH(@value)").unwrap().single_text().unwrap(), "15000000");
    let mut rows = 0_u64;
    let each = |_: super::super::Row<'_>| {
        rows += 1;
        std::ops::ControlFlow::Continue(())
    };
    connection.for_each_row("SELECT seq, REPEAT('y', 100) FROM mysql.seq_1_to_200000", each).unwrap();
    assert_eq!(rows, 200_000);
    // A wait that is cut into many attempts loses nothing.
    connection.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    connection.send_query(b"SELECT SLEEP(0.2); SELECT 7").unwrap();
    let mut waits = 0;
    let outcome = loop {
        match connection.receive_result() {
            Ok(outcome) => break outcome,
            Err(error) if error.is_timeout() => waits += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(outcome.statements == 2 && waits > 2);
    // Another thread ends a wait.
    connection.set_read_timeout(None).unwrap();
    let handle = connection.shutdown_handle().unwrap();
    connection.send_query(b"SELECT SLEEP(600)").unwrap();
    let waiting = std::thread::spawn(move || connection.receive_result());
    handle.shutdown();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.is_transient() && error.is_connection_lost(), "{error}");
}

#[test]
fn servers_that_cannot_be_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = start(&authority.file(), &authority.server(&["db1.example.com", "10.1.2.3"]));
    let (ca, other) = (authority.file(), other.file());
    assert_refused(
        connect(&server, options(TlsMode::VerifyIdentity, Some(&ca))),
        &["not for '127.0.0.1'", "db1.example.com", "--source-tls-mode verify-ca", "source (spate@127.0.0.1:"],
    );
    assert_eq!(proof(connect(&server, options(TlsMode::VerifyCa, Some(&ca))).unwrap()), Some(Proof::Authority));
    for mode in [TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
        assert_refused(
            connect(&server, options(mode, Some(&other))),
            &["was not issued by", "--source-tls-ca", "ca.pem"],
        );
        // Without an authority the password would have to do, which this server's version cannot.
        assert_refused(
            connect(&server, options(mode, None)),
            &["--source-tls-ca", "--source-tls-mode required", "11.4"],
        );
    }
    let nothing = connect_to(&server, "127.0.0.1", "nothing", options(TlsMode::VerifyCa, None));
    assert!(nothing.is_err(), "an empty password proves nothing");
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert_refused(
        connect(&server, options(TlsMode::VerifyCa, Some(empty.path()))),
        &["--source-tls-ca", "no certificate"],
    );
    let missing = Path::new("/nowhere/ca.pem");
    assert_refused(connect(&server, options(TlsMode::VerifyCa, Some(missing))), &["/nowhere/ca.pem", "No such file"]);
}

#[test]
fn certificates_out_of_their_time() {
    let authority = Authority::new();
    for (from, to, says) in
        [((2000, 1), (2020, 5), "expired on 2020-05-01"), ((2998, 2), (2999, 1), "valid from 2998-02-01")]
    {
        let mut parameters = named("late");
        parameters.not_before = date_time_ymd(from.0, from.1, 1);
        parameters.not_after = date_time_ymd(to.0, to.1, 1);
        let server = start(&authority.file(), &authority.issue("late", &parameters));
        assert_refused(connect(&server, options(TlsMode::VerifyCa, Some(&authority.file()))), &[says, "'late'"]);
        assert_eq!(proof(connect(&server, options(TlsMode::Required, None)).unwrap()), Some(Proof::None));
    }
}

#[test]
fn a_server_that_gets_a_new_certificate() {
    let (old, new) = (Authority::new(), Authority::new());
    let mut server = start(&old.file(), &old.server(&["127.0.0.1"]));
    let by_old = || options(TlsMode::VerifyIdentity, Some(&old.file()));
    drop(connect(&server, by_old()).unwrap());
    server.kill();
    // From the same authority: nothing changes.
    let again = start(&old.file(), &old.server(&["127.0.0.1"]));
    drop(connect(&again, by_old()).unwrap());
    let server = start(&new.file(), &new.server(&["127.0.0.1"]));
    assert_refused(connect(&server, by_old()), &["new certificate", "somebody else answers"]);
    // Each connection reads the file again.
    fs::copy(new.file(), old.file()).unwrap();
    drop(connect(&server, by_old()).unwrap());
}

#[test]
fn a_certificate_that_is_its_own_authority() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let files = Files { certificate: directory.path().join("c.pem"), key: directory.path().join("k.pem") };
    fs::write(&files.certificate, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let server = start(&files.certificate, &files);
    let pinned = options(TlsMode::VerifyIdentity, Some(&files.certificate));
    assert_eq!(proof(connect(&server, pinned).unwrap()), Some(Proof::Identity));
    let another = Authority::new();
    assert_refused(connect(&server, options(TlsMode::VerifyCa, Some(&another.file()))), &["made by itself"]);
}

#[test]
fn names_in_the_subject_count_only_without_the_extension_for_names() {
    let authority = Authority::new();
    let identified = || options(TlsMode::VerifyIdentity, Some(&authority.file()));
    let server = start(&authority.file(), &authority.issue("old", &named("localhost")));
    assert_eq!(proof(connect_to(&server, "localhost", "spate", identified()).unwrap()), Some(Proof::Identity));
    assert_refused(connect(&server, identified()), &["not for '127.0.0.1', but for localhost"]);
    drop(server);
    let mut parameters = named("localhost");
    parameters.subject_alt_names = CertificateParams::new(vec!["db1".to_owned()]).unwrap().subject_alt_names;
    let server = start(&authority.file(), &authority.issue("both", &parameters));
    assert_refused(connect_to(&server, "localhost", "spate", identified()), &["not for 'localhost'"]);
}

/// Made once with the commands of the vendors' manuals (`openssl x509 -req` without extensions), valid for a century.
#[test]
fn certificates_of_the_first_version() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tls/first_version");
    let ca = directory.join("ca.pem");
    let files = Files { certificate: directory.join("server-cert.pem"), key: directory.join("server-key.pem") };
    let server = start(&ca, &files);
    for mode in [TlsMode::Required, TlsMode::VerifyCa] {
        drop(connect(&server, options(mode, Some(&ca))).unwrap());
    }
    let identified = options(TlsMode::VerifyIdentity, Some(&ca));
    assert_refused(connect(&server, identified.clone()), &["not for '127.0.0.1', but for localhost"]);
    assert_eq!(proof(connect_to(&server, "localhost", "spate", identified).unwrap()), Some(Proof::Identity));
    let (other, impostor) = (Authority::new(), Authority::named("an authority of old"));
    for authority in [&other, &impostor] {
        let outcome = connect(&server, options(TlsMode::VerifyCa, Some(&authority.file())));
        assert_refused(outcome, &["'localhost', issued by 'an authority of old'", "was not issued by"]);
    }
    // As the certificate of a client.
    let own = TlsOptions { certificate: Some(files.certificate), key: Some(files.key), ..TlsOptions::default() };
    drop(connect_to(&server, "127.0.0.1", "x509", own).unwrap());
}

#[test]
fn client_certificates() {
    let (authority, other) = (Authority::new(), Authority::named("another"));
    let server = start(&authority.file(), &authority.server(&["127.0.0.1"]));
    let mut parameters = named("client");
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (own, strange) = (authority.issue("client", &parameters), other.issue("client", &parameters));
    let with = |files: &Files| TlsOptions {
        certificate: Some(files.certificate.clone()),
        key: Some(files.key.clone()),
        ..TlsOptions::default()
    };
    let as_user = |user: &str, tls| connect_to(&server, "127.0.0.1", user, tls);
    assert_eq!(proof(as_user("x509", with(&own)).unwrap()), Some(Proof::None));
    let without = options(TlsMode::Required, None);
    assert_refused(as_user("x509", without.clone()), &["REQUIRE X509", "--source-tls-cert and --source-tls-key"]);
    assert_refused(as_user("tls", options(TlsMode::Disabled, None)), &["REQUIRE SSL", "--source-tls-mode required"]);
    drop(as_user("tls", without).unwrap());
    assert_refused(as_user("x509", with(&strange)), &["does not know the authority", "--source-tls-cert"]);
    // One who calls himself as the authority that the server knows.
    let impostor = Authority::new();
    let forged = impostor.issue("forged", &parameters);
    assert_refused(as_user("x509", with(&forged)), &["does not accept our certificate"]);
    let mixed = Files { certificate: own.certificate.clone(), key: strange.key.clone() };
    assert_refused(as_user("x509", with(&mixed)), &["not the key to the certificate", "--source-tls-key"]);
    for (certificate, key, says) in [
        (Some(&own.certificate), None, "--source-tls-key"),
        (None, Some(&own.key), "--source-tls-cert"),
        (Some(&own.key), Some(&own.key), "no certificate"),
        (Some(&own.certificate), Some(&own.certificate), "no key"),
    ] {
        let tls = TlsOptions { certificate: certificate.cloned(), key: key.cloned(), ..TlsOptions::default() };
        assert_refused(as_user("x509", tls), &[says]);
    }
    parameters.not_after = date_time_ymd(2020, 1, 1);
    assert_refused(as_user("x509", with(&authority.issue("late", &parameters))), &["has expired", "--source-tls-cert"]);
}

#[test]
fn a_server_without_tls() {
    let server = TestServer::start(&["--skip-ssl"]);
    let sql = format!("CREATE USER spate@'%' IDENTIFIED BY '{PASSWORD}'");
    server.connect().execute(sql.as_bytes()).unwrap();
    assert_eq!(proof(connect(&server, TlsOptions::default()).unwrap()), None);
    for mode in [TlsMode::Required, TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
        assert_refused(connect(&server, options(mode, None)), &["offers no TLS", &mode.to_string()]);
    }
}

#[test]
fn what_comes_before_tls_is_not_taken_for_what_comes_through_it() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let injecting = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = b"\x0a10.11.1-MariaDB\0\x01\0\0\0abcdefgh\0\xff\xff\x2d\x02\0\xff\x81\x15".to_vec();
        greeting.extend_from_slice(&[0; 10]);
        greeting.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
        let mut bytes = (greeting.len() as u32).to_le_bytes().to_vec();
        bytes[3] = 0;
        bytes.extend_from_slice(&greeting);
        // An OK packet that a listener would like to see taken for the login's.
        bytes.extend_from_slice(b"\x07\0\0\x02\0\0\0\x02\0\0\0");
        stream.write_all(&bytes).unwrap();
        stream
    });
    let endpoint = Endpoint::tcp("spate", "127.0.0.1", port)
        .with_password(Secret::new(PASSWORD))
        .with_tls(options(TlsMode::Required, None));
    let outcome = Connection::connect(&endpoint, &ConnectOptions::new("source"));
    drop(injecting.join().unwrap());
    assert_refused(outcome, &["before TLS began"]);
}

/// A server that shows a certificate of its own and sends these packets after the client's answer; what the client sent
/// through TLS comes back.
fn impostor(packets: &'static [&'static [u8]]) -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    impostor_with(&made.cert, &made.signing_key, packets)
}

fn impostor_with(
    certificate: &rcgen::Certificate,
    key: &KeyPair,
    packets: &'static [&'static [u8]],
) -> (u16, std::thread::JoinHandle<Vec<u8>>) {
    use std::io::{Read, Write};
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = b"\x0a11.8.3-MariaDB\0\x01\0\0\0abcdefgh\0\xff\xff\x2d\x02\0\xff\x81\x15".to_vec();
        greeting.extend_from_slice(&[0; 10]);
        greeting.extend_from_slice(b"ijklmnopqrst\0mysql_native_password\0");
        let length = u8::try_from(greeting.len()).unwrap();
        stream.write_all(&[&[length, 0, 0, 0], greeting.as_slice()].concat()).unwrap();
        stream.read_exact(&mut [0; 36]).unwrap();
        let connection = rustls::ServerConnection::new(config.into()).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        let mut received = Vec::new();
        for packet in packets {
            let mut piece = [0; 1000];
            let Ok(count @ 1..) = stream.read(&mut piece) else { return received };
            received.extend_from_slice(&piece[..count]);
            stream.write_all(&[&[packet.len() as u8, 0, 0, piece[3] + 1], *packet].concat()).unwrap();
            stream.flush().unwrap();
        }
        let _until_it_closes = stream.read_to_end(&mut received);
        received
    });
    (port, serving)
}

const FORGED: &[u8] = b"\0\0\0\x02\0\0\0\x41\x010123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF";
const SILENT: &[u8] = b"\0\0\0\x02\0\0\0";
const CLEAR: &[u8] = b"\xfemysql_clear_password\0";
const OLD: &[u8] = b"\xfe";
const SHA: &[u8] = b"\xfesha256_password\0abcdefghijklmnopqrst\0";
const CACHING: &[u8] = b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0";
const FULL: &[u8] = b"\x01\x04";

#[test]
fn someone_in_between_is_noticed_and_does_not_get_the_password() {
    let cases: [(&[&[u8]], &str); 6] = [
        (&[FORGED], "is not signed with the account's password"),
        (&[SILENT], "cannot prove by the account's password"),
        (&[CLEAR], "in the clear"),
        (&[OLD], "which is broken"),
        (&[SHA], "has not proved who it is"),
        (&[CACHING, FULL], "has not proved who it is"),
    ];
    for (packets, says) in cases {
        let (port, serving) = impostor(packets);
        let endpoint = Endpoint::tcp("spate", "127.0.0.1", port)
            .with_password(Secret::new(PASSWORD))
            .with_tls(options(TlsMode::VerifyIdentity, None));
        assert_refused(Connection::connect(&endpoint, &ConnectOptions::new("source")), &[says]);
        let received = serving.join().unwrap();
        assert!(!received.is_empty());
        assert!(!received.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()), "{says}");
    }
}

/// The requests for the password itself.
const REQUESTS: [&[&[u8]]; 3] = [&[CLEAR], &[SHA], &[CACHING, FULL]];

fn has_password(received: &[u8]) -> bool {
    received.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

#[test]
fn an_unproven_server_gets_the_password_only_if_that_is_allowed_by_name() {
    let connect = |port, tls: TlsOptions, is_allowed| {
        let endpoint = Endpoint::tcp("spate", "127.0.0.1", port).with_password(Secret::new(PASSWORD)).with_tls(tls);
        Connection::connect(&endpoint.with_clear_password_allowed(is_allowed), &ConnectOptions::new("source"))
    };
    for request in REQUESTS {
        for mode in [TlsMode::Preferred, TlsMode::Required] {
            let (port, serving) = impostor(request);
            let outcome = connect(port, options(mode, None), false);
            assert_refused(outcome, &["has not proved who it is", "--source-tls-ca", "--source-allow-clear-password"]);
            assert!(!has_password(&serving.join().unwrap()), "{request:?} {mode}");
        }
        // The impostor says no more, so the login fails; but it has the password, as was allowed.
        let (port, serving) = impostor(request);
        assert!(connect(port, options(TlsMode::Required, None), true).is_err());
        assert!(has_password(&serving.join().unwrap()), "{request:?}");
        // A server that has to prove its identity does not get it even then.
        let (port, serving) = impostor(request);
        assert_refused(connect(port, options(TlsMode::VerifyCa, None), true), &["has not proved who it is"]);
        assert!(!has_password(&serving.join().unwrap()), "{request:?}");
    }
}

/// A bundle like the system's, with an authority in it from which the impostor has a certificate.
#[test]
fn a_certificate_of_a_public_authority_proves_nothing_without_the_host() {
    let authority = Authority::new();
    let bundle = |count: usize| {
        let others: String = (1..count).map(|_| fs::read_to_string(Authority::new().file()).unwrap()).collect();
        let file = authority.directory.path().join("bundle.pem");
        fs::write(&file, others + &fs::read_to_string(authority.file()).unwrap()).unwrap();
        file
    };
    let key = KeyPair::generate().unwrap();
    let mut parameters = named("impostor");
    parameters.subject_alt_names =
        CertificateParams::new(vec!["impostor.example".to_owned()]).unwrap().subject_alt_names;
    let certificate = parameters.signed_by(&key, &authority.issuer).unwrap();
    let received = |bundle: &Path, mode, says: &[&str]| {
        let (port, serving) = impostor_with(&certificate, &key, &[CACHING, FULL]);
        let endpoint = Endpoint::tcp("spate", "127.0.0.1", port)
            .with_password(Secret::new(PASSWORD))
            .with_tls(options(mode, Some(bundle)));
        assert_refused_or_lost(Connection::connect(&endpoint, &ConnectOptions::new("source")), says);
        serving.join().unwrap()
    };
    let large = bundle(super::PRIVATE_AUTHORITIES_MAX + 1);
    let says = ["public authorities", "--source-tls-mode verify-identity", "--source-allow-clear-password"];
    assert!(!has_password(&received(&large, TlsMode::VerifyCa, &says)));
    assert!(!has_password(&received(&large, TlsMode::VerifyIdentity, &["not for '127.0.0.1'"])));
    // A few authorities are one's own, and what they have certified gets the password.
    let small = bundle(super::PRIVATE_AUTHORITIES_MAX);
    assert!(has_password(&received(&small, TlsMode::VerifyCa, &[])));
}

#[track_caller]
fn assert_refused_or_lost(outcome: Result<Connection, Error>, parts: &[&str]) {
    let text = outcome.map(drop).unwrap_err().to_string();
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}
