//! The container engine of a host: docker, or podman where docker is not. Found and asked before a run is started, so that
//! what it lacks is said before any rank runs anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::container::ImageId;
use crate::domain::sync::Digest;
use crate::domain::text::os_text;
use crate::program::asked::{self, Told};
use crate::program::engines::{self, GPU_HOOK, INFO, KNOWN, describes_gpus, made_of, refusal};
use crate::program::resolve;

/// How long an engine may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What sort of engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Docker: its daemon owns the containers.
    Docker,
    /// Podman: no daemon.
    Podman,
}

/// How ranks get their GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuWay {
    /// `--gpus`.
    Gpus,
    /// `--device nvidia.com/gpu=UUID`.
    Cdi,
}

/// An engine that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Its client program.
    pub program: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Whether it runs with the user's rights alone.
    pub rootless: bool,
    /// Whether it maps users to others, so that the host's must be asked for.
    pub maps_users: bool,
    /// How it gives GPUs to containers, if it can.
    pub gpus: Option<GpuWay>,
    /// Whether `load` takes an archive without the layers that it has already: docker's own store does; podman, and docker
    /// with containerd's store, want all of them.
    #[serde(default)]
    pub skips_layers: bool,
}

/// What an engine tells of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What it is.
    pub id: ImageId,
    /// The variables that it sets.
    pub env: BTreeMap<String, String>,
    /// Its layers from the bottom up, each the hash of its uncompressed content.
    pub layers: Vec<Digest>,
    /// The names by which the engine knows it.
    pub names: Vec<String>,
    /// For which machines it is: `linux/amd64`.
    pub platform: String,
    /// Bytes of its layers, about.
    pub size: u64,
}

/// Why ranks can't be started in containers here. The texts name neither the host nor the rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// There is none.
    #[error(
        "no container engine: neither docker nor podman is on its PATH: install one, or name its program by \
         container = \"/path/of/docker\" in the hosts file"
    )]
    None,
    /// The one that is named is not there.
    #[error("container engine {0}")]
    NotThere(String),
    /// The user may not use it.
    #[error(
        "{user} may not use {program}: {words}: add {user} to the group that owns its socket (sudo usermod -aG docker \
         {user}, then log in anew), or name an engine that {user} may use, such as container = \"podman\", in the hosts file"
    )]
    NotAllowed {
        /// The engine's program.
        program: String,
        /// The user.
        user: String,
        /// Its own words.
        words: String,
    },
    /// It has no daemon that answers.
    #[error(
        "{program} does not run: {words}: start it (sudo systemctl start docker), or name another engine in the hosts \
         file, such as container = \"podman\", which needs no daemon"
    )]
    NotRunning {
        /// The engine's program.
        program: String,
        /// Its own words.
        words: String,
    },
    /// It has not answered in time.
    #[error("{program} has not answered `{question}` within {} s: is its daemon hanging?", PATIENCE.as_secs())]
    Silent {
        /// The engine's program.
        program: String,
        /// What it was asked.
        question: String,
    },
    /// Its answer can't be used.
    #[error("{program} {question}: {words}")]
    Failed {
        /// The engine's program.
        program: String,
        /// What it was asked.
        question: String,
        /// Its own words, or what is wrong with them.
        words: String,
    },
    /// The image is not there.
    #[error(
        "no image {image} for {program}: `hvtui image push {image}` from a machine that has it, or `{program} pull {image}` on \
         that host"
    )]
    NoImage {
        /// The engine's program.
        program: String,
        /// The image as it was asked for.
        image: String,
    },
    /// GPUs can't be given to containers.
    #[error(
        "{program} can't give GPUs to containers: install nvidia-container-toolkit, then `sudo nvidia-ctk runtime \
         configure && sudo systemctl restart docker`, or describe the GPUs by `sudo nvidia-ctk cdi generate \
         --output=/etc/cdi/nvidia.yaml`"
    )]
    NoGpus {
        /// The engine's program.
        program: String,
    },
}

