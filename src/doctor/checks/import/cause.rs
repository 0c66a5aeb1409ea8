//! What the last words of an import that failed mean, and what helps. Pure.

use super::super::super::python::PACKAGES as PACKAGES_OF_RUNS;
use super::super::super::shell_word;
use super::cards;

/// What follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) cause: String,
    pub(super) remedy: String,
    /// The remedy as a command alone, where it is one.
    pub(super) fix: Option<String>,
}

impl Meaning {
    fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause: cause.into(), remedy: remedy.into(), fix: None }
    }
}

/// Beginnings of the names of symbols, and whose library they are of.
const SYMBOLS: [(&[&str], &str); 5] = [
    (&["_ZN2at", "_ZNK2at", "_ZN3c10", "_ZNK3c10", "_ZN5torch", "_ZNK5torch", "_ZTIN3c10"], "torch"),
    (&["_ZN10tensorflow", "_ZNK10tensorflow", "_ZTIN10tensorflow", "TF_"], "TensorFlow"),
    (&["__cuda", "cuda", "cublas", "cusparse", "__nv", "_nv"], "CUDA"),
    (&["nccl", "pnccl"], "NCCL"),
    (&["cudnn"], "cuDNN"),
];

/// Libraries that are packages of Python's themselves: how their file begins, and the package.
const PACKAGES: [(&str, &str); 8] = [
    ("libcudart.so", "nvidia-cuda-runtime"),
    ("libcublas", "nvidia-cublas"),
    ("libcudnn", "nvidia-cudnn"),
    ("libnccl.so", "nvidia-nccl"),
    ("libcufft", "nvidia-cufft"),
    ("libcurand", "nvidia-curand"),
    ("libcusparse", "nvidia-cusparse"),
    ("libcusolver", "nvidia-cusolver"),
];

/// Modules whose package has another name.
const NAMED_OTHERWISE: [(&str, &str); 6] = [
    ("google", "protobuf"),
    ("cv2", "opencv-python"),
    ("yaml", "pyyaml"),
    ("PIL", "pillow"),
    ("sklearn", "scikit-learn"),
    ("dateutil", "python-dateutil"),
];

/// What stands between a command and what else is to be said of it.
const OR: &str = "   ";

/// The folder of an environment that is made for what a system's Python may not be given.
const VENV: &str = "~/venv";

/// Of the import of a module by a Python; `is_managed` of one into which pip installs nothing.
pub(super) fn of(module: &str, python: &str, words: &str, is_managed: bool) -> Meaning {
    let meaning = meaning_of(module, python, words);
    let pip = format!("{} -m pip install ", shell_word(python));
    match meaning.remedy.strip_prefix(&pip) {
        Some(rest) if is_managed && words.contains("No module named '") => {
            let package = rest.split_once(OR).map_or(rest, |(package, _)| package);
            Meaning { remedy: in_a_venv(module, python, words, package), fix: None, ..meaning }
        }
        _ => meaning,
    }
}

/// What helps where pip installs nothing: an environment that is made for it.
fn in_a_venv(module: &str, python: &str, words: &str, package: &str) -> String {
    let absent = top_of(after(words, "No module named '").unwrap_or_default());
    // the module itself is the system's, and one of what it needs is missing
    let sees_all = if absent == top_of(module) { "" } else { "--system-site-packages " };
    format!(
        "{} -m venv {sees_all}{VENV} && {VENV}/bin/python -m pip install {package}{OR}(then run with --venv {VENV}; pip refuses to \
         install into this Python, because the system manages it. An environment that has {absent} already is named by --venv or \
         --conda; hvtui doctor --module {} finds it)",
        shell_word(python),
        shell_word(absent)
    )
}

/// The package of a module.
fn top_of(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

fn meaning_of(module: &str, python: &str, words: &str) -> Meaning {
    let known = [absent_module, undefined, missing_library, other_versions, no_code, of_the_machine];
    let found = known.iter().find_map(|known| known(module, python, words));
    found.unwrap_or_else(|| {
        Meaning::new(
            "the ranks on this host end at that line, and the others wait for them",
            format!("{} -c 'import {module}' there tells the whole of it", shell_word(python)),
        )
    })
}

/// `words` up to the first character that is no part of a name.
fn name(words: &str) -> &str {
    let end = words.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ',' | ':' | ';'));
    &words[..end.unwrap_or(words.len())]
}

fn after<'a>(words: &'a str, start: &str) -> Option<&'a str> {
    words.split_once(start).map(|(_, rest)| name(rest))
}

