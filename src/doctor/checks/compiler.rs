//! Whether the compiler that builds extensions of frameworks is the same everywhere, and one that CUDA and the kernel take.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::compare::Compared;
use super::super::system::{Gcc, System};
use super::super::{Check, Seen, Site};
use super::kernel::builds_driver;
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Compiler;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// GCC's version, `12.2.0`; absent without one.
    gcc: Option<String>,
    /// The newest GCC that CUDA's compiler takes, as its own header says; absent without one, or where any is taken.
    nvcc_takes: Option<u32>,
    /// The GCC that the running kernel was built by, where NVIDIA's module is built on this host and that GCC is not there.
    of_kernel: Option<u32>,
    #[serde(default)]
    system: System,
}

impl Check for Compiler {
    const NAME: &'static str = "compiler";
    const ASKS: &'static str = "is GCC the same on all hosts, and one that CUDA's compiler takes";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Some(program) = site.program("gcc") else { return Ok(Found::default()) };
        let told = site.ask(&program, &["-dumpfullversion", "-dumpversion"])?;
        let gcc = told.out.lines().next().map(str::trim).filter(|line| major(line).is_some());
        let gcc = gcc.ok_or_else(|| format!("gcc -dumpversion: {}", told.last_words()))?;
        let kernel = std::fs::read_to_string("/proc/version").unwrap_or_default();
        Ok(Found {
            gcc: Some(gcc.to_owned()),
            // a person has named another compiler for it
            nvcc_takes: nvcc(site)
                .filter(|_| std::env::var_os("NVCC_CCBIN").is_none())
                .and_then(|nvcc| newest_taken(&nvcc)),
            // DKMS takes the kernel's own compiler where it is there
            of_kernel: builds_driver()
                .then(|| of_kernel(&kernel))
                .flatten()
                .filter(|major| site.program(&format!("gcc-{major}")).is_none()),
            system: System::here(),
        })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        // patches of one release build what the others load
        let majors: Vec<(&str, String)> = seen
            .iter()
            .filter_map(|one| Some((one.host.as_str(), major(one.found.gcc.as_deref()?)?.to_string())))
            .collect();
        let all = Compared::new(majors.iter().map(|(host, major)| (*host, major.as_str())));
        seen.iter().map(|one| judge(&one.found, &all)).collect()
    }
}

/// The first number of a version.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// CUDA's compiler, where it is found by name or lies where its installer puts it.
fn nvcc(site: &Site) -> Option<PathBuf> {
    let usual = Path::new("/usr/local/cuda/bin/nvcc");
    site.program("nvcc").or_else(|| usual.exists().then(|| usual.to_owned()))
}

/// What the header beside CUDA's compiler says. That of a distribution lies elsewhere, and brings a compiler that it takes.
fn newest_taken(nvcc: &Path) -> Option<u32> {
    let program = std::fs::canonicalize(nvcc).ok()?;
    let home = program.parent()?.parent()?;
    let targets = format!("targets/{}-linux/include", std::env::consts::ARCH);
    let folders = [home.join("include"), home.join(targets)];
    if home == Path::new("/usr") {
        return None;
    }
    let header =
        folders.iter().find_map(|folder| std::fs::read_to_string(folder.join("crt/host_config.h")).ok())?;
    limit(&header)
}

/// The number in the error of a header: `unsupported GNU version! gcc versions later than 13 are not supported`.
fn limit(header: &str) -> Option<u32> {
    let (_, rest) = header.split_once("gcc versions later than ")?;
    major(rest.split_whitespace().next()?)
}

/// The GCC in a kernel's version: `(gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld …)`, or `(gcc version 9.4.0 (Ubuntu …))` of old.
fn of_kernel(version: &str) -> Option<u32> {
    let at = version.find("gcc").map(|at| &version[at..])?;
    if let Some(rest) = at.strip_prefix("gcc version ") {
        return major(rest);
    }
    // a version of its own: neither that of a package in brackets nor a date
    let (before, _) = at.split_once(", GNU ld").or_else(|| at.split_once(','))?;
    let mut depth = 0;
    let outside: String = before
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '(');
            let is_outside = depth == 0;
            depth -= i32::from(*c == ')');
            is_outside
        })
        .collect();
    outside.split_whitespace().filter(|word| word.contains('.')).find_map(major)
}

