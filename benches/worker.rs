//! What a training step costs on the CPU: `cargo bench --bench worker`.
//!
//! The network is that of Keras's MNIST example (batch 128, 28×28×1: conv 32, conv 64, pool, dropout, dense 128,
//! dropout, dense 10; 1,199,882 parameters), forward, backward and Adam. CPU time is the process's user and system time
//! over many steps, which other programs on the machine disturb less than the wall clock. The last column says how much
//! arithmetic that is: 9.3 thousand million operations a step, nearly all of them in the second convolution.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::time::Duration;

use hvtui::clock::host_now;
use hvtui::worker::model::cnn::{Cnn, Pattern, Shape};
use hvtui::worker::model::dropout::uniform;
use hvtui::worker::model::optimizer::{Optimizer, Rule, StepSize};
use hvtui::worker::model::sink::{Flat, Sink};
use hvtui::worker::{BucketOptions, RankEnv, Session, TrainOptions, WorkerError, run_as};

const MNIST: Shape = Shape { side: 28, filters: [32, 64], hidden: 128, classes: 10, dropout: [0.25, 0.5] };
const BATCH: usize = 128;
/// Multiplications and additions of one step: each layer's forward, and as many again for each of its gradients (the
/// first convolution needs none for its input).
const OPERATIONS: f64 = 2.0
    * BATCH as f64
    * (2.0 * (676.0 * 9.0 * 32.0) + 3.0 * (576.0 * 288.0 * 64.0 + 9216.0 * 128.0 + 128.0 * 10.0));
const WARM: usize = 5;
const STEPS: usize = 60;

/// User and system time of this process, all threads.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn main() {
    println!("MNIST-shaped CNN, batch {BATCH}, ms a step over {STEPS} steps");
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "threads", "CPU", "wall mean", "wall min", "forward", "backward", "optimizer", "GFLOP/s"
    );
    for threads in [1, 2] {
        measure(threads);
    }
    let begun = host_now().0;
    let env = RankEnv { rank: 0, world: 1, place: None, report: None, group: None };
    let options = TrainOptions { job: "digits".to_owned(), seed: 1, ..TrainOptions::default() };
    let mut printed = Vec::new();
    let outcome = run_as(&options, &env, &mut printed);
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let last = printed.lines().rev().find(|line| line.starts_with("epoch")).unwrap_or("").to_owned();
    println!("\ndigits, one rank, one thread: {:.1} s, {last}", (host_now().0 - begun) as f64 / 1e6);
    if let Err(error) = outcome {
        println!("{error}");
    }
    match events() {
        Ok([none, file]) => println!(
            "an empty step: {none:.1} µs with its phases, {file:.1} µs with its report written to a file as well"
        ),
        Err(error) => println!("{error}"),
    }
}

/// What a step's clock readings cost, µs, and what they cost together with its line in the report file.
fn events() -> Result<[f64; 2], WorkerError> {
    const COUNT: u64 = 20_000;
    let file = std::env::temp_dir().join(format!("hvtui-bench-{}.report", std::process::id()));
    let mut costs = [0.0; 2];
    for (cost, report) in costs.iter_mut().zip([None, Some(file.clone())]) {
        let env = RankEnv { rank: 0, world: 1, place: None, report, group: None };
        let mut session = Session::join("empty", None, &env, &mut std::io::sink())?;
        let mut gradients = session.gradients(&[1], BucketOptions::default())?;
        let begun = host_now().0;
        for number in 1..=COUNT {
            let mut step = session.step(number, &mut gradients);
            step.loaded();
            step.forwarded(0.5, 128);
            step.ready(0);
            step.reduce()?;
            step.done()?;
        }
        *cost = (host_now().0 - begun) as f64 / COUNT as f64;
    }
    let _ = std::fs::remove_file(file);
    Ok(costs)
}

fn measure(threads: usize) {
    let mut net = Cnn::<f32>::new(MNIST, threads);
    let mut params = net.initialise(1);
    let mut adam = Optimizer::new(Rule::Adam, params.len());
    let layers = net.layers();
    let mut gradient = vec![0.0; params.len()];
    let images: Vec<f32> = (0..BATCH * 28 * 28).map(|i| uniform(2, i as u64) as f32).collect();
    let labels: Vec<u8> = (0..BATCH).map(|i| (i % 10) as u8).collect();
    let mut parts = [0; 3];
    let mut best = u64::MAX;
    let (mut began_cpu, mut began) = (Duration::ZERO, 0);
    for step in 0..WARM + STEPS {
        if step == WARM {
            (began_cpu, began, parts) = (cpu(), host_now().0, [0; 3]);
        }
        let start = host_now().0;
        gradient.fill(0.0);
        net.forward(&params, &images, &labels, Some(Pattern { seed: step as u64, first: 0 }));
        let forward = host_now().0;
        net.backward(&params, &images, &mut Flat::new(&mut gradient, &layers));
        let backward = host_now().0;
        adam.step(
            &mut params,
            &gradient,
            StepSize { learning_rate: 1e-3, gradient_scale: 1.0 / BATCH as f32 },
        );
        let end = host_now().0;
        for (part, span) in parts.iter_mut().zip([forward - start, backward - forward, end - backward]) {
            *part += span;
        }
        best = best.min(end - start);
    }
    let mean = |micros: u64| micros as f64 / 1e3 / STEPS as f64;
    println!(
        "{threads:>8} {:>8.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.0}",
        cpu().saturating_sub(began_cpu).as_secs_f64() * 1e3 / STEPS as f64,
        mean(host_now().0 - began),
        best as f64 / 1e3,
        mean(parts[0]),
        mean(parts[1]),
        mean(parts[2]),
        OPERATIONS / 1e3 / best as f64
    );
}
