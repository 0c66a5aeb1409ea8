//! A data-parallel job of one's own in Rust: fits a line to points, each rank to its share of them.
//!
//! Alone: `cargo run --release --example average`. As ranks, on any hosts:
//! `hvtui run -np 4 -H a:2,b:2 -- /path/to/average` (built for them, at the same path on each).

#![expect(clippy::print_stdout, reason = "a program that talks to people")]

use hvtui::collective::{Collective, Reduce};
use hvtui::worker::RankEnv;

/// Points of y = 3x + 1 with a little noise; a rank has every `world`-th.
fn points(rank: u32, world: u32) -> Vec<(f32, f32)> {
    let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as f32 / 2560.0 - 0.05;
    (rank..1000)
        .step_by(world as usize)
        .map(|i| (i as f32 / 1000.0, 3.0 * i as f32 / 1000.0 + 1.0 + noise(i)))
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Who am I, and where do the others meet: from the environment that `hvtui run` sets.
    let mut ranks = RankEnv::from_process()?.join()?;
    let own = points(ranks.rank(), ranks.world());
    // Memory that the other ranks of this host can work on directly: two gradients, and how many points they are of.
    let mut sums = ranks.buffer::<f32>(3)?;
    let (mut slope, mut offset) = (0.0_f32, 0.0_f32);
    // All ranks begin with rank 0's numbers.
    let mut start = [slope, offset];
    ranks.broadcast(0, &mut start)?;
    for _ in 0..2000 {
        sums.fill(0.0);
        for (x, y) in &own {
            let error = slope * x + offset - y;
            sums[0] += error * x;
            sums[1] += error;
            sums[2] += 1.0;
        }
        ranks.allreduce(&mut sums, Reduce::Sum)?;
        slope -= sums[0] / sums[2];
        offset -= sums[1] / sums[2];
    }
    println!(
        "rank {} of {} by {}: y = {slope:.2}x + {offset:.2}",
        ranks.rank(),
        ranks.world(),
        ranks.transport()
    );
    Ok(())
}
