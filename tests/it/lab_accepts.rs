//! The lists of what each release accepts (`catalog::accepts`), against the programs themselves: what they show with
//! `--help`, what they take without showing it, and what ends their start. The default release here, the others in
//! `lab_versions`.

use std::{collections::BTreeSet, fmt::Write as _};

use lab::{KUBERNETES_VERSION, LabSpec, Node, Profile};
use rke_operator::catalog::{
    Catalogue,
    accepts::{self, Minor, Program, ValueType},
};

use crate::real::Site;

const KUBERNETES: [Program; 5] = [
    Program::ApiServer,
    Program::ControllerManager,
    Program::Scheduler,
    Program::Kubelet,
    Program::Proxy,
];

/// Of the framework that reads flags, in every program.
const OF_THE_FRAMEWORK: [&str; 2] = ["help", "version"];

/// A command in a container of the image.
fn within(image: &str, command: &str) -> String {
    format!("docker run --rm --network none --entrypoint '' {image} {command}")
}

fn says(node: &Node, image: &str, command: &str) -> String {
    let run = within(image, &format!("timeout 10 {command}"));
    let run = format!("{run} 2>&1; true");
    node.sh(&run).expect("a program that says something")
}

/// The flags at the beginning of lines: `      --name type   …`, `  -v, --v Level`, and etcd's `  --name 'value'`.
fn shown(help: &str) -> BTreeSet<&str> {
    let flags = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.split_once(", --").map_or(line, |(_, rest)| rest);
        let name = line.strip_prefix("--").unwrap_or(line);
        let is_flag =
            line.starts_with("--") || line.len() < help.len() && name.starts_with("v Level");
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        is_flag.then(|| name.get(..end.unwrap_or(name.len())))?
    });
    flags.filter(|name| !name.is_empty()).collect()
}

fn flags(node: &Node, image: &str, program: Program, release: Minor) {
    let name = program.name();
    // The image of etcd has etcd alone.
    let alone = program == Program::Etcd;
    let help = if alone {
        let run = within(image, &format!("{name} --help"));
        node.sh(&format!("{run} 2>&1; true")).expect("its help")
    } else {
        says(node, image, &format!("{name} --help"))
    };
    let shown = shown(&help);
    assert!(shown.len() > 30, "{name} {release}: {help}");
    if !alone {
        types(&help, program, release);
    }
    let listed: BTreeSet<&str> = accepts::flags(program, release).collect();
    let unlisted: Vec<_> = shown
        .difference(&listed)
        .filter(|name| !OF_THE_FRAMEWORK.contains(name))
        .collect();
    // The lab's programs are one binary, and kube-proxy takes the flags that any package in it registers.
    assert!(
        unlisted.is_empty() || program == Program::Proxy,
        "{name} {release} has {unlisted:?}, and the list has not"
    );
    // What it does not show is tried; one more, which it has not, shows that trying tells.
    let mut script = String::new();
    for flag in listed.difference(&shown).copied().chain(["no-such-flag"]) {
        let try_it = format!("{name} --{flag}=x --help");
        let try_it = if alone {
            within(image, &try_it)
        } else {
            try_it
        };
        let _ = write!(
            script,
            "echo {flag} $({try_it} 2>&1 | grep -ciE \"unknown flag|not defined\"); "
        );
    }
    let tried = if alone {
        node.sh(&script).expect("its flags")
    } else {
        let script = script.replace('\'', "\"");
        says(node, image, &format!("sh -c '{script}'"))
    };
    for line in tried.lines() {
        let is_taken = line.ends_with(" 0");
        let of_us = line.starts_with("no-such-flag ");
        assert!(is_taken != of_us, "{name} {release}: {line}");
    }
}

/// The type that a program shows next to a flag: `      --name type   …`, and none for a bool.
fn type_shown(line: &str) -> Option<(&str, ValueType)> {
    let (_, flag) = line
        .split_once("--")
        .filter(|(before, _)| before.len() < 8)?;
    let (flag, _) = flag.split_once("   ").unwrap_or((flag, ""));
    let (name, kind) = flag
        .trim_end()
        .split_once(' ')
        .unwrap_or((flag.trim_end(), ""));
    let kind = match kind {
        "" => ValueType::Bool,
        "int" | "int32" | "int64" => ValueType::Int,
        "uint" | "uint32" | "uint64" | "Level" => ValueType::Uint,
        "float" | "float32" | "float64" => ValueType::Float,
        "duration" => ValueType::Duration,
        "ip" => ValueType::Ip,
        _ => return None,
    };
    Some((name, kind))
}

/// The list of types says of each flag what its program shows.
fn types(help: &str, program: Program, release: Minor) {
    let name = program.name();
    let listed: Vec<_> = help
        .lines()
        .filter_map(type_shown)
        .filter_map(|(flag, shown)| Some((flag, shown, accepts::value_type(program, flag)?)))
        .collect();
    assert!(listed.len() > 10, "{name} {release}: {listed:?}");
    for (flag, shown, listed) in listed {
        assert_eq!(shown, listed, "{name} {release} --{flag}");
    }
}

