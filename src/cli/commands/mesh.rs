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

/// Sets up or takes out; exits with 69 or 77 where a login does not work.
pub fn run(asked: &Asked<'_>, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let hosts = choose(asked, file)?;
    runtime::block_on(async {
        let begun = Hosts::begin(&hosts, paths).await;
        let (mut hosts, ids) =
            begun.map_err(|failure| if asked.remove { stays(&failure) } else { failure })?;
        if asked.remove {
            return hosts.remove(&ids, asked.yes).await;
        }
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

/// A host that is not reached keeps all others back: what that means for a removal, and what helps.
fn stays(failure: &Failure) -> Failure {
    let remedy = "nothing is taken out on any host: name those that are up, hvtui hosts mesh --remove HOST..";
    Failure::new(failure.code, format!("{}\n{remedy}", failure.message))
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
}

impl Hosts {
    /// Connects to all of them, and learns which meshes there are, each with its public key where a host has it.
    async fn begin(
        hosts: &[HostConfig],
        paths: &Paths,
    ) -> Result<(Self, BTreeMap<String, Option<String>>), Failure> {
        let mut this = Self::connect(hosts, paths).await?;
        let ids = this.meshes().await?;
        Ok((this, ids))
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
        let mut this = Self { cluster: Cluster::connect(entries), ids, members: Vec::new() };
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

    /// Waits for one thing of each host. A host whose link fails ends the wait: half a mesh is none.
    async fn collect<T>(
        &mut self,
        mut due: BTreeSet<HostId>,
        patience: Duration,
        mut take: impl FnMut(Incoming) -> Option<T>,
    ) -> Result<BTreeMap<HostId, T>, Failure> {
        let mut got = BTreeMap::new();
        let work = async {
            while !due.is_empty() {
                let Some(item) = self.cluster.next().await else { break };
                if let Incoming::Event(_, Event::LinkChanged { state }) = &item.incoming
                    && let Some((code, reason)) = fault(state)
                {
                    return Err(Failure::new(code, about(&item.host, &reason)));
                }
                if let Some(thing) = take(item.incoming)
                    && due.remove(&item.host)
                {
                    got.insert(item.host, thing);
                }
            }
            Ok(())
        };
        if let Ok(done) = time::timeout(patience, work).await {
            return done.map(|()| got);
        }
        let silent: Vec<&str> = due.iter().map(HostId::as_str).collect();
        let text = format!("no answer within {} s of {}", patience.as_secs(), silent.join(", "));
        Err(Failure::new(Code::Unreachable, text))
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
                return Err(Failure::new(Code::Permission, format!("{host}: {problem}")));
            }
            for found in seen.meshes {
                let public = ids.entry(found.id).or_default();
                *public = public.take().or(found.public);
            }
        }
        Ok(ids)
    }

    /// What would change, or was changed. A problem on any host is a failure that names the host.
    async fn change(&mut self, asks: Vec<(HostId, MeshAsk)>) -> Result<Changes, Failure> {
        let mut changes = Changes::default();
        let mut problems = Vec::new();
        for (host, told) in self.ask(asks, PATIENCE).await? {
            let MeshTold::Done(MeshDone { changes: made, problem }) = told else { continue };
            problems.extend(problem.map(|problem| format!("{host}: {problem}")));
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

    async fn remove(
        &mut self,
        ids: &BTreeMap<String, Option<String>>,
        yes: bool,
    ) -> Result<ExitCode, Failure> {
        if ids.is_empty() {
            to_person("no mesh is on these hosts\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        for id in ids.keys() {
            let asks = |dry| move |_: &HostId| MeshAsk::Remove(MeshRemove { id: id.clone(), dry });
            let changes = self.change(self.each(asks(true))).await?;
            to_person(&changes.shown(&format!("mesh {id}: this will be taken out")))?;
        }
        confirm("Take it out?", yes).await?;
        for id in ids.keys() {
            let asks = self.each(|_| MeshAsk::Remove(MeshRemove { id: id.clone(), dry: false }));
            self.change(asks).await?;
            to_person(&format!("mesh {id} is taken out\n"))?;
        }
        Ok(ExitCode::SUCCESS)
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

    #[test]
    fn a_removal_that_a_host_keeps_back_says_how_to_leave_that_out() {
        let failure = stays(&Failure::new(Code::Unreachable, "n2: connection refused"));
        assert_eq!(failure.code, Code::Unreachable);
        let (reason, remedy) = failure.message.split_once('\n').unwrap();
        assert_eq!(reason, "n2: connection refused");
        assert!(remedy.starts_with("nothing is taken out on any host"), "{remedy}");
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
