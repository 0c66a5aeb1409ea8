//! What a smoke test tries, in which order, and where: command lines of hvtui's own, which a person can repeat. Pure.

/// The steps, in their order.
pub(super) const STEPS: [&str; 9] =
    ["doctor", "link", "tcp", "shm", "mixed", "nccl", "train", "container", "mpirun"];

/// Bytes of an allreduce: enough for the rate of a link, in a second on slow ones.
const SIZE: &str = "16M";

/// A host that is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) name: String,
    /// How many ranks it takes.
    pub(super) slots: usize,
    /// GPUs that take ranks.
    pub(super) gpus: usize,
    /// Whether the doctor has found an mpirun.
    pub(super) has_mpirun: bool,
    /// Whether the doctor has found a Docker.
    pub(super) has_docker: bool,
}

/// What a person has asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked<'a> {
    /// Only these steps; all where none is named.
    pub(super) only: &'a [String],
    pub(super) image: Option<&'a str>,
    pub(super) data: Option<&'a str>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// Where, for people: `3 hosts`, `each host`.
    pub(super) place: String,
    pub(super) plan: Plan,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Command lines of `hvtui`, each with the host or hosts that it is for.
    Runs(Vec<(String, Vec<String>)>),
    /// Why it is not tried.
    Left(String),
}

/// The steps behind the doctor's.
pub(super) fn plan(hosts: &[Facts], asked: &Asked<'_>) -> Vec<Step> {
    let wanted = |name: &&&str| asked.only.is_empty() || asked.only.iter().any(|only| only == **name);
    let steps = STEPS.iter().filter(|name| **name != "doctor").filter(wanted);
    steps.map(|name| step(name, hosts, asked)).collect()
}

fn step(name: &'static str, all: &[Facts], asked: &Asked<'_>) -> Step {
    let hosts: Vec<&Facts> = all.iter().filter(|host| host.slots > 0).collect();
    let on_all = |ranks: &dyn Fn(&Facts) -> usize, options: &[&str], job: &[&str]| {
        run_on(name, &hosts, ranks, options, job)
    };
    let bench =
        |transport| ["hvtui", "bench", "allreduce", "--transport", transport, "--sizes", SIZE, "--json"];
    let plan = match name {
        _ if hosts.is_empty() => Plan::Left("no host that takes ranks is reached".to_owned()),
        "link" | "tcp" | "mixed" if hosts.len() < 2 => Plan::Left("that takes two hosts".to_owned()),
        "link" => on_all(&|_| 1, &[], &["hvtui", "bench", "link", "--json"]),
        "tcp" => on_all(&|_| 1, &[], &bench("tcp")),
        "shm" => shm(name, &hosts, &bench("shm")),
        "mixed" if hosts.iter().all(|host| host.slots < 2) => {
            Plan::Left("no host takes two ranks".to_owned())
        }
        "mixed" => on_all(&|host| host.slots.min(2), &[], &bench("auto")),
        "nccl" => match hosts.iter().copied().filter(|host| host.gpus > 0).collect::<Vec<_>>() {
            with if with.is_empty() => Plan::Left("no host has a GPU that takes ranks".to_owned()),
            with => run_on(name, &with, &|host| host.gpus, &[], &bench("nccl")),
        },
        "train" => match asked.data {
            Some(data) => on_all(
                &|host| host.slots.min(2),
                &[],
                &["hvtui", "train", "mnist", "--epochs", "1", "--data", data],
            ),
            None => on_all(&|host| host.slots.min(2), &[], &["hvtui", "train", "digits", "--epochs", "3"]),
        },
        "container" => match (asked.image, hosts.iter().find(|host| !host.has_docker)) {
            (None, _) => Plan::Left("name an image that the hosts have: --image IMAGE".to_owned()),
            (Some(_), Some(without)) => Plan::Left(format!("no docker on {}", without.name)),
            (Some(image), None) => on_all(&|_| 1, &["--kind", "plain", "--image", image], &["true"]),
        },
        _ => {
            let job = ["hvtui", "bench", "allreduce", "--sizes", "4K", "--iters", "5", "--json"];
            let without = hosts.iter().find(|host| !host.has_mpirun);
            without.map_or_else(
                || on_all(&|host| host.slots.min(2), &["--kind", "mpi"], &job),
                |without| Plan::Left(format!("no mpirun on {}", without.name)),
            )
        }
    };
    let place = match &plan {
        Plan::Left(_) => String::new(),
        Plan::Runs(runs) if runs.len() > 1 => "each host".to_owned(),
        Plan::Runs(runs) => runs.first().map(|(place, _)| place.clone()).unwrap_or_default(),
    };
    Step { name, place, plan }
}

