//! The proxy of the environment (`HTTPS_PROXY`, `NO_PROXY`), as kubectl and curl take it: for the API server of a
//! management cluster, for manifests that a config names by URL (`https`), and for registries. SSH uses none.
//!
//! A proxy may contain a password. So no library formats one in an error: a value is checked here first, and errors name
//! the variable, never its value.
#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where the environment comes in"
)]

use std::{borrow::Cow, fmt};

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use crate::error::{ErrorClass, Explain};

const VARIABLES: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
/// What is set for every scheme; registries take it, as curl does.
const ALL: [&str; 2] = ["ALL_PROXY", "all_proxy"];
/// The port of a SOCKS proxy that names none.
const SOCKS_PORT: u16 = 1080;

/// What names a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// This variable of the environment.
    Variable(&'static str),
    /// `proxy-url`.
    Kubeconfig,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "`{name}`"),
            Self::Kubeconfig => write!(f, "`proxy-url` in the kubeconfig"),
        }
    }
}

/// Why a proxy cannot be used. No variant holds any of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProxyError {
    /// It is not a URL.
    #[error("{0} is not the URL of a proxy")]
    NotAUrl(Named),
    /// It has another scheme.
    #[error("{0} names a proxy of a kind that is not supported")]
    Kind(Named),
    /// A SOCKS proxy with a login.
    #[error("{0} names a SOCKS proxy with a user or a password, which is not supported here")]
    SocksLogin(Named),
    /// `NO_PROXY`.
    #[error("`NO_PROXY` is not a list of hosts and networks")]
    NotFor,
}

impl Explain for ProxyError {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let around = || {
            "`NO_PROXY=HOST` reaches that host without the proxy"
                .to_owned()
                .into()
        };
        match self {
            Self::NotAUrl(named) => {
                let mut hints = vec![
                    "write `http://[USER:PASSWORD@]HOST[:PORT]`, with special characters of the password \
                     percent-encoded: `@` is `%40`, `/` is `%2F`"
                        .into(),
                ];
                hints.extend((*named != Named::Kubeconfig).then(around));
                hints
            }
            Self::Kind(named) | Self::SocksLogin(named) => {
                let mut hints = vec![
                    "`http://`, `https://`, and `socks5://` without a login are supported".into(),
                ];
                hints.extend((*named != Named::Kubeconfig).then(around));
                hints
            }
            Self::NotFor => {
                vec![
                    "separate its entries by single commas, as in `.example.com,10.0.0.0/8`".into(),
                ]
            }
        }
    }
}

/// The proxy on the way to this server; `None`: it is reached directly.
pub(super) fn of(server: &Uri) -> Result<Option<Uri>, ProxyError> {
    among(&variable, server)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The first of these that has a value.
fn first(
    variable: &impl Fn(&str) -> Option<String>,
    names: &[&'static str],
) -> Option<(&'static str, String)> {
    let mut set = names
        .iter()
        .filter_map(|name| Some((*name, variable(name)?)));
    set.find(|(_, value)| !value.trim().is_empty())
}

fn among(
    variable: &impl Fn(&str) -> Option<String>,
    server: &Uri,
) -> Result<Option<Uri>, ProxyError> {
    let Some(host) = server.host() else {
        return Ok(None);
    };
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let Some((name, value)) = first(variable, &VARIABLES) else {
        return Ok(None);
    };
    if is_here || server.scheme_str() != Some("https") {
        return Ok(None);
    }
    let not_for = first(variable, &["NO_PROXY", "no_proxy"]);
    let not_for = not_for.map_or_else(String::new, |(_, hosts)| hosts);
    // Which hosts it is for does not depend on the proxy: one that cannot be read is not ignored.
    let matcher = Matcher::builder()
        .all("http://proxy.invalid")
        .no(not_for)
        .build();
    if matcher.intercept(server).is_none() {
        return Ok(None);
    }
    usable(&value, Named::Variable(name)).map(Some)
}

/// The URL by which kube finds the proxy: with scheme, and for SOCKS with port.
pub(super) fn usable(value: &str, named: Named) -> Result<Uri, ProxyError> {
    let parts = Parts::of(value).ok_or(ProxyError::NotAUrl(named))?;
    let (scheme, port) = match parts.scheme.as_str() {
        "http" | "https" => (parts.scheme.as_str(), String::new()),
        "socks5" | "socks5h" if parts.has_login => return Err(ProxyError::SocksLogin(named)),
        "socks5" | "socks5h" if parts.has_port => ("socks5", String::new()),
        "socks5" | "socks5h" => ("socks5", format!(":{SOCKS_PORT}")),
        _ => return Err(ProxyError::Kind(named)),
    };
    let whole = format!("{scheme}://{}{port}/", parts.authority);
    let uri = whole.parse::<Uri>().ok();
    uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()))
        .ok_or(ProxyError::NotAUrl(named))
}

