//! The screens of a replay as an asciicast: played, they are the screens.

use serde_json::Value;

use super::write;
use crate::common::world::training;
use crate::marks::{good, hvtui};

/// What a terminal shows that has been given these bytes: text, places and clearing, without colours.
struct Shown {
    columns: usize,
    cells: Vec<Vec<char>>,
    at: (usize, usize),
}

impl Shown {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, cells: vec![vec![' '; columns]; rows], at: (0, 0) }
    }

    fn take(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(escaped) = rest.strip_prefix("\u{1b}[") {
                let end = escaped.find(|c: char| c.is_ascii_alphabetic()).expect("a whole sequence");
                self.control(&escaped[..end], &escaped[end..=end]);
                rest = &escaped[end + 1..];
                continue;
            }
            assert!(!c.is_control(), "{c:?}");
            self.cells[self.at.1][self.at.0] = c;
            self.at.0 += 1;
            assert!(self.at.0 <= self.columns);
            rest = &rest[c.len_utf8()..];
        }
    }

    fn control(&mut self, parameters: &str, command: &str) {
        let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1_usize));
        match command {
            "H" => {
                let row = numbers.next().unwrap_or(1) - 1;
                self.at = (numbers.next().unwrap_or(1) - 1, row);
            }
            "J" => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            "m" => {}
            other => panic!("{parameters}{other}"),
        }
    }

    fn screen(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }
}

#[test]
fn the_screens_of_a_replay_are_an_asciicast() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write(&here.join("a.mcap"), &training().told);
    good(here, &["runs", "mark", "a.mcap", "loader slow", "--at", "1.5"]);
    let export = |more: &[&str]| {
        let cast = good(here, &[&["export", "a.mcap", "--to", "asciicast"], more].concat());
        cast.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let lines = export(&["--screens=100x30"]);
    assert_eq!(
        (&lines[0]["version"], &lines[0]["term"]["cols"], &lines[0]["term"]["rows"]),
        (&3.into(), &100.into(), &30.into())
    );
    let mut terminal = Shown::new(100, 30);
    let (mut clock, mut screens, mut markers) = (0.0, Vec::new(), Vec::new());
    for event in &lines[1..] {
        clock += event[0].as_f64().unwrap();
        match event[1].as_str().unwrap() {
            "o" => {
                terminal.take(event[2].as_str().unwrap());
                screens.push((clock, terminal.screen()));
            }
            "m" => markers.push((clock, event[2].as_str().unwrap())),
            code => assert_eq!(code, "x"),
        }
    }
    let (length, last) = screens.last().unwrap();
    assert!(screens.len() > 20 && *length > 2.0, "{} in {length}", screens.len());
    assert!(last.contains("Replay") && last.contains("─ timeline") && last.contains("rank 3!"), "{last}");
    assert!(screens[0].1.contains("+00:00"), "it begins at the beginning: {}", screens[0].1);
    let (at, words) = markers[0];
    assert!((at - 1.5_f64).abs() < 0.001 && words.contains("loader slow"), "{at} {words}");
    // what the screen tells as an incident is one too, at its moment and once
    let [(at, words)] = markers[1..] else { panic!("{markers:?}") };
    assert!((1.5..*length).contains(&at) && words.contains("rank 3"), "{at} {words}");
    let told = screens.iter().find(|(_, screen)| screen.contains("is a straggler")).unwrap().0;
    // the verdict names it a little before it is an incident
    assert!((told..told + 1.0).contains(&at), "{at} {told}");

    // a part of it, on the usual size
    let part = export(&["--screens", "--from", "1", "--to-time", "2"]);
    assert_eq!(part[0]["term"]["cols"], 120);
    let clock: f64 = part[1..].iter().map(|event| event[0].as_f64().unwrap()).sum();
    assert!(clock <= 1.001, "{clock}");
    let steps = export(&["--screens", "--steps", "10-20"]);
    let mut terminal = Shown::new(120, 36);
    let mut first = None;
    for event in steps[1..].iter().filter(|event| event[1] == "o") {
        terminal.take(event[2].as_str().unwrap());
        first.get_or_insert_with(|| terminal.screen());
    }
    assert!(first.unwrap().contains("step 9/"), "{steps:?}");
    assert!(terminal.screen().contains("step 20/"), "{}", terminal.screen());
    let cut = hvtui(here, &["export", "a.mcap", "--to", "asciicast", "--screens", "--max-events", "3"]);
    assert!(String::from_utf8_lossy(&cut.stderr).contains("cut after 3 events"), "{cut:?}");
    assert!(String::from_utf8_lossy(&cut.stdout).lines().count() <= 5, "{cut:?}");
    for (args, words) in [
        (["--to", "asciicast", "--screens=9x9"], "write columns and rows as 120x36"),
        (["--to", "csv", "--screens"], "--screens is for --to asciicast"),
    ] {
        let refused = hvtui(here, &[&["export", "a.mcap"][..], &args].concat());
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(64) && told.contains(words), "{told}");
    }
}
