//! What a node says about itself before it is used: Docker that nobody starts after a restart, a network of somebody's
//! inside the pods' range, and processes that are hidden from a user who is not root. Told, or understood, before
//! anything is written.

use lab::Profile;

use crate::real::{Site, snapshot};

const WG: &str = "ip link add wg0 type bridge && ip addr add 10.77.0.1/24 dev wg0 && ip link set wg0 up && \
                  ip route add 10.42.8.0/24 via 10.77.0.2 dev wg0";

#[test]
fn what_a_node_lacks_or_has_already_is_said_before_anything_is_written() {
    let site = Site::new("before", Profile::Plain);
    let node = site.node();
    let sh = |script: &str| node.sh(script).expect(script);
    sh("systemctl disable docker.service docker.socket");
    let before = snapshot::take(node);

    let plan = site.run(&["plan"]);
    let said = format!("{}{}", plan.stdout, plan.stderr);
    assert!(
        said.contains("`sudo systemctl enable docker.service`"),
        "{said}"
    );

    sh(WG);
    let up = site.run(&["up", "--yes"]);
    assert_ne!(up.status, 0, "{up:?}");
    let words = ["10.42.8.0/24", "`wg0`", "10.42.0.0/16, the range of pods"];
    assert!(words.iter().all(|word| up.stderr.contains(word)), "{up:?}");
    sh("ip link del wg0");
    snapshot::unchanged(node, &before, &[]);

    sh("systemctl enable docker.service docker.socket");
    sh("mount -o remount,hidepid=2 /proc");
    let hidden = node.sh("su lab -c 'ls -d /proc/1'");
    assert!(hidden.is_err(), "processes are not hidden: {hidden:?}");
    site.run(&["up", "--yes"]).well();
    let again = site.run(&["up", "--yes"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
    site.run(&["remove", "--yes"]).well();
}
