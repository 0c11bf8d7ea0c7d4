//! Every authentication plugin of both vendors, over every kind of connection, with the right password and a wrong one; and the
//! certificates that servers make for themselves.

use std::path::PathBuf;

use spate_connection::endpoint::{Endpoint, PublicKey, Secret, TlsMode, TlsOptions};
use spate_connection::{ConnectOptions, Connection, Error, Proof, Protection};

use crate::support::server::PASSWORD;
use crate::support::{Kind, Server, Site};

/// How a connection is made.
#[derive(Debug, Clone)]
enum Way {
    Socket,
    Plain,
    /// With what may be done with the server's RSA key.
    PlainKey(PublicKey),
    /// Without anything that allows to give the password away.
    Tls(TlsOptions),
    /// A server that has proven nothing may have the password.
    TlsAllowed(TlsOptions),
    /// It may have the password encrypted with whatever key it sends.
    TlsAnyKey(TlsOptions),
}

fn tls(mode: TlsMode) -> TlsOptions {
    TlsOptions { mode: Some(mode), ..TlsOptions::default() }
}

fn connect(server: &Server, user: &str, password: &str, way: &Way) -> Result<Connection, Error> {
    let endpoint = match way {
        Way::Socket => Endpoint::unix(user, server.socket()),
        _ => Endpoint::tcp(user, "127.0.0.1", server.port),
    };
    let endpoint = match way {
        Way::Socket => endpoint,
        Way::Plain => endpoint.with_tls(tls(TlsMode::Disabled)),
        Way::PlainKey(key) => endpoint.with_tls(tls(TlsMode::Disabled)).with_public_key(Some(key.clone())),
        Way::Tls(options) => endpoint.with_tls(options.clone()),
        Way::TlsAllowed(options) => endpoint.with_tls(options.clone()).with_clear_password_allowed(true),
        Way::TlsAnyKey(options) => endpoint.with_tls(options.clone()).with_public_key(Some(PublicKey::Request)),
    };
    Connection::connect(&endpoint.with_password(Secret::new(password)), &ConnectOptions::new("replica"))
}

#[track_caller]
fn assert_in(server: &Server, user: &str, way: &Way) {
    let mut connection = connect(server, user, PASSWORD, way).unwrap_or_else(|error| panic!("{user} {way:?}: {error}"));
    let who = connection.query("SELECT CURRENT_USER()").unwrap().single_text().unwrap();
    assert_eq!(who, format!("{user}@%"));
}

/// Refused for good, with this said, and never the password.
#[track_caller]
fn assert_out(server: &Server, user: &str, password: &str, way: &Way, says: &[&str]) {
    let error = connect(server, user, password, way).map(drop).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(!error.is_transient(), "{text}");
    assert!(!text.contains(password), "{text}");
    for part in says {
        assert!(text.contains(part), "{user} {way:?}: '{part}' is missing in: {text}");
    }
}

const WRONG: &str = "falsch-5522";

/// The right password over each way, and a wrong one.
fn assert_everywhere(server: &Server, user: &str, ways: &[Way]) {
    for way in ways {
        assert_in(server, user, way);
        assert_out(server, user, WRONG, way, &["Access denied"]);
    }
}

fn data_file(server: &Server, name: &str) -> PathBuf {
    server.data_directory().join(name)
}

/// Those with passwords that the server still has; mysql_native_password went with 9.0.
const MYSQL_PLUGINS: [&str; 2] = ["caching_sha2_password", "sha256_password"];

