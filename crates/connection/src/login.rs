//! The handshake: the server sends a greeting, TLS begins if required, we answer, and an authentication plugin
//! exchanges its packets.
//!
//! The plugins are those of `mysql_common`. `password` decides whether a server may get the password itself.
//!
//! A MariaDB server from 11.4 on can prove its identity without an authority: its last packet contains a hash over its
//! hash of the password, its challenge and its certificate. An attacker in between has another certificate, and does
//! not know the password. (MariaDB's documentation calls it "zero-configuration TLS".)

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin, Context, Response};
use mysql_common::constants::CapabilityFlags;
use mysql_common::crypto::verify_mariadb_shared_secret;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;

use super::error::{Error, Result, ServerError};
use super::link::Link;
use super::packet::STATUS_BYTES_MAX;
use super::password::{self, Channel, Consent, Form};
use super::result::{ok_info, parse_error};
use super::stream::Stream;
use super::tls::{self, Plan, Proof};
use super::version::ServerVersion;
use crate::endpoint::TlsOptions;

/// The largest packet that we announce to accept: the protocol's upper limit.
const PACKET_LENGTH_MAX: u32 = 1 << 30;
/// No plugin needs more exchanges. The limit ends the dialogue with a server that sends requests without end.
const ROUNDS_MAX: usize = 16;
/// caching_sha2_password: the server has no hash of the password and requests the password itself.
const PERFORM_FULL_AUTHENTICATION: &[u8] = &[4];
/// utf8mb4_general_ci, which both vendors know under this number.
const CHARACTER_SET: u8 = 45;
const CONNECTION_COUNT_EXCEEDED: u16 = 1040;
const ACCESS_DENIED: u16 = 1045;
const INSECURE_TRANSPORT: u16 = 3159;

/// The account that logs in, and what the user allows for it.
pub(super) struct Credentials<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    /// How to secure the connection; `None`: without TLS.
    pub(super) tls: Option<&'a Plan>,
    pub(super) tls_options: &'a TlsOptions,
    /// The server's RSA key (PEM); `None` if it is unknown.
    pub(super) public_key: Option<&'a [u8]>,
    /// Whether a server that has proven nothing may get the password itself.
    pub(super) consent: Consent,
    /// Offer to send files for `LOAD DATA LOCAL`.
    pub(super) local_files: bool,
}

/// How a connection is protected from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Without protection.
    None,
    /// A Unix socket: the bytes do not leave the machine.
    Local,
    /// TLS.
    Tls {
        /// The version, such as `TLSv1.3`.
        version: String,
        /// The server's proof of its identity.
        proof: Proof,
    },
}

/// The server's greeting, and how the connection is protected.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) version: ServerVersion,
    pub(super) connection_id: u32,
    pub(super) deprecate_eof: bool,
    pub(super) protection: Protection,
    /// Why the server would not get the password itself if it requested it later, and the options that help; `None` if
    /// it would get it, or will not request it.
    pub(super) withheld: Option<String>,
}

/// Logs in over a new connection.
pub(super) fn log_in(link: &mut Link, credentials: &Credentials<'_>) -> Result<Greeting> {
    link.expect_sequence(Some(0));
    let place = link.receive(STATUS_BYTES_MAX)?;
    let payload = link.payload(&place);
    if let Some(error) = parse_error(payload, 0) {
        return Err(explain_refusal(link, credentials, error));
    }
    let handshake =
        parse_greeting(payload).map_err(|why| link.protocol(format!("the greeting is malformed: {why}")))?;
    let mut capabilities = choose_capabilities(link, &handshake, credentials.local_files)?;
    if let Some(plan) = credentials.tls {
        if handshake.capabilities().contains(CapabilityFlags::CLIENT_SSL) {
            capabilities |= CapabilityFlags::CLIENT_SSL;
            begin_tls(link, plan, credentials, capabilities)?;
        } else if plan.mode > crate::endpoint::TlsMode::Preferred {
            return Err(link.insecure(explain_missing_tls(plan, link.peer.role())));
        }
    }
    let offered = handshake.auth_plugin().unwrap_or(AuthPlugin::MysqlNativePassword).into_owned();
    let mut exchange = Exchange { credentials, scramble: handshake.nonce(), plugin: None };
    let plugin = match offered {
        known @ (AuthPlugin::MysqlNativePassword | AuthPlugin::CachingSha2Password) => known,
        // The account's own plugin follows in a switch request.
        _ => AuthPlugin::MysqlNativePassword,
    };
    let first_scramble = exchange.scramble.clone();
    let first = exchange.begin(link, &plugin, &first_scramble)?;
    let response = encode_response(credentials.user, first, plugin, capabilities);
    reply(link, &response)?;
    let info = exchange.finish(link).map_err(|error| match error {
        // The server may have refused our certificate. With TLS 1.3 it reports that only now.
        lost @ Error::Lost { .. } => link.read_last_error(lost),
        other => other,
    })?;
    let protection = exchange.check_protection(link, &info, &first_scramble, &handshake.server_version_str())?;
    let withheld = exchange.explain_withheld(link);
    Ok(Greeting {
        withheld,
        version: ServerVersion::parse(&handshake.server_version_str()),
        connection_id: handshake.connection_id(),
        deprecate_eof: capabilities.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF),
        protection,
    })
}

