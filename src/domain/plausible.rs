//! What a host may say of itself: values that no machine has become failed readings, lists and names are bounded. A
//! host is a stranger until proven otherwise, and so is a recording. Knows nothing of screens.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::Event;
use super::gpu::topology::Topology;
use super::gpu::{Field, GpuInfo, GpuProcess, GpuSample, Number, Reading, mig};
use super::host::{HostInfo, HostSample};
use super::ids::GpuUuid;
use super::lease::Leases;
use super::log::UNFINISHED_BYTES;
use super::log_text;
use super::signal::{MOST_PROCESSES, SignalAnswer};
use super::time::Stamp;

/// GPUs of one host.
pub(crate) const GPUS: usize = 128;
/// Processes of one GPU, addresses of one host, words about throttling.
const LIST: usize = 256;
/// Characters of a name or a word.
const NAME: usize = 256;
/// Characters of a command line or an explanation.
const TEXT: usize = 4096;
/// Bytes of memory, bytes a second: a pebibyte.
const BYTES: u64 = 1 << 50;
/// Seconds of a process: a century.
const AGE_S: u64 = 3_200_000_000;
/// CPUs of one host.
const CPUS: u32 = 1 << 16;

/// Events of a host's GPUs in a minute.
const GPU_EVENTS_A_MINUTE: usize = 120;

/// Takes out of an event of a host what can't be: asked once of each, where it comes in.
pub fn bound_event(event: &mut Event) {
    match event {
        Event::HostDescribed { info } => bound_info(Arc::make_mut(info)),
        Event::HostSampled { sample } => bound_sample(Arc::make_mut(sample)),
        Event::LeasesTold { leases } => bound_leases(leases),
        Event::GpuHappened { event } => bound_uuid(&mut event.uuid),
        Event::LogUnfinished { line } if line.text.len() > UNFINISHED_BYTES => {
            let line = Arc::make_mut(line);
            let end = log_text::floor_boundary(&line.text, UNFINISHED_BYTES);
            line.elided = line.elided.saturating_add((line.text.len() - end) as u64);
            line.text.truncate(end);
        }
        _ => {}
    }
}

/// The same for a sentence of a host.
pub fn bound_text(text: &mut String) {
    cut(text, TEXT);
}

/// The same for what a host says of a signal.
pub fn bound_signal(answer: &mut SignalAnswer) {
    match answer {
        SignalAnswer::Found { processes, note } => {
            processes.truncate(MOST_PROCESSES);
            for process in processes {
                cut_reading(&mut process.user, NAME);
                cut_reading(&mut process.command, TEXT);
                process.refusal.iter_mut().for_each(|refusal| cut(refusal, TEXT));
            }
            if let Some(note) = note {
                cut(note, TEXT);
            }
        }
        SignalAnswer::Sent { processes } => {
            processes.truncate(MOST_PROCESSES);
            processes
                .iter_mut()
                .filter_map(|one| one.refusal.as_mut())
                .for_each(|refusal| cut(refusal, TEXT));
        }
        SignalAnswer::Refused { reason } => cut(reason, TEXT),
    }
}

/// How much a host may tell of what happens to its GPUs: so many events a minute, and the others as a number.
#[derive(Debug, Default)]
pub struct GpuEventBudget {
    /// When the minute began.
    since: Option<Stamp>,
    taken: usize,
    dropped: u64,
}

impl GpuEventBudget {
    /// How many of `count` events that came at `now` are taken in.
    pub fn take(&mut self, now: Stamp, count: usize) -> usize {
        if self.is_over(now) {
            (self.since, self.taken) = (Some(now), 0);
        }
        let allowed = count.min(GPU_EVENTS_A_MINUTE.saturating_sub(self.taken));
        self.taken += allowed;
        self.dropped = self.dropped.saturating_add((count - allowed) as u64);
        allowed
    }

    /// How many were dropped in a minute that is over at `now`; told once.
    pub fn due(&mut self, now: Stamp) -> u64 {
        if self.is_over(now) { self.rest() } else { 0 }
    }

