//! What client and agent say about a signal to processes: kind 26, and 128 back.

use serde::{Deserialize, Serialize};

use crate::domain::signal::{SignalAnswer, SignalRequest};

/// Client to agent; answered by one [`SignalTold`] of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAsk {
    /// The client's number for it.
    pub number: u32,
    /// What is asked.
    #[serde(flatten)]
    pub request: SignalRequest,
}

/// The agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalTold {
    /// The number of the request.
    pub number: u32,
    /// What was found or done.
    pub answer: SignalAnswer,
}

impl SignalTold {
    /// The answer to a request that is not carried out.
    pub fn refused(number: u32, reason: String) -> Self {
        Self { number, answer: SignalAnswer::Refused { reason } }
    }
}
