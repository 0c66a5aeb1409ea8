//! The network makes of a batch what PyTorch makes of it: values, loss, gradients, and parameters after some steps.
//!
//! `tests/fixtures/parity/make` wrote the file, and says what is in it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::optimizer::{Optimizer, Rule, StepSize};
use super::super::sink::Flat;
use super::{Cnn, Shape};

const FILE: &[u8] = include_bytes!("../../../../tests/fixtures/parity/cnn.bin");
/// How far a value may be off, as a share of the greatest of its tensor.
const OFF: f64 = 1e-4;
/// The tensors of a set of parameters, in the order of the flat buffer.
const PARAMETERS: [&str; 8] = [
    "conv1.weight",
    "conv1.bias",
    "conv2.weight",
    "conv2.bias",
    "dense1.weight",
    "dense1.bias",
    "dense2.weight",
    "dense2.bias",
];

#[derive(Deserialize)]
struct Head {
    side: usize,
    filters: [usize; 2],
    hidden: usize,
    classes: usize,
    adam_rate: f32,
    sgd_rate: f32,
    momentum: f32,
    steps: u32,
    tensors: Vec<(String, usize)>,
}

struct Reference {
    head: Head,
    tensors: BTreeMap<String, Vec<f32>>,
}

impl Reference {
    fn read() -> Self {
        let end = FILE.iter().position(|byte| *byte == b'\n').unwrap();
        let head: Head = serde_json::from_slice(&FILE[..end]).unwrap();
        let (values, rest) = FILE[end + 1..].as_chunks::<4>();
        assert!(rest.is_empty());
        let mut values = values.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let tensors: BTreeMap<String, Vec<f32>> = head
            .tensors
            .iter()
            .map(|(name, len)| (name.clone(), values.by_ref().take(*len).collect()))
            .collect();
        assert!(values.next().is_none() && tensors.iter().all(|(_, tensor)| !tensor.is_empty()));
        Self { head, tensors }
    }

    fn get(&self, name: &str) -> &[f32] {
        &self.tensors[name]
    }

    /// A set of parameters in one buffer.
    fn flat(&self, set: &str) -> Vec<f32> {
        PARAMETERS.iter().flat_map(|name| self.get(&format!("{set} {name}"))).copied().collect()
    }

    /// Which tensors of a set differ, each with by how much.
    fn differences(&self, set: &str, ours: &[f32]) -> Vec<String> {
        let mut rest = ours;
        let mut found = Vec::new();
        for name in PARAMETERS {
            let name = format!("{set} {name}");
            let theirs = self.get(&name);
            let own;
            (own, rest) = rest.split_at(theirs.len());
            found.extend(difference(&name, own, theirs));
        }
        assert!(rest.is_empty());
        found
    }
}

/// In words, where the two are too far apart.
fn difference(name: &str, ours: &[f32], theirs: &[f32]) -> Option<String> {
    assert_eq!(ours.len(), theirs.len(), "{name}");
    let greatest = theirs.iter().fold(0.0, |most: f64, value| most.max(f64::from(*value).abs()));
    let off = |at: usize| (f64::from(ours[at]) - f64::from(theirs[at])).abs() / greatest;
    let worst = (0..ours.len()).max_by(|a, b| off(*a).total_cmp(&off(*b)))?;
    // a NaN is far from everything, and the greatest of a total order
    let near = off(worst) < OFF;
    println!("{name}: {:.1e} off at most", off(worst));
    (!near).then(|| format!("{name}[{worst}]: {} is {:.1e} off {}", ours[worst], off(worst), theirs[worst]))
}

/// What a batch of the reference goes through.
struct Batch {
    reference: Reference,
    labels: Vec<u8>,
    net: Cnn<f32>,
}

impl Batch {
    fn new(threads: usize) -> Self {
        let reference = Reference::read();
        let Head { side, filters, hidden, classes, .. } = reference.head;
        let labels = reference.get("labels").iter().map(|label| *label as u8).collect();
        let net = Cnn::new(Shape { side, filters, hidden, classes, dropout: [0.0; 2] }, threads);
        Self { reference, labels, net }
    }

