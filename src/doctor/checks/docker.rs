//! Whether containers can be started here, with GPUs where there are some.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, minor};
use super::super::requires::{There, cuda, holds};
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::needs::DEMANDS_NOTHING;
use crate::domain::units;
use crate::program::asked::Told;

pub(in crate::doctor) struct Docker;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Whether there is a docker.
    installed: bool,
    /// The daemon's version.
    version: Option<String>,
    /// Why the daemon does not answer.
    refused: Option<String>,
    /// Where it keeps images, and how many bytes are free there.
    #[serde(default)]
    root: Option<String>,
    #[serde(default)]
    free: Option<u64>,
    /// Running containers that were given GPUs, and no more shared memory than docker's 64 MB: their names.
    #[serde(default)]
    small: Vec<String>,
    /// The mirrors that it asks before Docker Hub.
    #[serde(default)]
    mirrors: Vec<String>,
    /// Whether it can give GPUs to containers: a runtime of NVIDIA's, its hook, or a description for CDI.
    gives_gpus: bool,
    /// What the image of a launch demands of the driver, where the image is here and says so.
    #[serde(default)]
    requires: Option<String>,
    /// Podman's version where there is no docker: runs take it then.
    #[serde(default)]
    podman: Option<String>,
    /// How services are started here; absent where an older hvtui looks.
    #[serde(default)]
    services: Option<Services>,
}

/// What starts services on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Services {
    Systemd,
    /// A script in `/etc/init.d`.
    Script,
    /// Neither, as in a container.
    None,
}

impl Services {
    fn here() -> Self {
        if Path::new("/run/systemd/system").is_dir() {
            Self::Systemd
        } else if Path::new("/etc/init.d/docker").exists() {
            Self::Script
        } else {
            Self::None
        }
    }
}

/// The command that starts, restarts or reloads the daemon there; `None` where it is no single one.
fn daemon(found: &Found, verb: &str) -> Option<String> {
    match found.services.unwrap_or(Services::Systemd) {
        Services::Systemd => Some(format!("sudo systemctl {verb} docker")),
        Services::Script => Some(format!("sudo service docker {verb}")),
        Services::None => None,
    }
}

impl Check for Docker {
    const NAME: &'static str = "docker";
    const ASKS: &'static str = "can containers be started, with GPUs";
    const OF_IMAGE: OfImage = OfImage::Beside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Some(program) = site.program("docker") else {
            return Ok(Found { podman: podman(site), gives_gpus: has_cdi(), ..Found::default() });
        };
        let told = info(site, &program)?;
        let mut found = Found { installed: true, services: Some(Services::here()), ..Found::default() };
        let said = told.out.trim();
        match said.split_once(' ').filter(|(version, _)| told.status.success() && !version.is_empty()) {
            Some((version, rest)) => {
                let (root, rest) = rest.split_once(' ').unwrap_or(("", rest));
                let (mirrors, runtimes) = rest.split_once(' ').unwrap_or(("", rest));
                found.mirrors = mirrors_of(mirrors);
                found.free = rustix::fs::statvfs(root).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
                found.root = Some(root.to_owned()).filter(|root| !root.is_empty());
                // a launch starts its own
                if !site.for_launch {
                    found.small = small(site, &program).unwrap_or_default();
                }
                found.version = Some(version.to_owned());
                let by_hook = runtimes.contains("\"nvidia\"")
                    || site.program("nvidia-container-runtime-hook").is_some();
                found.gives_gpus = by_hook || has_cdi();
                // a device of CDI's is given without a look at what the image demands
                let image = site.image.as_deref().filter(|_| by_hook);
                found.requires = image.and_then(|image| requires(site, &program, image));
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
        let running = seen.iter().filter(|one| one.found.version.is_some());
        let mirrors: Vec<(&str, String)> =
            running.map(|one| (one.host.as_str(), mirrors(&one.found))).collect();
        let mirrors = Compared::new(mirrors.iter().map(|(host, mirrors)| (*host, mirrors.as_str())));
        let judge = |one: &Seen<'_, Found>| {
            let has_gpus = !one.info.gpus.is_empty();
            let cuda = one.info.cuda_driver.value().filter(|_| has_gpus);
            let there = cuda.map(|cuda| There { cuda, driver: one.info.driver.value().map(String::as_str) });
            too_new(&one.found, there).unwrap_or_else(|| judge(&one.found, has_gpus, (&all, &mirrors)))
        };
        seen.iter().map(judge).collect()
    }
}

