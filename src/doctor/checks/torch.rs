//! Whether torch can be imported, and is built for the CUDA that the driver serves.

use serde::{Deserialize, Serialize};

use super::super::compare::numbers;
use super::super::compat::Compat;
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Torch;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Its version; absent without torch.
    version: Option<String>,
    /// The CUDA it was built for; empty for none, absent where that is not known.
    cuda: Option<String>,
    /// Libraries that its import does not find.
    #[serde(default)]
    missing: Vec<String>,
    /// A library of the toolkit's by which an older driver serves a newer CUDA.
    #[serde(default)]
    compat: Option<Compat>,
}

/// Libraries with such names its import looks for among Python's packages itself.
const PRELOADED: [&str; 3] = ["libcu", "libnv", "libnccl"];

impl Check for Torch {
    const NAME: &'static str = "torch";
    const ASKS: &'static str =
        "does torch find its libraries, and is it built for the CUDA that the driver serves";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Ok(told) = site.python() else { return Ok(Found::default()) };
        let mut missing = match told.loads.get("torch") {
            Some(library) => site.unfound(library)?,
            None => Vec::new(),
        };
        missing.retain(|name| !PRELOADED.iter().any(|own| name.starts_with(own)));
        let version = told.packages.get("torch").cloned();
        let compat = version.as_ref().and_then(|_| Compat::look(site));
        Ok(Found { version, cuda: told.torch_cuda, missing, compat })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let judge = |one: &Seen<'_, Found>| {
            let driver = one.info.cuda_driver.value().map(String::as_str);
            judge(&one.found, !one.info.gpus.is_empty(), driver)
        };
        seen.iter().map(judge).collect()
    }
}

fn judge(found: &Found, has_gpus: bool, driver: Option<&str>) -> Verdict {
    let Some(version) = found.version.as_deref() else { return Verdict::unknown("no torch") };
    if !found.missing.is_empty() {
        return Verdict::bad(
            format!("torch {version} does not find {}", found.missing.join(", ")),
            "import torch fails on this host, and the others wait for its ranks",
            "put their folder on LD_LIBRARY_PATH (--env), or install torch anew",
        );
    }
    let Some(cuda) = found.cuda.as_deref() else {
        return Verdict::unknown(format!("torch {version} does not tell for which CUDA it was built"));
    };
    if cuda.is_empty() {
        let seen = format!("torch {version} is built without CUDA");
        return if has_gpus {
            let cause = "torch.cuda.is_available() is False, and the run computes on CPUs or ends";
            let remedy = "install the build for CUDA: https://pytorch.org/get-started/locally";
            Verdict::bad(seen, cause, remedy).may_run()
        } else {
            Verdict::good(format!("{seen}, and there is no GPU"))
        };
    }
    let seen = format!("torch {version} for CUDA {cuda}");
    if !has_gpus {
        return Verdict::good(format!("{seen}, and there is no GPU"));
    }
    let Some(driver) = driver else {
        return Verdict::unknown(format!("{seen}; which CUDA the driver serves is not known"));
    };
    match (numbers(cuda), numbers(driver)) {
        // within one major version a driver serves newer minor ones
        (Some((wanted, _)), Some((served, _))) if wanted > served => Verdict::bad(
            format!("{seen}; the driver serves CUDA {driver} at most"),
            "\"The NVIDIA driver on your system is too old\": no GPU is used",
            match found.compat.as_ref().and_then(|compat| compat.words(cuda)) {
                Some(words) => format!("{words}; or install a newer driver, or torch for CUDA {served}"),
                None => format!("install a newer driver, or torch for CUDA {served}"),
            },
        )
        .may_run(),
        _ => Verdict::good(format!("{seen}; the driver serves {driver}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn torch_and_driver_must_fit() {
        let of = |cuda: &str, gpus, driver| {
            let found = Found {
                version: Some("2.4.0".into()),
                cuda: Some(cuda.into()),
                missing: Vec::new(),
                compat: None,
            };
            judge(&found, gpus, driver).mark
        };
        assert_eq!(of("12.4", true, Some("12.2")), Mark::Good, "minor versions are compatible");
        assert_eq!(of("13.0", true, Some("12.8")), Mark::Bad);
        assert_eq!(of("11.8", true, Some("13.0")), Mark::Good);
        assert_eq!(of("", true, Some("12.2")), Mark::Bad);
        assert_eq!(of("", false, None), Mark::Good);
        assert_eq!((of("12.4", false, None), of("12.4", true, None)), (Mark::Good, Mark::Unknown));
        assert_eq!(judge(&Found::default(), true, None).mark, Mark::Unknown);
        let missing = vec!["libmpi.so.40".into()];
        let broken =
            Found { version: Some("2.4.0".into()), cuda: Some("12.4".into()), missing, compat: None };
        assert_eq!(judge(&broken, false, None).evidence, "torch 2.4.0 does not find libmpi.so.40");
    }
}
