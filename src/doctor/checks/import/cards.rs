//! Whether a torch has code for the GPUs of a host: what it was built for against what they compute. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::super::Seen;
use super::Tried;
use crate::domain::doctor::Verdict;
use crate::domain::gpu::GpuInfo;
use crate::domain::host::HostInfo;
use crate::domain::ids::GpuUuid;

/// A GPU as the driver tells it to CUDA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    uuid: String,
    /// Its compute capability: 9 and 0 of an H200.
    capability: (u32, u32),
}

/// What becomes of a run whose torch has none.
pub(super) const CAUSE: &str = "torch has no code for it: \"no kernel image is available for execution on the device\" at the first kernel";

/// What helps on a GPU of this major capability.
pub(super) fn remedy(major: Option<u32>) -> String {
    let build = match major {
        Some(0..=7) => "for CUDA 12.6 or before, or an older torch (newer ones have dropped this GPU)",
        Some(8) => "for CUDA 11.0 or later",
        Some(9) => "for CUDA 11.8 or later",
        Some(10 | 12) => "for CUDA 12.8 or later",
        Some(11) => "for CUDA 13.0 or later",
        Some(_) | None => "that has code for this GPU",
    };
    format!("install a build of torch {build}: https://pytorch.org/get-started/locally")
}

impl Card {
    /// Whether code for one of these runs on it: `sm_90` on GPUs of its major capability that are not older, `compute_90`, which the
    /// driver compiles, on all that are not older. What can't be read counts as code that does.
    fn is_served(&self, arches: &[String]) -> bool {
        let own @ (major, minor) = self.capability;
        let runs = |arch: &String| {
            let Some((kind, number)) = arch.split_once('_') else { return true };
            let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let Ok(of) = digits.parse::<u32>() else { return true };
            let of = (of / 10, of % 10);
            match (kind, &number[digits.len()..]) {
                // for this GPU alone, and for its family
                (_, "a") => of == own,
                (_, "f") | ("sm", _) => of.0 == major && of.1 <= minor,
                ("compute", _) => of <= own,
                _ => true,
            }
        };
        arches.is_empty() || arches.iter().any(runs)
    }
}

/// Whether code for one of these runs on one of the GPUs at least, where there are any.
pub(super) fn are_some_served(gpus: &[Card], arches: &[String]) -> bool {
    gpus.is_empty() || gpus.iter().any(|card| card.is_served(arches))
}

/// Whether a launch would use a GPU, or a slice of it.
fn is_used(info: &HostInfo, uuid: &str, uses: Option<&BTreeSet<GpuUuid>>) -> bool {
    let Some(uses) = uses else { return true };
    let whole = info.gpus.iter().find(|gpu| gpu.uuid.as_str() == uuid);
    let is_slice = |gpu: &&GpuInfo| gpu.parent.is_some() && gpu.parent == whole.map(|whole| whole.index);
    uses.iter().any(|used| used.as_str() == uuid)
        || info.gpus.iter().filter(is_slice).any(|slice| uses.contains(&slice.uuid))
}

