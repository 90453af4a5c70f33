//! [`ClusterState`] as text: what the stores and the copies on control planes hold. Pure.
//!
//! By hand and not by deriving on [`ClusterState`]: [`Secret`] cannot be serialised by accident, and this
//! is the one place that means it. Strict: an unknown field or version is an error, never guessed at.
//! Every older format is read, and written as the newest with the next save.

mod first;
mod second;
mod sixth;

#[cfg(test)]
mod tests;

use serde::Deserialize;

use super::ClusterState;
use crate::model::{ClusterId, Secret};

/// The newest format, and the one that is written.
pub const FORMAT: u32 = 6;

/// The version alone, read first: another version's fields are not ours to validate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    version: u32,
    /// The first release that reads it.
    readable_since: Option<String>,
}

/// The state as JSON. Holds every key: goes into files of mode 0600 and Secrets, nowhere else.
pub fn encode(saved: &ClusterState) -> Secret<String> {
    // Strings, numbers and maps with string keys: there is nothing that JSON could refuse.
    let mut text = serde_json::to_string_pretty(&sixth::Document::from(saved)).unwrap_or_default();
    text.push('\n');
    Secret::new(text)
}

/// Reads what [`encode`] wrote, in this release or an earlier one. The error says what is wrong
/// and quotes no value.
pub fn decode(text: &str) -> Result<ClusterState, String> {
    let not_ours = |error: serde_json::Error| {
        format!(
            "it is not an rke-operator state (line {}, column {})",
            error.line(),
            error.column()
        )
    };
    let head: Head = serde_json::from_str(text).map_err(not_ours)?;
    let state = match head.version {
        1 => serde_json::from_str::<first::Document>(text).map(ClusterState::from),
        2..=5 => serde_json::from_str::<second::Document>(text).map(ClusterState::from),
        FORMAT => {
            let document = serde_json::from_str::<sixth::Document>(text).map_err(not_ours)?;
            Ok(ClusterState::try_from(document)?)
        }
        newer => return Err(unknown(newer, head.readable_since.as_deref())),
    };
    let state = state.map_err(not_ours)?;
    match state.cluster_id.0.parse::<ClusterId>() {
        Ok(_) => Ok(state),
        Err(_) => Err("its cluster id is not 32 hex digits".to_owned()),
    }
}

/// True for a state in a format that only later releases read.
pub fn is_newer(text: &str) -> bool {
    serde_json::from_str::<Head>(text).is_ok_and(|head| head.version > FORMAT)
}

/// True for a whole JSON document, whoever's. A file that was cut while it was written is none.
pub fn is_whole(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Says which release can read it, when the text tells.
fn unknown(version: u32, readable_since: Option<&str>) -> String {
    let is_release = |text: &&str| text.len() <= 32 && !text.contains(char::is_control);
    let who = readable_since.filter(is_release).map_or_else(
        || "a newer release of rke-operator wrote it".to_owned(),
        |release| format!("rke-operator {release} and later read it"),
    );
    format!("it has format {version}, and this release reads 1 to {FORMAT}: {who}")
}
