//! All that a run's containers need on this host, found and checked before it is started.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SETUP;
use crate::domain::container::{ContainerOptions, ImageId, Volume};
use crate::domain::run::HostRun;
use crate::domain::text::os_text;
use crate::image::engine::{Engine, EngineError, Kind};
use crate::program::home;
use crate::supervise::rundir::RunDir;

/// What the ranks of a run are started with on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The engine.
    pub engine: Engine,
    /// The image: a name may mean another one by the time a rank is started.
    pub image: ImageId,
    /// The variables that the image sets.
    pub image_env: BTreeMap<String, String>,
    /// Volumes, with their paths on this host.
    pub volumes: Vec<Volume>,
    /// Whom the ranks run as: number, group, further groups, name.
    pub user: User,
    /// Whether the host has InfiniBand devices.
    pub infiniband: bool,
}

/// A user of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Number.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Name, where it has one.
    pub name: Option<String>,
}

/// Why the containers of a run can't be had here. The texts don't name the host.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The engine or the image.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A volume's place on the host.
    #[error(
        "volume {volume}: {path}: {why}: docker would make an empty folder of root's there; make it, or correct -v",
        path = path.display()
    )]
    Volume {
        /// As it was asked for.
        volume: String,
        /// Its place on this host.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
}

impl Setup {
    /// Finds and checks everything for the ranks of `run`, with this search path.
    pub fn find(run: &HostRun, options: &ContainerOptions, path: Option<&OsStr>) -> Result<Self, SetupError> {
        let named = options.engines.get(&run.host).map(String::as_str);
        Self::of(named, options, !run.leases.held.is_empty(), path)
    }

    /// The same for containers with such options; `named` is the engine that the hosts file names.
    pub(super) fn of(
        named: Option<&str>,
        options: &ContainerOptions,
        needs_gpus: bool,
        path: Option<&OsStr>,
    ) -> Result<Self, SetupError> {
        let engine = Engine::find(named, path)?;
        let image = engine.image(&options.image)?;
        if engine.gpus.is_none() && needs_gpus {
            return Err(EngineError::NoGpus { program: engine.name() }.into());
        }
        let volumes = options.volumes.iter().map(here).collect::<Result<_, _>>()?;
        let infiniband = Path::new("/dev/infiniband").exists();
        Ok(Self { engine, image: image.id, image_env: image.env, volumes, user: User::own(), infiniband })
    }

    /// Variables by which programs find out who they are: few images know the users of the host.
    pub(in crate::supervise) fn person(&self, options: &ContainerOptions) -> Vec<(&'static str, &str)> {
        let is_root = self.user.uid == 0 || (self.engine.rootless && self.engine.kind == Kind::Docker);
        if options.user.is_some() || is_root {
            return Vec::new();
        }
        let name = self.user.name.as_deref();
        let names = name.into_iter().flat_map(|name| [("USER", name), ("LOGNAME", name)]);
        // the image's `/` is root's
        names.chain([("HOME", "/tmp")]).collect()
    }

    /// That of a run whose files lie here; `None` where its ranks are in no containers.
    pub(in crate::supervise) fn read(dir: &RunDir) -> Option<Self> {
        dir.read_json(SETUP).ok().flatten()
    }
}

/// A volume with its place on this host. What a shell would have put for `~`, on both sides, is put for it.
fn here(volume: &Volume) -> Result<Volume, SetupError> {
    let expand = |path: &str| match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", home().display()),
        _ => path.to_owned(),
    };
    let found = Volume {
        source: expand(&volume.source),
        target: expand(&volume.target),
        options: volume.options.clone(),
    };
    if found.is_path()
        && let Err(error) = std::fs::metadata(&found.source)
    {
        let path = PathBuf::from(&found.source);
        return Err(SetupError::Volume { volume: volume.to_string(), path, why: os_text(&error) });
    }
    Ok(found)
}

impl User {
    fn own() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups = groups.into_iter().map(rustix::process::Gid::as_raw).filter(|one| *one != gid).collect();
        let name = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
        Self { uid, gid, groups, name: name.filter(|name| !name.is_empty()) }
    }
}
