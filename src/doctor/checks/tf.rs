//! Whether TensorFlow can be imported, and is built for the CUDA and the cuDNN that are there.

mod compilers;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::compilers::Compilers;
use super::super::compare::numbers;
use super::super::compat::Compat;
use super::super::{Check, OfImage, Seen, Site};
use super::libraries::cached;
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Tensorflow;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Its version; absent without TensorFlow.
    version: Option<String>,
    /// Libraries that its import does not find.
    missing: Vec<String>,
    /// Whether it is built for CUDA; absent where it does not tell.
    is_cuda: Option<bool>,
    /// The CUDA and the cuDNN that it was built for.
    cuda: Option<String>,
    cudnn: Option<String>,
    /// The major versions of cuDNN that are there.
    cudnn_there: BTreeSet<u32>,
    /// What the script of the launch calls that TensorFlow 2 has not: `tf.Session`.
    #[serde(default)]
    first_version: Option<String>,
    /// A library of the toolkit's by which an older driver serves a newer CUDA.
    #[serde(default)]
    compat: Option<Compat>,
    /// The compilers of TensorFlow and of the host, where Horovod would have to be built.
    #[serde(default)]
    compilers: Option<Compilers>,
}

/// Calls of TensorFlow 1 that are gone.
const GONE: [&str; 6] = [
    "tf.Session(",
    "tf.placeholder(",
    "tf.ConfigProto(",
    "tf.global_variables_initializer(",
    "tf.app.run(",
    "tf.contrib.",
];
/// Bytes of a script that are looked at.
const SCRIPT: u64 = 1 << 20;

impl Check for Tensorflow {
    const NAME: &'static str = "tf";
    const ASKS: &'static str =
        "does TensorFlow find its libraries, and is it built for the CUDA and cuDNN that are there";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Ok(told) = site.python() else { return Ok(Found::default()) };
        let Some(version) = told.packages.get("tensorflow") else { return Ok(Found::default()) };
        let mut found = Found { version: Some(version.clone()), ..Found::default() };
        if let Some(library) = told.loads.get("tensorflow") {
            // its own ones lie beside it and are loaded first
            found.missing = site.unfound(library)?;
            found.missing.retain(|name| !name.starts_with("libtensorflow"));
        }
        if let Some(build) = &told.tensorflow_build {
            found.is_cuda = build.get("is_cuda_build").map(|told| told == "True");
            found.cuda = build.get("cuda_version").cloned();
            found.cudnn = build.get("cudnn_version").cloned();
        }
        found.compat = Compat::look(site);
        found.compilers = Compilers::look(site, &told);
        found.first_version = site.scripts().find_map(|path| call_of_the_first(&path));
        let packages = told.cuda_packages.iter().filter(|(name, _)| name.contains("cudnn"));
        found.cudnn_there.extend(packages.filter_map(|(_, version)| Some(numbers(version)?.0)));
        let system = cached(site).unwrap_or_default();
        let of_system = system.iter().filter_map(|(name, _)| name.strip_prefix("libcudnn.so."));
        found.cudnn_there.extend(of_system.filter_map(|version| Some(numbers(version)?.0)));
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let judge = |one: &Seen<'_, Found>| {
            let driver = one.info.cuda_driver.value().map(String::as_str);
            let verdict = judge(&one.found, !one.info.gpus.is_empty(), driver);
            let compilers = one.found.compilers.as_ref().zip(one.found.version.as_ref());
            let odd = compilers.and_then(|(compilers, version)| compilers.judge(version));
            odd.filter(|_| !verdict.is_trouble()).unwrap_or(verdict)
        };
        seen.iter().map(judge).collect()
    }
}

/// A call in a script that TensorFlow 2 has under another name alone.
fn call_of_the_first(script: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(script).ok()?.take(SCRIPT).read_to_string(&mut text).ok()?;
    // it may care for both versions
    if ["compat.v1", "compat import v1", "tf.__version__", "hasattr(tf"]
        .iter()
        .any(|words| text.contains(words))
    {
        return None;
    }
    let code = || text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let call = GONE.into_iter().find(|call| code().any(|line| line.contains(call)))?;
    Some(call.trim_end_matches(['(', '.']).to_owned())
}

/// What TensorFlow says then, and what follows.
const NO_GPU: &str = "\"Cannot dlopen some GPU libraries\": no GPU is registered, and the run computes on CPUs without an error";