/// A value, cut up.
struct Parts<'a> {
    /// In lower case.
    scheme: String,
    /// With the login.
    authority: &'a str,
    has_login: bool,
    has_port: bool,
}

impl<'a> Parts<'a> {
    /// `None` where a login may reach into the host, such as with a `/` or `@` in a password: parts of it would be shown
    /// as the host.
    fn of(value: &'a str) -> Option<Self> {
        let value = value.trim();
        let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let (login, place) = match authority.split_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        if path.contains('@') || place.contains('@') {
            return None;
        }
        let after_address = place.rsplit_once(']').map_or(place, |(_, rest)| rest);
        let port = after_address.split_once(':').map(|(_, port)| port);
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return None;
        }
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            authority,
            has_login: login.is_some(),
            has_port: port.is_some(),
        })
    }
}

/// The variables whose proxy a download from a registry cannot use, and why: it goes without.
pub(super) fn unusable_for_downloads() -> Vec<ProxyError> {
    not_downloading(&variable)
}

fn not_downloading(variable: &impl Fn(&str) -> Option<String>) -> Vec<ProxyError> {
    // The one that counts of each pair.
    let set = [&ALL, &VARIABLES].into_iter();
    let set = set.filter_map(|names| first(variable, names));
    set.filter_map(|(name, value)| {
        let named = Named::Variable(name);
        match Parts::of(&value).map(|parts| parts.scheme) {
            // With a login, too.
            Some(scheme) if scheme.starts_with("socks") => match scheme.as_str() {
                "socks4" | "socks4a" | "socks5" | "socks5h" => None,
                _ => Some(ProxyError::Kind(named)),
            },
            Some(_) | None => usable(&value, named).err(),
        }
    })
    .collect()
}

/// What a proxy that cannot be read as a URL is named by: the variable, if it is that.
pub(super) fn unreadable() -> ProxyError {
    let variables = first(&variable, &VARIABLES);
    let wrong = variables.filter(|(_, value)| value.parse::<Uri>().is_err());
    ProxyError::NotAUrl(wrong.map_or(Named::Kubeconfig, |(name, _)| Named::Variable(name)))
}

/// False for one that may be the environment's.
pub(super) fn is_of_kubeconfig(proxy: &Uri) -> bool {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<Uri>().ok();
    !VARIABLES
        .into_iter()
        .filter_map(variable)
        .any(|known| known == *proxy)
}

