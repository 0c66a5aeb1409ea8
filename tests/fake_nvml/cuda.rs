//! The same file under the names `libcuda.so.1` and `libnccl.so.2`: the versions that those libraries tell.

use std::ffi::{c_int, c_uint};

use crate::script;

/// `CUresult cuDriverGetVersion(int *driverVersion)` of cuda.h.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    let value = script::once_it_answers("cuDriverGetVersion", None).cuda;
    // SAFETY: the caller's pointer is for writing.
    unsafe { version.write(value) };
    0
}

/// `ncclResult_t ncclGetVersion(int *version)` of nccl.h.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_uint {
    let value = script::once_it_answers("ncclGetVersion", None).nccl;
    // SAFETY: the caller's pointer is for writing.
    unsafe { version.write(value) };
    0
}
