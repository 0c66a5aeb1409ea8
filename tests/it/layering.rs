//! The layers of docs/architecture.md, checked against the source: who may import whom, where no files use each other, what
//! only some may use, how long a file may get. The rules are read from that page, so that page and program can't part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::source::{SourceFile, read_tree};

/// The most lines of a file without its tests, and where one should begin to think of two files.
const MOST_LINES: usize = 600;
const MANY_LINES: usize = 400;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The words of each line of a fenced block of the architecture page.
fn block(name: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let fence = format!("```{name}\n");
    let inside = page.split_once(&fence).unwrap_or_else(|| panic!("no block '{name}'")).1;
    let inside = inside.split_once("```").unwrap().0;
    inside.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Module to what it may use, with its layer's number.
fn layers() -> BTreeMap<String, (u32, Vec<String>)> {
    block("layers")
        .into_iter()
        .map(|line| {
            let layer = line[0].strip_prefix('L').unwrap().parse().unwrap();
            (line[1].clone(), (layer, line[2..].to_vec()))
        })
        .collect()
}

/// The longest row name that the path begins with.
fn row<'a>(rows: &'a BTreeMap<String, (u32, Vec<String>)>, path: &[String]) -> Option<&'a str> {
    (1..=path.len().min(2))
        .rev()
        .find_map(|n| rows.get_key_value(&path[..n].join("::")))
        .map(|(k, _)| k.as_str())
}

fn under(path: &str, of: &str) -> bool {
    path == of || path.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"))
}

fn sources() -> Vec<SourceFile> {
    let files = read_tree(&root().join("src"));
    assert!(files.len() > 20, "the source was not found");
    files
}

