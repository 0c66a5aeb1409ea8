//! Training on a GPU: the same network as `model::cnn`, by NVIDIA's driver, our kernels (`assets/kernels`) and cuBLAS.
//!
//! Needs nothing of CUDA on the host but the driver: kernels are PTX in this program, cuBLAS is taken where it is found, and
//! a kernel of our own multiplies where it is not. Knows the collective's `DeviceGroup`, the driver and the models; knows
//! nothing of jobs' data. Each file that calls the driver says why its calls are sound.
//!
//! What is proven without a GPU, and what not, stands in docs/decisions/gpu-workers.md.

mod buckets;
mod busy;
mod card;
mod cublas;
mod error;
mod kernels;
mod making;
mod memory;
mod model;
mod net;
mod optimizer;
mod plan;
mod product;
mod replica;
mod slots;
#[cfg(test)]
mod tests;
mod timeline;

pub(super) use card::Card;
pub use error::GpuError;
pub(super) use making::{Making, knows};
pub(super) use replica::GpuReplica;
