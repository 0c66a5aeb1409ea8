//! Copies a client's folder to this host: one thread a sync, which owns the folder's lock until it is done.

use std::path::Path;
use std::time::Duration;

use super::AgentConfig;
use super::outgoing::Outgoing;
use super::upload::{Ask, Over, Upload};
use crate::clock;
use crate::domain::ids::RunId;
use crate::domain::note::{Note, what};
use crate::domain::run::{HostRun, RefusalClass};
use crate::domain::sync::Digest;
use crate::sha256;
use crate::supervise::rundir::{RunDir, machine_key};
use crate::supervise::state::SPEC;
use crate::sync::SyncError;
use crate::sync::blobs::{Piece, Store};
use crate::sync::host::{self, Comparison, Place, Switched, Target};
use crate::sync::manifest::{MOST_BYTES, Manifest};
use crate::wire::message::{FromAgent, Noted, RunRef};
use crate::wire::sync::{SyncOpen, SyncState, SyncTold};
use crate::wire::upload::BlobPiece;

/// Between looks at a folder that another sync holds.
const LOOK: Duration = Duration::from_millis(20);
/// Missing contents in one message.
const AT_ONCE: usize = 20_000;

/// One sync.
struct Sync {
    upload: Upload,
    run: RunId,
}

/// Why an upload ends before its end.
enum End {
    Over,
    Fault(SyncError),
}

impl From<Over> for End {
    fn from(_: Over) -> Self {
        Self::Over
    }
}

impl From<SyncError> for End {
    fn from(error: SyncError) -> Self {
        Self::Fault(error)
    }
}

/// Copies a folder as it comes.
pub(super) fn serve(upload: Upload, config: &AgentConfig, open: &SyncOpen) {
    let mut sync = Sync { upload, run: open.run.clone() };
    match sync.carry_out(config, open) {
        Ok(Some((mut target, Switched { tree, switched, notes }))) => {
            let present = SyncState::Present { tree, switched, notes: notes.clone() };
            if sync.upload.is_over() || !sync.tell(present) {
                target.tell_later(notes);
            }
            target.remove_unused();
        }
        Ok(None) | Err(End::Over) => {}
        Err(End::Fault(error)) => {
            sync.tell(SyncState::Refused { class: class(&error), reason: error.to_string() });
        }
    }
}

/// What is said where there is no thread for it.
pub(super) fn not_started(open: &SyncOpen) -> FromAgent {
    let reason = "this host lets the user start no more threads: see `ulimit -u` there".to_owned();
    let state = SyncState::Refused { reason, class: RefusalClass::Unavailable };
    FromAgent::Sync(SyncTold { upload: open.upload, run: open.run.clone(), state })
}

impl Sync {
    fn carry_out(
        &mut self,
        config: &AgentConfig,
        open: &SyncOpen,
    ) -> Result<Option<(Target, Switched)>, End> {
        let home = std::env::home_dir().unwrap_or_else(|| "/".into());
        let bin = config.exe.parent().unwrap_or(Path::new("/"));
        let place = Place::of(&open.remote, &home, &[&config.state_dir, bin])?;
        let mut target = self.open(&place, open.dry)?;
        if let Some(present) = target.present(open.tree, open.delete) {
            return Ok(Some((target, present)));
        }
        self.tell(SyncState::Wanted);
        let manifest = self.manifest(open.tree, open.size)?;
        let compared = target.compare(manifest, open.delete)?;
        let nothing = compared.missing.is_empty();
        self.tell_missing(compared);
        if open.dry {
            return Ok(None);
        }
        if !nothing {
            self.contents(target.store()).map_err(|end| match end {
                End::Fault(error) => End::Fault(target.no_room(error)),
                End::Over => End::Over,
            })?;
        } else if !matches!(self.upload.next()?, Ask::Switch) {
            return Err(End::Over);
        }
        let switched = target.switch()?;
        Ok(Some((target, switched)))
    }

