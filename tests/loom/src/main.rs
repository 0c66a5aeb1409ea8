//! Tries the synchronisation of the ranks of one host in all orders that a bound leaves.
//!
//! `src/collective/shm` of hvtui is compiled here as it is, but for two modules: `machine` (words, futex, barriers, copies),
//! whose place loom's take, and `mapping`, whose files are memory of this process. A rank is a thread of loom's.

mod collective;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use collective::MODELS;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names == ["--list"] {
        MODELS.iter().for_each(|(name, ..)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    for name in &names {
        let Some((_, bound, model)) = MODELS.iter().find(|(other, ..)| other == name) else {
            eprintln!("there is no model '{name}'; --list names them");
            return ExitCode::from(2);
        };
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 20_000;
        // how often it looks at the time
        builder.checkpoint_interval = 500;
        let bound = *builder.preemption_bound.get_or_insert(*bound);
        let (orders, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let count = Arc::clone(&orders);
        builder.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            model();
        });
        // Where time is up loom ends as it does when all is done.
        let whole = builder.max_duration.is_none_or(|most| begun.elapsed() < most);
        let (orders, seconds) = (orders.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
        let what = if whole { "all" } else { "TIME WAS UP, not all" };
        println!(
            "{name}: {orders} orders ({what} with at most {bound} preemptions) in {seconds:.1} s, no fault"
        );
    }
    ExitCode::SUCCESS
}

/// Whether this fault is to be there: `run --faults` plants them in a copy, each behind this switch.
#[allow(dead_code, reason = "only the copy has faults")]
fn is_planted(name: &str) -> bool {
    static ACTIVE: OnceLock<String> = OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("HVTUI_LOOM_FAULT").unwrap_or_default()) == name
}
