//! What each fuzz target does with its bytes: everything here eats what comes from outside, and must give an
//! answer or an error, never a panic, and never more memory than its limits allow.
//!
//! The same functions run over the small corpus in `cargo test` (`tests/it/fuzz_corpus.rs`).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::BytesMut;
use flate2::Crc;
use hvtui::cluster::ingress::{Ingress, Verdict};
use hvtui::cluster::lines::RankFiles;
use hvtui::domain::collectives::{dump, ras};
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::filter::{CompletionValues, Filter, LENGTH_MAX, complete};
use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::log::Stream;
use hvtui::domain::marks::{LONGEST_NOTE, MOST_MARKS, MarkChange, NewMark};
use hvtui::domain::nccl_log::{NcclFacts, parse as parse_nccl};
use hvtui::domain::options::RunOptions;
use hvtui::domain::progress_reader::{ProgressReader, Update};
use hvtui::domain::run::{JobKind, Placement, RunSpec, RunStage, Slot};
use hvtui::domain::stacks::{script_line, threads};
use hvtui::domain::text::sanitize;
use hvtui::domain::time::Stamp;
use hvtui::domain::waiting::Waiting;
use hvtui::domain::world::World;
use hvtui::record::export::kernels::{self, Part};
use hvtui::record::import::{Asked, Place, import};
use hvtui::record::{Player, Reader, Writer, marks};
use hvtui::ssh::HostKey;
use hvtui::ssh::config::{Question, understand};
use hvtui::ssh::known_hosts::{HostName, KnownHosts};
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::state::times_file;
use hvtui::supervise::times::moments;
use hvtui::sync::manifest::Manifest;
use hvtui::wire::frame::Decoder;
use hvtui::wire::message::{Credit, Follow, FromAgent, ListRuns, ToAgent};
use hvtui::worker::mnist::{Kind, MnistError, read_idx, read_npy, read_npz};

/// Bytes of a hostile peer. The first byte says how they are cut into pieces. What can be read can be written, and
/// is then read as the same again.
pub(crate) fn frames(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let mut decoder = Decoder::default();
    for piece in data.chunks(usize::from(*cut) + 1) {
        decoder.push(piece);
        loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return,
            };
            if let Ok(Some(message)) = ToAgent::decode(&frame) {
                let again = reread(|out| message.encode(out).is_ok(), |frame| ToAgent::decode(frame).ok());
                assert_eq!(again, Some(Some(message)));
            }
            if let Ok(Some(message)) = FromAgent::decode(&frame) {
                // A number may be NaN, which is not equal to itself: only that it can be read is asked for.
                assert!(
                    reread(|out| message.encode(out).is_ok(), |frame| FromAgent::decode(frame).ok())
                        .is_some()
                );
            }
        }
    }
}

/// Bytes of a hostile agent, from its hello on, to a client that follows a run. What is admitted is within its bounds. Returns how
/// many frames were.
pub(crate) fn agent_ingress(data: &[u8]) -> usize {
    let mut ingress = Ingress::default();
    ingress.begin();
    ingress.greeted();
    ingress.sent(&ToAgent::Credit(Credit { until: 64 << 10 }));
    ingress.sent(&ToAgent::ListRuns(ListRuns::default()));
    ingress.sent(&ToAgent::Follow(Follow {
        run: RunId::new(1, 1),
        host: HostId::from("a"),
        from: Vec::new(),
        once: false,
        last: None,
        hurry: false,
        patience_s: None,
        attempt: None,
        stop: None,
        samples_us: None,
        steps_by: Vec::new(),
    }));
    let mut decoder = Decoder::default();
    decoder.push(data);
    let (mut admitted, mut files) = (0, 0);
    while let Ok(Some(frame)) = decoder.next_frame() {
        let now = Stamp(admitted * 1000);
        let message = match ingress.admit(now, &frame) {
            Verdict::Admitted(message) => message,
            Verdict::Dropped => continue,
            Verdict::Refused(why) => {
                assert!(!why.is_empty());
                break;
            }
        };
        admitted += 1;
        match &message {
            FromAgent::Chunk(chunk) => files += chunk.data.len(),
            FromAgent::PastSamples(past) => {
                files += past.data.len();
                // each stands behind its length and its time
                assert!(past.samples().len() <= past.data.len() / 12);
            }
            FromAgent::Sample(sampled) => assert!(sampled.sample.gpus.len() <= 128),
            FromAgent::Noted(noted) => assert!(noted.note.text.chars().count() <= 2000),
            FromAgent::Runs(runs) => assert!(runs.shares.len() <= 1024),
            _ => {}
        }
        assert!(files <= 80 << 10, "{files} bytes of files");
    }
    usize::try_from(admitted).unwrap_or_default()
}

