//! Who talks to whom in a small exchange. Pure.
//!
//! With `2^k` hosts: recursive doubling. In round `r` each host exchanges with the one whose number differs in bit
//! `r`; after `k` rounds all have everything. Other numbers of hosts: those above the greatest `2^k` first give theirs
//! to a partner below and get the result from it at the end, which costs two more latencies; a few hosts with a few
//! bytes rather tell everyone at once, which costs one latency and `n - 1` sends.
//!
//! The two sides of an exchange put the lower host's values first, so both compute the same bits, and by induction all
//! hosts end bit-equal.

/// Hosts up to which everyone tells everyone.
pub(super) const FEW: usize = 8;
/// Bytes that a host may send in all when everyone tells everyone.
const LITTLE: usize = 16 << 10;

/// What is done with the partner's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// There are none: they were only sent.
    Nothing,
    /// They come after this host's.
    OursFirst {
        /// This completes the reduction.
        last: bool,
    },
    /// They come before this host's.
    TheirsFirst {
        /// This completes the reduction.
        last: bool,
    },
    /// They are the result.
    Take,
}

/// One round of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    /// Equal on both sides.
    pub(super) number: u32,
    /// The other side.
    pub(super) peer: usize,
    pub(super) sends: bool,
    pub(super) then: Then,
}

/// Whether everyone tells everyone, rather than in [`doubling`].
pub(super) fn all_at_once(hosts: usize, bytes: usize) -> bool {
    !hosts.is_power_of_two() && hosts <= FEW && (hosts - 1) * bytes <= LITTLE
}

/// The rounds of `host`, in order.
pub(super) fn doubling(host: usize, hosts: usize) -> Vec<Round> {
    let bits = hosts.ilog2();
    let inner = 1_usize << bits;
    let after = bits + 1;
    if host >= inner {
        let peer = host - inner;
        return vec![
            Round { number: 0, peer, sends: true, then: Then::Nothing },
            Round { number: after, peer, sends: false, then: Then::Take },
        ];
    }
    let outer = (host + inner < hosts).then_some(host + inner);
    let mut rounds = Vec::new();
    // The reduction is complete after the last doubling, of which there is one when there are two hosts.
    rounds.extend(outer.map(|peer| Round {
        number: 0,
        peer,
        sends: false,
        then: Then::OursFirst { last: false },
    }));
    for bit in 0..bits {
        let (peer, last) = (host ^ 1 << bit, bit + 1 == bits);
        let then = if host < peer { Then::OursFirst { last } } else { Then::TheirsFirst { last } };
        rounds.push(Round { number: bit + 1, peer, sends: true, then });
    }
    rounds.extend(outer.map(|peer| Round { number: after, peer, sends: true, then: Then::Nothing }));
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets all hosts go through their rounds; values are words, so that the order of addition shows.
    fn simulate(hosts: usize) -> Vec<String> {
        let all: Vec<Vec<Round>> = (0..hosts).map(|host| doubling(host, hosts)).collect();
        let mut values: Vec<String> = (0..hosts).map(|host| host.to_string()).collect();
        for number in 0..=hosts.ilog2() + 1 {
            let before = values.clone();
            for host in 0..hosts {
                let Some(round) = all[host].iter().find(|round| round.number == number) else { continue };
                let other = all[round.peer].iter().find(|other| other.number == number).unwrap();
                assert_eq!(other.peer, host);
                assert_eq!(other.sends, round.then != Then::Nothing, "host {host} of {hosts}");
                let theirs = &before[round.peer];
                let sum = |a: &str, b: &str, last| {
                    if last { format!("[{a}+{b}]") } else { format!("({a}+{b})") }
                };
                values[host] = match round.then {
                    Then::Nothing => continue,
                    Then::Take => theirs.clone(),
                    Then::OursFirst { last } => sum(&before[host], theirs, last),
                    Then::TheirsFirst { last } => sum(theirs, &before[host], last),
                };
            }
        }
        values
    }

    #[test]
    fn all_end_with_the_same_sum_of_all_completed_once() {
        assert_eq!(simulate(3)[2], "[(0+2)+1]");
        assert_eq!(simulate(4)[3], "[(0+1)+(2+3)]");
        for hosts in 1..=33 {
            let values = simulate(hosts);
            assert!(values.iter().all(|value| *value == values[0]), "{hosts}");
            for host in 0..hosts {
                let words = values[0].split(|c: char| !c.is_ascii_digit());
                assert_eq!(words.filter(|word| *word == host.to_string()).count(), 1, "{hosts} {}", values[0]);
            }
            assert_eq!(values[0].matches('[').count(), usize::from(hosts > 1));
        }
    }

    #[test]
    fn rounds_are_few() {
        assert_eq!(doubling(0, 2).len(), 1);
        assert_eq!(doubling(5, 8).len(), 3);
        assert_eq!(doubling(0, 9).len(), 5);
        assert!(all_at_once(3, 64) && !all_at_once(4, 64) && !all_at_once(7, 64 << 10) && !all_at_once(9, 0));
    }
}
