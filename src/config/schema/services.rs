//! `services`. Pure data.

use super::key::{Key, any, duration, flag, list, map, number, section, text};

/// The components.
pub(in crate::config) const SERVICES: &[Key] = &[
    section("etcd", "The database.", ETCD),
    section("kube-api", "The API server.", KUBE_API),
    section(
        "kube-controller",
        "The controller manager.",
        KUBE_CONTROLLER,
    ),
    section("scheduler", "The scheduler.", SERVICE),
    section("kubelet", "The kubelet.", KUBELET),
    section("kubeproxy", "The proxy of Services.", SERVICE),
];

const NO_WINDOWS: &str = "remove it: there are no Windows nodes";

/// The keys of every service, and with them those of one.
macro_rules! service {
    ($($own:expr),* $(,)?) => {
        &[
            text("image", "Not read by RKE 1.6 either.")
                .ignored("write the image under `system_images`: `etcd`, or `kubernetes` for all other services"),
            map("extra_args", "Flags without dashes; they take precedence over those of rke-operator.").used(),
            any("extra_args_array", "Flags without dashes, each with a list of values; a flag is repeated for each value, after those of rke-operator.").used(),
            list("extra_binds", "Additional mounts, `source:target[:options]`.").used(),
            list("extra_env", "Additional environment variables, `NAME=value`; they take precedence over those of rke-operator.").secret().used(),
            map("win_extra_args", "Flags on Windows nodes.").refused(NO_WINDOWS),
            map("win_extra_args_array", "Flags on Windows nodes.").refused(NO_WINDOWS),
            list("win_extra_binds", "Mounts on Windows nodes.").refused(NO_WINDOWS),
            list("win_extra_env", "Variables on Windows nodes.").secret().refused(NO_WINDOWS),
            $($own),*
        ]
    };
}

/// What every service has.
pub(in crate::config) const SERVICE: &[Key] = service!();

/// `services.etcd`.
pub(in crate::config) const ETCD: &[Key] = service!(
    list(
        "external_urls",
        "URLs of the members of an external etcd, `https://HOST:PORT`. Then no node has the role `etcd`."
    )
    .used(),
    // A key that was pasted here by mistake must not be shown.
    text("ca_cert", "The CA certificate of that etcd, as PEM.")
        .secret()
        .used(),
    text("cert", "The client certificate for that etcd, as PEM.")
        .secret()
        .used(),
    text("key", "The private key of that certificate, as PEM.")
        .by_reference()
        .used(),
    text("path", "The prefix of this cluster's keys in that etcd.")
        .default("/registry")
        .used(),
    number(
        "uid",
        "The ID of the user that etcd runs as, who owns its data and its key."
    )
    .default("0")
    .used(),
    number("gid", "The ID of the group that etcd runs as.")
        .default("0")
        .used(),
    flag(
        "snapshot",
        "Take recurring snapshots, as RKE does by default. `false` disables them.",
    )
    .default("true")
    .used(),
    duration("creation", "How often a snapshot is taken, without `backup_config`.")
        .default("12h")
        .used(),
    duration("retention", "How long a snapshot is kept, without `backup_config`.")
        .default("72h")
        .used(),
    section("backup_config", "Recurring snapshots.", BACKUP).used(),
);

const BACKUP: &[Key] = &[
    flag(
        "enabled",
        "Take recurring snapshots. RKE does so unless this is `false`.",
    )
    .default("true")
    .used(),
    number("interval_hours", "How often a snapshot is taken.")
        .default("12")
        .used(),
    number("retention", "How many snapshots each node keeps.")
        .default("6")
        .used(),
    section("s3backupconfig", "Where snapshots are copied to.", S3),
    flag(
        "safe_timestamp",
        "Write the time into the name without colons.",
    )
    .used(),
    number("timeout", "Seconds that a snapshot may take.")
        .default("300")
        .used(),
];

const S3: &[Key] = &[
    text(
        "access_key",
        "The access key; the role of the machine when empty.",
    )
    .by_reference()
    .used(),
    text("secret_key", "Its secret.").by_reference().used(),
    text("bucket_name", "The bucket.").used(),
    text("region", "The region.").used(),
    text("endpoint", "The server: `HOST[:PORT]`, or its URL.").used(),
    text("custom_ca", "The CA certificate of the server.").used(),
    text("folder", "The folder in the bucket.").used(),
];

