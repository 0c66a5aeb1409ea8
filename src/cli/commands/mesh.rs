//! `hvtui hosts mesh`: logins without password from each host to each other. Shows what it will write, asks, writes,
//! and then lets each host log in to each other.

use std::sync::Arc;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::try_join_all;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time;

use super::trust::find;
use crate::cli::ask::confirm;
use crate::cli::errors::fault;
use crate::cli::errors::{Code, Failure, note, to_person};
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::cluster::messages::{Incoming, Reply};
use crate::cluster::pool::Cluster;
use crate::config::{HostConfig, HostsFile};
use crate::domain::event::Event;
use crate::domain::host::HostInfo;
use crate::domain::ids::HostId;
use crate::domain::text::{about, sanitize};
use crate::launcher::mesh::{Member, plan};
use crate::ssh::{self, SshError};
use crate::wire::mesh::{
    MeshApply, MeshAsk, MeshChange, MeshDone, MeshLook, MeshPlan, MeshRemove, MeshTold, MeshTry, PrivateKey,
};
use crate::wire::message::ToAgent;

/// No host may take longer to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Logins of one host to all others: eight at a time, each of at most half a minute.
const LOGINS: Duration = Duration::from_secs(600);

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Names of hosts; none: all that ssh reaches.
    pub only: &'a [String],
    /// Take out instead of setting up.
    pub remove: bool,
    /// Ask nothing.
    pub yes: bool,
}

/// Sets up or takes out; exits with 69 or 77 where a login does not work, or a host keeps what was to be taken out.
pub fn run(asked: &Asked<'_>, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let hosts = choose(asked, file)?;
    runtime::block_on(async {
        if asked.remove {
            return Hosts::reach(&hosts, paths).await?.remove(asked.yes).await;
        }
        let mut hosts = Hosts::connect(&hosts, paths).await?;
        let ids = hosts.meshes().await?;
        let id = match ids.keys().collect::<Vec<_>>().as_slice() {
            [] => new_id()?,
            [id] => (*id).clone(),
            several => {
                let several: Vec<&str> = several.iter().map(|id| id.as_str()).collect();
                return Err(Failure::usage(format!(
                    "these hosts belong to the meshes {}: take them out first, by hvtui hosts mesh --remove",
                    several.join(" and ")
                )));
            }
        };
        hosts.set_up(&id, ids.get(&id).cloned().flatten(), asked.yes).await?;
        hosts.verify().await
    })
}

/// Hosts on which something was to be taken out and was not, each with why.
type LeftOut = BTreeMap<HostId, (Code, String)>;

/// What was not taken out where, and the command that does it later; `None` where nothing is left.
fn left(hosts: &LeftOut) -> Option<Failure> {
    let code = hosts.values().map(|(code, _)| *code).max_by_key(|code| code.number())?;
    let mut lines: Vec<String> = hosts.iter().map(|(host, (_, reason))| about(host, reason)).collect();
    let names = |between: &str| hosts.keys().map(HostId::as_str).collect::<Vec<_>>().join(between);
    lines.push(format!(
        "not taken out on {}; once that can be done: hvtui hosts mesh --remove {}",
        names(", "),
        names(" ")
    ));
    Some(Failure::new(code, lines.join("\n")))
}

fn choose(asked: &Asked<'_>, file: &HostsFile) -> Result<Vec<HostConfig>, Failure> {
    let mut chosen = Vec::new();
    if asked.only.is_empty() {
        chosen.extend(file.hosts.iter().filter(|host| !host.is_local()).cloned());
        for host in file.hosts.iter().filter(|host| host.is_local()) {
            note(&format!("{} takes no part: it is this machine, reached without ssh", host.id));
        }
    }
    for name in asked.only {
        let host = find(name, file)?;
        if host.is_local() {
            return Err(Failure::usage(format!(
                "host {name} is this machine: give it an entry with an address"
            )));
        }
        if !chosen.contains(host) {
            chosen.push(host.clone());
        }
    }
    if chosen.len() < 2 && !asked.remove {
        return Err(Failure::usage("logins between hosts need two hosts at least that ssh reaches"));
    }
    Ok(chosen)
}

