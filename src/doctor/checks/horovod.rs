//! Whether Horovod's own libraries find all that they were linked with, and were built with NCCL, MPI and Gloo alike.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::super::compare::Compared;
use super::super::{Check, OfImage, Seen, Site};
use crate::clock;
use crate::domain::doctor::Verdict;
use crate::domain::preflight::Mark;

pub(in crate::doctor) struct Horovod;

/// Libraries with such names are loaded by the framework's import, from its own folders.
const LOADED: [&str; 7] =
    ["libtensorflow", "_pywrap_tensorflow", "libtorch", "libc10", "libcu", "libnv", "libnccl"];
/// Symbols that are told of a library.
const SYMBOLS: usize = 4;
/// How the names of symbols begin, without the first `_`, and of the library that has them.
const OWNERS: [(&[&str], &str); 4] =
    [(&["cuda"], "libcudart"), (&["nccl"], "libnccl"), (&["cudnn"], "libcudnn"), (&OF_TORCH, "libtorch")];
/// In the namespaces `at` and `c10`.
const OF_TORCH: [&str; 4] = ["ZN2at", "ZNK2at", "ZN3c10", "ZNK3c10"];
/// Symbols are looked for so long after Python has told where the libraries are: for that the loader reads all of a framework's. For a
/// launch and in a container, which are waited for less long, it is from when Python is asked.
const LOADING: Duration = Duration::from_secs(3);

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Its version; absent without Horovod.
    version: Option<String>,
    /// The frameworks that it was built for.
    frameworks: Vec<String>,
    /// Libraries that the loader does not find.
    missing: Vec<String>,
    /// Symbols of CUDA, NCCL and torch that the libraries lack which it does find.
    #[serde(default)]
    undefined: Vec<String>,
    /// Whether there was no time to look for those.
    #[serde(default)]
    is_unlooked: bool,
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
    const PATIENCE: Duration = Duration::from_secs(6);
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let asked = clock::host_now().0;
        let Ok(told) = site.python() else { return Ok(Found::default()) };
        let begun = if site.for_launch || site.in_container { asked } else { clock::host_now().0 };
        let left =
            || LOADING.saturating_sub(Duration::from_micros(clock::host_now().0.saturating_sub(begun)));
        let libraries = || told.libraries.iter().take(8);
        let mut found = Found { version: told.packages.get("horovod").cloned(), ..Found::default() };
        for library in libraries() {
            let framework = library.parent().and_then(|folder| folder.file_name());
            found.frameworks.extend(framework.map(|name| name.to_string_lossy().into_owned()));
            let own = |name: &String| !LOADED.iter().any(|own| name.starts_with(own));
            found.missing.extend(site.unfound(library)?.into_iter().filter(own));
        }
        found.built = libraries().next().and_then(|library| built(library));
        // what takes long comes last
        for library in libraries() {
            match lacks(site, library, &told.folders, left()) {
                Some(symbols) => found.undefined.extend(symbols.into_iter().take(SYMBOLS)),
                None => found.is_unlooked = true,
            }
        }
        for names in [&mut found.missing, &mut found.undefined] {
            names.sort();
            names.dedup();
        }
        found.is_told = std::env::var_os("HOROVOD_CONTROLLER").is_some();
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

/// The symbols that a library lacks, as far as the loader can tell of it beside the libraries that its framework's import loads; `None`
/// where it does not tell in time.
fn lacks(site: &Site, library: &Path, folders: &[PathBuf], within: Duration) -> Option<Vec<String>> {
    if within.is_zero() {
        return None;
    }
    let program = |name: &str| site.program(name).unwrap_or_else(|| Path::new("/usr/bin").join(name));
    let given = std::env::var("LD_LIBRARY_PATH").ok().filter(|given| !given.is_empty());
    let folders = folders.iter().map(|folder| folder.display().to_string());
    let path: Vec<String> = given.into_iter().chain(folders).collect();
    let path = format!("LD_LIBRARY_PATH={}", path.join(":"));
    let (ldd, library) = (program("ldd").display().to_string(), library.display().to_string());
    let told = Site::ask_within(&program("env"), &[&path, &ldd, "-r", &library], within).ok()?;
    Some(undefined(&(told.out + &told.err), &library))
}

