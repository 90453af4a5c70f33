//! A `Cluster` as `status -A` and `describe` show it: each field is read separately, so that an object which another
//! release wrote, or which the schema would refuse, is shown as far as it can be read. Text of others is escaped here.
//! Pure.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::conditions::{ConditionStatus, ConditionType, Reason};
use crate::model::{printable, printable_lines};

/// The health of a cluster in one word: the words of `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ObservedHealth {
    /// It serves, and nothing is wrong. Differences from the spec do not count.
    Healthy,
    /// It serves, and something is wrong.
    Degraded,
    /// It does not serve, or that cannot be seen.
    Unavailable,
    /// It was not created yet.
    Absent,
    /// It is being deleted.
    Deleting,
}

/// A condition as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// Lines.
    pub message: String,
    /// Since when it has this status.
    pub since: Option<Timestamp>,
}

/// A plan that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedPlan {
    /// The digest that an approval names.
    pub digest: String,
    /// `Approval`, `Consent` or `Update`.
    pub reason: String,
    /// How many steps change something.
    pub steps: Option<i64>,
    /// What it disrupts: `n1: restarts kubelet`.
    pub disruptions: Vec<String>,
    /// Since when it waits.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
}

/// A node as the status lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// `Ready`, `Unreachable` and so on; none where only the config is known.
    pub state: Option<String>,
    /// Its version of Kubernetes.
    pub version: Option<String>,
    /// Why it is so.
    pub message: Option<String>,
}

/// Nodes, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCounts {
    /// How many the config names.
    pub total: i64,
    /// How many are Ready.
    pub ready: Option<i64>,
    /// How many are as the spec says.
    pub up_to_date: Option<i64>,
    /// How many do not answer.
    pub unreachable: Option<i64>,
}

/// The run that is in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedProgress {
    /// Its stage.
    pub stage: String,
    /// Steps that are done.
    pub done: Option<i64>,
    /// All steps.
    pub total: Option<i64>,
    /// A step that is in progress.
    pub current: Option<String>,
}

/// What can be read of a `Cluster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCluster {
    /// Its name.
    pub name: String,
    /// Its health in one word.
    pub health: ObservedHealth,
    /// The version that its API server reports.
    pub version: Option<String>,
    /// The version that the spec asks for.
    pub desired_version: Option<String>,
    /// Its nodes, counted; null if unknown.
    pub nodes: Option<ObservedCounts>,
    /// Status of the condition `Available`.
    pub available: String,
    /// Status of the condition `Ready`.
    pub ready: String,
    /// Reason of the condition that explains why it is not Ready or not healthy, or what is in progress.
    pub reason: Option<String>,
    /// Message of that condition.
    pub message: Option<String>,
    /// A plan that waits for a person.
    pub pending_plan: Option<ObservedPlan>,
    /// When the operator last surveyed it.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_survey: Option<Timestamp>,
    /// How long ago that was.
    pub last_survey_age_seconds: Option<i64>,
    /// How long ago the object was created.
    pub age_seconds: Option<i64>,
    /// The operator has observed the last edit of the spec.
    pub observed: bool,
    /// What does not fit into a line of a list.
    #[serde(skip)]
    pub more: ObservedMore,
}

/// The rest of what can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedMore {
    /// The object's uid.
    pub uid: String,
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// Every condition that the operator writes.
    pub conditions: Vec<ObservedCondition>,
    /// Where the API answers, and on which node.
    pub endpoints: Vec<(String, Option<String>)>,
    /// The certificate that expires first.
    pub certificate: Option<(String, Option<Timestamp>)>,
    /// The nodes that the status lists, the worst first; else those that the config names.
    pub node_list: Vec<ObservedNode>,
    /// What the config and the last run warned about.
    pub warnings: Vec<String>,
    /// The run that is in progress.
    pub progress: Option<ObservedProgress>,
    /// While it is deleted: `n1: Unreachable: no route to host`.
    pub remaining: Vec<String>,
    /// What the spec says about changes, drift and deletions, in its own words.
    pub ways: Vec<String>,
    /// The generation of the config that was applied last, and when.
    pub applied: Option<(i64, Option<Timestamp>)>,
    /// The Secret with the login.
    pub ssh_secret: Option<String>,
}

