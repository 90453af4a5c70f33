//! Charts of the release, rendered on a node: read out of the runtime image, rendered by helm in a
//! container that has no network and sees nothing of the node. Values may hold passwords: they go in as a
//! file, and what helm says about them is not shown.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;

use super::helper::node_error;
use crate::{
    apply::{executor::failed, step::StepError},
    desired::WantedChart,
    host::{Host, OneOff},
    model::{ClusterId, Secret},
};

const RENDER: &str = include_str!("chart.sh");
/// How long helm may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Shorter values are words like `true`, whatever they say.
const SECRET: usize = 6;

/// What the file of a chart in the runtime image is.
#[derive(Deserialize)]
struct HelmChart {
    spec: HelmChartSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HelmChartSpec {
    /// The chart's archive in base64.
    chart_content: String,
}

/// What helm makes of a chart, definitions first: one output each.
pub(in crate::apply) async fn render(
    host: &Host,
    id: &ClusterId,
    want: &WantedChart,
) -> Result<Vec<Secret<String>>, StepError> {
    let chart = &want.chart;
    let names: Vec<&String> = chart.crds.iter().chain([&chart.chart]).collect();
    let paths: Vec<String> = names.iter().map(|name| path(name)).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut found = host
        .files_of_image(&want.runtime, &paths, id)
        .await
        .map_err(failed)?;
    let mut files = BTreeMap::new();
    for name in &names {
        let file = found.remove(&path(name));
        let content = file.ok_or_else(|| no_chart(host, want, name))?;
        let archive = archive(content.expose()).map_err(|why| {
            let what = format!("chart `{name}` of image `{}`: {why}", want.runtime);
            node_error(host, &what, &[IMAGE_HINT])
        })?;
        files.insert(format!("{name}.tgz"), Secret::new(archive));
    }
    let values = chart.values.to_string().into_bytes();
    files.insert("values.json".to_owned(), Secret::new(values));
    let version = want.version.to_string();
    let mut arguments = vec![chart.namespace.as_str(), version.as_str()];
    arguments.extend(names.iter().map(|name| name.as_str()));
    let one_off = OneOff {
        image: &want.helm,
        script: RENDER,
        arguments: &arguments,
        files,
        limit: LIMIT,
    };
    let (output, mut written) = host.run_one_off(&one_off, id).await.map_err(failed)?;
    if output.status != 0 {
        let log = without(&output.log, &chart.values);
        let what = format!("helm cannot render chart `{}`: {}", chart.chart, log.trim());
        let hint = format!(
            "look at what the config says about `{}`: its values go to this chart",
            chart.name
        );
        return Err(node_error(host, &what, &[&hint]));
    }
    let outputs = names.iter().map(|name| {
        let written = written.remove(*name);
        let text = written.and_then(|file| String::from_utf8(file.expose().clone()).ok());
        text.map(Secret::new)
            .ok_or_else(|| node_error(host, "what helm rendered cannot be read", &[]))
    });
    outputs.collect()
}

const IMAGE_HINT: &str = "`system_images.runtime` must be the `rancher/rke2-runtime` of this release: its charts \
                          lie below `/charts`";

fn no_chart(host: &Host, want: &WantedChart, name: &str) -> StepError {
    let what = format!("image `{}` has no chart `{name}`", want.runtime);
    node_error(host, &what, &[IMAGE_HINT])
}

fn path(chart: &str) -> String {
    format!("/charts/{chart}.yaml")
}

/// The archive of a chart.
fn archive(file: &[u8]) -> Result<Vec<u8>, &'static str> {
    let options = serde_saphyr::options! { with_snippet: false, budget: None };
    let text = std::str::from_utf8(file).map_err(|_| "it is not text")?;
    let HelmChart { spec } = serde_saphyr::from_str_with_options(text, options)
        .map_err(|_| "it is no HelmChart with `spec.chartContent`")?;
    let content: String = spec.chart_content.split_whitespace().collect();
    STANDARD
        .decode(content)
        .map_err(|_| "its `spec.chartContent` is not base64")
}

/// A log without what the values say.
fn without(log: &str, values: &Value) -> String {
    let mut log = log.to_owned();
    let mut texts = Vec::new();
    collect(values, &mut texts);
    // The longest first: one may be a part of another.
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    for text in texts {
        log = log.replace(text, "(not shown)");
    }
    log
}

fn collect<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) if text.len() >= SECRET => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_archive_is_read_out_of_its_object() {
        let file = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: a}\nspec:\n  bootstrap: true\n  chartContent: |-\n    aGVs\n    bG8=\n";
        assert_eq!(archive(file.as_bytes()).unwrap(), b"hello");
        for wrong in ["a: b", "spec: {chartContent: '*'}", "["] {
            assert!(archive(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_helm_says_shows_no_value() {
        let values =
            json!({"env": [{"value": "hunter2"}, {"value": "hunter2-and-more"}], "on": "true"});
        let log = "Error: hunter2-and-more is no number; got hunter2 (true)";
        assert_eq!(
            without(log, &values),
            "Error: (not shown) is no number; got (not shown) (true)"
        );
    }
}
