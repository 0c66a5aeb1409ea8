//! What the UI computes for one frame and for one second's samples: `cargo bench --bench screens`.
//!
//! Hosts of eight GPUs at 200×50, drawn into a buffer as the program does it, without a terminal behind. Each round takes
//! in a new sample of every host, then draws: the times of the frames are those of which every number has changed.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

#[path = "../tests/it/common/world.rs"]
#[allow(dead_code, reason = "the builders of the tests, of which this needs a few")]
mod world;

use std::time::Duration;

use hvtui::clock::host_now;
use hvtui::tui::canvas::Caps;
use hvtui::tui::core::settings::Density;
use hvtui::tui::core::{Msg, Screen};
use hvtui::tui::screens::view::draw;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use world::{FREE, Gpu, Story, busy};

const SIZE: (u16, u16) = (200, 50);
const WARM: usize = 20;
const ROUNDS: usize = 400;

fn main() {
    println!("| hosts × GPUs | screen | a frame: median, ms | p99, ms | a second's samples, ms |");
    println!("|---|---|---|---|---|");
    for hosts in [64, 200, 1000] {
        for (name, screen, density) in [
            ("Cluster, cells", Screen::Cluster, Density::Heat),
            ("Cluster, rows", Screen::Cluster, Density::Rows),
            ("Users", Screen::Users, Density::Auto),
        ] {
            let (frames, samples) = measure(hosts, screen, density);
            let (median, p99) = (at(&frames, 0.5), at(&frames, 0.99));
            println!("| {hosts} × 8 | {name} | {median:.2} | {p99:.2} | {:.1} |", at(&samples, 0.5));
        }
    }
}

/// The times of frames, and of taking in a sample of each host.
fn measure(hosts: usize, screen: Screen, density: Density) -> (Vec<Duration>, Vec<Duration>) {
    let names: Vec<String> = (1..=hosts).map(|number| format!("gpu-{number:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut story = Story::new(&names);
    story.send(Msg::Resize(SIZE.0, SIZE.1));
    for name in &names {
        story.gpu_host(name, 8);
    }
    story.model.settings.density = density;
    story.model.ui.screen = screen;
    let rounds = if hosts > 500 { ROUNDS / 4 } else { ROUNDS };
    let (mut frames, mut samples) = (Vec::new(), Vec::new());
    let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
    for round in 0..WARM + rounds {
        story.wait_ms(1000);
        let begin = host_now();
        for (number, name) in names.iter().enumerate() {
            story.sample(name, 12.0, &gpus(number + round));
        }
        let told = host_now();
        buffer.reset();
        draw(&story.model, Caps::from_env(|_| None), &mut buffer);
        let drawn = host_now();
        if round >= WARM {
            samples.push(Duration::from_micros(told.0 - begin.0));
            frames.push(Duration::from_micros(drawn.0 - told.0));
        }
    }
    (frames, samples)
}

fn gpus(seed: usize) -> [Gpu; 8] {
    std::array::from_fn(|place| match (seed + place * 7) % 11 {
        0..4 => FREE,
        4..8 => busy(90 + (seed % 10) as u32, "li"),
        _ => busy((seed * 13 % 100) as u32, "wang"),
    })
}

/// The value below which such a share of them lies, milliseconds.
fn at(times: &[Duration], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}