impl Engine {
    /// The engine of this host, on this search path; `named` is the program that the hosts file names. A docker that
    /// can't be used does not give way to a podman, which would not have its images.
    pub fn find(named: Option<&str>, path: Option<&OsStr>) -> Result<Self, EngineError> {
        let here = |name: &str| resolve(name, path, Path::new("/"), Path::new(name));
        if let Some(name) = named {
            let program = here(name).map_err(|error| EngineError::NotThere(error.to_string()))?;
            return Self::meet(program, path);
        }
        let program = KNOWN.iter().find_map(|name| here(name).ok()).ok_or(EngineError::None)?;
        Self::meet(program, path)
    }

    /// Asks a program what it is.
    fn meet(program: PathBuf, path: Option<&OsStr>) -> Result<Self, EngineError> {
        let version = question(&program, &["--version"])?;
        // Debian's podman-docker is called docker, too.
        let kind = if version.out.contains("podman") { Kind::Podman } else { Kind::Docker };
        let told = question(&program, &INFO)?;
        let facts = engines::facts(&told);
        if let Some(words) = refusal(&told, &facts) {
            return Err(not_usable(&program, words));
        }
        let has = |name: &str| resolve(name, path, Path::new("/"), Path::new("/")).is_ok();
        Ok(match kind {
            Kind::Docker => Self::docker(program, &facts, has(GPU_HOOK)),
            Kind::Podman => Self::podman(program, &facts),
        })
    }

    fn docker(program: PathBuf, facts: &Value, has_hook: bool) -> Self {
        let secures = facts["SecurityOptions"].as_array().map_or(&[][..], Vec::as_slice);
        let secures = |name: &str| secures.iter().filter_map(Value::as_str).any(|one| one.starts_with(name));
        let by_option = has_hook || facts["Runtimes"].get("nvidia").is_some();
        let by_cdi =
            || facts["CDISpecDirs"].as_array().is_some_and(|dirs| !dirs.is_empty()) && describes_gpus();
        let gpus = if by_option { Some(GpuWay::Gpus) } else { by_cdi().then_some(GpuWay::Cdi) };
        let (rootless, maps_users) = (secures("name=rootless"), secures("name=userns"));
        let store = facts["DriverStatus"].to_string();
        let skips_layers = facts["Driver"].is_string() && !store.contains("io.containerd.snapshotter");
        Self { program, kind: Kind::Docker, rootless, maps_users, gpus, skips_layers }
    }

    fn podman(program: PathBuf, facts: &Value) -> Self {
        let rootless = facts["host"]["security"]["rootless"].as_bool().unwrap_or(false);
        let gpus = describes_gpus().then_some(GpuWay::Cdi);
        Self { program, kind: Kind::Podman, rootless, maps_users: false, gpus, skips_layers: false }
    }

    /// For messages: `docker`.
    pub fn name(&self) -> String {
        called(&self.program)
    }

    /// What it has of an image.
    pub fn image(&self, image: &str) -> Result<Image, EngineError> {
        let told = question(&self.program, &["image", "inspect", "--", image])?;
        if !told.status.success() {
            let words = told.last_words().to_owned();
            let lower = words.to_lowercase();
            if ["no such image", "image not known", "failed to find image"]
                .iter()
                .any(|one| lower.contains(one))
            {
                return Err(EngineError::NoImage { program: self.name(), image: image.to_owned() });
            }
            return Err(not_usable(&self.program, words));
        }
        let damaged = |words: &str| EngineError::Failed {
            program: self.name(),
            question: "image inspect".to_owned(),
            words: words.to_owned(),
        };
        let facts = first(&told.out).ok_or_else(|| damaged("its answer is no JSON"))?;
        let id = facts["Id"].as_str().ok_or_else(|| damaged("its answer has no Id"))?.to_owned();
        let env = facts["Config"]["Env"].as_array().map_or(&[][..], Vec::as_slice);
        let env = env.iter().filter_map(|one| one.as_str()?.split_once('='));
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().map_or(&[][..], Vec::as_slice);
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let layers = texts(&facts["RootFS"]["Layers"]).iter().filter_map(|text| digest_of(text)).collect();
        let platform = |name: &str| facts[name].as_str().unwrap_or("unknown").to_owned();
        Ok(Image {
            id: ImageId { id, layers: made_of(&facts) },
            env,
            layers,
            names: texts(&facts["RepoTags"]),
            platform: format!("{}/{}", platform("Os"), platform("Architecture")),
            size: facts["Size"].as_u64().unwrap_or(0),
        })
    }

