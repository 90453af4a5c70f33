//! The command line: what it takes, with RKE's words where RKE had one. Declares, does nothing.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments are the help texts: `[default: …]` is the notation of clap, not a link"
)]

use std::{
    ffi::OsString,
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{
    ArgAction, ArgGroup, Args, CommandFactory as _, Parser, Subcommand, ValueEnum,
    builder::{FalseyValueParser, OsStringValueParser, TypedValueParser as _},
};
use ipnet::IpNet;

use crate::{
    etcd::snapshot::SnapshotName,
    model::{ClusterId, Component, ImagePlatform, NodeName, path},
    snapshots::record::Cause,
};

/// Run Kubernetes in Docker containers on your own servers, over SSH, from one `cluster.yml`
#[derive(Debug, Parser)]
#[command(
    name = "rke-operator",
    version = concat!("version v", env!("CARGO_PKG_VERSION")),
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success · 1 invalid config or flags, no state, or not confirmed · 2 a node or the network \
                  failed; retrying may help · 3 partly done: some nodes are unreachable, failed or waiting \
                  (`status`: not healthy) · 4 something to do (`plan --exit-code`) · 70 internal error · 130 interrupted"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
}

impl Cli {
    /// The whole command line, with what each command has from those above it.
    pub(super) fn built() -> clap::Command {
        let mut root = Self::command();
        root.build();
        root
    }
}

/// What every command takes.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Log every request to stderr
    #[arg(short, long, global = true, alias = "trace")]
    pub debug: bool,
    /// Show warnings and errors only
    #[arg(short, long, global = true, conflicts_with = "debug")]
    pub quiet: bool,
    /// Log in to all nodes with the keys of the SSH agent, like `ssh_agent_auth: true` in the config
    #[arg(long, global = true)]
    pub ssh_agent_auth: bool,
    /// Ignore `~/.ssh/config`
    #[arg(long, global = true, env = "RKE_OPERATOR_NO_SSH_CONFIG", value_parser = FalseyValueParser::new())]
    pub no_ssh_config: bool,
    /// Hide the progress line (default when output is not a terminal)
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Print the version
    #[arg(short, long, action = ArgAction::Version)]
    pub version: Option<bool>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create or update the cluster (idempotent)
    Up(Up),
    /// Show what `up` would change, and why, without changing anything
    Plan(Plan),
    /// Check the config; with `--connect`, also check the nodes, as `doctor` does
    Validate(Validate),
    /// Check the nodes: report what prevents `up`, what will cause trouble later, and how to fix it
    Doctor(Doctor),
    /// Create a starter `cluster.yml`, or explain its keys
    Config(ConfigArgs),
    /// Show cluster health and drift from the config; with `--all`, every `Cluster` of the management cluster
    Status(Status),
    /// Describe one `Cluster` of the management cluster: health, causes, next commands, nodes and Events
    Describe(Describe),
    /// Print an admin kubeconfig generated from the local state (does not contact the nodes)
    Kubeconfig(Kubeconfig),
    /// RKE's names for other commands
    #[command(subcommand, hide = true)]
    Util(Util),
    /// Manage etcd: snapshots and members
    #[command(subcommand)]
    Etcd(Etcd),
    /// Manage certificates
    #[command(subcommand)]
    Cert(Cert),
    /// Manage the encryption of Secrets in etcd
    #[command(subcommand)]
    Encrypt(Encrypt),
    /// Manage single nodes
    #[command(subcommand)]
    Node(Node),
    /// List the images that a cluster needs, save them to a file, and load them onto its nodes without a registry
    #[command(subcommand)]
    Images(Images),
    /// Remove the cluster and restore its nodes to their previous state
    Remove(Remove),
    /// Print the rke-operator version, and the cluster's version if a kubeconfig is found
    Version(Version),
    /// Print the custom resource definitions, for `kubectl apply -f -`
    Crd,
    /// Print the completion script for a shell: `source <(rke-operator completion bash)`
    Completion(Completion),
    /// Print the names that may stand at the end of a command line (for the completion scripts)
    #[command(hide = true)]
    Complete(Complete),
    /// Write the manual pages to a folder: `rke-operator man ~/.local/share/man/man1`
    Man(Man),
    /// Hand an existing cluster over to an operator: write its `Cluster` object and Secrets from the config, the SSH
    /// key, the known host keys and the state file (contacts neither the nodes nor an API server)
    Init(Init),
    /// Run the operator against the management cluster in the kubeconfig
    Run(Run),
    /// Take recurring snapshots of the etcd member on this node (runs in the container `etcd-rolling-snapshots`)
    #[command(hide = true)]
    SnapshotAgent(SnapshotAgent),
    /// Copy a snapshot from the bucket into this node's folder (runs in a container, for `etcd snapshot-restore --s3`)
    #[command(hide = true)]
    SnapshotFetch(SnapshotOnNode),
    /// Take a snapshot of the etcd member on this node (runs in a container, for `etcd snapshot-save`)
    #[command(hide = true)]
    SnapshotTake(SnapshotOnNode),
    /// Restore a snapshot on this node for trial (runs in a container, for `etcd verify`)
    #[command(hide = true)]
    SnapshotVerify(SnapshotOnNode),
    /// Delete a snapshot on this node (runs in a container, for `etcd snapshot-delete`)
    #[command(hide = true)]
    SnapshotDelete(SnapshotOnNode),
    /// Read the cluster's state from a snapshot on this node (runs in a container, for `etcd snapshot-restore`)
    #[command(hide = true)]
    SnapshotState(SnapshotOnNode),
    /// Write the reference pages of the documentation
    #[command(hide = true)]
    Reference(Reference),
}

