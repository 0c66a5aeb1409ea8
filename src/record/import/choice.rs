//! Which files an import takes: those that are named, and of a folder those that are traces. What else lies in a folder is left
//! out and named.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::super::error::Error;
use super::source::{self, Folder};
use super::summary::LeftOut;
use super::{Judged, Kind, judge, readable};

/// Files that are named where some are left out.
const MOST_NAMED: usize = 8;
/// What is said of a trace in a folder that is not taken with the others.
const BY_ITSELF: &str = "trace: import it by itself";
/// Which of the traces in a folder are taken, where there are several kinds.
const PREFERRED: [Kind; 2] = [Kind::Kineto, Kind::NcclInspector];

/// The files that are imported.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) files: Vec<PathBuf>,
    /// What each of them is.
    pub(super) kinds: Vec<Kind>,
    /// What lies in a folder beside them.
    pub(super) left_out: Vec<LeftOut>,
    pub(super) step: StepName,
}

/// The name of the slices that are steps in the traces of other programs.
#[derive(Debug, Default)]
pub(super) struct StepName {
    /// As it was asked for, or found in the first such trace.
    pub(super) name: Option<String>,
    pub(super) is_asked: bool,
}

/// Chooses among files and folders.
///
/// # Errors
/// Of a file that was named and is no trace, and of a folder without one.
pub(super) fn choose(paths: &[PathBuf], step: Option<&str>) -> Result<Chosen, Error> {
    let mut chosen = Chosen {
        step: StepName { name: step.map(str::to_owned), is_asked: step.is_some() },
        ..Chosen::default()
    };
    for path in paths {
        if path.is_dir() {
            chosen.folder(path)?;
            continue;
        }
        match judge(path, &mut chosen.step)? {
            Judged::Known(kind) => chosen.take(path.clone(), kind),
            Judged::Other(what) => return Err(Error::foreign(path, &readable(&what))),
        }
    }
    Ok(chosen)
}

impl Chosen {
    fn take(&mut self, path: PathBuf, kind: Kind) {
        self.files.push(path);
        self.kinds.push(kind);
    }

    fn folder(&mut self, root: &Path) -> Result<(), Error> {
        let Folder { files, below } = Folder::of(root)?;
        if files.is_empty() && below.is_empty() {
            return Err(Error::foreign(root, "a folder without files"));
        }
        let mut found = Found::default();
        for path in files {
            found.judge(path, &mut self.step);
        }
        let (mut traces, events): (Vec<_>, Vec<_>) =
            found.known.into_iter().partition(|(_, kind)| *kind != Kind::TensorBoard);
        let mut events: Vec<PathBuf> = events.into_iter().map(|(path, _)| path).collect();
        let (events_below, mut below): (Vec<_>, Vec<_>) =
            below.into_iter().partition(|path| source::is_events(path));
        below.retain(|path| is_named_as_trace(path));
        events.extend(events_below);
        let mut not_looked_at = Vec::new();
        let mut others = found.others;
        let is_below = traces.is_empty();
        if is_below {
            // as TensorBoard's own folders are: `plugins/profile/…`
            let mut found = Found::default();
            for path in below {
                found.judge(path, &mut self.step);
            }
            traces = found.known;
            if events.is_empty() || !traces.is_empty() {
                others.append(&mut found.others);
            }
        } else {
            not_looked_at = below;
        }
        // those of other programs count where there is nothing else, or where they are meant
        let are_slices = |(_, kind): &(PathBuf, Kind)| *kind == Kind::Slices;
        let takes_slices = self.step.is_asked || events.is_empty() && traces.iter().all(are_slices);
        if traces.iter().any(are_slices) {
            traces.retain(|trace| {
                let is_taken = are_slices(trace) == takes_slices;
                if !is_taken {
                    let words = format!("a {} {BY_ITSELF}", trace.1.name());
                    others.push((trace.0.clone(), words));
                }
                is_taken
            });
        }
        let preferred = PREFERRED.into_iter().find(|kind| traces.iter().any(|(_, of)| of == kind));
        // several that can't be taken together, or one in a folder below, do not stand for the event files
        let is_fallback =
            preferred.is_none() && !takes_slices && !events.is_empty() && (is_below || traces.len() > 1);
        if preferred.is_some() || is_fallback {
            traces.retain(|(path, kind)| {
                let is_taken = Some(*kind) == preferred;
                if !is_taken {
                    others.push((path.clone(), format!("a {} {BY_ITSELF}", kind.name())));
                }
                is_taken
            });
        }
        if traces.is_empty() && events.is_empty() {
            return Err(match &others[..] {
                [] => Error::foreign(root, &readable("a folder without a trace")),
                [(path, what)] => Error::foreign(path, &readable(what)),
                [(path, what), ..] => {
                    let path = within(root, path);
                    let words =
                        format!("a folder without a trace among {} files; {path}: {what}", others.len());
                    Error::foreign(root, &readable(&words))
                }
            });
        }
        let (apart, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, what)| what.ends_with(BY_ITSELF));
        let told = |others: &[(PathBuf, String)]| -> Vec<String> {
            others.iter().map(|(path, what)| format!("{} ({what})", within(root, path))).collect()
        };
        self.leave_out("traces that can't be taken together", &told(&apart), "");
        self.leave_out("files that are no traces of the run", &told(&others), "");
        let names = |paths: &[PathBuf]| paths.iter().map(|path| within(root, path)).collect::<Vec<_>>();
        self.leave_out("files in folders below", &names(&not_looked_at), ": import their folder by itself");
        if traces.is_empty() {
            events.sort();
            for path in events {
                self.take(path, Kind::TensorBoard);
            }
        } else {
            let remedy = ": import them by themselves for their scalars";
            self.leave_out("event files of TensorBoard", &names(&events), remedy);
            for (path, kind) in traces {
                self.take(path, kind);
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, what: &str, names: &[String], remedy: &str) {
        if names.is_empty() {
            return;
        }
        let more = names.len().saturating_sub(MOST_NAMED);
        let mut why = names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        if more > 0 {
            let _ = write!(why, " and {more} more");
        }
        self.left_out.push(LeftOut::new(what, names.len() as u64, why + remedy));
    }
}

/// Files that were looked at.
#[derive(Default)]
struct Found {
    known: Vec<(PathBuf, Kind)>,
    /// What else there is, and what it is.
    others: Vec<(PathBuf, String)>,
}

impl Found {
    fn judge(&mut self, path: PathBuf, step: &mut StepName) {
        match judge(&path, step) {
            Ok(Judged::Known(kind)) => self.known.push((path, kind)),
            Ok(Judged::Other(what)) => self.others.push((path, what)),
            Err(Error::Foreign { reason, .. }) => self.others.push((path, reason)),
            Err(error) => self.others.push((path, error.to_string())),
        }
    }
}

/// Whether a file in a folder below is looked at.
fn is_named_as_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".json", ".json.gz", ".json.zst"].iter().any(|end| name.ends_with(end))
}

/// A file's name within a folder.
fn within(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
