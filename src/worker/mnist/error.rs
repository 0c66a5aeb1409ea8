//! Why there are no images.

use std::fs::File;
use std::path::{Path, PathBuf};

/// Why a data set can't be used.
#[derive(Debug, thiserror::Error)]
pub enum MnistError {
    /// There is none.
    #[error(
        "no MNIST data set on this host. Looked for:\n  {}\n\
         It does not come with hvtui. Keras fetches it, to ~/.keras/datasets/mnist.npz:\n  \
         python3 -c 'import keras; keras.datasets.mnist.load_data()'\n\
         Copy that file, or the four IDX files, to each host, or name their place with --data or HVTUI_DATA.\n\
         `hvtui train digits` needs no files.",
        looked.join("\n  ")
    )]
    Absent {
        /// Every place, some with what is there.
        looked: Vec<String>,
    },
    /// What was named is neither of the two formats.
    #[error("{}: neither an .npz file nor one of the IDX files (train-images-idx3-ubyte and so on)", path.display())]
    Unknown {
        /// What was named.
        path: PathBuf,
    },
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// What is in a file is not what must be there.
    #[error("{place}: {reason}")]
    Damaged {
        /// The file, and the part of it.
        place: String,
        /// What is wrong.
        reason: String,
    },
}

impl MnistError {
    pub(super) fn damaged(place: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { place: place.to_owned(), reason: reason.into() }
    }
}

pub(super) fn open(path: &Path) -> Result<File, MnistError> {
    File::open(path).map_err(|source| MnistError::Open { path: path.to_owned(), source })
}
