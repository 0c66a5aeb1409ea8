//! What is wrong with a GPU, in a word or two each, the worst first. Knows nothing of colours and screens.

use serde::{Deserialize, Serialize};

use super::{GpuInfo, GpuSample, Reading};

/// From this many percent on a GPU is busy enough for its PCIe link to run at full speed.
const BUSY_UTIL: u32 = 20;
/// So close to the temperature at which it slows down it is worth a look, degrees Celsius.
const NEAR_SLOWDOWN: u32 = 5;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// It should be looked at.
    Look,
    /// Results or the GPU itself are at risk.
    Act,
}

/// How a reading fails for want of an answer begins.
pub const NO_ANSWER: &str = "no answer from NVML";
/// How a reading of a GPU that is gone from the bus fails.
pub const LOST: &str = "the GPU is lost: it fell off the bus or has become inaccessible";

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What, in at most some twenty columns.
    pub words: String,
    /// How bad it is.
    pub severity: Severity,
}

/// Why a clock is held down without anything being wrong.
pub fn is_harmless(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    reason.contains("idle") || reason.contains("application") || reason == "none"
}

/// Why nothing at all can be read of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unreadable<'a> {
    /// It fell off the bus.
    Lost,
    /// A call about it does not return.
    NoAnswer,
    /// Another reason, in the driver's words.
    Other(&'a str),
}

impl<'a> Unreadable<'a> {
    /// Why no value of it can be read; `None` where one was read, and where none has ever failed.
    pub fn of(sample: &'a GpuSample) -> Option<Self> {
        fn error<T>(reading: &Reading<T>) -> Option<&str> {
            match reading {
                Reading::Failed { error } => Some(error),
                Reading::Value(_) | Reading::Unsupported => None,
            }
        }
        let GpuSample { util, memory_used, temperature, power_mw, throttle, .. } = sample;
        let tells = util.value().is_some()
            || memory_used.value().is_some()
            || temperature.value().is_some()
            || power_mw.value().is_some()
            || throttle.value().is_some()
            || sample.sm_active_percent.value().is_some()
            || sample.processes.value().is_some();
        let mut errors =
            [error(util), error(memory_used), error(temperature), error(power_mw), error(throttle)]
                .into_iter()
                .flatten();
        errors.next().filter(|_| !tells).map(Self::by)
    }

    /// By the error of a reading.
    pub fn by(error: &'a str) -> Self {
        match error {
            why if why.contains("GPU is lost") || why.contains("fell off the bus") => Self::Lost,
            why if why.starts_with(NO_ANSWER) => Self::NoAnswer,
            why => Self::Other(why),
        }
    }

    /// In a word or two.
    pub fn short(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NoAnswer => "no answer",
            Self::Other(_) => "unreadable",
        }
    }

    /// In a sentence without any duration.
    pub fn sentence(self) -> String {
        match self {
            Self::Lost => LOST.to_owned(),
            Self::NoAnswer => format!("{NO_ANSWER}: a call about this GPU does not return"),
            Self::Other(why) => format!("the GPU is unreadable: {why}"),
        }
    }
}

/// What is wrong, the worst first. A single value that the GPU does not tell is not wrong; that it tells none is.
pub fn faults(info: &GpuInfo, sample: &GpuSample) -> Vec<Fault> {
    let told = |reading: &Reading<bool>| reading.value() == Some(&true);
    let fault = |words: &str, severity| Fault { words: words.to_owned(), severity };
    if let Some(unreadable) = Unreadable::of(sample) {
        return vec![fault(unreadable.short(), Severity::Act)];
    }
    let mut faults = Vec::new();
    if sample.ecc_uncorrected.value().is_some_and(|errors| *errors > 0) {
        faults.push(fault("ecc errors", Severity::Act));
    }
    if told(&sample.row_remap_failed) {
        faults.push(fault("remap fault", Severity::Act));
    }
    faults.extend(throttled(sample));
    faults.extend(near_slowdown(info, sample));
    if told(&sample.row_remap_pending) {
        faults.push(fault("remap due", Severity::Look));
    }
    if told(&sample.pages_pending) {
        faults.push(fault("pages due", Severity::Look));
    }
    faults.extend(slow_link(info, sample));
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.severity));
    faults
}

/// Whether its clocks are held down for a reason that is not harmless.
pub fn is_throttled(sample: &GpuSample) -> bool {
    sample.throttle.value().is_some_and(|reasons| reasons.iter().any(|reason| !is_harmless(reason)))
}

/// The first reason that holds its clocks down, and how many more there are.
fn throttled(sample: &GpuSample) -> Option<Fault> {
    let reasons = sample.throttle.value()?;
    let real: Vec<&str> = reasons.iter().map(String::as_str).filter(|reason| !is_harmless(reason)).collect();
    let first = real.first()?;
    let hot = real.iter().any(|reason| reason.contains("thermal") || reason.contains("brake"));
    let more = if real.len() > 1 { format!(" +{}", real.len() - 1) } else { String::new() };
    let short = first.strip_prefix("sw ").unwrap_or(first);
    let short = short.strip_suffix(" slowdown").filter(|cause| *cause != "hw").unwrap_or(short);
    let severity = if hot { Severity::Act } else { Severity::Look };
    Some(Fault { words: format!("{short}{more}"), severity })
}

