//! From a connection to a running agent: the binary, the scripts that put and start it, and what stands in for it.

mod agents;
mod binary;
mod deployment;
mod error;
mod install;
mod script;
mod stream;
mod watch_script;

pub use agents::Agents;
pub use binary::AgentBinary;
pub use deployment::{Deployment, TelemetryAsk};
pub use error::{AgentError, DeployError};
pub use install::{Progress, open_agent, quarantine};
pub use script::is_upload;
pub use stream::{AgentStream, Speaks};
