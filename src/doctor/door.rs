//! What a host tells of itself before others try to reach it: a port on which it listens for them, so that a firewall that refuses
//! is told apart from a port that nothing has, and the port of its own sshd. Who keeps the listener is not its business.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

/// The name by which hosts are asked for it, beside those of the checks.
pub const DOOR: &str = "door";

/// The most that one who comes in says: enough for one packet of full size with jumbo frames, and little for a slow line.
pub const BULK: usize = 12 << 10;

/// Connections that may wait to be taken.
const WAITING: i32 = 1024;

/// Listens on a port that the kernel gives, as NCCL, Gloo and hvtui's own launches do, on all addresses.
///
/// # Errors
/// As the kernel says.
pub fn open() -> io::Result<TcpListener> {
    // a kernel without IPv6 has the other alone
    let everywhere = listener(AddressFamily::INET6, (Ipv6Addr::UNSPECIFIED, 0).into());
    let listener =
        everywhere.or_else(|_| listener(AddressFamily::INET, (Ipv4Addr::UNSPECIFIED, 0).into()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listener(family: AddressFamily, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    listen(&socket, WAITING)?;
    Ok(socket.into())
}

/// The port of the sshd that started this process, by `SSH_CONNECTION`.
pub fn ssh_port() -> Option<u16> {
    of_connection(&std::env::var("SSH_CONNECTION").ok()?)
}

/// The client's address and port, then the server's.
fn of_connection(text: &str) -> Option<u16> {
    text.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_door_is_open_to_both_kinds_of_addresses() {
        let door = open().unwrap();
        let port = door.local_addr().unwrap().port();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    }

    #[test]
    fn the_port_of_sshd_is_that_of_the_server() {
        assert_eq!(of_connection("10.0.0.1 50122 10.0.0.2 22"), Some(22));
        assert_eq!(of_connection("fe80::1%eth0 50122 fe80::2%eth0 2222"), Some(2222));
        assert_eq!(of_connection(""), None);
    }
}
