//! By which addresses a host can be reached: its interfaces', and the ones that ssh used.
//! Does not choose one: that is the launcher's business.

use std::net::IpAddr;

use crate::domain::host::InterfaceAddress;

/// Every address of every interface that is up, in the kernel's order. Loopback is left out, and so are
/// IPv6 link-local addresses: without an interface's number they name nothing.
pub(super) fn interface_addresses() -> Vec<InterfaceAddress> {
    // Where the kernel refuses the list (some sandboxes) the host simply offers no address.
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.into_iter()
        .filter(|interface| usable(interface.ip()))
        .map(|interface| InterfaceAddress { address: interface.ip(), interface: interface.name })
        .collect()
}

fn usable(address: IpAddr) -> bool {
    !address.is_loopback() && !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// `SSH_CONNECTION` (`client port server port`) as the address of the client and the one of the server.
///
/// An IPv6 zone (`%eth0`) is cut off, an IPv4 address in IPv6 clothes is given as IPv4. `None` for
/// whatever is not an address.
pub(super) fn parse_ssh_connection(text: &str) -> (Option<IpAddr>, Option<IpAddr>) {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let address = |at: usize| {
        let text = fields.get(at)?;
        let bare = text.split_once('%').map_or(*text, |(bare, _)| bare);
        bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    };
    (address(0), address(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_names_both_ends() {
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        assert_eq!(parse_ssh_connection("10.0.0.1 50022 10.0.0.13 22"), (ip("10.0.0.1"), ip("10.0.0.13")));
        assert_eq!(
            parse_ssh_connection("fe80::1%eth0 50022 ::ffff:10.0.0.13 22"),
            (ip("fe80::1"), ip("10.0.0.13"))
        );
        assert_eq!(parse_ssh_connection("UNKNOWN 65535 UNKNOWN 65535"), (None, None));
        assert_eq!(parse_ssh_connection(""), (None, None));
    }

    #[test]
    fn only_addresses_that_others_can_use() {
        assert!(usable("10.0.0.1".parse().unwrap()));
        assert!(usable("2001:db8::1".parse().unwrap()));
        for local in ["127.0.0.1", "::1", "fe80::1"] {
            assert!(!usable(local.parse().unwrap()), "{local}");
        }
        assert!(interface_addresses().iter().all(|one| usable(one.address) && !one.interface.is_empty()));
    }
}
