//! The five functions of cuBLAS that are needed, looked up in a file that was found. None is an ordinary state.
//!
//! Found as NCCL is (`collective::nccl::Places`), for the same reason: the loader knows bare names only, and most hosts
//! have the library nowhere but in a Python's packages.

use std::ffi::{c_int, c_void};
use std::path::Path;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;

use super::error::GpuError;
use super::product::{Matrix, Sizes};
use crate::collective::nccl::{NcclError, Places, Wanted, load, words};

const CUBLAS: Wanted = Wanted {
    files: &["libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"],
    wheels: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
};

type Handle = *mut c_void;
type Sgemm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    u64,
    c_int,
    u64,
    c_int,
    *const f32,
    u64,
    c_int,
) -> c_int;

/// The library's functions. It is never unloaded.
struct Functions {
    path: String,
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    version: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, CUstream) -> c_int,
    set_math_mode: unsafe extern "C" fn(Handle, c_int) -> c_int,
    sgemm: Sgemm,
}

impl Functions {
    #[expect(unsafe_code, reason = "looks up functions of a C library")]
    fn open(path: &Path) -> Result<Self, NcclError> {
        let named = path.display().to_string();
        let broken =
            |error: libloading::Error| NcclError::Broken { path: named.clone(), reason: words(&error) };
        if let Some((folder, name)) = path.parent().zip(path.file_name().and_then(|name| name.to_str()))
            && path.is_absolute()
        {
            // It needs its other half, which lies beside it and which not every package tells the loader of. Where that
            // fails the library itself says so.
            let _ = load(&folder.join(name.replacen("libcublas", "libcublasLt", 1)));
        }
        let file = load(path)?;
        // SAFETY: the types are those of cublas_v2.h, equal in versions 11 to 13.
        unsafe {
            Ok(Self {
                create: *file.get(b"cublasCreate_v2\0").map_err(broken)?,
                destroy: *file.get(b"cublasDestroy_v2\0").map_err(broken)?,
                version: *file.get(b"cublasGetVersion_v2\0").map_err(broken)?,
                set_stream: *file.get(b"cublasSetStream_v2\0").map_err(broken)?,
                set_math_mode: *file.get(b"cublasSetMathMode\0").map_err(broken)?,
                sgemm: *file.get(b"cublasSgemm_v2\0").map_err(broken)?,
                path: named.clone(),
            })
        }
    }
}

/// A cuBLAS at work on one stream.
pub(super) struct Cublas {
    functions: Functions,
    handle: Handle,
    version: c_int,
}

impl Cublas {
    /// The first that loads and starts; else why there is none, in words for people.
    #[expect(unsafe_code, reason = "calls of a C library")]
    pub(super) fn find(places: &Places, stream: &CudaStream) -> Result<Self, String> {
        const FULL_PRECISION: c_int = 0;
        let functions = places.first(&CUBLAS, Functions::open).map_err(|error| error.to_string())?;
        let functions = functions.ok_or(
            "no libcublas.so in HVTUI_GPU_LIBS, the loader's path, CUDA's folders or a Python's packages",
        )?;
        stream.context().bind_to_thread().map_err(|error| error.to_string())?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one pointer to one that outlives the call; the GPU's context is current.
        let code = unsafe { (functions.create)(&raw mut handle) };
        if code != 0 {
            return Err(format!("{}: can't start: failed with {code}", functions.path));
        }
        let mut found = Self { functions, handle, version: 0 };
        // SAFETY: a living handle and its context's stream.
        let codes = unsafe {
            [
                (found.functions.version)(handle, &raw mut found.version),
                (found.functions.set_stream)(handle, stream.cu_stream()),
                // Not the tensor cores' 10-bit fractions: the result is to be the CPU's.
                (found.functions.set_math_mode)(handle, FULL_PRECISION),
            ]
        };
        match codes.into_iter().find(|code| *code != 0) {
            Some(code) => Err(format!("{}: can't start: failed with {code}", found.functions.path)),
            None => Ok(found),
        }
    }

    /// `12.1.3`, and the file.
    pub(super) fn name(&self) -> String {
        let (major, minor, patch) = (self.version / 10_000, self.version % 10_000 / 100, self.version % 100);
        format!("{major}.{minor}.{patch} ({})", self.functions.path)
    }

    /// Begins `product = left · right`.
    ///
    /// # Safety
    /// The matrices are memory of this GPU that lives, and isn't used on other streams, until the stream has done it.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) unsafe fn multiply(
        &self,
        left: Matrix,
        right: Matrix,
        product: u64,
        sizes: Sizes,
    ) -> Result<(), GpuError> {
        let int = |value: u32| value as c_int;
        let op = |matrix: Matrix| c_int::from(matrix.transposed);
        let (one, zero) = (1_f32, 0_f32);
        // The library stores columns; a matrix of rows is its transposed, and so the product is right times left.
        // SAFETY: the caller's promise; the factors are read during the call.
        let code = unsafe {
            (self.functions.sgemm)(
                self.handle,
                op(right),
                op(left),
                int(sizes.columns),
                int(sizes.rows),
                int(sizes.inner),
                &raw const one,
                right.at,
                int(right.stride),
                left.at,
                int(left.stride),
                &raw const zero,
                product,
                int(sizes.columns),
            )
        };
        if code == 0 { Ok(()) } else { Err(GpuError::Cublas { what: "multiply", code }) }
    }
}

impl Drop for Cublas {
    #[expect(unsafe_code, reason = "a call of a C library")]
    fn drop(&mut self) {
        // SAFETY: created by `find` and destroyed once.
        let _ = unsafe { (self.functions.destroy)(self.handle) };
    }
}
