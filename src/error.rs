//! Errors that say what to do: the class is decided once and determines the exit code, the
//! operator's requeue and the condition that reports the error.

use std::borrow::Cow;

use hyper_util::client::legacy::Error as HttpClientError;

/// What kind of error it is, and so who has to act.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ErrorClass {
    /// The config, a flag or a key path is wrong: exit 1, wait for a change.
    User,
    /// A node refuses or cannot: exit 2, retried with backoff.
    Host,
    /// It is temporary: exit 2, retried in seconds.
    Transient,
    /// A bug in rke-operator: exit 70, long backoff.
    Bug,
}

impl ErrorClass {
    /// The process's exit code for an error of this class.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::User => 1,
            Self::Host | Self::Transient => 2,
            Self::Bug => 70,
        }
    }

    /// Of several errors the class that counts: a person acts first, then the nodes' owner, then what may pass.
    pub fn first(classes: impl IntoIterator<Item = Self>) -> Option<Self> {
        let classes: Vec<Self> = classes.into_iter().collect();
        [Self::Bug, Self::User, Self::Host, Self::Transient]
            .into_iter()
            .find(|class| classes.contains(class))
    }

    /// The condition of a `Cluster` that reports an error of this class.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::User | Self::Bug => "Stalled",
            Self::Host | Self::Transient => "Reconciling",
        }
    }
}

/// How an error may pass without human action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// What answered failed once: another try may succeed at once.
    Hiccup,
    /// Something does not answer for a while: it restarts, or is not reached.
    Away,
}

/// What prevents a connection to a node.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Obstacle {
    /// None of the others, or nothing was tried.
    #[default]
    Other,
    /// Nothing answers at that address.
    Silence,
    /// Its Docker does not answer.
    DockerUnavailable,
    /// It is not an address that is connected to.
    AddressNotAllowed,
    /// It refuses the login.
    AuthenticationFailed,
    /// Its host key is not on record.
    HostKeyUnknown,
    /// Another host key is on record.
    HostKeyChanged,
}

/// An error that knows its class and the cure.
pub trait Explain: std::error::Error {
    /// Who has to act.
    fn class(&self) -> ErrorClass;

    /// Whether another try of the same step may succeed, and when.
    fn passing(&self) -> Option<Passing> {
        None
    }

    /// What keeps us from the node that it is about.
    fn obstacle(&self) -> Obstacle {
        Obstacle::Other
    }

    /// The node that its message names, in the words of the message: where several nodes fail alike, one sentence
    /// names them all in that place.
    fn subject(&self) -> Option<Subject> {
        None
    }

    /// What it says without the reasons of single nodes, where those are shown in another place. `None`: it has none.
    fn apart_from_nodes(&self) -> Option<String> {
        None
    }

    /// What the reader can do, one sentence fragment each, most likely cure first.
    fn hints(&self) -> Vec<Cow<'static, str>> {
        Vec::new()
    }
}

/// How a message names the node that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// As it stands in the message: ``node `n1` (10.0.0.1)``.
    pub words: String,
    /// The bastion host that the connection went through, if it is not what failed.
    pub through: Option<String>,
}

impl<E: Explain + ?Sized> Explain for std::sync::Arc<E> {
    fn class(&self) -> ErrorClass {
        (**self).class()
    }

    fn passing(&self) -> Option<Passing> {
        (**self).passing()
    }

    fn obstacle(&self) -> Obstacle {
        (**self).obstacle()
    }

    fn subject(&self) -> Option<Subject> {
        (**self).subject()
    }

    fn apart_from_nodes(&self) -> Option<String> {
        (**self).apart_from_nodes()
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        (**self).hints()
    }
}

/// Removes duplicates, such as equal messages of several errors; keeps the order of first occurrence.
pub fn distinct<T: PartialEq>(said: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in said {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// What an error says. A refusal of an API server has the server's words, without the form in
/// which kube keeps it.
fn message(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(kube::Error::Api(status)) = error.downcast_ref()
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    // Of a value in the wrong place serde quotes the value, which may be a password.
    let json = match error.downcast_ref() {
        Some(kube::Error::SerdeError(json)) => Some(json),
        Some(_) | None => error.downcast_ref::<serde_json::Error>(),
    };
    if let Some(json) = json.filter(|json| json.is_data()) {
        return format!(
            "what stands at line {} column {} is not of the kind that is expected there",
            json.line(),
            json.column()
        );
    }
    let text = without_numbers(&error.to_string());
    let system = error.downcast_ref::<std::io::Error>();
    if system.is_some_and(|error| error.raw_os_error().is_some()) {
        in_lower_case(&text)
    } else {
        text
    }
}

/// A text without the numbers that the standard library adds to the system's words: `(os error 113)`.
fn without_numbers(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once(NUMBER) {
        out.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != '-');
        match end.map(|end| after.split_at(end)) {
            Some((number, tail)) if !number.is_empty() && tail.starts_with(')') => {
                rest = tail.get(1..).unwrap_or_default();
            }
            Some(_) | None => {
                out.push_str(NUMBER);
                rest = after;
            }
        }
    }
    out + rest
}

fn in_lower_case(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

/// The error that says something: HTTP clients wrap the cause of a failed connection in several layers, each of which
/// says only that there was a failure.
fn telling<'a>(
    mut error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    loop {
        let is_kube = matches!(
            error.downcast_ref(),
            Some(kube::Error::Service(_) | kube::Error::HyperError(_))
        );
        let client = error.downcast_ref::<HttpClientError>();
        let connects = client.is_some_and(HttpClientError::is_connect);
        let is_wrapper = is_kube || client.is_some();
        let Some(mut cause) = error.source().filter(|_| is_wrapper) else {
            return error;
        };
        if connects {
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
        }
        error = cause;
    }
}

/// A message and then those of its causes, outermost first. A cause that its parent's message already ends with is
/// left out, and so are layers that say nothing.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let error = telling(error);
        let message = message(error);
        let end = message.to_lowercase();
        let parent = said.last().map(|parent| parent.to_lowercase());
        if !parent.is_some_and(|parent| parent.ends_with(&end)) {
            said.push(message);
        }
        next = error.source();
    }
    said
}

