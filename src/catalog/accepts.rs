//! What the programs of a release accept: flags, feature gates, admission plugins, controllers, and the versions and
//! kinds of Kubernetes' own groups. Pure data, compiled in from the lists in `accepts/`, each with its source at its head.

use std::{collections::BTreeMap, fmt, sync::OnceLock};

pub use super::value_type::{ValueType, go_bool, go_uint};

/// A minor release of Kubernetes or of etcd: `1.34`, `3.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The newest releases that the lists were made of. What they have counts as there in newer ones.
const NEWEST: [Minor; 2] = [
    Minor {
        major: 1,
        minor: 36,
    },
    Minor { major: 3, minor: 7 },
];

/// From which release on, and up to which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first that has it, of those that were read.
    pub first: Minor,
    /// The last that has it.
    pub last: Minor,
}

impl Span {
    /// Whether a release has it.
    pub fn has(&self, release: Minor) -> bool {
        self.first <= release && (release <= self.last || NEWEST.contains(&self.last))
    }
}

/// A program whose flags and gates the lists have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kubelet.
    Kubelet,
    /// kube-proxy.
    Proxy,
    /// etcd.
    Etcd,
}

impl Program {
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
        Self::Proxy,
        Self::Etcd,
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.name() == name)
    }

    /// As its binary is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Proxy => "kube-proxy",
            Self::Etcd => "etcd",
        }
    }
}

/// A feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Which releases know it.
    pub span: Span,
    /// From which release on it has this value and takes no other.
    pub locked: Option<(Minor, bool)>,
}

/// A version of one of Kubernetes' own groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The releases into which it is compiled.
    pub span: Span,
    /// Its kinds.
    pub kinds: BTreeMap<&'static str, Span>,
}

#[derive(Default)]
struct Lists {
    flags: BTreeMap<&'static str, Vec<(Program, Span)>>,
    types: BTreeMap<(Program, &'static str), ValueType>,
    gates: BTreeMap<&'static str, Gate>,
    plugins: BTreeMap<&'static str, Span>,
    controllers: BTreeMap<&'static str, Span>,
    /// By group, whose name may be empty, and version.
    versions: BTreeMap<&'static str, BTreeMap<&'static str, Version>>,
}

/// The releases whose program knows a flag; `None`: none of those that were read.
pub fn flag(program: Program, name: &str) -> Option<Span> {
    let all = lists().flags.get(name)?;
    let own = all.iter().find(|(of, _)| *of == program);
    own.map(|(_, span)| *span)
}

/// The programs that have a flag in some release.
pub fn programs_with(name: &str) -> impl Iterator<Item = (Program, Span)> {
    lists().flags.get(name).into_iter().flatten().copied()
}

/// The flags of a program in a release.
pub fn flags(program: Program, release: Minor) -> impl Iterator<Item = &'static str> {
    let has = move |of: &Program, span: &Span| *of == program && span.has(release);
    let all = lists().flags.iter();
    all.filter(move |(_, of)| of.iter().any(|(of, span)| has(of, span)))
        .map(|(name, _)| *name)
}

/// The type of a flag's value; `None` where it is text, a list or a map, or was not read.
pub fn value_type(program: Program, flag: &str) -> Option<ValueType> {
    lists().types.get(&(program, flag)).copied()
}

/// The cipher suites of TLS that every program takes.
pub fn ciphers() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("accepts/ciphers.txt").lines();
    lines.filter(|line| !line.starts_with('#'))
}

/// A feature gate.
pub fn gate(name: &str) -> Option<Gate> {
    lists().gates.get(name).copied()
}

/// The feature gates of a release.
pub fn gates(release: Minor) -> impl Iterator<Item = (&'static str, Gate)> {
    let all = lists().gates.iter();
    all.filter(move |(_, gate)| gate.span.has(release))
        .map(|(name, gate)| (*name, *gate))
}

/// An admission plugin.
pub fn plugin(name: &str) -> Option<Span> {
    lists().plugins.get(name).copied()
}

/// The admission plugins of a release.
pub fn plugins(release: Minor) -> impl Iterator<Item = &'static str> {
    names(&lists().plugins, release)
}

/// A controller of kube-controller-manager.
pub fn controller(name: &str) -> Option<Span> {
    lists().controllers.get(name).copied()
}

/// The controllers of a release, by all their names.
pub fn controllers(release: Minor) -> impl Iterator<Item = &'static str> {
    names(&lists().controllers, release)
}

