//! Whether containers can be started here, with GPUs where there are some.

mod running;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::compare::{Compared, minor};
use super::super::requires::{There, cuda, holds};
use super::super::{Check, OfImage, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::needs::DEMANDS_NOTHING;
use crate::domain::units::{self, counted};
use crate::program::engines::{self, GPU_HOOK, KNOWN, describes_gpus};
use crate::program::home;

pub(in crate::doctor) struct Docker;

/// Bytes that images of frameworks take at least.
const ROOM: u64 = 10 << 30;
/// Of NVIDIA's devices the beginning of the names in `/dev/char`: the kernel's number for them.
const NVIDIAS: &[u8] = b"195:";
/// Makes those names, now and at each start of the host.
const LINKS: &str = "sudo nvidia-ctk system create-dev-char-symlinks --create-all && echo 'ACTION==\"add\", \
                     DEVPATH==\"/bus/pci/drivers/nvidia\", RUN+=\"/usr/bin/nvidia-ctk system create-dev-char-symlinks \
                     --create-all\"' | sudo tee /etc/udev/rules.d/71-nvidia-dev-char.rules";
/// Where docker's client looks for root's daemon.
const ROOTS: [&str; 2] = ["unix:///var/run/docker.sock", "unix:///run/docker.sock"];
/// What goes wrong without an engine.
const NONE_STARTS: &str = "runs in containers can't be started here";
/// The version of an engine that does not tell it.
const UNKNOWN: &str = "of an unknown version";
/// Where podman keeps what it has, as another user than root, below the home folder.
const STORAGE: &str = ".local/share/containers";
/// Why it is not asked what it can do.
const UNASKED: &str =
    "not asked what it can do, as that would make its storage (there is no ~/.local/share/containers)";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The version of docker's daemon.
    version: Option<String>,
    /// Why the engine does not answer.
    refused: Option<String>,
    /// Where it keeps images, and how many bytes are free there.
    #[serde(default)]
    root: Option<String>,
    #[serde(default)]
    free: Option<u64>,
    /// Running containers that were given GPUs, and no more shared memory than docker's 64 MB: their names.
    #[serde(default)]
    small: Vec<String>,
    /// Running containers of runs that are over: their names.
    #[serde(default)]
    left: Vec<String>,
    /// And of those of which that is not sure.
    #[serde(default)]
    maybe_left: Vec<String>,
    /// The mirrors that it asks before Docker Hub.
    #[serde(default)]
    mirrors: Vec<String>,
    /// Whether it can give GPUs to containers: a runtime of NVIDIA's, its hook, or a description for CDI.
    gives_gpus: bool,
    /// Whether systemd takes the GPUs of containers away when it is reloaded.
    #[serde(default)]
    loses_gpus: bool,
    /// What the image of a launch demands of the driver, where the image is here and says so.
    #[serde(default)]
    requires: Option<String>,
    /// Podman's version where that is the engine that runs take.
    #[serde(default)]
    podman: Option<String>,
    /// Why it is.
    #[serde(default)]
    instead: Instead,
    /// Whether it is a podman that neither the hosts file nor an image asks for: that it does not answer is no trouble.
    #[serde(default)]
    is_spare: bool,
    /// The engine's program, as it is typed there; absent where an older hvtui looks.
    #[serde(default)]
    program: Option<String>,
    /// The engine that the hosts file names and that is not there.
    #[serde(default)]
    absent: Option<String>,
    /// How services are started here; absent where an older hvtui looks.
    #[serde(default)]
    services: Option<Services>,
}

/// Why runs take podman.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Instead {
    /// There is no docker.
    #[default]
    OfNone,
    /// What is called docker is podman.
    Called,
    /// The hosts file names it.
    Named,
}

impl Found {
    /// What an engine tells of itself.
    fn of(facts: &Value) -> Self {
        let is_podman = engines::is_podman(facts);
        let root = if is_podman { &facts["store"]["graphRoot"] } else { &facts["DockerRootDir"] };
        Self {
            version: engines::version(facts).filter(|_| !is_podman).map(str::to_owned),
            root: root.as_str().filter(|root| !root.is_empty()).map(str::to_owned),
            mirrors: mirrors_of(&facts["RegistryConfig"]["Mirrors"]),
            ..Self::default()
        }
    }

