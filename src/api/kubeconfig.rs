//! The `Kubeconfig`: a way into a cluster, the administrator's or that of a user who is requested.

#![expect(
    unreachable_pub,
    reason = "what KubeSchema derives repeats the types inside a function"
)]

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{cluster::values_explained, conditions::ConditionStatus};

/// Which cluster to reach, and as whom.
#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize,
)]
#[cfg_attr(test, kube(cel))]
#[kube(
    group = "clusterprovisioner.rke.io",
    version = "v1alpha1",
    kind = "Kubeconfig",
    plural = "kubeconfigs",
    shortname = "rkek",
    category = "rke",
    derive = "PartialEq",
    status = "KubeconfigStatus",
    doc = "Access to a Cluster, in a Secret. The administrator's has the Cluster's name and is created by the operator. Any other is a request: a client certificate for a user, renewed before it expires; in the Cluster the user is bound to a ClusterRole until the object is deleted.",
    validation = Rule::new("self.metadata.name.size() <= 52").message("a Kubeconfig's name has at most 52 characters, because the name of its Secret is made of it"),
    validation = Rule::new("!has(self.spec.clusterRef) || self.metadata.name != self.spec.clusterRef.name || !(has(self.spec.user) || has(self.spec.groups) || has(self.spec.clusterRole) || has(self.spec.ttl) || has(self.spec.server) || has(self.spec.secret))").message("the Kubeconfig with its Cluster's name is the administrator's, which the operator makes: it has a clusterRef and nothing else; give this one another name"),
    validation = Rule::new("!has(self.spec.clusterRef) || self.metadata.name == self.spec.clusterRef.name || (has(self.spec.user) && has(self.spec.clusterRole))").message("a Kubeconfig with another name than its Cluster's needs a user and a clusterRole"),
    validation = Rule::new("!has(oldSelf.spec.clusterRef) || (has(self.spec.clusterRef) && self.spec.clusterRef.name == oldSelf.spec.clusterRef.name)").message("clusterRef is immutable: create another Kubeconfig"),
    validation = Rule::new("has(self.spec.user) == has(oldSelf.spec.user) && (!has(self.spec.user) || self.spec.user == oldSelf.spec.user)").message("user is immutable: create another Kubeconfig"),
    validation = Rule::new("has(self.spec.groups) == has(oldSelf.spec.groups) && (!has(self.spec.groups) || self.spec.groups == oldSelf.spec.groups)").message("groups is immutable: create another Kubeconfig"),
    validation = Rule::new("has(self.spec.secret) == has(oldSelf.spec.secret) && (!has(self.spec.secret) || self.spec.secret == oldSelf.spec.secret)").message("secret is immutable: create another Kubeconfig"),
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "User", type_ = "string", json_path = ".status.user"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.expiresAt"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.secretRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigSpec {
    /// The Cluster that is reached.
    // Optional here: an object of the former form, which had `clusterName`, is read as well.
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,

    /// The former form of `clusterRef`, which the definition does not have any more.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,

    /// The user's name in the Cluster: the common name of the certificate.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^\x00-\x1f\x7f]+$"))]
    #[x_kube(validation = Rule::new("!self.startsWith('system:')").message("names that begin with system: are Kubernetes' own"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,

    /// The user's groups in the Cluster: the organizations of the certificate. The operator's `--kubeconfig-groups`
    /// allows them. A deletion does not revoke what they are bound to: the certificate lives until it expires.
    #[schemars(
        length(max = 8),
        inner(length(min = 1, max = 253), regex(pattern = r"^[^\x00-\x1f\x7f]+$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set, validation = Rule::new("self.all(group, !group.startsWith('system:'))").message("names that begin with system: are Kubernetes' own"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,

    /// The role (`ClusterRole`) in the Cluster that the user is bound to, in all namespaces.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^\x00-\x1f\x7f/%]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_role: Option<String>,

    /// How long a certificate lives: `12h`, `720h`. It is renewed when a third of that is left. Without it: `720h`.
    #[x_kube(validation = Rule::new("duration(self) >= duration('10m') && duration(self) <= duration('8760h')").message("the ttl of a certificate is between 10m and 8760h"))]
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(s|m|h))+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,

    /// The API server's URL that the kubeconfig has, such as that of a load balancer. Its host is a name that the API
    /// servers' certificate has: a node's, or one of `authentication.sans`. Without it: the control planes' addresses.
    #[schemars(length(max = 512), regex(pattern = r"^https://[^\s]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,

    /// Where the kubeconfig is put. Without it: `<name>-kubeconfig` in the namespace of the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretTarget>,
}