/// An Event about a `Cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedEvent {
    /// When it was seen last.
    pub at: Option<Timestamp>,
    /// Something to look at.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// Lines.
    pub note: String,
    /// How often it was seen.
    pub count: i64,
}

impl ObservedEvent {
    /// Reads one of `events.k8s.io/v1`.
    pub fn read(event: &Value) -> Self {
        let places = [
            "/series/lastObservedTime",
            "/eventTime",
            "/deprecatedLastTimestamp",
            "/metadata/creationTimestamp",
        ];
        Self {
            at: places.iter().find_map(|place| time(event.pointer(place))),
            warning: event.get("type").and_then(Value::as_str) == Some("Warning"),
            reason: text(event.get("reason")).unwrap_or_else(|| "-".to_owned()),
            note: lines(event.get("note")).unwrap_or_default(),
            count: number(event.pointer("/series/count")).unwrap_or(1),
        }
    }
}

/// From this age on a survey no longer says how the cluster is: its time is rounded to ten minutes, and three are missed.
pub const STALE_SECONDS: i64 = 1800;

impl ObservedCluster {
    /// Reads an object, whatever is in it.
    pub fn read(object: &Value, now: Timestamp) -> Self {
        let at = |path: &str| text(object.pointer(path));
        let generation = number(object.pointer("/metadata/generation"));
        let observed = number(object.pointer("/status/observedGeneration"));
        let last_survey = time(object.pointer("/status/lastSurvey"));
        let created = time(object.pointer("/metadata/creationTimestamp"));
        let since = |then: Timestamp| now.duration_since(then).as_secs().max(0);
        let more = ObservedMore::read(object);
        let status_of = |kind: ConditionType| {
            let found = more.condition(kind);
            found
                .map_or("Unknown", |one| one.status.as_str())
                .to_owned()
        };
        let mut cluster = Self {
            name: at("/metadata/name").unwrap_or_default(),
            health: ObservedHealth::Absent,
            version: at("/status/version"),
            desired_version: at("/status/desiredVersion"),
            nodes: counts(object),
            available: status_of(ConditionType::Available),
            ready: status_of(ConditionType::Ready),
            reason: None,
            message: None,
            pending_plan: pending(object),
            last_survey,
            // The time of a survey is rounded down, possibly to before the creation of the object.
            last_survey_age_seconds: last_survey
                .max(created.filter(|_| last_survey.is_some()))
                .map(since),
            age_seconds: created.map(since),
            observed: observed.is_some() && observed == generation,
            more,
        };
        cluster.health = cluster.seen_health(object);
        let why = cluster.why(object);
        cluster.reason = why.as_ref().map(|(reason, _)| reason.clone());
        cluster.message = why.map(|(_, message)| message);
        cluster
    }

    /// True where the last survey is too long ago.
    pub fn is_stale(&self) -> bool {
        self.last_survey_age_seconds
            .is_some_and(|age| age >= STALE_SECONDS)
    }

    /// True where nothing is wrong: what differs from the spec is no fault of the cluster.
    pub fn is_healthy(&self) -> bool {
        self.health == ObservedHealth::Healthy
    }

