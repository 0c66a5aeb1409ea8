//! The engine's command line for a rank. Pure: a command for the rank becomes one that starts it in a container.
//!
//! Values of variables stand in no argument, where every user of the host could read them: the engine's client takes them
//! from its own environment. But for those that mean something to the client itself.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{PLACE_LABEL, RANK_LABEL, RUN_LABEL, Setup, cid_file};
use crate::domain::container::{self, ContainerOptions};
use crate::domain::environment::Bound;
use crate::domain::run::{HostRun, RankSpec};
use crate::image::engine::{GpuWay, Kind};
use crate::supervise::invocation::Invocation;
use crate::supervise::variables::Variables;

/// The variable by which a rank sees its GPUs.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Variables that mean something to the engine's client, and beginnings of such.
const CLIENTS: [&str; 5] = ["PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR"];
const CLIENTS_BEGIN: [&str; 7] =
    ["DOCKER_", "CONTAINER", "PODMAN_", "BUILDAH_", "XDG_", "REGISTRY_", "STORAGE_"];

/// What is needed for a rank's container.
pub(in crate::supervise) struct Contained<'a> {
    /// The run's directory, which is inside too, under the same name.
    pub(in crate::supervise) dir: &'a Path,
    /// The run here.
    pub(in crate::supervise) run: &'a HostRun,
    /// The rank.
    pub(in crate::supervise) rank: &'a RankSpec,
    /// What was asked for.
    pub(in crate::supervise) options: &'a ContainerOptions,
    /// What there is here.
    pub(in crate::supervise) setup: &'a Setup,
    /// Files and folders of hvtui that its parts in the rank need.
    pub(in crate::supervise) ours: Vec<PathBuf>,
    /// The rank's working directory where it is one of this host's.
    pub(in crate::supervise) cwd: Option<PathBuf>,
}

/// The engine's client, which starts the rank with these variables in its container. `host` are the variables of this
/// process. The error names a variable that can't be handed over.
pub(in crate::supervise) fn contain(
    of: &Contained<'_>,
    inside: &Variables,
    host: Variables,
) -> Result<Invocation, String> {
    let Contained { run, rank, options, setup, .. } = of;
    let mut line = Line(Vec::new());
    line.all(["run", "--name", &container::name(&run.run, rank.rank, run.attempt)]);
    line.label(RUN_LABEL, run.run.as_str());
    line.label(RANK_LABEL, &rank.rank.to_string());
    line.label(PLACE_LABEL, &of.dir.display().to_string());
    line.add("--cidfile").add(of.dir.join(cid_file(rank.rank)));
    let seen = inside.get(VISIBLE).map(OsStr::to_string_lossy).unwrap_or_default();
    let seen: Vec<&str> = seen.split(',').filter(|one| !one.is_empty()).collect();
    line.surroundings(setup, options.user.as_deref(), &seen);
    for (limit, bound) in run.environment().limits {
        let bound = match bound {
            Bound::Unlimited => "-1".to_owned(),
            Bound::At(number) => number.to_string(),
        };
        line.add(format!("--ulimit={}={bound}", limit.name()));
    }
    for path in &of.ours {
        line.mount(path);
    }
    for volume in &setup.volumes {
        line.add("-v").add(volume.to_string());
    }
    line.workdir(of);
    let mut client = host;
    for (name, value) in inside.own() {
        line.variable((name, value), &mut client, rank)?;
    }
    line.all(options.arguments.iter().map(String::as_str));
    line.add(&setup.image.id);
    line.all(rank.argv.iter().map(String::as_str));
    let name = setup.engine.name();
    Ok(Invocation {
        program: setup.engine.program.clone(),
        name,
        arguments: line.0,
        cwd: PathBuf::from("/"),
        variables: client,
    })
}

/// The engine's arguments for a container that is started as a rank's is, for a look into the image: with this name and label,
/// these files under other names, and these GPUs.
pub(super) fn look(
    setup: &Setup,
    (name, label): (&str, (&str, &str)),
    files: &[(PathBuf, String)],
    gpus: &[&str],
    entrypoint: Option<&str>,
    command: &[String],
) -> Vec<OsString> {
    let mut line = Line(Vec::new());
    line.all(["run", "--rm", "--name", name]);
    line.label(label.0, label.1);
    line.surroundings(setup, None, gpus);
    for (source, target) in files {
        line.mount_at(source, Path::new(target), ",readonly");
    }
    for (name, value) in setup.person(&ContainerOptions::default()) {
        line.add("-e").add(format!("{name}={value}"));
    }
    if let Some(entrypoint) = entrypoint {
        line.all(["--entrypoint", entrypoint]);
    }
    line.add(&setup.image.id);
    line.all(command.iter().map(String::as_str));
    line.0
}

