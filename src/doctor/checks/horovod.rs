//! Whether Horovod's own libraries find all that they were linked with, and were built with NCCL, MPI and Gloo alike.

use std::path::Path;

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::super::compare::Compared;
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::preflight::Mark;

pub(in crate::doctor) struct Horovod;

/// Libraries with such names are loaded by the framework's import, from its own folders.
const LOADED: [&str; 7] =
    ["libtensorflow", "_pywrap_tensorflow", "libtorch", "libc10", "libcu", "libnv", "libnccl"];
/// Symbols that are told of a library.
const SYMBOLS: usize = 4;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Its version; absent without Horovod.
    version: Option<String>,
    /// The frameworks that it was built for.
    frameworks: Vec<String>,
    /// Libraries that the loader does not find.
    missing: Vec<String>,
    /// Symbols of CUDA and NCCL that the libraries lack which it does find.
    #[serde(default)]
    undefined: Vec<String>,
    /// By what it can reduce: `gloo`, `mpi`, `nccl`; absent where its libraries can't be read.
    #[serde(default)]
    built: Option<Vec<String>>,
    /// Whether the host itself says by what ranks agree (`HOROVOD_CONTROLLER`), which counts before the kind's own.
    #[serde(default)]
    is_told: bool,
}

impl Check for Horovod {
    const NAME: &'static str = "horovod";
    const ASKS: &'static str = "does Horovod find its libraries, and was it built with NCCL, MPI and Gloo";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Ok(told) = site.python() else { return Ok(Found::default()) };
        let mut found = Found { version: told.packages.get("horovod").cloned(), ..Found::default() };
        for library in told.libraries.iter().take(8) {
            let framework = library.parent().and_then(|folder| folder.file_name());
            found.frameworks.extend(framework.map(|name| name.to_string_lossy().into_owned()));
            let own = |name: &String| !LOADED.iter().any(|own| name.starts_with(own));
            let unfound = site.unfound(library)?;
            let is_whole = unfound.is_empty();
            found.missing.extend(unfound.into_iter().filter(own));
            if !is_whole {
                // its symbols may come from what the framework brings along
                continue;
            }
            let symbols = site.undefined(library, &["cuda", "nccl", "cudnn"])?;
            found.undefined.extend(symbols.into_iter().take(SYMBOLS));
        }
        for names in [&mut found.missing, &mut found.undefined] {
            names.sort();
            names.dedup();
        }
        found.is_told = std::env::var_os("HOROVOD_CONTROLLER").is_some();
        found.built = told.libraries.first().and_then(|library| built(library));
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let built = |found: &'_ Found| found.built.as_ref().map(|built| built.join(" "));
        let all: Vec<(&str, String)> =
            seen.iter().filter_map(|one| Some((one.host.as_str(), built(&one.found)?))).collect();
        let all = Compared::new(all.iter().map(|(host, built)| (*host, built.as_str())));
        let judge_one = |one: &Seen<'_, Found>| {
            let verdict = judge(&one.found, !one.info.gpus.is_empty(), &all);
            let wanted = one.controller.filter(|_| !one.found.is_told && verdict.for_launch() < Mark::Bad);
            wanted.and_then(|controller| without(&one.found, controller)).unwrap_or(verdict)
        };
        seen.iter().map(judge_one).collect()
    }
}

/// Of one that was built without what its ranks would agree by. One that was built with neither is not known by its names.
fn without(found: &Found, controller: &str) -> Option<Verdict> {
    let (version, built) = (found.version.as_deref()?, found.built.as_ref()?);
    let is_known = built.iter().any(|part| part == "gloo" || part == "mpi");
    if !is_known || built.iter().any(|part| part == controller) {
        return None;
    }
    let (name, option) =
        if controller == "mpi" { ("MPI", "HOROVOD_WITH_MPI=1") } else { ("Gloo", "HOROVOD_WITH_GLOO=1") };
    let other = if controller == "mpi" {
        "hvtui's own start takes Gloo: leave HOROVOD_CONTROLLER out"
    } else {
        "mpirun starts it by MPI: --delegate"
    };
    Some(Verdict::bad(
        format!("Horovod {version} was built with {}, without {name}", built.join(", ")),
        format!(
            "the ranks of this launch agree by {name}: hvd.init() ends with \"Horovod has not been built with {name} support\""
        ),
        format!("{option} pip install --no-cache-dir --force-reinstall horovod   (or: {other})"),
    ))
}

/// By what a library of Horovod's can reduce: the names of its classes stand in it.
fn built(library: &Path) -> Option<Vec<String>> {
    let bytes = std::fs::read(library).ok()?;
    let parts = [("gloo", "GlooAllreduce"), ("mpi", "MPIAllreduce"), ("nccl", "NCCLAllreduce")];
    let has = |name: &str| memmem::find(&bytes, name.as_bytes()).is_some();
    Some(parts.iter().filter(|(_, class)| has(class)).map(|(name, _)| (*name).to_owned()).collect())
}

