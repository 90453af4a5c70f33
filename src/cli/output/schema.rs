//! What `-o json` prints, as data: a row for each command that has it, and the JSON Schema of everything printed, written
//! from the types. `docs/reference` has both; a test compares the rows with the flags.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    json::EndedLine,
    results::{
        ClusterList, DoctorResult, ImageList, NamedResult, PlanResult, SaveResult, ValidResult,
        VersionResult,
    },
};
use crate::{
    apply::event::Event,
    cli::snapshot_list::Snapshots,
    etcd::defrag::Defragmented,
    status::{CertificateStatus, EtcdStatus, Status},
};

/// Where the committed file is.
pub const OUTPUT_SCHEMA_URL: &str = "https://raw.githubusercontent.com/rke-operator/rke-operator/main/docs/reference/output.schema.json";

/// A definition for a type.
type Define = fn(&mut SchemaGenerator) -> Schema;

fn define<T: JsonSchema>(definitions: &mut SchemaGenerator) -> Schema {
    definitions.subschema_for::<T>()
}

/// What a command prints on stdout.
#[derive(Clone, Copy, Debug)]
pub enum Prints {
    /// Events while it runs, one object a line, and how it ended as the last line.
    Events,
    /// One object or array; where there is none, how it ended.
    Result(Define),
}

/// A command with `-o json`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, and the flag that makes it print something else.
    pub command: &'static str,
    /// What it prints.
    pub prints: Prints,
    /// When it prints that, for people.
    pub when: &'static str,
    /// What it printed once.
    pub example: &'static str,
    /// The exit codes next to a result; those without one are the same for every command.
    pub exits: &'static [(&'static str, &'static str)],
}

impl Row {
    /// The name of its definition in [`schema`].
    pub fn definition(&self) -> String {
        self.command.replace(" --", " ").replace(' ', "-")
    }

    /// The command without the flag.
    pub fn name(&self) -> &'static str {
        self.command
            .split_once(" --")
            .map_or(self.command, |(name, _)| name)
    }

    const fn events(command: &'static str) -> Self {
        Self {
            command,
            prints: Prints::Events,
            when: "",
            example: "",
            exits: &[],
        }
    }
}

/// How a failed command ended.
pub const FAILED: &str = include_str!("examples/failed.json");
/// What a run printed.
pub const EVENTS: &str = include_str!("examples/events.jsonl");

/// The exit codes of `doctor`.
const DOCTOR: &[(&str, &str)] = &[
    ("0", "nothing prevents `up`"),
    (
        "1, 2 or 70",
        "something prevents `up` (`ready` is `false`): the class of the first finding with the severity `error`",
    ),
    ("3", "nothing prevents `up`, but a node does not answer"),
];