fn new_id() -> Result<String, Failure> {
    let mut bytes = [0; 4];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::bug("the system gives no random numbers"))?;
    Ok(bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")))
}

/// The hosts with their agents.
struct Hosts {
    cluster: Cluster,
    ids: Vec<HostId>,
    members: Vec<Member>,
    /// Where a host fails, the others go on and it is noted here; `None`: it fails all of them, for half a mesh is none.
    left_out: Option<LeftOut>,
}

impl Hosts {
    /// Connects to those that can be reached, to take out what they have.
    async fn reach(hosts: &[HostConfig], paths: &Paths) -> Result<Self, Failure> {
        let prompter = ask::person();
        let reached = connect::targets(hosts, &paths.home).await.into_iter();
        let reached =
            reached.map(|(host, target)| (host, target.map(|target| target.with_prompter(&prompter))));
        let entries = connect::entries(hosts, reached.collect(), Some(Duration::from_secs(1)))?;
        let ids = hosts.iter().map(|host| host.id.clone()).collect();
        let left_out = Some(LeftOut::new());
        let mut this = Self { cluster: Cluster::connect(entries), ids, members: Vec::new(), left_out };
        // an agent is asked once it is there
        this.facts().await?;
        Ok(this)
    }

    /// Connects to all of them, and learns what the mesh needs to know.
    async fn connect(hosts: &[HostConfig], paths: &Paths) -> Result<Self, Failure> {
        let prompter = ask::person();
        let reached = connect::targets(hosts, &paths.home).await.into_iter();
        let reached = reached.map(|(host, target)| Ok((host, target?.with_prompter(&prompter))));
        let reached: Vec<(HostId, ssh::Target)> = reached.collect::<Result<_, SshError>>()?;
        let targets: Vec<ssh::Target> = reached.iter().map(|(_, target)| target.clone()).collect();
        let reached = reached.into_iter().map(|(host, target)| (host, Ok(target))).collect();
        let entries = connect::entries(hosts, reached, Some(Duration::from_secs(1)))?;
        let ids: Vec<HostId> = hosts.iter().map(|host| host.id.clone()).collect();
        let mut this = Self { cluster: Cluster::connect(entries), ids, members: Vec::new(), left_out: None };
        let facts = this.facts().await?;
        let keys = try_join_all(targets.iter().map(ssh::known_key)).await?;
        for ((host, target), key) in hosts.iter().zip(&targets).zip(&keys) {
            if let Some(info) = facts.get(&host.id) {
                let at = (target.address.as_str(), target.port, target.user.as_str());
                this.members.push(Member::new(host, info, at, key));
            }
        }
        Ok(this)
    }

    async fn facts(&mut self) -> Result<BTreeMap<HostId, HostInfo>, Failure> {
        let due: BTreeSet<HostId> = self.ids.iter().cloned().collect();
        self.collect(due, PATIENCE, |incoming| match incoming {
            Incoming::Event(_, Event::HostDescribed { info }) => Some(Arc::unwrap_or_clone(info)),
            _ => None,
        })
        .await
    }

    /// Waits for one thing of each host. A host whose link fails ends the wait, or is left out.
    async fn collect<T>(
        &mut self,
        mut due: BTreeSet<HostId>,
        patience: Duration,
        mut take: impl FnMut(Incoming) -> Option<T>,
    ) -> Result<BTreeMap<HostId, T>, Failure> {
        let (mut got, mut failed) = (BTreeMap::new(), LeftOut::new());
        let goes_on = self.left_out.is_some();
        let work = async {
            while !due.is_empty() {
                let Some(item) = self.cluster.next().await else { break };
                if let Incoming::Event(_, Event::LinkChanged { state }) = &item.incoming
                    && let Some((code, reason)) = fault(state)
                {
                    if !goes_on {
                        return Err(Failure::new(code, about(&item.host, &reason)));
                    }
                    if due.remove(&item.host) {
                        failed.insert(item.host.clone(), (code, reason));
                    }
                }
                if let Some(thing) = take(item.incoming)
                    && due.remove(&item.host)
                {
                    got.insert(item.host, thing);
                }
            }
            Ok(())
        };
        let done = time::timeout(patience, work).await;
        let seconds = patience.as_secs();
        if goes_on {
            let silent = |host| (host, (Code::Unreachable, format!("no answer within {seconds} s")));
            failed.extend(due.into_iter().map(silent));
            for (host, (code, reason)) in failed {
                self.leave_out(host, code, reason);
            }
            return Ok(got);
        }
        if let Ok(done) = done {
            return done.map(|()| got);
        }
        let silent: Vec<&str> = due.iter().map(HostId::as_str).collect();
        let text = format!("no answer within {seconds} s of {}", silent.join(", "));
        Err(Failure::new(Code::Unreachable, text))
    }