impl KubeconfigSpec {
    /// The default of [`KubeconfigSpec::ttl`].
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

    /// The Cluster of an object of that name. One of the former form had its Cluster's name, and the API server no
    /// longer shows the field.
    pub fn cluster<'a>(&'a self, name: &'a str) -> &'a str {
        let reference = self.cluster_ref.as_ref();
        let named = reference.map(|cluster| cluster.name.as_str());
        named.or(self.cluster_name.as_deref()).unwrap_or(name)
    }
}

/// Names a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ClusterRef {
    /// Its name.
    #[schemars(length(min = 1, max = 52))]
    pub name: String,
}

/// The Secret for a kubeconfig, and its format.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretTarget {
    /// The Secret's name. A Secret that is there is never overwritten. Without it: `<name>-kubeconfig`.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    #[x_kube(validation = Rule::new("!self.endsWith('-kubeconfig')").message("names that end in -kubeconfig are made of the names of Kubeconfigs: leave it out, or choose another"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The Secret's namespace, one that the operator's `--kubeconfig-namespaces` allows. Without it: that of the
    /// credentials.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// What is in it. Without it: Kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<SecretFormat>,
}

/// What is in the Secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum SecretFormat {
    /// A kubeconfig under the key `value`, as Cluster API's tools expect it; the default.
    #[default]
    Kubeconfig,
    /// A cluster as Argo CD declares it: `name`, `server` and `config`, with the label by which it is found.
    ArgoCD,
}

/// What the operator says about a Kubeconfig.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigStatus {
    /// The generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: the Secret is there, and in the Cluster the user is bound; the table of reasons is in the documentation.
    /// `Reconciling` and `Stalled` are there only while they are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The Secret with the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,

    /// The user's name in the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub user: Option<String>,

    /// Where the kubeconfig leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub server: Option<String>,

    /// When the certificate was issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub issued_at: Option<String>,

    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub expires_at: Option<String>,

    /// When it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub renew_at: Option<String>,
}

/// A Secret in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its namespace.
    // An earlier release wrote none.
    #[schemars(required, length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The reasons of the condition `Ready` of a Kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigReason {
    /// It is there.
    Issued,
    /// It is there and good, and its renewal is late.
    Renewing,
    /// Its cluster has none yet, or cannot be reached.
    WaitingForCluster,
    /// There is no such Cluster.
    ClusterNotFound,
    /// Its name is taken.
    SecretNotOurs,
    /// The namespace is not allowed.
    NamespaceNotAllowed,
    /// A group is not allowed.
    GroupNotAllowed,
    /// The API servers are not known by that name.
    ServerNotInCertificate,
    /// The CA of the cluster cannot sign.
    CannotSign,
    /// Another object in the cluster has the name of its binding.
    BindingNotOurs,
    /// It is not the one of its cluster.
    NameNotAllowed,
    /// The spec is none that the definition admits.
    InvalidSpec,
    /// It could not be looked at.
    NotYetKnown,
}