/// A dump of torch's flight recorder that a rank has written, or an answer of NCCL's RAS. What is told of it is bounded.
pub(crate) fn collectives(data: &[u8]) {
    if let Ok(dump) = dump::read(data) {
        assert!(dump.groups.len() <= 32 && dump.groups.iter().all(|group| group.calls.len() <= 18));
    }
    if let Some(answer) = ras::read(&String::from_utf8_lossy(data)) {
        assert!(answer.differences.len() <= 16 && answer.silent.len() <= 16);
        let _ = answer.words(8);
    }
}

/// A list of files that a client sends, or that lies beside a folder. What can be read is written the same, and names nothing
/// outside its folder.
pub(crate) fn manifest(data: &[u8]) {
    let Ok(manifest) = Manifest::decode(data) else { return };
    assert_eq!(manifest.encode().as_bytes(), data);
    for entry in manifest.entries() {
        assert!(
            !entry.path.starts_with('/') && !entry.path.split('/').any(|name| name == ".."),
            "{}",
            entry.path
        );
    }
}

fn reread<T>(
    write: impl FnOnce(&mut BytesMut) -> bool,
    read: impl FnOnce(&hvtui::wire::frame::Frame) -> Option<T>,
) -> Option<T> {
    let mut out = BytesMut::new();
    assert!(write(&mut out), "what was read can be written");
    let mut decoder = Decoder::default();
    decoder.push(&out);
    read(&decoder.next_frame().ok()??)
}

/// A file of known host keys, judged for names of every form.
pub(crate) fn known_hosts(data: &[u8]) {
    static KEY: OnceLock<HostKey> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        HostKey::from_openssh(include_str!("../fixtures/ssh/ed25519-a.pub").trim()).expect("a good key")
    });
    let mut known = KnownHosts::default();
    known.add(Path::new("known_hosts"), &String::from_utf8_lossy(data));
    for (address, port) in [("gpu-a", 22), ("gpu-a", 2222), ("10.0.0.1", 22), ("fe80::1%eth0", 22), ("", 0)] {
        let name = HostName::new(address, port);
        let _ = known.judge(&name, key);
        let _ = known.kinds(&name);
    }
}

/// A hosts file. An error must be printable too.
pub(crate) fn hosts_toml(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if let Err(error) = hvtui::config::parse(Path::new("hosts.toml"), text, Path::new("/home/li")) {
        assert!(!error.to_string().is_empty());
    }
}

/// An ssh configuration, asked about names of every form. What is said of it can be printed.
pub(crate) fn ssh_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for (name, user, port) in
        [("gpu-a", None, None), ("GPU.lan", Some("ml"), Some(2222)), ("::1", None, Some(22))]
    {
        let question = Question { name, user, port, local_user: "li" };
        let settings = understand(&text, question, Path::new("/home/li"));
        let needs = settings.needs.iter().map(|need| &need.note);
        for note in settings.notes.iter().chain(needs) {
            assert!(!note.to_string().chars().any(char::is_control), "{note}");
        }
        assert!(settings.identities.iter().all(|path| path.is_absolute()));
    }
}

