//! One SSH connection: handshake, host key, login, channels.
//!
//! russh does the protocol; what it leaves open is closed here: deadlines for the handshake, a
//! reason when the connection is lost, a bound on session channels.

use std::{
    borrow::Cow,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{Either, select};
use rand::Rng;
use russh::{
    Channel, ChannelOpenFailure, Disconnect, MethodSet, Preferred, cipher,
    client::{self, AuthResult, DisconnectReason, Msg},
    kex,
    keys::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey, PublicKeyOrCertificate},
    mac,
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    Dial, HostKeyVerdict, ShownKey, Trust,
    carrier::{self, Carries},
    error::{HostError, Phase, Place, Tried},
    guard::{self, Guarded, InUse, Link},
    known_hosts::fingerprint,
    login::{Identity, LoginError},
    retry,
    sessions::{Permit, Sessions},
    wire::{Heard, Owned},
};
use crate::{config::Login, model::printable};

/// TCP must be there after this.
const CONNECT: Duration = Duration::from_secs(10);
/// Each half of the handshake must be done after this.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(20);
/// A person who is asked about a key may take longer than sshd waits for a login (`LoginGraceTime`, 120 s by default,
/// often less): after this a new connection is made, on which the key is known.
const ASKED: Duration = Duration::from_secs(15);
/// The first channel must be open after this: before it sshd begins the session, for which it may ask a name server
/// or systemd-logind, with time-outs of 25 s each.
const BEGIN: Duration = Duration::from_secs(60);
/// A later channel must be open after this.
const OPEN: Duration = Duration::from_secs(20);
/// A login that takes longer is worth a word.
const SLOW: Duration = Duration::from_secs(8);
/// A peer that is silent is asked as often.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Without an answer it is dead; longer while its session begins.
const SILENCE: Duration = Duration::from_secs(20);
/// How often a session channel is asked for again before the refusal is believed.
const ASKED_AGAIN: u64 = 4;
/// Downloads over a long line are bound by this.
const WINDOW: u32 = 16 << 20;
/// A connection keeps a buffer of this size for as long as it lives: half of russh's default is 16 MiB less for 1000
/// nodes, and a download is not slower.
const PACKET: u32 = 16 << 10;

/// How many messages of a channel wait for who reads them. The channel's own pump does at once.
const BACKLOG: usize = 32;
/// More than a line to the other side of the earth and back.
const LONGEST_TRIP: Duration = Duration::from_secs(1);

/// A logged-in connection.
pub(super) struct Session {
    handle: client::Handle<Handler>,
    link: Link,
    in_use: Arc<InUse>,
    heard: Arc<Heard>,
    /// A channel was opened: the session has begun on the node.
    begun: Arc<AtomicBool>,
    /// sshd refused to forward to a port.
    forwards_nothing: AtomicBool,
    sessions: Sessions,
    at: Arc<Place>,
    trip: Duration,
    /// The host key that was verified.
    key: String,
}

impl Session {
    /// Dials, checks the host key and logs in. Retries transient failures, within a bound.
    pub(super) async fn connect(
        at: Place,
        login: &Login,
        keys: &Trust<'_>,
        dial: &dyn Dial,
    ) -> Result<Self, HostError> {
        let at = Arc::new(at);
        let mut failed = 0;
        loop {
            let heard = Arc::new(Heard::default());
            let error = match Self::attempt(&at, login, keys, dial, &heard).await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            let said = heard.said().unwrap_or_default();
            let Some(pause) = retry::pause(&error, &heard, failed) else {
                tracing::debug!(to = %at, %error, said, "no connection");
                return Err(error);
            };
            tracing::debug!(to = %at, %error, said, ?pause, "no connection; tried again");
            failed += 1;
            let jitter = rand::rng().random_range(0.9..1.2);
            tokio::time::sleep(pause.mul_f64(jitter)).await;
        }
    }

