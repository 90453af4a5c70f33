//! What `describe` prints about one cluster, in at most 50 lines: what it is, what is wrong and the next command, what
//! waits, its nodes, what happens now, its Events, and the way to its kubeconfig. Colour never carries meaning. Decides
//! nothing.

use jiff::Timestamp;

use super::{Page, clusters, screen::clip, status::age, table::paragraph};
use crate::api::{
    conditions::{ConditionType, Reason},
    next::{NextFor, approve_command, kubeconfig_command},
    observed::{
        ObservedCluster, ObservedCondition, ObservedCounts, ObservedEvent, ObservedHealth,
        ObservedNode,
    },
};

/// What is described.
pub struct Description<'a> {
    /// The object.
    pub cluster: &'a ObservedCluster,
    /// Its Events, the oldest first; or why they cannot be read.
    pub events: Result<&'a [ObservedEvent], &'a str>,
    /// The Secret with the administrator's kubeconfig; `None`: it is not there yet.
    pub kubeconfig: Option<&'a str>,
    /// The namespace with the credentials.
    pub credentials: &'a str,
    /// The namespace of the operator.
    pub namespace: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// How many lines each part has at most. With the empty lines between them that is 50.
const HEAD: usize = 10;
const WRONG: usize = 14;
/// One message in it.
const MESSAGE: usize = 5;
const WAITS: usize = 4;
const NODES: usize = 5;
const WARNINGS: usize = 3;
const EVENTS: usize = 6;
const KUBECONFIG: usize = 2;

/// The whole description.
pub fn render(all: &Description<'_>, page: Page) -> String {
    let sections = [
        capped(&head(all, page), HEAD),
        capped(&wrong(all, page), WRONG),
        capped(&waits(all, page), WAITS),
        capped(&nodes(all.cluster, page), NODES),
        capped(&warnings(all.cluster, page), WARNINGS),
        capped(&events(all, page), EVENTS),
        capped(&kubeconfig(all), KUBECONFIG),
    ];
    let shown = sections.into_iter().filter(|lines| !lines.is_empty());
    shown
        .map(|lines| lines.join("\n"))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// The first lines; the last one counts what is missing.
fn capped(blocks: &[String], most: usize) -> Vec<String> {
    let lines: Vec<String> = blocks
        .iter()
        .flat_map(|block| block.lines().map(str::to_owned))
        .collect();
    if lines.len() <= most {
        return lines;
    }
    let left = lines.len() + 1 - most;
    let mut lines: Vec<String> = lines.into_iter().take(most.saturating_sub(1)).collect();
    lines.push(format!("  … {left} lines more"));
    lines
}

fn head(all: &Description<'_>, page: Page) -> Vec<String> {
    let cluster = all.cluster;
    let paint = page.paint;
    let health = match cluster.health {
        ObservedHealth::Healthy => "is healthy".to_owned(),
        ObservedHealth::Degraded => paint.warn("is degraded"),
        ObservedHealth::Unavailable => paint.bad("is not available"),
        ObservedHealth::Absent => paint.warn("is not built yet"),
        ObservedHealth::Deleting => paint.warn("is being deleted"),
    };
    let mut lines = vec![format!("cluster `{}` {health}", cluster.name)];
    let mut say = |what: &str, text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        // One line each, so that no fact hides another.
        let line = text.map(|text| clipped(&format!("  {what:<13} {text}"), page));
        lines.extend(line);
    };
    say("now", now(cluster));
    say("id", cluster.more.cluster_id.clone());
    say("Kubernetes", versions(cluster));
    say("nodes", cluster.nodes.map(counts));
    let endpoints = cluster.more.endpoints.iter().map(|(url, node)| {
        node.as_ref()
            .map_or_else(|| url.clone(), |node| format!("{url} (`{node}`)"))
    });
    say("endpoints", Some(endpoints.collect::<Vec<_>>().join(", ")));
    say("certificates", certificate(cluster, all.now));
    say("age", ages(cluster));
    let spec = spec(all);
    if !spec.is_empty() {
        lines.push(paragraph(&format!("  {:<13} ", "spec"), &spec, page));
    }
    lines
}

