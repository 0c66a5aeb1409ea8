//! What a launch rests on in its image: looked for in a container of it before the ranks get theirs. Pure.

use std::collections::BTreeMap;

use super::{OWN, PYTHONS, executed, imports, is_python};
use crate::domain::container::ContainerOptions;
use crate::domain::doctor::{RunInside, Started};
use crate::domain::ids::HostId;
use crate::domain::redaction::MASK;
use crate::domain::run::{HostRun, JobKind, RunSpec};

/// What is looked for in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InImage {
    /// The checks, by name.
    pub checks: Vec<&'static str>,
    /// What its ranks start on each host, and in what.
    pub hosts: BTreeMap<HostId, RunInside>,
}

/// Further variables by which a container finds other programs and modules, or its entry point activates an environment.
const LEADS: [&str; 5] = ["HOME", "PYTHONUSERBASE", "VIRTUAL_ENV", "BASH_ENV", "ENV"];
const LEADS_BEGIN: [&str; 3] = ["CONDA", "MAMBA", "PYENV"];
/// Arguments of an engine by which a container may make a volume.
const MOUNTS: [&str; 3] = ["-v", "--volume", "--mount"];
/// How the names of hvtui's own variables begin.
const OURS: &str = "HVTUI_";

/// What is looked for in the image of a launch; `None` where its ranks run in none, or may run without anything that is known.
pub fn in_image(spec: &RunSpec, shares: &[HostRun]) -> Option<InImage> {
    let options = &spec.options;
    let container = options.container.as_ref().filter(|container| !mounts(container))?;
    let has_gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    let ranks = || shares.iter().flat_map(|share| &share.ranks);
    let sets_own = ranks().any(|rank| rank.env.keys().any(|name| leads(name)));
    let activates = options.environment.activates() || !options.environments.is_empty();
    // a look makes no volume of the engine, and one that is new has what the image has
    let has_volume = container.volumes.iter().any(|volume| !volume.is_path());
    let are_alike = shares.iter().all(|share| share.ranks.windows(2).all(|two| two[0].cwd == two[1].cwd));
    let program = spec.command.first().filter(|program| {
        let is_known = PYTHONS.contains(&program.as_str()) || is_python(program);
        let is_started = ranks().all(|rank| rank.argv.first() == Some(program));
        let is_led = sets_own || activates || has_volume;
        is_known && is_started && are_alike && !program.contains('/') && !is_led
    });
    let mut checks = vec!["image"];
    if has_gpus && program.is_some() {
        checks.extend(["stub", "cuda"]);
        checks.extend(match spec.kind {
            JobKind::Torch => Some("torch"),
            JobKind::Horovod => Some("horovod"),
            JobKind::Tensorflow => Some("tf"),
            _ => None,
        });
    }
    // what is copied first is not there yet
    let there = executed(&spec.command).filter(|_| options.sync.is_none());
    let there = |by: &str| there.filter(|(one, _)| *one == by).map(|(_, word)| word.to_owned());
    let starts = program.map(|program| Started {
        image: container.image.clone(),
        program: program.clone(),
        script: there(""),
        module: there("-m"),
        // what a launcher executes is its own business
        imports: imports(spec)
            .iter()
            .filter(|_| is_python(program))
            .map(|module| (*module).to_owned())
            .collect(),
    });
    let inside = |share: &HostRun| RunInside {
        container: container.clone(),
        env: given(share, spec.id.as_str()),
        cwd: share.ranks.first().filter(|_| are_alike).and_then(|rank| rank.cwd.clone()),
        starts: starts.clone(),
    };
    let hosts = || shares.iter().map(|share| (share.host.clone(), inside(share))).collect();
    (has_gpus || starts.is_some()).then(|| InImage { checks, hosts: hosts() })
}

