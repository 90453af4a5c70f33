//! `monitoring`: the metrics server, and how it runs.

use super::{
    Found,
    pods::{self, Runs},
    values,
};
use crate::config::{cursor::Cursor, intent::MetricsServer};

/// `None` where the user brings one, or a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<MetricsServer> {
    let provider = at.get("provider");
    let wanted = values::word(&provider, "unknown provider", found) != "none";
    let options = values::map(&at.get("options"), found).into_iter();
    let options = options.filter_map(|(name, (value, text))| {
        values::is_flag(name, &value, found).then(|| (name.to_owned(), text.to_owned()))
    });
    let server = MetricsServer {
        options: options.collect(),
        node_selector: values::labels(&at.get("node_selector"), found),
        replicas: values::number_or_default(&at.get("replicas"), found),
        update_strategy: pods::update_strategy(&at.get("update_strategy"), Runs::Deployment, found),
        tolerations: pods::tolerations(&at.get("tolerations"), found),
        priority_class: pods::priority_class(&at.get("metrics_server_priority_class_name"), found),
    };
    wanted.then_some(server)
}