fn judge(found: &Found, has_gpus: bool, driver: Option<&str>) -> Verdict {
    let Some(version) = found.version.as_deref() else { return Verdict::unknown("no TensorFlow") };
    if !found.missing.is_empty() {
        return Verdict::bad(
            format!("TensorFlow {version} does not find {}", found.missing.join(", ")),
            "import tensorflow fails on this host, and the others wait for its ranks",
            "put their folder on LD_LIBRARY_PATH (--env), or install TensorFlow anew",
        );
    }
    if let Some(call) =
        found.first_version.as_ref().filter(|_| numbers(version).is_some_and(|(major, _)| major >= 2))
    {
        return Verdict::look(
            format!("TensorFlow {version}, and the script calls {call}"),
            "it was written for TensorFlow 1: \"module 'tensorflow' has no attribute\"",
            "write in it: import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()",
        );
    }
    let install = "python3 -m pip install 'tensorflow[and-cuda]'";
    let (cuda, cudnn) = (found.cuda.as_deref(), found.cudnn.as_deref());
    let built = match (found.is_cuda, cuda, cudnn) {
        (Some(false), ..) => "without CUDA".to_owned(),
        (_, Some(cuda), Some(cudnn)) => format!("for CUDA {cuda} and cuDNN {cudnn}"),
        (_, Some(cuda), None) => format!("for CUDA {cuda}"),
        _ => return Verdict::good(format!("TensorFlow {version}")),
    };
    let seen = format!("TensorFlow {version} is built {built}");
    if !has_gpus {
        return Verdict::good(format!("{seen}, and there is no GPU"));
    }
    if found.is_cuda == Some(false) {
        return Verdict::bad(
            seen,
            "it registers no GPU, and the run computes on CPUs without an error",
            install,
        )
        .may_run();
    }
    if let (Some((wanted, _)), Some((served, _))) = (cuda.and_then(numbers), driver.and_then(numbers))
        && wanted > served
    {
        let driver = driver.unwrap_or_default();
        return Verdict::bad(
            format!("{seen}; the driver serves CUDA {driver} at most"),
            NO_GPU,
            match found.compat.as_ref().zip(cuda).and_then(|(compat, cuda)| compat.words(cuda)) {
                Some(words) => {
                    format!("{words}; or install a newer driver, or a TensorFlow for CUDA {served}")
                }
                None => format!("install a newer driver, or a TensorFlow for CUDA {served}"),
            },
        )
        .may_run();
    }
    match cudnn.and_then(numbers) {
        Some((wanted, _)) if !found.cudnn_there.contains(&wanted) => {
            let there: Vec<String> = found.cudnn_there.iter().map(u32::to_string).collect();
            let there = if there.is_empty() {
                "none is there".to_owned()
            } else {
                format!("there is {}", there.join(", "))
            };
            Verdict::look(
                format!("{seen}; of cuDNN {there}, as far as the loader and Python's packages tell"),
                NO_GPU,
                format!("{install}, or put the folder of libcudnn.so.{wanted} on LD_LIBRARY_PATH (--env)"),
            )
        }
        _ => Verdict::good(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn tensorflow_cudnn_and_driver_must_fit() {
        let of = |cudnn: &[u32], driver, has_gpus| {
            let found = Found {
                version: Some("2.15.0".into()),
                missing: Vec::new(),
                is_cuda: Some(true),
                cuda: Some("12.2".into()),
                cudnn: Some("8".into()),
                cudnn_there: cudnn.iter().copied().collect(),
                first_version: None,
                compat: None,
                compilers: None,
            };
            judge(&found, has_gpus, Some(driver))
        };
        assert_eq!(of(&[8], "12.2", true).mark, Mark::Good);
        let other = of(&[9], "12.4", true);
        assert_eq!(other.mark, Mark::Look);
        assert!(
            other
                .evidence
                .starts_with("TensorFlow 2.15.0 is built for CUDA 12.2 and cuDNN 8; of cuDNN there is 9")
        );
        let none = of(&[], "12.4", true).evidence;
        let seen = "; of cuDNN none is there, as far as the loader and Python's packages tell";
        assert!(none.ends_with(seen), "{none}");
        assert_eq!(of(&[8], "11.8", true).mark, Mark::Bad);
        assert_eq!(of(&[], "11.8", false).mark, Mark::Good, "no GPU needs none of it");
    }

    #[test]
    fn what_it_can_not_load_and_what_it_is_built_without_is_told() {
        let found = Found { version: Some("2.15.0".into()), ..Found::default() };
        assert_eq!(judge(&found, true, None).mark, Mark::Good, "nothing is known against it");
        let broken = Found { missing: vec!["libmpi.so.40".into()], ..found };
        assert_eq!(judge(&broken, false, None).evidence, "TensorFlow 2.15.0 does not find libmpi.so.40");
        let cpu = Found { is_cuda: Some(false), missing: Vec::new(), ..broken };
        assert_eq!((judge(&cpu, true, None).mark, judge(&cpu, false, None).mark), (Mark::Bad, Mark::Good));
        assert_eq!(judge(&Found::default(), true, None).mark, Mark::Unknown);
    }

    #[test]
    fn a_script_of_the_first_version_is_known_by_what_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let script = folder.path().join("train.py");
            std::fs::write(&script, text).unwrap();
            call_of_the_first(&script)
        };
        assert_eq!(of("import tensorflow as tf\nwith tf.Session() as s:\n").as_deref(), Some("tf.Session"));
        assert_eq!(of("import tensorflow as tf\n# tf.Session() is gone\n"), None);
        assert_eq!(of("import tensorflow.compat.v1 as tf\ntf.Session()\n"), None);
        assert_eq!(of("from tensorflow.compat import v1 as tf\ntf.Session()\n"), None);
        let found = |version: &str| Found {
            version: Some(version.into()),
            first_version: Some("tf.Session".into()),
            ..Found::default()
        };
        assert_eq!(
            judge(&found("2.15.0"), false, None).evidence,
            "TensorFlow 2.15.0, and the script calls tf.Session"
        );
        assert_eq!(judge(&found("1.15.5"), false, None).mark, Mark::Good);
    }
}
