//! One machine, connected.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use bollard::{Docker, errors::Error as DockerError};
use russh::ChannelOpenFailure;
use tokio::sync::OnceCell;

use super::{
    Dial, HostKeys, Stream, Trust,
    carrier::Rights,
    docker::{self, ApiVersion},
    error::{Hop, HostError, Place},
    exec::{self, ExecOutput},
    ssh::{OpenError, Session},
};
use crate::{
    config::Login,
    facts::{DockerFacts, ReachedBy},
    model::{Endpoint, NodeName, printable},
};

/// A node: one SSH connection, and through it Docker, commands and ports.
pub struct Host {
    /// Its name.
    pub name: NodeName,
    pub(super) session: Arc<Session>,
    docker: Docker,
    api: Arc<OnceCell<ApiVersion>>,
    way: Arc<OnceCell<docker::Way>>,
    socket: String,
    pub(super) bastion_keys: Vec<String>,
    /// The round trips from here to the bastion hosts on the way, in the same order.
    pub(super) bastion_trips: Vec<Duration>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A node that is dialled from here.
pub(super) fn direct(name: &NodeName, endpoint: &Endpoint, login: &Login) -> Place {
    Place {
        node: name.clone(),
        endpoint: endpoint.clone(),
        user: login.user.clone(),
        hop: Hop::Direct,
    }
}

impl Host {
    /// Connects and logs in: one SSH connection. Docker is dialled when it is first used.
    pub async fn connect(
        name: &NodeName,
        endpoint: &Endpoint,
        login: &Login,
        keys: &dyn HostKeys,
        dial: &dyn Dial,
    ) -> Result<Self, HostError> {
        let keys = Trust {
            keys,
            verified: &[],
        };
        Self::connect_at(direct(name, endpoint, login), login, &keys, dial).await
    }

    /// As [`Self::connect`], where the way to it may lead through a bastion host.
    pub(super) async fn connect_at(
        at: Place,
        login: &Login,
        keys: &Trust<'_>,
        dial: &dyn Dial,
    ) -> Result<Self, HostError> {
        let name = at.node.clone();
        let session = Arc::new(Session::connect(at, login, keys, dial).await?);
        let client = docker::client(Arc::clone(&session), &login.docker_socket);
        let docker::Client { docker, api, way } = client.map_err(|source| HostError::DockerIo {
            at: session.place(),
            doing: "make a Docker client".to_owned(),
            source: Box::new(source),
        })?;
        Ok(Self {
            name,
            session,
            docker,
            api,
            way,
            socket: login.docker_socket.clone(),
            bastion_keys: Vec::new(),
            bastion_trips: Vec::new(),
        })
    }

    /// The Docker client, for what the methods here do not cover.
    pub const fn docker(&self) -> &Docker {
        &self.docker
    }

    /// The address or name at which it is dialled.
    pub fn address(&self) -> &str {
        self.session.address()
    }

    /// About how long a question and its answer are under way.
    pub fn trip(&self) -> Duration {
        self.session.trip()
    }

    /// As [`Self::trip`], to each bastion host on the way, in the order in which they are passed.
    pub fn bastion_trips(&self) -> &[Duration] {
        &self.bastion_trips
    }

    /// The key by which its sshd was verified, as in `authorized_keys`.
    pub fn host_key(&self) -> &str {
        self.session.host_key()
    }

    /// Host keys of the bastion hosts through which it was reached, starting with the one that is dialled from here.
    pub fn bastion_keys(&self) -> &[String] {
        &self.bastion_keys
    }

    /// False once the connection was lost; this host is of no use then.
    pub fn is_alive(&self) -> bool {
        self.session.lost().is_none()
    }

    /// True while a stream through it is open, also one that is only kept for the next request.
    pub(super) fn is_used(&self) -> bool {
        self.session.has_streams()
    }

    /// Why the SSH connection is gone, once it is.
    pub fn lost(&self) -> Option<HostError> {
        self.session.lost()
    }

    /// The error for the output of a command that is not what the command was to write.
    pub fn half_an_answer(&self, output: &str) -> HostError {
        let end: String = output.trim().chars().rev().take(500).collect();
        HostError::HalfAnAnswer {
            at: self.session.place(),
            output: printable(&end.chars().rev().collect::<String>()).into_owned(),
        }
    }

    /// An error where a node lists more than it can have.
    pub(super) fn at_most(
        &self,
        most: usize,
        has: usize,
        what: &'static str,
    ) -> Result<(), HostError> {
        if has <= most {
            return Ok(());
        }
        Err(HostError::TooMany {
            at: self.session.place(),
            what,
            has,
            most,
        })
    }

    /// Says goodbye to sshd. Dropping the host closes the connection as well.
    pub async fn close(&self) {
        self.session.close().await;
    }

    /// Runs a script with the node's `sh`, as the user who logged in. A status other than 0 is
    /// not an error. The script goes over standard input, so it is not on any command line and
    /// the login shell does not read it; commands in it read nothing. It is ended on the node
    /// after `limit`, because sshd would let it live. What a login shell's own files print is not
    /// part of the output.
    pub async fn exec(&self, script: &str, limit: Duration) -> Result<ExecOutput, HostError> {
        self.exec_with(script, &[], limit).await
    }