#[test]
fn login_with_each_plugin_of_mysql_succeeds() {
    let server = Server::replica(Kind::Mysql, &[]);
    let key = PublicKey::File(data_file(&server, "public_key.pem"));
    let ways = [
        Way::Socket,
        Way::Plain,
        Way::PlainKey(PublicKey::Request),
        Way::PlainKey(key),
        Way::Tls(tls(TlsMode::Preferred)),
        Way::Tls(tls(TlsMode::Required)),
        Way::Tls(TlsOptions { authorities: Some(data_file(&server, "ca.pem")), ..TlsOptions::default() }),
        Way::TlsAllowed(tls(TlsMode::Required)),
        Way::TlsAnyKey(tls(TlsMode::Preferred)),
    ];
    let proves_nothing = |way: &Way| matches!(way, Way::Tls(options) if options.authorities.is_none());
    for plugin in MYSQL_PLUGINS {
        let user = format!("u_{plugin}");
        server.sql(&format!("CREATE USER {user} IDENTIFIED WITH {plugin} BY '{PASSWORD}'"));
        server.sql(&format!("CREATE USER e_{plugin} IDENTIFIED WITH {plugin} BY ''"));
        for way in &ways {
            // The server forgets the hashes that it knows from earlier logins.
            server.sql("FLUSH PRIVILEGES");
            if matches!(way, Way::Plain) {
                let says = ["--replica-public-key", "--replica-tls-mode", "Unix socket"];
                assert_out(&server, &user, PASSWORD, way, &says);
                continue;
            }
            if proves_nothing(way) {
                let says =
                    ["has not proved who it is", "--replica-tls-ca", "--replica-allow-clear-password", "Unix socket"];
                assert_out(&server, &user, PASSWORD, way, &says);
                continue;
            }
            assert_everywhere(&server, &user, std::slice::from_ref(way));
            // Once more, with what the server has kept.
            assert_in(&server, &user, way);
        }
        if plugin == "caching_sha2_password" {
            assert_in(&server, &user, &Way::Plain);
            // What the server has kept is enough for now, and the connection says that it will not always be.
            let connection = |way: &Way| connect(&server, &user, PASSWORD, way).unwrap();
            for way in [Way::Plain, Way::Tls(tls(TlsMode::Required))] {
                let way = connection(&way);
                assert!(way.withheld_password().is_some_and(|why| why.contains("--replica-")), "{way:?}");
            }
            for way in ways.iter().filter(|way| !proves_nothing(way) && !matches!(way, Way::Plain)) {
                assert_eq!(connection(way).withheld_password(), None, "{way:?}");
            }
        }
        for way in &ways {
            let empty = connect(&server, &format!("e_{plugin}"), "", way);
            assert!(empty.is_ok(), "{plugin} without a password, {way:?}: {}", empty.unwrap_err());
        }
    }
    let who = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    server.sql(&format!(
        "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'; \
         CREATE USER u_socket IDENTIFIED WITH auth_socket AS '{}'; CREATE USER u_other IDENTIFIED WITH auth_socket",
        who.trim()
    ));
    connect(&server, "u_socket", "", &Way::Socket).unwrap();
    assert_out(&server, "u_other", WRONG, &Way::Socket, &["Access denied"]);
}

#[test]
fn login_switches_to_the_accounts_plugin() {
    for first in MYSQL_PLUGINS {
        let server = Server::replica(Kind::Mysql, &[&format!("--authentication-policy={first}")]);
        for own in MYSQL_PLUGINS {
            server.sql(&format!("CREATE USER u_{own} IDENTIFIED WITH {own} BY '{PASSWORD}'"));
            let ways = [Way::Socket, Way::PlainKey(PublicKey::Request), Way::TlsAllowed(tls(TlsMode::Required))];
            for way in &ways {
                server.sql("FLUSH PRIVILEGES");
                assert_everywhere(&server, &format!("u_{own}"), std::slice::from_ref(way));
            }
        }
    }
}

#[test]
fn login_over_certificates_made_by_mysql_succeeds() {
    let server = Server::replica(Kind::Mysql, &[]);
    server.sql(&format!(
        "CREATE USER u IDENTIFIED BY '{PASSWORD}'; CREATE USER x IDENTIFIED BY '{PASSWORD}' REQUIRE X509; \
         CREATE USER s IDENTIFIED BY '{PASSWORD}' REQUIRE SSL"
    ));
    let ca = data_file(&server, "ca.pem");
    let with = |mode, ca: Option<&PathBuf>| Way::Tls(TlsOptions { authorities: ca.cloned(), ..tls(mode) });
    let proof = |way: &Way| match connect(&server, "u", PASSWORD, way).unwrap().protection() {
        Protection::Tls { version, proof } if version == "TLSv1.3" => *proof,
        other => panic!("{other:?}"),
    };
    assert_eq!(proof(&Way::TlsAllowed(TlsOptions::default())), Proof::None);
    assert_eq!(proof(&with(TlsMode::VerifyCa, Some(&ca))), Proof::Authority);
    let identity = with(TlsMode::VerifyIdentity, Some(&ca));
    let says = ["Auto_Generated", "is not for '127.0.0.1'", "--replica-tls-mode verify-ca"];
    assert_out(&server, "u", PASSWORD, &identity, &says);
    // Neither mode gives the password away to a server that has not proved anything; and MySQL has no other proof.
    for mode in [TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
        assert_out(&server, "u", PASSWORD, &with(mode, None), &["--replica-tls-ca", "--replica-tls-mode required"]);
    }
    let own = |certificate: &str, key: &str| {
        let (certificate, key) = (Some(data_file(&server, certificate)), Some(data_file(&server, key)));
        Way::TlsAllowed(TlsOptions { certificate, key, ..tls(TlsMode::Required) })
    };
    assert_in(&server, "x", &own("client-cert.pem", "client-key.pem"));
    assert_out(
        &server,
        "x",
        PASSWORD,
        &Way::TlsAllowed(tls(TlsMode::Required)),
        &["REQUIRE X509", "--replica-tls-cert"],
    );
    assert_out(&server, "x", PASSWORD, &own("client-cert.pem", "server-key.pem"), &["not the key to the certificate"]);
    let key = Way::PlainKey(PublicKey::Request);
    assert_out(&server, "s", PASSWORD, &key, &["REQUIRE SSL", "--replica-tls-mode required"]);
    assert_in(&server, "s", &Way::TlsAllowed(TlsOptions::default()));
}

