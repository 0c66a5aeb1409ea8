//! What runs in a process of its own; see the module above for who starts it.

#![expect(unsafe_code, reason = "copies to and from the GPU")]

use std::rc::Rc;
use std::time::Duration;

use cudarc::driver::result;

use super::super::card::Card;
use super::super::error::GpuError;
use super::super::kernels::{Compress, Expand};
use super::super::making::Making;
use super::super::memory::Memory;
use super::super::model::TOTALS;
use super::super::net::Net;
use super::super::replica::GpuReplica;
use crate::clock::host_now;
use crate::collective::nccl::{
    BackendPreference, DeviceBuffer, DeviceGroup, DeviceGroupOptions, Library, Limits, Places,
};
use crate::collective::{Solo, f16};
use crate::domain::timing::{Phase, StepTiming};
use crate::worker::classifier::{Classifier, Kind};
use crate::worker::images::Images;
use crate::worker::model::cnn::{Cnn, Pattern, Shape};
use crate::worker::model::conv::Conv;
use crate::worker::model::dense::{Dense, relu};
use crate::worker::model::dropout::{Dropout, hash, uniform};
use crate::worker::model::loss::softmax_cross_entropy;
use crate::worker::model::pool;
use crate::worker::model::sink::Flat;
use crate::worker::replica::Replica;
use crate::worker::task::{self, Batch, Defaults, Task};
use crate::worker::{BucketOptions, SyntheticOptions, TrainOptions};

/// The greatest difference of a value, as a share of the layer's greatest.
const PARITY: f32 = 1e-4;

fn places() -> Places {
    Places::from_variables(|name| std::env::var_os(name))
}

fn card() -> Rc<Card> {
    let card = Card::open(0, &places()).unwrap();
    println!("{}", card.name());
    Rc::new(card)
}

fn group(card: &Card) -> DeviceGroup {
    let limits = Limits::within(Duration::from_secs(60));
    let (device, library) = (card.device.clone(), Library::find(&places()));
    let options =
        DeviceGroupOptions { device, library, preference: BackendPreference::Best, limits, clock: host_now };
    DeviceGroup::open(options, Box::new(Solo)).unwrap()
}

fn put(card: &Card, to: u64, values: &[f32]) {
    unsafe { result::memcpy_htod_async(to, values, card.stream.cu_stream()) }.unwrap();
    card.stream.synchronize().unwrap();
}

fn get<T: bytemuck::Pod>(card: &Card, from: u64, len: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); len];
    unsafe { result::memcpy_dtoh_async(&mut values, from, card.stream.cu_stream()) }.unwrap();
    card.stream.synchronize().unwrap();
    values
}

fn near(what: &str, gpu: &[f32], cpu: &[f32]) {
    assert_eq!(gpu.len(), cpu.len(), "{what}");
    let greatest = cpu.iter().fold(0_f32, |most, value| most.max(value.abs()));
    let off = gpu.iter().zip(cpu).fold(0_f32, |most, (gpu, cpu)| most.max((gpu - cpu).abs()));
    println!("| {what} | {:.1e} |", off / greatest.max(f32::MIN_POSITIVE));
    assert!(
        off <= PARITY * greatest && gpu.iter().all(|value| value.is_finite()),
        "{what}: {off} of {greatest}"
    );
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    (0..len).map(|at| uniform(seed, at as u64) as f32 - 0.5).collect()
}

struct Layers {
    first: Vec<f32>,
    pooled: Vec<f32>,
    winner: Vec<u8>,
    hidden: Vec<f32>,
    logits: Vec<f32>,
    loss: f64,
    right: usize,
}