    /// How many of these layers, from the bottom up, it has as the beginning of some image.
    pub fn has_layers(&self, layers: &[Digest]) -> Result<usize, EngineError> {
        let listed = question(&self.program, &["image", "ls", "--all", "--quiet", "--no-trunc"])?;
        let ids: BTreeSet<&str> = listed.out.lines().map(str::trim).filter(|id| !id.is_empty()).collect();
        let mut most = 0;
        // a line of them must not get too long
        for some in ids.into_iter().collect::<Vec<_>>().chunks(500) {
            let asked = [&["image", "inspect", "--format", "{{json .RootFS.Layers}}", "--"], some].concat();
            // one that was removed meanwhile makes it fail behind the others
            for line in question(&self.program, &asked)?.out.lines() {
                let there: Vec<String> = serde_json::from_str(line).unwrap_or_default();
                let there = there.iter().map(|text| digest_of(text));
                most =
                    most.max(there.zip(layers).take_while(|(there, asked)| *there == Some(**asked)).count());
            }
        }
        Ok(most)
    }

    /// Gives an image one more name.
    pub fn tag(&self, id: &str, name: &str) -> Result<(), EngineError> {
        let told = question(&self.program, &["tag", id, name])?;
        if told.status.success() {
            Ok(())
        } else {
            Err(not_usable(&self.program, told.last_words().to_owned()))
        }
    }

    /// Asks it something.
    pub fn ask(&self, arguments: &[&str]) -> Result<Told, EngineError> {
        question(&self.program, arguments)
    }
}

/// What an engine's `inspect` prints: a list of one. With a format of ours each engine would write it differently.
pub fn first(text: &str) -> Option<Value> {
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    list.into_iter().next()
}

/// `sha256:…` as a hash.
fn digest_of(text: &str) -> Option<Digest> {
    text.strip_prefix("sha256:")?.parse().ok()
}

