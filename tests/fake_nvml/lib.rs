//! A scripted `libnvidia-ml.so.1` for tests: NVML's C functions, answered from a file.