/// A proxy as people may see it: without its password.
pub(super) fn shown(proxy: &Uri) -> String {
    let host = proxy.host().unwrap_or_default();
    let port = proxy.port_u16().map(|port| format!(":{port}"));
    format!("{host}{}", port.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::with_causes;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    fn among_these(variables: &[(&str, &str)], server: &str) -> Result<Option<String>, ProxyError> {
        let variable = |name: &str| {
            let mut found = variables.iter().filter(|(known, _)| *known == name);
            found.next().map(|(_, value)| (*value).to_owned())
        };
        let proxy = among(&variable, &uri(server))?;
        Ok(proxy.map(|proxy| proxy.to_string()))
    }

    fn through(variables: &[(&str, &str)], server: &str) -> Option<String> {
        among_these(variables, server).unwrap()
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

    #[test]
    fn a_value_that_cannot_be_used_is_refused_by_the_name_of_its_variable() {
        use ProxyError::{Kind, NotAUrl, SocksLogin};
        let https = Named::Variable("HTTPS_PROXY");
        let server = "https://k.example:6443";
        for (value, wanted) in [
            ("socks5://proxy.corp", Ok("socks5://proxy.corp:1080/")),
            ("socks5h://proxy.corp:9", Ok("socks5://proxy.corp:9/")),
            ("HTTP://proxy.corp/a", Ok("http://proxy.corp/")),
            ("[2001:db8::1]:3128", Ok("http://[2001:db8::1]:3128/")),
            ("socks5://me:word@proxy.corp", Err(SocksLogin(https))),
            ("socks4://proxy.corp", Err(Kind(https))),
            ("garbage://proxy.corp", Err(Kind(https))),
            ("garbage://", Err(Kind(https))),
            ("http://", Err(NotAUrl(https))),
            ("http://me:wo rd@proxy.corp", Err(NotAUrl(https))),
            ("http://me:wo/rd@proxy.corp", Err(NotAUrl(https))),
            ("http://me:wo@rd@proxy.corp", Err(NotAUrl(https))),
            ("http://proxy.corp:port", Err(NotAUrl(https))),
        ] {
            let read = among_these(&[("HTTPS_PROXY", value)], server);
            let wanted = wanted.map(|proxy| Some(proxy.to_owned()));
            assert_eq!(read, wanted, "{value}");
            // It is not for this one.
            let variables = [("HTTPS_PROXY", value), ("NO_PROXY", ".example")];
            assert_eq!(among_these(&variables, server), Ok(None), "{value}");
        }
    }

    #[test]
    fn downloads_take_a_login_at_a_socks_proxy_and_say_what_they_cannot_take() {
        for (name, value, wrong) in [
            ("HTTPS_PROXY", "socks5://me:word@proxy.corp", false),
            ("ALL_PROXY", "socks4://proxy.corp", false),
            ("all_proxy", "socks://proxy.corp", true),
            ("https_proxy", "http://me:wo rd@proxy.corp", true),
            ("HTTP_PROXY", "garbage://", false),
        ] {
            let variable = |known: &str| (known == name).then(|| value.to_owned());
            assert_eq!(!not_downloading(&variable).is_empty(), wrong, "{value}");
        }
    }

    proptest! {
        /// Whatever is wrong with a value, its error has no password.
        #[test]
        fn no_error_has_a_password(
            scheme in "(|http://|https://|HTTP://|socks4://|socks5://|socks5h://|garbage://|://|:)",
            user in "(|me|m%40e|me:)",
            before in "[a-z0-9@:/?#%\\\\ \\[\\]]{0,4}",
            after in "[a-z0-9@:/?#%\\\\ \\[\\]]{0,4}",
            host in "(proxy\\.corp|10\\.0\\.0\\.1|\\[2001:db8::1\\]|)",
            port in "(|:3128|:|:70000|:port)",
            end in "(|/|/a|\\?b)",
        ) {
            let value = format!("{scheme}{user}:{before}sekrit{after}@{host}{port}{end}");
            let said = |proxy: Result<Uri, ProxyError>| match proxy {
                Ok(proxy) => shown(&proxy),
                Err(error) => format!("{error:?} {} {:?}", with_causes(&error), error.hints()),
            };
            for named in [Named::Kubeconfig, Named::Variable("HTTPS_PROXY")] {
                let said = said(usable(&value, named));
                prop_assert!(!said.contains("sekrit"), "{value}: {said}");
            }
            let variable = |_: &str| Some(value.clone());
            let said = format!("{:?}", not_downloading(&variable));
            prop_assert!(!said.contains("sekrit"), "{value}: {said}");
        }
    }
}
