//! What must hold after every fault. L: no byte lost or doubled. X: one truth about exits. P: nothing is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hvtui::domain::event::{Event, Origin};
use hvtui::domain::log::Stream;
use hvtui::domain::run::RankExit;

use super::rig::{Job, Rig, until};

/// How a rank is to end by the trainer's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal, of its own or another's doing.
    Signal(i32),
    /// However the stop of the others ended it.
    Stopped,
}

/// The run's folder on a host.
fn spool(rig: &Rig, host: &str, run: &str) -> PathBuf {
    let folder = rig.at_home(host, ".local/state/hvtui/spool").join(run);
    let own = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let name = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&format!("{host}@")))
    };
    own.filter(name)
        .last()
        .unwrap_or_else(|| panic!("{host} has no folder of the run in {}", folder.display()))
}

/// L: what the client recorded of each rank is its file on the host from offset 0 on, with holes only where a gap says
/// so. Gives the bytes that were compared.
#[track_caller]
pub(crate) fn no_byte_lost(job: &Job<'_>) -> u64 {
    let run = job.run();
    let mut next: BTreeMap<(u32, Stream), u64> = BTreeMap::new();
    let mut gaps: BTreeMap<u32, u64> = BTreeMap::new();
    let mut files: BTreeMap<(u32, Stream), Vec<u8>> = BTreeMap::new();
    let events = job.events();
    let spec = events.iter().find_map(|envelope| match &envelope.event {
        Event::RunCreated { spec } => Some(spec.clone()),
        _ => None,
    });
    for placement in &spec.expect("the run's plan is recorded").placements {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let name = format!("rank-{}.{}", placement.rank, stream.extension());
            let content = fs::read(spool(job.rig, placement.host.as_str(), &run).join(&name)).expect(&name);
            files.insert((placement.rank.0, stream), content);
        }
    }
    for envelope in &events {
        match (&envelope.origin, &envelope.event) {
            (Origin::Rank(_, rank), Event::Gap { dropped, .. }) => {
                *gaps.entry(rank.0).or_default() += dropped
            }
            (Origin::Rank(_, rank), Event::LogPrinted { line }) => {
                let who = (rank.0, line.stream);
                let at = next.entry(who).or_default();
                assert!(
                    line.offset >= *at,
                    "rank {rank}: byte {} came twice (up to {at} was known)",
                    line.offset
                );
                let told = gaps.entry(rank.0).or_default();
                let hole = line.offset - *at;
                assert!(hole <= *told, "rank {rank}: {hole} bytes from {at} on are lost and no gap says so");
                *told -= hole;
                let file = &files[&who];
                let start = line.offset as usize;
                let end = start + line.text.len();
                assert!(
                    file.get(start..end) == Some(line.text.as_bytes()),
                    "rank {rank}: the line at {start} is not what is in its file: {:?}",
                    line.text
                );
                let end = end + line.elided as usize;
                assert!(end <= file.len(), "rank {rank}: more is left out at {start} than there is");
                assert!(
                    file.get(end).is_none_or(|byte| *byte == b'\n'),
                    "rank {rank}: the line at {start} goes on"
                );
                *at = (end as u64 + 1).min(file.len() as u64);
            }
            _ => {}
        }
    }
    for ((rank, stream), file) in &files {
        let heard = next.get(&(*rank, *stream)).copied().unwrap_or(0);
        let told = gaps.get(rank).copied().unwrap_or(0);
        let missing = file.len() as u64 - heard;
        assert!(missing <= told, "rank {rank}: the last {missing} bytes of {stream:?} were never heard");
    }
    files.values().map(|file| file.len() as u64).sum()
}

/// X: the client's exit code, what is recorded, what the hosts wrote down, and the plan are one.
#[track_caller]
pub(crate) fn exits_agree(job: &Job<'_>, code: i32, wanted: i32, plan: &[Ends]) {
    let run = job.run();
    assert_eq!(code, wanted, "the client's exit code: {}", job.said());
    let events = job.events();
    let outcome = events.iter().find_map(|envelope| match &envelope.event {
        Event::RunEnded { outcome } => Some(outcome.clone()),
        _ => None,
    });
    assert_eq!(outcome.as_ref().map(|outcome| outcome.code), Some(wanted), "{outcome:?}");
    let spec = events.iter().find_map(|envelope| match &envelope.event {
        Event::RunCreated { spec } => Some(spec.clone()),
        _ => None,
    });
    for placement in &spec.expect("the plan is recorded").placements {
        let rank = placement.rank;
        let recorded: Vec<&RankExit> = events
            .iter()
            .filter_map(|envelope| match (&envelope.origin, &envelope.event) {
                (Origin::Rank(_, of), Event::RankExited { exit }) if *of == rank => Some(exit),
                _ => None,
            })
            .collect();
        let [recorded] = recorded[..] else { panic!("rank {rank}: {} exits are recorded", recorded.len()) };
        let file = spool(job.rig, placement.host.as_str(), &run).join(format!("exit-{rank}.json"));
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let written: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let of = |name: &str| written[name].as_i64().map(|n| n as i32);
        assert_eq!((recorded.code, recorded.signal), (of("code"), of("signal")), "rank {rank}: {written}");
        match plan[rank.0 as usize] {
            Ends::Exit(code) => {
                assert_eq!((recorded.code, recorded.signal), (Some(code), None), "rank {rank}")
            }
            Ends::Signal(n) => assert_eq!((recorded.code, recorded.signal), (None, Some(n)), "rank {rank}"),
            Ends::Stopped => assert!(recorded.stopped, "rank {rank} was to be stopped: {recorded:?}"),
        }
    }
}

/// P: no process, socket or temporary file of the run is left on any host.
#[track_caller]
pub(crate) fn nothing_left(rig: &Rig, run: &str) {
    for host in rig.hosts() {
        nothing_left_on(rig, &host, run);
    }
}

#[track_caller]
pub(crate) fn nothing_left_on(rig: &Rig, host: &str, run: &str) {
    until(&format!("{host} to be free of processes of {run}"), || processes(rig, host, run).is_empty());
    let left = rig.cluster.on(
        host,
        "find ~ /run -xdev \\( -type s -o -name '.up.*' -o -name '*.new' -o -name '*.tmp' -o -name '.tmp*' \\) 2>/dev/null",
    );
    let ours: Vec<&str> = left.lines().filter(|path| path.contains(run) || path.contains("/.up.")).collect();
    assert!(ours.is_empty(), "{host}: {ours:?}");
}

/// The processes on the host that belong to the run: its ranks, what they started, and what started them.
pub(crate) fn processes(rig: &Rig, host: &str, run: &str) -> Vec<String> {
    // The run is looked for here, so that its id is not on the command line of the search itself.
    let line = r#"for p in /proc/[0-9]*; do
        echo "${p#/proc/} $(tr '\0' ' ' <$p/cmdline) $(tr '\0' '\n' <$p/environ | grep '^HVTUI_RUN=')"
    done 2>/dev/null"#;
    rig.cluster.on(host, line).lines().filter(|line| line.contains(run)).map(str::to_owned).collect()
}