/// A stranger's recording: the bytes as a whole file, and as the inside of a chunk whose checksum is left out, which
/// is how deep a mutation can get. Returns how many events were read in all.
pub(crate) fn recording(data: &[u8]) -> usize {
    let whole = read_recording(data);
    whole + read_recording(&recording_with(data.len() as u64, &stored(data)))
}

/// A recording of one chunk that says how many bytes are packed in it; without a checksum.
pub(crate) fn recording_with(unpacked: u64, packed: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::new();
    for number in [0u64, u64::MAX, unpacked] {
        chunk.extend_from_slice(&number.to_le_bytes());
    }
    chunk.extend_from_slice(&0u32.to_le_bytes());
    chunk.extend_from_slice(b"\x04\0\0\0zstd");
    chunk.extend_from_slice(&(packed.len() as u64).to_le_bytes());
    chunk.extend_from_slice(packed);
    let mut file = recording_head().to_vec();
    file.push(0x06);
    file.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
    file.extend_from_slice(&chunk);
    file
}

/// A zstd frame whose blocks hold the data as it is (RFC 8878, 3.1.1.2: raw blocks of at most 128 KiB).
pub(crate) fn stored(data: &[u8]) -> Vec<u8> {
    let mut frame = b"\x28\xb5\x2f\xfd\xa0".to_vec();
    frame.extend_from_slice(&(data.len() as u32).to_le_bytes());
    let mut blocks = data.chunks(128 << 10).peekable();
    while let Some(block) = blocks.next() {
        let head = (block.len() as u32) << 3 | u32::from(blocks.peek().is_none());
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

fn read_recording(bytes: &[u8]) -> usize {
    let mut file = tempfile();
    file.0.write_all(bytes).expect("write to memory");
    let Ok(reader) = Reader::open(Path::new(&file.1)) else { return 0 };
    let read = reader.envelopes(..).take(100_000).take_while(Result::is_ok).count();
    let _ = reader.log(None).take(100_000).count();
    read
}

/// What stands before the first chunk.
fn recording_head() -> &'static [u8] {
    static HEAD: OnceLock<Vec<u8>> = OnceLock::new();
    HEAD.get_or_init(|| {
        let mut head = Vec::new();
        drop(Writer::new(&mut head).expect("a writer"));
        // What follows the metadata record is written when a writer is dropped: cut there.
        let mut at = 8;
        for _ in 0..2 {
            let length: [u8; 8] = head[at + 1..at + 9].try_into().expect("a record");
            at += 9 + usize::try_from(u64::from_le_bytes(length)).expect("a length");
        }
        head.truncate(at);
        head
    })
}

/// A file in memory with a path.
fn tempfile() -> (std::fs::File, String) {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("hvtui-fuzz-{}-{number}", std::process::id()));
    let file = std::fs::File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
    let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    std::fs::remove_file(&path).expect("remove the name");
    (file, descriptor)
}

/// What ranks print: nothing that drives a terminal passes, and lines don't depend on how the bytes were cut.
pub(crate) fn log_text(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    let clean = sanitize(&text);
    assert!(!clean.chars().any(char::is_control), "{clean:?}");
    for stream in Stream::ALL {
        let whole = lines(stream, data, data.len().max(1));
        let pieces = lines(stream, data, usize::from(*cut) + 1);
        assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
    }
}

fn lines(stream: Stream, data: &[u8], piece: usize) -> Vec<Event> {
    let mut files = RankFiles::default();
    let mut offset = 0;
    let mut told = Vec::new();
    for piece in data.chunks(piece) {
        told.extend(files.push(Rank(0), stream, offset, piece));
        offset += piece.len() as u64;
    }
    told.extend(files.finish(Rank(0)));
    // of several progress bars in one piece the newest is told
    let events = told.into_iter().map(|told| told.event);
    events.filter(|event| !matches!(event, Event::StepSeen { .. })).collect()
}

