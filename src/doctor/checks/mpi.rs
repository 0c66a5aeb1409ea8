//! Whether mpirun is the same MPI everywhere and that of the program, and may start ranks on other hosts.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, minor};
use super::super::site::at_home;
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::{RunProgram, Verdict};
use crate::domain::preflight::Mark;
use crate::program::{home, resolve};

pub(in crate::doctor) struct Mpi;

/// Images that bring their own sshd sometimes forbid Open MPI to use ssh at all.
const AGENT: &str = "OMPI_MCA_plm_rsh_agent";

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// `Open MPI 4.1.4`; absent without mpirun.
    mpi: Option<String>,
    /// With which program Open MPI is told to log in to other hosts.
    agent: Option<String>,
    /// Of Open MPI: whether it takes buffers of GPUs. Asked for a launch, and where there is NVIDIA's driver.
    #[serde(default)]
    takes_gpus: Option<bool>,
    /// Of a launch: what its program is linked with.
    #[serde(default)]
    program: Option<Linked>,
}

/// The library of MPI that a program is linked with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Linked {
    /// The program's file.
    program: String,
    /// The library, by the name that the loader looks for: `libmpi.so.40`.
    library: String,
}

impl Check for Mpi {
    const NAME: &'static str = "mpi";
    const ASKS: &'static str = "is mpirun the same on all hosts";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let agent = std::env::var(AGENT).ok();
        let none = Found { mpi: None, agent, takes_gpus: None, program: None };
        let launcher = site.run.as_ref().and_then(|run| run.mpirun.as_deref());
        let Some(program) = site.program(launcher.unwrap_or("mpirun")) else { return Ok(none) };
        let told = site.ask(&program, &["--version"])?;
        let mpi = version(&told.out).ok_or_else(|| format!("mpirun --version: {}", told.last_words()))?;
        let is_wanted = site.for_launch || Path::new(DRIVER).exists();
        let takes_gpus = if is_wanted && mpi.starts_with(OPEN_MPI) { takes_gpus(site) } else { None };
        let program = site.run.as_ref().and_then(|run| linked(site, run));
        Ok(Found { mpi: Some(mpi), takes_gpus, program, ..none })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let mpis = seen.iter().filter_map(|one| Some((one.host.as_str(), one.found.mpi.as_deref()?)));
        let all = Compared::new(mpis);
        let judge_one = |one: &Seen<'_, Found>| {
            if let Some(other) = of_another_mpi(&one.found) {
                return other;
            }
            let verdict = judge(&one.found, &all);
            // of Horovod's ranks NCCL has the GPUs' buffers
            let gives_gpus = one.controller == Some("mpi") && one.uses.is_some_and(|uses| !uses.is_empty());
            match (&one.found.mpi, one.found.takes_gpus) {
                (Some(mpi), Some(false)) if gives_gpus && !verdict.is_trouble() => without_cuda(mpi),
                (_, Some(false)) if verdict.mark == Mark::Good => {
                    Verdict { evidence: format!("{}, without CUDA", verdict.evidence), ..verdict }
                }
                _ => verdict,
            }
        };
        seen.iter().map(judge_one).collect()
    }
}

const DRIVER: &str = "/dev/nvidiactl";
const OPEN_MPI: &str = "Open MPI ";
const MPICH: &str = "MPICH ";
/// How `ompi_info --parsable` tells it, by the names of different versions.
const BUILT: [&str; 2] = ["opal_built_with_cuda_support:value:", "mpi_built_with_cuda_support:value:"];

fn takes_gpus(site: &Site) -> Option<bool> {
    let told = site.ask(&site.program("ompi_info")?, &["--parsable", "--all"]).ok()?;
    built_with_cuda(&told.out)
}

fn built_with_cuda(told: &str) -> Option<bool> {
    let mut values =
        told.lines().filter_map(|line| BUILT.iter().find_map(|name| Some(line.split_once(name)?.1)));
    values.next().map(|value| value.trim() == "true")
}

fn without_cuda(mpi: &str) -> Verdict {
    Verdict::look(
        format!("{mpi} is built without CUDA"),
        "a rank that gives MPI a buffer in a GPU's memory ends with a segmentation fault; one in the host's memory is taken",
        "an Open MPI that is built with --with-cuda, or a copy to the host's memory before each call of MPI",
    )
}

/// What the program of a launch is linked with, where it is one that the system's loader starts.
fn linked(site: &Site, run: &RunProgram) -> Option<Linked> {
    run.mpirun.as_ref()?;
    let folder = run.cwd.as_deref().map_or_else(home, at_home);
    let path = run.env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
    let program = resolve(&run.program, path.as_deref(), &folder, Path::new("")).ok()?;
    let mut magic = [0; 4];
    File::open(&program).and_then(|mut file| file.read_exact(&mut magic)).ok()?;
    if magic != *b"\x7fELF" {
        return None;
    }
    let ldd = site.program("ldd")?;
    let said = site.ask(&ldd, &[program.to_str()?]).ok()?;
    let library = library(&said.out)?;
    Some(Linked { program: program.display().to_string(), library })
}