/// Every command with `-o json`.
pub const ROWS: &[Row] = &[
    Row::events("up"),
    Row::events("remove"),
    Row::events("cert rotate"),
    Row::events("encrypt rotate-key"),
    Row::events("etcd snapshot-restore"),
    Row::events("etcd recover"),
    Row::events("node reboot"),
    Row::events("node reset"),
    Row::events("images load"),
    Row {
        command: "plan",
        prints: Prints::Result(define::<PlanResult<'_>>),
        when: "What `up` would do; with `--remove`, what `remove` would do.",
        example: include_str!("examples/plan.json"),
        exits: &[
            ("0", "there is a plan, which may be empty"),
            (
                "3",
                "of `--remove`: a node does not answer and cannot be cleaned",
            ),
            ("4", "of `--exit-code`: there is something to do"),
        ],
    },
    Row {
        command: "validate",
        prints: Prints::Result(define::<ValidResult>),
        when: "The config is valid.",
        example: include_str!("examples/validate.json"),
        exits: &[("0", "the config is valid")],
    },
    Row {
        command: "validate --connect",
        prints: Prints::Result(define::<DoctorResult<'_>>),
        when: "The same as `doctor --no-write`.",
        example: "",
        exits: DOCTOR,
    },
    Row {
        command: "doctor",
        prints: Prints::Result(define::<DoctorResult<'_>>),
        when: "The nodes were checked.",
        example: include_str!("examples/doctor.json"),
        exits: DOCTOR,
    },
    Row {
        command: "status",
        prints: Prints::Result(define::<Status>),
        when: "The cluster was surveyed. With `--watch`, one object a line for each survey.",
        example: include_str!("examples/status.json"),
        exits: &[
            ("0", "the cluster is healthy"),
            ("3", "`cluster.health` is anything else"),
        ],
    },
    Row {
        command: "status --all",
        prints: Prints::Result(define::<ClusterList>),
        when: "The management cluster answered.",
        example: include_str!("examples/status-all.json"),
        exits: &[
            ("0", "every `Cluster` is healthy"),
            ("3", "the `health` of one of them is anything else"),
        ],
    },
    Row {
        command: "etcd members",
        prints: Prints::Result(define::<EtcdStatus>),
        when: "The cluster was surveyed. `status` has the same object as `etcd`.",
        example: include_str!("examples/etcd-members.json"),
        exits: &[
            ("0", "etcd serves and every member is healthy"),
            (
                "3",
                "etcd does not serve, a member is unhealthy or missing, or an alarm is active",
            ),
        ],
    },
    Row {
        command: "etcd snapshot-save",
        prints: Prints::Result(define::<SaveResult<'_>>),
        when: "At least one node saved the snapshot.",
        example: include_str!("examples/etcd-snapshot-save.json"),
        exits: &[
            ("0", "every node saved it"),
            (
                "3",
                "a node failed, no copy reached the bucket, or a trial restore failed",
            ),
        ],
    },
    Row {
        command: "etcd snapshot-list",
        prints: Prints::Result(define::<Snapshots>),
        when: "The nodes with etcd were queried.",
        example: include_str!("examples/etcd-snapshot-list.json"),
        exits: &[("0", "every node answered"), ("3", "a node did not answer")],
    },
    Row {
        command: "etcd verify",
        prints: Prints::Result(define::<NamedResult<'_>>),
        when: "At least one node answered.",
        example: include_str!("examples/etcd-verify.json"),
        exits: &[
            ("0", "the snapshot is proven on every node that has it"),
            ("3", "it is not proven on one of them, or a node failed"),
        ],
    },
    Row {
        command: "etcd snapshot-delete",
        prints: Prints::Result(define::<NamedResult<'_>>),
        when: "At least one node answered.",
        example: include_str!("examples/etcd-snapshot-delete.json"),
        exits: &[
            ("0", "no node has the snapshot any more"),
            ("3", "a node still has it, or failed"),
        ],
    },
    Row {
        command: "etcd defrag",
        prints: Prints::Result(define::<Defragmented>),
        when: "Every member was defragmented.",
        example: include_str!("examples/etcd-defrag.json"),
        exits: &[("0", "every member was defragmented")],
    },
    Row {
        command: "cert info",
        prints: Prints::Result(define::<Vec<CertificateStatus>>),
        when: "The state was read. An array with an object for each certificate.",
        example: include_str!("examples/cert-info.json"),
        exits: &[
            ("0", "all of them were read"),
            (
                "3",
                "of `--nodes` and `--served`: those of a node could not be read",
            ),
        ],
    },
    Row {
        command: "images list",
        prints: Prints::Result(define::<ImageList<'_>>),
        when: "The config is valid. Contacts no node.",
        example: include_str!("examples/images-list.json"),
        exits: &[("0", "the config is valid")],
    },
    Row {
        command: "version",
        prints: Prints::Result(define::<VersionResult>),
        when: "Always; a cluster that does not answer is a warning on stderr.",
        example: include_str!("examples/version.json"),
        exits: &[("0", "always")],
    },
];

/// The JSON Schema of everything that is printed: `$defs` has a definition for each [`Row`], and one for each type.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let dialect = settings.meta_schema.as_deref().map(str::to_owned);
    let mut definitions = settings.into_generator();
    let ended = definitions.subschema_for::<EndedLine<'_>>();
    let event = definitions.subschema_for::<Event>();
    let mut commands = Map::new();
    for row in ROWS {
        let first = match row.prints {
            Prints::Events => event.clone(),
            Prints::Result(define) => define(&mut definitions),
        };
        let title = format!("rke-operator {} -o json", row.command);
        let each = json!({"title": title, "anyOf": [first, ended]});
        commands.insert(row.definition(), each);
    }
    commands.extend(definitions.take_definitions(true));
    let mut commands = Value::Object(commands);
    allow_more(&mut commands);
    json!({
        "$schema": dialect,
        "$id": OUTPUT_SCHEMA_URL,
        "title": "What rke-operator prints with -o json",
        "$defs": commands,
    })
}

/// Fields may be added: no object is closed.
fn allow_more(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
                fields.remove("additionalProperties");
            }
            fields.values_mut().for_each(allow_more);
        }
        Value::Array(items) => items.iter_mut().for_each(allow_more),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Command, CommandFactory as _};

    use super::*;
    use crate::cli::args::Cli;

    fn with_json(command: &Command, path: &str, found: &mut BTreeSet<String>) {
        for command in command.get_subcommands() {
            let path = format!("{path} {}", command.get_name());
            let mut flags = command.get_arguments();
            let output = flags.find(|flag| flag.get_id() == "output");
            let values = output.map_or_else(Vec::new, clap::Arg::get_possible_values);
            if values.iter().any(|value| value.get_name() == "json") {
                found.insert(path.trim().to_owned());
            }
            with_json(command, &path, found);
        }
    }

    #[test]
    fn every_command_with_json_has_a_row() {
        let mut declared = BTreeSet::new();
        with_json(&Cli::command(), "", &mut declared);
        let rows: BTreeSet<String> = ROWS.iter().map(|row| row.name().to_owned()).collect();
        assert_eq!(declared, rows);
        let definitions: BTreeSet<String> = ROWS.iter().map(Row::definition).collect();
        assert_eq!(definitions.len(), ROWS.len());
    }

    /// A second type of a name would be `Status2` in the schema.
    #[test]
    fn each_type_has_one_name_and_none_is_closed() {
        let schema = schema();
        let definitions = schema["$defs"].as_object().unwrap();
        for name in definitions.keys() {
            assert!(
                !name.ends_with(|last: char| last.is_ascii_digit()),
                "{name}"
            );
        }
        assert!(
            !schema
                .to_string()
                .contains("\"additionalProperties\":false")
        );
    }
}