impl Command {
    /// How the result is printed; `None`: this command has no `--output json`.
    pub const fn output(&self) -> Option<Output> {
        Some(match self {
            Self::Up(args) => args.output,
            Self::Plan(args) => args.output,
            Self::Validate(args) => args.output,
            Self::Doctor(args) => args.output,
            Self::Status(args) => args.output,
            Self::Etcd(of_etcd) => of_etcd.output(),
            Self::Cert(Cert::Info(args)) => args.output,
            Self::Cert(Cert::Rotate(args)) => args.output,
            Self::Encrypt(Encrypt::RotateKey(args)) => args.output,
            Self::Node(Node::Reboot(args)) => args.output,
            Self::Node(Node::Reset(args)) => args.output,
            Self::Images(Images::List(args)) => args.output,
            Self::Images(Images::Load(args)) => args.output,
            Self::Remove(args) => args.output,
            Self::Version(args) => args.output,
            Self::Config(_)
            | Self::Describe(_)
            | Self::Kubeconfig(_)
            | Self::Util(_)
            | Self::Cert(Cert::GenerateCsr(_))
            | Self::Node(Node::Drain(_) | Node::Uncordon(_))
            | Self::Images(Images::Save(_))
            | Self::Crd
            | Self::Completion(_)
            | Self::Complete(_)
            | Self::Man(_)
            | Self::Init(_)
            | Self::Run(_)
            | Self::SnapshotAgent(_)
            | Self::SnapshotFetch(_)
            | Self::SnapshotTake(_)
            | Self::SnapshotVerify(_)
            | Self::SnapshotDelete(_)
            | Self::SnapshotState(_)
            | Self::Reference(_) => return None,
        })
    }
}

/// `snapshot-agent`.
#[derive(Args, Debug)]
pub struct SnapshotAgent {
    /// Its settings, as `up` wrote them
    #[arg(long, value_name = "FILE", default_value = path::SNAPSHOT_SETTINGS)]
    pub settings: PathBuf,
}

/// `snapshot-fetch`, `snapshot-take`, `snapshot-verify`, `snapshot-delete` and `snapshot-state`.
#[derive(Args, Debug)]
pub struct SnapshotOnNode {
    /// Snapshot name
    pub name: SnapshotName,
    /// The bucket, as JSON
    #[arg(long, value_name = "FILE")]
    pub bucket: Option<PathBuf>,
    /// Cause that is recorded with the snapshot
    #[arg(long, default_value = Cause::Asked.name())]
    pub cause: Cause,
    /// One of that name and cause is the same one.
    #[arg(long)]
    pub again: bool,
}

/// The config, unless another one is named.
pub(super) const CONFIG_FILE: &str = "cluster.yml";

/// An empty name is none: CI sets a variable that has no value to it.
fn named(text: OsString) -> PathBuf {
    if text.is_empty() {
        CONFIG_FILE.into()
    } else {
        text.into()
    }
}

/// The file that is read: `cluster.yaml` where there is no `cluster.yml`.
pub(super) fn config_file(text: OsString) -> PathBuf {
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
    /// Config file of the cluster
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
    /// Accept and record unknown SSH host keys (changed keys are still rejected)
    #[arg(long)]
    pub accept_new_host_keys: bool,
}

/// Your own certificates.
#[derive(Args, Clone, Debug)]
pub struct Certs {
    /// Use your own certificates from `--cert-dir`; generate the missing ones
    #[arg(long)]
    pub custom_certs: bool,
    /// Certificate directory [default: `<config name without extension>_certs` next to the config]
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
    /// Skip confirmation of disruptive steps
    #[arg(short, long)]
    pub yes: bool,
    /// Take over the cluster with this ID: read its state from its nodes, if the state file is lost or outdated, or
    /// the state is that of a `Cluster` object
    #[arg(long, value_name = "ID")]
    pub recover: Option<ClusterId>,
    /// Permanently remove a node that is gone: drop its etcd member and Node object without contacting it
    /// (repeatable, or names separated by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub lose: Vec<NodeName>,
    /// Clean this node, which is no longer in the config, and delete the other Kubernetes that is on it (repeatable,
    /// or names separated by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub clean: Vec<NodeName>,
    /// Accept the external etcd with this cluster ID, which was restored from a snapshot of this cluster's data
    #[arg(long, value_name = "ID")]
    pub accept_etcd: Option<String>,
    /// Retry the changes that failed on a node and were rolled back there
    #[arg(long)]
    pub retry: bool,
    /// Load images from this file, which `images save` or `docker save` wrote, onto nodes that lack them, instead of
    /// having the nodes pull them
    #[arg(long, value_name = "BUNDLE")]
    pub image_bundle: Option<PathBuf>,
    /// Certificates.
    #[command(flatten)]
    pub certs: Certs,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `plan`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Args, Debug)]