    async fn attempt(
        at: &Arc<Place>,
        login: &Login,
        keys: &Trust<'_>,
        dial: &dyn Dial,
        heard: &Arc<Heard>,
    ) -> Result<Self, HostError> {
        let unusable = |problem| HostError::Key {
            at: Arc::clone(at),
            key_source: login.key_source.clone(),
            problem,
        };
        let identity = Identity::of(&login.credential).await.map_err(unusable)?;
        let (begun, link, in_use, handle, key) = loop {
            let link = Link::default();
            // On every way out of here but the last the stream ends.
            let in_use = Arc::new(InUse(link.clone()));
            let begun = Instant::now();
            tracing::debug!(to = %at, user = login.user, "connecting");
            let shaking = handshake(at, keys, dial, link.clone(), heard).await;
            let shaken = shaking.inspect_err(|_| link.cut("given up".to_owned()))?;
            if let Some((handle, key)) = shaken {
                break (begun, link, in_use, handle, key);
            }
            link.cut("too old".to_owned());
        };
        let shaken = begun.elapsed();
        let version = heard.version();
        tracing::debug!(to = %at, ?shaken, version, "SSH session");
        let mut session = Self {
            handle,
            link,
            in_use,
            heard: Arc::clone(heard),
            begun: Arc::default(),
            forwards_nothing: AtomicBool::new(false),
            sessions: Sessions::new(),
            at: Arc::clone(at),
            // TCP, the identification strings, the key exchange; a person may have been asked meanwhile.
            trip: (shaken / 3).min(LONGEST_TRIP),
            key,
        };
        session.log_in(login, identity).await?;
        let has_begun = Arc::clone(&session.begun);
        guard::watch(session.link.clone(), Arc::clone(heard), has_begun, SILENCE);
        let took = begun.elapsed();
        tracing::debug!(to = %session.at, ?took, banner = heard.said(), "logged in");
        if took.saturating_sub(shaken) > SLOW {
            let seconds = took.as_secs();
            tracing::warn!(
                "the login on {at} took {seconds} s: {}",
                Phase::Login.cure()
            );
        }
        Ok(session)
    }

    /// About how long a question and its answer are under way.
    pub(super) const fn trip(&self) -> Duration {
        self.trip
    }

    /// The host key that was verified, as in `authorized_keys`.
    pub(super) fn host_key(&self) -> &str {
        &self.key
    }

