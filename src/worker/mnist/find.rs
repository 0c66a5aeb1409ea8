//! Where the data set is. What is named is looked at alone; else the usual places are, in turn.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::error::{self, MnistError};

/// Keras' name for it.
const NPZ: &str = "mnist.npz";
/// The original's names, as [`Found::Idx`] has them; some mirrors write `.idx`, and most files are packed.
const IDX: [(&str, &str); 4] = [
    ("train-images", "idx3-ubyte"),
    ("train-labels", "idx1-ubyte"),
    ("t10k-images", "idx3-ubyte"),
    ("t10k-labels", "idx1-ubyte"),
];

/// A data set's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// One of Keras' kind.
    Npz(PathBuf),
    /// Images and labels to train on, then those held out.
    Idx([PathBuf; 4]),
}

/// Looks where `data` says; if it says nothing: in Keras' folder, in the working folder, and where torchvision's
/// examples put it.
pub fn find(data: Option<&Path>, keras: Option<&Path>) -> Result<Found, MnistError> {
    let mut looked = Vec::new();
    let found = match data.filter(|path| !path.as_os_str().is_empty()) {
        Some(named) => named_one(&whole(named), &mut looked)?,
        None => usual(keras, &mut looked)?,
    };
    found.ok_or(MnistError::Absent { looked })
}

/// What a person named: a file, or a folder with the data set, or the one above torchvision's.
fn named_one(named: &Path, looked: &mut Vec<String>) -> Result<Option<Found>, MnistError> {
    if is_there(named)? && !named.is_dir() {
        return file(named, looked).map(Some);
    }
    match folder(named, looked)? {
        None => folder_of_idx(&named.join("MNIST/raw"), looked),
        found => Ok(found),
    }
}

fn usual(keras: Option<&Path>, looked: &mut Vec<String>) -> Result<Option<Found>, MnistError> {
    if let Some(datasets) = keras.map(|keras| whole(keras).join("datasets"))
        && let Some(found) = folder(&datasets, looked)?
    {
        return Ok(Some(found));
    }
    let npz = whole(Path::new(NPZ));
    if is_there(&npz)? {
        return Ok(Some(Found::Npz(npz)));
    }
    looked.push(npz.display().to_string());
    folder_of_idx(&whole(Path::new("data/MNIST/raw")), looked)
}

/// A path that says where it is wherever it is read.
fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn is_there(path: &Path) -> Result<bool, MnistError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(source) => Err(MnistError::Open { path: path.to_owned(), source }),
    }
}

/// By content, since people rename; one of the IDX files stands for the four in its folder.
fn file(path: &Path, looked: &mut Vec<String>) -> Result<Found, MnistError> {
    let mut head = Vec::new();
    let read = error::open(path)?.take(4).read_to_end(&mut head);
    read.map_err(|source| MnistError::Open { path: path.to_owned(), source })?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if head.starts_with(b"PK") || name.ends_with(".npz") {
        return Ok(Found::Npz(path.to_owned()));
    }
    if !IDX.iter().any(|part| spellings(*part).iter().any(|spelling| *spelling == name)) {
        return Err(MnistError::Unknown { path: path.to_owned() });
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    folder_of_idx(folder, looked)?.ok_or_else(|| MnistError::Absent { looked: std::mem::take(looked) })
}

fn folder(folder: &Path, looked: &mut Vec<String>) -> Result<Option<Found>, MnistError> {
    let npz = folder.join(NPZ);
    if is_there(&npz)? {
        return Ok(Some(Found::Npz(npz)));
    }
    looked.push(npz.display().to_string());
    folder_of_idx(folder, looked)
}

fn folder_of_idx(folder: &Path, looked: &mut Vec<String>) -> Result<Option<Found>, MnistError> {
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for part in IDX {
        let mut there = None;
        for path in spellings(part).map(|name| folder.join(name)) {
            if is_there(&path)? {
                there = Some(path);
                break;
            }
        }
        match there {
            Some(path) => found.push(path),
            None => absent.push(spellings(part)[0].clone()),
        }
    }
    let idx = |name: &str| folder.join(name).display().to_string();
    match <[PathBuf; 4]>::try_from(found) {
        Ok(paths) => return Ok(Some(Found::Idx(paths))),
        Err(some) if some.is_empty() => {
            looked.push(format!("{} and the three beside it (also .gz)", idx(&absent[0])));
        }
        Err(_) => looked.push(format!("{}, where these are missing: {}", idx(""), absent.join(", "))),
    }
    Ok(None)
}

/// The names of a file, the usual one first.
fn spellings((name, end): (&str, &str)) -> [String; 4] {
    [format!("{name}-{end}"), format!("{name}.{end}"), format!("{name}-{end}.gz"), format!("{name}.{end}.gz")]
}
