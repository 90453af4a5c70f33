//! Certificates that a person made, end to end: requests for them, what a company's authority makes of those, and what
//! `plan` says to them. The authority's key is nowhere but here.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::cli_node::Site;

/// A company's.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "the company");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// Signs every request of the folder.
    pub(crate) fn signs(&self, folder: &Path) {
        let mut certs = vec![("kube-ca.pem".to_owned(), self.pem.clone())];
        for (name, request) in files(folder) {
            if let Some(stem) = name.strip_suffix("-csr.pem") {
                let request = CertificateSigningRequestParams::from_pem(&request).unwrap();
                let cert = request.signed_by(&self.issuer).unwrap();
                certs.push((format!("{stem}.pem"), cert.pem()));
            }
        }
        for (name, pem) in certs {
            fs::write(folder.join(name), pem).unwrap();
        }
    }
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap();
    let read = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    read.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_can_be_planned_with_what_a_company_signed() {
    let site = Site::new().await;
    let folder = site.context.path("cluster_certs");
    let ran = site.run(&["cert", "generate-csr"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains("up --custom-certs"), "{ran}");
    let requests = files(&folder);
    let names: Vec<&str> = requests.keys().map(String::as_str).collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    kube-admin-csr.pem
    kube-admin-key.pem
    kube-apiserver-csr.pem
    kube-apiserver-key.pem
    kube-apiserver-kubelet-client-csr.pem
    kube-apiserver-kubelet-client-key.pem
    kube-controller-manager-csr.pem
    kube-controller-manager-key.pem
    kube-kubelet-127-0-0-1-csr.pem
    kube-kubelet-127-0-0-1-key.pem
    kube-node-127-0-0-1-csr.pem
    kube-node-127-0-0-1-key.pem
    kube-proxy-csr.pem
    kube-proxy-key.pem
    kube-scheduler-csr.pem
    kube-scheduler-key.pem
    ");
    let key = folder.join("kube-admin-key.pem");
    let mode = fs::metadata(key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The keys are kept, and give the same requests.
    site.run(&["cert", "generate-csr"]).await;
    assert_eq!(files(&folder), requests);

    // Nothing is signed yet.
    let before = site.state();
    let ran = site.run(&["plan", "--custom-certs"]).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("`kube-ca.pem` is missing"), "{ran}");

    Authority::new().signs(&folder);
    let ran = site.run(&["plan", "--custom-certs"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains("claim"), "{ran}");
    for (name, text) in files(&folder) {
        let line = text.lines().nth(1).unwrap();
        assert!(
            !name.ends_with("-key.pem") || !ran.to_string().contains(line),
            "{name}"
        );
    }

    // All that is wrong, at once.
    fs::remove_file(folder.join("kube-scheduler.pem")).unwrap();
    fs::remove_file(folder.join("kube-proxy-key.pem")).unwrap();
    let ran = site.run(&["plan", "--custom-certs"]).await;
    assert_eq!(ran.code, Some(1), "{ran}");
    for said in [
        "`kube-proxy-key.pem` is missing: the key of `kube-proxy.pem`",
        "`kube-scheduler.pem` and `kube-scheduler-key.pem` are missing: of a client, CN=system:kube-scheduler",
        "docs/certificates.md",
    ] {
        assert!(ran.stderr.contains(said), "{said}: {ran}");
    }
    let ran = site
        .run(&["plan", "--custom-certs", "--cert-dir", "none"])
        .await;
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(
        ran.stderr
            .contains("cannot read the certificates in `none`"),
        "{ran}"
    );
    let nodes = |state: &str| state.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        nodes(&site.state()),
        nodes(&before),
        "nothing was written on the node"
    );
}