    /// Where it leads.
    pub(super) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.at)
    }

    /// Where it is dialled.
    pub(super) fn address(&self) -> &str {
        &self.at.endpoint.address
    }

    /// True while a stream through it is open.
    pub(super) fn has_streams(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1
    }

    /// Why it is dead, if it is.
    pub(super) fn lost(&self) -> Option<HostError> {
        self.link.why().map(|why| HostError::Lost {
            at: self.place(),
            why: why.to_owned(),
        })
    }

    /// Resolves when it is dead.
    pub(super) async fn died(&self) -> HostError {
        let why = self.link.died().await;
        HostError::Lost {
            at: self.place(),
            why,
        }
    }

    /// For how long nothing has come from the other side.
    pub(super) fn silence(&self) -> Duration {
        self.heard
            .last()
            .map_or(Duration::ZERO, |last| last.elapsed())
    }

    async fn log_in(&mut self, login: &Login, identity: Identity) -> Result<(), HostError> {
        let mut tried = Tried::of(&identity);
        let limit = Identity::patience();
        let attempt = identity.log_in(&mut self.handle, &login.user, &mut tried);
        let result = timeout(limit, attempt)
            .await
            .map_err(|_| slow(&self.at, Phase::Login, limit, &self.heard))?;
        let key_source = login.key_source.clone();
        let hung_up = self.handle.is_closed();
        match result {
            Ok(AuthResult::Success) => Ok(()),
            Ok(AuthResult::Failure {
                remaining_methods,
                partial_success: true,
            }) => Err(HostError::LoginIncomplete {
                at: self.place(),
                key_source,
                methods: methods(&remaining_methods),
            }),
            Err(LoginError::Key(problem)) => Err(HostError::Key {
                at: self.place(),
                key_source,
                problem,
            }),
            // A server that hangs up looks like a refusal; after several keys, or with a word, it is one.
            Ok(AuthResult::Failure { .. }) | Err(LoginError::Ssh(_))
                if hung_up && tried.keys.len() <= 1 && self.heard.goodbye().is_none() =>
            {
                Err(self.hung_up())
            }
            Ok(AuthResult::Failure { .. }) => Err(HostError::LoginRefused {
                at: self.place(),
                key_source,
                tried,
                hung_up,
                said: self.heard.said(),
            }),
            Err(LoginError::Ssh(_)) if hung_up => Err(HostError::LoginRefused {
                at: self.place(),
                key_source,
                tried,
                hung_up,
                said: self.heard.said(),
            }),
            Err(LoginError::Ssh(source)) => {
                Err(self.lost().unwrap_or_else(|| HostError::Handshake {
                    at: self.place(),
                    said: self.heard.said(),
                    source: Box::new(source),
                }))
            }
        }
    }

    /// sshd ended the connection in the middle of the login, maybe with a word to people before.
    fn hung_up(&self) -> HostError {
        let why = match self.heard.said() {
            Some(said) => format!("sshd closed it during the login and said: {said}"),
            None => "sshd closed it during the login".to_owned(),
        };
        HostError::Lost {
            at: self.place(),
            why,
        }
    }

    /// A stream to a Unix socket of the node.
    pub(super) async fn socket(&self, path: &str) -> Result<Guarded, OpenError> {
        let opening = self.handle.channel_open_direct_streamlocal(path);
        self.stream(opening).await
    }

    /// A stream to a TCP port of the node.
    pub(super) async fn port(&self, port: u16) -> Result<Guarded, OpenError> {
        self.reach("127.0.0.1", port).await
    }

    /// The same of another machine, as the node reaches it; a program carries it where sshd forwards nothing.
    pub(super) async fn reach(&self, address: &str, port: u16) -> Result<Guarded, OpenError> {
        use ChannelOpenFailure::AdministrativelyProhibited;
        if !self.forwards_nothing.load(Ordering::Relaxed) {
            match self.tcp(address, port).await {
                Err(OpenError::Refused(AdministrativelyProhibited)) => {
                    self.forwards_nothing.store(true, Ordering::Relaxed);
                }
                other => return other,
            }
        }
        carrier::to_port(self, address, port).await
    }

    /// A stream from this machine to a port of another; the machine looks the name up.
    pub(super) async fn tcp(&self, address: &str, port: u16) -> Result<Guarded, OpenError> {
        let opening =
            self.handle
                .channel_open_direct_tcpip(address, u32::from(port), "127.0.0.1", 0);
        self.stream(opening).await
    }

    async fn stream(
        &self,
        opening: impl Future<Output = Result<Channel<Msg>, russh::Error>>,
    ) -> Result<Guarded, OpenError> {
        let channel = self.opened(opening).await?;
        Ok(Guarded::new(channel, Arc::clone(&self.in_use)))
    }

    async fn opened(
        &self,
        opening: impl Future<Output = Result<Channel<Msg>, russh::Error>>,
    ) -> Result<Channel<Msg>, OpenError> {
        let first = !self.begun.load(Ordering::Relaxed);
        let limit = if first { BEGIN } else { OPEN };
        let asked = Instant::now();
        let opened = tokio::select! {
            opened = timeout(limit, opening) => opened.map_err(|_| OpenError::Slow(limit))?,
            why = self.link.died() => return Err(OpenError::Lost(why)),
        };
        let took = asked.elapsed();
        if !self.begun.swap(true, Ordering::Relaxed) && took > SLOW {
            let (at, seconds) = (&self.at, took.as_secs());
            tracing::warn!(
                "{at} took {seconds} s to begin the session: {}",
                Phase::Session.cure()
            );
        }
        opened.map_err(|error| {
            if let russh::Error::ChannelOpenFailure(failure) = error {
                OpenError::Refused(failure)
            } else if let Some(why) = self.link.why() {
                OpenError::Lost(why.to_owned())
            } else {
                OpenError::Ssh(Arc::new(error))
            }
        })
    }

    /// A channel for a command, and what keeps others from being too many.
    pub(super) async fn command(&self) -> Result<(Channel<Msg>, Permit), OpenError> {
        self.session_channel(None).await
    }

    async fn session_channel(
        &self,
        what: Option<Carries>,
    ) -> Result<(Channel<Msg>, Permit), OpenError> {
        let mut permit = self.sessions.one().await?;
        let mut tries = 0;
        loop {
            let refused = match self.opened(self.handle.channel_open_session()).await {
                Err(refused @ OpenError::Refused(ChannelOpenFailure::ConnectFailed)) => refused,
                other => return Ok((other?, permit)),
            };
            if tries < ASKED_AGAIN {
                tries += 1;
                let wait = rand::rng().random_range(50..200) * tries;
                tokio::time::sleep(Duration::from_millis(wait)).await;
            } else if let Some(waited) = self.sessions.fewer(permit, what).await {
                permit = waited?;
                tries = 0;
            } else {
                return Err(refused);
            }
        }
    }

    /// A stream to what a program on the node does with its input and output.
    pub(super) async fn program(&self, what: Carries, command: &str) -> Result<Guarded, OpenError> {
        let one_of_few = self.sessions.of(what).await?;
        let (channel, permit) = self.session_channel(Some(what)).await?;
        let failed = |error| OpenError::Ssh(Arc::new(error));
        channel.exec(true, command).await.map_err(failed)?;
        let permits = vec![one_of_few, permit];
        Ok(Guarded::new(channel, Arc::clone(&self.in_use)).holding(permits))
    }

    /// Says goodbye. Dropping the last user of the connection closes it as well.
    pub(super) async fn close(&self) {
        let _ = timeout(
            Duration::from_secs(1),
            self.handle.disconnect(Disconnect::ByApplication, "", ""),
        )
        .await;
    }
}