    /// How many were dropped and not told yet, where no more will come; told once.
    pub fn rest(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn is_over(&self, now: Stamp) -> bool {
        self.since.is_none_or(|since| !(0.0..60.0).contains(&now.seconds_since(since)))
    }
}

/// The same for the name of a GPU.
pub fn bound_uuid(uuid: &mut GpuUuid) {
    if uuid.as_str().chars().nth(NAME).is_some() {
        *uuid = GpuUuid::from(uuid.as_str().chars().take(NAME).collect::<String>());
    }
}

/// The same for a host's facts.
pub fn bound_info(info: &mut HostInfo) {
    for text in [&mut info.hostname, &mut info.kernel, &mut info.arch, &mut info.user, &mut info.boot_id] {
        cut(text, NAME);
    }
    cut(&mut info.agent_version, NAME);
    info.cpus = info.cpus.min(CPUS);
    bound(&mut info.memory_total, BYTES, "bytes");
    info.addresses.truncate(LIST);
    info.addresses.iter_mut().for_each(|one| cut(&mut one.interface, NAME));
    info.gpus.truncate(GPUS);
    info.gpus.iter_mut().for_each(gpu);
    let whole: BTreeSet<u32> = mig::whole(&info.gpus).map(|gpu| gpu.index).collect();
    for slice in &mut info.gpus {
        slice.parent = slice.parent.filter(|gpu| whole.contains(gpu) && mig::gpu_of(slice.index) == *gpu);
    }
    if let Some(absence) = &mut info.gpu_absence {
        cut(&mut absence.detail, TEXT);
    }
    for reading in [&mut info.driver, &mut info.cuda_driver, &mut info.nccl] {
        cut_reading(reading, NAME);
    }
    if let Some(topology) = &mut info.topology {
        bound_topology(topology, whole.len());
    }
}

/// A row and a column for each GPU, and no more.
fn bound_topology(topology: &mut Topology, gpus: usize) {
    topology.paths.truncate(gpus);
    topology.paths.iter_mut().for_each(|row| row.truncate(gpus));
    topology.affinity.truncate(gpus);
    for cpus in topology.affinity.iter_mut().filter_map(|near| near.cpus.as_mut()) {
        cut(cpus, NAME);
    }
}

/// The same for a telemetry sample.
pub fn bound_sample(sample: &mut HostSample) {
    bound(&mut sample.cpu_percent, 100.0, "percent");
    bound(&mut sample.memory_used, BYTES, "bytes");
    if let Some(load) = sample.load.value()
        && !load.iter().all(|average| (0.0..1e6).contains(average))
    {
        sample.load = Reading::failed(format!("no load averages: {load:?}"));
    }
    bound(&mut sample.net_rx, BYTES, "bytes a second");
    bound(&mut sample.net_tx, BYTES, "bytes a second");
    sample.gpus.truncate(GPUS);
    sample.gpus.iter_mut().for_each(gpu_sample);
}

/// The same for leases: one a GPU, and a queue that a person can read.
pub fn bound_leases(leases: &mut Leases) {
    leases.held.truncate(GPUS);
    leases.beside.truncate(GPUS);
    for lease in leases.held.iter_mut().chain(&mut leases.beside) {
        for text in [&mut lease.user, &mut lease.name, &mut lease.command].into_iter().flatten() {
            cut(text, NAME);
        }
    }
    leases.queue.truncate(LIST);
    for ticket in &mut leases.queue {
        cut(&mut ticket.user, NAME);
        cut(&mut ticket.name, NAME);
        ticket.gpus.truncate(GPUS);
    }
    if let Some(fault) = &mut leases.fault {
        cut(fault, TEXT);
    }
}

fn gpu(gpu: &mut GpuInfo) {
    bound_uuid(&mut gpu.uuid);
    cut(&mut gpu.name, NAME);
    cut_reading(&mut gpu.pci, NAME);
    bound_all(gpu, GpuInfo::NUMBERS);
}

fn gpu_sample(gpu: &mut GpuSample) {
    bound_all(gpu, GpuSample::NUMBERS);
    if let Reading::Value(words) = &mut gpu.throttle {
        words.truncate(LIST);
        for word in words {
            cut(word, NAME);
        }
    }
    if let Reading::Value(processes) = &mut gpu.processes {
        processes.truncate(LIST);
        processes.iter_mut().for_each(process);
        // a list that was read off JSON has room for four, and most GPUs have one process
        processes.shrink_to_fit();
    }
}

fn process(process: &mut GpuProcess) {
    cut_reading(&mut process.user, NAME);
    cut_reading(&mut process.command, TEXT);
    bound(&mut process.memory, BYTES, "bytes");
    bound(&mut process.sm_percent, 100, "percent");
    bound(&mut process.age_s, AGE_S, "s");
    if let Reading::Failed { error } = &mut process.start_ticks {
        cut(error, TEXT);
    }
    if let Some(container) = &mut process.container {
        cut(container, NAME);
    }
}

/// The same for each number of a GPU, by its table.
fn bound_all<T>(of: &mut T, fields: &[Field<T>]) {
    for field in fields {
        if let Number::Value(value) = (field.get)(of)
            && value > field.most
        {
            (field.set)(of, Reading::failed(format!("the host says {value} {}", field.unit)));
        }
    }
}

/// A value below zero, above `most`, or none at all becomes a failure that names it.
fn bound<T: PartialOrd + Default + std::fmt::Display>(reading: &mut Reading<T>, most: T, unit: &str) {
    if let Reading::Value(value) = reading
        && !(T::default()..=most).contains(value)
    {
        *reading = Reading::failed(format!("the host says {value} {unit}"));
    }
}

fn cut_reading(reading: &mut Reading<String>, most: usize) {
    if let Reading::Value(text) | Reading::Failed { error: text } = reading {
        cut(text, most);
    }
}

fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::{GpuAbsence, GpuAbsenceReason, InterfaceAddress};
    use super::super::ids::RunId;
    use super::super::lease::{Lease, Ticket};
    use super::super::signal::{FoundProcess, ProcessKey, Signalled};
    use super::*;
    use crate::domain::gpu::topology::{Affinity, Path};

