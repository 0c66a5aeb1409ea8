//! What people write about containers, `--image` and what goes with it, read into [`ContainerOptions`]. Pure.

use crate::domain::container::{ContainerOptions, Volume, VolumeFault};

/// Options of an engine's `run` that hvtui gives itself, or that would take the container out of its hands.
const OURS: [&str; 11] = [
    "--name",
    "--cidfile",
    "--rm",
    "-d",
    "--detach",
    "-t",
    "--tty",
    "-i",
    "--interactive",
    "--restart",
    "-a",
];

/// What is written about containers, still as text.
#[derive(Debug, Clone, Copy, Default)]
pub struct WrittenContainer<'a> {
    /// `--image`.
    pub image: Option<&'a str>,
    /// Each `-v`.
    pub volumes: &'a [String],
    /// Each `--container-arg`.
    pub arguments: &'a [String],
}

/// A container that is written wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerFault {
    /// `--image ''`.
    #[error(
        "--image: `{0}` can't be the name of an image: write one such as pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
    )]
    Image(String),
    /// An image that no engine of hvtui's reads.
    #[error(
        "--image {image}: docker and podman read no such image: write the launcher of it as the command, such as hvtui run -- apptainer \
         exec --nv {image} COMMAND, or name the image that it was made from"
    )]
    Apptainer {
        /// As written.
        image: String,
    },
    /// `-v` and the like without `--image`.
    #[error("{0} is for containers: name their image by --image")]
    NoImage(&'static str),
    /// A volume.
    #[error("-v {text}: it {fault}")]
    Volume {
        /// As written.
        text: String,
        /// What is wrong with it.
        fault: VolumeFault,
    },
    /// An argument that can't be split into words.
    #[error("--container-arg {0}: a quote is not closed")]
    Quote(String),
    /// An argument that hvtui gives itself.
    #[error("--container-arg {0}: hvtui itself sees to it; leave it out")]
    Ours(String),
    /// Words that are no options.
    #[error(
        "--container-arg {0}: an argument of the engine's `run` begins with `-`, such as --container-arg=--shm-size=8g"
    )]
    NoOption(String),
}

impl WrittenContainer<'_> {
    /// The containers that are wanted: what is written counts before `base`.
    pub fn read(&self, base: Option<ContainerOptions>) -> Result<Option<ContainerOptions>, ContainerFault> {
        let mut options = match (self.image, base) {
            (Some(image), _)
                if image.is_empty() || image.contains(char::is_whitespace) || image.starts_with('-') =>
            {
                return Err(ContainerFault::Image(image.to_owned()));
            }
            (Some(image), _) if is_apptainers(image) => {
                return Err(ContainerFault::Apptainer { image: image.to_owned() });
            }
            (Some(image), base) => ContainerOptions { image: image.to_owned(), ..base.unwrap_or_default() },
            (None, Some(base)) => base,
            (None, None) if !self.volumes.is_empty() => return Err(ContainerFault::NoImage("-v")),
            (None, None) if !self.arguments.is_empty() => {
                return Err(ContainerFault::NoImage("--container-arg"));
            }
            (None, None) => return Ok(None),
        };
        for text in self.volumes {
            let volume = volume(text)?;
            options.volumes.retain(|other| other.target != volume.target);
            options.volumes.push(volume);
        }
        for text in self.arguments {
            options.arguments.extend(words(text)?);
        }
        Ok(Some(options))
    }
}

/// Whether it is a file or an address that Apptainer (once Singularity) reads, and no name of an image.
fn is_apptainers(image: &str) -> bool {
    let is_file = [".sif", ".simg"].iter().any(|ending| image.to_ascii_lowercase().ends_with(ending));
    is_file || image.contains("://")
}

/// A volume as it is written.
pub fn volume(text: &str) -> Result<Volume, ContainerFault> {
    text.parse().map_err(|fault| ContainerFault::Volume { text: text.to_owned(), fault })
}

fn words(text: &str) -> Result<Vec<String>, ContainerFault> {
    let words = shlex::split(text).ok_or_else(|| ContainerFault::Quote(text.to_owned()))?;
    let name = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
    // `-dit` is `-d -i -t`; of others only the first letter is an option's
    let is_ours = |name: &String| {
        let letters = name.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
        OURS.contains(&name.as_str()) || letters.starts_with(['d', 't', 'i', 'a'])
    };
    if let Some(ours) = words.iter().map(name).find(is_ours) {
        return Err(ContainerFault::Ours(ours));
    }
    match words.first() {
        Some(first) if first.starts_with('-') => Ok(words),
        _ => Err(ContainerFault::NoOption(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_lies_over_what_was_known() {
        let volumes = ["/new:/data".to_owned()];
        let arguments = ["--shm-size=8g --ulimit 'stack=1:1'".to_owned()];
        let written = WrittenContainer { image: None, volumes: &volumes, arguments: &arguments };
        let base = ContainerOptions {
            volumes: vec!["/old:/data".parse().unwrap(), "/x:/x".parse().unwrap()],
            ..ContainerOptions::of("a:1")
        };
        let read = written.read(Some(base)).unwrap().unwrap();
        assert_eq!(read.image, "a:1");
        let volumes: Vec<String> = read.volumes.iter().map(ToString::to_string).collect();
        assert_eq!(volumes, ["/x:/x", "/new:/data"]);
        assert_eq!(read.arguments, ["--shm-size=8g", "--ulimit", "stack=1:1"]);
        assert_eq!(WrittenContainer::default().read(None), Ok(None));
    }

    #[test]
    fn each_fault_names_what_was_written_and_the_remedy() {
        let fault = |image: Option<&str>, volume: &str, argument: &str| {
            let list = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
            let (volumes, arguments) = (list(volume), list(argument));
            WrittenContainer { image, volumes: &volumes, arguments: &arguments }
                .read(None)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(fault(None, "/a:/b", ""), "-v is for containers: name their image by --image");
        assert!(fault(Some(" "), "", "").starts_with("--image: ` ` can't be the name"));
        for image in ["~/img/torch.sif", "old.SIMG", "docker://pytorch/pytorch"] {
            let said = fault(Some(image), "", "");
            assert!(said.contains(&format!("hvtui run -- apptainer exec --nv {image} COMMAND")), "{said}");
        }
        assert!(fault(Some("i"), "./a:/b", "").starts_with("-v ./a:/b: it begins with a relative path"));
        assert_eq!(
            fault(Some("i"), "", "--name=x"),
            "--container-arg --name: hvtui itself sees to it; leave it out"
        );
        assert!(fault(Some("i"), "", "-dit").contains("hvtui itself sees to it"));
        assert!(fault(Some("i"), "", "8g").contains("begins with `-`"));
        assert!(fault(Some("i"), "", "'").contains("a quote is not closed"));
    }
}