    /// The mean loss, and the gradient of the sum of losses.
    fn gradient(&mut self, params: &[f32]) -> (f32, Vec<f32>) {
        let images = self.reference.get("images");
        let (loss, _) = self.net.forward(params, images, &self.labels, None);
        let mut gradient = vec![0.0; params.len()];
        let layers = self.net.layers();
        self.net.backward(params, images, &mut Flat::new(&mut gradient, &layers));
        ((loss / self.labels.len() as f64) as f32, gradient)
    }

    fn scale(&self) -> f32 {
        1.0 / self.labels.len() as f32
    }
}

#[test]
fn values_loss_and_gradients_are_those_of_pytorch() {
    for threads in [1, 2] {
        let mut batch = Batch::new(threads);
        let params = batch.reference.flat("start");
        let (loss, gradient) = batch.gradient(&params);
        let scaled: Vec<f32> = gradient.iter().map(|value| value * batch.scale()).collect();
        let (reference, net) = (&batch.reference, &batch.net);
        let mut found = Vec::new();
        for (name, own) in [("first", &net.first), ("pooled", &net.pooled), ("hidden", &net.hidden)] {
            let name = format!("values {name}");
            found.extend(difference(&name, own, reference.get(&name)));
        }
        found.extend(difference("loss", &[loss], reference.get("loss")));
        found.extend(reference.differences("gradient", &scaled));
        assert!(found.is_empty(), "{threads} threads: {found:#?}");
    }
}

/// The parameters after the steps of the reference.
fn trained(rule: impl Fn(&Head) -> (Rule, f32)) -> (Batch, Vec<f32>) {
    let mut batch = Batch::new(1);
    let mut params = batch.reference.flat("start");
    let (rule, rate) = rule(&batch.reference.head);
    let mut optimizer = Optimizer::new(rule, params.len());
    for _ in 0..batch.reference.head.steps {
        let (_, gradient) = batch.gradient(&params);
        optimizer.step(
            &mut params,
            &gradient,
            StepSize { learning_rate: rate, gradient_scale: batch.scale() },
        );
    }
    (batch, params)
}

/// The steps of the reference change every tensor by much more than may be off: without them, or with others, the
/// test would fail.
fn assert_moved(reference: &Reference, set: &str) {
    for name in PARAMETERS {
        let (after, before) =
            (reference.get(&format!("{set} {name}")), reference.get(&format!("start {name}")));
        let greatest =
            |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, |most: f32, v| most.max(v.abs()));
        let moved = greatest(&mut after.iter().zip(before).map(|(after, before)| after - before));
        let share = f64::from(moved / greatest(&mut after.iter().copied()));
        assert!(share > 50.0 * OFF, "{set} {name} moves by {share:.1e} of its greatest value only");
    }
}

#[test]
fn adam_s_steps_are_those_of_pytorch() {
    let (batch, params) = trained(|head| (Rule::Adam, head.adam_rate));
    let found = batch.reference.differences("adam", &params);
    assert!(found.is_empty(), "{found:#?}");
    assert_moved(&batch.reference, "adam");
}

#[test]
fn the_steps_of_momentum_are_those_of_pytorch() {
    let (batch, params) = trained(|head| (Rule::Sgd { momentum: head.momentum }, head.sgd_rate));
    let found = batch.reference.differences("sgd", &params);
    assert!(found.is_empty(), "{found:#?}");
    assert_moved(&batch.reference, "sgd");
}

#[test]
fn what_differs_is_named() {
    let reference = Reference::read();
    let mut ours = reference.flat("gradient");
    assert!(reference.differences("gradient", &ours).is_empty());
    *ours.last_mut().unwrap() *= 1.5;
    ours[40] = f32::NAN;
    let found = reference.differences("gradient", &ours);
    let named = |name| found.iter().any(|one| one.starts_with(name));
    assert!(
        found.len() == 2 && named("gradient conv2.weight[0]") && named("gradient dense2.bias[9]"),
        "{found:?}"
    );
}