/// The library of MPI among what `ldd` tells.
fn library(told: &str) -> Option<String> {
    let names = told.lines().filter_map(|line| line.split_whitespace().next());
    let mut libraries =
        names.filter(|name| name.starts_with("libmpi.so.") || name.starts_with("libmpich.so."));
    libraries.next().map(str::to_owned)
}

/// Whose library it is, where its name says so. `libmpi.so.12` is that of MPICH's interface, which Intel's MPI and MVAPICH have
/// too; Open MPI's had this number until version 1.10.
fn owner(library: &str) -> Option<&'static str> {
    match library.strip_prefix("libmpi.so.").map(|number| number.split('.').next()?.parse::<u32>().ok()) {
        None => library.starts_with("libmpich").then_some(MPICH),
        Some(Some(12)) => Some(MPICH),
        Some(Some(20..)) => Some(OPEN_MPI),
        Some(_) => None,
    }
}

fn of_another_mpi(found: &Found) -> Option<Verdict> {
    let (mpi, linked) = (found.mpi.as_deref()?, found.program.as_ref()?);
    // those that have MPICH's interface
    let of_mpich = [MPICH, "Intel(R) MPI"];
    let starts = if mpi.starts_with(OPEN_MPI) {
        OPEN_MPI
    } else {
        of_mpich.iter().any(|name| mpi.starts_with(name)).then_some(MPICH)?
    };
    let owner = owner(&linked.library)?;
    let is_old = mpi.strip_prefix(OPEN_MPI).is_some_and(|version| version.starts_with("1."));
    if owner == starts || is_old {
        return None;
    }
    let Linked { program, library } = linked;
    let owner = owner.trim_end();
    Some(Verdict::bad(
        format!("mpirun is {mpi}, and {program} is linked with {owner} ({library})"),
        "the program does not meet the others that mpirun starts: each is rank 0 of 1, does all of the work and ends with 0",
        format!(
            "the mpirun of {owner} first in PATH (`--env PATH=…`, `--module`), or a program that mpicc of {} has compiled",
            starts.trim_end()
        ),
    ))
}

/// Which MPI, from what its mpirun says.
fn version(said: &str) -> Option<String> {
    let said = said.trim_start();
    // it begins with the name by which it was called, and mpirun.openmpi calls itself OpenRTE
    let first = said.lines().next().unwrap_or_default();
    let open = ["(Open MPI) ", "(OpenRTE) "].iter().find_map(|name| Some(first.split_once(name)?.1));
    if let Some(version) = open {
        return Some(format!("{OPEN_MPI}{}", version.trim()));
    }
    if said.starts_with("HYDRA") {
        let version = said.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
        return Some(format!("{MPICH}{}", version.trim()));
    }
    said.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned)
}

