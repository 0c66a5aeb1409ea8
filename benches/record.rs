//! What a large recording costs, to write and to look at: `cargo bench --bench record [-- RANKS MINUTES [STEP_MS]]`, 512 ranks for an
//! hour in steps of 270 ms where nothing is said: 41 million phases, and a sample of 64 hosts of eight GPUs each second.
//!
//! What its first seconds cost a client that records them as they happen is measured first ([`at_pace`]): the recorder's own thread, and
//! all of the process. It is written to the temporary folder, opened as the Replay screen opens it, drawn, and looked at in random places. A second process
//! opens it, so that its memory is that of a replay alone; another two tell its report, the first and the second one of it.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    reason = "a program that prints figures, or why it has none"
)]

#[path = "../tests/it/common/world.rs"]
#[allow(dead_code, reason = "the builders of the tests, of which this needs a few")]
mod world;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use hvtui::clock::host_now;
use hvtui::domain::analysis::findings;
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::outcome::{RunEnd, RunOutcome};
use hvtui::domain::run::{RunStage, Slot};
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};
use hvtui::domain::waiting::Waiting;
use hvtui::record::{Player, Reader, Recorder, Writer, figures};
use hvtui::report::text;
use hvtui::tui::canvas::Caps;
use hvtui::tui::core::{Msg, Screen};
use hvtui::tui::screens::model::Model;
use hvtui::tui::screens::view::draw;
use hvtui::tui::screens::{update, update_all};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use world::{CLOCK_OFFSET, START, Story, busy, host, run_id};

const SIZE: (u16, u16) = (230, 60);
const GPUS: u32 = 8;
/// So much of the run is recorded as it happens.
const AT_PACE_US: i64 = 20_000_000;
const SEEKS: usize = 400;
/// Short moves that follow one to a random place.
const MOVES: usize = 8;
const MOVE_US: i64 = 5_000_000;
const LONGEST_US: u64 = 60_000_000;
/// Microseconds a phase of one step in all, in the order of [`Phase::ALL`], of a step of 270 ms.
const PHASES: [u32; 6] = [8_000, 80_000, 130_000, 20_000, 22_000, 10_000];