    #[test]
    fn what_cannot_be_is_a_failure_and_never_a_number() {
        let mut reading = Reading::Value(101);
        bound(&mut reading, 100, "percent");
        assert_eq!(reading, Reading::failed("the host says 101 percent"));
        for value in [f32::NAN, -1.0, f32::INFINITY] {
            let mut reading = Reading::Value(value);
            bound(&mut reading, 100.0, "percent");
            assert_eq!(reading.value(), None, "{value}");
        }
        let mut reading = Reading::Value(100);
        bound(&mut reading, 100, "percent");
        assert_eq!(reading, Reading::Value(100));
    }

    #[test]
    fn each_number_of_a_gpu_has_its_bound() {
        for field in GpuSample::NUMBERS {
            let mut gpu = GpuSample::unknown(0);
            (field.set)(&mut gpu, Reading::Value(field.most));
            gpu_sample(&mut gpu);
            assert_eq!((field.get)(&gpu), Number::Value(field.most), "{}", field.name);
            if field.most < field.largest {
                (field.set)(&mut gpu, Reading::Value(field.most + 1));
                gpu_sample(&mut gpu);
                assert!(matches!((field.get)(&gpu), Number::Failed(_)), "{}", field.name);
            }
        }
    }

    #[test]
    fn an_unfinished_line_is_cut_between_characters() {
        use crate::domain::ids::Rank;
        use crate::domain::log::{LogLine, Stream};
        let text = "é".repeat(UNFINISHED_BYTES);
        let line = LogLine { rank: Rank(0), stream: Stream::Stdout, offset: 0, text, elided: 7, t: None };
        let mut event = Event::LogUnfinished { line: Arc::new(line) };
        bound_event(&mut event);
        let Event::LogUnfinished { line } = event else { panic!("another event") };
        assert_eq!((line.text.len(), line.elided), (UNFINISHED_BYTES, 7 + UNFINISHED_BYTES as u64));
        let mut event = Event::LogUnfinished { line: line.clone() };
        bound_event(&mut event);
        let Event::LogUnfinished { line: after } = event else { panic!("another event") };
        assert!(Arc::ptr_eq(&line, &after), "so much may be shown: it is not even copied");
    }

