//! The doctor's looks at the hosts, for the screens: who is still awaited, and for how long. Knows no session.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::domain::doctor::{HostContext, Matrix};
use crate::domain::event::Event;
use crate::domain::ids::HostId;
use crate::domain::world::{HostState, World};
use crate::launcher::checkup::{Checkup, Question};
use crate::launcher::gist;
use crate::tui::core::{Look, LookOf};
use crate::wire::doctor::Checked;

/// How long a host that is not connected is waited for, and then those that are for their answers.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long it may take until all have told where the others find them.
const MEETING: Duration = Duration::from_secs(1);
const CHECKING: Duration = Duration::from_secs(8);
/// For how long nothing must be typed before containers are started: each key may make it another launch.
const QUIET: Duration = Duration::from_secs(1);
/// What is told within so long is told as one.
const TOGETHER: Duration = Duration::from_millis(100);

/// What is waited for, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    /// That no other look takes its place.
    Quiet,
    Hosts,
    Doors,
    Checks,
}

#[derive(Debug)]
struct Current {
    checkup: Checkup,
    patience: Pin<Box<Sleep>>,
    awaits: Awaits,
    /// When what is known is told; `None` while nothing is new.
    tell: Option<Pin<Box<Sleep>>>,
}

impl Current {
    /// What to ask now. When all hosts have come they are waited for no longer.
    fn ask(&mut self) -> Asking {
        if self.awaits == Awaits::Quiet {
            return Asking::new();
        }
        if self.awaits == Awaits::Hosts && self.checkup.have_all_come() {
            self.awaits = Awaits::Doors;
            self.patience = Box::pin(sleep(MEETING));
        }
        self.checkup.questions()
    }

    /// Many hosts tell many things at once: they are told together, and at once when there is no more to come.
    fn tell_soon(&mut self) {
        let is_over = self.checkup.is_over();
        if is_over || self.tell.is_none() {
            self.tell = Some(Box::pin(sleep(if is_over { Duration::ZERO } else { TOGETHER })));
        }
    }
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Tell what is known.
    Tell,
    /// Patience has ended.
    Patience,
}

/// What is known of the hosts without asking them.
type Contexts = BTreeMap<HostId, HostContext>;

/// What to ask hosts.
pub(super) type Asking = Vec<Question>;

/// What a look has found so far, and whether that is all.
pub(super) type SoFar = (u64, Matrix, bool);

/// The looks that go on: one at all hosts, one at those of a launch, one at the files that its command names, and one into its image.
#[derive(Debug, Default)]
pub(super) struct Checkups {
    all: One,
    plan: One,
    files: One,
    image: One,
    /// The number of the newest look at all hosts.
    of_all: Option<u64>,
}

impl Checkups {
    /// Begins a look; an earlier one for the same is forgotten. `all` are all hosts.
    pub(super) fn begin(
        &mut self,
        look: &Look,
        all: &[HostId],
        contexts: &Contexts,
        world: &World,
    ) -> Asking {
        match &look.of {
            LookOf::All => {
                self.of_all = Some(look.number);
                let checkup = Checkup::new(look.number, all.iter().cloned(), &[]);
                self.all.begin(checkup.reached_as(contexts), world)
            }
            LookOf::Plan { hosts, checks, given, workdirs, image, uses, controller, ports } => {
                let checkup = Checkup::for_launch(look.number, hosts.iter().cloned(), checks);
                let checkup = checkup.reached_as(contexts).giving(given.clone()).using(uses.clone());
                let checkup = checkup.working_in(workdirs.clone());
                let checkup = checkup.controlled_by(*controller).taking(ports.clone());
                self.plan.begin(checkup.in_image(image.clone()), world)
            }
            LookOf::Files { hosts, paths, checks, runs, synced } => {
                let mut runs = runs.clone();
                if let Some((sync, command)) = synced {
                    gist::add(sync, command, &mut runs);
                }
                let checkup = Checkup::for_launch(look.number, hosts.iter().cloned(), checks);
                self.files.begin(checkup.comparing(paths.clone()).running(runs), world)
            }
            LookOf::Image { hosts, inside, uses, controller, runs, synced } => {
                let mut runs = runs.clone();
                if let Some((sync, command)) = synced {
                    gist::add(sync, command, &mut runs);
                }
                let checkup = Checkup::for_launch(look.number, hosts.iter().cloned(), &[]);
                let checkup = checkup.reached_as(contexts).using(uses.clone()).controlled_by(*controller);
                let checkup = checkup.running(runs).looking_into(Some(inside.clone()));
                self.image.begin_after(checkup, world, Some(QUIET))
            }
        }
    }

