use super::*;
use crate::supervise::spool::{self, BLOCK};

const RANK: Rank = Rank(3);

fn second(second: u64) -> HostTime {
    HostTime(second * 1_000_000)
}

/// Prints so many bytes and has that noted.
fn print(dir: &RunDir, noted: &mut Noted, (stream, bytes): (Stream, usize), at: u64) {
    dir.append(&stream_file(RANK, stream)).unwrap().write_all(&vec![b'x'; bytes]).unwrap();
    let lengths = noted.lengths(dir).unwrap();
    noted.note(dir, lengths, second(at));
}

/// What is told of a file from its beginning, in seconds.
fn told(dir: &RunDir, stream: Stream) -> Vec<(u64, u64)> {
    let moments = moments(dir, RANK, stream, 0, u64::MAX);
    moments.into_iter().map(|(length, t)| (length, t.0 / 1_000_000)).collect()
}

#[test]
fn what_was_printed_has_the_time_of_the_first_note_that_reaches_it() {
    let (_state, dir) = RunDir::of_test();
    let mut noted = Noted::open(&dir, RANK, second(1));
    noted.note(&dir, [0, 0], second(2));
    assert!(!dir.has("rank-3.times"), "a rank that prints nothing has no file");
    print(&dir, &mut noted, (Stream::Stdout, 10), 3);
    print(&dir, &mut noted, (Stream::Stdout, 0), 4);
    print(&dir, &mut noted, (Stream::Stderr, 7), 5);
    print(&dir, &mut noted, (Stream::Stdout, 5), 6);
    print(&dir, &mut noted, (Stream::Stdout, 5), 7);
    assert_eq!(std::fs::metadata(dir.path().join("rank-3.times")).unwrap().len(), 24 * 5);
    assert_eq!(told(&dir, Stream::Stdout), [(10, 3), (15, 6), (20, 7)]);
    assert_eq!(told(&dir, Stream::Stderr), [(7, 5)]);
    assert_eq!(moments(&dir, RANK, Stream::Report, 0, 9), []);
    // of a part of it no more than it takes
    assert_eq!(moments(&dir, RANK, Stream::Stdout, 9, 12), [(10, second(3)), (15, second(6))]);
    assert_eq!(moments(&dir, RANK, Stream::Stdout, 10, 15), [(15, second(6))]);
    assert_eq!(moments(&dir, RANK, Stream::Stdout, 20, 30), []);
}

#[test]
fn what_was_printed_while_no_supervisor_looked_has_no_time() {
    let (_state, dir) = RunDir::of_test();
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 10), 2);
    print(&dir, &mut noted, (Stream::Stderr, 10), 3);
    drop(noted);
    dir.append("rank-3.out").unwrap().write_all(b"unseen").unwrap();
    let mut noted = Noted::open(&dir, RANK, second(90));
    print(&dir, &mut noted, (Stream::Stdout, 1), 91);
    print(&dir, &mut noted, (Stream::Stdout, 1), 92);
    // nor has what was printed while its look was very late
    print(&dir, &mut noted, (Stream::Stdout, 2), 100);
    print(&dir, &mut noted, (Stream::Stderr, 1), 101);
    assert_eq!(told(&dir, Stream::Stdout), [(10, 2), (17, 0), (18, 92), (20, 0)]);
    assert_eq!(told(&dir, Stream::Stderr), [(10, 3), (11, 101)]);
    // where nothing was printed meanwhile nothing is missed
    let mut noted = Noted::open(&dir, RANK, second(200));
    print(&dir, &mut noted, (Stream::Stderr, 1), 201);
    assert_eq!(told(&dir, Stream::Stderr)[2], (12, 201));
    // one that adopts a run of before begins with what there is
    std::fs::remove_file(dir.path().join("rank-3.times")).unwrap();
    let mut noted = Noted::open(&dir, RANK, second(300));
    print(&dir, &mut noted, (Stream::Stdout, 1), 301);
    print(&dir, &mut noted, (Stream::Stdout, 1), 302);
    assert_eq!(told(&dir, Stream::Stdout), [(21, 0), (22, 302)]);
}

