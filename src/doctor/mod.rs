//! Why it does not work, before it does not work: checks of a host and of all hosts together. Layer 3.
//!
//! A check is one file of `checks`: its name, what it looks at on a host (a value of its own type, which travels as JSON),
//! and the verdicts that follow from what all hosts have told (pure). It becomes part of the matrix by its line in
//! [`CHECKS`]. Looking changes nothing, and a check that hangs keeps no other one waiting: each has a thread and a deadline.

mod checks;
mod compare;
mod compat;
pub mod door;
mod environments;
pub mod inside;
mod python;
mod requires;
mod site;
mod system;
pub(crate) mod under_way;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use checks::import::{decides_imports, surely as surely_imported};
pub use site::{PATIENCE, Site};

use crate::domain::clock_fit::ClockFit;
use crate::domain::doctor::{CONNECTION, Door, Fix, HostContext, Matrix, Peer, Row, Verdict};
use crate::domain::gpu::event::GpuEvents;
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::text::{plain, sanitize};
use crate::domain::time::Stamp;

/// Characters of evidence, cause and remedy each.
const LONGEST: usize = 500;

/// What one host has told for a check.
#[derive(Debug)]
struct Seen<'a, F> {
    host: &'a HostId,
    /// The host's facts.
    info: &'a HostInfo,
    /// The newest sample of its GPUs.
    sample: Option<&'a HostSample>,
    /// Those variables that a launch gives its ranks there, where one is looked for.
    given: &'a BTreeMap<String, String>,
    /// The GPUs that a launch would use there, where one is looked for.
    uses: Option<&'a BTreeSet<GpuUuid>>,
    /// By what the ranks of a launch by Horovod agree, where one is looked for.
    controller: Option<&'static str>,
    /// Where the link's pings place its clock.
    clock: Option<&'a ClockFit>,
    /// What is known to have happened to its GPUs, and the moment it is.
    happened: Option<&'a (GpuEvents, Stamp)>,
    found: F,
}

static NOTHING_GIVEN: BTreeMap<String, String> = BTreeMap::new();

/// What a check has to do with a look into an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfImage {
    /// Nothing.
    No,
    /// It is made on the host, and says whether containers can be had there.
    Beside,
    /// It is made in a container, too; what helps is done on the host.
    There,
    /// It is made in a container, too; what helps is done in the image.
    Inside,
    /// It is made in a container alone.
    Alone,
}

/// One check.
trait Check {
    /// Its name: one lower-case word.
    const NAME: &'static str;
    /// What it asks, for people.
    const ASKS: &'static str;
    /// Whether it looks at the host. One that doesn't judges by the host's facts.
    const LOOKS: bool = true;
    /// Whether it needs the addresses of all other hosts, so that it comes when those are known.
    const MEETS_OTHERS: bool = false;
    /// Whether it judges the values of the GPUs, too.
    const WANTS_SAMPLE: bool = false;
    /// Whether it judges the host's clock, as the link's pings place it.
    const WANTS_CLOCK: bool = false;
    /// Whether it is made for a launch, and where a person names it, alone: it costs too much to be made unasked.
    const ONLY_BY_NAME: bool = false;
    /// Whether it looks at files and folders that are named to it: without any it is not made.
    const WANTS_PATHS: bool = false;
    /// What it has to do with a look into an image.
    const OF_IMAGE: OfImage = OfImage::No;
    /// How long it may take.
    const PATIENCE: Duration = PATIENCE;
    /// What it finds on a host.
    type Found: Serialize + DeserializeOwned;

    /// Looks at this host.
    ///
    /// # Errors
    /// Why nothing can be told, in words.
    fn look(site: &Site) -> Result<Self::Found, String>;

    /// The verdict on each host, in their order.
    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict>;
}

