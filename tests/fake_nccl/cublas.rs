//! What hvtui calls of `libcublas.so.12`: one matrix product.

use std::ffi::c_int;

use crate::gpu::{Product, Work, gpu};
use crate::script;

const OK: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;

struct Handle {
    stream: usize,
    full_precision: bool,
}

/// # Safety
/// `handle` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut usize) -> c_int {
    if script::variable("FAKE_CUBLAS") == "error" || !crate::cuda::has_context() {
        return NOT_INITIALIZED;
    }
    let made = Box::new(Handle { stream: 0, full_precision: false });
    unsafe { handle.write(Box::into_raw(made) as usize) };
    OK
}

/// # Safety
/// `handle` is one of ours, and never used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    script::log("cublasDestroy");
    drop(unsafe { Box::from_raw(handle as *mut Handle) });
    OK
}

/// # Safety
/// `version` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(_: usize, version: *mut c_int) -> c_int {
    unsafe { version.write(120_103) };
    OK
}

/// # Safety
/// `handle` is one of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    unsafe { &mut *(handle as *mut Handle) }.stream = stream;
    OK
}

/// # Safety
/// `handle` is one of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetMathMode(handle: usize, mode: c_int) -> c_int {
    unsafe { &mut *(handle as *mut Handle) }.full_precision = mode == 0;
    OK
}

/// # Safety
/// `handle` is one of ours, the factors can be read; the matrices when the stream comes to the product.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSgemm_v2(
    handle: usize,
    op_a: c_int,
    op_b: c_int,
    rows: c_int,
    columns: c_int,
    inner: c_int,
    alpha: *const f32,
    a: usize,
    lda: c_int,
    b: usize,
    ldb: c_int,
    beta: *const f32,
    c: usize,
    ldc: c_int,
) -> c_int {
    let handle = unsafe { &*(handle as *const Handle) };
    let (alpha, beta) = unsafe { (*alpha, *beta) };
    let plain = alpha.to_bits() == 1_f32.to_bits() && beta.to_bits() == 0 && handle.full_precision;
    // As the library checks it: a leading dimension spans a column of what is stored.
    let spans = lda >= if op_a == 0 { rows } else { inner }
        && ldb >= if op_b == 0 { inner } else { columns }
        && ldc >= rows;
    if !plain
        || !spans
        || rows <= 0
        || columns <= 0
        || inner <= 0
        || !(0..2).contains(&op_a)
        || !(0..2).contains(&op_b)
    {
        return INVALID_VALUE;
    }
    script::log("sgemm");
    let strides =
        |transposed: c_int, ld: c_int| if transposed == 0 { (1, ld as usize) } else { (ld as usize, 1) };
    let product = Product {
        sizes: [rows as usize, columns as usize, inner as usize],
        a,
        a_strides: strides(op_a, lda),
        b,
        b_strides: strides(op_b, ldb),
        c,
        ldc: ldc as usize,
    };
    gpu().put(handle.stream, Work::Product(product));
    OK
}
