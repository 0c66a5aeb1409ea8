//! Which host keys are right: files of known hosts, host certificates, and the one place that writes a key down. Reads
//! and writes those files and nothing else; knows nothing of connections.

mod error;
mod file;
mod host_cert;
mod host_key;
pub mod known_hosts;
pub(super) mod pattern;
mod server;
mod verdict;

pub use error::{ShownKey, TrustError};
pub use file::{Trusted, trust};
pub use host_key::HostKey;
pub use server::{Allowed, Server};
pub use verdict::CertificateFault;

pub(super) use file::{accept, is_known};
pub(super) use host_cert::{Verdict as CertificateVerdict, judge as judge_certificate, key_of, moment};
pub(super) use host_key::rsa_bits;
pub(super) use known_hosts::{HostName, KnownHosts, Place, Verdict};
pub(super) use server::{RSA_BITS, endpoint, name_is_safe, refusal};
