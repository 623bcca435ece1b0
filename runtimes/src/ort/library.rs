//! Loading ONNX Runtime's shared library, once in a process.
//!
//! The binding panics when it is used without a good library, so a library is probed by hand
//! first and the binding is entered only with one that passed.

use std::error::Error;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::sys::{ORT_API_VERSION, OrtApiBase};

use crate::find::{Place, Rule, Search};
use crate::ort::{LIBRARY_VARIABLE, Provider};
use crate::{Description, Unavailable};

/// The library of this process.
pub(crate) struct Loaded {
    pub(crate) environment: Environment,
    pub(crate) description: Description,
    path: PathBuf,
}

/// The library of this process, loaded if it is not yet.
pub(crate) fn load(search: &Search) -> Result<&'static Loaded, Unavailable> {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match LOADED.get() {
        Some(loaded) => search
            .agrees(&loaded.path)
            .map(|()| loaded)
            .map_err(|unavailable| Unavailable { runtime: Provider::Cpu.runtime(), ..unavailable }),
        None => find(search).map(|loaded| LOADED.get_or_init(|| loaded)),
    }
}

fn find(search: &Search) -> Result<Loaded, Unavailable> {
    let usable = |path: &Path, place: &Place| probe(path).and_then(|version| start(path, &version, place));
    search.first(usable).map_err(|looked| Unavailable {
        runtime: Provider::Cpu.runtime(),
        reason: format!("no ONNX Runtime 1.{ORT_API_VERSION} or newer was found"),
        looked,
        remedy: format!(
            "install the Python package onnxruntime in the Python environment of planish or in the active one (`pip install \"planish[ort]\"`), or \
             name the file libonnxruntime.so.* with --runtime-option ort-lib=PATH or {LIBRARY_VARIABLE}"
        ),
    })
}

/// Loads the file and returns the version it says it is, or why it is of no use.
fn probe(path: &Path) -> Result<String, String> {
    // SAFETY: loading a library runs its constructors; that it is the user's ONNX Runtime is what
    // the search order is for.
    let library = unsafe { libloading::Library::new(path) }
        .map_err(|e| e.source().map_or_else(|| e.to_string(), ToString::to_string))?;
    // SAFETY: this is the type of the symbol in every version of onnxruntime_c_api.h.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const OrtApiBase>(b"OrtGetApiBase") }
        .map_err(|_| "it does not export OrtGetApiBase, so it is not ONNX Runtime".to_owned())?;
    // SAFETY: the function takes nothing and returns null or a table that lives as long as the
    // library.
    let base = unsafe { base().as_ref() }.ok_or("OrtGetApiBase returned nothing")?;
    // SAFETY: as above; the string is static and ends in zero.
    let version = unsafe { CStr::from_ptr((base.GetVersionString)()) }.to_string_lossy().into_owned();
    // SAFETY: as above; the result is only compared with null.
    if unsafe { (base.GetApi)(ORT_API_VERSION) }.is_null() {
        return Err(format!("it is version {version}; 1.{ORT_API_VERSION} or newer is needed"));
    }
    // Closing and opening again would run constructors twice; the library stays for good.
    std::mem::forget(library);
    Ok(version)
}

/// Hands a library that passed the probe to the binding and makes its environment.
fn start(path: &Path, version: &str, place: &Place) -> Result<Loaded, String> {
    let builder = ort::init_from(path).map_err(|e| e.to_string())?;
    // Errors come back as results; nothing is printed.
    let silent = Arc::new(|_: LogLevel, _: &str, _: &str, _: &str, _: &str| {});
    let builder = builder.with_name("planish").with_telemetry(false).with_logger(silent);
    let environment = builder.build().map_err(|e| e.to_string())?;
    environment.set_log_level(LogLevel::Fatal);
    let path =
        if place.rule == Rule::System { mapped(path).unwrap_or_else(|| path.to_owned()) } else { path.to_owned() };
    let (version, location) = (version.to_owned(), format!("{} ({})", path.display(), place.rule()));
    let description = Description { product: "onnxruntime", version, location };
    Ok(Loaded { environment, description, path })
}

/// The file that the system's loader chose for a bare name.
fn mapped(name: &Path) -> Option<PathBuf> {
    let maps = planish_files::read_system("/proc/self/maps")?;
    let paths = maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
    let name = name.to_str()?;
    paths.into_iter().find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
}
