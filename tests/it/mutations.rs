//! The list of planted faults is true to the source: `tests/mutations/run` plants them, this only looks whether it still could.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    fault: Vec<Fault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    name: String,
    /// The promise, vector or invariant that it breaks.
    breaks: String,
    file: String,
    /// What `find` stands in, where that alone is found more than once.
    around: Option<String>,
    find: String,
    replace: String,
    tests: Vec<String>,
    /// Seconds that its tests have, where the usual ones are too few.
    #[expect(dead_code, reason = "read by tests/mutations/run alone")]
    deadline: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pure {
    module: Vec<Module>,
}

/// A module whose every mutant `tests/mutations/pure` makes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Module {
    name: String,
    file: String,
    lib: Vec<String>,
    #[serde(default)]
    it: Vec<String>,
    /// Its functions that are pure, where not all are.
    #[serde(default)]
    only: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoomList {
    fault: Vec<LoomFault>,
}

/// A fault that `tests/loom/run --faults` plants.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoomFault {
    name: String,
    file: String,
    around: Option<String>,
    find: String,
    replace: String,
    models: Vec<String>,
}

/// Every source file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| self::files(folder));
    below.chain(files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"))).collect()
}

/// Whether `PROGRAM module::test` stands in a file of that module.
fn is_test(root: &Path, sources: &[PathBuf], test: &str) -> bool {
    let (folder, path) = match test.split_once(' ') {
        Some(("lib", path)) => ("src", path),
        Some(("it", path)) => ("tests/it", path),
        _ => return false,
    };
    let Some((module, name)) = path.rsplit_once("::") else { return false };
    let module = module.strip_suffix("::tests").unwrap_or(module).replace("::", "/");
    // a row of the fault matrix is made by a macro: its number, its name, what it does
    let (begin, function, row) =
        (root.join(folder).join(module), format!("fn {name}("), format!(" {name} = "));
    let begin = begin.to_str().unwrap();
    let mut ours = sources.iter().filter(|file| file.to_str().is_some_and(|file| file.starts_with(begin)));
    ours.any(|file| {
        let source = std::fs::read_to_string(file).unwrap();
        source.contains(&function) || (name.starts_with("row_") && source.contains(&row))
    })
}

#[test]
fn every_planted_fault_still_finds_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list: List = toml::from_str(include_str!("../mutations/faults.toml")).unwrap();
    let sources: Vec<PathBuf> =
        [root.join("src"), root.join("tests/it")].iter().flat_map(|at| files(at)).collect();
    let mut wrong = Vec::new();
    let mut names = BTreeSet::new();
    let mut places: Vec<(&str, usize, usize, &str)> = Vec::new();
    for fault in &list.fault {
        let name = &fault.name;
        if !names.insert(name) {
            wrong.push(format!("{name}: another fault has this name"));
        }
        if fault.breaks.is_empty() || fault.tests.is_empty() || fault.find == fault.replace {
            wrong.push(format!("{name}: says not what it breaks, or names no test, or changes nothing"));
        }
        let text = std::fs::read_to_string(root.join(&fault.file)).unwrap_or_default();
        let around = fault.around.as_ref().unwrap_or(&fault.find);
        for (what, within) in [(around, &text), (&fault.find, around)] {
            let count = within.matches(what.as_str()).count();
            if count != 1 {
                wrong.push(format!("{name}: {} has {what:?} {count} times, not once", fault.file));
            }
        }
        if let (Some(around_at), Some(at)) = (text.find(around.as_str()), around.find(fault.find.as_str())) {
            let begin = around_at + at;
            places.push((&fault.file, begin, begin + fault.find.len(), name));
        }
        if fault.find.trim_start().starts_with('.') {
            wrong
                .push(format!("{name}: `find` is no whole expression, and can't be planted behind a switch"));
        }
        let absent = fault.tests.iter().filter(|test| !is_test(root, &sources, test));
        wrong.extend(absent.map(|test| format!("{name}: there is no test {test}")));
    }
    places.sort_unstable();
    for two in places.windows(2) {
        let [(file, _, end, one), (other_file, begin, _, other)] = two else { continue };
        if file == other_file && begin < end {
            wrong.push(format!("{one} and {other} stand on each other in {file}"));
        }
    }
    assert!(list.fault.len() >= 30, "{} faults", list.fault.len());
    assert!(wrong.is_empty(), "tests/mutations/faults.toml:\n{}", wrong.join("\n"));
}

#[test]
fn every_fault_for_loom_still_finds_its_place_and_its_models() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list: LoomList = toml::from_str(include_str!("../loom/faults.toml")).unwrap();
    let models = include_str!("../loom/src/collective/shm/models.rs");
    let mut wrong = Vec::new();
    for LoomFault { name, file, around, find, replace, models: named } in &list.fault {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let around = around.as_ref().unwrap_or(find);
        for (what, within) in [(around, &text), (find, around)] {
            let count = within.matches(what.as_str()).count();
            if count != 1 {
                wrong.push(format!("{name}: {file} has {what:?} {count} times, not once"));
            }
        }
        if named.is_empty() || find == replace {
            wrong.push(format!("{name}: names no model, or changes nothing"));
        }
        let absent = named.iter().filter(|model| !models.contains(&format!("(\"{model}\", ")));
        wrong.extend(absent.map(|model| format!("{name}: there is no model {model}")));
    }
    assert!(wrong.is_empty(), "tests/loom/faults.toml:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_that_is_mutated_is_there_with_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list: Pure = toml::from_str(include_str!("../mutations/pure.toml")).unwrap();
    let mut wrong = Vec::new();
    for Module { name, file, lib, it, only } in &list.module {
        let Ok(source) = std::fs::read_to_string(root.join(file)) else {
            wrong.push(format!("{name}: there is no {file}"));
            continue;
        };
        let absent = only.iter().filter(|function| !source.contains(&format!("fn {function}")));
        wrong.extend(absent.map(|function| format!("{name}: {file} has no function {function}")));
        let modules =
            lib.iter().map(|module| ("src", module)).chain(it.iter().map(|module| ("tests/it", module)));
        for (folder, module) in modules {
            let place = root.join(folder).join(module.trim_end_matches("::").replace("::", "/"));
            if !place.is_dir() && !place.with_extension("rs").exists() {
                wrong.push(format!("{name}: there is no {folder}, {module}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
