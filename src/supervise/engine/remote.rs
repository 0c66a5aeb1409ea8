//! The launcher's side of the other hosts: the nodes' connections, and the `rsh-agent`s that want something done there.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::unix::OwnedWriteHalf as AgentWriter;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::channel::{self, Hearer, Key, Speaker};
use super::frame::Frame;
use super::rsh::{ERR, EXIT, OUT};
use super::seat::{listen, same_user};
use super::tagged::RemoteChunk;
use super::{AGENTS, EngineEnd, RUN_SECRET};
use crate::domain::engine::NODE_PORT;
use crate::domain::log::Stream;
use crate::domain::text::os_text;
use crate::supervise::rundir::RunDir;

/// How long the nodes may take: their hosts start at the same time.
const NODES: Duration = Duration::from_secs(30);
/// How long one connection may take to prove itself.
const PROOF: Duration = Duration::from_secs(10);
/// The most bytes of an agent's request.
const REQUEST: u64 = 1 << 20;
/// How many messages wait for a node's writer at most.
const QUEUE: usize = 64;
/// How long a node may take nothing before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of what a rank says in one message.
const PIECE: usize = 64 * 1024;
/// What ssh gives when the connection fails.
const FAILED: i32 = 255;

enum Event {
    /// An agent wants a command executed.
    Asked { host: String, command: Vec<u8>, agent: AgentWriter, gone: Receiver<()> },
    /// An agent has gone before its command has ended.
    AgentGone(u32),
    /// A node has said this; `None` at the end of its connection.
    Node(String, Option<Frame>),
}

/// The other hosts of a launcher.
pub(super) struct Remote {
    /// What is to be said to each node; its writer says it. A node that takes nothing any more is lost.
    nodes: std::sync::Mutex<BTreeMap<String, Sender<Frame>>>,
    events: Sender<Event>,
    next: Mutex<Receiver<Event>>,
}

impl Remote {
    /// Waits until every node has connected; else why there is no use in starting the launcher.
    pub(super) async fn meet(dir: &RunDir, names: &[String]) -> Result<Self, String> {
        let key = Key::new(&std::env::var(RUN_SECRET).map_err(|_| format!("{RUN_SECRET} is not set"))?);
        let at = address()?;
        let listener = TcpListener::bind(at).await.map_err(|e| format!("listen on {at}: {}", os_text(&e)))?;
        let agents = listen(dir, AGENTS).map_err(|e| format!("listen for the launcher: {}", os_text(&e)))?;
        let (found, mut proven) = mpsc::channel(16);
        let door = tokio::spawn(admit(listener, key, found));
        let mut nodes: BTreeMap<String, (Hearer<OwnedReadHalf>, Speaker<OwnedWriteHalf>)> = BTreeMap::new();
        let all = async {
            while nodes.len() < names.len() {
                let Some((name, hearer, speaker)) = proven.recv().await else { return };
                // A second one of the same name is none that was started for this run.
                if names.contains(&name) && !nodes.contains_key(&name) {
                    nodes.insert(name, (hearer, speaker));
                }
            }
        };
        let _ = tokio::time::timeout(NODES, all).await;
        door.abort();
        let missing: Vec<&str> =
            names.iter().filter(|name| !nodes.contains_key(*name)).map(String::as_str).collect();
        if !missing.is_empty() {
            let (missing, wait) = (missing.join(", "), NODES.as_secs());
            return Err(format!(
                "no connection from {missing} to {at} within {wait} s: is a firewall between the hosts?"
            ));
        }
        let (events, next) = mpsc::channel(64);
        let mut writers = BTreeMap::new();
        for (name, (hearer, speaker)) in nodes {
            let (frames, queue) = mpsc::channel(QUEUE);
            writers.insert(name.clone(), frames);
            tokio::spawn(write(speaker, queue));
            tokio::spawn(attend(name, hearer, events.clone()));
        }
        tokio::spawn(hear_agents(agents, events.clone()));
        Ok(Self { nodes: std::sync::Mutex::new(writers), events, next: Mutex::new(next) })
    }

    /// Serves the agents, until nothing more can come.
    pub(super) async fn serve(&self) {
        let mut next = self.next.lock().await;
        let mut agents: HashMap<u32, (String, AgentWriter)> = HashMap::new();
        let mut count = 0;
        while let Some(event) = next.recv().await {
            match event {
                Event::Asked { host, command, mut agent, mut gone } => {
                    count += 1;
                    let id = count;
                    if let Err(why) = self.say(&host, Frame::Run { id, command }).await {
                        refuse(&mut agent, &why).await;
                        continue;
                    }
                    agents.insert(id, (host, agent));
                    let events = self.events.clone();
                    tokio::spawn(async move {
                        gone.recv().await;
                        let _ = events.send(Event::AgentGone(id)).await;
                    });
                }
                Event::AgentGone(id) => {
                    if let Some((host, _)) = agents.remove(&id) {
                        let _ = self.say(&host, Frame::Gone { id }).await;
                    }
                }
                Event::Node(host, Some(Frame::Output { id, err, bytes })) => {
                    if let Some((_, agent)) = agents.get_mut(&id).filter(|(of, _)| *of == host) {
                        answer(agent, if err { ERR } else { OUT }, &bytes).await;
                    }
                }
                Event::Node(host, Some(Frame::Exit { id, code })) => {
                    if agents.get(&id).is_some_and(|(of, _)| *of == host)
                        && let Some((_, mut agent)) = agents.remove(&id)
                    {
                        answer(&mut agent, EXIT, &code.to_le_bytes()).await;
                    }
                }
                // Orders come from here alone.
                Event::Node(_, Some(_)) => {}
                Event::Node(host, None) => {
                    self.forget(&host);
                    let lost: Vec<u32> =
                        agents.iter().filter(|(_, (of, _))| *of == host).map(|(id, _)| *id).collect();
                    for id in lost {
                        if let Some((_, mut agent)) = agents.remove(&id) {
                            refuse(&mut agent, &format!("the connection to {host} is lost")).await;
                        }
                    }
                }
            }
        }
    }

