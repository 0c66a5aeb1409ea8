//! Steps of Python scripts that know nothing of hvtui, told by its hooks: with the distribution's PyTorch under the real
//! binary on ssh hosts, and what the hooks do by themselves (`tests/hooks/check.py`).

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster;
use crate::common::cluster::Cluster;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until, until_says};

/// The distribution's Python: it is the one that has the distribution's PyTorch.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn has_torch() -> bool {
    // it takes seconds
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let found = Command::new(PYTHON).args(["-c", "import torch.distributed"]).output_in_time();
        found.is_ok_and(|out| out.status.success())
    });
    if !found {
        cluster::skip(&format!("{PYTHON} has no torch: install python3-torch"));
    }
    found
}

/// Two hosts with the script in their home folders; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        let cluster = has_torch().then(|| Cluster::ready(2, &[]))??;
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hooks/train.py");
        let shared = cluster.dir().join("train.py");
        std::fs::copy(from, &shared).expect("the script");
        for host in ["n1", "n2"] {
            assert_eq!(cluster.on(host, &format!("cp {} ~ && echo there", shared.display())).trim(), "there");
        }
        Some(cluster)
    })
    .as_ref()
}

/// Trains on both hosts.
fn train(client: &Client<'_>, options: &[&str], script: [&str; 3]) -> Ended {
    let command = ["--kind", "torch", "--gpus", "n1:0;n2:0", "--", PYTHON, "train.py"];
    client.run(&[&["run"], options, &command, &script].concat())
}

/// The row of a rank in the last table: what stands behind its number.
fn row(ended: &Ended, rank: u32) -> Vec<String> {
    let begins = format!("hvtui:    {rank}  ");
    let row = ended.err.lines().find_map(|line| line.strip_prefix(&begins));
    let row = row.unwrap_or_else(|| panic!("no row of rank {rank}: {ended:#?}"));
    row.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_unmodified_script_tells_its_steps_and_who_is_late_in_what() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let mut ids = Vec::new();
    for (late, place, phase, told) in [
        ("1", "n2:0", "backward", "in backward"),
        ("0", "n1:0", "forward", "in forward"),
        ("1", "n2:0", "loader", "in data"),
        ("0", "n1:0", "prepare", "in data"),
        ("1", "n2:0", "after", "between steps"),
    ] {
        let ended = train(&client, &[], [late, phase, "1"]);
        assert_eq!(ended.code, 0, "{ended:#?}");
        assert!(ended.err.contains("hvtui: steps by hooks (torch "), "{ended:#?}");
        let named = format!("rank {late} ({place}) is a straggler: +");
        let line = ended.err.lines().find(|line| line.contains(&named));
        let line = line.unwrap_or_else(|| panic!("late in {phase}: {ended:#?}"));
        assert!(line.contains(&format!("late {told}")), "{line}");
        let report = client.run(&["report", "last"]);
        let named = format!("  1. rank {late} ({place}) is late {told}: ");
        assert!(report.out.contains(&named), "{report:#?}");
        let step = line.split("step ").nth(1).and_then(|rest| rest.split(':').next()?.parse::<u32>().ok());
        // its steps take 62 ms and more: half a second of them after it was late for the first time, and three judgements
        assert!(step.is_some_and(|step| step <= 50), "{line}");
        for rank in 0..2 {
            assert!(ended.out.contains(&format!("rank {rank} did 100 steps")), "{ended:#?}");
            assert_eq!(row(&ended, rank)[1], "100", "{ended:#?}");
        }
        let id = ended.err.split("hvtui replay ").nth(1).and_then(|rest| rest.split_whitespace().next());
        ids.push(id.unwrap_or_else(|| panic!("{ended:#?}")).to_owned());
    }
    // all of it is in the recording, as of the first
    let exported = client.run(&["export", &ids[0], "--to", "chrome", "--output", "trace.json"]);
    assert_eq!(exported.code, 0, "{exported:#?}");
    let trace = std::fs::read_to_string(client.path("trace.json")).expect("a trace");
    for name in
        ["\"forward\"", "\"backward\"", "\"optimizer\"", "\"allreduce wait\"", "\"step\":100}", "STRAGGLER"]
    {
        assert!(trace.contains(name), "no {name} in the trace");
    }
}