    fn seen_health(&self, object: &Value) -> ObservedHealth {
        let more = &self.more;
        if is_deleted(object) {
            return ObservedHealth::Deleting;
        }
        let ready = more.condition(ConditionType::Ready);
        let provisioned = more.condition(ConditionType::Provisioned);
        let was_built = self.version.is_some()
            || provisioned.is_some_and(ObservedCondition::is_true)
            || ready.is_some_and(ObservedCondition::is_true);
        if !was_built {
            return ObservedHealth::Absent;
        }
        if self.available != ConditionStatus::True.name() {
            return ObservedHealth::Unavailable;
        }
        let all = ConditionType::HEALTH.iter().all(|kind| {
            more.condition(*kind)
                .is_some_and(ObservedCondition::is_true)
        });
        if all && more.condition(ConditionType::Stalled).is_none() && !self.is_stale() {
            ObservedHealth::Healthy
        } else {
            ObservedHealth::Degraded
        }
    }

    /// The first thing that its reader wants to know.
    fn why(&self, object: &Value) -> Option<(String, String)> {
        use ConditionType as T;
        let more = &self.more;
        let said = |one: &ObservedCondition| (one.reason.clone(), one.message.clone());
        let of = |kind: T| more.condition(kind);
        let stalled = of(T::Stalled).map(said);
        if is_deleted(object) {
            let deleting = of(T::Deleting).filter(|one| one.is_true()).map(said);
            let waits = (
                "Deleting".to_owned(),
                "the operator has not begun yet".to_owned(),
            );
            return stalled.or(deleting).or(Some(waits));
        }
        if stalled.is_some() {
            return stalled;
        }
        if more.conditions.is_empty() {
            let message = if object.get("status").is_some_and(|status| !is_empty(status)) {
                "its status cannot be read"
            } else {
                "the operator has not seen it yet"
            };
            return Some(("NotYetKnown".to_owned(), message.to_owned()));
        }
        let healed = of(T::Reconciling).map(said);
        let health = T::HEALTH.iter().filter_map(|kind| of(*kind));
        let mut health = health.filter(|one| !one.is_true());
        let stale = self.is_stale().then(|| {
            let message = "the last survey is too long ago: does the operator run?";
            ("SurveyStale".to_owned(), message.to_owned())
        });
        let unseen = (!self.observed).then(|| {
            let message = "the operator has not seen the last edit of the spec yet";
            ("NotYetKnown".to_owned(), message.to_owned())
        });
        let ready = of(T::Ready).filter(|one| !one.is_true());
        let others = [T::UpToDate, T::Provisioned].into_iter().filter_map(of);
        let mut others = others.filter(|one| one.status == ConditionStatus::False.name());
        // A summary names the condition that is behind it.
        let sums = [
            Reason::NotAvailable,
            Reason::NodesNotReady,
            Reason::ComponentDown,
        ];
        let is_sum = ready.is_some_and(|one| sums.iter().any(|reason| reason.name() == one.reason));
        let behind = if is_sum { health.next() } else { None };
        stale
            .or_else(|| behind.map(said))
            .or_else(|| ready.map(said))
            .or_else(|| health.next().map(said))
            .or(unseen)
            .or(healed)
            .or_else(|| others.next().map(said))
            .or_else(|| of(T::Paused).filter(|one| one.is_true()).map(said))
    }
}

impl ObservedCondition {
    /// True where its status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True.name()
    }
}

impl ObservedMore {
    /// A condition; one of those that are only there while true counts only then.
    pub fn condition(&self, kind: ConditionType) -> Option<&ObservedCondition> {
        let mut conditions = self.conditions.iter();
        let found = conditions.find(|one| one.kind == kind.name())?;
        (found.is_true() || !kind.only_when_true()).then_some(found)
    }

