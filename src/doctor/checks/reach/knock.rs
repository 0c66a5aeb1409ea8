//! Knocks at ports of other hosts, at many at once, and tells what came back.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socket_with, sockopt};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::domain::text::os_text;
use crate::tcp_info::round_trip;

/// How long an answer may take where few are knocked at.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// What comes back from a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// A connection, after so many microseconds.
    Open(u64),
    /// A refusal after so long: nothing listens there, or a firewall says so.
    Refused(u64),
    /// Word that no way leads there, of a firewall, a router, or the kernel here.
    Barred(String),
    /// Nothing.
    Silent,
}

impl Answer {
    /// How long it took where the host itself has answered, or a firewall in its name.
    pub(super) fn micros(&self) -> Option<u64> {
        match self {
            Self::Open(us) | Self::Refused(us) => Some(*us),
            Self::Barred(_) | Self::Silent => None,
        }
    }

    fn of(error: Errno, after: u64) -> Self {
        match error {
            Errno::CONNREFUSED => Self::Refused(after),
            error => Self::Barred(os_text(&error.into())),
        }
    }
}

/// What has come back so far from each target, and by which address of this host it was gone to.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) answers: Vec<Option<Answer>>,
    pub(super) from: Vec<Option<IpAddr>>,
}

/// Faults of this host's own, which say nothing of another one.
const OWN: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];

/// Connects to all of these at once, until each has answered, `patience` has ended, or what has come is enough.
///
/// # Errors
/// This host can't, and why.
pub(super) fn knock(
    targets: &[SocketAddr],
    patience: Duration,
    is_enough: impl Fn(&[Option<Answer>]) -> bool,
) -> Result<Answers, String> {
    let begun = clock::host_now().0;
    let mut answers: Vec<Option<Answer>> = vec![None; targets.len()];
    let mut from = vec![None; targets.len()];
    let mut open: Vec<(usize, OwnedFd)> = Vec::new();
    // each from when it was begun: hundreds of sockets take a while
    let mut starts = vec![begun; targets.len()];
    for (at, target) in targets.iter().enumerate() {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        starts[at] = clock::host_now().0;
        let begun = socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            match connect(&socket, target) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        });
        match begun {
            Ok(socket) => {
                let own = getsockname(&socket).ok().and_then(|own| SocketAddr::try_from(own).ok());
                from[at] = own.map(|own| own.ip().to_canonical());
                open.push((at, socket));
            }
            Err(error) if OWN.contains(&error) => {
                return Err(format!("can't connect to others: {}", os_text(&error.into())));
            }
            Err(error) => answers[at] = Some(Answer::of(error, 0)),
        }
    }
    let mut is_late = false;
    while !open.is_empty() && !is_late && !is_enough(&answers) {
        let gone = clock::host_now().0.saturating_sub(begun);
        let left = patience.saturating_sub(Duration::from_micros(gone));
        // a last look: what came while this process had no processor has come
        is_late = left.is_zero();
        let mut polled: Vec<PollFd<'_>> =
            open.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)).collect();
        let Ok(left) = Timespec::try_from(left) else { break };
        if !matches!(poll(&mut polled, Some(&left)), Ok(1..)) {
            continue;
        }
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        let now = clock::host_now().0;
        let mut ready = ready.into_iter();
        open.retain(|(at, socket)| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            let took = now.saturating_sub(starts[*at]);
            answers[*at] = Some(match sockopt::socket_error(socket) {
                Ok(Ok(())) => Answer::Open(seen(took, round_trip(socket))),
                Ok(Err(error)) | Err(error) => Answer::of(error, took),
            });
            false
        });
    }
    Ok(Answers { answers, from })
}

/// How long an answer took which was `took` microseconds old when this process saw it: it may have had no processor, but the kernel
/// knows the round trip.
fn seen(took: u64, round_trip: Option<u32>) -> u64 {
    round_trip.map_or(took, |round_trip| took.min(round_trip.into()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_that_is_seen_late_came_when_the_kernel_had_it() {
        assert_eq!(seen(2_000_000, Some(180)), 180);
        assert_eq!((seen(170, Some(180)), seen(170, None)), (170, 170));
    }

    #[test]
    fn open_and_refused_are_told_apart_and_who_has_enough_waits_no_longer() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // an address for documentation: nothing answers
        let nowhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let begun = clock::host_now().0;
        let told = knock(&[open.local_addr().unwrap(), gone, nowhere], PATIENCE, |answers| {
            answers[..2].iter().all(Option::is_some)
        });
        let told = told.unwrap();
        assert!(matches!(told.answers[0], Some(Answer::Open(_))), "{told:?}");
        assert!(matches!(told.answers[1], Some(Answer::Refused(_))), "{told:?}");
        assert_eq!(told.from[0], Some("127.0.0.1".parse().unwrap()));
        assert!(clock::host_now().0 - begun < PATIENCE.as_micros() as u64);
    }
}
