//! What an engine's `save` prints, taken apart: the image's configuration and its layers, each a file named by its hash.
//!
//! Engines write an archive of docker's form: `manifest.json` names the configuration and the layers, from the bottom up.
//! Docker has written it at the end until 25, and names of files say nothing of their content; since then they do
//! (`blobs/sha256/HASH`). A link stands for a layer that is there already.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::domain::sync::Digest;
use crate::sha256::{CHUNK, Hasher};

/// A list of layers longer than this is none.
const MOST_MANIFEST: u64 = 4 << 20;

/// A content of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blob {
    /// Its hash.
    pub name: Digest,
    /// Its length.
    pub size: u64,
}

/// A whole image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its configuration.
    pub config: Blob,
    /// Its layers, from the bottom up; compressed where the engine keeps them so.
    pub layers: Vec<Blob>,
}

/// Why an archive can't be taken apart.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// Reading it, or writing a content.
    #[error("{0}")]
    Io(String),
    /// It is no archive of an image.
    #[error("what it has printed is no image: {0}")]
    Malformed(String),
    /// It is not wanted any more.
    #[error("it was called off")]
    Stopped,
}

/// One image of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    layers: Vec<String>,
}

/// Takes an archive apart into files of `dir`. `told` hears of each content as soon as it is there, and how many bytes were
/// read; where it gives `false`, it goes no further.
pub fn read(
    archive: impl Read,
    dir: &Path,
    mut told: impl FnMut(Option<Blob>, u64) -> bool,
) -> Result<Saved, SavedError> {
    let mut archive = tar::Archive::new(archive);
    let mut found: HashMap<PathBuf, Blob> = HashMap::new();
    let mut links: HashMap<PathBuf, PathBuf> = HashMap::new();
    let torn = |error: io::Error| SavedError::Malformed(error.to_string());
    let mut before = 0;
    for entry in archive.entries().map_err(torn)? {
        let mut entry = entry.map_err(torn)?;
        let path = clean(&entry.path().map_err(torn)?);
        match entry.header().entry_type() {
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let blob = keep(&mut entry, dir, |read| told(None, before + read))?;
                before += blob.size;
                found.insert(path, blob);
                if !told(Some(blob), before) {
                    return Err(SavedError::Stopped);
                }
            }
            tar::EntryType::Symlink | tar::EntryType::Link => {
                let link = entry.link_name().map_err(torn)?.unwrap_or_default();
                let is_hard = entry.header().entry_type() == tar::EntryType::Link;
                let from = if is_hard { Path::new("") } else { path.parent().unwrap_or(Path::new("")) };
                links.insert(path.clone(), clean(&from.join(link)));
            }
            _ => {}
        }
    }
    // who writes it must not find its reader gone before its end
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(torn)?;
    let find = |name: &str| {
        let path = clean(Path::new(name));
        found.get(&path).or_else(|| found.get(links.get(&path)?)).copied()
    };
    let missing = |name: &str| SavedError::Malformed(format!("it has no {name}"));
    let list = find("manifest.json").ok_or_else(|| missing("manifest.json"))?;
    if list.size > MOST_MANIFEST {
        return Err(SavedError::Malformed("its manifest.json is too large".to_owned()));
    }
    let text =
        fs::read(dir.join(list.name.to_string())).map_err(|error| SavedError::Io(error.to_string()))?;
    let listed: Vec<Listed> = serde_json::from_slice(&text)
        .map_err(|error| SavedError::Malformed(format!("manifest.json: {error}")))?;
    let [image] = &listed[..] else {
        return Err(SavedError::Malformed(format!("it has {} images", listed.len())));
    };
    let layers = image.layers.iter().map(|name| find(name).ok_or_else(|| missing(name)));
    let config = find(&image.config).ok_or_else(|| missing(&image.config))?;
    Ok(Saved { config, layers: layers.collect::<Result<_, _>>()? })
}

