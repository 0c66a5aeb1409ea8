//! From names to addresses. The C library's resolver blocks a thread for as long as DNS is silent, so it has few threads
//! of its own: the runtime's, which also read files, are never among them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Look-ups at once, and as many threads.
const AT_ONCE: usize = 16;

/// What came of a name, shared by all who want it. The error is in words.
type Found = Result<Arc<[SocketAddr]>, Arc<str>>;

/// The names that are wanted now.
#[derive(Default)]
struct Names {
    /// Who waits for a name.
    wanted: HashMap<String, watch::Sender<Option<Found>>>,
    /// Names whose look-up has not begun.
    queue: VecDeque<String>,
    threads: usize,
}

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// The addresses of a name, in the resolver's order, with this port. An error is in words.
pub(super) async fn look_up(name: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>, String> {
    if let Some(address) = literal(name, port) {
        return Ok(vec![address]);
    }
    let mut found = want(name)?;
    let answer = async { found.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone()) };
    match timeout(limit, answer).await {
        Ok(Some(Ok(addresses))) => Ok(addresses.iter().map(|at| with_port(*at, port)).collect()),
        Ok(Some(Err(error))) => Err(error.to_string()),
        Ok(None) => Err("the resolver ended".to_owned()),
        Err(_) => Err(silence(name, limit)),
    }
}

/// An address that stands for itself, also `fe80::1%eth0`: no resolver is asked for it.
fn literal(name: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, port));
    }
    let (address, zone) = name.split_once('%')?;
    let address: Ipv6Addr = address.parse().ok()?;
    let index =
        || std::fs::read_to_string(format!("/sys/class/net/{zone}/ifindex")).ok()?.trim().parse().ok();
    let scope = zone.parse().ok().or_else(index)?;
    Some(SocketAddrV6::new(address, port, 0, scope).into())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn silence(name: &str, limit: Duration) -> String {
    let within = format!("DNS did not answer within {} s", limit.as_secs_f32());
    let names = names();
    if names.queue.iter().any(|queued| queued == name) {
        let waiting = names.queue.len();
        return format!(
            "{within} for the {AT_ONCE} names before it, and {waiting} names wait for their turn"
        );
    }
    within
}

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the answer will be. One look-up serves all who want a name at a time.
fn want(name: &str) -> Result<watch::Receiver<Option<Found>>, String> {
    let mut names = names();
    if let Some(sender) = names.wanted.get(name) {
        return Ok(sender.subscribe());
    }
    if names.threads < AT_ONCE {
        let thread = std::thread::Builder::new().name("names".to_owned()).spawn(work);
        match thread {
            Ok(_) => names.threads += 1,
            Err(error) if names.threads == 0 => return Err(format!("no thread for the resolver: {error}")),
            Err(_) => {}
        }
    }
    let (sender, found) = watch::channel(None);
    names.wanted.insert(name.to_owned(), sender);
    names.queue.push_back(name.to_owned());
    Ok(found)
}

/// One thread: looks names up while there are any.
fn work() {
    loop {
        let name = {
            let mut names = names();
            let Some(name) = names.queue.pop_front() else {
                names.threads -= 1;
                return;
            };
            if names.wanted.get(&name).is_none_or(|sender| sender.receiver_count() == 0) {
                // the caller has given up
                names.wanted.remove(&name);
                continue;
            }
            name
        };
        let found = (name.as_str(), 0).to_socket_addrs();
        let found = found.map(Iterator::collect).map_err(|error: io::Error| Arc::from(error.to_string()));
        if let Some(sender) = names().wanted.remove(&name) {
            sender.send_replace(Some(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_stand_for_themselves_and_names_are_looked_up_once() {
        let limit = Duration::from_secs(20);
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(look_up("10.0.0.7", 22, limit).await.unwrap(), [at("10.0.0.7:22")]);
        assert_eq!(look_up("::1", 22, limit).await.unwrap(), [at("[::1]:22")]);
        let lo = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let scoped = at(&format!("[fe80::1%{}]:22", lo.trim()));
        assert_eq!(look_up("fe80::1%lo", 22, limit).await.unwrap(), [scoped]);
        let both = tokio::join!(look_up("localhost", 22, limit), look_up("localhost", 23, limit));
        for (found, port) in [(both.0, 22), (both.1, 23)] {
            let found = found.unwrap();
            assert!(!found.is_empty() && found.iter().all(|at| at.ip().is_loopback() && at.port() == port));
        }
    }
}
