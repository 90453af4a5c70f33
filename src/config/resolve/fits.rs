//! Whether the release can run what the config asks for. The programs of Kubernetes and etcd do not start with a flag, a
//! feature gate or an admission plugin that they do not know, and the API server answers 404 for what it does not serve.
//!
//! Where the config names a custom build, a name that rke-operator's lists lack is a warning: the build may know it.

mod instead;
mod lists;
mod manifests;
mod values;

pub(super) use manifests::Serving;

use std::collections::BTreeMap;

use super::{Found, version::Wanted};
use crate::{
    catalog::{
        Images,
        accepts::{self, Minor, Program},
    },
    config::{
        cursor::Cursor,
        intent::Intent,
        problem::Problem,
        schema::{ETCD, KUBE_API, KUBE_CONTROLLER, KUBELET, Key, SERVICE},
        tree::Node,
        validate::nearest,
    },
};

/// The release of a project that the nodes run, and whether it is a custom build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    pub(super) release: Minor,
    /// The key of `system_images` that names a custom build.
    pub(super) own_build: Option<&'static str>,
    /// Whether the config names the release; else a cluster that exists keeps its own.
    pub(super) is_given: bool,
}

/// What the nodes run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) kubernetes: Runs,
    /// `None` where the image does not tell, or etcd is not ours.
    etcd: Option<Runs>,
}

impl Release {
    /// `own`: the images that the config names, by RKE's names.
    pub(super) fn new(
        wanted: Wanted,
        images: &Images,
        own: &BTreeMap<String, String>,
        etcd_is_ours: bool,
    ) -> Self {
        let named = |name: &'static str, is_known: fn(&str) -> bool| {
            let image = own.get(name)?;
            (!is_known(image)).then_some(name)
        };
        let Wanted {
            version,
            given: is_given,
        } = wanted;
        let etcd = super::images::etcd_release(&images.etcd).filter(|_| etcd_is_ours);
        Self {
            kubernetes: Runs {
                release: Minor {
                    major: version.major,
                    minor: version.minor,
                },
                own_build: named("kubernetes", |image| {
                    super::images::release_of(image).is_some()
                }),
                is_given,
            },
            etcd: etcd.map(|release| Runs {
                release,
                own_build: named("etcd", super::images::is_known_etcd),
                is_given,
            }),
        }
    }

    const fn of(&self, program: Program) -> Option<Runs> {
        match program {
            Program::Etcd => self.etcd,
            Program::ApiServer
            | Program::ControllerManager
            | Program::Scheduler
            | Program::Kubelet
            | Program::Proxy => Some(self.kubernetes),
        }
    }
}

impl Runs {
    /// A hint about what another release may have.
    fn or_other(self, hint: &str) -> String {
        let other = if self.is_given {
            ""
        } else {
            "; a cluster of another release needs `kubernetes_version`"
        };
        format!("{hint}{other}")
    }

    /// Says it: as a problem, or as a warning where the owner's build may know better.
    pub(super) fn say(self, problem: Problem, found: &mut Found) {
        let Some(image) = self.own_build else {
            found.problem(problem);
            return;
        };
        let theirs = format!(
            "this is what the published {} says; the image in `system_images.{image}` is a build of your own and may differ",
            self.release
        );
        found.warning(problem.hint(theirs));
    }
}

/// The keys below `services`, the program of each, and its own keys in the schema.
const SERVICES: [(&str, Program, &[Key]); 6] = [
    ("etcd", Program::Etcd, ETCD),
    ("kube-api", Program::ApiServer, KUBE_API),
    (
        "kube-controller",
        Program::ControllerManager,
        KUBE_CONTROLLER,
    ),
    ("scheduler", Program::Scheduler, SERVICE),
    ("kubelet", Program::Kubelet, KUBELET),
    ("kubeproxy", Program::Proxy, SERVICE),
];

/// A flag as the config has it.
struct Arg<'a> {
    /// As the programs read it: `_` is `-`.
    name: String,
    at: Cursor<'a>,
    /// One, or those of `extra_args_array`, each with its place.
    values: Vec<(Cursor<'a>, &'a str)>,
}

/// The name that a program reads where this is written.
pub(super) fn flag_name(written: &str) -> String {
    written.replace('_', "-")
}

fn args<'a>(service: &Cursor<'a>) -> Vec<Arg<'a>> {
    let one = service.get("extra_args").entries().into_iter();
    let one = one.map(|(name, at)| {
        let value = at.scalar().map(|text| (at.clone(), text));
        (name, at, value.into_iter().collect())
    });
    let several = service.get("extra_args_array").entries().into_iter();
    let several = several.map(|(name, at)| {
        let items = at.items().into_iter();
        let values = items.filter_map(|item| item.scalar().map(|text| (item, text)));
        (name, at, values.collect())
    });
    one.chain(several)
        .filter(|(name, _, _)| super::values::is_flag_name(name))
        .map(|(name, at, values)| Arg {
            name: flag_name(name),
            at,
            values,
        })
        .collect()
}

