//! Ranks that `srun` starts: what is asked of hosts elsewhere is asked of Slurm by srun's options, and all ranks belong to
//! one host that stands for Slurm. Pure.

use crate::domain::run::JobKind;
use crate::launch::allocation::Allocation;
use crate::launch::request::{FREE_SLOTS, LaunchRequest, PlacementSpec};

/// The name of the host that stands for Slurm: this machine, where srun is started.
pub const HOST: &str = "slurm";

/// What Slurm can not be asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SrunError {
    /// GPUs by number.
    #[error(
        "--gpus with --kind slurm: Slurm chooses the GPUs; ask for a number of them: --gpus-per-rank 1, or paste a \
         line such as `srun -n 4 --gres=gpu:2 COMMAND`"
    )]
    Picks,
    /// Hosts with different numbers of ranks.
    #[error(
        "-H {0} with --kind slurm: srun takes the same number of ranks on each host; leave the numbers out, or use \
         --kind plain inside an allocation"
    )]
    Uneven(String),
    /// A filter.
    #[error(
        "--filter '{0}' with --kind slurm: Slurm chooses the GPUs; leave --filter out, or paste a line such as \
         `srun -n 4 --gres=gpu:MODEL:1 --constraint=FEATURE COMMAND`"
    )]
    Filter(String),
}

