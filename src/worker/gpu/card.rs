//! A GPU that is ready for training: its driver and architecture are new enough, our kernels are loaded, cuBLAS was looked for.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::panic::catch_unwind;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::cublas::Cublas;
use super::error::GpuError;
use super::kernels::{ALL, BLOCK, Kernel, MODULES};
use crate::collective::nccl::{Device, NcclError, Places, cuda};

/// The first CUDA whose driver knows PTX 8.0.
const OLDEST_DRIVER: i32 = 12_000;
/// The architecture that the PTX is for.
const OLDEST_CARD: i32 = 7;

/// One card with everything that a network needs of it. Its work goes on one stream.
pub(in crate::worker) struct Card {
    // Before the stream that it works on.
    /// cuBLAS; or why there is none.
    pub(super) cublas: Result<Cublas, String>,
    pub(super) device: Device,
    pub(super) stream: Arc<CudaStream>,
    functions: BTreeMap<&'static CStr, CUfunction>,
}

impl Card {
    /// The card that a rank uses which is the `local`-th of its host: launchers of ours show each rank its own, others
    /// show all to all.
    pub(in crate::worker) fn open(local: usize, places: &Places) -> Result<Self, GpuError> {
        let version = driver_version()?;
        if version < OLDEST_DRIVER {
            return Err(GpuError::OldDriver { version: version_text(version) });
        }
        let count = match CudaContext::device_count() {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
            counted => usize::try_from(counted.map_err(cuda("start the driver"))?).unwrap_or(0),
        };
        if count == 0 {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").map(|value| format!("'{value}'"));
            return Err(GpuError::NoCard { visible: visible.unwrap_or_else(|_| "not set".to_owned()) });
        }
        let device = Device::open(local % count)?;
        let context = device.context();
        let (major, minor) = context.compute_capability().map_err(cuda("read the GPU's architecture"))?;
        if major < OLDEST_CARD {
            return Err(GpuError::OldCard { capability: format!("{major}.{minor}") });
        }
        let functions = load()?;
        let stream = context.new_stream().map_err(cuda("make a stream"))?;
        let cublas = Cublas::find(places, &stream);
        Ok(Self { cublas, device, stream, functions })
    }

    /// For the log: the card, and what multiplies.
    pub(in crate::worker) fn name(&self) -> String {
        let card = self.device.context().name().unwrap_or_else(|_| "a GPU without a name".to_owned());
        match &self.cublas {
            Ok(cublas) => format!("{card}, cuBLAS {}", cublas.name()),
            Err(why) => format!("{card}, without cuBLAS, by our own and slower matrix product: {why}"),
        }
    }

    /// For the collectives of GPUs.
    pub(in crate::worker) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.device.context()
    }

    /// Begins a kernel on the card's stream.
    ///
    /// # Safety
    /// The addresses in the arguments are of this card's memory, long enough for what the kernel's source says of them. That memory lives, and
    /// isn't used on other streams, until the stream has come past the kernel.
    #[expect(unsafe_code, reason = "work on memory of the GPU")]
    pub(super) unsafe fn launch<K: Kernel>(&self, kernel: &K) -> Result<(), GpuError> {
        let Some(function) = self.functions.get(K::NAME).copied().filter(|_| kernel.threads() > 0) else {
            return Ok(());
        };
        self.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        let mut args = [std::ptr::from_ref(kernel).cast::<c_void>().cast_mut()];
        let blocks = kernel.threads().div_ceil(BLOCK);
        // SAFETY: the function takes one struct, of this type, by the promise of `Kernel`; the driver copies it during the
        // call. The rest is the caller's promise.
        let begun = unsafe {
            let (grid, block) = ((blocks, 1, 1), (BLOCK, 1, 1));
            result::launch_kernel(function, grid, block, 0, self.stream.cu_stream(), &mut args)
        };
        begun.map_err(cuda("begin a kernel")).map_err(GpuError::from)
    }
}

/// The driver's CUDA version as CUDA counts it. «No driver» is an ordinary answer.
#[expect(unsafe_code, reason = "calls of a C library")]
fn driver_version() -> Result<i32, NcclError> {
    let asked = catch_unwind(|| {
        // SAFETY: the probe opens and closes the driver's library; the question writes one number.
        unsafe {
            if !sys::is_culib_present() {
                return Err(NcclError::NoDriver);
            }
            let mut version = 0;
            sys::cuDriverGetVersion(&raw mut version).result().map_err(cuda("ask the driver's version"))?;
            Ok(version)
        }
    });
    // The bindings panic where a function is missing.
    asked.unwrap_or(Ok(0))
}

fn version_text(version: i32) -> String {
    if version == 0 {
        "of before 11".to_owned()
    } else {
        format!("{}.{}", version / 1000, version % 1000 / 10)
    }
}

/// Every kernel, from modules that stay until the process ends.
#[expect(unsafe_code, reason = "calls of a C library")]
fn load() -> Result<BTreeMap<&'static CStr, CUfunction>, GpuError> {
    let mut modules = Vec::with_capacity(MODULES.len());
    for text in MODULES {
        // SAFETY: a text with a final zero; the context is current.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) };
        modules.push(module.map_err(cuda("load our kernels"))?);
    }
    let mut functions = BTreeMap::new();
    for (name, _) in ALL.iter().copied() {
        let found = modules.iter().find_map(|module| {
            // SAFETY: a module that is never unloaded.
            unsafe { result::module::get_function(*module, name.to_owned()) }.ok()
        });
        let missing = || NcclError::Cuda {
            what: "load our kernels",
            reason: format!("the driver doesn't find {} in them", name.to_string_lossy()),
        };
        functions.insert(name, found.ok_or_else(missing)?);
    }
    Ok(functions)
}
