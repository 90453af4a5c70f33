//! `config`: writes a `cluster.yml` to begin with, and tells what may stand in one. RKE's flags.

use std::{
    collections::BTreeSet, fmt::Write as _, io::Write as _, net::Ipv4Addr,
    os::unix::fs::OpenOptionsExt,
};

use super::{
    args::ConfigArgs,
    output::{Page, paragraph},
    print,
    prompt::Prompt,
    reference::supported,
    report::{CliError, Failure},
    session::Session,
    sources,
};
use crate::{
    catalog::{Catalogue, CatalogueError, etcd_tools},
    config::{Explained, KeyRow, explain, is_dialled},
    model::{KubernetesVersion, shell_word},
};

/// Runs it.
pub(super) async fn config(args: &ConfigArgs, session: &Session) -> Result<u8, CliError> {
    if let Some(key) = &args.explain {
        return explained(key);
    }
    if args.list_version {
        print::data(&versions(args.all)?)?;
        if args.all {
            let proven = catalogue()?.proven().map(|version| version.to_string());
            let proven = proven.collect::<Vec<_>>().join(", ");
            let told = format!("tested with this release of rke-operator: {proven}");
            session.screen.print_unless_quiet(&told);
        }
        return Ok(0);
    }
    if args.system_images {
        print::data(&images(args.version.as_deref(), args.all)?)?;
        session.screen.print_unless_quiet(
            "not in this list: the images of canal, calico, nginx and traefik, which are named in their charts",
        );
        return Ok(0);
    }
    let version = match args.version.as_deref() {
        None => catalogue()?.default_version(),
        Some(text) => named_version(text)?,
    };
    // Before all the questions, not after them.
    let replace = if args.print {
        false
    } else {
        may_replace(args, session).await?
    };
    let answers = if args.empty || args.print || !session.prompt.is_interactive() {
        Answers::example()
    } else {
        match ask(&session.prompt).await {
            Some(answers) => answers,
            None if session.prompt.is_stopped() => return Err(CliError::Stopped),
            None => return Err(Failure::NotWritten.into()),
        }
    };
    let text = document(&answers, version, args.empty);
    if args.print {
        print::data(text.trim_end())?;
        return Ok(0);
    }
    write(args, &text, replace, session)?;
    Ok(0)
}

/// A file that is there is replaced only when a person says so.
async fn may_replace(args: &ConfigArgs, session: &Session) -> Result<bool, CliError> {
    let file = args.name.display().to_string();
    if !args.name.exists() {
        return Ok(false);
    }
    let question = format!("`{file}` already exists. Replace it?");
    if session.prompt.yes(&question).await {
        Ok(true)
    } else {
        Err(Failure::Exists { file }.into())
    }
}

/// `replace`: the file is there, and a person said that it may go.
fn write(args: &ConfigArgs, text: &str, replace: bool, session: &Session) -> Result<(), CliError> {
    let file = &args.name;
    let shown = file.display().to_string();
    let mut how = std::fs::OpenOptions::new();
    how.write(true).mode(0o640);
    how.create(replace).truncate(replace).create_new(!replace);
    let failed = |source| Failure::Write {
        what: format!("`{shown}`"),
        source,
    };
    let mut opened = match how.open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::Exists { file: shown }.into());
        }
        opened => opened.map_err(failed)?,
    };
    opened.write_all(text.as_bytes()).map_err(failed)?;
    let example = if args.empty || session.prompt.is_interactive() {
        ""
    } else {
        " with an example (without a terminal no questions are asked)"
    };
    let word = shell_word(&shown);
    session.screen.print_unless_quiet(&format!(
        "wrote `{shown}`{example}; edit it, then: rke-operator validate --config {word}"
    ));
    Ok(())
}

/// What is asked for.
struct Answers {
    key: String,
    nodes: Vec<Node>,
    network: String,
}

struct Node {
    address: String,
    port: String,
    user: String,
    roles: Vec<&'static str>,
    name: String,
    internal: String,
}

impl Answers {
    /// One node, of an address that is nobody's.
    fn example() -> Self {
        Self {
            key: String::new(),
            nodes: vec![Node {
                address: "192.0.2.10".to_owned(),
                port: String::new(),
                user: "ubuntu".to_owned(),
                roles: vec!["controlplane", "etcd", "worker"],
                name: String::new(),
                internal: String::new(),
            }],
            network: NETWORK.to_owned(),
        }
    }
}

/// What we recommend where RKE's default is older.
const NETWORK: &str = "flannel";

