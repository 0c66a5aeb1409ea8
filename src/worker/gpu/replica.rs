//! A replica in a GPU's memory. The host runs a step ahead: it begins one, then reads the numbers of the one before.

use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream, result};

use super::buckets::Buckets;
use super::card::Card;
use super::error::GpuError;
use super::making::failed;
use super::model::Model;
use super::optimizer::{GpuOptimizer, Places};
use super::slots::{PHASES, Slot};
use super::timeline::{Timeline, Told};
use crate::clock::host_now;
use crate::collective::nccl::{DeviceBuffer, DeviceGroup};
use crate::collective::{Collective, Communicator, OpTiming, Reduce};
use crate::worker::error::WorkerError;
use crate::worker::images::Painter;
use crate::worker::model::cnn::Pattern;
use crate::worker::model::dropout::hash;
use crate::worker::replica::{Replica, State, Stepped};
use crate::worker::task::{Batch, Task, own_part};

/// Steps whose memory and events are apart: the one that is begun, the one that is read, and the one whose end is the
/// beginning of that.
pub(super) const SLOTS: usize = 3;

/// A step that the GPU may still work on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flying {
    number: u64,
    slot: usize,
    samples: usize,
    /// The last of its operations.
    operation: u64,
    /// Whether the step before it is known by its slot's events, or began when the GPU had nothing to do.
    follows: bool,
}

/// A job's model on a GPU.
pub(in crate::worker) struct GpuReplica {
    pub(super) task: Box<dyn Task>,
    pub(super) model: Model,
    pub(super) buckets: Buckets,
    pub(super) optimizer: GpuOptimizer,
    pub(super) params: DeviceBuffer,
    pub(super) slots: Vec<Slot>,
    /// The GPU had nothing to do.
    pub(super) idle: CudaEvent,
    pub(super) flying: Option<Flying>,
    pub(super) timeline: Timeline,
    pub(super) group: Option<DeviceGroup>,
    pub(super) card: Rc<Card>,
    pub(super) failed: bool,
}

impl GpuReplica {
    fn group(&mut self) -> Result<&mut DeviceGroup, WorkerError> {
        // It is there until the replica is dropped.
        self.group.as_mut().ok_or_else(|| crate::collective::CollectiveError::Abandoned.into())
    }

    /// Copies values to the GPU, at once.
    #[expect(unsafe_code, reason = "a copy to the GPU")]
    pub(super) fn write(&mut self, to: u64, values: &[f32]) -> Result<(), WorkerError> {
        self.card.context().bind_to_thread().map_err(failed("use the GPU"))?;
        // SAFETY: callers name buffers of this length; the values live until the wait below is over.
        let begun = unsafe { result::memcpy_htod_async(to, values, self.card.stream.cu_stream()) };
        begun.map_err(failed("copy to the GPU"))?;
        self.synchronize()
    }

    /// Copies values from the GPU, when all that was begun is done.
    #[expect(unsafe_code, reason = "a copy from the GPU")]
    fn read(&mut self, from: u64, len: usize) -> Result<Vec<f32>, WorkerError> {
        // A copy into ordinary memory returns when it is done: what it waits for must have ended by then, or have been given up.
        self.synchronize()?;
        let mut values = vec![0.0; len];
        self.card.context().bind_to_thread().map_err(failed("use the GPU"))?;
        // SAFETY: as in `write`.
        let begun = unsafe { result::memcpy_dtoh_async(&mut values, from, self.card.stream.cu_stream()) };
        begun.map_err(failed("copy from the GPU"))?;
        if let Err(error) = self.synchronize() {
            // The copy may come yet.
            std::mem::forget(values);
            return Err(error);
        }
        Ok(values)
    }

    fn synchronize(&mut self) -> Result<(), WorkerError> {
        let stream: Arc<CudaStream> = Arc::clone(&self.card.stream);
        Ok(self.group()?.synchronize(&stream)?)
    }

    fn mark(&self, slot: usize, phase: usize) -> Result<(), WorkerError> {
        Ok(self.slots[slot].ends[phase].record(&self.card.stream).map_err(failed("record an event"))?)
    }