/// A rank's report file. What it tells does not depend on how its bytes were cut, and what is said of a run that has
/// been told it drives no terminal.
pub(crate) fn reports(data: &[u8]) -> usize {
    let Some((cut, data)) = data.split_first() else { return 0 };
    let read = |piece: usize| {
        let mut files = RankFiles::default();
        let mut told = Vec::new();
        let mut offset = 0;
        for piece in data.chunks(piece) {
            told.extend(files.push(Rank(0), Stream::Report, offset, piece));
            offset += piece.len() as u64;
        }
        told.extend(files.finish(Rank(0)));
        told
    };
    let told = read(data.len().max(1));
    assert_eq!(format!("{told:?}"), format!("{:?}", read(usize::from(*cut) + 1)));
    let run = RunId::new(1, 1);
    let mut world = World::default();
    let training = Event::StageEntered { stage: RunStage::Training, waiting_for: Waiting::default() };
    let first = [Event::RunCreated { spec: Arc::new(run_of_one(run.clone())) }, training];
    let first = first.into_iter().map(|event| (Origin::Run(run.clone()), event));
    let count = told.len();
    let told = told.into_iter().map(|told| match told.worker {
        None => (Origin::Rank(run.clone(), Rank(0)), told.event),
        Some(worker) => (Origin::Worker(run.clone(), Rank(0), worker), told.event),
    });
    for (seq, (origin, event)) in (0..).zip(first.chain(told)) {
        world.apply(&Envelope { seq, at: Stamp(seq as i64), origin, event });
    }
    let run = world.runs.get(&run).expect("a run");
    let words = run.steps_words().into_iter().chain(run.collectives_words().into_iter().flatten());
    for words in words {
        assert!(!words.chars().any(char::is_control), "{words:?}");
    }
    count
}

fn run_of_one(id: RunId) -> RunSpec {
    let slot = Slot::Cpu { index: 0 };
    let place = Placement { rank: Rank(0), host: HostId::from("a"), local_rank: 0, slot, more: Vec::new() };
    RunSpec {
        code: None,
        id,
        name: "train".to_owned(),
        kind: JobKind::Plain,
        command: vec!["true".to_owned()],
        env: BTreeMap::new(),
        workdir: None,
        placements: vec![place],
        created: Stamp(0),
        options: RunOptions::default(),
    }
}

/// Progress bars and the like. How far a rank is does not depend on how its output was cut, and never falls while the
/// same is counted. Whether anything was recognised.
pub(crate) fn progress(data: &[u8]) -> bool {
    let Some((cut, data)) = data.split_first() else { return false };
    let mut whole = ProgressReader::default();
    whole.push(Stream::Stderr, data);
    let mut reader = ProgressReader::default();
    let mut last: Option<Update> = None;
    for piece in data.chunks(usize::from(*cut) + 1) {
        let Some(update) = reader.push(Stream::Stderr, piece) else { continue };
        if let Some(last) = last.filter(|last| (last.sure, last.counts) == (update.sure, update.counts)) {
            assert!(last.at <= update.at, "{last:?}, then {update:?}");
        }
        let _ = update.total_steps();
        last = Some(update);
    }
    assert_eq!(format!("{:?}", whole.latest()), format!("{:?}", reader.latest()));
    last.is_some()
}

/// What `NCCL_DEBUG=INFO` prints. Whether there is anything to say of it.
pub(crate) fn nccl_log(data: &[u8]) -> bool {
    let mut facts = NcclFacts::default();
    for line in String::from_utf8_lossy(data).lines() {
        assert!(!facts.push(line) || parse_nccl(line).is_some(), "{line:?}");
    }
    let sentence = facts.sentence();
    if let Some(sentence) = &sentence {
        assert!(!sentence.chars().any(char::is_control), "{sentence:?}");
    }
    sentence.is_some()
}

