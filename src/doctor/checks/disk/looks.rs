//! Looks at folders of which some may hang: each has a thread of its own, and what has not answered in time is told with what is
//! mounted there. How a look is made is an argument.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{StatVfs, statvfs};
use rustix::io::Errno;

use super::Role;
use crate::clock;
use crate::doctor::under_way::Places;

/// Looks that may be under way, those that hang at a file server among them.
const MOST: usize = 32;

static UNDER_WAY: Places = Places::new(MOST);

/// Links that the kernel goes through for one path.
const MOST_LINKS: u32 = 40;

/// The folder that counts, and its file system.
pub(super) type Answer = io::Result<(PathBuf, StatVfs)>;

/// What one look has told.
pub(super) enum Looked {
    /// Its answer.
    At(Answer),
    /// It has none yet: on the way to this path it hangs.
    Hangs(PathBuf),
    /// It could not be begun.
    Untried,
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
    let mut looked: Vec<Looked> = folders.iter().map(|_| Looked::Untried).collect();
    for (at, (role, path)) in folders.iter().enumerate() {
        let Some(under_way) = UNDER_WAY.take() else { continue };
        let (role, there, tell, look) = (*role, path.clone(), tell.clone(), look.clone());
        let body = move || {
            // it may be waited for no more
            let say = |said| {
                let _ = tell.send((at, said));
            };
            let answer = look(role, &there, &|to: &Path| say(Said::GoesTo(to.to_owned())));
            drop(under_way);
            say(Said::Answers(answer));
        };
        if thread::Builder::new().name("look at disk".to_owned()).spawn(body).is_ok() {
            looked[at] = Looked::Hangs(path.clone());
        }
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

/// Looks at a folder; of one that may be made later, at the nearest one above that is there. Each place is said before it is looked
/// at, and links are gone through one by one: what hangs is on the way to the last one said.
pub(super) fn look(role: Role, path: &Path, goes_to: &dyn Fn(&Path)) -> Answer {
    let path = std::path::absolute(path)?;
    let (mut there, mut real) = (PathBuf::from("/"), PathBuf::from("/"));
    for name in path.components().skip(1) {
        match follow(&real, name.as_ref(), goes_to) {
            Ok(found) => {
                there.push(name);
                real = found;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && role.is_made() => break,
            Err(error) => return Err(error),
        }
    }
    goes_to(&real);
    let stat = statvfs(&real)?;
    Ok((there, stat))
}

/// Where a path leads from a folder, without links; both are free of them then.
fn follow(folder: &Path, path: &Path, goes_to: &dyn Fn(&Path)) -> io::Result<PathBuf> {
    let (mut real, mut ahead) = (folder.to_owned(), path.to_owned());
    let mut links = 0;
    loop {
        let mut parts = ahead.components();
        let Some(first) = parts.next() else { return Ok(real) };
        let mut rest = parts.as_path().to_owned();
        match first {
            Component::RootDir => real = PathBuf::from("/"),
            Component::ParentDir => drop(real.pop()),
            Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => {
                let next = real.join(name);
                goes_to(&next);
                if std::fs::symlink_metadata(&next)?.is_symlink() {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    rest = std::fs::read_link(&next)?.join(rest);
                } else {
                    real = next;
                }
            }
        }
        ahead = rest;
    }
}
