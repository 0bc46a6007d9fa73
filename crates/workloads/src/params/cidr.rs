//! Networks in CIDR notation: `10.1.0.0/16`, `fd00::/8`, or one address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    /// `None` if an address has fewer bits.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= width(address)).then_some(Self { address, bits })
    }

    /// Whether that address has the same prefix.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let differing = match (self.address, other) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => u128::from(ours.to_bits() ^ other.to_bits()),
            (IpAddr::V6(ours), IpAddr::V6(other)) => ours.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differing & self.mask() == 0
    }

    /// Mask of the prefix.
    fn mask(&self) -> u128 {
        let of_host = u32::from(width(self.address).saturating_sub(self.bits));
        let all = u128::MAX.checked_shl(of_host).unwrap_or(0);
        match self.address {
            IpAddr::V4(_) => all & u128::from(u32::MAX),
            IpAddr::V6(_) => all,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::try_from(self.mask()).unwrap_or(u32::MAX);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & self.mask())),
        };
        write!(f, "{network}/{}", self.bits)
    }
}

/// The text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a network; write e.g. 10.1.0.0/16, fd00::/8, or an address")]
pub struct NotANetwork {
    pub text: String,
}

impl FromStr for Cidr {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Cidr, NotANetwork> {
        let cidr = match text.split_once('/') {
            None => text.parse().ok().map(|address| Cidr {
                address,
                bits: width(address),
            }),
            Some((address, bits)) => {
                let both = address.parse().ok().zip(bits.parse().ok());
                both.and_then(|(address, bits)| Cidr::new(address, bits))
            }
        };
        cidr.ok_or_else(|| NotANetwork {
            text: text.to_owned(),
        })
    }
}
