//! A destination in a private network, which an installation lets harnesses reach.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network and a TCP port in it: `10.1.2.0/24:443`, `[fd00::]/8:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    network: IpAddr,
    bits: u8,
    /// The port.
    pub port: u16,
}

impl Destination {
    /// Its network in CIDR notation.
    pub fn cidr(&self) -> String {
        format!("{}/{}", self.network, self.bits)
    }

    /// Whether this address and port belong to it.
    pub fn contains(&self, address: IpAddr, port: u16) -> bool {
        port == self.port && {
            let width = if self.network.is_ipv4() { 32 } else { 128 };
            let shift = u32::from(width - self.bits);
            let head = |address: IpAddr| match address {
                IpAddr::V4(address) => u128::from(u32::from(address)),
                IpAddr::V6(address) => u128::from(address),
            };
            self.network.is_ipv4() == address.is_ipv4()
                && head(self.network).checked_shr(shift) == head(address).checked_shr(shift)
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            IpAddr::V4(network) => write!(f, "{network}/{}:{}", self.bits, self.port),
            IpAddr::V6(network) => write!(f, "[{network}]/{}:{}", self.bits, self.port),
        }
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no CIDR:PORT, for instance 10.1.2.0/24:443");
        let (cidr, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (network, bits) = cidr.split_once('/').ok_or_else(wrong)?;
        let network: IpAddr = network
            .trim_matches(['[', ']'])
            .parse()
            .map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if bits > if network.is_ipv4() { 32 } else { 128 } {
            return Err(wrong());
        }
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(wrong)?;
        Ok(Destination {
            network,
            bits,
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn destinations_are_a_network_and_a_port() {
        for (text, good) in [
            ("10.1.2.0/24:443", Some(("10.1.2.0/24", 443))),
            ("[fd00::]/8:8080", Some(("fd00::/8", 8080))),
            ("10.1.2.0:443", None),
            ("10.1.2.0/33:443", None),
            ("10.1.2.0/24", None),
            ("10.1.2.0/24:0", None),
            ("example.com/24:443", None),
        ] {
            let read = text.parse::<Destination>().ok();
            let read = read.map(|destination| (destination.cidr(), destination.port));
            let good = good.map(|(cidr, port)| (cidr.to_owned(), port));
            assert_eq!(read, good, "{text}");
        }
    }

    #[test]
    fn a_destination_holds_the_addresses_of_its_network_at_its_port() {
        for (destination, address, port, inside) in [
            ("10.1.2.0/24:443", "10.1.2.255", 443, true),
            ("10.1.2.0/24:443", "10.1.3.0", 443, false),
            ("10.1.2.0/24:443", "10.1.2.1", 80, false),
            ("10.1.2.7/32:443", "10.1.2.7", 443, true),
            ("10.1.2.7/32:443", "10.1.2.6", 443, false),
            ("0.0.0.0/0:443", "8.8.8.8", 443, true),
            ("0.0.0.0/0:443", "::1", 443, false),
            ("::/0:443", "::1", 443, true),
            ("[fd00::]/8:443", "fd12::1", 443, true),
            ("[fd00::]/8:443", "fe80::1", 443, false),
            ("[::a00:0]/104:443", "10.0.0.1", 443, false),
        ] {
            let parsed: Destination = destination.parse().unwrap();
            let held = parsed.contains(address.parse().unwrap(), port);
            assert_eq!(held, inside, "{destination} {address} {port}");
        }
    }
}
