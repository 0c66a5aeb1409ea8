//! The profiler's interface, as NCCL calls it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Init5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// `ncclProfiler_v4_t` and later; only `init` differs.
#[repr(C)]
struct Table {
    name: *const c_char,
    init: *const c_void,
    start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int,
    stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    state: unsafe extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// `ncclProfilerEventDescr_vN_t` with `coll`: 104 bytes in version 4, 112 in later ones.
#[repr(C)]
struct Collective {
    head: Head,
    seq: u64,
    func: *const c_char,
    buffers: [*const c_void; 2],
    count: usize,
    root: c_int,
    datatype: *const c_char,
    channels: u8,
    warps: u8,
    algorithm: *const c_char,
    protocol: *const c_char,
    group: *const c_void,
}

/// The same with `kernelCh`.
#[repr(C)]
struct Channel {
    head: Head,
    number: u8,
    timer: u64,
    rest: [u64; 9],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    /// One byte in version 4; what stands behind it there is whatever was on the stack.
    kind: u64,
    parent: u64,
    rank: c_int,
}

const COLLECTIVE: u64 = 2;
const CHANNEL: u64 = 64;

/// The handle of an event of a channel.
#[derive(Clone, Copy)]
pub(crate) struct KernelChannel(pub(crate) u64);

/// A plugin that is open.
pub(crate) struct Profiler {
    library: Option<Library>,
    table: *const Table,
    /// Of the interface.
    pub(crate) version: u32,
}

// SAFETY: the table is never changed.
unsafe impl Sync for Profiler {}

impl Profiler {
    /// Finds the plugin as the version of NCCL does that is played, and takes the newest interface that both have.
    pub(crate) fn open() -> Option<Self> {
        let nccl = std::env::var("FAKE_NCCL_VERSION").ok().and_then(|version| version.parse().ok());
        let nccl: u32 = nccl.unwrap_or(22907);
        let name = std::env::var("NCCL_PROFILER_PLUGIN").ok().filter(|name| !name.is_empty())?;
        let is_library = name.strip_suffix(".so").is_some_and(|name| name.starts_with("lib"));
        let long = format!("libnccl-profiler-{name}.so");
        let names = match nccl {
            // 2.27.3 takes no path
            22700..22705 if is_library => vec![name],
            22700..22705 => vec![long],
            22705.. if name.contains('/') || is_library => vec![name],
            _ => vec![name, long],
        };
        // SAFETY: the plugin does nothing when it is opened.
        let open = |name: &String| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL).ok() };
        let library = names.iter().find_map(open)?;
        let newest = match nccl {
            22900.. => 6,
            22800.. => 5,
            _ => 4,
        };
        let table = |version: &u32| {
            // SAFETY: what has this name is such a table.
            let symbol =
                unsafe { library.get::<*const Table>(format!("ncclProfiler_v{version}\0").as_bytes()).ok()? };
            Some((symbol.into_raw().cast_const().cast(), *version))
        };
        let (table, version) = [6, 5, 4].iter().filter(|version| **version <= newest).find_map(table)?;
        let profiler = Self { library: Some(library), table, version };
        // SAFETY: a text.
        let name = unsafe { CStr::from_ptr(profiler.table().name) };
        println!("opened {} by version {version}", name.to_string_lossy());
        Some(profiler)
    }

    fn table(&self) -> &Table {
        // SAFETY: it is there as long as the library is open, and this library stays open.
        unsafe { &*self.table }
    }

    /// A communicator joins.
    pub(crate) fn communicator(&self, hash: u64, rank: u64, ranks: c_int) -> Communicator<'_> {
        let rank = c_int::try_from(rank).expect("a rank");
        let (mut context, mut mask) = (0xbad as *mut c_void, 0);
        let (table, name) = (self.table(), c"comm".as_ptr());
        // SAFETY: `init` has this type in this version; all of it is readable and writable.
        let answer = unsafe {
            if self.version == 4 {
                let init: Init4 = std::mem::transmute(table.init);
                init(&raw mut context, &raw mut mask, name, hash, 1, ranks, rank, null())
            } else {
                let init: Init5 = std::mem::transmute(table.init);
                init(&raw mut context, hash, &raw mut mask, name, 1, ranks, rank, null())
            }
        };
        assert_eq!(answer, 0);
        assert_eq!(mask != 0, !context.is_null(), "events without a context, or none with one");
        if mask == 0 {
            println!("wants no events");
        } else {
            assert_eq!(mask, 66);
        }
        Communicator { profiler: self, context: context as u64 }
    }

    fn start(&self, context: u64, event: *const c_void) -> u64 {
        let mut handle = 0xbad as *mut c_void;
        // SAFETY: an event of this version.
        let answer = unsafe { (self.table().start)(context as *mut c_void, &raw mut handle, event) };
        assert_eq!(answer, 0);
        handle as u64
    }

    /// An event ends.
    pub(crate) fn stop(&self, handle: u64) {
        // SAFETY: any handle is allowed.
        assert_eq!(unsafe { (self.table().stop)(handle as *mut c_void) }, 0);
    }

    /// An event's state changes.
    pub(crate) fn state(&self, handle: u64, state: c_int, timer: Option<u64>) {
        let arguments = timer.as_ref().map_or(null(), std::ptr::from_ref).cast();
        // SAFETY: any handle is allowed, and no arguments too.
        assert_eq!(unsafe { (self.table().state)(handle as *mut c_void, state, arguments) }, 0);
    }

    /// Every pointer is null.
    pub(crate) fn nulls(&self) {
        let table = self.table();
        // SAFETY: this is what is tested.
        unsafe {
            assert_eq!((table.start)(null_mut(), null_mut(), null()), 0);
            assert_eq!((table.finalize)(null_mut()), 0);
            if self.version > 4 {
                let init: Init5 = std::mem::transmute(table.init);
                assert_eq!(init(null_mut(), 1, null_mut(), null(), 1, 1, 0, null()), 0);
            }
        }
        assert_eq!(self.start(1, null()), 0);
    }

    /// The last communicator is gone.
    pub(crate) fn close(mut self) {
        drop(self.library.take());
    }
}

