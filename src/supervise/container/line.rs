//! The engine's command line for a rank. Pure: a command for the rank becomes one that starts it in a container.
//!
//! Values of variables stand in no argument, where every user of the host could read them: the engine's client takes them
//! from its own environment. But for those that mean something to the client itself.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{PLACE_LABEL, RANK_LABEL, RUN_LABEL, Setup, cid_file};
use crate::domain::container::{self, ContainerOptions};
use crate::domain::environment::Bound;
use crate::domain::redaction::MASK;
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
    line.workdir(of.setup, options, (of.cwd.as_deref(), rank.cwd.as_deref()), &of.ours);
    let mut client = host;
    for (name, value) in inside.own() {
        let text = name.to_string_lossy();
        let is_secret = rank.env.get(text.as_ref()).is_some_and(|value| value == MASK);
        if is_secret && is_clients(&text) {
            return Err(format!(
                "the secret variable {text} means something to the container engine itself, and can't be handed to a rank \
                 without being shown: give it another name"
            ));
        }
        line.variable((name, value), &mut client);
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
/// and these files under other names; and the variables that its client gets. It has no volume of the engine, which would be made.
pub(super) fn look(
    of: &Looked<'_>,
    (name, label): (&str, (&str, &str)),
    files: &[(PathBuf, String)],
    entrypoint: Option<&str>,
    command: &[String],
) -> (Vec<OsString>, Variables) {
    let Looked { setup, options, env, gpus, cwd } = of;
    let mut line = Line(Vec::new());
    line.all(["run", "--rm", "--name", name]);
    line.label(label.0, label.1);
    line.surroundings(setup, options.user.as_deref(), gpus);
    for (source, target) in files {
        line.mount_at(source, Path::new(target), ",readonly");
    }
    for volume in setup.volumes.iter().filter(|volume| volume.is_path()) {
        line.add("-v").add(volume.to_string());
    }
    line.workdir(setup, options, (cwd.as_deref(), None), &[]);
    for (name, value) in setup.person(options) {
        if !setup.image_env.contains_key(name) && !env.contains_key(name) {
            line.add("-e").add(format!("{name}={value}"));
        }
    }
    let mut client = Variables::default();
    for (name, value) in *env {
        line.variable((name.as_ref(), value.as_ref()), &mut client);
    }
    line.all(options.arguments.iter().map(String::as_str));
    if let Some(entrypoint) = entrypoint {
        line.all(["--entrypoint", entrypoint]);
    }
    line.add(&setup.image.id);
    line.all(command.iter().map(String::as_str));
    (line.0, client)
}

/// Of what a container is for a look: of an image alone, or of a launch.
pub(super) struct Looked<'a> {
    /// What there is here.
    pub(super) setup: &'a Setup,
    /// What was asked for.
    pub(super) options: &'a ContainerOptions,
    /// The variables that ranks are given.
    pub(super) env: &'a BTreeMap<String, String>,
    /// The GPUs that it is given.
    pub(super) gpus: &'a [&'a str],
    /// The ranks' working directory where it is one of this host's.
    pub(super) cwd: Option<PathBuf>,
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
    fn workdir(
        &mut self,
        setup: &Setup,
        options: &ContainerOptions,
        (here, named): (Option<&Path>, Option<&str>),
        ours: &[PathBuf],
    ) {
        if let Some(inside) = &options.workdir {
            self.add("-w").add(inside);
            return;
        }
        if let Some(cwd) = here {
            let covered = setup.volumes.iter().any(|volume| cwd.starts_with(&volume.target));
            if !covered && !ours.iter().any(|path| path == cwd) {
                self.mount(cwd);
            }
            self.add("-w").add(cwd);
        } else if let Some(cwd) = named.filter(|cwd| cwd.starts_with('/')) {
            self.add("-w").add(cwd);
        }
    }

    fn variable(&mut self, (name, value): (&OsStr, &OsStr), client: &mut Variables) {
        if !is_clients(&name.to_string_lossy()) {
            client.set(name, value);
            self.add("-e").add(name);
            return;
        }
        let mut pair = name.to_owned();
        pair.push("=");
        pair.push(value);
        self.add("-e").add(pair);
    }
}

/// Whether a variable means something to the engine's client itself.
fn is_clients(name: &str) -> bool {
    CLIENTS.contains(&name) || CLIENTS_BEGIN.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::container::ImageId;
    use crate::image::engine::Engine;
    use crate::supervise::container::setup::User;

    #[test]
    fn a_look_gets_the_container_that_a_rank_gets() {
        let engine = Engine {
            program: PathBuf::from("/usr/bin/docker"),
            kind: Kind::Docker,
            rootless: false,
            maps_users: false,
            gpus: None,
            skips_layers: false,
        };
        let user = User { uid: 1000, gid: 1000, groups: Vec::new(), name: Some("li".to_owned()) };
        let image = ImageId { id: "sha256:1".to_owned(), layers: String::new() };
        let volumes = ["/x:/data", "cache:/cache"].map(|one| one.parse().unwrap()).to_vec();
        let image_env: BTreeMap<String, String> = [("HOME".to_owned(), "/home/jovyan".to_owned())].into();
        let setup = Setup { engine, image, image_env, volumes, user, infiniband: false };
        let arguments = vec!["--entrypoint=/own".to_owned()];
        let options = ContainerOptions { arguments, ..ContainerOptions::of("x:1") };
        let env: BTreeMap<String, String> =
            [("PROFILE", "own"), ("DOCKER_X", "1")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let cwd = Some(PathBuf::from("/code"));
        let of = Looked { setup: &setup, options: &options, env: &env, gpus: &[], cwd };
        let line = |entrypoint| {
            let (words, client) =
                look(&of, ("n", ("l", "v")), &[], entrypoint, &["/loader".to_owned(), "look".to_owned()]);
            let mut expected = Variables::default();
            expected.set("PROFILE", "own");
            assert_eq!(client, expected, "values stand in no argument");
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let said = line(None);
        for part in
            [" -v /x:/data ", " --mount type=bind,source=/code,target=/code -w /code ", " --user 1000:1000 "]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("cache"), "no volume is made: {said}");
        assert!(said.contains(" -e DOCKER_X=1 -e PROFILE "), "an entry point may go by them: {said}");
        assert!(said.contains(" -e USER=li ") && !said.contains("HOME="), "the image's own counts: {said}");
        assert!(said.ends_with(" --entrypoint=/own sha256:1 /loader look"), "{said}");
        // the last one counts
        assert!(
            line(Some("/loader")).ends_with(" --entrypoint=/own --entrypoint /loader sha256:1 /loader look")
        );
    }
}
