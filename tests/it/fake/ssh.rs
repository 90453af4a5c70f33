//! sshd, as far as the product uses it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rke_operator::{host::Stream, model::Endpoint};
use russh::{
    Channel, ChannelId, ChannelMsg, ChannelOpenFailure, MethodKind, Preferred, cipher, kex,
    keys::Certificate,
    mac,
    server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey},
};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;

use super::{Access, Carrier, FakeHost, Faults, Said, docker, lock};

/// sshd's default.
const MAX_SESSIONS: usize = 10;

pub(super) async fn serve(host: FakeHost, stream: DuplexStream, cut: CancellationToken) {
    let config = server::Config {
        auth_rejection_time: Duration::ZERO,
        keys: vec![lock(&host.0.host_key).clone()],
        certificates: lock(&host.0.certificate).iter().cloned().collect(),
        nodelay: true,
        preferred: preferred(host.fault().only_kex),
        ..server::Config::default()
    };
    let handler = Handler {
        host,
        cut: cut.clone(),
        sessions: BTreeMap::new(),
        open: Arc::default(),
    };
    let session = async {
        if let Ok(running) = server::run_stream(Arc::new(config), stream, handler).await {
            let _ = running.await;
        }
    };
    tokio::select! {
        () = session => {}
        () = cut.cancelled() => {}
    }
}

fn preferred(only: Option<kex::Name>) -> Preferred {
    let Some(only) = only else {
        return Preferred::default();
    };
    Preferred {
        kex: vec![only].into(),
        cipher: vec![cipher::AES_128_CTR].into(),
        mac: vec![mac::HMAC_SHA256].into(),
        ..Preferred::default()
    }
}

struct Handler {
    host: FakeHost,
    cut: CancellationToken,
    sessions: BTreeMap<ChannelId, Channel<Msg>>,
    open: Arc<Mutex<usize>>,
}

impl Handler {
    /// What sshd waits for before its first channel; meanwhile it answers nothing.
    async fn begin(&self) {
        if let Some(slow) = self.host.fault().slow_session {
            self.host.faults(|faults| faults.slow_session = None);
            tokio::time::sleep(slow).await;
        }
    }
}

impl server::Handler for Handler {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, Self::Error> {
        Ok(self.host.fault().hang_up.map(str::to_owned))
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        let known = self.host.0.login_key.public_key().key_data();
        let fault = self.host.fault();
        if fault.hang_up.is_some() {
            return Err(russh::Error::Disconnect);
        }
        let right = user == self.host.0.user
            && key.public_key.key_data() == known
            && !fault.only_certificates;
        if right && fault.second_factor {
            Ok(Auth::Reject {
                proceed_with_methods: Some((&[MethodKind::KeyboardInteractive][..]).into()),
                partial_success: true,
            })
        } else if right && !fault.refuse_auth {
            Ok(Auth::Accept)
        } else {
            Ok(Auth::reject())
        }
    }

    async fn auth_openssh_certificate(
        &mut self,
        user: &str,
        certificate: &Certificate,
    ) -> Result<Auth, Self::Error> {
        let named = |name: &String| name == user;
        let trusted = !self.host.fault().no_certificates;
        if trusted && user == self.host.0.user && certificate.valid_principals().iter().any(named) {
            Ok(Auth::Accept)
        } else {
            Ok(Auth::reject())
        }
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.begin().await;
        if *lock(&self.open) >= self.host.fault().max_sessions.unwrap_or(MAX_SESSIONS) {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        }
        *lock(&self.open) += 1;
        self.sessions.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let command = String::from_utf8_lossy(command).into_owned();
        let Some(channel) = self.sessions.remove(&id) else {
            return session.channel_failure(id);
        };
        if self.host.fault().refuse_exec {
            *lock(&self.open) -= 1;
            return session.channel_failure(id);
        }
        session.channel_success(id)?;
        let open = Arc::clone(&self.open);
        if command.contains("system dial-stdio") || command.contains("/dev/tcp/") {
            let cut = self.cut.clone();
            tokio::spawn(carry(self.host.clone(), channel, command, open, cut));
            return Ok(());
        }
        tokio::spawn(execute(self.host.clone(), channel, command, open));
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.begin().await;
        let reachable = self.host.fault().access == Access::Open && path == "/var/run/docker.sock";
        if !reachable {
            // sshd gives this one code for every reason.
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        }
        reply.accept().await;
        if let Some(status) = self.host.fault().endless {
            tokio::spawn(pour(self.host.clone(), channel.into_stream(), status));
            return Ok(());
        }
        let io = TokioIo::new(channel.into_stream());
        tokio::spawn(docker::serve(self.host.clone(), io, self.cut.clone()));
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        address: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        let fault = self.host.fault();
        if fault.access == Access::NoForwarding || fault.no_ports {
            reply
                .reject(ChannelOpenFailure::AdministrativelyProhibited)
                .await;
            return Ok(());
        }
        self.host.0.forwarded.fetch_add(1, Ordering::Relaxed);
        let beyond = u16::try_from(port).ok().and_then(|port| {
            let address = address.to_owned();
            let net = lock(&self.host.0.net);
            net.0.get(&Endpoint { address, port }).cloned()
        });
        if let Some(machine) = beyond {
            reply.accept().await;
            machine.serve(channel.into_stream());
            return Ok(());
        }
        let handler = u16::try_from(port)
            .ok()
            .filter(|_| address == "127.0.0.1")
            .and_then(|port| self.host.port(port));
        let Some(handler) = handler else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        };
        reply.accept().await;
        tokio::spawn(handler(Box::new(channel.into_stream())));
        Ok(())
    }
}

