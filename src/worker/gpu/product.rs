//! Matrix products on the GPU: by cuBLAS, or by our own kernel where there is none.

use super::card::Card;
use super::error::GpuError;
use super::kernels;

/// A matrix in the GPU's memory, its rows one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix {
    pub(super) at: u64,
    /// Values from a row to the next.
    pub(super) stride: u32,
    /// Its transposed is meant.
    pub(super) transposed: bool,
}

impl Matrix {
    /// Rows of `stride` values.
    pub(super) fn rows(at: u64, stride: u32) -> Self {
        Self { at, stride, transposed: false }
    }

    /// The transposed matrix; nothing is moved.
    #[must_use]
    pub(super) fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// From a row to the next and from a column to the next.
    fn strides(self) -> (u32, u32) {
        if self.transposed { (1, self.stride) } else { (self.stride, 1) }
    }
}

/// `rows × inner` times `inner × columns`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) inner: u32,
}

/// Threads that our kernel is to have at least, by parts of the inner dimension.
const THREADS: u32 = 1 << 16;
/// The least that a part has of it.
const LEAST: u32 = 128;
/// Values of all parts of a product together, at most.
pub(super) const PARTS: usize = 16 * THREADS as usize;

/// Threads that a product takes where its inner dimension is whole, and into how many parts that is cut.
fn tiles(sizes: Sizes) -> (u32, u32) {
    let tiles = sizes.rows.div_ceil(4) * sizes.columns.div_ceil(4);
    (tiles, (THREADS / tiles.max(1)).clamp(1, sizes.inner.div_ceil(LEAST).max(1)))
}

/// Begins `product = left · right`, rows one after the other. `parts`: memory for [`PARTS`] values.
///
/// # Safety
/// As [`Card::launch`].
#[expect(unsafe_code, reason = "work on memory of the GPU")]
pub(super) unsafe fn multiply(
    card: &Card,
    left: Matrix,
    right: Matrix,
    product: u64,
    parts: u64,
    sizes: Sizes,
) -> Result<(), GpuError> {
    if let Ok(cublas) = &card.cublas {
        // SAFETY: the caller's promise.
        return unsafe { cublas.multiply(left, right, product, sizes) };
    }
    let (tiles, count) = tiles(sizes);
    let ((left_row, left_column), (right_row, right_column)) = (left.strides(), right.strides());
    let kernel = kernels::Product {
        left: left.at,
        right: right.at,
        product: if count > 1 { parts } else { product },
        threads: tiles * count,
        rows: sizes.rows,
        columns: sizes.columns,
        inner: sizes.inner,
        left_row,
        left_column,
        right_row,
        right_column,
        chunk: sizes.inner.div_ceil(count),
    };
    // SAFETY: the caller's promise.
    unsafe {
        card.launch(&kernel)?;
        if count > 1 {
            let threads = sizes.rows * sizes.columns;
            card.launch(&kernels::SumParts { parts, sum: product, threads, count })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_their_memory_and_cover_the_inner_dimension() {
        for rows in [1, 4, 9, 128, 288, 9216, 73_728] {
            for columns in [1, 10, 64, 128, 288] {
                for inner in [1, 32, 128, 1000, 9216, 73_728] {
                    let sizes = Sizes { rows, columns, inner };
                    let (tiles, count) = tiles(sizes);
                    assert!(count == 1 || (rows * columns * count) as usize <= PARTS, "{sizes:?}");
                    assert!(u64::from(tiles) * u64::from(count) < 1 << 31, "{sizes:?}");
                    let chunk = inner.div_ceil(count);
                    assert!(chunk * count >= inner && chunk * (count - 1) < inner + chunk, "{sizes:?}");
                }
            }
        }
    }
}