/// A check in the registry.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it asks.
    pub asks: &'static str,
    /// Whether it looks at the host.
    pub looks: bool,
    /// Whether it needs the addresses of all other hosts.
    pub meets_others: bool,
    /// Whether it judges the values of the GPUs, too.
    pub wants_sample: bool,
    /// Whether it judges the host's clock.
    pub wants_clock: bool,
    /// Whether it is made for a launch, and where a person names it, alone.
    pub only_by_name: bool,
    /// Whether it looks at files and folders that are named to it.
    pub wants_paths: bool,
    /// What it has to do with a look into an image.
    pub of_image: OfImage,
    /// How long it may take.
    pub patience: Duration,
    look: fn(&Site) -> Result<Value, String>,
    judge: fn(&[Seen<'_, &Value>]) -> Vec<Verdict>,
}

const fn entry<C: Check>() -> Entry {
    Entry {
        name: C::NAME,
        asks: C::ASKS,
        looks: C::LOOKS,
        meets_others: C::MEETS_OTHERS,
        wants_sample: C::WANTS_SAMPLE,
        wants_clock: C::WANTS_CLOCK,
        only_by_name: C::ONLY_BY_NAME,
        wants_paths: C::WANTS_PATHS,
        of_image: C::OF_IMAGE,
        patience: C::PATIENCE,
        look: |site| {
            let found = C::look(site)?;
            serde_json::to_value(found).map_err(|error| error.to_string())
        },
        judge: judge::<C>,
    }
}

/// All checks, in the order in which they are shown: what others need comes first.
pub static CHECKS: [Entry; 35] = [
    entry::<checks::reach::Reach>(),
    entry::<checks::sshd::Sshd>(),
    entry::<checks::logins::Logins>(),
    entry::<checks::interface::Interface>(),
    entry::<checks::choice::Choice>(),
    entry::<checks::ports::Ports>(),
    entry::<checks::hostname::Hostname>(),
    entry::<checks::clock::Clock>(),
    entry::<checks::kernel::Kernel>(),
    entry::<checks::logout::Logout>(),
    entry::<checks::disk::Disk>(),
    entry::<checks::tmp::Tmp>(),
    entry::<checks::shm::Shm>(),
    entry::<checks::limits::Limits>(),
    entry::<checks::gpu::Gpu>(),
    entry::<checks::health::Health>(),
    entry::<checks::leftover::Leftover>(),
    entry::<checks::driver::Driver>(),
    entry::<checks::stub::Stub>(),
    entry::<checks::cuda::Cuda>(),
    entry::<checks::libraries::Libraries>(),
    entry::<checks::compiler::Compiler>(),
    entry::<checks::path::ProgramPath>(),
    entry::<checks::python::Python>(),
    entry::<checks::packages::Packages>(),
    entry::<checks::torch::Torch>(),
    entry::<checks::tf::Tensorflow>(),
    entry::<checks::horovod::Horovod>(),
    entry::<checks::import::Import>(),
    entry::<checks::mpi::Mpi>(),
    entry::<checks::docker::Docker>(),
    entry::<checks::toolkit::Toolkit>(),
    entry::<checks::images::Images>(),
    entry::<checks::image::Image>(),
    entry::<checks::same::Same>(),
];

/// The check of this name.
pub fn check(name: &str) -> Option<&'static Entry> {
    CHECKS.iter().find(|entry| entry.name == name)
}

/// The check that is asked for by this name, on a host or in a container.
pub fn asked(name: &str) -> Option<&'static Entry> {
    check(inside::asked(name).unwrap_or(name))
}

/// The GPUs of a host that ranks are given: of one that is cut into slices those.
pub fn given_to_ranks(info: &HostInfo) -> impl Iterator<Item = &GpuUuid> {
    info.gpus.iter().filter(|gpu| gpu.slices.is_none()).map(|gpu| &gpu.uuid)
}

impl Entry {
    /// Whether it is one of hosts without regard to an image.
    pub fn is_of_hosts(&self) -> bool {
        self.of_image != OfImage::Alone
    }

    /// Whether it belongs to a look into an image.
    pub fn is_of_image(&self) -> bool {
        self.of_image != OfImage::No
    }

    /// The name by which a host is asked for it; in a look into an image those that are made in a container have another one, so
    /// that an older hvtui does not tell of its host instead.
    pub fn question(&self, in_container: bool) -> String {
        let is_inside = matches!(self.of_image, OfImage::There | OfImage::Inside | OfImage::Alone);
        if in_container && is_inside { inside::name(self.name) } else { self.name.to_owned() }
    }