/// A communicator.
pub(crate) struct Communicator<'a> {
    /// Whom it tells of what it does.
    pub(crate) profiler: &'a Profiler,
    context: u64,
}

impl Communicator<'_> {
    fn head(&self, kind: u64, parent: u64) -> Head {
        let garbage = if self.profiler.version == 4 { 0x5a5a_5a5a_5a5a_5a00 } else { 0 };
        Head { kind: kind | garbage, parent, rank: 0 }
    }

    /// An event of this type of which nothing is known. Its handle.
    pub(crate) fn event(&self, kind: u64) -> u64 {
        let event = Channel { head: self.head(kind, 0), number: 0, timer: 5, rest: [0; 9] };
        self.profiler.start(self.context, (&raw const event).cast())
    }

    /// A group begins. 2.27 tells of the collectives in it only if it has a handle.
    pub(crate) fn group(&self) -> u64 {
        let handle = self.event(1);
        assert!(handle != 0 || self.context == 0, "a group without a handle");
        handle
    }

    /// A collective of `Float32` is put on a stream.
    pub(crate) fn collective(&self, func: &'static CStr, seq: u64, count: usize, channels: u8) -> u64 {
        self.put(func.as_ptr(), c"ncclFloat32".as_ptr(), (seq, count, channels))
    }

    /// One whose texts are missing.
    pub(crate) fn untitled(&self, seq: u64, channels: u8) -> u64 {
        self.put(null(), null(), (seq, 1, channels))
    }

    fn put(&self, func: *const c_char, datatype: *const c_char, numbers: (u64, usize, u8)) -> u64 {
        let (seq, count, channels) = numbers;
        let event = Collective {
            head: self.head(COLLECTIVE, 0),
            seq,
            func,
            buffers: [null(), null()],
            count,
            root: 0,
            datatype,
            channels,
            warps: 16,
            algorithm: c"RING".as_ptr(),
            protocol: c"LL".as_ptr(),
            group: null(),
        };
        self.profiler.start(self.context, (&raw const event).cast())
    }

    /// A channel of a collective begins on the GPU.
    pub(crate) fn channel(&self, parent: u64, channel: u8, timer: u64) -> KernelChannel {
        let event = Channel { head: self.head(CHANNEL, parent), number: channel, timer, rest: [0; 9] };
        KernelChannel(self.profiler.start(self.context, (&raw const event).cast()))
    }

    /// It ends.
    pub(crate) fn ends(&self, channel: KernelChannel, timer: u64) {
        // as NCCL: of a channel without a handle it tells no more
        if channel.0 != 0 {
            self.profiler.state(channel.0, 22, Some(timer));
            self.profiler.stop(channel.0);
        }
    }

    /// The rank leaves.
    pub(crate) fn finalize(&self) {
        // SAFETY: any context is allowed.
        assert_eq!(unsafe { (self.profiler.table().finalize)(self.context as *mut c_void) }, 0);
    }
}