    /// As [`Self::exec`], with arguments (`$1` …): data is handed over here and never put into a
    /// script.
    pub async fn exec_with(
        &self,
        script: &str,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<ExecOutput, HostError> {
        exec::run(&self.session, script, arguments, limit).await
    }

    /// A stream to a port on the node's loopback address.
    pub async fn local_port(&self, port: u16) -> Result<Box<dyn Stream>, HostError> {
        let at = self.session.place();
        match self.session.port(port).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(OpenError::Refused(ChannelOpenFailure::AdministrativelyProhibited)) => {
                Err(HostError::PortForbidden { at, port })
            }
            Err(OpenError::Refused(_)) => Err(HostError::PortClosed { at, port }),
            Err(error) => Err(error.at(at)),
        }
    }

    /// A stream from the node to a port of another machine; the node looks the name up.
    pub async fn remote_port(&self, to: &str, port: u16) -> Result<Box<dyn Stream>, HostError> {
        let at = self.session.place();
        match self.session.reach(to, port).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(OpenError::Refused(failure)) => Err(HostError::NotReached {
                at,
                to: format!("{to}:{port}"),
                forbidden: failure == ChannelOpenFailure::AdministrativelyProhibited,
            }),
            Err(error) => Err(error.at(at)),
        }
    }

    /// False when sshd refuses to forward to ports of the node. Nothing needs to listen there.
    pub async fn forwards_to_ports(&self) -> Result<bool, HostError> {
        const DISCARD: u16 = 9;
        match self.local_port(DISCARD).await {
            Err(HostError::PortForbidden { .. }) => Ok(false),
            Ok(_) | Err(HostError::PortClosed { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What Docker reports about itself. Whether it bounds `json-file` logs is only in its configuration files.
    pub async fn docker_facts(&self) -> Result<DockerFacts, HostError> {
        let info = self.docker.info().await;
        let info = self.done("read Docker's settings", info).await?;
        let log_driver = info.logging_driver.unwrap_or_default();
        let logs_bounded = log_driver != "json-file";
        let proxy = (
            info.http_proxy.unwrap_or_default(),
            info.https_proxy.unwrap_or_default(),
            info.no_proxy.unwrap_or_default(),
        );
        let has_proxy = !proxy.0.is_empty() || !proxy.1.is_empty();
        let registries = info.registry_config.unwrap_or_default();
        let insecure = registries.index_configs.unwrap_or_default().into_iter();
        let insecure = insecure.filter(|(_, index)| index.secure == Some(false));
        let mut insecure: Vec<String> = insecure.map(|(name, _)| name).collect();
        insecure.sort();
        Ok(DockerFacts {
            reached: match self.way.get() {
                Some(docker::Way::Carried(Rights::Own)) => ReachedBy::Program,
                Some(docker::Way::Carried(Rights::Sudo)) => ReachedBy::Sudo,
                Some(docker::Way::Forwarded) | None => ReachedBy::Socket,
            },
            mirrors: registries.mirrors.unwrap_or_default(),
            insecure_registries: insecure,
            version: info.server_version.unwrap_or_default(),
            api_version: self.api.get().map(ToString::to_string).unwrap_or_default(),
            root_dir: info.docker_root_dir.unwrap_or_default(),
            storage_driver: info.driver.unwrap_or_default(),
            cgroup_driver: info
                .cgroup_driver
                .map(|driver| driver.to_string())
                .unwrap_or_default(),
            // Docker before 20.10 does not say, and knows only version 1.
            cgroup_version: info
                .cgroup_version
                .and_then(|version| version.to_string().parse().ok())
                .unwrap_or(1),
            security_options: info.security_options.unwrap_or_default(),
            log_driver,
            logs_bounded,
            default_runtime: info.default_runtime.unwrap_or_default(),
            proxy: has_proxy.then_some(proxy),
            architecture: info.architecture.unwrap_or_default(),
            processors: info.ncpu.and_then(|n| n.try_into().ok()).unwrap_or(0),
            memory: info.mem_total.and_then(|n| n.try_into().ok()).unwrap_or(0),
            lacking_cgroups: (info.memory_limit == Some(false))
                .then(|| "memory".to_owned())
                .into_iter()
                .collect(),
        })
    }

    /// Explains the error of a request.
    pub(super) async fn done<T>(
        &self,
        doing: impl Into<String> + Send,
        result: Result<T, DockerError>,
    ) -> Result<T, HostError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                Err(docker::explain(&self.session, &self.socket, doing.into(), error).await)
            }
        }
    }

    /// After a failed write: the first of these paths whose file system is full, if one is. Docker
    /// tells a full disk only in words.
    pub(super) async fn full(&self, paths: &BTreeSet<&str>) -> Option<String> {
        let script = "for p; do
  d=$p; while [ ! -d \"$d\" ] && [ \"$d\" != / ]; do d=$(dirname \"$d\"); done
  echo \"$(stat -f -c '%a %S' \"$d\") $p\"
done
exit 0";
        let paths: Vec<&str> = paths.iter().copied().collect();
        let limit = Duration::from_secs(20);
        let output = self.exec_with(script, &paths, limit).await.ok()?;
        output.stdout.lines().find_map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut number = || words.next()?.parse::<u64>().ok();
            let (blocks, size) = (number()?, number()?);
            let path = words.next()?;
            (blocks.saturating_mul(size) < FULL).then(|| path.to_owned())
        })
    }
}

/// Fewer free bytes than this is full.
const FULL: u64 = 1 << 20;