/// Parses the greeting, and catches panics: the parser calculates with the server's lengths without checks.
fn parse_greeting(payload: &[u8]) -> std::result::Result<HandshakePacket<'static>, String> {
    let parse = || ParseBuf(payload).parse::<HandshakePacket<'_>>(()).map(HandshakePacket::into_owned);
    match catch_unwind(parse) {
        Ok(parsed) => parsed.map_err(|error| error.to_string()),
        Err(_) => Err("a length in it is impossible".to_owned()),
    }
}

fn encode_response(
    user: &str,
    first: Option<Vec<u8>>,
    plugin: AuthPlugin<'_>,
    capabilities: CapabilityFlags,
) -> Vec<u8> {
    let attributes = HashMap::from([
        ("program_name".to_owned(), "spate".to_owned()),
        ("_client_name".to_owned(), "spate".to_owned()),
        ("_client_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("_pid".to_owned(), std::process::id().to_string()),
    ]);
    let response = HandshakeResponse::new(
        Some(first.unwrap_or_default()),
        // From this version on a server knows utf8mb4; older ones are not supported.
        (5, 5, 3),
        Some(user.as_bytes()),
        None::<Vec<u8>>,
        Some(plugin),
        capabilities,
        capabilities.contains(CapabilityFlags::CLIENT_CONNECT_ATTRS).then_some(attributes),
        PACKET_LENGTH_MAX,
    );
    let mut bytes = Vec::new();
    response.serialize(&mut bytes);
    bytes
}

/// Requests TLS and performs its handshake.
fn begin_tls(link: &mut Link, plan: &Plan, credentials: &Credentials<'_>, capabilities: CapabilityFlags) -> Result<()> {
    if link.has_unread_bytes() {
        // Bytes that an attacker injects before TLS begins must not count as bytes that came through TLS.
        return Err(link.insecure("the server sent bytes before TLS began".to_owned()));
    }
    let mut request = Vec::new();
    SslRequest::new(capabilities, PACKET_LENGTH_MAX, CHARACTER_SET).serialize(&mut request);
    reply(link, &request)?;
    let Stream::Plain(socket) = &link.stream else { return Err(link.protocol("TLS within TLS")) };
    let socket = socket.try_clone().map_err(|error| link.lost(error))?;
    let secured = plan.secure(socket, link.peer.role(), credentials.tls_options).map_err(|failure| match failure {
        tls::Failure::Refused(why) => link.insecure(why),
        tls::Failure::Io(error) => link.lost(error),
    })?;
    link.stream = Stream::Tls(Box::new(secured));
    Ok(())
}

fn explain_missing_tls(plan: &Plan, role: &str) -> String {
    format!(
        "the server offers no TLS, and --{role}-tls-mode {} requires it: set ssl_cert and ssl_key in its configuration, or use \
         --{role}-tls-mode disabled",
        plan.mode
    )
}

/// Chooses the capabilities that both sides have. Local files are included only if the caller asks for them, because a
/// server could request any file.
fn choose_capabilities(link: &Link, handshake: &HandshakePacket<'_>, local_files: bool) -> Result<CapabilityFlags> {
    let needed = CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_MULTI_STATEMENTS
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_TRANSACTIONS;
    let wanted = CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_CONNECT_ATTRS
        | CapabilityFlags::CLIENT_DEPRECATE_EOF
        | if local_files { CapabilityFlags::CLIENT_LOCAL_FILES } else { CapabilityFlags::empty() };
    let offered = handshake.capabilities();
    match offered.contains(needed) {
        // To MariaDB this bit means "without MariaDB's own extensions", so we set it for every server.
        true => Ok(needed | (wanted & offered) | CapabilityFlags::CLIENT_LONG_PASSWORD),
        false => Err(link.protocol(format!(
            "server version {} is too old: it lacks the capabilities {:?}",
            handshake.server_version_str(),
            needed - offered
        ))),
    }
}

fn reply(link: &mut Link, payload: &[u8]) -> Result<()> {
    let next = link.send(link.next_sequence(), &[payload])?;
    link.expect_sequence(Some(next));
    Ok(())
}

fn explain_refusal(link: &Link, credentials: &Credentials<'_>, error: ServerError) -> Error {
    let peer = link.peer.clone();
    let role = link.peer.role();
    let is_tls = matches!(link.stream, Stream::Tls(_));
    let shows_certificate = credentials.tls.is_some_and(|plan| plan.has_own_certificate);
    let advice = match error.code {
        CONNECTION_COUNT_EXCEEDED => return Error::Server { peer, error },
        INSECURE_TRANSPORT => format!(": use --{role}-tls-mode required, or a stricter mode"),
        ACCESS_DENIED if !is_tls => {
            format!(" (an account with REQUIRE SSL needs --{role}-tls-mode required or stricter)")
        }
        ACCESS_DENIED if !shows_certificate => {
            format!(" (an account with REQUIRE X509 needs --{role}-tls-cert and --{role}-tls-key)")
        }
        _ => String::new(),
    };
    Error::Login { peer, error, advice }
}

/// The plugin's dialogue. Invariant: `plugin` is the one that the server named last, and `scramble` its challenge.
/// `plugin` is `None` before the first.
struct Exchange<'a> {
    credentials: &'a Credentials<'a>,
    scramble: Vec<u8>,
    plugin: Option<AuthProc>,
}

