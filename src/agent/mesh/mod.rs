//! Sets up logins between hosts in this account's `~/.ssh`: looks, writes, tries, takes out again.
//!
//! Everything that is written bears the mesh's id, in a file name or in marks around it, so that taking it out leaves
//! what was there before. Decides nothing: which hosts and keys belong together is the client's business.

mod block;
mod folder;
mod login;

use std::path::Path;

use block::Marks;
use folder::{Folder, FolderError};

use crate::wire::mesh::{
    MeshApply, MeshAsk, MeshChange, MeshDone, MeshFound, MeshPlan, MeshRemove, MeshSeen, MeshTold,
};

/// Files that people write too: ours stands between marks at their beginning.
const CONFIG: &str = "config";
const AUTHORIZED: &str = "authorized_keys";
/// How the names of files begin that are ours alone.
const OWN: &str = "hvtui_mesh_";
/// First line of the mesh's configuration where hvtui has made `~/.ssh` itself.
const MADE_FOLDER: &str = "# hvtui made this folder\n";

/// Does what is asked. `home` is the account's home folder.
pub(super) async fn answer(ask: MeshAsk, home: std::path::PathBuf) -> MeshTold {
    if let MeshAsk::Try(ask) = ask {
        return MeshTold::Tried(login::try_all(ask.peers).await);
    }
    let work = tokio::task::spawn_blocking(move || on_files(&ask, &home));
    work.await.unwrap_or_else(|error| {
        let problem = Some(format!("a fault of hvtui: {error}"));
        MeshTold::Done(MeshDone { changes: Vec::new(), problem })
    })
}

fn on_files(ask: &MeshAsk, home: &Path) -> MeshTold {
    let done = |work: Result<(), FolderError>, changes: Vec<MeshChange>| {
        MeshTold::Done(MeshDone { changes, problem: work.err().map(|error| error.to_string()) })
    };
    let mut changes = Vec::new();
    match ask {
        MeshAsk::Look(_) | MeshAsk::Try(_) => MeshTold::Seen(match look(home) {
            Ok(meshes) => MeshSeen { meshes, problem: None },
            Err(error) => MeshSeen { meshes: Vec::new(), problem: Some(error.to_string()) },
        }),
        MeshAsk::Apply(apply) => {
            let work = self::apply(apply, home, &mut changes);
            done(work, changes)
        }
        MeshAsk::Remove(asked) => {
            let work = remove(asked, home, &mut changes);
            done(work, changes)
        }
    }
}

/// Eight hexadecimal digits: part of file names and marks.
fn checked(id: &str) -> Result<&str, FolderError> {
    let is_id =
        id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if is_id { Ok(id) } else { Err(FolderError::BadId(id.to_owned())) }
}

fn names(id: &str) -> [String; 3] {
    [format!("{OWN}{id}"), format!("{OWN}{id}.conf"), format!("{OWN}{id}.known_hosts")]
}

fn look(home: &Path) -> Result<Vec<MeshFound>, FolderError> {
    let Some(folder) = Folder::open(home)? else { return Ok(Vec::new()) };
    let mut ids: Vec<String> = Vec::new();
    for name in folder.names()? {
        let id = name.strip_prefix(OWN).and_then(|rest| rest.split('.').next());
        ids.extend(id.filter(|id| checked(id).is_ok()).map(str::to_owned));
    }
    for file in [CONFIG, AUTHORIZED] {
        ids.extend(block::ids(&folder.read(file)?.unwrap_or_default()));
    }
    ids.sort();
    ids.dedup();
    let found = |id: String| Ok(MeshFound { public: public(&folder, &id)?, id });
    ids.into_iter().map(found).collect()
}