    /// Looks at this host.
    ///
    /// # Errors
    /// Why nothing can be told, in words.
    pub fn look(&self, site: &Site) -> Result<Value, String> {
        (self.look)(site)
    }
}

/// What is known of a host.
#[derive(Debug, Clone, PartialEq)]
pub enum Reached {
    /// It has not told its facts yet.
    Waiting,
    /// It answers; with the newest sample of its GPUs, once there is one.
    Up(Arc<HostInfo>, Option<Arc<HostSample>>),
    /// It does not, and why.
    Down(String),
}

/// What is known of hosts without asking them.
pub type Contexts = BTreeMap<HostId, HostContext>;

/// What hosts have told of themselves for the others.
pub type Doors = BTreeMap<HostId, Door>;

/// Which addresses each host offers to the others, and how they come in there.
pub fn peers(hosts: &[(HostId, Reached)], contexts: &Contexts, doors: &Doors) -> Vec<Peer> {
    let described = hosts.iter().filter_map(|(host, reached)| match reached {
        Reached::Up(info, _) => {
            let addresses = info.addresses.iter().map(|one| one.address).collect::<Vec<_>>();
            Some((host, info.hostname.as_str(), addresses))
        }
        _ => None,
    });
    let described: Vec<(&HostId, &str, Vec<IpAddr>)> = described.collect();
    let mut peers = checks::reach::addresses(described.iter().map(|(host, _, all)| (*host, all.as_slice())));
    for (peer, (_, name, _)) in peers.iter_mut().zip(&described) {
        peer.name = Some((*name).to_owned()).filter(|name| !name.is_empty());
        if let Some(HostContext { user, port, ports, .. }) = contexts.get(&peer.host) {
            (peer.user, peer.port) = (user.clone(), *port);
            peer.ports = ports.iter().map(|one| one.port).collect();
        }
        if let Some(door) = doors.get(&peer.host) {
            peer.door = door.port;
            // the hosts file's may be that of a gateway
            peer.port = door.ssh_port.or(peer.port);
        }
    }
    peers
}

/// What a host has told for a check.
pub type Told = Result<Value, String>;