#[test]
fn a_torn_end_is_left_out_and_written_over() {
    let (_state, dir) = RunDir::of_test();
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 10), 2);
    for torn in 1..24 {
        dir.append("rank-3.times").unwrap().write_all(&vec![0xff; torn]).unwrap();
        assert_eq!(told(&dir, Stream::Stdout).len(), torn, "{torn}");
        let mut noted = Noted::open(&dir, RANK, second(1 + torn as u64));
        print(&dir, &mut noted, (Stream::Stdout, 1), 2 + torn as u64);
        assert_eq!(told(&dir, Stream::Stdout).last(), Some(&(10 + torn as u64, 2 + torn as u64)));
    }
    // a beginning that is torn is none
    std::fs::write(dir.path().join("rank-3.times"), &head().unwrap()[..20]).unwrap();
    assert_eq!(told(&dir, Stream::Stdout), []);
}

#[test]
fn notes_of_another_boot_are_none_and_whatever_stands_there_ends_nothing() {
    let (_state, dir) = RunDir::of_test();
    dir.append("rank-3.out").unwrap().write_all(b"of before").unwrap();
    let note = Note { lengths: [9, 0], t: 5 }.to_bytes();
    let mut other = head().unwrap();
    other[20] ^= 1;
    std::fs::write(dir.path().join("rank-3.times"), [other, note].concat()).unwrap();
    assert_eq!(told(&dir, Stream::Stdout), []);
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 1), 2);
    print(&dir, &mut noted, (Stream::Stdout, 1), 3);
    assert_eq!(told(&dir, Stream::Stdout), [(10, 0), (11, 3)]);
    // lengths in no order, and all of one kind
    for fill in [0u8, 0x7f, 0xff] {
        let noise: Vec<u8> = (0..24 * 99).map(|n| fill ^ (n as u8).wrapping_mul(57)).collect();
        std::fs::write(dir.path().join("rank-3.times"), [&head().unwrap()[..], &noise].concat()).unwrap();
        let told = moments(&dir, RANK, Stream::Stdout, 1, 1 << 60);
        assert!(told.is_sorted_by(|a, b| a.0 < b.0), "{told:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_harms_nothing_and_is_tried_again() {
    let (_state, dir) = RunDir::of_test();
    std::fs::create_dir(dir.path().join("rank-3.times")).unwrap();
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 1), 2);
    assert_eq!(told(&dir, Stream::Stdout), []);
    std::fs::remove_dir(dir.path().join("rank-3.times")).unwrap();
    print(&dir, &mut noted, (Stream::Stdout, 1), 3);
    print(&dir, &mut noted, (Stream::Stdout, 1), 4);
    assert_eq!(told(&dir, Stream::Stdout), [(2, 0), (3, 4)], "what was not noted has no time");
}

#[test]
fn what_is_printed_after_a_file_was_emptied_is_noted_behind_what_was_there() {
    let (_state, dir) = RunDir::of_test();
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 10), 2);
    print(&dir, &mut noted, (Stream::Stderr, 3), 3);
    std::fs::write(dir.path().join("rank-3.out"), "anew").unwrap();
    print(&dir, &mut noted, (Stream::Stdout, 1), 4);
    print(&dir, &mut noted, (Stream::Stdout, 1), 5);
    assert_eq!(told(&dir, Stream::Stdout), [(10, 2), (11 + 5, 4), (11 + 6, 5)]);
    assert_eq!(told(&dir, Stream::Stderr), [(3, 3)]);
}

#[test]
fn what_is_emptied_while_no_supervisor_looks_is_noted_anew() {
    let (_state, dir) = RunDir::of_test();
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 10), 2);
    print(&dir, &mut noted, (Stream::Stderr, 3), 3);
    drop(noted);
    std::fs::write(dir.path().join("rank-3.out"), "anew").unwrap();
    let mut noted = Noted::open(&dir, RANK, second(4));
    print(&dir, &mut noted, (Stream::Stdout, 1), 5);
    print(&dir, &mut noted, (Stream::Stdout, 1), 6);
    assert_eq!(told(&dir, Stream::Stdout), [(5, 0), (6, 6)]);
    assert_eq!(told(&dir, Stream::Stderr), [(3, 0)]);
}

