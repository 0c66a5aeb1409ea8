//! What runs in a process of its own; see the module above for who starts it.

#![expect(unsafe_code, reason = "copies to and from the GPU, and calls of a C library")]
#![expect(clippy::float_cmp, reason = "sums of small whole numbers are exact")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaStream, result};

use super::super::super::communicator::{Collective, Communicator};
use super::super::super::element::{DType, Reduce};
use super::super::super::op::Transport;
use super::super::super::solo::Solo;
use super::super::comm::{Comm, Seat};
use super::super::{
    BackendPreference, Device, DeviceBuffer, DeviceGroup, DeviceGroupOptions, DeviceRange, Library, Limits,
    NcclError, Places,
};
use super::threads::Threads;
use crate::clock::host_now;

const SOON: Duration = Duration::from_millis(200);

fn library() -> Result<Library, NcclError> {
    Library::find(&Places::from_variables(|name| std::env::var_os(name)))
}

fn options(ordinal: usize, preference: BackendPreference) -> DeviceGroupOptions {
    let limits = Limits::within(Duration::from_secs(60));
    DeviceGroupOptions {
        device: Device::open(ordinal).unwrap(),
        library: library(),
        preference,
        limits,
        clock: host_now,
    }
}

fn group(ordinal: usize, preference: BackendPreference, host: impl Communicator + 'static) -> DeviceGroup {
    DeviceGroup::open(options(ordinal, preference), Box::new(host)).unwrap()
}

/// Puts a copy of `values` to the GPU on a stream. The values must live until it is done.
fn put(buffer: &DeviceBuffer, values: &[f32], stream: &CudaStream) {
    unsafe { result::memcpy_htod_async(buffer.pointer(), values, stream.cu_stream()) }.unwrap();
}

/// What lies there when all that was put on the stream is done.
fn get(group: &mut DeviceGroup, range: &DeviceRange, stream: &CudaStream) -> Vec<f32> {
    let mut values = vec![0.0; range.len()];
    unsafe { result::memcpy_dtoh_async(&mut values, range.pointer(), stream.cu_stream()) }.unwrap();
    group.synchronize(stream).unwrap();
    values
}

fn stream(group: &DeviceGroup) -> Arc<CudaStream> {
    group.device().context().new_stream().unwrap()
}

fn text(error: &impl ToString) -> String {
    error.to_string()
}