/// Whether the host's GPUs are described for containers.
fn has_cdi() -> bool {
    ["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"].iter().any(|file| Path::new(file).exists())
}

/// Of `podman version 4.3.1`.
fn podman(site: &Site) -> Option<String> {
    let told = site.ask(&site.program("podman")?, &["--version"]).ok()?;
    told.out.split_whitespace().last().filter(|_| told.status.success()).map(str::to_owned)
}

/// What the daemon tells of itself; where it refuses, it answers no other question either.
pub(super) fn info(site: &Site, docker: &Path) -> Result<Arc<Told>, String> {
    let form = "{{.ServerVersion}} {{.DockerRootDir}} {{with .RegistryConfig}}{{json .Mirrors}}{{else}}null{{end}} {{json .Runtimes}}";
    site.ask(docker, &["info", "--format", form])
}

/// What an image demands of the driver: `cuda>=12.4 …`.
fn requires(site: &Site, docker: &Path, image: &str) -> Option<String> {
    let form = "{{range .Config.Env}}{{println .}}{{end}}";
    let told = site.ask(docker, &["image", "inspect", "--format", form, "--", image]).ok()?;
    let own = |line: &str| line.strip_prefix("NVIDIA_REQUIRE_CUDA=").map(str::to_owned);
    let is_off = |line: &str| line.split_once('=').is_some_and(|(name, _)| name == DEMANDS_NOTHING);
    let is_told = told.status.success() && !told.out.lines().any(is_off);
    told.out.lines().find_map(own).filter(|_| is_told)
}

/// Where the image of a launch is for another driver than the one that is there.
fn too_new(found: &Found, there: Option<There<'_>>) -> Option<Verdict> {
    let (requires, there) = (found.requires.as_deref()?, there?);
    if holds(requires, there) {
        return None;
    }
    let wanted = cuda(requires).unwrap_or("another version");
    Some(Verdict::bad(
        format!("the image is for CUDA {wanted} and later; the driver serves {} at most", there.cuda),
        "its containers don't start: \"nvidia-container-cli: requirement error: unsatisfied condition\"",
        format!(
            "install a newer driver there, or take an image for CUDA {}; --env NVIDIA_DISABLE_REQUIRE=1 starts it all the same",
            there.cuda
        ),
    ))
}

/// The mirrors as docker prints them: a list in JSON, or `null`.
fn mirrors_of(json: &str) -> Vec<String> {
    let mut mirrors: Vec<String> = serde_json::from_str(json).unwrap_or_default();
    mirrors.sort_unstable();
    mirrors
}

/// In words.
fn mirrors(found: &Found) -> String {
    if found.mirrors.is_empty() { "none".to_owned() } else { found.mirrors.join(" ") }
}

/// Bytes that images of frameworks take at least.
const ROOM: u64 = 10 << 30;
/// Docker's own `/dev/shm`.
const SHM: u64 = 64 << 20;

/// Running containers with GPUs and a small `/dev/shm` of their own.
fn small(site: &Site, docker: &Path) -> Result<Vec<String>, String> {
    let listed = site.ask(docker, &["ps", "-q"])?;
    let ids: Vec<&str> = listed.out.split_whitespace().take(64).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let form = "{{.Name}} {{.HostConfig.IpcMode}} {{.HostConfig.ShmSize}} {{.HostConfig.Runtime}} {{len .HostConfig.DeviceRequests}}";
    let told = site.ask(docker, &[&["inspect", "--format", form], &ids[..]].concat())?;
    Ok(told.out.lines().filter_map(is_small).collect())
}

fn is_small(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let mut word = || words.next();
    let (name, ipc, shm, runtime, devices) = (word()?, word()?, word()?, word()?, word()?);
    let has_gpus = runtime == "nvidia" || devices.parse::<u32>().is_ok_and(|count| count > 0);
    let is_own = matches!(ipc, "" | "private" | "shareable");
    (has_gpus && is_own && shm.parse::<u64>().is_ok_and(|bytes| bytes <= SHM))
        .then(|| name.trim_start_matches('/').to_owned())
}