fn names(
    all: &'static BTreeMap<&'static str, Span>,
    release: Minor,
) -> impl Iterator<Item = &'static str> {
    all.iter()
        .filter(move |(_, span)| span.has(release))
        .map(|(name, _)| *name)
}

/// Whether a group is one of Kubernetes' own.
pub fn is_own_group(group: &str) -> bool {
    lists().versions.contains_key(group)
}

/// A version of one of Kubernetes' own groups.
pub fn version(group: &str, version: &str) -> Option<&'static Version> {
    lists().versions.get(group)?.get(version)
}

/// The versions of a group that a release serves without being told to, the best first.
pub fn served(group: &str, release: Minor) -> Vec<&'static str> {
    let all = lists().versions.get(group).into_iter().flatten();
    let mut served: Vec<_> = all
        .filter(|(version, row)| row.span.has(release) && is_served(group, version, release))
        .map(|(version, _)| *version)
        .collect();
    // `v2` before `v1`, and both before `v2beta1`.
    served.sort_by_key(|version| (version.contains("beta"), std::cmp::Reverse(*version)));
    served
}

/// Whether a version that is compiled in is served without `runtime-config`, in the releases of the catalogue.
pub fn is_served(group: &str, version: &str, release: Minor) -> bool {
    let up_to = |minor| release <= Minor { major: 1, minor };
    match (group, version) {
        (_, "v1") | ("autoscaling", "v2") => true,
        ("flowcontrol.apiserver.k8s.io", "v1beta2") => up_to(28),
        ("flowcontrol.apiserver.k8s.io", "v1beta3") => up_to(31),
        _ => false,
    }
}

fn lists() -> &'static Lists {
    static READ: OnceLock<Lists> = OnceLock::new();
    READ.get_or_init(read)
}

fn read() -> Lists {
    let mut lists = Lists::default();
    for text in [
        include_str!("accepts/flags.txt"),
        include_str!("accepts/etcd.txt"),
    ] {
        for (head, words) in blocks(text) {
            let Some((name, span)) = head.split_once(' ') else {
                continue;
            };
            let program = Program::named(name);
            if let (Some(program), Some(span)) = (program, span_of(span)) {
                for word in words {
                    lists.flags.entry(word).or_default().push((program, span));
                }
            }
        }
    }
    for (head, words) in blocks(include_str!("accepts/types.txt")) {
        let Some((name, kind)) = head.split_once(' ') else {
            continue;
        };
        let program = Program::named(name);
        let kind = ValueType::ALL.into_iter().find(|of| of.name() == kind);
        if let (Some(program), Some(kind)) = (program, kind) {
            let typed = words.into_iter().map(|word| ((program, word), kind));
            lists.types.extend(typed);
        }
    }
    for (head, words) in blocks(include_str!("accepts/gates.txt")) {
        let gates = words.into_iter().filter_map(|word| gate_of(head, word));
        lists.gates.extend(gates);
    }
    lists.plugins = spans(include_str!("accepts/plugins.txt"));
    lists.controllers = spans(include_str!("accepts/controllers.txt"));
    for (head, words) in blocks(include_str!("accepts/apis.txt")) {
        if let Some((group, version, row)) = version_of(head, words) {
            lists
                .versions
                .entry(group)
                .or_default()
                .insert(version, row);
        }
    }
    lists
}

fn spans(text: &'static str) -> BTreeMap<&'static str, Span> {
    blocks(text)
        .into_iter()
        .filter_map(|(head, words)| Some((span_of(head)?, words)))
        .flat_map(|(span, words)| words.into_iter().map(move |word| (word, span)))
        .collect()
}

/// The headings, and the words that stand indented below each.
fn blocks(text: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match all.last_mut() {
            Some((_, words)) if line.starts_with(' ') => words.extend(line.split_whitespace()),
            Some(_) | None => all.push((line, Vec::new())),
        }
    }
    all
}