#[test]
fn a_cut_head_changes_no_length() {
    let (_state, dir) = RunDir::of_test();
    if !spool::can_cut(&dir).unwrap() {
        return;
    }
    let mut noted = Noted::open(&dir, RANK, second(1));
    print(&dir, &mut noted, (Stream::Stdout, 3 * BLOCK as usize), 2);
    spool::cut(&dir.open_to_cut("rank-3.out").unwrap().unwrap(), 2 * BLOCK).unwrap();
    print(&dir, &mut noted, (Stream::Stdout, 1), 3);
    assert_eq!(told(&dir, Stream::Stdout), [(3 * BLOCK, 2), (3 * BLOCK + 1, 3)]);
}

/// A week of a line a second, thinned whenever there are as many as there may be: no time is too early, and none is later than a
/// part of its age allows.
#[test]
fn of_a_long_run_few_notes_stay_and_each_time_is_late_by_little() {
    let (mut notes, mut fewest) = (Vec::new(), usize::MAX);
    let week = 7 * 86_400;
    for at in 1..=week {
        if notes.len() >= MOST {
            notes = thinned(&notes, second(at).0);
            assert!(notes.len() <= MOST / 4 * 3, "{}", notes.len());
            fewest = fewest.min(notes.len());
        }
        notes.push(Note { lengths: [at * 20, 0], t: second(at).0 });
    }
    assert!(fewest > MOST / 4, "no more go than has to: {fewest}");
    for at in 1..=week {
        let found = notes.partition_point(|note| note.lengths[0] < at * 20);
        let late = notes[found].t / 1_000_000 - at;
        let allowed = (week - at) / 500;
        assert!(late <= allowed, "{late} s of {allowed}, {} s ago", week - at);
    }
}

#[test]
fn a_thinned_file_takes_the_place_of_the_one_that_others_read_on() {
    let (_state, dir) = RunDir::of_test();
    let mut noted = Noted::open(&dir, RANK, second(1));
    for at in 1..=MOST as u64 {
        noted.note(&dir, [at * 10, 0], second(at));
    }
    let before = Notes::open(&dir, RANK).unwrap();
    assert_eq!(before.count, MOST);
    noted.note(&dir, [MOST as u64 * 10 + 10, 0], second(MOST as u64 + 1));
    assert_eq!(before.get(0).unwrap(), Some(Note { lengths: [10, 0], t: second(1).0 }));
    let after = Notes::open(&dir, RANK).unwrap();
    assert!(after.count == noted.count && after.count <= MOST / 4 * 3 + 1, "{}", after.count);
    let last = after.get(after.count - 1).unwrap();
    assert_eq!(last, Some(Note { lengths: [MOST as u64 * 10 + 10, 0], t: second(MOST as u64 + 1).0 }));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    // however many there are, no more are told of a piece than are kept for it
    let told = moments(&dir, RANK, Stream::Stdout, 0, u64::MAX);
    assert!(
        told.len() <= MOST_MOMENTS && told.last().map(|told| told.1) == last.map(|note| HostTime(note.t))
    );
}

#[test]
fn what_was_missed_again_and_again_takes_no_more_room() {
    let missed = |at: u64| Note { lengths: [at, 0], t: if at.is_multiple_of(2) { 0 } else { at } };
    let notes: Vec<Note> = (1..=MOST as u64).map(missed).collect();
    let kept = thinned(&notes, 1 << 40);
    assert!(kept.len() <= MOST / 4 * 3, "{}", kept.len());
    assert_eq!(kept.last(), notes.last());
    assert!(kept.first().is_some_and(|note| note.t == 0));
}

#[test]
fn a_late_note_tells_nothing_behind_the_end_of_its_rank() {
    let ended = Some(second(10));
    for (t, end, there) in [
        (9, ended, 9),
        (10, ended, 10),
        (11, ended, 10),
        (13, ended, 10),
        // by a process that it left behind
        (14, ended, 14),
        (11, None, 11),
        // not known when
        (0, ended, 0),
    ] {
        assert_eq!(not_behind(second(t), end), second(there), "noted at {t}, ended at {end:?}");
    }
}