/// What the release of an intent cannot run of it: of flags and manifests, without lines.
pub(super) fn of_intent(intent: &Intent) -> Vec<Problem> {
    let services = &intent.services;
    let extras = [
        ("etcd", &services.etcd),
        ("kube-api", &services.kube_api),
        ("kube-controller", &services.kube_controller),
        ("scheduler", &services.scheduler),
        ("kubelet", &services.kubelet),
        ("kubeproxy", &services.kubeproxy),
    ];
    let extras: serde_json::Map<String, serde_json::Value> = extras
        .into_iter()
        .map(|(key, extras)| {
            let flags = serde_json::json!({
                "extra_args": extras.extra_args,
                "extra_args_array": extras.extra_args_array,
            });
            (key.to_owned(), flags)
        })
        .collect();
    let document = Node::from_json(&serde_json::json!({ "services": extras }));
    let root = Cursor::document(&document);
    let wanted = Wanted {
        version: intent.version,
        given: true,
    };
    let etcd_is_ours = intent.etcd.external().is_none();
    let release = Release::new(wanted, &intent.images, &intent.system_images, etcd_is_ours);
    let mut found = Found::default();
    read(&root, &release, &mut found);
    let serving = Serving::new(&root, &release);
    for manifest in &intent.manifests {
        let object = &manifest.object;
        if let Some(refusal) = serving.refuses(&object.api_version, &object.kind) {
            let problem = Problem {
                hint: refusal.hint,
                ..Problem::new("addons", refusal.what)
            };
            serving.runs().say(problem, &mut found);
        }
    }
    found.problems
}

/// Everything but the manifests.
pub(super) fn read(root: &Cursor<'_>, release: &Release, found: &mut Found) {
    let services = root.get("services");
    for (key, program, own) in SERVICES {
        let Some(runs) = release.of(program) else {
            continue;
        };
        let service = services.get(key);
        let args = args(&service);
        for arg in &args {
            if let Some(problem) = unknown_flag(program, key, own, runs, arg) {
                runs.say(problem, found);
                continue;
            }
            lists::read(program, runs, arg, found);
            values::read(program, runs, arg, &args, found);
        }
    }
    let api = services.get("kube-api");
    lists::configured_plugins(&api, release.kubernetes, found);
    values::kms(&api, release.kubernetes, &args(&api), found);
}

/// What is wrong with the name of a flag.
fn unknown_flag(
    program: Program,
    service: &str,
    own_keys: &[Key],
    runs: Runs,
    arg: &Arg<'_>,
) -> Option<Problem> {
    let release = runs.release;
    let name = arg.name.as_str();
    let called = program.name();
    let span = accepts::flag(program, name);
    let (message, hint) = match span {
        Some(span) if span.has(release) => return None,
        Some(span) if release < span.first => (
            format!(
                "{called} has this flag since {}; this is {release}",
                span.first
            ),
            runs.or_other("remove it, or ask for a newer release"),
        ),
        Some(span) => (
            format!(
                "{called} {release} has no such flag; {} was the last with it",
                span.last
            ),
            runs.or_other(instead::of_flag(program, name).unwrap_or("remove it")),
        ),
        None => (
            format!("{called} has no such flag"),
            elsewhere(name, service, own_keys, release)
                .or_else(|| {
                    let near = nearest(name, accepts::flags(program, release));
                    near.map(|near| format!("did you mean `{near}`?"))
                })
                .unwrap_or_else(|| format!("remove it: {called} would not start with it")),
        ),
    };
    Some(arg.at.key_problem(message).hint(hint))
}

/// A key of the service, or a flag of another program.
fn elsewhere(name: &str, service: &str, own_keys: &[Key], release: Minor) -> Option<String> {
    let is_key = |key: &&Key| flag_name(key.name) == name;
    if let Some(key) = own_keys.iter().find(is_key) {
        return Some(format!(
            "it is a key of RKE's: write `{}` under `services.{service}` itself",
            key.name
        ));
    }
    let others = accepts::programs_with(name)
        .filter(|(program, span)| *program != Program::Etcd && span.has(release));
    let others: Vec<_> = others
        .filter_map(|(program, _)| {
            let row = SERVICES.iter().find(|(_, of, _)| *of == program)?;
            Some(format!("`services.{}`", row.0))
        })
        .collect();
    match others.as_slice() {
        [] => None,
        [one] => Some(format!("it belongs under {one}")),
        several => Some(format!("it belongs under one of {}", several.join(", "))),
    }
}

#[cfg(test)]
mod tests;