    /// The version of an engine that answers.
    fn answers(&self) -> Option<&str> {
        self.podman.as_deref().or(self.version.as_deref()).filter(|_| self.refused.is_none())
    }

    /// What kind of engine it is.
    fn kind(&self) -> &'static str {
        if self.podman.is_some() { "podman" } else { "docker" }
    }

    /// One of this version in words.
    fn words(&self, version: &str) -> String {
        match (&self.podman, self.instead) {
            (None, _) => format!("docker {version}"),
            (_, Instead::OfNone) => format!("no docker; podman {version} starts the containers of runs"),
            (_, Instead::Called) => format!("podman {version} stands in for docker"),
            (_, Instead::Named) => {
                format!("podman {version} starts the containers of runs, as the hosts file says")
            }
        }
    }
}

/// The engine that runs take here.
pub(super) struct Engine {
    pub(super) program: PathBuf,
    /// Its program as it is typed.
    name: String,
    /// What it tells of itself.
    facts: Value,
    /// Why it does not answer.
    pub(super) refused: Option<String>,
    /// Podman's version where it is podman.
    podman: Option<String>,
    /// Whether it is a podman that nothing asks for.
    is_spare: bool,
}

impl Engine {
    /// What gives its images their numbers: docker and podman number configurations, containerd's store manifests.
    pub(super) fn numbering(&self) -> &'static str {
        if self.podman.is_some() {
            "podman"
        } else if self.facts["DriverStatus"].to_string().contains("io.containerd.snapshotter") {
            "containerd"
        } else {
            "docker"
        }
    }
}

/// Whether podman can be asked without a change of the host: as another user than root it makes its storage when it is asked of itself.
fn has_storage() -> bool {
    rustix::process::geteuid().is_root() || home().join(STORAGE).exists()
}

/// Asks it what it is; `None` where there is none, or not the one that the hosts file names.
pub(super) fn engine(site: &Site) -> Result<Option<Engine>, String> {
    let at = |name: &str| Some((name.to_owned(), site.program(name)?));
    let found = match &site.engine {
        Some(name) => at(name),
        None => KNOWN.into_iter().find_map(at),
    };
    let Some((name, program)) = found else { return Ok(None) };
    let is_wanted = site.engine.is_some() || site.image.is_some();
    if !is_wanted
        && !has_storage()
        && let Some(version) = podman(site, &program)
    {
        let (refused, podman) = (Some(UNASKED.to_owned()), Some(version));
        return Ok(Some(Engine { program, name, facts: Value::Null, refused, podman, is_spare: true }));
    }
    let told = site.ask(&program, &engines::INFO)?;
    let facts = engines::facts(&told);
    let refused = engines::refusal(&told, &facts);
    let podman = if refused.is_some() || facts.is_null() {
        // its own version it tells all the same
        podman(site, &program)
    } else {
        let version = || engines::version(&facts).unwrap_or(UNKNOWN).to_owned();
        engines::is_podman(&facts).then(version)
    };
    let is_spare = !is_wanted && name == "podman";
    Ok(Some(Engine { program, name, facts, refused, podman, is_spare }))
}

