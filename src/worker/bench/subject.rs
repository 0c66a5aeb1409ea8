//! What is measured: ranks, and the memory that their allreduces work on, of hosts or of GPUs.

use std::ops::DerefMut;

use super::pattern::Number;
use crate::collective::{Collective, CollectiveError, Communicator, Reduce};

/// Ranks whose allreduce is measured. All calls are made by all ranks alike.
pub(super) trait Subject {
    /// Values that an allreduce works on in place.
    type Memory<T: Number>;

    /// The communicator of the hosts, for what the ranks tell each other beside the measurement.
    fn with<R>(&mut self, act: impl FnOnce(&mut dyn Communicator) -> R) -> R;

    /// Memory of the group's own, which needs no copy; `None` where the group has no such.
    fn registered<T: Number>(&mut self, count: usize) -> Result<Option<Self::Memory<T>>, CollectiveError>;

    /// Memory of the program's own.
    fn private<T: Number>(&mut self, count: usize) -> Result<Self::Memory<T>, CollectiveError>;

    /// Gives memory back.
    fn release<T: Number>(&mut self, memory: Self::Memory<T>) -> Result<(), CollectiveError>;

    /// Lets `fill` write the values.
    fn write<T: Number>(
        &mut self,
        memory: &mut Self::Memory<T>,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<(), CollectiveError>;

    /// Lets `look` see the values.
    fn read<T: Number, R>(
        &mut self,
        memory: &mut Self::Memory<T>,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R, CollectiveError>;

    /// An allreduce, from the call to when its result is there.
    fn allreduce<T: Number>(
        &mut self,
        memory: &mut Self::Memory<T>,
        how: Reduce,
    ) -> Result<(), CollectiveError>;

    /// Begins `calls` allreduces and waits for all of them, where that is another thing than one after the other; says
    /// whether it is.
    fn in_a_row<T: Number>(
        &mut self,
        memory: &mut Self::Memory<T>,
        how: Reduce,
        calls: u64,
    ) -> Result<bool, CollectiveError>;
}

/// Ranks whose values are in their hosts' memory.
pub(super) struct OnHosts(pub(super) Box<dyn Communicator>);

impl Subject for OnHosts {
    type Memory<T: Number> = Box<dyn DerefMut<Target = [T]>>;

    fn with<R>(&mut self, act: impl FnOnce(&mut dyn Communicator) -> R) -> R {
        act(&mut *self.0)
    }

    fn registered<T: Number>(&mut self, count: usize) -> Result<Option<Self::Memory<T>>, CollectiveError> {
        Ok(Some(Box::new(self.0.buffer::<T>(count)?)))
    }

    fn private<T: Number>(&mut self, count: usize) -> Result<Self::Memory<T>, CollectiveError> {
        Ok(Box::new(vec![T::default(); count]))
    }

    fn release<T: Number>(&mut self, memory: Self::Memory<T>) -> Result<(), CollectiveError> {
        drop(memory);
        Ok(())
    }

    fn write<T: Number>(
        &mut self,
        memory: &mut Self::Memory<T>,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<(), CollectiveError> {
        fill(memory);
        Ok(())
    }

    fn read<T: Number, R>(
        &mut self,
        memory: &mut Self::Memory<T>,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R, CollectiveError> {
        Ok(look(memory))
    }

    fn allreduce<T: Number>(
        &mut self,
        memory: &mut Self::Memory<T>,
        how: Reduce,
    ) -> Result<(), CollectiveError> {
        self.0.allreduce(memory, how).map(drop)
    }

    fn in_a_row<T: Number>(
        &mut self,
        _: &mut Self::Memory<T>,
        _: Reduce,
        _: u64,
    ) -> Result<bool, CollectiveError> {
        Ok(false)
    }
}
