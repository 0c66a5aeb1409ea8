use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;
use crate::domain::container::ContainerOptions;
use crate::domain::fixtures::{host_run, placement, run_spec};
use crate::domain::options::{LocalRankArg, RunOptions};
use crate::domain::run::{Placement, RunSpec};
use crate::launch::plan::Rendezvous;

fn plan(kind: JobKind, hosts: &[(&str, u32)], command: &[&str], env: &[(&str, &str)]) -> LaunchPlan {
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let user: BTreeMap<String, String> =
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let slots =
        hosts.iter().flat_map(|(host, count)| (0..*count).map(move |local| (HostId::from(*host), local)));
    let place = |(rank, (host, local)): (u32, (HostId, u32))| placement(rank, host, local);
    let spec = RunSpec {
        name: "x".into(),
        kind,
        command: command.clone(),
        env: user.clone(),
        ..run_spec((0..).zip(slots).map(place).collect())
    };
    let rank = |placement: &Placement| {
        let own = [("RANK", placement.rank.to_string()), ("HVTUI_HOST", placement.host.to_string())];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let env = user.clone().into_iter().chain(own).collect();
        RankSpec {
            rank: placement.rank,
            argv: command.clone(),
            env,
            defaults: BTreeMap::new(),
            cwd: Some("/".to_owned()),
        }
    };
    let share = |id: HostId| HostRun {
        run: spec.id.clone(),
        ranks: spec.placements.iter().filter(|placement| placement.host == id).map(rank).collect(),
        host: id,
        name: "x".into(),
        ..host_run(Vec::new())
    };
    let shares = spec.hosts().into_iter().map(share).collect();
    let rendezvous = Rendezvous { master: [10, 0, 0, 1].into(), bind: BTreeMap::new() };
    LaunchPlan {
        spec,
        hosts: shares,
        rendezvous,
        lease_order: Vec::new(),
        remarks: Vec::new(),
        request: None,
    }
}

fn by_ssh(host: &HostId) -> Option<Reach> {
    (host.as_str() != "here").then(|| Reach { host: host.to_string(), ..Reach::default() })
}

/// What a shell makes of a line: the variables and the words that the command gets.
fn in_a_shell(line: &str, path: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let mut shell = Command::new("sh");
    let out = shell.args(["-c", line]).env_clear().env("PATH", path).output().unwrap();
    assert!(out.status.success(), "{line}: {out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    let (env, words) = text.split_once('\u{1}').unwrap();
    let parts = |text: &str| text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>();
    let env = parts(env).into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    (env.collect(), parts(words))
}

#[test]
fn a_shell_gets_the_same_words_and_variables_here_and_through_ssh() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    // as ssh does: the last word goes to the shell there
    std::fs::write(&ssh, "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n").unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let odd = [
        "",
        "two words",
        "it's",
        "a\"b`c$d\\e",
        "$(touch x)",
        "~",
        "*",
        "-n",
        "#",
        "tab\there",
        "line\nfeed\n",
    ];
    let more =
        ["\u{1b}[31mred", "cr\rback", "\u{202e}over", "grün", "a;b&c|d>e", "%s%n\\n", "!", "x=y", "\u{7f}"];
    let odd: Vec<&str> = odd.into_iter().chain(more).collect();
    let print = r#"env -0; printf '\001'; printf '%s\0' "$@""#;
    let command: Vec<&str> = ["sh", "-c", print, "name"].into_iter().chain(odd.iter().copied()).collect();
    let env: Vec<(String, &str)> =
        odd.iter().enumerate().map(|(at, value)| (format!("V{at}"), *value)).collect();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let plan = plan(JobKind::Plain, &[("here", 1), ("far", 1)], &command, &env);
    let lines = by_hand(&plan, by_ssh);
    assert_eq!(lines[0], "the same by hand:");
    assert!(lines[1].starts_with("  cd / && env RANK=0 "), "{}", lines[1]);
    assert!(lines[2].starts_with("  ssh far 'cd / && env RANK=1 "), "{}", lines[2]);
    for (rank, line) in ["0", "1"].into_iter().zip(&lines[1..3]) {
        assert!(line.chars().all(|c| c == '\n' || c == '\t' || is_shown_as_it_is(c)), "{line:?}");
        let (got, words) = in_a_shell(line, &path);
        assert_eq!(words, odd, "{line}");
        for (name, value) in &env {
            assert_eq!(got.get(*name).map(String::as_str), Some(*value), "{name} in {line}");
        }
        assert_eq!((got["RANK"].as_str(), got["MASTER_PORT"].as_str()), (rank, "29500"));
        assert!(!got.contains_key("HVTUI_HOST"), "hvtui's own");
    }
    assert!(!std::path::Path::new("x").exists(), "nothing was executed");
}