/// Of `podman version 4.3.1`.
fn podman(site: &Site, program: &Path) -> Option<String> {
    let told = site.ask(program, &["--version"]).ok()?;
    let words = told.out.split_whitespace();
    words.last().filter(|_| told.out.contains("podman")).map(str::to_owned)
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
        let Some(engine) = engine(site)? else {
            return Ok(Found { absent: site.engine.clone(), ..Found::default() });
        };
        let instead = match (&site.engine, engine.name.as_str()) {
            (Some(_), _) => Instead::Named,
            (None, "docker") => Instead::Called,
            (None, _) => Instead::OfNone,
        };
        let Engine { program, name, facts, refused, podman, is_spare } = engine;
        let is_docker = podman.is_none();
        let (program_name, services) = (Some(name), Some(Services::here()));
        let mut found = Found {
            refused,
            podman,
            instead,
            is_spare,
            program: program_name,
            services,
            ..Found::of(&facts)
        };
        // what it can do is not known of one that tells nothing of itself
        if found.answers().is_none() {
            return Ok(found);
        }
        let room = found.root.as_deref().and_then(|root| rustix::fs::statvfs(root).ok());
        found.free = room.map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        // a launch starts its own
        if !site.for_launch {
            let running = running::all(site, &program);
            found.small = running::small(&running);
            (found.left, found.maybe_left) = running::left(&running, &site.state);
        }
        let has_hook = || facts["Runtimes"].get("nvidia").is_some() || site.program(GPU_HOOK).is_some();
        let (by_hook, is_described) = (is_docker && has_hook(), describes_gpus());
        found.gives_gpus = by_hook || (is_described && (!is_docker || reads_descriptions(&facts)));
        let is_systemds = facts["CgroupDriver"].as_str() == Some("systemd");
        found.loses_gpus = by_hook && is_systemds && !is_described && !has_links();
        // a device of CDI's is given without a look at what the image demands
        let image = site.image.as_deref().filter(|_| by_hook);
        found.requires = image.and_then(|image| requires(site, &program, image));
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        // each kind has versions of its own
        let versions = |is_podman: bool| {
            let of_kind = seen.iter().filter(move |one| one.found.podman.is_some() == is_podman);
            Compared::new(of_kind.filter_map(|one| Some((one.host.as_str(), minor(one.found.answers()?)))))
        };
        let (dockers, podmans) = (versions(false), versions(true));
        let running = seen.iter().filter(|one| one.found.version.is_some());
        let mirrors: Vec<(&str, String)> =
            running.map(|one| (one.host.as_str(), mirrors(&one.found))).collect();
        let mirrors = Compared::new(mirrors.iter().map(|(host, mirrors)| (*host, mirrors.as_str())));
        let judge = |one: &Seen<'_, Found>| {
            let has_gpus = !one.info.gpus.is_empty();
            let cuda = one.info.cuda_driver.value().filter(|_| has_gpus);
            let there = cuda.map(|cuda| There { cuda, driver: one.info.driver.value().map(String::as_str) });
            let all = if one.found.podman.is_some() { &podmans } else { &dockers };
            too_new(&one.found, there).unwrap_or_else(|| judge(&one.found, has_gpus, (all, &mirrors)))
        };
        seen.iter().map(judge).collect()
    }
}

/// Whether docker gives devices to containers by descriptions (CDI).
fn reads_descriptions(facts: &Value) -> bool {
    facts["CDISpecDirs"].as_array().is_some_and(|folders| !folders.is_empty())
}