/// A program that carries a stream, after what a login shell prints.
async fn carry(
    host: FakeHost,
    channel: Channel<Msg>,
    command: String,
    open: Arc<Mutex<usize>>,
    cut: CancellationToken,
) {
    let mut stream = channel.into_stream();
    let fault = host.fault();
    let says = |what: &str| format!("{}@@rke-operator {what}\n", fault.greeting);
    let lacks = fault.carrier == Carrier::Absent;
    let to_docker = command.contains("system dial-stdio");
    let by_sudo = command.contains("sudo -n docker");
    let port = command.rsplit(' ').next().and_then(|word| {
        let word = word.split_whitespace().next()?;
        word.parse::<u16>().ok()
    });
    let port = port.or_else(|| {
        let (_, rest) = command.rsplit_once("127.0.0.1")?;
        let digits = rest.chars().skip_while(|c| !c.is_ascii_digit());
        let digits: String = digits.take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    let handler = port.filter(|_| !to_docker).and_then(|port| host.port(port));
    if to_docker && by_sudo == (fault.carrier == Carrier::Sudo) && !lacks {
        let _ = stream.write_all(says("begin").as_bytes()).await;
        docker::serve(host, TokioIo::new(stream), cut).await;
    } else if let Some(handler) = handler.filter(|_| !lacks) {
        let _ = stream.write_all(says("begin").as_bytes()).await;
        handler(Box::new(stream)).await;
    } else {
        let word = if lacks { "lacking" } else { "closed" };
        let _ = stream.write_all(says(word).as_bytes()).await;
        let _ = stream.shutdown().await;
    }
    *lock(&open) -= 1;
}

/// A Docker whose answers have no end.
async fn pour(host: FakeHost, stream: impl Stream + 'static, status: u16) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    let head = format!(
        "HTTP/1.1 {status} Whatever\r\nApi-Version: 1.47\r\nContent-Type: application/json\r\n\
         Content-Length: 99999999999\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    while writer.write_all(&bytes).await.is_ok() {
        host.0.poured.fetch_add(bytes.len(), Ordering::Relaxed);
        bytes = vec![b' '; 32 << 10];
    }
}

/// Reads the script to its end, then answers. The product runs `timeout … sh -s`.
async fn execute(
    host: FakeHost,
    mut channel: Channel<Msg>,
    command: String,
    open: Arc<Mutex<usize>>,
) {
    let mut script = Vec::new();
    while let Some(message) = channel.wait().await {
        if let ChannelMsg::Data { data } = message {
            script.extend_from_slice(&data);
        } else if let ChannelMsg::Eof | ChannelMsg::Close = message {
            break;
        }
    }
    let script = format!("{command}\n{}", String::from_utf8_lossy(&script));
    lock(&host.0.executed).push(script.clone());
    let Said {
        status,
        stdout,
        stderr,
    } = answer(&host, &script);
    let fault = host.fault();
    if fault.shell_hangs {
        std::future::pending::<()>().await;
    }
    if let Some((text, status)) = fault.shell_instead {
        let _ = channel.data_bytes(text.into_bytes()).await;
        let _ = channel.exit_status(status).await;
        let _ = channel.eof().await;
        let _ = channel.close().await;
        *lock(&open) -= 1;
        return;
    }
    // As the product's script itself would say first.
    let begin = "@@rke-operator begin\n";
    let stdout = if script.contains(begin.trim()) {
        format!("{}{begin}{stdout}", host.fault().greeting)
    } else {
        stdout
    };
    let _ = channel.data_bytes(stdout.into_bytes()).await;
    let _ = channel.extended_data_bytes(1, stderr.into_bytes()).await;
    let _ = channel.exit_status(status).await;
    let _ = channel.eof().await;
    let _ = channel.close().await;
    *lock(&open) -= 1;
}

fn answer(host: &FakeHost, script: &str) -> Said {
    let told = lock(&host.0.commands)
        .iter()
        .rev()
        .find(|(needle, _)| script.contains(needle.as_str()))
        .map(|(_, answer)| Arc::clone(answer));
    if let Some(told) = told {
        return told(script);
    }
    if script.contains("sudo -n docker -H") {
        return Said::out(match host.fault().carrier {
            Carrier::Absent => "",
            Carrier::User => "own\n",
            Carrier::Sudo => "sudo\n",
        });
    }
    if script.contains("echo socket=yes") {
        return Said::out(diagnosis(&host.fault()));
    }
    if script.contains("stat -f -c") {
        return Said::out(free(script, host.fault().disk_full));
    }
    Said::default()
}

/// What the product's questions about Docker's socket get on such a node.
fn diagnosis(fault: &Faults) -> &'static str {
    match fault.access {
        Access::NoForwarding if fault.carrier == Carrier::Absent => {
            "user=rke\nsocket=yes\naccess=yes\n"
        }
        Access::Open | Access::NoForwarding => {
            "user=rke\nsocket=yes\naccess=yes\ndocker=yes\nanswers=yes\n"
        }
        Access::NoDocker => "user=rke\n",
        Access::NotRunning => "user=rke\ndocker=yes\n",
        Access::Denied => "user=rke\nsocket=yes\ndocker=yes\n",
        Access::SudoOnly => "user=rke\nsocket=yes\ndocker=yes\nsudo=yes\n",
    }
}

/// Free blocks, their size and the path, for each argument.
fn free(script: &str, full: bool) -> String {
    let blocks = if full { 0 } else { 1_000_000 };
    let list = script
        .split_once("set -- ")
        .and_then(|(_, rest)| rest.split_once('\n'))
        .map_or("", |(list, _)| list);
    let paths = list.split('\'').filter(|path| path.starts_with('/'));
    paths.fold(String::new(), |said, path| {
        said + &format!("{blocks} 4096 {path}\n")
    })
}