    /// The folder, once no other sync of it is under way.
    fn open(&mut self, place: &Place, dry: bool) -> Result<Target, End> {
        let machine = machine_key();
        let mut is_told = false;
        loop {
            if let Some(target) = Target::open(place, &machine, dry)? {
                return Ok(target);
            }
            if !is_told {
                is_told = true;
                self.tell(SyncState::Waiting);
            }
            if self.upload.is_over() {
                return Err(End::Over);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The manifest, which comes as a content of this name.
    fn manifest(&mut self, tree: Digest, size: u64) -> Result<Manifest, End> {
        let fault = |fault: &str| SyncError::Manifest { line: 0, fault: fault.to_owned() };
        if size > MOST_BYTES {
            return Err(fault(&format!("it is {size} bytes long, at most {MOST_BYTES} are read")).into());
        }
        let mut text = Vec::new();
        loop {
            match self.upload.next()? {
                Ask::Piece(piece) if piece.name == tree && piece.offset == text.len() as u64 => {
                    if text.len() as u64 + piece.data.len() as u64 > size {
                        return Err(fault("it is longer than it was said to be").into());
                    }
                    text.extend_from_slice(&piece.data);
                    self.upload.took(&piece);
                }
                Ask::Compare => {
                    if sha256::of_bytes(&text) != tree {
                        return Err(fault("it is not what its name says").into());
                    }
                    return Ok(Manifest::decode(&text)?);
                }
                _ => return Err(End::Over),
            }
        }
    }

    /// Stages contents until the switch is asked for.
    fn contents(&mut self, mut store: Store) -> Result<(), End> {
        loop {
            match self.upload.next()? {
                Ask::Piece(piece) => {
                    let BlobPiece { name, size, offset, ref data, .. } = piece;
                    store.put(Piece { name, size, offset, data })?;
                    self.upload.took(&piece);
                }
                Ask::Switch => return Ok(()),
                Ask::Compare | Ask::Load(_) => return Err(End::Over),
            }
        }
    }

    fn tell_missing(&self, Comparison { missing, changed, deleted, bytes }: Comparison) {
        let mut parts = missing.chunks(AT_ONCE).peekable();
        loop {
            let entries = parts.next().unwrap_or_default().to_vec();
            let last = parts.peek().is_none();
            self.tell(SyncState::Missing { entries, last, changed, deleted, bytes });
            if last {
                return;
            }
        }
    }

    /// `false` when the link is gone.
    fn tell(&self, state: SyncState) -> bool {
        let told = SyncTold { upload: self.upload.number(), run: self.run.clone(), state };
        self.upload.tell(FromAgent::Sync(told))
    }
}

/// A run whose folder was copied has ended: what it created in a tree that was replaced since comes into the present
/// one, and the tree goes.
pub(super) fn tidy(dir: &RunDir, about: &RunRef, out: &Outgoing) {
    let spec = dir.read_json::<HostRun>(SPEC).ok().flatten().and_then(|spec| spec.run_spec);
    let Some(plan) = spec.and_then(|spec| spec.options.sync) else { return };
    let home = std::env::home_dir().unwrap_or_else(|| "/".into());
    let Ok(place) = Place::of(&plan.remote, &home, &[]) else { return };
    let notes = host::tidy(&place, &machine_key());
    for (told, text) in notes.iter().enumerate() {
        let RunRef { run, host } = about.clone();
        let note = Note::new(what::SYNC, format!("sync: {text}"), clock::host_now());
        if !out.data_blocking(FromAgent::Noted(Noted { run, host, number: Noted::UNNUMBERED, note })) {
            return host::keep_notes(&place, &notes[told..]);
        }
    }
}

fn class(error: &SyncError) -> RefusalClass {
    match error {
        SyncError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            RefusalClass::Permission
        }
        SyncError::NotOurs { .. } => RefusalClass::Permission,
        SyncError::Hole { .. } | SyncError::Manifest { .. } => RefusalClass::Fault,
        // what a person has to clear there, or to ask for in another place
        SyncError::Target { .. } | SyncError::InTheWay { .. } => RefusalClass::Usage,
        _ => RefusalClass::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_for_the_user_and_what_passes_is_not() {
        let path = std::path::PathBuf::from("/root/proj/out.txt");
        let target = SyncError::Target { path: path.clone(), fault: "is a mount point".to_owned() };
        assert_eq!(class(&target), RefusalClass::Usage);
        let not_ours = SyncError::NotOurs { path: path.clone(), fault: "belongs to another user" };
        assert_eq!(class(&not_ours), RefusalClass::Permission);
        let source = std::io::ErrorKind::PermissionDenied.into();
        let denied = SyncError::Io { what: "make", path: path.clone(), source };
        assert_eq!(class(&denied), RefusalClass::Permission);
        let in_the_way = SyncError::InTheWay { path: path.clone(), fault: "is a file there" };
        assert_eq!(class(&in_the_way), RefusalClass::Usage);
        assert_eq!(class(&SyncError::InUse { path: path.clone(), pid: 7 }), RefusalClass::Unavailable);
        let full = SyncError::NoSpace { path, needed: 2, free: 1, kept: "" };
        assert_eq!(class(&full), RefusalClass::Unavailable);
    }
}
