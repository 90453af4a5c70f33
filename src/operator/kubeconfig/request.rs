//! What a `Kubeconfig` requests, and whether it may have it. The definition refuses most of what is refused here; an
//! object may come past it, by an older definition or a restored backup. Pure.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{KubeconfigReason, KubeconfigSpec, SecretFormat, SecretTarget, kubeconfig_secret},
    model::go_duration,
};

/// What the operator allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed<'a> {
    /// The namespace of the credentials.
    pub(super) credentials: &'a str,
    /// The operator's own namespace, with the states: never.
    pub(super) own: &'a str,
    /// Other namespaces.
    pub(super) namespaces: &'a [String],
    /// Groups.
    pub(super) groups: &'a [String],
}

/// A Secret in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) namespace: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A user's kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) groups: BTreeSet<String>,
    pub(super) role: String,
    pub(super) life: SignedDuration,
    pub(super) server: Option<String>,
    pub(super) secret: Place,
    pub(super) format: SecretFormat,
}

/// What an object is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It shows the administrator's kubeconfig, which the runs for the cluster write.
    Administrator,
    /// A user's is to be made.
    User(Box<Request>),
}

/// Why nothing is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: KubeconfigReason,
    pub(super) message: String,
}

fn refused<T>(reason: KubeconfigReason, message: impl Into<String>) -> Result<T, Refusal> {
    let message = message.into();
    Err(Refusal { reason, message })
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Refusal> {
    refused(KubeconfigReason::InvalidSpec, message)
}

const SHORTEST: Duration = Duration::from_secs(10 * 60);
const LONGEST: Duration = Duration::from_secs(8760 * 3600);
const GROUPS: usize = 8;

/// Where the Secret of an object of that name is.
pub(super) fn place(name: &str, spec: &KubeconfigSpec, credentials: &str) -> Place {
    let target = spec.secret.as_ref();
    let named = target.and_then(|target| target.name.clone());
    let namespace = target.and_then(|target| target.namespace.clone());
    Place {
        name: named.unwrap_or_else(|| kubeconfig_secret(name)),
        namespace: namespace.unwrap_or_else(|| credentials.to_owned()),
    }
}

/// What an object of that name requests, or why it gets nothing.
pub(super) fn wanted(
    name: &str,
    spec: &KubeconfigSpec,
    allowed: &Allowed<'_>,
) -> Result<Wanted, Refusal> {
    let cluster = spec.cluster(name);
    let is_bare = spec.user.is_none() && spec.cluster_role.is_none() && spec.groups.is_empty();
    let (user, role) = match (&spec.user, &spec.cluster_role) {
        (None, None) if is_bare && name == cluster => return Ok(Wanted::Administrator),
        (None, None) if is_bare => {
            return refused(
                KubeconfigReason::NameNotAllowed,
                format!(
                    "the administrator's Kubeconfig has the name of its Cluster, and `{cluster}` has one; hint: create \
                     another with a `user` and a `clusterRole`, and delete this one"
                ),
            );
        }
        (Some(user), Some(role)) => (user, role),
        (Some(_) | None, None) | (None, Some(_)) => {
            return invalid("a Kubeconfig needs a `user` and a `clusterRole`");
        }
    };
    if name == cluster {
        return invalid(format!(
            "the Kubeconfig `{name}` is the administrator's of the Cluster of that name; hint: give this one another name"
        ));
    }
    for subject in std::iter::once(user).chain(&spec.groups) {
        if subject.is_empty() || subject.chars().any(char::is_control) {
            return invalid(
                "the name of the user or of a group is empty, or has control characters",
            );
        }
        if subject.starts_with("system:") {
            return invalid(format!(
                "`{subject}`: names that begin with `system:` are Kubernetes' own"
            ));
        }
    }
    let secret = place(name, spec, allowed.credentials);
    may_be_there(name, &secret, allowed)?;
    let groups: BTreeSet<String> = spec.groups.iter().cloned().collect();
    if let Some(group) = groups.iter().find(|group| !allowed.groups.contains(group)) {
        return refused(
            KubeconfigReason::GroupNotAllowed,
            format!(
                "the group `{group}` is not allowed; hint: the operator's `--kubeconfig-groups` names those that are"
            ),
        );
    }
    if groups.len() > GROUPS {
        return invalid(format!("a Kubeconfig has at most {GROUPS} groups"));
    }
    let format = spec
        .secret
        .as_ref()
        .and_then(|SecretTarget { format, .. }| *format);
    Ok(Wanted::User(Box::new(Request {
        cluster: cluster.to_owned(),
        user: user.clone(),
        groups,
        role: role.clone(),
        life: life(spec.ttl.as_deref())?,
        server: server(spec.server.as_deref())?,
        secret,
        format: format.unwrap_or_default(),
    })))
}

/// Whether an object of that name may have its Secret there.
fn may_be_there(name: &str, secret: &Place, allowed: &Allowed<'_>) -> Result<(), Refusal> {
    let derived = kubeconfig_secret(name);
    if secret.name.ends_with("-kubeconfig") && secret.name != derived {
        return invalid(format!(
            "the Secret's name `{}` is made of the name of another Kubeconfig; hint: `secret.name` may be left out",
            secret.name
        ));
    }
    let namespace = &secret.namespace;
    let listed = namespace != allowed.own && allowed.namespaces.contains(namespace);
    if namespace != allowed.credentials && !listed {
        return refused(
            KubeconfigReason::NamespaceNotAllowed,
            format!(
                "the namespace `{namespace}` is not allowed; hint: the operator's `--kubeconfig-namespaces` names those \
                 that are"
            ),
        );
    }
    Ok(())
}

fn life(ttl: Option<&str>) -> Result<SignedDuration, Refusal> {
    let life = match ttl {
        None => Some(KubeconfigSpec::DEFAULT_TTL),
        Some(text) => go_duration(text).filter(|life| (SHORTEST..=LONGEST).contains(life)),
    };
    match life.and_then(|life| SignedDuration::try_from(life).ok()) {
        Some(life) => Ok(life),
        None => invalid("the `ttl` of a certificate is between 10m and 8760h"),
    }
}

fn server(server: Option<&str>) -> Result<Option<String>, Refusal> {
    match server {
        Some(url) if host(url).is_none() => {
            invalid("`server` is the URL of an API server: https://<host>[:<port>]")
        }
        server => Ok(server.map(str::to_owned)),
    }
}

/// The host of an HTTPS URL, an IPv6 address without its brackets.
pub(super) fn host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://")?;
    if rest
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || c == '@')
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.0,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

