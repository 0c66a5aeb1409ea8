//! Makes the checks of the doctor here. Each has a thread of its own and a deadline: one that hangs, at a file server that is
//! gone or a driver that does not answer, keeps no other one waiting. Its thread ends with the agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::door::Doors;
use super::outgoing::Outgoing;
use crate::clock;
use crate::doctor::door::DOOR;
use crate::doctor::{self, CHECKS, PATIENCE, Site};
use crate::wire::doctor::{AskChecks, Checked};
use crate::wire::message::FromAgent;

/// Checks that may be under way, those that hang among them.
const MOST: usize = 4 * CHECKS.len();

/// How many are.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// One of them; it is none any more when this goes, however that comes.
struct UnderWay;

impl UnderWay {
    /// `None` where there are too many.
    fn begin() -> Option<Self> {
        let under_way = Self;
        (UNDER_WAY.fetch_add(1, Ordering::Relaxed) < MOST).then_some(under_way)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Begins all that are asked for; each answers for itself.
pub(super) fn answer(ask: AskChecks, state: PathBuf, doors: &Doors, out: &Outgoing) {
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
    } = ask;
    checks.truncate(CHECKS.len() + 1);
    paths.truncate(AskChecks::MOST_PATHS);
    modules.truncate(AskChecks::MOST_MODULES);
    ports.truncate(AskChecks::MOST_PORTS);
    let site = Site::new(at, clock::now(), state, peers).with_paths(paths).with_modules(modules);
    let site = Arc::new(
        site.for_launch(for_launch)
            .with_run(run.map(|run| *run))
            .with_image(image)
            .with_ports(ports)
            .with_all_pairs(all_pairs),
    );
    for check in checks {
        let (site, out, doors) = (Arc::clone(&site), out.clone(), doors.clone());
        tokio::spawn(async move {
            let told = match check.as_str() {
                DOOR => {
                    doors.ask().and_then(|door| serde_json::to_value(door).map_err(|error| error.to_string()))
                }
                _ => look(&check, site).await,
            };
            let (found, why) = match told {
                Ok(found) => (Some(found), None),
                Err(why) => (None, Some(why)),
            };
            out.control(FromAgent::Checked(Checked { ask, check, found, why })).await;
        });
    }
}

async fn look(check: &str, site: Arc<Site>) -> doctor::Told {
    let entry =
        doctor::check(check).ok_or("its hvtui does not know this check: use the same version there")?;
    let under_way = UnderWay::begin().ok_or_else(|| {
        format!("{MOST} earlier checks hang on this host: reconnect, and see what hangs there")
    })?;
    let (tell, told) = oneshot::channel();
    let body = move || {
        let found = entry.look(&site);
        drop(under_way);
        // the link may be gone, or the patience
        let _ = tell.send(found);
    };
    let thread = thread::Builder::new().name(format!("check {check}")).spawn(body);
    thread.map_err(|error| format!("no thread for the check: {error}"))?;
    match timeout(PATIENCE, told).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => Err("the check has failed: a fault of hvtui".to_owned()),
        Err(_) => Err(format!("no answer in {} s: something hangs on this host", PATIENCE.as_secs())),
    }
}
