//! A renewal of certificates that is cut between files and replacements: what runs goes on with the certificate from
//! before, and the operator that starts next goes on with the renewal, unasked. What is served tells.

use std::{fs, time::Duration};

use lab::Node;
use rke_operator::{model::path, state::codec};

use crate::real::{
    Site,
    beside::ran,
    containers,
    operator::{Management, step},
};

const CLUSTER: &str = "minimal";
const MINUTES: Duration = Duration::from_secs(240);
const STEM: &str = "/etc/kubernetes/ssl/kube-apiserver";
const SERIAL: &str = "openssl x509 -noout -serial";

/// How a company's authority would sign it.
pub(crate) const AUTHORITY: &str = "[ca]
default_ca = own
[own]
certificate = ca.pem
private_key = ca.key
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
preserve = yes
unique_subject = no
copy_extensions = copyall
[any]
commonName = supplied
organizationName = optional
";

/// A certificate for the same, of the same key, which has two days left.
const SIGNS: &str = "set -e
    end=$(date -u -d '+2 days' +%Y%m%d%H%M%SZ)
    openssl x509 -x509toreq -in is.pem -signkey is.key -copy_extensions copyall -out is.csr
    openssl ca -batch -config ca.cnf -in is.csr -out old.pem -notext -startdate 20250101000000Z -enddate $end";

/// The API server gets a certificate that ends soon, and serves with it. Gives its serial number.
fn ages(management: &Management) -> String {
    let (site, node) = (management.site(), management.second());
    let read = |path: &str| node.sh(&format!("cat {path}")).expect(path);
    let state = codec::decode(&read(path::STATE)).expect("a copy of the state");
    let authority = &state.cluster_ca.signing;
    let key = authority.key.as_ref().expect("its key").expose().clone();
    for (name, text) in [
        ("ca.pem", authority.cert.clone()),
        ("ca.key", key),
        ("is.pem", read(&format!("{STEM}.pem"))),
        ("is.key", read(&format!("{STEM}-key.pem"))),
        ("ca.cnf", AUTHORITY.to_owned()),
        ("index", String::new()),
    ] {
        fs::write(site.path(name), text).expect("a file");
    }
    let script = format!("cd '{}'; {SIGNS}", site.folder().display());
    ran("sh", &["-c", &script]);
    let old = fs::read_to_string(site.path("old.pem")).expect("a certificate");
    // Into the very file that the container has.
    let write = format!("cat > {STEM}.pem << 'PEM'\n{old}PEM\ndocker restart kube-apiserver");
    node.sh(&write).expect("it serves with that");
    let serial = on_disk(node);
    Site::eventually("the API server serves with it", MINUTES, || {
        served(node).as_ref() == Some(&serial)
    });
    serial
}

fn on_disk(node: &Node) -> String {
    let script = format!("{SERIAL} -in {STEM}.pem");
    node.sh(&script).expect("a certificate").trim().to_owned()
}

/// What a client is shown, if there is a server.
fn served(node: &Node) -> Option<String> {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:6443 < /dev/null 2> /dev/null | {SERIAL} 2> /dev/null"
    );
    let serial = node.sh(&script).ok()?.trim().to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// An operator that is there until the cluster is settled.
fn settles(management: &Management) {
    let operator = management.operator();
    management.settled(CLUSTER, MINUTES);
    operator.stop();
}

/// The operator is killed when the new files are there and what reads them is to be replaced. Gives the serial number of
/// the certificate that goes on being served.
fn cut(management: &Management) -> Option<String> {
    let node = management.second();
    let old = ages(management);
    let mut operator = management.operator();
    operator
        .hear(MINUTES, |line| {
            (step(line)? == "replace kube-apiserver").then_some(())
        })
        .expect("a renewal");
    operator.kill();
    let is_cut = served(node).as_ref() == Some(&old) && on_disk(node) != old;
    if !is_cut {
        // It came too late.
        settles(management);
    }
    is_cut.then_some(old)
}

#[test]
fn a_renewal_that_was_cut_goes_on_by_itself() {
    let management = Management::new("ha-renewal");
    let node = management.second();
    let sample = management.sample(CLUSTER, node);
    management.send(&["create"], &sample).well();
    settles(&management);

    let old = (0..5).find_map(|_| cut(&management));
    let old = old.expect("a kill between files and replacements");
    let before = containers(node);
    let operator = management.operator();
    Site::eventually("what is served has changed", MINUTES, || {
        served(node).is_some_and(|serial| serial != old)
    });
    assert_eq!(served(node), Some(on_disk(node)));
    management.settled(CLUSTER, MINUTES);
    operator.stop();
    let after = containers(node);
    let replaced = before
        .keys()
        .filter(|name| before.get(*name) != after.get(*name));
    assert_eq!(replaced.collect::<Vec<_>>(), ["kube-apiserver"]);
    management.inside(CLUSTER, &["get", "node", "n2"]).well();
}
