//! The options of `run` about the environment that ranks find on each host.

use clap::Args;

use crate::launch::environment::WrittenEnvironment;

/// What is activated on each host before ranks start; each host finds it in its own folders.
#[derive(Debug, Clone, Default, Args)]
pub struct EnvironmentArgs {
    /// Activate this conda environment, by name or path, wherever each host has its conda; `none`: not the hosts file's
    #[arg(long, value_name = "NAME", help_heading = "Environment")]
    pub conda: Option<String>,
    /// Enter this virtual environment on each host; a relative path counts from the working directory
    #[arg(long, value_name = "PATH", help_heading = "Environment")]
    pub venv: Option<String>,
    /// Load these environment modules on each host, in this order
    #[arg(long = "module", value_name = "NAME,..", help_heading = "Environment")]
    pub modules: Vec<String>,
    /// Start from what the login shell of each host sets, not from what sshd gives a command; `interactive`: with what
    /// is set for interactive shells alone
    #[arg(long, value_name = "login|interactive|off", num_args = 0..=1, require_equals = true, default_missing_value = "login", help_heading = "Environment")]
    pub env_from_login: Option<String>,
    /// Limits of each rank: nofile=65536,memlock=unlimited,core=0 [default: nofile as high as the host allows, up to
    /// 65536]
    #[arg(long = "ulimit", value_name = "NAME=N,..", help_heading = "Environment")]
    pub limits: Vec<String>,
}

impl EnvironmentArgs {
    /// As text that is still to be read.
    pub(in crate::cli) fn written(&self) -> WrittenEnvironment<'_> {
        WrittenEnvironment {
            conda: self.conda.as_deref(),
            venv: self.venv.as_deref(),
            modules: &self.modules,
            login: self.env_from_login.as_deref(),
            limits: &self.limits,
        }
    }
}