/// The forward pass by the CPU's layers, one after the other.
fn by_layers(
    shape: &Shape,
    params: &[f32],
    images: &[f32],
    labels: &[u8],
    pattern: Option<Pattern>,
) -> Layers {
    let one = Conv { side: shape.side, channels: 1, filters: shape.filters[0] };
    let two = Conv { side: one.output_side(), channels: one.filters, filters: shape.filters[1] };
    let flat = pool::pooled_side(two).pow(2) * two.filters;
    let dense = Dense { inputs: flat, outputs: shape.hidden };
    let last = Dense { inputs: shape.hidden, outputs: shape.classes };
    let (params_one, rest) = params.split_at(one.weights() + one.filters);
    let (params_two, rest) = rest.split_at(two.weights() + two.filters);
    let (params_dense, params_last) = rest.split_at(dense.params());
    let dropout =
        |at: usize, which| pattern.map(|p| (Dropout::new(shape.dropout[at], hash(p.seed, which)), p.first));
    let (mut all_first, mut all_pooled, mut all_winner) = (Vec::new(), Vec::new(), Vec::new());
    for (at, image) in images.chunks_exact(shape.side * shape.side).enumerate() {
        let mut wide = vec![0.0; one.wide_rows() * one.filters];
        let mut first = vec![0.0; two.side * two.side * one.filters];
        one.forward(image, &params_one[..one.weights()], &mut wide);
        one.bias_relu(&wide, &params_one[one.weights()..], &mut first);
        let mut wide = vec![0.0; two.wide_rows() * two.filters];
        let (mut pooled, mut winner) = (vec![0.0; flat], vec![0; flat]);
        two.forward(&first, &params_two[..two.weights()], &mut wide);
        pool::forward(two, &wide, &params_two[two.weights()..], &mut pooled, &mut winner);
        if let Some((dropout, before)) = dropout(0, 1) {
            dropout.apply(((before + at) * flat) as u64, &mut pooled);
        }
        all_first.extend(first);
        all_pooled.extend(pooled);
        all_winner.extend(winner);
    }
    let mut hidden = vec![0.0; labels.len() * shape.hidden];
    dense.forward(params_dense, &all_pooled, &mut hidden);
    relu(&mut hidden);
    if let Some((dropout, before)) = dropout(1, 2) {
        dropout.apply((before * shape.hidden) as u64, &mut hidden);
    }
    let mut logits = vec![0.0; labels.len() * shape.classes];
    last.forward(params_last, &hidden, &mut logits);
    let (loss, right) = softmax_cross_entropy(&mut logits, shape.classes, labels);
    Layers { first: all_first, pooled: all_pooled, winner: all_winner, hidden, logits, loss, right }
}

/// A card, its group, and the buffers of a network.
fn buffers(params: usize) -> (Rc<Card>, DeviceGroup, DeviceBuffer, DeviceBuffer) {
    let card = card();
    let mut group = group(&card);
    let at = group.allocate(4 * params).unwrap();
    let gradient = group.allocate(4 * (params + TOTALS)).unwrap();
    (card, group, at, gradient)
}

#[test]
#[ignore = "in a process of its own"]
fn layers() {
    const SMALL: Shape = Shape { side: 8, filters: [4, 8], hidden: 12, classes: 5, dropout: [0.25, 0.5] };
    // Its last row and column are not pooled.
    const ODD: Shape = Shape { side: 9, filters: [8, 12], hidden: 20, classes: 7, dropout: [0.1, 0.3] };
    const DIGITS: Shape =
        Shape { side: 12, filters: [32, 64], hidden: 64, classes: 10, dropout: [0.25, 0.5] };
    for (shape, images) in [(SMALL, 11), (ODD, 70), (DIGITS, 33)] {
        for pattern in [None, Some(Pattern { seed: 77, first: 9 })] {
            println!("\n{shape:?}, {images} images, {pattern:?}\n");
            layers_of(shape, images, pattern);
        }
    }
    if std::env::var_os("FAKE_CUDA_KERNELS").is_none() {
        let mnist = Shape { side: 28, filters: [32, 64], hidden: 128, classes: 10, dropout: [0.25, 0.5] };
        layers_of(mnist, 128, Some(Pattern { seed: 5, first: 128 }));
    }
}

