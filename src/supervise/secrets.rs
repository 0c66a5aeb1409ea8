//! The values of a run's secret variables, for those who must hide them in what its ranks print.
//!
//! They stand in no file. As long as a rank lives they are in the environment of its rank-wrap, where the same
//! user can read them. Before that ends it writes down *where* its rank's files hold them ([`Hidden`]), so that
//! a later reader of the files can leave them out without knowing them.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::SuperviseError;
use super::numbering::Numbering;
use super::rundir::RunDir;
use super::spool::{self, read_whole};
use super::state::{hidden_file, stream_file};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::redaction::{MASK, Masks};
use crate::domain::run::RankSpec;
use crate::procs::identity::Identity;
use crate::procs::memory;

/// The run's own secret, which proves to a rank that another one belongs to the run. Worth nothing after its end.
const RUN_SECRET: &str = "HVTUI_SECRET";
/// Bytes that are searched at once.
const WINDOW: usize = 1 << 20;
/// More places than these are not written down one by one: what comes behind them is hidden as a whole.
const PLACES: usize = 50_000;

/// Whether any variable of a rank is secret.
pub fn any(rank: &RankSpec) -> bool {
    rank.env.values().any(|value| value == MASK)
}

/// Whether a variable holds a value that must not be seen while the run goes on.
fn is_secret(rank: &RankSpec, name: &str) -> bool {
    name == RUN_SECRET || rank.env.get(name).is_some_and(|value| value == MASK)
}

/// What must be hidden of what a rank prints, taken from a process that got its variables: its rank-wrap.
/// `None` when that has ended.
pub fn of_process(rank: &RankSpec, process: &Identity) -> io::Result<Option<Masks>> {
    let environment = match memory::environment(process.pid) {
        Ok(environment) => environment,
        // Its memory is gone: a process that ends counts as one that lives for a moment more (Linux 6.17 and later say
        // so when the file is opened, earlier ones give no bytes).
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return Ok(None),
        Err(error) if process.alive() => return Err(error),
        Err(_) => return Ok(None),
    };
    // After the reading: of a stranger with the same number nothing is taken. A process that ends has none.
    if !process.alive() || environment.is_empty() {
        return Ok(None);
    }
    let pairs = environment.split(|byte| *byte == 0);
    let pairs = pairs.filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    let found: Vec<(&str, &str)> = pairs.filter(|(name, _)| is_secret(rank, name)).collect();
    // One that has lost some of them, or has them in another form, tells nothing of what must be hidden.
    let mut wanted = rank.env.iter().filter(|(_, value)| *value == MASK);
    let whole = wanted.all(|(name, _)| found.iter().any(|(one, _)| one == name));
    Ok(whole.then(|| Masks::new(found.into_iter().map(|(_, value)| value))))
}

/// The values of a rank's own variables, in its rank-wrap: without the run's secret, which its end makes worthless.
pub(super) fn own(rank: &RankSpec) -> Masks {
    let values = std::env::vars_os().filter_map(|(name, value)| {
        let named = std::str::from_utf8(name.as_bytes())
            .is_ok_and(|name| name != RUN_SECRET && is_secret(rank, name));
        value.into_string().ok().filter(|_| named)
    });
    let values: Vec<String> = values.collect();
    Masks::new(values.iter().map(String::as_str))
}

/// Where a rank's files hold secret values: from and to, by the [numbers](Numbering) of their bytes, in the order of
/// [`Stream::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    places: [Vec<(u64, u64)>; 3],
    /// How far each file was searched.
    searched: [u64; 3],
}

impl Hidden {
    /// What was written down of a rank; `None` when its files were not searched.
    pub fn read(dir: &RunDir, rank: Rank) -> Result<Option<Self>, SuperviseError> {
        dir.read_json(&hidden_file(rank))
    }

    /// How far a file was searched.
    pub fn searched(&self, stream: Stream) -> u64 {
        let searched = Stream::ALL.iter().zip(self.searched).find(|(one, _)| **one == stream);
        searched.map_or(0, |(_, searched)| searched)
    }

    /// The parts of a file between two offsets that hold values: each from where the value begins to its end.
    pub fn within(&self, stream: Stream, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let places = Stream::ALL.iter().zip(&self.places).find(|(one, _)| **one == stream);
        let places = places.map_or(&[][..], |(_, places)| places);
        let first = places.partition_point(|(_, end)| *end <= from);
        places.iter().skip(first).copied().take_while(move |(begin, _)| *begin < to)
    }
}