/// The stacks that a signal has `faulthandler` write. Whether there is a frame.
pub(crate) fn stacks(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let threads = threads(&text);
    for thread in &threads {
        let _ = script_line(thread);
        thread.frames.iter().for_each(|frame| drop(frame.place()));
    }
    let frames: usize = threads.iter().map(|thread| thread.frames.len()).sum();
    assert!(frames <= text.lines().count());
    frames > 0
}

/// A filter as it is typed. What can be read is written, and read as the same again; what can't is pointed at in the text.
/// Whether it could be read.
pub(crate) fn filter(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let known = CompletionValues::default();
    for cursor in [0, text.len() / 2, text.len()] {
        if let Some(completion) = complete(&text, cursor, &known) {
            assert!(text.get(completion.at).is_some() && !completion.options.is_empty());
        }
    }
    match Filter::parse(&text) {
        Ok(filter) => {
            let written = filter.to_string();
            // Signs are set apart, so that the longest ones no longer fit.
            if written.len() <= LENGTH_MAX {
                assert_eq!(Filter::parse(&written).as_ref(), Ok(&filter), "{written}");
            }
            true
        }
        Err(error) => {
            assert!(text.get(error.at.clone()).is_some() && !error.reason.is_empty(), "{error:?}");
            let (before, width) = error.columns(&text);
            assert!(width > 0 && before <= text.len());
            false
        }
    }
}

/// A data set of images. The first byte says as which of its files. Whether it could be read.
pub(crate) fn mnist(data: &[u8]) -> bool {
    let Some((form, mut data)) = data.split_first() else { return false };
    let (path, len) = (Path::new("mnist"), data.len() as u64);
    let kind = if form & 1 == 0 { Kind::Images } else { Kind::Labels };
    let read = match form >> 1 {
        0 => read_npz(path, std::io::Cursor::new(data)).map(|_| 0),
        1 => read_idx(path, kind, len, data).map(|bytes| bytes.len()),
        // An array alone: within an .npz the checksum keeps mutations out.
        _ => read_npy("mnist", kind, len, &mut data).map(|bytes| bytes.len()),
    };
    match read {
        Ok(bytes) => assert!(bytes as u64 <= len * 1032, "more than deflate can hold"),
        Err(MnistError::Damaged { place, reason }) => {
            assert!(place.starts_with("mnist") && !reason.is_empty());
            assert!(reason.len() < 300 && !reason.chars().any(char::is_control), "{reason:?}");
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    true
}

/// A file of another program, whatever it is: a run is made of it, or it is refused with words.
pub(crate) fn imports(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace");
    std::fs::write(&file, data).expect("a file");
    let to = folder.path().join("run.mcap");
    let asked = Asked {
        files: std::slice::from_ref(&file),
        name: None,
        step: None,
        place: Place::File(&to),
        now: Stamp(1_700_000_000_000_000),
        random: 7,
    };
    match import(&asked) {
        Ok(imported) => {
            let reader = Reader::open(&to).expect("what was imported can be read");
            assert!(reader.envelopes(..).all(|envelope| envelope.is_ok()));
            assert!(imported.told_ranks <= imported.ranks.max(1));
        }
        Err(error) => assert!(!error.to_string().is_empty() && !to.exists(), "{error}"),
    }
}

/// A file of marks beside a recording. What can be read can be changed, and is then read as it was changed. Whether it could be read.
pub(crate) fn marks(data: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("run.mcap");
    std::fs::write(marks::path_of(&recording), data).expect("a file");
    let read = match marks::read(&recording) {
        Ok(read) => read,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(read.all().len() <= MOST_MARKS);
    let is_note = |note: &str| note.chars().count() <= LONGEST_NOTE && !note.chars().any(char::is_control);
    assert!(read.all().iter().all(|mark| is_note(&mark.note)));
    let add = MarkChange::Add(NewMark { at: Stamp(1), step: None, rank: None, note: "seen".to_owned() });
    match marks::change(&recording, &add) {
        Ok(changed) => {
            assert!(changed.all().iter().any(|mark| mark.note == "seen"));
            let again = marks::read(&recording).expect("what was written");
            assert_eq!(format!("{:?}", again.all()), format!("{:?}", changed.all()));
        }
        Err(error) => {
            let left = marks::read(&recording).expect("as before");
            assert_eq!(format!("{:?}", left.all()), format!("{:?}", read.all()), "{error}");
        }
    }
    true
}

/// The file that notes how a rank's output grew, as it is and behind a good beginning. What is told of it is no more than it holds, in
/// the order of the output. How many moments were told.
pub(crate) fn times(data: &[u8]) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = RunDir::create(folder.path(), &RunId::new(1, 1), &HostId::from("a")).expect("a run's folder");
    let file = dir.path().join(times_file(Rank(0)));
    let mut count = 0;
    for begin in [Vec::new(), times_head()] {
        std::fs::write(&file, [&begin, data].concat()).expect("a file");
        for stream in Stream::ALL {
            for (from, to) in [(0, u64::MAX), (150, 1_000), (u64::MAX - 1, u64::MAX)] {
                let told = moments(&dir, Rank(0), stream, from, to);
                assert!(told.len() <= (begin.len() + data.len()) / 24);
                assert!(told.is_sorted_by(|(before, _), (after, _)| before < after), "{told:?}");
                assert!(told.first().is_none_or(|(length, _)| *length > from));
                count += told.len();
            }
        }
    }
    count
}

/// What stands before the first note, of this boot.
fn times_head() -> Vec<u8> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("/proc");
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).expect("a boot");
    [&b"hvtimes1"[..], &boot.to_be_bytes()].concat()
}