fn layers_of(shape: Shape, count: usize, pattern: Option<Pattern>) {
    let mut cpu = Cnn::<f32>::new(shape, 2);
    let mut params = cpu.initialise(3);
    params.iter_mut().zip(noise(8, cpu.params())).for_each(|(param, by)| *param += 0.05 * by);
    let images = noise(5, count * shape.side * shape.side);
    let labels: Vec<u8> = (0..count).map(|at| (at * 3 % shape.classes) as u8).collect();
    let (card, _group, at, gradient) = buffers(params.len());
    put(&card, at.pointer(), &params);
    // With room for more than there are.
    let mut net = Net::new(Rc::clone(&card), shape, count + 3, at, gradient.clone()).unwrap();
    unsafe { net.load(&images, &labels) }.unwrap();
    net.forward(pattern).unwrap();

    let expected = by_layers(&shape, &params, &images, &labels, pattern);
    let plan = net.plan();
    let floats = |at: u64, len: usize| get::<f32>(&card, net.at(at), len);
    near("convolution 1", &floats(plan.first, expected.first.len()), &expected.first);
    let pooled = floats(plan.pooled, expected.pooled.len());
    near("convolution 2, pooled", &pooled, &expected.pooled);
    let winner: Vec<u8> = get(&card, net.at(plan.winner), expected.winner.len());
    let differ = winner.iter().zip(&expected.winner).filter(|(gpu, cpu)| gpu != cpu).count();
    assert!(differ * 1000 <= winner.len(), "{differ} winners of {}", winner.len());
    let hidden = floats(plan.hidden, expected.hidden.len());
    near("dense 1", &hidden, &expected.hidden);
    // The same values are dropped: of those that are clearly above zero before.
    let zeros = |values: &[f32]| values.iter().filter(|value| **value == 0.0).count();
    assert!(zeros(&hidden).abs_diff(zeros(&expected.hidden)) * 1000 <= hidden.len());
    near("softmax", &floats(plan.logits, expected.logits.len()), &expected.logits);
    let own = get::<f32>(&card, net.own(), 2);
    near("loss", &own[..1], &[expected.loss as f32]);
    assert!((own[1] as usize).abs_diff(expected.right) <= count / 50, "{} {}", own[1], expected.right);
    assert_eq!(get::<f32>(&card, net.totals(), 2), [own[0], count as f32]);

    let mut ready = Vec::new();
    net.backward(&mut |layer| {
        ready.push(layer);
        Ok(())
    })
    .unwrap();
    assert_eq!(ready, [3, 2, 1, 0]);
    let sums = get::<f32>(&card, gradient.pointer(), params.len() + TOTALS);
    let mut expected = vec![0.0; params.len()];
    cpu.forward(&params, &images, &labels, pattern);
    cpu.backward(&params, &images, &mut Flat::new(&mut expected, &cpu.layers()));
    let mut start = 0;
    for (layer, len) in cpu.layers().into_iter().enumerate() {
        near(&format!("gradient of layer {layer}"), &sums[start..start + len], &expected[start..start + len]);
        start += len;
    }
    assert_eq!(sums[start..], [own[0], count as f32], "what lies behind the gradients is left alone");

    // No samples at all, as on a rank beyond a batch's end.
    unsafe { net.load(&[], &[]) }.unwrap();
    net.forward(pattern).unwrap();
    net.backward(&mut |_| Ok(())).unwrap();
    let sums = get::<f32>(&card, gradient.pointer(), params.len() + TOTALS);
    assert!(sums.iter().all(|value| *value == 0.0));
}

fn refused() -> String {
    let error = Card::open(0, &places()).map(drop).unwrap_err();
    println!("{error}");
    error.to_string()
}

#[test]
#[ignore = "in a process of its own"]
fn the_driver_is_old() {
    assert!(
        refused().starts_with("the driver knows CUDA 11.4, and hvtui's kernels need 12.0: update it to 525")
    );
}

#[test]
#[ignore = "in a process of its own"]
fn the_card_is_old() {
    assert!(refused().starts_with("the GPU has compute capability 6.0, and hvtui's kernels need 7.0"));
}

#[test]
#[ignore = "in a process of its own"]
fn there_is_no_card() {
    assert!(refused().starts_with("the driver sees no GPU; CUDA_VISIBLE_DEVICES is "));
}

