//! Processes of this user's that what started them has left behind: a launcher that is gone, which was not hvtui.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::super::LONGEST;
use crate::domain::doctor::Verdict;
use crate::domain::host::HostSample;
use crate::procs::marks::{self, Marks};
use crate::procs::table::{self, Process};
use crate::procs::{memory, status};

/// Processes that are told.
const MOST: usize = 32;
/// Programs that start ranks and wait for them, and modules of Python's that are such.
const LAUNCHERS: [&str; 9] = [
    "torchrun",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "horovodrun",
    "accelerate",
    "deepspeed",
];
const MODULES: [&str; 4] =
    ["torch.distributed.", "horovod.runner", "accelerate.commands.", "deepspeed.launcher."];
/// The first words of a command, in which its program stands.
const WORDS: usize = 3;
/// What process 1 starts itself comes within so long, ticks: 2 s.
const AT_ONCE: u64 = 200;

/// A process that nothing waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Orphan {
    pid: u32,
    /// When it started, ticks since the boot.
    start: u64,
    /// Its program.
    name: String,
    /// Whether it is a Python that a launcher has marked as its rank. One that is not counts where it holds memory of a GPU.
    is_rank: bool,
}

/// Those of this host.
pub(super) fn look() -> Vec<Orphan> {
    // a command that ends one goes by other pids than those that are seen here
    if status::has_foreign_pids() {
        return Vec::new();
    }
    let all = table::all();
    let by_pid: BTreeMap<u32, &Process> = all.iter().map(|process| (process.pid, process)).collect();
    let (own, uid) = (table::ancestors(&all, std::process::id()), rustix::process::getuid().as_raw());
    let groups = |pid| status::cgroups(pid).unwrap_or_default();
    let own_groups = groups(std::process::id());
    let is_one = |process: &&Process| {
        has_lost_parent(process, by_pid.get(&process.stat.parent).copied())
            && !own.contains(&process.pid)
            && status::real_uid(process.pid).is_ok_and(|of| of == Some(uid))
            && !is_kept(&groups(process.pid), &own_groups)
    };
    let left: Vec<Process> = all.iter().filter(is_one).cloned().collect();
    // in a container it may be process 1
    if left.is_empty() || is_launcher(&words(1)) {
        return Vec::new();
    }
    let found = marks::of_no_run(left).into_iter();
    found
        .filter_map(|(process, marks)| {
            let words = words(process.pid);
            let is_left = !has_living_leader(&process, |pid| by_pid.contains_key(&pid));
            orphan(process, Marks { of_launcher: marks.of_launcher && is_left, ..marks }, &words)
        })
        .collect()
}

/// `None` of a launcher, and of a program of a desktop.
fn orphan(process: Process, marks: Marks, words: &[String]) -> Option<Orphan> {
    let Process { pid, stat } = process;
    let is_python = is_python(&stat.name, words);
    let counts = !is_launcher(words) && (is_python || !marks.has_display);
    let is_rank = marks.of_launcher && is_python;
    counts.then_some(Orphan { pid, start: stat.start, name: stat.name, is_rank })
}

/// Whether process 1 or the user's service manager has got it from a parent that has ended, and it has no terminal.
fn has_lost_parent(process: &Process, parent: Option<&Process>) -> bool {
    if process.stat.terminal {
        return false;
    }
    match parent {
        // what a script that is process 1 has started itself is in its session, and what a small init starts in another one comes at once
        Some(first) if first.pid == 1 => {
            first.stat.session != process.stat.session
                && process.stat.start > first.stat.start.saturating_add(AT_ONCE)
        }
        Some(parent) => parent.stat.name == "systemd",
        // it is hidden from other users
        None => process.stat.parent == 1,
    }
}

/// Whether another process that leads its session lives: what a rank has started has the rank's marks, and goes on beside it.
fn has_living_leader(process: &Process, lives: impl Fn(u32) -> bool) -> bool {
    let leader = process.stat.session;
    leader != 1 && leader != process.pid && lives(leader)
}

