//! What the kernel knows of a TCP connection.

use std::os::fd::{AsFd, AsRawFd};

/// How long a byte and its receipt take, µs, as the kernel has seen it on this connection since it was made; `None` where it has
/// not seen any.
#[expect(unsafe_code, reason = "an option that has no other name")]
pub fn round_trip(socket: &impl AsFd) -> Option<u32> {
    // SAFETY: numbers only, for which any bits are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes there.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    (failed == 0 && info.tcpi_rtt > 0).then_some(info.tcpi_rtt)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connection_has_a_round_trip_from_its_start_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(round_trip(&stream).is_some());
        assert_eq!(round_trip(&UdpSocket::bind("127.0.0.1:0").unwrap()), None);
    }
}
