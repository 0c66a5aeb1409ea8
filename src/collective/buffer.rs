//! Memory that other ranks can work on, and operations that go on while the caller computes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::error::CollectiveError;
use super::op::OpTiming;

/// Where a buffer lies. Dropped with the last buffer that is a part of it, which frees the memory.
///
/// # Safety
/// `start` is valid for reads and writes of `bytes` bytes, aligned to 64, zeroed or initialised, for as long as the
/// value lives.
#[expect(unsafe_code, reason = "a promise about memory that the type system can't see")]
pub(super) unsafe trait Memory: Send + Sync {
    /// Its first byte.
    fn start(&self) -> NonNull<u8>;
    /// Its length.
    fn bytes(&self) -> usize;
}

/// Values in memory that a group can work on without copying them. Made by [`super::Collective::buffer`]; used as a slice.
pub struct Buffer<T> {
    memory: Arc<dyn Memory>,
    /// First byte of this part.
    offset: usize,
    /// Bytes of this part.
    bytes: usize,
    kind: PhantomData<T>,
}

impl<T> Buffer<T> {
    fn part(memory: Arc<dyn Memory>, offset: usize, bytes: usize) -> Self {
        Self { memory, offset, bytes, kind: PhantomData }
    }

    #[expect(unsafe_code, reason = "the part lies within the memory, which lives as long as this value")]
    fn at(&self) -> NonNull<u8> {
        // SAFETY: offset + bytes <= memory.bytes(), by construction.
        unsafe { self.memory.start().add(self.offset) }
    }
}

impl Buffer<u8> {
    /// All of `memory`.
    pub(super) fn whole(memory: Arc<dyn Memory>) -> Self {
        let bytes = memory.bytes();
        Self::part(memory, 0, bytes)
    }

    /// Its first `bytes` bytes; the others stay unused.
    pub(super) fn truncate(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        Self::part(self.memory, self.offset, bytes)
    }
}

impl<T: bytemuck::Pod> Buffer<T> {
    /// The same memory as values of another kind. What does not fill a value at the end is left out.
    pub(super) fn cast<U: bytemuck::Pod>(self) -> Buffer<U> {
        Buffer::part(self.memory, self.offset, self.bytes)
    }

    /// Two buffers: the first `mid` values, and the others. `None` when there are fewer.
    ///
    /// Parts begin wherever they are cut; cuts at multiples of 16 values are the fast ones.
    pub fn split_at(self, mid: usize) -> Option<(Self, Self)> {
        let cut = mid.checked_mul(size_of::<T>()).filter(|cut| *cut <= self.bytes)?;
        let (memory, rest) = (Arc::clone(&self.memory), self.bytes - cut);
        Some((Self::part(self.memory, self.offset, cut), Self::part(memory, self.offset + cut, rest)))
    }
}

impl<T: bytemuck::Pod> Deref for Buffer<T> {
    type Target = [T];

    #[expect(unsafe_code, reason = "the other ranks keep their hands off between operations")]
    fn deref(&self) -> &[T] {
        // SAFETY: valid, initialised memory, aligned because cuts are at whole values from a start aligned to 64; `&mut`
        // access goes through this value alone, for parts never overlap.
        unsafe { std::slice::from_raw_parts(self.at().cast().as_ptr(), self.bytes / size_of::<T>()) }
    }
}

impl<T: bytemuck::Pod> DerefMut for Buffer<T> {
    #[expect(unsafe_code, reason = "as in `deref`")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.at().cast().as_ptr(), self.bytes / size_of::<T>()) }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

/// Ordinary memory, for groups in which no other rank could work on it.
struct Heap(Vec<Line>);

/// 64 bytes, aligned to 64.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

#[expect(unsafe_code, reason = "a vector's memory is what the trait asks for")]
// SAFETY: a vector that is never resized; zeroed at its creation; its element is aligned to 64.
unsafe impl Memory for Heap {
    fn start(&self) -> NonNull<u8> {
        NonNull::from(self.0.as_slice()).cast()
    }

    fn bytes(&self) -> usize {
        self.0.len() * 64
    }
}

/// A buffer of ordinary memory, zeroed.
pub(super) fn heap(bytes: usize) -> Buffer<u8> {
    let memory = Arc::new(Heap(vec![Line([0; 64]); bytes.div_ceil(64)]));
    Buffer::part(memory, 0, bytes)
}

/// How an operation that was begun ended: its buffer comes back with it.
pub(super) type Outcome = Result<(Buffer<u8>, OpTiming), CollectiveError>;

/// An operation under way. Dropping it does not stop it; its buffer is then freed when it is done.
#[must_use = "the buffer comes back from `wait`"]
pub struct Work<T = u8> {
    outcome: Receiver<Outcome>,
    early: Option<Outcome>,
    kind: PhantomData<T>,
}

impl Work<u8> {
    /// What arrives on `outcome`.
    pub(super) fn new(outcome: Receiver<Outcome>) -> Self {
        Self { outcome, early: None, kind: PhantomData }
    }

    /// One that is already done.
    pub(super) fn done(outcome: Outcome) -> Self {
        let (_, never) = std::sync::mpsc::channel();
        Self { outcome: never, early: Some(outcome), kind: PhantomData }
    }

    pub(super) fn cast<T>(self) -> Work<T> {
        Work { outcome: self.outcome, early: self.early, kind: PhantomData }
    }
}

impl<T: bytemuck::Pod> Work<T> {
    /// Whether [`Work::wait`] would return at once.
    pub fn is_done(&mut self) -> bool {
        if self.early.is_none() {
            self.early = match self.outcome.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err(CollectiveError::Abandoned)),
            };
        }
        self.early.is_some()
    }

    /// Waits until it is done; the buffer now holds the result.
    pub fn wait(self) -> Result<(Buffer<T>, OpTiming), CollectiveError> {
        let outcome =
            self.early.unwrap_or_else(|| self.outcome.recv().unwrap_or(Err(CollectiveError::Abandoned)));
        outcome.map(|(buffer, timing)| (buffer.cast(), timing))
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.early.is_some() { "Work(done)" } else { "Work" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_buffer_are_apart_and_keep_their_values() {
        let mut whole: Buffer<f32> = heap(40).cast();
        assert_eq!(whole.len(), 10);
        whole.iter_mut().zip(0_u8..).for_each(|(value, at)| *value = f32::from(at));
        let (mut low, high) = whole.split_at(3).unwrap();
        low.fill(-1.0);
        assert_eq!((&*low, high.len(), high[0]), ([-1.0; 3].as_slice(), 7, 3.0));
        drop(low);
        assert_eq!(high[6].to_bits(), 9.0_f32.to_bits());
        assert!(high.split_at(8).is_none());
    }

    #[test]
    fn an_operation_whose_group_is_gone_says_so() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut pending = Work::new(receiver).cast::<f32>();
        assert!(!pending.is_done());
        drop(sender);
        assert!(pending.is_done());
        assert_eq!(pending.wait().unwrap_err(), CollectiveError::Abandoned);
    }
}
