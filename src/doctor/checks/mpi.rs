//! Whether mpirun is the same MPI everywhere, and may start ranks on other hosts.

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, minor};
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Mpi;

/// Images that bring their own sshd sometimes forbid Open MPI to use ssh at all.
const AGENT: &str = "OMPI_MCA_plm_rsh_agent";

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// `Open MPI 4.1.4`; absent without mpirun.
    mpi: Option<String>,
    /// With which program Open MPI is told to log in to other hosts.
    agent: Option<String>,
}

impl Check for Mpi {
    const NAME: &'static str = "mpi";
    const ASKS: &'static str = "is mpirun the same on all hosts";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let agent = std::env::var(AGENT).ok();
        let Some(program) = site.program("mpirun") else { return Ok(Found { mpi: None, agent }) };
        let told = site.ask(&program, &["--version"])?;
        let mpi = version(&told.out).ok_or_else(|| format!("mpirun --version: {}", told.last_words()))?;
        Ok(Found { mpi: Some(mpi), agent })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let mpis = seen.iter().filter_map(|one| Some((one.host.as_str(), one.found.mpi.as_deref()?)));
        let all = Compared::new(mpis);
        seen.iter().map(|one| judge(&one.found, &all)).collect()
    }
}

/// Which MPI, from what its mpirun says.
fn version(said: &str) -> Option<String> {
    let said = said.trim_start();
    if let Some(version) = said.strip_prefix("mpirun (Open MPI) ") {
        return Some(format!("Open MPI {}", version.lines().next()?.trim()));
    }
    if said.starts_with("HYDRA") {
        let version = said.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
        return Some(format!("MPICH {}", version.trim()));
    }
    said.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned)
}

fn judge(found: &Found, all: &Compared<'_>) -> Verdict {
    if let Some(agent) = found.agent.as_deref().filter(|agent| agent.ends_with("/false")) {
        return Verdict::bad(
            format!("{AGENT}={agent}"),
            "mpirun reaches no other host: an image was made so that it can't",
            format!("unset {AGENT} there; the runs of hvtui set their own"),
        )
        .may_run();
    }
    let Some(own) = &found.mpi else {
        return Verdict::unknown(if all.is_empty() {
            "no mpirun"
        } else {
            "no mpirun here; other hosts have it"
        });
    };
    match all.difference(own) {
        None => Verdict::good(own),
        Some(difference) => {
            let seen = format!("{own}; {difference}");
            let cause = "mpirun's parts on the hosts don't understand each other, or ranks hang in MPI_Init";
            let remedy = "install the same MPI on all hosts";
            let near = all.values().all(|other| minor(other) == minor(own));
            if near {
                Verdict::look(seen, cause, remedy)
            } else {
                Verdict::bad(seen, cause, remedy).may_run()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn each_mpi_is_known_by_its_words() {
        assert_eq!(version("mpirun (Open MPI) 4.1.4\n\nReport bugs to").as_deref(), Some("Open MPI 4.1.4"));
        let mpich = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(version(mpich).as_deref(), Some("MPICH 4.0.2"));
        assert_eq!(
            version("Intel(R) MPI Library for Linux* OS, Version 2021.9\n").as_deref(),
            Some("Intel(R) MPI Library for Linux* OS, Version 2021.9")
        );
        assert_eq!(version(""), None);
    }

    #[test]
    fn another_mpi_is_red_another_patch_yellow() {
        let found = |mpi: &str| Found { mpi: Some(mpi.to_owned()), agent: None };
        let all = Compared::new([("a", "Open MPI 4.1.4"), ("b", "Open MPI 4.1.4"), ("c", "MPICH 4.0.2")]);
        assert_eq!(judge(&found("MPICH 4.0.2"), &all).mark, Mark::Bad);
        assert_eq!(judge(&found("Open MPI 4.1.4"), &all).mark, Mark::Good);
        let near = Compared::new([("a", "Open MPI 4.1.4"), ("b", "Open MPI 4.1.4"), ("c", "Open MPI 4.1.6")]);
        assert_eq!(judge(&found("Open MPI 4.1.6"), &near).mark, Mark::Look);
        let none = Found { mpi: None, agent: Some("/bin/false".into()) };
        assert_eq!(judge(&none, &Compared::new([])).mark, Mark::Bad);
    }
}
