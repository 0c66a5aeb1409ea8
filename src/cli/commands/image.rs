//! `hvtui image`: builds a container image here, and copies one to hosts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time;

use crate::cli::args::{ImageBuildArgs, ImagePushArgs};
use crate::cli::errors::{Code, Failure, note, to_person};
use crate::cli::image_progress::Meter;
use crate::cli::paths::Paths;
use crate::cli::progress_line::ProgressLine;
use crate::cli::signals::Signals;
use crate::cli::{ask, connect, output, runtime};
use crate::clock;
use crate::cluster::messages::{Incoming, Item, Reply};
use crate::cluster::pool::Cluster;
use crate::config::{HostConfig, HostsFile};
use crate::domain::event::Event;
use crate::domain::host::LinkState;
use crate::domain::run::RefusalClass;
use crate::domain::text::sanitize;
use crate::domain::units::{bytes, duration_us};
use crate::image::client::{self, Build};
use crate::image::engine::{Engine, EngineError, Image};
use crate::image::reference;
use crate::image::saved::{Blob, Saved};
use crate::image::staging::{self, Staging};
use crate::launch::host_list::host_list;
use crate::launcher::images::{Asked, Ended, How, News, Pushing, Why};
use crate::ssh::Prompter;

/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(200);
/// How often a folder of this process's own is tried, and how long is waited then.
const TRIES: u32 = 50;
const TRY: Duration = Duration::from_millis(20);
/// How long the reading of an image may take to end that is no longer wanted.
const ENDING: Duration = Duration::from_secs(2);

/// Builds an image with this machine's engine, whose lines go to standard error.
pub fn build(args: &ImageBuildArgs) -> Result<ExitCode, Failure> {
    let (context, file) = what_to_build(&args.path)?;
    let name = args.name.clone().map_or_else(|| name_of(&context), Ok)?;
    let engine = here(args.engine.as_deref())?;
    let asked = Build { context: &context, file: file.as_deref(), name: &name, arguments: &args.arguments };
    let said = |line: &str| eprint_line(line);
    client::build(&engine, asked, said).map_err(|error| Failure::usage(error.to_string()))?;
    let image = engine.image(&name).map_err(|error| match error {
        EngineError::NoImage { program, .. } => Failure::usage(format!(
            "the build ended well, but {program} has no image {name}: its builder keeps it elsewhere, add `-- --load`"
        )),
        other => unusable(&other),
    })?;
    to_person(&format!("{name}  {}  {}\n", image.id.id, bytes(image.size)))?;
    note(&format!("to copy it to all hosts: hvtui image push {name}"));
    Ok(ExitCode::SUCCESS)
}

fn eprint_line(line: &str) {
    output::err(&format!("{}\n", sanitize(line)));
}

/// The folder that the build may copy from, and the Dockerfile where that was named.
fn what_to_build(path: &Path) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|error| {
        Failure::usage(format!("image build {shown}: {}", crate::domain::text::os_text(&error)))
    })?;
    if !found.is_dir() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok((folder.to_owned(), Some(path.to_owned())));
    }
    for (name, file) in [("Dockerfile", None), ("Containerfile", Some(path.join("Containerfile")))] {
        if path.join(name).exists() {
            return Ok((path.to_owned(), file));
        }
    }
    Err(Failure::usage(format!(
        "image build {shown}: no Dockerfile is in that folder: name one, or a folder that has one"
    )))
}

/// A name after the folder.
fn name_of(folder: &Path) -> Result<String, Failure> {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = name.chars().all(|c| is_end(c) || matches!(c, '.' | '_' | '-'))
        && name.starts_with(is_end)
        && name.ends_with(is_end);
    if fits {
        return Ok(format!("{name}:latest"));
    }
    let text = format!("the folder {} gives no name for an image: name it, by -t NAME", whole.display());
    Err(Failure::usage(text))
}

/// This machine's engine.
fn here(named: Option<&str>) -> Result<Engine, Failure> {
    Engine::find(named, std::env::var_os("PATH").as_deref()).map_err(|error| unusable(&error))
}

