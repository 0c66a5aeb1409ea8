//! The Slurm allocation inside which hvtui was started, read from the variables that Slurm sets: its hosts and slots are
//! then the inventory. Pure; must not ask Slurm itself.

use crate::domain::ids::HostId;
use crate::launch::names;
use crate::launch::request::{Pick, PlacementSpec, SlotName};

/// The most hosts that a list is expanded to.
const MOST: usize = 65_536;

/// What Slurm gave to the job inside which this process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// `SLURM_JOB_ID`.
    pub job: String,
    /// Its hosts, with the number of ranks that each takes.
    pub hosts: Vec<(HostId, u32)>,
    /// Its GPUs by number, where Slurm tells them: those of a job on one host.
    pub gpus: Vec<u32>,
    /// The host on which this process runs, where Slurm tells it: not on a login node.
    pub here: Option<HostId>,
}

/// Variables of Slurm that do not fit each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// A list of hosts that is none.
    #[error("SLURM_JOB_NODELIST={list}: {fault}")]
    Hosts {
        /// The whole list.
        list: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A list of numbers that is none, or that is not as long as the list of hosts.
    #[error("{name}={list}: it is no list of the tasks of {hosts} hosts, such as 2(x3),1")]
    Tasks {
        /// The variable.
        name: &'static str,
        /// Its value.
        list: String,
        /// How many hosts there are.
        hosts: usize,
    },
    /// More hosts than there are.
    #[error(
        "{asked}: job {job} of Slurm has {}; ask for more with salloc -N {nodes}",
        if *hosts == 1 { "1 host".to_owned() } else { format!("{hosts} hosts") }
    )]
    TooFewHosts {
        /// What was asked for, as it was written.
        asked: String,
        /// That many hosts.
        nodes: u32,
        /// The job.
        job: String,
        /// Its hosts.
        hosts: usize,
    },
    /// More ranks than its GPUs allow.
    #[error(
        "{asked}: job {job} of Slurm has {}; ask for more with salloc --gpus",
        if *gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") }
    )]
    TooFewGpus {
        /// What was asked for, as it was written.
        asked: String,
        /// The job.
        job: String,
        /// Its GPUs.
        gpus: usize,
    },
    /// A filter, though Slurm has chosen the GPUs.
    #[error(
        "--filter '{filter}': Slurm has chosen the GPUs of job {job}; leave --filter out, or ask for such GPUs with the \
         options of salloc, such as --constraint or --gres=gpu:MODEL:N"
    )]
    Filter {
        /// As it is written.
        filter: String,
        /// The job.
        job: String,
    },
    /// Ranks that do not divide into hosts.
    #[error(
        "--free {ranks} --nproc-per-node {each}: {ranks} is not a multiple of {each}; ask for {}",
        names::nearest_multiples(*ranks, *each)
    )]
    NotAMultiple {
        /// Ranks asked for.
        ranks: u32,
        /// How many on each host.
        each: u32,
    },
}