pub struct Plan {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Accept unknown SSH host keys for this run only
    #[arg(long)]
    pub accept_new_host_keys: bool,
    /// Plan as `up --recover` would
    #[arg(long, value_name = "ID")]
    pub recover: Option<ClusterId>,
    /// Plan as `up --lose` would, and list what is lost with the node
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub lose: Vec<NodeName>,
    /// Plan as `up --clean` would, and list what is deleted on the node
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub clean: Vec<NodeName>,
    /// Plan as `remove` would, instead of `up`
    #[arg(long)]
    pub remove: bool,
    /// Plan as `up --accept-etcd` would
    #[arg(long, value_name = "ID")]
    pub accept_etcd: Option<String>,
    /// Plan as `up --retry` would
    #[arg(long)]
    pub retry: bool,
    /// Plan as `up --image-bundle` would
    #[arg(long, value_name = "BUNDLE", conflicts_with = "remove")]
    pub image_bundle: Option<PathBuf>,
    /// Certificates.
    #[command(flatten)]
    pub certs: Certs,
    /// Also show every node, file and digest (the JSON always contains them)
    #[arg(long)]
    pub full: bool,
    /// Exit with 4 if there is something to do
    #[arg(long)]
    pub exit_code: bool,
    /// Print the plan as text, or as one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `validate`.
#[derive(Args, Debug)]
pub struct Validate {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Log in to the nodes and check them, as `doctor --no-write` does
    #[arg(long)]
    pub connect: bool,
    /// Accept unknown SSH host keys for this run only
    #[arg(long, requires = "connect")]
    pub accept_new_host_keys: bool,
    /// Print text, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Start no container, which measures the disks of etcd nodes and reads the packet filter
    #[arg(long)]
    pub no_write: bool,
    /// Accept unknown SSH host keys for this run only
    #[arg(long)]
    pub accept_new_host_keys: bool,
    /// Print text, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `config`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "RKE's flags")]
pub struct ConfigArgs {
    /// Output file; asks before overwriting
    #[arg(
        short,
        long,
        env = "RKE_CONFIG",
        default_value = CONFIG_FILE,
        value_name = "FILE",
        value_parser = OsStringValueParser::new().map(named)
    )]
    pub name: PathBuf,
    /// Write a template without prompting
    #[arg(short, long)]
    pub empty: bool,
    /// Print an example to stdout
    #[arg(short, long)]
    pub print: bool,
    /// List the images of a release for mirroring, except those that charts name
    #[arg(short, long)]
    pub system_images: bool,
    /// Print the default Kubernetes release
    #[arg(short, long)]
    pub list_version: bool,
    /// With `-l` or `-s`: list the latest patch of every minor release
    #[arg(short, long)]
    pub all: bool,
    /// Kubernetes release for `--system-images`, or for the new config [default: the one that `--list-version`
    /// prints]
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Explain a key: its meaning, type and default, and whether it is supported; without `KEY`, list the keys at the top
    /// level
    #[arg(long, value_name = "KEY", num_args = 0..=1, default_missing_value = "")]
    pub explain: Option<String>,
}

/// `man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Folder; created if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// `status`.
#[derive(Args, Debug)]
pub struct Status {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Accept unknown SSH host keys for this run only
    #[arg(long)]
    pub accept_new_host_keys: bool,
    /// List every `Cluster` of the management cluster instead (reads no config, contacts no node)
    #[arg(short = 'A', long, conflicts_with_all = ["accept_new_host_keys", "watch"])]
    pub all: bool,
    /// Refresh every SECONDS seconds, over the same connections, until Ctrl-C [default: 5]
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "5",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub watch: Option<u32>,
    /// With `--all`: kubeconfig of the management cluster [default: `KUBECONFIG`, `~/.kube/config` or the pod's
    /// service account]
    #[arg(long, value_name = "FILE", requires = "all")]
    pub kubeconfig: Option<PathBuf>,
    /// With `--all`: context of that kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", requires = "all")]
    pub context: Option<String>,
    /// Print a tree, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `describe`.
#[derive(Args, Debug)]
pub struct Describe {
    /// Name of the `Cluster`
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Kubeconfig of the management cluster [default: `KUBECONFIG`, `~/.kube/config` or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the operator, for the commands that are shown
    #[arg(
        long,
        short,
        env = "RKE_OPERATOR_NAMESPACE",
        default_value = "rke-operator",
        value_name = "NAME"
    )]
    pub namespace: String,
    /// Namespace with the kubeconfig Secrets [default: `<namespace>-credentials`]
    #[arg(long, env = "RKE_OPERATOR_CREDENTIALS_NAMESPACE", value_name = "NAME")]
    pub credentials_namespace: Option<String>,
}

