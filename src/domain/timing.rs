//! Where the time of a training step goes.

use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::time::HostTime;

/// A part of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading and preparing the batch.
    Data,
    /// Forward pass and loss.
    Forward,
    /// Backward pass.
    Backward,
    /// In allreduce, waiting for the last rank to arrive.
    Wait,
    /// In allreduce, moving and adding bytes.
    Transfer,
    /// Applying the averaged gradient.
    Optimizer,
    /// Anything else, or a phase of a newer version.
    #[serde(other)]
    Other,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All phases in the order of a step.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Data, Self::Forward, Self::Backward, Self::Wait, Self::Transfer, Self::Optimizer, Self::Other];

    /// Lowercase name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Wait => "wait",
            Self::Transfer => "transfer",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }

    /// Its place in [`Phase::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One stretch of one phase within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// What was done.
    pub phase: Phase,
    /// Microseconds from the step's start.
    pub start_us: u32,
    /// Microseconds.
    pub dur_us: u32,
}

/// So many phases lie in a step itself: each of them once, as most steps have them.
const FEW: usize = Phase::COUNT;

/// The phases of a step, in time order. As many as most steps have take no memory of their own: a replay of hundreds of ranks takes in
/// and drops hundreds of thousands of steps a second. What is written of them is a list.
#[derive(Clone)]
pub struct Spans(Held);

#[derive(Clone)]
enum Held {
    /// So many of these.
    Few(u8, [PhaseSpan; FEW]),
    Many(Vec<PhaseSpan>),
}

impl Spans {
    /// None, with room for so many.
    pub fn with_capacity(count: usize) -> Self {
        if count > FEW { Self(Held::Many(Vec::with_capacity(count))) } else { Self::default() }
    }

    /// Adds one at the end.
    pub fn push(&mut self, span: PhaseSpan) {
        match &mut self.0 {
            Held::Few(count, few) => {
                if let Some(free) = few.get_mut(usize::from(*count)) {
                    *free = span;
                    *count += 1;
                } else {
                    let mut many = few.to_vec();
                    many.push(span);
                    self.0 = Held::Many(many);
                }
            }
            Held::Many(many) => many.push(span),
        }
    }

    /// Adds one in front of that at a place; at the end where there are no more.
    pub fn insert(&mut self, at: usize, span: PhaseSpan) {
        self.push(span);
        if let Some(from_there) = self.get_mut(at..) {
            from_there.rotate_right(1);
        }
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self(Held::Few(0, [PhaseSpan { phase: Phase::Data, start_us: 0, dur_us: 0 }; FEW]))
    }
}

impl Deref for Spans {
    type Target = [PhaseSpan];

    fn deref(&self) -> &[PhaseSpan] {
        match &self.0 {
            Held::Few(count, few) => &few[..usize::from(*count)],
            Held::Many(many) => many,
        }
    }
}