/// The public half of the private key that is there.
fn public(folder: &Folder, id: &str) -> Result<Option<String>, FolderError> {
    let [key, ..] = names(id);
    let text = folder.read(&key)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let public = text.and_then(|text| russh::keys::PrivateKey::from_openssh(text).ok());
    let public = public.and_then(|key| key.public_key().to_openssh().ok());
    Ok(public.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")))
}

fn apply(apply: &MeshApply, home: &Path, changes: &mut Vec<MeshChange>) -> Result<(), FolderError> {
    let plan = &apply.plan;
    let id = checked(&plan.id)?;
    let dry = apply.private.is_none();
    let (folder, made) = if let Some(folder) = Folder::open(home)? {
        (folder, false)
    } else {
        changes.push(change("~/.ssh", "new folder, 0700", &[]));
        if dry {
            changes.extend(all_new(plan));
            return Ok(());
        }
        (Folder::make(home)?, true)
    };
    let _lock = folder.lock()?;
    let [key, conf, known] = names(id);
    // The key before what lets it in, what lets it in before what uses it.
    if public(&folder, id)?.as_ref() != Some(&plan.public) {
        changes.push(change(&path(&key), "private key (ed25519), 0600", &[]));
        if let Some(private) = &apply.private {
            folder.write(&key, private.0.as_bytes())?;
        }
    }
    let old_conf = folder.read(&conf)?.unwrap_or_default();
    let made = made || old_conf.starts_with(MADE_FOLDER.as_bytes());
    let conf_text = if made { format!("{MADE_FOLDER}{}", plan.config) } else { plan.config.clone() };
    for (name, text) in [(&known, &plan.known_hosts), (&conf, &conf_text)] {
        let old = folder.read(name)?;
        if old.as_deref() != Some(text.as_bytes()) {
            let what = if old.is_some() { "replaced, 0600" } else { "new, 0600" };
            changes.push(change(&path(name), what, &lines(text)));
            if !dry {
                folder.write(name, text.as_bytes())?;
            }
        }
    }
    let include = format!("Include {}", path(&conf));
    for (name, line) in [(AUTHORIZED, &plan.authorized), (CONFIG, &include)] {
        let old = folder.read(name)?;
        let new = block::put(old.as_deref(), id, line).map_err(|error| FolderError::marks(name, &error))?;
        if old.as_deref() != Some(&new) {
            let what = if old.is_some() { "at its beginning" } else { "new, 0600" };
            changes.push(change(&path(name), what, &Marks::of(id, old.is_none()).lines(line)));
            if !dry {
                folder.write(name, &new)?;
            }
        }
    }
    Ok(())
}

/// What is written where nothing is.
fn all_new(plan: &MeshPlan) -> Vec<MeshChange> {
    let [key, conf, known] = names(&plan.id);
    let marked = |line: &str| Marks::of(&plan.id, true).lines(line);
    vec![
        change(&path(&key), "private key (ed25519), 0600", &[]),
        change(&path(&known), "new, 0600", &lines(&plan.known_hosts)),
        change(&path(&conf), "new, 0600", &lines(&format!("{MADE_FOLDER}{}", plan.config))),
        change(&path(AUTHORIZED), "new, 0600", &marked(&plan.authorized)),
        change(&path(CONFIG), "new, 0600", &marked(&format!("Include {}", path(&conf)))),
    ]
}

fn remove(asked: &MeshRemove, home: &Path, changes: &mut Vec<MeshChange>) -> Result<(), FolderError> {
    let id = checked(&asked.id)?;
    let Some(folder) = Folder::open(home)? else { return Ok(()) };
    let lock = folder.lock()?;
    // What uses the key before what lets it in, and the key last.
    for name in [CONFIG, AUTHORIZED] {
        let Some(old) = folder.read(name)? else { continue };
        let taken = block::take(&old, id).map_err(|error| FolderError::marks(name, &error))?;
        let Some(rest) = taken else { continue };
        let gone = rest.made && rest.text.is_empty();
        changes.push(change(&path(name), if gone { "removed" } else { "marked lines removed" }, &[]));
        match (asked.dry, gone) {
            (true, _) => {}
            (false, true) => folder.remove(name)?,
            (false, false) => folder.write(name, &rest.text)?,
        }
    }
    let [key, conf, known] = names(id);
    let made = folder.read(&conf)?.is_some_and(|text| text.starts_with(MADE_FOLDER.as_bytes()));
    for name in [conf, known, key] {
        if folder.read(&name)?.is_some() {
            changes.push(change(&path(&name), "removed", &[]));
            if !asked.dry {
                folder.remove(&name)?;
            }
        }
    }
    drop(lock);
    if made && !asked.dry && folder.names()?.is_empty() {
        changes.push(change("~/.ssh", "removed", &[]));
        folder.remove_itself()?;
    }
    Ok(())
}

fn change(path: &str, what: &str, lines: &[String]) -> MeshChange {
    MeshChange { path: path.to_owned(), what: what.to_owned(), lines: lines.to_vec() }
}

fn path(name: &str) -> String {
    format!("~/.ssh/{name}")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
