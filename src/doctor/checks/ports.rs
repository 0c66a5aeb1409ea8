//! Whether the ports that launchers take unless they are told another are free, or those of a launch, who has them, and where runs
//! listen.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, door};
use crate::domain::doctor::{RunPort, Verdict};
use crate::domain::ids::RunId;
use crate::domain::needs::MOST_PORTS;
use crate::procs::listening::{self, Listening, holder, sockets};
use crate::procs::memory;
use crate::procs::status::user_name;

pub(in crate::doctor) struct Ports;

/// Each with whose it is.
const WANTED: [(u16, &str); 4] = [
    (29_500, "torch's MASTER_PORT"),
    (29_400, "torchrun's rendezvous"),
    (12_355, "torch's tutorials"),
    (2222, "TensorFlow's tutorials"),
];
/// Characters of a command line.
const COMMAND: usize = 80;
/// Ports of runs that are told, and of each run those that are shown.
const OF_RUNS: usize = 200;
const SHOWN: usize = 4;

/// A port that something listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Held {
    port: u16,
    user: String,
    /// Its process: only that of a user of one's own can be told.
    command: Option<String>,
    /// That process.
    #[serde(default)]
    pid: Option<u32>,
    /// Whether any machine that reaches this one can connect to it.
    from_everywhere: bool,
}

/// A port that a run of one's own listens on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::doctor) struct OfRun {
    run: RunId,
    port: u16,
    /// By which of this machine's addresses it is reached; `::` and `0.0.0.0` for all.
    address: IpAddr,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    held: Vec<Held>,
    of_runs: Vec<OfRun>,
    /// The ports that a launch takes here: of one, those alone are looked at.
    #[serde(default)]
    planned: Option<Vec<RunPort>>,
    /// That of its ssh, which is meant to be taken.
    #[serde(default)]
    ssh: Option<u16>,
    /// A port to take in the place of one that is held.
    #[serde(default)]
    free: Option<u16>,
}

impl Check for Ports {
    const NAME: &'static str = "ports";
    const ASKS: &'static str =
        "are the ports free that torchrun and TensorFlow take unless told another, and where do runs listen";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let all = listening::all();
        let mut listening: BTreeMap<u16, &Listening> = BTreeMap::new();
        for one in &all {
            listening.entry(one.port).or_insert(one);
        }
        let mut found = Vec::new();
        let planned = site.for_launch.then(|| site.ports.clone());
        let ssh = door::ssh_port();
        let wanted: Vec<u16> = match &planned {
            Some(planned) => planned.iter().map(|one| one.port).collect(),
            None => wanted(ssh).collect(),
        };
        for port in wanted.iter().copied() {
            if let Some(one) = listening.get(&port) {
                let (user, holder) = (user_name(one.uid), holder(one.inode));
                let (pid, command) = (holder, holder.and_then(|pid| memory::command_words(pid, COMMAND)));
                found.push(Held { port, user, command, pid, from_everywhere: one.address.is_unspecified() });
            }
        }
        // what torchrun takes, else what the launch takes
        let next = if planned.is_some() { found.first().map(|held| held.port) } else { Some(WANTED[0].0) };
        let is_free = |port: &u16| !listening.contains_key(port) && !wanted.contains(port);
        let free = next.and_then(|next| (next..=u16::MAX).find(is_free));
        Ok(Found { held: found, of_runs: of_runs(site, &all), planned, ssh, free })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found, &one.info.user)).collect()
    }
}

/// Those that are looked at without a launch: not that of ssh.
fn wanted(ssh: Option<u16>) -> impl Iterator<Item = u16> {
    WANTED.iter().map(|(port, _)| *port).filter(move |port| Some(*port) != ssh)
}

