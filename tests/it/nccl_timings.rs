//! hvtui's NCCL profiler plugin against a scripted NCCL (`tests/nccl_host`), and its timings from there to what `hvtui run`
//! says of them. Nothing here has a GPU: that NCCL calls the plugin in this way is read in its source, not proven.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::built;
use crate::common::in_time::OutputInTime;
use hvtui::cluster::lines::RankFiles;
use hvtui::domain::event::Event;
use hvtui::domain::ids::Rank;
use hvtui::domain::log::Stream;
use hvtui::domain::nccl_timing::CollectiveTiming;

/// What `build.rs` has compiled.
const PLUGIN: &str = concat!(env!("OUT_DIR"), "/libnccl-profiler-hvtui.so");
/// The scripted NCCL counts the GPU's time in these.
const MS: u64 = 1 << 20;
/// The versions in which each of the interfaces came.
const VERSIONS: [(u32, u32); 3] = [(22705, 4), (22803, 5), (22907, 6)];

/// Plays a script; `report` is where the plugin writes to.
fn play(nccl: u32, script: &[&str], report: Option<&Path>) -> Command {
    let mut command = Command::new(built::example("nccl_host"));
    command.args(script).env_clear().env("NCCL_PROFILER_PLUGIN", PLUGIN).env("RANK", "1");
    command.env("FAKE_NCCL_VERSION", nccl.to_string());
    command.envs(report.map(|report| ("HVTUI_REPORT", report)));
    command
}

/// It played to its end, whatever the plugin met.
#[track_caller]
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output_in_time().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success() && said.ends_with("to the end\n"), "{said}{}", String::from_utf8_lossy(&stderr));
    said
}

/// What hvtui reads in a report: the collectives of rank 1, and how many lines it does not understand.
fn read(report: &Path) -> (Vec<CollectiveTiming>, usize) {
    let text = std::fs::read(report).unwrap_or_default();
    let mut files = RankFiles::default();
    let mut told = files.push(Rank(1), Stream::Report, 0, &text);
    told.extend(files.finish(Rank(1)));
    let (mut timings, mut faults) = (Vec::new(), 0);
    for told in told {
        assert_eq!(told.worker, None);
        match told.event {
            Event::CollectiveDone { timing } => timings.push(*timing),
            Event::Gap { .. } => faults += 1,
            other => panic!("{other:?}"),
        }
    }
    (timings, faults)
}

fn played(nccl: u32, script: &[&str]) -> (Vec<CollectiveTiming>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    said(&mut play(nccl, script, Some(&report)));
    read(&report)
}

#[test]
fn each_interface_tells_the_collectives_of_all_communicators_and_threads() {
    for (nccl, version) in VERSIONS {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report");
        let said = said(&mut play(nccl, &["threads"], Some(&report)));
        assert!(said.starts_with(&format!("opened hvtui by version {version}\n")), "{said}");
        assert!(said.contains("deaf threads 1\n"), "no signal ends up in the plugin's thread: {said}");
        let (timings, faults) = read(&report);
        assert_eq!((timings.len(), faults), (30, 0), "{timings:#?}");
        let mut last: BTreeMap<_, u64> = BTreeMap::new();
        for timing in &timings {
            let number = timing.comm.0 - 0x100;
            let took = if timing.func == "AllReduce" { (number + 1) * 1024 * 100 } else { 2048 * 100 };
            assert!(timing.func == "AllReduce" || timing.func == "ReduceScatter", "{timing:?}");
            let told =
                (timing.ranks, timing.comm_rank, timing.bytes, timing.dur_ns, timing.every, timing.lost);
            assert_eq!(told, (2, 1, 25 << 20, took, 1, 0));
            assert_eq!(timing.datatype, "Float32");
            assert_eq!(timing.gpu_ns, Some(1_790_000_000_000_000_000 + timing.seq * MS));
            let next = last.entry((timing.comm, &timing.func)).or_default();
            assert_eq!(timing.seq, *next, "in their order");
            *next += 1;
        }
    }
}