fn near_slowdown(info: &GpuInfo, sample: &GpuSample) -> Option<Fault> {
    let (limit, now) = (*info.slowdown_celsius.value()?, *sample.temperature.value()?);
    let fault = |words: String, severity| Some(Fault { words, severity });
    match (limit, limit.saturating_sub(now)) {
        // The driver's word for none.
        (0, _) => None,
        (_, 0) => fault("at limit".to_owned(), Severity::Act),
        (_, left) if left <= NEAR_SLOWDOWN => fault(format!("{left}° to limit"), Severity::Look),
        _ => None,
    }
}

/// A busy GPU whose PCIe link runs below what GPU and machine allow.
fn slow_link(info: &GpuInfo, sample: &GpuSample) -> Option<Fault> {
    if *sample.util.value()? < BUSY_UTIL {
        return None;
    }
    let below = |now: &Reading<u32>, most: &Reading<u32>| {
        now.value().copied().zip(most.value().copied()).filter(|(now, most)| now < most)
    };
    let words = match (
        below(&sample.pcie_width, &info.pcie_width_max),
        below(&sample.pcie_gen, &info.pcie_gen_max),
    ) {
        (Some((now, most)), _) => format!("pcie x{now}/{most}"),
        (None, Some((now, most))) => format!("pcie g{now}/{most}"),
        (None, None) => return None,
    };
    Some(Fault { words, severity: Severity::Look })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(info: &GpuInfo, sample: &GpuSample) -> Vec<(String, Severity)> {
        faults(info, sample).into_iter().map(|fault| (fault.words, fault.severity)).collect()
    }

    fn info() -> GpuInfo {
        GpuInfo {
            slowdown_celsius: Reading::Value(87),
            pcie_gen_max: Reading::Value(5),
            pcie_width_max: Reading::Value(16),
            ..GpuInfo::unknown(0)
        }
    }

    #[test]
    fn the_worst_stands_first() {
        let sample = GpuSample {
            throttle: Reading::Value(vec!["sw power cap".to_owned(), "sync boost".to_owned()]),
            ecc_uncorrected: Reading::Value(2),
            row_remap_pending: Reading::Value(true),
            pages_pending: Reading::Value(true),
            row_remap_failed: Reading::Value(true),
            ..GpuSample::unknown(0)
        };
        let (look, act) = (Severity::Look, Severity::Act);
        let expected = [
            ("ecc errors", act),
            ("remap fault", act),
            ("power cap +1", look),
            ("remap due", look),
            ("pages due", look),
        ];
        assert_eq!(words(&info(), &sample), expected.map(|(words, severity)| (words.to_owned(), severity)));
        let hot = GpuSample {
            throttle: Reading::Value(vec!["hw thermal slowdown".to_owned()]),
            ..GpuSample::unknown(0)
        };
        assert_eq!(words(&info(), &hot), [("hw thermal".to_owned(), act)]);
    }

    #[test]
    fn what_is_not_told_or_fine_is_no_fault() {
        assert!(faults(&info(), &GpuSample::unknown(0)).is_empty());
        let fine = GpuSample {
            throttle: Reading::Value(vec!["applications clocks setting".to_owned()]),
            ecc_uncorrected: Reading::Value(0),
            ecc_corrected: Reading::Value(9),
            row_remap_pending: Reading::Value(false),
            ..GpuSample::unknown(0)
        };
        assert!(faults(&info(), &fine).is_empty());
    }

    #[test]
    fn a_gpu_of_which_nothing_can_be_read_is_at_risk() {
        let of = |why: &str| words(&info(), &GpuSample::failed(0, why));
        let act = |words: &str| vec![(words.to_owned(), Severity::Act)];
        assert_eq!(of(LOST), act("lost"));
        assert_eq!(of("GPU is lost"), act("lost"), "in the words of nvidia-smi");
        assert_eq!(of("no answer from NVML for 7 s"), act("no answer"));
        assert_eq!(of("no answer from NVML since the agent started"), act("no answer"));
        assert_eq!(of("Unknown Error"), act("unreadable"));
        let partly = GpuSample { temperature: Reading::Value(40), ..GpuSample::failed(0, "Unknown Error") };
        assert_eq!(words(&info(), &partly), [], "it tells something");
    }

    #[test]
    fn heat_is_told_before_the_gpu_slows_down() {
        let at = |celsius: u32| {
            let sample = GpuSample { temperature: Reading::Value(celsius), ..GpuSample::unknown(0) };
            words(&info(), &sample).pop()
        };
        assert_eq!(at(81), None);
        assert_eq!(at(82), Some(("5° to limit".to_owned(), Severity::Look)));
        assert_eq!(at(87), Some(("at limit".to_owned(), Severity::Act)));
        assert_eq!(at(99), Some(("at limit".to_owned(), Severity::Act)));
        let unlimited = GpuInfo { slowdown_celsius: Reading::Value(0), ..info() };
        let sample = GpuSample { temperature: Reading::Value(40), ..GpuSample::unknown(0) };
        assert!(faults(&unlimited, &sample).is_empty());
    }

    #[test]
    fn a_slow_link_matters_while_the_gpu_is_busy() {
        let at = |util: u32, r#gen: u32, width: u32| {
            let sample = GpuSample {
                util: Reading::Value(util),
                pcie_gen: Reading::Value(r#gen),
                pcie_width: Reading::Value(width),
                ..GpuSample::unknown(0)
            };
            words(&info(), &sample).pop().map(|(words, _)| words)
        };
        assert_eq!(at(0, 1, 16), None, "an idle GPU saves power");
        assert_eq!(at(90, 5, 16), None);
        assert_eq!(at(90, 3, 16), Some("pcie g3/5".to_owned()));
        assert_eq!(at(90, 5, 8), Some("pcie x8/16".to_owned()));
    }
}