/// Writes down where a rank's files hold these values; searches only what was not searched before.
pub(super) fn write_down(dir: &RunDir, rank: Rank, masks: &Masks) -> Result<(), SuperviseError> {
    let before = Hidden::read(dir, rank)?;
    let mut hidden = before.clone().unwrap_or_default();
    for ((stream, places), searched) in Stream::ALL.iter().zip(&mut hidden.places).zip(&mut hidden.searched) {
        let name = stream_file(rank, *stream);
        let failed = |e| SuperviseError::io("search", &dir.path().join(&name), e);
        if let Some(file) = dir.read(&name)? {
            let begin = Numbering::open(dir, &name).begin();
            *searched = search(&file, masks, (begin, *searched), places).map_err(failed)?;
        }
    }
    if before.as_ref() == Some(&hidden) { Ok(()) } else { dir.write_json(&hidden_file(rank), &hidden) }
}

/// Adds where a file, whose first byte has the number `begin`, holds the values from `from` on. Gives the end of what was searched:
/// not much more than was there at first, since what goes on printing could keep the search going for ever.
fn search(
    file: &File,
    masks: &Masks,
    (begin, from): (u64, u64),
    places: &mut Vec<(u64, u64)>,
) -> io::Result<u64> {
    let mut window = vec![0; WINDOW];
    let length = file.metadata()?.len();
    let mut from = from.saturating_sub(begin);
    if from > length {
        // emptied, which is not written down yet: what stood there is gone
        places.retain(|(_, end)| *end <= begin);
        from = 0;
    }
    // A value may have begun before that end.
    let back = masks.longest().saturating_sub(1) as u64;
    let mut at = spool::kept_from(file, from.saturating_sub(back))?;
    loop {
        let read = read_whole(file, &mut window, at)?;
        let bytes = window.get(..read).unwrap_or_default();
        for range in masks.find(bytes) {
            add(places, begin + at + range.start as u64, begin + at + range.end as u64);
        }
        let end = at + read as u64;
        if read < WINDOW || end >= length {
            // of a file that grows the rest of a value may be there by now
            let rest = if end > length { masks.begun(bytes) as u64 } else { 0 };
            return Ok(begin + end - rest);
        }
        at = end - back;
    }
}

