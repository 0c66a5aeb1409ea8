//! Runs every fuzz target over its small corpus, `tests/fuzz/corpus/TARGET/*`: seeds, and what fuzzing once found.

fn over_corpus<T>(target: &str, body: fn(&[u8]) -> T) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("a corpus") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a corpus file");
        let _ = body(&bytes);
        for cut in [bytes.len() / 3, bytes.len() / 2] {
            let _ = body(bytes.get(..cut).unwrap_or_default());
        }
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn frames() {
    over_corpus("frames", bodies::frames);
}

#[test]
fn agent_ingress() {
    over_corpus("agent_ingress", bodies::agent_ingress);
}

#[test]
fn filter() {
    over_corpus("filter", bodies::filter);
    assert!(bodies::filter(b"util<5 & !(host~a | cmd~/train/)"), "a filter is read");
    assert!(!bodies::filter(b"utl<5"), "and a wrong one is not");
}

#[test]
fn manifest() {
    over_corpus("manifest", bodies::manifest);
}

#[test]
fn known_hosts() {
    over_corpus("known_hosts", bodies::known_hosts);
}

#[test]
fn ssh_config() {
    over_corpus("ssh_config", bodies::ssh_config);
}

#[test]
fn hosts_toml() {
    over_corpus("hosts_toml", bodies::hosts_toml);
}

#[test]
fn recordings() {
    over_corpus("recording", bodies::recording);
}

#[test]
fn log_text() {
    over_corpus("log_text", bodies::log_text);
}

#[test]
fn collectives() {
    over_corpus("collectives", bodies::collectives);
}

#[test]
fn reports() {
    over_corpus("reports", bodies::reports);
}

#[test]
fn imports() {
    over_corpus("imports", bodies::imports);
}

#[test]
fn progress() {
    over_corpus("progress", bodies::progress);
}

#[test]
fn nccl_log() {
    over_corpus("nccl_log", bodies::nccl_log);
}

#[test]
fn stacks() {
    over_corpus("stacks", bodies::stacks);
}

#[test]
fn marks() {
    over_corpus("marks", bodies::marks);
}

#[test]
fn times() {
    over_corpus("times", bodies::times);
}

#[test]
fn mnist() {
    over_corpus("mnist", bodies::mnist);
}

#[test]
fn the_mnist_seeds_are_read() {
    for form in ["idx-images", "idx-labels", "idx-images-packed", "idx-labels-packed"].into_iter().chain([
        "npy-images",
        "npy-labels",
        "npz-deflated",
        "npz-stored",
    ]) {
        let path = format!("{}/tests/fuzz/corpus/mnist/{form}", env!("CARGO_MANIFEST_DIR"));
        assert!(bodies::mnist(&std::fs::read(path).expect("a seed")), "{form}");
    }
}

#[test]
fn kernel_traces() {
    over_corpus("kernel_traces", bodies::kernel_traces);
    let path = format!("{}/tests/fuzz/corpus/kernel_traces/torch", env!("CARGO_MANIFEST_DIR"));
    assert!(bodies::kernel_traces(&std::fs::read(path).expect("a seed")) > 30);
}

#[test]
fn states() {
    over_corpus("states", bodies::states);
}

/// Else the fuzzer would only ever see what nothing is said of.
#[test]
fn the_seeds_of_what_ranks_write_are_read() {
    let seed = |target: &str, name: &str| {
        let path = format!("{}/tests/fuzz/corpus/{target}/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(path).expect("a seed")
    };
    assert!(bodies::reports(&seed("reports", "kinds")) > 8);
    for name in ["tqdm", "keras", "imagenet"] {
        assert!(bodies::progress(&seed("progress", name)), "{name}");
    }
    assert!(bodies::nccl_log(&seed("nccl_log", "two_ranks")));
    assert!(bodies::times(&seed("times", "rising")) > 40);
    assert!(bodies::marks(&seed("marks", "two")) && !bodies::marks(&seed("marks", "later")));
    assert!(bodies::stacks(&seed("stacks", "two_threads")));
}

#[test]
fn the_seeds_of_agents_are_admitted() {
    for (name, frames) in [("told", 5), ("of_a_run", 10)] {
        let path = format!("{}/tests/fuzz/corpus/agent_ingress/{name}", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(bodies::agent_ingress(&std::fs::read(path).expect("a seed")), frames, "{name}");
    }
}

/// Else the fuzzer would only ever see refusals.
#[test]
fn the_recording_seeds_are_read() {
    for seed in ["whole", "chunk"] {
        let path = format!("{}/tests/fuzz/corpus/recording/{seed}", env!("CARGO_MANIFEST_DIR"));
        let events = bodies::recording(&std::fs::read(path).expect("a seed"));
        assert!(events > 2, "{seed}: {events}");
    }
}

use crate::common::bodies;
