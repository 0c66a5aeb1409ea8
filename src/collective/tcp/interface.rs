//! By which network interface a connection goes.

use std::net::IpAddr;

/// The name of the interface that has this local address: `eth0`, `ib0`, … The system chose the address by its
/// routes when the connection was made, so this is the interface that leads to the other host.
pub(in crate::collective) fn interface_of(local: IpAddr) -> Option<String> {
    let all = if_addrs::get_if_addrs().ok()?;
    all.into_iter().find(|one| one.ip() == local.to_canonical()).map(|one| one.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_its_address() {
        assert_eq!(interface_of("127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(interface_of("::ffff:127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(interface_of("203.0.113.77".parse().unwrap()), None);
    }
}
