//! One look of the doctor over hosts: whom to ask what, and when all has been told. Pure: the session sends, the caller keeps
//! the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::HostConfig;
use crate::doctor::door::DOOR;
use crate::doctor::{self, Contexts, Doors, Entry, Reached, Told, inside};
use crate::domain::clock_fit::{ClockFit, ClockSample};
use crate::domain::doctor::{HostContext, Matrix, RunInside, RunPort, RunProgram, SamePath, SameRole};
use crate::domain::gpu::event::GpuEvents;
use crate::domain::host::{HostInfo, HostSample, LinkState};
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::needs::InImage;
use crate::domain::time::Stamp;
use crate::wire::doctor::{AskChecks, Checked};

/// A question to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The host.
    pub host: HostId,
    /// What it is asked. The time of it is that at which it is sent.
    pub ask: AskChecks,
}

/// What the hosts file says of how ssh reaches hosts.
pub fn contexts(configs: &[HostConfig]) -> Contexts {
    let context = |config: &HostConfig| HostContext {
        user: config.user.clone(),
        port: config.port,
        ssh: config.reach().map(|reach| reach.words()),
        given: BTreeMap::new(),
        uses: None,
        controller: None,
        ports: Vec::new(),
        clock: ClockFit::default(),
        happened: None,
        engine: config.container.clone(),
        workdir: config.workdir.clone(),
    };
    configs.iter().map(|config| (config.id.clone(), context(config))).collect()
}

/// Pings of a host that are waited for before its clock is judged: the quickest of so few is a good one already.
const PINGS: u32 = 8;

/// The check that tries each pair of hosts where a person names it.
const LOGINS: &str = "logins";

