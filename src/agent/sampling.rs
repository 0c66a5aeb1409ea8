//! Reads telemetry at the client's pace on a thread of its own, because a driver's call may hang: then only
//! the samples stop.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::outgoing::Outgoing;
use super::owners::Owners;
use super::{GpuEventSource, TelemetryStart};
use crate::clock;
use crate::domain::gpu::GpuInfo;
use crate::domain::host::HostInfo;
use crate::domain::ids::GpuUuid;
use crate::domain::lease::Leases;
use crate::domain::time::HostTime;
use crate::sched::{self, For};
use crate::supervise::lease::{self, LeaseDir};
use crate::wire::gpu::GpuEventsTold;
use crate::wire::message::{FromAgent, Watch};

/// The shortest time between samples.
const MIN_INTERVAL_MS: u64 = 100;
/// The second sample comes so soon after the first one, which has no rates yet: they are differences.
const SECOND: Duration = Duration::from_millis(250);

/// The thread's end of life is that of this handle; it is not waited for, as it may hang.
#[derive(Debug)]
pub(super) struct Sampling {
    watch: Sender<Watch>,
    info: Described,
}

/// The facts as they were told last.
type Described = Arc<Mutex<Option<HostInfo>>>;

impl Sampling {
    /// Starts the thread; it does nothing until a client watches.
    pub(super) fn start(telemetry: TelemetryStart, owners: Owners, out: Outgoing) -> io::Result<Self> {
        let (watch, asked) = mpsc::channel();
        let info = Described::default();
        let told = Arc::clone(&info);
        std::thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || run(telemetry, owners, &asked, (&out, &told)))?;
        Ok(Self { watch, info })
    }

    /// The facts that were told last; `None` before the first.
    pub(super) fn info(&self) -> Option<HostInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends the facts, and samples at this pace from now on.
    pub(super) fn watch(&self, watch: Watch) {
        // The thread ends before this handle only by a panic of a driver's wrapper: no samples any more.
        let _ = self.watch.send(watch);
    }
}

/// Tells the facts; `false` when the session is over.
fn describe(info: &HostInfo, (out, told): (&Outgoing, &Described)) -> bool {
    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.clone());
    out.control_blocking(FromAgent::Info(Box::new(info.clone())))
}

fn run(
    start: TelemetryStart,
    mut owners: Owners,
    asked: &Receiver<Watch>,
    (out, told_facts): (&Outgoing, &Described),
) {
    let Ok(mut watch) = asked.recv() else {
        return;
    };
    sched::short_turns(For::ThisThread);
    let mut telemetry = start();
    if let Some(source) = telemetry.events() {
        tell_events(source, out.clone());
    }
    loop {
        let mut described = telemetry.info();
        if !describe(&described, (out, told_facts)) {
            return;
        }
        let mut told = None;
        let interval = watch.interval_ms.max(MIN_INTERVAL_MS).saturating_mul(1000);
        let mut due = clock::host_now();
        let mut wait = u64::try_from(SECOND.as_micros()).unwrap_or(interval).min(interval);
        watch = loop {
            let mut sample = telemetry.sample();
            let info = telemetry.info();
            // They change when a driver comes, or a GPU that did not answer does.
            if info != described {
                described = info.clone();
                if !describe(&described, (out, told_facts)) {
                    return;
                }
            }
            owners.tell(&mut sample, &info.user);
            // Before the sample: who knows the values knows whose they are.
            let leases = leases(&info.gpus, watch.lease_dir.as_deref());
            if leases != told
                && let Some(leases) = leases
            {
                told = Some(leases.clone());
                if !out.control_blocking(FromAgent::Leases(Box::new(leases))) {
                    return;
                }
            }
            out.sample(sample);
            let now = clock::host_now();
            // A late sample is not made up for by a burst.
            due = HostTime(due.0.saturating_add(wait).max(now.0));
            wait = interval;
            match asked.recv_timeout(Duration::from_micros(due.0 - now.0)) {
                Ok(watch) => break watch,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        };
    }
}

/// Sends what happens to the GPUs, from a thread that is not waited for, as it may hang. Without one there are no events.
fn tell_events(source: GpuEventSource, out: Outgoing) {
    let thread = std::thread::Builder::new().name("gpu-events".to_owned()).spawn(move || {
        source(&mut |mut events| {
            let now = clock::host_now();
            for event in &mut events {
                event.t = Some(now);
            }
            let sent =
                events.is_empty() || out.control_blocking(FromAgent::GpuEvents(GpuEventsTold { events }));
            sent && !out.closed()
        });
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for the events of the GPUs");
    }
}

/// Who holds these GPUs; `None` where there is none.
fn leases(gpus: &[GpuInfo], dir: Option<&str>) -> Option<Leases> {
    let uuids = gpus.iter().map(|gpu| gpu.uuid.clone()).filter(GpuUuid::is_readable);
    let uuids: Vec<GpuUuid> = uuids.collect();
    if uuids.is_empty() {
        return None;
    }
    Some(match LeaseDir::open(dir) {
        Ok(dir) => {
            let mut leases = lease::look(&dir, &uuids);
            leases.extend_to_slices(gpus);
            leases
        }
        Err(error) => Leases { fault: Some(error.to_string()), ..Leases::default() },
    })
}
