//! `node reboot` on a real node. A node of the lab is a container: `systemctl reboot` ends it, and the test starts it again,
//! as the firmware of a machine does.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::{Node, Profile};

use crate::real::Site;

pub(crate) const PROCESS: &str = "cut -d ' ' -f 22 /proc/1/stat";

#[test]
fn a_node_reboots_and_serves_again() {
    let site = Site::new("reboot", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    let name = site.kubectl(&["get", "nodes", "-o", "name"]).stdout;
    let name = name.trim().trim_start_matches("node/").to_owned();
    let before = site.node().sh(PROCESS).expect("process 1");

    let run = switched_on(site.node(), || {
        site.run(&["node", "reboot", &name, "--yes"])
    });
    run.well();

    let after = site.node().sh(PROCESS).expect("process 1");
    assert_ne!(before, after, "another boot");
    assert!(site.is_ready(), "it serves");
    let unschedulable = [
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[*].spec.unschedulable}",
    ];
    assert_eq!(site.kubectl(&unschedulable).stdout.trim(), "");
    let plan = site.run(&["plan"]).stdout;
    assert!(plan.contains("nothing to do"), "{plan}");
}

/// Does something while a node that goes off is switched on again.
pub(crate) fn switched_on<T>(node: &Node, does: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // One that runs is left as it is.
                drop(node.start());
                thread::sleep(Duration::from_secs(1));
            }
        });
        // Also where it panics: the scope waits for the thread.
        let ended = panic::catch_unwind(AssertUnwindSafe(does));
        done.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}
