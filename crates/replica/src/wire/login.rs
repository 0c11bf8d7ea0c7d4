//! The handshake: the server greets, we answer, and an authentication plugin exchanges what it needs.
//!
//! The plugins are `mysql_common`'s. What is decided here is what is *not* done: a server gets a password in the clear, or
//! encrypted with a key that anyone could have sent, only over a Unix socket or if the caller asks for it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin, Context, Response};
use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse};
use mysql_common::proto::MySerialize;

use super::error::{Error, Result, ServerError};
use super::link::Link;
use super::result::parse_error;
use super::version::ServerVersion;

/// The largest packet that we say we take: the protocol's upper limit.
const PACKET_LENGTH_MAX: u32 = 1 << 30;
/// No plugin needs more exchanges; a server that goes on for ever is not one.
const ROUNDS_MAX: usize = 16;
/// caching_sha2_password: the server does not know the password's hash and wants the password itself.
const PERFORM_FULL_AUTHENTICATION: &[u8] = &[4];
const CONNECTION_COUNT_EXCEEDED: u16 = 1040;

/// Who logs in, and what may be done for it.
pub(super) struct Credentials<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    /// Accept an RSA key from the server over a connection that somebody could have redirected.
    pub(super) request_public_key: bool,
    /// Offer to send files for `LOAD DATA LOCAL`.
    pub(super) local_files: bool,
}

/// What the server said of itself.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) version: ServerVersion,
    pub(super) connection_id: u32,
    pub(super) deprecate_eof: bool,
}

/// Logs in over a new connection.
pub(super) fn log_in(link: &mut Link, credentials: &Credentials<'_>) -> Result<Greeting> {
    link.expect_sequence(Some(0));
    let place = link.receive()?;
    let payload = link.payload(&place);
    if let Some(error) = parse_error(payload, 0) {
        return Err(refused(link, error));
    }
    let handshake: HandshakePacket<'_> =
        ParseBuf(payload).parse(()).map_err(|error| link.protocol(format!("the greeting is malformed: {error}")))?;
    let handshake = handshake.into_owned();
    let capabilities = capabilities(link, &handshake, credentials.local_files)?;

    let offered = handshake.auth_plugin().unwrap_or(AuthPlugin::MysqlNativePassword).into_owned();
    let mut exchange = Exchange { credentials, scramble: handshake.nonce(), plugin: None };
    let plugin = match offered {
        known @ (AuthPlugin::MysqlNativePassword | AuthPlugin::CachingSha2Password) => known,
        // The account's own plugin follows in a switch request.
        _ => AuthPlugin::MysqlNativePassword,
    };
    let scramble = exchange.scramble.clone();
    let first = exchange.begin(link, &plugin, &scramble)?;
    let attributes = HashMap::from([
        ("program_name".to_owned(), "spate".to_owned()),
        ("_client_name".to_owned(), "spate".to_owned()),
        ("_client_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("_pid".to_owned(), std::process::id().to_string()),
    ]);
    let response = HandshakeResponse::new(
        Some(first.unwrap_or_default()),
        // Only says that the server knows utf8mb4; those that do not are not supported.
        (5, 5, 3),
        Some(credentials.user.as_bytes()),
        None::<Vec<u8>>,
        Some(plugin),
        capabilities,
        capabilities.contains(CapabilityFlags::CLIENT_CONNECT_ATTRS).then_some(attributes),
        PACKET_LENGTH_MAX,
    );
    let mut bytes = Vec::new();
    response.serialize(&mut bytes);
    reply(link, &bytes)?;
    exchange.finish(link)?;
    Ok(Greeting {
        version: ServerVersion::parse(&handshake.server_version_str()),
        connection_id: handshake.connection_id(),
        deprecate_eof: capabilities.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF),
    })
}

