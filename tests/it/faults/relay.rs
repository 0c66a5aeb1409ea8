//! A TCP relay in the hub of a cluster, between clients and one host's sshd, that breaks links as it is told.
//!
//! Knows bytes and connections, nothing of ssh. Chance is seeded, so a broken run can be had again.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::dice::Dice;

/// What happens to the bytes. The default lets all through.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Each way, to every piece.
    pub(crate) delay: Duration,
    /// Up to so much more, by chance.
    pub(crate) jitter: Duration,
    /// Nothing passes to the host; connections stay open.
    pub(crate) stall_up: bool,
    /// Nothing passes to the client.
    pub(crate) stall_down: bool,
    /// Each way, bytes a second; 0 for no limit.
    pub(crate) rate: u64,
    /// New connections are answered by a reset.
    pub(crate) refuse: bool,
    /// After so many bytes to the host a connection is reset; 0 for never.
    pub(crate) cut_up_after: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

struct Shared {
    upstream: String,
    weather: Mutex<Weather>,
    changed: Condvar,
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
    /// One bit of the next piece towards the client is to be flipped.
    corrupt: AtomicBool,
    connects: AtomicU32,
    bytes_up: AtomicU64,
    cuts: AtomicU32,
    over: AtomicBool,
    dice: Mutex<Dice>,
}

/// A running relay; ends with the value.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    pub(crate) port: u16,
}

impl Relay {
    /// Listens in the network namespace of the process `hub`, hands on to `upstream` there.
    pub(crate) fn start(hub: u32, upstream: &str, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            weather: Mutex::default(),
            changed: Condvar::new(),
            open: Mutex::default(),
            corrupt: AtomicBool::new(false),
            connects: AtomicU32::new(0),
            bytes_up: AtomicU64::new(0),
            cuts: AtomicU32::new(0),
            over: AtomicBool::new(false),
            dice: Mutex::new(Dice::new(seed)),
        });
        let (tell, told) = sync_channel(1);
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            // A thread can be in another network than its process; those that it starts are there too.
            let network = std::fs::File::open(format!("/proc/{hub}/ns/net")).expect("the hub's network");
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(network.as_fd(), kind).expect("setns");
            let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
            tell.send(listener.local_addr().expect("its address").port()).expect("somebody waits");
            for client in listener.incoming().flatten() {
                if own.over.load(Ordering::Relaxed) {
                    return;
                }
                own.take(client);
            }
        });
        let port = told.recv().expect("the relay's port");
        Self { shared, port }
    }

    /// Changes the weather, for open connections too.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.shared.weather.lock().expect("weather"));
        self.shared.changed.notify_all();
    }

    /// All is well again.
    pub(crate) fn clear(&self) {
        self.shared.corrupt.store(false, Ordering::Relaxed);
        self.set(|weather| *weather = Weather::default());
    }

    /// Silence both ways; connections stay open.
    pub(crate) fn stall(&self) {
        self.set(|weather| (weather.stall_up, weather.stall_down) = (true, true));
    }

    /// Flips one bit of the next piece towards the client.
    pub(crate) fn corrupt(&self) {
        self.shared.corrupt.store(true, Ordering::Relaxed);
    }

    /// Resets all connections, both ends.
    pub(crate) fn reset(&self) {
        for (client, host) in self.shared.open.lock().expect("connections").drain(..) {
            reset(&client);
            reset(&host);
        }
    }

    /// Says «no more» to the client on all connections; the other way stays open.
    pub(crate) fn half_close(&self) {
        for (client, _) in self.shared.open.lock().expect("connections").iter() {
            let _ = client.shutdown(Shutdown::Write);
        }
    }

    /// How many connections came since it started.
    pub(crate) fn connects(&self) -> u32 {
        self.shared.connects.load(Ordering::Relaxed)
    }

    /// How many bytes went to the host since it started.
    pub(crate) fn bytes_up(&self) -> u64 {
        self.shared.bytes_up.load(Ordering::Relaxed)
    }

    /// How many connections it has cut for what [`Weather::cut_up_after`] says, since the last call.
    pub(crate) fn cuts(&self) -> u32 {
        self.shared.cuts.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.reset();
        self.clear();
        // The one that listens is left to its next connection, or to the end of the process.
    }
}

