//! Which TCP ports of this host are listened on, and by which process. Knows nothing of what a port is for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::table;

/// `LISTEN` in the kernel's tables.
const LISTENS: &str = "0A";

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listening {
    /// On this port.
    pub(crate) port: u16,
    /// By which of this machine's addresses it is reached; `::` and `0.0.0.0` for all.
    pub(crate) address: IpAddr,
    /// Whose it is.
    pub(crate) uid: u32,
    /// Its number, by which [`holder`] finds its process.
    pub(crate) inode: u64,
}

/// All of them, in this process's network namespace; none where the kernel's tables can't be read.
pub(crate) fn all() -> Vec<Listening> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|text| text.lines()).filter_map(listens).collect()
}

/// The sockets of a process, by number.
pub(crate) fn sockets(pid: u32) -> Vec<u64> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|one| std::fs::read_link(one.path()).ok());
    links
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}

/// The process that has a socket; `None` where that is not seen, as of another user.
pub(crate) fn holder(inode: u64) -> Option<u32> {
    table::all().into_iter().map(|process| process.pid).find(|pid| sockets(*pid).contains(&inode))
}

/// A line of the kernel's table of sockets, if it is of one that listens.
fn listens(line: &str) -> Option<Listening> {
    let mut fields = line.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    if fields.nth(1)? != LISTENS {
        return None;
    }
    Some(Listening {
        port: u16::from_str_radix(port, 16).ok()?,
        address: address_of(address)?,
        uid: fields.nth(3)?.parse().ok()?,
        inode: fields.nth(1)?.parse().ok()?,
    })
}

/// As the kernel writes it: words of four bytes, each in the order of this machine's.
fn address_of(text: &str) -> Option<IpAddr> {
    if ![8, 32].contains(&text.len()) {
        return None;
    }
    let words: Vec<[u8; 4]> = text
        .as_bytes()
        .chunks(8)
        .map(|word| Some(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes()))
        .collect::<Option<_>>()?;
    match words.as_flattened() {
        bytes @ [_, _, _, _] => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        bytes => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let line = "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 100 0 0 10 0";
        let one = listens(line).unwrap();
        assert_eq!((one.port, one.address.is_unspecified(), one.uid, one.inode), (29_500, true, 1000, 4711));
        assert!(listens(&line.replace(" 0A ", " 01 ")).is_none(), "a connection is none");
        assert!(listens("  sl  local_address rem_address   st").is_none());
        let here = listens(&line.replace("00000000:733C", "0100007F:733C")).unwrap();
        assert_eq!(here.address.to_string(), "127.0.0.1");
        let of = |text: &str| address_of(text).unwrap().to_string();
        assert_eq!(of("0B004D0A"), "10.77.0.11");
        assert_eq!(of("000080FE00000000FF57A6705DC771FE"), "fe80::70a6:57ff:fe71:c75d");
        assert_eq!(of("0000000000000000FFFF00000B004D0A"), "10.77.0.11");
        assert!(address_of("0B004D").is_none() && address_of("").is_none());
    }

    #[test]
    fn the_process_that_listens_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let own = all().into_iter().find(|one| one.port == port).unwrap();
        assert_eq!((own.address, holder(own.inode)), (Ipv4Addr::LOCALHOST.into(), Some(std::process::id())));
        assert_eq!(holder(u64::MAX), None);
    }
}