    /// Begins a step; what it needs of the host stays in its slot until it is done.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn begin(&mut self, number: u64, batch: &Batch<'_>, rate: f32) -> Result<Flying, WorkerError> {
        let slot = (number % SLOTS as u64) as usize;
        let follows = self.flying.is_some();
        if !follows {
            self.idle.record(&self.card.stream).map_err(failed("record an event"))?;
            self.timeline = Timeline::new(host_now());
        }
        let samples = batch.samples.len();
        self.fill(slot, batch.samples, Some((hash(batch.seed, 0), batch.first)))?;
        // SAFETY: the slot is filled again when this step is done.
        unsafe { self.load(slot, samples) }?;
        self.mark(slot, 0)?;
        self.model.forward(Some(Pattern { seed: batch.seed, first: batch.first }))?;
        self.mark(slot, 1)?;
        let group = self.group.as_mut().ok_or(crate::collective::CollectiveError::Abandoned)?;
        let (buckets, card) = (&mut self.buckets, &self.card);
        self.model.backward(&mut |layer| buckets.ready(layer, card, group))?;
        self.slots[slot].ends[2].record(&self.card.stream).map_err(failed("record an event"))?;
        self.buckets.rest(&self.card, group)?;
        let operation = self.buckets.join(&self.card, group)?;
        self.mark(slot, 3)?;
        let at = Places {
            params: self.params.pointer(),
            gradient: self.buckets.gradient().pointer(),
            count: self.model.totals() + 4,
        };
        let (own, totals, stream) = (self.model.own(), self.model.totals(), self.card.stream.cu_stream());
        let numbers = &mut self.slots[slot].numbers;
        let (own_numbers, all_numbers) = numbers.split_at_mut(2);
        // SAFETY: buffers of all parameters; the slot's numbers are read when the step is done.
        unsafe {
            self.optimizer.step(&self.card, at, rate)?;
            result::memcpy_dtoh_async(own_numbers, own, stream)
                .and_then(|()| result::memcpy_dtoh_async(all_numbers, totals, stream))
                .map_err(failed("copy from the GPU"))?;
        }
        self.mark(slot, PHASES - 1)?;
        Ok(Flying { number, slot, samples, operation, follows })
    }

    /// Paints samples into a slot whose former step is done.
    fn fill(
        &mut self,
        slot: usize,
        samples: &[usize],
        draws: Option<(u64, usize)>,
    ) -> Result<(), WorkerError> {
        if samples.len() > self.model.batch() {
            let (batch, most) = (samples.len(), self.model.batch());
            return Err(GpuError::Batch { batch, most }.into());
        }
        let Some(painter) = self.task.painter() else { return Ok(()) };
        let (pixels, slot) = (painter.pixels(), &mut self.slots[slot]);
        painter.fill(
            samples,
            draws,
            &mut slot.images[..samples.len() * pixels],
            &mut slot.labels[..samples.len()],
        );
        Ok(())
    }

    /// Begins the copy of a filled slot.
    ///
    /// # Safety
    /// The slot isn't filled again before the GPU has done it.
    #[expect(unsafe_code, reason = "a copy that goes on after the call")]
    unsafe fn load(&mut self, slot: usize, samples: usize) -> Result<(), WorkerError> {
        let pixels = self.task.painter().map_or(0, Painter::pixels);
        let slot = &self.slots[slot];
        // SAFETY: pinned memory of this replica; the rest is the caller's promise.
        unsafe { self.model.load(&slot.images[..samples * pixels], &slot.labels[..samples]) }?;
        Ok(())
    }

    /// Waits until a step is done, and reads its numbers.
    fn land(&mut self, step: Flying) -> Result<Stepped, WorkerError> {
        let group = self.group.as_mut().ok_or(crate::collective::CollectiveError::Abandoned)?;
        let slot = &self.slots[step.slot];
        group.until(slot.done())?;
        let operations: Vec<OpTiming> =
            group.timings(step.operation)?.into_iter().map(|timed| timed.timing).collect();
        let before = (step.slot + SLOTS - 1) % SLOTS;
        let mut from = if step.follows { self.slots[before].done() } else { &self.idle };
        let mut ms = [0.0; PHASES];
        for (ms, end) in ms.iter_mut().zip(&slot.ends) {
            *ms = from.elapsed_ms(end).map_err(failed("read a duration"))?;
            from = end;
        }
        let [own, _, sum, count] = [slot.numbers[0], slot.numbers[1], slot.numbers[2], slot.numbers[3]];
        if !sum.is_finite() {
            return Err(self.diverged(own, sum, step.number));
        }
        let loss = (step.samples > 0).then(|| own / step.samples as f32);
        let told = Told { number: step.number, loss, samples: step.samples };
        Ok(Stepped { loss: sum / count, timing: self.timeline.step(told, ms, &operations) })
    }

    /// Whose loss is not a number. All ranks come here together, for all have the same sum.
    fn diverged(&mut self, own: f32, loss: f32, step: u64) -> WorkerError {
        let gather = |ranks: &mut dyn Communicator| {
            let mut losses = vec![0.0; ranks.world() as usize];
            losses[ranks.rank() as usize] = own;
            ranks.allgather(&mut losses)?;
            Ok::<_, WorkerError>(losses)
        };
        let losses = match self.group() {
            Ok(group) => gather(&mut *group.host()),
            Err(error) => return error,
        };
        match losses {
            Ok(losses) => {
                let bad = |(rank, loss): (u32, &f32)| (!loss.is_finite()).then_some(rank);
                WorkerError::Diverged { ranks: (0..).zip(&losses).filter_map(bad).collect(), loss, step }
            }
            Err(error) => error,
        }
    }

    fn try_step(&mut self, number: u64, batch: &Batch<'_>, rate: f32) -> Result<Vec<Stepped>, WorkerError> {
        let begun = self.begin(number, batch, rate)?;
        let before = self.flying.replace(begun);
        before.map(|step| self.land(step)).into_iter().collect()
    }

    fn try_drain(&mut self) -> Result<Vec<Stepped>, WorkerError> {
        let last = self.flying.take();
        last.map(|step| self.land(step)).into_iter().collect()
    }

    /// How many of some samples this rank's network has right.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    fn right(&mut self, samples: &[usize]) -> Result<f32, WorkerError> {
        self.fill(0, samples, None)?;
        // SAFETY: `read` waits for it.
        unsafe { self.load(0, samples.len()) }?;
        self.model.forward(None)?;
        let own = self.read(self.model.own(), 2)?;
        Ok(own[1])
    }

    fn try_evaluate(&mut self) -> Result<f64, WorkerError> {
        // Slots may still be on their way to the GPU.
        self.synchronize()?;
        let (rank, world) = {
            let host = self.group()?.host();
            (host.rank(), host.world())
        };
        let mut sums = if let Some(held_out) = self.task.painter().map(Painter::held_out) {
            let own: Vec<usize> = own_part(self.task.samples(), held_out, rank, world).collect();
            let mut right = 0.0;
            for some in own.chunks(self.model.batch().max(1)) {
                right += f64::from(self.right(some)?);
            }
            [right, own.len() as f64]
        } else {
            let params = self.read(self.params.pointer(), self.params.bytes() / 4)?;
            let score = self.task.evaluate(&params, rank, world);
            [score.sum, score.count as f64]
        };
        self.group()?.host().allreduce(&mut sums, Reduce::Sum)?;
        Ok(sums[0] / sums[1])
    }

    fn try_state(&mut self) -> Result<State, WorkerError> {
        let count = self.params.bytes() / 4;
        let params = self.read(self.params.pointer(), count)?;
        let memory =
            self.optimizer.memory().into_iter().map(|at| self.read(at, count)).collect::<Result<_, _>>()?;
        Ok(State { params, steps: self.optimizer.steps, memory })
    }

    fn try_restore(&mut self, state: &State) -> Result<(), WorkerError> {
        let (count, memory) = (self.params.bytes() / 4, self.optimizer.memory());
        let fits = state.params.len() == count
            && state.memory.len() == memory.len()
            && state.memory.iter().all(|buffer| buffer.len() == count);
        if fits {
            self.write(self.params.pointer(), &state.params)?;
            for (at, buffer) in memory.into_iter().zip(&state.memory) {
                self.write(at, buffer)?;
            }
            self.optimizer.steps = state.steps;
        }
        Ok(())
    }

    /// Remembers that something failed: then nothing is waited for any more.
    fn noted<T>(&mut self, done: Result<T, WorkerError>) -> Result<T, WorkerError> {
        self.failed |= done.is_err();
        done
    }
}