/// How long an object is left alone whose certificate is renewed then; some of the others' time is added to each, so that
/// those of one moment do not come back in one moment. `jitter` is in `0.0..1.0`.
pub(super) fn pause(now: Timestamp, renew_at: Timestamp, jitter: f64) -> Duration {
    let left = Duration::try_from(renew_at.duration_since(now)).unwrap_or_default();
    let often = CHECK.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 5.0);
    left.clamp(Duration::from_secs(1), often)
}

/// How often the Secret and the state are compared without being asked to.
const CHECK: Duration = Duration::from_secs(10 * 60);

/// What is known of the binding of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// As it must be.
    Is,
    /// It could not be looked at; `was`: what it was bound to when it was looked at last.
    Unseen { was: Option<String>, why: String },
    /// Another object has its name.
    Taken,
}

/// Why the object is not `Ready` although its certificate may be fine. `has`: one was handed out before.
pub(super) fn unbound(request: &Request, binding: &Binding, has: bool) -> Option<Refusal> {
    let Request { user, role, .. } = request;
    match binding {
        Binding::Taken => Some(Refusal {
            reason: KubeconfigReason::BindingNotOurs,
            message: format!(
                "a ClusterRoleBinding of the name that would bind `{user}` is there in the Cluster and was not made for \
                 this Kubeconfig; hint: delete it there"
            ),
        }),
        Binding::Unseen {
            was: Some(was),
            why,
        } if was != role => Some(Refusal {
            reason: KubeconfigReason::WaitingForCluster,
            message: format!("`{user}` is still bound to `{was}`, and not to `{role}`: {why}"),
        }),
        // It was bound when it was looked at last.
        Binding::Is | Binding::Unseen { was: Some(_), .. } => None,
        Binding::Unseen { was: None, why } => Some(Refusal {
            reason: if has {
                KubeconfigReason::NotYetKnown
            } else {
                KubeconfigReason::WaitingForCluster
            },
            message: format!("whether `{user}` is bound to `{role}` is not known: {why}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: &Value) -> KubeconfigSpec {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn of(name: &str, value: &Value) -> Result<Wanted, Refusal> {
        let allowed = Allowed {
            credentials: "credentials",
            own: "own",
            namespaces: &["argocd".to_owned(), "own".to_owned()],
            groups: &["dev".to_owned()],
        };
        wanted(name, &spec(value), &allowed)
    }

    fn user(more: &Value) -> Value {
        let mut value = json!({"clusterRef": {"name": "a"}, "user": "jane", "clusterRole": "view"});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        value
    }

    #[test]
    fn a_request_has_defaults() {
        let Ok(Wanted::User(request)) = of("jane", &user(&json!({}))) else {
            panic!("no request");
        };
        assert_eq!(request.life, SignedDuration::from_hours(720));
        assert_eq!(request.secret.to_string(), "credentials/jane-kubeconfig");
        assert_eq!(request.format, SecretFormat::Kubeconfig);
        let more = json!({"groups": ["dev"], "secret": {"name": "x", "namespace": "argocd"}, "ttl": "1h30m"});
        let Ok(Wanted::User(request)) = of("jane", &user(&more)) else {
            panic!("no request");
        };
        assert_eq!(request.life, SignedDuration::from_mins(90));
        assert_eq!(request.secret.to_string(), "argocd/x");
    }

    #[test]
    fn the_administrators_is_under_the_clusters_own_name_alone() {
        for bare in [
            json!({"clusterRef": {"name": "a"}}),
            json!({"clusterName": "a"}),
            json!({}),
        ] {
            assert_eq!(of("a", &bare), Ok(Wanted::Administrator), "{bare}");
        }
        for bare in [
            json!({"clusterRef": {"name": "a"}}),
            json!({"clusterName": "a"}),
        ] {
            let refusal = of("mine", &bare).unwrap_err();
            assert_eq!(refusal.reason, KubeconfigReason::NameNotAllowed, "{bare}");
        }
        let refusal = of("a", &user(&json!({}))).unwrap_err();
        assert_eq!(refusal.reason, KubeconfigReason::InvalidSpec);
    }

    #[test]
    fn what_came_past_the_definition_gets_nothing() {
        use KubeconfigReason::{GroupNotAllowed, InvalidSpec, NamespaceNotAllowed};
        let nine: Vec<String> = std::iter::repeat_n("dev".to_owned(), 9).collect();
        assert!(
            of("jane", &user(&json!({"groups": nine}))).is_ok(),
            "it is one"
        );
        for (more, reason) in [
            (json!({"user": "system:kube-scheduler"}), InvalidSpec),
            (json!({"user": "jane\n"}), InvalidSpec),
            (json!({"user": ""}), InvalidSpec),
            (json!({"groups": ["system:masters"]}), InvalidSpec),
            (json!({"groups": ["ops"]}), GroupNotAllowed),
            (json!({"clusterRole": null}), InvalidSpec),
            (json!({"ttl": "9m"}), InvalidSpec),
            (json!({"ttl": "for ever"}), InvalidSpec),
            (json!({"server": "http://lb"}), InvalidSpec),
            (json!({"secret": {"name": "a-kubeconfig"}}), InvalidSpec),
            (
                json!({"secret": {"namespace": "kube-system"}}),
                NamespaceNotAllowed,
            ),
            (json!({"secret": {"namespace": "own"}}), NamespaceNotAllowed),
        ] {
            let refusal = of("jane", &user(&more)).unwrap_err();
            assert_eq!(refusal.reason, reason, "{more}: {}", refusal.message);
        }
    }

    #[test]
    fn a_url_has_a_host() {
        for (url, wanted) in [
            ("https://lb", Some("lb")),
            ("https://lb.example.com:6443/k8s?x", Some("lb.example.com")),
            ("https://[fd00::1]:6443", Some("fd00::1")),
            ("https://10.0.0.1:6443", Some("10.0.0.1")),
            ("https://user@lb", None),
            ("https://", None),
            ("https://:6443", None),
            ("https://a b", None),
            ("http://lb", None),
        ] {
            assert_eq!(host(url), wanted, "{url}");
        }
    }

    #[test]
    fn an_object_is_left_alone_until_its_renewal_and_for_ten_minutes_at_most() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds| now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        for (renewal, jitter, seconds) in [
            (5, 0.0, 5),
            (-5, 0.0, 1),
            (86_400, 0.0, 600),
            (86_400, 1.0, 720),
        ] {
            assert_eq!(pause(now, at(renewal), jitter).as_secs(), seconds);
        }
    }

    #[test]
    fn a_binding_that_cannot_be_looked_at_is_as_it_was_known() {
        use KubeconfigReason::{NotYetKnown, WaitingForCluster};
        let Ok(Wanted::User(request)) = of("jane", &user(&json!({}))) else {
            panic!("no request");
        };
        let reason = |was: Option<&str>, has| {
            let binding = Binding::Unseen {
                was: was.map(str::to_owned),
                why: "no route".to_owned(),
            };
            unbound(&request, &binding, has).map(|refusal| refusal.reason)
        };
        assert_eq!(reason(None, false), Some(WaitingForCluster));
        assert_eq!(reason(None, true), Some(NotYetKnown));
        assert_eq!(reason(Some("edit"), true), Some(WaitingForCluster));
        assert_eq!(reason(Some("view"), true), None);
        assert_eq!(unbound(&request, &Binding::Is, false), None);
    }
}
