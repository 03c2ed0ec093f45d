//! Public addresses: where a name leads that a stranger's request named, and where it may not lead.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses of `host`, all of them public.
///
/// # Errors
/// The lookup's; and when one of them is not public: then the name is not what it seems.
pub(super) async fn addresses(host: String) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
    match found.iter().find(|address| !is_public(address.ip())) {
        Some(other) => Err(io::Error::other(format!("{host} leads to {}, which is not a public address", other.ip()))),
        None => Ok(found),
    }
}

/// Whether an address is one of the public internet (IANA's registries of special-purpose addresses say which are not).
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = a == 0
        || a >= 224
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // Shared with a provider's customers (RFC 6598), protocol assignments (RFC 6890), relays (RFC 7526), benchmarks (RFC 2544).
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

/// Global unicast is `2000::/3`; of that tunnels lead to IPv4 addresses of any kind, and some are for documents.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let global = first & 0xe000 == 0x2000;
    let special = (first == 0x2001 && (second < 0x0200 || second == 0x0db8)) || first == 0x2002 || first == 0x3fff;
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_public_internet_is_told_from_it() {
        let public = |text: &str| is_public(text.parse().unwrap());
        for address in [
            "52.94.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "2600:1f00::1",
            "2a05:d000::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(public(address), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fec0::1",
        ] {
            assert!(!public(address), "{address}");
        }
    }
}
