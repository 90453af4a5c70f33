//! Which objects of Kubernetes' own groups the API server of the release serves.

use super::{Arg, Release, Runs, args, instead};
use crate::{
    catalog::accepts::{self, go_bool},
    config::cursor::Cursor,
    model::quoted,
};

/// What the API server serves.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    runs: Runs,
    /// `group/version` that `runtime-config` switches on, and `api/all` and the like.
    switched_on: Vec<String>,
}

/// Why an object could not be applied.
pub(crate) struct NotServed {
    /// Of the object: its names may be shown, they are Kubernetes' own.
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl Serving {
    pub(in crate::config::resolve) fn new(root: &Cursor<'_>, release: &Release) -> Self {
        let api = root.get("services").get("kube-api");
        let switched_on = args(&api).iter().flat_map(switched_on).collect();
        Self {
            runs: release.kubernetes,
            switched_on,
        }
    }

    pub(in crate::config::resolve) const fn runs(&self) -> Runs {
        self.runs
    }

    /// `None`: it is served, or that is not known.
    pub(crate) fn refuses(&self, api_version: &str, kind: &str) -> Option<NotServed> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if !accepts::is_own_group(group) || kind.ends_with("List") {
            return None;
        }
        let release = self.runs.release;
        let known = accepts::version(group, version).filter(|row| row.span.has(release));
        let better = || {
            let text = instead::of_kind(group, kind).map(str::to_owned);
            text.or_else(|| {
                let served = accepts::served(group, release);
                let has = |version: &&str| {
                    let row = accepts::version(group, version);
                    row.and_then(|row| row.kinds.get(kind))
                        .is_some_and(|span| span.has(release))
                };
                served.into_iter().find(has).map(|version| {
                    let name = if group.is_empty() {
                        version.to_owned()
                    } else {
                        format!("{group}/{version}")
                    };
                    format!("write `{name}`")
                })
            })
        };
        let Some(known) = known else {
            let what = match accepts::version(group, version) {
                Some(_) => format!("Kubernetes {release} does not serve `{api_version}`"),
                None => format!("Kubernetes {release} does not serve this `apiVersion`"),
            };
            return Some(NotServed {
                what,
                hint: better(),
            });
        };
        if !accepts::is_served(group, version, release) && !self.is_switched_on(group, version) {
            return Some(NotServed {
                what: format!("Kubernetes {release} does not serve `{api_version}`"),
                hint: better().or_else(|| {
                    Some(format!(
                        "`runtime-config: {api_version}=true` under `services.kube-api.extra_args` switches it on"
                    ))
                }),
            });
        }
        match known.kinds.get(kind) {
            Some(span) if span.has(release) => None,
            Some(span) if release < span.first => Some(NotServed {
                what: format!(
                    "`{api_version}` has the kind `{kind}` since {}; this is {release}",
                    span.first
                ),
                hint: Some("ask for a newer release".to_owned()),
            }),
            Some(_) | None => {
                let kinds = known.kinds.iter().filter(|(_, span)| span.has(release));
                let kinds: Vec<_> = kinds.map(|(kind, _)| *kind).collect();
                Some(NotServed {
                    what: format!("`{api_version}` has no such kind"),
                    hint: Some(format!("its kinds are {}", quoted(&kinds))),
                })
            }
        }
    }

    fn is_switched_on(&self, group: &str, version: &str) -> bool {
        let name = format!("{group}/{version}");
        self.switched_on.iter().any(|on| match on.as_str() {
            "api/all" => true,
            "api/beta" => version.contains("beta"),
            "api/alpha" => version.contains("alpha"),
            on => {
                *on == name
                    || on
                        .strip_prefix(name.as_str())
                        .is_some_and(|rest| rest.starts_with('/'))
            }
        })
    }
}

fn switched_on(arg: &Arg<'_>) -> Vec<String> {
    if arg.name != "runtime-config" {
        return Vec::new();
    }
    let items = arg.values.iter().flat_map(|(_, text)| text.split(','));
    let on = items.filter_map(|item| {
        let (name, value) = item.trim().split_once('=').unwrap_or((item.trim(), "true"));
        (value.is_empty() || go_bool(value) == Some(true)).then(|| name.to_owned())
    });
    on.collect()
}
