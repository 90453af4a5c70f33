//! The command line: what it takes, with RKE's words where RKE had one. Declares, does nothing.

use std::{
    ffi::OsString,
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{
    ArgAction, Args, Parser, Subcommand, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser as _},
};

use crate::{
    etcd::snapshot::SnapshotName,
    model::{ClusterId, NodeName},
};

/// Kubernetes out of Docker containers, over SSH, from one `cluster.yml`
#[derive(Debug, Parser)]
#[command(
    name = "rke-operator",
    version = concat!("version v", env!("CARGO_PKG_VERSION")),
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done or nothing to do · 1 the config, a flag or a key path is wrong, or \
                  consent was not given · 2 a node or the network, worth another try · 3 done, except on \
                  nodes that did not answer or failed, or on which something waits; of `status`: something is not well · 70 a bug of ours · 130 stopped by Ctrl-C or SIGTERM"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Logs every request to stderr
    #[arg(short, long, global = true)]
    pub debug: bool,
    /// Shows warnings and errors only
    #[arg(short, long, global = true, conflicts_with = "debug")]
    pub quiet: bool,
    /// Shows no status line, as when the output is piped
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Prints the version
    #[arg(short, long, action = ArgAction::Version)]
    pub version: Option<bool>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Creates or updates the cluster; a second run changes nothing
    Up(Up),
    /// Shows what `up` would do, and why; writes nothing anywhere
    Plan(Plan),
    /// Says what is wrong with the config; with `--connect` also what on the nodes prevents `up`.
    /// Writes nothing anywhere
    Validate(Validate),
    /// Writes a `cluster.yml` to begin with, and explains its keys
    Config(ConfigArgs),
    /// Shows how the cluster is and what differs from the config; writes nothing anywhere
    Status(Status),
    /// Prints the administrator's kubeconfig, made anew from the state; contacts no node
    Kubeconfig(Kubeconfig),
    /// What concerns etcd's data
    #[command(subcommand)]
    Etcd(Etcd),
    /// What concerns the cluster's certificates
    #[command(subcommand)]
    Cert(Cert),
    /// Removes the cluster and restores every node to what it was before
    Remove(Remove),
    /// Prints our version, and the cluster's if its kubeconfig is beside the config
    Version(Version),
    /// Prints the custom resource definitions, for `kubectl apply -f -`
    Crd,
    /// Runs the operator: clusters as objects of the Kubernetes that the kubeconfig names
    Run(Run),
    /// Writes the reference pages of the documentation
    #[command(hide = true)]
    Reference(Reference),
}

/// The config, where nothing else is said.
const CONFIG_FILE: &str = "cluster.yml";

/// An empty name is none: CI sets a variable that has no value to it.
fn named(text: OsString) -> PathBuf {
    if text.is_empty() {
        CONFIG_FILE.into()
    } else {
        text.into()
    }
}

/// The file that is read: `cluster.yaml` where there is no `cluster.yml`.
fn config_file(text: OsString) -> PathBuf {
    let file = named(text);
    let other = Path::new("cluster.yaml");
    if file == Path::new(CONFIG_FILE) && !file.exists() && other.exists() {
        other.to_owned()
    } else {
        file
    }
}

/// The config and how to reach its nodes.
#[derive(Args, Clone, Debug)]
pub struct Config {
    /// The cluster's config
    #[arg(
        long,
        env = "RKE_CONFIG",
        default_value = CONFIG_FILE,
        value_name = "FILE",
        value_parser = OsStringValueParser::new().map(config_file)
    )]
    pub config: PathBuf,
}

/// Which host keys are accepted.
#[derive(Args, Clone, Debug)]
pub struct Trust {
    /// Takes host keys that are not in `known_hosts` yet, and records them; a changed key is
    /// refused all the same
    #[arg(long)]
    pub accept_new_host_keys: bool,
}

/// Certificates that a person made.
#[derive(Args, Clone, Debug)]
pub struct Certs {
    /// Uses the certificates in `--cert-dir`, which you made, and makes only those that are not there
    #[arg(long)]
    pub custom_certs: bool,
    /// The folder of those certificates; without it `<config>_certs` beside the config, without the config's ending
    #[arg(long, value_name = "DIR", requires = "custom_certs")]
    pub cert_dir: Option<PathBuf>,
}

