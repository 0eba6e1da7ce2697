//! Which addresses lie outside: those of the public internet, and no others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4 that are not the public internet (IANA's special-purpose
/// registry), and what each is for.
const CLOSED_V4: &[([u8; 4], u8, &str)] = &[
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "private (shared by a provider)"),
    ([127, 0, 0, 0], 8, "loopback"),
    // A cloud's metadata service that lies among public addresses.
    ([168, 63, 129, 16], 32, "a metadata service"),
    ([169, 254, 169, 254], 32, "a metadata service"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "reserved"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 88, 99, 0], 24, "a 6to4 relay"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "a test network"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved or broadcast"),
];

/// The same inside of 2000::/3, outside of which nothing of IPv6 is public.
const CLOSED_V6: &[([u16; 3], u8, &str)] = &[
    ([0x2001, 0xdb8, 0], 32, "documentation"),
    ([0x2001, 0, 0], 23, "reserved (Teredo and others)"),
    ([0x2002, 0, 0], 16, "6to4, which embeds an IPv4 address"),
    ([0x3fff, 0, 0], 20, "documentation"),
];

/// Whether an address lies outside, in any notation.
pub fn is_public(address: IpAddr) -> bool {
    closed(address.to_canonical()).is_none()
}

/// Why an address is not outside; `None` where it is.
pub fn closed(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => closed_v4(address),
        IpAddr::V6(address) => closed_v6(address),
    }
}

fn closed_v4(address: Ipv4Addr) -> Option<&'static str> {
    let value = u32::from(address);
    CLOSED_V4
        .iter()
        .find(|(network, bits, _)| {
            (value ^ u32::from(Ipv4Addr::from(*network))).leading_zeros() >= u32::from(*bits)
        })
        .map(|(_, _, what)| *what)
}

fn closed_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.to_ipv4_mapped().is_some() {
        return Some("an IPv4 address in disguise");
    }
    let first = address.segments()[0];
    let what = match first {
        0x2000..=0x3fff => {
            let value = u128::from(address);
            return CLOSED_V6
                .iter()
                .find(|([a, b, c], bits, _)| {
                    let network = Ipv6Addr::new(*a, *b, *c, 0, 0, 0, 0, 0);
                    (value ^ u128::from(network)).leading_zeros() >= u32::from(*bits)
                })
                .map(|(_, _, what)| *what);
        }
        0x64 => "NAT64, which embeds an IPv4 address",
        0xfc00..=0xfdff => "private",
        0xfe80..=0xfebf => "link-local",
        0xff00..=0xffff => "multicast",
        _ if address.is_loopback() => "loopback",
        _ if address.is_unspecified() => "unspecified",
        _ => "no public address",
    };
    Some(what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_public_addresses_are_outside() {
        for (address, what) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.1", "private"),
            ("100.64.0.1", "private"),
            ("100.100.100.200", "private"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.169.254", "metadata"),
            ("169.254.1.1", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "reserved"),
            ("192.168.1.1", "private"),
            ("198.19.0.1", "test"),
            ("224.0.0.251", "multicast"),
            ("239.1.1.1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::127.0.0.1", "no public"),
            ("::ffff:127.0.0.1", "disguise"),
            ("::ffff:8.8.8.8", "disguise"),
            ("::ffff:0:8.8.8.8", "no public"),
            ("64:ff9b::8.8.8.8", "NAT64"),
            ("64:ff9b:1::10.0.0.1", "NAT64"),
            ("100::1", "no public"),
            ("2001::1", "Teredo"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::1", "6to4"),
            ("3fff::1", "documentation"),
            ("fd00:ec2::254", "private"),
            ("fc00::1", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "no public"),
            ("ff02::1", "multicast"),
        ] {
            let found = closed(address.parse().unwrap());
            assert!(
                found.is_some_and(|found| found.contains(what)),
                "{address}: {found:?}"
            );
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "223.255.255.255",
            "2001:200::1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert_eq!(closed(address.parse().unwrap()), None, "{address}");
        }
    }
}