/// What was asked and told so far.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct Checkup {
    number: u64,
    checks: Vec<&'static Entry>,
    hosts: Vec<(HostId, Reached)>,
    /// Hosts that tell their facts by tools of their own: no agent runs there, and there is nothing to be asked.
    limited: BTreeSet<HostId>,
    told: BTreeMap<(HostId, &'static str), Told>,
    asked: BTreeSet<(HostId, &'static str)>,
    /// What is compared, by host.
    paths: BTreeMap<HostId, Vec<SamePath>>,
    /// Python modules that are looked for.
    modules: Vec<String>,
    /// The Python of a launch, by host.
    runs: BTreeMap<HostId, RunProgram>,
    /// The image of a launch, or the one that is looked into.
    image: Option<String>,
    /// Whether it is looked into: checks that can be made in a container are made in one of it.
    in_container: bool,
    /// What of a launch's image is looked into.
    inside: Option<InImage>,
    /// What is known of the hosts without asking them.
    contexts: Contexts,
    /// Whether a launch rests on it.
    for_launch: bool,
    /// Whether each host logs in to each other one.
    all_pairs: bool,
    has_given_up: bool,
    /// How many pings have told of each host's clock.
    pings: BTreeMap<HostId, u32>,
    /// Whether something has happened from which questions may follow: thousands of answers come from which none do.
    may_ask: bool,
    /// Whether the others are tried without what some have not told of themselves.
    goes_on_without_doors: bool,
}

impl Checkup {
    /// Of these hosts, by the checks with these names; all where none is named. `number` is that of its questions.
    pub fn new(number: u64, hosts: impl IntoIterator<Item = HostId>, only: &[String]) -> Self {
        let wanted = |entry: &&Entry| match only {
            [] => entry.is_of_hosts() && !entry.only_by_name,
            only => only.iter().any(|name| name == entry.name),
        };
        // who names the check wants to know it of each pair
        let all_pairs = only.iter().any(|name| name == LOGINS);
        Self { all_pairs, ..Self::of(number, hosts, doctor::CHECKS.iter().filter(wanted).collect()) }
    }

    /// Of the hosts of a launch, by the checks that it rests on, which may be none.
    pub fn for_launch(number: u64, hosts: impl IntoIterator<Item = HostId>, checks: &[&str]) -> Self {
        let wanted = |entry: &&Entry| checks.contains(&entry.name);
        let checks = doctor::CHECKS.iter().filter(wanted).collect();
        Self { for_launch: true, ..Self::of(number, hosts, checks) }
    }

    /// Of an image on these hosts: what a container of it has, and whether one can be had.
    pub fn of_image(
        number: u64,
        hosts: impl IntoIterator<Item = HostId>,
        only: &[String],
        image: &str,
    ) -> Self {
        let wanted = |entry: &&Entry| match only {
            [] => entry.is_of_image() && !entry.only_by_name,
            only => only.iter().any(|name| name == entry.name),
        };
        let checks = doctor::CHECKS.iter().filter(wanted).collect();
        Self { image: Some(image.to_owned()), in_container: true, ..Self::of(number, hosts, checks) }
    }

    fn of(number: u64, hosts: impl IntoIterator<Item = HostId>, checks: Vec<&'static Entry>) -> Self {
        Self {
            number,
            checks,
            hosts: hosts.into_iter().map(|host| (host, Reached::Waiting)).collect(),
            limited: BTreeSet::new(),
            told: BTreeMap::new(),
            asked: BTreeSet::new(),
            paths: BTreeMap::new(),
            modules: Vec::new(),
            runs: BTreeMap::new(),
            image: None,
            in_container: false,
            inside: None,
            contexts: Contexts::new(),
            for_launch: false,
            all_pairs: false,
            has_given_up: false,
            pings: BTreeMap::new(),
            may_ask: true,
            goes_on_without_doors: false,
        }
        .comparing(BTreeMap::new())
    }

    /// With these files and folders of each host to compare.
    #[must_use]
    pub fn comparing(mut self, paths: BTreeMap<HostId, Vec<SamePath>>) -> Self {
        self.checks.retain(|entry| !entry.wants_paths);
        // one host has nothing to differ from, but what a person wants to know
        let is_wanted = |one: &SamePath| self.hosts.len() > 1 || one.role == SameRole::Asked;
        if paths.values().flatten().any(is_wanted) {
            self.checks.extend(doctor::CHECKS.iter().filter(|entry| entry.wants_paths));
        }
        self.paths = paths;
        self
    }

    /// With these Python modules to look for.
    #[must_use]
    pub fn looking_for(self, modules: &[String]) -> Self {
        Self { modules: modules.to_vec(), ..self }
    }

    /// With the Python of a launch on each host.
    #[must_use]
    pub fn running(self, runs: BTreeMap<HostId, RunProgram>) -> Self {
        Self { runs, ..self }
    }

    /// With the image of a launch.
    #[must_use]
    pub fn in_image(self, image: Option<String>) -> Self {
        Self { image, ..self }
    }

    /// With a look into the image of a launch.
    #[must_use]
    pub fn looking_into(mut self, inside: Option<InImage>) -> Self {
        let Some(inside) = inside else { return self };
        let is_wanted = |entry: &&Entry| {
            inside.checks.contains(&entry.name) || self.checks.iter().any(|own| own.name == entry.name)
        };
        self.checks = doctor::CHECKS.iter().filter(is_wanted).collect();
        Self { inside: Some(inside), ..self }
    }

    /// What a host is asked to look for in the image of a launch. Of a script whose text is known here the names of what it imports
    /// are told, and nothing else.
    fn inside_of(&self, host: &HostId) -> Option<RunInside> {
        let mut inside = self.inside.as_ref()?.hosts.get(host)?.clone();
        if let Some(starts) =
            inside.starts.as_mut().filter(|one| one.script.is_none() && one.module.is_none())
        {
            let code = self.runs.get(host).and_then(|run| run.code.clone());
            let sure = doctor::surely_imported(&starts.imports, code.as_slice());
            starts.imports = sure.into_iter().map(str::to_owned).collect();
        }
        Some(inside)
    }

    /// Whether a check is made in a container.
    fn is_inside(&self, entry: &Entry) -> bool {
        self.in_container || self.inside.as_ref().is_some_and(|inside| inside.checks.contains(&entry.name))
    }

    /// With what is known of the hosts without asking them.
    #[must_use]
    pub fn reached_as(mut self, contexts: &Contexts) -> Self {
        let is_asked = |host: &HostId| self.hosts.iter().any(|(one, _)| one == host);
        let known = contexts.iter().filter(|(host, _)| is_asked(host));
        self.contexts = known.map(|(host, context)| (host.clone(), context.clone())).collect();
        self
    }

    /// With the variables that a launch gives its ranks on each host.
    #[must_use]
    pub fn giving(mut self, given: BTreeMap<HostId, BTreeMap<String, String>>) -> Self {
        for (host, given) in given {
            self.contexts.entry(host).or_default().given = given;
        }
        self
    }

    /// With the working directory of a launch on each host, in the place of the hosts file's.
    #[must_use]
    pub fn working_in(mut self, workdirs: BTreeMap<HostId, Option<String>>) -> Self {
        for (host, workdir) in workdirs {
            self.contexts.entry(host).or_default().workdir = workdir;
        }
        self
    }

    /// With the GPUs that a launch would use on each host.
    #[must_use]
    pub fn using(mut self, uses: BTreeMap<HostId, BTreeSet<GpuUuid>>) -> Self {
        for (host, uses) in uses {
            self.contexts.entry(host).or_default().uses = Some(uses);
        }
        self
    }

    /// With the controller of a launch by Horovod.
    #[must_use]
    pub fn controlled_by(mut self, controller: Option<&'static str>) -> Self {
        for (host, _) in &self.hosts {
            self.contexts.entry(host.clone()).or_default().controller = controller;
        }
        self
    }

    /// With the ports that a launch takes on each host.
    #[must_use]
    pub fn taking(mut self, ports: BTreeMap<HostId, Vec<RunPort>>) -> Self {
        for (host, ports) in ports {
            self.contexts.entry(host).or_default().ports = ports;
        }
        self
    }

    /// The number of its questions.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A host answers.
    pub fn is_up(&mut self, host: &HostId, info: Arc<HostInfo>) {
        if !self.limited.contains(host) {
            self.reached(host, Reached::Up(info, None));
        }
    }

    /// The link to a host has changed. Says whether nothing answers there now.
    pub fn link_changed(&mut self, host: &HostId, state: &LinkState) -> bool {
        match state {
            LinkState::Up => {
                self.limited.remove(host);
                return false;
            }
            LinkState::Limited { reason } => {
                self.limited.insert(host.clone());
                self.is_down(host, reason.clone());
            }
            LinkState::Down { reason, .. } | LinkState::Refused { reason, .. } => {
                self.is_down(host, reason.clone());
            }
            LinkState::Connecting { .. } | LinkState::Installing { .. } => return false,
        }
        true
    }

    /// A host tells the values of its GPUs. The first sample counts.
    pub fn sampled(&mut self, host: &HostId, sample: &Arc<HostSample>) {
        let reached = self.hosts.iter_mut().find(|(one, _)| one == host);
        if let Some((_, Reached::Up(_, known @ None))) = reached {
            *known = Some(Arc::clone(sample));
        }
    }

    /// A ping has told of a host's clock.
    pub fn clocked(&mut self, host: &HostId, sample: ClockSample) {
        if self.hosts.iter().any(|(one, _)| one == host) {
            self.contexts.entry(host.clone()).or_default().clock.add(sample);
            *self.pings.entry(host.clone()).or_default() += 1;
        }
    }

    /// What earlier pings have told of it.
    pub fn knows_clock(&mut self, host: &HostId, clock: &ClockFit) {
        self.contexts.entry(host.clone()).or_default().clock = clock.clone();
        self.pings.insert(host.clone(), PINGS);
    }

    /// What is known at `now` to have happened to its GPUs.
    pub fn knows_events(&mut self, host: &HostId, events: &GpuEvents, now: Stamp) {
        self.contexts.entry(host.clone()).or_default().happened = Some((events.clone(), now));
    }

    /// A host does not.
    pub fn is_down(&mut self, host: &HostId, why: String) {
        self.reached(host, Reached::Down(why));
        // its door went with it
        self.told.remove(&(host.clone(), DOOR));
        // should it come back, it is asked again
        let told = &self.told;
        self.asked.retain(|key| key.0 != *host || told.contains_key(key));
    }

    /// Hosts that have not answered yet are not waited for any more.
    pub fn go_on_without(&mut self, why: &str) {
        self.may_ask = true;
        for (_, reached) in &mut self.hosts {
            if *reached == Reached::Waiting {
                *reached = Reached::Down(why.to_owned());
            }
        }
    }

    fn reached(&mut self, host: &HostId, now: Reached) {
        self.may_ask = true;
        if let Some((_, reached)) = self.hosts.iter_mut().find(|(one, _)| one == host) {
            *reached = now;
        }
    }

    /// A host has told of a check. What was not asked for is passed over.
    pub fn told(&mut self, host: &HostId, checked: Checked) {
        if checked.ask != self.number {
            return;
        }
        if let (true, Some(why)) = (checked.check.is_empty(), &checked.why) {
            self.may_ask = true;
            let of_it = self.asked.iter().filter(|(one, _)| one == host).cloned();
            return self.told.extend(of_it.map(|key| (key, Err(why.clone()))));
        }
        let name = if checked.check == DOOR { Some(DOOR) } else { None };
        let Some(name) = name.or_else(|| Some(doctor::asked(&checked.check)?.name)) else { return };
        let key = (host.clone(), name);
        if self.asked.contains(&key) {
            self.may_ask |= name == DOOR;
            let why = || checked.why.unwrap_or_else(|| "it says nothing".to_owned());
            self.told.insert(key, checked.found.ok_or_else(why));
        }
    }

    /// Hosts of which it is not known yet whether they answer.
    pub fn waiting(&self) -> impl Iterator<Item = &HostId> {
        self.hosts.iter().filter(|(_, reached)| *reached == Reached::Waiting).map(|(host, _)| host)
    }

    /// The hosts and checks that have been asked and have not answered.
    pub fn due(&self) -> (BTreeSet<&HostId>, Vec<&'static str>) {
        let due: Vec<&(HostId, &'static str)> =
            self.asked.iter().filter(|key| !self.told.contains_key(key)).collect();
        let checks = self.checks.iter().map(|entry| entry.name);
        let checks = checks.filter(|check| due.iter().any(|(_, one)| one == check)).collect();
        (due.iter().map(|(host, _)| host).collect(), checks)
    }

    /// Its hosts, and what is known of each.
    pub fn hosts(&self) -> impl Iterator<Item = (&HostId, &Reached)> {
        self.hosts.iter().map(|(host, reached)| (host, reached))
    }

    /// Whether each host answers or does not.
    pub fn have_all_come(&self) -> bool {
        self.waiting().next().is_none()
    }

    /// What is not told by now is not waited for any more.
    pub fn give_up(&mut self, why: &str) {
        self.go_on_without(why);
        self.has_given_up = true;
        for (host, reached) in &self.hosts {
            let looks = self.checks.iter().filter(|entry| entry.looks && matches!(reached, Reached::Up(..)));
            for name in looks.map(|entry| entry.name) {
                self.told.entry((host.clone(), name)).or_insert_with(|| Err(why.to_owned()));
            }
        }
    }

    /// What hosts have not told of themselves for the others is not waited for any more.
    pub fn go_on_without_doors(&mut self) {
        self.goes_on_without_doors = true;
        self.may_ask = true;
    }

    /// Whether the others are not tried yet, as some host has not told of itself for them.
    pub fn awaits_doors(&self) -> bool {
        let is_up = |(_, reached): &&(HostId, Reached)| matches!(reached, Reached::Up(..));
        let mut up = self.hosts.iter().filter(is_up);
        self.meets_others()
            && !self.goes_on_without_doors
            && up.any(|(host, _)| !self.told.contains_key(&(host.clone(), DOOR)))
    }

    /// Whether hosts are to try each other.
    fn meets_others(&self) -> bool {
        let up = self.hosts.iter().filter(|(_, reached)| matches!(reached, Reached::Up(..)));
        self.checks.iter().any(|entry| entry.meets_others) && up.count() > 1
    }

    /// What hosts have told of themselves for the others.
    fn doors(&self) -> Doors {
        let doors = self.told.iter().filter(|((_, check), _)| *check == DOOR);
        let doors = doors.filter_map(|((host, _), told)| {
            Some((host.clone(), serde_json::from_value(told.clone().ok()?).ok()?))
        });
        doors.collect()
    }

    /// What to ask now: of each host that answers what it can tell alone; when all have come or are not waited for, where the
    /// others find it; and when all have told that, what needs the others.
    pub fn questions(&mut self) -> Vec<Question> {
        if !std::mem::take(&mut self.may_ask) {
            return Vec::new();
        }
        let complete = self.have_all_come();
        let opens = complete && self.awaits_doors();
        let meets = complete && !opens;
        let peers =
            if meets { doctor::peers(&self.hosts, &self.contexts, &self.doors()) } else { Vec::new() };
        let mut questions = Vec::new();
        for (host, reached) in &self.hosts {
            let Reached::Up(info, _) = reached else { continue };
            let mut checks = Vec::new();
            let mut tries_others = false;
            for entry in self.checks.iter().filter(|entry| entry.looks && (meets || !entry.meets_others)) {
                if self.asked.insert((host.clone(), entry.name)) {
                    checks.push(entry.question(self.is_inside(entry)));
                    tries_others |= entry.meets_others;
                }
            }
            if opens && self.asked.insert((host.clone(), DOOR)) {
                checks.push(DOOR.to_owned());
            }
            if !checks.is_empty() {
                // from the one behind it on: a check that tries but a few does not try the same few on all hosts
                let own = peers.iter().position(|peer| peer.host == *host).unwrap_or(0);
                let others = peers.iter().cycle().skip(own).take(peers.len());
                let others = others.filter(|peer| tries_others && peer.host != *host).cloned().collect();
                let context = self.contexts.get(host);
                let gpus = match (self.in_container, &self.inside) {
                    (true, _) => doctor::given_to_ranks(info).cloned().collect(),
                    (false, Some(_)) => {
                        let uses = context.and_then(|context| context.uses.as_ref());
                        uses.into_iter().flatten().cloned().collect()
                    }
                    (false, None) => Vec::new(),
                };
                let ask = AskChecks {
                    ask: self.number,
                    checks,
                    peers: others,
                    paths: self.paths.get(host).cloned().unwrap_or_default(),
                    modules: self.modules.clone(),
                    for_launch: self.for_launch,
                    run: self.runs.get(host).cloned().map(Box::new),
                    image: self.image.clone(),
                    ports: context.map_or_else(Vec::new, |context| context.ports.clone()),
                    all_pairs: self.all_pairs,
                    engine: context.and_then(|context| context.engine.clone()),
                    workdir: context.and_then(|context| context.workdir.clone()),
                    gpus,
                    look_into: self.inside_of(host).map(Box::new),
                    ..AskChecks::default()
                };
                questions.push(Question { host: host.clone(), ask });
            }
        }
        questions
    }

    /// Whether all has been told that will be.
    pub fn is_over(&self) -> bool {
        self.hosts.iter().all(|(host, reached)| match reached {
            Reached::Waiting => false,
            Reached::Down(_) => true,
            // what it does not tell of its GPUs in time is told as such
            Reached::Up(info, None) if self.awaits_sample() && !info.gpus.is_empty() => false,
            Reached::Up(..) if self.awaits_clock(host) => false,
            Reached::Up(..) => {
                let due =
                    |entry: &&&Entry| entry.looks && !self.told.contains_key(&(host.clone(), entry.name));
                self.checks.iter().find(due).is_none()
            }
        })
    }

    fn awaits_clock(&self, host: &HostId) -> bool {
        let has_few = self.pings.get(host).is_none_or(|pings| *pings < PINGS);
        !self.has_given_up && has_few && self.checks.iter().any(|entry| entry.wants_clock)
    }

    fn awaits_sample(&self) -> bool {
        // a launch does not wait for what may never come: it has what is known
        !self.has_given_up && !self.for_launch && self.checks.iter().any(|entry| entry.wants_sample)
    }

    /// The verdicts so far.
    pub fn matrix(&self) -> Matrix {
        let matrix = doctor::matrix(&self.checks, &self.hosts, &self.told, &self.contexts);
        if self.in_container || self.inside.is_some() { inside::of_image(matrix) } else { matrix }
    }
}

#[cfg(test)]
#[path = "checkup_tests.rs"]
mod tests;