/// `kubeconfig`.
#[derive(Args, Debug)]
pub struct Kubeconfig {
    /// The config; the state file is next to it.
    #[command(flatten)]
    pub config: Config,
    /// Write it to `kube_config_<config>` next to the config (mode 0600), as `up` does, instead of printing it
    #[arg(long)]
    pub write: bool,
}

/// `util`.
#[derive(Debug, Subcommand)]
pub enum Util {
    /// Write the administrator's kubeconfig next to the config, as `kubeconfig --write` does
    GetKubeconfig(Config),
    /// Write the state file next to the config, if it is missing, from the copy on a control plane (changes nothing on
    /// the nodes)
    GetStateFile(GetStateFile),
}

/// `util get-state-file`.
#[derive(Args, Debug)]
pub struct GetStateFile {
    /// The config; the state file is next to it.
    #[command(flatten)]
    pub config: Config,
    /// Accept unknown SSH host keys for this run only
    #[arg(long)]
    pub accept_new_host_keys: bool,
}

/// `etcd`.
#[derive(Debug, Subcommand)]
pub enum Etcd {
    /// Save a snapshot on every etcd node, in `/opt/rke/etcd-snapshots`, and verify it (existing
    /// snapshots are never overwritten)
    SnapshotSave(SnapshotSave),
    /// List the snapshots on every etcd node, with time, size, origin and grade (read-only)
    SnapshotList(EtcdLook),
    /// Replace everything in the cluster's etcd with a snapshot from `/opt/rke/etcd-snapshots` of an etcd node (the
    /// former data is kept on the nodes; to continue after an interruption, run the same command again)
    SnapshotRestore(SnapshotRestore),
    /// Continue with the data of the last etcd member when the majority is lost for good (the former data is kept on
    /// the node; to continue after an interruption, run the same command again)
    Recover(Recover),
    /// Delete a snapshot on every etcd node (only if rke-operator wrote it for this cluster, and never the only
    /// proven one of a node)
    SnapshotDelete(NamedSnapshot),
    /// Restore a snapshot for trial on every etcd node that has it, and record the result (does not touch the
    /// cluster)
    Verify(NamedSnapshot),
    /// Defragment the databases of the etcd members, one member at a time and the leader last, and clear the alarm
    /// NOSPACE where there is space again
    Defrag(Defrag),
    /// List the etcd members as they report themselves: leader, versions, database sizes, alarms (read-only)
    Members(EtcdLook),
}

impl Etcd {
    /// How the result is printed.
    const fn output(&self) -> Output {
        match self {
            Self::SnapshotSave(args) => args.output,
            Self::SnapshotList(args) | Self::Members(args) => args.output,
            Self::SnapshotRestore(args) => args.output,
            Self::Recover(args) => args.output,
            Self::SnapshotDelete(args) | Self::Verify(args) => args.output,
            Self::Defrag(args) => args.output,
        }
    }
}

