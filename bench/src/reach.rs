//! Whether a cluster works, whoever made it: a pod on each node reaches the pod on every node, and a
//! Service by its name. Looked at after the time was taken.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Images;
use serde_json::Value;

use crate::Fallible;

const OBJECTS: &str = include_str!("reach.yml");
/// Not reached within this time is not reached.
const LIMIT: Duration = Duration::from_mins(2);
/// Asked for by a pod: it is given the addresses of all.
const ASK: &str = "for address; do wget -q -T 2 -O /dev/null http://$address:8080/ || exit 1; done
                   nslookup reach.default.svc.cluster.local > /dev/null || exit 1
                   wget -q -T 2 -O /dev/null http://reach.default.svc.cluster.local/";

/// How long it takes from the pods' manifest until each reaches each.
pub(crate) fn each_to_each(kubeconfig: &Path, images: &Images, nodes: usize) -> Fallible<Duration> {
    let image = images.program("cni-plugins")?;
    let image = image.names.first().ok_or("an image without a name")?;
    let begun = Instant::now();
    kubectl(
        kubeconfig,
        &["apply", "--filename", "-"],
        &OBJECTS.replace("IMAGE", image),
    )?;
    loop {
        let reached = all_reach(kubeconfig, nodes);
        if reached.is_ok() {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > LIMIT {
            let late = |error| format!("not each pod reaches each after {LIMIT:?}: {error}").into();
            return reached.map(|()| LIMIT).map_err(late);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn all_reach(kubeconfig: &Path, nodes: usize) -> Fallible<()> {
    let said = kubectl(
        kubeconfig,
        &["get", "pods", "--selector", "app=reach", "--output", "json"],
        "",
    )?;
    let pods = ready(&serde_json::from_str(&said)?);
    if pods.len() != nodes {
        return Err(format!("pods that are ready: {} of {nodes}", pods.len()).into());
    }
    for (pod, _) in &pods {
        let ask = ["exec", pod.as_str(), "--", "sh", "-c", ASK, "sh"];
        let addresses = pods.iter().map(|(_, address)| address.as_str());
        let words: Vec<&str> = ask.into_iter().chain(addresses).collect();
        kubectl(kubeconfig, &words, "")?;
    }
    Ok(())
}

/// The names and addresses of the pods that are ready.
fn ready(pods: &Value) -> Vec<(String, String)> {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .into_iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let pods = pods["items"].as_array().into_iter().flatten();
    pods.filter(|pod| is_ready(pod))
        .filter_map(|pod| {
            let name = pod["metadata"]["name"].as_str()?;
            Some((name.to_owned(), pod["status"]["podIP"].as_str()?.to_owned()))
        })
        .collect()
}

fn kubectl(kubeconfig: &Path, words: &[&str], input: &str) -> Fallible<String> {
    let mut child = Command::new(lab::kubectl()?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--request-timeout", "20s"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr)
        .trim()
        .to_owned()
        .into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_not_ready_is_not_asked() {
        let pod = |name: &str, status: &str| {
            json!({"metadata": {"name": name}, "status": {"podIP": "10.42.0.2",
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": status}]}})
        };
        let pods = json!({"items": [pod("a", "True"), pod("b", "False")]});
        assert_eq!(ready(&pods), [("a".to_owned(), "10.42.0.2".to_owned())]);
    }
}
