//! What ranks print, by the real binary: progress bars, texts without a line end, colours; on a terminal, in a pipe, in the
//! recording and in the UI.

use std::path::PathBuf;
use std::process::Command;

use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::log_text::{last_state, plain};
use hvtui::domain::world::World;
use hvtui::record::Reader;

use super::common::in_time::OutputInTime;
use super::common::processes::{end_of, until, until_says};
use super::common::terminal::Terminal;
use super::local_runs::Person;

/// A bar in colour, twenty states a second until there is a file `end`, then its last one.
const BAR: &str = "import itertools, os, sys, time\n\
    for at in itertools.cycle(range(1, 40)):\n\
    \x20   over = os.path.exists('end') or not os.path.exists(os.environ['HOME'])\n\
    \x20   sys.stderr.write('\\r\\x1b[32mbar\\x1b[0m %d/40' % (40 if over else at))\n\
    \x20   sys.stderr.flush()\n\
    \x20   if over: break\n\
    \x20   time.sleep(0.05)\n\
    sys.stderr.write('\\n')\n";

/// Asks for a name, and goes on when there is a file of that name.
const ASKS: &str = "import os, time\n\
    print('\\x1b[1mname? \\x1b[0m', end='', flush=True)\n\
    while not os.path.exists('li') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n\
    print('li')\n\
    while not os.path.exists('end') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n";

fn recording(person: &Person) -> PathBuf {
    let runs = person.home().join(".local/state/hvtui/runs");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
    run.path().join("run.mcap")
}

/// Waits until the recording that is being written shows it.
fn until_recorded(person: &Person, what: &str, wanted: impl Fn(&Reader) -> bool) {
    let runs = person.home().join(".local/state/hvtui/runs");
    until(what, || {
        let mut there = std::fs::read_dir(&runs).ok().into_iter().flatten().flatten();
        let reader = there.next().and_then(|run| Reader::open(&run.path().join("run.mcap")).ok());
        reader.is_some_and(|reader| wanted(&reader))
    });
}

fn is_state(envelope: &Envelope) -> bool {
    matches!(envelope.event, Event::LogUnfinished { .. })
}

#[test]
fn a_bar_is_one_line_in_a_pipe_and_two_states_a_second_in_the_recording() {
    let person = Person::new(1);
    std::fs::write(person.home().join("bar.py"), BAR).unwrap();
    let child = person.hvtui(&["run", "-np", "1", "--", "python3", "bar.py"]).spawn().unwrap();
    until_recorded(&person, "three states", |reader| {
        reader.envelopes(..).filter(|envelope| envelope.as_ref().is_ok_and(is_state)).count() > 2
    });
    std::fs::write(person.home().join("end"), "").unwrap();
    let out = child.output_in_time().unwrap();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{err}");
    let shown: Vec<&str> = err.lines().filter(|line| line.contains("bar ")).collect();
    assert_eq!(shown, ["[0] bar 40/40"], "{err}");

    let reader = Reader::open(&recording(&person)).unwrap();
    let envelopes: Vec<Envelope> = reader.envelopes(..).map(Result::unwrap).collect();
    let states: Vec<_> = envelopes
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::LogUnfinished { line } => Some((envelope.at, plain(&line.text).into_owned())),
            _ => None,
        })
        .collect();
    let (first, last) = (states.first().expect("states").0, states.last().unwrap().0);
    let most = 2 + last.micros_since(first) / 450_000;
    assert!(states.len() > 2 && states.len() as i64 <= most, "{states:?}");
    assert!(states.iter().all(|(_, state)| state.starts_with("bar ")), "{states:?}");
    let line = envelopes.iter().find_map(|envelope| match &envelope.event {
        Event::LogPrinted { line } => Some(line),
        _ => None,
    });
    let line = line.expect("the whole line");
    assert_eq!(last_state(&line.text), "\u{1b}[32mbar\u{1b}[0m 40/40");
    assert!(line.t.is_some(), "its host saw it at once");
    // a replay shows the bar where it stood
    let mut world = World::default();
    let middle = envelopes.iter().position(|envelope| envelope.at == states[1].0).unwrap();
    envelopes[..=middle].iter().for_each(|envelope| world.apply(envelope));
    let run = world.runs.values().next().unwrap();
    let unfinished = |run: &hvtui::domain::world::RunState| -> Vec<String> {
        let lines = run.ranks[0].output.unfinished_lines();
        lines.map(|line| plain(&line.line.text).into_owned()).collect()
    };
    assert_eq!(unfinished(run), [states[1].1.clone()]);
    envelopes[middle + 1..].iter().for_each(|envelope| world.apply(envelope));
    assert!(unfinished(world.runs.values().next().unwrap()).is_empty());

    // the bytes are kept as they were printed
    let raw = String::from_utf8(person.run(&["logs", "last", "--rank", "0"]).stdout).unwrap();
    assert!(raw.starts_with("\r\u{1b}[32mbar\u{1b}[0m 1/40\r") && raw.ends_with(" 40/40\n"), "{raw:?}");
}