fn judge(found: &Found, has_gpus: bool, (all, of_mirrors): (&Compared<'_>, &Compared<'_>)) -> Verdict {
    if let (false, Some(version)) = (found.installed, &found.podman) {
        if has_gpus && !found.gives_gpus {
            let command = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
            return Verdict::look(
                format!("no docker, but podman {version}, which is not told of the GPUs"),
                "podman gives GPUs by a description (CDI) alone: runs in containers get none",
                format!("{command}   (nvidia-ctk comes with nvidia-container-toolkit)"),
            )
            .fixed_there(command);
        }
        return Verdict::good(format!("no docker; podman {version} starts the containers of runs"));
    }
    if !found.installed {
        let words = if all.is_empty() { "no docker" } else { "no docker here; other hosts have it" };
        return Verdict::unknown(words);
    }
    if let Some(why) = &found.refused {
        let cause = "runs in containers can't be started here";
        if why.contains("permission denied") {
            let command = "sudo usermod -aG docker $USER";
            return Verdict::look(why, cause, format!("{command}, then log in again")).fixed_there(command);
        }
        return match daemon(found, "start") {
            Some(command) => Verdict::look(why, cause, command.clone()).fixed_there(command),
            None => Verdict::look(
                why,
                cause,
                "start dockerd there as root (the host has neither systemd nor /etc/init.d/docker); in a container: mount the \
                 /var/run/docker.sock of the machine around it",
            ),
        };
    }
    let version = found.version.as_deref().unwrap_or_default();
    if has_gpus && !found.gives_gpus {
        return Verdict::look(
            format!("docker {version} without NVIDIA's runtime, and there are GPUs"),
            "docker run --gpus fails: \"could not select device driver\"",
            format!(
                "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && {}",
                daemon(found, "restart").unwrap_or_else(|| "restart dockerd".to_owned())
            ),
        );
    }
    if let Some(first) = found.small.first() {
        let more = if found.small.len() > 1 {
            format!(" and {} more", found.small.len() - 1)
        } else {
            String::new()
        };
        return Verdict::look(
            format!("container {first}{more} has GPUs and 64 MB of /dev/shm"),
            "NCCL and data loaders in it end with \"Bus error\" or \"No space left on device\"",
            "start it with --ipc=host, or --shm-size=16g; the containers of hvtui share the host's",
        );
    }
    if let (Some(root), Some(free)) = (&found.root, found.free.filter(|free| *free < ROOM)) {
        return Verdict::look(
            format!("{} free at {root}", units::bytes(free)),
            "an image of a framework takes 5 to 20 GB: a pull fails half way",
            "docker system df shows what is kept, docker image prune what can go",
        )
        // how much it is moves
        .lasting(format!("little is free at {root}"));
    }
    let mirrors = mirrors(found);
    if let Some(difference) = of_mirrors.difference(&mirrors) {
        return Verdict::look(
            format!("its mirror of Docker Hub: {mirrors} ({difference})"),
            "the same pull is slow on some hosts, or refused there by Docker Hub's limit",
            format!(
                "make \"registry-mirrors\" in /etc/docker/daemon.json the same, then: {}",
                daemon(found, "reload").unwrap_or_else(|| "sudo pkill -HUP -x dockerd".to_owned())
            ),
        );
    }
    match all.difference(minor(version)) {
        None => Verdict::good(format!("docker {version}")),
        Some(difference) => Verdict::look(
            format!("docker {version} ({difference})"),
            "the same docker run may be understood otherwise: options, defaults and the forms of images change between versions",
            format!(
                "install docker {} there: apt-cache madison docker-ce (or docker.io) lists what can be had",
                all.wanted(minor(version)).unwrap_or("of the other hosts' version")
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    #[test]
    fn podman_is_what_starts_containers_where_there_is_no_docker() {
        let found = |gives_gpus| Found { podman: Some("4.3.1".to_owned()), gives_gpus, ..Found::default() };
        let good = judge(&found(false), false);
        assert_eq!(
            (good.mark, good.evidence.as_str()),
            (Mark::Good, "no docker; podman 4.3.1 starts the containers of runs")
        );
        assert_eq!(judge(&found(true), true).mark, Mark::Good);
        let untold = judge(&found(false), true);
        assert!(untold.mark == Mark::Look && untold.help().unwrap().contains("cdi generate"), "{untold:?}");
    }

    /// Of a host without others.
    fn judge(found: &Found, has_gpus: bool) -> Verdict {
        super::judge(found, has_gpus, (&Compared::new([]), &Compared::new([])))
    }

    #[test]
    fn a_daemon_that_refuses_and_one_without_gpus_are_told_apart() {
        let running = |gives_gpus| {
            let version = Some("27.3.1".into());
            Found { installed: true, version, gives_gpus, ..Found::default() }
        };
        assert_eq!(judge(&running(false), false).mark, Mark::Good);
        assert_eq!(judge(&running(false), true).mark, Mark::Look);
        assert_eq!(judge(&running(true), true).mark, Mark::Good);
        let refused =
            Found {
                installed: true, refused: Some("permission denied while …".into()), ..Found::default()
            };
        assert!(judge(&refused, false).remedy.unwrap().starts_with("sudo usermod -aG docker"));
        assert_eq!(judge(&Found::default(), false).mark, Mark::Unknown);
    }

    #[test]
    fn a_command_of_systemd_is_offered_where_there_is_one() {
        let refused = |services| {
            let refused = Some("Cannot connect to the Docker daemon".into());
            judge(&Found { installed: true, refused, services, ..Found::default() }, false)
        };
        let command = |services| match refused(services).fix {
            Some(crate::domain::doctor::Fix::There(command)) => command,
            _ => String::new(),
        };
        assert_eq!(command(Some(Services::Systemd)), "sudo systemctl start docker");
        assert_eq!(command(Some(Services::Script)), "sudo service docker start");
        assert_eq!(command(None), "sudo systemctl start docker", "an older answer");
        let none = refused(Some(Services::None));
        assert!(none.fix.is_none() && none.remedy.unwrap().starts_with("start dockerd there"));
    }

    #[test]
    fn another_version_is_told() {
        let host =
            |version: &str| Found { installed: true, version: Some(version.into()), ..Found::default() };
        let verdicts = Docker::judge(&seen([host("27.3.1"), host("27.3.0"), host("20.10.24")]));
        assert_eq!([verdicts[0].mark, verdicts[1].mark], [Mark::Good, Mark::Good]);
        assert_eq!(
            (verdicts[2].mark, verdicts[2].evidence.as_str()),
            (Mark::Look, "docker 20.10.24 (other hosts have 27.3)")
        );
        assert!(verdicts[2].remedy.as_ref().unwrap().starts_with("install docker 27.3 there"));
    }

    #[test]
    fn a_host_that_has_another_mirror_is_told() {
        assert_eq!(mirrors_of(r#"["https://b/","https://a/"]"#), ["https://a/", "https://b/"]);
        assert!(mirrors_of("null").is_empty() && mirrors_of("").is_empty());
        let host = |mirrors: &str| {
            let version = Some("27.3.1".into());
            Found { installed: true, version, mirrors: mirrors_of(mirrors), ..Found::default() }
        };
        let own = r#"["https://mirror.lan/"]"#;
        let verdicts = Docker::judge(&seen([host(own), host(own), host("null"), Found::default()]));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Look, Mark::Unknown]);
        assert_eq!(
            verdicts[2].evidence,
            "its mirror of Docker Hub: none (other hosts have https://mirror.lan/)"
        );
    }

    #[test]
    fn little_room_and_small_shared_memory_are_told() {
        let names: Vec<String> = [
            "/train private 67108864 runc 1",
            "/old private 67108864 nvidia 0",
            "/large private 17179869184 runc 1",
            "/host host 67108864 runc 1",
            "/database private 67108864 runc 0",
            "garbage",
        ]
        .iter()
        .filter_map(|line| is_small(line))
        .collect();
        assert_eq!(names, ["train", "old"]);
        let found =
            Found { installed: true, version: Some("27.3.1".into()), small: names, ..Found::default() };
        let verdict = judge(&found, false);
        assert_eq!(verdict.evidence, "container train and 1 more has GPUs and 64 MB of /dev/shm");
        let full =
            Found { small: Vec::new(), root: Some("/var/lib/docker".into()), free: Some(2 << 30), ..found };
        assert_eq!(judge(&full, false).evidence, "2.0 G free at /var/lib/docker");
    }
}