/// A kernel trace that a rank has written, by itself and beside a good one: one trace comes of them that can be read, or it is refused
/// with words. How many events it has.
pub(crate) fn kernel_traces(data: &[u8]) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let part = |name: &str, bytes: &[u8], shift_us| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        Part { path, name: name.to_owned(), pid: 42, shift_us }
    };
    let (other, good) = (part("other", data, None), part("good", GOOD_TRACE.as_bytes(), Some(-2_000_000)));
    let mut events = 0;
    for parts in [vec![other.clone()], vec![good.clone(), other.clone()], vec![other, good]] {
        let mut merged = Vec::new();
        match kernels::merge(&parts, &mut merged) {
            Ok(count) => {
                let whole: serde_json::Value = serde_json::from_slice(&merged).expect("JSON");
                let all = whole["traceEvents"].as_array().expect("a list");
                assert_eq!(all.len() as u64, count);
                assert!(all.iter().all(serde_json::Value::is_object));
                let is_placed = |event: &&serde_json::Value| event["name"] == "gemm of the good one";
                assert_eq!(all.iter().filter(is_placed).count() >= 1, parts.len() > 1);
                events += count;
            }
            Err(error) => assert!(error.to_string().starts_with("kernel trace of other: "), "{error}"),
        }
    }
    events
}

const GOOD_TRACE: &str = r#"{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
    {"ph": "X", "cat": "kernel", "name": "gemm of the good one", "pid": 0, "tid": 7, "ts": 4530.25, "dur": 3}]}"#;

/// What lies beside a recording, by the first byte: records behind the one that names this program, where chunks lie, a state of the
/// run, what a record is about. Nothing of the first and last is believed, and none of them harms. How many events there were.
pub(crate) fn states(data: &[u8]) -> usize {
    static KEPT: OnceLock<Mutex<Kept>> = OnceLock::new();
    let Some((form, data)) = data.split_first() else { return 0 };
    let kept = KEPT.get_or_init(|| Mutex::new(Kept::new())).lock().unwrap_or_else(PoisonError::into_inner);
    let mut bytes = kept.head.clone();
    match form % 4 {
        0 => bytes.extend_from_slice(data),
        1 => put(&mut bytes, &kept.index, &stored(data)),
        2 => put(&mut bytes, &kept.state, &stored(data)),
        _ => put(&mut bytes, data, &[]),
    }
    std::fs::write(&kept.states, &bytes).expect("a file");
    let Ok(mut player) = Player::open(&kept.recording) else { return 0 };
    player.seek(player.state().end);
    let mut world = None;
    for now in 0..1_000 {
        let told = player.advance(Stamp(now));
        world = told.reset.or(world);
        if told.reading.is_none() {
            break;
        }
    }
    if matches!(form % 4, 0 | 3) {
        assert!(world.is_some_and(|world| *world == kept.world), "it is believed");
    }
    let Ok(reader) = Reader::open(&kept.recording) else { return 0 };
    reader.envelopes(..).take(200_000).flatten().count()
}

