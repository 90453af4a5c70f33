//! An address of a node as other machines dial it: an IP address or a name. Pure.

use std::{fmt, net::IpAddr};

/// An IP address, or a name that the resolver knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostAddress {
    /// `192.0.2.10`.
    Ip(IpAddr),
    /// `node1.example.com`.
    Name(String),
}

impl HostAddress {
    /// The IP address, when it is one.
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }

    /// `address:port`, an IPv6 address in brackets.
    pub fn with_port(&self, port: u16) -> String {
        match self {
            Self::Ip(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            Self::Ip(IpAddr::V4(_)) | Self::Name(_) => format!("{self}:{port}"),
        }
    }
}

impl From<&str> for HostAddress {
    /// Whatever is no IP address is a name.
    fn from(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Name(text.to_owned()), Self::Ip)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_follows_what_it_can_follow() {
        for (text, with_port) in [
            ("192.0.2.10", "192.0.2.10:2379"),
            ("2001:db8::1", "[2001:db8::1]:2379"),
            ("node1", "node1:2379"),
        ] {
            assert_eq!(HostAddress::from(text).with_port(2379), with_port);
            assert_eq!(HostAddress::from(text).to_string(), text);
        }
    }
}
