//! MNIST as people have it on disk: Keras' `mnist.npz`, or the four IDX files of the original.
//!
//! Pixels stay bytes in memory (47 MB for the 60,000 images to train on). The files are a stranger's: nothing is
//! allocated for what a header says before the file can hold it, and every fault is said with its place.

mod array;
mod error;
mod find;
mod idx;
mod npy;
mod npz;

use std::path::{Path, PathBuf};

pub use error::MnistError;
pub use find::{Found, find};
pub use idx::{Kind, read_idx};
pub use npy::read_npy;
pub use npz::read_npz;

use super::classifier;
use super::images::Images;
use super::model::cnn::Shape;
use super::task::Defaults;

/// The job: the network of Horovod's example.
pub(super) const KIND: classifier::Kind = classifier::Kind {
    name: "mnist",
    shape: Shape { side: SIDE, filters: [32, 64], hidden: 128, classes: 10, dropout: [0.25, 0.5] },
    defaults: Defaults { epochs: 3, batch: 128, rate: 1e-3 },
};

/// Pixels of a side.
const SIDE: usize = 28;
/// Pixels of an image.
const PIXELS: usize = SIDE * SIDE;

/// Images with their labels: those to train on, then those held out.
#[derive(Debug, Clone)]
pub struct Mnist {
    /// The file or folder that it comes from.
    origin: PathBuf,
    training: usize,
    /// Of each sample in turn, a byte a pixel.
    pixels: [Vec<u8>; 2],
    labels: [Vec<u8>; 2],
}

impl Mnist {
    /// Reads what was found.
    pub fn open(found: &Found) -> Result<Self, MnistError> {
        match found {
            Found::Npz(path) => read_npz(path, error::open(path)?),
            Found::Idx(paths) => idx::read_files(paths),
        }
    }

    /// The data set that `data` names, else the first of the usual places.
    pub(super) fn load(data: Option<&Path>) -> Result<Self, MnistError> {
        let named = std::env::var_os("HVTUI_DATA").map(PathBuf::from);
        let keras = std::env::var_os("KERAS_HOME").filter(|path| !path.is_empty()).map(Into::into);
        let keras = keras.or_else(|| std::env::home_dir().map(|home| home.join(".keras")));
        Self::open(&find(data.or(named.as_deref()), keras.as_deref())?)
    }

    /// Images and labels of both parts, whose numbers must agree.
    fn new(
        origin: &Path,
        [training, held_out]: [(Vec<u8>, Vec<u8>); 2],
        names: [[String; 2]; 2],
    ) -> Result<Self, MnistError> {
        for ((pixels, labels), [of_pixels, of_labels]) in [&training, &held_out].into_iter().zip(names) {
            let count = pixels.len() / PIXELS;
            if count != labels.len() {
                let reason = format!("{} labels, but there are {count} images in {of_pixels}", labels.len());
                return Err(MnistError::Damaged { place: of_labels, reason });
            }
        }
        Ok(Self {
            origin: origin.to_owned(),
            training: training.1.len(),
            pixels: [training.0, held_out.0],
            labels: [training.1, held_out.1],
        })
    }

    /// Part, and number within it.
    fn place(&self, sample: usize) -> (usize, usize) {
        if sample < self.training { (0, sample) } else { (1, sample - self.training) }
    }
}

/// Equal images in the same order, wherever they come from.
impl PartialEq for Mnist {
    fn eq(&self, other: &Self) -> bool {
        self.pixels == other.pixels && self.labels == other.labels
    }
}

impl Images for Mnist {
    fn source(&self) -> Option<String> {
        let [training, held_out] = [self.training(), self.held_out()];
        Some(format!("{training} images to train on, {held_out} held out: {}", self.origin.display()))
    }

    fn side(&self) -> usize {
        SIDE
    }

    fn training(&self) -> usize {
        self.training
    }

    fn held_out(&self) -> usize {
        self.labels[1].len()
    }

    fn label(&self, sample: usize) -> u8 {
        let (part, at) = self.place(sample);
        self.labels[part][at]
    }

    /// Never moved: Horovod's example trains on the images as they are.
    fn paint(&self, sample: usize, _draw: Option<u64>, pixels: &mut [f32]) {
        let (part, at) = self.place(sample);
        for (pixel, ink) in pixels.iter_mut().zip(&self.pixels[part][at * PIXELS..][..PIXELS]) {
            *pixel = f32::from(*ink) / 255.0;
        }
    }
}

#[cfg(test)]
mod tests;