/// RKE's questions, in its order and words, as far as the answers differ from cluster to cluster.
/// `None`: the person left.
async fn ask(prompt: &Prompt) -> Option<Answers> {
    let default_key = sources::default_key();
    let key = "[+] Cluster Level SSH Private Key Path";
    let key = prompt.text(key, default_key).await?;
    let is_number = |text: &str| matches!(text.parse(), Ok(1..=1000_usize));
    let number = until(
        prompt,
        "[+] Number of Hosts",
        "1",
        "a number, 1 to 1000",
        is_number,
    );
    let number = number.await?.parse().unwrap_or(1);
    let mut nodes: Vec<Node> = Vec::new();
    for index in 1..=number {
        let taken = nodes.iter().flat_map(|node| node.roles.iter().copied());
        let taken: Vec<&str> = taken.collect();
        nodes.push(ask_node(prompt, index, number, &taken).await?);
    }
    let question = "[+] Network Plugin Type (flannel, calico, canal, none)";
    let plugins = ["flannel", "calico", "canal", "none"];
    let is_plugin = |text: &str| plugins.contains(&text);
    let network = until(prompt, question, NETWORK, "one of these plugins", is_plugin).await?;
    // What `up` finds without it is not written down.
    let key = if key == default_key {
        String::new()
    } else {
        key
    };
    Some(Answers {
        key,
        nodes,
        network,
    })
}

/// Asks again until the answer is one, and says what one is.
async fn until(
    prompt: &Prompt,
    question: &str,
    default: &str,
    one: &str,
    is_one: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut asked = question.to_owned();
    loop {
        let answer = prompt.text(&asked, default).await?;
        if is_one(&answer) {
            return Some(answer);
        }
        asked = format!("please type {one}\n{question}");
    }
}

/// Yes or no; a slip of the finger is neither.
async fn whether(prompt: &Prompt, question: &str, default: bool) -> Option<bool> {
    let default = if default { "y" } else { "n" };
    let plain = |text: &str| text.to_lowercase();
    let is_one = |text: &str| ["y", "yes", "n", "no"].contains(&plain(text).as_str());
    let answer = until(prompt, question, default, "y or n", is_one).await?;
    Some(plain(&answer).starts_with('y'))
}

/// The roles that are proposed for the host of this number. Three members of etcd survive the loss of one; two survive
/// none, and so the second of two hosts is a worker.
const fn proposed(index: usize, number: usize) -> [bool; 3] {
    let whole = index == 1 || index <= 3 && number >= 3;
    [whole, true, whole]
}

/// What is wrong with a host's roles; the hosts before it have the roles that are `taken`.
fn wrong_roles(roles: &[&str], taken: &[&str], is_last: bool) -> Option<String> {
    if roles.is_empty() {
        return Some("a host has at least one role".to_owned());
    }
    let missing = |role: &&&str| is_last && !roles.contains(role) && !taken.contains(role);
    let missing = ["controlplane", "etcd"].iter().find(missing)?;
    Some(format!(
        "a cluster needs a host with the role `{missing}`, and this is the last one"
    ))
}

async fn ask_node(prompt: &Prompt, index: usize, number: usize, taken: &[&str]) -> Option<Node> {
    let question = format!("[+] SSH Address of host ({index})");
    let address = until(
        prompt,
        &question,
        "",
        "an IP address or a host name",
        is_dialled,
    )
    .await?;
    let of = |what: &str| format!("[+] {what} of host ({address})");
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    let port = until(prompt, &of("SSH Port"), "22", "a port, 1 to 65535", is_port).await?;
    let is_user = |text: &str| !text.contains(char::is_whitespace);
    let user = until(
        prompt,
        &of("SSH User"),
        "ubuntu",
        "a name without blanks",
        is_user,
    )
    .await?;
    let [control_plane, worker, etcd] = proposed(index, number);
    let mut said = String::new();
    let roles = loop {
        let mut roles = Vec::new();
        for (name, role, default) in [
            ("a Control Plane host", "controlplane", control_plane),
            ("a Worker host", "worker", worker),
            ("an etcd host", "etcd", etcd),
        ] {
            let said = std::mem::take(&mut said);
            let question = format!("{said}[+] Is host ({address}) {name} (y/n)?");
            if whether(prompt, &question, default).await? {
                roles.push(role);
            }
        }
        match wrong_roles(&roles, taken, index == number) {
            Some(wrong) => said = format!("{wrong}\n"),
            None => break roles,
        }
    };
    let name = prompt.text(&of("Override Hostname"), "").await?;
    let is_internal = |text: &str| text.is_empty() || text.parse::<Ipv4Addr>().is_ok();
    let internal = until(
        prompt,
        &of("Internal IP"),
        "",
        "an IPv4 address, or nothing",
        is_internal,
    )
    .await?;
    Some(Node {
        name,
        internal,
        port: if port == "22" { String::new() } else { port },
        user,
        roles,
        address,
    })
}

