//! Which addresses a lab has: a /24 that nothing else on the machine uses.

use std::net::Ipv4Addr;

/// A lab's network: `10.77.N.0/24`, or the next that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet(u8);

impl Subnet {
    /// The network with that third number.
    pub(crate) fn of(third_number: u8) -> Self {
        Self(third_number)
    }

    /// Where a lab of that name starts to look, so that it tends to have the same addresses again.
    pub(crate) fn first(name: &str) -> Self {
        Self(
            name.bytes()
                .fold(7, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte)),
        )
    }

    /// The candidates in the order in which they are tried, without those the machine has routes to.
    pub(crate) fn candidates(name: &str, routes: &str) -> Vec<Self> {
        let Self(first) = Self::first(name);
        (0..=u8::MAX)
            .map(|step| Self(first.wrapping_add(step)))
            .filter(|candidate| !candidate.is_routed(routes))
            .collect()
    }

    /// Whether `/proc/net/route` has a network that overlaps; the default route does not count.
    fn is_routed(self, routes: &str) -> bool {
        let ours = u32::from(self.address(0));
        routes.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| {
                let text = fields.get(index)?;
                u32::from_str_radix(text, 16).ok().map(u32::swap_bytes)
            };
            match (number(1), number(7)) {
                (Some(network), Some(mask)) if mask != 0 => {
                    let both = mask & 0xffff_ff00;
                    network & both == ours & both
                }
                _ => false,
            }
        })
    }

    /// The address with that last number.
    pub(crate) fn address(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.0, host)
    }

    /// As Docker takes it.
    pub(crate) fn cidr(self) -> String {
        format!("{}/24", self.address(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";

    #[test]
    fn all_are_candidates_on_a_machine_with_a_default_route_only() {
        let routes = format!("{HEAD}eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n");
        assert_eq!(Subnet::candidates("a", &routes).len(), 256);
    }

    #[test]
    fn a_network_that_the_machine_uses_is_left_out() {
        let routes = format!("{HEAD}br0 00054D0A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n");
        let candidates = Subnet::candidates("a", &routes);
        assert_eq!(candidates.len(), 255);
        assert!(!candidates.contains(&Subnet(5)));
    }

    #[test]
    fn a_larger_network_takes_all() {
        let routes = format!("{HEAD}tun0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n");
        assert!(Subnet::candidates("a", &routes).is_empty());
    }
}
