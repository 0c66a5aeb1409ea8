//! Serves a Horovod run's rendezvous as long as its supervisor lives, and notes how far the ranks have come.
//!
//! On a thread of its own: thousands of requests a second must not keep the supervisor from its ranks.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::rundir::RunDir;
use super::{SuperviseError, notes};
use crate::clock;
use crate::domain::late::Late;
use crate::domain::note::{Note, what};
use crate::domain::rendezvous::{Progress, RendezvousPlan};
use crate::domain::run::{HostRun, RankExit};
use crate::domain::text::os_text;
use crate::rendezvous::server::Server;
use crate::rendezvous::store::View;

/// The variable that holds the address of this host that the others reach.
const BIND: &str = "HVTUI_BIND";
/// The variable that holds the port of the rendezvous.
const PORT: &str = "HVTUI_KV_PORT";

/// Ranks of other hosts that are still at the rendezvous when those of this one have ended are waited for so long: a program that only
/// prints its rank ends before others have taken leave.
const LAST: Duration = Duration::from_secs(2);

/// The least time between two notes.
const PACE: Duration = Duration::from_millis(200);

/// A rendezvous that is served until this is dropped.
pub(super) struct Meeting {
    /// Sent where the last ranks are waited for: the thread ends when it is gone.
    alive: Option<oneshot::Sender<()>>,
    /// A rank of this host has failed: those of the others are stopped, and take no leave.
    has_failed: bool,
    thread: Option<JoinHandle<()>>,
}

impl Meeting {
    /// Serves the rendezvous of `run`, if it has one, where the variables of its ranks say. It is there when this
    /// returns.
    pub(super) fn begin(dir: &RunDir, run: &HostRun, late: &Late) -> Result<Option<Self>, SuperviseError> {
        let Some(plan) = &run.rendezvous else { return Ok(None) };
        let stored = run.ranks.first().map(|rank| rank.env.clone());
        let mut env = stored.unwrap_or_default();
        env.extend(late.env.clone());
        let at = address(&env)?;
        let failed = |e: io::Error| {
            let (ip, port, why) = (at.ip(), at.port(), os_text(&e));
            let text = format!("cannot serve the rendezvous of the run on {ip} port {port}: {why}");
            SuperviseError::Rendezvous(format!("{text}; start the run again: another port is taken then"))
        };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        let (dir, plan) = (RunDir::open(dir.path())?, plan.clone());
        let (alive, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("rendezvous".to_owned());
        let thread = thread.spawn(move || serve(&runtime, listener, &plan, dir, ended)).map_err(failed)?;
        Ok(Some(Self { alive: Some(alive), has_failed: false, thread: Some(thread) }))
    }
}

impl Meeting {
    /// A rank of this host has ended.
    pub(super) fn ended(&mut self, exit: &RankExit) {
        self.has_failed |= exit.shell_code() != 0;
    }

    /// Ends it once the ranks of other hosts are done with it.
    pub(super) fn finish(mut self) {
        if let Some(alive) = self.alive.take().filter(|_| !self.has_failed) {
            // it may have ended by itself
            let _ = alive.send(());
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there is no reason to fail the run.
            let _ = thread.join();
        }
    }
}

fn address(env: &BTreeMap<String, String>) -> Result<SocketAddr, SuperviseError> {
    let text = |name: &str| {
        env.get(name).ok_or_else(|| {
            SuperviseError::Rendezvous(format!(
                "{name} is missing: the client did not say where the ranks meet"
            ))
        })
    };
    let (ip, port) = (text(BIND)?, text(PORT)?);
    let wrong = |name: &str, value: &str, must_be: &str| {
        SuperviseError::Rendezvous(format!("{name}={value} is no {must_be}"))
    };
    let address: IpAddr = ip.parse().map_err(|_| wrong(BIND, ip, "IP address"))?;
    let number = port.parse().ok().filter(|port| *port > 0);
    Ok(SocketAddr::new(address, number.ok_or_else(|| wrong(PORT, port, "port from 1 to 65535"))?))
}

fn serve(
    runtime: &Runtime,
    listener: tokio::net::TcpListener,
    plan: &RendezvousPlan,
    dir: RunDir,
    ended: oneshot::Receiver<()>,
) {
    let server = Server::new(plan);
    let mut teller = Teller { dir, told: None };
    let over = async {
        if ended.await.is_ok() {
            let _ = timeout(LAST, server.settled()).await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            () = server.serve(listener) => {}
            () = tell(&server, &mut teller) => {}
            () = over => {}
        }
    });
    teller.tell(&server.view());
}

/// Notes what changes, as often as [`PACE`] allows.
async fn tell(server: &Server, teller: &mut Teller) {
    loop {
        server.changed().await;
        let view = server.view();
        teller.tell(&view);
        tokio::time::sleep(PACE).await;
    }
}

struct Teller {
    dir: RunDir,
    told: Option<Progress>,
}

impl Teller {
    /// Says how far the ranks are, unless that is said. Ranks that meet a second time, or in smaller circles, are not told.
    fn tell(&mut self, view: &View) {
        let Some(progress) = progress(view).filter(|progress| self.told.as_ref() != Some(progress)) else {
            return;
        };
        // The disk may be full: then the client learns it by the job's own words.
        let _ = notes::add(&self.dir, &progress.note(clock::host_now()));
        self.told = Some(progress);
    }
}

fn progress(view: &View) -> Option<Progress> {
    let world = view.world;
    if view.all_connected() {
        return Some(Progress::Connected { world });
    }
    (!view.joined.is_empty()).then(|| Progress::Joined { ranks: view.joined.clone(), world })
}

/// What a supervisor has to say that took over a run with a rendezvous: it cannot serve what the ranks told the last one.
pub(super) fn lost(dir: &RunDir, run: &HostRun) -> Option<Note> {
    run.rendezvous.as_ref()?;
    let said = notes::Reader::default().news(dir).unwrap_or_default();
    let met = said.iter().any(|(_, note)| note.what == what::CONNECTED);
    let text = if met {
        "the rendezvous of the run went with its supervisor: the ranks are connected and go on, but cannot meet again \
         (further process sets, a second hvd.init)"
    } else {
        "the rendezvous of the run went with its supervisor before all ranks were connected: those that still wait \
         there fail; stop the run and start it again"
    };
    Some(Note::new(what::RENDEZVOUS_LOST, text, clock::host_now()))
}
