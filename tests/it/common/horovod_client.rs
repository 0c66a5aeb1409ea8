//! A client of the rendezvous that sends what Horovod's sends, byte for byte, and is as strict as that is lax: it
//! fails where Horovod's would silently take an empty value.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::Duration;

/// So long a test waits for an answer: far beyond what a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One request on a connection of its own: status and body.
pub(crate) fn ask(at: SocketAddr, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), String> {
    let mut stream = TcpStream::connect(at).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&request(at, method, path, body)).map_err(|e| e.to_string())?;
    let mut bytes = [0; 8 << 10];
    let count = stream.read(&mut bytes).map_err(|e| e.to_string())?;
    answer(&bytes[..count])
}

/// The bytes of a request: these headers, in this order, and no others.
pub(crate) fn request(at: SocketAddr, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let (ip, length) = (at.ip(), body.len());
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {ip}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// What the first bytes that arrive say, which must be all.
pub(crate) fn answer(bytes: &[u8]) -> Result<(u16, Vec<u8>), String> {
    let end =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no whole head in the first segment")?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|e| e.to_string())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or("no status")?;
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: ")).ok_or("no Content-Length")?;
    let body = &bytes[end + 4..];
    match length.parse::<usize>() {
        Ok(length) if length == body.len() => Ok((status, body.to_vec())),
        _ => Err(format!("{} of {length} bytes in the first segment", body.len())),
    }
}

/// A rank's part of a meeting in one scope, in the order of Gloo's: its host, a look at those before it, its
/// addresses, those of all others, the barrier, and that it is done.
pub(crate) fn meet(at: SocketAddr, scope: &str, rank: usize, size: usize, barrier: &Barrier) {
    join(at, scope, rank, size);
    for other in (0..size).filter(|other| *other != rank) {
        let blob = poll(at, &format!("/{scope}/{other}"));
        let place = if rank > other { rank - 1 } else { rank };
        let piece = blob.len() / (size - 1);
        assert_eq!(
            blob[place * piece..][..piece],
            address(scope, other, rank),
            "{scope}: {other} for {rank}"
        );
    }
    barrier.wait();
    assert_eq!(ask(at, "DELETE", &format!("/{scope}/{rank}"), b"").unwrap(), (200, Vec::new()));
}

/// The first half of [`meet`]: what a rank tells.
pub(crate) fn join(at: SocketAddr, scope: &str, rank: usize, size: usize) {
    let name = format!("host-of-{rank}");
    assert_eq!(ask(at, "PUT", &format!("/{scope}/rank_{rank}"), name.as_bytes()).unwrap(), (200, Vec::new()));
    for before in 0..rank {
        match ask(at, "GET", &format!("/{scope}/rank_{before}"), b"").unwrap() {
            (200, name) => assert_eq!(name, format!("host-of-{before}").as_bytes()),
            (status, body) => assert_eq!((status, body.len()), (404, 0)),
        }
    }
    let others = (0..size).filter(|other| *other != rank);
    let blobs: Vec<u8> = others.flat_map(|other| address(scope, rank, other)).collect();
    assert_eq!(ask(at, "PUT", &format!("/{scope}/{rank}"), &blobs).unwrap(), (200, Vec::new()));
}

/// Where `of` listens for `other`: bytes of all kinds, 136 as Gloo's on Linux are many.
fn address(scope: &str, of: usize, other: usize) -> [u8; 136] {
    let mut bytes = [0; 136];
    let text = format!("{scope} {of} {other}\r\n\r\n");
    for (place, byte) in bytes.iter_mut().zip(text.bytes().cycle()) {
        *place = byte ^ 0x80;
    }
    bytes
}

/// Asks every 10 ms, as Horovod does, until the key has a value.
fn poll(at: SocketAddr, path: &str) -> Vec<u8> {
    loop {
        match ask(at, "GET", path, b"").unwrap() {
            (200, body) => return body,
            (status, _) => assert_eq!(status, 404),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All ranks of hosts with so many ranks each, through the three scopes in their order, a thread a rank.
pub(crate) fn meet_all(at: SocketAddr, hosts: &[(&str, usize)]) {
    let world: usize = hosts.iter().map(|(_, ranks)| ranks).sum();
    let most = hosts.iter().map(|(_, ranks)| *ranks).max().unwrap();
    let global = Barrier::new(world);
    let local: Vec<Barrier> = hosts.iter().map(|(_, ranks)| Barrier::new(*ranks)).collect();
    let with = |local: usize| hosts.iter().filter(move |(_, ranks)| *ranks > local).count();
    let cross: Vec<Barrier> = (0..most).map(|local| Barrier::new(with(local))).collect();
    std::thread::scope(|scope| {
        let mut rank = 0;
        for (number, (name, ranks)) in hosts.iter().enumerate() {
            for of_host in 0..*ranks {
                let before = hosts[..number].iter().filter(|(_, ranks)| *ranks > of_host).count();
                let (global, local, cross) = (&global, &local[number], &cross[of_host]);
                scope.spawn(move || {
                    meet(at, "global", rank, world, global);
                    meet(at, &format!("local_{name}"), of_host, *ranks, local);
                    meet(at, &format!("cross_{of_host}"), before, with(of_host), cross);
                });
                rank += 1;
            }
        }
    });
}