fn judge(found: &Found, all: &Compared<'_>) -> Verdict {
    let Some(gcc) = &found.gcc else {
        let words = if all.is_empty() { "no gcc" } else { "no gcc here; other hosts have it" };
        return Verdict::unknown(words);
    };
    let own = major(gcc).unwrap_or_default();
    if let Some(most) = found.nvcc_takes.filter(|most| *most < own) {
        let Gcc { install, cc: c, cxx: gxx } = found.system.gcc(most);
        return Verdict::look(
            format!("gcc {gcc}, and CUDA's nvcc takes gcc {most} at most"),
            "Horovod, apex and other extensions don't compile: \"unsupported GNU version\"",
            format!("{install}; for a build: CC={c} CXX={gxx} NVCC_PREPEND_FLAGS='-ccbin {gxx}'"),
        );
    }
    if let Some(kernel) = found.of_kernel.filter(|kernel| *kernel > own) {
        let Gcc { install, cc: c, .. } = found.system.gcc(kernel);
        return Verdict::look(
            format!(
                "gcc {gcc}; the kernel was built by gcc {kernel}, and NVIDIA's module is built here (DKMS)"
            ),
            "the module's next build may be refused: this host would be without a driver",
            format!("{install}; for the build: CC={c}"),
        );
    }
    match all.difference(&own.to_string()) {
        None => Verdict::good(format!("gcc {gcc}")),
        Some(difference) => Verdict::look(
            format!("gcc {gcc} ({difference})"),
            "an extension that is built on one host may not load on another: \"version `GLIBCXX_…' not found\"",
            "build it on each host, or start in one container image",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    #[test]
    fn versions_are_read_as_compilers_kernels_and_headers_write_them() {
        let debian = "Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld (GNU Binutils for Debian) 2.40) #1 SMP";
        let ubuntu = "Linux version 6.8.0-45-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0, GNU ld (GNU Binutils for Ubuntu) 2.42) #45";
        let old =
            "Linux version 5.4.0-42-generic (buildd@lgw01) (gcc version 9.3.0 (Ubuntu 9.3.0-10ubuntu2)) #46";
        let clang = "Linux version 6.6.1 (me@there) (clang version 17.0.1, LLD 17.0.1) #1";
        let arch = "Linux version 6.9.1-arch1-1 (linux@archlinux) (gcc (GCC) 14.1.1 20240522, GNU ld (GNU Binutils) 2.42.0) #1";
        let gentoo = "Linux version 6.6.30 (root@box) (gcc (Gentoo 13.2.1_p20240210 p14) 13.2.1 20240210, GNU ld (Gentoo 2.41) 2.41.0) #1";
        let rhel = "Linux version 4.18.0-513 (mockbuild@x86) (gcc version 8.5.0 20210514 (Red Hat 8.5.0-20) (GCC)) #1 SMP";
        assert_eq!([debian, ubuntu, old, clang].map(of_kernel), [Some(12), Some(13), Some(9), None]);
        assert_eq!([arch, gentoo, rhel].map(of_kernel), [Some(14), Some(13), Some(8)]);
        let header = "#if __GNUC__ > 13\n#error -- unsupported GNU version! gcc versions later than 13 are not supported! The nvcc flag";
        assert_eq!((limit(header), limit("#pragma once\n")), (Some(13), None));
        assert_eq!((major("12.2.0"), major("13"), major("command not found")), (Some(12), Some(13), None));
    }

    #[test]
    fn another_release_and_one_that_cuda_or_the_kernel_do_not_take_are_told() {
        let gcc = |version: &str| Found { gcc: Some(version.to_owned()), ..Found::default() };
        let hosts =
            [gcc("12.2.0"), gcc("12.3.0"), gcc("9.4.0"), Found { nvcc_takes: Some(11), ..gcc("12.2.0") }];
        let verdicts = Compiler::judge(&seen(hosts));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Look, Mark::Look]);
        assert_eq!(verdicts[2].evidence, "gcc 9.4.0 (other hosts have 12)");
        assert_eq!(verdicts[3].evidence, "gcc 12.2.0, and CUDA's nvcc takes gcc 11 at most");
        let built = Compiler::judge(&seen([Found { of_kernel: Some(12), ..gcc("11.4.0") }, gcc("11.4.0")]));
        assert_eq!([built[0].mark, built[1].mark], [Mark::Look, Mark::Good]);
        let told = "gcc 11.4.0; the kernel was built by gcc 12, and NVIDIA's module is built here (DKMS)";
        assert_eq!(built[0].evidence, told);
        assert_eq!(Compiler::judge(&seen([Found::default()]))[0].mark, Mark::Unknown);
    }

    #[test]
    fn another_gcc_is_had_as_the_system_names_it() {
        let gcc = |system| Found { gcc: Some("13.2.0".to_owned()), system, ..Found::default() };
        let of = |found: Found| Compiler::judge(&seen([found]))[0].remedy.clone().unwrap();
        assert_eq!(
            of(Found { nvcc_takes: Some(11), ..gcc(System::Debian) }),
            "sudo apt-get install g++-11; for a build: CC=gcc-11 CXX=g++-11 NVCC_PREPEND_FLAGS='-ccbin g++-11'"
        );
        assert_eq!(
            of(Found { of_kernel: Some(14), ..gcc(System::RedHat) }),
            "sudo dnf install gcc-toolset-14-gcc-c++; for the build: CC=/opt/rh/gcc-toolset-14/root/usr/bin/gcc"
        );
        assert_eq!(
            of(Found { of_kernel: Some(14), ..gcc(System::Other) }),
            "install gcc and g++ of version 14 there; for the build: CC=gcc-14"
        );
    }
}