/// `etcd members` and `etcd snapshot-list`.
#[derive(Args, Debug)]
pub struct EtcdLook {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Accept unknown SSH host keys for this run only
    #[arg(long)]
    pub accept_new_host_keys: bool,
    /// Print a table, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
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
    /// Snapshot name [default: `rke_etcd_snapshot_` followed by the time]
    #[arg(long, value_name = "NAME")]
    pub name: Option<SnapshotName>,
    /// The bucket that a copy goes to.
    #[command(flatten)]
    pub s3: S3,
    /// Print a list, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `etcd defrag`.
#[derive(Args, Debug)]
pub struct Defrag {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Print a list, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `etcd snapshot-delete` and `etcd verify`.
#[derive(Args, Debug)]
pub struct NamedSnapshot {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Snapshot name, as `snapshot-list` prints it
    #[arg(long, value_name = "NAME")]
    pub name: SnapshotName,
    /// Print a list, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `etcd snapshot-restore`.
#[derive(Args, Debug)]
pub struct SnapshotRestore {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Snapshot name, as `snapshot-save` printed it
    #[arg(long, value_name = "NAME", required_unless_present = "back")]
    pub name: Option<SnapshotName>,
    /// Undo an interrupted restore and continue with the former data (only until an API server of the restored etcd
    /// has started)
    #[arg(long, conflicts_with = "name")]
    pub back: bool,
    /// Skip confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Give up a machine that is gone, or that was reinstalled under its former name (repeatable, or names separated
    /// by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub lose: Vec<NodeName>,
    /// Accepted for compatibility with RKE: a saved state is always used
    #[arg(long, hide = true)]
    pub use_local_state: bool,
    /// The bucket that has it.
    #[command(flatten)]
    pub s3: S3,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `etcd recover`.
#[derive(Args, Debug)]
pub struct Recover {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Node whose data is kept, if several members are left
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeName>,
    /// Skip confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Give up a machine that is gone, or that was reinstalled under its former name (repeatable, or names separated
    /// by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub lose: Vec<NodeName>,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// RKE's flags for a bucket.
#[derive(Args, Debug)]
pub struct S3 {
    /// Use the bucket of `s3backupconfig` in the config; each flag below overrides its setting
    #[arg(long)]
    pub s3: bool,
    /// S3 server, as `HOST[:PORT]` or a URL [default: the config's, or s3.amazonaws.com]
    #[arg(long, value_name = "ENDPOINT")]
    pub s3_endpoint: Option<String>,
    /// File with the certificate of the CA that signed the server's certificate
    #[arg(long, value_name = "FILE")]
    pub s3_endpoint_ca: Option<PathBuf>,
    /// Access key
    #[arg(
        long,
        value_name = "KEY",
        env = "S3_ACCESS_KEY",
        hide_env_values = true
    )]
    pub access_key: Option<String>,
    /// Secret key; prefer the variable, because other users of this machine can see arguments
    #[arg(
        long,
        value_name = "KEY",
        env = "S3_SECRET_KEY",
        hide_env_values = true
    )]
    pub secret_key: Option<String>,
    /// Bucket name
    #[arg(long, value_name = "BUCKET")]
    pub bucket_name: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    /// Folder in the bucket
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<String>,
}

impl S3 {
    /// True when any of them was given. Variables alone ask for nothing.
    pub const fn is_asked_for(&self) -> bool {
        self.s3
            || self.s3_endpoint.is_some()
            || self.s3_endpoint_ca.is_some()
            || self.bucket_name.is_some()
            || self.region.is_some()
            || self.folder.is_some()
    }
}

/// `cert`.
#[derive(Debug, Subcommand)]
pub enum Cert {
    /// List certificates and their expiry (`--nodes`: include those on the nodes)
    Info(CertInfo),
    /// Re-create certificates and their keys, and replace the components that read them, one after the other (other
    /// differences from the config wait for `up`)
    Rotate(CertRotate),
    /// Generate keys and CSRs to be signed by your own CA, for `up --custom-certs` (existing keys are
    /// kept; does not contact the nodes)
    GenerateCsr(GenerateCsr),
}

/// `cert rotate`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct CertRotate {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Rotate only the certificates of these components, separated by commas [default: all, including the administrator's]
    #[arg(long, value_enum, value_name = "COMPONENT", value_delimiter = ',')]
    pub service: Vec<Service>,
    /// Replace the key that signs service-account tokens instead of certificates; the former key is accepted until
    /// `--complete`
    #[arg(long, group = "staged", conflicts_with = "service")]
    pub service_account_key: bool,
    /// Replace the certificate authorities (CAs) and every certificate; the former CAs are trusted until `--complete`
    #[arg(long, group = "staged", conflicts_with = "service")]
    pub rotate_ca: bool,
    /// Stop accepting the former service-account key (at the earliest one hour after the last API server was
    /// replaced), or stop trusting the former CAs
    #[arg(long, requires = "staged", conflicts_with = "custom_certs")]
    pub complete: bool,
    /// Replace CAs that have expired all at once, because components no longer trust each other
    #[arg(long, requires = "rotate_ca", conflicts_with = "complete")]
    pub now: bool,
    /// Take the new service-account key from `--cert-dir`
    #[arg(long, requires = "service_account_key", conflicts_with = "rotate_ca")]
    pub custom_certs: bool,
    /// Certificate directory [default: `<config name without extension>_certs` next to the config]
    #[arg(long, value_name = "DIR", requires = "custom_certs")]
    pub cert_dir: Option<PathBuf>,
    /// Skip confirmation of disruptive steps
    #[arg(short, long)]
    pub yes: bool,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// Whose certificates: RKE's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// etcd member.
    Etcd,
    /// API server, with its client certificates for etcd, kubelets and extension API servers.
    KubeApiserver,
    /// Controller manager.
    KubeControllerManager,
    /// Scheduler.
    KubeScheduler,
    /// kubelet: client and server.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
}

impl Service {
    /// The component.
    pub const fn component(self) -> Component {
        match self {
            Self::Etcd => Component::Etcd,
            Self::KubeApiserver => Component::ApiServer,
            Self::KubeControllerManager => Component::ControllerManager,
            Self::KubeScheduler => Component::Scheduler,
            Self::Kubelet => Component::Kubelet,
            Self::KubeProxy => Component::KubeProxy,
        }
    }
}

/// `node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Reboot nodes one after the other: cordon, drain if `upgrade_strategy` drains, reboot, wait until the node is
    /// Ready, uncordon; stop at the first node that does not come back (to continue after an interruption, run the
    /// same command again)
    Reboot(NodeReboot),
    /// Cordon nodes and evict their pods, one node after the other, by the rules of `upgrade_strategy`; nodes stay
    /// cordoned until `node uncordon`, also after `up`
    Drain(NodeDrain),
    /// Uncordon nodes, including those that were cordoned by hand
    Uncordon(NodeUncordon),
    /// Remove a node from the cluster and clean it, as if it were not in the config: drain it, remove its etcd member
    /// and Node object; with `--rejoin`, then join it again as a new node
    Reset(NodeReset),
}