fn unusable(error: &EngineError) -> Failure {
    let code = match error {
        EngineError::NotAllowed { .. } => Code::Permission,
        EngineError::NoImage { .. } | EngineError::NotThere(_) => Code::Usage,
        _ => Code::Unreachable,
    };
    let text = match error {
        EngineError::NoImage { program, image } => format!(
            "this machine has no image {image}: see `{program} images`; `hvtui image build` builds one, `{program} pull \
             {image}` gets one from a registry"
        ),
        // the hosts file says nothing of this machine here
        EngineError::None => "this machine has no container engine: neither docker nor podman is on its PATH: install one, \
                              or name its program by --engine; `hvtui run -H HOST --sync . -- docker build -t NAME .` \
                              builds on a host"
            .to_owned(),
        other => other.to_string(),
    };
    Failure::new(code, text)
}

/// Copies an image of this machine; exits with the worst fault of a host.
pub fn push(args: &ImagePushArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let hosts = choose(args.to.as_deref(), file)?;
    let engine = here(args.engine.as_deref())?;
    let image = engine.image(&args.image).map_err(|error| unusable(&error))?;
    let name = reference::name(&args.image, &image.names);
    if name.is_none() {
        note(&format!("{} is no name: hosts get the image without one", args.image));
    }
    let names: Vec<&str> = hosts.iter().map(|host| host.id.as_str()).collect();
    note(&format!(
        "image {}  {}  {}, {}  → {}",
        name.as_deref().unwrap_or(&args.image),
        image.id.short(),
        layers(image.layers.len()),
        bytes(image.size),
        names.join(", ")
    ));
    let staging = here_staged(paths)?;
    let wanted = Asked {
        name,
        id: image.id.clone(),
        layers: image.layers.clone(),
        platform: image.platform.clone(),
        dry: args.dry_run,
        dir: staging.dir().to_owned(),
    };
    let pushed = runtime::block_on(async {
        let prompter = ask::person();
        let targets = connect::targets(&hosts, &paths.home).await.into_iter();
        let targets =
            targets.map(|(host, target)| (host, target.map(|target| target.with_prompter(&prompter))));
        let cluster = Cluster::connect(connect::entries(&hosts, targets.collect(), None)?);
        let to = hosts
            .iter()
            .filter_map(|host| Some((host.id.clone(), cluster.sender(&host.id)?, host.container.clone())));
        let pushing = Pushing::new(wanted, to, clock::now());
        let reading = Reading {
            engine,
            image,
            dir: staging.dir().to_owned(),
            is_over: Arc::default(),
            bytes: Arc::default(),
        };
        let mut push =
            Push { cluster, pushing, reading, hosts: &hosts, prompter: &prompter, worst: None, has: 0 };
        let mut signals = Signals::listen()?;
        output::start(&paths.state)?;
        let pushed = push.carry_out(&mut signals).await;
        push.reading.is_over.store(true, Ordering::Relaxed);
        push.pushing.close();
        let taken = output::end(Some(&mut signals)).await;
        pushed.and_then(|code| taken.map(|()| code))
    });
    staging.remove();
    pushed
}

fn layers(count: usize) -> String {
    if count == 1 { "1 layer".to_owned() } else { format!("{count} layers") }
}

/// The hosts that are named, or all.
fn choose(to: Option<&str>, file: &HostsFile) -> Result<Vec<HostConfig>, Failure> {
    let Some(to) = to else { return Ok(file.hosts.clone()) };
    let mut chosen: Vec<HostConfig> = Vec::new();
    for (host, _) in host_list(to)? {
        let host = super::trust::find(host.as_str(), file)?;
        if !chosen.contains(host) {
            chosen.push(host.clone());
        }
    }
    Ok(chosen)
}

/// A folder for the contents of the image, which goes with this process.
fn here_staged(paths: &Paths) -> Result<Staging, Failure> {
    let place = staging::place(&paths.state);
    staging::sweep(&paths.state, clock::now());
    let failed = |error: staging::StagingError| Failure::new(Code::of(error.kind()), error.to_string());
    let name = format!("{}{}", staging::OF_ONE, std::process::id());
    for _ in 0..TRIES {
        // a cleanup may have taken it
        if let Some(staging) = Staging::open(&place, &name).map_err(failed)? {
            return Ok(staging);
        }
        std::thread::sleep(TRY);
    }
    Err(Failure::bug(format!("the folder {name} below {} is used by another process", place.display())))
}