/// Writes what comes into a file of its hash's name.
fn keep(from: &mut impl Read, dir: &Path, mut told: impl FnMut(u64) -> bool) -> Result<Blob, SavedError> {
    let draft = dir.join("draft");
    let failed = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ": make room there for the whole image"
            }
            _ => "",
        };
        SavedError::Io(format!("write {}: {error}{remedy}", draft.display()))
    };
    let mut open = OpenOptions::new();
    let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(&draft).map_err(failed)?;
    let (mut hash, mut size) = (Hasher::default(), 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SavedError::Malformed(error.to_string())),
        };
        let data = buffer.get(..read).unwrap_or_default();
        file.write_all(data).map_err(failed)?;
        hash.update(data);
        size += read as u64;
        if !told(size) {
            return Err(SavedError::Stopped);
        }
    }
    let name = hash.finish();
    fs::rename(&draft, dir.join(name.to_string())).map_err(failed)?;
    Ok(Blob { name, size })
}

/// A path of an archive without `.` and `..`, which can't leave it.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sha256::of_bytes;

    fn file(archive: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content).unwrap();
    }

    fn link(archive: &mut tar::Builder<Vec<u8>>, path: &str, to: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, path, to).unwrap();
    }

    fn read_all(archive: &[u8]) -> (Result<Saved, String>, Vec<Blob>) {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let saved = read(archive, dir.path(), |blob, _| {
            told.extend(blob);
            true
        });
        (saved.map_err(|error| error.to_string()), told)
    }

    #[test]
    fn an_archive_of_either_age_gives_its_layers_in_order() {
        let manifest = br#"[{"Config":"c.json","RepoTags":["x:1"],"Layers":["b/layer.tar","a/layer.tar","l/layer.tar"]}]"#;
        let mut old = tar::Builder::new(Vec::new());
        file(&mut old, "a/VERSION", b"1.0");
        file(&mut old, "a/layer.tar", b"above");
        file(&mut old, "b/layer.tar", b"below");
        link(&mut old, "l/layer.tar", "../a/layer.tar");
        file(&mut old, "c.json", b"{}");
        file(&mut old, "manifest.json", manifest);
        let (saved, told) = read_all(&old.into_inner().unwrap());
        let saved = saved.unwrap();
        let names: Vec<Digest> = saved.layers.iter().map(|blob| blob.name).collect();
        assert_eq!(names, [of_bytes(b"below"), of_bytes(b"above"), of_bytes(b"above")]);
        assert_eq!(saved.config, Blob { name: of_bytes(b"{}"), size: 2 });
        assert_eq!(told.len(), 5, "also what is no part of it: {told:?}");
        let mut young = tar::Builder::new(Vec::new());
        file(&mut young, "manifest.json", br#"[{"Config":"blobs/sha256/c","Layers":["./blobs/sha256/1"]}]"#);
        file(&mut young, "blobs/sha256/1", b"one");
        file(&mut young, "blobs/sha256/c", b"{}");
        let (saved, _) = read_all(&young.into_inner().unwrap());
        assert_eq!(saved.unwrap().layers, [Blob { name: of_bytes(b"one"), size: 3 }]);
    }

    #[test]
    fn what_is_no_image_is_told() {
        let fault = |archive: &[u8]| read_all(archive).0.unwrap_err();
        assert!(fault(b"").ends_with("it has no manifest.json"));
        assert!(fault(b"Error response from daemon").starts_with("what it has printed is no image: "));
        let mut cut = tar::Builder::new(Vec::new());
        file(&mut cut, "a/layer.tar", &[7; 4000]);
        assert!(fault(&cut.into_inner().unwrap()[..2000]).starts_with("what it has printed is no image: "));
        let mut two = tar::Builder::new(Vec::new());
        file(&mut two, "manifest.json", br#"[{"Config":"c","Layers":[]},{"Config":"d","Layers":[]}]"#);
        assert!(fault(&two.into_inner().unwrap()).ends_with("it has 2 images"));
        let mut large = tar::Builder::new(Vec::new());
        let room = vec![b' '; usize::try_from(MOST_MANIFEST).unwrap() + 1];
        file(&mut large, "manifest.json", &room);
        assert!(fault(&large.into_inner().unwrap()).ends_with("its manifest.json is too large"));
        let mut lost = tar::Builder::new(Vec::new());
        file(&mut lost, "manifest.json", br#"[{"Config":"c","Layers":["../../etc/passwd"]}]"#);
        file(&mut lost, "c", b"{}");
        assert!(fault(&lost.into_inner().unwrap()).ends_with("it has no ../../etc/passwd"));
    }
}
