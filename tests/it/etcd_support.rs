//! Certificates for members of etcd as the product makes them, and an engine that gets in.

use std::collections::BTreeMap;

use rke_operator::{
    config::{Intent, RkeConfig, SecretSources},
    desired::{
        Desired,
        pki::{self, EngineClients, PkiContext, Seed},
    },
    facts::{Actual, HostView},
    model::NodeName,
};

use crate::sim::bare_host;

/// The PEM texts of one member.
pub(crate) struct MemberFiles {
    pub(crate) ca: String,
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// A cluster's members at these addresses, by name, and what the engine reaches them with.
pub(crate) fn members(addresses: &[&str]) -> (BTreeMap<NodeName, MemberFiles>, EngineClients) {
    let nodes: Vec<String> = addresses
        .iter()
        .map(|at| format!("  - {{address: {at}, user: rke, role: [controlplane, etcd, worker]}}\n"))
        .collect();
    let nodes = nodes.concat();
    let config = format!(
        "nodes:\n{nodes}network: {{plugin: none}}\ningress: {{provider: none}}\n\
         monitoring: {{provider: none}}\n"
    );
    let config = RkeConfig::parse(&config).expect("a config");
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let sources = SecretSources::new("ssh", key.into());
    let intent = Intent::from_config(&config, &sources)
        .expect("an intent")
        .intent;
    let now = jiff::Timestamp::from_second(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("a time")
            .as_secs()
            .cast_signed(),
    )
    .expect("a time");
    let context = PkiContext {
        now,
        seed: Seed::new([7; 32]),
        recover: None,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        authorities: None,
        restore: None,
        held_elsewhere: &[].into(),
        lose: &[].into(),
        clean: &[].into(),
        given: None,
    };
    let hosts = intent.nodes.keys().map(|name| {
        let facts = bare_host(name);
        (name.clone(), HostView::Reachable(Box::new(facts)))
    });
    let have = Actual {
        hosts: hosts.collect(),
        ..Actual::default()
    };
    let keys = pki::reconcile(&intent, &have, &context).expect("keys");
    let want = Desired::from_intent(&intent, &keys, &have).expect("a desired world");
    let engine = pki::engine_clients(&keys.saved, now, &Seed::new([8; 32])).expect("an engine");
    let members = want.hosts.iter().map(|(name, host)| {
        let file = |end: &str| {
            let mut files = host.files.iter();
            let found = files.find(|(path, _)| path.contains("/kube-etcd-") && path.ends_with(end));
            String::from_utf8(found.expect("a file").1.content.expose().clone()).expect("PEM")
        };
        let key = file("-key.pem");
        let mut files = host.files.iter();
        let cert = files
            .find(|(path, _)| path.contains("/kube-etcd-") && !path.ends_with("-key.pem"))
            .expect("a certificate");
        let member = MemberFiles {
            ca: engine.etcd.ca.clone(),
            cert: String::from_utf8(cert.1.content.expose().clone()).expect("PEM"),
            key,
        };
        (name.clone(), member)
    });
    (members.collect(), engine)
}