    /// Gives a node's writer something to say; waits while it has too much, but not for ever.
    async fn say(&self, host: &str, frame: Frame) -> Result<(), String> {
        let (writer, known) = {
            let nodes = self.nodes();
            (nodes.get(host).cloned(), nodes.keys().cloned().collect::<Vec<_>>())
        };
        let Some(writer) = writer else {
            return Err(format!("{host} is no host of this run: they are {}", known.join(", ")));
        };
        let said = writer.send_timeout(frame, PATIENCE).await;
        said.map_err(|_| {
            self.forget(host);
            format!("the connection to {host} is lost")
        })
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Sender<Frame>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, host: &str) {
        self.nodes().remove(host);
    }

    /// Hands on what a rank on another host has said. It is lost where the node is: the launcher goes on.
    pub(super) async fn hand_on(&self, chunk: RemoteChunk) {
        let RemoteChunk { node, rank, stream, bytes } = chunk;
        for part in bytes.chunks(PIECE) {
            let frame = Frame::Line { rank: rank.0, err: stream == Stream::Stderr, bytes: part.to_vec() };
            let _ = self.say(&node, frame).await;
        }
    }

    /// Tells every node how the launcher has ended, and its last words.
    pub(super) async fn end(&self, end: &EngineEnd, tail: &str) {
        let (words, tail) = (end.words.clone(), tail.to_owned());
        let frame = Frame::Ended { died: end.died, code: end.code, words, tail };
        let mut due: Vec<String> = self.nodes().keys().cloned().collect();
        for node in &due {
            let _ = self.say(node, frame.clone()).await;
        }
        // A node closes when it has taken all. What it still says is heard and dropped: closed over unread words, the
        // connection would be reset, and this lost.
        let all_closed = async {
            let mut next = self.next.lock().await;
            while !due.is_empty() {
                match next.recv().await {
                    Some(Event::Node(name, None)) => due.retain(|node| *node != name),
                    Some(_) => {}
                    None => return,
                }
            }
        };
        let _ = tokio::time::timeout(PATIENCE, all_closed).await;
    }
}

/// Where the nodes find the launcher: at the host's address of the run.
fn address() -> Result<SocketAddr, String> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set for the launcher"));
    let (address, port) =
        (variable("HVTUI_BIND").or_else(|_| variable("MASTER_ADDR"))?, variable(NODE_PORT)?);
    let address: IpAddr = address.parse().map_err(|_| format!("HVTUI_BIND={address} is no IP address"))?;
    let port = port.parse().map_err(|_| format!("{NODE_PORT}={port} is no port"))?;
    Ok(SocketAddr::new(address, port))
}

type Proven = (String, Hearer<OwnedReadHalf>, Speaker<OwnedWriteHalf>);

/// Lets in who proves the run's secret.
async fn admit(listener: TcpListener, key: Key, found: Sender<Proven>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (key, found) = (key.clone(), found.clone());
        tokio::spawn(async move {
            if let Ok(Ok(proven)) = tokio::time::timeout(PROOF, prove(stream, &key)).await {
                let _ = found.send(proven).await;
            }
        });
    }
}

async fn prove(stream: TcpStream, key: &Key) -> std::io::Result<Proven> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    let (reader, writer) = stream.into_split();
    channel::accept(reader, writer, key).await
}

/// Says to a node what is queued for it, until the connection ends.
async fn write(mut speaker: Speaker<OwnedWriteHalf>, mut queue: Receiver<Frame>) {
    while let Some(frame) = queue.recv().await {
        if speaker.say(&frame.encode()).await.is_err() {
            return;
        }
    }
}

async fn attend(name: String, mut hearer: Hearer<OwnedReadHalf>, events: Sender<Event>) {
    loop {
        let frame = hearer.hear().await.ok().flatten().and_then(|body| Frame::decode(&body));
        let last = frame.is_none();
        if events.send(Event::Node(name.clone(), frame)).await.is_err() || last {
            return;
        }
    }
}

async fn hear_agents(listener: UnixListener, events: Sender<Event>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if same_user(&stream) {
            tokio::spawn(hear_agent(stream, events.clone()));
        }
    }
}

/// Takes an agent's request, and waits for its end.
async fn hear_agent(stream: UnixStream, events: Sender<Event>) {
    let (mut reader, agent) = stream.into_split();
    let Ok(length @ 0..REQUEST) = reader.read_u64_le().await else { return };
    let mut request = vec![0; length as usize];
    if reader.read_exact(&mut request).await.is_err() {
        return;
    }
    let Some(at) = request.iter().position(|byte| *byte == 0) else { return };
    let command = request.split_off(at + 1);
    request.pop();
    let Ok(host) = String::from_utf8(request) else { return };
    // Dropped at the agent's end.
    let (alive, gone) = mpsc::channel(1);
    if events.send(Event::Asked { host, command, agent, gone }).await.is_ok() {
        let _ = reader.read_u8().await;
    }
    drop(alive);
}

async fn answer(agent: &mut AgentWriter, kind: u8, bytes: &[u8]) {
    let length = bytes.len() as u32;
    // An agent that is gone needs no answer.
    let _ = agent.write_all(&[&[kind], &length.to_le_bytes()[..], bytes].concat()).await;
}

async fn refuse(agent: &mut AgentWriter, why: &str) {
    answer(agent, ERR, format!("hvtui: {why}\n").as_bytes()).await;
    answer(agent, EXIT, &FAILED.to_le_bytes()).await;
}