impl Exchange<'_> {
    /// Starts a plugin with its challenge, and returns the answer to send; `None` if there is none.
    fn begin(&mut self, link: &Link, plugin: &AuthPlugin<'_>, challenge: &[u8]) -> Result<Option<Vec<u8>>> {
        let name = String::from_utf8_lossy(plugin.as_bytes()).into_owned();
        let refuse = |why: &str| Error::LoginMethod {
            peer: link.peer.clone(),
            why: format!("the server wants the authentication plugin '{name}', {why}"),
        };
        match plugin {
            AuthPlugin::MysqlClearPassword if !self.credentials.password.is_empty() => {
                self.check_password(link, Form::Clear)
                    .map_err(|why| refuse(&format!("which sends the password in the clear, {why}")))?;
            }
            AuthPlugin::MysqlOldPassword => {
                return Err(refuse("which is broken; give the account a password of another plugin"));
            }
            // Over TLS this plugin sends the password at once; otherwise it requests a key.
            AuthPlugin::Sha256Password if !self.credentials.password.is_empty() => self.check_full(link)?,
            _ => {}
        }
        self.plugin = Some(AuthProc::init(plugin).map_err(|_| refuse("which Spate does not know"))?);
        self.scramble = challenge.to_vec();
        self.run(link, challenge)
    }

    fn check_password(&self, link: &Link, form: Form) -> std::result::Result<(), String> {
        let channel = match self.credentials.tls {
            _ if link.stream.is_local() => Channel::Socket,
            Some(plan) if is_tls(link) => Channel::Tls(plan.proof()),
            _ => Channel::Plain,
        };
        password::check(form, channel, self.credentials.consent, link.peer.role())
    }

    /// Checks whether a server that requests the password itself may get it.
    fn check_full(&self, link: &Link) -> Result<()> {
        self.check_password(link, Form::ClearOrEncrypted).map_err(|why| Error::LoginMethod {
            peer: link.peer.clone(),
            why: format!("the server wants the password itself, {why}"),
        })
    }

    /// Says why a later login would fail: see [`Greeting::withheld`]. A server with `caching_sha2_password` accepts a
    /// hash until it restarts. Then it requests the password itself.
    fn explain_withheld(&self, link: &Link) -> Option<String> {
        let is_caching = matches!(self.plugin, Some(AuthProc::CachingSha2Password(_)));
        let is_withheld = is_caching && !self.credentials.password.is_empty();
        is_withheld.then(|| self.check_password(link, Form::ClearOrEncrypted).err()).flatten()
    }

    fn run(&mut self, link: &Link, challenge: &[u8]) -> Result<Option<Vec<u8>>> {
        let wants_password =
            matches!(self.plugin, Some(AuthProc::CachingSha2Password(_))) && challenge == PERFORM_FULL_AUTHENTICATION;
        if wants_password && !self.credentials.password.is_empty() {
            self.check_full(link)?;
        }
        let context = PluginContext {
            password: self.credentials.password.as_bytes(),
            scramble: &self.scramble,
            is_local: link.stream.is_local(),
            is_tls: is_tls(link),
            public_key: self.credentials.public_key,
        };
        let Some(plugin) = &mut self.plugin else {
            return Err(link.protocol("authentication data before an authentication plugin"));
        };
        // The parser of the server's RSA key indexes into the key without checks.
        let response = catch_unwind(AssertUnwindSafe(|| plugin.run(context, challenge)))
            .map_err(|_| link.protocol("the server's public key is malformed"))?
            .map_err(|error| link.protocol(format!("authentication: {error}")))?;
        Ok(match response {
            Response::Next { packet } | Response::Last { packet } => packet,
        })
    }

    /// Continues until the server accepts the login. Returns the text of its OK packet.
    fn finish(&mut self, link: &mut Link) -> Result<Vec<u8>> {
        for _ in 0..ROUNDS_MAX {
            let place = link.receive(STATUS_BYTES_MAX)?;
            let payload = link.payload(&place);
            let answer = match payload {
                [0x00, ..] => return Ok(ok_info(payload)),
                [0x01, challenge @ ..] => self.run(link, challenge)?,
                [0xfe] => self.begin(link, &AuthPlugin::MysqlOldPassword, &[])?,
                [0xfe, ..] => {
                    let request: AuthSwitchRequest<'_> = ParseBuf(payload)
                        .parse(())
                        .map_err(|error| link.protocol(format!("the switch request is malformed: {error}")))?;
                    self.begin(link, &request.auth_plugin(), request.plugin_data())?
                }
                _ => {
                    return Err(match parse_error(payload, 0) {
                        Some(error) => explain_refusal(link, self.credentials, error),
                        None => link.protocol("an unknown packet during the login"),
                    });
                }
            };
            if let Some(answer) = answer {
                reply(link, &answer)?;
            }
        }
        Err(link.protocol("the login does not end"))
    }

    /// Finds how the connection is protected. If the server must prove its identity by the password, checks that proof.
    fn check_protection(&self, link: &Link, info: &[u8], first_scramble: &[u8], version: &str) -> Result<Protection> {
        let (Some(plan), Stream::Tls(stream)) = (self.credentials.tls, &link.stream) else {
            return Ok(if link.stream.is_local() { Protection::Local } else { Protection::None });
        };
        let protection = Protection::Tls { version: tls::version(stream), proof: plan.proof() };
        if plan.proof() != Proof::Password {
            return Ok(protection);
        }
        let role = link.peer.role();
        let otherwise = format!(
            "name the authority of its certificate with --{role}-tls-ca (for a server that makes its certificates itself, a \
             copy of ca.pem from its data directory), or use --{role}-tls-mode required, which encrypts without asking who the \
             server is"
        );
        /// The byte before the hash.
        const MARK: u8 = 1;
        let (Some(hash), Some((&MARK, signature))) = (self.password_hash(link), info.split_first()) else {
            return Err(link.insecure(format!(
                "the server ({version}) cannot prove by the account's password that its certificate is its own, as MariaDB does \
                 from 11.4 on with mysql_native_password, ed25519 and parsec: {otherwise}"
            )));
        };
        let fingerprint = tls::fingerprint(stream);
        let is_signed = |scramble: &[u8]| verify_mariadb_shared_secret(signature, &hash, scramble, &fingerprint);
        match is_signed(first_scramble) || is_signed(&self.scramble) {
            true => Ok(protection),
            false => Err(link.insecure(format!(
                "the server's certificate is not signed with the account's password: somebody else answers, or TLS ends before \
                 the server, in a proxy. If the latter is as it should be, {otherwise}"
            ))),
        }
    }

    /// The server's hash of the password, with which it signs; `None` if the plugin has none, or if the password is
    /// empty: everyone knows an empty password.
    fn password_hash(&self, link: &Link) -> Option<Vec<u8>> {
        let plugin = self.plugin.as_ref().filter(|_| !self.credentials.password.is_empty())?;
        plugin.password_hash(PluginContext {
            password: self.credentials.password.as_bytes(),
            scramble: &self.scramble,
            is_local: link.stream.is_local(),
            is_tls: is_tls(link),
            public_key: None,
        })
    }
}

fn is_tls(link: &Link) -> bool {
    matches!(link.stream, Stream::Tls(_))
}

struct PluginContext<'a> {
    password: &'a [u8],
    scramble: &'a [u8],
    is_local: bool,
    is_tls: bool,
    public_key: Option<&'a [u8]>,
}

impl Context for PluginContext<'_> {
    fn pass(&self) -> &[u8] {
        self.password
    }

    fn is_ipc_transport(&self) -> bool {
        self.is_local
    }

    fn is_tls_transport(&self) -> bool {
        self.is_tls
    }

    fn scramble(&self) -> &[u8] {
        self.scramble
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        self.public_key
    }
}