/// A message with its causes on one line, as events and conditions show it; see [`chain`].
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error).join(": ")
}

/// The text after a command line that introduces what has the same effect on an object.
const INSTEAD: [&str; 2] = [" (a `Cluster` has ", " (of a `Cluster`: "];

/// What a person does at a terminal, and what takes its place on an object.
const AT_A_TERMINAL: [(&str, &str); 2] = [
    ("run `remove` again", "it is tried again"),
    ("run `up`", "apply that"),
];

/// A text as the user of the command line needs it: "`--flag` (a `Cluster` has the annotation …)" is the flag.
pub fn on_command_line(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, instead)) = INSTEAD
        .iter()
        .filter_map(|instead| Some((rest.find(instead)?, instead)))
        .min()
    {
        let (head, tail) = rest.split_at(at);
        let Some((_, after)) = tail.split_once(')').filter(|_| head.ends_with('`')) else {
            let end = at + instead.len();
            out.push_str(rest.get(..end).unwrap_or(rest));
            rest = rest.get(end..).unwrap_or_default();
            continue;
        };
        out.push_str(head);
        rest = after;
    }
    out + rest
}

/// A text as the reader of an object needs it: "`--flag` (a `Cluster` has the annotation …)" is the annotation. See also
/// [`on_command_line`].
pub fn on_object(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(shorter) = one_on_object(&text) {
        text = shorter;
    }
    for (cli, object) in AT_A_TERMINAL {
        text = text.replace(cli, object);
    }
    text
}

fn one_on_object(text: &str) -> Option<String> {
    INSTEAD.iter().find_map(|instead| {
        let mut places = text.match_indices(instead);
        places.find_map(|(at, _)| {
            let (head, rest) = text.split_at(at);
            let (start, _) = head.strip_suffix('`')?.rsplit_once('`')?;
            let (object, end) = rest.strip_prefix(instead)?.split_once(')')?;
            Some(format!("{start}{object}{end}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither from serde nor from kube, which repeats what serde says.
    #[test]
    fn a_value_in_the_wrong_place_is_not_quoted() {
        let json = || serde_json::from_str::<Vec<u8>>("\n \"hunter2\"").unwrap_err();
        assert!(json().to_string().contains("hunter2"), "as serde has it");
        for text in [
            with_causes(&json()),
            with_causes(&kube::Error::SerdeError(json())),
        ] {
            assert!(text.contains("line 2 column 10"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        let cut_off = serde_json::from_str::<Vec<u8>>("[1").unwrap_err();
        assert!(with_causes(&cut_off).contains("EOF"), "{cut_off}");
    }

    /// C8: the system's numbers and the layers of an HTTP client tell a person nothing.
    #[test]
    fn the_systems_numbers_are_not_shown() {
        let refused = || std::io::Error::from_raw_os_error(111);
        assert_eq!(with_causes(&refused()), "connection refused");
        let wrapped = kube::Error::Service(Box::new(refused()));
        assert_eq!(with_causes(&wrapped), "connection refused");
        for (text, shown) in [
            ("a (os error 2): b (os error 13)", "a: b"),
            ("a (os error -2)", "a"),
            ("a (os error x) (os error 2", "a (os error x) (os error 2"),
            ("a (os error )", "a (os error )"),
            ("", ""),
        ] {
            assert_eq!(without_numbers(text), shown);
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot save: {0}")]
    struct Quotes(#[source] std::io::Error);

    #[test]
    fn a_cause_that_its_parent_quotes_is_left_out() {
        let error = Quotes(std::io::Error::from_raw_os_error(13));
        assert_eq!(chain(&error), ["cannot save: Permission denied"]);
    }

    #[test]
    fn on_the_command_line_a_text_names_what_works_there() {
        for (text, shown) in [
            (
                "`up --lose n1` (a `Cluster` has the annotation `a/lose: n1`); `plan` (of a `Cluster`: `kubectl`) shows it",
                "`up --lose n1`; `plan` shows it",
            ),
            (
                "it (a `Cluster` has none) is `a` (a `Cluster` has b)",
                "it (a `Cluster` has none) is `a`",
            ),
            ("`a` (a `Cluster` has ", "`a` (a `Cluster` has "),
            ("", ""),
        ] {
            assert_eq!(on_command_line(text), shown);
        }
    }

    #[test]
    fn on_an_object_a_text_names_what_works_there() {
        for (text, on_the_object) in [
            (
                "it is lost: `rke-operator up --lose n1` (a `Cluster` has the annotation `a/lose: n1`); `rke-operator plan \
                 --lose n1` (of a `Cluster`: `kubectl describe node n1`) shows it",
                "it is lost: the annotation `a/lose: n1`; `kubectl describe node n1` shows it",
            ),
            (
                "unmount it, then run `remove` again",
                "unmount it, then it is tried again",
            ),
            (
                "write it, run `up`, and go on",
                "write it, apply that, and go on",
            ),
            (
                "from there (of a `Cluster`: its Secret)",
                "from there (of a `Cluster`: its Secret)",
            ),
            ("`a` (a `Cluster` has ", "`a` (a `Cluster` has "),
            ("nothing", "nothing"),
        ] {
            assert_eq!(on_object(text), on_the_object);
        }
    }
}