fn minor_of(text: &str) -> Option<Minor> {
    let (major, minor) = text.split_once('.')?;
    Some(Minor {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

fn span_of(text: &str) -> Option<Span> {
    let (first, last) = text.split_once('-')?;
    Some(Span {
        first: minor_of(first)?,
        last: minor_of(last)?,
    })
}

/// `Name`, or `Name@1.29=true`.
fn gate_of(span: &str, word: &'static str) -> Option<(&'static str, Gate)> {
    let (name, locked) = word.split_once('@').unwrap_or((word, ""));
    let locked = locked.split_once('=');
    let gate = Gate {
        span: span_of(span)?,
        locked: locked.and_then(|(from, value)| Some((minor_of(from)?, value == "true"))),
    };
    Some((name, gate))
}

fn version_of(
    head: &'static str,
    words: Vec<&'static str>,
) -> Option<(&'static str, &'static str, Version)> {
    let (name, span) = head.split_once(' ')?;
    let (group, version) = name.split_once('/')?;
    let span = span_of(span)?;
    let mut of = span;
    let mut kinds = BTreeMap::new();
    for word in words {
        match span_of(word) {
            Some(span) => of = span,
            None => drop(kinds.insert(word, of)),
        }
    }
    let group = if group == "core" { "" } else { group };
    Some((group, version, Version { span, kinds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn k(minor: u16) -> Minor {
        Minor { major: 1, minor }
    }

    /// How much there is, so that a list that is cut off is seen.
    #[test]
    fn the_lists_are_whole() {
        let lists = lists();
        let of = |program| {
            let spans = lists.flags.values().flatten();
            spans.filter(|(of, _)| *of == program).count()
        };
        let counts = Program::ALL.map(of);
        assert_eq!(counts, [212, 178, 85, 204, 75, 166]);
        assert_eq!(lists.gates.len(), 480);
        assert_eq!(lists.plugins.len(), 51);
        assert_eq!(lists.controllers.len(), 93);
        let versions = lists.versions.values().map(BTreeMap::len);
        assert_eq!(versions.sum::<usize>(), 70);
        let locked = lists.gates.values().filter(|gate| gate.locked.is_some());
        assert_eq!(locked.count(), 266);
        for (name, span) in lists.plugins.iter().chain(&lists.controllers) {
            assert!(span.first <= span.last, "{name}");
        }
    }

    #[test]
    fn what_people_ask_about() {
        let last = |program, name| flag(program, name).map(|span| span.last.to_string());
        assert_eq!(
            last(Program::ControllerManager, "pod-eviction-timeout").as_deref(),
            Some("1.26")
        );
        assert_eq!(last(Program::Kubelet, "generate_serving_certificate"), None);
        assert!(
            flag(Program::ApiServer, "authorization-config")
                .is_some_and(|span| { !span.has(k(28)) && span.has(k(29)) && span.has(k(37)) })
        );
        let etcd = |minor| Minor { major: 3, minor };
        let bytes = flag(Program::Etcd, "quota-backend-bytes").expect("a flag");
        assert!(bytes.has(etcd(5)) && bytes.has(etcd(6)));
        assert!(flag(Program::Etcd, "enable-v2").is_some_and(|span| !span.has(etcd(6))));

        let serving = gate("RotateKubeletServerCertificate").expect("a gate");
        assert!((28..=36).all(|minor| serving.span.has(k(minor))) && serving.locked.is_none());
        assert_eq!(
            gate("APIServerTracing").and_then(|gate| gate.locked),
            Some((k(34), true))
        );
        assert_eq!(
            gate("SeparateCacheWatchRPC").and_then(|gate| gate.locked),
            Some((k(36), false))
        );
        assert!(plugin("PodSecurityPolicy").is_some_and(|span| !span.has(k(28))));
        assert!(controller("nodeipam").is_some() && controller("podpreset").is_none());
    }

    /// A type of a flag that is none would never be asked for.
    #[test]
    fn types_are_those_of_flags() {
        for (program, name) in lists().types.keys() {
            assert!(
                flag(*program, name).is_some(),
                "{} --{name}",
                program.name()
            );
        }
        assert!(lists().types.len() > 300 && ciphers().count() > 20);
        let etcd = value_type(Program::Etcd, "heartbeat-interval");
        assert_eq!(etcd, Some(ValueType::Uint));
    }

    #[test]
    fn served_are_v1_and_few_others() {
        let of = |group, minor| served(group, k(minor));
        assert_eq!(of("apps", 34), ["v1"]);
        assert_eq!(of("autoscaling", 34), ["v2", "v1"]);
        assert_eq!(
            of("flowcontrol.apiserver.k8s.io", 28),
            ["v1beta3", "v1beta2"]
        );
        assert_eq!(of("flowcontrol.apiserver.k8s.io", 31), ["v1", "v1beta3"]);
        assert_eq!(of("extensions", 34), [""; 0]);
        assert!(is_own_group("") && is_own_group("extensions") && !is_own_group("metrics.k8s.io"));
        let kinds = &version("networking.k8s.io", "v1").expect("a version").kinds;
        assert!(!kinds["ServiceCIDR"].has(k(32)) && kinds["ServiceCIDR"].has(k(33)));
    }
}
