//! Which part of a launch a fault is about, so that a form shows it where it was written, in words without the
//! spellings of the command line. Pure; must not know any screen.

use super::container::ContainerFault;
use super::read::RequestError;
use super::request::GPU_MASK;
use crate::domain::units::counted;

/// A part of what is written about a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The command, or the launcher's line.
    Command,
    /// How many ranks.
    Ranks,
    /// On which hosts and slots.
    Place,
    /// Variables.
    Env,
    /// The working directory.
    Workdir,
    /// The image of containers.
    Image,
    /// The volumes of containers.
    Volumes,
    /// Something else.
    Options,
}

impl RequestError {
    /// The part that it is about.
    pub fn part(&self) -> Part {
        match self {
            Self::NoCommand | Self::OneProcess(_) => Part::Command,
            Self::NoRanks
            | Self::BadCount(_)
            | Self::NoneEach(_)
            | Self::NotTheProduct { .. }
            | Self::NotAMultiple { .. }
            | Self::TooFewHosts { .. }
            | Self::MoreThanPicked { .. } => Part::Ranks,
            Self::HostsBySpace(..)
            | Self::HidesGpus("--gpus" | "--free")
            | Self::BadHost { .. }
            | Self::BadHostFile { .. }
            | Self::EmptyHostFile(_)
            | Self::BadPick { .. }
            | Self::BadFilter(_)
            | Self::PickedTwice { .. } => Part::Place,
            Self::BadEnv { .. } | Self::SecretEnv { .. } | Self::SecretValue(_) | Self::EnvNotSet(_) => {
                Part::Env
            }
            Self::RelativeWorkdir(_) => Part::Workdir,
            Self::Container(ContainerFault::Image(_) | ContainerFault::Apptainer { .. }) => Part::Image,
            Self::Container(ContainerFault::Volume { .. } | ContainerFault::NoImage("-v")) => Part::Volumes,
            Self::Container(_)
            | Self::NoGpus
            | Self::HidesGpus(_)
            | Self::BadSilence { .. }
            | Self::BadSpoolCap { .. }
            | Self::BadHooks { .. }
            | Self::DeletesNothing
            | Self::Environment(_) => Part::Options,
        }
    }

    /// What it says beside the field of its part, where no option needs to be named.
    pub fn at_field(&self) -> String {
        match self {
            Self::NoCommand => "no command to run: write one, such as hvtui train digits".to_owned(),
            Self::NoRanks => "0 ranks start nothing: give a number from 1 on".to_owned(),
            Self::BadCount(text) => format!("`{text}` is no number of ranks"),
            Self::MoreThanPicked { np, picks, .. } => {
                format!("{np} ranks on {}: pick {np}, or give a lower number", counted(*picks, "picked slot"))
            }
            Self::BadHost { entry, fault, .. } => {
                format!("`{entry}` {fault}; write -H gpu-a:2,gpu-b:2")
            }
            Self::BadPick { entry, fault } => {
                format!("`{entry}` {fault}; write gpu-a:0,1 gpu-b:2 or -H gpu-a:2,gpu-b:1")
            }
            Self::PickedTwice { host, slot } => format!("{host}:{slot} is named twice: one rank a slot"),
            Self::BadEnv { key, fault, .. } => format!("`{key}` {fault}"),
            Self::EnvNotSet(name) => format!("{name} is not set here; write {name}=VALUE"),
            Self::RelativeWorkdir(path) => {
                format!(
                    "{path} is a relative path: write the whole path on the hosts, or one that begins with ~/"
                )
            }
            Self::Container(ContainerFault::Image(text)) => {
                format!(
                    "`{text}` can't be the name of an image: write one such as pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
                )
            }
            Self::Container(ContainerFault::Apptainer { image }) => {
                format!(
                    "docker and podman do not read {image}: write apptainer exec --nv {image} in front of the command, and nothing here"
                )
            }
            Self::Container(ContainerFault::Volume { text, fault }) => format!("`{text}` {fault}"),
            Self::Container(ContainerFault::NoImage("-v")) => {
                "these are for containers: write their image in the field image".to_owned()
            }
            Self::HidesGpus(_) => {
                format!("`{GPU_MASK}=` of the command hides all GPUs: leave it out to ask for some here")
            }
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::container::WrittenContainer;
    use crate::launch::read::{Written, count, read};

    #[test]
    fn faults_are_told_at_their_part() {
        let command = ["true".to_owned()];
        let env = ["RANK=7".to_owned()];
        let volumes = ["./a:/b".to_owned()];
        let container = |image| WrittenContainer { image, volumes: &volumes, arguments: &[] };
        let plain = Written { command: &command, ..Written::default() };
        let fault = |written: &Written<'_>| read(written, None, |_| None).unwrap_err();
        let cases = [
            (Written { command: &[], ..plain.clone() }, Part::Command),
            (Written { np: Some(0), ..plain.clone() }, Part::Ranks),
            (Written { np: Some(3), gpus: Some("a:0"), ..plain.clone() }, Part::Ranks),
            (Written { gpus: Some("0"), ..plain.clone() }, Part::Place),
            (Written { hosts: Some("a:x"), ..plain.clone() }, Part::Place),
            (Written { env: &env, ..plain.clone() }, Part::Env),
            (Written { workdir: Some("out"), ..plain.clone() }, Part::Workdir),
            (Written { container: container(Some("a b")), ..plain.clone() }, Part::Image),
            (Written { container: container(Some("a.sif")), ..plain.clone() }, Part::Image),
            (Written { container: container(Some("a")), ..plain.clone() }, Part::Volumes),
            (Written { container: container(None), ..plain.clone() }, Part::Volumes),
        ];
        for (written, part) in cases {
            let error = fault(&written);
            assert_eq!(error.part(), part, "{error}");
            assert!(!error.at_field().replace("--nv", "").contains("--"), "{}", error.at_field());
        }
        assert_eq!(count("x").unwrap_err().part(), Part::Ranks);
        assert_eq!(count(" 4 "), Ok(4));
    }
}
