//! What can go wrong with a rank's GPU.

use crate::collective::CollectiveError;
use crate::collective::nccl::NcclError;
use crate::domain::units::bytes;

/// Why a rank can't train on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The driver is there, and the process sees no card.
    #[error("the driver sees no GPU; CUDA_VISIBLE_DEVICES is {visible}")]
    NoCard {
        /// The variable, or that it is not set.
        visible: String,
    },
    /// The driver doesn't know our kernels' PTX.
    #[error(
        "the driver knows CUDA {version}, and hvtui's kernels need 12.0: update it to 525 or newer, or train with --device cpu"
    )]
    OldDriver {
        /// As people write it.
        version: String,
    },
    /// The card is from before our kernels' architecture.
    #[error(
        "the GPU has compute capability {capability}, and hvtui's kernels need 7.0: train with --device cpu"
    )]
    OldCard {
        /// As people write it.
        capability: String,
    },
    /// The card has no room for the network and its batch.
    #[error("{}", no_room([*.batch, *.wanted, *.free, *.total], *.fits))]
    Memory {
        /// Samples a step on this rank.
        batch: usize,
        /// Bytes of all that is needed.
        wanted: usize,
        /// Bytes that are free.
        free: usize,
        /// Bytes of the card.
        total: usize,
        /// Samples a step that fit; `None`: not even one.
        fits: Option<usize>,
    },
    /// More samples than the kernels' numbers count to.
    #[error("a batch of {batch} samples on one rank is more than the kernels count to; at most {most}")]
    Batch {
        /// What was asked for.
        batch: usize,
        /// What can be.
        most: usize,
    },
    /// cuBLAS refused.
    #[error("cuBLAS: {what}: failed with {code}")]
    Cublas {
        /// What was tried.
        what: &'static str,
        /// `cublasStatus_t`.
        code: i32,
    },
    /// The driver refused, or there is none.
    #[error(transparent)]
    Cuda(#[from] NcclError),
    /// The ranks could not work together.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

fn no_room([batch, wanted, free, total]: [usize; 4], fits: Option<usize>) -> String {
    let size = |count: usize| bytes(count as u64);
    let remedy = match fits {
        Some(fits) => format!("a batch of {fits} fits"),
        None => "not even a batch of 1 fits; what else uses the GPU?".to_owned(),
    };
    format!(
        "the GPU has {} free of {}, and a batch of {batch} on this rank wants {}; {remedy}",
        size(free),
        size(total),
        size(wanted)
    )
}
