//! What the live UI reads, writes and deletes on this machine, on threads of its own: a disk that is slow, or a network file
//! system that hangs, delays its own answer and no key. Knows no session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::domain::ids::RunId;
use crate::domain::marks::MarkChange;
use crate::domain::phase_window::PhasePart;
use crate::domain::run::{KeptRecordings, RunSpec};
use crate::domain::sync::SyncPlan;
use crate::launch::plan::LaunchPlan;
use crate::launch::request::LaunchRequest;
use crate::launcher::code::CodeFinder;
use crate::launcher::script;
use crate::record::store::Listing;
use crate::record::{Error, Store};
use crate::tui::core::{Msg, ReportOf};
use crate::tui::source::finishing::SoFar;
use crate::tui::source::marks::MarksDesk;
use crate::tui::source::near::NearDesk;
use crate::tui::source::reports::ReportDesk;
use crate::tui::source::resume::Resumed;

/// Names of a folder at most.
const MOST_NAMES: usize = 4096;

/// An answer.
#[derive(Debug)]
pub(super) enum Filed {
    /// The recordings, and what they take.
    Listed(Result<(Listing, KeptRecordings), Error>),
    /// Recordings were deleted: those that are gone, the bytes that this freed, those that are not gone.
    Deleted(Vec<RunId>, u64, Vec<(RunId, String)>),
    /// A run's recording was opened to go on with it.
    Resumed(Box<RunSpec>, Box<Resumed>),
    /// A launch whose files were looked at is to be planned; or the folder that it copies is wrong.
    Looked(Box<LaunchRequest>, Option<String>),
    /// A launch whose files were looked at is to be started.
    Launch(Box<LaunchRequest>),
    /// A plan whose code was looked at is to be started.
    Start(Box<LaunchPlan>),
    /// A host file was read, or could not be.
    HostFile(String, Result<String, String>),
    /// The marks of a run, its report, or what was read of a part of it.
    Told(Box<Msg>),
    /// What is in a folder, sorted; folders end with `/`. Nothing where it can't be read.
    Folder(String, Vec<String>),
}

type Job = Box<dyn FnOnce() -> Filed + Send>;

/// The threads and their answers. Each does its jobs in order.
#[derive(Debug)]
pub(super) struct Files {
    store: Store,
    /// The recordings: lists of many may take long. What ends before something is asked of them is finished first.
    recordings: Desk,
    /// What the Launch screen reads: it answers while one types.
    launches: Desk,
    /// Folders that are listed while one types: one that hangs delays those alone.
    folders: Desk,
    /// Marks, which may lie beside a recording of which much is asked.
    marks: MarksDesk,
    /// The words of a report: reading a long recording must not delay the others.
    reports: ReportDesk,
    /// What the screen of a run shows closely.
    near: NearDesk,
    /// The number of the newest question for a folder.
    newest: Arc<AtomicU64>,
    answers: (UnboundedSender<Filed>, UnboundedReceiver<Filed>),
}

impl Files {
    pub(super) fn new(store: Store) -> Self {
        let answers = unbounded_channel();
        let desk = |name| Desk { name, jobs: None, answers: answers.0.clone() };
        let (recordings, launches, folders) = (desk("recordings"), desk("launch files"), desk("folders"));
        let answer = answers.0.clone();
        // fails only where the UI is left
        let marks = MarksDesk::new(move |told| drop(answer.send(Filed::Told(Box::new(told)))));
        let answer = answers.0.clone();
        let reports = ReportDesk::new(move |told| drop(answer.send(Filed::Told(Box::new(told)))));
        let answer = answers.0.clone();
        let near = NearDesk::new(move |told| drop(answer.send(Filed::Told(Box::new(told)))));
        Self { store, recordings, launches, folders, marks, reports, near, newest: Arc::default(), answers }
    }

    /// The next answer. Cancel-safe; pending while nothing was asked.
    pub(super) async fn next(&mut self) -> Filed {
        match self.answers.1.recv().await {
            Some(filed) => filed,
            // not while the sender beside it lives
            None => std::future::pending().await,
        }
    }

    /// Asks nothing more and waits for nothing: gives the recordings that were opened and not taken.
    pub(super) fn leave(mut self) -> Vec<(RunId, Resumed)> {
        self.answers.1.close();
        let mut opened = Vec::new();
        while let Ok(filed) = self.answers.1.try_recv() {
            if let Filed::Resumed(spec, resumed) = filed {
                opened.push((spec.id, *resumed));
            }
        }
        opened
    }

    pub(super) fn list(&mut self, finished: SoFar) -> Result<(), String> {
        let store = self.store.clone();
        self.recordings.ask(move || {
            finished.wait();
            Filed::Listed(listed(&store))
        })
    }