    /// A host has told of a check: what to ask now.
    pub(super) fn told(&mut self, host: &HostId, checked: &Checked) -> Vec<Asking> {
        self.each().filter_map(|one| one.told(host, checked)).collect()
    }

    /// Something has happened to a host: what to ask now.
    pub(super) fn happened(&mut self, host: &HostId, event: &Event) -> Vec<Asking> {
        self.each().filter_map(|one| one.happened(host, event)).collect()
    }

    /// What is to be asked and told next; pending while nothing is awaited. Cancel-safe.
    pub(super) async fn due(&mut self) -> (Option<Asking>, Option<SoFar>) {
        let (due, one) = tokio::select! {
            due = self.all.due() => (due, 0),
            due = self.plan.due() => (due, 1),
            due = self.files.due() => (due, 2),
            due = self.image.due() => (due, 3),
        };
        // one that is still being installed is not known
        let misses = self.all.0.as_ref().is_some_and(|current| current.awaits != Awaits::Doors);
        if (due, one) == (Due::Patience, 0) && misses {
            self.of_all = None;
        }
        let one = match one {
            0 => &mut self.all,
            1 => &mut self.plan,
            2 => &mut self.files,
            _ => &mut self.image,
        };
        let asking = if due == Due::Patience { one.out_of_patience() } else { None };
        (asking, one.so_far())
    }

    /// What all looks have found so far. A look that is over is forgotten then.
    pub(super) fn so_far(&mut self) -> Vec<SoFar> {
        self.each().filter_map(One::so_far).collect()
    }

    /// Whether this is the number of a look at all hosts, each of which has answered or can't be reached.
    pub(super) fn is_of_all(&self, number: u64) -> bool {
        self.of_all == Some(number)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut One> {
        [&mut self.all, &mut self.plan, &mut self.files, &mut self.image].into_iter()
    }
}

/// A look that goes on.
#[derive(Debug, Default)]
struct One(Option<Current>);

impl One {
    fn begin(&mut self, checkup: Checkup, world: &World) -> Asking {
        self.begin_after(checkup, world, None)
    }

    /// Begins one that asks nothing before so long is over, should none have taken its place by then.
    fn begin_after(&mut self, mut checkup: Checkup, world: &World, quiet: Option<Duration>) -> Asking {
        let hosts: Vec<HostId> = checkup.hosts().map(|(host, _)| host.clone()).collect();
        for host in &hosts {
            if let Some(state) = world.hosts.get(host) {
                tell(&mut checkup, host, state);
            }
        }
        let patience = Box::pin(sleep(quiet.unwrap_or(CONNECTING)));
        let awaits = if quiet.is_some() { Awaits::Quiet } else { Awaits::Hosts };
        self.0.insert(Current { checkup, patience, awaits, tell: None }).ask()
    }

    fn told(&mut self, host: &HostId, checked: &Checked) -> Option<Asking> {
        let current = self.0.as_mut().filter(|current| current.checkup.number() == checked.ask)?;
        current.checkup.told(host, checked.clone());
        current.tell_soon();
        Some(current.ask())
    }

    fn happened(&mut self, host: &HostId, event: &Event) -> Option<Asking> {
        let current = self.0.as_mut()?;
        match event {
            Event::HostDescribed { info } => current.checkup.is_up(host, info.clone()),
            Event::HostSampled { sample } => current.checkup.sampled(host, sample),
            Event::ClockSampled { sample } => {
                current.checkup.clocked(host, *sample);
                // hundreds come a minute: none but the last that is awaited is told
                if current.checkup.is_over() {
                    current.tell_soon();
                }
                return None;
            }
            Event::LinkChanged { state } => {
                current.checkup.link_changed(host, state);
            }
            _ => return None,
        }
        current.tell_soon();
        Some(current.ask())
    }

