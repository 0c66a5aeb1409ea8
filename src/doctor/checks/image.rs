//! Whether containers of an image start as those of a run do, have the host's GPUs, and are the same on all hosts. Looked at from
//! inside.

mod lack;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::lack::Lack;
use super::super::compare::Compared;
use super::super::{Check, OfImage, Seen, Site, given_to_ranks};
use crate::domain::doctor::Verdict;
use crate::domain::ids::GpuUuid;
use crate::domain::units::counted;

pub(in crate::doctor) struct Image;

/// The right to read other processes' memory, as the kernel numbers rights.
const SYS_PTRACE: u32 = 19;
/// What a run may start in it.
const PROGRAMS: [&str; 4] = ["python3", "torchrun", "horovodrun", "mpirun"];
const SSHD: &str = "/usr/sbin/sshd";
/// How long `nvidia-smi` may take, and before a launch, which has less time for all.
const SMI: Duration = Duration::from_millis(3500);
const SMI_OF_A_LAUNCH: Duration = Duration::from_millis(1200);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::doctor) enum Found {
    /// No container of it was had.
    Refused { why: String, remedy: Option<String> },
    /// What it has.
    Container(Container),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Container {
    /// What the image is: the beginning of a hash.
    id: String,
    /// `Debian GNU/Linux 12 (bookworm)`.
    system: Option<String>,
    /// Those programs that it has.
    programs: Vec<String>,
    /// The GPUs that it sees, or why not; absent without an answer of `nvidia-smi`, which NVIDIA's runtime puts there.
    gpus: Option<Result<BTreeSet<String>, String>>,
    /// Whether ranks may read each other's memory.
    reads_memory: bool,
    /// What a launch needs and it does not have.
    #[serde(default)]
    lacks: Option<Lack>,
}

impl Check for Image {
    const NAME: &'static str = "image";
    const ASKS: &'static str =
        "does a container of the image start, with the host's GPUs, and is it the same on all hosts";
    const OF_IMAGE: OfImage = OfImage::Alone;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let mut programs: Vec<String> = PROGRAMS
            .iter()
            .filter(|name| site.program(name).is_some())
            .map(|name| (*name).to_owned())
            .collect();
        programs.extend(Path::new(SSHD).exists().then(|| "sshd".to_owned()));
        // without persistence mode it may take longer than a look has
        let patience = if site.for_launch { SMI_OF_A_LAUNCH } else { SMI };
        let smi = site.program("nvidia-smi");
        let told = smi.and_then(|program| Site::ask_within(&program, &["-L"], patience).ok());
        let gpus = told.map(|told| {
            if told.status.success() { Ok(uuids(&told.out)) } else { Err(told.last_words().to_owned()) }
        });
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Ok(Found::Container(Container {
            id: site.image.clone().unwrap_or_default(),
            system: named(&release),
            programs,
            gpus,
            reads_memory: may_read_memory(&status),
            lacks: Lack::look(site),
        }))
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let id = |one: &'_ Seen<'_, Found>| match &one.found {
            Found::Container(container) => Some((one.host.to_string(), container.id.clone())),
            Found::Refused { .. } => None,
        };
        let ids: Vec<(String, String)> = seen.iter().filter_map(id).collect();
        let all = Compared::new(ids.iter().map(|(host, id)| (host.as_str(), id.as_str())));
        let judge = |one: &Seen<'_, Found>| match &one.found {
            Found::Refused { why, remedy } => refused(why, remedy.as_deref()),
            Found::Container(container) => judge(container, one, &all),
        };
        seen.iter().map(judge).collect()
    }
}

/// The name in `/etc/os-release`.
fn named(release: &str) -> Option<String> {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned()).filter(|name| !name.is_empty())
}

/// Of what `nvidia-smi -L` prints: `GPU 0: NVIDIA H200 (UUID: GPU-…)`, and below it `MIG 1g.18gb … (UUID: MIG-…)`.
fn uuids(text: &str) -> BTreeSet<String> {
    let uuid = |line: &str| Some(line.rsplit_once("(UUID: ")?.1.trim_end().trim_end_matches(')').to_owned());
    text.lines().filter_map(uuid).collect()
}

