//! What can go wrong with a GPU, its driver or NCCL, before it becomes an error of the group.

use super::super::error::CollectiveError;

/// Why the GPUs' way to the other ranks can't be taken, or broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// There is no NCCL: an ordinary state of a host.
    #[error("no libnccl.so.2: {0}; install NCCL, or name its folder in HVTUI_GPU_LIBS")]
    NoLibrary(String),
    /// A file that should be NCCL can't be loaded.
    #[error("{path} can't be loaded: {reason}")]
    Broken {
        /// The file.
        path: String,
        /// The loader's words.
        reason: String,
    },
    /// It has no communicators that can be polled and given up.
    #[error("{path} is NCCL {version}, and hvtui needs 2.14 or newer")]
    TooOld {
        /// The file.
        path: String,
        /// Its version.
        version: String,
    },
    /// There is no NVIDIA driver: an ordinary state of a host.
    #[error("no NVIDIA driver (libcuda.so.1)")]
    NoDriver,
    /// There is a driver, and no GPU for this process: an ordinary state of a rank.
    #[error(
        "the NVIDIA driver shows no GPU to this process; look at CUDA_VISIBLE_DEVICES, or ask for GPU slots"
    )]
    NoGpu,
    /// The driver refused.
    #[error("CUDA: {what}: {reason}")]
    Cuda {
        /// What was tried.
        what: &'static str,
        /// The driver's words.
        reason: String,
    },
    /// NCCL refused.
    #[error("NCCL: {what}: {reason}")]
    Nccl {
        /// What was tried.
        what: &'static str,
        /// The library's words.
        reason: String,
    },
    /// NCCL did not get there in time. It doesn't say which rank it waits for.
    #[error(
        "NCCL: {what}: not done within {seconds} s; a rank is stuck, or the GPUs can't reach each other (NCCL_DEBUG=INFO says more)"
    )]
    Late {
        /// What was awaited.
        what: &'static str,
        /// The deadline.
        seconds: u64,
    },
    /// Giving up did not work either: what hangs is in this process until it ends.
    #[error("{why}; and NCCL did not give up within {seconds} s: end this process")]
    Hung {
        /// What was given up for.
        why: Box<NcclError>,
        /// How long that was tried.
        seconds: u64,
    },
    /// An earlier error ended it.
    #[error("the communicator of the GPUs has already failed")]
    Ended,
    /// A range that lies outside its buffer.
    #[error("bytes {start} to {end} of a device buffer of {bytes} bytes that holds {dtype} values")]
    Range {
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
        /// The buffer's length.
        bytes: usize,
        /// What the values are.
        dtype: super::super::element::DType,
    },
}

impl NcclError {
    /// As an error of the group, on this rank.
    pub fn on(self, rank: u32) -> CollectiveError {
        CollectiveError::System { rank, what: "GPU collectives", reason: self.to_string() }
    }
}

/// The driver's refusal of `what`.
pub(crate) fn cuda(what: &'static str) -> impl Fn(cudarc::driver::DriverError) -> NcclError {
    move |error| NcclError::Cuda { what, reason: format!("{:?}: {}", error.0, words(error)) }
}

fn words(error: cudarc::driver::DriverError) -> String {
    error.error_string().map_or_else(|_| "no text".to_owned(), |text| text.to_string_lossy().into_owned())
}
