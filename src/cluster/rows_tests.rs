use proptest::prelude::*;

use super::*;
use crate::domain::log_text::rows as split;

const LIMIT: usize = 4096;

/// A stream that is read in pieces: the lines in the end, and each state that there was to see after a piece.
fn read(bytes: &[u8], size: usize) -> (Vec<String>, Vec<String>) {
    let mut rows = Rows::new(LIMIT, 0);
    let (mut offset, mut lines, mut shown) = (0, Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let line = part.strip_suffix(b"\n");
            rows.extend(line.unwrap_or(part), offset);
            offset += part.len() as u64;
            if line.is_some() {
                rows.end_line(offset, None);
            }
        }
        lines.extend(rows.take_done());
        shown.push(
            split(&rows.shown().0).map(|row| plain(row).trim_end().to_owned()).collect::<Vec<_>>().join("\n"),
        );
    }
    rows.end(offset, None);
    lines.extend(rows.take_done());
    (lines.iter().map(|row| plain(&row.text().0).trim_end().to_owned()).collect(), shown)
}

/// The real tqdm 4.70: steps within epochs, and `tqdm.write` between them.
#[test]
fn nested_bars_of_tqdm_are_two_rows_and_leave_one_line() {
    const BARS: &[u8] = include_bytes!("../../tests/fixtures/progress/tqdm-nested.err");
    for size in [7, 60, 5000] {
        let (lines, shown) = read(BARS, size);
        let words: Vec<&str> = lines.iter().map(|line| line.split('|').next().unwrap()).collect();
        let wanted =
            ["epoch 0: loss 1.000", "epoch 1: loss 0.500", "epoch 2: loss 0.333", "epoch: 100%", "done"];
        assert_eq!(words, wanted, "in pieces of {size}");
        let both = |state: &&String| state.starts_with("epoch:  33%") && state.contains("\nstep: 100%");
        assert!(size > 100 || shown.iter().any(|state| both(&state)), "{shown:#?}");
    }
}

/// The real Rich 15.0: two bars, a text printed above them, then lines in one colour.
#[test]
fn bars_of_rich_are_rows_until_the_cursor_is_shown_again() {
    const BARS: &[u8] = include_bytes!("../../tests/fixtures/progress/rich.out");
    for size in [7, 300, 9000] {
        let (lines, shown) = read(BARS, size);
        let words: Vec<String> = lines.iter().map(|line| line.replace(['━', '╸', '╺'], "")).collect();
        let wanted = [
            "half way there",
            "load   100% 0:00:00",
            "train  100% 0:00:00",
            "a warning",
            "that goes on",
            "over three lines end",
        ];
        assert_eq!(words, wanted, "in pieces of {size}");
        let both = |state: &&String| state.starts_with("load") && state.contains("\ntrain");
        assert!(size > 300 || shown.iter().filter(both).count() > 1, "{shown:#?}");
    }
}

#[test]
fn a_row_that_may_be_redrawn_is_held_back_for_a_while() {
    let mut rows = Rows::new(LIMIT, 0);
    rows.extend(b"plain", 0);
    rows.end_line(6, None);
    assert_eq!(rows.take_done().len(), 1, "nothing was written over");
    rows.extend(b"\r100%", 6);
    rows.end_line(12, None);
    assert!(rows.take_done().is_empty() && rows.holds());
    rows.release_old(Stamp(1_000_000));
    assert_eq!(rows.next_release(), Some(Stamp(1_250_000)));
    // a client that was stopped may not have read yet what came meanwhile
    rows.release_old(Stamp(9_000_000));
    assert_eq!((rows.take_done().len(), rows.next_release()), (0, Some(Stamp(9_250_000))));
    // and the clock may be set back
    rows.release_old(Stamp(2_000_000));
    rows.release_old(Stamp(2_200_000));
    assert_eq!((rows.take_done().len(), rows.next_release()), (0, Some(Stamp(2_250_000))));
    rows.release_old(Stamp(2_250_000));
    assert_eq!((rows.take_done().len(), rows.holds(), rows.is_empty()), (1, false, true));
    // and no longer than until a line that was not
    rows.extend(b"\r100%", 12);
    rows.end_line(18, None);
    rows.extend(b"plain", 18);
    rows.end_line(24, None);
    assert_eq!(rows.take_done().iter().map(|row| row.start).collect::<Vec<_>>(), [12, 18]);
}

/// Looks as often as it asks to, until it becomes lines or asks for nothing; gives when that was.
fn stand(rows: &mut Rows, from: i64) -> i64 {
    let mut now = Stamp(from);
    loop {
        rows.release_old(now);
        match rows.next_release() {
            Some(next) => now = next,
            None => return now.0,
        }
    }
}

/// The agent holds back the last bytes of what is printed where a secret value begins so.
#[test]
fn a_row_is_held_back_while_its_way_up_is_told_by_half() {
    let mut rows = Rows::new(LIMIT, 0);
    rows.extend(b"\router", 0);
    rows.end_line(7, None);
    rows.extend(b"\rinner\x1b[", 7);
    for second in 0..9 {
        rows.release_old(Stamp(second * 1_000_000));
    }
    assert_eq!(
        (rows.take_done().len(), rows.next_release(), rows.shown().0),
        (0, None, "outer\ninner".into())
    );
    rows.extend(b"A\router 2", 15);
    assert_eq!(rows.shown().0, "outer 2\ninner");
    // and no longer than a line takes
    rows.extend(b"\x1b[", 30);
    rows.end_line(33, None);
    assert_eq!(stand(&mut rows, 0), HOLD_US);
}

