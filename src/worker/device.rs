//! Where the ranks train: all of them on GPUs, or all on the CPU.

use std::rc::Rc;
use std::time::Duration;

use super::TrainOptions;
use super::cpu::CpuReplica;
use super::env::RankEnv;
use super::error::WorkerError;
use super::gpu::{self, Card, GpuError, GpuReplica};
use super::gradients::BucketOptions;
use super::replica::Replica;
use super::task::Task;
use crate::clock::host_now;
use crate::collective::nccl::{
    BackendPreference, DeviceGroup, DeviceGroupOptions, Library, Limits, NcclError, Places,
};
use crate::collective::{Collective, Communicator};

/// Where a rank is to train.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// On a GPU where every rank has one and the job knows how; else on the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On a GPU, or not at all.
    Gpu,
}

/// Limit of the GPUs' operations for a rank without a group, which waits for no other.
const ALONE: Duration = Duration::from_secs(60);

/// What has been decided.
pub(super) struct Chosen {
    pub(super) replica: Box<dyn Replica>,
    /// How the ranks' values travel.
    pub(super) transport: &'static str,
    /// For the log: which GPU, and why not a better way; or why none.
    pub(super) note: Option<String>,
}

/// What a rank brings to the decision.
struct Own {
    card: Result<Card, GpuError>,
    /// Whether the user should be told why there is no GPU: not where there is simply none.
    odd: bool,
}

impl Own {
    fn look(task: &dyn Task, wanted: Device, local: usize, places: &Places) -> Option<Self> {
        if wanted == Device::Cpu || !gpu::knows(task) {
            return None;
        }
        let card = Card::open(local, places);
        let ordinary = matches!(card, Err(GpuError::NoCard { .. } | GpuError::Cuda(NcclError::NoDriver)));
        Some(Self { odd: !ordinary, card })
    }
}

/// The replica of this rank, where all ranks agree to have theirs. `batch`: samples a step of one rank, at most.
pub(super) fn choose(
    options: &TrainOptions,
    env: &RankEnv,
    task: Box<dyn Task>,
    mut ranks: Box<dyn Communicator>,
    bucket_options: BucketOptions,
    batch: usize,
) -> Result<Chosen, WorkerError> {
    let (wanted, rank) = (options.device, ranks.rank());
    if wanted == Device::Gpu && !gpu::knows(&*task) {
        return Err(WorkerError::Option { option: "--device", must_be: "auto or cpu for this job" });
    }
    let places = Places::from_variables(|name| std::env::var_os(name));
    let local = env.group.as_ref().and_then(|group| group.local).map_or(0, |(place, _)| place as usize);
    let own = Own::look(&*task, wanted, local, &places);
    // Every rank asks, whatever it has found, so that all know who has no GPU.
    let mut has = vec![0_i32; ranks.world() as usize];
    has[rank as usize] = i32::from(own.as_ref().is_some_and(|own| own.card.is_ok()));
    ranks.allgather(&mut has)?;
    let without = has.iter().position(|has| *has == 0);
    let (card, odd) = match own {
        None => (None, false),
        Some(Own { card: Ok(card), .. }) => (Some(card), true),
        Some(Own { card: Err(error), odd }) => {
            if wanted == Device::Gpu {
                return Err(WorkerError::NoGpu { rank, why: error.to_string() });
            }
            let note = odd.then(|| format!("rank {rank} trains on the CPU: {error}"));
            return cpu(options, task, ranks, bucket_options, note);
        }
    };
    match (card, without) {
        (Some(card), None) => on_gpu(options, env, task, ranks, bucket_options, batch, card, &places),
        (Some(_), Some(other)) if wanted == Device::Gpu => {
            Err(WorkerError::NoGpu { rank, why: format!("rank {other} has none") })
        }
        (_, other) => {
            let because =
                |other| format!("rank {rank} trains on the CPU: rank {other} has no GPU; its log says why");
            let note = other.filter(|_| odd).map(because);
            cpu(options, task, ranks, bucket_options, note)
        }
    }
}

fn cpu(
    options: &TrainOptions,
    task: Box<dyn Task>,
    ranks: Box<dyn Communicator>,
    bucket_options: BucketOptions,
    note: Option<String>,
) -> Result<Chosen, WorkerError> {
    let transport = ranks.transport().name();
    let replica = Box::new(CpuReplica::new(task, ranks, options.seed, bucket_options)?);
    Ok(Chosen { replica, transport, note })
}

#[expect(clippy::too_many_arguments, reason = "what has been gathered so far, once")]
fn on_gpu(
    options: &TrainOptions,
    env: &RankEnv,
    task: Box<dyn Task>,
    ranks: Box<dyn Communicator>,
    bucket_options: BucketOptions,
    batch: usize,
    card: Card,
    places: &Places,
) -> Result<Chosen, WorkerError> {
    let (rank, name) = (ranks.rank(), card.name());
    let limits = Limits::within(env.group.as_ref().map_or(ALONE, |group| group.timeout));
    let device = card.device().clone();
    let library = Library::find(places);
    let group_options =
        DeviceGroupOptions { device, library, preference: BackendPreference::Best, limits, clock: host_now };
    let group = DeviceGroup::open(group_options, ranks)?;
    let transport = group.transport().name();
    let why = group.why_not_nccl().map(|why| format!("; staged through the host's memory: {why}"));
    let note = format!("rank {rank} trains on {name}{}", why.unwrap_or_default());
    let making = gpu::Making { task, card: Rc::new(card), group, seed: options.seed, bucket_options, batch };
    let replica = Box::new(GpuReplica::new(making)?);
    Ok(Chosen { replica, transport, note: Some(note) })
}
