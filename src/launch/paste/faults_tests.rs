//! Lines that are refused, each with what the caret stands under; and that no line makes it panic or lose a word.

use proptest::prelude::*;

use super::fixtures::*;
use super::*;

#[test]
fn each_fault_is_shown_at_its_place() {
    for (line, says, place) in [
        ("horovodrun -np 2 -H a:1 b:1 python x.py", "no space: -H a:1,b:1", "b:1"),
        ("horovodrun -np 2 -H a:1, b:1 python x.py", "no space: -H a:1", "a:1,"),
        ("horovodrun -np 2 -H 'a:1 b:1' python x.py", "no space: -H a:1,b:1", "a:1 b:1"),
        ("mpirun -np 3 -H a:1 b:1,c:1 python x.py", "no space: -H a:1,b:1,c:1", "b:1,c:1"),
        ("horovodrun -np 4 -H a:1,b:1 python x.py", "4 ranks do not fit the 2 slots of `-H`", "-np 4"),
        ("mpirun -n 4 -H a,a,b:1 python x.py", "4 ranks do not fit the 3 slots", "-n 4"),
        ("horovodrun -np 0 python x.py", "`-np 0` starts nothing", "-np 0"),
        ("mpirun -np two python x.py", "`two` is not a number of ranks", "two"),
        ("mpirun -np 2 -n 3 python x.py", "given twice with different values", "-n 3"),
        ("mpirun -np 2", "no command to run", ""),
        ("horovodrun -np 2 -H a:2", "no command to run", ""),
        ("torchrun --nproc-per-node 2", "no command to run", ""),
        ("A=1", "no command to run", ""),
        ("mpirun -np", "`-np` of mpirun needs a value", ""),
        ("horovodrun -np -H a:1 python x.py", "`-np` of horovodrun needs a value", "-H"),
        ("mpirun -mca btl -np 2 python x.py", "`-mca` of mpirun needs more values", "-np"),
        ("horovodrun --verbose=1 -np 1 python x.py", "`--verbose` takes no value", "--verbose=1"),
        ("horovodrun -np 1 -H a:1 -hostfile f python x.py", "`-H` and a host file together", "-hostfile f"),
        ("horovodrun -np 1 -H a:1 -H b:1 python x.py", "`-H` is given twice", "-H a:1 -H b:1"),
        ("horovodrun -np 1 -H a:0 python x.py", "has 0 slots", "a:0"),
        ("horovodrun -np 1 -H b:1,a:x python x.py", "has slots that are no number", "a:x"),
        ("mpirun -np 1 -H fe80::1:2 python x.py", "write it in brackets", "fe80::1:2"),
        ("mpirun -np 1 -H b,@a python x.py", "has a user that is no name", "@a"),
        ("mpirun -np 1 -H b,a/c:1 python x.py", "has no valid host name", "a/c:1"),
        ("horovodrun -np 1 -p 70000 python x.py", "is not a port from 1 to 65535", "70000"),
        ("horovodrun -np 1 --fusion-threshold-mb 1.5 python x.py", "not a whole number of MiB", "1.5"),
        ("horovodrun -np 1 --cycle-time-ms x python x.py", "not a number from 0 on", "x"),
        ("horovodrun -np 1 --cache-capacity -1 python x.py", "not a whole number", "-1"),
        ("horovodrun -np 1 --log-level loud python x.py", "takes one of TRACE", "loud"),
        ("horovodrun -np 1 --network-interface 'eth0, eth1' python x.py", "without spaces", "'eth0, eth1'"),
        ("horovodrun -np 1 --gloo --mpi python x.py", "`--gloo` and MPI together", "--mpi"),
        ("horovodrun –np 2 python x.py", "is not the `-` that options begin with", "–"),
        (
            "mpirun -mca btl_tcp_if_include eth0 -np 2 --mca btl_tcp_if_exclude lo python x.py",
            "`btl_tcp_if_include` and `btl_tcp_if_exclude` together",
            "--mca btl_tcp_if_exclude lo",
        ),
        ("mpirun -np 2 -mca plm_rsh_args '-p x' python x.py", "`x` is not a port", "'-p x'"),
        ("mpirun -np 2 -x =1 python x.py", "NAME=VALUE", "=1"),
        ("torchrun --nnodes 2:1 x.py", "a number of hosts, or LEAST:MOST", "2:1"),
        ("torchrun --nproc-per-node=some x.py", "takes a number of ranks, `gpu`", "some"),
        ("torchrun --rdzv-endpoint fe80::1:29400 x.py", "takes host:port", "fe80::1:29400"),
        ("srun -n 2 -w 'a, b' python x.py", "join the hosts with commas", "'a, b'"),
        ("docker run --gpus all", "no image", ""),
        ("docker run -v ./:/w -w /w img ./a", "--sync ./:~/x copies the folder there first", "./:/w"),
        ("docker run --volume ../d:/w img ./a", "such as --volume ~/x:/w", "../d:/w"),
        ("docker run img horovodrun -np 2 -H a:1 b:1 python x.py", "no space: -H a:1,b:1", "b:1"),
        ("watch -n x nvidia-smi", "is not a number of seconds", "x"),
        ("ssh-copy-id -p 22", "no host", ""),
    ] {
        let (text, at) = fault(line);
        assert!(text.contains(says), "{line}: {text}");
        assert_eq!(at, place, "{line}: {text}");
    }
}