    #[test]
    fn the_gpu_of_an_event_has_a_name_of_a_possible_length() {
        use crate::domain::gpu::event::{GpuEvent, Happening};
        let uuid = GpuUuid::from("G".repeat(NAME + 9));
        let event = GpuEvent { index: 0, uuid, what: Happening::Xid { xid: 79 }, count: 1, t: None };
        let mut event = Event::GpuHappened { event };
        bound_event(&mut event);
        let Event::GpuHappened { event } = event else { panic!("another event") };
        assert_eq!(event.uuid.as_str().len(), NAME);
    }

    #[test]
    fn a_process_says_no_more_than_one_can_be() {
        let mut told = GpuProcess {
            sm_percent: Reading::Value(101),
            age_s: Reading::Value(u64::MAX),
            start_ticks: Reading::failed("x".repeat(TEXT + 9)),
            container: Some("x".repeat(NAME + 9)),
            ..GpuProcess::unknown(1)
        };
        process(&mut told);
        assert_eq!(told.sm_percent, Reading::failed("the host says 101 percent"));
        assert!(matches!(told.age_s, Reading::Failed { .. }));
        assert!(matches!(told.start_ticks, Reading::Failed { error } if error.chars().count() == TEXT + 1));
        assert_eq!(told.container.unwrap().chars().count(), NAME + 1);
    }

    #[test]
    fn an_answer_about_a_signal_is_bounded() {
        let found = FoundProcess {
            key: ProcessKey { pid: 1, start: 1 },
            user: Reading::Value("x".repeat(NAME + 9)),
            command: Reading::Value("x".repeat(TEXT + 9)),
            refusal: Some("x".repeat(TEXT + 9)),
        };
        let note = Some("x".repeat(TEXT + 9));
        let mut answer = SignalAnswer::Found { processes: vec![found; MOST_PROCESSES + 1], note };
        bound_signal(&mut answer);
        let SignalAnswer::Found { processes, note } = answer else { panic!("another answer") };
        assert_eq!((processes.len(), note.unwrap().chars().count()), (MOST_PROCESSES, TEXT + 1));
        let told = &processes[0];
        let lengths = [told.user.value(), told.command.value(), told.refusal.as_ref()];
        assert_eq!(lengths.map(|text| text.unwrap().chars().count()), [NAME + 1, TEXT + 1, TEXT + 1]);
        let sent = Signalled { key: told.key, refusal: Some("x".repeat(TEXT + 9)) };
        let mut answer = SignalAnswer::Sent { processes: vec![sent; MOST_PROCESSES + 1] };
        bound_signal(&mut answer);
        let SignalAnswer::Sent { processes } = answer else { panic!("another answer") };
        assert_eq!(processes.len(), MOST_PROCESSES);
        assert_eq!(processes[0].refusal.as_ref().unwrap().chars().count(), TEXT + 1);
    }

    #[test]
    fn a_flood_of_events_is_taken_in_a_minute_at_a_time_and_the_rest_is_counted() {
        let at = |seconds: i64| Stamp(seconds * 1_000_000);
        let mut budget = GpuEventBudget::default();
        assert_eq!(budget.take(at(0), 100), 100);
        assert_eq!(budget.take(at(1), 100), 20);
        assert_eq!(budget.take(at(59), 1_000), 0);
        assert_eq!(budget.due(at(59)), 0, "the minute goes on");
        assert_eq!(budget.due(at(60)), 1_080, "without another event");
        assert_eq!(budget.due(at(61)), 0, "once");
        assert_eq!(budget.take(at(60), 1), 1);
        assert_eq!(budget.take(at(61), 119), 119);
        assert_eq!(budget.take(at(30), 7), 7, "a clock that is set back blocks nothing");
        assert_eq!(budget.take(at(31), 120), 113);
        assert_eq!((budget.due(at(32)), budget.rest(), budget.rest()), (0, 7, 0), "a link that ends");
    }

    #[test]
    fn a_matrix_has_a_row_and_a_column_for_each_gpu() {
        let near = Affinity { cpus: Some("0,".repeat(NAME)), numa_node: Some(0) };
        let mut topology = Topology { paths: vec![vec![Path::Own; 9]; 9], affinity: vec![near; 9] };
        bound_topology(&mut topology, 2);
        assert_eq!(topology.paths, vec![vec![Path::Own; 2]; 2]);
        assert_eq!(topology.affinity.len(), 2);
        assert!(topology.affinity[0].cpus.as_ref().unwrap().chars().count() <= NAME + 1);
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let mut text = "ä".repeat(NAME + 1);
        cut(&mut text, NAME);
        assert_eq!(text, "ä".repeat(NAME) + "…");
    }