impl Replica for GpuReplica {
    fn step(&mut self, number: u64, batch: &Batch<'_>, rate: f32) -> Result<Vec<Stepped>, WorkerError> {
        let done = self.try_step(number, batch, rate);
        self.noted(done)
    }

    fn drain(&mut self) -> Result<Vec<Stepped>, WorkerError> {
        let done = self.try_drain();
        self.noted(done)
    }

    fn evaluate(&mut self) -> Result<f64, WorkerError> {
        let done = self.try_evaluate();
        self.noted(done)
    }

    fn state(&mut self) -> Result<State, WorkerError> {
        let done = self.try_state();
        self.noted(done)
    }

    fn restore(&mut self, state: &State) -> Result<(), WorkerError> {
        let done = self.try_restore(state);
        self.noted(done)
    }

    fn with_ranks(
        &mut self,
        act: &mut dyn FnMut(&mut dyn Communicator) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError> {
        act(&mut *self.group()?.host())
    }
}

impl Drop for GpuReplica {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        if self.failed {
            std::mem::forget(group);
        } else if group.finalize().is_ok() {
            return;
        }
        // Freeing memory might wait for what never ends, as leaving might. The process ends, and the driver cleans up.
        self.model.abandon();
        self.optimizer.abandon();
        self.buckets.abandon();
        std::mem::forget((self.params.clone(), Rc::clone(&self.card)));
        std::mem::take(&mut self.slots).into_iter().for_each(std::mem::forget);
    }
}
