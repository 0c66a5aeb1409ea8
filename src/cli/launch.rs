//! From the arguments of `run` to a request: reads the host file and this process's environment, which the
//! launcher must not.

use std::collections::BTreeMap;

use crate::launch::read::{self, Written};
use crate::launch::request::{LaunchRequest, OnBusy, Patience};

use super::args::{self, RunArgs};
use super::errors::Failure;

/// What `hvtui run` was asked for; `secrets` are those of its `--secret-file`.
pub fn request(args: &RunArgs, secrets: &BTreeMap<String, String>) -> Result<LaunchRequest, Failure> {
    let hostfile = match &args.hostfile {
        None => None,
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("can't read host file {name}: {error}")))?;
            Some((name, text))
        }
    };
    let written = Written {
        name: args.name.as_deref(),
        kind: args.kind.as_deref().and_then(args::kind),
        command: &args.command,
        np: args.np,
        hosts: args.host_list.as_deref(),
        hostfile: hostfile.as_ref().map(|(name, text)| (name.as_str(), text.as_str())),
        gpus: args.gpus.as_deref(),
        per_node: args.nproc_per_node,
        nodes: args.nnodes,
        gpu_view: args.gpu_view.into(),
        gpus_per_rank: args.gpus_per_rank,
        env: &args.env,
        workdir: args.workdir.as_deref(),
        interface: args.network_interface.as_deref(),
        spool_cap: args.spool_cap.as_deref(),
        max_silence: args.max_silence.as_deref(),
        on_busy: OnBusy {
            share: args.share,
            wait: args.wait.map(|seconds| seconds.map_or(Patience::Endless, Patience::Seconds)),
        },
    };
    let mut asked = read::read(&written, |key| std::env::var(key).ok())?;
    let from_file = secrets.keys().cloned();
    let names: Vec<String> = args.secret_env.iter().cloned().chain(from_file).collect();
    asked.env.extend(read::secret_env(&names)?);
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command, horovodrun_spellings};
    use crate::cli::errors::Code;
    use crate::domain::ids::HostId;
    use crate::launch::request::PlacementSpec;

    fn ask(line: &str) -> Result<LaunchRequest, Failure> {
        let words = shlex::split(line).unwrap().into_iter().map(Into::into);
        match Cli::try_parse_from(horovodrun_spellings(words)).unwrap().command {
            Some(Command::Run(args)) => request(&args, &BTreeMap::new()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_horovodrun_line_is_understood() {
        let asked = ask("hvtui run -np 4 -H a:2,b:2 --network-interface eth0 -- python train.py").unwrap();
        let hosts = vec![(HostId::from("a"), 2), (HostId::from("b"), 2)];
        assert_eq!(asked.place, PlacementSpec::Hosts { hosts, np: Some(4) });
        assert_eq!((asked.options.interface.as_deref(), asked.command.len()), (Some("eth0"), 2));
    }

    #[test]
    fn hosts_joined_by_a_space_are_told_from_a_command() {
        let failure = ask("hvtui run -np 2 -H a:1 b:1 -- python train.py").unwrap_err();
        assert_eq!(failure.code, Code::Usage);
        assert!(failure.message.ends_with("with a comma and no space: -H a:1,b:1"), "{failure}");
        assert_eq!(ask("hvtui run -np 2 python train.py").unwrap().command, ["python", "train.py"]);
    }

    #[test]
    fn host_files_are_read_here() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        let failure = ask(&format!("hvtui run --hostfile {} -- true", path.display())).unwrap_err();
        assert!(failure.message.starts_with("can't read host file "), "{failure}");
        std::fs::write(&path, "a slots=2\n").unwrap();
        let asked = ask(&format!("hvtui run --hostfile {} -- true", path.display())).unwrap();
        assert_eq!(asked.place, PlacementSpec::Hosts { hosts: vec![(HostId::from("a"), 2)], np: None });
    }

    #[test]
    fn variables_come_from_this_process() {
        let asked = ask("hvtui run --env PATH --env A=1 -- true").unwrap();
        assert_eq!(asked.env.get("PATH"), std::env::var("PATH").ok().as_ref());
        assert_eq!(ask("hvtui run --env HVTUI_SECRET=1 -- true").unwrap_err().code, Code::Usage);
    }
}