#[test]
fn who_waits_for_a_rank_that_never_comes_is_answered_with_the_checks_that_fit() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let script = "import os, torch.distributed as d; d.init_process_group('gloo', rank=int(os.environ['RANK']), world_size=3)";
    let line = ["run", "--detach", "--kind", "torch", "-H", "n1:1,n2:1", "--", PYTHON, "-c", script];
    let started = client.run(&line);
    assert_eq!(started.code, 0, "{started:#?}");
    let id = started.out.trim();
    let hosts = client.path("hosts.toml");
    let hint = format!(
        "\nwhat may be wrong there: hvtui --hosts {} doctor --only reach,interface,hostname,ports -H n1 -H n2\n",
        hosts.display()
    );
    until_says(&hint, || client.run(&["stacks", id]).out);
    assert_eq!(client.run(&["stop", id, "--now"]).code, 0);
}

#[test]
fn the_script_of_the_readme_trains_and_tells_its_steps() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/train_ddp.py");
    let ended = client.run(&["run", "-H", "n1:1,n2:1", "--", PYTHON, script, "--epochs", "2"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert!(ended.out.contains("[0] epoch 2: "), "{ended:#?}");
    for rank in 0..2 {
        // 1,797 digits by two ranks in batches of 32, twice
        assert_eq!(row(&ended, rank)[1], "58", "{ended:#?}");
    }
    let listed = client.run(&["runs", "--json", "--local"]);
    let runs: serde_json::Value = serde_json::from_str(&listed.out).expect("JSON");
    let trained = &runs[0]["trained"];
    assert_eq!((&trained["step"], &trained["by"]), (&58.into(), &"hooks".into()), "{listed:#?}");
    assert!(trained["libraries"].as_str().is_some_and(|words| words.starts_with("torch ")), "{listed:#?}");
    assert!(trained["loss"].as_f64().is_some_and(|loss| loss < 2.5), "{listed:#?}");
}

#[test]
fn a_rank_that_stops_is_named_with_its_phase_and_those_that_wait_for_it() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let log = client.path("log");
    let file = std::fs::File::create(&log).expect("a file");
    // a backward of less than 2 ms is told whole in steps that are thinned out; that of rank 0 takes 20
    let script = ["train.py", "0", "backward", "100000"];
    let line = [&["run", "--kind", "torch", "-H", "n1:1,n2:1", "--", PYTHON][..], &script].concat();
    let mut run = client.hvtui(&line);
    let out = file.try_clone().expect("a file");
    let mut run = run.stdin(Stdio::null()).stdout(out).stderr(file).spawn().expect("hvtui");
    let says = |words: &str| std::fs::read_to_string(&log).unwrap_or_default().contains(words);
    // in the forward pass of the second step DDP lays its buckets anew, for which the ranks wait there
    until("a third step", || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let steps = said
            .lines()
            .filter_map(|line| line.strip_prefix("hvtui: step ")?.split(' ').next()?.parse().ok());
        steps.max().is_some_and(|step: u64| step >= 3)
    });
    let signal = |name: &str| {
        let all = cluster.processes("n2");
        let ranks = all.iter().filter(|process| process.args.ends_with("train.py 0 backward 100000"));
        let pids: Vec<String> = ranks.map(|process| process.pid.to_string()).collect();
        cluster.on("n2", &format!("kill -{name} {}", pids.join(" ")));
    };
    signal("STOP");
    until("the standstill", || says("stands still in step "));
    let said = std::fs::read_to_string(&log).expect("its words");
    let line = said.lines().find(|line| line.contains("stands still")).expect("a line");
    // the signal may come between two steps as well
    let stopped = |text: &str, words: &str| {
        let behind = text.split_once(words).map(|(_, behind)| behind);
        behind.is_some_and(|behind| behind.starts_with("in ") || behind.starts_with("between steps"))
    };
    assert!(
        stopped(line, ": rank 1 stopped by a signal ") && line.contains("; rank 0 in wait for "),
        "{line}"
    );
    let script = std::fs::read_to_string(cluster.dir().join("train.py")).expect("the script");
    let at_backward = |text: &str| {
        let mut at =
            text.split("train.py:").skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let line = at.find_map(|number| script.lines().nth(number?.parse::<usize>().ok()? - 1));
        line.is_some_and(|line| line.contains(".backward()"))
    };
    assert!(at_backward(line), "the line of the script of who waits: {line}");
    // the whole of it on request: of who is stopped the kernel's word
    let listed = client.run(&["runs", "--json", "--local"]);
    let runs: serde_json::Value = serde_json::from_str(&listed.out).expect("JSON");
    let id = runs[0]["spec"]["id"].as_str().expect("the only run of this person");
    let stacks = client.run(&["stacks", id]);
    assert!(stacks.code == 0 && at_backward(&stacks.out), "{stacks:#?}");
    let (stands, waits) = stacks.out.split_once("\nrank 0").expect("both ranks");
    assert!(
        stands.starts_with("rank 1, ")
            && stopped(stands, "rank 1, stopped by a signal ")
            && stands.contains("in state T"),
        "{stacks:#?}"
    );
    assert!(waits.contains(", in wait of step ") && waits.contains("torch/_tensor.py:"), "{stacks:#?}");
    let json = client.run(&["stacks", id, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(
        (&json["stacks"][0]["rank"], &json["stacks"][0]["by"], &json["stacks"][1]["by"]),
        (&0.into(), &"hooks".into(), &"kernel".into())
    );
    signal("CONT");
    let before = said.matches("hvtui: step ").count();
    let steps = || std::fs::read_to_string(&log).unwrap_or_default().matches("hvtui: step ").count();
    until("more steps", || steps() > before + 1);
    signal("KILL");
    let code = end_of(&mut run).code();
    assert_eq!(code, Some(137));
}

#[test]
fn hooks_that_are_off_change_nothing_and_a_wrong_word_is_refused() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let ended = train(&client, &["--python-hooks", "off"], ["9", "none", "1"]);
    assert!(ended.code == 0 && !ended.err.contains("by hooks") && !ended.err.contains("RANK "), "{ended:#?}");
    let path = "import os; print('path', os.environ.get('PYTHONPATH'))";
    let told = |hosts: &str, options: &[&str]| {
        client.write("hosts.toml", hosts);
        client.run(&[&["run", "-H", "n1:1"], options, &["--", PYTHON, "-c", path]].concat())
    };
    let hosts = cluster.hosts_toml(2);
    let off = hosts.replace("[defaults]\n", "[defaults]\npython_hooks = false\n");
    for ended in [told(&hosts, &["--python-hooks", "off"]), told(&off, &[])] {
        assert!(ended.out.contains("path None"), "{ended:#?}");
    }
    let on = told(&off, &["--python-hooks", "on", "--env", "PYTHONPATH=/opt/lib"]);
    assert!(on.out.contains("/hvtui/python/") && on.out.contains(":/opt/lib"), "{on:#?}");
    let wrong = told(&hosts, &["--python-hooks", "maybe"]);
    assert!(
        wrong.code == 64 && wrong.err.contains("--python-hooks maybe: write on, off, or debug"),
        "{wrong:#?}"
    );
}