impl KubeconfigReason {
    /// Every reason, and what it says.
    pub const TABLE: [(Self, &'static str); 13] = [
        (
            Self::Issued,
            "the Secret has the kubeconfig; a user is bound in the Cluster",
        ),
        (
            Self::Renewing,
            "the Secret has a kubeconfig that is still valid, and its renewal is late",
        ),
        (
            Self::WaitingForCluster,
            "the Cluster has no kubeconfig yet, or its API cannot be reached to bind the user",
        ),
        (Self::ClusterNotFound, "there is no Cluster of that name"),
        (
            Self::SecretNotOurs,
            "a Secret of that name is there and was not made for this Kubeconfig",
        ),
        (
            Self::NamespaceNotAllowed,
            "`--kubeconfig-namespaces` does not name the Secret's namespace, or the operator may not write there",
        ),
        (
            Self::GroupNotAllowed,
            "`--kubeconfig-groups` does not name one of the groups",
        ),
        (
            Self::ServerNotInCertificate,
            "the API servers' certificate does not have the host of `server`",
        ),
        (
            Self::CannotSign,
            "the Cluster's CA cannot sign: its key is kept elsewhere, or it has expired",
        ),
        (
            Self::BindingNotOurs,
            "in the Cluster a ClusterRoleBinding of that name is there and was not made for this Kubeconfig",
        ),
        (
            Self::NameNotAllowed,
            "the administrator's Kubeconfig has the name of its Cluster",
        ),
        (
            Self::InvalidSpec,
            "the spec is one that the definition refuses",
        ),
        (
            Self::NotYetKnown,
            "the Cluster or the user's binding could not be looked at yet",
        ),
    ];

    /// The word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Issued => "Issued",
            Self::Renewing => "Renewing",
            Self::WaitingForCluster => "WaitingForCluster",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::SecretNotOurs => "SecretNotOurs",
            Self::NamespaceNotAllowed => "NamespaceNotAllowed",
            Self::GroupNotAllowed => "GroupNotAllowed",
            Self::ServerNotInCertificate => "ServerNotInCertificate",
            Self::CannotSign => "CannotSign",
            Self::BindingNotOurs => "BindingNotOurs",
            Self::NameNotAllowed => "NameNotAllowed",
            Self::InvalidSpec => "InvalidSpec",
            Self::NotYetKnown => "NotYetKnown",
        }
    }

    /// The status of `Ready` that goes with it.
    pub const fn ready(self) -> ConditionStatus {
        match self {
            Self::Issued | Self::Renewing => ConditionStatus::True,
            Self::NotYetKnown => ConditionStatus::Unknown,
            Self::WaitingForCluster
            | Self::ClusterNotFound
            | Self::SecretNotOurs
            | Self::NamespaceNotAllowed
            | Self::GroupNotAllowed
            | Self::ServerNotInCertificate
            | Self::CannotSign
            | Self::BindingNotOurs
            | Self::NameNotAllowed
            | Self::InvalidSpec => ConditionStatus::False,
        }
    }

    /// The condition that is true with it as well: `Reconciling` for what time may bring, `Stalled` for what takes a
    /// person.
    pub const fn also(self) -> Option<&'static str> {
        match self {
            Self::Issued => None,
            Self::Renewing
            | Self::WaitingForCluster
            | Self::ClusterNotFound
            | Self::NotYetKnown => Some("Reconciling"),
            Self::SecretNotOurs
            | Self::NamespaceNotAllowed
            | Self::GroupNotAllowed
            | Self::ServerNotInCertificate
            | Self::CannotSign
            | Self::BindingNotOurs
            | Self::NameNotAllowed
            | Self::InvalidSpec => Some("Stalled"),
        }
    }
}

/// The name of the Secret of a Kubeconfig that names none.
pub fn kubeconfig_secret(name: &str) -> String {
    format!("{name}-kubeconfig")
}

/// The key of the kubeconfig in its Secret, as Cluster API's tools expect it.
pub const KUBECONFIG_KEY: &str = "value";