/// Whether NVIDIA's devices are known by their numbers, too. Those that are not systemd takes from containers when it is reloaded.
fn has_links() -> bool {
    let mut names = std::fs::read_dir("/dev/char").into_iter().flatten().flatten();
    names.any(|entry| entry.file_name().as_encoded_bytes().starts_with(NVIDIAS))
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

/// The mirrors as docker tells them: a list, or nothing.
fn mirrors_of(told: &Value) -> Vec<String> {
    let told = told.as_array().map_or(&[][..], Vec::as_slice);
    let mut mirrors: Vec<String> = told.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    mirrors.sort_unstable();
    mirrors
}

/// In words.
fn mirrors(found: &Found) -> String {
    if found.mirrors.is_empty() { "none".to_owned() } else { found.mirrors.join(" ") }
}

fn judge(found: &Found, has_gpus: bool, (all, of_mirrors): (&Compared<'_>, &Compared<'_>)) -> Verdict {
    if let Some(name) = &found.absent {
        return Verdict::look(
            format!("no {name}, the engine that the hosts file names"),
            NONE_STARTS,
            "install it there, or name another one by `container` in the hosts file",
        );
    }
    if let Some(why) = &found.refused {
        return refused(found, why);
    }
    let Some(version) = found.answers() else {
        // of an older hvtui no program is told
        if found.program.is_some() {
            return Verdict::unknown("docker answers, and does not tell what it is");
        }
        let words = if all.is_empty() { "no docker" } else { "no docker here; other hosts have it" };
        return Verdict::unknown(words);
    };
    let (words, kind) = (found.words(version), found.kind());
    if has_gpus && !found.gives_gpus {
        return without_gpus(found, &words);
    }
    if let Some(verdict) = of_containers(found) {
        return verdict;
    }
    if let (Some(root), Some(free)) = (&found.root, found.free.filter(|free| *free < ROOM)) {
        return Verdict::look(
            format!("{} free at {root}", units::bytes(free)),
            "an image of a framework takes 5 to 20 GB: a pull fails half way",
            format!("{kind} system df shows what is kept, {kind} image prune what can go"),
        )
        // how much it is moves
        .lasting(format!("little is free at {root}"));
    }
    if has_gpus && found.loses_gpus {
        return Verdict::look(
            format!("{words}, whose control groups are systemd's, and /dev/char has no links of the GPUs"),
            "`systemctl daemon-reload`, as updates of packages do it, takes the GPUs from running containers: \"Failed to initialize \
             NVML: Unknown Error\"",
            format!("{LINKS}; or \"exec-opts\": [\"native.cgroupdriver=cgroupfs\"] in /etc/docker/daemon.json"),
        )
        .fixed_there(LINKS);
    }
    let mirrors = mirrors(found);
    if let Some(difference) = of_mirrors.difference(&mirrors).filter(|_| found.podman.is_none()) {
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
        None => Verdict::good(words),
        Some(difference) => Verdict::look(
            format!("{words} ({difference})"),
            format!(
                "the same {kind} run may be understood otherwise: options, defaults and the forms of images change between versions"
            ),
            format!(
                "install {kind} {} there: apt-cache madison {} lists what can be had",
                all.wanted(minor(version)).unwrap_or("of the other hosts' version"),
                if found.podman.is_some() { "podman" } else { "docker-ce (or docker.io)" },
            ),
        ),
    }
}

/// An engine that does not answer.
fn refused(found: &Found, why: &str) -> Verdict {
    if found.is_spare {
        let none = if found.instead == Instead::OfNone { "no docker; " } else { "" };
        let version = found.podman.as_deref().unwrap_or(UNKNOWN);
        return Verdict::unknown(format!("{none}podman {version}: {why}"));
    }
    if found.podman.is_some() {
        return Verdict::look(
            format!("podman: {why}"),
            NONE_STARTS,
            "podman info, typed there, says more; as another user than root it needs lines of the user in /etc/subuid and /etc/subgid",
        );
    }
    if why.contains("permission denied") {
        let command = "sudo usermod -aG docker $USER";
        return Verdict::look(why, NONE_STARTS, format!("{command}, then log in again")).fixed_there(command);
    }
    // which daemon it is that does not answer is told by its socket
    let is_systemds = found.services.unwrap_or(Services::Systemd) == Services::Systemd;
    let is_users = |socket: &str| why.contains("/run/user/") && why.contains(socket);
    let (command, otherwise) = if is_users("/podman.sock") {
        (
            is_systemds.then(|| "systemctl --user start podman.socket".to_owned()),
            "podman system service --time=0 answers there at that socket, started as this user",
        )
    } else if is_users("/docker.sock") {
        (
            is_systemds.then(|| "systemctl --user start docker".to_owned()),
            "start dockerd-rootless.sh there as this user",
        )
    } else if ROOTS.iter().any(|socket| why.contains(socket)) {
        (
            daemon(found, "start"),
            "start dockerd there as root (the host has neither systemd nor /etc/init.d/docker); in a container: mount the \
             /var/run/docker.sock of the machine around it",
        )
    } else {
        (
            None,
            "docker context ls and $DOCKER_HOST tell there which daemon it asks: start that one, or choose another",
        )
    };
    match command {
        Some(command) => Verdict::look(why, NONE_STARTS, command.clone()).fixed_there(command),
        None => Verdict::look(why, NONE_STARTS, otherwise),
    }
}

/// An engine that gives no GPUs, on a host that has some.
fn without_gpus(found: &Found, words: &str) -> Verdict {
    if found.podman.is_some() {
        let command = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
        return Verdict::look(
            format!("{words}, and is not told of the GPUs"),
            "podman gives GPUs by a description (CDI) alone: runs in containers get none",
            format!("{command}   (nvidia-ctk comes with nvidia-container-toolkit)"),
        )
        .fixed_there(command);
    }
    Verdict::look(
        format!("{words} without NVIDIA's runtime, and there are GPUs"),
        "docker run --gpus fails: \"could not select device driver\"",
        format!(
            "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && {}",
            daemon(found, "restart").unwrap_or_else(|| "restart dockerd".to_owned())
        ),
    )
}

/// Running containers that are in the way of the next run, or lack what they need.
fn of_containers(found: &Found) -> Option<Verdict> {
    let is_sure = !found.left.is_empty();
    let left = if is_sure { &found.left } else { &found.maybe_left };
    if !left.is_empty() {
        let runs = if left.len() == 1 { "its run" } else { "their runs" };
        let have = match (is_sure, left.len()) {
            (false, _) => "may have",
            (true, 1) => "has",
            (true, _) => "have",
        };
        let program = shell_word(found.program.as_deref().unwrap_or(found.kind()));
        let names: Vec<_> = left.iter().map(|name| shell_word(name)).collect();
        let command = format!("{program} rm --force --volumes {}", names.join(" "));
        let seen =
            format!("{} {have} outlived {runs}: {}", counted(left.len(), "container"), left.join(", "));
        let cause = "what runs in it holds memory, ports and GPUs that the next run wants";
        return Some(if is_sure {
            Verdict::look(seen, cause, command.clone()).fixed_there(command)
        } else {
            // its supervisor or its files may be where they are not seen from here
            let remedy =
                format!("hvtui runs tells which runs go on; what belongs to none of them: {command}");
            Verdict::look(seen, cause, remedy)
        });
    }
    let first = found.small.first()?;
    let more = match found.small.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Verdict::look(
        format!("container {first}{more} has GPUs and 64 MB of /dev/shm"),
        "NCCL and data loaders in it end with \"Bus error\" or \"No space left on device\"",
        "start it with --ipc=host, or --shm-size=16g; the containers of hvtui share the host's",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::tests::{seen, seen_with};
    use crate::domain::doctor::Fix;
    use crate::domain::gpu::GpuInfo;
    use crate::domain::preflight::Mark;

    /// Of a host without others.
    fn judge(found: &Found, has_gpus: bool) -> Verdict {
        super::judge(found, has_gpus, (&Compared::new([]), &Compared::new([])))
    }

    fn docker(version: &str) -> Found {
        Found { version: Some(version.into()), ..Found::default() }
    }

    fn podman(version: &str, instead: Instead) -> Found {
        Found { podman: Some(version.into()), instead, ..Found::default() }
    }

    fn told(verdict: &Verdict) -> (Mark, &str) {
        (verdict.mark, verdict.evidence.as_str())
    }

    #[test]
    fn podman_is_what_starts_containers_where_there_is_no_docker() {
        let found = |gives_gpus| Found { gives_gpus, ..podman("4.3.1", Instead::OfNone) };
        let good = judge(&found(false), false);
        assert_eq!(told(&good), (Mark::Good, "no docker; podman 4.3.1 starts the containers of runs"));
        assert_eq!(judge(&found(true), true).mark, Mark::Good);
        let untold = judge(&found(false), true);
        assert!(untold.mark == Mark::Look && untold.help().unwrap().contains("cdi generate"), "{untold:?}");
    }

    #[test]
    fn podman_under_dockers_name_and_one_that_is_named_are_judged_as_podman() {
        let facts = json!({
            "host": {"cgroupManager": "systemd"}, "store": {"graphRoot": "/var/lib/containers/storage"},
            "version": {"APIVersion": "4.3.1", "Version": "4.3.1"},
        });
        let read = Found::of(&facts);
        assert_eq!((read.version, read.root.as_deref()), (None, Some("/var/lib/containers/storage")));
        let called = judge(&podman("4.3.1", Instead::Called), false);
        assert_eq!(told(&called), (Mark::Good, "podman 4.3.1 stands in for docker"));
        let named = podman("4.3.1", Instead::Named);
        assert!(judge(&named, false).evidence.ends_with(", as the hosts file says"));
        let untold = judge(&named, true);
        assert!(untold.mark == Mark::Look && untold.evidence.ends_with(", and is not told of the GPUs"));
        // its faults are not docker's
        let full = Found { root: read.root, free: Some(1 << 30), ..podman("4.3.1", Instead::Called) };
        assert!(judge(&full, false).remedy.unwrap().starts_with("podman system df "));
        let refused = Found {
            refused: Some("Error: cannot re-exec process".into()),
            ..podman("4.3.1", Instead::Called)
        };
        let refused = judge(&refused, false);
        assert_eq!(told(&refused), (Mark::Look, "podman: Error: cannot re-exec process"));
        assert!(refused.fix.is_none() && !refused.remedy.unwrap().contains("systemctl"));
        let spare = |instead| {
            let refused = Some(UNASKED.to_owned());
            judge(&Found { refused, is_spare: true, ..podman("4.3.1", instead) }, true)
        };
        let seen = format!("no docker; podman 4.3.1: {UNASKED}");
        assert_eq!(told(&spare(Instead::OfNone)), (Mark::Unknown, seen.as_str()));
        assert_eq!(told(&spare(Instead::Called)), (Mark::Unknown, seen.trim_start_matches("no docker; ")));
        let absent = judge(&Found { absent: Some("podman".into()), ..Found::default() }, false);
        assert_eq!(told(&absent), (Mark::Look, "no podman, the engine that the hosts file names"));
    }

    #[test]
    fn versions_are_compared_with_those_of_the_same_engine() {
        let hosts = [
            docker("27.3.1"),
            docker("27.3.0"),
            podman("4.9.3", Instead::OfNone),
            podman("4.9.4", Instead::Called),
            podman("3.4.4", Instead::OfNone),
            Found { mirrors: vec!["https://mirror.lan/".into()], ..docker("27.3.1") },
        ];
        let verdicts = Docker::judge(&seen(hosts));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Good, Mark::Good, Mark::Look, Mark::Look]);
        assert_eq!(
            verdicts[4].evidence,
            "no docker; podman 3.4.4 starts the containers of runs (other hosts have 4.9)"
        );
        assert!(
            verdicts[4]
                .remedy
                .as_ref()
                .unwrap()
                .starts_with("install podman 4.9 there: apt-cache madison podman ")
        );
        assert!(verdicts[5].evidence.starts_with("its mirror of Docker Hub: "), "podman has none of them");
    }

    #[test]
    fn a_daemon_that_refuses_and_one_without_gpus_are_told_apart() {
        let running = |gives_gpus| Found { gives_gpus, ..docker("27.3.1") };
        assert_eq!(judge(&running(false), false).mark, Mark::Good);
        let without = judge(&running(false), true);
        assert_eq!(
            told(&without),
            (Mark::Look, "docker 27.3.1 without NVIDIA's runtime, and there are GPUs")
        );
        assert_eq!(told(&judge(&running(true), true)), (Mark::Good, "docker 27.3.1"));
        let refused = |why: &str| judge(&Found { refused: Some(why.into()), ..Found::default() }, false);
        let denied = refused("permission denied while …");
        assert!(denied.mark == Mark::Look && denied.remedy.unwrap().starts_with("sudo usermod -aG docker"));
        let silent = refused("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.");
        assert!(silent.mark == Mark::Look && silent.help().unwrap() == "sudo systemctl start docker");
        assert_eq!(told(&judge(&Found::default(), false)), (Mark::Unknown, "no docker"));
        let untold = Found { program: Some("docker".into()), ..Found::default() };
        let words = "docker answers, and does not tell what it is";
        assert_eq!(told(&judge(&untold, true)), (Mark::Unknown, words));
        let beside = Docker::judge(&seen([docker("27.3.1"), untold]));
        assert_eq!(
            [told(&beside[0]), told(&beside[1])],
            [(Mark::Good, "docker 27.3.1"), (Mark::Unknown, words)]
        );
        let others = Docker::judge(&seen([docker("27.3.1"), Found::default()]));
        assert_eq!(told(&others[1]), (Mark::Unknown, "no docker here; other hosts have it"));
    }

    #[test]
    fn what_a_daemon_tells_of_itself_is_read_and_nothing_of_one_that_is_not_there() {
        let found = Found::of(&json!({
            "ServerVersion": "27.3.1", "DockerRootDir": "/var/lib/docker",
            "RegistryConfig": {"Mirrors": ["https://b/", "https://a/"]},
        }));
        assert_eq!((found.answers(), found.root.as_deref()), (Some("27.3.1"), Some("/var/lib/docker")));
        assert_eq!(found.mirrors, ["https://a/", "https://b/"]);
        let none = Found::of(&json!({"ServerVersion": "", "DockerRootDir": "", "RegistryConfig": null}));
        assert!(none.answers().is_none() && none.root.is_none() && none.mirrors.is_empty(), "{none:?}");
        let numbering = |podman: Option<&str>, facts: Value| {
            let podman = podman.map(str::to_owned);
            let (program, name) = (PathBuf::new(), String::new());
            Engine { program, name, facts, refused: None, podman, is_spare: false }.numbering()
        };
        assert_eq!(numbering(None, json!({"DriverStatus": [["Backing Filesystem", "extfs"]]})), "docker");
        let containerds = json!({"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]});
        assert_eq!(numbering(None, containerds), "containerd");
        assert_eq!(numbering(Some("4.3.1"), Value::Null), "podman");
        assert!(reads_descriptions(&json!({"CDISpecDirs": ["/etc/cdi"]})));
        assert!(!reads_descriptions(&json!({"CDISpecDirs": []})) && !reads_descriptions(&Value::Null));
    }

    #[test]
    fn a_command_of_systemd_is_offered_where_there_is_one() {
        let at = |socket: &str, services| {
            let refused =
                Some(format!("failed to connect to the docker API at {socket}; check if the path …"));
            judge(&Found { refused, services, ..Found::default() }, false)
        };
        let refused = |services| at("unix:///var/run/docker.sock", services);
        let command = |services| match refused(services).fix {
            Some(Fix::There(command)) => command,
            _ => String::new(),
        };
        assert_eq!(command(Some(Services::Systemd)), "sudo systemctl start docker");
        assert_eq!(command(Some(Services::Script)), "sudo service docker start");
        assert_eq!(command(None), "sudo systemctl start docker", "an older answer");
        let none = refused(Some(Services::None));
        assert!(none.fix.is_none() && none.remedy.unwrap().starts_with("start dockerd there"));
        // a daemon of the user's own, and one that is elsewhere
        let own = at("unix:///run/user/1000/docker.sock", Some(Services::Systemd));
        assert_eq!(own.help().as_deref(), Some("systemctl --user start docker"));
        let own = at("unix:///run/user/1000/docker.sock", Some(Services::None));
        assert!(own.fix.is_none() && own.remedy.unwrap().starts_with("start dockerd-rootless.sh"));
        let podmans = at("unix:///run/user/1000/podman/podman.sock", Some(Services::Systemd));
        assert_eq!(podmans.help().as_deref(), Some("systemctl --user start podman.socket"));
        for socket in [
            "tcp://10.0.0.9:2375",
            "unix:///home/li/.colima/docker.sock",
            "unix:///srv/run/docker.sock",
            "unix:///run/podman/podman.sock",
            "unix:///run/user/1000/other.sock",
        ] {
            let elsewhere = at(socket, Some(Services::Systemd));
            assert!(elsewhere.fix.is_none() && elsewhere.remedy.unwrap().starts_with("docker context ls"));
        }
    }

    #[test]
    fn another_version_is_told() {
        let verdicts = Docker::judge(&seen([docker("27.3.1"), docker("27.3.0"), docker("20.10.24")]));
        assert_eq!([verdicts[0].mark, verdicts[1].mark], [Mark::Good, Mark::Good]);
        assert_eq!(told(&verdicts[2]), (Mark::Look, "docker 20.10.24 (other hosts have 27.3)"));
        assert!(verdicts[2].remedy.as_ref().unwrap().starts_with("install docker 27.3 there"));
    }

    #[test]
    fn a_host_that_has_another_mirror_is_told() {
        let host = |mirrors: Value| Found { mirrors: mirrors_of(&mirrors), ..docker("27.3.1") };
        let own = || json!(["https://mirror.lan/"]);
        let verdicts = Docker::judge(&seen([host(own()), host(own()), host(Value::Null), Found::default()]));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Look, Mark::Unknown]);
        assert_eq!(
            verdicts[2].evidence,
            "its mirror of Docker Hub: none (other hosts have https://mirror.lan/)"
        );
    }

    #[test]
    fn little_room_and_containers_with_faults_are_told() {
        let of = |found: Found| judge(&found, false);
        let small = of(Found { small: vec!["train".into(), "old".into()], ..docker("27.3.1") });
        assert_eq!(told(&small), (Mark::Look, "container train and 1 more has GPUs and 64 MB of /dev/shm"));
        let room =
            |free| of(Found { root: Some("/var/lib/docker".into()), free: Some(free), ..docker("27.3.1") });
        assert_eq!(told(&room(2 << 30)), (Mark::Look, "2.0 G free at /var/lib/docker"));
        assert_eq!(told(&room(ROOM)), (Mark::Good, "docker 27.3.1"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let one = of(Found { left: names(&["hvtui-1-r0"]), ..docker("27.3.1") });
        assert_eq!(told(&one), (Mark::Look, "1 container has outlived its run: hvtui-1-r0"));
        assert_eq!(one.help().unwrap(), "docker rm --force --volumes hvtui-1-r0");
        let left = names(&["hvtui-1-r0", "a b"]);
        let two = of(Found { left, program: Some("podman".into()), ..podman("4.3.1", Instead::OfNone) });
        assert_eq!(two.evidence, "2 containers have outlived their runs: hvtui-1-r0, a b");
        assert_eq!(two.help().unwrap(), "podman rm --force --volumes hvtui-1-r0 'a b'");
        let maybe_left = names(&["hvtui-1-r0"]);
        let unsure = of(Found { maybe_left: maybe_left.clone(), ..docker("27.3.1") });
        assert_eq!(told(&unsure), (Mark::Look, "1 container may have outlived its run: hvtui-1-r0"));
        assert!(unsure.fix.is_none() && unsure.remedy.unwrap().starts_with("hvtui runs tells "));
        let both = of(Found { left: names(&["hvtui-2-r0"]), maybe_left, ..docker("27.3.1") });
        assert_eq!(
            both.help().unwrap(),
            "docker rm --force --volumes hvtui-2-r0",
            "those that are sure first"
        );
    }

    #[test]
    fn gpus_that_a_reload_of_systemd_takes_away_are_told_where_there_are_some() {
        let found = |loses_gpus| Found { gives_gpus: true, loses_gpus, ..docker("27.3.1") };
        let mut info = seen([()])[0].info.clone();
        info.gpus = vec![GpuInfo::unknown(0)];
        let of = |loses| Docker::judge(&seen_with([(info.clone(), found(loses))])).remove(0);
        let loses = of(true);
        let seen = ", whose control groups are systemd's, and /dev/char has no links of the GPUs";
        assert!(loses.mark == Mark::Look && loses.evidence.ends_with(seen), "{loses:?}");
        let command = loses.help().unwrap();
        assert!(
            command
                .starts_with("sudo nvidia-ctk system create-dev-char-symlinks --create-all && echo 'ACTION")
        );
        assert!(!command.contains("  ") && command.len() < 400, "{command}");
        assert_eq!([of(false).mark, judge(&found(true), false).mark], [Mark::Good, Mark::Good]);
    }
}
