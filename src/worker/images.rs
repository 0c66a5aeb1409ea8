//! Labelled images, whatever they are read from.

/// Labelled square grey images of ten classes: what a CNN job learns from.
pub(super) trait Images: Send {
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