#[test]
fn a_home_folder_is_the_hosts_and_ssh_is_told_what_it_must_know() {
    for (path, written) in
        [("~", "~"), ("~/", "~"), ("~/a b", "~/'a b'"), ("/x~", "'/x~'"), ("~li/x", "'~li/x'")]
    {
        assert_eq!(directory(path), written);
    }
    let at = Reach {
        host: "gpu-a".into(),
        user: Some("li".into()),
        port: Some(9435),
        options: vec!["-J".into(), "gate".into()],
    };
    assert_eq!(there(Some(&at), "true x"), "ssh -p 9435 -J gate li@gpu-a 'true x'");
    assert_eq!(there(None, "true x"), "true x");
}

#[test]
fn a_secret_is_named_and_not_shown() {
    let plan = plan(JobKind::Plain, &[("a", 1)], &["true"], &[("TOKEN", MASK), ("A", "1")]);
    let lines = by_hand(&plan, by_ssh);
    assert_eq!(lines[1], "  ssh a 'cd / && env A=1 RANK=0 MASTER_PORT=29500 true'");
    assert_eq!(lines.last().unwrap(), "  (without the secret variables: TOKEN)");
}

#[test]
fn torch_is_told_by_torchrun_too() {
    let torch = |hosts: &[(&str, u32)], command: &[&str], change: &dyn Fn(&mut RunOptions)| {
        let mut plan = plan(JobKind::Torch, hosts, command, &[("A", "1")]);
        change(&mut plan.spec.options);
        let lines = by_hand(&plan, by_ssh);
        let at = lines.iter().position(|line| line == "and by torchrun:");
        at.map_or_else(Vec::new, |at| lines[at + 1..at + 1 + hosts.len()].to_vec())
    };
    let nothing = |_: &mut RunOptions| {};
    assert_eq!(
        torch(&[("a", 2), ("b", 1)], &["python3", "train.py", "--lr", "1"], &|options| options
            .max_restarts = 3),
        [
            "  ssh a 'cd / && env A=1 torchrun --nproc_per_node=2 --nnodes=2 --node_rank=0 --master_addr=10.0.0.1 \
             --master_port=29500 --max_restarts=3 train.py --lr 1'",
            "  ssh b 'cd / && env A=1 torchrun --nproc_per_node=1 --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 \
             --master_port=29500 --max_restarts=3 train.py --lr 1'",
        ]
    );
    let here = |command: &[&str], change: &dyn Fn(&mut RunOptions)| torch(&[("here", 2)], command, change);
    let line = |words: &str| vec![format!("  cd / && env A=1 {words}")];
    assert_eq!(here(&["python", "-m", "m"], &nothing), line("torchrun --nproc_per_node=2 --standalone -m m"));
    let script = here(&["python", "-u", "x.py"], &nothing);
    assert_eq!(
        script,
        line("torchrun --nproc_per_node=2 --standalone x.py"),
        "unbuffered is torchrun's own way"
    );
    let program = here(&["./train"], &nothing);
    assert_eq!(program, line("torchrun --nproc_per_node=2 --standalone --no_python ./train"));
    let old = |options: &mut RunOptions| {
        options.local_rank_arg = Some(LocalRankArg { at: 2, option: "--local_rank".into() });
    };
    assert_eq!(
        here(&["python", "x.py"], &old),
        line("python -m torch.distributed.launch --nproc_per_node=2 --standalone x.py")
    );
    let own: Vec<String> = here(&["python", "x.py"], &|options| options.gpu_view = GpuView::Own);
    assert!(own.is_empty(), "torchrun shows every rank all GPUs");
}

