//! One file a check.

pub(super) mod clock;
pub(super) mod disk;
pub(super) mod docker;
pub(super) mod driver;
pub(super) mod gpu;
pub(super) mod health;
pub(super) mod horovod;
pub(super) mod hostname;
pub(super) mod interface;
pub(super) mod kernel;
pub(super) mod leftover;
pub(super) mod libraries;
pub(super) mod limits;
pub(super) mod logins;
pub(super) mod logout;
pub(super) mod mpi;
pub(super) mod path;
pub(super) mod ports;
pub(super) mod python;
pub(super) mod reach;
pub(super) mod shm;
pub(super) mod sshd;
pub(super) mod stub;
pub(super) mod tmp;
pub(super) mod torch;