/// A recording where hvtui puts them, with what is kept beside it.
struct Kept {
    _folder: tempfile::TempDir,
    recording: std::path::PathBuf,
    states: std::path::PathBuf,
    /// What the file begins with that is kept there.
    head: Vec<u8>,
    /// What the records are about that tell where the chunks lie, and of a state.
    index: Vec<u8>,
    state: Vec<u8>,
    /// The run at its end.
    world: World,
}

impl Kept {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunId::new(1, 1);
        let recording = folder.path().join(run.as_str()).join("run.mcap");
        std::fs::create_dir(recording.parent().expect("a folder")).expect("a folder");
        let mut writer = Writer::new(std::fs::File::create(&recording).expect("a file")).expect("a writer");
        let created = Event::RunCreated { spec: Arc::new(run_of_one(run.clone())) };
        writer
            .push(Envelope { seq: 0, at: Stamp(0), origin: Origin::Run(run.clone()), event: created })
            .expect("a file");
        // many, so that a state of them is kept, and such that they take their place, so that where they lie is
        let mut random = 7_u64;
        for seq in 1..85_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let event =
                Event::MetricReported { name: "loss".to_owned(), value: random as f64, step: Some(random) };
            let origin = Origin::Rank(run.clone(), Rank(0));
            writer.push(Envelope { seq, at: Stamp(seq as i64 * 1_000), origin, event }).expect("a file");
        }
        writer.finish().expect("a file");
        let states = recording.with_file_name("run.mcap.states");
        let mut player = Player::open(&recording).expect("a recording");
        player.seek(player.state().end);
        let mut world = None;
        while world.is_none() {
            world = player.advance(Stamp(0)).reset;
        }
        drop(player);
        let bytes = std::fs::read(&states).expect("what is kept");
        let records = records(&bytes);
        let about = |kind: &[u8]| {
            let of_kind = |head: &&&[u8]| head.windows(kind.len()).any(|part| part == kind);
            let heads: Vec<&[u8]> = records.iter().map(|(head, ..)| *head).collect();
            heads.iter().find(of_kind).expect("a record").to_vec()
        };
        let (_, _, end) = records[0];
        let (head, index, state) = (bytes[..end].to_vec(), about(b"Index"), about(b"State"));
        Self { _folder: folder, recording, states, head, index, state, world: *world.expect("a world") }
    }
}

/// The records of a file of states: their heads, their data, and where they end.
fn records(bytes: &[u8]) -> Vec<(&[u8], &[u8], usize)> {
    let (mut at, mut found) = (16, Vec::new());
    while at + 16 <= bytes.len() {
        let number = |place: usize| {
            let number: [u8; 4] = bytes[at + place * 4..][..4].try_into().expect("four bytes");
            u32::from_le_bytes(number) as usize
        };
        let (head, data) = (at + 16, at + 16 + number(0));
        at = data + number(1);
        found.push((&bytes[head..data], &bytes[data..at], at));
    }
    found
}

fn put(to: &mut Vec<u8>, head: &[u8], data: &[u8]) {
    let crc = |bytes: &[u8]| {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc.sum()
    };
    for number in [head.len() as u32, data.len() as u32, crc(head), crc(data)] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(head);
    to.extend_from_slice(data);
}
