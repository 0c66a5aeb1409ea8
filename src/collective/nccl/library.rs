//! NCCL's functions, looked up once in a file that was found.
//!
//! cudarc's own loader can't do this: it never tries `libnccl.so.2`, the only name that NVIDIA's packages and wheels
//! install; it looks for bare names, so that a process can't point it to a file after its start; and a missing file or
//! function is a panic there. So the functions are looked up here, from a path, and a missing one is an error.
//! Result codes are plain numbers for the same reason: a newer library has codes that an older header's
//! enumeration doesn't know.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

use cudarc::driver::sys::CUstream;
use libloading::os::unix::{Library as File, RTLD_LOCAL, RTLD_NOW};

use super::super::element::{DType, Reduce};
use super::error::NcclError;
use super::places::{NCCL, Places};

/// `ncclSuccess`.
pub(super) const SUCCESS: c_int = 0;
/// `ncclInProgress`.
pub(super) const IN_PROGRESS: c_int = 7;
/// The version that brought communicators which don't block.
const OLDEST: c_int = 21_400;

/// `ncclComm_t`: a pointer that only the library looks behind.
pub(super) type RawComm = *mut c_void;

/// `ncclUniqueId`: where the ranks of one communicator meet.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// The fields of `ncclConfig_t` that version 2.14 had. The library reads as many bytes as `size` says, and takes its
/// defaults for what came later.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

impl Config {
    /// A communicator whose calls return at once, and are polled.
    pub(super) fn polled() -> Self {
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: OLDEST as u32, blocking: 0 }
    }
}

type OnComm = unsafe extern "C" fn(RawComm) -> c_int;
type OnCode = unsafe extern "C" fn(*mut c_int) -> c_int;
type InitRank = unsafe extern "C" fn(*mut RawComm, c_int, UniqueId, c_int, *mut Config) -> c_int;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, CUstream) -> c_int;
type Broadcast =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, CUstream) -> c_int;

/// Memory that NCCL works on without a copy: since 2.19.
#[derive(Clone, Copy)]
pub(super) struct Registering {
    pub(super) allocate: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int,
    pub(super) free: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) register: unsafe extern "C" fn(RawComm, *mut c_void, usize, *mut *mut c_void) -> c_int,
    pub(super) deregister: unsafe extern "C" fn(RawComm, *mut c_void) -> c_int,
}

/// A loaded NCCL. It is never unloaded: its CUDA runtime registers handlers that must not lose their code.
pub struct Library {
    path: String,
    version: c_int,
    pub(super) get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    pub(super) init_rank: InitRank,
    pub(super) async_error: unsafe extern "C" fn(RawComm, *mut c_int) -> c_int,
    pub(super) abort: OnComm,
    pub(super) finalize: OnComm,
    pub(super) destroy: OnComm,
    pub(super) allreduce: AllReduce,
    pub(super) broadcast: Broadcast,
    pub(super) registering: Option<Registering>,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(RawComm) -> *const c_char,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Library({} {})", self.path, self.version())
    }
}

impl Library {
    /// The first NCCL that loads; see [`Places::first`].
    pub fn find(places: &Places) -> Result<Self, NcclError> {
        places.first(&NCCL, Self::open)?.ok_or_else(|| {
            let set = places.setting.is_some();
            let also = if set { "HVTUI_GPU_LIBS, " } else { "" };
            NcclError::NoLibrary(format!(
                "not in {also}the loader's path, CUDA's folders or a Python's packages"
            ))
        })
    }

    /// The NCCL in `path`; a bare name is looked up by the loader.
    #[expect(unsafe_code, reason = "loads a C library and looks up its functions")]
    pub fn open(path: &Path) -> Result<Self, NcclError> {
        let named = path.display().to_string();
        let broken =
            |error: libloading::Error| NcclError::Broken { path: named.clone(), reason: words(&error) };
        let file = load(path)?;
        // SAFETY (all lookups): the types are those of nccl.h, which the 2 in the SONAME promises to keep.
        let version = unsafe {
            let get = *file.get::<OnCode>(b"ncclGetVersion\0").map_err(broken)?;
            let mut version = 0;
            code(get(&raw mut version)).map_err(|code| NcclError::Broken {
                path: named.clone(),
                reason: format!("ncclGetVersion failed with {code}"),
            })?;
            version
        };
        if version < OLDEST {
            return Err(NcclError::TooOld { path: named, version: version_text(version) });
        }
        // SAFETY: as above.
        unsafe {
            Ok(Self {
                version,
                get_unique_id: *file.get(b"ncclGetUniqueId\0").map_err(broken)?,
                init_rank: *file.get(b"ncclCommInitRankConfig\0").map_err(broken)?,
                async_error: *file.get(b"ncclCommGetAsyncError\0").map_err(broken)?,
                abort: *file.get(b"ncclCommAbort\0").map_err(broken)?,
                finalize: *file.get(b"ncclCommFinalize\0").map_err(broken)?,
                destroy: *file.get(b"ncclCommDestroy\0").map_err(broken)?,
                allreduce: *file.get(b"ncclAllReduce\0").map_err(broken)?,
                broadcast: *file.get(b"ncclBroadcast\0").map_err(broken)?,
                error_string: *file.get(b"ncclGetErrorString\0").map_err(broken)?,
                last_error: *file.get(b"ncclGetLastError\0").map_err(broken)?,
                registering: registering(&file),
                path: named.clone(),
            })
        }
    }