struct Line(Vec<OsString>);

impl Line {
    fn add(&mut self, word: impl Into<OsString>) -> &mut Self {
        self.0.push(word.into());
        self
    }

    fn all<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) {
        self.0.extend(words.into_iter().map(OsString::from));
    }

    fn label(&mut self, name: &str, value: &str) {
        self.add("--label").add(format!("{name}={value}"));
    }

    fn mount(&mut self, path: &Path) {
        self.mount_at(path, path, "");
    }

    fn mount_at(&mut self, source: &Path, target: &Path, options: &str) {
        let mut text = OsString::from("type=bind,source=");
        text.push(source);
        text.push(",target=");
        text.push(target);
        text.push(options);
        self.add("--mount").add(text);
    }

    /// What a rank's container shares with its host, whom it runs as, and the GPUs that it is given.
    fn surroundings(&mut self, setup: &Setup, user: Option<&str>, gpus: &[&str]) {
        let engine = &setup.engine;
        self.all(["--pull=never", "--log-driver=none", "--network=host", "--ipc=host", "--pid=host"]);
        // MPI's ranks read each other's memory, and engines forbid the call without it. Who is not root gets no right by it.
        self.add("--cap-add=SYS_PTRACE");
        if engine.maps_users {
            self.add("--userns=host");
        }
        self.user(setup, user);
        self.gpus(setup, gpus);
        if setup.infiniband && !engine.rootless {
            self.all(["--device=/dev/infiniband", "--ulimit=memlock=-1:-1", "--cap-add=IPC_LOCK"]);
        }
    }

    /// What the rank writes is the user's, as it is outside.
    fn user(&mut self, setup: &Setup, wanted: Option<&str>) {
        let Setup { engine, user, .. } = setup;
        if let Some(user) = wanted {
            self.add("--user").add(user);
            return;
        }
        match (engine.rootless, engine.kind) {
            // root inside is the user outside
            (true, Kind::Docker) => {
                self.add("--user").add("0:0");
            }
            (rootless, _) => {
                if rootless {
                    self.add("--userns=keep-id");
                }
                self.add("--user").add(format!("{}:{}", user.uid, user.gid));
                for group in user.groups.iter().filter(|_| !rootless) {
                    self.add("--group-add").add(group.to_string());
                }
            }
        }
    }

    fn gpus(&mut self, setup: &Setup, seen: &[&str]) {
        match setup.engine.gpus.filter(|_| !seen.is_empty()) {
            Some(GpuWay::Gpus) => {
                // The quotes are docker's: without them it splits at the comma.
                self.add("--gpus").add(format!("\"device={}\"", seen.join(",")));
            }
            Some(GpuWay::Cdi) => {
                for uuid in seen {
                    self.add("--device").add(format!("nvidia.com/gpu={uuid}"));
                }
            }
            None => {}
        }
    }

    /// The working directory is the same one inside, where it is one of the host's and no volume stands there.
    fn workdir(&mut self, of: &Contained<'_>) {
        if let Some(inside) = &of.options.workdir {
            self.add("-w").add(inside);
            return;
        }
        if let Some(cwd) = &of.cwd {
            let covered = of.setup.volumes.iter().any(|volume| cwd.starts_with(&volume.target));
            if !covered && !of.ours.iter().any(|path| path == cwd) {
                self.mount(cwd);
            }
            self.add("-w").add(cwd);
        } else if let Some(cwd) = of.rank.cwd.as_deref().filter(|cwd| cwd.starts_with('/')) {
            self.add("-w").add(cwd);
        }
    }

    fn variable(
        &mut self,
        (name, value): (&OsStr, &OsStr),
        client: &mut Variables,
        rank: &RankSpec,
    ) -> Result<(), String> {
        let text = name.to_string_lossy();
        let is_clients =
            CLIENTS.contains(&text.as_ref()) || CLIENTS_BEGIN.iter().any(|begin| text.starts_with(begin));
        if !is_clients {
            client.set(name, value);
            self.add("-e").add(name);
            return Ok(());
        }
        if rank.env.get(text.as_ref()).is_some_and(|value| value == crate::domain::redaction::MASK) {
            return Err(format!(
                "the secret variable {text} means something to the container engine itself, and can't be handed to a rank \
                 without being shown: give it another name"
            ));
        }
        let mut pair = name.to_owned();
        pair.push("=");
        pair.push(value);
        self.add("-e").add(pair);
        Ok(())
    }
}