#[test]
fn processes_of_a_launcher_within_a_rank_have_rows_of_their_own() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    // in a script of one's own, where hvtui does not see what it starts
    let line = format!(
        "echo 'exec {PYTHON} -m torch.distributed.run --standalone --nproc_per_node=2 --redirects 1 --tee 1 train.py 9 none 1' \
         >~/launch.sh && echo there"
    );
    assert_eq!(cluster.on("n1", &line).trim(), "there");
    let ended = client.run(&["run", "--gpus", "n1:0", "--", "sh", "launch.sh"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    for worker in 0..2 {
        assert_eq!(row(&ended, worker)[..2], ["n1:0", "100"], "{ended:#?}");
    }
}

#[test]
fn a_script_s_own_report_wins_and_a_progress_bar_is_read_where_nothing_else_tells() {
    let Some(cluster) = two() else { return };
    let client = Client::of_two_slots(cluster);
    let own = "import json, os, runpy, sys\n\
               report = open(os.environ['HVTUI_REPORT'], 'a', buffering=1)\n\
               for step in range(1, 8): report.write(json.dumps({'kind': 'step', 'step': step, 'dur_us': 5}) + '\\n')\n\
               sys.argv = ['train.py', '9', 'none', '1']\n\
               runpy.run_path('train.py', run_name='__main__')\n";
    let ended = client.run(&["run", "--kind", "torch", "-H", "n1:1", "--", PYTHON, "-c", own]);
    assert!(ended.code == 0 && ended.out.contains("did 100 steps"), "{ended:#?}");
    assert_eq!(row(&ended, 0)[1], "7", "{ended:#?}");
    let bar = "import sys, time\n\
               for i in range(1, 21):\n\
               \x20   sys.stderr.write('\\rEpoch 1: %3d%%|##   | %d/20 [00:01<00:01, 10.0it/s, loss=0.25]' % (i * 5, i))\n\
               \x20   sys.stderr.flush(); time.sleep(0.1)\n";
    let ended = client.run(&["run", "-H", "n2:1", "--", PYTHON, "-c", bar]);
    assert!(ended.err.contains("loss 0.2500  read from the log"), "{ended:#?}");
}

/// The hooks alone, without hvtui: what they report, and that no script is changed by them.
#[test]
fn the_checks_of_the_hooks_pass() {
    if !has_torch() {
        return;
    }
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hooks/check.py");
    let out = Command::new(PYTHON).arg(check).output_in_time().expect("the checks");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}");
    println!("{said}");
}
