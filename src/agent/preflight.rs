//! Looks whether a launch that is still being written could start here. Changes nothing, and takes no lease.

mod desk;

use std::collections::BTreeSet;

use super::AgentConfig;
use super::prepare::{Place, activate};
use super::script;
use crate::domain::engine::Engine;
use crate::domain::preflight::{Finding, Mark};
use crate::domain::run::{HostRun, RankSpec};
use crate::program::working_directory;
use crate::supervise::environment::Deadline;

pub(super) use desk::Desk;
use desk::Report;

/// With `copied` the folder that the ranks work in comes with the launch.
fn look(config: &AgentConfig, spec: &HostRun, copied: bool, report: &Report) {
    if let Some(container) = spec.container() {
        let text = format!("what {} holds is looked at when it starts", container.image);
        return report.found(Finding::new(Mark::Unknown, text));
    }
    let first = spec.ranks.first();
    let folder = first.and_then(|rank| rank.cwd.as_deref());
    if copied {
        let text = format!("{} is copied at the start", folder.unwrap_or("the folder"));
        report.found(Finding::new(Mark::Good, text));
    } else {
        report.step(format!("folder {}", folder.unwrap_or("~")));
        match working_directory(folder) {
            Ok(path) => report.found(Finding::new(Mark::Good, format!("folder {}", path.display()))),
            Err(error) => return report.found(Finding::new(Mark::Bad, error.to_string())),
        }
    }
    let deadline = Deadline::begin();
    let at_home = |rank: &RankSpec| RankSpec { cwd: None, ..rank.clone() };
    // what is copied can't be looked into yet: programs are those of the search path
    let ranks: Vec<RankSpec> =
        if copied { spec.ranks.iter().map(at_home).collect() } else { spec.ranks.clone() };
    let spec = HostRun { ranks, ..spec.clone() };
    report.step("the environment".to_owned());
    let change = match activate(&spec, deadline) {
        Ok(change) => change,
        Err(error) => return report.found(Finding::new(Mark::Bad, error)),
    };
    let place = Place { config, spec: &spec, change: &change, deadline };
    report.step("the programs of its launcher".to_owned());
    if let Err(error) = place.check_engine() {
        report.found(Finding::new(Mark::Bad, error));
    }
    let mut seen = BTreeSet::new();
    for rank in &spec.ranks {
        let Some(program) = rank.argv.first() else { continue };
        if !seen.insert((program, rank.env.get("PATH"))) {
            continue;
        }
        if copied && program.contains('/') && !program.starts_with('/') {
            let text = format!("{program} is looked for when the folder is there");
            report.found(Finding::new(Mark::Unknown, text));
            continue;
        }
        report.step(program.clone());
        report.found(match place.check_rank(rank, false) {
            Ok(Some(path)) if path == config.exe => Finding::new(Mark::Good, "hvtui"),
            Ok(Some(path)) => Finding::new(Mark::Good, format!("{program} is {}", path.display())),
            Ok(None) => continue,
            Err(error) => Finding::new(Mark::Bad, error),
        });
        // ranks of srun run on other machines
        if !copied && spec.engine.as_ref().is_none_or(Engine::seats_ranks) {
            report.step(format!("the script of {program}"));
            report.found(match script::find(rank, false) {
                None => continue,
                Some(Ok(script)) => Finding::new(Mark::Good, script),
                Some(Err(missing)) => Finding::new(Mark::Bad, missing),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::fixtures::host_run;
    use crate::domain::ids::{HostId, Rank};

    fn looked(argv: &[&str], cwd: &str, copied: bool) -> Vec<(Mark, String)> {
        let state = tempfile::tempdir().unwrap();
        let config = AgentConfig {
            exe: "/bin/true".into(),
            state_dir: state.path().join("hvtui"),
            build: String::new(),
        };
        let rank = RankSpec {
            rank: Rank(0),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            defaults: BTreeMap::new(),
            cwd: Some(cwd.to_owned()),
        };
        let spec = HostRun {
            host: HostId::from("gpu-b"),
            grace_ms: 100,
            ports: 2,
            ..host_run(vec![rank.clone(), RankSpec { rank: Rank(1), ..rank }])
        };
        let found = desk::reported(|report| look(&config, &spec, copied, report));
        assert!(!config.state_dir.exists(), "nothing is made for what is only looked at");
        found.into_iter().map(|finding| (finding.mark, finding.text)).collect()
    }

    #[test]
    fn the_folder_and_each_program_are_told_once() {
        let found = looked(&["sh", "-c", "true"], "/tmp", false);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], (Mark::Good, "folder /tmp".to_owned()));
        assert!(found[1].0 == Mark::Good && found[1].1.starts_with("sh is /"), "{found:?}");
        let missing = looked(&["no-such-program"], "/tmp", false);
        assert!(missing[1].0 == Mark::Bad, "{missing:?}");
        assert_eq!(missing[1].1, "command 'no-such-program' not found on gpu-b (PATH=/usr/bin:/bin)");
        let nowhere = looked(&["sh"], "/no/such/folder", false);
        assert_eq!((nowhere.len(), nowhere[0].0), (1, Mark::Bad), "{nowhere:?}");
    }

    #[test]
    fn what_is_copied_first_is_not_missed() {
        let found = looked(&["./train.sh"], "/no/such/folder", true);
        assert!(found.iter().all(|(mark, _)| *mark < Mark::Look), "{found:?}");
        let found = looked(&["no-such-program"], "/no/such/folder", true);
        assert!(
            found.iter().any(|(mark, _)| *mark == Mark::Bad),
            "programs of the search path are: {found:?}"
        );
    }
}
