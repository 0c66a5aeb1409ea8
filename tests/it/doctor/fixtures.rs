//! For each check of the doctor: the test in which a host fails it, and the one in which a host passes it, by name. A check that is
//! added without them is noticed here, and so is a verdict whose words no test says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hvtui::doctor::CHECKS;

/// The check, the file of its tests, the test that fails it, and the one that passes it where that is another one.
type Fixture = (&'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);

const TROUBLES: &str = "troubles_of_hosts_are_found_and_told_with_what_helps";
const SYSTEMS: &str = "file_systems_and_drivers_are_judged_on_the_host_itself";
const UNLIKE: &str = "hosts_that_are_set_up_unlike_each_other_are_told_apart";
const COMPILERS: &str = "compilers_toolkits_and_clocks_of_hosts_are_compared";
const PASSES: &str = "what_is_as_it_should_be_passes_by_name";
const PACKAGES: &str = "what_pythons_packages_bring_along_is_compared_and_must_fit";

const FIXTURES: [Fixture; 35] = [
    (
        "reach",
        "doctor/ways.rs",
        "firewalls_that_reject_and_that_drop_are_told_apart_and_opened_by_what_is_said",
        None,
    ),
    ("sshd", "doctor/frameworks.rs", PASSES, None),
    ("logins", "doctor/ways.rs", "logins_that_fail_are_told_apart_and_made_to_work_by_what_is_said", None),
    (
        "interface",
        "doctor/places.rs",
        "interfaces_that_lead_nowhere_are_told_and_keep_a_run_from_starting",
        None,
    ),
    ("choice", "doctor/choice.rs", "what_libraries_take_by_themselves_is_told_before_it_leads_nowhere", None),
    (
        "ports",
        "doctor/run_ports.rs",
        "a_port_that_the_run_takes_and_another_program_has_keeps_it_from_starting",
        None,
    ),
    ("hostname", "doctor/frameworks.rs", PASSES, None),
    ("clock", "doctor/ways.rs", "a_clock_that_differs_is_told_with_its_doubt", None),
    ("kernel", "doctor/alike.rs", UNLIKE, None),
    (
        "logout",
        "doctor/alike.rs",
        "a_logout_that_ends_runs_or_takes_their_memory_is_told_with_what_prevents_it",
        None,
    ),
    ("disk", "doctor.rs", SYSTEMS, None),
    ("tmp", "doctor.rs", SYSTEMS, None),
    ("shm", "doctor.rs", SYSTEMS, None),
    ("limits", "doctor/alike.rs", UNLIKE, None),
    ("gpu", "doctor.rs", SYSTEMS, None),
    (
        "health",
        "doctor/gpus.rs",
        "faults_of_gpus_are_told_and_a_lost_one_keeps_its_own_runs_from_starting",
        None,
    ),
    ("leftover", "doctor.rs", "what_runs_leave_behind_and_where_they_listen_is_told", None),
    ("driver", "doctor/alike.rs", UNLIKE, None),
    ("stub", "doctor/frameworks.rs", PASSES, None),
    ("cuda", "doctor.rs", SYSTEMS, Some(("doctor/frameworks.rs", PASSES))),
    ("libraries", "doctor/alike.rs", UNLIKE, None),
    ("compiler", "doctor/alike.rs", COMPILERS, None),
    ("path", "doctor/places.rs", "a_path_below_the_guard_of_bashrc_is_told_with_its_line", None),
    ("python", "doctor.rs", TROUBLES, None),
    ("packages", "doctor/alike.rs", PACKAGES, None),
    ("torch", "doctor.rs", SYSTEMS, None),
    ("tf", "doctor/alike.rs", PACKAGES, None),
    ("horovod", "doctor/alike.rs", "networks_and_builds_that_differ_are_told_with_the_odd_host", None),
    (
        "import",
        "doctor/frameworks.rs",
        "an_import_that_fails_is_told_with_its_cause_and_keeps_a_run_from_starting",
        None,
    ),
    ("mpi", "doctor/alike.rs", UNLIKE, None),
    ("docker", "doctor/frameworks.rs", "an_image_for_a_newer_driver_keeps_a_run_from_starting", None),
    ("toolkit", "doctor/alike.rs", COMPILERS, None),
    ("images", "images.rs", "an_image_comes_to_all_hosts_and_then_only_what_is_new", None),
    ("image", "doctor/image.rs", "an_image_is_looked_into_on_each_host_and_its_faults_are_told", None),
    (
        "same",
        "launch_looks.rs",
        "a_script_that_is_another_one_on_a_host_is_not_started_unless_it_is_wanted_all_the_same",
        None,
    ),
];

/// What the red and yellow verdicts of this source say was seen, where it stands there by itself: the longest piece of it between what
/// is filled in.
fn said(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for begin in ["Verdict::bad(", "Verdict::look("] {
        for (at, _) in source.match_indices(begin) {
            let rest = source[at + begin.len()..].trim_start();
            let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
            let Some(literal) = rest.strip_prefix('"') else { continue };
            let is_end = |(at, c): &(usize, char)| *c == '"' && !literal[..*at].ends_with('\\');
            let end = literal.char_indices().find(is_end).map_or(literal.len(), |(at, _)| at);
            let texts = literal[..end].split(['{', '}']).step_by(2);
            let pieces = texts.flat_map(|text| text.split("\\\n")).map(str::trim);
            found.extend(pieces.max_by_key(|piece| piece.len()));
        }
    }
    found
}

/// Every file of Rust below a folder, but this one, with its text.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(self::texts(&path));
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("doctor/fixtures.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push((path, text));
        }
    }
    texts
}