impl Allocation {
    /// The allocation of which the variables tell; `None` outside one.
    ///
    /// # Errors
    /// Where the variables do not fit each other.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, AllocationError> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let list = set("SLURM_JOB_NODELIST").or_else(|| set("SLURM_NODELIST"));
        let (Some(job), Some(list)) = (set("SLURM_JOB_ID").or_else(|| set("SLURM_JOBID")), list) else {
            return Ok(None);
        };
        let names = expand(&list).map_err(|fault| AllocationError::Hosts { list: list.clone(), fault })?;
        let tasks = ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"];
        let counts = match tasks.iter().find_map(|name| Some((*name, set(name)?))) {
            None => vec![1; names.len()],
            Some((name, list)) => counts(&list)
                .filter(|counts| counts.len() == names.len())
                .ok_or(AllocationError::Tasks { name, list, hosts: names.len() })?,
        };
        let gpus = set("SLURM_JOB_GPUS").filter(|_| names.len() == 1);
        let gpus = gpus.and_then(|list| list.split(',').map(|gpu| gpu.trim().parse().ok()).collect());
        Ok(Some(Self {
            job,
            hosts: names.into_iter().map(HostId::from).zip(counts).collect(),
            gpus: gpus.unwrap_or_default(),
            here: set("SLURMD_NODENAME").map(|name| HostId::from(name.as_str())),
        }))
    }

    /// Where ranks go that no host was named for; `None` where hosts were. Each rank takes `each` slots.
    ///
    /// # Errors
    /// Where the allocation is smaller than what is asked for.
    pub fn place(&self, asked: &PlacementSpec, each: u32) -> Result<Option<PlacementSpec>, AllocationError> {
        let spec = match asked {
            PlacementSpec::Count(np) => {
                let written = np.map(|np| format!("-np {np}")).unwrap_or_default();
                self.by_count(*np, each, written)?
            }
            PlacementSpec::Nodes { nodes, each } => {
                self.by_nodes(*nodes, *each, format!("--nnodes {nodes}"))?
            }
            PlacementSpec::Free { filter, .. } if !filter.is_empty() => {
                let (filter, job) = (filter.to_string(), self.job.clone());
                return Err(AllocationError::Filter { filter, job });
            }
            // Its GPUs are the job's.
            PlacementSpec::Free { ranks, per_host: None, .. } => {
                self.by_count(Some(*ranks), each, format!("--free {ranks}"))?
            }
            PlacementSpec::Free { ranks, per_host: Some(per_host), .. } => {
                let (ranks, per_host) = (*ranks, *per_host);
                if per_host == 0 || !ranks.is_multiple_of(per_host) {
                    return Err(AllocationError::NotAMultiple { ranks, each: per_host });
                }
                let written = format!("--free {ranks} --nproc-per-node {per_host}");
                if per_host == ranks && self.hosts.len() == 1 {
                    self.by_count(Some(ranks), each, written)?
                } else {
                    self.by_nodes(ranks / per_host, Some(per_host), written)?
                }
            }
            PlacementSpec::Hosts { .. } | PlacementSpec::Picks(_) => return Ok(None),
        };
        Ok(Some(spec))
    }

    /// So many ranks wherever there is room. An error begins with what was `written`.
    fn by_count(
        &self,
        np: Option<u32>,
        each: u32,
        written: String,
    ) -> Result<PlacementSpec, AllocationError> {
        let host = match self.hosts.as_slice() {
            [(host, _)] if !self.gpus.is_empty() => host,
            _ => return Ok(PlacementSpec::Hosts { hosts: self.hosts.clone(), np }),
        };
        let wanted = np.map_or(self.gpus.len(), |np| np.saturating_mul(each.max(1)) as usize);
        if wanted > self.gpus.len() {
            let (job, gpus) = (self.job.clone(), self.gpus.len());
            return Err(AllocationError::TooFewGpus { asked: written, job, gpus });
        }
        let pick = |gpu: &u32| Pick { host: host.clone(), slot: SlotName::Index(*gpu) };
        Ok(PlacementSpec::Picks(self.gpus.iter().take(wanted).map(pick).collect()))
    }

    /// So many ranks on each of so many of its hosts: the first that have as many tasks, then the others, for a job with one
    /// task a host has a launcher start more. An error begins with what was `written`.
    fn by_nodes(
        &self,
        nodes: u32,
        ranks: Option<u32>,
        written: String,
    ) -> Result<PlacementSpec, AllocationError> {
        if nodes as usize > self.hosts.len() {
            let (job, hosts) = (self.job.clone(), self.hosts.len());
            return Err(AllocationError::TooFewHosts { asked: written, nodes, job, hosts });
        }
        let (fit, rest): (Vec<_>, Vec<_>) =
            self.hosts.iter().partition(|(_, tasks)| ranks.is_none_or(|ranks| *tasks >= ranks));
        let hosts = fit.into_iter().chain(rest).take(nodes as usize);
        let hosts = hosts.map(|(host, tasks)| (host.clone(), ranks.unwrap_or(*tasks))).collect();
        Ok(PlacementSpec::Hosts { hosts, np: None })
    }

    /// A sentence about it for people.
    pub fn remark(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(|(host, tasks)| format!("{host}:{tasks}")).collect();
        format!("inside job {} of Slurm: its hosts are used (-H {})", self.job, hosts.join(","))
    }
}

/// The names of a list such as `n[1-3,07],m2`, in its order.
fn expand(list: &str) -> Result<Vec<String>, &'static str> {
    let mut names = Vec::new();
    for part in parts(list)? {
        let all = expand_one(part)?;
        if names.len() + all.len() > MOST {
            return Err("it names too many hosts");
        }
        names.extend(all);
    }
    Ok(names)
}

/// Splits at the commas that stand in no bracket.
fn parts(list: &str) -> Result<Vec<&str>, &'static str> {
    let (mut parts, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err("its brackets do not match"),
            ',' if !inside => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    if inside { Err("its brackets do not match") } else { Ok(parts) }
}