    pub(super) fn delete(&mut self, runs: Vec<RunId>, finished: SoFar) -> Result<(), String> {
        let store = self.store.clone();
        self.recordings.ask(move || {
            finished.wait();
            let (mut gone, mut freed, mut failed) = (Vec::new(), 0, Vec::new());
            for run in runs {
                match store.delete(&run) {
                    Ok(bytes) => {
                        freed += bytes;
                        gone.push(run);
                    }
                    // of one that only hosts know there is nothing here
                    Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                        gone.push(run);
                    }
                    Err(error) => failed.push((run, error.to_string())),
                }
            }
            Filed::Deleted(gone, freed, failed)
        })
    }

    pub(super) fn resume(&mut self, spec: RunSpec, finished: SoFar) -> Result<(), String> {
        let store = self.store.clone();
        self.recordings.ask(move || {
            finished.wait();
            let resumed = Resumed::open(&store, &spec.id);
            Filed::Resumed(Box::new(spec), Box::new(resumed))
        })
    }

    pub(super) fn look(&mut self, mut request: LaunchRequest) -> Result<(), String> {
        self.launches.ask(move || {
            script::look(&mut request);
            let fault = request.options.sync.as_ref().and_then(no_folder);
            Filed::Looked(Box::new(request), fault)
        })
    }

    pub(super) fn look_and_launch(
        &mut self,
        mut request: LaunchRequest,
        finder: CodeFinder,
    ) -> Result<(), String> {
        self.launches.ask(move || {
            script::look(&mut request);
            if request.options.sync.is_none() {
                let (workdir, named) = (request.workdir.as_deref(), request.place.named());
                request.code = finder.find(&request.command, workdir, &named);
            }
            Filed::Launch(Box::new(request))
        })
    }

    pub(super) fn look_and_start(&mut self, mut plan: LaunchPlan, finder: CodeFinder) -> Result<(), String> {
        self.launches.ask(move || {
            let spec = &mut plan.spec;
            if spec.options.sync.is_none() {
                spec.code = finder.find(&spec.command, spec.workdir.as_deref(), &spec.hosts());
            }
            Filed::Start(Box::new(plan))
        })
    }

    /// Changes the marks of a run, if there is a change, and reads them.
    pub(super) fn mark(&mut self, run: RunId, change: Option<MarkChange>) -> Result<(), String> {
        let recording = self.store.path_of(&run);
        self.marks.ask(recording, run, change)
    }

    /// Reads what is to be told of a run, or of two.
    pub(super) fn report(&self, of: ReportOf) {
        self.reports.ask(of, |run| self.store.path_of(run));
    }

    /// It is not wanted any more.
    pub(super) fn leave_report(&self) {
        self.reports.leave();
    }

    /// Reads where the time of a run went in a part of it.
    pub(super) fn read_closely(&mut self, run: RunId, part: PhasePart) {
        let recording = self.store.path_of(&run);
        self.near.ask(run, recording, part);
    }

    /// Lists a folder, unless another is asked for before its turn comes.
    pub(super) fn list_folder(&mut self, path: String) -> Result<(), String> {
        let number = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let newest = Arc::clone(&self.newest);
        self.folders.ask(move || {
            let names = if newest.load(Ordering::Relaxed) == number { names_in(&path) } else { Vec::new() };
            Filed::Folder(path, names)
        })
    }

    pub(super) fn read_host_file(&mut self, name: String) -> Result<(), String> {
        self.launches.ask(move || {
            let text = std::fs::read_to_string(&name);
            let text = text.map_err(|error| format!("can't read host file {name}: {error}"));
            Filed::HostFile(name, text)
        })
    }
}

/// The names in a folder, those of folders with a `/` behind.
fn names_in(folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| !name.contains(char::is_control))?;
        let kind = entry.file_type().ok()?;
        let is_folder = kind.is_dir()
            || (kind.is_symlink() && std::fs::metadata(entry.path()).is_ok_and(|at| at.is_dir()));
        Some(if is_folder { name + "/" } else { name })
    };
    let mut names: Vec<String> = entries.flatten().take(MOST_NAMES).filter_map(name).collect();
    names.sort();
    names
}

fn listed(store: &Store) -> Result<(Listing, KeptRecordings), Error> {
    Ok((store.list()?, store.kept()?))
}

/// Why a folder can't be copied, as far as a look at it tells.
fn no_folder(plan: &SyncPlan) -> Option<String> {
    let what = match std::fs::metadata(&plan.dir) {
        Ok(found) if !found.is_dir() => "is not a folder",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist on this machine",
        // anything else is told by who reads it
        _ => return None,
    };
    Some(format!("sync: {} {what}: name a folder of this machine", plan.dir))
}

/// A thread that begins with its first job and ends with its last sender.
struct Desk {
    name: &'static str,
    jobs: Option<mpsc::Sender<Job>>,
    answers: UnboundedSender<Filed>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the thread {}", self.name)
    }
}

impl Desk {
    fn ask(&mut self, job: impl FnOnce() -> Filed + Send + 'static) -> Result<(), String> {
        if self.jobs.is_none() {
            let (sender, jobs) = mpsc::channel::<Job>();
            let answers = self.answers.clone();
            let work = move || {
                for job in jobs {
                    if answers.send(job()).is_err() {
                        return;
                    }
                }
            };
            let spawned = std::thread::Builder::new().name(self.name.to_owned()).spawn(work);
            spawned.map_err(|error| format!("start the thread for {}: {error}", self.name))?;
            self.jobs = Some(sender);
        }
        let gone = || format!("the thread for {} has ended", self.name);
        self.jobs.as_ref().map_or(Err(gone()), |jobs| jobs.send(Box::new(job)).map_err(|_| gone()))
    }
}
