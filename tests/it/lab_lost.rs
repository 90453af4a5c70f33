//! A node that is gone: what is known of it is kept.

use std::fs;

use lab::Profile;

use crate::real::Site;

#[test]
fn the_state_outlives_a_node_that_is_gone() {
    let site = Site::new("gone", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    let state = site.path("cluster.rke-operator.json");
    let before = fs::read(&state).expect("a state");

    site.node().stop().expect("its plug is pulled");
    let removed = site.run(&["remove", "--force"]);
    assert_ne!(removed.status, 0, "{removed:?}");
    assert_eq!(fs::read(&state).expect("the state is kept"), before);
    let said = removed.stdout + &removed.stderr;
    assert!(
        said.contains("n1") && said.contains("the state is kept"),
        "{said}"
    );
}
