//! Who asks for kinds that a later release no longer has: each API server counts it since it started, and
//! names the release.

use std::collections::BTreeSet;

use http::Request;
use kube::Client;

use super::read::within;
use crate::{
    facts::RemovedApi,
    model::{ImageVersion, samples, version},
};

const METRIC: &str = "apiserver_requested_deprecated_apis";

/// What this API server was asked for that this release, or one before it, no longer has.
pub async fn removed_apis(
    client: &Client,
    release: ImageVersion,
) -> Result<BTreeSet<RemovedApi>, String> {
    let asked = async {
        let request = Request::get("/metrics")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        client.request_text(request).await
    };
    let metrics = within(asked).await?;
    Ok(removed(&metrics, release))
}

fn removed(metrics: &str, (major, minor, _): ImageVersion) -> BTreeSet<RemovedApi> {
    let asked = samples(metrics, METRIC).filter_map(|asked| {
        let label = |name| asked.label(name).map(str::to_owned);
        let removed_in = label("removed_release")?;
        let (of_major, of_minor, _) = version(&format!("{removed_in}.0"))?;
        let gone = (of_major, of_minor) <= (major, minor);
        let api = RemovedApi {
            group: label("group")?,
            version: label("version")?,
            resource: label("resource")?,
            removed_in,
        };
        (gone && asked.value > 0.0).then_some(api)
    });
    asked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fake::FakeApi;

    /// As kube-apiserver 1.31 writes them.
    const METRICS: &str = "# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs\n\
        # TYPE apiserver_requested_deprecated_apis gauge\n\
        apiserver_requested_deprecated_apis{group=\"flowcontrol.apiserver.k8s.io\",\
        removed_release=\"1.32\",resource=\"flowschemas\",subresource=\"\",version=\"v1beta3\"} 1\n\
        apiserver_requested_deprecated_apis{group=\"\",removed_release=\"\",\
        resource=\"componentstatuses\",subresource=\"\",version=\"v1\"} 1\n\
        apiserver_requested_deprecated_apis{group=\"example\",removed_release=\"1.40\",\
        resource=\"things\",subresource=\"\",version=\"v1alpha1\"} 1\n\
        apiserver_request_total{group=\"flowcontrol.apiserver.k8s.io\",version=\"v1beta3\"} 7\n";

    #[test]
    fn what_goes_with_a_release_or_went_with_one_before_it() {
        assert_eq!(removed(METRICS, (1, 31, 9)), [].into());
        let found = removed(METRICS, (1, 32, 13));
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["`flowschemas` of `flowcontrol.apiserver.k8s.io/v1beta3`"]
        );
        assert_eq!(removed(METRICS, (1, 33, 0)), found);
        assert_eq!(removed(METRICS, (1, 40, 0)).len(), 2);
    }

    #[tokio::test]
    async fn a_server_that_does_not_tell_is_no_proof_of_nothing() {
        let api = FakeApi::new();
        api.refuse("GET /metrics", &[403]);
        let told = removed_apis(&api.client(), (1, 32, 13)).await;
        assert!(told.unwrap_err().contains("refused by the test"));
    }
}