/// Those that processes of runs have.
fn of_runs(site: &Site, listening: &[Listening]) -> Vec<OfRun> {
    let mut found = Vec::new();
    for (process, run) in site.of_runs() {
        for inode in sockets(process.pid) {
            if let Some(one) = listening.iter().find(|one| one.inode == inode) {
                found.push(OfRun { run: run.id.clone(), port: one.port, address: one.address });
            }
        }
    }
    // a socket that a process has left to its children
    found.sort();
    found.dedup();
    found.truncate(OF_RUNS);
    found
}

/// Where runs listen, in words.
fn listen(of_runs: &[OfRun]) -> Vec<String> {
    let same = |a: &OfRun, b: &OfRun| a.run == b.run;
    let one_run = |ports: &[OfRun]| {
        let place = |one: &OfRun| {
            if one.address.is_unspecified() {
                return format!("{} for every machine", one.port);
            }
            SocketAddr::new(one.address, one.port).to_string()
        };
        let mut places: Vec<String> = ports.iter().take(SHOWN).map(place).collect();
        places.extend((ports.len() > SHOWN).then(|| format!("{} more", ports.len() - SHOWN)));
        Some(format!("run {} listens on {}", ports.first()?.run.short(), places.join(", ")))
    };
    of_runs.chunk_by(same).filter_map(one_run).collect()
}

/// Whether who ends it may lock everybody out of the host.
fn is_of_system(held: &Held) -> bool {
    let services = ["sshd", "dropbear", "systemd", "dockerd", "docker-proxy", "containerd"];
    held.pid == Some(1)
        || program(held) == "init"
        || services.iter().any(|service| program(held).starts_with(service))
}

/// Whether it is what a person starts for a training and may end again; of other programs it is not known who rests on them.
fn is_of_training(held: &Held) -> bool {
    ["python", "torchrun", "horovodrun", "mpirun"].iter().any(|name| program(held).starts_with(name))
}

fn program(held: &Held) -> &str {
    let program = held.command.as_deref().and_then(|command| command.split_whitespace().next());
    program.map_or("", |program| program.rsplit('/').next().unwrap_or_default())
}

/// What frees a port, for the user that is logged in.
fn freed(held: &Held, of_runs: &[OfRun], own: &str) -> String {
    let Held { port, user, pid, .. } = held;
    if let Some(of_run) = of_runs.iter().find(|one| one.port == *port) {
        return format!("hvtui stop {} ends the run that has {port}", of_run.run.short());
    }
    match pid {
        Some(_) if is_of_system(held) => format!("{port} belongs to a service of the host: leave that alone"),
        Some(pid) if user == own => format!("kill {pid} there ends what has {port}"),
        Some(pid) => format!("{port} is held by process {pid} of {user}: ask {user} to end it"),
        None if user == own => format!("ss -ltnp 'sport = :{port}' there shows what has {port}"),
        None => format!(
            "{port} is held by a process of {user}: ask {user} (sudo ss -ltnp 'sport = :{port}' shows it)"
        ),
    }
}

/// A port that is taken, in words.
fn taken(held: &Held, whose: &str) -> String {
    let Held { port, user, .. } = held;
    let command = held.command.as_ref().map_or_else(String::new, |command| format!(" ({command})"));
    let from = if held.from_everywhere { ", for every machine" } else { "" };
    format!("{port} ({whose}) is taken by {user}{command}{from}")
}

/// The command that ends what has these ports: processes of one's own that are none of a run, which has its own way to end.
fn ended(found: &Found, own: &str) -> Option<String> {
    let pids: Vec<String> = found
        .held
        .iter()
        .filter(|one| one.user == own && is_of_training(one))
        .filter(|one| found.of_runs.iter().all(|run| run.port != one.port))
        .filter_map(|one| one.pid.map(|pid| pid.to_string()))
        .collect();
    (!pids.is_empty()).then(|| format!("kill {}", pids.join(" ")))
}

