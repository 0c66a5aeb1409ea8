//! What a launch rests on in its image: looked for in a container of it before the ranks get theirs. Pure.

use super::{OWN, PYTHONS, executed, given_by, imports, is_python};
use crate::domain::doctor::{RunInside, Started};
use crate::domain::run::{HostRun, JobKind, RunSpec};

/// What is looked for in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InImage {
    /// The checks, by name.
    pub checks: Vec<&'static str>,
    /// What its ranks start, and in what.
    pub inside: RunInside,
}

/// Further variables by which a container finds other programs and modules, or its entry point activates an environment.
const LEADS: [&str; 5] = ["HOME", "PYTHONUSERBASE", "VIRTUAL_ENV", "BASH_ENV", "ENV"];
const LEADS_BEGIN: [&str; 3] = ["CONDA", "MAMBA", "PYENV"];

/// What is looked for in the image of a launch; `None` where its ranks run in none, or may run without anything that is known.
pub fn in_image(spec: &RunSpec, shares: &[HostRun]) -> Option<InImage> {
    let options = &spec.options;
    let container = options.container.as_ref()?;
    let has_gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    let ranks = || shares.iter().flat_map(|share| &share.ranks);
    let sets_own = ranks().any(|rank| rank.env.keys().any(|name| leads(name)));
    let activates = options.environment.activates() || !options.environments.is_empty();
    // a look makes no volume of the engine, and one that is new has what the image has
    let has_volume = container.volumes.iter().any(|volume| !volume.is_path());
    let program = spec.command.first().filter(|program| {
        let is_known = PYTHONS.contains(&program.as_str()) || is_python(program);
        let is_started = ranks().all(|rank| rank.argv.first() == Some(program));
        is_known && is_started && !program.contains('/') && !sets_own && !activates && !has_volume
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
        code: given_by(&spec.command, "-c"),
        module: there("-m"),
        imports: imports(spec).iter().map(|module| (*module).to_owned()).collect(),
    });
    let cwd = ranks().next().and_then(|rank| rank.cwd.clone());
    (has_gpus || starts.is_some())
        .then(|| InImage { checks, inside: RunInside { container: container.clone(), cwd, starts } })
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

    fn of(kind: JobKind, command: &[&str], container: ContainerOptions, env: &[(&str, &str)]) -> InImage {
        let mut spec = spec(kind, "", &["a"]);
        spec.command = command.iter().map(|word| (*word).to_owned()).collect();
        spec.options.container = Some(container);
        let mut shares = shares(&spec, env);
        for rank in shares.iter_mut().flat_map(|share| &mut share.ranks) {
            rank.argv.clone_from(&spec.command);
        }
        in_image(&spec, &shares).unwrap()
    }

    #[test]
    fn the_program_that_is_named_and_what_its_script_may_import_are_looked_for_in_the_image() {
        let torch = of(JobKind::Torch, &["python3", "-u", "train.py", "-c", "x"], image(), &[]);
        assert_eq!(torch.checks, ["image", "stub", "cuda", "torch"]);
        let starts = torch.inside.starts.unwrap();
        assert_eq!((starts.program.as_str(), starts.script.as_deref()), ("python3", Some("train.py")));
        assert_eq!(
            (starts.code, starts.module, &starts.imports[..]),
            (None, None, &["torch".to_owned()][..])
        );
        let code =
            of(JobKind::Horovod, &["python3.11", "-c", "import x"], image(), &[]).inside.starts.unwrap();
        assert_eq!((code.code.as_deref(), code.script, code.imports.len()), (Some("import x"), None, 3));
        let module = of(JobKind::Torch, &["python", "-m", "a.b"], image(), &[]).inside.starts.unwrap();
        assert_eq!((module.module.as_deref(), module.script), (Some("a.b"), None));
        let launcher = of(JobKind::Torch, &["torchrun", "train.py"], image(), &[]).inside.starts.unwrap();
        assert_eq!(
            (launcher.program.as_str(), launcher.script),
            ("torchrun", None),
            "what it executes is its own"
        );
        // volumes of the host and arguments are those of the container that is looked into
        let volume = |text: &str| ContainerOptions { volumes: vec![text.parse().unwrap()], ..image() };
        let opt = of(JobKind::Torch, &["python3", "train.py"], volume("/opt/conda:/opt/conda"), &[]);
        assert!(opt.inside.starts.is_some() && opt.inside.container.volumes.len() == 1);
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
            let own = of(JobKind::Torch, &[program, "train.py"], container, env);
            assert_eq!((&own.checks[..], own.inside.starts), (&["image"][..], None), "{program} {env:?}");
        }
        assert!(of(JobKind::Torch, &["python3"], image(), &[("NOTE", "x")]).inside.starts.is_some());
        // ranks that are started by another program than the one that is named
        let mut led = spec(JobKind::Torch, "torchrun", &["a"]);
        led.options.container = Some(image());
        assert_eq!(in_image(&led, &shares(&led, &[])).unwrap().inside.starts, None);
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
