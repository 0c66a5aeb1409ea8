//! `hvtui pick N`: prints free GPUs that suit each other, in the form that another program reads.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::cli::again::hosts_option;
use crate::cli::args::{PickArgs, PickFormat};
use crate::cli::errors::{Code, Failure, filter, note, to_stdout};
use crate::cli::json::{self, VERSION};
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::clock;
use crate::config::HostsFile;
use crate::domain::pick::{Choice, Offer};
use crate::domain::text::sanitize;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::names::nearest_multiples;
use crate::launch::request::{LaunchRequest, PlacementSpec};
use crate::launch::words::quote;

/// Hosts that neither answer nor fail are not waited for any longer.
const DEADLINE: Duration = Duration::from_secs(45);

/// What `--format json` prints.
#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    at: String,
    /// Why these, in one sentence.
    reason: String,
    hosts: Vec<Host<'a>>,
}

#[derive(Debug, Serialize)]
struct Host<'a> {
    name: &'a str,
    gpus: Vec<Gpu<'a>>,
}

#[derive(Debug, Serialize)]
struct Gpu<'a> {
    index: u32,
    uuid: &'a str,
    model: &'a str,
}

/// Picks and prints. Exits with 75 when there are not enough.
pub fn run(args: &PickArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let filter = filter(args.filter.as_deref())?;
    if let Some(each) = args.per_host.filter(|each| !args.count.is_multiple_of(*each)) {
        let near = nearest_multiples(args.count, each);
        let text = format!("--per-host {each}: {} is not a multiple of it; ask for {near}", args.count);
        return Err(Failure::usage(text));
    }
    let place = PlacementSpec::Free { ranks: args.count, per_host: args.per_host, filter };
    let request = LaunchRequest { place, ..LaunchRequest::of(Vec::new()) };
    let choice = runtime::block_on(async {
        let prompter = ask::person();
        let mut session =
            connect::session(&file.hosts, &paths.home, Some(Duration::from_secs(1)), &prompter).await?;
        let mut waiting = None;
        let chosen = prompter.timeout(DEADLINE, async {
            loop {
                match session.pick(&request) {
                    Err(error) if error.is_waiting() => waiting = Some(error),
                    decided => return decided,
                }
                session.next().await;
            }
        });
        let chosen = chosen.await;
        Ok(chosen.unwrap_or_else(|| Err(late(waiting))))
    })?;
    let choice = choice.map_err(|error| failure(error, args))?;
    note(&choice.words());
    to_stdout(&printed(&choice, args.format)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Hosts have said nothing for the whole time.
fn late(waiting: Option<LaunchError>) -> LaunchError {
    let what = waiting.map_or_else(|| "waiting for the hosts".to_owned(), |error| error.reason);
    let reason = format!(
        "{what} for {} s: `hvtui hosts check` says why; leave hosts out with a hosts file of its own, --hosts FILE",
        DEADLINE.as_secs()
    );
    LaunchError::new(LaunchFault::Unreachable, reason)
}

/// A number that is not there is busy, whatever the reason.
fn failure(error: LaunchError, args: &PickArgs) -> Failure {
    match error.fault {
        LaunchFault::Usage => Failure::new(Code::Busy, error.reason),
        LaunchFault::Busy(held) => {
            let launch = waiting_run(args)
                .map_or_else(String::new, |run| format!(", or launch as soon as they are free with `{run}`"));
            Failure::new(Code::Busy, format!("{held}: pick again later{launch}"))
        }
        _ => error.into(),
    }
}

/// The command that launches on GPUs like the ones that were asked for, as soon as they are free; `None` where no options say that.
fn waiting_run(args: &PickArgs) -> Option<String> {
    let count = args.count;
    let place = match (args.per_host, args.filter.as_deref()) {
        (None, None) => format!("--free {count}"),
        (None, Some(filter)) => format!("--free {count} --filter {}", quote(filter)),
        // `--free` takes no number for each host
        (Some(each), None) => format!("--nnodes {} --nproc-per-node {each}", count / each.max(1)),
        (Some(_), Some(_)) => return None,
    };
    Some(format!("hvtui {}run {place} --wait -- COMMAND", hosts_option()))
}

fn printed(choice: &Choice, format: PickFormat) -> Result<String, Failure> {
    let counted = || {
        let host = |offer: &Offer| format!("{}:{}", offer.host, offer.gpus.len());
        choice.offers.iter().map(host).collect::<Vec<_>>().join(",")
    };
    let count: usize = choice.offers.iter().map(|offer| offer.gpus.len()).sum();
    Ok(match format {
        PickFormat::Gpus => format!("{}\n", choice.places()),
        PickFormat::Hostfile => {
            let line = |offer: &Offer| format!("{} slots={}\n", offer.host, offer.gpus.len());
            choice.offers.iter().map(line).collect()
        }
        PickFormat::Uuid => {
            let line = |offer: &Offer| {
                let uuids: Vec<&str> = offer.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
                format!("{}\n", sanitize(&uuids.join(",")))
            };
            choice.offers.iter().map(line).collect()
        }
        PickFormat::Horovodrun => format!("-np {count} -H {}\n", counted()),
        PickFormat::Mpirun => format!("-np {count} --host {}\n", counted()),
        PickFormat::Json => {
            let hosts = choice.offers.iter().map(|offer| Host {
                name: offer.host.as_str(),
                gpus: offer
                    .gpus
                    .iter()
                    .map(|gpu| Gpu { index: gpu.index, uuid: gpu.uuid.as_str(), model: &gpu.model })
                    .collect(),
            });
            let at = json::moment(clock::now());
            json::line(&Json { version: VERSION, at, reason: choice.words(), hosts: hosts.collect() })?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_not_pick_is_told_the_whole_command_that_waits() {
        let busy = LaunchError::new(LaunchFault::Busy("4 GPUs asked for, 1 is free".to_owned()), "");
        let asked = |filter: Option<&str>, per_host| {
            let filter = filter.map(str::to_owned);
            PickArgs { count: 4, filter, per_host, format: PickFormat::Gpus }
        };
        let said = |filter, per_host| failure(busy.clone(), &asked(filter, per_host)).to_string();
        let told = said(Some("host~n1 & free"), None);
        let run = "`hvtui run --free 4 --filter 'host~n1 & free' --wait -- COMMAND`";
        assert!(told.starts_with("4 GPUs asked for, 1 is free: pick again later, "), "{told}");
        assert!(told.ends_with(run), "{told}");
        let told = said(Some("free"), Some(2));
        assert!(told.ends_with(": pick again later"), "no launch says both: {told}");
        let commands = [
            (None, "hvtui run --free 4 --wait -- COMMAND"),
            (Some(2), "hvtui run --nnodes 2 --nproc-per-node 2 --wait -- COMMAND"),
        ];
        for (per_host, run) in commands {
            assert!(said(None, per_host).ends_with(&format!("`{run}`")), "{run}");
            let parsed = crate::cli::parse(run.split(' ').map(std::ffi::OsString::from));
            assert!(parsed.is_ok(), "{run}");
        }
    }
}