/// `node drain`.
#[derive(Args, Debug)]
pub struct NodeDrain {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Nodes, in this order
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<NodeName>,
    /// Also evict pods that no controller re-creates
    #[arg(long)]
    pub force: bool,
    /// Also evict pods with an `emptyDir`, whose data is lost
    #[arg(long)]
    pub delete_emptydir_data: bool,
}

/// `node uncordon`.
#[derive(Args, Debug)]
pub struct NodeUncordon {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Nodes to uncordon
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<NodeName>,
}

/// `node reset`.
#[derive(Args, Debug)]
pub struct NodeReset {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Node to reset
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// Join the node again when it is clean
    #[arg(long)]
    pub rejoin: bool,
    /// Skip confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `node reboot`.
#[derive(Args, Debug)]
pub struct NodeReboot {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Nodes, in this order
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<NodeName>,
    /// Only cordon: leave the pods on the node, even if `upgrade_strategy` drains
    #[arg(long)]
    pub no_drain: bool,
    /// Skip confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `encrypt`.
#[derive(Debug, Subcommand)]
pub enum Encrypt {
    /// Generate a new encryption key, replace the API servers one after the other until all of them write with it,
    /// and re-encrypt every Secret (other differences from the config wait for `up`)
    RotateKey(RotateKey),
}

/// `encrypt rotate-key`.
#[derive(Args, Debug)]
pub struct RotateKey {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Skip confirmation of disruptive steps
    #[arg(short, long)]
    pub yes: bool,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `images`.
#[derive(Debug, Subcommand)]
pub enum Images {
    /// List the images that the config needs, one a line (contacts no node)
    List(ImagesList),
    /// Save the images that the config needs to a file, from their registries or from a node (to continue after an
    /// interruption, run the same command again)
    Save(ImagesSave),
    /// Load the images of a file onto the nodes, over SSH: each node gets what it lacks, and nothing else is changed
    Load(ImagesLoad),
}

/// The config whose images are meant.
#[derive(Args, Clone, Debug)]
pub struct ConfigOfImages {
    /// Config file of the cluster
    #[arg(
        long,
        visible_alias = "for",
        env = "RKE_CONFIG",
        default_value = CONFIG_FILE,
        value_name = "FILE",
        value_parser = OsStringValueParser::new().map(config_file)
    )]
    pub config: PathBuf,
}

/// `images list`.
#[derive(Args, Debug)]
pub struct ImagesList {
    /// The config.
    #[command(flatten)]
    pub config: ConfigOfImages,
    /// Print names, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `images save`.
#[derive(Args, Debug)]
pub struct ImagesSave {
    /// The config.
    #[command(flatten)]
    pub config: ConfigOfImages,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// File to write, as of `docker save`; `docker load` reads it, too
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Take the images from nodes of the config instead of from their registries: each from the first that has it
    /// (repeatable, or names separated by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub from_node: Vec<NodeName>,
    /// Platform of the nodes, `linux/amd64` or `linux/arm64` [default: `linux/amd64`; with `--from-node`: the node's]
    #[arg(long, value_name = "PLATFORM", value_parser = platform)]
    pub platform: Option<ImagePlatform>,
    /// Also save this image, for your own pods (repeatable, or names separated by commas)
    #[arg(long, value_name = "IMAGE", value_delimiter = ',')]
    pub image: Vec<String>,
    /// Connect to this registry without TLS, as Docker does for `insecure-registries` (repeatable, or names separated
    /// by commas)
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        value_delimiter = ',',
        value_parser = registry,
        conflicts_with = "from_node"
    )]
    pub insecure_registry: Vec<String>,
}