impl DerefMut for Spans {
    fn deref_mut(&mut self) -> &mut [PhaseSpan] {
        match &mut self.0 {
            Held::Few(count, few) => &mut few[..usize::from(*count)],
            Held::Many(many) => many,
        }
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Spans {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Spans {}

impl FromIterator<PhaseSpan> for Spans {
    fn from_iter<I: IntoIterator<Item = PhaseSpan>>(spans: I) -> Self {
        let spans = spans.into_iter();
        let mut all = Self::with_capacity(spans.size_hint().0);
        for span in spans {
            all.push(span);
        }
        all
    }
}

impl From<Vec<PhaseSpan>> for Spans {
    fn from(spans: Vec<PhaseSpan>) -> Self {
        if spans.len() > FEW { Self(Held::Many(spans)) } else { spans.into_iter().collect() }
    }
}

impl<const COUNT: usize> From<[PhaseSpan; COUNT]> for Spans {
    fn from(spans: [PhaseSpan; COUNT]) -> Self {
        spans.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Spans {
    type Item = &'a PhaseSpan;
    type IntoIter = std::slice::Iter<'a, PhaseSpan>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for Spans {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for Spans {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<PhaseSpan>::deserialize(deserializer).map(Self::from)
    }
}

/// How far a rank is, read from what it prints: without times, for when a step was done is not known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeenStep {
    /// The step, from 1.
    pub step: u64,
    /// How many there will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The newest training loss that was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f32>,
}

/// One step of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepTiming {
    /// Number of the step in the run, from 1.
    pub step: u64,
    /// When it began, on the host's clock.
    pub start: HostTime,
    /// How long it took, microseconds.
    pub dur_us: u32,
    /// Training loss of this rank's batch, where it was computed.
    #[serde(default)]
    pub loss: Option<f32>,
    /// Samples this rank worked through.
    #[serde(default)]
    pub samples: u32,
    /// Phases in time order; empty when the job reports none.
    #[serde(default)]
    pub spans: Spans,
    /// Allreduce time, waiting and moving, that passed while this rank still computed, microseconds; the
    /// `Wait` and `Transfer` spans are what was left exposed. 0 where a job tells nothing.
    #[serde(default)]
    pub hidden_us: u32,
}

impl StepTiming {
    /// When it ended, on the host's clock.
    pub fn end(&self) -> HostTime {
        HostTime(self.start.0.saturating_add(self.dur_us.into()))
    }

    /// Samples that this rank worked through a second; `None` where the job tells none.
    pub fn samples_per_second(&self) -> Option<f64> {
        (self.samples > 0 && self.dur_us > 0).then(|| f64::from(self.samples) * 1e6 / f64::from(self.dur_us))
    }

    /// How long it took without its allreduce, microseconds: others may have kept it there, and how much of that was waiting may be
    /// told later. 0 where no phase is told.
    pub fn own_us(&self) -> u32 {
        if self.spans.is_empty() {
            return 0;
        }
        let shared = self.spans.iter().filter(|span| matches!(span.phase, Phase::Wait | Phase::Transfer));
        shared.fold(self.dur_us, |own, span| own.saturating_sub(span.dur_us))
    }

    /// What of it lies before its batch and its forward pass, microseconds: where steps follow each other without a gap, as
    /// hooks tell them, that is the time between two of them. 0 where it tells none of what a step does.
    pub fn between_us(&self) -> u64 {
        let is_work =
            |span: &&PhaseSpan| matches!(span.phase, Phase::Data | Phase::Forward | Phase::Backward);
        let Some(first) = self.spans.iter().position(|span| is_work(&span)) else { return 0 };
        let other = self.spans.iter().take(first).filter(|span| span.phase == Phase::Other);
        other.map(|span| u64::from(span.dur_us)).sum()
    }

    /// Microseconds a phase, indexed as [`Phase::ALL`].
    pub fn phase_totals(&self) -> [u64; Phase::COUNT] {
        let mut totals = [0; Phase::COUNT];
        for span in &self.spans {
            totals[span.phase.index()] += u64::from(span.dur_us);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many spans that differ.
    fn told(count: u32) -> Vec<PhaseSpan> {
        let phase = |at: u32| Phase::ALL[at as usize % Phase::COUNT];
        (0..count).map(|at| PhaseSpan { phase: phase(at), start_us: at, dur_us: 1000 - at }).collect()
    }

    #[test]
    fn few_spans_and_many_are_one_list() {
        for count in 0..20 {
            let list = told(count);
            let spans: Spans = list.iter().copied().collect();
            assert_eq!(*spans, *list);
            assert_eq!(Spans::from(list.clone()), spans);
            assert_eq!(matches!(spans.0, Held::Few(..)), count as usize <= FEW);
            let mut reserved = Spans::with_capacity(count as usize);
            for span in &list {
                reserved.push(*span);
            }
            assert_eq!(reserved, spans);
            assert_eq!(format!("{spans:?}"), format!("{list:?}"));
            assert!(std::iter::zip(&spans, &list).all(|(one, other)| one == other));
            for at in 0..=list.len() {
                let (mut more, mut longer) = (spans.clone(), list.clone());
                let new = PhaseSpan { phase: Phase::Wait, start_us: 77, dur_us: 0 };
                more.insert(at, new);
                longer.insert(at, new);
                assert_eq!(*more, *longer, "{count} {at}");
            }
            let mut changed = spans.clone();
            changed.reverse();
            assert!(changed.iter().eq(list.iter().rev()));
            assert_eq!(changed == spans, count < 2);
        }
        assert_eq!(Spans::from([told(1)[0]; 3]).len(), 3);
    }

    #[test]
    fn spans_are_written_as_a_list_is() {
        for count in [0, 1, FEW as u32, FEW as u32 + 1, 30] {
            let (list, spans) = (told(count), Spans::from(told(count)));
            let json = serde_json::to_string(&spans).unwrap();
            assert_eq!(json, serde_json::to_string(&list).unwrap());
            assert_eq!(serde_json::from_str::<Spans>(&json).unwrap(), spans);
            let packed = rmp_serde::to_vec_named(&spans).unwrap();
            assert_eq!(packed, rmp_serde::to_vec_named(&list).unwrap());
            assert_eq!(rmp_serde::from_slice::<Spans>(&packed).unwrap(), spans);
        }
        assert!(serde_json::from_str::<Spans>(r#"[{"phase":"wait"}]"#).is_err());
    }

    /// A replay holds hundreds of thousands of them.
    #[test]
    fn a_step_with_its_phases_is_small() {
        assert!(size_of::<StepTiming>() <= 128, "{}", size_of::<StepTiming>());
    }
}
