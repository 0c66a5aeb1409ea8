//! Collectives of GPUs: by NCCL where all ranks can use it, else by the hosts' memory.
//!
//! [`Library::find`] says whether there is an NCCL, [`Device::open`] whether there is a GPU; «no» is an ordinary answer of both.
//! [`DeviceGroup::open`] then lets the ranks agree on one backend, and serves memory ([`DeviceBuffer`]) whose
//! pointers the program's kernels use and on which operations work in place, in order with the program's streams.
//!
//! What is proven without a GPU, and what not, stands in docs/decisions/nccl.md.

mod choice;
mod chunks;
mod comm;
mod device;
mod direct;
mod error;
mod group;
mod init;
mod library;
mod life;
mod pinned;
mod places;
mod queue;
mod staging;
mod stamps;
#[cfg(test)]
pub(crate) mod tests;

pub use comm::Limits;
pub(crate) use device::clear;
pub use device::{Device, DeviceBuffer, DeviceRange};
pub use error::NcclError;
pub(crate) use error::cuda;
pub use group::{BackendPreference, DeviceGroup, DeviceGroupOptions, DeviceWork, HostAccess};
pub use library::Library;
pub(crate) use library::{load, words};
pub use places::{Places, Wanted};
pub use stamps::Timed;