#[test]
#[ignore = "in a process of its own"]
fn the_kernels_are_refused() {
    assert!(refused().starts_with("CUDA: load our kernels: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
}

#[test]
#[ignore = "in a process of its own"]
fn there_is_no_driver() {
    match Card::open(0, &places()) {
        Ok(card) => println!("this machine has one: {}", card.name()),
        Err(error) => assert!(error.to_string().starts_with("no NVIDIA driver"), "{error}"),
    }
}

#[test]
#[ignore = "in a process of its own"]
fn there_is_no_cublas() {
    // A machine may have one where nothing was named; without a real driver it doesn't start.
    let name = card().name();
    assert!(
        name.starts_with("Scripted GPU, without cuBLAS, by our own and slower matrix product: "),
        "{name}"
    );
}

#[test]
#[ignore = "in a process of its own"]
fn cublas_does_not_start() {
    let name = card().name();
    assert!(name.ends_with(": can't start: failed with 1"), "{name}");
}

#[test]
#[ignore = "in a process of its own"]
fn there_is_no_room() {
    let shape = Shape { side: 28, filters: [32, 64], hidden: 128, classes: 10, dropout: [0.25, 0.5] };
    let (card, _group, params, gradient) = buffers(1_199_882);
    let net = |batch| Net::new(Rc::clone(&card), shape, batch, params.clone(), gradient.clone());
    let error = net(128).map(drop).unwrap_err();
    println!("{error}");
    let GpuError::Memory { batch: 128, fits: Some(fits), .. } = error else { panic!("{error}") };
    assert!((10..60).contains(&fits), "{error}");
    assert_eq!(net(fits).unwrap().batch(), fits);
    assert!(net(fits + 1).is_err());
}

#[test]
#[ignore = "in a process of its own"]
fn halves() {
    let card = card();
    let mut values = noise(1, 5000);
    values.extend([
        0.0,
        -0.0,
        1.0,
        65_504.0,
        65_520.0,
        -1e9,
        6e-8,
        3e-8,
        1e-9,
        2049.0,
        2051.0,
        f32::INFINITY,
    ]);
    values.extend((0..2000).map(|at| (at as f32 - 1000.0) * 6.1e-8));
    values.extend((0..2000).map(|at| 1.0 + at as f32 / 4096.0));
    let (count, scale) = (values.len(), 0.25);
    let memory = Memory::new(card.context(), 6 * count).unwrap();
    let (at, halves) = (memory.start(), memory.start() + 4 * count as u64);
    put(&card, at, &values);
    unsafe { card.launch(&Compress { values: at, halves, threads: count as u32, scale }) }.unwrap();
    let bits: Vec<u16> = get(&card, halves, count);
    for (bits, value) in bits.iter().zip(&values) {
        assert_eq!(*bits, f16::from_f32(value * scale).to_bits(), "{value}");
    }
    unsafe { card.launch(&Expand { halves, values: at, threads: count as u32, scale }) }.unwrap();
    for (value, bits) in get::<f32>(&card, at, count).into_iter().zip(bits) {
        assert_eq!(value.to_bits(), (f16::from_bits(bits).to_f32() / scale).to_bits());
    }
}

/// Images of noise in MNIST's size.
struct Noise;

impl Images for Noise {
    fn side(&self) -> usize {
        28
    }

    fn training(&self) -> usize {
        4096
    }

    fn held_out(&self) -> usize {
        1
    }

    fn label(&self, sample: usize) -> u8 {
        (sample % 10) as u8
    }

    fn paint(&self, sample: usize, _: Option<u64>, pixels: &mut [f32]) {
        // Cheap, so that it is the GPU that is measured: a real job paints while the GPU computes.
        pixels
            .iter_mut()
            .enumerate()
            .for_each(|(at, pixel)| *pixel = ((sample * 31 + at * 7) % 16) as f32 / 16.0);
    }
}

fn mnist_task() -> Box<dyn Task> {
    let kind = Kind {
        name: "noise",
        shape: Shape { side: 28, filters: [32, 64], hidden: 128, classes: 10, dropout: [0.25, 0.5] },
        defaults: Defaults { epochs: 1, batch: 128, rate: 1e-3 },
    };
    Box::new(Classifier::new(kind, Noise, 1))
}

/// Lines of a table: the median step of a job on this card, and of its phases, ms.
fn time_steps(name: &str, card: Card, task: Box<dyn Task>, batch: usize, steps: u64) {
    let card = Rc::new(card);
    let group = group(&card);
    let making = Making { task, card, group, seed: 1, bucket_options: BucketOptions::default(), batch };
    let mut replica = GpuReplica::new(making).unwrap();
    let samples: Vec<usize> = (0..batch).collect();
    let mut timings = Vec::new();
    for number in 1..=steps {
        let batch = Batch { samples: &samples, first: 0, seed: number };
        timings.extend(replica.step(number, &batch, 1e-3).unwrap());
    }
    timings.extend(replica.drain().unwrap());
    assert_eq!(timings.len() as u64, steps);
    // The first ones find clocks and caches cold.
    let timings: Vec<_> = timings.into_iter().map(|step| step.timing).skip(steps as usize / 4).collect();
    let median = |of: &dyn Fn(&StepTiming) -> u64| {
        let mut all: Vec<u64> = timings.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2] as f64 / 1e3
    };
    let whole = median(&|step| step.dur_us.into());
    let phases = Phase::ALL
        .map(|phase| format!("{} {:.3}", phase.name(), median(&|step| step.phase_totals()[phase.index()])));
    println!("\n| {name} | {whole:.3} ms: {} |", phases.join(", "));
}

/// Beside `tests/gpu/eager`, which measures the same in PyTorch.
#[test]
#[ignore = "in a process of its own"]
fn step_times() {
    let real = std::env::var_os("FAKE_CUDA_KERNELS").is_none();
    let (batch, steps) = if real { (128, 400) } else { (4, 4) };
    let own = |cublas: bool| {
        let mut card = Card::open(0, &places()).unwrap();
        if !cublas {
            card.cublas = Err("left out".to_owned());
        }
        card
    };
    if own(true).cublas.is_ok() {
        time_steps(&format!("CNN, batch {batch}, cuBLAS"), own(true), mnist_task(), batch, steps);
    }
    time_steps(&format!("CNN, batch {batch}, our own product"), own(false), mnist_task(), batch, steps);
    let bytes = if real { 100_000_000 } else { 1_000_000 };
    let synthetic =
        SyntheticOptions { gradient: Some(bytes), compute: Some(Duration::ZERO), steps: Some(steps) };
    let options = TrainOptions { job: "synthetic".to_owned(), synthetic, ..TrainOptions::default() };
    let task = task::named(&options, 1).unwrap();
    time_steps(&format!("gradient and SGD of {bytes} bytes"), own(false), task, 1, steps);
}
