//! Real PyTorch (Gloo, on CPUs) under the real binary: ranks on two ssh hosts meet, train alike, and end together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::common::built;
use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::common::processes::waited_for_processors;
use crate::python_hooks::{PYTHON, has_torch};
use serde_json::json;

/// In `tests/fixtures/torch`.
const SCRIPTS: [&str; 4] = ["ddp.py", "local_rank.py", "raises.py", "recorded.py"];
/// Seconds until no rank is left when one has failed.
const STOPPED_WITHIN: f64 = 2.0;

/// Two hosts with two GPUs each, and the scripts in their home folders; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        if !has_torch() {
            return None;
        }
        let library = built::example("libfake_nvml.so");
        let scripts = std::env::temp_dir().join(format!("hvtui-torch.{}", std::process::id()));
        std::fs::create_dir_all(&scripts).expect("a folder");
        for host in ["n1", "n2", "local"] {
            let gpus: Vec<_> = (0..4).map(|gpu| json!({ "uuid": uuid(host, gpu) })).collect();
            std::fs::write(scripts.join(format!("{host}.json")), json!({ "gpus": gpus }).to_string())
                .expect("a script");
        }
        let cluster = Cluster::ready(2, &["--fake-nvml".as_ref(), library.as_ref(), scripts.as_ref()])?;
        // `python` is what people type, and not every distribution has it
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/torch");
        let shared = cluster.dir().join("torch");
        std::fs::create_dir(&shared).expect("a folder");
        for script in SCRIPTS {
            std::fs::copy(format!("{from}/{script}"), shared.join(script)).expect(script);
        }
        for host in ["n1", "n2"] {
            let copied = format!(
                "cp {}/*.py ~ && mkdir ~/bin && ln -s {PYTHON} ~/bin/python && echo there",
                shared.display()
            );
            assert_eq!(cluster.on(host, &copied).trim(), "there");
        }
        Some(cluster)
    })
    .as_ref()
}

fn uuid(host: &str, gpu: usize) -> String {
    format!("GPU-{host}-{gpu:04}")
}

/// A person with two CPU slots a host, and the scripts at hand.
fn person(cluster: &Cluster) -> Client<'_> {
    let client = Client::new(cluster);
    let home = cluster.on("n1", "echo ~").trim().to_owned();
    let path = format!("[defaults]\nenv = {{ PATH = \"{home}/bin:/usr/local/bin:/usr/bin:/bin\" }}\n");
    client.write("hosts.toml", &cluster.hosts_toml(2).replace("[defaults]\n", &path));
    for script in SCRIPTS {
        std::fs::copy(cluster.dir().join("torch").join(script), client.path(script)).expect(script);
    }
    client
}

/// `env = …` of a hosts file: on the machine itself `python` is a link in this person's folder.
fn path_of(client: &Client<'_>) -> String {
    let bin = client.path("bin");
    std::fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(PYTHON, bin.join("python")).expect("a link");
    format!("env = {{ PATH = \"{}:/usr/local/bin:/usr/bin:/bin\" }}\n", bin.display())
}

/// What each rank said that begins with `rank N`, by rank; each rank says it once.
fn said(ended: &Ended) -> BTreeMap<u32, String> {
    assert_eq!(ended.code, 0, "{ended:#?}");
    let mut ranks = BTreeMap::new();
    for line in ended.out.lines() {
        let Some((_, text)) = line.split_once("] rank ") else { continue };
        let number: String = text.chars().take_while(char::is_ascii_digit).collect();
        let number = number.parse().expect("a rank");
        assert!(ranks.insert(number, text.to_owned()).is_none(), "rank {number} twice: {ended:#?}");
    }
    ranks
}

/// The value of `name=…` in a line.
fn value<'a>(line: &'a str, name: &str) -> &'a str {
    let words = line.split_whitespace();
    let found = words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name);
    found.unwrap_or_else(|| panic!("no {name} in {line}")).1
}

