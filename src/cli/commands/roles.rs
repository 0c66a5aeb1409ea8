//! The hidden roles, wired: which telemetry an agent reads, where its state lies.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::agent::{GpuEventSource, Telemetry};
use crate::cli::args::{AgentArgs, RankWrapArgs, RshAgentArgs, RunDirArgs, SampleHostArgs, SuperviseArgs};
use crate::cli::errors::Failure;
use crate::cli::paths::Paths;
use crate::cli::roles;
use crate::clock;
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::ids::Rank;
use crate::supervise::samples::TakeSample;
use crate::telemetry::{Sampler, SamplerConfig};

/// Another NVML library than the loader's, for hosts that keep it elsewhere and for tests.
const NVML_LIB: &str = "HVTUI_NVML_LIB";

/// `hvtui agent --stdio`.
pub fn agent(args: &AgentArgs) -> Result<ExitCode, Failure> {
    let state = Paths::of_user()?.state;
    let config = SamplerConfig { ssh_connection: std::env::var("SSH_CONNECTION").ok(), ..sampler() };
    let telemetry =
        Box::new(|| Box::new(HostTelemetry(Sampler::start(config, clock::host_now))) as Box<dyn Telemetry>);
    Ok(code(roles::agent(args.nonce.clone(), state, telemetry)))
}

/// `hvtui supervise`.
pub fn supervise(args: &SuperviseArgs) -> ExitCode {
    code(roles::supervise(&args.dir, args.adopt, args.stage2))
}

/// `hvtui rank-wrap`.
pub fn rank_wrap(args: &RankWrapArgs) -> ExitCode {
    code(roles::rank_wrap(&args.dir, Rank(args.rank)))
}

/// `hvtui launch-wrap`.
pub fn launch_wrap(args: &RunDirArgs) -> ExitCode {
    code(roles::launch_wrap(&args.dir))
}

/// `hvtui node-wrap`.
pub fn node_wrap(args: &RunDirArgs) -> ExitCode {
    code(roles::node_wrap(&args.dir))
}

/// `hvtui sample-host`.
pub fn sample_host(args: &SampleHostArgs) -> ExitCode {
    let telemetry = || {
        let mut sampler = Sampler::start(sampler(), clock::host_now);
        Box::new(move || sampler.sample(clock::host_now)) as TakeSample
    };
    code(roles::sample_host(&args.dir, args.supervisor, telemetry))
}

/// `hvtui rank-shim`.
pub fn rank_shim() -> ExitCode {
    code(roles::rank_shim())
}

/// `hvtui look-inside`.
pub fn look_inside(ask: &str) -> ExitCode {
    code(roles::look_inside(ask))
}

/// `hvtui rsh-agent`.
pub fn rsh_agent(args: &RshAgentArgs) -> ExitCode {
    code(roles::rsh_agent(&args.words))
}

/// How this host is read.
fn sampler() -> SamplerConfig {
    SamplerConfig { nvml_lib: std::env::var_os(NVML_LIB).map(PathBuf::from), ..SamplerConfig::default() }
}

fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(70))
}

/// The host's own sampler as the agent's telemetry.
struct HostTelemetry(Sampler);

impl Telemetry for HostTelemetry {
    fn info(&mut self) -> HostInfo {
        self.0.info()
    }

    fn sample(&mut self) -> HostSample {
        self.0.sample(clock::host_now)
    }

    fn events(&mut self) -> Option<GpuEventSource> {
        Some(Box::new(self.0.events()))
    }
}