#[test]
fn imports_point_down_only() {
    let rows = layers();
    let mut faults = BTreeSet::new();
    for file in sources().iter().filter(|file| !file.is_root()) {
        let Some(own) = row(&rows, &file.module) else {
            faults.insert(format!("{}: has no row in docs/architecture.md", file.name));
            continue;
        };
        for path in file.own_paths() {
            let Some(used) = row(&rows, &path) else { continue };
            let text = path.join("::");
            // Itself and its parts; a part that has a row of its own doesn't reach up to the whole.
            let allowed = used == own || under(used, own) && own != "tui" || used == "domain";
            let listed = rows[own].1.iter().any(|entry| entry == "*" || under(&text, entry));
            if !allowed && !listed {
                faults.insert(format!("{}: {own} may not use {text}", file.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_table_itself_points_down() {
    let rows = layers();
    for (module, (layer, uses)) in &rows {
        for used in uses.iter().filter(|used| *used != "*" && *used != "-") {
            let (below, _) =
                rows.get(used).unwrap_or_else(|| panic!("{module} uses {used}, which has no row"));
            assert!(below <= layer, "{module} (L{layer}) uses {used} (L{below})");
            assert!(!reaches(&rows, used, module), "{module} and {used} use each other");
        }
    }
}

fn reaches(rows: &BTreeMap<String, (u32, Vec<String>)>, from: &str, to: &str) -> bool {
    from == to || rows.get(from).is_some_and(|(_, uses)| uses.iter().any(|used| reaches(rows, used, to)))
}

/// Which files name something of which others, by their modules.
fn imports(files: &[SourceFile]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeSet<String> = files.iter().map(|file| file.module.join("::")).collect();
    let file_of = |path: &Vec<String>| {
        (1..=path.len()).rev().map(|n| path[..n].join("::")).find(|module| modules.contains(module))
    };
    files
        .iter()
        .map(|file| {
            let own = file.module.join("::");
            let paths = [file.own_paths(), file.local_paths()].concat();
            let used: BTreeSet<String> =
                paths.iter().filter_map(file_of).filter(|used| *used != own).collect();
            (own, used)
        })
        .collect()
}

/// A way through the files of a module that comes back to where it began; empty where there is none.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>, module: &str) -> Vec<String> {
    let mut left: BTreeMap<&String, &BTreeSet<String>> =
        imports.iter().filter(|(file, _)| under(file, module)).collect();
    // A file that uses none of those left is in no circle.
    loop {
        let files: BTreeSet<&String> = left.keys().copied().collect();
        left.retain(|_, used| used.iter().any(|used| files.contains(used)));
        if left.len() == files.len() {
            break;
        }
    }
    let mut way: Vec<String> = Vec::new();
    let mut next = left.keys().next().copied();
    while let Some(file) = next {
        let begin = way.iter().position(|seen| seen == file);
        way.push(file.clone());
        if let Some(begin) = begin {
            return way.split_off(begin);
        }
        next = left[file].iter().find(|used| left.contains_key(used));
    }
    way
}

#[test]
fn files_of_these_modules_use_each_other_in_one_direction() {
    let imports = imports(&sources());
    let mut faults = Vec::new();
    for module in block("acyclic").concat() {
        let files = imports.keys().filter(|file| under(file, &module)).count();
        assert!(files > 1, "{module}, in the block `acyclic`, has {files} files");
        let circle = circle(&imports, &module);
        if !circle.is_empty() {
            faults.push(format!("{module}: {}", circle.join(" uses ")));
        }
    }
    assert!(faults.is_empty(), "move what both need into a file below them:\n{}", faults.join("\n"));
}

#[test]
fn a_planted_circle_is_found_and_told_file_by_file() {
    let circle_with = |lowest: &str| {
        let files = [
            ("ssh/mod.rs", "mod dial;\nmod name;\npub use dial::dial;"),
            ("ssh/dial/mod.rs", "mod wait;\nuse self::wait::Wait;\npub fn dial() { super::name::check() }"),
            ("ssh/dial/wait.rs", "use crate::ssh::name::{self, NAME};"),
            ("ssh/name.rs", lowest),
            ("wire.rs", "use crate::ssh::dial;"),
        ];
        circle(&imports(&files.map(|(name, text)| SourceFile::parse(Path::new(name), text))), "ssh")
    };
    for lowest in ["", "use crate::wire::Frame;", "#[cfg(test)]\nmod tests { use crate::ssh::dial; }"] {
        assert!(circle_with(lowest).is_empty(), "{lowest}");
    }
    let inline = circle_with("fn check() { super::dial::wait::wait() }");
    assert_eq!(inline, ["ssh::dial::wait", "ssh::name", "ssh::dial::wait"]);
    let wide = circle_with("use crate::ssh::dial;");
    assert_eq!(wide, ["ssh::dial", "ssh::dial::wait", "ssh::name", "ssh::dial"]);
    let by_the_root = circle_with("use super::Dial;");
    assert_eq!(by_the_root, ["ssh", "ssh::dial", "ssh::dial::wait", "ssh::name", "ssh"]);
}

#[test]
fn lower_layers_do_no_input_or_output() {
    let rules = block("forbidden");
    let mut faults = BTreeSet::new();
    for file in sources() {
        let module = file.module.join("::");
        for rule in rules.iter().filter(|rule| under(&module, &rule[0])) {
            for path in file.foreign_paths(&rule[1..]) {
                faults.insert(format!("{}: {} may not use {path}", file.name, rule[0]));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn only_the_views_of_screens_draw() {
    let drawing = ["ratatui".to_owned()];
    let mut faults = BTreeSet::new();
    let mut views = 0;
    for file in sources().iter().filter(|file| under(&file.module.join("::"), "tui::screens")) {
        if file.module.iter().any(|part| part == "view") {
            views += 1;
            continue;
        }
        // the registry names what views draw on
        let registry = file.module == ["tui", "screens"];
        let own = file.own_paths().into_iter().filter(|path| under(&path.join("::"), "tui::canvas"));
        let used = own.map(|path| path.join("::")).filter(|_| !registry).chain(file.foreign_paths(&drawing));
        faults.extend(used.map(|path| format!("{}: {path} belongs into its view", file.name)));
    }
    assert!(views > 5 && faults.is_empty(), "{views} views, {faults:#?}");
}

#[test]
fn time_and_standard_output_have_one_place() {
    let rules = block("alone");
    let modules: BTreeSet<String> = layers().into_keys().collect();
    let mut faults = BTreeSet::new();
    for file in sources() {
        let module = file.module.join("::");
        for rule in &rules {
            let (owners, words): (Vec<&String>, Vec<&String>) =
                rule.iter().partition(|word| modules.contains(*word));
            if owners.iter().any(|owner| under(&module, owner)) {
                continue;
            }
            for word in words.into_iter().filter(|word| file.says(word)) {
                faults.insert(format!("{}: only {owners:?} may say {word}", file.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Whether a file could read what a process keeps in its own memory, and hang with that process.
fn reads_memory(file: &SourceFile) -> bool {
    let module = file.module.join("::");
    // `launch` looks for the words in Python's text, and may open no file
    let may = under(&module, "procs::memory") || under(&module, "launch");
    !may && ["environ", "cmdline"].iter().any(|name| file.names_file(name))
}

#[test]
fn environments_and_command_lines_of_processes_are_read_in_one_place() {
    let parse = |name: &str, text: &str| SourceFile::parse(Path::new(name), text);
    for text in [
        r#"fs::read(format!("/proc/{pid}/environ"))"#,
        r#"let file = "cmdline"; fs::read(format!("/proc/{pid}/{file}"))"#,
    ] {
        assert!(reads_memory(&parse("agent/runs.rs", text)), "{text}");
        assert!(!reads_memory(&parse("procs/memory.rs", text)), "{text}");
        assert!(!reads_memory(&parse("agent/runs.rs", &format!("mod tests {{ {text} }}"))), "{text}");
    }
    let other = "// reads /proc/PID/environ\nfn f(cmdline: &[u8]) { open(\"/etc/environment\") }";
    assert!(!reads_memory(&parse("agent/runs.rs", other)));

    let files = sources();
    let memory = files.iter().find(|file| file.name == "procs/memory.rs").expect("procs/memory.rs");
    assert!(memory.names_file("environ") && memory.names_file("cmdline"), "the one place reads neither");
    let faults: Vec<&str> =
        files.iter().filter(|file| reads_memory(file)).map(|file| file.name.as_str()).collect();
    assert!(faults.is_empty(), "procs::memory reads them by threads that may hang: {faults:#?}");
}

#[test]
fn each_file_says_what_it_is_for_and_stays_short() {
    let files = sources();
    let mut faults = Vec::new();
    for file in &files {
        if !file.header {
            faults.push(format!("{}: does not begin with //!", file.name));
        }
        if file.lines > MOST_LINES {
            faults.push(format!("{}: {} lines without tests, at most {MOST_LINES}", file.name, file.lines));
        } else if file.lines > MANY_LINES {
            println!("note: {} has {} lines without tests", file.name, file.lines);
        }
    }
    let mut lengths: Vec<usize> = files.iter().map(|file| file.lines).collect();
    lengths.sort_unstable();
    println!("note: {} files, median {} lines without tests", lengths.len(), lengths[lengths.len() / 2]);
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn tests_wait_for_processes_with_a_deadline() {
    let tests = read_tree(&root().join("tests/it"));
    let waits = |file: &&SourceFile| {
        let made =
            ["common/in_time.rs", "common/built.rs", "common/scripted_gpu.rs"].contains(&file.name.as_str());
        let is_recorder = file.name == "record/round_trip.rs";
        let words = ["output()", "wait_with_output()", if is_recorder { "status ()" } else { "status()" }];
        !made && words.iter().any(|word| file.says(word))
    };
    let faults: Vec<&str> = tests.iter().filter(waits).map(|file| file.name.as_str()).collect();
    assert!(tests.len() > 100 && faults.is_empty(), "common/in_time.rs has the ways that end: {faults:#?}");
}

#[test]
fn the_modules_of_the_library_are_the_rows_of_the_table() {
    let library = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let picture: String = library.lines().filter(|line| line.starts_with("//!")).collect();
    let modules: BTreeSet<&str> =
        library.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let rows = layers();
    let tops: BTreeSet<&str> = rows.keys().map(|name| name.split("::").next().unwrap()).collect();
    assert_eq!(modules, tops, "src/lib.rs against docs/architecture.md");
    for module in modules {
        let named = picture.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == module);
        assert!(named, "src/lib.rs: its picture of the layers does not name {module}");
    }
}

#[test]
fn the_reader_of_source_sees_every_form_of_import() {
    let text = r#"
        //! Header.
        use crate::{domain::{ids, run::RunSpec}, wire};
        use super::super::cluster::pool;
        use super::core as other;
        use std::{io, net::{IpAddr, TcpStream}};
        // use crate::comment;
        const TEXT: &str = "crate::text";
        const RAW: &str = r"crate::raw";
        const QUOTE: char = '"';
        fn f<'a>(x: &'a str) { crate::clock::now(); println!("crate::printed") }
        #[cfg(test)]
        mod tests { use crate::agent; fn g() { let brace = "}"; } }
        pub(in crate::seen) fn after() { crate::record::open() }
    "#;
    let file = SourceFile::parse(Path::new("tui/view/ranks.rs"), text);
    assert_eq!(file.module, ["tui", "view", "ranks"]);
    let paths: BTreeSet<String> = file.own_paths().iter().map(|path| path.join("::")).collect();
    let wanted = [
        "clock::now",
        "domain::ids",
        "domain::run::RunSpec",
        "record::open",
        "tui::cluster::pool",
        "tui::view::core",
        "wire",
    ];
    assert_eq!(paths.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
    let foreign = file.foreign_paths(&["std::net::TcpStream".to_owned(), "std::fs".to_owned()]);
    assert_eq!(foreign, ["std::net::TcpStream"]);
    assert!(file.says("println!") && !file.says("print!") && !file.says("comment"));
}