/// Of the ports that a launch takes here.
fn judge_planned(found: &Found, planned: &[RunPort], own: &str) -> Verdict {
    let whose = |port: u16| planned.iter().find(|one| one.port == port).map(|one| one.whose.as_str());
    let held: Vec<(&Held, &str)> =
        found.held.iter().filter_map(|one| Some((one, whose(one.port)?))).take(MOST_PORTS).collect();
    if held.is_empty() {
        let ports: Vec<String> = planned.iter().map(|one| format!("{} ({})", one.port, one.whose)).collect();
        return Verdict::good(if ports.is_empty() {
            "the run names no port of this host".to_owned()
        } else {
            format!("free: {}", ports.join(", "))
        });
    }
    let words: Vec<String> = held.iter().map(|(one, whose)| taken(one, whose)).collect();
    let freed: Vec<String> = held.iter().map(|(one, _)| freed(one, &found.of_runs, own)).collect();
    let free = found.free.map_or_else(String::new, |port| format!(": {port} is free"));
    let verdict = Verdict::bad(
        words.join("; "),
        "the rank that takes it ends with \"Address already in use\", or joins another run",
        format!("{}; or give the run another port{free}", freed.join("; ")),
    );
    match ended(found, own) {
        Some(command) => verdict.fixed_there(command),
        None => verdict,
    }
}

