//! Networks in which the peers of links may be.

use benchmesh_workloads::params::Cidr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// One value of `--allow-network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkRule {
    /// The networks of this host's interfaces at the time of the check.
    Local,
    Cidr(Cidr),
}

impl FromStr for NetworkRule {
    type Err = String;

    /// Parses `local`, an address, or an address with a prefix length.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "local" {
            return Ok(Self::Local);
        }
        text.parse().map(Self::Cidr).map_err(|_| {
            "write a network such as 10.1.0.0/16 or fd00::/8, an address, or `local` for the networks of this host's \
             interfaces"
                .to_owned()
        })
    }
}

/// All allowed networks; empty: no links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Networks(Vec<NetworkRule>);

impl Networks {
    pub(super) fn new(rules: Vec<NetworkRule>) -> Self {
        Self(rules)
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.cidrs().iter().any(|cidr| cidr.contains(address))
    }

    /// In CIDR notation, each once.
    pub(super) fn resolved(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.cidrs().iter().map(Cidr::to_string).collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    }

    pub(super) fn cidrs(&self) -> Vec<Cidr> {
        let of_rule = |rule: &NetworkRule| match rule {
            NetworkRule::Cidr(cidr) => vec![*cidr],
            NetworkRule::Local => interfaces(),
        };
        self.0.iter().flat_map(of_rule).collect()
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_local = self.0.contains(&NetworkRule::Local);
        match (is_local, self.resolved().join(",")) {
            (true, networks) => write!(f, "local ({networks})"),
            (false, networks) => f.write_str(&networks),
        }
    }
}

/// The networks of this host's interfaces; empty if the kernel does not report them.
fn interfaces() -> Vec<Cidr> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call writes one pointer, to a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "cannot read the networks of this host; links to `local` networks are refused");
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: each entry of the list is valid until it is freed, and the last one's `ifa_next` is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: both are null, or addresses of the type that their family names.
        let pair = unsafe { (address_of(entry.ifa_addr), address_of(entry.ifa_netmask)) };
        if let (Some(address), Some(mask)) = pair {
            let bits = match mask {
                IpAddr::V4(mask) => mask.to_bits().leading_ones(),
                IpAddr::V6(mask) => mask.to_bits().leading_ones(),
            };
            found.extend(
                u8::try_from(bits)
                    .ok()
                    .and_then(|bits| Cidr::new(address, bits)),
            );
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list of the call above, which is no longer referenced.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The internet address behind the pointer; `None` for any other family.
///
/// # Safety
/// The pointer is null, or points to an address of the type that its family names.
unsafe fn address_of(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller; every address type begins with its family.
    let family = unsafe { at.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family identifies the type; the read may be unaligned.
            let address = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(
                address.sin_addr.s_addr,
            ))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family identifies the type; the read may be unaligned.
            let address = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_addresses_of_the_networks_are_allowed() {
        let check = |rule: &str, address: &str, expected: bool| {
            let networks = Networks::new(vec![rule.parse().unwrap()]);
            assert_eq!(
                networks.contain(address.parse().unwrap()),
                expected,
                "{rule} {address}"
            );
        };
        check("10.1.0.0/16", "10.1.255.3", true);
        check("10.1.0.0/16", "::ffff:10.1.2.3", true);
        check("10.1.0.0/16", "10.2.0.1", false);
        check("10.1.0.0/16", "fd00::1", false);
        check("0.0.0.0/0", "8.8.8.8", true);
        check("0.0.0.0/0", "::1", false);
        check("10.1.2.3", "10.1.2.3", true);
        check("10.1.2.3", "10.1.2.4", false);
        check("fd00::/8", "fd12::9", true);
        check("fd00::/8", "fe80::9", false);
        check("::/0", "fe80::9", true);
        check("local", "127.0.0.1", true);
        check("local", "203.0.113.77", false);
        assert!(!Networks::default().contain("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn networks_are_told_as_cidr_and_mistakes_say_what_to_write() {
        let rules = ["10.1.2.3/16", "10.1.0.0/16", "fd12::1/8"].map(|text| text.parse().unwrap());
        let networks = Networks::new(rules.to_vec());
        assert_eq!(networks.to_string(), "10.1.0.0/16,fd00::/8");
        for text in ["", "10.1.0.0/33", "10.1/16", "::/129", "eth0", "10.1.0.0/x"] {
            let error = text.parse::<NetworkRule>().unwrap_err();
            assert!(error.contains("10.1.0.0/16"), "{text}: {error}");
        }
    }
}
