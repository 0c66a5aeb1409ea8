//! Ranks that start processes of their own which train (`mp.spawn`): each of those belongs to the rank that has started it, is
//! where that is, and has the number that it has in its training.

use std::sync::OnceLock;

use crate::common::client::{Client, Ended};
use crate::common::cluster::Cluster;
use crate::python_hooks::{PYTHON, has_torch};

/// Two hosts with the script in their home folders; they end with this process.
fn two() -> Option<&'static Cluster> {
    static TWO: OnceLock<Option<Cluster>> = OnceLock::new();
    TWO.get_or_init(|| {
        let cluster = has_torch().then(|| Cluster::ready(2, &[]))??;
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hooks/spawned.py");
        let shared = cluster.dir().join("spawned.py");
        std::fs::copy(from, &shared).expect("the script");
        for host in ["n1", "n2"] {
            assert_eq!(cluster.on(host, &format!("cp {} ~ && echo there", shared.display())).trim(), "there");
        }
        Some(cluster)
    })
    .as_ref()
}

/// Trains on both hosts by a line of the shell.
fn train(client: &Client<'_>, line: &str) -> Ended {
    let line = format!("exec {PYTHON} spawned.py {line}");
    let ended = client.run(&["run", "--gpus", "n1:0;n2:0", "--", "sh", "-c", &line]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    // what Python leaves for a moment is none of the person's
    assert!(!ended.err.contains("left in the background"), "{ended:#?}");
    ended
}

/// The first two columns, and the fourth, of the rows of the last table.
fn rows(ended: &Ended) -> Vec<[String; 3]> {
    let rows = ended.err.lines().skip_while(|line| !line.starts_with("hvtui: RANK ")).skip(1);
    let rows = rows.map(|line| line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>());
    let rows = rows.take_while(|cells| cells.get(2).is_some_and(|steps| steps == "60"));
    rows.map(|cells| [0, 1, 3].map(|at| cells[at].clone())).collect()
}

fn places(rows: &[[String; 3]]) -> Vec<(&str, &str)> {
    rows.iter().map(|[rank, place, _]| (&**rank, &**place)).collect()
}

fn report(client: &Client<'_>) -> serde_json::Value {
    let report = client.run(&["report", "last", "--json"]);
    assert_eq!(report.code, 0, "{report:#?}");
    serde_json::from_str(&report.out).expect("JSON")
}

/// Of each rank of a report its number, place and end.
fn reported(report: &serde_json::Value) -> Vec<(u64, &str, &str)> {
    let ranks = report["ranks"].as_array().expect("ranks");
    ranks
        .iter()
        .map(|rank| {
            let text = |name: &str| rank[name].as_str().unwrap_or_default();
            (rank["rank"].as_u64().expect("a number"), text("place"), text("exit"))
        })
        .collect()
}

#[test]
fn the_processes_of_one_training_over_hosts_are_where_they_run_everywhere() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2));
    let ended = train(&client, "$((RANK * 2)) tcp://$MASTER_ADDR:23456 4 1 10 0");
    let all = rows(&ended);
    assert_eq!(places(&all), [("0", "n1:0"), ("1", "n1:0"), ("2", "n2:0"), ("3", "n2:0")], "{ended:#?}");
    // on a busy machine another one may be late for a while, too
    let mut stragglers = ended.err.lines().filter(|line| line.contains(" is a straggler"));
    assert!(stragglers.any(|line| line.contains(": rank 1 (n1:0) is")), "{ended:#?}");
    let json = report(&client);
    let exit = "exit 0";
    assert_eq!(
        reported(&json),
        [(0, "n1:0", exit), (1, "n1:0", exit), (2, "n2:0", exit), (3, "n2:0", exit)],
        "{json:#}"
    );
    let text = client.run(&["report", "last"]);
    assert!(text.out.contains("  1. rank 1 (n1:0) is late "), "{text:#?}");
    // all steps are in the exports, each with its rank, its own number and its host
    let csv = client.run(&["export", "last", "--to", "csv"]);
    let mut lines = csv.out.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let at = |name: &str| head.iter().position(|head| *head == name).expect("a column");
    let mut counts = std::collections::BTreeMap::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        *counts.entry((cells[at("rank")], cells[at("worker")], cells[at("host")])).or_insert(0) += 1;
    }
    let of = [("0", "", "n1"), ("0", "1", "n1"), ("1", "2", "n2"), ("1", "3", "n2")].map(|who| (who, 60));
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), of, "{csv:#?}");
    let chosen = client.run(&["export", "last", "--to", "jsonl", "--ranks", "3"]);
    let steps = chosen.out.lines().filter(|line| line.starts_with(r#"{"type":"step""#));
    let steps: Vec<&str> = steps.collect();
    let is_third = |line: &&str| line.contains(r#""rank":1,"host":"n2""#) && line.contains(r#""worker":3"#);
    assert!(steps.len() == 60 && steps.iter().all(is_third), "{chosen:#?}");
}

#[test]
fn the_same_number_in_two_trainings_stands_for_two_processes() {
    let Some(cluster) = two() else { return };
    let client = Client::new(cluster);
    client.write("hosts.toml", &cluster.hosts_toml(2));
    // steps of 20 ms on one host and of 120 on the other, which nothing ties together
    let ended = train(&client, "0 tcp://127.0.0.1:23457 2 9 $((20 + RANK * 100)) 12");
    let all = rows(&ended);
    assert_eq!(places(&all), [("0", "n1:0"), ("1", "n1:0"), ("0", "n2:0"), ("1", "n2:0")], "{ended:#?}");
    let ms: Vec<f64> = all.iter().map(|[_, _, step]| step.parse().unwrap_or_default()).collect();
    // the rest is a step of 12 s for all of them
    assert!(ms[..2].iter().all(|ms| *ms >= 220.0) && ms[2..].iter().all(|ms| *ms >= 320.0), "{ended:#?}");
    // the line of the script, not that of Python's multiprocessing
    let still = ended.err.lines().find(|line| line.contains("stands still in step 31: "));
    let still = still.unwrap_or_else(|| panic!("a standstill: {ended:#?}"));
    assert!(still.contains(", spawned.py:18") && still.contains("ranks 0 (n1:0), 1 (n1:0)"), "{still}");
    let json = report(&client);
    let exit = "exit 0";
    assert_eq!(
        reported(&json),
        [(0, "n1:0", exit), (1, "n1:0", exit), (0, "n2:0", exit), (1, "n2:0", exit)],
        "{json:#}"
    );
    let p50 = |at: usize| json["ranks"][at]["length"]["p50_us"].as_u64().expect("a time");
    // of each its own: a step of the one is 100 ms longer
    assert!(p50(2) > p50(0) + 80_000 && p50(3) > p50(1) + 80_000, "{json:#}");
    let text = client.run(&["report", "last"]);
    assert!(!text.out.contains("not complete"), "{text:#?}");
}