/// The image is taken apart.
struct Reading {
    engine: Engine,
    image: Image,
    dir: PathBuf,
    is_over: Arc<AtomicBool>,
    /// How many were read.
    bytes: Arc<AtomicU64>,
}

/// What comes of it.
enum Read {
    Content(Blob),
    Whole(Saved),
    Failed(String),
}

impl Reading {
    /// Begins, in a thread of its own.
    fn begin(&self) -> Result<mpsc::UnboundedReceiver<Read>, Failure> {
        let (engine, id, dir) = (self.engine.clone(), self.image.id.id.clone(), self.dir.clone());
        let layers = self.image.layers.len();
        let (is_over, bytes) = (Arc::clone(&self.is_over), Arc::clone(&self.bytes));
        let (tell, told) = mpsc::unbounded_channel();
        let read = move || {
            let of_contents = tell.clone();
            let saved = client::save(&engine, &id, &dir, |content, read| {
                bytes.store(read, Ordering::Relaxed);
                let taken = content.is_none_or(|content| of_contents.send(Read::Content(content)).is_ok());
                taken && !is_over.load(Ordering::Relaxed)
            });
            let read = match saved {
                Ok(saved) if saved.layers.len() != layers => Read::Failed(format!(
                    "{} has written {} layers of an image that it says has {layers}: pull or build it anew",
                    engine.name(),
                    saved.layers.len()
                )),
                Ok(saved) => Read::Whole(saved),
                Err(error) => Read::Failed(error.to_string()),
            };
            // it is no longer waited for
            let _ = tell.send(read);
        };
        let thread = std::thread::Builder::new().name("image".to_owned()).spawn(read);
        thread.map_err(|error| Failure::bug(format!("no thread to read the image: {error}")))?;
        Ok(told)
    }
}

struct Push<'a> {
    cluster: Cluster,
    pushing: Pushing,
    reading: Reading,
    hosts: &'a [HostConfig],
    prompter: &'a Prompter,
    worst: Option<Code>,
    /// Hosts that have the image.
    has: usize,
}

