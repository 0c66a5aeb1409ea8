//! Labelled images, whatever they are read from.

use super::model::cnn::Shape;

/// Labelled square grey images of ten classes: what a CNN job learns from.
pub(super) trait Images: Send {
    /// Which images these are, where that is not always the same: a line for people.
    fn source(&self) -> Option<String> {
        None
    }

    /// Pixels of a side.
    fn side(&self) -> usize;

    /// How many there are to train on: samples `0..training`.
    fn training(&self) -> usize;

    /// How many are held out: samples `training..training + held_out`.
    fn held_out(&self) -> usize;

    /// The class of a sample.
    fn label(&self, sample: usize) -> u8;

    /// Writes a sample's pixels, 0 to 1, row by row. `draw`: random bits to move it by in training; `None` when it is
    /// evaluated.
    fn paint(&self, sample: usize, draw: Option<u64>, pixels: &mut [f32]);
}

/// Puts samples where a GPU takes them from: what a job whose network it knows has for it.
pub(super) trait Painter {
    /// The network.
    fn shape(&self) -> Shape;

    /// How many samples are held out, behind those to train on.
    fn held_out(&self) -> usize;

    /// Pixels of an image.
    fn pixels(&self) -> usize;

    /// Writes samples, one after the other, and their classes. `draws`: a key, and the first one's place in the batch, to
    /// move them by in training; `None` when they are evaluated.
    fn fill(&self, samples: &[usize], draws: Option<(u64, usize)>, pixels: &mut [f32], labels: &mut [u8]);
}