/// Of `/proc/self/status`: whether the right may be had, which engines take away.
fn may_read_memory(status: &str) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_none_or(|set| set & (1 << SYS_PTRACE) != 0)
}

fn refused(why: &str, remedy: Option<&str>) -> Verdict {
    let cause = "a run with that --image does not start here";
    Verdict::bad(
        why,
        cause,
        remedy.unwrap_or("hvtui doctor --only docker,toolkit tells what containers lack there"),
    )
}

fn judge(container: &Container, one: &Seen<'_, Found>, all: &Compared<'_>) -> Verdict {
    if let Some(difference) = all.difference(&container.id) {
        return Verdict::bad(
            format!("the image is {} ({difference})", container.id),
            "ranks run unlike code: hvtui starts no run with unlike images",
            "hvtui image push IMAGE, from the machine whose image is meant",
        );
    }
    let info = one.info;
    let given: Vec<&str> = match one.uses {
        Some(uses) => uses.iter().map(GpuUuid::as_str).collect(),
        None => given_to_ranks(info).map(GpuUuid::as_str).collect(),
    };
    match &container.gpus {
        Some(Err(words)) if !given.is_empty() => {
            return Verdict::bad(
                format!("nvidia-smi in a container: {words}"),
                "the host sees its GPUs, and ranks in containers do not",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, and restart docker; of \"Unknown Error\" after a reload of \
                 systemd: start the containers anew",
            );
        }
        Some(Ok(there)) => {
            let absent = given.iter().find(|uuid| !there.contains(**uuid));
            let more = there.iter().find(|uuid| !info.gpus.iter().any(|gpu| gpu.uuid.as_str() == *uuid));
            let seen = match (absent, more) {
                (Some(uuid), _) => Some(format!("a container does not have {uuid} that it was given")),
                (None, Some(uuid)) => Some(format!("a container has {uuid}, which is not the host's")),
                (None, None) => None,
            };
            if let Some(seen) = seen {
                return Verdict::bad(
                    seen,
                    "ranks find other GPUs than the ones that they were given, or none: \"invalid device ordinal\"",
                    "give GPUs by one way alone: no NVIDIA_VISIBLE_DEVICES in the image, and nvidia-ctk runtime configure anew",
                );
            }
        }
        _ => {}
    }
    if let Some(lack) = &container.lacks {
        return lack.verdict();
    }
    if !container.reads_memory {
        return Verdict::look(
            "a container may not have SYS_PTRACE",
            "ranks of MPI can't read each other's memory: \"Read -1, expected N, errno = 1\", and slow copies",
            "let the engine give it (a rootless one does not), or --env OMPI_MCA_btl_vader_single_copy_mechanism=none",
        );
    }
    let mut words = vec![container.id.clone()];
    words.extend(container.system.clone());
    words.extend(match &container.gpus {
        Some(Ok(there)) if !there.is_empty() => Some(counted(there.len(), "GPU")),
        None if !given.is_empty() => {
            Some("no answer of nvidia-smi, so that its GPUs are not known".to_owned())
        }
        _ => None,
    });
    words.extend(container.programs.iter().cloned());
    Verdict::good(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{seen, seen_with};
    use crate::domain::gpu::GpuInfo;
    use crate::domain::host::HostInfo;
    use crate::domain::preflight::Mark;

    fn one() -> Container {
        let gpus = Some(Ok(["GPU-1".to_owned()].into()));
        let programs = vec!["python3".to_owned()];
        let (id, system) = ("0123".to_owned(), Some("Debian GNU/Linux 12 (bookworm)".to_owned()));
        Container { id, system, programs, gpus, reads_memory: true, lacks: None }
    }

    fn with_gpu() -> HostInfo {
        let mut info = seen([()])[0].info.clone();
        info.gpus = vec![GpuInfo { uuid: GpuUuid::from("GPU-1"), ..GpuInfo::unknown(0) }];
        info
    }

    fn of(container: Container) -> Verdict {
        Image::judge(&seen_with([(with_gpu(), Found::Container(container))])).remove(0)
    }

    #[test]
    fn the_gpus_of_a_container_are_those_of_its_host() {
        let good = of(one());
        assert_eq!(
            (good.mark, good.evidence.as_str()),
            (Mark::Good, "0123, Debian GNU/Linux 12 (bookworm), 1 GPU, python3")
        );
        let gpus = |gpus: &[&str]| Some(Ok(gpus.iter().map(|uuid| (*uuid).to_owned()).collect()));
        let none = of(Container { gpus: gpus(&[]), ..one() });
        assert_eq!(
            (none.mark, none.evidence.as_str()),
            (Mark::Bad, "a container does not have GPU-1 that it was given")
        );
        assert!(
            of(Container { gpus: gpus(&["GPU-1", "GPU-2"]), ..one() })
                .evidence
                .contains("has GPU-2, which is not")
        );
        let words = "Failed to initialize NVML: Unknown Error".to_owned();
        let failed = of(Container { gpus: Some(Err(words)), ..one() });
        let seen = "nvidia-smi in a container: Failed to initialize NVML: Unknown Error";
        assert_eq!((failed.mark, failed.evidence.as_str()), (Mark::Bad, seen));
        assert!(of(Container { gpus: None, ..one() }).evidence.contains("no answer of nvidia-smi"));
        let alone = of(Container { reads_memory: false, ..one() });
        assert_eq!(
            (alone.mark, alone.evidence.as_str()),
            (Mark::Look, "a container may not have SYS_PTRACE")
        );
        let text = "GPU 0: NVIDIA H200 (UUID: GPU-aa)\n  MIG 1g.18gb     Device  0: (UUID: MIG-bb)\n";
        assert_eq!(uuids(text), ["GPU-aa".to_owned(), "MIG-bb".to_owned()].into());
        assert!(
            may_read_memory("CapBnd:\t00000000a80c25fb\n") && !may_read_memory("CapBnd:\t00000000a80425fb\n")
        );
    }

    #[test]
    fn a_launch_is_given_its_own_gpus_and_what_it_lacks_keeps_it_from_starting() {
        let mut info = with_gpu();
        info.gpus.push(GpuInfo { uuid: GpuUuid::from("GPU-2"), ..GpuInfo::unknown(1) });
        let of = |uses: &[&str], container: Container| {
            let uses = uses.iter().map(|uuid| GpuUuid::from(*uuid)).collect();
            let mut seen = seen_with([(info.clone(), Found::Container(container))]);
            seen[0].uses = Some(&uses);
            Image::judge(&seen).remove(0)
        };
        assert_eq!(of(&["GPU-1"], one()).mark, Mark::Good, "the other one is not the launch's");
        assert!(of(&["GPU-1", "GPU-2"], one()).evidence.contains("does not have GPU-2"));
        assert_eq!(of(&[], Container { gpus: Some(Err(String::new())), ..one() }).mark, Mark::Good, "no GPU");
        let lack = Lack { image: "x:1".to_owned(), name: "python3".to_owned(), python: None };
        let lacks = of(&["GPU-1"], Container { lacks: Some(lack), ..one() });
        assert_eq!(
            (lacks.stops_launch(), lacks.evidence.as_str()),
            (true, "a container of x:1 has no python3")
        );
    }

    #[test]
    fn another_image_and_none_are_told_apart() {
        let container = |id: &str| Found::Container(Container { id: id.to_owned(), gpus: None, ..one() });
        let none = Found::Refused {
            why: "no image x:1 for docker".to_owned(),
            remedy: Some("hvtui image push x:1".to_owned()),
        };
        let verdicts = Image::judge(&seen([container("a"), container("a"), container("b"), none]));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Bad, Mark::Bad]);
        assert_eq!(verdicts[2].evidence, "the image is b (other hosts have a)");
        assert_eq!(verdicts[3].remedy.as_deref(), Some("hvtui image push x:1"));
    }
}