/// `images load`.
#[derive(Args, Debug)]
pub struct ImagesLoad {
    /// File that `images save` or `docker save` wrote
    #[arg(value_name = "BUNDLE")]
    pub bundle: PathBuf,
    /// The config.
    #[command(flatten)]
    pub config: ConfigOfImages,
    /// Host keys.
    #[command(flatten)]
    pub trust: Trust,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `linux/arm64`.
fn platform(text: &str) -> Result<ImagePlatform, String> {
    let architecture = match text {
        "linux/amd64" | "amd64" => "amd64",
        "linux/arm64" | "arm64" => "arm64",
        _ => return Err("expected linux/amd64 or linux/arm64".to_owned()),
    };
    Ok(ImagePlatform::of_node(architecture))
}

/// `registry.example.com:5000`.
fn registry(text: &str) -> Result<String, String> {
    let uri = text.parse::<http::uri::Authority>();
    let is_host = uri.is_ok_and(|uri| !uri.host().is_empty() && !text.contains('@'));
    if is_host {
        Ok(text.to_owned())
    } else {
        Err("expected a host, or HOST:PORT, without a scheme or a path".to_owned())
    }
}

/// `cert generate-csr`.
#[derive(Args, Debug)]
pub struct GenerateCsr {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Output directory [default: `<config name without extension>_certs` next to the config]
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
}

/// `cert info`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("of the nodes").args(["nodes", "served"]).multiple(true))]
pub struct CertInfo {
    /// The config; the state file is next to it.
    #[command(flatten)]
    pub config: Config,
    /// Also read the certificates on the nodes (otherwise no node is contacted)
    #[arg(long)]
    pub nodes: bool,
    /// Also show the certificates that etcd, the API servers and the kubelets serve in a TLS handshake, and where
    /// they differ from the files (implies `--nodes`)
    #[arg(long)]
    pub served: bool,
    /// Accept unknown SSH host keys for this run only
    #[arg(long, requires = "of the nodes")]
    pub accept_new_host_keys: bool,
    /// Print a list, or one JSON array
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
    /// Skip confirmation
    #[arg(long, visible_alias = "yes", visible_short_alias = 'y')]
    pub force: bool,
    /// Continue without this node if it does not answer, or if others use it: what it has stays there (repeatable, or
    /// names separated by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub lose: Vec<NodeName>,
    /// Clean this node, and delete the other Kubernetes that is on it (repeatable, or names separated by commas)
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub clean: Vec<NodeName>,
    /// Do not save a snapshot of etcd before the cluster is stopped
    #[arg(long)]
    pub no_snapshot: bool,
    /// Remove the cluster with this ID, even if its nodes have a newer state because another owner has taken it over
    #[arg(long, value_name = "ID")]
    pub recover: Option<ClusterId>,
    /// Print progress as lines on stderr, or as one JSON object per line on stdout
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `version`.
#[derive(Args, Debug)]
pub struct Version {
    /// The config.
    #[command(flatten)]
    pub config: Config,
    /// Print text, or one JSON object
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,
}

/// `completion`.
#[derive(Args, Debug)]
pub struct Completion {
    /// Shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `complete`.
#[derive(Args, Debug)]
pub struct Complete {
    /// The command line, up to the cursor
    #[arg(value_name = "LINE")]
    pub line: String,
}

/// `init`.
#[derive(Args, Debug)]
pub struct Init {
    /// The config; the state file is next to it.
    #[command(flatten)]
    pub config: Config,
    /// Name of the `Cluster` object [default: `cluster_name`]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Private key for the operator's SSH logins, without a passphrase [default: the one in the config]
    #[arg(long, value_name = "FILE")]
    pub ssh_key: Option<String>,
    /// Write the manifests to this directory (files with mode 0600) instead of printing them
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Namespace of the operator, for the state
    #[arg(
        long,
        short,
        env = "RKE_OPERATOR_NAMESPACE",
        default_value = "rke-operator",
        value_name = "NAME"
    )]
    pub namespace: String,
    /// Namespace for the Secrets with the SSH key and the config [default: `<namespace>-credentials`]
    #[arg(long, env = "RKE_OPERATOR_CREDENTIALS_NAMESPACE", value_name = "NAME")]
    pub credentials_namespace: Option<String>,
}

/// `run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// Namespace for the operator's state, orphan records and leader-election lease
    #[arg(long, short, env = "RKE_OPERATOR_NAMESPACE", value_name = "NAME")]
    pub namespace: String,
    /// Namespace for SSH-key and kubeconfig Secrets [default: `<namespace>-credentials`]
    #[arg(long, env = "RKE_OPERATOR_CREDENTIALS_NAMESPACE", value_name = "NAME")]
    pub credentials_namespace: Option<String>,
    /// Kubeconfig of the management cluster [default: `KUBECONFIG`, `~/.kube/config` or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Leader-election identity; must be unique [default: random]
    #[arg(long, env = "RKE_OPERATOR_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
    /// Connect only to nodes and bastion hosts in these ranges, separated by commas [default: any address of another
    /// machine]
    #[arg(
        long,
        env = "RKE_OPERATOR_ALLOWED_NODE_CIDRS",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub allowed_node_cidrs: Vec<IpNet>,
    /// Folder with the files that Clusters name in `spec.configPath` [default: none; such Clusters are refused]
    #[arg(long, env = "RKE_OPERATOR_CONFIG_ROOT", value_name = "DIR")]
    pub config_root: Option<PathBuf>,
    /// Groups that a Kubeconfig may request, separated by commas [default: none]
    #[arg(
        long,
        env = "RKE_OPERATOR_KUBECONFIG_GROUPS",
        value_name = "GROUP",
        value_delimiter = ','
    )]
    pub kubeconfig_groups: Vec<String>,
    /// Additional namespaces for the Secrets of Kubeconfigs, separated by commas
    /// [default: none]
    #[arg(
        long,
        env = "RKE_OPERATOR_KUBECONFIG_NAMESPACES",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub kubeconfig_namespaces: Vec<String>,
    /// Memory limit of the process, in bytes, which determines how many connections to control planes are kept
    /// [default: unlimited]
    #[arg(long, env = "RKE_OPERATOR_MEMORY_LIMIT", value_name = "BYTES")]
    pub memory_limit: Option<u64>,
    /// Address of the health endpoints `/healthz` and `/readyz`, e.g. `:8081` [default: disabled]
    #[arg(
        long,
        env = "RKE_OPERATOR_HEALTH_PROBE_BIND_ADDRESS",
        value_name = "[ADDRESS]:PORT",
        value_parser = socket
    )]
    pub health_probe_bind_address: Option<SocketAddr>,
    /// Address of the metrics, over HTTPS, e.g. `:8443`; `0` disables them
    #[arg(
        long,
        env = "RKE_OPERATOR_METRICS_BIND_ADDRESS",
        default_value = "0",
        value_name = "[ADDRESS]:PORT",
        value_parser = socket_or_none
    )]
    pub metrics_bind_address: Bind,
    /// Certificate of the metrics, PEM; read again when it changes [default: self-signed, new at each start]
    #[arg(
        long,
        env = "RKE_OPERATOR_METRICS_CERT",
        value_name = "FILE",
        requires = "metrics_key"
    )]
    pub metrics_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM
    #[arg(
        long,
        env = "RKE_OPERATOR_METRICS_KEY",
        value_name = "FILE",
        requires = "metrics_cert"
    )]
    pub metrics_key: Option<PathBuf>,
    /// Log format
    #[arg(
        long,
        env = "RKE_OPERATOR_LOG_FORMAT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub log_format: Output,
}

