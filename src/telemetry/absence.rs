//! Why a host shows no GPU: NVML's error as the one of the known kinds of trouble that it is, with both
//! versions where library and kernel module differ.

use std::ffi::{CStr, c_char, c_uint};
use std::fs;
use std::path::Path;

use nvml_wrapper::error::NvmlError;

use crate::domain::host::{GpuAbsence, GpuAbsenceReason};

/// What `error`, which ended the initialisation of the library at `library`, means for a person.
pub(super) fn absence(error: &NvmlError, library: &Path) -> GpuAbsence {
    let reason = reason(error);
    let detail = match reason {
        GpuAbsenceReason::DriverMismatch => {
            mismatch(loaded_version().as_deref(), library_version(library).as_deref())
        }
        GpuAbsenceReason::DriverNotLoaded => match library_version(library) {
            Some(version) => format!("{error}; library {version} installed"),
            None => error.to_string(),
        },
        _ => match error {
            // The loader's words alone, without the wrapper's.
            NvmlError::LibloadingError(loader) => loader.to_string(),
            other => other.to_string(),
        },
    };
    GpuAbsence { reason, detail }
}

/// Library and driver work and count nothing.
pub(super) fn no_device(driver: Option<&str>) -> GpuAbsence {
    let detail = match driver {
        Some(version) => format!("driver {version} counts 0 devices"),
        None => "the driver counts 0 devices".to_owned(),
    };
    GpuAbsence { reason: GpuAbsenceReason::NoDevice, detail }
}

fn reason(error: &NvmlError) -> GpuAbsenceReason {
    match error {
        // The loader's only way to say so is its text; any other failure (wrong architecture, missing
        // symbol) is a broken installation and not an absent one.
        NvmlError::LibloadingError(loader) if loader.to_string().contains("No such file or directory") => {
            GpuAbsenceReason::NoLibrary
        }
        NvmlError::LibRmVersionMismatch => GpuAbsenceReason::DriverMismatch,
        NvmlError::DriverNotLoaded => GpuAbsenceReason::DriverNotLoaded,
        NvmlError::NotFound => GpuAbsenceReason::NoDevice,
        NvmlError::NoPermission => GpuAbsenceReason::NoPermission,
        _ => GpuAbsenceReason::Other,
    }
}

fn mismatch(loaded: Option<&str>, library: Option<&str>) -> String {
    format!(
        "driver {} loaded, library {} installed",
        loaded.unwrap_or("of unknown version"),
        library.unwrap_or("of unknown version")
    )
}

/// The version of the kernel module that is loaded now.
fn loaded_version() -> Option<String> {
    let proc = fs::read_to_string("/proc/driver/nvidia/version").ok();
    proc.as_deref()
        .and_then(module_version)
        .or_else(|| fs::read_to_string("/sys/module/nvidia/version").ok().map(|text| text.trim().to_owned()))
}

/// The first word of `/proc/driver/nvidia/version` that is a version: digits and dots alone.
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    line.split_ascii_whitespace().find(is_version).map(str::to_owned)
}

/// The version of the library, which tells it even when it refuses to work with the driver.
///
/// The wrapper closes the library when its initialisation fails, so it is opened once more here.
#[expect(
    unsafe_code,
    reason = "the one call that NVML answers without initialisation, which the wrapper needs"
)]
fn library_version(library: &Path) -> Option<String> {
    /// `nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)` of nvml.h.
    type GetVersion = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;
    let mut buffer: [c_char; 80] = [0; 80];
    // SAFETY: loading runs the constructors of a library that the wrapper has just loaded the same way; the
    // symbol has this type since NVML 2; the function writes at most the given length, and the library
    // stays open until the call is over.
    let code = unsafe {
        let library = libloading::Library::new(library).ok()?;
        let get = library.get::<GetVersion>(b"nvmlSystemGetNVMLVersion\0").ok()?;
        get(buffer.as_mut_ptr(), 80)
    };
    // The last byte was never given away, so that the text ends inside the buffer.
    buffer[79] = 0;
    // SAFETY: the buffer ends with a zero byte and lives longer than this borrow.
    let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
    (code == 0).then(|| driver_part(&text.to_string_lossy()).to_owned())
}

/// NVML's version is `<CUDA major>.<driver version>`; people know the second part.
fn driver_part(version: &str) -> &str {
    match version.split_once('.') {
        Some((major, rest)) if major.len() <= 2 && rest.contains('.') => rest,
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_says_its_version() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n\
                      GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@x)\n";
        assert_eq!(module_version(closed).as_deref(), Some("550.54.15"));
        assert_eq!(module_version(open).as_deref(), Some("580.95.05"));
        assert_eq!(module_version("GCC version: 12.2.0\n"), None);
        assert_eq!(module_version(""), None);
    }

    #[test]
    fn the_library_says_its_version() {
        assert_eq!(driver_part("12.550.90.07"), "550.90.07");
        assert_eq!(driver_part("13.580.95"), "580.95");
        assert_eq!(driver_part("550.90.07"), "550.90.07");
        assert_eq!(driver_part("12.550"), "12.550");
        assert_eq!(library_version(Path::new("/nonexistent/libnvidia-ml.so.1")), None);
    }

    #[test]
    fn a_mismatch_names_both_versions() {
        assert_eq!(
            mismatch(Some("550.54.15"), Some("550.90.07")),
            "driver 550.54.15 loaded, library 550.90.07 installed"
        );
        assert_eq!(
            mismatch(None, Some("550.90.07")),
            "driver of unknown version loaded, library 550.90.07 installed"
        );
    }

    #[test]
    fn each_error_has_its_kind() {
        use GpuAbsenceReason as Reason;
        for (error, expected) in [
            (NvmlError::LibRmVersionMismatch, Reason::DriverMismatch),
            (NvmlError::DriverNotLoaded, Reason::DriverNotLoaded),
            (NvmlError::NoPermission, Reason::NoPermission),
            (NvmlError::Unknown, Reason::Other),
        ] {
            assert_eq!(reason(&error), expected, "{error}");
        }
    }
}