/// `rack[1-2]n[01-03]`: every combination, the last bracket the fastest.
fn expand_one(part: &str) -> Result<Vec<String>, &'static str> {
    let mut names = vec![String::new()];
    let mut rest = part.trim();
    if rest.is_empty() {
        return Err("a name in it is empty");
    }
    while let Some((before, behind)) = rest.split_once('[') {
        let (ranges, after) = behind.split_once(']').ok_or("its brackets do not match")?;
        let numbers = numbers(ranges)?;
        if names.len().saturating_mul(numbers.len()) > MOST {
            return Err("it names too many hosts");
        }
        let with = |name: &String| {
            numbers.iter().map(|number| format!("{name}{before}{number}")).collect::<Vec<_>>()
        };
        names = names.iter().flat_map(with).collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// `1-3,07` as texts: zeros in front are part of a name.
fn numbers(ranges: &str) -> Result<Vec<String>, &'static str> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| "a range in it is no number");
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first)?, number(last)?);
        if to < from || (to - from) as usize >= MOST {
            return Err("a range in it is no range");
        }
        all.extend((from..=to).map(|one| format!("{one:0width$}", width = first.len())));
    }
    Ok(all)
}

/// `2(x3),1` as 2, 2, 2, 1.
fn counts(list: &str) -> Option<Vec<u32>> {
    let mut counts = Vec::new();
    for part in list.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1_usize),
        };
        let count = count.trim().parse::<u32>().ok().filter(|count| *count > 0)?;
        if times > MOST || counts.len() + times > MOST {
            return None;
        }
        counts.extend(std::iter::repeat_n(count, times));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::filter::Filter;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Allocation>, AllocationError> {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        Allocation::read(|name| value(name).map(str::to_owned))
    }

    fn job(nodes: &str, tasks: &str) -> Allocation {
        let variables =
            [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", nodes), ("SLURM_TASKS_PER_NODE", tasks)];
        read(&variables).unwrap().unwrap()
    }

    fn given(place: Option<PlacementSpec>) -> String {
        match place {
            Some(PlacementSpec::Hosts { hosts, np }) => {
                let hosts: Vec<String> =
                    hosts.iter().map(|(host, count)| format!("{host}:{count}")).collect();
                format!("{} {np:?}", hosts.join(","))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn lists_of_hosts_are_expanded_as_slurm_does() {
        let expanded = |list: &str| expand(list).unwrap().join(" ");
        assert_eq!(expanded("n1"), "n1");
        assert_eq!(expanded("n[1-3,7],m2"), "n1 n2 n3 n7 m2");
        assert_eq!(expanded("gpu[08-11]-ib"), "gpu08-ib gpu09-ib gpu10-ib gpu11-ib");
        assert_eq!(expanded("r[1-2]n[1-2]"), "r1n1 r1n2 r2n1 r2n2");
        for (list, fault) in [
            ("n[1-3", "brackets"),
            ("n1]", "brackets"),
            ("n[[1]]", "brackets"),
            ("n[3-1]", "no range"),
            ("n[0-4000000000]", "no range"),
            ("n[0-60000],m[0-60000]", "too many"),
            ("a[1-999]b[1-999]", "too many"),
            ("n[a-b]", "no number"),
            ("n1,,n2", "empty"),
        ] {
            assert!(expand(list).unwrap_err().contains(fault), "{list}");
        }
    }

    #[test]
    fn tasks_are_counted_host_by_host() {
        assert_eq!(counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
        for bad in ["", "0", "2(x", "2(x3", "x", "1(x99999999)"] {
            assert_eq!(counts(bad), None, "{bad}");
        }
        let error = read(&[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_TASKS_PER_NODE", "2(x3)"),
        ]);
        assert!(error.unwrap_err().to_string().starts_with("SLURM_TASKS_PER_NODE=2(x3): "));
        assert_eq!(read(&[("SLURM_JOB_NODELIST", "n1")]), Ok(None), "no job");
        assert_eq!(read(&[("SLURM_JOB_ID", "1")]), Ok(None), "no hosts: a variable that was left behind");
    }

    #[test]
    fn what_names_no_host_goes_to_the_allocation() {
        let job = job("n[1-2]", "2,1");
        let place = |asked| job.place(&asked, 1).map(given);
        assert_eq!(place(PlacementSpec::Count(None)), Ok("n1:2,n2:1 None".to_owned()));
        assert_eq!(place(PlacementSpec::Count(Some(2))), Ok("n1:2,n2:1 Some(2)".to_owned()));
        let nodes = |nodes, each| PlacementSpec::Nodes { nodes, each };
        assert_eq!(place(nodes(2, Some(4))), Ok("n1:4,n2:4 None".to_owned()));
        assert_eq!(place(nodes(1, None)), Ok("n1:2 None".to_owned()));
        let error = place(nodes(3, None)).unwrap_err().to_string();
        assert_eq!(error, "--nnodes 3: job 7 of Slurm has 2 hosts; ask for more with salloc -N 3");
        let named = PlacementSpec::Hosts { hosts: vec![(HostId::from("x"), 1)], np: None };
        assert_eq!(job.place(&named, 1), Ok(None));
        let free = |ranks, per_host, filter: &str| {
            let filter = Filter::parse(filter).unwrap();
            place(PlacementSpec::Free { ranks, per_host, filter }).map_err(|error| error.to_string())
        };
        assert_eq!(free(2, None, ""), Ok("n1:2,n2:1 Some(2)".to_owned()));
        assert_eq!(free(4, Some(2), ""), Ok("n1:2,n2:2 None".to_owned()));
        assert_eq!(free(2, Some(2), ""), Ok("n1:2 None".to_owned()), "one host, though the job has two");
        insta::assert_snapshot!(free(6, Some(2), "").unwrap_err(), @"--free 6 --nproc-per-node 2: job 7 of Slurm has 2 hosts; ask for more with salloc -N 3");
        insta::assert_snapshot!(free(3, Some(2), "").unwrap_err(), @"--free 3 --nproc-per-node 2: 3 is not a multiple of 2; ask for 2 or 4");
        insta::assert_snapshot!(free(2, None, "util<5").unwrap_err(), @"--filter 'util<5': Slurm has chosen the GPUs of job 7; leave --filter out, or ask for such GPUs with the options of salloc, such as --constraint or --gres=gpu:MODEL:N");
    }

    #[test]
    fn hosts_with_too_few_tasks_come_last() {
        let job = job("n[1-4]", "1,2(x2),4");
        let free = |ranks, per_host| {
            let asked = PlacementSpec::Free { ranks, per_host: Some(per_host), filter: Filter::default() };
            job.place(&asked, 1).map(given).map_err(|error| error.to_string())
        };
        assert_eq!(free(4, 2), Ok("n2:2,n3:2 None".to_owned()));
        assert_eq!(free(3, 1), Ok("n1:1,n2:1,n3:1 None".to_owned()));
        assert_eq!(free(4, 4), Ok("n4:4 None".to_owned()));
        assert_eq!(
            free(16, 8),
            Ok("n1:8,n2:8 None".to_owned()),
            "one task a host, whose launcher starts the ranks"
        );
        assert_eq!(free(8, 4), Ok("n4:4,n1:4 None".to_owned()));
    }

    #[test]
    fn the_gpus_of_a_job_on_one_host_are_the_slots() {
        let variables = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n4"),
            ("SLURM_JOB_GPUS", "2,3"),
            ("SLURMD_NODENAME", "n4"),
        ];
        let job = read(&variables).unwrap().unwrap();
        assert_eq!((job.gpus.as_slice(), job.here.as_ref()), (&[2, 3][..], Some(&HostId::from("n4"))));
        let picks = |np, each| match job.place(&PlacementSpec::Count(np), each) {
            Ok(Some(PlacementSpec::Picks(picks))) => picks.iter().map(|pick| pick.slot.clone()).collect(),
            other => panic!("{other:?}"),
        };
        let gpu = SlotName::Index;
        assert_eq!((picks(None, 1), picks(Some(1), 1)), (vec![gpu(2), gpu(3)], vec![gpu(2)]));
        assert_eq!(picks(Some(1), 2), [gpu(2), gpu(3)]);
        let error = job.place(&PlacementSpec::Count(Some(3)), 1).unwrap_err().to_string();
        assert_eq!(error, "-np 3: job 7 of Slurm has 2 GPUs; ask for more with salloc --gpus");
        let free = |ranks, per_host| PlacementSpec::Free { ranks, per_host, filter: Filter::default() };
        let error = |ranks, per_host| job.place(&free(ranks, per_host), 1).unwrap_err().to_string();
        insta::assert_snapshot!(error(3, None), @"--free 3: job 7 of Slurm has 2 GPUs; ask for more with salloc --gpus");
        insta::assert_snapshot!(error(3, Some(3)), @"--free 3 --nproc-per-node 3: job 7 of Slurm has 2 GPUs; ask for more with salloc --gpus");
        insta::assert_snapshot!(error(4, Some(2)), @"--free 4 --nproc-per-node 2: job 7 of Slurm has 1 host; ask for more with salloc -N 2");
    }
}
