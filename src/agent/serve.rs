//! One client's connection: reads what it asks, answers pings at once, passes the rest on.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::deletion;
use super::doctor;
use super::door::Doors;
use super::mesh;
use super::outgoing::{Outgoing, lanes};
use super::owners::Owners;
use super::runs::{Request, Runs};
use super::sampling::Sampling;
use super::signal;
use super::upload::Uploads;
use super::{AgentConfig, AgentError, TelemetryStart};
use crate::clock;
use crate::wire::frame::Decoder;
use crate::wire::handshake::Hello;
use crate::wire::message::{FromAgent, ToAgent};

/// Requests about runs that may wait.
const REQUEST_ROOM: usize = 64;
/// A client pings once a second. One that says nothing for so long is gone, though its connection may not know it:
/// a laptop that was closed, a network that swallows everything.
const SILENCE: Duration = Duration::from_secs(30);

/// Serves a client until it leaves, which is no error. Runs go on without the agent; dropping the future
/// is the same as the client leaving.
pub async fn serve(
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    config: AgentConfig,
    telemetry: TelemetryStart,
) -> Result<(), AgentError> {
    let (out, queue) = lanes();
    let ours = Hello::ours(config.build.clone());
    let owners = Owners::new(config.state_dir.clone());
    let sampling = Sampling::start(telemetry, owners, out.clone())?;
    let (requests, asked) = mpsc::channel(REQUEST_ROOM);
    let uploads = Uploads::new(config.clone(), out.clone());
    deletion::sweep_aside(&config);
    let state = config.state_dir.clone();
    let runs = Runs::new(config, out.clone());
    let doors = Doors::default();
    let session = Session { ours, greeted: false, out, sampling, requests, uploads, state, doors };
    tokio::select! {
        read = session.read(reader, SILENCE) => read,
        written = queue.write_to(writer) => written,
        // Ends only after its requests do, with the session.
        () = runs.serve(asked) => Ok(()),
    }
}

/// The reading side.
struct Session {
    ours: Hello,
    greeted: bool,
    out: Outgoing,
    sampling: Sampling,
    requests: mpsc::Sender<Request>,
    uploads: Uploads,
    state: PathBuf,
    doors: Doors,
}

impl Session {
    /// Until the client leaves, or is silent for `limit`.
    async fn read(mut self, mut reader: impl AsyncRead + Unpin, limit: Duration) -> Result<(), AgentError> {
        // Told before anything is asked: a client that speaks another protocol learns that from it.
        self.out.control(FromAgent::Hello(self.ours.clone())).await;
        let mut decoder = Decoder::default();
        loop {
            let read = timeout(limit, reader.read_buf(decoder.room()));
            let read = read.await.map_err(|_| AgentError::Silent(limit))??;
            let now = clock::host_now();
            if read == 0 {
                return Ok(());
            }
            while let Some(frame) = decoder.next_frame()? {
                match ToAgent::decode(&frame)? {
                    Some(ToAgent::Ping(ping)) if self.greeted => self.out.pong(ping.t0, now),
                    Some(message) => self.take(message).await?,
                    None => {}
                }
            }
        }
    }

