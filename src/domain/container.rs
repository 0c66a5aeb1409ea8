//! The container in which each rank of a run is started: what is asked for, as plain data. Must not know any engine's
//! command line.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ids::{HostId, Rank, RunId};

/// `--image` and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerOptions {
    /// The image's name or id.
    pub image: String,
    /// `-v`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// As whom the ranks run inside, as the engine takes it; the user of the host when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where the ranks start inside; as [`RunSpec::workdir`](super::run::RunSpec::workdir) when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Further arguments of the engine's `run`, before the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The engine's program on hosts for which the hosts file names one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub engines: BTreeMap<HostId, String>,
}

impl ContainerOptions {
    /// Containers of an image, and nothing else said.
    pub fn of(image: impl Into<String>) -> Self {
        Self { image: image.into(), ..Self::default() }
    }
}

/// A folder or file of the host, or a volume of the engine, and its place inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Volume {
    /// A path on the host, absolute or from the home directory (`~/`), or the name of a volume of the engine.
    pub source: String,
    /// An absolute path inside.
    pub target: String,
    /// `ro` and the like.
    pub options: Option<String>,
}

/// What is wrong with a volume, to stand behind its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VolumeFault {
    /// No two parts.
    #[error("takes the place on the hosts and the place inside, such as /data:/data or ~/data:/data:ro")]
    Parts,
    /// A relative path inside.
    #[error("must have an absolute path inside the container, such as /data")]
    Target,
    /// A relative path on the host.
    #[error(
        "begins with a relative path: write the whole path on the hosts, or one that begins with ~/; the name of a volume has no `/`"
    )]
    Source,
    /// A control character.
    #[error("holds a control character")]
    Control,
}

impl FromStr for Volume {
    type Err = VolumeFault;

    fn from_str(text: &str) -> Result<Self, VolumeFault> {
        if text.chars().any(char::is_control) {
            return Err(VolumeFault::Control);
        }
        let mut parts = text.splitn(3, ':');
        let (source, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if source.is_empty() || target.is_empty() {
            return Err(VolumeFault::Parts);
        }
        if !target.starts_with('/') && target != "~" && !target.starts_with("~/") {
            return Err(VolumeFault::Target);
        }
        if source.contains('/') && !source.starts_with('/') && !source.starts_with("~/") {
            return Err(VolumeFault::Source);
        }
        let options = parts.next().filter(|options| !options.is_empty()).map(str::to_owned);
        Ok(Self { source: source.to_owned(), target: target.to_owned(), options })
    }
}

impl TryFrom<String> for Volume {
    type Error = VolumeFault;

    fn try_from(text: String) -> Result<Self, VolumeFault> {
        text.parse()
    }
}

impl From<Volume> for String {
    fn from(volume: Volume) -> Self {
        volume.to_string()
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.target)?;
        self.options.as_ref().map_or(Ok(()), |options| write!(f, ":{options}"))
    }
}

impl Volume {
    /// Whether it is a path of the host, and no volume of the engine.
    pub fn is_path(&self) -> bool {
        self.source.contains('/') || self.source == "~"
    }
}

/// What an image is: the same content has the same identity on every host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageId {
    /// The engine's id of it, `sha256:…`.
    pub id: String,
    /// A digest over its layers' contents: engines differ in what their ids are made of.
    pub layers: String,
}

impl ImageId {
    /// Whether both have the same content.
    pub fn is(&self, other: &Self) -> bool {
        self.id == other.id || (!self.layers.is_empty() && self.layers == other.layers)
    }

    /// For people: `sha256:8f7d2c1a9b3e`.
    pub fn short(&self) -> &str {
        let hex = self.id.strip_prefix("sha256:").unwrap_or(&self.id);
        let end = self.id.len() - hex.len() + hex.len().min(12);
        self.id.get(..end).unwrap_or(&self.id)
    }
}

/// The name of a rank's container: `hvtui-20261122-141233-7f3a-r3`; `attempt` counts the starts before.
pub fn name(run: &RunId, rank: Rank, attempt: u32) -> String {
    match attempt {
        0 => format!("hvtui-{run}-r{rank}"),
        again => format!("hvtui-{run}-r{rank}-{again}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_read_as_engines_write_it() {
        let read = |text: &str| text.parse::<Volume>();
        let data = read("~/data:/data:ro,z").unwrap();
        assert_eq!((data.source.as_str(), data.target.as_str()), ("~/data", "/data"));
        assert_eq!(data.options.as_deref(), Some("ro,z"));
        assert_eq!(data.to_string(), "~/data:/data:ro,z");
        assert!(data.is_path() && !read("cache:/root/.cache").unwrap().is_path());
        assert_eq!(read("/data").unwrap_err(), VolumeFault::Parts);
        assert_eq!(read(":/data").unwrap_err(), VolumeFault::Parts);
        assert_eq!(read("/data:data").unwrap_err(), VolumeFault::Target);
        assert_eq!(read("./data:/data").unwrap_err(), VolumeFault::Source);
        assert_eq!(read("/da\nta:/data").unwrap_err(), VolumeFault::Control);
        let json = serde_json::to_string(&data).unwrap();
        assert_eq!(serde_json::from_str::<Volume>(&json).unwrap(), data);
    }

    #[test]
    fn the_same_layers_are_the_same_image_whatever_the_engine_calls_it() {
        let image = |id: &str, layers: &str| ImageId { id: id.to_owned(), layers: layers.to_owned() };
        assert!(image("sha256:1", "x").is(&image("1", "x")));
        assert!(image("sha256:1", "").is(&image("sha256:1", "")));
        assert!(!image("sha256:1", "").is(&image("sha256:2", "")));
        assert_eq!(image("sha256:0123456789abcdef", "").short(), "sha256:0123456789ab");
        assert_eq!(image("ab", "").short(), "ab");
    }
}
