//! The proxy of the environment (`HTTPS_PROXY`, `NO_PROXY`), as kubectl and curl take it: for the API server of a
//! management cluster, and for manifests that a config names by URL (`https`). SSH goes through none.
#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where the environment comes in"
)]

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

const VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];

/// The proxy on the way to this server.
pub(super) fn of(server: &Uri) -> Option<Uri> {
    let variable = |name: &str| std::env::var(name).ok();
    among(&variable, server)
}

fn among(variable: &impl Fn(&str) -> Option<String>, server: &Uri) -> Option<Uri> {
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(variable);
        values.find(|value| !value.trim().is_empty())
    };
    let host = server.host()?;
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        return None;
    }
    if server.scheme_str() != Some("https") {
        return None;
    }
    let proxy = first(VARIABLES)?;
    let not_for = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let matcher = Matcher::builder().all(proxy.as_str()).no(not_for).build();
    matcher.intercept(server)?;
    let proxy = proxy.trim();
    let whole = if proxy.contains("://") {
        proxy.to_owned()
    } else {
        format!("http://{proxy}")
    };
    whole.parse().ok()
}

/// False for one that may be the environment's.
pub(super) fn is_of_kubeconfig(proxy: Option<&Uri>) -> bool {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<Uri>().ok();
    let known: Vec<Uri> = VARIABLES.into_iter().filter_map(variable).collect();
    proxy.is_some_and(|proxy| !known.contains(proxy))
}

/// A proxy as people may see it: without its password.
pub(super) fn shown(proxy: &Uri) -> String {
    let host = proxy.host().unwrap_or_default();
    let port = proxy.port_u16().map(|port| format!(":{port}"));
    format!("{host}{}", port.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(variables: &[(&str, &str)], server: &str) -> Option<String> {
        let variable = |name: &str| {
            let mut found = variables.iter().filter(|(known, _)| *known == name);
            found.next().map(|(_, value)| (*value).to_owned())
        };
        let proxy = among(&variable, &server.parse().unwrap())?;
        Some(proxy.to_string())
    }

    #[test]
    fn the_variables_are_read_as_others_read_them() {
        let proxy = "http://me:word@proxy.corp:3128";
        let some = Some(format!("{proxy}/"));
        for (variables, server, want) in [
            (
                &[("HTTPS_PROXY", proxy)][..],
                "https://k.example:6443",
                &some,
            ),
            (&[("https_proxy", proxy)], "https://k.example:6443", &some),
            (&[("HTTP_PROXY", proxy)], "https://k.example:6443", &None),
            (&[("HTTPS_PROXY", proxy)], "http://k.example/a.yml", &None),
            (&[("HTTPS_PROXY", "")], "https://k.example:6443", &None),
            (&[("HTTPS_PROXY", proxy)], "https://127.0.0.1:6443", &None),
            (&[("HTTPS_PROXY", proxy)], "https://[::1]:6443", &None),
            (&[("HTTPS_PROXY", proxy)], "https://localhost:6443", &None),
            (
                &[
                    ("HTTPS_PROXY", proxy),
                    ("NO_PROXY", "10.0.0.0/8, .example,"),
                ],
                "https://k.example:6443",
                &None,
            ),
            (
                &[("HTTPS_PROXY", proxy), ("no_proxy", "10.0.0.0/8")],
                "https://10.1.2.3:6443",
                &None,
            ),
            (
                &[("HTTPS_PROXY", proxy), ("NO_PROXY", "*")],
                "https://k.example",
                &None,
            ),
            (
                &[("HTTPS_PROXY", proxy), ("NO_PROXY", "other.example")],
                "https://k.example",
                &some,
            ),
        ] {
            assert_eq!(&through(variables, server), want, "{variables:?} {server}");
        }
    }

    #[test]
    fn a_proxy_without_a_scheme_is_one_of_http() {
        let proxy = through(&[("HTTPS_PROXY", "proxy.corp:3128")], "https://k.example");
        assert_eq!(proxy.as_deref(), Some("http://proxy.corp:3128/"));
    }

    #[test]
    fn its_password_is_not_shown() {
        let proxy = "http://me:word@proxy.corp:3128".parse().unwrap();
        assert_eq!(shown(&proxy), "proxy.corp:3128");
    }
}