/// Keeps a `Kubeconfig` with a user until the user is no longer bound in its Cluster.
pub const UNBIND: &str = "clusterprovisioner.rke.io/unbind";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, spec: &Value) -> Kubeconfig {
        Kubeconfig::new(name, serde_json::from_value(spec.clone()).unwrap())
    }

    fn request(more: &Value) -> Value {
        let mut spec =
            json!({"clusterRef": {"name": "prod"}, "user": "jane", "clusterRole": "view"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    }

    #[test]
    fn the_administrators_has_its_clusters_name_and_any_other_a_user_and_a_role() {
        let bare = json!({"clusterRef": {"name": "prod"}});
        object("prod", &bare).validate_cel().unwrap();
        object("jane", &request(&json!({}))).validate_cel().unwrap();
        let refused = |name: &str, spec: &Value| {
            let error = object(name, spec).validate_cel().unwrap_err();
            error.to_string()
        };
        assert!(refused("jane", &bare).contains("needs a user and a clusterRole"));
        let no_role = json!({"clusterRef": {"name": "prod"}, "user": "jane"});
        assert!(refused("jane", &no_role).contains("needs a user and a clusterRole"));
        for (field, value) in [
            ("user", json!("jane")),
            ("groups", json!(["dev"])),
            ("clusterRole", json!("view")),
            ("ttl", json!("1h")),
            ("server", json!("https://lb:6443")),
            ("secret", json!({})),
        ] {
            let mut spec = bare.clone();
            spec[field] = value;
            let error = refused("prod", &spec);
            assert!(error.contains("is the administrator's"), "{field}: {error}");
        }
        assert!(refused(&"x".repeat(53), &request(&json!({}))).contains("at most 52 characters"));
    }

    #[test]
    fn rules_refuse_what_is_kubernetes_own_and_what_lives_too_long() {
        for (more, message) in [
            (json!({"user": "system:admin"}), "Kubernetes' own"),
            (
                json!({"groups": ["dev", "system:masters"]}),
                "Kubernetes' own",
            ),
            (json!({"ttl": "9m"}), "between 10m and 8760h"),
            (json!({"ttl": "8761h"}), "between 10m and 8760h"),
            (json!({"secret": {"name": "b-kubeconfig"}}), "-kubeconfig"),
        ] {
            let error = object("jane", &request(&more)).validate_cel().unwrap_err();
            assert!(error.to_string().contains(message), "{more}: {error}");
        }
        for more in [
            json!({"ttl": "10m"}),
            json!({"ttl": "8760h", "groups": ["dev"], "secret": {"name": "jane"}}),
        ] {
            object("jane", &request(&more)).validate_cel().unwrap();
        }
    }

    #[test]
    fn ttl_server_and_role_alone_are_edited() {
        let old = object("jane", &request(&json!({"groups": ["dev"]})));
        for (more, field) in [
            (
                json!({"clusterRef": {"name": "b"}, "groups": ["dev"]}),
                "clusterRef",
            ),
            (json!({"user": "joe", "groups": ["dev"]}), "user"),
            (json!({"groups": ["ops"]}), "groups"),
            (json!({}), "groups"),
            (
                json!({"groups": ["dev"], "secret": {"format": "ArgoCD"}}),
                "secret",
            ),
        ] {
            let new = object("jane", &request(&more));
            let error = new.validate_cel_update(&old).unwrap_err().to_string();
            assert!(error.contains(&format!("{field} is immutable")), "{error}");
        }
        let new =
            json!({"groups": ["dev"], "ttl": "1h", "server": "https://lb", "clusterRole": "edit"});
        let new = object("jane", &request(&new));
        new.validate_cel_update(&old).unwrap();
    }

    /// An object that an earlier release made, as a real API server shows it under this definition, and as it was.
    #[test]
    fn the_former_form_is_read_and_may_be_brought_to_the_new_one() {
        let new = object("prod", &json!({"clusterRef": {"name": "prod"}}));
        for spec in [json!({}), json!({"clusterName": "prod"})] {
            let old = object("prod", &spec);
            assert_eq!(old.spec.cluster("prod"), "prod");
            old.validate_cel().unwrap();
            new.validate_cel_update(&old).unwrap();
        }
        let status = json!({"secretRef": {"name": "prod-kubeconfig"}});
        let status: KubeconfigStatus = serde_json::from_value(status).unwrap();
        assert_eq!(status.secret_ref.unwrap().namespace, None);
    }
}