#[test]
fn a_text_without_a_line_end_is_shown_while_its_program_waits() {
    let person = Person::new(1);
    std::fs::write(person.home().join("asks.py"), ASKS).unwrap();
    let of_person = |args: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(args).current_dir(person.home()).env("HOME", person.home());
        command
    };
    let run = of_person(&["run", "-np", "1", "--", "python3", "asks.py"]);
    let Some(terminal) = Terminal::start(&run, 100, 20) else { return };
    terminal.wait("the question", |screen| screen.contains("[0] name?"));
    let Some(ui) = Terminal::start(&of_person(&[]), 120, 40) else { return };
    ui.wait("the hosts", |screen| screen.contains("here"));
    ui.press(&["r"]);
    ui.wait("the run", |screen| screen.contains("running"));
    ui.press(&["Enter"]);
    let screen = ui.wait("the question in the log", |screen| {
        screen.lines().skip_while(|line| !line.contains("─ log")).any(|line| line.contains("name?"))
    });
    assert!(!screen.contains('␛'), "{screen}");
    std::fs::write(person.home().join("li"), "").unwrap();
    let screen = terminal.wait("the answer", |screen| screen.contains("[0] name? li"));
    assert_eq!(screen.matches("name?").count(), 1, "{screen}");
    ui.wait("the whole line", |screen| screen.contains("name? li"));
    std::fs::write(person.home().join("end"), "").unwrap();
    terminal.wait("the end", |screen| screen.contains("[exit 0]"));
}

/// Writes what the real tqdm wrote for bars within a bar: up to where both are under way, and the rest when there is a file,
/// a pause later.
const NESTED: &str = "import os, sys, time\n\
    data = open(sys.argv[1], 'rb').read()\n\
    at = data.index(b'step: 100%', data.index(b'epoch:  33%'))\n\
    at = data.index(b'\\x1b[A', at) + 3\n\
    sys.stderr.buffer.write(data[:at]); sys.stderr.flush()\n\
    time.sleep(1.2)\n\
    while not os.path.exists('go') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n\
    sys.stderr.buffer.write(data[at:]); sys.stderr.flush()\n\
    while not os.path.exists('end') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n";

#[test]
fn bars_within_a_bar_move_in_rows_of_their_own_and_leave_their_last_states() {
    let person = Person::new(1);
    std::fs::write(person.home().join("nested.py"), NESTED).unwrap();
    let bytes = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/progress/tqdm-nested.err");
    let of_person = |args: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(args).current_dir(person.home()).env("HOME", person.home());
        command
    };
    // begins as the way up ends, which is therefore told late: that must not part the rows
    let mut run =
        of_person(&["run", "-np", "1", "--secret-env", "TOKEN", "--", "python3", "nested.py", bytes]);
    run.env("TOKEN", "A-secret-value");
    let Some(terminal) = Terminal::start(&run, 120, 30) else { return };
    // the row of steps stands below that of epochs
    let both = |screen: &str| {
        let rows: Vec<&str> = screen.lines().collect();
        rows.windows(2).any(|rows| rows[0].contains("epoch:  33%") && rows[1].contains("step: 100%"))
    };
    terminal.wait("both bars", both);
    let Some(ui) = Terminal::start(&of_person(&[]), 120, 40) else { return };
    ui.wait("the hosts", |screen| screen.contains("here"));
    ui.press(&["r"]);
    ui.wait("the run", |screen| screen.contains("running"));
    ui.press(&["Enter"]);
    ui.wait("both bars in the log", both);
    std::fs::write(person.home().join("go"), "").unwrap();
    let done = |screen: &str| {
        screen.contains("epoch: 100%") && screen.contains(" done") && !screen.contains("step:")
    };
    ui.wait("their end in the log", done);
    let screen = terminal.wait("their end", done);
    assert!(!screen.contains("read from the log"), "the bars tell it:\n{screen}");
    std::fs::write(person.home().join("end"), "").unwrap();
    terminal.wait("the end", |screen| screen.contains("[exit 0]"));

    let out = person.run(&["logs", "last", "--rank", "0"]);
    let printed = String::from_utf8(out.stdout).unwrap();
    let words: Vec<String> = printed
        .lines()
        .map(|line| plain(line).split('|').next().unwrap_or_default().trim_end().to_owned())
        .collect();
    let wanted = ["epoch 0: loss 1.000", "epoch 1: loss 0.500", "epoch 2: loss 0.333", "epoch: 100%", "done"];
    assert_eq!(words, wanted, "{printed:?}");
    assert!(!printed.contains("\u{1b}[A"), "no cursor is moved in a pipe: {printed:?}");
}