    /// What is due next; pending while nothing is awaited. Cancel-safe.
    async fn due(&mut self) -> Due {
        let Some(current) = &mut self.0 else { return std::future::pending().await };
        let due = match &mut current.tell {
            None => {
                current.patience.as_mut().await;
                Due::Patience
            }
            Some(tell) => tokio::select! {
                () = tell.as_mut() => Due::Tell,
                () = current.patience.as_mut() => Due::Patience,
            },
        };
        if due == Due::Tell {
            current.tell = None;
        }
        due
    }

    /// Patience has ended: what to ask now.
    fn out_of_patience(&mut self) -> Option<Asking> {
        let current = self.0.as_mut()?;
        let (next, patience) = match current.awaits {
            Awaits::Quiet => (Awaits::Hosts, CONNECTING),
            Awaits::Hosts => {
                current.checkup.go_on_without(&format!("not connected within {} s", CONNECTING.as_secs()));
                (Awaits::Doors, MEETING)
            }
            Awaits::Doors => {
                current.checkup.go_on_without_doors();
                (Awaits::Checks, CHECKING)
            }
            Awaits::Checks => {
                current.checkup.give_up(&format!("no answer within {} s", CHECKING.as_secs()));
                return None;
            }
        };
        current.awaits = next;
        current.patience = Box::pin(sleep(patience));
        Some(current.ask())
    }

    /// What is known now. A look that is over is forgotten then.
    fn so_far(&mut self) -> Option<SoFar> {
        let current = self.0.as_ref()?;
        let (number, matrix, is_over) =
            (current.checkup.number(), current.checkup.matrix(), current.checkup.is_over());
        if is_over {
            self.0 = None;
        }
        Some((number, matrix, is_over))
    }
}

fn tell(checkup: &mut Checkup, host: &HostId, state: &HostState) {
    match (&state.info, &state.link) {
        (Some(info), _) if state.is_up() => {
            checkup.is_up(host, info.clone());
            checkup.knows_clock(host, &state.clock);
            if let Some((at, sample)) = &state.sample {
                checkup.sampled(host, sample);
                checkup.knows_events(host, &state.gpu_events, *at);
            }
        }
        (_, Some((_, link))) => {
            checkup.link_changed(host, link);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::domain::doctor::RunInside;
    use crate::domain::needs::InImage;

    #[tokio::test]
    async fn while_one_types_no_container_is_started() {
        let host = HostId::from("a");
        let info = serde_json::json!({
            "hostname": "host", "kernel": "6.1.0", "arch": "x86_64", "user": "li", "cpus": 8,
            "memory_total": null, "boot_id": "b", "agent_version": "0", "addresses": [],
            "ssh_server_address": null, "ssh_client_address": null, "gpus": [], "gpu_absence": null, "driver": null,
            "cuda_driver": null, "nccl": null,
        });
        let described = Event::HostDescribed { info: serde_json::from_value(info).unwrap() };
        let look = |number, cwd: &str| {
            let inside = RunInside { cwd: Some(cwd.to_owned()), ..RunInside::default() };
            let inside = InImage { checks: vec!["image"], hosts: [(host.clone(), inside)].into() };
            let uses: BTreeMap<HostId, BTreeSet<_>> = BTreeMap::new();
            let (hosts, runs) = (vec![host.clone()], BTreeMap::new());
            Look { number, of: LookOf::Image { hosts, inside, uses, controller: None, runs, synced: None } }
        };
        let mut checkups = Checkups::default();
        for (number, cwd) in [(1, "/a"), (2, "/ab"), (3, "/abc")] {
            let hosts = [host.clone()];
            let asked = checkups.begin(&look(number, cwd), &hosts, &Contexts::new(), &World::default());
            assert!(asked.is_empty(), "{asked:?}");
            let asked = checkups.happened(&host, &described).concat();
            assert!(asked.is_empty(), "{asked:?}");
        }
        // of all these looks the last one is made, and nothing else
        let asked = loop {
            if let (Some(asked), _) = checkups.due().await {
                break asked;
            }
        };
        let [question] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((question.ask.ask, &question.ask.checks[..]), (3, &["image:image".to_owned()][..]));
        let inside = question.ask.look_into.as_ref().unwrap();
        assert_eq!(inside.cwd.as_deref(), Some("/abc"));
    }
}