#[test]
fn each_fault_of_tf_config_is_shown_at_its_place() {
    let task = r#""task": {"type": "worker", "index": 0}"#;
    for (json, says, place) in [
        (r#"{"cluster": {"worker": ["a:1",]}}"#.to_owned(), "not valid JSON", "]"),
        (r#"{"cluster": {"worker": ["a:1"]}"#.to_owned(), "not valid JSON", "}"),
        (r"{'cluster': 1}".to_owned(), "not valid JSON", "'"),
        ("{}".to_owned(), "it names no cluster", "{}"),
        (format!(r#"{{"cluster": {{"worker": []}}, {task}}}"#), "its cluster has no tasks", ""),
        (r#"{"cluster": {"wroker": ["a:1"]}}"#.to_owned(), "`wroker` is no type of a task", "\"wroker\""),
        (r#"{"cluster": {"worker": "a:1"}}"#.to_owned(), "must be a list", "\"worker\""),
        (r#"{"cluster": {"chief": ["a:1", "b:1"]}}"#.to_owned(), "at most one chief", "\"chief\""),
        (r#"{"cluster": {"worker": ["a"]}}"#.to_owned(), "must be \"host:port\"", "\"a\""),
        (r#"{"cluster": {"worker": ["a:1", "a:1"]}}"#.to_owned(), "the same address", "\"a:1\""),
        (
            r#"{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}"#.to_owned(),
            "index 2 is outside of the cluster: its workers are 0 to 1",
            "\"index\"",
        ),
        (
            r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "boss", "index": 0}}"#.to_owned(),
            "`boss` is no type of a task",
            "\"boss\"",
        ),
        (
            r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}"#.to_owned(),
            "the cluster has none",
            "\"ps\"",
        ),
    ] {
        let line = format!("TF_CONFIG={} python w.py", quote(&json));
        let (text, at) = fault(&line);
        assert!(text.starts_with("TF_CONFIG: ") && text.contains(says), "{line}: {text}");
        if json.contains('\'') {
            continue;
        }
        if place.is_empty() {
            assert!(at.contains(&json), "{line}: {at}");
        } else {
            assert!(at == place || at.trim_matches('\'').ends_with(place), "{line}: {at}");
        }
    }
}

#[test]
fn an_error_is_read_with_its_line() {
    let error = read_text("horovodrun -np 2 -H a:1 b:1 python x.py").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`-H` takes one list: join the hosts with commas and no space: -H a:1,b:1\n  \
         horovodrun -np 2 -H a:1 b:1 python x.py\n                          ^^^"
    );
}

/// Options with a value, each as people write it, and a value that it takes; `#` becomes a number of its own.
fn options(launcher: &str) -> Vec<&'static str> {
    match launcher {
        "horovodrun" => vec![
            "--start-timeout #",
            "--network-interface eth#",
            "--output-filename out#",
            "--config-file c#.yaml",
            "-i key#",
            "--cache-capacity #",
            "--autotune-log-file log#",
            "--timeline-filename t#.json",
            "--min-np #",
            "--blacklist-cooldown-range # #",
            "--num-nccl-streams #",
            "--hostfile hosts#",
            "--disable-cache",
            "--verbose",
            "--tcp",
            "--mpi-args=--report-bindings",
            "--reset-limit=#",
        ],
        "mpirun" => vec![
            "-x K#",
            "-x K#=v#",
            "-mca k# v#",
            "--bind-to core#",
            "--map-by node#",
            "-N #",
            "-wdir /w#",
            "--display d#",
            "--prefix /p#",
            "-genv G# v#",
            "--output-filename out#",
            "--timestamp-output",
            "--rankfile r#",
            "--report-bindings",
            "--mca btl_tcp_if_include 10.0.#.0/24",
            "--unknown-thing=u#",
            "-hostfile h#",
            "--output tag,dir=d#",
            "-gpu-mask=#",
        ],
        "torchrun" => vec![
            "--rdzv_id job#",
            "--rdzv-conf k#=v",
            "--role r#",
            "--log_dir=l#",
            "-t #",
            "--redirects #",
            "--max-restarts #",
            "--monitor-interval #",
            "--start-method s#",
            "--local-addr 10.0.0.#",
            "--node_rank #",
            "--master-addr m#",
            "--numa-binding n#",
            "--standalone",
            "--local_ranks_filter #",
        ],
        "srun" => vec![
            "-p part#",
            "--gres=gpu:#",
            "-A acc#",
            "-t #:00",
            "--mem #G",
            "-w node#",
            "-J job#",
            "--cpus-per-task=#",
            "-l",
            "--nodelist n[#-9]",
            "--export=ALL,K#=v#",
            "-o out#",
            "-D /d#",
            "--mpi=pmi#",
            "--exclusive",
            "-c#",
        ],
        _ => vec![
            "-v /v#:/w",
            "--gpus device=#",
            "-e E#=v#",
            "-w /w#",
            "--network n#",
            "-u u#",
            "--name n#",
            "--shm-size #g",
            "--rm",
            "--ulimit memlock=#",
            "--unknown-thing=u#",
            "-it",
            "-p #:22",
        ],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(line in "(horovodrun|mpirun|torchrun|srun|docker run|python -m torch.distributed.launch|TF_CONFIG=.|watch|env|ssh-copy-id) [-a-z0-9 :,=\"'\\\\{}é–_@\\[\\]]{0,60}") {
        if let Err(error) = read_text(&line) {
            prop_assert_eq!(error.to_string().lines().count(), 3);
        }
    }

    /// Each value of a line is found again in what was read, beside the line itself: none is dropped in silence.
    #[test]
    fn no_word_is_lost(
        launcher in proptest::sample::select(vec!["horovodrun", "mpirun", "torchrun", "srun", "docker run"]),
        picks in proptest::collection::vec(proptest::sample::Index::arbitrary(), 0..6),
    ) {
        let all = options(launcher);
        let mut chosen: Vec<&str> = picks.iter().map(|pick| *pick.get(&all)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let mut values = Vec::new();
        let mut line = launcher.to_owned();
        for option in chosen {
            line.push(' ');
            for (piece, part) in option.split('#').enumerate() {
                if piece > 0 {
                    let number = (700 + values.len()).to_string();
                    line.push_str(&number);
                    values.push(number);
                }
                line.push_str(part);
            }
        }
        line.push_str(" prog811 --arg812 -np 813");
        match read_text(&line) {
            // Some options exclude each other; such a line is refused as a whole.
            Err(error) => {
                let refused = ["together", "given twice"].iter().any(|text| error.text.contains(text));
                prop_assert!(refused, "{}", error);
            }
            Ok(None) => prop_assert!(false, "not known: {}", line),
            Ok(Some(mut read)) => {
                read.argv.clear();
                let said = format!("{read:?}");
                for value in values.iter().map(String::as_str).chain(["prog811", "--arg812", "813"]) {
                    prop_assert!(said.contains(value), "{} is lost: {}\n{:#?}", value, line, read);
                }
            }
        }
    }
}