/// etcd shows no types: each of its flags that has one refuses a text.
fn types_of_etcd(node: &Node, image: &str, release: Minor) {
    let typed = accepts::flags(Program::Etcd, release);
    let typed = typed.filter(|flag| accepts::value_type(Program::Etcd, flag).is_some());
    let tries = typed.fold(String::new(), |mut tries, flag| {
        let _ = writeln!(
            tries,
            "echo {flag} $(/tmp/etcd --{flag}=x --no-such-flag 2>&1 | grep -c no-such-flag)"
        );
        tries
    });
    let script = format!(
        "id=$(docker create {image} etcd) && docker cp $id:/usr/local/bin/etcd /tmp/etcd && docker rm $id >/dev/null\n{tries}"
    );
    let tried = node.sh(&script).expect("its flags");
    assert!(tried.lines().count() > 10, "{release}: {tried}");
    for line in tried.lines() {
        assert!(line.ends_with(" 0"), "etcd {release} takes `x`: {line}");
    }
}

fn gates(node: &Node, image: &str, release: Minor) {
    let all: Vec<String> = accepts::gates(release)
        .filter(|(name, _)| !matches!(*name, "AllAlpha" | "AllBeta"))
        .map(|(name, gate)| {
            let locked = gate.locked.filter(|(from, _)| release >= *from);
            format!("{name}={}", locked.is_none_or(|(_, to)| to))
        })
        .collect();
    let start = |gates: &str| {
        let command = format!("kube-controller-manager --kubeconfig=/none --feature-gates={gates}");
        says(node, image, &command)
    };
    // What is set without need is warned of.
    let is_refused = |said: &str| {
        let refusals = ["unrecognized feature gate", "cannot set feature gate"];
        refusals.iter().any(|refusal| said.contains(refusal))
    };
    let said = start(&all.join(","));
    assert!(!is_refused(&said), "{release}: {said}");
    assert!(
        is_refused(&start("NoSuchGate=true")),
        "{release}: the start gets that far"
    );
    for (name, gate) in accepts::gates(release) {
        if let Some((_, to)) = gate.locked.filter(|(from, _)| release >= *from) {
            let said = start(&format!("{name}={}", !to));
            assert!(is_refused(&said), "{release}: {name} is not locked: {said}");
        }
    }
}

/// The names after a text of the help, up to the next full stop or line.
fn after<'a>(help: &'a str, text: &str, end: &str) -> BTreeSet<&'a str> {
    let (_, rest) = help.split_once(text).expect("the text in the help");
    let (names, _) = rest.split_once(end).unwrap_or((rest, ""));
    names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect()
}

fn names(node: &Node, image: &str, release: Minor) {
    let help = says(node, image, "kube-controller-manager --help");
    let shown = after(&help, "All controllers: ", "\n");
    let listed: BTreeSet<_> = accepts::controllers(release).collect();
    let unlisted: Vec<_> = shown.difference(&listed).collect();
    assert!(
        unlisted.is_empty() && shown.len() > 30,
        "{release}: {unlisted:?} of {shown:?}"
    );

    let help = says(node, image, "kube-apiserver --help");
    let shown = after(
        &help,
        "Comma-delimited list of admission plugins: ",
        ". The order",
    );
    let listed: BTreeSet<_> = accepts::plugins(release).collect();
    assert_eq!(shown, listed, "{release}");
}

fn ciphers(node: &Node, image: &str, release: Minor) {
    let help = says(node, image, "kube-apiserver --help");
    let preferred = after(&help, "Preferred values: ", ".");
    let insecure = after(&help, "Insecure values: ", ".");
    let shown: BTreeSet<_> = preferred.union(&insecure).copied().collect();
    assert_eq!(shown, accepts::ciphers().collect(), "{release}");
}

/// All lists, against the programs of a release that the lab has.
pub(crate) fn are_what_the_programs_take(site: &Site, release: &str) {
    let catalogue = Catalogue::builtin().expect("the catalogue");
    let version = catalogue
        .versions()
        .find(|version| version.to_string() == release)
        .expect("a release of the catalogue");
    let images = catalogue.images(version).expect("its images");
    let minor = Minor {
        major: version.major,
        minor: version.minor,
    };
    let node = site.node();
    for image in [&images.kubernetes, &images.etcd] {
        node.sh(&format!("docker pull -q {image}"))
            .expect("the image");
    }
    for program in KUBERNETES {
        flags(node, &images.kubernetes, program, minor);
    }
    gates(node, &images.kubernetes, minor);
    names(node, &images.kubernetes, minor);
    ciphers(node, &images.kubernetes, minor);
    let etcd = images.etcd.rsplit_once(":v").and_then(|(_, tag)| {
        let mut parts = tag.split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Minor { major, minor })
    });
    let etcd = etcd.expect("a release of etcd");
    flags(node, &images.etcd, Program::Etcd, etcd);
    types_of_etcd(node, &images.etcd, etcd);
}

#[test]
fn the_lists_are_what_the_default_release_takes() {
    let site = Site::of(&LabSpec::own("accepts").node("n1", Profile::Plain));
    are_what_the_programs_take(&site, KUBERNETES_VERSION);
}
