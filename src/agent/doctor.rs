//! Makes the checks of the doctor here. Each has a thread of its own and a deadline: one that hangs, at a file server that is
//! gone or a driver that does not answer, keeps no other one waiting. Its thread ends with the agent.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::door::Doors;
use super::inside::{OfLaunch, Question, answers};
use super::outgoing::Outgoing;
use crate::clock;
use crate::doctor::door::DOOR;
use crate::doctor::under_way::Places;
use crate::doctor::{self, CHECKS, Site, inside};
use crate::domain::container::ContainerOptions;
use crate::domain::doctor::RunInside;
use crate::domain::host::HostInfo;
use crate::telemetry::load;
use crate::wire::doctor::{AskChecks, Checked};
use crate::wire::message::FromAgent;

/// A look into an image: the engine is asked, starts a container, and may have to remove it.
const IN_CONTAINER: Duration = Duration::from_secs(45);
/// So many checks begin at once for each processor: most start programs, and one that gets no processor would be told as one that
/// hangs.
const PER_PROCESSOR: usize = 2;
/// No check waits longer for its turn: those before it may hang.
const TURN: Duration = Duration::from_secs(1);
/// Checks that may be under way, those that hang among them.
const MOST: usize = 4 * CHECKS.len();

const NO_IMAGE: &str = "its hvtui knows of no image to look into: use the same version there";

static UNDER_WAY: Places = Places::new(MOST);

/// Begins all that are asked for; each answers for itself.
pub(super) fn answer(
    ask: AskChecks,
    (state, info): (PathBuf, Option<HostInfo>),
    doors: &Doors,
    out: &Outgoing,
) {
    let AskChecks {
        ask,
        at,
        mut checks,
        peers,
        mut paths,
        mut modules,
        for_launch,
        run,
        image,
        mut ports,
        all_pairs,
        engine,
        workdir,
        mut gpus,
        look_into,
    } = ask;
    checks.truncate(CHECKS.len() + 1);
    paths.truncate(AskChecks::MOST_PATHS);
    modules.truncate(AskChecks::MOST_MODULES);
    ports.truncate(AskChecks::MOST_PORTS);
    gpus.truncate(AskChecks::MOST_GPUS);
    let (inside, checks): (Vec<String>, Vec<String>) =
        checks.into_iter().partition(|check| inside::asked(check).is_some());
    let of_image = || {
        let container = ContainerOptions::of(image.clone()?);
        Some(Box::new(RunInside { container, ..RunInside::default() }))
    };
    match look_into.or_else(of_image) {
        Some(inside_of) if !inside.is_empty() => {
            let own = inside.iter().filter_map(|name| inside::asked(name).map(str::to_owned)).collect();
            let modules = modules.clone();
            let launch = for_launch.then(|| OfLaunch { state: state.clone(), info });
            let engine = engine.clone();
            let question = Question { at, inside: *inside_of, engine, gpus, modules, checks: own, launch };
            tokio::spawn(answer_inside(ask, inside, question, out.clone()));
        }
        Some(_) => {}
        None => {
            // of another version: what is not answered would be waited for
            let out = out.clone();
            tokio::spawn(async move {
                for name in inside {
                    tell(ask, name, Err(NO_IMAGE.to_owned()), &out).await;
                }
            });
        }
    }
    let site = Site::new(at, clock::now(), state, peers).with_paths(paths).with_modules(modules);
    let site = Arc::new(
        site.for_launch(for_launch)
            .with_run(run.map(|run| *run))
            .with_image(image)
            .with_engine(engine)
            .with_workdir(workdir)
            .with_ports(ports)
            .with_all_pairs(all_pairs),
    );
    // other hosts wait for it, and it is there at once
    let (door, checks): (Vec<String>, Vec<String>) = checks.into_iter().partition(|check| check == DOOR);
    for check in door {
        let told = doors.ask().and_then(|door| serde_json::to_value(door).map_err(|error| error.to_string()));
        let out = out.clone();
        tokio::spawn(async move { tell(ask, check, told, &out).await });
    }
    for check in checks {
        let (site, out) = (Arc::clone(&site), out.clone());
        tokio::spawn(async move {
            let told = look(&check, site).await;
            tell(ask, check, told, &out).await;
        });
    }
}

/// The turns of checks that look at this host alone.
fn turns() -> &'static Semaphore {
    static TURNS: OnceLock<Semaphore> = OnceLock::new();
    let processors = || thread::available_parallelism().map_or(1, NonZero::get);
    TURNS.get_or_init(|| Semaphore::new(PER_PROCESSOR * processors()))
}

async fn tell(ask: u64, check: String, told: doctor::Told, out: &Outgoing) {
    let (found, why) = match told {
        Ok(found) => (Some(found), None),
        Err(why) => (None, Some(why)),
    };
    out.control(FromAgent::Checked(Checked { ask, check, found, why })).await;
}

/// Has checks made in a container; `names` are those by which they were asked for, in the same order.
async fn answer_inside(ask: u64, names: Vec<String>, question: Question, out: Outgoing) {
    let answers = on_thread("look", IN_CONTAINER, move || answers(&question)).await;
    let told: Vec<doctor::Told> = match answers {
        Ok(answers) => answers.into_iter().map(|(_, told)| told).collect(),
        Err(why) => names.iter().map(|_| Err(why.clone())).collect(),
    };
    for (name, told) in names.into_iter().zip(told) {
        tell(ask, name, told, &out).await;
    }
}

async fn look(check: &str, site: Arc<Site>) -> doctor::Told {
    let entry =
        doctor::check(check).ok_or("its hvtui does not know this check: use the same version there")?;
    // those that meet other hosts wait for most of their time, and the others for them
    let turn = if entry.meets_others { None } else { timeout(TURN, turns().acquire()).await.ok() };
    let told = on_thread(&format!("check {check}"), entry.patience, move || entry.look(&site)).await;
    drop(turn);
    told?
}

/// What a thread of its own answers.
async fn on_thread<T: Send + 'static>(
    name: &str,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let under_way = UNDER_WAY.take().ok_or_else(|| {
        format!("{MOST} earlier checks hang on this host: reconnect, and see what hangs there")
    })?;
    let (tell, told) = oneshot::channel();
    let body = move || {
        let found = work();
        drop(under_way);
        // the link may be gone, or the patience
        let _ = tell.send(found);
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| format!("no thread for the check: {error}"))?;
    match timeout(patience, told).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(_)) => Err("the check has failed: a fault of hvtui".to_owned()),
        Err(_) => {
            let why = load::busy().unwrap_or_else(|| "something hangs on this host".to_owned());
            Err(format!("no answer in {} s: {why}", patience.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::outgoing::lanes;

    #[tokio::test]
    async fn a_check_in_an_image_that_is_not_named_is_answered() {
        let (out, mut queue) = lanes();
        let checks = ["image:image", "image:torch"].map(str::to_owned).to_vec();
        let ask = AskChecks { ask: 7, checks: checks.clone(), for_launch: true, ..AskChecks::default() };
        answer(ask, ("/nowhere".into(), None), &Doors::default(), &out);
        for check in checks {
            let why = Some(NO_IMAGE.to_owned());
            let told = Checked { ask: 7, check, found: None, why };
            assert_eq!(queue.next().await, FromAgent::Checked(told));
        }
    }
}