/// A run on each host that takes two ranks.
fn shm(name: &str, hosts: &[&Facts], job: &[&str]) -> Plan {
    let with: Vec<&&Facts> = hosts.iter().filter(|host| host.slots > 1).collect();
    if with.is_empty() {
        return Plan::Left("no host takes two ranks".to_owned());
    }
    let one = |host: &&&Facts| match run_on(name, &[**host], &|_| 2, &[], job) {
        Plan::Runs(runs) => runs,
        Plan::Left(_) => Vec::new(),
    };
    Plan::Runs(with.iter().flat_map(one).collect())
}

fn run_on(
    name: &str,
    hosts: &[&Facts],
    ranks: &dyn Fn(&Facts) -> usize,
    options: &[&str],
    job: &[&str],
) -> Plan {
    let list: Vec<String> = hosts.iter().map(|host| format!("{}:{}", host.name, ranks(host))).collect();
    let mut words = vec!["run".to_owned(), "--name".to_owned(), format!("smoke-{name}")];
    words.extend(["-H".to_owned(), list.join(",")]);
    words.extend(options.iter().map(|word| (*word).to_owned()));
    words.push("--".to_owned());
    words.extend(job.iter().map(|word| (*word).to_owned()));
    let place = match hosts {
        [one] => one.name.clone(),
        many => format!("{} hosts", many.len()),
    };
    Plan::Runs(vec![(place, words)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: usize, gpus: usize) -> Facts {
        Facts { name: name.to_owned(), slots, gpus, has_mpirun: true, has_docker: name != "b" }
    }

    fn line(step: &Step) -> String {
        match &step.plan {
            Plan::Runs(runs) => runs.iter().map(|(_, words)| words.join(" ")).collect::<Vec<_>>().join(" ; "),
            Plan::Left(why) => format!("left: {why}"),
        }
    }

    #[test]
    fn each_step_is_a_command_that_a_person_could_type() {
        let hosts = [host("a", 2, 2), host("b", 1, 0)];
        let asked = Asked { image: Some("cuda:12"), ..Asked::default() };
        let steps = plan(&hosts, &asked);
        let lines: Vec<String> = steps.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "run --name smoke-link -H a:1,b:1 -- hvtui bench link --json",
                "run --name smoke-tcp -H a:1,b:1 -- hvtui bench allreduce --transport tcp --sizes 16M --json",
                "run --name smoke-shm -H a:2 -- hvtui bench allreduce --transport shm --sizes 16M --json",
                "run --name smoke-mixed -H a:2,b:1 -- hvtui bench allreduce --transport auto --sizes 16M --json",
                "run --name smoke-nccl -H a:2 -- hvtui bench allreduce --transport nccl --sizes 16M --json",
                "run --name smoke-train -H a:2,b:1 -- hvtui train digits --epochs 3",
                "left: no docker on b",
                "run --name smoke-mpirun -H a:2,b:1 --kind mpi -- hvtui bench allreduce --sizes 4K --iters 5 --json",
            ]
        );
        let places: Vec<&str> = steps.iter().map(|step| step.place.as_str()).collect();
        assert_eq!(places, ["2 hosts", "2 hosts", "a", "2 hosts", "a", "2 hosts", "", "2 hosts"]);
    }

    #[test]
    fn what_can_not_be_tried_says_why() {
        let alone = [host("a", 1, 0)];
        let steps = plan(&alone, &Asked::default());
        let left: Vec<String> = steps.iter().map(line).filter(|line| line.starts_with("left")).collect();
        assert_eq!(
            left,
            [
                "left: that takes two hosts",
                "left: that takes two hosts",
                "left: no host takes two ranks",
                "left: that takes two hosts",
                "left: no host has a GPU that takes ranks",
                "left: name an image that the hosts have: --image IMAGE",
            ]
        );
        let only = ["shm".to_owned(), "train".to_owned()];
        let steps = plan(&[], &Asked { only: &only, ..Asked::default() });
        assert_eq!(steps.len(), 2);
        assert!(steps.iter().all(|step| line(step) == "left: no host that takes ranks is reached"));
    }
}