/// Trains on that many ranks of each host, and checks what each rank was told and what it learned.
fn trains(place: &[&str], hosts: &[u32], command: &[&str]) {
    let Some(cluster) = two() else { return };
    let client = person(cluster);
    let ended = client.run(&[&["run"], place, &["--"], command].concat());
    let ranks = said(&ended);
    let world: u32 = hosts.iter().sum();
    assert_eq!(ranks.keys().copied().collect::<Vec<_>>(), (0..world).collect::<Vec<_>>(), "{ended:#?}");
    let places =
        hosts.iter().enumerate().flat_map(|(node, count)| (0..*count).map(move |local| (node, local)));
    for ((node, local), line) in places.zip(ranks.values()) {
        let node_text = node.to_string();
        for (name, wanted) in [
            ("LOCAL_RANK", local.to_string()),
            ("LOCAL_WORLD_SIZE", hosts[node].to_string()),
            ("GROUP_RANK", node_text.clone()),
            ("NODE_RANK", node_text),
            ("GROUP_WORLD_SIZE", hosts.len().to_string()),
            ("sum", (world * (world - 1) / 2).to_string()),
        ] {
            assert_eq!(value(line, name), wanted, "{name} of {line}");
        }
    }
    let alike = |name: &str| ranks.values().map(|line| value(line, name)).collect::<BTreeSet<_>>().len();
    for name in ["loss", "weights", "TORCHELASTIC_RUN_ID"] {
        assert_eq!(alike(name), 1, "{name}: {ended:#?}");
    }
}

const DDP: [&str; 2] = ["python", "ddp.py"];

#[test]
fn two_hosts_with_one_rank_each_train_alike() {
    trains(&["--kind", "torch", "-H", "n1:1,n2:1"], &[1, 1], &DDP);
}

#[test]
fn two_hosts_with_two_ranks_each_train_alike() {
    trains(&["--kind", "torch", "-H", "n1:2,n2:2"], &[2, 2], &DDP);
}

#[test]
fn uneven_hosts_train_alike() {
    trains(&["--kind", "torch", "-H", "n1:2,n2:1"], &[2, 1], &DDP);
}

#[test]
fn a_pasted_torchrun_starts_its_ranks_once() {
    trains(&[], &[2], &["torchrun", "--nproc_per_node=2", "ddp.py"]);
    trains(&[], &[2, 2], &["torchrun", "--nnodes=2", "--nproc-per-node=2", "--standalone", "ddp.py"]);
}

#[test]
fn torchrun_itself_starts_the_ranks_where_that_is_wanted() {
    let Some(cluster) = two() else { return };
    let client = person(cluster);
    trains(&["--delegate", "--kind", "torch", "-H", "n1:2,n2:2"], &[2, 2], &DDP);
    let pasted = ["python", "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", "ddp.py"];
    trains(&["--delegate"], &[1, 1], &pasted);
    let uneven =
        client.run(&["run", "--delegate", "--kind", "torch", "-H", "n1:2,n2:1", "--", "python", "x"]);
    assert_eq!(uneven.code, 64, "{uneven:#?}");
    assert!(uneven.err.contains("n1 has 2 and n2 has 1"), "{uneven:#?}");
    let raises = ["python", "raises.py", "sleep", "2"];
    let ended = client
        .run(&[&["run", "--delegate", "--kind", "torch", "-H", "n1:2,n2:2", "--"], &raises[..]].concat());
    assert!(ended.err.contains("rank 2 (n2:0) failed first: exit 1"), "{ended:#?}");
}

#[test]
fn what_a_launcher_starts_on_each_host_sees_the_gpus_of_the_run_there() {
    let Some(cluster) = two() else { return };
    let client = person(cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2).replace("slots = 2\n", ""));
    let line =
        ["--delegate", "--", "mpirun", "-np", "4", "-H", "n1:2,n2:2", "--allow-run-as-root", "sh", "-c"];
    let ended = client.run(
        &[&["run"], &line[..], &["echo rank $OMPI_COMM_WORLD_RANK sees $CUDA_VISIBLE_DEVICES"]].concat(),
    );
    let both = |host: &str| format!("{},{}", uuid(host, 0), uuid(host, 1));
    let wanted = [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]
        .map(|(rank, host)| format!("{rank} sees {}", both(host)));
    assert_eq!(said(&ended).into_values().collect::<Vec<_>>(), wanted, "{ended:#?}");
}

#[test]
fn a_pasted_launch_gives_an_old_script_its_local_rank() {
    let Some(cluster) = two() else { return };
    let client = person(cluster);
    let line = [
        "python",
        "-m",
        "torch.distributed.launch",
        "--nproc_per_node",
        "2",
        "local_rank.py",
        "--epochs",
        "3",
    ];
    let ended = client.run(&[&["run", "--"], &line[..]].concat());
    let wanted = [0, 1].map(|rank| format!("{rank}: local {rank} epochs 3 sum 1 gpus "));
    assert_eq!(said(&ended).into_values().collect::<Vec<_>>(), wanted, "{ended:#?}");
}

