//! What is known of a host: fixed facts, one sample of its live values, and the state of the link to it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::bounded;
use super::gpu::topology::Topology;
use super::gpu::{GpuInfo, GpuSample, Reading};
use super::plausible::GPUS;
use super::time::Stamp;

/// Facts that hold while an agent is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// The kernel's host name.
    pub hostname: String,
    /// Kernel release, `6.1.0-18-amd64`.
    pub kernel: String,
    /// Machine architecture, `x86_64`.
    pub arch: String,
    /// The login name the agent runs under.
    pub user: String,
    /// Logical CPUs this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_total: Reading<u64>,
    /// Changes at each boot.
    pub boot_id: String,
    /// hvtui's version there.
    pub agent_version: String,
    /// SHA-256 of the binary that answers there, hexadecimal; `None` where no agent runs, and in old recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_build: Option<String>,
    /// What the host printed at login before the agent spoke, sanitised, its first 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banner: Option<String>,
    /// What let the client in: the key, or the method. `None` on its own machine, and in old recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Addresses by interface, loopback left out.
    pub addresses: Vec<InterfaceAddress>,
    /// The address by which ssh reached the host, from `SSH_CONNECTION`.
    pub ssh_server_address: Option<IpAddr>,
    /// The address from which ssh came.
    pub ssh_client_address: Option<IpAddr>,
    /// GPUs in index order; empty with a reason in `gpu_absence`.
    #[serde(deserialize_with = "bounded::list::<GPUS, _, _>")]
    pub gpus: Vec<GpuInfo>,
    /// Why there is no GPU data.
    pub gpu_absence: Option<GpuAbsence>,
    /// NVIDIA driver version.
    pub driver: Reading<String>,
    /// The newest CUDA version that the driver serves, `13.0`.
    pub cuda_driver: Reading<String>,
    /// NCCL's version where the loader finds a library.
    pub nccl: Reading<String>,
    /// How its GPUs are connected; `None` where the driver does not tell, and in old recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

impl HostInfo {
    /// Whether the host was booted since it told `before`. Where a kernel names no boot (empty, or `unknown`) that is not known.
    pub fn is_booted_since(&self, before: &Self) -> bool {
        let is_known = |info: &Self| !matches!(info.boot_id.as_str(), "" | "unknown");
        is_known(self) && is_known(before) && self.boot_id != before.boot_id
    }
}

/// One address of one network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAddress {
    /// Kernel name, `eth0`.
    pub interface: String,
    /// Address.
    pub address: IpAddr,
}

/// Why a host shows no GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuAbsence {
    /// The kind of trouble.
    pub reason: GpuAbsenceReason,
    /// The driver's or the loader's own words, with versions where known.
    pub detail: String,
}

/// The kinds of trouble that leave a host without GPU data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuAbsenceReason {
    /// `libnvidia-ml.so.1` is not installed: an ordinary CPU host.
    NoLibrary,
    /// The loaded kernel module and the library differ in version: reboot or reload the module.
    DriverMismatch,
    /// The library is there and the kernel module is not loaded.
    DriverNotLoaded,
    /// Driver and library work and count no device.
    NoDevice,
    /// The user may not open the devices.
    NoPermission,
    /// Anything else; see the detail.
    Other,
}

impl GpuAbsence {
    /// The reason for people, with the detail where the reason alone says little.
    pub fn words(&self) -> String {
        match self.reason {
            GpuAbsenceReason::NoLibrary | GpuAbsenceReason::NoDevice => self.reason.explain().to_owned(),
            reason => format!("{} ({})", reason.explain(), self.detail),
        }
    }
}

impl GpuAbsenceReason {
    /// Whether it is a fault: the host may well have GPUs, and its driver does not work.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::NoLibrary | Self::NoDevice)
    }

    /// A sentence for people, with the remedy where there is one.
    pub fn explain(self) -> &'static str {
        match self {
            Self::NoLibrary => "no NVIDIA driver library",
            Self::DriverMismatch => "driver and library versions differ: reboot or reload the nvidia module",
            Self::DriverNotLoaded => "NVIDIA kernel module not loaded: modprobe nvidia, or reboot",
            Self::NoDevice => "NVIDIA driver finds no device",
            Self::NoPermission => "no permission to open the NVIDIA devices: check /dev/nvidia*",
            Self::Other => "NVML failed",
        }
    }
}

/// One reading of a host's live values, at 1 Hz.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Busy share of all CPUs since the last sample, percent 0..=100.
    pub cpu_percent: Reading<f32>,
    /// Memory not available to new work, bytes (`MemTotal - MemAvailable`).
    pub memory_used: Reading<u64>,
    /// Load averages over 1, 5 and 15 minutes.
    pub load: Reading<[f32; 3]>,
    /// Bytes a second received over all interfaces but loopback.
    pub net_rx: Reading<u64>,
    /// Bytes a second sent over all interfaces but loopback.
    pub net_tx: Reading<u64>,
    /// One per GPU of [`HostInfo::gpus`], same order.
    #[serde(deserialize_with = "bounded::list::<GPUS, _, _>")]
    pub gpus: Vec<GpuSample>,
}

/// The state of the link to a host, in the order in which a good one passes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "link", rename_all = "snake_case")]
pub enum LinkState {
    /// TCP, ssh handshake and authentication are under way.
    Connecting {
        /// `user@address:port`, or `local`.
        to: String,
    },
    /// The binary is being put on the host.
    Installing {
        /// Bytes to send; 0 when it was there.
        bytes: u64,
    },
    /// The agent answers.
    Up,
    /// No agent can run there, but the host's own tools tell what it does: it is shown, and takes no ranks.
    Limited {
        /// Lowercase sentence: why there is no agent and what to do.
        reason: String,
    },
    /// The link was lost or never came; the client tries again.
    Down {
        /// Lowercase sentence: what failed, where.
        reason: String,
        /// When the next try starts; `None` while nothing is planned.
        retry_at: Option<Stamp>,
    },
    /// Trying again makes no sense before a person acts: host key, authentication, version.
    Refused {
        /// Lowercase sentence: what was refused and the remedy.
        reason: String,
        /// What sort of refusal, for the exit code.
        kind: RefusalKind,
    },
}

/// What sort of refusal stopped a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// Unknown, changed or revoked host key: exit 77.
    HostKey,
    /// No credential was accepted: exit 77.
    Authentication,
    /// The agent can't be installed or speaks another protocol: exit 69.
    Agent,
}
