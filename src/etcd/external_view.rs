//! An etcd outside of the cluster, as a survey saw it, as facts. Pure.

use std::collections::BTreeMap;

use crate::{error::ErrorClass, model::EtcdUrl};

/// An etcd outside of the cluster, as one survey saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalView {
    /// It was not asked: there was no need, or no control plane answered through which it is reached.
    NotAsked,
    /// A majority of its members answered through at least one of them.
    Answered {
        /// Its id, in hexadecimal as `etcdctl` shows it.
        cluster: String,
        /// There are keys below the prefix.
        holds_keys: bool,
        /// The members that did not answer, and why.
        silent: BTreeMap<EtcdUrl, String>,
    },
    /// It cannot be used, and why.
    Faulty(ExternalFault),
}

/// Why an etcd outside of the cluster cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalFault {
    /// Who has to act.
    pub class: ErrorClass,
    /// What is wrong, a line for each member.
    pub why: String,
    /// The cures.
    pub hints: Vec<String>,
}

impl ExternalView {
    /// The members that did not answer, each as a sentence fragment.
    pub fn silent_members(&self) -> Vec<String> {
        match self {
            Self::Answered { silent, .. } => silent
                .iter()
                .map(|(url, why)| {
                    format!("the member of the external etcd at `{url}` does not answer: {why}")
                })
                .collect(),
            Self::NotAsked | Self::Faulty(_) => Vec::new(),
        }
    }
}