    fn read(object: &Value) -> Self {
        let at = |path: &str| text(object.pointer(path));
        let list = |path: &str| object.pointer(path).and_then(Value::as_array);
        let endpoints = list("/status/endpoints").into_iter().flatten();
        let endpoints =
            endpoints.filter_map(|one| Some((text(one.get("url"))?, text(one.get("node")))));
        let warnings = list("/status/warnings").into_iter().flatten();
        let remaining = list("/status/remaining").into_iter().flatten();
        let remaining = remaining.filter_map(|one| {
            let parts = ["name", "reason", "message"].map(|field| text(one.get(field)));
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            (!parts.is_empty()).then(|| parts.join(": "))
        });
        let certificate = at("/status/certificates/component").map(|what| {
            (
                what,
                time(object.pointer("/status/certificates/earliestExpiry")),
            )
        });
        let progress = at("/status/progress/stage").map(|stage| ObservedProgress {
            stage,
            done: number(object.pointer("/status/progress/done")),
            total: number(object.pointer("/status/progress/total")),
            current: at("/status/progress/current"),
        });
        let applied =
            number(object.pointer("/status/appliedConfig/observedGeneration")).map(|generation| {
                (
                    generation,
                    time(object.pointer("/status/appliedConfig/time")),
                )
            });
        Self {
            uid: at("/metadata/uid").unwrap_or_default(),
            cluster_id: at("/status/clusterID"),
            conditions: conditions(object),
            endpoints: endpoints.collect(),
            certificate,
            node_list: nodes(object),
            warnings: warnings.filter_map(|one| lines(Some(one))).collect(),
            progress,
            remaining: remaining.collect(),
            ways: ways(object),
            applied,
            ssh_secret: at("/spec/ssh/keySecretRef/name"),
        }
    }
}

fn is_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// A word or a line.
fn text(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    (!text.is_empty()).then(|| printable(text).into_owned())
}

/// A text of several lines.
fn lines(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    (!text.is_empty()).then(|| printable_lines(text))
}

fn number(value: Option<&Value>) -> Option<i64> {
    value?.as_i64()
}

fn time(value: Option<&Value>) -> Option<Timestamp> {
    value?.as_str()?.parse().ok()
}

fn conditions(object: &Value) -> Vec<ObservedCondition> {
    let all = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let all = all.into_iter().flatten();
    let read = all.filter_map(|one| {
        Some(ObservedCondition {
            kind: text(one.get("type"))?,
            status: text(one.get("status"))?,
            reason: text(one.get("reason")).unwrap_or_else(|| "-".to_owned()),
            message: lines(one.get("message")).unwrap_or_default(),
            since: time(one.get("lastTransitionTime")),
        })
    });
    let ours = |one: &ObservedCondition| {
        let mut table = ConditionType::TABLE.iter();
        table.any(|row| row.kind.name() == one.kind)
    };
    read.filter(ours).collect()
}

fn counts(object: &Value) -> Option<ObservedCounts> {
    let named = object
        .pointer("/spec/config/nodes")
        .and_then(Value::as_array);
    let named = named.and_then(|nodes| i64::try_from(nodes.len()).ok());
    let count = |field: &str| number(object.pointer(&format!("/status/nodes/{field}")));
    Some(ObservedCounts {
        total: count("total").or(named)?,
        ready: count("ready"),
        up_to_date: count("upToDate"),
        unreachable: count("unreachable"),
    })
}

fn pending(object: &Value) -> Option<ObservedPlan> {
    let plan = object.pointer("/status/pendingPlan")?;
    let disruptions = plan.get("disruptions").and_then(Value::as_array);
    let disruptions = disruptions.into_iter().flatten();
    Some(ObservedPlan {
        digest: text(plan.get("digest"))?,
        reason: text(plan.get("reason")).unwrap_or_else(|| "-".to_owned()),
        steps: number(plan.get("steps")),
        disruptions: disruptions
            .filter_map(|one| {
                Some(format!(
                    "{}: {}",
                    text(one.get("node"))?,
                    text(one.get("what"))?
                ))
            })
            .collect(),
        since: time(plan.get("createdAt")),
    })
}

/// How bad a state of a node is.
fn rank(state: Option<&str>) -> u8 {
    match state {
        Some("Unreachable") => 0,
        Some("NotReady") => 1,
        Some("Unknown") => 2,
        Some("Leaving") => 3,
        Some("Joining") => 4,
        Some("Updating") => 5,
        Some("Ready") => 7,
        Some(_) | None => 6,
    }
}

