//! `digits`: a small CNN on the 8×8 digits. The last 360 are held out and never trained on.
//!
//! A digit lies on a canvas with a margin, so that the convolutions see its edges too, and in training it is moved by
//! up to one pixel each way, because 1,437 digits of a few writers are little to learn from.

use super::classifier::Kind;
use super::data::{self, PIXELS};
use super::error::WorkerError;
use super::images::Images;
use super::model::cnn::Shape;
use super::task::Defaults;

const HELD_OUT: usize = 360;
/// Side of a digit, pixels.
const SIDE: usize = 8;
/// Empty pixels around it.
const MARGIN: usize = 2;
const CANVAS: usize = SIDE + 2 * MARGIN;

/// The job.
pub(super) const KIND: Kind = Kind {
    name: "digits",
    shape: Shape { side: CANVAS, filters: [32, 64], hidden: 64, classes: 10, dropout: [0.25, 0.5] },
    defaults: Defaults { epochs: 40, batch: 32, rate: 1e-3 },
};

/// Its images.
pub(super) struct Digits(data::Digits);

impl Digits {
    pub(super) fn new() -> Result<Self, WorkerError> {
        Ok(Self(data::digits()?))
    }
}

impl Images for Digits {
    fn side(&self) -> usize {
        CANVAS
    }

    fn training(&self) -> usize {
        self.0.labels.len() - HELD_OUT
    }

    fn held_out(&self) -> usize {
        HELD_OUT
    }

    fn label(&self, sample: usize) -> u8 {
        self.0.labels[sample]
    }

    fn paint(&self, sample: usize, draw: Option<u64>, pixels: &mut [f32]) {
        let shift = |draw: u64| [draw as u32 % 3, (draw >> 32) as u32 % 3].map(|way| way as usize);
        // 1 is the middle.
        let [row, column] = draw.map_or([1, 1], shift).map(|way| MARGIN + way - 1);
        pixels.fill(0.0);
        let digit = &self.0.images[sample * PIXELS..][..PIXELS];
        for (y, line) in digit.chunks_exact(SIDE).enumerate() {
            pixels[(row + y) * CANVAS + column..][..SIDE].copy_from_slice(line);
        }
    }
}
