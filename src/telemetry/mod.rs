//! What a host's GPUs and CPUs do, by NVML and /proc. Layer 2.