fn clipped(line: &str, page: Page) -> String {
    page.columns
        .map_or_else(|| line.to_owned(), |columns| clip(line, columns))
}

/// What happens at the moment.
fn now(cluster: &ObservedCluster) -> Option<String> {
    let more = &cluster.more;
    let told = more.condition(ConditionType::Reconciling).or_else(|| {
        more.condition(ConditionType::Deleting)
            .filter(|one| one.is_true())
    });
    let Some(progress) = &more.progress else {
        let told = told?;
        return Some(format!("{}: {}", told.reason, first_line(&told.message)));
    };
    let steps = match (progress.done, progress.total) {
        (Some(done), Some(total)) => format!(", {done} of {total} steps"),
        _ => String::new(),
    };
    let run = told.map_or_else(String::new, |told| format!("{}: ", told.reason));
    let current = progress.current.as_ref();
    let current = current.map_or_else(String::new, |step| format!(": {step}"));
    Some(format!("{run}{}{steps}{current}", progress.stage))
}

fn versions(cluster: &ObservedCluster) -> Option<String> {
    match (&cluster.version, &cluster.desired_version) {
        (Some(has), Some(wanted)) if has != wanted => {
            Some(format!("{has}; the spec asks for {wanted}"))
        }
        (Some(has), _) => Some(has.clone()),
        (None, Some(wanted)) => Some(format!("unknown; the spec asks for {wanted}")),
        (None, None) => None,
    }
}

fn counts(counts: ObservedCounts) -> String {
    let ObservedCounts {
        total,
        ready,
        up_to_date,
        unreachable,
    } = counts;
    let mut text = ready.map_or_else(
        || format!("{total} in the config"),
        |ready| format!("{ready} of {total} Ready"),
    );
    let up_to_date = up_to_date.map(|count| format!(", {count} up to date"));
    let unreachable = unreachable.filter(|count| *count > 0);
    let unreachable = unreachable.map(|count| format!(", {count} unreachable"));
    text.extend(up_to_date.into_iter().chain(unreachable));
    text
}

fn certificate(cluster: &ObservedCluster, now: Timestamp) -> Option<String> {
    let (what, expiry) = cluster.more.certificate.as_ref()?;
    let when = expiry.map_or_else(
        || "at an unknown time".to_owned(),
        |expiry| match expiry.duration_since(now).as_hours() / 24 {
            days @ 0.. => format!(
                "in {}",
                super::lines::count(usize::try_from(days).unwrap_or_default(), "day")
            ),
            days => format!("{} days ago", -days),
        },
    );
    Some(format!("the first expires {when}: {what}"))
}

/// What was applied, and how changes are.
fn spec(all: &Description<'_>) -> String {
    let cluster = all.cluster;
    let mut parts = Vec::new();
    if !cluster.observed {
        parts.push("the last edit is not seen yet".to_owned());
    }
    if let Some((generation, time)) = cluster.more.applied {
        let ago = time.map(|time| age(all.now.duration_since(time).as_secs().max(0)));
        let ago = ago.map_or_else(String::new, |ago| format!(", {ago} ago"));
        parts.push(format!("generation {generation} is applied{ago}"));
    }
    parts.extend(cluster.more.ways.iter().cloned());
    parts.join("; ")
}

