//! The words of hvtui as types: hosts, GPUs, runs, ranks, steps, phases, and the one event stream.
//!
//! Layer 0. Imports nothing of ours and does no I/O, no async and no clock: everything here is plain
//! data with serde, or a pure function of its arguments.

pub mod blame;
pub mod clock_fit;
pub mod collectives;
pub mod container;
pub mod engine;
pub mod environment;
pub mod event;
pub mod gpu;
pub mod hooks;
pub mod host;
pub mod ids;
pub mod late;
pub mod lease;
pub mod log;
pub mod mpirun;
pub mod nccl_log;
pub mod nccl_timing;
pub mod note;
pub mod occupancy;
pub mod options;
pub mod outcome;
pub mod pace;
pub mod passphrase;
pub mod past;
pub mod pickle;
pub mod plausible;
pub mod playback;
pub mod position;
pub mod progress;
pub mod progress_reader;
pub mod question;
mod rank_list;
pub mod rendezvous;
pub mod report;
pub mod run;
pub mod run_log;
pub mod secret;
pub mod share;
pub mod stacks;
pub mod standing;
pub mod straggler;
pub mod sync;
pub mod tags;
pub mod task_end;
pub mod text;
pub mod time;
pub mod timing;
pub mod trace;
pub mod trained;
pub mod trainers;
mod transfer;
pub mod units;
pub mod waiting;
pub mod world;
