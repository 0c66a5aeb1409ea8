//! Whether containers can be started here, with GPUs where there are some.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, minor};
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Docker;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Whether there is a docker.
    installed: bool,
    /// The daemon's version.
    version: Option<String>,
    /// Why the daemon does not answer.
    refused: Option<String>,
    /// Whether it can give GPUs to containers: a runtime of NVIDIA's, its hook, or a description for CDI.
    gives_gpus: bool,
}

impl Check for Docker {
    const NAME: &'static str = "docker";
    const ASKS: &'static str = "can containers be started, with GPUs";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Some(program) = site.program("docker") else { return Ok(Found::default()) };
        let told = site.ask(&program, &["info", "--format", "{{.ServerVersion}} {{json .Runtimes}}"])?;
        let mut found = Found { installed: true, ..Found::default() };
        let said = told.out.trim();
        match said.split_once(' ').filter(|(version, _)| told.status.success() && !version.is_empty()) {
            Some((version, runtimes)) => {
                let cdi = ["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"];
                found.version = Some(version.to_owned());
                found.gives_gpus = runtimes.contains("\"nvidia\"")
                    || site.program("nvidia-container-runtime-hook").is_some()
                    || cdi.iter().any(|file| Path::new(file).exists());
            }
            None => found.refused = Some(told.last_words().to_owned()),
        }
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let version = |one: &'_ Seen<'_, Found>| one.found.version.clone();
        let versions: Vec<(&str, String)> =
            seen.iter().filter_map(|one| Some((one.host.as_str(), version(one)?))).collect();
        let all = Compared::new(versions.iter().map(|(host, version)| (*host, minor(version))));
        seen.iter().map(|one| judge(&one.found, !one.info.gpus.is_empty(), &all)).collect()
    }
}

fn judge(found: &Found, has_gpus: bool, all: &Compared<'_>) -> Verdict {
    if !found.installed {
        let words = if all.is_empty() { "no docker" } else { "no docker here; other hosts have it" };
        return Verdict::unknown(words);
    }
    if let Some(why) = &found.refused {
        let remedy = if why.contains("permission denied") {
            "sudo usermod -aG docker $USER, then log in again"
        } else {
            "sudo systemctl start docker"
        };
        let command = remedy.split(',').next().unwrap_or(remedy);
        return Verdict::look(why, "runs in containers can't be started here", remedy).fixed_there(command);
    }
    let version = found.version.as_deref().unwrap_or_default();
    if has_gpus && !found.gives_gpus {
        return Verdict::look(
            format!("docker {version} without NVIDIA's runtime, and there are GPUs"),
            "docker run --gpus fails: \"could not select device driver\"",
            "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
        );
    }
    match all.difference(minor(version)) {
        None => Verdict::good(format!("docker {version}")),
        Some(difference) => Verdict::good(format!("docker {version} ({difference})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn a_daemon_that_refuses_and_one_without_gpus_are_told_apart() {
        let running =
            |gives_gpus| Found { installed: true, version: Some("27.3.1".into()), gives_gpus, refused: None };
        assert_eq!(judge(&running(false), false, &Compared::new([])).mark, Mark::Good);
        assert_eq!(judge(&running(false), true, &Compared::new([])).mark, Mark::Look);
        assert_eq!(judge(&running(true), true, &Compared::new([])).mark, Mark::Good);
        let refused =
            Found {
                installed: true, refused: Some("permission denied while …".into()), ..Found::default()
            };
        assert!(
            judge(&refused, false, &Compared::new([])).remedy.unwrap().starts_with("sudo usermod -aG docker")
        );
        assert_eq!(judge(&Found::default(), false, &Compared::new([])).mark, Mark::Unknown);
    }
}