    /// A host that says too much of everything.
    fn boaster() -> HostInfo {
        let long = || "x".repeat(TEXT + 9);
        let gpu = |index| GpuInfo {
            uuid: GpuUuid::from(long()),
            name: long(),
            pci: Reading::Value(long()),
            ..GpuInfo::unknown(index)
        };
        let near = Affinity { cpus: Some(long()), numa_node: None };
        HostInfo {
            hostname: long(),
            kernel: long(),
            arch: long(),
            user: long(),
            cpus: CPUS + 1,
            memory_total: Reading::Value(BYTES + 1),
            boot_id: long(),
            agent_version: long(),
            agent_build: None,
            banner: None,
            login: None,
            addresses: vec![InterfaceAddress { interface: long(), address: [10, 0, 0, 1].into() }; LIST + 1],
            ssh_server_address: None,
            ssh_client_address: None,
            gpus: (0..=GPUS as u32).map(gpu).collect(),
            gpu_absence: Some(GpuAbsence { reason: GpuAbsenceReason::Other, detail: long() }),
            driver: Reading::Value(long()),
            cuda_driver: Reading::failed(long()),
            nccl: Reading::Value(long()),
            topology: Some(Topology { paths: vec![vec![Path::Own; 999]; 999], affinity: vec![near; 999] }),
        }
    }

    #[test]
    fn what_a_host_says_of_itself_is_bounded() {
        let mut event = Event::HostDescribed { info: Arc::new(boaster()) };
        bound_event(&mut event);
        let Event::HostDescribed { info } = event else { panic!("another event") };
        let size = |text: &str| text.chars().count();
        for text in [&info.hostname, &info.kernel, &info.arch, &info.user, &info.boot_id, &info.agent_version]
        {
            assert_eq!(size(text), NAME + 1);
        }
        for reading in [&info.driver, &info.nccl, &info.gpus[0].pci] {
            assert_eq!(size(reading.value().unwrap()), NAME + 1);
        }
        assert!(matches!(&info.cuda_driver, Reading::Failed { error } if size(error) == NAME + 1));
        assert_eq!((info.cpus, info.memory_total.value()), (CPUS, None));
        assert_eq!((info.addresses.len(), size(&info.addresses[0].interface)), (LIST, NAME + 1));
        assert_eq!((info.gpus.len(), size(&info.gpus[9].name)), (GPUS, NAME + 1));
        assert_eq!(size(info.gpus[0].uuid.as_str()), NAME);
        assert_eq!(size(&info.gpu_absence.as_ref().unwrap().detail), TEXT + 1);
        let topology = info.topology.as_ref().unwrap();
        let rows = [topology.paths.len(), topology.paths[0].len(), topology.affinity.len()];
        assert_eq!(rows, [GPUS; 3]);
        assert_eq!(size(topology.affinity[0].cpus.as_ref().unwrap()), NAME + 1);
    }

    #[test]
    fn what_just_fits_stays_as_it_is() {
        let mut uuid = GpuUuid::from("x".repeat(NAME));
        bound_uuid(&mut uuid);
        assert_eq!(uuid.as_str().len(), NAME);
        let mut text = "x".repeat(TEXT);
        bound_text(&mut text);
        assert_eq!(text.len(), TEXT);
        text.push('x');
        bound_text(&mut text);
        assert_eq!(text.chars().count(), TEXT + 1);
        assert!(text.ends_with('…'));
    }

    #[test]
    fn a_slice_belongs_to_a_gpu_that_the_host_has() {
        let slice = |index, parent| GpuInfo { parent: Some(parent), ..GpuInfo::unknown(index) };
        let index = mig::slice_index(1, 0);
        let mut info =
            HostInfo { gpus: vec![GpuInfo::unknown(1), slice(index, 1), slice(index + 1, 0)], ..boaster() };
        info.gpus.push(slice(mig::slice_index(2, 0), 1));
        bound_info(&mut info);
        let parents: Vec<Option<u32>> = info.gpus.iter().map(|gpu| gpu.parent).collect();
        assert_eq!(parents, [None, Some(1), None, None], "no such GPU, and an index of another GPU's slice");
    }

