//! An authentication under way: what its methods work with, and what comes of one attempt. Tries nothing itself.

use russh::MethodSet;
use russh::client::{AuthResult, Handle};
use russh::keys::HashAlg;

use super::client::Client;
use super::prompter::Busy;
use super::signer::Agent;
use super::target::Target;

/// An authentication under way.
pub(super) struct Login<'a> {
    pub(super) handle: &'a mut Handle<Client>,
    pub(super) target: &'a Target,
    pub(super) busy: &'a Busy,
    /// For the next question: why it is asked once more.
    pub(super) note: Option<String>,
    /// Answers that the host did not take.
    pub(super) wrong: usize,
    pub(super) agent: Option<Agent>,
    /// What the host takes for RSA, once it was asked.
    pub(super) rsa_hash: Option<HashAlg>,
}

/// What came of one attempt.
pub(super) enum Outcome {
    /// We are in.
    In,
    /// The host said no, or wants more.
    Refused(MethodSet, bool),
    /// It was not tried, and why.
    Skipped(String),
    /// The connection is gone.
    Gone,
}

impl From<AuthResult> for Outcome {
    fn from(result: AuthResult) -> Self {
        match result {
            AuthResult::Success => Self::In,
            AuthResult::Failure { remaining_methods, .. } if remaining_methods.is_empty() => Self::Gone,
            AuthResult::Failure { remaining_methods, partial_success } => {
                Self::Refused(remaining_methods, partial_success)
            }
        }
    }
}
