//! Looks at folders of which some may hang: each has a thread of its own, and what has not answered in time is told with what is
//! mounted there. How a look is made is an argument.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{StatVfs, statvfs};

use super::Role;
use crate::clock;

/// Looks that may be under way, those that hang at a file server among them.
const MOST: usize = 32;

/// How many are.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// One of them; it is none any more when this goes.
struct UnderWay;

impl UnderWay {
    /// `None` where there are too many.
    fn begin() -> Option<Self> {
        let under_way = Self;
        (UNDER_WAY.fetch_add(1, Ordering::Relaxed) < MOST).then_some(under_way)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The folder that counts, and its file system.
pub(super) type Answer = io::Result<(PathBuf, StatVfs)>;

/// What one look has told.
pub(super) enum Looked {
    /// Its answer.
    At(Answer),
    /// It has none yet: on the way to this path it hangs.
    Hangs(PathBuf),
}

enum Said {
    GoesTo(PathBuf),
    Answers(Answer),
}

/// What looks at these folders tell within `patience`, in their order. A look says where it goes before what may hang there.
pub(super) fn looks(
    folders: &[(Role, PathBuf)],
    patience: Duration,
    look: impl Fn(Role, &Path, &dyn Fn(&Path)) -> Answer + Clone + Send + 'static,
) -> Vec<Looked> {
    let begun = clock::host_now().0;
    let (tell, told) = mpsc::channel();
    let mut looked: Vec<Looked> = folders.iter().map(|(_, path)| Looked::Hangs(path.clone())).collect();
    for (at, (role, path)) in folders.iter().enumerate() {
        let Some(under_way) = UnderWay::begin() else { continue };
        let (role, path, tell, look) = (*role, path.clone(), tell.clone(), look.clone());
        let body = move || {
            // it may be waited for no more
            let say = |said| {
                let _ = tell.send((at, said));
            };
            let answer = look(role, &path, &|to: &Path| say(Said::GoesTo(to.to_owned())));
            drop(under_way);
            say(Said::Answers(answer));
        };
        // what can't be begun does not answer
        let _ = thread::Builder::new().name("look at disk".to_owned()).spawn(body);
    }
    drop(tell);
    loop {
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        match told.recv_timeout(patience.saturating_sub(gone)) {
            Ok((at, Said::GoesTo(path))) => looked[at] = Looked::Hangs(path),
            Ok((at, Said::Answers(answer))) => looked[at] = Looked::At(answer),
            Err(_) => return looked,
        }
    }
}

/// Looks at a folder; of one that is made when it is needed, at the nearest one above that is there.
pub(super) fn look(role: Role, path: &Path, goes_to: &dyn Fn(&Path)) -> Answer {
    let (mut there, mut real) = (PathBuf::from("/"), PathBuf::from("/"));
    let mut above: Vec<&Path> = path.ancestors().filter(|one| !one.as_os_str().is_empty()).collect();
    above.reverse();
    for one in above {
        let rest = path.strip_prefix(one).unwrap_or(Path::new(""));
        // a link is read without what it leads to
        if let Ok(target) = std::fs::read_link(one) {
            goes_to(&real.join(target).join(rest));
        }
        match std::fs::canonicalize(one) {
            Ok(found) => {
                goes_to(&found.join(rest));
                (there, real) = (one.to_owned(), found);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && role.is_made() => break,
            Err(error) => return Err(error),
        }
    }
    let stat = statvfs(&there)?;
    Ok((there, stat))
}