    /// Goes on without a host; `false` where all of them are needed.
    fn leave_out(&mut self, host: HostId, code: Code, reason: String) -> bool {
        let Some(left_out) = &mut self.left_out else { return false };
        self.ids.retain(|id| *id != host);
        left_out.insert(host, (code, reason));
        true
    }

    async fn ask(
        &mut self,
        asks: Vec<(HostId, MeshAsk)>,
        patience: Duration,
    ) -> Result<BTreeMap<HostId, MeshTold>, Failure> {
        let due = asks.iter().map(|(host, _)| host.clone()).collect();
        for (host, ask) in asks {
            self.cluster.send(&host, ToAgent::Mesh(ask));
        }
        self.collect(due, patience, |incoming| match incoming {
            Incoming::Reply(Reply::Mesh(told)) => Some(told),
            _ => None,
        })
        .await
    }

    fn each(&self, ask: impl Fn(&HostId) -> MeshAsk) -> Vec<(HostId, MeshAsk)> {
        self.ids.iter().map(|host| (host.clone(), ask(host))).collect()
    }

    /// The meshes that the hosts know, each with its public key where one of them has it.
    async fn meshes(&mut self) -> Result<BTreeMap<String, Option<String>>, Failure> {
        let asks = self.each(|_| MeshAsk::Look(MeshLook {}));
        let mut ids: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (host, told) in self.ask(asks, PATIENCE).await? {
            let MeshTold::Seen(seen) = told else { continue };
            if let Some(problem) = seen.problem {
                if self.leave_out(host.clone(), Code::Permission, problem.clone()) {
                    continue;
                }
                return Err(Failure::new(Code::Permission, format!("{host}: {problem}")));
            }
            for found in seen.meshes {
                let public = ids.entry(found.id).or_default();
                *public = public.take().or(found.public);
            }
        }
        Ok(ids)
    }

    /// What would change, or was changed. A problem on any host is a failure that names the host, or leaves it out.
    async fn change(&mut self, asks: Vec<(HostId, MeshAsk)>) -> Result<Changes, Failure> {
        let mut changes = Changes::default();
        let mut problems = Vec::new();
        for (host, told) in self.ask(asks, PATIENCE).await? {
            let MeshTold::Done(MeshDone { changes: made, problem }) = told else { continue };
            if let Some(problem) = problem {
                if !self.leave_out(host.clone(), Code::Permission, problem.clone()) {
                    problems.push(format!("{host}: {problem}"));
                }
                continue;
            }
            changes.add(host, made);
        }
        if problems.is_empty() {
            return Ok(changes);
        }
        Err(Failure::new(Code::Permission, problems.join("\n")))
    }

    fn apply(&self, plan: &MeshPlan, private: Option<&PrivateKey>) -> Vec<(HostId, MeshAsk)> {
        self.each(|_| MeshAsk::Apply(Box::new(MeshApply { plan: plan.clone(), private: private.cloned() })))
    }

    /// `public`: the key that some host has already.
    async fn set_up(&mut self, id: &str, public: Option<String>, yes: bool) -> Result<(), Failure> {
        if let Some(public) = public {
            let asks = self.apply(&plan(id, &public, &self.members), None);
            if self.change(asks).await?.is_empty() {
                return to_person(&format!("mesh {id} is on every host already\n"));
            }
        }
        // A mesh that is changed gets a new key: a host that is no longer part of it is out.
        let pair = ssh::new_key_pair()?;
        let plan = plan(id, &pair.public, &self.members);
        let asks = self.apply(&plan, None);
        let changes = self.change(asks).await?;
        to_person(&changes.shown(&format!("mesh {id}: this will be written")))?;
        confirm("Write this?", yes).await?;
        let asks = self.apply(&plan, Some(&PrivateKey(pair.private)));
        self.change(asks).await?;
        to_person(&format!("mesh {id} is written on {} hosts\n", self.ids.len()))
    }

