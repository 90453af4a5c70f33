//! What SSH takes as the place of a machine: aliases of its configuration, host names, addresses of IPv4 and IPv6.
//! Pure.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv6Addr},
};

use super::resolve::is_host;

/// Whether `ssh` takes a word as the name of a host: an alias may be any such word, as long as `HostName` says what is
/// dialled. What `ssh` itself refuses is refused, and `@`, which ends the name of a user.
pub(super) fn is_alias(text: &str) -> bool {
    const REFUSED: &str = "'`\"$\\;&<>|(){}@";
    let fits = |c: char| !c.is_whitespace() && !c.is_control() && !REFUSED.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
}

/// Whether SSH can dial it: an address of IPv4, or of IPv6 without brackets, or a name that a resolver takes, which may
/// have `_` in it and a dot at its end.
pub(crate) fn is_dialled(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| !label.starts_with('-') && !label.ends_with('-');
    // `_` is all that a resolver takes and Kubernetes does not.
    let is_name = || name.split('.').all(is_label) && is_host(&name.replace('_', "a"));
    ipv6(text).is_some() || is_host(text) || (name.parse::<IpAddr>().is_err() && is_name())
}

/// An IPv6 address and its zone (`fe80::1%eth0`), in brackets or without.
pub(super) fn ipv6(text: &str) -> Option<(Ipv6Addr, Option<&str>)> {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let (address, zone) = match inner.unwrap_or(text).split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (inner.unwrap_or(text), None),
    };
    let is_link = |zone: &str| {
        let fits = |c: char| c.is_ascii_graphic() && !"/%[]".contains(c);
        !zone.is_empty() && zone.chars().all(fits)
    };
    let address = address.parse().ok()?;
    zone.is_none_or(is_link).then_some((address, zone))
}

/// As `ssh` and `known_hosts` write it: an IPv6 address without brackets, in its shortest form. Everything else stays
/// as it is.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    match ipv6(text) {
        Some((address, Some(zone))) => format!("{address}%{zone}").into(),
        Some((address, None)) => address.to_string().into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_what_ssh_takes() {
        for alias in [
            "n1",
            "prod_node_1",
            "a.b.",
            "A:1",
            "a/b",
            "ä",
            "10.0.0.1",
            "fd00::1",
        ] {
            assert!(is_alias(alias), "{alias}");
        }
        for other in [
            "", "-oX", "a b", "a\tb", "a\u{7}", "$x", "a;b", "a@b", "`a`",
        ] {
            assert!(!is_alias(other), "{other}");
        }
    }

    #[test]
    fn what_is_dialled_is_a_name_or_an_address() {
        for dialled in [
            "n1",
            "N1",
            "prod_node_1",
            "_a.lan",
            "a.b.",
            "my_host.lan.",
            "10.0.0.1",
            "fd00::1",
            "fe80::1%eth0",
        ] {
            assert!(is_dialled(dialled), "{dialled}");
        }
        for other in [
            "",
            ".",
            "a..b",
            "a.b..",
            "a:1",
            "a/b",
            "ä",
            "-a",
            "a-",
            "10.0.0",
            "10.0.0.1.",
            "10.0.0.01",
            "fd00::x",
            "fe80::1%",
            "fe80::1%a/b",
            "*",
        ] {
            assert!(!is_dialled(other), "{other}");
        }
    }

    #[test]
    fn an_ipv6_address_has_one_form() {
        for (text, form) in [
            ("[fd00:0::1]", "fd00::1"),
            ("FD00::1", "fd00::1"),
            ("[fe80::0:1%eth0]", "fe80::1%eth0"),
            ("[fd00::1", "[fd00::1"),
            ("[fd00::1]:22", "[fd00::1]:22"),
            ("10.0.0.1", "10.0.0.1"),
            ("[n1]", "[n1]"),
        ] {
            assert_eq!(plain(text), form);
        }
    }
}