/// A short file with what people change first; everything else has its default.
fn document(answers: &Answers, version: KubernetesVersion, empty: bool) -> String {
    let Answers {
        key,
        nodes,
        network,
    } = answers;
    let mut text = format!(
        "# A cluster of rke-operator. `rke-operator config --explain KEY` explains a key,\n\
         # `rke-operator validate` checks this file, `rke-operator plan` shows what `up` would do.\n\n\
         cluster_name: local\n\
         # Without it, the default release of rke-operator; an existing cluster keeps its release.\n\
         kubernetes_version: {version}\n"
    );
    if key.is_empty() {
        text.push_str("# ssh_key_path: ~/.ssh/id_ed25519\n# ssh_agent_auth: true\n");
    } else {
        let _ = writeln!(text, "ssh_key_path: {}", quoted(key));
    }
    text.push_str("\nnodes:\n");
    if empty {
        text.push_str(
            "  - address: \"\"\n    user: \"\"\n    role: [controlplane, etcd, worker]\n",
        );
    }
    for node in nodes.iter().filter(|_| !empty) {
        text.push_str(&entry(node));
    }
    let _ = write!(
        text,
        "\nnetwork:\n  plugin: {}\n\n\
         ingress:\n  # nginx, RKE's default, was retired upstream in March 2026; `none` to bring your own.\n  provider: {INGRESS}\n",
        quoted(network)
    );
    text
}

/// nginx, RKE's default, was retired upstream in March 2026.
const INGRESS: &str = "traefik";

fn entry(node: &Node) -> String {
    let Node {
        address,
        port,
        user,
        roles,
        name,
        internal,
    } = node;
    let mut text = format!(
        "  - address: {}\n    user: {} # must be allowed to use Docker\n    role: [{}]\n",
        quoted(address),
        quoted(user),
        roles.join(", ")
    );
    for (key, value) in [
        ("port", port),
        ("hostname_override", name),
        ("internal_address", internal),
    ] {
        if value.is_empty() {
            let _ = writeln!(text, "    # {key}:");
        } else {
            let _ = writeln!(text, "    {key}: {}", quoted(value));
        }
    }
    text
}

/// As YAML needs it: what a person types is a text and nothing else.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '~');
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '~');
    if starts && text != "~" && text.chars().all(plain) && text.contains(|c: char| c != '~') {
        text.to_owned()
    } else {
        // A JSON string is a YAML string.
        serde_json::Value::from(text).to_string()
    }
}

fn catalogue() -> Result<&'static Catalogue, Failure> {
    Catalogue::builtin().map_err(|source: CatalogueError| Failure::Catalogue { source })
}

/// The default, or the newest of each minor.
fn versions(all: bool) -> Result<String, Failure> {
    let catalogue = catalogue()?;
    if !all {
        return Ok(catalogue.default_version().to_string());
    }
    let shown = newest(catalogue).map(|version| version.to_string());
    Ok(shown.collect::<Vec<_>>().join("\n"))
}

/// The newest patch of each minor, oldest first.
fn newest(catalogue: &Catalogue) -> impl Iterator<Item = KubernetesVersion> {
    let mut newest: Vec<KubernetesVersion> = Vec::new();
    for version in catalogue.versions() {
        match newest.last_mut() {
            Some(last) if last.minor == version.minor => *last = version,
            Some(_) | None => newest.push(version),
        }
    }
    newest.into_iter()
}

/// The release of the catalogue that a user names.
fn named_version(text: &str) -> Result<KubernetesVersion, Failure> {
    let catalogue = catalogue()?;
    let plain = text.trim_start_matches('v');
    let release = plain.split(['+', '-']).next().unwrap_or(plain);
    let known = catalogue
        .versions()
        .find(|version| version.to_string().trim_start_matches('v') == release);
    known.ok_or_else(|| Failure::UnknownVersion {
        version: text.to_owned(),
        known: newest(catalogue)
            .map(|version| version.to_string())
            .collect(),
    })
}

/// One image a line: of a release, or of the newest of each minor.
fn images(version: Option<&str>, all: bool) -> Result<String, Failure> {
    let catalogue = catalogue()?;
    let wanted: Vec<KubernetesVersion> = match version {
        Some(text) => vec![named_version(text)?],
        None if all => newest(catalogue).collect(),
        None => vec![catalogue.default_version()],
    };
    let mut names = BTreeSet::new();
    for version in wanted {
        let images = catalogue.images(version);
        let images = images.and_then(|images| serde_json::to_value(images).ok());
        if let Some(serde_json::Value::Object(images)) = images {
            let texts = images.values().filter_map(serde_json::Value::as_str);
            names.extend(texts.map(str::to_owned));
        }
        names.extend(
            catalogue
                .images(version)
                .map(|images| etcd_tools(&images.etcd)),
        );
    }
    Ok(names.into_iter().collect::<Vec<_>>().join("\n"))
}

