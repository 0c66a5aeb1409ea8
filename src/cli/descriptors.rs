//! How many files this process may have open: the usual 1024 is too few for hundreds of hosts, each with its pipes or sockets.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For all but the hosts.
const OWN: u64 = 256;
/// For each host: the streams of its link and of ssh's program, connections that are just made, folders that are copied.
const EACH: u64 = 12;

/// Raises the soft limit for so many hosts, as far as the hard one lets it. What it was is left where it is enough.
pub(super) fn have_room_for(hosts: usize) {
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = raised(limit.current, limit.maximum, hosts) {
        // where it is refused, the hosts that find none free say so
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    }
}

/// The soft limit for so many hosts; `None` where it is enough or can't be raised. A limit that is `None` is none.
fn raised(soft: Option<u64>, hard: Option<u64>, hosts: usize) -> Option<u64> {
    let wanted = OWN + EACH * hosts as u64;
    let most = hard.map_or(wanted, |hard| wanted.min(hard));
    soft.filter(|soft| *soft < most).map(|_| most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_raised_as_far_as_needed_and_never_lowered() {
        assert_eq!(raised(Some(1024), Some(524_288), 500), Some(6256));
        assert_eq!(raised(Some(1024), Some(4096), 500), Some(4096), "as far as it goes");
        assert_eq!(raised(Some(1024), None, 500), Some(6256));
        assert_eq!(raised(Some(1024), Some(524_288), 8), None, "enough");
        assert_eq!(raised(None, None, 500), None);
        assert_eq!(raised(Some(1024), Some(1024), 500), None, "no more can be had");
    }
}