#[test]
#[ignore = "in a process of its own"]
fn one_rank_by_nccl() {
    let mut group = group(0, BackendPreference::Nccl, Solo);
    assert_eq!((group.transport(), group.why_not_nccl()), (Transport::Nccl, None));
    let buffer = group.allocate(4000).unwrap();
    let all = buffer.all(DType::F32).unwrap();
    let stream = stream(&group);
    assert_eq!(get(&mut group, &all, &stream), vec![0.0; 1000], "fresh memory is zeroed");
    let values: Vec<f32> = (0_u16..1000).map(f32::from).collect();
    put(&buffer, &values, &stream);
    let mut last = 0;
    for how in [Reduce::Sum, Reduce::Mean, Reduce::Min, Reduce::Max] {
        let mut work = group.allreduce(&all, how, &stream).unwrap();
        group.join(&mut work, &stream).unwrap();
        last = work.seq();
    }
    assert_eq!(last, 4);
    let mut work = group.broadcast(&all, 0, &stream).unwrap();
    group.wait(&mut work).unwrap();
    assert_eq!(get(&mut group, &all, &stream), values);
    // Nothing of nothing is done as well.
    let nothing = buffer.range(8..8, DType::F32).unwrap();
    let mut work = group.allreduce(&nothing, Reduce::Sum, &stream).unwrap();
    group.wait(&mut work).unwrap();
    let timed = group.timings(5).unwrap();
    assert_eq!(timed.iter().map(|one| one.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(timed.iter().all(|one| one.timing.wait == 0), "{timed:?}");
    assert!(timed[0].timing.transfer > 0, "{timed:?}");
    assert!(group.timings(5).unwrap().is_empty());
    println!("registered: {}; {timed:?}", buffer.is_registered());
    assert!(matches!(buffer.range(0..4001, DType::F32), Err(NcclError::Range { end: 4001, .. })));
    assert!(buffer.range(2..6, DType::F32).is_err());
    drop((nothing, all));
    let host = group.finalize().unwrap();
    assert_eq!(host.world(), 1);
}

#[test]
#[ignore = "in a process of its own"]
fn the_loader_finds_it() {
    let library = library().unwrap();
    assert_eq!((library.path(), library.version().as_str()), ("libnccl.so.2", "2.27.5"));
}

#[test]
#[ignore = "in a process of its own"]
fn the_library_is_too_old() {
    let error = library().unwrap_err();
    assert!(matches!(error, NcclError::TooOld { .. }), "{error}");
    let text = text(&error);
    assert!(text.ends_with("and hvtui needs 2.14 or newer") && text.contains("NCCL 2."), "{text}");
    // And for a group that is a reason like any other.
    let group = DeviceGroup::open(options(0, BackendPreference::Staging), Box::new(Solo)).unwrap();
    assert!(group.why_not_nccl().is_some());
}

/// Runs a body as several ranks, each with its GPU.
fn as_ranks(gpus: &[usize], preference: BackendPreference, body: impl Fn(DeviceGroup, u32) + Sync) {
    std::thread::scope(|scope| {
        for (host, gpu) in Threads::group(gpus.len() as u32).into_iter().zip(gpus) {
            let body = &body;
            scope.spawn(move || {
                let rank = host.rank();
                body(group(*gpu, preference, host), rank);
            });
        }
    });
}

#[test]
#[ignore = "in a process of its own"]
fn two_ranks_by_nccl() {
    as_ranks(&[0, 1], BackendPreference::Best, |mut group, rank| {
        assert_eq!(group.transport(), Transport::Nccl);
        let buffer = group.allocate(40).unwrap();
        let all = buffer.all(DType::F32).unwrap();
        let stream = stream(&group);
        let values = [1.5; 10];
        put(&buffer, &values, &stream);
        // The host waits for the operation alone: it has to come after the copy by itself.
        let mut work = group.allreduce(&all, Reduce::Sum, &stream).unwrap();
        group.wait(&mut work).unwrap();
        assert_eq!(get(&mut group, &all, &stream), [3.0; 10], "rank {rank}");
        // The stream waits for the operation.
        let mut work = group.allreduce(&all, Reduce::Sum, &stream).unwrap();
        group.join(&mut work, &stream).unwrap();
        assert_eq!(get(&mut group, &all, &stream), [6.0; 10], "rank {rank}");
        assert_eq!(group.timings(2).unwrap().len(), 2);
        println!("registered: {}", buffer.is_registered());
        let mixed = std::env::var("FAKE_NCCL_REGISTER").is_ok();
        assert_eq!(buffer.is_registered(), !mixed, "rank {rank}");
        group.finalize().unwrap();
    });
}

#[test]
#[ignore = "in a process of its own"]
fn joining_fails() {
    let error = DeviceGroup::open(options(0, BackendPreference::Nccl), Box::new(Solo)).unwrap_err();
    let text = text(&error);
    assert!(text.starts_with("rank 0: NCCL was asked for and can't be had: NCCL: "), "{text}");
    assert!(text.ends_with("unhandled system error (2): net.cc:1 scripted reason"), "{text}");
}

/// Joins, with a short deadline, a rank that never comes.
fn join_soon(end: Duration) -> NcclError {
    let (library, device) = (Arc::new(library().unwrap()), Device::open(0).unwrap());
    let id = library.unique_id().unwrap();
    let limits = Limits { join: SOON, operation: SOON, end };
    Comm::join(library, &device, id, Seat { rank: 0, world: 2 }, host_now, limits).map(drop).unwrap_err()
}

#[test]
#[ignore = "in a process of its own"]
fn joining_is_late() {
    let error = join_soon(Duration::from_secs(60));
    assert!(matches!(error, NcclError::Late { what: "join the communicator", .. }), "{error}");
}

#[test]
#[ignore = "in a process of its own"]
fn the_abort_hangs() {
    let error = join_soon(SOON);
    assert!(
        matches!(&error, NcclError::Hung { why, .. } if matches!(**why, NcclError::Late { .. })),
        "{error}"
    );
    assert!(text(&error).ends_with("end this process"), "{error}");
}

#[test]
#[ignore = "in a process of its own"]
fn rank_1_cant_join() {
    as_ranks(&[0, 1], BackendPreference::Best, |mut group, rank| {
        assert_eq!(group.transport(), Transport::Shm);
        let why = group.why_not_nccl().unwrap();
        let expected = if rank == 0 { "rank 1 could not; its log says why" } else { "scripted reason" };
        assert!(why.ends_with(expected), "rank {rank}: {why}");
        sums(&mut group, rank, 1000);
        group.finalize().unwrap();
    });
}

fn fails_with_an_operation(limits: Limits) -> String {
    let options = DeviceGroupOptions { limits, ..options(0, BackendPreference::Nccl) };
    let mut group = DeviceGroup::open(options, Box::new(Solo)).unwrap();
    let buffer = group.allocate(40).unwrap();
    let stream = stream(&group);
    let all = buffer.all(DType::F32).unwrap();
    let mut work = group.allreduce(&all, Reduce::Sum, &stream).unwrap();
    group.join(&mut work, &stream).unwrap();
    let error = text(&group.synchronize(&stream).unwrap_err());
    let again = text(&group.allreduce(&all, Reduce::Sum, &stream).unwrap_err());
    assert!(again.ends_with("has already failed"), "{again}");
    error
}

#[test]
#[ignore = "in a process of its own"]
fn an_operation_fails() {
    let error = fails_with_an_operation(Limits::within(Duration::from_secs(60)));
    assert!(error.contains("an operation under way: remote process exited"), "{error}");
}

#[test]
#[ignore = "in a process of its own"]
fn an_operation_is_late() {
    let error =
        fails_with_an_operation(Limits { operation: SOON, ..Limits::within(Duration::from_secs(60)) });
    assert!(error.contains("an operation under way: not done within 0 s"), "{error}");
}

/// Sums over ranks by the group, and what they must be.
fn sums(group: &mut DeviceGroup, rank: u32, len: usize) {
    let buffer = group.allocate(len * 4).unwrap();
    let all = buffer.all(DType::F32).unwrap();
    let stream = stream(group);
    let value = |rank: u32, at: usize| (rank + 1) as f32 * (at % 1000) as f32;
    let own: Vec<f32> = (0..len).map(|at| value(rank, at)).collect();
    let expected: Vec<f32> = (0..len).map(|at| value(0, at) + value(1, at)).collect();
    for round in 0..3 {
        put(&buffer, &own, &stream);
        let mut work = group.allreduce(&all, Reduce::Sum, &stream).unwrap();
        group.join(&mut work, &stream).unwrap();
        let sum = get(group, &all, &stream);
        assert!(sum == expected, "rank {rank}, {len} values, round {round}");
    }
}

#[test]
#[ignore = "in a process of its own"]
fn two_ranks_on_one_card() {
    as_ranks(&[0, 0], BackendPreference::Best, |mut group, rank| {
        assert_eq!(group.transport(), Transport::Shm);
        let why = group.why_not_nccl().unwrap().to_owned();
        assert!(why.contains("share a GPU") || why.contains("no usable NCCL"), "{why}");
        for len in [1, 5, 1024, 262_144, 262_145, 1_500_000] {
            sums(&mut group, rank, len);
        }
        // Several under way at a time, and the hosts' communicator between them.
        let buffer = group.allocate(4 << 20).unwrap();
        let stream = stream(&group);
        let values = vec![1.0; 1 << 20];
        put(&buffer, &values, &stream);
        let halves = [0..2 << 20, 2 << 20..4 << 20].map(|half| buffer.range(half, DType::F32).unwrap());
        let mut in_flight =
            halves.each_ref().map(|half| group.allreduce(half, Reduce::Sum, &stream).unwrap());
        let mut number = [f64::from(rank) + 1.0];
        group.host().allreduce(&mut number, Reduce::Sum).unwrap();
        assert_eq!(number, [3.0]);
        for work in &mut in_flight {
            group.join(work, &stream).unwrap();
        }
        let all = buffer.all(DType::F32).unwrap();
        assert!(get(&mut group, &all, &stream).iter().all(|value| *value == 2.0));
        // A broadcast of what rank 1 has.
        let own = vec![rank as f32; 1 << 20];
        put(&buffer, &own, &stream);
        let mut work = group.broadcast(&all, 1, &stream).unwrap();
        group.wait(&mut work).unwrap();
        assert!(get(&mut group, &all, &stream).iter().all(|value| *value == 1.0));
        assert!(group.broadcast(&all, 2, &stream).is_err());
        let timed = group.timings(u64::MAX).unwrap();
        assert_eq!(timed.len(), 6 * 3 + 3);
        println!("pinned: {:?}; {:?}", group.is_pinned(), timed.last());
        group.finalize().unwrap();
    });
}

#[test]
#[ignore = "in a process of its own"]
fn one_rank_alone() {
    let mut group = group(0, BackendPreference::Best, Solo);
    assert_eq!((group.transport(), group.why_not_nccl()), (Transport::None, None));
    let buffer = group.allocate(40).unwrap();
    let (all, stream) = (buffer.all(DType::F32).unwrap(), stream(&group));
    let values = [2.0; 10];
    put(&buffer, &values, &stream);
    let mut work = group.allreduce(&all, Reduce::Mean, &stream).unwrap();
    group.wait(&mut work).unwrap();
    assert_eq!(get(&mut group, &all, &stream), values);
    group.watch().unwrap();
    group.finalize().unwrap();
}

#[test]
#[ignore = "in a process of its own"]
fn there_is_no_library() {
    // On a machine where NVIDIA's packages put one into the system's folders there is one.
    match library() {
        Ok(library) => println!("found {library:?}"),
        Err(error) => {
            assert!(matches!(error, NcclError::NoLibrary(_)), "{error}");
            assert!(text(&error).ends_with("or name its folder in HVTUI_GPU_LIBS"), "{error}");
        }
    }
    match Device::open(0) {
        Ok(device) => println!("found {device:?}"),
        Err(error) => assert!(matches!(error, NcclError::NoDriver | NcclError::Cuda { .. }), "{error}"),
    }
}

/// Version, unique id, and a join that can't succeed without a driver.
#[test]
#[ignore = "in a process of its own"]
fn a_real_library() {
    let library = match library() {
        Ok(library) => library,
        Err(error) => return println!("skipped: {error}"),
    };
    println!("{library:?}, registers memory: {}", library.registering.is_some());
    let one = library.unique_id().unwrap();
    let two = library.unique_id().unwrap();
    assert_ne!(one.0, two.0);
    if Device::open(0).is_ok() {
        return println!("there is a GPU: joining is tested with it");
    }
    let mut raw: *mut c_void = std::ptr::null_mut();
    let mut config = super::super::library::Config::polled();
    let code = unsafe { (library.init_rank)(&raw mut raw, 1, one, 0, &raw mut config) };
    let mut state = code;
    if !raw.is_null() {
        while state == super::super::library::IN_PROGRESS {
            unsafe { (library.async_error)(raw, &raw mut state) };
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let error = library.refused("join the communicator", state, raw);
    println!("{error}");
    assert!(text(&error).contains("unhandled cuda error") && text(&error).contains("(1)"), "{error}");
    if !raw.is_null() {
        println!("abort: {}", unsafe { (library.abort)(raw) });
    }
}

/// A communicator that another rank never joins, given up; then a communicator that works.
#[test]
#[ignore = "in a process of its own"]
fn an_abort_on_a_real_gpu() {
    let error = join_soon(Duration::from_secs(10));
    assert!(matches!(error, NcclError::Late { .. }), "{error}");
    println!("{error}");
    let mut group = group(0, BackendPreference::Nccl, Solo);
    let buffer = group.allocate(1 << 26).unwrap();
    let (all, stream) = (buffer.all(DType::F32).unwrap(), stream(&group));
    let _begun = group.allreduce(&all, Reduce::Sum, &stream).unwrap();
    // Dropped with an operation under way: that aborts.
    drop(group);
}

/// Lines of a table: how long an allreduce takes on this card, the quickest of ten.
#[test]
#[ignore = "in a process of its own"]
fn durations_on_a_real_gpu() {
    for (way, gpus, preference) in
        [("NCCL", &[0][..], BackendPreference::Nccl), ("host's memory", &[0, 0], BackendPreference::Staging)]
    {
        as_ranks(gpus, preference, |mut group, rank| {
            for mebibytes in [1, 16, 64] {
                let buffer = group.allocate(mebibytes << 20).unwrap();
                let (all, stream) = (buffer.all(DType::F32).unwrap(), stream(&group));
                let mut last = 0;
                for _ in 0..10 {
                    let mut work = group.allreduce(&all, Reduce::Sum, &stream).unwrap();
                    group.wait(&mut work).unwrap();
                    last = work.seq();
                }
                let timed = group.timings(last).unwrap();
                let quickest = timed.iter().map(|one| one.timing.transfer).min().unwrap();
                if rank == 0 {
                    let ranks = gpus.len();
                    println!(
                        "\n| {way}, ranks: {ranks}, {mebibytes} MiB | {:.3} ms |",
                        quickest as f64 / 1e6
                    );
                }
            }
            group.finalize().unwrap();
        });
    }
}
