//! The choices of how a host is reached: by which way, whose ssh, and how strictly its key is taken. Knows nothing of
//! how they are carried out.

pub use crate::domain::question::HostKeyPolicy;

use super::target::Target;

/// How bytes get to a host's sshd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Route {
    /// By a TCP connection of our own.
    #[default]
    Direct,
    /// Through the sshd of another host, which may have a route of its own.
    Jump(Box<Target>),
    /// Through the standard streams of a command line, run by `/bin/sh`; its tokens are expanded already.
    Command(String),
}

/// Whose ssh speaks with a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TransportKind {
    /// hvtui's own, by russh.
    #[default]
    Russh,
    /// The system's `ssh`, once a command.
    OpenSsh(OpenSsh),
}

/// How the system's `ssh` is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSsh {
    /// The program.
    pub program: std::path::PathBuf,
    /// The name to give it: an alias of the person's own configuration, or the address.
    pub alias: String,
    /// The configuration file to name to it; `None`: its own rules.
    pub config: Option<std::path::PathBuf>,
    /// What the configuration says may be unknown in it (`IgnoreUnknown`), as written.
    pub ignore_unknown: Option<String>,
}

/// Which addresses of a name are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// All, in the resolver's order.
    #[default]
    Any,
    /// IPv4 alone.
    Inet,
    /// IPv6 alone.
    Inet6,
}