/// `up`.
#[derive(Args, Debug)]
pub struct Up {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Gives consent to steps that disrupt what runs on a node
    #[arg(short, long)]
    pub yes: bool,
    /// Reads the keys of the cluster with this id back from its nodes when the state file is lost
    #[arg(long, value_name = "ID")]
    pub recover: Option<ClusterId>,
    /// Gives up this node, which is gone for good: its member of etcd and its Node object are removed
    /// without it; may be given several times
    #[arg(long, value_name = "NODE")]
    pub lose: Vec<NodeName>,
    /// Cleans this node, which is no longer in the config, although another Kubernetes is on it: that is
    /// deleted too; may be given several times
    #[arg(long, value_name = "NODE")]
    pub clean: Vec<NodeName>,
    /// Certificates.
    #[command(flatten)]
    pub certs: Certs,
    /// Progress as lines on stderr, or as one JSON object a line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `plan`.
#[derive(Args, Debug)]
pub struct Plan {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Takes host keys that are not in `known_hosts` yet, for this once: they are not recorded
    #[arg(long)]
    pub accept_new_host_keys: bool,
    /// Plans as `up --recover` would
    #[arg(long, value_name = "ID")]
    pub recover: Option<ClusterId>,
    /// Plans as `up --lose` would, and lists what goes with the node
    #[arg(long, value_name = "NODE")]
    pub lose: Vec<NodeName>,
    /// Plans as `up --clean` would, and lists what is deleted on the node
    #[arg(long, value_name = "NODE")]
    pub clean: Vec<NodeName>,
    /// Plans as `remove` would, instead of `up`
    #[arg(long, conflicts_with = "recover")]
    pub remove: bool,
    /// Certificates.
    #[command(flatten)]
    pub certs: Certs,
    /// Also show every node, file and digest (the JSON always has them)
    #[arg(long)]
    pub full: bool,
    /// The plan as text, or as one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `validate`.
#[derive(Args, Debug)]
pub struct Validate {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Logs in to the nodes and reads what is there, as `plan` does
    #[arg(long)]
    pub connect: bool,
    /// Takes host keys that are not in `known_hosts` yet, for this once: they are not recorded
    #[arg(long, requires = "connect")]
    pub accept_new_host_keys: bool,
    /// Text, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `config`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "RKE's flags")]
pub struct ConfigArgs {
    /// The file that is written; one that is there is replaced only if you say so
    #[arg(
        short,
        long,
        env = "RKE_CONFIG",
        default_value = CONFIG_FILE,
        value_name = "FILE",
        value_parser = OsStringValueParser::new().map(named)
    )]
    pub name: PathBuf,
    /// Asks nothing, and writes one node without an address
    #[arg(short, long)]
    pub empty: bool,
    /// Asks nothing, and prints an example to stdout
    #[arg(short, long)]
    pub print: bool,
    /// Lists the images of a release, to be mirrored
    #[arg(short, long)]
    pub system_images: bool,
    /// Lists the default release
    #[arg(short, long)]
    pub list_version: bool,
    /// With the two above: the newest release of each minor
    #[arg(short, long)]
    pub all: bool,
    /// The release for `--system-images`
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Tells what a key means, its type, its default, and whether it is supported
    #[arg(long, value_name = "KEY")]
    pub explain: Option<String>,
}

/// `status`.
#[derive(Args, Debug)]
pub struct Status {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Takes host keys that are not in `known_hosts` yet, for this once: they are not recorded
    #[arg(long)]
    pub accept_new_host_keys: bool,
    /// A tree for people, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `kubeconfig`.
#[derive(Args, Debug)]
pub struct Kubeconfig {
    /// The config, beside which the state is.
    #[command(flatten)]
    pub config: Config,
    /// Writes it where `up` does, `kube_config_<config>` beside the config (0600), and prints
    /// nothing of it
    #[arg(long)]
    pub write: bool,
}

/// `etcd`.
#[derive(Debug, Subcommand)]
pub enum Etcd {
    /// Saves a snapshot on every node with etcd, below `/opt/rke/etcd-snapshots`, and verifies it;
    /// one that is there is never replaced
    SnapshotSave(SnapshotSave),
}

/// `etcd snapshot-save`.
#[derive(Args, Debug)]
pub struct SnapshotSave {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Its name; without it `rke_etcd_snapshot_` and the time
    #[arg(long, value_name = "NAME")]
    pub name: Option<SnapshotName>,
    /// Not done yet: copies to S3 are refused
    #[command(flatten)]
    pub s3: S3,
    /// A list for people, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// RKE's flags for copies in S3.
#[derive(Args, Debug)]
pub struct S3 {
    /// Copies to S3 are not made yet
    #[arg(long, hide = true)]
    pub s3: bool,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub s3_endpoint: Option<String>,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub s3_endpoint_ca: Option<String>,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub access_key: Option<String>,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub secret_key: Option<String>,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub bucket_name: Option<String>,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub region: Option<String>,
    /// As `--s3`
    #[arg(long, hide = true)]
    pub folder: Option<String>,
}

impl S3 {
    /// True when any of them was given.
    pub const fn is_asked_for(&self) -> bool {
        let Self {
            s3,
            s3_endpoint,
            s3_endpoint_ca,
            access_key,
            secret_key,
            bucket_name,
            region,
            folder,
        } = self;
        *s3 || s3_endpoint.is_some()
            || s3_endpoint_ca.is_some()
            || access_key.is_some()
            || secret_key.is_some()
            || bucket_name.is_some()
            || region.is_some()
            || folder.is_some()
    }
}

/// `cert`.
#[derive(Debug, Subcommand)]
pub enum Cert {
    /// Lists the certificates and when they end: of the state and the kubeconfig, and with
    /// `--nodes` those on the nodes
    Info(CertInfo),
    /// Writes requests for the certificates that a CA of yours has to sign, with their keys, for
    /// `up --custom-certs`; a key that is there is kept. Contacts no node
    GenerateCsr(GenerateCsr),
}

/// `cert generate-csr`.
#[derive(Args, Debug)]
pub struct GenerateCsr {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// The folder; without it `<config>_certs` beside the config, without the config's ending
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
}

/// `cert info`.
#[derive(Args, Debug)]
pub struct CertInfo {
    /// The config, beside which the state is.
    #[command(flatten)]
    pub config: Config,
    /// Reads the certificates on the nodes, too; without it no node is contacted
    #[arg(long)]
    pub nodes: bool,
    /// Takes host keys that are not in `known_hosts` yet, for this once: they are not recorded
    #[arg(long, requires = "nodes")]
    pub accept_new_host_keys: bool,
    /// A list for people, or one JSON array
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `remove`.
#[derive(Args, Debug)]
pub struct Remove {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Removes without asking
    #[arg(long, visible_alias = "yes")]
    pub force: bool,
    /// Goes on without this node, which stays as it is; may be given several times
    #[arg(long, value_name = "NODE")]
    pub lose: Vec<NodeName>,
    /// Cleans this node although another Kubernetes is on it: that is deleted too; may be given several times
    #[arg(long, value_name = "NODE")]
    pub clean: Vec<NodeName>,
    /// Progress as lines on stderr, or as one JSON object a line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `version`.
#[derive(Args, Debug)]
pub struct Version {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Text, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// The operator's own namespace: states, records of orphaned clusters, the lease
    #[arg(long, short, env = "RKE_OPERATOR_NAMESPACE", value_name = "NAME")]
    pub namespace: String,
    /// The namespace of SSH keys, which people put in, and kubeconfigs, which they take out;
    /// without it the operator's own with `-credentials` at its end
    #[arg(long, env = "RKE_OPERATOR_CREDENTIALS_NAMESPACE", value_name = "NAME")]
    pub credentials_namespace: Option<String>,
    /// The management cluster; without it `KUBECONFIG`, `~/.kube/config` or the pod's own account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Its name in the lease, of which no two processes may have the same: in a pod the pod's
    /// name; without it a name of its own each time
    #[arg(long, env = "RKE_OPERATOR_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
    /// Where `/healthz` and `/readyz` are answered, as in `:8081`; without it nowhere
    #[arg(
        long,
        env = "RKE_OPERATOR_HEALTH_PROBE_BIND_ADDRESS",
        value_name = "[ADDRESS]:PORT",
        value_parser = socket
    )]
    pub health_probe_bind_address: Option<SocketAddr>,
    /// How the log is written
    #[arg(
        long,
        env = "RKE_OPERATOR_LOG_FORMAT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub log_format: Output,
}

/// Without an address: all of this machine's.
fn socket(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').map(str::parse);
    match port {
        Some(Ok(port)) => Ok((Ipv6Addr::UNSPECIFIED, port).into()),
        Some(Err(_)) | None => text
            .parse()
            .map_err(|_| "expected :PORT or ADDRESS:PORT".to_owned()),
    }
}

/// `reference`.
#[derive(Args, Debug)]
pub struct Reference {
    /// The folder
    #[arg(long, default_value = "docs/reference", value_name = "DIR")]
    pub dir: PathBuf,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_stand_before_and_after_the_command_as_in_rke() {
        let before = Cli::parse_from(["rke-operator", "--debug", "up", "--config", "a.yml"]);
        let after = Cli::parse_from(["rke-operator", "up", "-d", "--config", "a.yml"]);
        assert!(before.global.debug && after.global.debug);
    }

    #[test]
    fn the_config_is_cluster_yml_unless_said() {
        let Command::Remove(remove) = Cli::parse_from(["rke-operator", "remove"]).command else {
            panic!("remove");
        };
        assert_eq!(remove.config.config, PathBuf::from("cluster.yml"));
        assert!(!remove.force);
    }
}
