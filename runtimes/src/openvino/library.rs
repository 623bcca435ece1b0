//! Loading OpenVINO's shared library, once in a process.
//!
//! The binding panics when it is used without a good library, so a library is probed by hand first and the binding is
//! entered only with one that passed.

use std::error::Error;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use openvino_sys::{ov_status_e, ov_version_t};

use super::{LIBRARY_VARIABLE, RUNTIME};
use crate::find::{Place, Search};
use crate::{Description, Unavailable};

/// The first version whose numbers of element types are those of the binding.
const OLDEST: (u32, u32) = (2025, 1);

/// The library of this process.
struct Loaded {
    description: Description,
    path: PathBuf,
}

/// What the library of this process is, which is loaded if it is not yet.
pub(super) fn load(search: &Search) -> Result<&'static Description, Unavailable> {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let loaded = match LOADED.get() {
        Some(loaded) => {
            search.agrees(&loaded.path).map_err(|unavailable| Unavailable { runtime: RUNTIME, ..unavailable })?;
            loaded
        }
        None => find(search).map(|loaded| LOADED.get_or_init(|| loaded))?,
    };
    Ok(&loaded.description)
}

fn find(search: &Search) -> Result<Loaded, Unavailable> {
    search.first(start).map_err(|looked| Unavailable {
        runtime: RUNTIME,
        reason: format!("no OpenVINO {}.{} or newer was found", OLDEST.0, OLDEST.1),
        looked,
        remedy: format!(
            "install the Python package openvino in the Python environment of planish or in the active one (`pip install openvino`), or \
             name the file libopenvino_c.so.* with --runtime-option openvino-lib=PATH or {LIBRARY_VARIABLE}"
        ),
    })
}

/// Loads a library that passes the probe into the binding.
fn start(path: &Path, place: &Place) -> Result<Loaded, String> {
    let version = probe(path)?;
    openvino_sys::library::load_from(path)?;
    let location = format!("{} ({})", path.display(), place.rule());
    Ok(Loaded { description: Description { product: "openvino", version, location }, path: path.to_owned() })
}

/// Loads the file and returns the version that it says it is, or why it is of no use.
fn probe(path: &Path) -> Result<String, String> {
    // SAFETY: loading a library runs its constructors; that it is the user's OpenVINO is what the search order is for.
    let library = unsafe { libloading::Library::new(path) }
        .map_err(|e| e.source().map_or_else(|| e.to_string(), ToString::to_string))?;
    // SAFETY: the types of both symbols in ov_core.h.
    let functions = unsafe {
        (
            library.get::<unsafe extern "C" fn(*mut ov_version_t) -> ov_status_e>(b"ov_get_openvino_version\0"),
            library.get::<unsafe extern "C" fn(*mut ov_version_t)>(b"ov_version_free\0"),
        )
    };
    let (Ok(get), Ok(free)) = functions else {
        return Err("it does not export ov_get_openvino_version, so it is no OpenVINO".to_owned());
    };
    let mut version = ov_version_t { buildNumber: std::ptr::null(), description: std::ptr::null() };
    // SAFETY: the function writes to the struct, which `free` takes back.
    let status = unsafe { get(&raw mut version) };
    if status != ov_status_e::OK {
        return Err("it does not tell its version".to_owned());
    }
    let text = version.buildNumber.cast::<c_char>();
    // SAFETY: the function succeeded, so the text is null or ends in zero.
    let build =
        if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() };
    // SAFETY: the struct is one that `get` filled.
    unsafe { free(&raw mut version) };
    // Closing and opening again would run constructors twice; the library stays for good.
    std::mem::forget(library);
    // A build is `2026.4.0-22959-64b3b8f8a6c`.
    let version = build.split('-').next().unwrap_or_default().to_owned();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(year)), Some(Ok(release))) if (year, release) >= OLDEST => Ok(version),
        _ => Err(format!("it is version {build}; {}.{} or newer is needed", OLDEST.0, OLDEST.1)),
    }
}
