//! The fault matrix: each row breaks something real under a run and asks that no byte is lost (L), that all tell the
//! same exits (X), and that nothing is left (P). docs/reliability.md has the rows and the last full run.
//!
//! `tests/faults/run --all` runs the slow rows too, `--soak` a random mix of faults.

#![expect(clippy::disallowed_methods, reason = "what is measured is how long a fault is seen")]
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper of a test fails by panicking and says why"
)]

#[cfg(test)]
#[path = "common/client.rs"]
mod client;
#[cfg(test)]
#[path = "common/cluster.rs"]
mod cluster;
#[cfg(test)]
#[path = "faults/dice.rs"]
mod dice;
#[cfg(test)]
#[path = "faults/invariants.rs"]
mod invariants;
#[cfg(test)]
#[path = "faults/links.rs"]
mod links;
#[cfg(test)]
#[path = "faults/matrix.rs"]
mod matrix;
#[cfg(test)]
#[path = "faults/relay.rs"]
mod relay;
#[cfg(test)]
#[path = "faults/rig.rs"]
mod rig;

/// The seed of everything that is left to chance: `HVTUI_FAULTS_SEED`, else one of the clock's. It is printed.
fn seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| {
        let told = std::env::var("HVTUI_FAULTS_SEED").ok().and_then(|text| text.parse().ok());
        let seed = told.unwrap_or_else(|| hvtui::clock::now().0.unsigned_abs());
        eprintln!("HVTUI_FAULTS_SEED={seed}");
        seed
    })
}

matrix::rows! {
    quick 4 row_04_link_silent = links::silent;
    quick 5 row_05_link_reset = links::reset;
    slow 6 row_06_link_flaps = links::flapping;
    quick 7 row_07_one_way_loss = links::one_way;
    quick 8 row_08_lossy_and_far = links::lossy;
    quick 9 row_09_narrow_link = links::narrow;
    quick 10 row_10_corrupt_byte = links::corrupt;
    quick 11 row_11_session_killed = links::session_killed;
    quick 12 row_12_listener_stopped = links::listener_stopped;
    quick 13 row_13_sshd_stopped = links::stopped;
    slow 33 row_33_host_vanishes = links::host_vanishes;
}

#[test]
fn every_row_has_a_number_of_the_matrix() {
    assert!(ROWS.iter().all(
        |row| (1..=40).contains(&row.number) && row.name.starts_with(&format!("row_{:02}_", row.number))
    ));
}