    async fn take(&mut self, message: ToAgent) -> Result<(), AgentError> {
        let request = match message {
            ToAgent::Hello(theirs) => {
                self.ours.agree(&theirs)?;
                self.greeted = true;
                return Ok(());
            }
            _ if !self.greeted => return Err(AgentError::NoHello),
            ToAgent::Watch(watch) => {
                self.sampling.watch(watch);
                return Ok(());
            }
            ToAgent::Credit(credit) => {
                self.out.credit(credit.until);
                return Ok(());
            }
            // Answered where it is read.
            ToAgent::Ping(_) => return Ok(()),
            ToAgent::Prepare(spec) => Request::Prepare(spec),
            ToAgent::Commit(commit) => Request::Commit(commit),
            ToAgent::Abort(about) => Request::Abort(about),
            ToAgent::Follow(follow) => Request::Follow(follow),
            ToAgent::Stop(stop) => Request::Stop(stop),
            ToAgent::ListRuns(asked) => Request::List(asked),
            ToAgent::Mesh(ask) => {
                // Beside the rest: a login to a host that is down takes its time.
                let out = self.out.clone();
                let home = std::env::home_dir().unwrap_or_else(|| "/".into());
                tokio::spawn(
                    async move { out.control(FromAgent::Mesh(mesh::answer(ask, home).await)).await },
                );
                return Ok(());
            }
            ToAgent::Sync(ask) => {
                self.uploads.sync(ask);
                return Ok(());
            }
            ToAgent::Image(ask) => {
                self.uploads.image(ask);
                return Ok(());
            }
            ToAgent::BlobPiece(piece) => {
                self.uploads.piece(piece);
                return Ok(());
            }
            ToAgent::Signal(ask) => {
                // beside the rest: a host may have many processes to look through
                let out = self.out.clone();
                tokio::task::spawn_blocking(move || signal::answer(&ask, &out));
                return Ok(());
            }
            ToAgent::AskChecks(ask) => {
                doctor::answer(ask, (self.state.clone(), self.sampling.info()), &self.doors, &self.out);
                return Ok(());
            }
            ToAgent::Queue(queue) => Request::Queue(queue),
            ToAgent::Trace(trace) => Request::Trace(trace),
            ToAgent::AskStacks(ask) => Request::Stacks(ask),
            ToAgent::Forget(about) => Request::Forget(about),
            ToAgent::AskPreflight(ask) => Request::Preflight(ask),
        };
        // Fails only when the session is over.
        let _ = self.requests.send(request).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::domain::host::{HostInfo, HostSample};
    use crate::domain::ids::{HostId, RunId};
    use crate::supervise::rundir::{RunDir, machine_key};

    struct Never;

    impl super::super::Telemetry for Never {
        fn info(&mut self) -> HostInfo {
            unreachable!("it was not asked for")
        }

        fn sample(&mut self) -> HostSample {
            unreachable!("it was not asked for")
        }
    }

    #[tokio::test]
    async fn an_agent_that_starts_removes_what_a_deletion_has_left() {
        let home = tempfile::tempdir().unwrap();
        let config = AgentConfig {
            exe: "/bin/true".into(),
            state_dir: home.path().join("hvtui"),
            build: String::new(),
        };
        let run = RunId::new(1, 1);
        let dir = RunDir::create(&config.state_dir, &run, &HostId::from("a")).unwrap();
        let spool = config.state_dir.join("spool");
        let left = spool.join(format!(".deleted-{run}-a{}.1", machine_key()));
        std::fs::rename(dir.path(), &left).unwrap();
        std::fs::write(left.join("rank-0.out"), "said").unwrap();
        serve(tokio::io::empty(), tokio::io::sink(), config, Box::new(|| Box::new(Never))).await.unwrap();
        let gone = async {
            while left.exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.unwrap();
        assert!(spool.join(run.as_str()).exists(), "what is no left-over stays");
    }

    #[tokio::test]
    async fn a_client_that_is_silent_is_left() {
        let (out, _queue) = lanes();
        let owners = Owners::new("/nowhere".into());
        let sampling = Sampling::start(Box::new(|| Box::new(Never)), owners, out.clone()).unwrap();
        let (requests, _asked) = mpsc::channel(1);
        let ours = Hello::ours(String::new());
        let config =
            AgentConfig { exe: "/bin/true".into(), state_dir: "/nowhere".into(), build: String::new() };
        let uploads = Uploads::new(config, out.clone());
        let (state, doors) = ("/nowhere".into(), Doors::default());
        let session = Session { ours, greeted: false, out, sampling, requests, uploads, state, doors };
        let (mut client, reader) = tokio::io::duplex(64);
        // Half a frame is no word either.
        client.write_all(&[200]).await.unwrap();
        let ended = session.read(reader, Duration::from_millis(50)).await;
        assert!(matches!(ended, Err(AgentError::Silent(_))), "{ended:?}");
    }
}