/// The variables that each rank of a host is given alike, but for those that name the run: what is known of an image is found by the
/// others. A secret one is not known here.
fn given(share: &HostRun, run: &str) -> BTreeMap<String, String> {
    let Some((first, others)) = share.ranks.split_first() else { return BTreeMap::new() };
    let is_given = |(name, value): &(&String, &String)| {
        let is_alike = others.iter().all(|rank| rank.env.get(*name) == Some(value));
        is_alike && *value != MASK && !name.starts_with(OURS) && !value.contains(run)
    };
    first.env.iter().filter(is_given).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the engine's own arguments mount something: a look makes no volume.
fn mounts(container: &ContainerOptions) -> bool {
    container.arguments.iter().any(|word| MOUNTS.iter().any(|option| word.starts_with(option)))
}

/// Whether ranks with such a variable may find something else than a container without it.
fn leads(name: &str) -> bool {
    OWN.contains(&name) || LEADS.contains(&name) || LEADS_BEGIN.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{shares, spec};
    use super::*;
    use crate::domain::container::ContainerOptions;
    use crate::domain::run::Slot;

    fn image() -> ContainerOptions {
        ContainerOptions::of("train:1")
    }

    /// What is looked for, and how on the first host.
    fn of(
        kind: JobKind,
        command: &[&str],
        container: ContainerOptions,
        env: &[(&str, &str)],
    ) -> (Vec<&'static str>, RunInside) {
        let mut spec = spec(kind, "", &["a"]);
        spec.command = command.iter().map(|word| (*word).to_owned()).collect();
        spec.options.container = Some(container);
        let mut shares = shares(&spec, env);
        for rank in shares.iter_mut().flat_map(|share| &mut share.ranks) {
            rank.argv.clone_from(&spec.command);
        }
        let InImage { checks, mut hosts } = in_image(&spec, &shares).unwrap();
        (checks, hosts.remove(&HostId::from("a")).unwrap())
    }

    #[test]
    fn the_program_that_is_named_and_what_its_script_may_import_are_looked_for_in_the_image() {
        let (checks, torch) = of(JobKind::Torch, &["python3", "-u", "train.py", "-c", "x"], image(), &[]);
        assert_eq!(checks, ["image", "stub", "cuda", "torch"]);
        let starts = torch.starts.unwrap();
        assert_eq!((starts.program.as_str(), starts.script.as_deref()), ("python3", Some("train.py")));
        assert_eq!((starts.module, &starts.imports[..]), (None, &["torch".to_owned()][..]));
        let code = of(JobKind::Horovod, &["python3.11", "-c", "import x"], image(), &[]).1.starts.unwrap();
        assert_eq!((code.script, code.module, code.imports.len()), (None, None, 3));
        let module = of(JobKind::Torch, &["python", "-m", "a.b"], image(), &[]).1.starts.unwrap();
        assert_eq!((module.module.as_deref(), module.script), (Some("a.b"), None));
        let launcher = of(JobKind::Torch, &["torchrun", "train.py"], image(), &[]).1.starts.unwrap();
        assert_eq!(
            (launcher.program.as_str(), launcher.script, launcher.imports.len()),
            ("torchrun", None, 0),
            "what it executes is its own"
        );
        // volumes of the host and arguments are those of the container that is looked into
        let volume = |text: &str| ContainerOptions { volumes: vec![text.parse().unwrap()], ..image() };
        let (_, opt) = of(JobKind::Torch, &["python3", "train.py"], volume("/opt/conda:/opt/conda"), &[]);
        assert!(opt.starts.is_some() && opt.container.volumes.len() == 1);
    }

    #[test]
    fn each_host_has_its_own_folder_and_what_its_ranks_are_given_alike() {
        let mut spec = spec(JobKind::Torch, "python3", &["a", "b"]);
        spec.options.container = Some(image());
        let id = spec.id.to_string();
        let env =
            [("PROFILE", "own"), ("TOKEN", MASK), ("HVTUI_BIND", "10.0.0.1"), ("TORCHELASTIC_RUN_ID", &id)];
        let mut shares = shares(&spec, &env);
        for (at, rank) in shares.iter_mut().flat_map(|share| &mut share.ranks).enumerate() {
            rank.argv.clone_from(&spec.command);
            rank.env.insert("RANK".to_owned(), at.to_string());
        }
        shares[0].ranks.iter_mut().for_each(|rank| rank.cwd = Some("/a".to_owned()));
        shares[1].ranks.iter_mut().for_each(|rank| rank.cwd = Some("/b".to_owned()));
        let hosts = in_image(&spec, &shares).unwrap().hosts;
        let of = |host: &str| &hosts[&HostId::from(host)];
        assert_eq!((of("a").cwd.as_deref(), of("b").cwd.as_deref()), (Some("/a"), Some("/b")));
        let names = |host: &str| of(host).env.keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!((names("a").as_str(), names("b").as_str()), ("PROFILE", "PROFILE"));
        // of one that has several nothing is said
        shares[0].ranks[1].cwd = Some("/other".to_owned());
        let hosts = in_image(&spec, &shares).unwrap().hosts;
        let of = |host: &str| {
            (hosts[&HostId::from(host)].cwd.is_some(), hosts[&HostId::from(host)].starts.is_some())
        };
        assert_eq!((of("a"), of("b")), ((false, false), (false, false)));
    }

    #[test]
    fn no_container_is_started_that_might_make_a_volume() {
        let mut spec = spec(JobKind::Torch, "python3", &["a"]);
        for (word, is_none) in [
            ("-v=data:/data", true),
            ("--mount=type=volume,source=x,target=/x", true),
            ("--shm-size=1g", false),
        ] {
            spec.options.container = Some(ContainerOptions { arguments: vec![word.to_owned()], ..image() });
            assert_eq!(in_image(&spec, &shares(&spec, &[])).is_none(), is_none, "{word}");
        }
    }

    #[test]
    fn what_comes_from_elsewhere_is_not_missed_in_the_image() {
        let volume = ContainerOptions { volumes: vec!["packages:/opt".parse().unwrap()], ..image() };
        for (program, container, env) in [
            ("python3", volume, &[][..]),
            ("python3", image(), &[("PYTHONPATH", "/x")]),
            ("python3", image(), &[("HOME", "/x")]),
            ("python3", image(), &[("CONDA_DEFAULT_ENV", "x")]),
            ("/venv/bin/python", image(), &[]),
            ("bash", image(), &[]),
        ] {
            let (checks, own) = of(JobKind::Torch, &[program, "train.py"], container, env);
            assert_eq!((&checks[..], own.starts), (&["image"][..], None), "{program} {env:?}");
        }
        assert!(of(JobKind::Torch, &["python3"], image(), &[("NOTE", "x")]).1.starts.is_some());
        // ranks that are started by another program than the one that is named
        let mut led = spec(JobKind::Torch, "torchrun", &["a"]);
        led.options.container = Some(image());
        let hosts = in_image(&led, &shares(&led, &[])).unwrap().hosts;
        assert_eq!(hosts[&HostId::from("a")].starts, None);
    }

    #[test]
    fn where_nothing_is_known_to_be_needed_no_container_is_started() {
        let mut plain = spec(JobKind::Plain, "true", &["a"]);
        let none = |spec: &RunSpec| in_image(spec, &shares(spec, &[])).is_none();
        assert!(none(&plain), "no image");
        plain.options.container = Some(image());
        assert!(!none(&plain), "GPUs must be there");
        for placement in &mut plain.placements {
            placement.slot = Slot::Cpu { index: 0 };
        }
        assert!(none(&plain));
    }
}