    /// Takes out what is on the hosts that can be reached. A failure names the others.
    async fn remove(&mut self, yes: bool) -> Result<ExitCode, Failure> {
        let ids = self.meshes().await?;
        for id in ids.keys() {
            let asks = self.each(|_| MeshAsk::Remove(MeshRemove { id: id.clone(), dry: true }));
            let changes = self.change(asks).await?;
            to_person(&changes.shown(&format!("mesh {id}: this will be taken out")))?;
        }
        let there = self.names();
        if ids.is_empty() && !there.is_empty() {
            let all = self.left_out.as_ref().is_none_or(BTreeMap::is_empty);
            let on = if all { "these hosts" } else { there.as_str() };
            to_person(&format!("no mesh is on {on}\n"))?;
        } else if !there.is_empty() {
            if let Some(kept) = self.left_out.as_ref().and_then(left).filter(|_| !yes) {
                note(&kept.message);
            }
            confirm(&format!("Take it out on {there}?"), yes).await?;
            for id in ids.keys() {
                let asks = self.each(|_| MeshAsk::Remove(MeshRemove { id: id.clone(), dry: false }));
                self.change(asks).await?;
                if !self.ids.is_empty() {
                    to_person(&format!("mesh {id} is taken out on {}\n", self.names()))?;
                }
            }
        }
        self.left_out.as_ref().and_then(left).map_or(Ok(ExitCode::SUCCESS), Err)
    }

