//! The one module of telemetry that calls CUDA's libraries: which CUDA the driver serves, which NCCL is there.
//!
//! Both are looked up when the program runs; most hosts of a CPU cluster have neither. A library that is
//! absent, too old or broken is an `Err` with its reason: every call is behind a probe, and a panic of the
//! bindings (a missing symbol) is caught.
//!
//! NCCL has a trap of names: NVIDIA's packages and the Python wheels install `libnccl.so.2` alone, and the
//! bindings' probe looks for `libnccl.so` and never for that. So that name is tried here as well, with the
//! loader's own search path; a version found in this way says that NCCL is installed, not that the bindings
//! can load it without the symlink.

use std::ffi::c_int;
use std::panic::catch_unwind;

/// The newest CUDA version that the installed driver serves, `13.0`, by `libcuda.so.1`.
pub(super) fn driver_version() -> Result<String, String> {
    catch_unwind(|| {
        let version = ask_driver()?;
        if version == 0 { Err("libcuda.so.1 finds no driver".to_owned()) } else { Ok(cuda_text(version)) }
    })
    .unwrap_or_else(|_| Err("libcuda.so.1 lacks a function".to_owned()))
}

#[expect(unsafe_code, reason = "calls of a C library")]
fn ask_driver() -> Result<c_int, String> {
    use cudarc::driver::sys;
    // SAFETY: the probe only opens and closes the driver's library, whose constructors do nothing but
    // set up its own state.
    if !unsafe { sys::is_culib_present() } {
        return Err("no libcuda.so.1".to_owned());
    }
    let mut version: c_int = 0;
    // SAFETY: the call needs no cuInit and writes one int to the pointer, which outlives it.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(|error| format!("libcuda.so.1: {:?}", error.0))?;
    Ok(version)
}

/// The version of the NCCL that the loader finds, `2.27.5`.
pub(super) fn nccl_version() -> Result<String, String> {
    catch_unwind(|| ask_nccl_bindings().unwrap_or_else(ask_nccl_by_soname).map(nccl_text))
        .unwrap_or_else(|_| Err("libnccl.so lacks a function".to_owned()))
}

/// `None`: the bindings find no library under the names that they know.
#[expect(unsafe_code, reason = "calls of a C library")]
fn ask_nccl_bindings() -> Option<Result<c_int, String>> {
    // SAFETY: the probe only opens and closes the library.
    if !unsafe { cudarc::nccl::sys::is_culib_present() } {
        return None;
    }
    Some(cudarc::nccl::result::get_nccl_version().map_err(|error| format!("libnccl.so: {:?}", error.0)))
}

#[expect(unsafe_code, reason = "calls of a C library")]
fn ask_nccl_by_soname() -> Result<c_int, String> {
    /// `ncclResult_t ncclGetVersion(int *version)` of nccl.h.
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    let mut version: c_int = 0;
    // SAFETY: the SONAME's 2 is the promise that `ncclGetVersion` has this type, and it writes one int to a
    // pointer that outlives the call. The library is never closed: its CUDA runtime registers handlers that
    // must not lose their code.
    let code = unsafe {
        let library = libloading::Library::new("libnccl.so.2").map_err(|_| "no libnccl.so.2".to_owned())?;
        let library = std::mem::ManuallyDrop::new(library);
        let get = library
            .get::<GetVersion>(b"ncclGetVersion\0")
            .map_err(|error| format!("libnccl.so.2: {error}"))?;
        get(&raw mut version)
    };
    if code == 0 { Ok(version) } else { Err(format!("libnccl.so.2: ncclGetVersion failed with {code}")) }
}

/// CUDA counts `1000 * major + 10 * minor`.
pub(super) fn cuda_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// NCCL counts `10000 * major + 100 * minor + patch` since 2.9, and `1000 * major` before.
fn nccl_text(version: c_int) -> String {
    let major_unit = if version >= 10_000 { 10_000 } else { 1000 };
    format!("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(cuda_text(13_000), "13.0");
        assert_eq!(cuda_text(12_020), "12.2");
        assert_eq!(cuda_text(11_040), "11.4");
        assert_eq!(nccl_text(22_705), "2.27.5");
        assert_eq!(nccl_text(2_804), "2.8.4");
    }

    #[test]
    fn a_probe_answers_or_says_why_not() {
        // On a machine with the libraries these are versions; without them, reasons. Never a panic.
        for answer in [driver_version(), nccl_version()] {
            match answer {
                Ok(version) => assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}"),
                Err(reason) => assert!(reason.contains("lib"), "{reason}"),
            }
        }
    }
}
