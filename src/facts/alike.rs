//! One cause that keeps several nodes from answering is shown once, with their names. Pure.

use std::{borrow::Cow, collections::BTreeSet};

use super::Unreachable;
use crate::{
    error::{ErrorClass, Explain, Subject},
    model::{NodeName, some_ranges},
};

/// A message about a node, without the node: `cannot reach `, `: no route to host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alike {
    before: String,
    after: String,
    through: Option<String>,
}

impl Alike {
    /// `why` is what the error says. `None` where it names no node, or names it twice.
    pub(super) fn of(error: &(dyn Explain + 'static), why: &str) -> Option<Self> {
        let Subject { words, through } = error.subject()?;
        let (before, after) = why.split_once(&words)?;
        let whole = !after.contains(&words);
        whole.then(|| Self {
            before: before.to_owned(),
            after: after.to_owned(),
            through,
        })
    }

    fn of_several(&self, names: &BTreeSet<&NodeName>) -> String {
        let Self {
            before,
            after,
            through,
        } = self;
        let way = through
            .as_ref()
            .map(|bastion| format!("; through the bastion host {bastion}"));
        let way = way.unwrap_or_default();
        let (count, names) = (names.len(), some_ranges(names));
        // The nodes are the subject of the sentence.
        let after = match before.as_str() {
            "" => of_many(after),
            _ => Cow::Borrowed(after.as_str()),
        };
        format!("{before}{count} nodes ({names}{way}){after}")
    }
}

/// Verbs that messages have behind the node's name, of one and of several.
const VERBS: [(&str, &str); 4] = [
    ("is", "are"),
    ("has", "have"),
    ("does", "do"),
    ("refuses", "refuse"),
];

/// What stands behind one node's name, behind several.
fn of_many(after: &str) -> Cow<'_, str> {
    let of_verb = VERBS.iter().find_map(|(one, many)| {
        let rest = after.strip_prefix(' ')?.strip_prefix(one)?;
        rest.starts_with(' ').then(|| format!(" {many}{rest}"))
    });
    of_verb.map_or(Cow::Borrowed(after), Cow::Owned)
}

/// How the message begins of what is not reached.
const UNREACHED: &str = "cannot reach ";

impl Unreachable {
    /// What keeps us from the node, without its name, to follow "does not answer: ". Equal for nodes that fail alike.
    pub fn cause(&self) -> String {
        let Some(Alike { before, after, .. }) = self.alike.as_deref() else {
            return self.why.clone();
        };
        // "does not answer" says already that it cannot be reached.
        let only_unreached = after.strip_prefix(": ").filter(|_| before == UNREACHED);
        only_unreached.map_or_else(|| format!("{before}it{after}"), str::to_owned)
    }
}

/// Why one or several nodes do not answer, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableNodes {
    /// Which nodes; never empty.
    pub nodes: BTreeSet<NodeName>,
    /// The message. It names all of them, where one node alone does not name itself.
    pub message: String,
    /// The cures. Of several nodes, those of the first: the others' differ in names only.
    pub hints: Vec<String>,
    /// Who has to act.
    pub class: ErrorClass,
}

impl UnreachableNodes {
    /// The node, if it is one.
    pub fn node(&self) -> Option<&NodeName> {
        let mut nodes = self.nodes.iter();
        nodes.next().filter(|_| nodes.next().is_none())
    }

    /// The message, with the node's name before it where the message does not have it.
    pub fn named(&self) -> String {
        match self.node() {
            Some(node) if !self.message.contains(&format!("`{node}`")) => {
                format!("{node}: {}", self.message)
            }
            Some(_) | None => self.message.clone(),
        }
    }
}

