//! Which ways between hosts are far slower than the others. Pure.

use super::{Way, quickest};
use crate::domain::doctor::Verdict;

/// No way that is quicker is slow, microseconds: within a room it is a tenth of that.
pub(super) const SLOW: u64 = 1000;
/// So many times the usual one it is odd.
const ODD: u64 = 5;
/// Ways of which one is the usual one: of fewer each may be.
const FEWEST: usize = 3;

/// How long a way takes where it is quick: of all hosts' ways three quarters take longer. Of three hosts of which one is far away two
/// thirds of them do.
pub(super) fn usual(ways: &[Vec<Way>]) -> Option<u64> {
    let mut all: Vec<u64> = ways.iter().flatten().filter_map(quickest).collect();
    all.sort_unstable();
    (all.len() >= FEWEST).then(|| all[all.len() / 4])
}

/// Of a host's quickest way to each other one: those that are far slower than is usual.
pub(super) fn judge(paces: &[(&Way, u64)], usual: Option<u64>) -> Option<Verdict> {
    let usual = usual?;
    let odd: Vec<&(&Way, u64)> =
        paces.iter().filter(|(_, micros)| *micros > SLOW && *micros > ODD * usual).collect();
    let (first, _) = odd.first()?;
    let ms = |micros: u64| format!("{:.1} ms", micros as f64 / 1e3);
    let seen: Vec<String> =
        odd.iter().map(|(way, micros)| format!("{} in {}", way.host, ms(*micros))).collect();
    let hosts: Vec<&str> = odd.iter().map(|(way, _)| way.host.as_str()).collect();
    let verdict = Verdict::look(
        format!("reaches {}; between hosts {} is usual", seen.join(", "), ms(usual)),
        "each step of a run over all hosts takes as long as its slowest way: another site, a VPN, wireless, or a full line between them",
        format!(
            "ip route get {} there says which way it takes; hvtui smoke --only link measures it",
            first.address
        ),
    );
    Some(verdict.lasting(format!("slow to {}", hosts.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::super::knock::Answer;
    use super::*;
    use crate::domain::ids::HostId;
    use crate::domain::preflight::Mark;

    fn way(host: &str, micros: u64) -> Way {
        Way {
            host: HostId::from(host),
            address: "10.0.0.2".parse().unwrap(),
            from: None,
            usual: Some(Answer::Refused(micros + 7)),
            door: Some(Answer::Open(micros)),
            ssh: None,
            run: Vec::new(),
            large: None,
        }
    }

    #[test]
    fn the_odd_pair_is_told_and_what_is_quick_is_not() {
        let of = |micros: u64| {
            let ways = [vec![way("b", micros), way("c", 200)], vec![way("a", 190)], vec![way("a", 210)]];
            let paces: Vec<(&Way, u64)> = ways[0].iter().map(|way| (way, quickest(way).unwrap())).collect();
            judge(&paces, usual(&ways))
        };
        let slow = of(12_340).unwrap();
        assert_eq!(slow.mark, Mark::Look);
        assert_eq!(slow.evidence, "reaches b in 12.3 ms; between hosts 0.2 ms is usual");
        assert_eq!(slow.lasting.as_deref(), Some("slow to b"));
        assert_eq!(of(990), None, "quick all the same");
        // far apart, but all alike
        let far = [vec![way("b", 30_000)], vec![way("a", 31_000)], vec![way("a", 90_000)]];
        assert_eq!(judge(&[(&far[2][0], 90_000)], usual(&far)), None);
        assert_eq!(usual(&far[..2]), None, "of two each may be the usual one");
    }
}
