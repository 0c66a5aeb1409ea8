//! What a script of a folder that is copied imports: it is not on its host yet when the doctor looks there, so that it is read here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::doctor::decides_imports;
use crate::domain::doctor::RunProgram;
use crate::domain::ids::HostId;
use crate::domain::sync::SyncPlan;

/// Bytes of a file that are read, and of its gist.
const FILE: u64 = 1 << 20;
const GIST: usize = 16 << 10;
/// By this line a host knows that other modules may be found than those of its Python.
const LED: &str = "sys.path";

/// Gives the Pythons of a launch that copies a folder the lines of its script by which the doctor knows what it imports.
pub fn add(sync: &SyncPlan, command: &[String], runs: &mut BTreeMap<HostId, RunProgram>) {
    for run in runs.values_mut().filter(|run| run.code.is_none()) {
        let Some(folder) = here(sync, run.cwd.as_deref().unwrap_or("~")) else { continue };
        let files = match &run.module {
            Some(module) => of_module(&folder, module),
            None => script(command).into_iter().filter_map(|script| place(sync, &folder, script)).collect(),
        };
        let mut gist = String::new();
        // of what is too long not all is known
        let mut is_led = false;
        for text in files.iter().filter_map(|file| text(file)) {
            is_led |= text.len() as u64 >= FILE;
            for line in text.lines().filter(|line| decides_imports(line)) {
                if gist.len() + line.len() < GIST {
                    gist.push_str(line);
                    gist.push('\n');
                } else {
                    is_led = true;
                }
            }
        }
        // what lies beside a script is found before what the Python has
        let mut beside = files.iter().filter_map(|file| file.parent()).chain([folder.as_path()]);
        let tops = || run.imports.iter().map(|module| module.split('.').next().unwrap_or_default());
        is_led |= beside.any(|folder| tops().any(|top| is_module(&folder.join(top))));
        if is_led {
            gist.push_str(LED);
        }
        run.code = Some(gist).filter(|gist| !gist.is_empty());
    }
}

/// A folder of the hosts in the folder that is copied.
fn here(sync: &SyncPlan, there: &str) -> Option<PathBuf> {
    let rest = Path::new(there).strip_prefix(&sync.remote).ok()?;
    Some(Path::new(&sync.dir).join(rest))
}

fn place(sync: &SyncPlan, folder: &Path, script: &str) -> Option<PathBuf> {
    if script.starts_with(['/', '~']) { here(sync, script) } else { Some(folder.join(script)) }
}

/// What the command executes: its first word that names a file of Python's.
fn script(command: &[String]) -> Option<&str> {
    let is_python = |word: &str| Path::new(word).extension().is_some_and(|end| end == "py");
    let is_script = |word: &&String| !word.starts_with('-') && is_python(word);
    command.iter().skip(1).find(is_script).map(String::as_str)
}

/// A module and the packages around it.
fn of_module(folder: &Path, module: &str) -> Vec<PathBuf> {
    let mut path = folder.to_owned();
    let mut files = Vec::new();
    for part in module.split('.') {
        path.push(part);
        files.push(path.join("__init__.py"));
    }
    files.extend([path.with_extension("py"), path.join("__main__.py")]);
    files
}

fn is_module(path: &Path) -> bool {
    path.join("__init__.py").exists() || path.with_extension("py").exists()
}

fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_decide_it_are_read_where_the_folder_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "src/train.py",
            "import torch\nx = 1\n\ndef f():\n    import apex\n    d.init_process_group('nccl')\n",
        );
        write("src/pkg/__init__.py", "import sys\n");
        write("src/pkg/main.py", "from horovod import torch\n");
        let sync =
            SyncPlan { dir: folder.path().display().to_string(), remote: "~/code".to_owned(), delete: false };
        let of = |cwd: &str, command: &[&str], module: Option<&str>| {
            let run = RunProgram {
                cwd: Some(cwd.to_owned()),
                module: module.map(str::to_owned),
                imports: vec!["torch".to_owned()],
                ..RunProgram::default()
            };
            let mut runs: BTreeMap<HostId, RunProgram> = [(HostId::from("a"), run)].into();
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            add(&sync, &command, &mut runs);
            runs.remove(&HostId::from("a")).unwrap().code
        };
        let gist = Some("import torch\n    d.init_process_group('nccl')\n".to_owned());
        assert_eq!(of("~/code", &["python3", "-u", "src/train.py", "other.py"], None), gist);
        assert_eq!(of("~/code/src", &["python3", "train.py"], None), gist);
        assert_eq!(of("~/code", &["python3", "~/code/src/train.py"], None), gist);
        for none in [
            of("~/other", &["python3", "train.py"], None),
            of("~/code", &["python3", "/srv/train.py"], None),
            of("~/code", &["python3", "absent.py"], None),
        ] {
            assert_eq!(none, None);
        }
        let module = of("~/code/src", &["python3", "-m", "pkg.main"], Some("pkg.main"));
        assert_eq!(module.as_deref(), Some("import sys\nfrom horovod import torch\n"));
        // what lies in the folder itself, or beside the script, is found before what the Python has
        write("src/torch.py", "");
        for cwd_and_script in [("~/code/src", "train.py"), ("~/code", "src/train.py")] {
            let gist = of(cwd_and_script.0, &["python3", cwd_and_script.1], None).unwrap();
            assert!(gist.ends_with("\nsys.path"), "{gist}");
        }
        // and of a script that is too long not all is known
        write("long.py", &format!("import torch\n{}", "import x\n".repeat(GIST)));
        assert!(of("~/code", &["python3", "long.py"], None).unwrap().ends_with("\nsys.path"));
    }
}