/// Turns where the ranks go into options of srun and their number, which is returned.
///
/// # Errors
/// Where srun has no option for it.
pub fn through_srun(request: &mut LaunchRequest, allocation: Option<&Allocation>) -> Result<u32, SrunError> {
    let mut args: Vec<String> = Vec::new();
    let all_tasks = || allocation.map(|job| job.hosts.iter().map(|(_, tasks)| *tasks).sum());
    let is_ours = |host: &str| host == HOST;
    let ranks = match &request.place {
        PlacementSpec::Count(np) => np.or_else(all_tasks).unwrap_or(1),
        PlacementSpec::Free { filter, .. } if !filter.is_empty() => {
            return Err(SrunError::Filter(filter.to_string()));
        }
        // Slurm knows which GPUs are free.
        PlacementSpec::Free { ranks, per_host, .. } => {
            args.extend(per_host.map(|each| format!("--ntasks-per-node={each}")));
            *ranks
        }
        PlacementSpec::Nodes { nodes, each } => {
            args.push(format!("--nodes={nodes}"));
            args.extend(each.map(|each| format!("--ntasks-per-node={each}")));
            nodes.saturating_mul(each.unwrap_or(1))
        }
        // `--gpus gpu-a`
        PlacementSpec::Hosts { hosts, .. } if hosts.iter().any(|(_, count)| *count == FREE_SLOTS) => {
            return Err(SrunError::Picks);
        }
        PlacementSpec::Hosts { hosts, np } if !hosts.iter().all(|(host, _)| is_ours(host.as_str())) => {
            let names: Vec<&str> = hosts.iter().map(|(host, _)| host.as_str()).collect();
            let sum = hosts.iter().map(|(_, count)| *count).sum();
            let each = hosts.first().map_or(1, |(_, count)| *count);
            if hosts.iter().any(|(_, count)| *count != each) {
                let list: Vec<String> = hosts.iter().map(|(host, count)| format!("{host}:{count}")).collect();
                return Err(SrunError::Uneven(list.join(",")));
            }
            args.extend([format!("--nodes={}", hosts.len()), format!("--nodelist={}", names.join(","))]);
            if np.is_none_or(|np| np == sum) {
                args.push(format!("--ntasks-per-node={each}"));
            }
            np.unwrap_or(sum)
        }
        PlacementSpec::Hosts { hosts, np } => np.unwrap_or_else(|| hosts.iter().map(|(_, n)| *n).sum()),
        // A past run, whose options have it all.
        PlacementSpec::Picks(picks) if picks.iter().all(|pick| is_ours(pick.host.as_str())) => {
            picks.len() as u32
        }
        PlacementSpec::Picks(_) => return Err(SrunError::Picks),
    };
    let options = &mut request.options;
    if options.gpus_per_rank > 1 {
        args.push(format!("--gpus-per-task={}", options.gpus_per_rank));
        options.gpus_per_rank = 1;
    }
    // What was pasted comes last: srun takes the last of two.
    args.append(&mut options.mpi_args);
    options.mpi_args = args;
    request.kind = Some(JobKind::Slurm);
    request.place = PlacementSpec::Hosts { hosts: vec![(HOST.into(), ranks)], np: None };
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::filter::Filter;
    use crate::launch::request::{Pick, SlotName};

    fn asked(place: PlacementSpec, args: &[&str]) -> LaunchRequest {
        let mut request = LaunchRequest::of(vec!["true".to_owned()]);
        request.place = place;
        request.options.mpi_args = args.iter().map(|arg| (*arg).to_owned()).collect();
        request
    }

    fn words(place: PlacementSpec, args: &[&str]) -> Result<String, SrunError> {
        let mut request = asked(place, args);
        let ranks = through_srun(&mut request, None)?;
        let host = PlacementSpec::Hosts { hosts: vec![(HOST.into(), ranks)], np: None };
        assert_eq!((request.kind, request.place), (Some(JobKind::Slurm), host));
        Ok(format!("{ranks}: {}", request.options.mpi_args.join(" ")))
    }

    #[test]
    fn where_the_ranks_go_is_asked_of_slurm() {
        let hosts = |list: &[(&str, u32)], np| PlacementSpec::Hosts {
            hosts: list.iter().map(|(host, count)| ((*host).into(), *count)).collect(),
            np,
        };
        let said = |place| words(place, &[]).unwrap();
        assert_eq!(said(PlacementSpec::Count(Some(3))), "3: ");
        assert_eq!(said(PlacementSpec::Count(None)), "1: ");
        assert_eq!(
            said(PlacementSpec::Nodes { nodes: 2, each: Some(4) }),
            "8: --nodes=2 --ntasks-per-node=4"
        );
        assert_eq!(
            said(hosts(&[("a", 2), ("b", 2)], None)),
            "4: --nodes=2 --nodelist=a,b --ntasks-per-node=2"
        );
        assert_eq!(said(hosts(&[("a", 2), ("b", 2)], Some(3))), "3: --nodes=2 --nodelist=a,b");
        assert_eq!(words(PlacementSpec::Count(Some(2)), &["-p", "gpu"]).unwrap(), "2: -p gpu");
        let free = |per_host, filter: &str| {
            let filter = Filter::parse(filter).unwrap();
            words(PlacementSpec::Free { ranks: 4, per_host, filter }, &[])
        };
        assert_eq!(free(Some(2), "").unwrap(), "4: --ntasks-per-node=2");
        assert_eq!(free(None, "util<5"), Err(SrunError::Filter("util<5".to_owned())));
        let uneven = words(hosts(&[("a", 2), ("b", 1)], None), &[]).unwrap_err();
        assert!(uneven.to_string().starts_with("-H a:2,b:1 with --kind slurm: "), "{uneven}");
        let pick =
            |host: &str| PlacementSpec::Picks(vec![Pick { host: host.into(), slot: SlotName::Index(0) }]);
        assert_eq!(words(pick("a"), &[]), Err(SrunError::Picks));
        let all_free = hosts(&[("a", FREE_SLOTS), ("b", FREE_SLOTS)], None);
        assert_eq!(words(all_free, &[]), Err(SrunError::Picks));
        assert_eq!(words(pick(HOST), &["--nodes=1"]).unwrap(), "1: --nodes=1", "a past run");
    }

    #[test]
    fn an_allocation_says_how_many_ranks_there_are() {
        let hosts = vec![("n1".into(), 2), ("n2".into(), 1)];
        let job = Allocation { job: "7".to_owned(), hosts, gpus: Vec::new(), here: None };
        assert_eq!(through_srun(&mut asked(PlacementSpec::Count(None), &[]), Some(&job)), Ok(3));
        let mut gpus = asked(PlacementSpec::Count(Some(2)), &[]);
        gpus.options.gpus_per_rank = 2;
        assert_eq!(through_srun(&mut gpus, Some(&job)), Ok(2));
        assert_eq!(
            (gpus.options.gpus_per_rank, gpus.options.mpi_args.join(" ")),
            (1, "--gpus-per-task=2".to_owned())
        );
    }
}
