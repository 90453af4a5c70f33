//! All certificates of a cluster have ended, as in one that was switched off for months: every member of etcd, every API
//! server, controller, kubelet and proxy, and the administrator's kubeconfig. One `up` brings it back, and its pods stay.
//! When the authorities end as well, `cert rotate --rotate-ca --now` does.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use lab::{LabSpec, Profile};
use rke_operator::state::{Authority, codec};
use serde_json::Value;

use crate::{
    lab_ha_renewal::AUTHORITY,
    lab_many::{ALL, CENTRAL, WORKER, names},
    real::{Site, beside::ran, publish, tell},
};

const NODES: [(&str, &[&str]); 5] = [
    ("n1", ALL),
    ("n2", CENTRAL),
    ("n3", CENTRAL),
    ("n4", WORKER),
    ("n5", WORKER),
];

/// Each certificate below `ssl`, of the same key and for the same, has ended yesterday. Says how many.
const END: &str = "set -e
    end=$(date -u -d '-1 day' +%Y%m%d%H%M%SZ)
    for key in ssl/*/*-key.pem; do
        cert=${key%-key.pem}.pem
        for ca in cluster etcd front-proxy; do
            openssl verify -partial_chain -no_check_time -CAfile $ca.pem $cert > /dev/null 2>&1 || continue
            : > index
            openssl x509 -x509toreq -in $cert -signkey $key -copy_extensions copyall -out csr.pem
            openssl ca -batch -config ca.cnf -cert $ca.pem -keyfile $ca.key -in csr.pem -out $cert -notext \\
                -startdate 20250101000000Z -enddate $end 2> /dev/null
            echo $cert
        done
    done | wc -l";

/// An authority of the same key and the same name has ended yesterday.
const END_AUTHORITY: &str = "set -e
    end=$(date -u -d '-1 day' +%Y%m%d%H%M%SZ)
    : > index
    openssl x509 -x509toreq -in NAME.pem -signkey NAME.key -copy_extensions copyall -out csr.pem
    openssl ca -batch -selfsign -config ca.cnf -cert NAME.pem -keyfile NAME.key -in csr.pem -out NAME.ended -notext \\
        -startdate 20250101000000Z -enddate $end 2> /dev/null";

/// Into the very files that the containers have; and then they start again, as after a reboot.
const GIVE_BACK: &str = "set -e
    mkdir /tmp/ended
    base64 -d | tar -C /tmp/ended -x
    for file in $(ls /tmp/ended); do cat /tmp/ended/$file > /etc/kubernetes/ssl/$file; done
    rm -r /tmp/ended
    docker restart --time 0 $(docker ps --quiet)";

/// What `script` prints when it is given that.
fn with_input(site: &Site, node: &str, script: &str, input: &str) -> String {
    let node = site.lab.node(node);
    let whole = format!("({script}) << 'INPUT'\n{input}\nINPUT");
    node.sh(&whole).expect(script)
}

/// Every certificate on every node and the administrator's own have ended, and everything has started again with them.
fn ends(site: &Site) {
    let state = site
        .lab
        .node("n1")
        .sh("cat /etc/kubernetes/rke-operator-state.json");
    let state = codec::decode(&state.expect("a copy of the state")).expect("a state");
    for (name, authority) in [
        ("cluster", &state.cluster_ca),
        ("etcd", &state.etcd_ca),
        ("front-proxy", &state.front_proxy_ca),
    ] {
        write_pair(site, name, authority);
    }
    fs::write(site.path("ca.cnf"), AUTHORITY).expect("a file");
    for (node, _) in NODES {
        take(site, node);
    }
    administrator(site, |site, config| {
        let folder = site.path("ssl/administrator");
        fs::create_dir_all(&folder).expect("a folder");
        for (field, name) in FIELDS {
            let text = BASE64_STANDARD.decode(config[field].as_str().expect(field));
            fs::write(folder.join(name), text.expect("base64")).expect("a file");
        }
    });
    let ended = ran("sh", &["-c", &in_folder(site, END)]);
    // etcd, API server with its three clients, controllers, kubelet with its server, kube-proxy; and one of a person.
    assert_eq!(ended, (3 * 10 + 2 * 3 + 1).to_string());
    administrator(site, |site, config| {
        for (field, name) in FIELDS {
            let text = fs::read(site.path("ssl/administrator").join(name)).expect(name);
            config[field] = BASE64_STANDARD.encode(text).into();
        }
    });
    for (node, _) in NODES {
        give_back(site, node);
    }
}

/// An authority as files.
pub(crate) fn write_pair(site: &Site, name: &str, authority: &Authority) {
    let key = authority.signing.key.as_ref().expect("its key");
    fs::write(site.path(&format!("{name}.pem")), &authority.signing.cert).expect("a file");
    fs::write(site.path(&format!("{name}.key")), key.expose()).expect("a file");
}

/// The certificates of a node, in a folder here.
fn take(site: &Site, node: &str) {
    let folder = site.path(&format!("ssl/{node}"));
    fs::create_dir_all(&folder).expect("a folder");
    let read = "tar -C /etc/kubernetes/ssl -c . | base64 -w 0";
    let archive = site.lab.node(node).sh(read).expect("its certificates");
    let archive = BASE64_STANDARD.decode(archive.trim()).expect("base64");
    fs::write(site.path("ssl.tar"), archive).expect("a file");
    let unpack = format!("tar -C '{}' -xf ssl.tar", folder.display());
    ran("sh", &["-c", &in_folder(site, &unpack)]);
}

/// The same folder, back to the node, where everything starts again.
fn give_back(site: &Site, node: &str) {
    let archive = "tar -C ssl/NODE --exclude=*-key.pem --exclude=*.yaml -c . | base64 -w 0";
    let archive = in_folder(site, &archive.replace("NODE", node));
    with_input(site, node, GIVE_BACK, &ran("sh", &["-c", &archive]));
}

/// Every authority has ended, on every node and in the state, and everything has started again. Certificates that they
/// have signed would be good for months.
fn authorities_end(site: &Site) {
    let path = site.path("cluster.rke-operator.json");
    let mut state = fs::read_to_string(&path).expect("a state");
    let read = codec::decode(&state).expect("a state");
    let signer = read.signer_ca.as_ref().expect("an authority");
    let mut pairs = Vec::new();
    for (name, authority) in [
        ("cluster", &read.cluster_ca),
        ("etcd", &read.etcd_ca),
        ("front-proxy", &read.front_proxy_ca),
        ("signer", signer),
    ] {
        write_pair(site, name, authority);
        let script = in_folder(site, &END_AUTHORITY.replace("NAME", name));
        ran("sh", &["-c", &script]);
        let ended = fs::read_to_string(site.path(&format!("{name}.ended"))).expect("a file");
        pairs.push((authority.signing.cert.clone(), ended));
    }
    let end = |text: &str, lines: &str| {
        pairs.iter().fold(text.to_owned(), |text, (good, ended)| {
            text.replace(&good.replace('\n', lines), &ended.replace('\n', lines))
        })
    };
    state = end(&state, "\\n");
    fs::write(&path, &state).expect("a state");
    let keeps = "cat > /etc/kubernetes/rke-operator-state.json";
    for (node, roles) in NODES {
        take(site, node);
        for file in fs::read_dir(site.path(&format!("ssl/{node}"))).expect("a folder") {
            let path = file.expect("a file").path();
            let text = fs::read_to_string(&path).expect("a file");
            fs::write(&path, end(&text, "\n")).expect("a file");
        }
        if roles != WORKER {
            with_input(site, node, keeps, state.trim_end());
        }
        give_back(site, node);
    }
}

const FIELDS: [(&str, &str); 2] = [
    ("client-certificate-data", "admin.pem"),
    ("client-key-data", "admin-key.pem"),
];

pub(crate) fn in_folder(site: &Site, script: &str) -> String {
    format!("cd '{}'; {script}", site.folder().display())
}

/// Does that with the user of the administrator's kubeconfig.
fn administrator(site: &Site, does: impl FnOnce(&Site, &mut Value)) {
    let path = site.path("kube_config_cluster.yml");
    let text = fs::read_to_string(&path).expect("a kubeconfig");
    let mut config: Value = serde_saphyr::from_str(&text).expect("a document");
    does(site, &mut config["users"][0]["user"]);
    fs::write(path, config.to_string()).expect("a kubeconfig");
}

/// The uids of all pods but those that end.
pub(crate) fn pods(site: &Site) -> BTreeSet<String> {
    let path =
        "jsonpath={range .items[*]}{.metadata.uid} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let all = ["get", "pods", "--all-namespaces", "-o", path];
    let listed = site.kubectl(&all).well().stdout;
    let each = listed.lines().filter_map(|line| line.split_once(' '));
    let stay = each.filter(|(_, ends)| ends.is_empty());
    stay.map(|(uid, _)| uid.to_owned()).collect()
}

#[test]
fn a_cluster_whose_certificates_have_all_ended_comes_back() {
    let spec = NODES
        .iter()
        .fold(LabSpec::own("ha-ended"), |spec, (name, _)| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    site.names(&NODES);
    site.run(&["up", "--yes"]).well();
    let before = pods(&site);
    let all = names(&NODES.map(|(name, _)| name));
    assert_eq!(site.ready(), all);

    ends(&site);
    let refused = site.kubectl(&["get", "nodes"]);
    assert_ne!(refused.status, 0, "it is not there: {refused:?}");
    let begun = Instant::now();
    let up = site.run(&["up", "--yes"]).well();
    let took = begun.elapsed().as_secs_f64();
    tell(&format!("back after {took:.1} s\n{}", up.stderr));
    publish(
        "HA_TABLE",
        &format!(
            "all certificates ended: one `up` brings the cluster back in {took:.1} s (aim 180)"
        ),
    );
    let places = |what: &str| {
        let lines = up.stderr.lines().enumerate();
        let these = lines.filter(|(_, line)| line.contains(what));
        these.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let kubelets = places("  replace kubelet,");
    let controllers = places("  replace kube-controller-manager,");
    assert_eq!((kubelets.len(), controllers.len()), (5, 3), "{}", up.stderr);
    assert!(kubelets.last() < controllers.first(), "{}", up.stderr);
    assert_eq!(site.ready(), all);
    assert_eq!(pods(&site), before, "no pod has gone");
    site.has_nothing_to_do();

    authorities_end(&site);
    let refused = site.run(&["up", "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("cert rotate --rotate-ca --now"),
        "{}",
        refused.stderr
    );
    let replace = ["cert", "rotate", "--rotate-ca", "--now", "--yes"];
    let begun = Instant::now();
    let kill = site.kill_when(&replace, |title| {
        title
            .contains("replace etcd")
            .then_some(Duration::from_millis(300))
    });
    assert!(kill.is_some(), "a member was replaced");
    let rest = site.run(&replace).well();
    let took = begun.elapsed().as_secs_f64();
    tell(&format!("back after {took:.1} s\n{}", rest.stderr));
    publish(
        "HA_TABLE",
        &format!(
            "all authorities ended: `cert rotate --rotate-ca --now`, killed once, brings the cluster back in {took:.1} s (aim \
             180)"
        ),
    );
    assert_eq!(site.ready(), all);
    let restarted = pods(&site);
    assert!(restarted.is_disjoint(&before), "pods of add-ons restart");
    assert_eq!(restarted.len(), before.len());
    site.has_nothing_to_do();
}