#[test]
fn nothing_that_nccl_may_do_wrong_hurts_the_program() {
    for (nccl, _) in VERSIONS {
        let (timings, faults) = played(nccl, &["garbage"]);
        let [one] = &timings[..] else { panic!("{timings:#?}") };
        assert_eq!((one.comm.0, one.seq, one.dur_ns, one.bytes, faults), (2, 3, 4096, 0, 0), "{one:?}");
        assert!(one.func.is_empty() && one.datatype.is_empty(), "{one:?}");
    }
}

#[test]
fn a_report_that_is_missing_or_full_hurts_nobody() {
    for (nccl, _) in VERSIONS {
        let without = said(&mut play(nccl, &["late", "3", "0", "1"], None));
        assert!(without.contains("wants no events\n"), "{without}");
        said(&mut play(nccl, &["late", "3", "0", "1"], Some(Path::new("/dev/full"))));
        said(&mut play(nccl, &["late", "3", "0", "1"], Some(Path::new("/nowhere/report"))));
    }
    let (timings, faults) = played(22907, &["short"]);
    let [one] = &timings[..] else { panic!("{timings:#?}") };
    assert_eq!((one.seq, one.lost, faults), (2, 2, 1), "half a line spoils no other one");
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let (timings, faults) = played(22907, &["closed", own.to_str().unwrap()]);
    assert_eq!((timings.len(), faults), (2, 0), "{timings:#?}");
    assert_eq!(std::fs::read(own).unwrap(), b"mine");
}

#[test]
fn a_collective_on_fewer_channels_is_told_and_one_that_hangs_is_not() {
    let (timings, faults) = played(22907, &["plain"]);
    let told: Vec<_> = timings.iter().map(|one| (one.func.as_str(), one.bytes, one.dur_ns)).collect();
    assert_eq!((told, faults), (vec![("AllReduce", 25 << 20, MS), ("AllGather", 40, 2 * MS)], 0));
}

#[test]
fn ranks_that_leave_collectives_out_leave_the_same_ones_out() {
    let told = [0, 1].map(|_| played(22907, &["flood", "5000"]).0);
    // the finaliser of MurmurHash3: by the number alone it is settled which ones go first
    let mix = |seq: u64| {
        let seq = (seq ^ seq >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let seq = (seq ^ seq >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        seq ^ seq >> 33
    };
    for timings in &told {
        assert!((50..4000).contains(&timings.len()), "{} lines", timings.len());
        assert!(timings.iter().any(|one| one.every > 1), "{timings:#?}");
        assert!(timings.iter().all(|one| mix(one.seq) & u64::from(one.every - 1) == 0), "{timings:#?}");
        let stands_for: u64 = timings.iter().map(|one| u64::from(one.every)).sum();
        assert!((2500..10_000).contains(&stands_for), "{stands_for} of 5000");
    }
}

#[test]
fn the_plugin_needs_nothing_that_a_process_may_lack_and_has_no_way_to_panic() {
    let plugin = std::fs::read(PLUGIN).unwrap();
    let has = |name: &str| {
        let name = format!("\0{name}\0");
        plugin.windows(name.len()).any(|part| part == name.as_bytes())
    };
    assert!(has("ncclProfiler_v4") && has("ncclProfiler_v5") && has("ncclProfiler_v6") && has("getenv"));
    assert!(has("libnccl-profiler-hvtui.so"), "its SONAME");
    assert!(!has("abort"), "the compiler sees a panic that can happen");
    assert!(!has("rust_eh_personality") && !has("malloc") && !has("libc.so.6"));
    assert!(plugin.len() < 64 << 10, "{} bytes", plugin.len());
}

/// A person on a machine of their own with two slots.
fn run(options: &[&str], script: &[&str]) -> (String, String) {
    let home = tempfile::tempdir().unwrap();
    let hosts = home.path().join("hosts.toml");
    std::fs::write(&hosts, "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 2\n").unwrap();
    let hvtui = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", crate::common::program::hvtui(), "--hosts"]).arg(&hosts).args(args);
        command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin").output_in_time().unwrap()
    };
    let host = built::example("nccl_host");
    // each kind's own variable says the rank; this is torch's
    let line =
        [&["run", "-np", "2", "--kind", "torch"], options, &["--", host.to_str().unwrap()], script].concat();
    let ended = hvtui(&line);
    let told =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{told}");
    let trace = hvtui(&["export", "last", "--to", "chrome"]);
    (told, String::from_utf8(trace.stdout).unwrap())
}

#[test]
fn the_rank_that_comes_last_to_the_collectives_is_named_at_the_end() {
    let (told, trace) = run(&["--nccl-timings"], &["late", "40", "1", "3"]);
    let line =
        told.lines().find(|line| line.starts_with("hvtui: NCCL: ")).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains(" AllReduce/s of 25 M, 1.0 ms each; rank 1 (here:1) comes last in "), "{line}");
    assert!(line.ends_with(" of 40, the other waits 3.1 ms"), "{line}");
    let slices = trace.lines().filter(|line| line.contains("\"name\":\"AllReduce\"")).count();
    assert_eq!(slices, 80, "{trace}");
    assert_eq!(trace.lines().filter(|line| line.contains("{\"name\":\"nccl\"}")).count(), 2);
    // without the option NCCL is left alone
    let (told, _) = run(&[], &["late", "3", "1", "3"]);
    assert!(told.contains("[1] no profiler") && !told.contains("NCCL"), "{told}");
}

