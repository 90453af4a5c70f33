//! etcd members that were added and never started: they have no name and do not answer, so only their peer URL
//! identifies their node. Pure.

use std::collections::BTreeSet;

use super::Actual;
use crate::{
    etcd::{Member, MemberId},
    model::{Component, HostAddress, NodeName},
};

impl Actual {
    /// The member of a node that never started: it is reached at an address of the node.
    pub fn unnamed_member(&self, name: &NodeName) -> Option<(MemberId, &Member)> {
        let urls = self.peer_urls(name);
        let mut members = self.etcd.members.iter();
        let found = members.find(|(_, member)| {
            let unnamed = member.name.is_empty() && member.status.is_none();
            unnamed && !member.peer_urls.is_disjoint(&urls)
        });
        found.map(|(id, member)| (*id, member))
    }

    /// Where a member on this node may be reached, as far as anything tells: its container, the list that etcd was
    /// made with, the machine's own addresses, and the one by which we reach it.
    fn peer_urls(&self, name: &NodeName) -> BTreeSet<String> {
        let facts = self.up(name);
        let container = facts.and_then(|facts| facts.containers.get(Component::Etcd.container()));
        let runs = container.and_then(|fact| fact.runs.as_ref());
        let flags = runs.into_iter().flat_map(|spec| &spec.command);
        let told = flags.filter_map(|word| word.strip_prefix("--initial-advertise-peer-urls="));
        let own = facts.into_iter().flat_map(|facts| &facts.system.addresses);
        let saved = self.saved.as_ref();
        let entry = saved.and_then(|saved| saved.inventory.get(name));
        let reached = entry.map(|entry| &entry.endpoint.address);
        let addresses = own
            .chain(reached)
            .map(|address| HostAddress::from(address.as_str()));
        let urls = addresses.map(|address| format!("https://{}", address.with_port(2380)));
        let first = saved
            .and_then(|saved| saved.etcd_bootstrap.get(name))
            .cloned();
        told.map(str::to_owned).chain(first).chain(urls).collect()
    }
}
