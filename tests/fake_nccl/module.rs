//! The driver's modules and kernels: the text is PTX, what runs is the same source made for this processor.
//!
//! `FAKE_CUDA_KERNELS` names the library that `processor.h` tells how to make. A kernel must be an entry of the text, with as
//! many bytes of arguments there as in the library.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

use crate::gpu::{Run, Work, gpu};
use crate::script;

type Code = c_uint;
const OK: Code = 0;
const INVALID_VALUE: Code = 1;
const INVALID_IMAGE: Code = 200;
const UNSUPPORTED_PTX: Code = 222;
const NOT_FOUND: Code = 500;

struct Function {
    name: String,
    run: Run,
    bytes: usize,
}

fn kernels() -> Option<&'static Library> {
    static KERNELS: OnceLock<Option<Library>> = OnceLock::new();
    // SAFETY: a library of the test's own, without constructors.
    KERNELS.get_or_init(|| unsafe { Library::new(script::variable("FAKE_CUDA_KERNELS")) }.ok()).as_ref()
}

/// # Safety
/// `image` is a text with a final zero, `module` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_char) -> Code {
    let Ok(text) = unsafe { CStr::from_ptr(image) }.to_str() else { return INVALID_IMAGE };
    if script::variable("FAKE_CUDA_PTX") == "refused" {
        return UNSUPPORTED_PTX;
    }
    if !text.contains("\n.version 8.0\n") || !text.contains("\n.target sm_70\n") {
        return INVALID_IMAGE;
    }
    // Modules live as long as the process, as the program's do.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    unsafe { module.write(Box::into_raw(Box::new(text)) as usize) };
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(_: usize) -> Code {
    OK
}

/// # Safety
/// `module` is one of ours, `name` a text with a final zero, `function` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> Code {
    let text = unsafe { *(module as *const &'static str) };
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let Some(kernels) = kernels() else { return NOT_FOUND };
    if !text.contains(&format!(".visible .entry {name}(")) {
        return NOT_FOUND;
    }
    let (run, size) = (format!("run_{name}\0"), format!("size_of_{name}\0"));
    // SAFETY: the types of `processor.h`.
    let found = unsafe { (kernels.get::<Run>(run.as_bytes()), kernels.get::<*const u32>(size.as_bytes())) };
    let (Ok(run), Ok(size)) = found else { return NOT_FOUND };
    let bytes = unsafe { **size } as usize;
    if !text.contains(&format!("{name}_param_0[{bytes}]")) {
        return INVALID_IMAGE;
    }
    let made = Box::new(Function { name, run: *run, bytes });
    unsafe { function.write(Box::into_raw(made) as usize) };
    OK
}

/// # Safety
/// `function` is one of ours and `params` points to one pointer to its arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: usize,
    params: *const *const c_void,
    extra: *const c_void,
) -> Code {
    let flat = (grid_y, grid_z, block_y, block_z, shared) == (1, 1, 1, 1, 0);
    if !flat || grid == 0 || block == 0 || block > 1024 || !extra.is_null() || !crate::cuda::has_context() {
        return INVALID_VALUE;
    }
    let function = unsafe { &*(function as *const Function) };
    // The driver copies the arguments at once.
    let args =
        unsafe { std::slice::from_raw_parts((*params).cast::<u64>(), function.bytes.div_ceil(8)) }.to_vec();
    script::log(&format!("launch {}", function.name));
    gpu().put(stream, Work::Kernel { run: function.run, grid, block, args });
    OK
}