fn judge(found: &Found, own: &str) -> Verdict {
    if let Some(planned) = &found.planned {
        return judge_planned(found, planned, own);
    }
    let whose = |port: u16| WANTED.iter().find(|(one, _)| *one == port).map_or("", |(_, whose)| whose);
    let mut words: Vec<String> =
        found.held.iter().take(WANTED.len()).map(|one| taken(one, whose(one.port))).collect();
    let is_free = words.is_empty();
    if is_free {
        let ports: Vec<String> = wanted(found.ssh).map(|port| port.to_string()).collect();
        words.push(format!("{} are free", ports.join(", ")));
    }
    // runs come and go
    let lasting = words.join("; ");
    words.extend(listen(&found.of_runs));
    if is_free {
        return Verdict::good(words.join("; ")).lasting(lasting);
    }
    let freed: Vec<String> =
        found.held.iter().take(WANTED.len()).map(|one| freed(one, &found.of_runs, own)).collect();
    let verdict = Verdict::look(
        words.join("; "),
        "a job that is started by itself ends with \"Address already in use\", or joins another one; the runs of hvtui find free ports",
        format!(
            "{}; or give another port: torchrun --master-port {}",
            freed.join("; "),
            found.free.unwrap_or(29_501)
        ),
    )
    .lasting(lasting);
    match ended(found, own) {
        Some(command) => verdict.fixed_there(command),
        None => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn who_has_a_port_is_found_and_told() {
        assert_eq!(judge(&Found::default(), "li").mark, Mark::Good);
        let held = Held {
            port: 29_500,
            user: "li".into(),
            command: Some("python3 a.py".into()),
            pid: Some(4711),
            from_everywhere: true,
        };
        let found = Found { held: vec![held.clone()], ..Found::default() };
        let verdict = judge(&found, "li");
        let remedy = verdict.remedy.clone().unwrap();
        assert_eq!(
            remedy,
            "kill 4711 there ends what has 29500; or give another port: torchrun --master-port 29501"
        );
        assert_eq!(verdict.help().as_deref(), Some("kill 4711"));
        let free = judge(&Found { free: Some(29_503), ..found.clone() }, "li").remedy.unwrap();
        assert!(free.ends_with("; or give another port: torchrun --master-port 29503"), "{free}");
        assert_eq!(judge(&found, "wu").fix, None, "another user's is not ended");
        let other = judge(&found, "wu").remedy.unwrap();
        assert!(other.starts_with("29500 is held by process 4711 of li: ask li to end it"), "{other}");
        for (pid, command) in [
            (700, "sshd: /usr/sbin/sshd -D [listener]"),
            (1, "/sbin/init"),
            (9, "/usr/bin/docker-proxy -proto tcp"),
        ] {
            let service = Held { pid: Some(pid), command: Some(command.to_owned()), ..held.clone() };
            let remedy = freed(&service, &[], "li");
            assert_eq!(remedy, "29500 belongs to a service of the host: leave that alone", "{command}");
            assert_eq!(judge(&Found { held: vec![service], ..Found::default() }, "li").fix, None);
        }
        let unseen = Found { held: vec![Held { pid: None, ..held.clone() }], ..Found::default() };
        assert!(judge(&unseen, "wu").remedy.unwrap().contains("sudo ss -ltnp 'sport = :29500'"));
        let run = RunId::new(7, 7);
        let of_runs = vec![OfRun { run: run.clone(), port: 29_500, address: "::".parse().unwrap() }];
        let of_run = judge(&Found { held: vec![held], of_runs, ..Found::default() }, "li");
        assert_eq!(of_run.fix, None);
        let of_run = of_run.remedy.unwrap();
        assert!(of_run.starts_with(&format!("hvtui stop {} ends", run.short())), "{of_run}");
        let words = "29500 (torch's MASTER_PORT) is taken by li (python3 a.py), for every machine";
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Look, words));
    }

    #[test]
    fn the_port_of_ssh_is_not_missed() {
        assert_eq!(wanted(None).collect::<Vec<_>>(), [29_500, 29_400, 12_355, 2222]);
        assert_eq!(wanted(Some(2222)).collect::<Vec<_>>(), [29_500, 29_400, 12_355]);
        let of = |ssh| judge(&Found { ssh, ..Found::default() }, "li").evidence;
        assert_eq!(of(Some(2222)), "29500, 29400, 12355 are free");
        assert_eq!(of(Some(22)), "29500, 29400, 12355, 2222 are free");
    }

    #[test]
    fn of_a_launch_its_own_ports_count_alone() {
        let planned = vec![RunPort { port: 2300, whose: "--master-port".to_owned() }];
        let of = |held: Vec<Held>, planned: &[RunPort]| {
            judge(&Found { held, planned: Some(planned.to_vec()), ..Found::default() }, "li")
        };
        let held = |port, user: &str| Held {
            port,
            user: user.to_owned(),
            command: Some("python3 t.py".to_owned()),
            pid: Some(7),
            from_everywhere: false,
        };
        let free = of(Vec::new(), &planned);
        assert_eq!((free.mark, free.evidence.as_str()), (Mark::Good, "free: 2300 (--master-port)"));
        let own = of(vec![held(2300, "li")], &planned);
        let words = "2300 (--master-port) is taken by li (python3 t.py)";
        assert_eq!((own.stops_launch(), own.evidence.as_str()), (true, words));
        assert_eq!(own.help().as_deref(), Some("kill 7"));
        assert!(own.remedy.unwrap().ends_with("; or give the run another port"), "of an older agent");
        let found =
            Found { held: vec![held(2300, "li")], planned: Some(planned.clone()), ..Found::default() };
        let remedy = judge(&Found { free: Some(2301), ..found }, "li").remedy.unwrap();
        assert!(remedy.ends_with("; or give the run another port: 2301 is free"), "{remedy}");
        assert_eq!(of(vec![held(2300, "wu")], &planned).fix, None);
        assert_eq!(of(vec![held(29_500, "li")], &planned).mark, Mark::Good, "of an older agent");
        assert_eq!(of(Vec::new(), &[]).mark, Mark::Good);
    }

    #[test]
    fn where_runs_listen_is_told_with_who_can_reach_it() {
        let run = RunId::new(7, 7);
        let at = |address: &str, port| OfRun { run: run.clone(), port, address: address.parse().unwrap() };
        let of_runs = vec![at("10.0.0.1", 4100), at("::", 41_234)];
        let verdict = judge(&Found { of_runs, ..Found::default() }, "li");
        let words = format!("; run {} listens on 10.0.0.1:4100, 41234 for every machine", run.short());
        assert!(verdict.mark == Mark::Good && verdict.evidence.ends_with(&words), "{verdict:?}");
    }
}
