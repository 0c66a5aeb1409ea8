//! hvtui: one terminal for a GPU cluster that is reached by SSH.
//!
//! ```text
//!    you ── hvtui (tui | cli) ── one SSH connection per host ── hvtui agent (telemetry, spool reader)
//!                 │  recorder: one MCAP file per run                 │ files and signals
//!                 ▼                                                  ▼
//!           ~/.local/state/hvtui/                     hvtui supervise ── rank-wrap ── rank 0 (any program)
//!                                                                    └─ rank-wrap ── rank 1   output straight into files
//! ```
//!
//! Layers; imports point down only, and `tests/it/layering.rs` fails on any other:
//!
//! ```text
//! L4  cli            wires the program together; alone writes to standard output
//! L4  tui            runtime (terminal) · source (live | replay) · view (drawing) · core (pure update)
//! L3  launcher       from a request to ranks on hosts        L3  agent      serves one client on a host
//! L3  cluster        one task per host                       L3  supervise  owns a run's processes on a host
//! L3  config         hosts.toml                              L3  worker     one rank of our own training jobs
//! L3  demo           hosts that do not exist                 L3  doctor     what is wrong with hosts, and what helps
//! L2  telemetry · collective · record · rendezvous · ssh · sync · image   siblings hardly import each other
//! L2  clock · sched · filelock · program · procs · sha256 · tcp_info     the system, other programs, processes, contents
//! L1  wire           what client and agent say                L1  launch     what people type, understood
//! L1  report         the figures of runs in words
//! L0  domain         the words as types; the one event stream and its fold
//! ```

pub mod agent;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod collective;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod domain;
pub mod filelock;
pub mod image;
pub mod launch;
pub mod launcher;
pub mod procs;
pub mod program;
pub mod record;
pub mod rendezvous;
pub mod report;
pub mod sched;
pub mod sha256;
pub mod ssh;
pub mod supervise;
pub mod sync;
pub mod tcp_info;
pub mod telemetry;
pub mod tui;
pub mod wire;
pub mod worker;

/// Replays take and drop columns of a million values: with the C library's allocator they took twice as long
/// (docs/decisions/recording.md).
// AddressSanitizer and libFuzzer's limits, with which `tests/fuzz/run` runs, see the C library's allocator alone
#[cfg(not(fuzzing))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
