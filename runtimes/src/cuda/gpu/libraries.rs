//! The libraries of CUDA: NVRTC and cublasLt.
//!
//! The binding opens them by their names, and panics where there are none. They are loaded by hand first, from the places
//! where planish looks for libraries; the binding then finds what is loaded by its name, unless the system's loader finds
//! another file first. What it did open is asked of the loader.

use std::env;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::Unavailable;
use crate::find::{Place, Rule, Search, SharedLibrary};

/// The environment variable that names the folders of both.
const VARIABLE: &str = "PLANISH_CUDA_LIB";

static NVRTC: SharedLibrary = SharedLibrary {
    product: "NVRTC",
    option: VARIABLE,
    variable: VARIABLE,
    file: "libnvrtc.so",
    folder: "nvrtc",
    packages: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
    system: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
};

static CUBLASLT: SharedLibrary = SharedLibrary {
    product: "cuBLASLt",
    option: VARIABLE,
    variable: VARIABLE,
    file: "libcublasLt.so",
    folder: "cublas",
    packages: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
    system: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
};

/// A library that the binding uses.
pub(super) struct Loaded {
    /// Its file.
    file: PathBuf,
    /// By which rule it was found.
    rule: String,
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file.display(), self.rule)
    }
}

/// Loads NVRTC and cublasLt.
///
/// # Errors
/// When one is missing, or the binding uses another file than the user named.
pub(super) fn load(runtime: &'static str) -> Result<[Loaded; 2], Unavailable> {
    let nvrtc = nvrtc(runtime)?;
    let opened = || {
        // SAFETY: the library is the user's cublasLt, which runs its constructors.
        let library = unsafe { cudarc::cublaslt::sys::is_culib_present().then(|| cudarc::cublaslt::sys::culib()) }?;
        file_of(library, b"cublasLtCreate\0")
    };
    Ok([nvrtc, find(&CUBLASLT, runtime, opened)?])
}

/// Loads NVRTC alone, which compiles kernels without a GPU.
///
/// # Errors
/// As [`load`].
pub(super) fn nvrtc(runtime: &'static str) -> Result<Loaded, Unavailable> {
    let opened = || {
        // SAFETY: the library is the user's NVRTC, which runs its constructors.
        let library = unsafe { cudarc::nvrtc::sys::is_culib_present().then(|| cudarc::nvrtc::sys::culib()) }?;
        file_of(library, b"nvrtcVersion\0")
    };
    find(&NVRTC, runtime, opened)
}

/// The places in order: the folders or files that the variable names, else those where planish looks for libraries.
fn places(library: &'static SharedLibrary) -> Vec<Place> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty());
    match named {
        Some(paths) => env::split_paths(&paths).map(|path| Place { library, rule: Rule::Variable, path }).collect(),
        None => Search::of_process(library, None).places(),
    }
}

/// Loads a library, and asks the binding for the file that it opened.
fn find(
    library: &'static SharedLibrary,
    runtime: &'static str,
    opened: impl Fn() -> Option<PathBuf>,
) -> Result<Loaded, Unavailable> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut looked = Vec::new();
    for place in places(library) {
        let files = match place.files() {
            Ok(files) => files,
            Err(reason) => {
                looked.push(format!("{place}: {reason}"));
                continue;
            }
        };
        for file in files {
            if let Err(reason) = open(&file) {
                looked.push(format!("{}: {reason}", file.display()));
                continue;
            }
            let Some(used) = opened() else {
                looked.push(format!("{}: it is not of CUDA 12 or 13", file.display()));
                continue;
            };
            let rule = place.rule();
            // A bare name is for the loader to find.
            if place.rule == Rule::System || is_same(&used, &file) {
                return Ok(Loaded { file: used, rule: rule.to_owned() });
            }
            if place.rule == Rule::Variable {
                return Err(another(runtime, library, &file, &used));
            }
            return Ok(Loaded { file: used, rule: "the system's loader".to_owned() });
        }
    }
    Err(Unavailable {
        runtime,
        reason: format!("{} of CUDA 12 or 13 was not found", library.file),
        looked,
        remedy: format!(
            "install the CUDA toolkit, or the Python packages nvidia-cuda-nvrtc and nvidia-cublas, and name the folder of \
             the libraries with {VARIABLE} or LD_LIBRARY_PATH; {VARIABLE} may name several, with colons between"
        ),
    })
}

fn another(runtime: &'static str, library: &SharedLibrary, named: &Path, used: &Path) -> Unavailable {
    let folder = used.parent().unwrap_or(used).display();
    Unavailable {
        runtime,
        reason: format!("{VARIABLE} names {}, but the system's loader finds {} first", named.display(), used.display()),
        looked: Vec::new(),
        remedy: format!(
            "take {folder} out of LD_LIBRARY_PATH, or name it with {VARIABLE}; a link `{}` to the file, in a folder that \
             comes first in LD_LIBRARY_PATH, also makes it the one that is found",
            library.file
        ),
    }
}

/// Whether two paths are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Opens a library for good, after those of its folder that it asks the loader for by their names.
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

/// What the loader says of an address (dladdr(3)).
#[repr(C)]
struct Symbol {
    file: *const c_char,
    start: *mut c_void,
    name: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, symbol: *mut Symbol) -> c_int;
}

/// The file in which a function of a library is.
fn file_of(library: &libloading::Library, function: &[u8]) -> Option<PathBuf> {
    let mut found = Symbol {
        file: std::ptr::null(),
        start: std::ptr::null_mut(),
        name: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: the function is not called. The loader writes the structure, whose texts live as long as the library, which
    // the binding never closes.
    unsafe {
        let address = library.get::<unsafe extern "C" fn()>(function).ok()?;
        if dladdr((*address as *const ()).cast(), &raw mut found) == 0 || found.file.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(found.file).to_bytes())))
    }
}