fn ages(cluster: &ObservedCluster) -> Option<String> {
    let late = if cluster.is_stale() {
        ": does the operator run?"
    } else {
        ""
    };
    let seen = cluster.last_survey_age_seconds;
    let seen = seen.map(|seconds| format!("surveyed at most {} ago{late}", age(seconds)));
    let parts: Vec<String> = cluster
        .age_seconds
        .map(age)
        .into_iter()
        .chain(seen)
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The conditions that are not as they should be, those first that only a person can change.
fn amiss(cluster: &ObservedCluster) -> (Vec<&ObservedCondition>, Vec<&str>) {
    use ConditionType as T;
    let order = [
        T::Stalled,
        T::Deleting,
        T::ConfigValid,
        T::Available,
        T::NodesReachable,
        T::EtcdHealthy,
        T::ControlPlaneHealthy,
        T::NodesHealthy,
        T::AddonsApplied,
        T::CertificatesValid,
        T::BackedUp,
        T::Provisioned,
        T::UpToDate,
        T::Paused,
        T::Ready,
    ];
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    for kind in order {
        let Some(found) = cluster.more.condition(kind) else {
            continue;
        };
        let should_be_false = matches!(kind, T::Stalled | T::Deleting | T::Paused);
        match (found.status.as_str(), should_be_false) {
            ("True", false) | ("False", true) => {}
            ("True" | "False", _) => wrong.push(found),
            _ => unknown.push(found.kind.as_str()),
        }
    }
    // The summary says what the others say.
    if wrong.len() > 1 {
        wrong.retain(|one| one.kind != T::Ready.name());
    }
    (wrong, unknown)
}

fn wrong(all: &Description<'_>, page: Page) -> Vec<String> {
    let cluster = all.cluster;
    let next = NextFor {
        name: &cluster.name,
        namespace: all.namespace,
        credentials: all.credentials,
        cluster_id: cluster.more.cluster_id.as_deref(),
        ssh_secret: cluster.more.ssh_secret.as_deref(),
    };
    let (wrong, unknown) = amiss(cluster);
    let mut lines = Vec::new();
    let (mut messages, mut commands): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for one in wrong {
        let since = one
            .since
            .map(|since| age(all.now.duration_since(since).as_secs().max(0)));
        let since = since.map_or_else(String::new, |since| format!(" for {since}"));
        let text = if messages.contains(&one.message.as_str()) {
            "as above"
        } else {
            one.message.as_str()
        };
        messages.push(&one.message);
        let head = format!("  {}={} {}{since}: ", one.kind, one.status, one.reason);
        let mut of_message = text.lines();
        let mut first = of_message.next().unwrap_or_default();
        if one.reason == Reason::AwaitingApproval.name() && cluster.pending_plan.is_some() {
            first = "see below";
        }
        let first = indented(&head, first, page);
        let others = of_message.map(|line| indented("    ", line.trim(), page));
        let message: Vec<String> = std::iter::once(first).chain(others).collect();
        lines.extend(capped(&message, MESSAGE));
        let command = next
            .command(&one.reason)
            .filter(|command| !commands.contains(command));
        if let Some(command) = command {
            lines.push(hint(&command, page));
            commands.push(command);
        }
    }
    if !unknown.is_empty() {
        lines.push(indented("  not known: ", &unknown.join(", "), page));
    }
    if cluster.more.conditions.is_empty()
        && let Some(message) = &cluster.message
    {
        lines.push(indented("  ", message, page));
    }
    titled("not as it should be", lines)
}

/// A sentence that is wrapped; what follows is indented by four columns, not below the end of a long head.
fn indented(head: &str, text: &str, page: Page) -> String {
    let sentence = format!("{head}{text}");
    let sentence = sentence.trim_end();
    if page.columns.is_none() {
        return sentence.to_owned();
    }
    let lead = sentence.len() - sentence.trim_start().len();
    let wrapped = paragraph("    ", sentence.trim_start(), page);
    format!("{}{}", " ".repeat(lead), wrapped.trim_start())
}

/// A command is not wrapped: it is copied.
fn hint(command: &str, page: Page) -> String {
    format!("    {} {command}", page.paint.hint("next:"))
}

fn titled(title: &str, lines: Vec<String>) -> Vec<String> {
    if lines.is_empty() {
        return lines;
    }
    std::iter::once(title.to_owned()).chain(lines).collect()
}

fn waits(all: &Description<'_>, page: Page) -> Vec<String> {
    let cluster = all.cluster;
    let mut lines: Vec<String> = cluster
        .more
        .remaining
        .iter()
        .map(|one| clipped(&format!("  {one}"), page))
        .collect();
    if !lines.is_empty() {
        return titled("not cleaned yet", lines);
    }
    let Some(plan) = &cluster.pending_plan else {
        return lines;
    };
    let since = plan
        .since
        .map(|since| age(all.now.duration_since(since).as_secs().max(0)));
    let since = since.map_or_else(String::new, |since| format!(" for {since}"));
    let steps = plan
        .steps
        .map_or_else(String::new, |steps| format!(", {steps} steps"));
    let disrupted = plan.disruptions.join(", ");
    let disrupted = if disrupted.is_empty() {
        "nothing is disrupted".to_owned()
    } else {
        format!("disrupts {disrupted}")
    };
    let waits = clusters::waits_for(plan);
    lines.push(clipped(
        &format!("  {waits}{since}{steps}: {disrupted}"),
        page,
    ));
    lines.push(format!(
        "    {} kubectl get rkec {} -o jsonpath='{{.status.pendingPlan.plan}}'",
        page.paint.hint("plan:"),
        cluster.name
    ));
    lines.push(hint(&approve_command(&cluster.name, &plan.digest), page));
    titled("waits for a person", lines)
}

fn nodes(cluster: &ObservedCluster, page: Page) -> Vec<String> {
    let list = &cluster.more.node_list;
    let name = list.iter().map(|node| node.name.chars().count()).max();
    let name = name.unwrap_or_default().min(32);
    let all = list.iter().map(|node| {
        let ObservedNode {
            name: own,
            roles,
            state,
            version,
            message,
        } = node;
        let words = [
            state.clone(),
            version.clone(),
            Some(roles.join(",")),
            message.clone(),
        ];
        let words: Vec<String> = words
            .into_iter()
            .flatten()
            .filter(|word| !word.is_empty())
            .collect();
        clipped(
            &format!("  {:<name$}  {}", clip(own, name), words.join("  ")),
            page,
        )
    });
    titled("nodes", all.collect())
}

fn warnings(cluster: &ObservedCluster, page: Page) -> Vec<String> {
    let all = cluster.more.warnings.iter();
    let all = all.map(|one| clipped(&format!("  - {}", first_line(one)), page));
    titled("warnings", all.collect())
}

fn events(all: &Description<'_>, page: Page) -> Vec<String> {
    let events = match all.events {
        Ok(events) => events,
        Err(why) => {
            return titled(
                "events",
                vec![clipped(&format!("  cannot be read: {why}"), page)],
            );
        }
    };
    let skip = events.len().saturating_sub(EVENTS - 1);
    let shown = events.iter().skip(skip).map(|event| {
        let ago = event
            .at
            .map(|at| age(all.now.duration_since(at).as_secs().max(0)));
        let ago = ago.unwrap_or_else(|| "-".to_owned());
        let times = if event.count > 1 {
            format!(" ({} times)", event.count)
        } else {
            String::new()
        };
        let kind = if event.warning { "warning" } else { "" };
        let line = format!(
            "  {ago:<4}  {kind:<7}  {}{times}: {}",
            event.reason,
            first_line(&event.note)
        );
        clipped(&line, page)
    });
    titled("events", shown.collect())
}

fn kubeconfig(all: &Description<'_>) -> Vec<String> {
    let line = all.kubeconfig.map_or_else(
        || "  none yet: it is there when the cluster is built".to_owned(),
        |secret| {
            format!(
                "  {}",
                kubeconfig_command(&all.cluster.name, secret, all.credentials)
            )
        },
    );
    titled("kubeconfig", vec![line])
}

#[cfg(test)]
mod tests;