fn absent_module(module: &str, python: &str, words: &str) -> Option<Meaning> {
    let absent = after(words, "No module named '")?;
    let python = shell_word(python);
    let top = top_of(absent);
    let whose = if module == absent || module.starts_with(&format!("{absent}.")) {
        "the run's Python has not what its kind needs: its ranks end at the import".to_owned()
    } else {
        format!("{module} is there, and a package that it needs is not: its ranks end at the import")
    };
    if absent.starts_with(&format!("{module}.")) {
        return Some(Meaning::new(
            format!("{module} is there in part alone: its ranks end at the import"),
            format!("{python} -m pip install --no-cache-dir --force-reinstall {}", shell_word(top)),
        ));
    }
    let package =
        NAMED_OTHERWISE.iter().find(|(module, _)| *module == top).map_or(top, |(_, package)| package);
    let command = format!("{python} -m pip install {}", shell_word(package));
    let remedy = format!(
        "{command}{OR}(or name the environment that has it: --venv, --conda; hvtui doctor --module {} finds it)",
        shell_word(top)
    );
    // the package of another module's name may be a stranger's
    let is_known =
        NAMED_OTHERWISE.iter().any(|(module, _)| *module == top) || PACKAGES_OF_RUNS.contains(&top);
    Some(Meaning { fix: is_known.then_some(command), ..Meaning::new(whose, remedy) })
}

fn undefined(module: &str, python: &str, words: &str) -> Option<Meaning> {
    let symbol = after(words, "undefined symbol: ")?;
    let is_of = |(beginnings, _): &&(&[&str], &str)| beginnings.iter().any(|one| symbol.starts_with(one));
    let of = SYMBOLS.iter().find(is_of).map(|(_, of)| *of);
    let library =
        words.split_once(": undefined symbol").and_then(|(before, _)| before.split_whitespace().last());
    let library = library.unwrap_or("a library of it");
    let cause = match of {
        Some(of) => format!("{library} was built against another {of} than the one that is loaded"),
        None => {
            format!("{library} was built against another version of a library than the one that is loaded")
        }
    };
    let top = top_of(module);
    let python = shell_word(python);
    let remedy = match of {
        Some("CUDA" | "NCCL" | "cuDNN") => format!(
            "env -u LD_LIBRARY_PATH {python} -c 'import {module}' shows whether an older one on LD_LIBRARY_PATH comes first; else build it \
             for this one: {python} -m pip install --no-cache-dir --force-reinstall {top}"
        ),
        // these are not built from a source package
        _ if matches!(top, "torch" | "tensorflow") => format!(
            "{python} -m pip install --no-cache-dir --force-reinstall {top} (of an extension of your own: build its package anew)"
        ),
        _ => format!(
            "build it for what is there: {python} -m pip install --no-cache-dir --no-deps --no-binary {top} --force-reinstall {top}"
        ),
    };
    Some(Meaning::new(cause, remedy))
}

fn missing_library(_: &str, python: &str, words: &str) -> Option<Meaning> {
    let before = words.split_once(": cannot open shared object file")?.0;
    let library = before.split_whitespace().last()?;
    let python = shell_word(python);
    let package = PACKAGES.iter().find(|(beginning, _)| library.starts_with(beginning));
    let major = library.rsplit(".so.").next().and_then(|rest| rest.split('.').next());
    let major = major.filter(|major| !major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit()));
    let remedy = match (package, major) {
        // their names end with CUDA's major version, which the others' files do not tell
        (Some((beginning, package)), Some(major)) if *beginning == "libcudart.so" => format!(
            "{python} -m pip install {package}-cu{major}, or put the lib64 of CUDA {major} on LD_LIBRARY_PATH (--env)"
        ),
        (Some((_, package)), _) => format!(
            "{python} -m pip install {package}-cu12 (or -cu11, as CUDA is), or put its folder on LD_LIBRARY_PATH (--env)"
        ),
        (None, _) if library.starts_with("libcuda.so") => {
            "install NVIDIA's driver there: the library is a part of it".to_owned()
        }
        (None, _) => format!(
            "find / -name {} 2>/dev/null there, and put its folder on LD_LIBRARY_PATH (--env)",
            shell_word(&format!("{library}*"))
        ),
    };
    Some(Meaning::new(format!("the loader does not find {library}: its ranks end at the import"), remedy))
}

fn other_versions(module: &str, python: &str, words: &str) -> Option<Meaning> {
    let python = shell_word(python);
    if let Some((_, rest)) = words.split_once("version `") {
        let wanted = name(rest.split('\'').next()?);
        let (cause, remedy) = if wanted.starts_with("GLIBCXX") || wanted.starts_with("CXXABI") {
            (
                format!("an older libstdc++ than it was built with is loaded: it has no {wanted}"),
                "take the folder with the older libstdc++.so.6 out of LD_LIBRARY_PATH; in conda: conda install -c conda-forge libstdcxx-ng"
                    .to_owned(),
            )
        } else {
            (
                format!("it was built for a newer Linux than this one: its C library has no {wanted}"),
                format!("install a build of {module} for this system, or run it in a container (--image)"),
            )
        };
        return Some(Meaning::new(cause, remedy));
    }
    let lower = words.to_lowercase();
    if lower.contains("numpy") && (lower.contains("multiarray") || lower.contains("numpy 1.x")) {
        let command = format!("{python} -m pip install 'numpy<2'");
        if lower.contains("numpy 1.x") || lower.contains("numpy 2") {
            let cause = "it was built for numpy 1, and numpy 2 is there";
            let remedy = format!("{command}   (or a newer {module})");
            return Some(Meaning { fix: Some(command), ..Meaning::new(cause, remedy) });
        }
        let cause = "it was built for another numpy than the one that is there";
        let remedy = format!("install a {module} that was built for this numpy, or: {command}");
        return Some(Meaning::new(cause, remedy));
    }
    if lower.contains("driver") && (lower.contains("too old") || lower.contains("insufficient")) {
        return Some(Meaning::new(
            "the driver serves an older CUDA than it was built for: no GPU is used",
            format!("install a newer driver, or a {module} for the driver's CUDA (nvidia-smi names it)"),
        ));
    }
    None
}