/// As sshd names them.
fn methods(methods: &MethodSet) -> String {
    let names: Vec<&str> = methods.iter().map(Into::into).collect();
    printable(&names.join(", ")).into_owned()
}

/// Why a channel was not opened.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// sshd said no.
    #[error("sshd refused the channel ({0:?})")]
    Refused(ChannelOpenFailure),
    /// Streams through programs of the node would take more sessions than it allows at once.
    #[error("sshd allows {0} sessions at once")]
    FewSessions(usize),
    /// No answer.
    #[error("sshd did not open the channel in time")]
    Slow(Duration),
    /// The connection is gone.
    #[error("the SSH connection was lost: {0}")]
    Lost(String),
    /// Something else.
    #[error("the channel could not be opened")]
    Ssh(#[source] Arc<russh::Error>),
}

impl OpenError {
    /// For a reader.
    pub(super) fn at(self, at: Arc<Place>) -> HostError {
        match self {
            Self::Refused(failure) => HostError::Exec {
                at,
                source: Box::new(russh::Error::ChannelOpenFailure(failure)),
            },
            Self::FewSessions(allowed) => HostError::FewSessions { at, allowed },
            Self::Slow(limit) => HostError::Slow {
                at,
                phase: Phase::Session,
                limit,
                said: None,
            },
            Self::Lost(why) => HostError::Lost { at, why },
            Self::Ssh(error) => HostError::Lost {
                at,
                why: error.to_string(),
            },
        }
    }
}

fn slow(at: &Arc<Place>, phase: Phase, limit: Duration, heard: &Heard) -> HostError {
    HostError::Slow {
        at: Arc::clone(at),
        phase,
        limit,
        said: heard.said(),
    }
}