/// What we want, as far as the server can do it. Local files only on request: a server could ask for any.
fn capabilities(link: &Link, handshake: &HandshakePacket<'_>, local_files: bool) -> Result<CapabilityFlags> {
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
        // The first bit says "not MariaDB's own extensions" to MariaDB, so it is set whoever answers.
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

fn refused(link: &Link, error: ServerError) -> Error {
    match error.code {
        CONNECTION_COUNT_EXCEEDED => Error::Server { peer: link.peer.clone(), error },
        _ => Error::Login { peer: link.peer.clone(), error },
    }
}

/// The plugin's dialogue. Invariant: `plugin` is the one that the server named last, `scramble` its challenge.
struct Exchange<'a> {
    credentials: &'a Credentials<'a>,
    scramble: Vec<u8>,
    plugin: Option<AuthProc>,
}

impl Exchange<'_> {
    /// Starts a plugin with its challenge, and gives what to send.
    fn begin(&mut self, link: &Link, plugin: &AuthPlugin<'_>, challenge: &[u8]) -> Result<Option<Vec<u8>>> {
        let name = String::from_utf8_lossy(plugin.as_bytes()).into_owned();
        let refuse = |why: &str| Error::LoginMethod {
            peer: link.peer.clone(),
            why: format!("the server wants the authentication plugin '{name}', {why}"),
        };
        match plugin {
            AuthPlugin::MysqlClearPassword if !link.stream.is_local() => {
                return Err(refuse("which sends the password in the clear; use a Unix socket or another plugin"));
            }
            AuthPlugin::MysqlOldPassword => {
                return Err(refuse("which is broken; give the account a password of today's form"));
            }
            AuthPlugin::Sha256Password if !self.credentials.request_public_key => {
                return Err(refuse("which Spate does not use over this connection; use caching_sha2_password"));
            }
            _ => {}
        }
        self.plugin = Some(AuthProc::init(plugin).map_err(|_| refuse("which Spate does not know"))?);
        self.scramble = challenge.to_vec();
        self.run(link, challenge)
    }

    fn run(&mut self, link: &Link, challenge: &[u8]) -> Result<Option<Vec<u8>>> {
        let context = PluginContext {
            password: self.credentials.password.as_bytes(),
            scramble: &self.scramble,
            is_local: link.stream.is_local(),
        };
        let Some(plugin) = &mut self.plugin else {
            return Err(link.protocol("authentication data before an authentication plugin"));
        };
        if matches!(plugin, AuthProc::CachingSha2Password(_))
            && challenge == PERFORM_FULL_AUTHENTICATION
            && !link.stream.is_local()
            && !self.credentials.request_public_key
        {
            let why = "the server does not have the password's hash in its cache and wants the password itself; connect over \
                       a Unix socket once, or allow to ask it for its public key";
            return Err(Error::LoginMethod { peer: link.peer.clone(), why: why.to_owned() });
        }
        // The parser of the server's RSA key indexes into the key without checks.
        let response = catch_unwind(AssertUnwindSafe(|| plugin.run(context, challenge)))
            .map_err(|_| link.protocol("the server's public key is malformed"))?
            .map_err(|error| link.protocol(format!("authentication: {error}")))?;
        Ok(match response {
            Response::Next { packet } | Response::Last { packet } => packet,
        })
    }

    /// Goes on until the server is content.
    fn finish(&mut self, link: &mut Link) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let place = link.receive()?;
            let payload = link.payload(&place);
            let answer = match payload {
                [0x00, ..] => return Ok(()),
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
                        Some(error) => refused(link, error),
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
}

struct PluginContext<'a> {
    password: &'a [u8],
    scramble: &'a [u8],
    is_local: bool,
}

impl Context for PluginContext<'_> {
    fn pass(&self) -> &[u8] {
        self.password
    }

    fn is_ipc_transport(&self) -> bool {
        self.is_local
    }

    fn is_tls_transport(&self) -> bool {
        false
    }

    fn scramble(&self) -> &[u8] {
        self.scramble
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}