#[test]
fn login_to_mysql_that_requires_tls_succeeds() {
    let server = Server::replica(Kind::Mysql, &["--require-secure-transport=ON"]);
    server.sql(&format!("CREATE USER u IDENTIFIED BY '{PASSWORD}'"));
    assert_out(&server, "u", PASSWORD, &Way::PlainKey(PublicKey::Request), &["--replica-tls-mode required"]);
    assert_in(&server, "u", &Way::TlsAllowed(TlsOptions::default()));
    assert_in(&server, "u", &Way::Socket);
}

/// Installs MariaDB's plugins and makes an account for each.
fn mariadb_accounts(server: &Server) {
    server.sql(&format!(
        "INSTALL SONAME 'auth_ed25519'; INSTALL SONAME 'auth_parsec'; CREATE USER u_native IDENTIFIED BY '{PASSWORD}'; \
         CREATE USER u_ed25519 IDENTIFIED VIA ed25519 USING PASSWORD('{PASSWORD}'); \
         CREATE USER u_parsec IDENTIFIED VIA parsec USING PASSWORD('{PASSWORD}'); \
         CREATE USER u_two IDENTIFIED VIA ed25519 USING PASSWORD('{PASSWORD}') OR mysql_native_password USING PASSWORD('{PASSWORD}'); \
         CREATE USER u_empty; CREATE USER x IDENTIFIED BY '{PASSWORD}' REQUIRE X509"
    ));
}

const MARIADB_USERS: [&str; 4] = ["u_native", "u_ed25519", "u_parsec", "u_two"];

#[test]
fn login_with_each_plugin_of_mariadb_succeeds() {
    let server = Server::replica(Kind::Mariadb118, &[]);
    mariadb_accounts(&server);
    for user in MARIADB_USERS {
        assert_everywhere(&server, user, &[Way::Socket, Way::Plain, Way::Tls(tls(TlsMode::Required))]);
    }
    let who = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    server.sql(&format!(
        "CREATE OR REPLACE USER '{0}'@'%' IDENTIFIED VIA unix_socket; CREATE USER nobody_else@'%' IDENTIFIED VIA unix_socket",
        who.trim()
    ));
    connect(&server, who.trim(), "", &Way::Socket).unwrap();
    assert_out(&server, "nobody_else", WRONG, &Way::Socket, &["Access denied"]);
}

#[test]
fn login_over_certificates_made_by_mariadb_succeeds() {
    let server = Server::replica(Kind::Mariadb118, &[]);
    mariadb_accounts(&server);
    for user in MARIADB_USERS {
        for mode in [TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
            let connection = connect(&server, user, PASSWORD, &Way::Tls(tls(mode))).unwrap();
            let expected = Protection::Tls { version: "TLSv1.3".to_owned(), proof: Proof::Password };
            assert_eq!(*connection.protection(), expected, "{user}");
            assert_out(&server, user, WRONG, &Way::Tls(tls(mode)), &["Access denied"]);
        }
    }
    // An empty password proves nothing.
    let empty = connect(&server, "u_empty", "", &Way::Tls(tls(TlsMode::VerifyCa))).unwrap_err();
    assert!(empty.to_string().contains("--replica-tls-ca"), "{empty}");
}

/// From the first login to the applied row, over connections whose other ends have proved who they are.
#[test]
fn replication_over_tls_ends_at_another_certificate() {
    let logged = ["--performance-schema=ON"].as_slice();
    let mut site = Site::between((Kind::Mysql, logged), (Kind::Mysql, logged));
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)");
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(data_file(&site.source, "ca.pem"), copy.path()).unwrap();
    let replicas = data_file(&site.replica, "ca.pem");
    let options = [
        ["--start", "earliest", "--source-tls-ca", copy.path().to_str().unwrap()].as_slice(),
        &["--replica-tls-mode", "verify-ca", "--replica-tls-ca", replicas.to_str().unwrap()],
    ]
    .concat();
    let ended = site.run(site.command("check", &options[2..]));
    ended.assert_says(&["TLSv1.3; a known authority has issued the server's certificate"]);
    let running = site.spawn(site.replicate(&options));
    site.source.sql("INSERT INTO d.t SELECT 1, REPEAT('x', 20000000); INSERT INTO d.t VALUES (2, 'y')");
    site.wait_applied();
    let ciphers = "SELECT COUNT(*) FROM performance_schema.threads WHERE CONNECTION_TYPE = 'SSL/TLS'";
    for server in [&site.source, &site.replica] {
        assert_ne!(server.sql(ciphers), "0", "nobody is connected over TLS");
    }
    site.assert_identical();
    // The source makes itself another authority, and a certificate of it.
    site.source.kill();
    for name in ["ca.pem", "ca-key.pem", "server-cert.pem", "server-key.pem", "client-cert.pem", "client-key.pem"] {
        std::fs::remove_file(data_file(&site.source, name)).unwrap();
    }
    site.source.begin();
    running.wait().assert_failed_saying(&["was not issued by an authority in", "new certificate", "--source-tls-ca"]);
    site.source.sql("INSERT INTO d.t VALUES (3, 'z')");
    std::fs::copy(data_file(&site.source, "ca.pem"), copy.path()).unwrap();
    site.catch_up(&options);
    site.assert_identical();
}