#[test]
fn tabs_stay_and_what_a_long_line_lacks_is_counted() {
    let person = Person::new(1);
    let script = "printf 'a\\tb\\n\\t\\tc\\n'; head -c 20000 /dev/zero | tr '\\0' x; echo END";
    let out = person.run(&["run", "-np", "1", "--", "sh", "-c", script]);
    let printed = String::from_utf8(out.stdout).unwrap();
    let logs = String::from_utf8(person.run(&["logs", "last"]).stdout).unwrap();
    for text in [printed, logs] {
        assert!(text.starts_with("[0] a\tb\n[0] \t\tc\n[0] xxx"), "{}", &text[..40]);
        assert!(text.ends_with("x … 3619 more bytes\n"), "{}", &text[text.len() - 40..]);
    }
}

#[test]
fn what_was_passed_over_is_read_from_the_hosts_when_it_is_asked_for() {
    let person = Person::new(1);
    let out = person.run(&["run", "--detach", "-np", "1", "--spool-cap", "64M", "--", "seq", "300000"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let attached = person.run(&["attach", "--tail", "last"]);
    let said = String::from_utf8_lossy(&attached.stderr).into_owned();
    assert!(said.contains("were passed over: hvtui logs --whole reads them from the host"), "{said}");
    let lines = |args: &[&str]| {
        let printed = String::from_utf8(person.run(args).stdout).unwrap();
        (printed.lines().count(), printed.lines().last().map(str::to_owned))
    };
    let (recorded, last) = lines(&["logs", "last", "--rank", "0"]);
    assert!(recorded < 300_000 && last.as_deref() == Some("300000"), "{recorded} {last:?}");
    assert_eq!(lines(&["logs", "--whole", "last", "--rank", "0"]), (300_000, Some("300000".to_owned())));
}

#[test]
fn what_a_rank_has_emptied_away_is_shown_where_it_is_recorded() {
    let person = Person::new(1);
    let script = "echo first; echo other >&2; until [ -e go ] || [ ! -e ~ ]; do sleep 0.01; done\n\
                  echo second > /dev/stdout; echo third";
    let run = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", script]).spawn().unwrap();
    let is_first =
        |envelope: &Envelope| matches!(&envelope.event, Event::LogPrinted { line } if line.text == "first");
    until_recorded(&person, "the first line", |reader| {
        reader.envelopes(..).any(|envelope| envelope.as_ref().is_ok_and(is_first))
    });
    std::fs::write(person.home().join("go"), "").unwrap();
    let out = run.output_in_time().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let shown = |args: &[&str]| {
        let out = person.run(args);
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let remark = "rank 0: … lines may be missing: > /dev/stdout empties the file, >> does not";
    for args in [&["logs", "last", "--rank", "0"][..], &["logs", "last", "--rank", "0", "--whole"]] {
        let (lines, said) = shown(args);
        assert!(said.contains(remark), "{args:?}: {said}");
        let printed: Vec<&str> = lines.lines().filter(|line| *line != "other").collect();
        assert_eq!(printed, ["first", "second", "third"], "{args:?}");
    }
    // the host itself has them no more
    std::fs::remove_dir_all(person.home().join(".local/state/hvtui/runs")).unwrap();
    let (lines, said) = shown(&["logs", "last", "--rank", "0", "--whole"]);
    assert!(!lines.contains("first") && lines.contains("second") && said.contains(remark), "{lines}{said}");
}

/// Prints a line and tells steps until there is a file, then prints another one.
const STEPS: &str = "import json, os, time\n\
    report = open(os.environ['HVTUI_REPORT'], 'a', buffering=1)\n\
    tell = lambda **what: report.write(json.dumps(what) + '\\n')\n\
    print('first', flush=True)\n\
    tell(kind='hello', job='x', total_steps=900)\n\
    step = 0\n\
    while not os.path.exists('go'):\n\
    \x20   step += 1\n\
    \x20   tell(kind='step', step=step, dur_us=20000, loss=0.5)\n\
    \x20   time.sleep(0.02)\n\
    print('second', flush=True)\n\
    while not os.path.exists('end') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n";

#[test]
fn progress_is_one_line_below_the_log_and_the_last_one_stays() {
    let person = Person::new(1);
    std::fs::write(person.home().join("steps.py"), STEPS).unwrap();
    let mut run = Command::new(crate::common::program::hvtui());
    run.args(["run", "-np", "1", "--", "python3", "steps.py"]);
    run.current_dir(person.home()).env("HOME", person.home());
    let Some(terminal) = Terminal::start(&run, 60, 30) else { return };
    let progress = |screen: &str| {
        let rows = screen.lines().filter(|row| row.starts_with("hvtui: step ")).map(str::to_owned);
        rows.collect::<Vec<_>>()
    };
    let below = |screen: &str, row: &str| {
        let rows: Vec<&str> = screen.lines().filter(|row| !row.is_empty()).collect();
        rows.ends_with(&[row, rows.last().copied().unwrap_or_default()]) && progress(screen).len() == 1
    };
    let one = terminal.wait("how far it is", |screen| progress(screen).len() == 1);
    let next = terminal.wait("how far it is then", |screen| progress(screen) != progress(&one));
    assert_eq!(progress(&next).len(), 1, "in one place:\n{next}");
    std::fs::write(person.home().join("go"), "").unwrap();
    terminal.wait("the line above it", |screen| below(screen, "[0] second"));
    std::fs::write(person.home().join("end"), "").unwrap();
    let end = terminal.wait("the end", |screen| screen.contains("[exit 0]"));
    assert_eq!(progress(&end).len(), 1, "the last one stays:\n{end}");
}

#[test]
fn a_text_that_moves_the_cursor_within_a_line_is_kept_byte_for_byte() {
    let person = Person::new(1);
    let text = "alpha beta\u{1b}[A gamma\none\u{1b}[2A two\nA\u{1b}[10C B\nab\u{1b}[Kcd\nlast\n";
    std::fs::write(person.home().join("text"), text).unwrap();
    let out = person.run(&["run", "-np", "1", "--", "cat", "text"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let shown = "[0] alpha beta gamma\n[0] one two\n[0] A B\n[0] abcd\n[0] last\n";
    assert_eq!(String::from_utf8_lossy(&out.stdout), shown);
    let logs = person.run(&["logs", "last", "--rank", "0"]);
    assert_eq!(String::from_utf8_lossy(&logs.stdout), text);
}

/// Where each chunk of a recording begins, and how long it is: records of MCAP are a kind, a length and that many bytes.
fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
    const MAGIC: usize = 8;
    const HEAD: usize = 9;
    let (mut at, mut found) = (MAGIC, Vec::new());
    while at + HEAD + MAGIC <= bytes.len() {
        let length = u64::from_le_bytes(bytes[at + 1..at + HEAD].try_into().unwrap()) as usize + HEAD;
        if bytes[at] == 6 {
            found.push((at, length));
        }
        at += length;
    }
    found
}

#[test]
fn a_recording_without_its_beginning_shows_the_lines_it_has() {
    let person = Person::new(1);
    // its beginning, its lines and its end lie in chunks of their own
    let script = "until [ -e go-1 ]; do sleep 0.05; done; echo first; until [ -e go-2 ]; do sleep 0.05; done; echo second; \
                  until [ -e go-3 ]; do sleep 0.05; done";
    let child = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", script]).spawn().unwrap();
    for lines in 0..3 {
        until_recorded(&person, "its lines", |reader| {
            reader.spec().is_some() && reader.log(None).count() == lines
        });
        std::fs::write(person.home().join(format!("go-{}", lines + 1)), "").unwrap();
    }
    let out = child.output_in_time().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let file = recording(&person);
    let mut bytes = std::fs::read(&file).unwrap();
    let chunks = chunks(&bytes);
    let ((first, length), (last, _)) = (chunks[0], *chunks.last().unwrap());
    bytes[first + length / 2..first + length].fill(0);
    bytes.truncate(last + 20);
    std::fs::write(&file, &bytes).unwrap();
    let reader = Reader::open(&file).unwrap();
    assert!(reader.spec().is_none() && reader.outcome().is_none());
    for (rank, lines) in [(None, "[0] first\n[0] second\n"), (Some("0"), "first\nsecond\n")] {
        let of_rank = rank.map(|rank| ["--rank", rank]);
        let args: Vec<&str> = ["logs", "last"].into_iter().chain(of_rank.into_iter().flatten()).collect();
        let out = person.run(&args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{err}");
        assert_eq!(String::from_utf8_lossy(&out.stdout), lines);
        assert!(err.contains("the beginning of its recording is missing"), "{err}");
    }
}

/// A bar that is wiped while its program goes on.
const WIPED: &str = "import os, sys, time\n\
    print('a line', flush=True)\n\
    sys.stderr.write('\\rbar 1/2'); sys.stderr.flush()\n\
    while not os.path.exists('go') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n\
    sys.stderr.write('\\r       \\r'); sys.stderr.flush()\n\
    while not os.path.exists('end') and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n";

#[test]
fn a_bar_that_is_wiped_leaves_no_label_behind() {
    let person = Person::new(1);
    std::fs::write(person.home().join("wiped.py"), WIPED).unwrap();
    let out = person.run(&["run", "--detach", "-np", "1", "--", "python3", "wiped.py"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut logs = Command::new(crate::common::program::hvtui());
    logs.args(["logs", "-f", "last"]).current_dir(person.home()).env("HOME", person.home());
    let Some(terminal) = Terminal::start(&logs, 80, 20) else { return };
    terminal.wait("the bar", |screen| screen.contains("[0] a line") && screen.contains("[0] bar 1/2"));
    std::fs::write(person.home().join("go"), "").unwrap();
    let wiped = |screen: &str| !screen.contains("bar") && screen.matches("[0]").count() == 1;
    terminal.wait("no bar and no label", wiped);
    std::fs::write(person.home().join("end"), "").unwrap();
    terminal.wait("the end", |screen| screen.contains("[exit 0]"));
}

/// Five lines, a bar that stands still, and a line beside it.
const BESIDE: &str = "import os, sys, time\n\
    for number in range(5): print(f'line {number}', flush=True)\n\
    sys.stderr.write('\\rbar 1/2'); sys.stderr.flush()\n\
    def wait(name):\n\
    \x20   while not os.path.exists(name) and os.path.exists(os.environ['HOME']): time.sleep(0.01)\n\
    wait('go')\n\
    print('later', flush=True)\n\
    wait('end')\n";

#[test]
fn a_bar_stays_below_the_lines_that_are_printed_beside_it() {
    let bar_below = |line: &str, screen: &str| screen.contains(&format!("[0] {line}\n[0] bar 1/2"));
    let person = Person::new(1);
    let file = |name: &str| person.home().join(name);
    std::fs::write(file("beside.py"), BESIDE).unwrap();
    let job = ["-np", "1", "--", "python3", "beside.py"];
    let out = person.run(&[&["run", "--detach"], &job[..]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let hvtui = |args: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(args).current_dir(person.home()).env("HOME", person.home());
        Terminal::start(&command, 80, 20)
    };
    let Some(logs) = hvtui(&["logs", "-f", "--tail", "2", "last"]) else { return };
    let screen = logs.wait("two lines and the bar", |screen| bar_below("line 4", screen));
    assert!(screen.contains("[0] line 3\n") && !screen.contains("line 2"), "{screen}");
    std::fs::write(file("go"), "").unwrap();
    logs.wait("the bar below the next line", |screen| bar_below("later", screen));
    std::fs::write(file("end"), "").unwrap();
    logs.wait("the end", |screen| screen.contains("[exit 0]"));
    for name in ["go", "end"] {
        std::fs::remove_file(file(name)).unwrap();
    }
    let run = hvtui(&[&["run"], &job[..]].concat()).expect("as before");
    run.wait("the bar", |screen| bar_below("line 4", screen));
    std::fs::write(file("go"), "").unwrap();
    run.wait("the bar below the next line", |screen| bar_below("later", screen));
    std::fs::write(file("end"), "").unwrap();
    run.wait("the end", |screen| screen.contains("[exit 0]"));
}

#[test]
fn a_prompt_that_ends_as_a_secret_value_begins_is_shown() {
    let person = Person::new(1);
    let script =
        "printf 'a line\nContinue? h'; while [ ! -e end ] && [ -e ~ ]; do sleep 0.01; done; echo unter2";
    let mut run = Command::new(crate::common::program::hvtui());
    run.args(["run", "-np", "1", "--secret-env", "TOKEN", "--", "sh", "-c", script]);
    run.current_dir(person.home()).env("HOME", person.home()).env("TOKEN", "hunter2hunter2");
    let Some(terminal) = Terminal::start(&run, 80, 20) else { return };
    terminal.wait("the whole prompt", |screen| screen.contains("[0] Continue? h\n"));
    std::fs::write(person.home().join("end"), "").unwrap();
    let end = terminal.wait("the end", |screen| screen.contains("[exit 0]"));
    assert!(end.contains("[0] Continue? hunter2\n"), "{end}");
}

/// Prints by the names of its streams, as scripts do: each time that empties the file behind the name. It goes on behind a line when
/// there is a file of the line's name.
const BY_NAME: &str = "shown() { until [ -e line-$1 ] || [ ! -e ~ ]; do sleep 0.01; done; }\n\
    echo line-a; shown a; echo line-b > /dev/stdout; shown b; echo line-c; shown c\n\
    echo line-d > /dev/stderr; shown d; echo line-e >&2; shown e\n\
    echo line-f > /dev/stderr; shown f; echo line-g > /dev/stderr; echo line-h >> /dev/stderr; exit 0";

#[test]
fn what_a_script_prints_by_the_names_of_its_streams_is_shown_once() {
    let person = Person::new(1);
    let output = person.home().join("output");
    let said = || String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned();
    let file = std::fs::File::create(&output).unwrap();
    let mut run = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", BY_NAME]);
    let mut run = run.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    for line in ["a", "b", "c", "d", "e", "f"] {
        // what was read before the file is emptied is not lost
        until_says(&format!("[0] line-{line}\n"), said);
        std::fs::write(person.home().join(format!("line-{line}")), "").unwrap();
    }
    let shown = (end_of(&mut run), said());
    let logs = person.run(&["logs", "last"]);
    let logged = [logs.stdout, logs.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    for (what, (status, said)) in [("run", shown), ("logs", (logs.status, logged.concat()))] {
        assert!(status.success(), "{what}: {said}");
        for line in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let line = format!("[0] line-{line}\n");
            assert_eq!(said.matches(&line).count(), 1, "{what}, {line}: {said}");
        }
        // what had been printed before may have come or not
        assert_eq!(said.matches("lines may be missing: > /dev/stdout empties the file").count(), 1, "{said}");
        assert!(said.contains("lines of stderr may be missing: > /dev/stderr empties the file"), "{said}");
    }
}

#[test]
fn a_rank_whose_child_floods_its_output_ends_though_values_are_looked_for_in_it() {
    let person = Person::new(1);
    let mut run =
        person.hvtui(&["run", "-np", "1", "--secret-env", "TOKEN", "--", "sh", "-c", "yes & exit 0"]);
    run.env("TOKEN", "hunter2hunter2").stdout(std::process::Stdio::null());
    let out = run.output_in_time().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_log_of_a_replay_goes_back_to_its_first_line() {
    let person = Person::new(1);
    let ended = person.run(&["run", "-np", "1", "--", "seq", "-f", "line %.0f.", "25000"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(["replay", "last"]).current_dir(person.home()).env("HOME", person.home());
    let Some(replay) = Terminal::start(&command, 120, 40) else { return };
    let at_the_end = replay.wait("the last line", |screen| screen.contains("line 25000."));
    assert!(at_the_end.contains("older lines: scroll up"), "{at_the_end}");
    replay.press(&["Tab"]);
    let top = |screen: &str| -> Option<u32> {
        let numbers = screen.split("line ").skip(1).filter_map(|rest| rest.split_once('.')?.0.parse().ok());
        numbers.min()
    };
    let mut oldest = 25_000;
    while oldest > 1 {
        // to the oldest line in memory, and beyond
        replay.press(&["g"]);
        replay.press(&["PPage"]);
        let screen = replay.wait("older lines", |screen| top(screen).is_some_and(|number| number < oldest));
        oldest = top(&screen).unwrap();
    }
    replay.press(&["q"]);
    replay.assert_restored(0);
}
