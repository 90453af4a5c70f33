//! The command that comes next: for what a `Cluster` waits for, and for conditions that only a person can change. Pure.

use super::{
    APPROVE, APPROVED_BY, CLUSTERS, CONFIRM_DELETION, RECOVER, TAKE_OVER, conditions::Reason,
};

/// What a command is about.
#[derive(Clone, Copy, Debug)]
pub struct NextFor<'a> {
    /// The object.
    pub name: &'a str,
    /// The namespace of the operator.
    pub namespace: &'a str,
    /// The namespace with the credentials.
    pub credentials: &'a str,
    /// The cluster's id, where it is known.
    pub cluster_id: Option<&'a str>,
    /// The Secret with the login.
    pub ssh_secret: Option<&'a str>,
}

/// A name as a shell may have it: what an object holds is pasted into a terminal, so anything else than the characters of
/// names and digests becomes a placeholder.
fn word<'a>(text: &'a str, instead: &'a str) -> &'a str {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text
    } else {
        instead
    }
}

/// Approves the plan with that digest.
pub fn approve_command(name: &str, digest: &str) -> String {
    let (name, digest) = (word(name, "<name>"), word(digest, "<digest>"));
    format!(
        "kubectl annotate --overwrite rkec {name} {APPROVE}={digest} {APPROVED_BY}=<your user name>"
    )
}

/// Writes the administrator's kubeconfig of a cluster to a file.
pub fn kubeconfig_command(name: &str, secret: &str, namespace: &str) -> String {
    let (name, secret) = (word(name, "<name>"), word(secret, "<secret>"));
    let namespace = word(namespace, "<namespace>");
    format!(
        "kubectl -n {namespace} get secret {secret} -o jsonpath='{{.data.value}}' | base64 -d > {name}.kubeconfig"
    )
}

impl NextFor<'_> {
    /// What a person does about a condition with that reason; `None` where its message has the next step, or the
    /// operator takes it.
    pub fn command(&self, reason: &str) -> Option<String> {
        let reason = Reason::ALL.iter().find(|known| known.name() == reason)?;
        self.by_reason(*reason)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most reasons need no person, or their message has the command"
    )]
    fn by_reason(&self, reason: Reason) -> Option<String> {
        let Self {
            name,
            namespace,
            credentials,
            cluster_id,
            ssh_secret,
        } = *self;
        let name = word(name, "<name>");
        let (namespace, credentials) = (
            word(namespace, "<namespace>"),
            word(credentials, "<namespace>"),
        );
        let id = word(cluster_id.unwrap_or_default(), "<cluster id>");
        let secret = word(ssh_secret.unwrap_or_default(), "<secret>");
        Some(match reason {
            Reason::InvalidConfig
            | Reason::HostKeyUnknown
            | Reason::HostKeyChanged
            | Reason::AuthenticationFailed => format!("kubectl edit rkec {name}"),
            Reason::SecretMissing | Reason::SourceMissing => {
                format!("kubectl -n {credentials} get secrets")
            }
            Reason::SecretNotGranted => format!(
                "kubectl -n {credentials} annotate --overwrite secret {secret} {CLUSTERS}={name}"
            ),
            Reason::StateMissing => {
                format!("kubectl annotate --overwrite rkec {name} {RECOVER}={id}")
            }
            Reason::StateConflict => {
                format!("kubectl annotate --overwrite rkec {name} {TAKE_OVER}=<cluster id>")
            }
            Reason::DeletionProtected | Reason::Protected => {
                format!("kubectl annotate --overwrite rkec {name} {CONFIRM_DELETION}={name}")
            }
            Reason::DeletionOverdue | Reason::SelfManaged => format!(
                "kubectl patch rkec {name} --type=merge -p '{{\"spec\":{{\"deletion\":{{\"policy\":\"Orphan\"}}}}}}'"
            ),
            Reason::Paused => {
                format!(
                    "kubectl patch rkec {name} --type=merge -p '{{\"spec\":{{\"paused\":false}}}}'"
                )
            }
            Reason::InternalError => format!(
                "kubectl -n {namespace} logs --selector app.kubernetes.io/name=rke-operator --prefix --tail=200"
            ),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::ConditionType;

    const FOR_A: NextFor<'_> = NextFor {
        name: "a",
        namespace: "rke-operator",
        credentials: "rke-operator-credentials",
        cluster_id: None,
        ssh_secret: Some("nodes"),
    };

    /// What waits for a person has a command, or its message has it: those are listed here.
    #[test]
    fn each_reason_of_stalled_has_a_command_or_says_it_itself() {
        let itself = [
            Reason::ClaimedByOther,
            Reason::PreflightFailed,
            Reason::NameTaken,
            Reason::StateUnreadable,
            Reason::PermissionDenied,
        ];
        for row in ConditionType::Stalled.reasons() {
            let command = FOR_A.command(row.reason.name());
            assert_eq!(
                command.is_none(),
                itself.contains(&row.reason),
                "{}",
                row.reason
            );
        }
        assert_eq!(FOR_A.command("LaterReason"), None);
    }

    /// A command is pasted into a shell, and an object may hold anything.
    #[test]
    fn what_a_shell_would_run_is_in_no_command() {
        for text in [
            "$(reboot)",
            "a;reboot",
            "`reboot`",
            "a reboot",
            "'reboot",
            "--reboot",
            "a\u{7}",
        ] {
            let hostile = NextFor {
                name: text,
                namespace: text,
                credentials: text,
                cluster_id: Some(text),
                ssh_secret: Some(text),
            };
            let by_reason = Reason::ALL
                .iter()
                .filter_map(|reason| hostile.command(reason.name()));
            let others = [
                approve_command(text, text),
                kubeconfig_command(text, text, text),
            ];
            for command in by_reason.chain(others) {
                assert!(!command.contains(text), "{command}");
            }
        }
        assert!(approve_command("a.b-1", "00ff").contains("rkec a.b-1 "));
    }

    #[test]
    fn commands_name_what_they_are_about() {
        assert_eq!(
            FOR_A.command("SecretNotGranted").unwrap(),
            "kubectl -n rke-operator-credentials annotate --overwrite secret nodes \
             clusterprovisioner.rke.io/clusters=a"
        );
        assert_eq!(
            FOR_A.command("DeletionOverdue").unwrap(),
            r#"kubectl patch rkec a --type=merge -p '{"spec":{"deletion":{"policy":"Orphan"}}}'"#
        );
        assert_eq!(
            approve_command("a", "0123"),
            "kubectl annotate --overwrite rkec a clusterprovisioner.rke.io/approve=0123 \
             clusterprovisioner.rke.io/approved-by=<your user name>"
        );
        assert_eq!(
            kubeconfig_command("a", "a-kubeconfig", "c"),
            "kubectl -n c get secret a-kubeconfig -o jsonpath='{.data.value}' | base64 -d > a.kubeconfig"
        );
    }
}