fn nodes(object: &Value) -> Vec<ObservedNode> {
    let words = |value: Option<&Value>| -> Vec<String> {
        let words = value.and_then(Value::as_array).into_iter().flatten();
        words.filter_map(|word| text(Some(word))).collect()
    };
    let details = object
        .pointer("/status/nodeDetails")
        .and_then(Value::as_array);
    if let Some(details) = details.filter(|details| !details.is_empty()) {
        let read = details.iter().filter_map(|node| {
            Some(ObservedNode {
                name: text(node.get("name"))?,
                roles: words(node.get("roles")),
                state: text(node.get("state")),
                version: text(node.get("version")),
                message: text(node.get("message")),
            })
        });
        let mut nodes: Vec<ObservedNode> = read.collect();
        nodes.sort_by_key(|node| rank(node.state.as_deref()));
        return nodes;
    }
    let named = object
        .pointer("/spec/config/nodes")
        .and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(|node| {
        let name = text(node.get("hostname_override")).or_else(|| text(node.get("address")))?;
        Some(ObservedNode {
            name,
            roles: words(node.get("role")),
            ..ObservedNode::default()
        })
    });
    named.collect()
}

/// What the spec says about changes and deletions, where it is not the default.
fn ways(object: &Value) -> Vec<String> {
    let paths = [
        ("/spec/changes", "changes"),
        ("/spec/drift", "drift"),
        ("/spec/paused", "paused"),
        ("/spec/deletionProtection", "deletionProtection"),
        ("/spec/deletion/policy", "deletion.policy"),
        ("/spec/deletion/timeout", "deletion.timeout"),
        ("/spec/deletion/onTimeout", "deletion.onTimeout"),
    ];
    let said = paths.into_iter().filter_map(|(path, field)| {
        let value = object.pointer(path)?;
        if let Some(flag) = value.as_bool() {
            return flag.then(|| field.to_owned());
        }
        Some(format!("{field}: {}", text(Some(value))?))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2030-01-01T12:00:00Z".parse().unwrap()
    }

    /// A cluster that is healthy, changed by that merge.
    fn read(change: &Value) -> ObservedCluster {
        let good = ConditionType::HEALTH.map(
            |kind| json!({"type": kind.name(), "status": "True", "reason": "Good", "message": ""}),
        );
        let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": ""});
        let conditions = [[ready].as_slice(), good.as_slice()].concat();
        let mut object = json!({
            "metadata": {"name": "a", "generation": 1},
            "status": {"observedGeneration": 1, "version": "v1.34.4",
                "conditions": conditions},
        });
        merge(&mut object, change);
        ObservedCluster::read(&object, now())
    }

    fn merge(object: &mut Value, change: &Value) {
        let Value::Object(fields) = change else {
            *object = change.clone();
            return;
        };
        for (field, value) in fields {
            if field == "conditions" {
                for one in value.as_array().unwrap() {
                    let there = object["conditions"].as_array_mut().unwrap();
                    there.retain(|other| other["type"] != one["type"]);
                    there.push(one.clone());
                }
            } else {
                merge(&mut object[field], value);
            }
        }
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"status": {"conditions": [
            {"type": kind, "status": status, "reason": reason, "message": "why\nand more"}
        ]}})
    }

    /// What differs from the spec is no fault of the cluster, as `status` without `-A` counts it.
    #[test]
    fn health_and_the_first_reason_follow_from_the_conditions() {
        use ObservedHealth::{Absent, Degraded, Deleting, Healthy, Unavailable};
        for (change, health, reason) in [
            (json!({}), Healthy, None),
            (
                condition("Ready", "False", "SpecNotApplied"),
                Healthy,
                Some("SpecNotApplied"),
            ),
            (
                condition("Reconciling", "True", "Healing"),
                Healthy,
                Some("Healing"),
            ),
            (
                condition("UpToDate", "False", "Drifted"),
                Healthy,
                Some("Drifted"),
            ),
            (
                condition("Paused", "True", "Paused"),
                Healthy,
                Some("Paused"),
            ),
            (condition("Reconciling", "False", "Healing"), Healthy, None),
            (
                condition("Stalled", "True", "InvalidConfig"),
                Degraded,
                Some("InvalidConfig"),
            ),
            (
                condition("AddonsApplied", "False", "Applying"),
                Degraded,
                Some("Applying"),
            ),
            (
                condition("EtcdHealthy", "Unknown", "Unreachable"),
                Degraded,
                Some("Unreachable"),
            ),
            (
                condition("Available", "False", "QuorumLost"),
                Unavailable,
                Some("QuorumLost"),
            ),
            (
                json!({"status": {"lastSurvey": "2030-01-01T11:30:00Z"}}),
                Degraded,
                Some("SurveyStale"),
            ),
            (
                json!({"status": {"lastSurvey": "2030-01-01T11:30:01Z"}}),
                Healthy,
                None,
            ),
            (
                json!({"metadata": {"generation": 2}}),
                Healthy,
                Some("NotYetKnown"),
            ),
            (json!({"status": null}), Absent, Some("NotYetKnown")),
            (
                json!({"status": {"conditions": []}, "metadata": {"deletionTimestamp": "x"}}),
                Deleting,
                Some("Deleting"),
            ),
        ] {
            let cluster = read(&change);
            assert_eq!(cluster.health, health, "{change}");
            assert_eq!(cluster.reason.as_deref(), reason, "{change}");
            assert_eq!(cluster.is_healthy(), health == Healthy);
        }
    }

    /// Each field on its own: a broken one hides no other.
    #[test]
    fn what_cannot_be_read_hides_nothing_else() {
        let wreck = json!({
            "metadata": {"name": "a\u{1b}[2J", "generation": "one", "creationTimestamp": 7},
            "spec": {"config": {"nodes": [{"address": "10.0.0.1"}, 3]}, "ssh": []},
            "status": {
                "version": "v1.34.4", "observedGeneration": [], "lastSurvey": "yesterday",
                "nodes": "four", "pendingPlan": {"steps": 4}, "endpoints": [1, {"url": "https://a"}],
                "conditions": [{"type": "Available", "status": "True"}, 5, {"status": "False"},
                    {"type": "Theirs", "status": "False"}],
            },
        });
        let cluster = ObservedCluster::read(&wreck, now());
        assert_eq!(
            cluster.name, "a\\u{1b}[2J",
            "control characters are escaped"
        );
        assert_eq!(cluster.version.as_deref(), Some("v1.34.4"));
        assert_eq!(cluster.available, "True");
        assert_eq!(cluster.nodes.unwrap().total, 2);
        assert_eq!(cluster.more.node_list.len(), 1);
        assert_eq!(cluster.more.endpoints.len(), 1);
        assert_eq!(cluster.more.conditions.len(), 1);
        assert_eq!(cluster.pending_plan, None);
        assert_eq!(cluster.health, ObservedHealth::Degraded);
        for value in [
            json!(null),
            json!([]),
            json!("text"),
            json!({"status": "broken"}),
        ] {
            let cluster = ObservedCluster::read(&value, now());
            assert_eq!(cluster.health, ObservedHealth::Absent, "{value}");
        }
    }

    #[test]
    fn the_worst_nodes_come_first() {
        let node = |name: &str, state: &str| json!({"name": name, "state": state});
        let details = [
            node("a", "Ready"),
            node("b", "Later"),
            node("c", "Unreachable"),
            node("d", "NotReady"),
        ];
        let cluster = read(&json!({"status": {"nodeDetails": details}}));
        let names: Vec<&str> = cluster
            .more
            .node_list
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        assert_eq!(names, ["c", "d", "b", "a"]);
    }
}