#[test]
fn a_profiler_of_one_s_own_stays_and_what_told_nothing_is_said() {
    let own = ["--nccl-timings", "--env", "NCCL_PROFILER_PLUGIN=inspector"];
    let (told, _) = run(&own, &["late", "3", "1", "3"]);
    assert!(
        told.contains("[0] hvtui: no NCCL timings: NCCL_PROFILER_PLUGIN=inspector is set already, and stays"),
        "{told}"
    );
    assert!(told.contains("[1] no profiler"), "{told}");
    assert!(told.contains("hvtui: no NCCL timings: no NCCL of 2.27 or newer has told any"), "{told}");
}

/// NCCL 2.27.3 takes no path. The hooks in Python open the plugin before it; the C library then knows it by its SONAME.
#[test]
fn nccl_that_takes_no_path_finds_the_plugin_that_the_hooks_have_opened() {
    let folder = tempfile::tempdir().unwrap();
    let torch = "import os, types\n\
        __version__ = '2.8.0'\n\
        major, minor, patch = map(int, os.environ['NCCL'].split('.'))\n\
        _C = types.SimpleNamespace(_nccl_version=lambda: major << 32 | minor << 16 | patch)\n";
    std::fs::write(folder.path().join("torch.py"), torch).unwrap();
    let script = "import ctypes, os, torch\n\
        name = os.environ['NCCL_PROFILER_PLUGIN']\n\
        name = name if '/' in name else 'libnccl-profiler-%s.so' % name\n\
        try: print('opens', os.path.basename(name), bool(ctypes.CDLL(name).ncclProfiler_v4))\n\
        except OSError: print('cannot open', os.path.basename(name))\n\
        print(open(os.environ['HVTUI_REPORT']).read())\n";
    let python = |nccl: &str, path: &str, plugin: &str| {
        let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/python");
        let report = folder.path().join("report");
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new("/usr/bin/python3");
        command.current_dir(folder.path()).args(["-B", "-c", script]);
        command.env("PYTHONPATH", format!("{}:{}", hooks.display(), folder.path().display()));
        command.env("HVTUI_REPORT", report).env("NCCL", nccl).env_remove("HVTUI_PYTHON_HOOKS");
        let out = command
            .env("HVTUI_NCCL_PLUGIN", path)
            .env("NCCL_PROFILER_PLUGIN", plugin)
            .output_in_time()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(r#""torch":"2.8.0""#) && !said.contains(r#""off""#), "the hooks go on: {said}");
        said.lines().next().unwrap().to_owned()
    };
    let opens = "opens libnccl-profiler-hvtui.so True";
    assert_eq!(python("2.27.3", PLUGIN, PLUGIN), opens);
    assert_eq!(python("2.27.3", PLUGIN, "hvtui"), opens, "in a Python that a Python has started");
    assert_eq!(python("2.27.5", PLUGIN, PLUGIN), opens, "by its path");
    assert_eq!(python("2.27.5", PLUGIN, "hvtui"), "cannot open libnccl-profiler-hvtui.so");
    let own = python("2.27.3", PLUGIN, "inspector");
    assert_eq!(own, "cannot open libnccl-profiler-inspector.so", "a profiler of one's own stays");
    let broken = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert_eq!(python("2.27.3", broken, broken), "cannot open Cargo.toml");
}
