//! A scripted `libnccl.so.2`, `libcuda.so.1` and `libcublas.so.12` for tests: the same file under all names.
//!
//! Loaded through the real loading path of hvtui and of its bindings; only what those call is exported. Knows nothing of hvtui.
//! The «GPU» is memory of this process, and it is as lazy as CUDA allows: what is put on a stream happens only when a caller
//! waits for it or for what comes after it, so that a missing wait between two streams shows as wrong numbers.
//! In a communicator of several ranks the other ranks bring the same values as this one, unless a folder is named where
//! ranks that are processes of their own exchange them.
//!
//! | variable | what it scripts |
//! |---|---|
//! | `FAKE_NCCL_VERSION` | the version, as NCCL counts it (22705) |
//! | `FAKE_NCCL_ID` | `error`: no unique id can be made |
//! | `FAKE_NCCL_INIT` | how joining ends: `ok`, `error`, `error-RANK` (on that rank alone), `refused` (at once), `never` |
//! | `FAKE_NCCL_POLLS` | after how many polls it ends so (3) |
//! | `FAKE_NCCL_RUN` | what operations do: `ok`, `error` (an async error), `never` (they don't end), `wrong` (one value is wrong) |
//! | `FAKE_NCCL_MEET` | a folder in which the ranks' processes exchange the values of their allreduces |
//! | `FAKE_NCCL_ABORT` | `hang`: an abort never returns |
//! | `FAKE_NCCL_REGISTER` | `error`, `error-RANK`: memory can't be registered |
//! | `FAKE_CUDA_COUNT` | how many GPUs the process sees (8) |
//! | `FAKE_CUDA_PIN` | `error`: host memory can't be pinned |
//! | `FAKE_CUDA_VERSION` | the driver's, as CUDA counts it (13000) |
//! | `FAKE_CUDA_CAPABILITY` | their major compute capability (9) |
//! | `FAKE_CUDA_MEMORY` | bytes of a card (80 GiB) |
//! | `FAKE_CUDA_PTX` | `refused`: no module can be loaded |
//! | `FAKE_CUDA_KERNELS` | the kernels, made for this processor: see `processor.h` |
//! | `FAKE_CUBLAS` | `error`: it can't be started |
//! | `FAKE_NCCL_LOG` | a file that gets a line for each call worth one |

#![expect(unsafe_code, reason = "this is a C library: exported functions and the caller's pointers")]
#![expect(
    unreachable_pub,
    reason = "exported under the names of nccl.h, cuda.h and cublas_v2.h, whose contracts they have"
)]

mod cublas;
mod cuda;
mod gpu;
mod meet;
mod module;
mod nccl;
mod script;
