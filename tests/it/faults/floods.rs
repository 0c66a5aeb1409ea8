//! Rows 36 and 37: ranks print more than anybody can keep.

use std::fs;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left, spool};
use super::matrix::Notes;
use super::rig::{Rig, lasts, until};

/// Bytes that a rank's files take on the host's disk.
fn kept(rig: &Rig, host: &str, run: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(spool(rig, host, run)).expect("the run's folder").flatten();
    files.filter_map(|file| file.metadata().ok()).map(|data| data.blocks() * 512).sum()
}

pub(crate) fn own_flood(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    rig.change("disk", "n1 /root/.local/state/hvtui 65536");
    let person = rig.person();
    // what can't fit is refused before anything starts, with what would fit
    let refused = person.run(&["run", "-H", "n1:1", "--spool-cap", "80M", "--", "true"]);
    assert!(refused.code != 0 && refused.said().contains("--spool-cap"), "{refused:#?}");
    // more than the disk has, as fast as disks are and not as fast as this one, which is memory
    let flood = "--flood 600 --most 80000000 --of 0 --breath 0.001 --wide 1000 --lines 50";
    let flood: Vec<&str> = flood.split(' ').collect();
    let mut job = rig.start_on(&person, "n1:1,n2:1", &["--spool-cap", "16M"], &flood);
    let code = job.wait();
    exits_agree(&job, code, 0, &[Ends::Exit(0); 2]);
    let run = job.run();
    let size = kept(&rig, "n1", &run);
    notes.say(&format!("{} MiB of the flood are kept", size >> 20));
    // the cap, and what is printed between two looks of its guard
    assert!(size < 32 << 20, "{size}");
    no_byte_lost(&job);
    nothing_left(&rig, &run);
    Some(())
}

pub(crate) fn strangers_file(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    rig.change("disk", "n1 /root/.local/state/hvtui 65536");
    let person = rig.person();
    // no more than a client that is not optimised reads beside other tests: it would be behind when the disk is full
    let printing = ["--lines", "1000000", "--pad", "4000", "--every", "0.02"];
    let mut job = rig.start_on(&person, "n1:1,n2:1", &["--spool-cap", "16M"], &printing);
    job.hear(20);
    rig.cluster.on("n1", "dd if=/dev/zero of=/root/.local/state/hvtui/stranger bs=64k 2>/dev/null");
    let code = job.wait();
    assert_ne!(code, 0);
    rig.cluster.on("n1", "rm /root/.local/state/hvtui/stranger");
    // the rank that met the full disk ended by itself, and its end was written down there
    exits_agree(&job, code, code, &[Ends::Exit(code), Ends::Stopped]);
    no_byte_lost(&job);
    nothing_left(&rig, &job.run());
    let exit_of_rank_0 = |e: &Envelope| match (&e.origin, &e.event) {
        (Origin::Rank(_, Rank(0)), Event::RankExited { exit }) => Some(exit.describe()),
        _ => None,
    };
    let how = job.events().iter().find_map(exit_of_rank_0).expect("an exit");
    assert!(how.contains("its disk was full") || how.contains("No space left on device"), "{how}");
    let text_of = |e: &Envelope| match &e.event {
        Event::RunNoted { note, .. } => Some(note.text.clone()),
        _ => None,
    };
    let told: Vec<String> = job.events().iter().filter_map(text_of).collect();
    assert!(told.iter().any(|text| text.contains("the disk is filling up")), "{told:?}");
    notes.say(&format!("told: {}", told.join("; ")));
    Some(())
}

pub(crate) fn flood_and_long_line(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    person.write("hosts.toml", &rig.cluster.hosts_toml(4));
    let trainer = ["--flood", "2", "--long", "100000000", "--lines", "50"];
    let mut job = rig.start_on(&person, "n1:4,n2:4", &["--spool-cap", "32M"], &trainer);
    until("the run to go on", || !job.events().is_empty());
    let mut most = 0;
    while job.runs() {
        let status = fs::read_to_string(format!("/proc/{}/status", job.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        most = most.max(line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0));
        lasts(Duration::from_millis(200));
    }
    let code = job.wait();
    exits_agree(&job, code, 0, &[Ends::Exit(0); 8]);
    let run = job.run();
    notes.count("MiB of the client's memory at most", most >> 10, 128);
    for host in rig.hosts() {
        notes.count(&format!("MiB kept on {host}"), kept(&rig, &host, &run) >> 20, 4 * 32 * 13 / 10);
    }
    // what is left out of the long line is counted, and said where it is printed
    let left_out = |e: &Envelope| match (&e.origin, &e.event) {
        (Origin::Rank(_, rank), Event::LogPrinted { line }) if line.text.starts_with('x') => {
            Some((*rank, line.elided)).filter(|(_, elided)| *elided > 0)
        }
        _ => None,
    };
    let left_out: Vec<(Rank, u64)> = job.events().iter().filter_map(left_out).collect();
    let (rank, elided) = *left_out.iter().max_by_key(|(_, elided)| *elided).expect("a long line that is cut");
    assert!(elided < 100_000_000, "no more than there was: {left_out:?}");
    let (begin, end) = (format!("[{rank}] x"), format!(" … {elided} more bytes"));
    // not read whole: it is the flood
    let printed = BufReader::new(fs::File::open(person.path("out")).expect("its output")).split(b'\n');
    let is_said = |line: Vec<u8>| line.starts_with(begin.as_bytes()) && line.ends_with(end.as_bytes());
    assert!(printed.map_while(Result::ok).any(is_said), "rank {rank}:{end}");
    notes.say(&format!("of the long line {elided} bytes are left out, which is said"));
    no_byte_lost(&job);
    nothing_left(&rig, &run);
    Some(())
}