/// Torch's own words on a GPU that it has no code for: `CUDA capability sm_120`, and of old ones `cuda capability 3.5`.
fn no_code(_: &str, _: &str, words: &str) -> Option<Meaning> {
    let lower = words.to_ascii_lowercase();
    let number = after(&lower, "cuda capability ")?.trim_start_matches("sm_");
    let major = match number.split_once('.') {
        Some((major, _)) => major.parse().ok(),
        None => number.parse::<u32>().ok().map(|number| number / 10),
    };
    Some(Meaning::new(cards::CAUSE, cards::remedy(major)))
}

fn of_the_machine(module: &str, _: &str, words: &str) -> Option<Meaning> {
    let signal: i32 = after(words, "it is ended by signal ")?.parse().ok()?;
    let (cause, remedy) = match signal {
        libc::SIGILL => (
            "it was built for processors with instructions that this one has not (AVX and the like)",
            format!("install a build of {module} for this processor: conda-forge has some"),
        ),
        libc::SIGKILL => (
            "the kernel ended it, as it does where memory is short",
            "free -g and dmesg there tell; a limit of the cgroup may be too small".to_owned(),
        ),
        _ => (
            "a library of it ends the program: mostly two that do not fit each other",
            format!("install {module} anew, in an environment of its own"),
        ),
    };
    Some(Meaning::new(cause, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_told_with_what_helps() {
        for (words, cause, remedy) in [
            (
                "ModuleNotFoundError: No module named 'torch'",
                "has not what its kind needs",
                "-m pip install torch ",
            ),
            (
                "ModuleNotFoundError: No module named 'typing_extensions'",
                "a package that it needs",
                "install typing_extensions ",
            ),
            (
                "ImportError: /o/_C.cpython-311.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
                "/o/_C.cpython-311.so was built against another torch",
                "--no-cache-dir --force-reinstall torch (of an extension",
            ),
            (
                "ImportError: /o/mpi_lib.so: undefined symbol: __cudaRegisterFatBinaryEnd",
                "another CUDA than the one that is loaded",
                "env -u LD_LIBRARY_PATH /usr/bin/python3",
            ),
            (
                "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
                "does not find libcudart.so.12",
                "pip install nvidia-cuda-runtime-cu12, or put the lib64 of CUDA 12",
            ),
            (
                "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory",
                "does not find libmpi.so.40",
                "find / -name 'libmpi.so.40*'",
            ),
            (
                "ImportError: /lib/x.so: version `GLIBCXX_3.4.30' not found (required by /o/_C.so)",
                "no GLIBCXX_3.4.30",
                "libstdcxx-ng",
            ),
            (
                "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",
                "older CUDA",
                "newer driver",
            ),
            (
                "NVIDIA RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation. The current \
                 PyTorch install supports CUDA capabilities sm_50 sm_90.",
                "no kernel image is available",
                "a build of torch for CUDA 12.8 or later",
            ),
            (
                "Found GPU0 Tesla K40 which is of cuda capability 3.5. PyTorch no longer supports this GPU because it is too old.",
                "torch has no code for it",
                "for CUDA 12.6 or before",
            ),
            ("it is ended by signal 4", "AVX", "for this processor"),
            ("SyntaxError: invalid syntax", "end at that line", "-c 'import torch' there"),
        ] {
            let found = of("torch", "/usr/bin/python3", words, false);
            assert!(found.cause.contains(cause), "{words}: {found:?}");
            assert!(found.remedy.contains(remedy), "{words}: {found:?}");
        }
        let absent = |name: &str, is_managed| {
            let words = format!("ModuleNotFoundError: No module named '{name}'");
            of("torch", "/usr/bin/python3", &words, is_managed)
        };
        let fix = |name: &str| absent(name, false).fix;
        assert_eq!(fix("yaml").as_deref(), Some("/usr/bin/python3 -m pip install pyyaml"));
        assert_eq!(fix("my_private_module"), None, "a package of that name may be a stranger's");
        let managed = absent("yaml", true);
        assert_eq!(managed.fix, None, "what pip would refuse");
        assert_eq!(
            managed.remedy,
            "/usr/bin/python3 -m venv --system-site-packages ~/venv && ~/venv/bin/python -m pip install pyyaml   (then run with --venv \
             ~/venv; pip refuses to install into this Python, because the system manages it. An environment that has yaml already \
             is named by --venv or --conda; hvtui doctor --module yaml finds it)"
        );
        // nothing of the system's is needed in it
        let whole = "/usr/bin/python3 -m venv ~/venv && ~/venv/bin/python -m pip install torch   (";
        assert!(absent("torch", true).remedy.starts_with(whole));
    }
}