    fn names(&self) -> String {
        self.ids.iter().map(HostId::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Lets each host log in to each other, all at once.
    async fn verify(&mut self) -> Result<ExitCode, Failure> {
        let others = |host: &HostId| {
            let others = self.ids.iter().filter(|other| *other != host);
            others.map(ToString::to_string).collect::<Vec<_>>()
        };
        let asks = self.each(|host| MeshAsk::Try(MeshTry { peers: others(host) }));
        let mut tried: BTreeMap<HostId, BTreeMap<String, Option<String>>> = BTreeMap::new();
        for (host, told) in self.ask(asks, LOGINS).await? {
            if let MeshTold::Tried(results) = told {
                tried.insert(host, results.results.into_iter().collect());
            }
        }
        let (text, worst) = matrix(&self.ids, &tried);
        to_person(&text)?;
        Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
    }
}

/// What changes on which hosts; hosts with the same changes together.
#[derive(Debug, Default)]
struct Changes(Vec<(Vec<HostId>, Vec<MeshChange>)>);

impl Changes {
    fn add(&mut self, host: HostId, changes: Vec<MeshChange>) {
        match self.0.iter_mut().find(|(_, same)| *same == changes) {
            Some((hosts, _)) => hosts.push(host),
            None => self.0.push((vec![host], changes)),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, changes)| changes.is_empty())
    }

    fn shown(&self, title: &str) -> String {
        let mut text = String::new();
        for (hosts, changes) in &self.0 {
            let hosts: Vec<&str> = hosts.iter().map(HostId::as_str).collect();
            let _ = writeln!(text, "{title} on {}", hosts.join(", "));
            for change in changes {
                let _ = writeln!(text, "  {}  ({})", sanitize(&change.path), sanitize(&change.what));
                for line in &change.lines {
                    let _ = writeln!(text, "  │ {}", sanitize(line));
                }
            }
            if changes.is_empty() {
                text += "  nothing\n";
            }
        }
        text
    }
}

/// Who can log in where, as a table and the reasons why not; and the exit code, if a login failed.
fn matrix(
    hosts: &[HostId],
    tried: &BTreeMap<HostId, BTreeMap<String, Option<String>>>,
) -> (String, Option<Code>) {
    let width = hosts.iter().map(|host| host.as_str().chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}", "from");
    for host in hosts {
        let _ = write!(text, "  {host:width$}");
    }
    let mut text = text.trim_end().to_owned() + "\n";
    let (mut reasons, mut worst) = (String::new(), None);
    for from in hosts {
        let mut line = format!("{from:width$}");
        for to in hosts {
            let result = tried.get(from).and_then(|results| results.get(to.as_str()));
            let mark = match result {
                _ if from == to => "–",
                Some(None) => "✔",
                _ => "✖",
            };
            let _ = write!(line, "  {mark:width$}");
            if mark == "✖" {
                let why = result.and_then(Option::as_deref).unwrap_or("no answer");
                let _ = writeln!(reasons, "{from} → {to}: {}", sanitize(why));
                let refused = why.contains("Permission denied") || why.contains("verification failed");
                let code = if refused { Code::Permission } else { Code::Unreachable };
                worst = worst.into_iter().chain([code]).max_by_key(|code| code.number());
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    (text + &reasons, worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_who_gets_where_and_why_not() {
        let hosts: Vec<HostId> = ["gpu-a", "b"].map(HostId::from).into();
        let works = BTreeMap::from([("b".to_owned(), None)]);
        let denied = Some("ml@10.0.0.1: Permission denied (publickey).\u{1b}".to_owned());
        let fails = BTreeMap::from([("gpu-a".to_owned(), denied)]);
        let tried = BTreeMap::from([(hosts[0].clone(), works.clone()), (hosts[1].clone(), fails)]);
        let (text, worst) = matrix(&hosts, &tried);
        insta::assert_snapshot!(text, @r"
        from   gpu-a  b
        gpu-a  –      ✔
        b      ✖      –
        b → gpu-a: ml@10.0.0.1: Permission denied (publickey).␛
        ");
        assert_eq!(worst, Some(Code::Permission));
        let (_, worst) = matrix(&hosts, &BTreeMap::from([(hosts[0].clone(), works)]));
        assert_eq!(worst, Some(Code::Unreachable), "a host that told nothing");
    }

    fn some(names: &[&str], left_out: Option<LeftOut>) -> Hosts {
        let ids = names.iter().map(|name| HostId::from(*name)).collect();
        Hosts { cluster: Cluster::connect(Vec::new()), ids, members: Vec::new(), left_out }
    }

    #[test]
    fn what_a_host_keeps_is_named_with_the_command_for_later() {
        assert!(left(&LeftOut::new()).is_none());
        let down = (HostId::from("n2"), (Code::Unreachable, "n2: connection refused".to_owned()));
        let link = (HostId::from("n4"), (Code::Permission, "~/.ssh/config is a symbolic link".to_owned()));
        let failure = left(&LeftOut::from([down, link])).unwrap();
        assert_eq!(failure.code, Code::Permission);
        insta::assert_snapshot!(failure.message, @r"
        n2: connection refused
        n4: ~/.ssh/config is a symbolic link
        not taken out on n2, n4; once that can be done: hvtui hosts mesh --remove n2 n4
        ");
    }

    #[tokio::test]
    async fn a_removal_goes_on_without_a_host_and_a_mesh_does_not() {
        let mut all = some(&["a", "b"], None);
        assert!(!all.leave_out("b".into(), Code::Unreachable, "down".into()));
        assert_eq!(all.names(), "a, b");
        let mut those = some(&["a", "b"], Some(LeftOut::new()));
        assert!(those.leave_out("b".into(), Code::Unreachable, "down".into()));
        assert_eq!(those.names(), "a");
        assert_eq!(those.left_out.unwrap().len(), 1);
    }

    #[test]
    fn hosts_with_the_same_changes_are_told_once() {
        let change = |path: &str| MeshChange {
            path: path.to_owned(),
            what: "new, 0600".to_owned(),
            lines: vec!["Host *\u{1b}".to_owned()],
        };
        let mut changes = Changes::default();
        changes.add("a".into(), vec![change("~/.ssh/config")]);
        changes.add("b".into(), vec![]);
        changes.add("c".into(), vec![change("~/.ssh/config")]);
        assert!(!changes.is_empty());
        insta::assert_snapshot!(changes.shown("will be"), @r"
        will be on a, c
          ~/.ssh/config  (new, 0600)
          │ Host *␛
        will be on b
          nothing
        ");
    }
}