/// Each cause once, in the order in which it comes first, with all nodes that have it.
pub fn by_cause<'a>(
    down: impl IntoIterator<Item = (&'a NodeName, &'a Unreachable)>,
) -> Vec<UnreachableNodes> {
    let mut found: Vec<(&Unreachable, BTreeSet<&NodeName>)> = Vec::new();
    for (name, why) in down {
        let same = |known: &&mut (&Unreachable, BTreeSet<&NodeName>)| {
            why.alike.is_some() && known.0.alike == why.alike && known.0.class == why.class
        };
        match found.iter_mut().find(same) {
            Some((_, names)) => drop(names.insert(name)),
            None => found.push((why, [name].into())),
        }
    }
    let shown = found.into_iter().map(|(why, names)| UnreachableNodes {
        message: match &why.alike {
            Some(alike) if names.len() > 1 => alike.of_several(&names),
            Some(_) | None => why.why.clone(),
        },
        nodes: names.into_iter().cloned().collect(),
        hints: why.hints.clone(),
        class: why.class,
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, io, sync::Arc};

    use super::*;
    use crate::{
        host::{Hop, HostError, Place},
        model::Endpoint,
    };

    fn unreachable(node: usize, hop: Hop) -> (NodeName, HostError) {
        let name = NodeName(format!("n{node}"));
        let endpoint = Endpoint {
            address: format!("10.0.0.{node}"),
            port: 22,
        };
        let at = Arc::new(Place {
            node: name.clone(),
            endpoint,
            user: "rke".into(),
            hop,
        });
        let source = io::Error::from_raw_os_error(113);
        (name, HostError::Unreachable { at, source })
    }

    fn text(errors: Vec<(NodeName, HostError)>) -> String {
        let down: Vec<_> = errors
            .into_iter()
            .map(|(name, error)| (name, Unreachable::of(&error)))
            .collect();
        let mut text = String::new();
        for group in by_cause(down.iter().map(|(name, why)| (name, why))) {
            let _ = writeln!(text, "{}", group.named());
            for hint in &group.hints {
                let _ = writeln!(text, "  hint: {hint}");
            }
        }
        text
    }

    #[test]
    fn a_cause_is_shown_once_for_all_its_nodes() {
        let direct = |nodes: usize| (1..=nodes).map(|node| unreachable(node, Hop::Direct));
        insta::assert_snapshot!(text(direct(1).collect()), @"
        cannot reach node `n1` (10.0.0.1): no route to host
          hint: nothing answers there: is the node up, and is that its address?
        ");
        insta::assert_snapshot!(text(direct(5).collect()), @"
        cannot reach 5 nodes (n1 … n5): no route to host
          hint: nothing answers there: is the node up, and is that its address?
        ");
        insta::assert_snapshot!(text(direct(100).collect()), @"
        cannot reach 100 nodes (n1 … n100): no route to host
          hint: nothing answers there: is the node up, and is that its address?
        ");
        let through = (4..=5).map(|node| unreachable(node, Hop::Through("jump".into())));
        insta::assert_snapshot!(text(direct(2).chain(through).collect()), @"
        cannot reach 2 nodes (n1, n2): no route to host
          hint: nothing answers there: is the node up, and is that its address?
        cannot reach 2 nodes (n4, n5; through the bastion host jump): no route to host
          hint: nothing answers there: is the node up, and is that its address?
        ");
    }

    #[test]
    fn a_verb_agrees_with_its_nodes() {
        let of = |before: &str, after: &str| Alike {
            before: before.to_owned(),
            after: after.to_owned(),
            through: None,
        };
        let (one, two) = (NodeName::from("n1"), NodeName::from("n2"));
        let names = [&one, &two].into();
        let refused = of("", " refuses the login of `rke`").of_several(&names);
        assert_eq!(refused, "2 nodes (n1, n2) refuse the login of `rke`");
        let key = of("the host key of ", " has changed").of_several(&names);
        assert_eq!(key, "the host key of 2 nodes (n1, n2) has changed");
    }

    /// A new message whose verb is not in the table would be wrong of several nodes.
    #[test]
    fn the_verb_of_each_message_is_known() {
        let source = include_str!("../host/error.rs");
        let of_node = source.split("\"{at} ").skip(1);
        let verbs: Vec<&str> = of_node
            .filter_map(|after| after.split_whitespace().next())
            .filter(|verb| *verb != "did" && !VERBS.iter().any(|(one, _)| one == verb))
            .collect();
        assert_eq!(verbs, Vec::<&str>::new());
    }

    /// One line for a bastion host that is down, with the nodes behind it.
    #[test]
    fn nodes_behind_a_bastion_host_that_is_down_are_one_line() {
        let behind = |node| {
            let (name, error) = unreachable(node, Hop::Through("jump".into()));
            let at = Arc::new(error.place().clone());
            let endpoint = Endpoint {
                address: "jump".into(),
                port: 22,
            };
            let bastion = Arc::new(Place {
                endpoint,
                hop: Hop::Bastion(None),
                ..error.place().clone()
            });
            let source = io::Error::from_raw_os_error(111);
            let source = Arc::new(HostError::Unreachable {
                at: bastion,
                source,
            });
            (name, HostError::Bastion { at, source })
        };
        insta::assert_snapshot!(text(vec![behind(1)]), @"
        cannot reach node `n1` (10.0.0.1): cannot reach the bastion host `jump`: connection refused
          hint: nothing listens on port 22 there: is sshd running, and on that port?
        ");
        insta::assert_snapshot!(text((1..=5).map(behind).collect()), @"
        cannot reach 5 nodes (n1 … n5): cannot reach the bastion host `jump`: connection refused
          hint: nothing listens on port 22 there: is sshd running, and on that port?
        ");
    }
}
