//! The libraries of CUDA: NVRTC and cublasLt.
//!
//! The binding panics when it is used without them, so they are loaded by hand first, from the places where planish looks
//! for libraries. The binding then finds what is loaded by its name.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Mutex;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::Unavailable;
use crate::find::{Search, SharedLibrary};

/// The environment variable that names the folder of both.
const VARIABLE: &str = "PLANISH_CUDA_LIB";

static NVRTC: SharedLibrary = SharedLibrary {
    option: VARIABLE,
    variable: VARIABLE,
    file: "libnvrtc.so",
    folder: "nvrtc",
    system: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
};

static CUBLASLT: SharedLibrary = SharedLibrary {
    option: VARIABLE,
    variable: VARIABLE,
    file: "libcublasLt.so",
    folder: "cublas",
    system: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
};

/// Loads both. Returns where NVRTC was found.
///
/// # Errors
/// When one is missing.
pub(super) fn load(runtime: &'static str) -> Result<String, Unavailable> {
    let location = nvrtc(runtime)?;
    // SAFETY: the library is the user's cublasLt, which runs its constructors.
    find(&CUBLASLT, runtime, || unsafe { cudarc::cublaslt::sys::is_culib_present() })?;
    Ok(location)
}

/// Loads NVRTC alone, which compiles kernels without a GPU. Returns where it was found.
///
/// # Errors
/// When it is missing.
pub(super) fn nvrtc(runtime: &'static str) -> Result<String, Unavailable> {
    // SAFETY: the library is the user's NVRTC, which runs its constructors.
    find(&NVRTC, runtime, || unsafe { cudarc::nvrtc::sys::is_culib_present() })
}

/// Loads a library, so that the binding finds it.
fn find(
    library: &'static SharedLibrary,
    runtime: &'static str,
    is_found: impl Fn() -> bool,
) -> Result<String, Unavailable> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut looked = Vec::new();
    for place in Search::of_process(library, None).places() {
        let files = match place.files() {
            Ok(files) => files,
            Err(reason) => {
                looked.push(format!("{place}: {reason}"));
                continue;
            }
        };
        for file in files {
            match open(&file) {
                Ok(()) if is_found() => return Ok(format!("{} ({})", file.display(), place.rule())),
                Ok(()) => looked.push(format!("{}: it is not of CUDA 12 or 13", file.display())),
                Err(reason) => looked.push(format!("{}: {reason}", file.display())),
            }
        }
    }
    Err(Unavailable {
        runtime,
        reason: format!("{} of CUDA 12 or 13 was not found", library.file),
        looked,
        remedy: format!(
            "install the CUDA toolkit, or the Python packages nvidia-cuda-nvrtc and nvidia-cublas, and name the folder of \
             the libraries with {VARIABLE} or LD_LIBRARY_PATH"
        ),
    })
}

/// Opens a library for good, behind those of its folder that it asks the loader for by their names.
fn open(file: &Path) -> Result<(), String> {
    if let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(OsStr::to_str))
        && let Some((stem, _)) = name.split_once(".so")
    {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let builtins = format!("{stem}-builtins.so");
        let files = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&builtins));
        files.map(|entry| entry.path()).try_for_each(|file| global(&file))?;
    }
    global(file)
}

fn global(file: &Path) -> Result<(), String> {
    // SAFETY: loading a library runs its constructors; that it is the user's is what the search order is for.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| e.to_string())?;
    std::mem::forget(library);
    Ok(())
}