fn called(program: &Path) -> String {
    program
        .file_name()
        .map_or_else(|| program.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn question(program: &Path, arguments: &[&str]) -> Result<Told, EngineError> {
    let mut command = Command::new(program);
    // its words are looked into
    command.args(arguments).env("LC_ALL", "C");
    asked::ask(command, PATIENCE).map_err(|error| {
        let question = arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        match error.kind() {
            ErrorKind::TimedOut => EngineError::Silent { program: called(program), question },
            _ => EngineError::Failed { program: called(program), question, words: os_text(&error) },
        }
    })
}

fn not_usable(program: &Path, words: String) -> EngineError {
    let program_name = called(program);
    let lower = words.to_lowercase();
    if lower.contains("permission denied") {
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        let user = user.unwrap_or_else(|_| format!("user {}", rustix::process::geteuid().as_raw()));
        return EngineError::NotAllowed { program: program_name, user, words };
    }
    let absent = ["cannot connect", "is the docker daemon running", "failed to connect to the docker api"];
    if absent.iter().any(|one| lower.contains(one)) {
        return EngineError::NotRunning { program: program_name, words };
    }
    EngineError::Failed { program: program_name, question: "info".to_owned(), words }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that answers as an engine does.
    fn scripted(dir: &Path, name: &str, script: &str) {
        let file = dir.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    const DENIED: &str = r#"case $1 in --version) echo 'Docker version 28.2.2, build e6534b4';; *)
        echo '{"ServerErrors":["permission denied while trying to connect to the docker API at unix:///var/run/docker.sock"]}'; exit 1;; esac"#;
    /// A client that ends well without a daemon.
    const ENDS_WELL: &str = r#"case $1 in --version) echo 'Docker version 24.0.7, build afdd53b';; *)
        echo '{"ServerVersion":""}'; echo 'permission denied while trying to connect to the Docker daemon socket' >&2;; esac"#;
    /// One behind a program of the site's.
    const BEHIND: &str = r#"echo 'site: docker of /opt is used'
        case $1 in --version) echo 'Docker version 27.3.1, build ce12230';; *) echo '{"ServerVersion":"27.3.1"}';; esac"#;
    const PODMAN: &str = r#"case $1 in --version) echo 'podman version 4.3.1';;
        info) echo '{"host":{"security":{"rootless":true}}}';;
        image) echo 'Error: inspecting object: nothing: image not known' >&2; exit 125;; esac"#;

    #[test]
    fn an_engine_that_may_not_be_used_is_told_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().to_owned();
        let find = |named: Option<&str>| Engine::find(named, Some(&path));
        assert_eq!(find(None).unwrap_err(), EngineError::None);
        scripted(dir.path(), "docker", DENIED);
        let denied = find(None).unwrap_err().to_string();
        assert!(denied.contains(" may not use docker: permission denied while"), "{denied}");
        assert!(denied.contains("usermod -aG docker"), "{denied}");
        scripted(dir.path(), "older", ENDS_WELL);
        let older = find(Some("older")).unwrap_err();
        assert!(matches!(older, EngineError::NotAllowed { .. }), "{older}");
        scripted(dir.path(), "behind", BEHIND);
        assert_eq!(find(Some("behind")).unwrap().kind, Kind::Docker);
        scripted(dir.path(), "podman", PODMAN);
        assert_eq!(find(None).unwrap_err().to_string(), denied, "podman has not the images of docker");
        std::fs::remove_file(dir.path().join("docker")).unwrap();
        let podman = find(None).unwrap();
        assert_eq!((podman.kind, podman.rootless), (Kind::Podman, true));
        assert!(find(Some("podman")).is_ok());
        let absent = podman.image("x:1").unwrap_err().to_string();
        assert!(absent.starts_with("no image x:1 for podman: `hvtui image push x:1` from"), "{absent}");
        assert!(
            find(Some("nerdctl"))
                .unwrap_err()
                .to_string()
                .starts_with("container engine command 'nerdctl' not")
        );
    }

    #[test]
    fn a_daemon_that_does_not_run_is_known_in_the_words_of_each_version() {
        for words in [
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the daemon is \
             running: dial unix /var/run/docker.sock: connect: no such file or directory",
        ] {
            let error = not_usable(Path::new("/usr/bin/docker"), words.to_owned());
            assert!(matches!(error, EngineError::NotRunning { .. }), "{error}");
        }
        let other = not_usable(Path::new("/usr/bin/docker"), "Error response from daemon: no".to_owned());
        assert!(matches!(other, EngineError::Failed { .. }), "{other}");
    }

    #[test]
    fn what_docker_says_of_itself_is_understood() {
        let docker =
            |text: &str, hook| Engine::docker("docker".into(), &serde_json::from_str(text).unwrap(), hook);
        let plain =
            docker(r#"{"SecurityOptions":["name=seccomp,profile=default"],"Runtimes":{"runc":{}}}"#, false);
        assert_eq!((plain.rootless, plain.maps_users, plain.gpus), (false, false, None));
        let store = |text: &str| docker(text, false).skips_layers;
        assert!(store(r#"{"Driver":"overlay2","DriverStatus":[["Backing Filesystem","extfs"]]}"#));
        let containerd = r#"[["driver-type","io.containerd.snapshotter.v1"]]"#;
        assert!(!store(&format!(r#"{{"Driver":"overlayfs","DriverStatus":{containerd}}}"#)));
        let rootless = docker(r#"{"SecurityOptions":["name=rootless"],"Runtimes":{"nvidia":{}}}"#, false);
        assert_eq!((rootless.rootless, rootless.gpus), (true, Some(GpuWay::Gpus)));
        assert_eq!(docker("{}", true).gpus, Some(GpuWay::Gpus));
        assert!(docker(r#"{"SecurityOptions":["name=userns"]}"#, false).maps_users);
    }
}
