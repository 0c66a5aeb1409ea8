//! How a replica on a GPU is made: room is looked for first, then taken.

use std::rc::Rc;

use super::buckets::Buckets;
use super::busy::BusyModel;
use super::card::Card;
use super::error::GpuError;
use super::model::Model;
use super::net::Net;
use super::optimizer::GpuOptimizer;
use super::plan::{Dims, Plan};
use super::replica::{GpuReplica, SLOTS};
use super::slots::{Slot, event};
use super::timeline::Timeline;
use crate::clock::host_now;
use crate::collective::nccl::{DeviceGroup, cuda};
use crate::worker::error::WorkerError;
use crate::worker::gradients::BucketOptions;
use crate::worker::task::Task;

/// Whether a GPU can train this job.
pub(in crate::worker) fn knows(task: &dyn Task) -> bool {
    task.painter().is_some() || task.busy().is_some()
}

/// What a replica is made of.
pub(in crate::worker) struct Making {
    pub(in crate::worker) task: Box<dyn Task>,
    pub(in crate::worker) card: Rc<Card>,
    pub(in crate::worker) group: DeviceGroup,
    pub(in crate::worker) seed: u64,
    pub(in crate::worker) bucket_options: BucketOptions,
    /// Samples a step that this rank has at most.
    pub(in crate::worker) batch: usize,
}

impl GpuReplica {
    /// With fresh parameters.
    ///
    /// # Errors
    /// Where the GPU has no room, and for a job without a network that it knows.
    pub(in crate::worker) fn new(making: Making) -> Result<Self, WorkerError> {
        let Making { task, card, mut group, seed, bucket_options, batch } = making;
        let (layers, rule) = (task.layers(), task.rule());
        let count: usize = layers.iter().sum();
        if count >= 1 << 31 {
            return Err(WorkerError::Option { option: "--gradient", must_be: "below 8 GiB on a GPU" });
        }
        let (free, total) = card.context().mem_get_info().map_err(failed("ask for free memory"))?;
        let fixed = 4 * count * (1 + rule.buffers()) + Buckets::bytes(count, &bucket_options);
        if let Some(painter) = task.painter() {
            Plan::check(&Dims::new(&painter.shape()), batch, fixed, free, total)?;
        } else if fixed > free {
            return Err(GpuError::Memory { batch, wanted: fixed, free, total, fits: None }.into());
        }
        let params = group.allocate(4 * count)?;
        let buckets = Buckets::new(&layers, &bucket_options, &mut group)?;
        let optimizer = GpuOptimizer::new(rule, count, &card)?;
        let (made_of, gradient) = (Rc::clone(&card), buckets.gradient().clone());
        let (model, pixels) = match (task.painter(), task.busy()) {
            (Some(painter), _) => {
                let net = Net::new(made_of, painter.shape(), batch, params.clone(), gradient)?;
                (Model::Net(Box::new(net)), painter.pixels())
            }
            (None, Some(busy)) => (Model::Busy(BusyModel::new(made_of, busy, &layers, gradient)?), 0),
            (None, None) => {
                return Err(WorkerError::Option { option: "--device", must_be: "auto or cpu for this job" });
            }
        };
        let mut slots = Vec::with_capacity(SLOTS);
        for _ in 0..SLOTS {
            slots.push(Slot::new(&card, batch, pixels).map_err(failed("allocate memory of the host"))?);
        }
        let idle = event(&card).map_err(failed("make an event"))?;
        let fresh = task.initialise(seed);
        let mut made = Self {
            task,
            model,
            buckets,
            optimizer,
            params,
            slots,
            idle,
            flying: None,
            timeline: Timeline::new(host_now()),
            group: Some(group),
            card,
            failed: false,
        };
        made.write(made.params.pointer(), &fresh)?;
        Ok(made)
    }
}

/// The driver's refusal of `what`.
pub(super) fn failed(what: &'static str) -> impl Fn(cudarc::driver::DriverError) -> GpuError {
    move |error| cuda(what)(error).into()
}
