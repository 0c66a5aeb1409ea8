//! The lazy GPU: streams of work, events, and what has to be done before one has passed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::meet::Meeting;

/// A kernel made for this processor: blocks, threads a block, arguments.
pub(crate) type Run = unsafe extern "C" fn(u32, u32, *const std::ffi::c_void);

/// A matrix product of 32-bit floats: `c = a * b`, columns of `c` one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Product {
    /// Rows, columns, inner dimension.
    pub(crate) sizes: [usize; 3],
    pub(crate) a: usize,
    /// Between rows, between columns.
    pub(crate) a_strides: (usize, usize),
    pub(crate) b: usize,
    pub(crate) b_strides: (usize, usize),
    pub(crate) c: usize,
    pub(crate) ldc: usize,
}

/// What a stream does.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Kernel {
        run: Run,
        grid: u32,
        block: u32,
        args: Vec<u64>,
    },
    Product(Product),
    Set {
        at: usize,
        value: u8,
        bytes: usize,
    },
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
    /// Multiplies 32-bit floats.
    Scale {
        at: usize,
        count: usize,
        by: f32,
    },
    /// Reduces 32-bit floats with the other ranks' processes.
    Meet(Meeting),
    /// Takes this long.
    Spend {
        ns: u64,
    },
    Record {
        event: usize,
        version: u64,
    },
    WaitFor {
        event: usize,
        version: u64,
    },
    /// Never ends.
    Never,
}

#[derive(Debug, Default, Clone, Copy)]
struct Event {
    recorded: u64,
    done: u64,
    /// When it was passed, ns.
    at: u64,
    /// Queries that it has answered with «not ready» since it was recorded.
    asked: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Gpu {
    streams: BTreeMap<usize, VecDeque<Work>>,
    events: BTreeMap<usize, Event>,
    /// Allocations: address to length.
    pub(crate) memory: BTreeMap<usize, usize>,
    last: usize,
    now: u64,
}

static GPU: Mutex<Gpu> = Mutex::new(Gpu {
    streams: BTreeMap::new(),
    events: BTreeMap::new(),
    memory: BTreeMap::new(),
    last: 0,
    now: 0,
});

pub(crate) fn gpu() -> MutexGuard<'static, Gpu> {
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// The matrices are memory that nothing else writes.
unsafe fn multiply(product: &Product) {
    let Product { sizes: [rows, columns, inner], a, a_strides, b, b_strides, c, ldc } = *product;
    // SAFETY: the caller's promise; every offset is within the sizes.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            c as *mut f32,
            ldc as isize,
            1,
            false,
            a as *const f32,
            a_strides.1 as isize,
            a_strides.0 as isize,
            b as *const f32,
            b_strides.1 as isize,
            b_strides.0 as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

impl Gpu {
    fn handle(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    pub(crate) fn new_stream(&mut self) -> usize {
        let stream = self.handle();
        self.streams.insert(stream, VecDeque::new());
        stream
    }

    pub(crate) fn new_event(&mut self) -> usize {
        let event = self.handle();
        self.events.insert(event, Event::default());
        event
    }

    pub(crate) fn drop_event(&mut self, event: usize) {
        // What waits for it still knows its version; an unknown event has passed.
        self.finish(event);
        self.events.remove(&event);
    }

    pub(crate) fn put(&mut self, stream: usize, work: Work) {
        self.streams.entry(stream).or_default().push_back(work);
    }

    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        let state = self.events.entry(event).or_default();
        state.recorded += 1;
        state.asked = 0;
        let version = state.recorded;
        self.put(stream, Work::Record { event, version });
    }

    pub(crate) fn wait_for(&mut self, stream: usize, event: usize) {
        let version = self.events.get(&event).map_or(0, |event| event.recorded);
        self.put(stream, Work::WaitFor { event, version });
    }

    /// Answers a query: not ready for the first time after each recording.
    pub(crate) fn query(&mut self, event: usize) -> bool {
        let Some(state) = self.events.get_mut(&event) else { return true };
        if state.done < state.recorded && state.asked == 0 {
            state.asked = 1;
            return false;
        }
        self.finish(event)
    }

    /// Does all that the event needs; false where something never ends.
    pub(crate) fn finish(&mut self, event: usize) -> bool {
        let version = self.events.get(&event).map_or(0, |event| event.recorded);
        self.pass(event, version)
    }

    fn pass(&mut self, event: usize, version: u64) -> bool {
        loop {
            if self.events.get(&event).is_none_or(|state| state.done >= version) {
                return true;
            }
            let on = self.streams.iter().find(|(_, queue)| {
                queue.iter().any(|work| matches!(work, Work::Record { event: e, version: v } if (*e, *v) == (event, version)))
            });
            let Some((&stream, _)) = on else { return true };
            if !self.step(stream) {
                return false;
            }
        }
    }

    /// Does all of a stream; false where something never ends.
    pub(crate) fn drain(&mut self, stream: usize) -> bool {
        while self.streams.get(&stream).is_some_and(|queue| !queue.is_empty()) {
            if !self.step(stream) {
                return false;
            }
        }
        true
    }

    pub(crate) fn drain_all(&mut self) -> bool {
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        streams.into_iter().filter(|stream| !self.drain(*stream)).count() == 0
    }

    /// What an abort does: what never ends, ends.
    pub(crate) fn abort(&mut self) {
        for queue in self.streams.values_mut() {
            queue.retain(|work| !matches!(work, Work::Never));
        }
    }

    fn step(&mut self, stream: usize) -> bool {
        let Some(work) = self.streams.get(&stream).and_then(|queue| queue.front().cloned()) else {
            return true;
        };
        match work {
            Work::Never => return false,
            Work::WaitFor { event, version } => {
                if !self.pass(event, version) {
                    return false;
                }
            }
            Work::Record { event, version } => {
                let at = self.now;
                if let Some(state) = self.events.get_mut(&event) {
                    (state.done, state.at) = (version, at);
                }
            }
            Work::Spend { ns } => self.now += ns,
            Work::Kernel { run, grid, block, args } => {
                self.now += 10_000;
                // SAFETY: the launcher promised that its arguments tell of memory that lives until now.
                unsafe { run(grid, block, args.as_ptr().cast()) };
            }
            Work::Product(product) => {
                self.now += 20_000;
                // SAFETY: as above.
                unsafe { multiply(&product) };
            }
            Work::Set { at, value, bytes } => {
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(at as *mut u8, value, bytes) };
            }
            Work::Copy { to, from, bytes } => {
                self.now += bytes as u64;
                // SAFETY: the caller of the copy promised both until it is done, and they are different memory.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
            }
            Work::Meet(meeting) => {
                // SAFETY: as above.
                if !unsafe { meeting.reduce() } {
                    return false;
                }
            }
            Work::Scale { at, count, by } => {
                // SAFETY: as above.
                let values = unsafe { std::slice::from_raw_parts_mut(at as *mut f32, count) };
                for value in values {
                    *value *= by;
                }
            }
        }
        if let Some(queue) = self.streams.get_mut(&stream) {
            queue.pop_front();
        }
        true
    }

    /// Milliseconds between two events that have passed.
    pub(crate) fn elapsed(&self, from: usize, to: usize) -> f32 {
        let at = |event| self.events.get(event).map_or(0, |event: &Event| event.at);
        (at(&to) as f64 - at(&from) as f64) as f32 / 1e6
    }
}