/// Of what `ldd -r` prints: the symbols that a library lacks although the one is there that it was linked with for them. Nothing where
/// a library is missing, as that may have them; of others the import brings some along.
fn undefined(told: &str, library: &str) -> Vec<String> {
    if told.contains("=> not found") {
        return Vec::new();
    }
    let is_there = |name: &str| told.lines().any(|line| line.trim_start().starts_with(name));
    let symbol = |line: &str| {
        let rest = line.trim_start().strip_prefix("undefined symbol: ")?;
        let (name, of) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let is_own = of.is_empty() || of.trim() == format!("({library})");
        let bare = name.trim_start_matches('_');
        let is_owned = OWNERS.iter().any(|(beginnings, owner)| {
            beginnings.iter().any(|beginning| bare.starts_with(beginning)) && is_there(owner)
        });
        (is_own && is_owned).then(|| name.to_owned())
    };
    told.lines().filter_map(symbol).collect()
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

/// Of one that is as it should be, as far as it was looked at.
fn well(words: String, found: &Found) -> Verdict {
    if found.is_unlooked {
        return Verdict::good(format!("{words}; its symbols were not looked at in time")).lasting(words);
    }
    Verdict::good(words)
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
        let is_of_torch = |name: &String| {
            OF_TORCH.iter().any(|beginning| name.trim_start_matches('_').starts_with(beginning))
        };
        let (of, option) = if found.undefined.iter().any(is_of_torch) {
            ("torch", "HOROVOD_WITH_PYTORCH=1")
        } else {
            ("CUDA or NCCL", "HOROVOD_GPU_OPERATIONS=NCCL")
        };
        return Verdict::bad(
            format!("Horovod {version} lacks {}", found.undefined.join(", ")),
            format!(
                "it was built for another {of} than the one that is loaded: import horovod fails with \"undefined symbol\""
            ),
            format!("build it for this one: {option} pip install --no-cache-dir --force-reinstall horovod"),
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
    let Some(built) = &found.built else { return well(words, found) };
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
    well(words, found)
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
                    ..Found::default()
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
        let none = found(&[], &[]);
        assert_eq!(
            (none.mark, none.evidence.as_str()),
            (Mark::Bad, "Horovod 0.28.1 is built for no framework")
        );
        assert_eq!(judge(&Found::default(), true, &Compared::new([])).mark, Mark::Unknown);
    }

    /// A library from C, in this folder.
    fn library(folder: &Path, name: &str, code: &str, with: &[&str]) -> PathBuf {
        let (source, library) = (folder.join("source.c"), folder.join(name));
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        std::fs::write(&source, code).unwrap();
        let mut compile = std::process::Command::new("cc");
        compile.args([
            "-shared",
            "-fPIC",
            &format!("-Wl,-soname,{}", name.rsplit('/').next().unwrap()),
            "-o",
        ]);
        let ended = compile.arg(&library).arg(&source).args(with).current_dir(folder).status().unwrap();
        assert!(ended.success(), "{name}");
        library
    }

    #[test]
    fn symbols_of_another_torch_and_nccl_are_found_beside_the_frameworks_own_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        library(at, "torch/lib/libtorch.so", "int _ZN3c104hereEv(void) { return 1; }\n", &[]);
        library(at, "nvidia/nccl/lib/libnccl.so.2", "int ncclHere(void) { return 1; }\n", &[]);
        let with = ["torch/lib/libtorch.so", "nvidia/nccl/lib/libnccl.so.2"];
        let build = |name: &str, calls: &[&str]| {
            // Python's own symbols come with the program
            let all = [&["_ZN3c104hereEv", "ncclHere", "PyLong_FromLong"][..], calls].concat();
            let declared: Vec<String> = all.iter().map(|call| format!("int {call}(void);\n")).collect();
            let called: Vec<String> = all.iter().map(|call| format!("{call}()")).collect();
            let (declared, called) = (declared.concat(), called.join(" + "));
            library(at, name, &format!("{declared}int all(void) {{ return {called}; }}\n"), &with)
        };
        let (good, bad) = (build("good.so", &[]), build("bad.so", &["_ZNK3c105goneEv", "ncclGone", "odd"]));
        let folders = ["torch/lib", "nvidia/nccl/lib"].map(|name| at.join(name));
        let of = |library: &Path, folders: &[PathBuf]| {
            let site = crate::doctor::tests::site();
            let mut lacks = lacks(&site, library, folders, Duration::from_secs(60)).unwrap();
            lacks.sort();
            lacks
        };
        assert_eq!(of(&good, &folders), [""; 0]);
        assert_eq!(of(&bad, &folders), ["_ZNK3c105goneEv", "ncclGone"]);
        assert_eq!(of(&bad, &folders[..1]), [""; 0], "a library that is missing may have them");
        assert_eq!(lacks(&crate::doctor::tests::site(), &bad, &folders, Duration::ZERO), None);
        let lacking = |undefined: &str| {
            let found = Found {
                version: Some("0.28.1".into()),
                frameworks: vec!["torch".into()],
                undefined: vec![undefined.into()],
                ..Found::default()
            };
            let verdict = judge(&found, false, &Compared::new([]));
            (verdict.for_launch(), verdict.evidence, verdict.cause.unwrap())
        };
        let (mark, evidence, cause) = lacking("_ZNK3c105goneEv");
        assert_eq!((mark, evidence.as_str()), (Mark::Bad, "Horovod 0.28.1 lacks _ZNK3c105goneEv"));
        assert!(cause.starts_with("it was built for another torch than"), "{cause}");
        assert!(lacking("ncclGone").2.starts_with("it was built for another CUDA or NCCL than"));
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
            built: Some(parts.iter().map(|part| (*part).to_owned()).collect()),
            ..Found::default()
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
        let unlooked = judge(&Found { is_unlooked: true, ..found(&["gloo"]) }, false, &Compared::new([]));
        let words = "Horovod 0.28.1 for torch, built with gloo";
        assert_eq!((unlooked.mark, unlooked.lasting.as_deref()), (Mark::Good, Some(words)));
        assert_eq!(unlooked.evidence, format!("{words}; its symbols were not looked at in time"));
        let all = Compared::new([("a", "gloo mpi"), ("b", "gloo mpi"), ("c", "gloo")]);
        let odd = judge(&found(&["gloo"]), false, &all);
        assert_eq!(
            (odd.mark, odd.evidence.as_str()),
            (Mark::Bad, "Horovod 0.28.1 for torch, built with gloo; other hosts have gloo mpi")
        );
    }
}