fn add(places: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    let to = if places.len() < PLACES { to } else { u64::MAX };
    match places.last_mut() {
        Some((_, end)) if from < *end => *end = to.max(*end),
        _ => places.push((from, to)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::domain::fixtures::rank_spec;

    fn rank(secret: &[&str]) -> RankSpec {
        let env = secret.iter().map(|name| ((*name).to_owned(), MASK.to_owned())).collect();
        RankSpec { env, ..rank_spec(0) }
    }

    #[test]
    fn places_are_found_across_windows_and_again_only_behind_the_last_search() {
        let (_state, dir) = RunDir::of_test();
        let masks = Masks::new(["hunter2hunter2"]);
        let mut out = dir.append("rank-0.out").unwrap();
        // the first one lies across the end of a window, the last one is not whole yet
        let head = vec![b'x'; WINDOW - 5];
        out.write_all(&head).unwrap();
        out.write_all(b"hunter2hunter2, hunter2hunter2 hunter2").unwrap();
        write_down(&dir, Rank(0), &masks).unwrap();
        let hidden = Hidden::read(&dir, Rank(0)).unwrap().unwrap();
        let at = WINDOW as u64 - 5;
        assert_eq!(hidden.places[0], [(at, at + 14), (at + 16, at + 30)]);
        out.write_all(b"hunter2 end").unwrap();
        write_down(&dir, Rank(0), &masks).unwrap();
        let hidden = Hidden::read(&dir, Rank(0)).unwrap().unwrap();
        assert_eq!(hidden.places[0], [(at, at + 14), (at + 16, at + 30), (at + 31, at + 45)]);
        let within = |from, to| hidden.within(Stream::Stdout, from, to).collect::<Vec<_>>();
        assert_eq!(within(0, at), []);
        assert_eq!(within(at + 13, at + 17), [(at, at + 14), (at + 16, at + 30)]);
        assert_eq!(within(at + 14, at + 16), []);
        assert_eq!(hidden.within(Stream::Stderr, 0, u64::MAX).count(), 0);
        let text = std::fs::read_to_string(dir.path().join(hidden_file(Rank(0)))).unwrap();
        assert!(!text.contains("hunter"));
    }

    #[test]
    fn a_file_that_grows_all_the_time_is_searched_as_far_as_it_went() {
        let (_state, dir) = RunDir::of_test();
        let mut out = dir.append("rank-0.out").unwrap();
        out.write_all(b"hunter2hunter2\n").unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let flood = vec![b'y'; WINDOW];
                // not for ever, should the search wait for its end
                for _ in 0..2000 {
                    if over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    out.write_all(&flood).unwrap();
                }
            });
            write_down(&dir, Rank(0), &Masks::new(["hunter2hunter2"])).unwrap();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let hidden = Hidden::read(&dir, Rank(0)).unwrap().unwrap();
        assert_eq!(hidden.places[0], [(0, 14)]);
        let length = std::fs::metadata(dir.path().join("rank-0.out")).unwrap().len();
        assert!(length < 2000 * WINDOW as u64, "it waited for {length} bytes");
    }

    #[test]
    fn a_file_that_was_emptied_is_searched_anew() {
        let (_state, dir) = RunDir::of_test();
        let masks = Masks::new(["hunter2hunter2"]);
        let path = dir.path().join("rank-0.out");
        let places = |searched| {
            write_down(&dir, Rank(0), &masks).unwrap();
            let hidden = Hidden::read(&dir, Rank(0)).unwrap().unwrap();
            assert_eq!(hidden.searched(Stream::Stdout), searched);
            hidden.places[0].clone()
        };
        std::fs::write(&path, "as long as it can be: hunter2hunter2\n").unwrap();
        let mut numbering = Numbering::open(&dir, "rank-0.out");
        let file = dir.read("rank-0.out").unwrap().unwrap();
        numbering.look(&dir, &file, 0).unwrap();
        assert_eq!(places(37), [(22, 36)]);
        // before that is written down
        std::fs::write(&path, "a hunter2hunter2\n").unwrap();
        assert_eq!(places(17), [(2, 16)]);
        numbering.look(&dir, &file, 0).unwrap();
        assert_eq!(numbering.begin(), 38);
        assert_eq!(places(38 + 17), [(2, 16), (40, 54)]);
        // as long as it was
        std::fs::write(&path, "hunter2hunter2 a\n").unwrap();
        numbering.look(&dir, &file, 0).unwrap();
        assert_eq!(places(56 + 17), [(2, 16), (40, 54), (56, 70)]);
    }

    #[test]
    fn behind_too_many_places_all_is_hidden() {
        let (_state, dir) = RunDir::of_test();
        dir.append("rank-0.out").unwrap().write_all(&b"hunter2hunter2\n".repeat(PLACES + 9)).unwrap();
        write_down(&dir, Rank(0), &Masks::new(["hunter2hunter2"])).unwrap();
        let hidden = Hidden::read(&dir, Rank(0)).unwrap().unwrap();
        assert_eq!(hidden.places[0].len(), PLACES + 1);
        assert_eq!(hidden.within(Stream::Stdout, 1 << 40, u64::MAX).count(), 1);
    }

    #[test]
    fn values_are_taken_from_the_process_that_has_them_and_from_no_other() {
        let mut child = std::process::Command::new("sleep");
        let child =
            child.arg("600").env_clear().env("TOKEN", "hunter2hunter2").env("PLAIN", "not-a-secret-at-all");
        let mut child = child.env(RUN_SECRET, "0123456789abcdef").spawn().unwrap();
        let process = Identity::of(child.id()).unwrap();
        // until the program is loaded its environment is its parent's
        let masks = loop {
            match of_process(&rank(&["TOKEN"]), &process).unwrap() {
                Some(masks) if !masks.is_empty() => break masks,
                _ => std::thread::yield_now(),
            }
        };
        assert_eq!(
            masks.hide("hunter2hunter2 0123456789abcdef not-a-secret-at-all"),
            "••• ••• not-a-secret-at-all"
        );
        let stranger = Identity { start: process.start + 1, ..process.clone() };
        assert_eq!(of_process(&rank(&["TOKEN"]), &stranger).unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of_process(&rank(&["TOKEN"]), &process).unwrap(), None);
        assert!(any(&rank(&["TOKEN"])) && !any(&rank(&[])));
    }

    #[test]
    fn a_process_that_is_about_to_end_gives_its_values_or_none_and_no_error() {
        for _ in 0..100 {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            let process = Identity::of(child.id()).unwrap();
            while process.alive() {
                of_process(&rank(&["TOKEN"]), &process).unwrap();
            }
            child.wait().unwrap();
        }
    }
}