/// The peer hears a reset, not an end, even where another process holds a copy of the descriptor.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::connect_unspec(stream);
}

impl Shared {
    fn take(self: &Arc<Self>, client: TcpStream) {
        self.connects.fetch_add(1, Ordering::Relaxed);
        if self.weather.lock().expect("weather").refuse {
            return reset(&client);
        }
        let relay = Arc::clone(self);
        std::thread::spawn(move || {
            // A silent link is silent for those who come anew, too.
            relay.wait_while(|weather| weather.stall_up && weather.stall_down);
            let Ok(host) = TcpStream::connect(&relay.upstream) else { return reset(&client) };
            let _ = (client.set_nodelay(true), host.set_nodelay(true));
            let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            relay.open.lock().expect("connections").push((copy(&client), copy(&host)));
            relay.pump(copy(&client), copy(&host), Way::Up);
            relay.pump(host, client, Way::Down);
        });
    }

    /// Two threads for one way: one reads and says when each piece is due, one waits for that and writes.
    fn pump(self: &Arc<Self>, from: TcpStream, to: TcpStream, way: Way) {
        let (tell, due) = sync_channel(4096);
        let (reads, writes) = (Arc::clone(self), Arc::clone(self));
        std::thread::spawn(move || reads.read(from, &tell, way));
        std::thread::spawn(move || writes.write(to, &due, way));
    }

    fn read(&self, mut from: TcpStream, tell: &SyncSender<(Instant, Vec<u8>)>, way: Way) {
        let mut buffer = vec![0; 32 * 1024];
        let mut total = 0;
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 {
                return;
            }
            let mut piece = buffer[..count].to_vec();
            let weather = *self.weather.lock().expect("weather");
            let mut dice = self.dice.lock().expect("dice");
            if way == Way::Down && self.corrupt.swap(false, Ordering::Relaxed) {
                piece[dice.below(count as u64) as usize] ^= 1 << dice.below(8);
            }
            let late = dice.below(weather.jitter.as_micros() as u64 + 1);
            drop(dice);
            if way == Way::Up {
                self.bytes_up.fetch_add(count as u64, Ordering::Relaxed);
                total += count as u64;
                if weather.cut_up_after > 0 && total > weather.cut_up_after {
                    self.cuts.fetch_add(1, Ordering::Relaxed);
                    return self.reset_peer_of(&from);
                }
            }
            let due = now() + weather.delay + Duration::from_micros(late);
            if tell.send((due, piece)).is_err() {
                return;
            }
        }
    }

    fn write(&self, mut to: TcpStream, due: &Receiver<(Instant, Vec<u8>)>, way: Way) {
        while let Ok((when, piece)) = due.recv() {
            std::thread::sleep(when.saturating_duration_since(now()));
            self.wait_while(|weather| match way {
                Way::Up => weather.stall_up,
                Way::Down => weather.stall_down,
            });
            let rate = self.weather.lock().expect("weather").rate;
            if let Some(micros) = (piece.len() as u64 * 1_000_000).checked_div(rate) {
                std::thread::sleep(Duration::from_micros(micros));
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    fn reset_peer_of(&self, stream: &TcpStream) {
        let address = stream.peer_addr().ok();
        let mut open = self.open.lock().expect("connections");
        if let Some(at) = open.iter().position(|(client, _)| client.peer_addr().ok() == address) {
            let (client, host) = open.swap_remove(at);
            reset(&client);
            reset(&host);
        }
    }

    fn wait_while(&self, stalled: impl Fn(&Weather) -> bool) {
        let weather = self.weather.lock().expect("weather");
        let over = |weather: &mut Weather| stalled(weather) && !self.over.load(Ordering::Relaxed);
        drop(self.changed.wait_while(weather, over).expect("weather"));
    }
}

fn now() -> Instant {
    Instant::now()
}