/// The verdicts that follow from what is known.
pub fn matrix(
    checks: &[&'static Entry],
    hosts: &[(HostId, Reached)],
    told: &BTreeMap<(HostId, &'static str), Told>,
    contexts: &Contexts,
) -> Matrix {
    let rows = checks.iter().map(|entry| row(entry, hosts, told, contexts));
    let rows = [connection(hosts, contexts)].into_iter().chain(rows).collect();
    Matrix { hosts: hosts.iter().map(|(host, _)| host.clone()).collect(), rows }
}

fn connection(hosts: &[(HostId, Reached)], contexts: &Contexts) -> Row {
    let cause = "no run can use the host, and nothing else is known of it";
    let verdicts = hosts.iter().filter_map(|(host, reached)| {
        let verdict = match reached {
            Reached::Waiting => return None,
            Reached::Up(info, _) => {
                let by = info.login.as_ref().map_or_else(String::new, |by| format!(", by {by}"));
                Verdict::good(format!("{} as {}{by}", info.hostname, info.user))
            }
            Reached::Down(why) => {
                let ssh = contexts.get(host).and_then(|context| context.ssh.as_ref());
                let tried = ssh.map_or_else(String::new, |words| {
                    let words: Vec<_> = words.iter().map(|word| shell_word(word)).collect();
                    format!("ssh -v {} true, then: ", words.join(" "))
                });
                Verdict::bad(plain(host, why), cause, format!("{tried}hvtui hosts check {host}"))
            }
        };
        Some((host.clone(), verdict))
    });
    let mut verdicts: BTreeMap<HostId, Verdict> = verdicts.collect();
    verdicts.values_mut().for_each(bound);
    Row { check: CONNECTION, asks: "is the host reached, and does it answer", verdicts }
}

fn row(
    entry: &'static Entry,
    hosts: &[(HostId, Reached)],
    told: &BTreeMap<(HostId, &'static str), Told>,
    contexts: &Contexts,
) -> Row {
    let mut verdicts = BTreeMap::new();
    let (mut seen, null) = (Vec::new(), Value::Null);
    for (host, reached) in hosts {
        let (info, sample) = match reached {
            Reached::Waiting => continue,
            Reached::Up(info, sample) => (info.as_ref(), sample.as_deref()),
            Reached::Down(_) => {
                verdicts.insert(host.clone(), Verdict::unknown("the host is not reached"));
                continue;
            }
        };
        let found = match told.get(&(host.clone(), entry.name)) {
            _ if !entry.looks => &null,
            Some(Ok(found)) => found,
            Some(Err(why)) => {
                verdicts.insert(host.clone(), Verdict::unknown(why.clone()));
                continue;
            }
            None => continue,
        };
        let context = contexts.get(host);
        let given = context.map_or(&NOTHING_GIVEN, |context| &context.given);
        let uses = context.and_then(|context| context.uses.as_ref());
        let clock = context.map(|context| &context.clock);
        let controller = context.and_then(|context| context.controller);
        let happened = context.and_then(|context| context.happened.as_ref());
        seen.push(Seen { host, info, sample, given, uses, controller, clock, happened, found });
    }
    let mut judged = (entry.judge)(&seen);
    for (one, verdict) in seen.iter().zip(&mut judged) {
        let whose = verdict.fix.as_ref().and_then(|fix| fix.place(one.host)).unwrap_or(one.host);
        if seen.iter().any(|of| of.host == whose && of.info.user == "root") {
            without_sudo(verdict);
        }
    }
    verdicts.extend(seen.iter().map(|one| one.host.clone()).zip(judged));
    verdicts.values_mut().for_each(bound);
    Row { check: entry.name, asks: entry.asks, verdicts }
}

/// Root needs none, and hosts where root is logged in to often have none, such as containers.
fn without_sudo(verdict: &mut Verdict) {
    let bare = |text: &mut String| *text = text.replace("sudo ", "");
    verdict.remedy.as_mut().map(bare);
    if let Some(Fix::There(command) | Fix::On(_, command)) = &mut verdict.fix {
        bare(command);
    }
}

/// What hosts have said stands in it: it is shown to people, and is no longer than they read.
fn bound(verdict: &mut Verdict) {
    let texts = [
        Some(&mut verdict.evidence),
        verdict.lasting.as_mut(),
        verdict.cause.as_mut(),
        verdict.remedy.as_mut(),
    ];
    for text in texts.into_iter().flatten() {
        *text = sanitize(text).into_owned();
        if let Some((end, _)) = text.char_indices().nth(LONGEST) {
            text.truncate(end);
            text.push('…');
        }
    }
    // what is run is what a person can see whole
    let is_seen = |fix: &Fix| match fix {
        Fix::There(command) | Fix::On(_, command) => {
            sanitize(command) == *command && command.chars().count() <= LONGEST
        }
        Fix::Here(_) => true,
    };
    verdict.fix = verdict.fix.take().filter(is_seen);
}

/// A host's text as a word of a command that a person may copy: it can't end that command and begin another one.
fn shell_word(text: &str) -> Cow<'_, str> {
    shlex::try_quote(text).unwrap_or(Cow::Borrowed("…"))
}

/// What can't be read was told by another version's check: that host alone is not judged.
fn judge<C: Check>(told: &[Seen<'_, &Value>]) -> Vec<Verdict> {
    let mut seen = Vec::new();
    let mut unread = Vec::new();
    for (at, one) in told.iter().enumerate() {
        match C::Found::deserialize(one.found) {
            Ok(found) => {
                let Seen { host, info, sample, given, uses, controller, clock, happened, .. } = *one;
                seen.push(Seen { host, info, sample, given, uses, controller, clock, happened, found });
            }
            Err(_) => unread.push(at),
        }
    }
    let mut verdicts = C::judge(&seen);
    for at in unread {
        let text = "its hvtui tells this in another form: use the same version there";
        verdicts.insert(at.min(verdicts.len()), Verdict::unknown(text));
    }
    verdicts
}

#[cfg(test)]
mod tests;