impl Push<'_> {
    async fn carry_out(&mut self, signals: &mut Signals) -> Result<ExitCode, Failure> {
        let mut tick = time::interval(LOOK);
        let mut read: Option<mpsc::UnboundedReceiver<Read>> = None;
        let (mut meter, mut line) = (Meter::new(self.reading.image.size), ProgressLine::default());
        let mut left = None;
        while left.is_none() && !self.pushing.is_over() {
            if read.is_none() && self.pushing.wants_contents() {
                read = Some(self.reading.begin()?);
            }
            let next_read = async {
                match &mut read {
                    Some(read) => read.recv().await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                biased;
                ask = signals.next() => {
                    left = Some(ask.code());
                    Vec::new()
                }
                item = self.cluster.next() => item.map(|item| self.item(item)).unwrap_or_default(),
                Some(read) = next_read => match read {
                    Read::Content(blob) => self.pushing.content(blob),
                    Read::Whole(saved) => self.pushing.saved(saved),
                    Read::Failed(reason) => {
                        line.clear();
                        note(&format!("this machine: {reason}"));
                        self.pushing.not_saved()
                    }
                },
                _ = tick.tick() => {
                    let read = self.reading.bytes.load(Ordering::Relaxed);
                    // what ssh asks stands there
                    if self.prompter.is_asking() {
                        continue;
                    }
                    line.show(&meter.words(&self.pushing.progress(), read, clock::now()));
                    self.pushing.look(clock::now())
                }
            };
            for (host, ended) in news {
                line.clear();
                to_person(&self.ended(host.as_str(), &ended))?;
            }
        }
        line.clear();
        self.reading.is_over.store(true, Ordering::Relaxed);
        if let Some(read) = &mut read {
            // the folder is removed behind it
            let ends = async { while read.recv().await.is_some() {} };
            let _ = time::timeout(ENDING, ends).await;
        }
        if let Some(code) = left {
            note("stopped: what was copied stays on the hosts, and the next push goes on with it");
            return Ok(ExitCode::from(code));
        }
        let id = self.reading.image.id.short();
        match self.worst {
            Some(code) => Ok(code.into()),
            None if self.has > 1 && self.has == self.hosts.len() => {
                note(&format!("{id} is the same on {} hosts", self.has));
                Ok(ExitCode::SUCCESS)
            }
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn item(&mut self, item: Item) -> Vec<News> {
        let Item { host, at, incoming } = item;
        let pushing = &mut self.pushing;
        let news = match incoming {
            Incoming::Event(_, Event::LinkChanged { state }) => match state {
                LinkState::Up => {
                    pushing.is_up(&host, at);
                    None
                }
                LinkState::Down { reason, .. } | LinkState::Limited { reason } => {
                    pushing.is_down(&host, &reason, at)
                }
                LinkState::Refused { reason, kind } => pushing.is_refused(&host, kind, &reason),
                LinkState::Connecting { .. } | LinkState::Installing { .. } => None,
            },
            Incoming::Reply(Reply::Image(told)) => pushing.told(&host, told, at),
            Incoming::Reply(Reply::BlobsTaken(taken)) => pushing.taken(&host, &taken, at),
            _ => None,
        };
        news.into_iter().collect()
    }

    /// One line about a host.
    fn ended(&mut self, host: &str, ended: &Ended) -> String {
        let width = self.hosts.iter().map(|host| host.id.as_str().len()).max().unwrap_or(0);
        let (mark, words) = match ended {
            Ended::Has { how: How::Before, .. } => ("✔", "has it already".to_owned()),
            Ended::Has { how: How::Named, .. } => ("✔", "had it under another name".to_owned()),
            Ended::Has { how: How::Copied { bytes: 0, took_us }, .. } => {
                ("✔", format!("loaded in {}: an earlier push had copied all of it", duration_us(*took_us)))
            }
            Ended::Has { how: How::Copied { bytes: copied, took_us }, .. } => {
                ("✔", format!("{} copied and loaded in {}", bytes(*copied), duration_us(*took_us)))
            }
            Ended::Lacks { engine, layers, there: 0 } => {
                ("·", format!("lacks it: {} gets all {}", sanitize(engine), self::layers(*layers)))
            }
            Ended::Lacks { engine, layers, there } => {
                ("·", format!("lacks it: {} has {there} of its layers and gets {layers}", sanitize(engine)))
            }
            Ended::Failed(_, reason) => {
                let prefix = format!("{host}: ");
                ("✖", sanitize(reason.strip_prefix(&prefix).unwrap_or(reason)).into_owned())
            }
        };
        match ended {
            Ended::Has { .. } => self.has += 1,
            Ended::Lacks { .. } => {}
            Ended::Failed(why, _) => {
                self.worst = self.worst.into_iter().chain([code(*why)]).max_by_key(|code| code.number());
            }
        }
        format!("{mark} {host:width$}  {words}\n")
    }
}

fn code(why: Why) -> Code {
    match why {
        Why::Link(kind) => kind.into(),
        Why::Refused(RefusalClass::Permission) => Code::Permission,
        Why::Refused(RefusalClass::Fault) => Code::Bug,
        Why::Refused(_) | Why::Unreachable | Why::NotRead => Code::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_and_how_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("Train-2");
        std::fs::create_dir(&folder).unwrap();
        let fault = what_to_build(&folder).unwrap_err().to_string();
        assert!(
            fault.ends_with("no Dockerfile is in that folder: name one, or a folder that has one"),
            "{fault}"
        );
        let file = folder.join("Dockerfile");
        std::fs::write(&file, "FROM scratch\n").unwrap();
        assert_eq!(what_to_build(&folder).unwrap(), (folder.clone(), None));
        assert_eq!(what_to_build(&file).unwrap(), (folder.clone(), Some(file)));
        assert_eq!(name_of(&folder).unwrap(), "train-2:latest");
        let odd = dir.path().join("_x");
        assert!(name_of(&odd).unwrap_err().to_string().ends_with("name it, by -t NAME"));
        let absent = what_to_build(&dir.path().join("no")).unwrap_err().to_string();
        assert!(absent.ends_with("no: no such file or directory"), "{absent}");
    }
}