/// Whether a service manager or a desktop has started it to go on: it is in a control group of that, and this process is not.
fn is_kept(groups: &str, own: &str) -> bool {
    let is_unit = |part: &str| {
        let kind = part.rsplit_once('.').map(|(_, kind)| kind);
        kind == Some("service") && !part.starts_with("user@")
            // in the slice of a terminal is what a person has started there
            || part.starts_with("app-") && kind != Some("slice")
    };
    let is_of_one = |group: &&str| group.split('/').any(is_unit);
    groups.lines().filter(is_of_one).any(|group| own.lines().all(|own| own != group))
}

/// The words with which a process was started; none of one that is gone or hangs.
fn words(pid: u32) -> Vec<String> {
    let line = memory::command_line(pid).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_launcher(words: &[String]) -> bool {
    let names = words.iter().filter(|word| !word.starts_with('-')).take(WORDS);
    { names }
        .any(|word| LAUNCHERS.contains(&base(word)) || MODULES.iter().any(|module| word.starts_with(module)))
}

/// Torch names the main thread of its ranks anew.
fn is_python(name: &str, words: &[String]) -> bool {
    let program = words.first().map_or("", |word| base(word));
    name.starts_with("python") || name.starts_with("pt_") || program.starts_with("python")
}

/// The verdict on a host with such processes; `None` where there are none that a run has to do with.
pub(super) fn judge(orphans: &[Orphan], sample: Option<&HostSample>) -> Option<Verdict> {
    let of_gpus = || {
        let gpus = sample.into_iter().flat_map(|sample| &sample.gpus);
        gpus.filter_map(|gpu| gpu.processes.value()).flatten()
    };
    let holds = |one: &&Orphan| {
        // a pid alone may be that of another namespace
        of_gpus().any(|process| process.pid == one.pid && process.start_ticks.value() == Some(&one.start))
    };
    let ranks: Vec<&Orphan> = orphans.iter().filter(|one| one.is_rank).take(MOST).collect();
    let others: Vec<&Orphan> = orphans.iter().filter(|one| !one.is_rank).filter(holds).take(MOST).collect();
    let pids = |all: &[&Orphan], between: &str| {
        all.iter().map(|one| one.pid.to_string()).collect::<Vec<_>>().join(between)
    };
    let told = |all: &[&Orphan]| {
        let names: BTreeSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        format!("({}): pid {}", names.join(", "), pids(all, " "))
    };
    if !ranks.is_empty() {
        let words = match ranks.len() {
            1 => "1 rank of no run has lost its launcher".to_owned(),
            count => format!("{count} ranks of no run have lost their launcher"),
        };
        let cause =
            "a torchrun or mpirun that is gone has left memory, ports and GPUs taken that the next run wants";
        let (command, count) = ending(&ranks);
        let rest = match ranks.len() - count {
            0 => String::new(),
            rest => format!(" (--fix ends the first {count}; {rest} remain for the next look)"),
        };
        let remedy = format!("kill {}{rest}", pids(&ranks, " "));
        let verdict = Verdict::look(format!("{words} {}", told(&ranks)), cause, remedy);
        return Some(verdict.fixed_there(command));
    }
    let words = match others.len() {
        0 => return None,
        1 => "1 process without parent and terminal holds memory of a GPU".to_owned(),
        count => format!("{count} processes without parent and terminal hold memory of a GPU"),
    };
    Some(Verdict::look(
        format!("{words} {}", told(&others)),
        "left by a program that has ended, or meant to go on (nohup): there is less memory for the next run: CUDA out of memory",
        format!(
            "ps -o pid,lstart,args -p {} there shows what it is; kill {} ends it",
            pids(&others, ","),
            pids(&others, " ")
        ),
    ))
}

/// The command that ends them where they are still the same, and how many of them it ends: until a person has agreed to it, a pid may be
/// another process's. What is too long is not offered.
fn ending(ranks: &[&Orphan]) -> (String, usize) {
    let all: Vec<String> = ranks.iter().map(|one| format!("{}:{}", one.pid, one.start)).collect();
    let command = |count: usize| {
        format!(
            "sh -c 'for one in {}; do set -- $(sed \"s/.*) //\" /proc/${{one%:*}}/stat 2>/dev/null); if [ \"${{20}}\" = \
             \"${{one#*:}}\" ]; then kill ${{one%:*}}; fi; done'",
            all[..count].join(" ")
        )
    };
    let fits = |count: &usize| command(*count).chars().count() <= LONGEST;
    let count = (1..=all.len()).take_while(fits).last().unwrap_or(all.len());
    (command(count), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::host_sample;
    use crate::domain::gpu::{GpuProcess, GpuSample, Reading};
    use crate::domain::preflight::Mark;
    use crate::procs::identity::Stat;

    fn process(pid: u32, parent: u32, (name, session, terminal): (&str, u32, bool)) -> Process {
        let (name, start) = (name.to_owned(), AT_ONCE * u64::from(pid));
        Process { pid, stat: Stat { name, state: 'S', parent, session, terminal, start } }
    }

    #[test]
    fn a_process_is_left_behind_where_process_one_has_got_it() {
        let init = process(1, 0, ("systemd", 1, false));
        let of_user = process(900, 1, ("systemd", 900, false));
        let shell = process(50, 1, ("bash", 50, false));
        let left = |parent: &Process, session, terminal| {
            has_lost_parent(&process(71, parent.pid, ("python3", session, terminal)), Some(parent))
        };
        assert!(left(&init, 71, false) && left(&of_user, 60, false));
        assert!(!left(&shell, 50, false), "what has started it lives");
        assert!(!left(&init, 71, true), "a person sees it");
        assert!(!left(&init, 1, false), "a script that is process 1 waits for it");
        let mut child = process(71, 1, ("python3", 71, false));
        child.stat.start = init.stat.start + AT_ONCE;
        assert!(!has_lost_parent(&child, Some(&init)), "a small init has started it itself");
        child.stat.start += 1;
        assert!(has_lost_parent(&child, Some(&init)));
        assert!(has_lost_parent(&process(71, 1, ("python3", 71, false)), None), "others are hidden");
        assert!(
            !has_lost_parent(&process(71, 0, ("python3", 71, false)), None),
            "from outside of a container"
        );
    }

    #[test]
    fn what_is_started_to_go_on_and_what_starts_ranks_is_passed_over() {
        let own = "0::/user.slice/user-1000.slice/session-3.scope\n";
        let kept = |groups: &str| is_kept(groups, own);
        assert!(kept("0::/system.slice/ollama.service\n"));
        assert!(kept(
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-77.scope\n"
        ));
        assert!(!kept(own) && !kept("0::/user.slice/user-1000.slice/session-9.scope\n") && !kept(""));
        for terminal in ["app.slice/vte-spawn-7.scope", "app-org.gnome.Terminal.slice/vte-spawn-7.scope"] {
            let group = format!("0::/user.slice/user-1000.slice/user@1000.service/{terminal}\n");
            assert!(!kept(&group), "{terminal}");
        }
        assert!(!is_kept("0::/system.slice/ssh.service\n", "0::/system.slice/ssh.service\n"), "as this one");
        let launches = |line: &str| is_launcher(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in [
            "/usr/bin/python3 -u /opt/conda/bin/torchrun --nproc-per-node 2 train.py",
            "python -m torch.distributed.run train.py",
            "mpirun -np 2 ./solver",
        ] {
            assert!(launches(line), "{line}");
        }
        for line in ["python3 -u train.py --backend nccl --by mpirun", "./solver", ""] {
            assert!(!launches(line), "{line}");
        }
        let python = |name: &str, program: &str| is_python(name, &[program.to_owned()]);
        assert!(python("python3.11", "") && python("pt_main_thread", "") && python("x", "/usr/bin/python3"));
        assert!(!python("solver", "./solver"));
    }

    #[test]
    fn a_python_with_a_launchers_own_mark_is_a_rank_and_a_program_of_a_desktop_is_passed_over() {
        let of = |name: &str, of_launcher, has_display| {
            let words = [name.to_owned(), "train.py".to_owned()];
            let found = orphan(process(71, 1, (name, 71, false)), Marks { of_launcher, has_display }, &words);
            found.map(|one| (one.pid, one.start, one.is_rank))
        };
        let start = AT_ONCE * 71;
        assert_eq!(of("python3", true, false), Some((71, start, true)));
        assert_eq!(of("python3", true, true), Some((71, start, true)), "over ssh -X");
        assert_eq!(of("python3", false, false), Some((71, start, false)), "RANK alone may be set by hand");
        assert_eq!(of("solver", true, false), Some((71, start, false)));
        assert_eq!((of("blender", false, true), of("torchrun", true, false)), (None, None));
    }

    #[test]
    fn what_a_rank_that_lives_has_started_has_not_lost_its_launcher() {
        let of = |session| {
            let one = process(71, 1, ("python3", session, false));
            has_living_leader(&one, |pid| [1, 60, 71].contains(&pid))
        };
        assert!(of(60), "the rank that leads its session lives");
        assert!(!of(61), "it is gone");
        assert!(!of(71) && !of(1));
    }

    #[test]
    fn of_many_ranks_the_command_ends_as_many_as_can_be_seen() {
        let all: Vec<Orphan> = (0..32)
            .map(|at| Orphan {
                pid: 4_000_000 + at,
                start: 123_456_789,
                name: "python3".into(),
                is_rank: true,
            })
            .collect();
        let verdict = judge(&all, None).unwrap();
        let command = verdict.help().unwrap();
        let count = command.matches(":123456789").count();
        assert!(count > 5 && count < MOST && command.chars().count() <= LONGEST, "{command}");
        let rest = format!(" (--fix ends the first {count}; {} remain for the next look)", MOST - count);
        let remedy = verdict.remedy.unwrap();
        assert!(remedy.contains("4000031") && remedy.ends_with(&rest), "{remedy}");
    }

    #[test]
    fn what_ends_a_rank_ends_no_other_process_that_has_its_pid_by_then() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let start = Stat::read(child.id()).unwrap().start;
        let mut end = |start| {
            let one = Orphan { pid: child.id(), start, name: "sleep".to_owned(), is_rank: true };
            let gone = Orphan { pid: 4_194_305, ..one.clone() };
            let ran = std::process::Command::new("sh").args(["-c", &ending(&[&one, &gone]).0]).status();
            assert!(ran.unwrap().success());
            // one that was signalled ends at once, and another one lives on
            (0..100).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                child.try_wait().unwrap()
            })
        };
        assert_eq!(end(start + 1), None);
        assert!(end(start).is_some_and(|ended| !ended.success()));
        child.wait().unwrap();
    }

    #[test]
    fn ranks_are_told_with_what_ends_them_and_others_where_they_hold_a_gpu() {
        let orphan = |pid, is_rank| Orphan { pid, start: 7, name: "python3".to_owned(), is_rank };
        let sample = |pid, start| HostSample {
            gpus: vec![GpuSample {
                processes: Reading::Value(vec![GpuProcess {
                    start_ticks: start,
                    ..GpuProcess::unknown(pid)
                }]),
                ..GpuSample::failed(0, "unknown")
            }],
            ..host_sample()
        };
        let ranks = judge(&[orphan(71, true), orphan(72, true), orphan(73, false)], None).unwrap();
        let words = "2 ranks of no run have lost their launcher (python3): pid 71 72";
        assert_eq!((ranks.mark, ranks.evidence.as_str()), (Mark::Look, words));
        assert_eq!(ranks.remedy.as_deref(), Some("kill 71 72"));
        assert!(ranks.help().unwrap().starts_with("sh -c 'for one in 71:7 72:7; do "), "{ranks:?}");
        let of = |process: HostSample| judge(&[orphan(73, false)], Some(&process));
        let held = of(sample(73, Reading::Value(7))).unwrap();
        let words = "1 process without parent and terminal holds memory of a GPU (python3): pid 73";
        assert_eq!((held.mark, held.evidence.as_str(), held.fix.is_none()), (Mark::Look, words, true));
        assert!(held.remedy.unwrap().ends_with("; kill 73 ends it"));
        assert_eq!(of(sample(73, Reading::Unsupported)), None, "its number may be of another namespace");
        assert_eq!(of(sample(73, Reading::Value(8))), None, "another one had its number");
        assert_eq!((of(sample(74, Reading::Value(7))), judge(&[orphan(73, false)], None)), (None, None));
    }
}
