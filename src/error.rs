//! Errors that say what to do: the class is decided once and used for the exit code, the
//! operator's requeue and the condition in which it is told.

use std::borrow::Cow;

/// What kind of error it is, and so who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ErrorClass {
    /// The config, a flag or a key path is wrong: exit 1, wait for a change.
    User,
    /// A node refuses or cannot: exit 2, retried with backoff.
    Host,
    /// It may pass by itself: exit 2, retried in seconds.
    Transient,
    /// Ours: exit 70, long backoff.
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

    /// The condition of a `Cluster` in which an error of this class is told.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::User | Self::Bug => "Stalled",
            Self::Host | Self::Transient => "Reconciling",
        }
    }
}

/// How an error may pass without anybody's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// What answered failed once: another try may succeed at once.
    Hiccup,
    /// Something does not answer for a while: it restarts, or is not reached.
    Away,
}

/// An error that knows its class and the cure.
pub trait Explain: std::error::Error {
    /// Who has to act.
    fn class(&self) -> ErrorClass;

    /// Whether another try of the same step may succeed, and when.
    fn passing(&self) -> Option<Passing> {
        None
    }

    /// True where nothing answered at all.
    fn is_silence(&self) -> bool {
        false
    }

    /// What the reader can do, one sentence fragment each, most likely cure first.
    fn hints(&self) -> Vec<Cow<'static, str>> {
        Vec::new()
    }
}

impl<E: Explain + ?Sized> Explain for std::sync::Arc<E> {
    fn class(&self) -> ErrorClass {
        (**self).class()
    }

    fn passing(&self) -> Option<Passing> {
        (**self).passing()
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        (**self).hints()
    }
}

/// What several errors say, each once, in the order in which it is said first.
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
    error.to_string()
}

/// A message with its causes on one line, as events and conditions show it. A cause that its
/// parent's message already ends with is not repeated.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = message(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = message(error);
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