/// The text of a test, from its name to its end.
fn body<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = text.find(&format!("#[test]\nfn {name}() {{"))?;
    let rest = &text[begin..];
    rest.find("\n}\n").map(|end| &rest[..end])
}

#[test]
fn each_check_has_a_test_that_fails_it_and_one_that_passes_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (check, file, fails, passes) in &FIXTURES {
        for (file, name) in [(*file, *fails)].into_iter().chain(*passes) {
            let text = texts.entry(file).or_insert_with(|| {
                std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
            });
            let body = body(text, name).unwrap_or_else(|| panic!("{check}: {file} has no test {name}"));
            let mut words = body.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            assert!(words.any(|word| word == *check), "{name} of {file} does not look at {check}");
        }
    }
    let told: Vec<&str> = FIXTURES.iter().map(|(check, ..)| *check).collect();
    let there: Vec<&str> = CHECKS.iter().map(|entry| entry.name).collect();
    assert_eq!(told, there, "a check has no line here, or stands in another order");
}

/// A test that gives a verdict says its words: in the check's own tests, or in those of hosts.
#[test]
fn the_words_of_each_verdict_stand_in_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests: String = texts(&root.join("tests/it")).into_iter().map(|(_, text)| text).collect();
    let mut sources = Vec::new();
    for (path, text) in texts(&root.join("src/doctor")) {
        let name = path.file_name().unwrap().to_string_lossy();
        let begin =
            if name.ends_with("tests.rs") { 0 } else { text.find("#[cfg(test)]").unwrap_or(text.len()) };
        tests.push_str(&text[begin..]);
        sources.push((name.into_owned(), text[..begin].to_owned()));
    }
    let verdicts =
        sources.iter().flat_map(|(name, source)| said(source).into_iter().map(move |words| (name, words)));
    let verdicts: Vec<_> = verdicts.collect();
    assert!(verdicts.len() > 80, "verdicts are not found: {verdicts:?}");
    let unsaid: Vec<_> = verdicts.iter().filter(|(_, words)| !tests.contains(words)).collect();
    assert!(unsaid.is_empty(), "no test says the words of these verdicts: {unsaid:#?}");
}
