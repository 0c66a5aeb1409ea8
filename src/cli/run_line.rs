//! Reads `hvtui run …` where a person pastes it into the Launch form: its options count as on the command line.

use std::ffi::OsString;

use clap::error::ErrorKind;

use super::args::{Command, RunArgs};
use super::launch;
use crate::config::HostsFile;
use crate::domain::run::JobKind;
use crate::launch::name::kind_of;
use crate::launch::remark::Remark;
use crate::launch::request::LaunchRequest;
use crate::launch::{pasted_request, read};

/// What the words of `hvtui run …` ask for. Reads no file.
///
/// # Errors
/// In words: what is wrong, or what has another place in the UI.
pub fn read(words: &[String]) -> Result<LaunchRequest, String> {
    let cli = super::parse(words.iter().map(OsString::from)).map_err(|error| in_one_line(&error))?;
    let Some(Command::Run(args)) = cli.command else {
        return Err("only `hvtui run` can be read here".to_owned());
    };
    if let Some(text) = elsewhere(&args) {
        return Err(text.to_owned());
    }
    let pasted = launch::pasted(&args.command).map_err(|caret| caret.text)?;
    if let Some(text) = pasted.as_ref().and_then(pasted_request::instead) {
        return Err(text);
    }
    if pasted.as_ref().is_some_and(|line| line.hostfile.is_some()) {
        return Err(
            "the line's host file: write its hosts into the on field, as -H gpu-a:2,gpu-b:2".to_owned()
        );
    }
    if let Some(misspelt) = pasted.as_ref().and_then(|line| line.misspelt.as_ref()).filter(|_| !args.delegate)
    {
        return Err(misspelt.text.clone());
    }
    let base = pasted.as_ref().map(|line| launch::pasted_line(line, &args)).transpose();
    let file = HostsFile::this_machine();
    let request = base.and_then(|base| launch::read(&args, base, &file));
    let mut request = request.map_err(|failure| failure.message)?;
    request.env.extend(read::secret_env(&args.secret_env).map_err(|error| error.to_string())?);
    if let Some(name) = &args.timeline_filename {
        let kind = request.kind.unwrap_or_else(|| kind_of(&request.command));
        if kind != JobKind::Horovod {
            return Err(format!("--timeline-filename is for --kind horovod: the kind is {}", kind.name()));
        }
        request.env.insert("HOROVOD_TIMELINE".to_owned(), name.clone());
    }
    let port = args.ssh_port.or_else(|| pasted.as_ref()?.ssh_port);
    let without_effect = [
        (args.output_filename.is_some(), "--output-filename"),
        (args.detach, "--detach"),
        (args.dry_run, "--dry-run"),
        (args.force, "--force"),
        (args.verbose, "--verbose"),
        (port.is_some(), "the ssh port"),
        (cli.hosts.is_some(), "--hosts"),
    ];
    let names: Vec<&str> = without_effect.iter().filter(|(given, _)| *given).map(|(_, name)| *name).collect();
    if !names.is_empty() {
        request.remarks.push(Remark::info(format!("no effect in the form: {}.", names.join(", "))));
    }
    Ok(request)
}

/// What the UI does in another place, or can't.
fn elsewhere(args: &RunArgs) -> Option<&'static str> {
    if args.again.is_some() {
        Some("--again: on the Runs screen a edits a launch and starts it again")
    } else if args.recipe.is_some() {
        Some("--recipe: choose it in the recipe field, with ← →")
    } else if args.hostfile.is_some() {
        Some("--hostfile: write its hosts into the on field, as -H gpu-a:2,gpu-b:2")
    } else if args.secret_file.is_some() {
        Some("--secret-file: only the command line reads it")
    } else {
        None
    }
}

/// clap's message without its usage and hints.
fn in_one_line(error: &clap::Error) -> String {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return "write a command: hvtui run -np 2 -- python train.py".to_owned();
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::request::PlacementSpec;

    fn asked(line: &str) -> Result<LaunchRequest, String> {
        read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_command_are_read_as_on_the_command_line() {
        let request =
            asked("hvtui run -np 4 -H a:2,b:2 --env LR=1 --name x --detach -- python train.py -H").unwrap();
        assert_eq!(request.command, ["python", "train.py", "-H"]);
        assert_eq!(
            request.place,
            PlacementSpec::Hosts { hosts: vec![("a".into(), 2), ("b".into(), 2)], np: Some(4) }
        );
        assert_eq!(
            (request.env.get("LR").map(String::as_str), request.name.as_deref()),
            (Some("1"), Some("x"))
        );
        assert_eq!(request.remarks, ["no effect in the form: --detach."]);
        let line = asked("hvtui run -- torchrun --nproc_per_node=2 t.py").unwrap();
        assert_eq!(
            (line.kind, line.command.last().map(String::as_str)),
            (Some(JobKind::Torch), Some("t.py"))
        );
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (line, says) in [
            ("hvtui run -np 0 -- x", "-np 0 starts nothing"),
            ("hvtui run --npp 2 x", "unexpected argument '--npp' found"),
            ("hvtui run", "no command to run"),
            ("hvtui run --again last", "a edits a launch"),
            ("hvtui run --hostfile f -- x", "-H gpu-a:2,gpu-b:2"),
            ("hvtui run -- mpirun --hostfile h -np 2 ./a", "-H gpu-a:2,gpu-b:2"),
            ("hvtui run -- watch -n 1 nvidia-smi", "the Cluster screen shows them"),
            ("hvtui run --timeline-filename t -- x", "the kind is plain"),
            ("hvtui run -- torchrun --npoc_per_node=3 t.py", "`--nproc_per_node` may be meant"),
            ("hvtui run --help", "write a command"),
        ] {
            let error = asked(line).unwrap_err();
            assert!(error.contains(says) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
