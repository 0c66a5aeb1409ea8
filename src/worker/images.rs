//! What a job that learns from images asks of its data set.

/// Labelled square grey images: what a CNN job learns from.
pub(super) trait Images: Send {
    /// Pixels.
    fn side(&self) -> usize;
    /// Samples `0..training`.
    fn training(&self) -> usize;
    /// Samples `training..training + held_out`.
    fn held_out(&self) -> usize;
    /// One of 10 classes.
    fn label(&self, sample: usize) -> u8;
    /// Writes a sample's pixels, 0 to 1, `side * side`. `draw`: random bits to move it by in training; `None` when it
    /// is evaluated.
    fn paint(&self, sample: usize, draw: Option<u64>, pixels: &mut [f32]);
}
