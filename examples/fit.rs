//! A data-parallel training of one's own: a small network learns sin(x), each rank from its share of the points.
//!
//! Alone: `cargo run --release --example fit`. As ranks, on any hosts: `hvtui run -np 4 -H a:2,b:2 -- /path/to/fit`.

#![expect(clippy::print_stdout, reason = "a program that talks to people")]

use hvtui::worker::model::dense::{Dense, backward_relu, relu};
use hvtui::worker::model::dropout::uniform;
use hvtui::worker::model::loss::squared_error;
use hvtui::worker::model::optimizer::{Optimizer, Rule};
use hvtui::worker::model::sink::Sink;
use hvtui::worker::{BucketOptions, Session};

const STEPS: u64 = 3000;
const POINTS: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Who am I, and where do the others meet: from the environment that `hvtui run` sets.
    let mut session = Session::init("fit", Some(STEPS))?;
    let net = [Dense { inputs: 1, outputs: 64 }, Dense { inputs: 64, outputs: 1 }];
    let layers = net.map(Dense::params);
    let mut params: Vec<f32> =
        (0..layers[0] + layers[1]).map(|i| uniform(1, i as u64) as f32 - 0.5).collect();
    session.broadcast(&mut params)?; // all begin with rank 0's
    // One layer is on its way while the gradient of the other is being computed.
    let mut gradients = session.gradients(&layers, BucketOptions { first: 1, ..BucketOptions::default() })?;
    let mut adam = Optimizer::new(Rule::Adam, params.len());
    let mine = (session.rank() as usize..POINTS).step_by(session.world() as usize);
    let x: Vec<f32> = mine.map(|i| 6.0 * i as f32 / POINTS as f32 - 3.0).collect();
    let y: Vec<f32> = x.iter().map(|x| x.sin()).collect();
    let (mut hidden, mut hidden_gradient) = (vec![0.0; 64 * x.len()], vec![0.0; 64 * x.len()]);
    let (mut output, mut loss) = (vec![0.0; x.len()], f32::NAN);
    for number in 1..=STEPS {
        let mut step = session.step(number, &mut gradients);
        step.loaded(); // ends the phase «data»
        let (first, second) = params.split_at(layers[0]);
        net[0].forward(first, &x, &mut hidden);
        relu(&mut hidden);
        net[1].forward(second, &hidden, &mut output);
        step.forwarded(squared_error(&mut output, &y) as f32, x.len());
        net[1].backward(second, &hidden, &output, step.at(1), Some(&mut hidden_gradient));
        step.ready(1);
        backward_relu(&hidden, &mut hidden_gradient, 1.0);
        net[0].backward(first, &x, &hidden_gradient, step.at(0), None);
        step.ready(0);
        let together = step.reduce()?;
        loss = together.loss;
        step.update(&mut adam, &mut params, together, 0.003);
        step.done()?; // reported: a row of the Run screen
    }
    println!(
        "rank {} of {}: mean squared error below 0.001: {}",
        session.rank(),
        session.world(),
        loss < 1e-3
    );
    Ok(session.done()?)
}
