//! Where etcd keeps its data is not for its flags to say: what protects a member whose disk is missing, what joins it
//! again and what takes its snapshots look in one place. Pure.

use super::{Found, fits};
use crate::config::cursor::Cursor;

/// The folder as etcd's container has it.
const DATA: &str = "/var/lib/rancher/etcd";

const HINT: &str = "leave it out, and mount the disk for etcd at `/var/lib/etcd` on the node: its data and its WAL are there";

/// Flags and variables that lead elsewhere, or take every other flag away.
pub(super) fn check(etcd: &Cursor<'_>, found: &mut Found) {
    for kind in ["extra_args", "extra_args_array"] {
        for (name, at) in etcd.get(kind).entries() {
            let name = fits::flag_name(name);
            let default = at.scalar().map(|text| text.trim_end_matches('/')) == Some(DATA);
            if !(name == "data-dir" && default) {
                refuse(&name, &at, found);
            }
        }
    }
    for at in etcd.get("extra_env").items() {
        let name = at
            .scalar()
            .and_then(|text| text.split_once('='))
            .map(|(name, _)| name);
        match name {
            // The flag for the data is always there, and wins.
            Some("ETCD_WAL_DIR") => refuse("wal-dir", &at, found),
            Some("ETCD_CONFIG_FILE") => refuse("config-file", &at, found),
            Some(_) | None => {}
        }
    }
}

fn refuse(flag: &str, at: &Cursor<'_>, found: &mut Found) {
    match flag {
        "data-dir" | "wal-dir" => {
            let what = "etcd's data would be where rke-operator does not look for them";
            found.problem(at.problem(what).hint(HINT));
        }
        "config-file" => {
            let what = "etcd ignores all flags when it reads a configuration file";
            let hint = "write the settings as flags into `extra_args`";
            found.problem(at.problem(what).hint(hint));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::resolve::tests::resolve;

    fn problems_of(key: &str, value: &serde_json::Value) -> usize {
        let document = json!({
            "nodes": [{"address": "192.0.2.10", "user": "u"}],
            "services": {"etcd": {key: value, "snapshot": false}},
        });
        let problems = resolve(&document.to_string()).err();
        problems.map_or(0, |problems| problems.iter().count())
    }

    /// E13: Rancher's page about large installations has the first two.
    #[test]
    fn nothing_moves_the_data_and_no_file_takes_the_flags_away() {
        for (key, value) in [
            (
                "extra_args",
                json!({"data-dir": "/var/lib/rancher/etcd/data/"}),
            ),
            (
                "extra_args",
                json!({"wal-dir": "/var/lib/rancher/etcd/wal/wal_dir"}),
            ),
            ("extra_args_array", json!({"data-dir": ["/srv/etcd"]})),
            ("extra_args", json!({"config-file": "/etc/etcd.yaml"})),
            ("extra_env", json!(["ETCD_WAL_DIR=/srv/wal"])),
            ("extra_env", json!(["ETCD_CONFIG_FILE=/etc/etcd.yaml"])),
        ] {
            assert_eq!(problems_of(key, &value), 1, "{key} {value}");
        }
        for (key, value) in [
            ("extra_args", json!({"data-dir": "/var/lib/rancher/etcd/"})),
            ("extra_args", json!({"quota-backend-bytes": "1"})),
            ("extra_env", json!(["ETCD_DATA_DIR=/srv/etcd"])),
        ] {
            assert_eq!(problems_of(key, &value), 0, "{key} {value}");
        }
    }
}
