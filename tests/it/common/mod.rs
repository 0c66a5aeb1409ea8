//! What tests share: hosts, clients, terminals, servers and scripted devices.

pub(crate) mod alone;
pub(crate) mod bed;
pub(crate) mod built;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod docker;
pub(crate) mod echo;
pub(crate) mod fake_nvml;
pub(crate) mod group_config;
pub(crate) mod group_threads;
pub(crate) mod horovod_client;
pub(crate) mod in_time;
pub(crate) mod left;
pub(crate) mod matrix;
pub(crate) mod person;
pub(crate) mod plan;
pub(crate) mod processes;
pub(crate) mod program;
pub(crate) mod rank_processes;
pub(crate) mod scripted_gpu;
pub(crate) mod source;
pub(crate) mod sshd;
pub(crate) mod stuck_file;
pub(crate) mod terminal;
pub(crate) mod trace_processor;
pub(crate) mod world;

#[path = "../../fuzz/bodies.rs"]
pub(crate) mod bodies;