/// From TCP to an encrypted connection with a host that is trusted; `None` where that took a person so long that sshd
/// may not wait for the login any more.
async fn handshake(
    at: &Arc<Place>,
    keys: &Trust<'_>,
    dial: &dyn Dial,
    link: Link,
    heard: &Arc<Heard>,
) -> Result<Option<(client::Handle<Handler>, String)>, HostError> {
    let here = || Arc::clone(at);
    let stream = timeout(CONNECT, dial.dial(&at.endpoint))
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
        .map_err(|source| HostError::Unreachable { at: here(), source })?;
    let failed = |source: russh::Error| {
        if let russh::Error::NoCommonAlgo { kind, theirs, .. } = &source {
            return HostError::NoAlgorithm {
                at: here(),
                kind: format!("{kind:?}").to_lowercase(),
                theirs: printable(&theirs.join(", ")).into_owned(),
            };
        }
        HostError::Handshake {
            at: here(),
            said: heard.said(),
            source: Box::new(source),
        }
    };
    let slow = || {
        let silent = heard.version().is_none();
        let phase = if silent { Phase::Version } else { Phase::Keys };
        slow(at, phase, HANDSHAKE, heard)
    };

    let (ask, asked) = oneshot::channel();
    let stream = Owned::new(stream, link.clone(), Arc::clone(heard));
    let handler = Handler {
        link,
        heard: Arc::clone(heard),
        ask: Some(ask),
        trusted: None,
    };
    let config = Arc::new(config(
        &keys.known_algorithms(&at.endpoint),
        keys.has_authority(&at.endpoint),
    ));
    let mut connecting = pin!(client::connect_stream(config, stream, handler));
    // Until the server shows its key; a person who is asked about it may take their time.
    let question = match timeout(HANDSHAKE, select(&mut connecting, asked)).await {
        Err(_) => return Err(slow()),
        // It cannot end well before it has shown its key.
        Ok(Either::Left((ended, _))) => {
            return ended.and(Err(russh::Error::UnknownKey)).map_err(failed);
        }
        Ok(Either::Right((question, _))) => question,
    };
    let verified = match question {
        Ok(Question {
            key,
            certificate,
            answer,
        }) => {
            let asked = Instant::now();
            let text = verify(at, keys, &key, certificate).await?;
            if asked.elapsed() > ASKED {
                return Ok(None);
            }
            let _ = answer.send(true);
            Some(text)
        }
        Err(_) => None,
    };
    let handle = timeout(HANDSHAKE, connecting)
        .await
        .map_err(|_| slow())?
        .map_err(failed)?;
    match verified {
        Some(key) => Ok(Some((handle, key))),
        None => Err(failed(russh::Error::UnknownKey)),
    }
}

/// The key as `authorized_keys` has it, if it is trusted.
async fn verify(
    at: &Arc<Place>,
    keys: &Trust<'_>,
    key: &PublicKey,
    certificate: Option<Box<Certificate>>,
) -> Result<String, HostError> {
    let here = || Arc::clone(at);
    let mut bare = key.clone();
    bare.set_comment("");
    let text = bare.to_openssh().map_err(|error| HostError::Handshake {
        at: here(),
        said: None,
        source: Box::new(error.into()),
    })?;
    let shown = ShownKey {
        key: text,
        certificate,
    };
    let result = keys
        .keys
        .verify(&at.endpoint, &shown, keys.verified)
        .await
        .map_err(|source| HostError::HostKeys { at: here(), source })?;
    let text = shown.key;
    match result {
        HostKeyVerdict::Trusted | HostKeyVerdict::Unknown { accepted: true } => Ok(text),
        HostKeyVerdict::Unknown { accepted: false } => Err(HostError::HostKeyUnknown {
            at: here(),
            algorithm: key.algorithm().to_string(),
            fingerprint: fingerprint(&text).unwrap_or_default(),
        }),
        HostKeyVerdict::Changed { place } => Err(HostError::HostKeyChanged {
            at: here(),
            algorithm: key.algorithm().to_string(),
            fingerprint: fingerprint(&text).unwrap_or_default(),
            place,
        }),
    }
}

