//! From a name to a TCP stream, with a deadline at each step and an error for each way to fail.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::error::SshError;
use super::names;
use super::target::{Family, Target};

/// Resolves the name and tries its addresses in the resolver's order; each gets an equal share of the time.
pub(super) async fn connect(target: &Target) -> Result<TcpStream, SshError> {
    let limit = target.connect_timeout;
    let resolve = |detail: String| SshError::Resolve {
        host: target.host.clone(),
        address: target.address.clone(),
        detail,
    };
    let mut addresses = names::look_up(&target.address, target.port, limit).await.map_err(&resolve)?;
    addresses.retain(|address| is_wanted(target, *address));
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = None;
    for address in addresses {
        match timeout(share, dial(target, address)).await {
            Ok(Ok(stream)) => {
                // Small frames must not wait for the answer to the one before.
                stream.set_nodelay(true).map_err(|error| failure(target, address, &error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(failure(target, address, &error)),
            Err(_) => last = Some(silent(target, address, share)),
        }
    }
    Err(last.unwrap_or_else(|| resolve("the name has no address of the family that is wanted".to_owned())))
}

async fn dial(target: &Target, address: SocketAddr) -> io::Result<TcpStream> {
    let Some(from) = target.bind_address else { return TcpStream::connect(address).await };
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(address).await
}

/// Of the family that is asked for, and of that of the address to connect from.
fn is_wanted(target: &Target, address: SocketAddr) -> bool {
    let family = match target.family {
        Family::Any => true,
        Family::Inet => address.is_ipv4(),
        Family::Inet6 => address.is_ipv6(),
    };
    family && target.bind_address.is_none_or(|from| from.is_ipv4() == address.is_ipv4())
}

fn silent(target: &Target, address: SocketAddr, after: Duration) -> SshError {
    SshError::TimedOut {
        host: target.host.clone(),
        at: at(target, address),
        what: "did not answer the connection attempt",
        after,
        remedy: "check that the host is up and that no firewall drops the packets",
    }
}

fn failure(target: &Target, address: SocketAddr, error: &io::Error) -> SshError {
    let (host, at) = (target.host.clone(), at(target, address));
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return SshError::Refused { host, at };
    }
    SshError::Network { host, at, detail: format!("{error}; check the network and the address") }
}

/// `name:port`, with the address where the name is not the address.
fn at(target: &Target, address: SocketAddr) -> String {
    // A zone is no part of the number: `fe80::1%eth0`.
    if target.address.split('%').next() == Some(address.ip().to_string().as_str()) {
        target.endpoint()
    } else {
        format!("{} ({})", target.endpoint(), address.ip())
    }
}