/// What each rank of a pasted line with this mask says on a machine with four GPUs, with these options of hvtui.
fn seen(options: &[&str], mask: &str, ranks: &str) -> Option<BTreeMap<u32, String>> {
    let cluster = two()?;
    let client = person(cluster);
    client.write(
        "hosts.toml",
        &format!("[[host]]\nname = \"here\"\naddress = \"local\"\n{}", path_of(&client)),
    );
    let mask = format!("CUDA_VISIBLE_DEVICES={mask}");
    let line =
        [&mask, "python", "-m", "torch.distributed.launch", "--nproc_per_node", ranks, "local_rank.py"];
    Some(said(&client.run(&[&["run"], options, &["--"], &line[..]].concat())))
}

/// `0: local 0 …` for each of these: a rank's number, its `--local_rank`, the GPUs that it sees.
fn wanted(world: u32, ranks: &[(u32, u32, &[usize])]) -> Vec<String> {
    let line = |(rank, local, gpus): &(u32, u32, &[usize])| {
        let gpus: Vec<String> = gpus.iter().map(|gpu| uuid("local", *gpu)).collect();
        let sum = world * (world - 1) / 2;
        format!("{rank}: local {local} epochs 1 sum {sum} gpus {}", gpus.join(","))
    };
    ranks.iter().map(line).collect()
}

#[test]
fn a_pasted_mask_shows_every_rank_all_its_gpus_in_the_order_of_local_ranks() {
    let Some(all) = seen(&[], "2,1", "2") else { return };
    let expected = wanted(2, &[(0, 0, &[2, 1]), (1, 1, &[2, 1])]);
    assert_eq!(all.into_values().collect::<Vec<_>>(), expected);
    let own = seen(&["--gpu-view", "own"], "2,1", "2").expect("the same hosts");
    assert_eq!(own.into_values().collect::<Vec<_>>(), wanted(2, &[(0, 0, &[2]), (1, 0, &[1])]));
    let both = seen(&["--gpus-per-rank", "2"], "3,0,2,1", "2").expect("the same hosts");
    assert_eq!(both.into_values().collect::<Vec<_>>(), wanted(2, &[(0, 0, &[3, 0]), (1, 0, &[2, 1])]));
}

#[expect(clippy::disallowed_methods, reason = "the script tells the time of its end by the same clock")]
fn raises(how: &str, world: u32, place: &str, which: u32, root: &str) {
    let Some(cluster) = two() else { return };
    let client = person(cluster);
    let rank = which.to_string();
    let line = ["run", "--kind", "torch", "-H", place, "--", "python", "raises.py", how, &rank];
    let ended = client.run(&line);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs_f64();
    assert_eq!(ended.code, 1, "{ended:#?}");
    let raised = ended.out.split("raised at ").nth(1).expect("the time").lines().next().expect("a line");
    let (raised, waited) = raised.split_once(' ').expect("a time and what was waited until then");
    let took = now - raised.parse::<f64>().expect("seconds");
    let waited = waited_for_processors() - waited.trim().parse::<u64>().expect("microseconds");
    let waited = waited as f64 / 1e6;
    assert!(took - waited < STOPPED_WITHIN, "{took} s, {waited} s of them without a processor: {ended:#?}");
    for host in ["n1", "n2"] {
        let left =
            cluster.on(host, "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null");
        let ours: Vec<&str> =
            left.lines().filter(|line| line.contains(&format!("raises.py {how} {rank}"))).collect();
        assert!(ours.is_empty(), "{host}: {ours:?}");
    }
    let (_, end) = ended.err.split_once("failed first").unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(
        ended.err.contains(&format!("rank {which} ({root}:")) && ended.err.contains(") failed first: exit 1"),
        "{ended:#?}"
    );
    assert!(end.contains("ValueError: batch 7 has no labels"), "{ended:#?}");
    assert!(world > which);
}

#[test]
fn a_rank_that_raises_stops_those_that_sleep_and_is_named_with_its_reason() {
    raises("sleep", 3, "n1:2,n2:1", 2, "n2");
}

#[test]
fn what_torchs_record_writes_of_a_failure_is_its_cause() {
    let Some(cluster) = two() else { return };
    let client = person(cluster);
    let line = ["--kind", "torch", "--gpus", "n1:0;n2:0", "--", "python", "recorded.py"];
    let ended = client.run(&[&["run"], &line[..]].concat());
    let said = "rank 1 (n2:0) failed first: exit 1, ValueError: batch 7 has no labels";
    assert!(ended.code == 1 && ended.err.contains(said), "{ended:#?}");
}

#[test]
fn a_rank_that_raises_stops_those_in_a_barrier_and_is_named_with_its_reason() {
    raises("barrier", 4, "n1:2,n2:2", 1, "n1");
}