fn judge(found: &Found, has_gpus: bool, all: &Compared<'_>) -> Verdict {
    let Some(version) = found.version.as_deref() else { return Verdict::unknown("no Horovod") };
    if !found.missing.is_empty() {
        let missing = found.missing.join(", ");
        return Verdict::bad(
            format!("Horovod {version} does not find {missing}"),
            "import horovod fails on this host, and the others wait for its ranks",
            "put their folder on LD_LIBRARY_PATH (--env), or build it anew: pip install --no-cache-dir --force-reinstall horovod",
        );
    }
    if !found.undefined.is_empty() {
        return Verdict::bad(
            format!("Horovod {version} lacks {}", found.undefined.join(", ")),
            "it was built for another CUDA or NCCL than the one that is loaded: import horovod fails with \"undefined symbol\"",
            "build it for this one: HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --force-reinstall horovod",
        );
    }
    if found.frameworks.is_empty() {
        return Verdict::bad(
            format!("Horovod {version} is built for no framework"),
            "import horovod.torch and horovod.tensorflow fail",
            "HOROVOD_WITH_PYTORCH=1 pip install --no-cache-dir --force-reinstall horovod",
        );
    }
    let words = format!("Horovod {version} for {}", found.frameworks.join(", "));
    let Some(built) = &found.built else { return Verdict::good(words) };
    let words = format!(
        "{words}, built with {}",
        if built.is_empty() { "neither MPI nor Gloo".to_owned() } else { built.join(", ") }
    );
    if let Some(difference) = all.difference(&built.join(" ")) {
        return Verdict::bad(
            format!("{words}; {difference}"),
            "the ranks don't agree on how they reduce: they fail at the start, or wait for each other",
            "build it alike: HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_MPI=1 pip install --no-cache-dir --force-reinstall horovod",
        )
        .may_run();
    }
    if has_gpus && !built.iter().any(|part| part == "nccl") {
        return Verdict::look(
            words,
            "hvd.nccl_built() is false: gradients of GPUs go through the hosts' memory, which is slow",
            "HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --force-reinstall horovod",
        );
    }
    Verdict::good(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;

    #[test]
    fn what_is_not_found_is_named() {
        let found = |frameworks: &[&str], missing: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            judge(
                &Found {
                    version: Some("0.28.1".into()),
                    frameworks: all(frameworks),
                    missing: all(missing),
                    undefined: Vec::new(),
                    built: None,
                    is_told: false,
                },
                true,
                &Compared::new([]),
            )
        };
        assert_eq!(found(&["torch"], &[]).mark, Mark::Good);
        let broken = found(&["torch"], &["libmpi.so.40"]);
        assert_eq!(
            (broken.mark, broken.evidence.as_str()),
            (Mark::Bad, "Horovod 0.28.1 does not find libmpi.so.40")
        );
        assert_eq!(found(&[], &[]).mark, Mark::Bad);
        assert_eq!(judge(&Found::default(), true, &Compared::new([])).mark, Mark::Unknown);
    }

    #[test]
    fn what_it_was_built_without_is_told_by_its_classes() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("mpi_lib_v2.so");
        std::fs::write(&library, b"\x7fELF N7horovod6common13GlooAllreduceE N7horovod6common12MPIAllreduceE")
            .unwrap();
        assert_eq!(built(&library).unwrap(), ["gloo", "mpi"]);
        let found = |parts: &[&str]| Found {
            version: Some("0.28.1".into()),
            frameworks: vec!["torch".into()],
            missing: Vec::new(),
            undefined: Vec::new(),
            built: Some(parts.iter().map(|part| (*part).to_owned()).collect()),
            is_told: false,
        };
        let controlled = |parts: &[&str], controller, is_told| {
            let mut all = seen([Found { is_told, ..found(parts) }]);
            all[0].controller = controller;
            Horovod::judge(&all).remove(0)
        };
        let lacking = controlled(&["mpi"], Some("gloo"), false);
        assert_eq!(
            (lacking.for_launch(), lacking.evidence.as_str()),
            (Mark::Bad, "Horovod 0.28.1 was built with mpi, without Gloo")
        );
        for fine in [
            controlled(&["gloo", "mpi"], Some("gloo"), false),
            controlled(&["mpi"], Some("mpi"), false),
            controlled(&["mpi"], None, false),
            controlled(&["mpi"], Some("gloo"), true),
            controlled(&[], Some("gloo"), false),
        ] {
            assert_eq!(fine.mark, Mark::Good, "{fine:?}");
        }
        let of = |parts: &[&str], has_gpus| judge(&found(parts), has_gpus, &Compared::new([])).mark;
        assert_eq!(
            (of(&["gloo"], false), of(&["gloo"], true), of(&["gloo", "nccl"], true)),
            (Mark::Good, Mark::Look, Mark::Good)
        );
        let all = Compared::new([("a", "gloo mpi"), ("b", "gloo mpi"), ("c", "gloo")]);
        let odd = judge(&found(&["gloo"]), false, &all);
        assert_eq!(
            (odd.mark, odd.evidence.as_str()),
            (Mark::Bad, "Horovod 0.28.1 for torch, built with gloo; other hosts have gloo mpi")
        );
    }
}