    /// `2.27.5`.
    pub fn version(&self) -> String {
        version_text(self.version)
    }

    /// As NCCL counts it: `10000 * major + 100 * minor + patch`.
    pub(super) fn version_code(&self) -> i64 {
        self.version.into()
    }

    /// The file, or the name by which the loader found it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A place where the ranks of one communicator can meet; opens a port on this host.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: writes 128 bytes to a pointer that outlives the call.
        code(unsafe { (self.get_unique_id)(&raw mut id) })
            .map_err(|code| self.refused("make a unique id", code, std::ptr::null_mut()))?;
        Ok(id)
    }

    /// The library's words for `code`, and for what happened last in `comm`.
    #[expect(unsafe_code, reason = "calls of a C library")]
    pub(super) fn refused(&self, what: &'static str, code: c_int, comm: RawComm) -> NcclError {
        // SAFETY: both give a text with a final zero that the library keeps, or null; any code and a null or living
        // communicator are allowed.
        let (general, last) = unsafe { (text((self.error_string)(code)), text((self.last_error)(comm))) };
        let general = general.unwrap_or_else(|| "no text".to_owned());
        // Texts of the library come with line ends of their own.
        let last = last.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        let reason = match last.filter(|last| !last.is_empty()) {
            Some(last) => format!("{general} ({code}): {last}"),
            None => format!("{general} ({code})"),
        };
        NcclError::Nccl { what, reason }
    }
}

/// A library of NVIDIA's, which is never unloaded.
#[expect(unsafe_code, reason = "loads a C library")]
pub(crate) fn load(path: &Path) -> Result<ManuallyDrop<File>, NcclError> {
    // SAFETY: runs the library's constructors, which is what loading one means. Immediate binding, so that a
    // file with missing parts fails here and not in the middle of a call.
    let file = unsafe { File::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    file.map(ManuallyDrop::new)
        .map_err(|error| NcclError::Broken { path: path.display().to_string(), reason: words(&error) })
}

/// `Err` unless the code is success.
pub(super) fn code(code: c_int) -> Result<(), c_int> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

#[expect(unsafe_code, reason = "looks up functions of a C library")]
fn registering(file: &File) -> Option<Registering> {
    // SAFETY: the types are those of nccl.h since these functions exist (2.19).
    unsafe {
        Some(Registering {
            allocate: *file.get(b"ncclMemAlloc\0").ok()?,
            free: *file.get(b"ncclMemFree\0").ok()?,
            register: *file.get(b"ncclCommRegister\0").ok()?,
            deregister: *file.get(b"ncclCommDeregister\0").ok()?,
        })
    }
}

/// # Safety
/// `text` is null or ends with a zero and is not changed during the call.
#[expect(unsafe_code, reason = "reads a C text")]
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The loader's own words, which the wrapper keeps one level down.
pub(crate) fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// NCCL counts `10000 * major + 100 * minor + patch` since 2.9, and `1000 * major` before.
pub(super) fn version_text(version: c_int) -> String {
    let major = if version >= 10_000 { 10_000 } else { 1000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

/// `ncclDataType_t`.
pub(super) fn dtype_code(dtype: DType) -> c_int {
    match dtype {
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
    }
}

/// `ncclRedOp_t`.
pub(super) fn reduce_code(how: Reduce) -> c_int {
    match how {
        Reduce::Sum => 0,
        Reduce::Max => 2,
        Reduce::Min => 3,
        Reduce::Mean => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(
            [22_705, 23_203, 21_400, 2_804].map(version_text),
            ["2.27.5", "2.32.3", "2.14.0", "2.8.4"]
        );
    }

    #[test]
    fn the_configuration_has_the_layout_of_2_14() {
        // size_t, two unsigned, one int, and what aligns it.
        assert_eq!((size_of::<Config>(), Config::polled().size, Config::polled().blocking), (24, 24, 0));
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        use cudarc::nccl::sys::{ncclDataType_t as Data, ncclRedOp_t as Op, ncclResult_t as Answer};
        let pairs = [
            (DType::F32, Data::ncclFloat32),
            (DType::F64, Data::ncclFloat64),
            (DType::F16, Data::ncclFloat16),
            (DType::I32, Data::ncclInt32),
            (DType::I64, Data::ncclInt64),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(dtype_code(ours), theirs as c_int, "{ours}");
        }
        let ops = [
            (Reduce::Sum, Op::ncclSum),
            (Reduce::Mean, Op::ncclAvg),
            (Reduce::Min, Op::ncclMin),
            (Reduce::Max, Op::ncclMax),
        ];
        for (ours, theirs) in ops {
            assert_eq!(reduce_code(ours), theirs as c_int, "{ours}");
        }
        assert_eq!((SUCCESS, IN_PROGRESS), (Answer::ncclSuccess as c_int, Answer::ncclInProgress as c_int));
    }

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NCCL.files[0]), "not ELF").unwrap();
        let places = Places { setting: Some(folder.path().into()), ..Places::default() };
        let error = Library::find(&places).unwrap_err();
        assert!(matches!(&error, NcclError::Broken { path, .. } if path.ends_with(NCCL.files[0])), "{error}");
    }
}
