//! The fault matrix: each row breaks something real under a run and asks that no byte is lost (L), that all tell the
//! same exits (X), and that nothing is left (P). docs/reliability.md has the rows and the last full run.
//!
//! `tests/faults/run --all` runs the slow rows too, `--soak` a random mix of faults.

#![expect(clippy::disallowed_methods, reason = "what is measured is how long a fault is seen")]
#![expect(clippy::print_stderr, reason = "a row says its seed and what it measured")]

mod attached;
mod bootstrap;
mod dice;
mod ends;
mod floods;
mod invariants;
mod links;
mod logins;
mod matrix;
mod odd;
mod relay;
mod rig;
mod screen;
mod soak;
mod starts;
mod survivors;
mod uploads;

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
    slow 1 row_01_client_killed = attached::client_killed;
    slow 2 row_02_ui_left_by_key = attached::left_by_key;
    slow 3 row_03_terminal_closed = attached::terminal_closed;
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
    slow 14 row_14_one_startup = logins::one_startup;
    slow 15 row_15_one_session = logins::one_session;
    slow 16 row_16_wrong_key = odd::wrong_key;
    slow 17 row_17_host_key_changed = logins::changed_key;
    slow 18 row_18_key_revoked = logins::revoked_key;
    slow 19 row_19_dead_ssh_agent = logins::dead_ssh_agent;
    slow 20 row_20_noisy_login = logins::noisy_login;
    slow 20 row_20_password_expired = logins::password_expired;
    slow 21 row_21_login_shells = logins::login_shells;
    slow 22 row_22_upload_cut = bootstrap::upload_cut;
    slow 22 row_22_upload_cut_at_half = uploads::cut_at_half;
    slow 23 row_23_no_room_for_the_binary = bootstrap::no_room;
    slow 23 row_23_disk_fills = uploads::disk_fills;
    slow 24 row_24_binary_swapped = bootstrap::swapped;
    slow 25 row_25_two_install_at_once = bootstrap::two_install;
    slow 26 row_26_another_build = attached::another_build;
    slow 26 row_26_newer_supervisor = attached::newer_supervisor;
    quick 27 row_27_agent_killed = ends::agent_killed;
    quick 28 row_28_supervisor_killed = survivors::supervisor_killed;
    quick 29 row_29_supervisor_and_rank_killed = survivors::supervisor_and_rank_killed;
    quick 30 row_30_rank_exits = ends::rank_exits;
    quick 30 row_30_rank_crashes = ends::rank_crashes;
    slow 30 row_30_out_of_memory = odd::out_of_memory;
    quick 31 row_31_deaf_rank = ends::deaf_rank;
    slow 32 row_32_unkillable = odd::unkillable;
    slow 33 row_33_host_vanishes = links::host_vanishes;
    slow 34 row_34_reboot = survivors::reboot;
    slow 35 row_35_pid_reused = ends::pid_reused;
    quick 36 row_36_own_flood = floods::own_flood;
    quick 36 row_36_strangers_file = floods::strangers_file;
    slow 37 row_37_floods_and_a_long_line = floods::flood_and_long_line;
    slow 38 row_38_clock_steps = odd::clock_steps;
    slow 39 row_39_holder_killed = survivors::holder_killed;
    slow 40 row_40_host_lost_while_starting = starts::host_lost_while_starting;
    slow 40 row_40_lost_at_each_edge = starts::at_each_edge;
}

#[test]
fn every_row_of_the_matrix_has_a_test_or_says_why_not() {
    let told: toml::Table = include_str!("../faults/matrix.toml").parse().expect("TOML");
    let told = told["row"].as_array().expect("rows");
    let numbers: Vec<i64> = told.iter().filter_map(|row| row["number"].as_integer()).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<i64>>());
    for (row, number) in told.iter().zip(1..) {
        let here = ROWS.iter().any(|test| test.number == number);
        let tested = here || row.get("elsewhere").is_some();
        let absent = row.get("absent").is_some();
        assert!(tested != absent, "row {number}: tests here or elsewhere, or a reason why there are none");
    }
    for test in ROWS {
        assert!(test.name.starts_with(&format!("row_{:02}_", test.number)), "{}", test.name);
    }
}