fn explained(key: &str) -> Result<u8, CliError> {
    match explain(key) {
        Explained::Top(below) => print::data(&listed(&below))?,
        Explained::Key(row) => print::data(&told(&row))?,
        Explained::Section(row, below) => {
            print::data(&format!("{}\n\n{}", told(&row), listed(&below)))?;
        }
        Explained::Unknown {
            near,
            section,
            keys,
        } => return Err(Failure::unknown_key(key, &near, &section, &keys).into()),
    }
    Ok(0)
}

fn listed(keys: &[KeyRow]) -> String {
    let mut text = "keys:".to_owned();
    let width = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
    let page = Page::stdout();
    for key in keys {
        let head = format!("  {:width$}  ", key.name);
        text.push('\n');
        text.push_str(&paragraph(&head, key.doc, page));
    }
    text
}

fn told(row: &KeyRow) -> String {
    let KeyRow {
        section,
        name,
        kind,
        default,
        secret,
        by_reference,
        support,
        doc,
    } = row;
    let path = if section.is_empty() {
        (*name).to_owned()
    } else {
        format!("{section}.{name}")
    };
    let secret = match (secret, by_reference) {
        (_, true) => ", never shown; in an object by `secretKeyRef`",
        (true, false) => ", never shown",
        (false, false) => "",
    };
    let page = Page::stdout();
    let mut lines = vec![
        paragraph(&format!("{path}: "), doc, page),
        String::new(),
        format!("type:      {kind}{secret}"),
    ];
    if !default.is_empty() {
        lines.push(paragraph("default:   ", default, page));
    }
    lines.push(paragraph("supported: ", &supported(support), page));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Intent, RkeConfig, SecretSources};

    fn resolves(text: &str) {
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let sources = SecretSources::new("key", key.into());
        let config = RkeConfig::parse(text).expect("YAML");
        let resolved = Intent::from_config(&config, &sources)
            .unwrap_or_else(|problems| panic!("{}", problems.render("cluster.yml", text, false)));
        assert_eq!(resolved.warnings, vec![]);
    }

    #[test]
    fn what_is_written_is_valid() {
        let version = catalogue().expect("a catalogue").default_version();
        let resolves = |answers: &Answers| resolves(&document(answers, version, false));
        resolves(&Answers::example());
        let mut answers = Answers::example();
        answers.nodes[0].name = "no".to_owned();
        answers.nodes[0].port = "2222".to_owned();
        resolves(&answers);
        // What is proposed, for any number of hosts.
        for number in 1..=9 {
            let nodes = (1..=number).map(|index| {
                let names = ["controlplane", "worker", "etcd"].into_iter();
                let roles = names.zip(proposed(index, number));
                Node {
                    address: format!("192.0.2.{index}"),
                    roles: roles
                        .filter_map(|(role, yes)| yes.then_some(role))
                        .collect(),
                    port: String::new(),
                    user: "ubuntu".to_owned(),
                    name: String::new(),
                    internal: String::new(),
                }
            });
            resolves(&Answers {
                nodes: nodes.collect(),
                ..Answers::example()
            });
        }
    }

    #[test]
    fn the_last_host_takes_the_roles_that_a_cluster_needs() {
        let wrong = |roles: &[&str], taken: &[&str], last| wrong_roles(roles, taken, last);
        let none = wrong(&[], &["controlplane", "etcd"], true);
        assert!(none.is_some_and(|why| why.contains("at least one role")));
        assert_eq!(wrong(&["etcd"], &[], false), None, "another one follows");
        for (role, other) in [("etcd", "controlplane"), ("controlplane", "etcd")] {
            let missing = wrong(&[role, "worker"], &[], true);
            assert!(missing.is_some_and(|why| why.contains(&format!("`{other}`"))));
            assert_eq!(wrong(&[role], &[other], true), None);
        }
    }

    #[test]
    fn what_a_person_types_stays_text() {
        for (typed, written) in [
            ("10.0.0.1", "10.0.0.1"),
            ("~/.ssh/id rsa", "\"~/.ssh/id rsa\""),
            ("a: b", "\"a: b\""),
            ("#x", "\"#x\""),
            ("-", "\"-\""),
            ("\u{1b}[31m", "\"\\u001b[31m\""),
        ] {
            assert_eq!(quoted(typed), written);
        }
    }

    #[test]
    fn versions_and_images_of_the_catalogue() {
        assert_eq!(versions(false).expect("one"), "v1.34.4");
        assert!(versions(true).expect("several").lines().count() > 5);
        let all = images(Some("v1.34.4-rancher1-1"), false).expect("images");
        assert_eq!(all, images(Some("1.34.4+rke2r1"), false).expect("images"));
        assert!(
            all.lines()
                .any(|image| image.starts_with("rancher/hardened-etcd:"))
        );
        assert!(images(Some("v1.10.3"), false).is_err());
    }
}