fn judge(found: &Found, all: &Compared<'_>) -> Verdict {
    if let Some(agent) = found.agent.as_deref().filter(|agent| agent.ends_with("/false")) {
        return Verdict::bad(
            format!("{AGENT}={agent}"),
            "mpirun reaches no other host: an image was made so that it can't",
            format!("unset {AGENT} there; the runs of hvtui set their own"),
        )
        .may_run();
    }
    let Some(own) = &found.mpi else {
        return Verdict::unknown(if all.is_empty() {
            "no mpirun"
        } else {
            "no mpirun here; other hosts have it"
        });
    };
    match all.difference(own) {
        None => Verdict::good(own),
        Some(difference) => {
            let seen = format!("{own}; {difference}");
            let cause = "mpirun's parts on the hosts don't understand each other, or ranks hang in MPI_Init";
            let remedy = "install the same MPI on all hosts";
            let near = all.values().all(|other| minor(other) == minor(own));
            if near {
                Verdict::look(seen, cause, remedy)
            } else {
                Verdict::bad(seen, cause, remedy).may_run()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::ids::GpuUuid;

    #[test]
    fn each_mpi_is_known_by_its_words() {
        assert_eq!(version("mpirun (Open MPI) 4.1.4\n\nReport bugs to").as_deref(), Some("Open MPI 4.1.4"));
        assert_eq!(version("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport").as_deref(), Some("Open MPI 4.1.4"));
        let mpich = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(version(mpich).as_deref(), Some("MPICH 4.0.2"));
        assert_eq!(
            version("Intel(R) MPI Library for Linux* OS, Version 2021.9\n").as_deref(),
            Some("Intel(R) MPI Library for Linux* OS, Version 2021.9")
        );
        assert_eq!(version(""), None);
    }

    #[test]
    fn one_without_cuda_matters_to_ranks_that_have_gpus() {
        let told = "config:user:x\nmca:opal:base:param:opal_built_with_cuda_support:value:false\n";
        assert_eq!(built_with_cuda(told), Some(false));
        assert_eq!(built_with_cuda(&told.replace("false", "true").replace("opal_", "mpi_")), Some(true));
        assert_eq!(built_with_cuda("config:user:x\n"), None);
        let gpus: BTreeSet<GpuUuid> = [GpuUuid::from("GPU-1")].into();
        let of = |takes_gpus, controller, has_gpus: bool| {
            let mut all = seen([Found {
                mpi: Some("Open MPI 4.1.4".to_owned()),
                agent: None,
                takes_gpus,
                program: None,
            }]);
            (all[0].controller, all[0].uses) = (controller, has_gpus.then_some(&gpus));
            Mpi::judge(&all).remove(0)
        };
        let without = of(Some(false), Some("mpi"), true);
        assert_eq!(
            (without.mark, without.evidence.as_str()),
            (Mark::Look, "Open MPI 4.1.4 is built without CUDA")
        );
        let elsewhere = of(Some(false), None, false);
        assert_eq!(
            (elsewhere.mark, elsewhere.evidence.as_str()),
            (Mark::Good, "Open MPI 4.1.4, without CUDA")
        );
        for fine in [
            of(Some(true), Some("mpi"), true),
            of(None, Some("mpi"), true),
            of(Some(false), Some("gloo"), true),
        ] {
            assert_eq!(fine.mark, Mark::Good, "{fine:?}");
        }
    }

    #[test]
    fn a_program_of_another_mpi_is_red_and_starts_no_run() {
        let open = "\tlinux-vdso.so.1 (0x1)\n\tlibmpi_cxx.so.40 => /lib/libmpi_cxx.so.40 (0x2)\n\
                    \tlibmpi.so.40 => /lib/libmpi.so.40 (0x3)\n";
        assert_eq!(library(open).as_deref(), Some("libmpi.so.40"));
        assert_eq!(library("\tlibmpich.so.12 => not found\n").as_deref(), Some("libmpich.so.12"));
        assert_eq!(library("\tnot a dynamic executable\n"), None);
        let of = |mpi: &str, library: &str| {
            let program = Some(Linked { program: "/home/li/solve".to_owned(), library: library.to_owned() });
            let found = Found { mpi: Some(mpi.to_owned()), agent: None, takes_gpus: None, program };
            Mpi::judge(&seen([found])).remove(0)
        };
        for (mpi, library, evidence) in [
            ("Open MPI 4.1.4", "libmpich.so.12", "is linked with MPICH (libmpich.so.12)"),
            ("Open MPI 4.1.4", "libmpi.so.12", "is linked with MPICH (libmpi.so.12)"),
            (
                "MPICH 4.0.2",
                "libmpi.so.40",
                "mpirun is MPICH 4.0.2, and /home/li/solve is linked with Open MPI",
            ),
        ] {
            let verdict = of(mpi, library);
            assert!(verdict.for_launch() == Mark::Bad && verdict.evidence.contains(evidence), "{verdict:?}");
        }
        for (mpi, library) in [
            ("Open MPI 4.1.4", "libmpi.so.40"),
            ("Open MPI 5.0.1", "libmpi.so.40"),
            ("MPICH 4.0.2", "libmpich.so.12"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "libmpi.so.12"),
            // its own number then
            ("Open MPI 1.10.7", "libmpi.so.12"),
            ("Open MPI 4.1.4", "libmpi.so.1"),
            ("another launcher 1.0", "libmpi.so.40"),
        ] {
            assert_eq!(of(mpi, library).mark, Mark::Good, "{mpi} {library}");
        }
    }

    #[test]
    fn another_mpi_is_red_another_patch_yellow() {
        let found =
            |mpi: &str| Found { mpi: Some(mpi.to_owned()), agent: None, takes_gpus: None, program: None };
        let all = Compared::new([("a", "Open MPI 4.1.4"), ("b", "Open MPI 4.1.4"), ("c", "MPICH 4.0.2")]);
        assert_eq!(judge(&found("MPICH 4.0.2"), &all).mark, Mark::Bad);
        assert_eq!(judge(&found("Open MPI 4.1.4"), &all).mark, Mark::Good);
        let near = Compared::new([("a", "Open MPI 4.1.4"), ("b", "Open MPI 4.1.4"), ("c", "Open MPI 4.1.6")]);
        assert_eq!(judge(&found("Open MPI 4.1.6"), &near).mark, Mark::Look);
        let none = Found { mpi: None, agent: Some("/bin/false".into()), takes_gpus: None, program: None };
        assert_eq!(judge(&none, &Compared::new([])).mark, Mark::Bad);
    }
}