#[test]
fn horovod_is_one_line_and_hvtuis_own_jobs_are_none() {
    let mut plan =
        plan(JobKind::Horovod, &[("a", 2), ("b", 2)], &["python", "x.py"], &[("HOROVOD_TIMELINE", "t")]);
    plan.spec.options.interface = Some("eth0".into());
    plan.spec.options.start_timeout_s = Some(60);
    let lines = by_hand(&plan, |host| by_ssh(host).map(|at| Reach { port: Some(9435), ..at }));
    assert_eq!(
        lines,
        [
            "the same by hand:",
            "  cd / && env HOROVOD_TIMELINE=t horovodrun -np 4 -H a:2,b:2 -p 9435 --network-interface eth0 \
             --start-timeout 60 --gloo python x.py"
        ]
    );
    plan.spec.kind = JobKind::Mpi;
    plan.spec.options.mpi_args = ["--bind-to", "none"].map(str::to_owned).into();
    assert_eq!(
        by_hand(&plan, by_ssh)[1],
        "  cd / && env HOROVOD_TIMELINE=t mpirun -np 4 -H a:2,b:2 --bind-to none -x HOROVOD_TIMELINE python x.py"
    );
    plan.spec.env.clear();
    let bare = "  cd / && mpirun -np 4 -H a:2,b:2 --bind-to none python x.py";
    assert_eq!(by_hand(&plan, by_ssh)[1], bare, "no `env` without a variable");
    plan.spec.kind = JobKind::Native;
    assert!(by_hand(&plan, by_ssh).is_empty());
}

#[test]
fn of_slurm_it_is_the_line_of_srun() {
    let mut plan = plan(JobKind::Slurm, &[("here", 4)], &["python3", "e.py"], &[("A", "1"), ("TOKEN", MASK)]);
    plan.spec.options.mpi_args = ["-N2", "--ntasks-per-node=2"].map(str::to_owned).into();
    assert_eq!(
        by_hand(&plan, by_ssh),
        [
            "the same by hand:",
            "  cd / && env A=1 srun -N2 --ntasks-per-node=2 --ntasks=4 python3 e.py",
            "  (without RANK, WORLD_SIZE, MASTER_ADDR and the like, which hvtui sets from Slurm's variables)",
            "  (without the secret variables: TOKEN)"
        ]
    );
}

#[test]
fn what_no_command_by_hand_would_do_is_said() {
    let tensorflow = plan(JobKind::Tensorflow, &[("here", 2)], &["python3", "tf.py"], &[]);
    let ports = "(not told as commands by hand: TF_CONFIG names ports that are free on the hosts, which are known at the start alone)";
    assert_eq!(by_hand(&tensorflow, by_ssh), [ports]);
    for kind in [JobKind::Plain, JobKind::Torch, JobKind::Mpi] {
        let mut plan = plan(kind, &[("here", 2)], &["python3", "m.py"], &[]);
        assert!(by_hand(&plan, by_ssh).len() > 1, "{kind:?}");
        plan.spec.options.container = Some(ContainerOptions::of("x:1"));
        let containers = "(not told as commands by hand: hvtui starts each rank in a container of its own)";
        assert_eq!(by_hand(&plan, by_ssh), [containers], "{kind:?}");
    }
}
