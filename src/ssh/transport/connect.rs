//! The connection that a target asks for: by russh, or by the system's `ssh`.

use super::connection::Transport;
use super::error::SshError;
use super::openssh::System;
use super::session;
use super::target::{Target, TransportKind};

/// Connects as the target says. Never retries.
pub(in crate::ssh) async fn connect(target: &Target) -> Result<Box<dyn Transport>, SshError> {
    Ok(match &target.transport {
        TransportKind::Russh => Box::new(session::connect(target).await?),
        TransportKind::OpenSsh(ssh) => Box::new(System::new(target, ssh).await?),
    })
}