/// The verdict on a host with GPUs for which its torch has no code; `None` where there is none.
pub(super) fn judge(one: &Seen<'_, Vec<Tried>>) -> Option<Verdict> {
    one.found.iter().find_map(|tried| {
        let is_odd = |card: &&Card| !card.is_served(&tried.arches) && is_used(one.info, &card.uuid, one.uses);
        let odd: Vec<&Card> = tried.cards.iter().filter(is_odd).collect();
        let (major, minor) = odd.first()?.capability;
        let name = |card: &&Card| match one.info.gpus.iter().find(|gpu| gpu.uuid.as_str() == card.uuid) {
            Some(gpu) => format!("GPU {} ({})", gpu.index, gpu.model()),
            None => card.uuid.clone(),
        };
        let alike = odd.iter().filter(|card| card.capability == (major, minor));
        let verdict = Verdict::bad(
            format!(
                "{} of compute capability {major}.{minor}; {} {} of {} is built for {}",
                alike.map(name).collect::<Vec<_>>().join(", "),
                tried.module,
                tried.version.as_deref().unwrap_or_default(),
                tried.python,
                tried.arches.join(" "),
            ),
            CAUSE,
            remedy(Some(major)),
        );
        // by its own doing it may find another torch
        Some(if tried.is_led { verdict.may_run() } else { verdict })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{info_with, seen_with};
    use crate::domain::preflight::Mark;

    fn card(uuid: &str, capability: (u32, u32)) -> Card {
        Card { uuid: uuid.to_owned(), capability }
    }

    #[test]
    fn code_runs_on_gpus_of_its_major_capability_and_ptx_on_all_that_are_newer() {
        let is_served = |capability, arches: &str| {
            let arches: Vec<String> = arches.split_whitespace().map(str::to_owned).collect();
            card("GPU-1", capability).is_served(&arches)
        };
        for (capability, arches) in [
            ((9, 0), "sm_50 sm_80 sm_90"),
            ((8, 9), "sm_80 sm_86"),
            ((12, 1), "sm_90 sm_120"),
            ((12, 0), "sm_80 sm_90 compute_90"),
            ((9, 0), "sm_90a"),
            ((10, 3), "sm_100f"),
            ((7, 0), ""),
            ((12, 0), "native"),
        ] {
            assert!(is_served(capability, arches), "{capability:?} {arches}");
        }
        for (capability, arches) in [
            ((12, 0), "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"),
            ((8, 0), "sm_86"),
            ((6, 1), "sm_75 sm_80 compute_120"),
            ((10, 0), "sm_90a compute_90a"),
            ((12, 0), "sm_100f"),
        ] {
            assert!(!is_served(capability, arches), "{capability:?} {arches}");
        }
        let arches = ["sm_80".to_owned(), "sm_90".to_owned()];
        let (old, new) = (card("GPU-1", (6, 1)), card("GPU-2", (9, 0)));
        assert!(are_some_served(&[old.clone(), new], &arches) && are_some_served(&[], &arches));
        assert!(!are_some_served(&[old], &arches));
    }

    #[test]
    fn a_gpu_without_code_is_red_where_it_is_used() {
        let of = |uses: Option<&'static BTreeSet<GpuUuid>>, arches: &[&str], is_led| {
            let tried = Tried {
                module: "torch".to_owned(),
                python: "/usr/bin/python3".to_owned(),
                version: Some("2.4.0".to_owned()),
                arches: arches.iter().map(|arch| (*arch).to_owned()).collect(),
                cards: vec![card("GPU-1", (12, 0)), card("GPU-2", (9, 0))],
                is_led,
                ..Tried::default()
            };
            let mut all = seen_with([(info_with(&[]), vec![tried])]);
            all[0].uses = uses;
            judge(&all[0])
        };
        let red = of(None, &["sm_80", "sm_90"], false).unwrap();
        let words =
            "GPU-1 of compute capability 12.0; torch 2.4.0 of /usr/bin/python3 is built for sm_80 sm_90";
        assert_eq!((red.for_launch(), red.evidence.as_str()), (Mark::Bad, words));
        assert!(red.remedy.unwrap().contains("CUDA 12.8 or later"));
        assert_eq!(of(None, &["sm_80", "sm_90"], true).unwrap().for_launch(), Mark::Look);
        assert_eq!(of(None, &["sm_90", "sm_120"], false), None);
        let set = |uuid: &str| -> &'static BTreeSet<GpuUuid> {
            Box::leak(Box::new(BTreeSet::from([GpuUuid::from(uuid)])))
        };
        assert_eq!(of(Some(set("GPU-2")), &["sm_90"], false), None, "the launch does not use it");
        assert!(of(Some(set("GPU-1")), &["sm_90"], false).is_some());
    }
}