/// `services.kube-api`.
pub(in crate::config) const KUBE_API: &[Key] =
    service!(
    text("service_cluster_ip_range", "Address range of Services.")
        .default("10.43.0.0/16")
        .most(64)
        .used(),
    text(
        "service_node_port_range",
        "Port range of Services of type NodePort."
    )
    .default("30000-32767")
    .most(32)
    .used(),
    flag("pod_security_policy", "From releases of RKE before 1.6.")
        .refused("remove it: Kubernetes has no PodSecurityPolicy since 1.25"),
    text(
        "pod_security_configuration",
        "The level of PodSecurity admission: `privileged` or `restricted`."
    )
    .words(&["privileged", "restricted"])
    .default("privileged")
    .used(),
    flag(
        "always_pull_images",
        "Pull all images whenever a pod starts."
    )
    .used(),
    section(
        "secrets_encryption_config",
        "Encrypt Secrets in etcd.",
        &[
            flag("enabled", "Whether Secrets are encrypted. The key is generated once and kept in the state.").used(),
            any(
                "custom_config",
                "Your own EncryptionConfiguration, instead of the generated key; it contains keys."
            )
            .by_reference()
            .used(),
        ]
    ),
    section(
        "audit_log",
        "The API server's audit log; enabled by default.",
        &[
            flag(
                "enabled",
                "Whether it is written. RKE disables it if the section exists without this key."
            )
            .default("true")
            .used(),
            section("configuration", "Its settings.", AUDIT_CONFIGURATION),
        ]
    ),
    any(
        "admission_configuration",
        "An AdmissionConfiguration; its plugins take precedence over those of rke-operator with the same name."
    )
    .used(),
    section(
        "event_rate_limit",
        "The admission plugin EventRateLimit.",
        &[
            flag("enabled", "Whether the plugin is enabled.").used(),
            any(
                "configuration",
                "Its settings; when empty, 5000 events per second for each API server, with a burst of 20000."
            )
            .used(),
        ]
    ),
);

const AUDIT_CONFIGURATION: &[Key] = &[
    number("max_age", "Days that a file is kept.")
        .default("30")
        .used(),
    number("max_backup", "How many files are kept.")
        .default("10")
        .used(),
    number("max_size", "Maximum size of a file, in megabytes.")
        .default("100")
        .used(),
    text("path", "The file.").default("/var/log/kube-audit/audit-log.json"),
    text("format", "`json` or `legacy`.")
        .words(&["json", "legacy"])
        .default("json")
        .used(),
    any(
        "policy",
        "An audit Policy; when empty, the metadata of each request is logged, without content.",
    )
    .used(),
];

/// `services.kube-controller`.
pub(in crate::config) const KUBE_CONTROLLER: &[Key] = service!(
    text("cluster_cidr", "Address range of pods.")
        .default("10.42.0.0/16")
        .most(64)
        .used(),
    text(
        "service_cluster_ip_range",
        "Address range of Services, as under `kube-api`."
    )
    .default("10.43.0.0/16")
    .most(64)
    .used(),
);

/// `services.kubelet`.
pub(in crate::config) const KUBELET: &[Key] = service!(
    text("cluster_domain", "The domain of Services.")
        .default("cluster.local")
        .most(253)
        .used(),
    text("infra_container_image", "The pause image.")
        .refused("write `pod_infra_container` under `system_images`"),
    text(
        "cluster_dns_server",
        "The address of the DNS server, within the range of Services."
    )
    .default("10.43.0.10")
    .most(64)
    .used(),
    text("pod-infra-container-image", "Only in RKE's documentation; no release of RKE reads it.")
        .ignored("remove it: RKE does not read it either; `system_images.pod_infra_container` is the key with an effect"),
    flag(
        "fail_swap_on",
        "Whether kubelet refuses to start on a node with swap."
    )
    .used(),
    flag(
        "generate_serving_certificate",
        "A serving certificate for each kubelet."
    )
    .same("every kubelet has one"),
);
