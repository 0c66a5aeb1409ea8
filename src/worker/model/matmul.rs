//! Matrix products over strided views: the one place that calls the `gemm` crate.

use gemm::Parallelism;

use super::real::Real;

/// A matrix that is read: any strides, rows may overlap.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T> View<'a, T> {
    /// `rows` rows of `cols` neighbouring values, a row every `row_stride` values.
    pub fn rows(data: &'a [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// The transposed matrix; nothing is moved.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    fn fits(&self) -> bool {
        self.rows == 0
            || self.cols == 0
            || (self.rows - 1) * self.row_stride + (self.cols - 1) * self.col_stride < self.data.len()
    }
}

/// What becomes of the values that are in the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// They are overwritten.
    Replace,
    /// The product is added to them.
    Add,
}

/// `dst (=|+=) lhs · rhs`, on this thread alone. `dst` is row-major with a row every `dst_stride` values.
///
/// # Panics
/// If shapes don't match or a view reaches beyond its slice: a bug of the calling layer.
#[expect(unsafe_code, reason = "gemm takes raw pointers; every view is checked against its slice first")]
pub fn multiply<T: Real>(dst: &mut [T], dst_stride: usize, mode: Store, lhs: View<'_, T>, rhs: View<'_, T>) {
    let (m, n, k) = (lhs.rows, rhs.cols, lhs.cols);
    assert_eq!(k, rhs.rows, "inner dimensions differ");
    assert!(lhs.fits() && rhs.fits(), "a view reaches beyond its slice");
    if m == 0 || n == 0 {
        return;
    }
    assert!(dst_stride >= n && (m - 1) * dst_stride + n <= dst.len(), "the product reaches beyond its slice");
    // SAFETY: the largest offset of each of the three matrices lies within its slice (checked above), strides are
    // not negative, rows of `dst` don't overlap (`dst_stride >= n`), and `dst` can't alias the others, being `&mut`.
    // Slices never exceed `isize::MAX` bytes, so no stride wraps. `T` is f32 or f64 (the only `Real`s), which gemm
    // supports.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst.as_mut_ptr(),
            1,
            dst_stride as isize,
            mode == Store::Add,
            lhs.data.as_ptr(),
            lhs.col_stride as isize,
            lhs.row_stride as isize,
            rhs.data.as_ptr(),
            rhs.col_stride as isize,
            rhs.row_stride as isize,
            T::ONE,
            T::ONE,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_overlapping_and_transposed_views() {
        let x: Vec<f64> = (0..8).map(f64::from).collect();
        // Rows 0 1 2 / 1 2 3 / 2 3 4 of one slice, times the transposed of itself.
        let view = View::rows(&x, 3, 3, 1);
        let mut product = [100.0; 12];
        multiply(&mut product, 4, Store::Replace, view, view.transposed());
        let whole = |values: &[f64]| values.iter().map(|value| *value as i32).collect::<Vec<_>>();
        assert_eq!(whole(&product), [5, 8, 11, 100, 8, 14, 20, 100, 11, 20, 29, 100]);
        multiply(&mut product, 4, Store::Add, view, view.transposed());
        assert_eq!(whole(&product[..3]), [10, 16, 22]);
    }

    #[test]
    #[should_panic(expected = "a view reaches beyond its slice")]
    fn a_view_beyond_its_slice_is_caught() {
        let x = [0.0_f32; 8];
        multiply(&mut [0.0; 9], 3, Store::Replace, View::rows(&x, 3, 3, 3), View::rows(&x, 3, 2, 2));
    }
}