    #[test]
    fn what_a_host_samples_is_bounded() {
        let long = || "x".repeat(TEXT + 9);
        let told = GpuProcess {
            user: Reading::Value(long()),
            command: Reading::Value(long()),
            memory: Reading::Value(BYTES + 1),
            ..GpuProcess::unknown(1)
        };
        let gpu = |index| GpuSample {
            throttle: Reading::Value(vec![long(); LIST + 1]),
            processes: Reading::Value(vec![told.clone(); LIST + 1]),
            ..GpuSample::unknown(index)
        };
        let sample = |load| HostSample {
            cpu_percent: Reading::Value(100.5),
            memory_used: Reading::Value(BYTES + 1),
            load: Reading::Value([0.0, load, 1.0]),
            net_rx: Reading::Value(BYTES + 1),
            net_tx: Reading::Value(BYTES),
            gpus: (0..=GPUS as u32).map(gpu).collect(),
        };
        let bounded = |load| {
            let mut event = Event::HostSampled { sample: Arc::new(sample(load)) };
            bound_event(&mut event);
            let Event::HostSampled { sample } = event else { panic!("another event") };
            sample
        };
        let sample = bounded(f32::NAN);
        let failed = [&sample.memory_used, &sample.net_rx].map(|reading| reading.value().is_none());
        assert_eq!((failed, sample.net_tx.value()), ([true; 2], Some(&BYTES)));
        assert!(sample.cpu_percent.value().is_none() && sample.load.value().is_none());
        assert!(bounded(-0.1).load.value().is_none() && bounded(1e6).load.value().is_none());
        assert!(bounded(999.0).load.value().is_some());
        assert_eq!(sample.gpus.len(), GPUS);
        let words = sample.gpus[0].throttle.value().unwrap();
        assert_eq!((words.len(), words[0].chars().count()), (LIST, NAME + 1));
        let processes = sample.gpus[0].processes.value().unwrap();
        assert_eq!((processes.len(), processes[0].memory.value()), (LIST, None));
        let lengths =
            [&processes[0].user, &processes[0].command].map(|text| text.value().unwrap().chars().count());
        assert_eq!(lengths, [NAME + 1, TEXT + 1]);
    }

    #[test]
    fn what_a_host_says_of_leases_and_events_is_bounded() {
        let long = || "x".repeat(TEXT + 9);
        let lease = Lease {
            user: Some(long()),
            command: Some(long()),
            name: Some(long()),
            ..Lease::unknown("GPU-1")
        };
        let gpus = vec![GpuUuid::from("GPU-1"); GPUS + 1];
        let ticket = Ticket { id: RunId::new(1, 1), user: long(), own: false, name: long(), gpus };
        let leases = Leases {
            held: vec![lease.clone(); GPUS + 1],
            beside: vec![lease; GPUS + 1],
            queue: vec![ticket; LIST + 1],
            fault: Some(long()),
        };
        let mut event = Event::LeasesTold { leases };
        bound_event(&mut event);
        let Event::LeasesTold { leases } = event else { panic!("another event") };
        assert_eq!((leases.held.len(), leases.beside.len(), leases.queue.len()), (GPUS, GPUS, LIST));
        assert_eq!(leases.queue[0].gpus.len(), GPUS);
        let (held, beside, waits) = (&leases.held[0], &leases.beside[0], &leases.queue[0]);
        let texts = [&held.user, &held.name, &held.command, &beside.user, &beside.name, &beside.command];
        for text in texts.into_iter().flatten() {
            assert_eq!(text.chars().count(), NAME + 1);
        }
        assert_eq!([&waits.user, &waits.name].map(|text| text.chars().count()), [NAME + 1; 2]);
        assert_eq!(leases.fault.unwrap().chars().count(), TEXT + 1);
        let mut answer = SignalAnswer::Refused { reason: long() };
        bound_signal(&mut answer);
        assert!(matches!(answer, SignalAnswer::Refused { reason } if reason.chars().count() == TEXT + 1));
    }
}
