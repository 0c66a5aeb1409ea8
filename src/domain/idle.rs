//! For how long a GPU has not computed, as far as the samples that are kept say.

use super::world::HostState;

/// Below this share of the time in which kernels run a GPU counts as idle.
const IDLE_UTIL: f32 = 0.02;
/// A GPU that has been idle for less than this is not called so, microseconds.
pub const IDLE_AFTER_US: i64 = 60_000_000;

/// For how many microseconds, at least, the GPU at `place` of a host's list has not computed; `None` while it computes and
/// where that is not known.
pub fn idle_us(state: &HostState, place: usize) -> Option<i64> {
    let (last, _) = state.latest()?;
    let first = state
        .past
        .iter()
        .rev()
        .take_while(|past| past.gpus.get(place).and_then(|gpu| gpu.util).is_some_and(|util| util < IDLE_UTIL))
        .last()?;
    Some(last.micros_since(first.at))
}

/// Whether it has been idle for long enough to be called so; `None` where that is not known.
pub fn is_idle(state: &HostState, place: usize) -> Option<bool> {
    let (last, _) = state.latest()?;
    for past in state.past.iter().rev() {
        match past.gpus.get(place).and_then(|gpu| gpu.util) {
            None => return None,
            Some(util) if util >= IDLE_UTIL => return Some(false),
            Some(_) if last.micros_since(past.at) >= IDLE_AFTER_US => return Some(true),
            Some(_) => {}
        }
    }
    Some(false)
}
