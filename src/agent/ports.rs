//! TCP ports for a run's ranks: found by binding them where the ranks will, and held until the ranks start, so that two
//! launches that are prepared at once never get the same one.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use crate::domain::run::HostRun;
use crate::domain::text::os_text;

/// The variable that holds the address on which a rank may listen.
const BIND: &str = "HVTUI_BIND";

/// Ports that nothing else can take until this is dropped.
#[derive(Debug)]
pub(super) struct HeldPorts(Vec<(TcpListener, u16)>);

impl HeldPorts {
    /// As many as a host's share of a run asks for, at least one, at its ranks' address.
    pub(super) fn take(spec: &HostRun) -> Result<Self, String> {
        let address = spec.ranks.iter().find_map(|rank| rank.env.get(BIND));
        let address: IpAddr = match address {
            None => Ipv4Addr::UNSPECIFIED.into(),
            Some(text) => text.parse().map_err(|_| format!("{BIND}={text} is not an IP address"))?,
        };
        let bind = || {
            let listener = TcpListener::bind((address, 0))?;
            let port = listener.local_addr()?.port();
            Ok((listener, port))
        };
        let bound: std::io::Result<Vec<_>> = (0..spec.ports.max(1)).map(|_| bind()).collect();
        bound.map(Self).map_err(|error| {
            let (host, why) = (&spec.host, os_text(&error));
            let remedy = match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => "raise its limit of open files (ulimit -n)",
                _ => "check the host's interface in hosts.toml",
            };
            format!("{host} can't listen on {address}: {why}: {remedy}")
        })
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> Vec<u16> {
        self.0.iter().map(|(_, port)| *port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run, rank_spec};
    use crate::domain::run::RankSpec;

    fn spec(ports: u32) -> HostRun {
        let env = [(BIND.to_owned(), "127.0.0.1".to_owned())].into();
        HostRun { name: String::new(), ports, ..host_run(vec![RankSpec { env, ..rank_spec(0) }]) }
    }

    #[test]
    fn ports_differ_and_are_held_until_they_are_dropped() {
        let (one, two) = (HeldPorts::take(&spec(20)).unwrap(), HeldPorts::take(&spec(20)).unwrap());
        let mut all = [one.numbers(), two.numbers()].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40);
        assert!(TcpListener::bind(("127.0.0.1", all[0])).is_err(), "another program can't take it");
        drop((one, two));
        assert!(TcpListener::bind(("127.0.0.1", all[0])).is_ok());
    }
}