fn main() {
    let told: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [word, path] = told.as_slice() {
        let path = Path::new(path);
        match word.as_str() {
            "open" => return look(path),
            "report" => return report(path),
            _ => {}
        }
    }
    let number = |place: usize, usual: u32| -> u32 {
        told.get(place).map_or(usual, |word| word.parse().unwrap_or_else(|_| panic!("{word} is no number")))
    };
    let (ranks, minutes, step_ms) = (number(0, 512), number(1, 60), number(2, 270));
    let folder = std::env::temp_dir().join(format!("hvtui-bench-record.{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(run_id().as_str()).join("run.mcap");
    fs::create_dir(folder.join(run_id().as_str())).expect("a folder");
    write(&path, ranks, minutes, step_ms);
    at_pace(&path, &folder.join("pace").join(run_id().as_str()).join("run.mcap"));
    let client = folder.join("client").join(run_id().as_str()).join("run.mcap");
    record(&path, &client);
    let program = std::env::current_exe().expect("this program");
    let again = || {
        let mut command = Command::new(&program);
        // what hvtui sets itself
        command.env("MIMALLOC_PURGE_DELAY", "10");
        command
    };
    let ways = [
        ("opened as the client left it that recorded it", &client),
        // this one folds all of it, and leaves states to the next
        ("opened where no client left anything", &path),
        ("opened again", &path),
    ];
    for (way, path) in ways {
        println!("{way}");
        let looked = again().arg("open").arg(path).status().expect("this program again");
        assert!(looked.success(), "{looked}");
        println!("states     {:.1} MB", states(path) as f64 / 1e6);
    }
    for way in ["report, first", "report, again"] {
        println!("{way}");
        let before = states(&client);
        let told = again().arg("report").arg(&client).status().expect("this program again");
        assert!(told.success(), "{told}");
        println!("kept       {:.2} MB more", states(&client).saturating_sub(before) as f64 / 1e6);
    }
    fs::remove_dir_all(&folder).expect("the folder");
}

fn states(path: &Path) -> u64 {
    fs::metadata(path.with_file_name("run.mcap.states")).map_or(0, |about| about.len())
}

/// What it costs to record the first seconds at the pace at which they happened, with a chunk each second: in percent of a processor,
/// the recorder's thread alone, and the whole process, which hands it the events and keeps states.
fn at_pace(from: &Path, to: &Path) {
    let until = START.plus_micros(AT_PACE_US);
    let reader = Reader::open(from).expect("a recording");
    // decoded before: a client has the events
    let events: Vec<Envelope> = reader.envelopes(..until).collect::<Result<_, _>>().expect("events");
    let count = events.len();
    let process_us = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
    };
    let recorder = Recorder::start(to.to_owned(), || ()).expect("a recording");
    recorder.keep_states(Arc::default());
    let (begin, before) = (host_now().0, process_us());
    for envelope in events {
        let due_us = envelope.at.micros_since(START).max(0).unsigned_abs();
        let early_us = due_us.saturating_sub(host_now().0 - begin);
        if early_us > 0 {
            std::thread::sleep(Duration::from_micros(early_us));
        }
        recorder.send(envelope);
    }
    // the last chunk is written within a second
    std::thread::sleep(Duration::from_secs(2));
    let (took_us, all_us) = (host_now().0 - begin, process_us() - before);
    let status = recorder.status();
    assert_eq!((status.written, status.dropped), (count as u64, 0), "{status:?}");
    let percent = |us: u64| us as f64 * 100.0 / took_us as f64;
    println!(
        "at pace    {:.0} s, {:.0} events/s: {:.2} % of a processor (the process: {:.2} %), {:.2} µs an event (aim: 0.5 %)",
        took_us as f64 / 1e6,
        count as f64 * 1e6 / took_us as f64,
        percent(status.cpu_us),
        percent(all_us),
        status.cpu_us as f64 / count.max(1) as f64
    );
    assert_eq!(recorder.finish().expect("its end").dropped, 0);
}

/// Records it as a client does, which leaves states of it; not in the time that it took, but in that which the states take.
fn record(from: &Path, to: &Path) {
    let recorder = Recorder::start(to.to_owned(), || ()).expect("a recording");
    recorder.keep_states(Arc::default());
    for envelope in Reader::open(from).expect("a recording").envelopes(..) {
        while recorder.backlog().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        recorder.send(envelope.expect("an event"));
    }
    let mut before = u64::MAX;
    while before != states(to) {
        before = states(to);
        std::thread::sleep(Duration::from_secs(3));
    }
    assert_eq!(recorder.finish().expect("its end").dropped, 0);
}

/// Numbers that look random and are the same each time.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

fn write(path: &Path, ranks: u32, minutes: u32, step_ms: u32) {
    let names: Vec<&'static str> =
        (0..ranks.div_ceil(GPUS)).map(|number| &*format!("gpu-{number:03}").leak()).collect();
    let slots: Vec<(&str, Slot)> = (0..ranks)
        .map(|rank| {
            let (name, index) = (names[(rank / GPUS) as usize], rank % GPUS);
            (name, Slot::Gpu { index, uuid: world::uuid(name, index) })
        })
        .collect();
    // what the hosts tell: descriptions, and samples to choose from
    let mut story = Story::new(&names);
    for name in &names {
        story.gpu_host(name, GPUS);
    }
    let described = std::mem::take(&mut story.told);
    for variant in 0..16 {
        story.sample(names[0], 12.0, &[busy(90 + variant % 10, "li"); GPUS as usize]);
    }
    let samples: Vec<Event> = std::mem::take(&mut story.told).into_iter().map(|one| one.event).collect();

    let mut writer = Writer::new(BufWriter::new(File::create(path).expect("a file"))).expect("a recording");
    let (mut seq, mut spent, mut phases, mut steps) = (0, 0, 0_u64, 0_u64);
    let mut noise = Noise(7);
    let mut push = |batch: &mut Vec<(Stamp, Origin, Event)>| {
        let begin = host_now().0;
        for (at, origin, event) in batch.drain(..) {
            seq += 1;
            writer.push(Envelope { seq, at, origin, event }).expect("it is written");
        }
        spent += host_now().0 - begin;
    };
    let spec = world::spec(run_id(), "large", &slots, START);
    let run = Origin::Run(run_id());
    let stage = Event::StageEntered { stage: RunStage::Training, waiting_for: Waiting::all(Vec::new()) };
    let mut batch: Vec<_> = described.into_iter().map(|one| (START, one.origin, one.event)).collect();
    batch.push((START, run.clone(), Event::RunCreated { spec: Arc::new(spec) }));
    batch.push((START, run.clone(), stage));
    push(&mut batch);
    let end = START.plus_micros(i64::from(minutes) * 60_000_000);
    let (mut at, mut second) = (START, START);
    while at < end {
        steps += 1;
        let begin = at;
        at = at.plus_micros(i64::from(step_ms) * 1000);
        for rank in 0..ranks {
            let mut start_us = 0;
            let spans: Spans = Phase::ALL
                .into_iter()
                .zip(PHASES)
                .map(|(phase, usual)| {
                    let usual = u64::from(usual) * u64::from(step_ms) / 270;
                    let dur_us = (usual * 9 / 10 + noise.below(usual / 5)) as u32;
                    let span = PhaseSpan { phase, start_us, dur_us };
                    start_us += dur_us;
                    span
                })
                .collect();
            phases += spans.len() as u64;
            let start = HostTime((begin.0 - CLOCK_OFFSET) as u64 + noise.below(500));
            let loss = Some(2.0 / (1.0 + steps as f32 / 500.0));
            let timing = StepTiming {
                step: steps,
                start,
                dur_us: start_us,
                loss,
                samples: 32,
                spans,
                hidden_us: 9_000,
            };
            let origin = Origin::Rank(run_id(), Rank(rank));
            batch.push((at, origin, Event::StepDone { timing: Arc::new(timing) }));
        }
        while second < at {
            for (number, name) in names.iter().enumerate() {
                let sample = samples[(number + noise.below(4) as usize) % samples.len()].clone();
                batch.push((at, Origin::Host(host(name)), sample));
            }
            second = second.plus_micros(1_000_000);
        }
        push(&mut batch);
    }
    let outcome = RunOutcome::new(RunEnd::Finished, "done");
    batch.push((at, run, Event::RunEnded { outcome }));
    push(&mut batch);
    let begin = host_now().0;
    drop(writer.finish().expect("its end"));
    spent += host_now().0 - begin;
    let bytes = fs::metadata(path).expect("the file").len();
    println!("written    {ranks} ranks, {minutes} min, {steps} steps: {phases} phases, {seq} events");
    println!("append     {:.2} M phases/s", phases as f64 / spent as f64);
    println!("size       {:.0} MB, {:.2} B a phase", bytes as f64 / 1e6, bytes as f64 / phases as f64);
}

fn look(path: &Path) {
    let begin = host_now().0;
    let mut player = Player::open(path).expect("a recording");
    let opened = host_now().0;
    player.seek(player.state().end);
    let mut model = Model::replay(player.state(), START, 0);
    let _ = update(&mut model, Msg::Resize(SIZE.0, SIZE.1));
    model.ui.screen = Screen::Replay;
    model.ui.replay.open = true;
    let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
    let written = Cell::new(0);
    let mut show = |model: &mut Model, messages: Vec<Msg>| {
        let begin = host_now().0;
        let _ = update_all(model, messages);
        let taken = host_now().0;
        buffer.reset();
        draw(model, Caps::from_env(|_| None), &mut buffer);
        let drawn = host_now().0;
        written.set(buffer.content().iter().filter(|cell| cell.symbol() != " ").count());
        (taken - begin, drawn - taken)
    };
    // the first thing that is told, then all of it: how long each took, and the last frame alone
    let mut go = |model: &mut Model, player: &mut Player| {
        let begin = host_now().0;
        let mut first = None;
        loop {
            let playback = player.advance(Stamp(0));
            let state = Msg::Playback(player.state());
            if let Some(percent) = playback.reading {
                if let Some(world) = playback.glimpse {
                    show(model, vec![Msg::Glimpsed(world), state, Msg::ReadingOn(percent)]);
                    first = Some(host_now().0 - begin);
                }
                continue;
            }
            let mut messages: Vec<Msg> = playback.reset.map(Msg::Reset).into_iter().collect();
            messages.extend(playback.envelopes.into_iter().map(Msg::Replayed));
            messages.push(state);
            let (taken, drawn) = show(model, messages);
            let all = host_now().0 - begin;
            return (first.unwrap_or(all), all, taken, drawn);
        }
    };
    let (first, all, taken, drawn) = go(&mut model, &mut player);
    let ms = |us: u64| us as f64 / 1e3;
    let opening = opened - begin;
    println!(
        "first frame {:.0} ms, of which opened {:.0}; all of it {:.0} ms: the last frame taken in {:.1}, drawn {:.1}",
        ms(opening + first),
        ms(opening),
        ms(opening + all),
        ms(taken),
        ms(drawn)
    );
    println!("memory     {} MB now, {} MB at most", memory("VmRSS:"), memory("VmHWM:"));
    let state = player.state();
    let span = state.end.0.abs_diff(state.start.0);
    let mut noise = Noise(11);
    let (mut firsts, mut moves, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    let begin = host_now().0;
    // of the largest recordings fewer
    while moves.len() < SEEKS && host_now().0 - begin < LONGEST_US {
        player.seek(state.start.plus_micros(noise.below(span) as i64));
        let (first, all, _, drawn) = go(&mut model, &mut player);
        firsts.push(first);
        moves.push(all);
        frames.push(drawn);
    }
    println!("seek       {} of {}, until something is told", spread(&mut firsts), firsts.len());
    println!("           {}, until all of it is", spread(&mut moves));
    // of lanes without steps there are less than half as many
    println!(
        "frame      {} at {}×{}, {} cells of the last one written",
        spread(&mut frames),
        SIZE.0,
        SIZE.1,
        written.get()
    );
    let (mut backs, mut steps) = (Vec::new(), Vec::new());
    let begin = host_now().0;
    while backs.len() < SEEKS && host_now().0 - begin < LONGEST_US {
        player.seek(state.start.plus_micros(noise.below(span) as i64));
        go(&mut model, &mut player);
        for _ in 0..MOVES {
            player.seek(player.state().playhead.plus_micros(-MOVE_US));
            backs.push(go(&mut model, &mut player).1);
        }
        let begin = host_now().0;
        player.step(-1);
        go(&mut model, &mut player);
        steps.push(host_now().0 - begin);
    }
    println!("5 s back   {} of {}", spread(&mut backs), backs.len());
    println!("step back  {:.0} ms the first time, then {}", ms(steps.remove(0)), spread(&mut steps));
    println!("memory     {} MB now, {} MB at most", memory("VmRSS:"), memory("VmHWM:"));
}

/// What `hvtui report` takes until its text is there.
fn report(path: &Path) {
    let begin = host_now().0;
    let reader = figures::open(path).expect("a recording");
    let opened = host_now().0;
    let run = figures::whole(&reader, &mut |_| true).expect("a run").expect("its figures");
    let read = host_now().0;
    let words = text::render(&run, &findings(&run));
    let told = host_now().0;
    assert!(!words.is_empty());
    let ms = |from: u64, to: u64| (to - from) as f64 / 1e3;
    println!(
        "told       {:.0} ms: opened in {:.0}, its figures in {:.0}, its words in {:.0}",
        ms(begin, told),
        ms(begin, opened),
        ms(opened, read),
        ms(read, told)
    );
    println!("memory     {} MB now, {} MB at most", memory("VmRSS:"), memory("VmHWM:"));
}

fn spread(times: &mut [u64]) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)] as f64 / 1e3;
    format!("p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms", at(0.5), at(0.99), at(1.0))
}

/// A line of what the kernel says of this process, MB.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}