/// As a child does that draws bars and is killed: the rank itself goes on.
#[test]
fn rows_of_a_program_that_draws_no_more_are_held_back_for_five_seconds() {
    let frame = |rows: &mut Rows, offset: u64| {
        rows.extend(b"\x1b[Aone", offset);
        rows.end_line(offset + 7, None);
        rows.extend(b"two", offset + 7);
    };
    let mut rows = Rows::new(LIMIT, 0);
    rows.extend(b"\x1b[?25lone", 0);
    rows.end_line(10, None);
    rows.extend(b"two", 10);
    frame(&mut rows, 13);
    rows.release_old(Stamp(0));
    rows.release_old(Stamp(LOOK_US));
    frame(&mut rows, 23);
    assert_eq!(stand(&mut rows, LOOK_US), LOOK_US + STILL_US, "it has drawn");
    assert_eq!((rows.take_done().len(), rows.holds()), (1, false));
    // it goes on after a stall: its cursor is still hidden
    frame(&mut rows, 33);
    assert!(rows.take_done().is_empty() && rows.holds());
    assert_eq!(stand(&mut rows, 0), STILL_US);
    assert!(!rows.holds());
    // what comes behind it is a line at once
    rows.take_done();
    rows.end_line(43, None);
    rows.extend(b"plain", 43);
    rows.end_line(49, None);
    assert_eq!(rows.take_done().last().map(|row| row.text().0), Some("plain".to_owned()));
    // the clock was set back
    frame(&mut rows, 49);
    rows.extend(b"\x1b[?25l", 59);
    rows.release_old(Stamp(9 * STILL_US));
    assert_eq!(stand(&mut rows, 0), STILL_US);
    assert!(!rows.holds());
}

#[test]
fn what_stands_before_the_cursor_stays() {
    for (text, lines) in [
        ("ab\x1b[Jcd\n", &["abcd"][..]),
        ("ab\x1b[Bcd\n", &["abcd"]),
        ("ab\r\x1b[Jcd\n", &["cd"]),
        ("ab\x1b[Ecd\n", &["cd"]),
        ("one\r1\ntwo\x1b[A\x1b[Jnew\n", &["new"]),
        ("one\r1\ntwo\x1b[A\rnew\x1b[Jer\n", &["newer"]),
    ] {
        assert_eq!(read(text.as_bytes(), 3).0, lines, "{text:?}");
    }
}

#[test]
fn a_text_that_moves_the_cursor_and_is_no_bar_stays_as_it_was_printed() {
    let text = "alpha beta\x1b[A gamma\none\x1b[2A two\nA\x1b[10C B\nab\x1b[Kcd\nx\x1b[A\x1b[A\x1b[31my\nab\x1b[Bcd\n\
                ab\x1b[Jcd\nlast\x1b[A";
    for size in 1..9 {
        let mut rows = Rows::new(LIMIT, 0);
        let (mut offset, mut lines) = (0, Vec::new());
        for piece in text.as_bytes().chunks(size) {
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                let line = part.strip_suffix(b"\n");
                rows.extend(line.unwrap_or(part), offset);
                offset += part.len() as u64;
                if line.is_some() {
                    rows.end_line(offset, None);
                    let done = rows.take_done();
                    assert_eq!(done.len(), 1, "at once");
                    lines.extend(done);
                }
            }
        }
        rows.end(offset, None);
        lines.extend(rows.take_done());
        let lines: Vec<String> = lines.iter().map(|row| row.text().0).collect();
        assert_eq!(lines.join("\n"), text, "in pieces of {size}");
    }
}

#[test]
fn a_bar_that_waits_behind_its_way_up_holds_the_row_above() {
    let mut rows = Rows::new(LIMIT, 0);
    rows.extend(b"\router 1", 0);
    rows.end_line(9, None);
    rows.extend(b"\rinner 1\x1b[A", 9);
    rows.release_old(Stamp(0));
    rows.release_old(Stamp(9 * HOLD_US));
    assert!(rows.take_done().is_empty() && !rows.holds());
    rows.extend(b"\router 2", 20);
    assert_eq!(rows.shown().0, "outer 2\ninner 1");
}

#[test]
fn a_text_with_line_ends_of_windows_is_not_written_over() {
    assert_eq!(read(b"a\r\nb\r\n", 1).0, ["a", "b"]);
    let mut rows = Rows::new(LIMIT, 0);
    rows.extend(b"a\r", 0);
    rows.end_line(3, None);
    assert_eq!(rows.take_done().len(), 1);
}

proptest! {
    #[test]
    fn rows_are_bounded_and_do_not_depend_on_how_they_were_cut(
        parts in prop::collection::vec(prop::sample::select(vec![
            "a", "bc", "\r", "\n", "\u{1b}[A", "\u{1b}[2A", "\u{1b}[99A", "\u{1b}[B", "\u{1b}[J", "\u{1b}[K",
            "\u{1b}[?25l", "\u{1b}[?25h", "\u{1b}[31m", "\u{1b}", "[",
        ]), 0..60),
        size in 1usize..9,
    ) {
        let text = parts.concat();
        let (lines, shown) = read(text.as_bytes(), size);
        prop_assert_eq!(&read(text.as_bytes(), 1000).0, &lines);
        prop_assert!(shown.iter().all(|state| split(state).count() <= ROWS));
    }

    #[test]
    fn a_line_that_moves_no_cursor_is_never_lost(lines in prop::collection::vec("[a-c]{0,4}(\r[a-c]{1,3}){0,2}", 0..40)) {
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let wanted: Vec<&str> = lines.iter().map(|line| line.rsplit('\r').next().unwrap()).collect();
        prop_assert_eq!(read(text.as_bytes(), 5).0, wanted);
    }
}