/// Where something listens, if anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind(pub Option<SocketAddr>);

/// `0`: nowhere.
fn socket_or_none(text: &str) -> Result<Bind, String> {
    if text == "0" {
        return Ok(Bind(None));
    }
    let bound = socket(text).map_err(|why| format!("{why}, or 0"))?;
    Ok(Bind(Some(bound)))
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
    /// Output folder
    #[arg(long, default_value = "docs/reference", value_name = "DIR")]
    pub dir: PathBuf,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Human-readable.
    #[default]
    Text,
    /// JSON.
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

    /// The text of each string in a source.
    fn strings(source: &str) -> Vec<String> {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let mut strings = Vec::new();
        let lines = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let source = lines.collect::<Vec<_>>().join("\n");
        let source = source.replace("'\"'", "");
        let mut rest = source.as_str();
        while let Some((_, begun)) = rest.split_once('"') {
            let mut text = String::new();
            let mut chars = begun.char_indices();
            let mut end = begun.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    // A line that goes on.
                    '\\' => match chars.next() {
                        Some((_, '\n')) => {
                            let left = chars.as_str().trim_start();
                            let skipped = chars.as_str().chars().count() - left.chars().count();
                            if skipped > 0 {
                                chars.nth(skipped - 1);
                            }
                        }
                        Some((_, other)) => text.extend(['\\', other]),
                        None => {}
                    },
                    other => text.push(other),
                }
            }
            strings.push(text);
            rest = &begun[end..];
        }
        strings
    }

    fn sources(below: &std::path::Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(below).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }

    /// O38: the user of a `Cluster` has no command line. What names one says what works there, too.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the sources themselves are looked at"
    )]
    fn each_hint_that_names_a_command_line_says_what_works_on_an_object() {
        // What only the command line says, and what is about programs on a node.
        const ELSEWHERE: [&str; 7] = [
            "src/cli/",
            "src/config/schema/",
            "src/config/resolve/mod.rs",
            "src/desired/containerd.rs",
            "src/etcd/snapshot.rs",
            "src/plan/render.rs",
            "src/operator/mod.rs",
        ];
        let cli = Cli::built();
        let names = ["up", "plan", "remove"];
        let commands = names.map(|name| format!("rke-operator {name}"));
        let of_run = names.map(|name| cli.find_subcommand(name).unwrap());
        let flags = of_run.iter().flat_map(|command| command.get_arguments());
        let flags = flags.filter_map(clap::Arg::get_long);
        // Other programs have these, too.
        let flags = flags.filter(|flag| !["config", "help", "version"].contains(flag));
        let flags: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
        assert!(
            flags.iter().any(|flag| flag == "--accept-etcd"),
            "{flags:?}"
        );
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            words.map(str::to_owned).collect()
        };
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut paths = Vec::new();
        sources(&root.join("src"), &mut paths);
        let (mut both, mut wrong) = (0, Vec::new());
        for path in paths {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            let is_test = name.ends_with("tests.rs") || name.contains("fixture");
            if is_test || ELSEWHERE.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            for text in strings(&std::fs::read_to_string(&path).unwrap()) {
                let names = |text: &str| {
                    let commands = commands.iter().any(|command| text.contains(command));
                    commands || words(text).iter().any(|word| flags.contains(word))
                };
                let on_object = crate::error::on_object(&text);
                both += usize::from(names(&text) && !names(&on_object));
                if names(&on_object) {
                    wrong.push(format!("{name}: {on_object}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(both > 15, "{both} such hints: are they looked at?");
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