/// `certified`: the host is requested to show a certificate, if it has one.
fn config(known: &[String], certified: bool) -> client::Config {
    let order = host_key_order(known);
    let certificates = if certified { order.clone() } else { Vec::new() };
    client::Config {
        nodelay: true,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: 12,
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        channel_buffer_size: BACKLOG,
        preferred: Preferred {
            key: Cow::Owned(order),
            host_key_certificates: Cow::Owned(certificates),
            kex: Cow::Borrowed(KEY_EXCHANGES),
            cipher: Cow::Borrowed(CIPHERS),
            mac: Cow::Borrowed(MACS),
            ..Preferred::default()
        },
        ..client::Config::default()
    }
}

// The defaults of OpenSSH's client, as far as russh has them: a server that is restricted to NIST curves or to 128-bit
// ciphers (FIPS) then accepts rke-operator as it accepts `ssh`.
const KEY_EXCHANGES: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::DH_GEX_SHA256,
    kex::DH_G16_SHA512,
    kex::DH_G18_SHA512,
    kex::DH_G14_SHA256,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
];
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_128_GCM,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];
const MACS: &[mac::Name] = &[
    mac::HMAC_SHA256_ETM,
    mac::HMAC_SHA512_ETM,
    mac::HMAC_SHA256,
    mac::HMAC_SHA512,
    mac::HMAC_SHA1_ETM,
    mac::HMAC_SHA1,
];

/// Algorithms on record first: a server shows its key for the first of these algorithms that it has, and another type
/// than the one on record would look like an unknown key.
fn host_key_order(known: &[String]) -> Vec<Algorithm> {
    let mut order = vec![
        Algorithm::Ed25519,
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP384,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP521,
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha512),
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha256),
        },
    ];
    // Keys are recorded as `ssh-rsa`, whatever hash their signatures use.
    order.sort_by_key(|algorithm| {
        let recorded = if matches!(algorithm, Algorithm::Rsa { .. }) {
            "ssh-rsa"
        } else {
            algorithm.as_str()
        };
        !known.iter().any(|name| name == recorded)
    });
    order
}

/// The server's key, for the one who decides about it.
struct Question {
    key: PublicKey,
    certificate: Option<Box<Certificate>>,
    answer: oneshot::Sender<bool>,
}

/// What russh calls back.
struct Handler {
    link: Link,
    heard: Arc<Heard>,
    ask: Option<oneshot::Sender<Question>>,
    trusted: Option<PublicKey>,
}

impl client::Handler for Handler {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        // That of a certificate has signed the key exchange, too.
        let key = shown.public_key();
        let Some(ask) = self.ask.take() else {
            // A new key exchange of the same connection.
            return Ok(self.trusted.as_ref() == Some(&key));
        };
        let (answer, answered) = oneshot::channel();
        let question = Question {
            key: key.clone(),
            certificate: shown.certificate().cloned().map(Box::new),
            answer,
        };
        let trusted = ask.send(question).is_ok() && answered.await.unwrap_or(false);
        if trusted {
            self.trusted = Some(key);
        }
        Ok(trusted)
    }

    async fn auth_banner(
        &mut self,
        banner: &str,
        _: &mut client::Session,
    ) -> Result<(), Self::Error> {
        self.heard.add_banner(banner);
        Ok(())
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                self.heard.add_goodbye(&info.message);
                self.link.cut(printable(&info.message).into_owned());
                Ok(())
            }
            DisconnectReason::Error(error) => {
                self.link.cut(printable(&error.to_string()).into_owned());
                Err(error)
            }
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // On some ways out russh does not call `disconnected`.
        self.link.cut("closed".to_owned());
    }
}
