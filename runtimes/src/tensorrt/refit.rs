//! Putting the weights of an ONNX file into an engine.

use std::ffi::{CString, c_char, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cxx::UniquePtr;
use trtx_sys::nvinfer1::{IHostMemory, IRefitter, SerializationFlag};

use super::engine::{Engine, failed};
use super::library::{Library, RefitterFunctions, header_version};
use super::parse::ParserError;
use crate::RuntimeError;

/// Puts the weights of an ONNX file, whose external data lies beside it, into an engine that was built for that file, and
/// writes the engine with them. Returns its bytes. `again` says that its weights can be replaced once more.
///
/// # Errors
/// When the library or a GPU is unavailable, the engine is not loaded or takes no weights, the ONNX file has not those that
/// it needs, or the engine cannot be written.
pub fn refit(
    library: &Library,
    engine: &Path,
    onnx: &Path,
    again: bool,
    output: &mut dyn Write,
) -> Result<u64, RuntimeError> {
    let RefitterFunctions { create_refitter, create_parser_refitter } = library.refitter()?;
    let mut loaded = Engine::load(library, engine)?;
    let failed = |reason: String| failed(engine, reason);
    if !loaded.engine.isRefittable() {
        return Err(failed("its weights cannot be replaced; build it with --strip-weights or --refit".to_owned()));
    }
    let path = CString::new(onnx.as_os_str().as_bytes()).map_err(|e| failed(e.to_string()))?;
    let version = header_version().cast_signed();
    let of: *mut c_void = loaded.engine.as_mut_ptr().cast();
    // SAFETY: the function of the library, called with an engine and a logger that live longer than the refitter.
    let mut refitter =
        unsafe { UniquePtr::<IRefitter>::from_raw(create_refitter(of, loaded.logger.interface(), version).cast()) };
    let said = |engine: &Engine| failed(engine.logger.errors("TensorRT gave no reason"));
    if refitter.is_null() {
        return Err(said(&loaded));
    }
    {
        let of: *mut c_void = refitter.as_mut_ptr().cast();
        // SAFETY: the function of the parser's library, called with a refitter and a logger that live longer.
        let parser = unsafe { create_parser_refitter(of, loaded.logger.interface(), version) };
        let Some(parser) = ParserRefitter::of(parser) else { return Err(said(&loaded)) };
        parser.refit(&path).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            failed(match errors.is_empty() {
                true => loaded.logger.errors("the parser gave no reason"),
                false => errors.join("; "),
            })
        })?;
    }
    if !refitter.pin_mut().refitCudaEngine() {
        return Err(said(&loaded));
    }
    drop(refitter);
    let memory = with_weights(&mut loaded, again);
    let Some(memory) = memory.as_ref().filter(|memory| !memory.data().is_null()) else { return Err(said(&loaded)) };
    // SAFETY: the memory is owned by `memory`.
    let bytes = unsafe { std::slice::from_raw_parts(memory.data().cast::<u8>(), memory.size()) };
    output.write_all(bytes).and_then(|()| output.flush()).map_err(|e| failed(format!("it cannot be written: {e}")))?;
    Ok(bytes.len() as u64)
}

/// The bytes of an engine with its weights; null where TensorRT gives none. TensorRT may write an engine that was built
/// without weights without them again, or as one whose weights cannot be replaced, unless it is told not to.
fn with_weights(loaded: &mut Engine, again: bool) -> UniquePtr<IHostMemory> {
    // SAFETY: the caller of `createSerializationConfig` owns the configuration; null is allowed.
    let mut config = unsafe { UniquePtr::from_raw(loaded.engine.pin_mut().createSerializationConfig()) };
    let Some(mut configured) = config.as_mut() else { return UniquePtr::null() };
    if !configured.as_mut().clearFlag(SerializationFlag::kEXCLUDE_WEIGHTS) {
        return UniquePtr::null();
    }
    if again {
        // An engine that was built with its weights stays as it was, whatever this returns.
        configured.as_mut().setFlag(SerializationFlag::kINCLUDE_REFIT);
    }
    // SAFETY: the caller of `serializeWithConfig` owns what it returns; null is allowed.
    unsafe { UniquePtr::from_raw(loaded.engine.serializeWithConfig(configured)) }
}

/// `nvonnxparser::IParserRefitter`, which the binding does not have.
struct ParserRefitter(*mut Object);

#[repr(C)]
struct Object {
    methods: *const Methods,
}

/// Its virtual methods up to the last that is called, in the order of their declarations, as C++ on Linux lays them out.
#[repr(C)]
struct Methods {
    from_bytes: unsafe extern "C" fn(*mut Object, *const c_void, usize, *const c_char) -> bool,
    from_file: unsafe extern "C" fn(*mut Object, *const c_char) -> bool,
    error_count: unsafe extern "C" fn(*const Object) -> i32,
    error: unsafe extern "C" fn(*const Object, i32) -> *const c_void,
    clear_errors: unsafe extern "C" fn(*mut Object),
    destroy: unsafe extern "C" fn(*mut Object),
    delete: unsafe extern "C" fn(*mut Object),
}

impl ParserRefitter {
    /// Takes what the parser's library made; null is none.
    fn of(made: *mut c_void) -> Option<Self> {
        (!made.is_null()).then(|| Self(made.cast()))
    }

    /// Gives the refitter the weights of an ONNX file.
    fn refit(&self, onnx: &CString) -> Result<(), Vec<ParserError>> {
        // SAFETY: the object lives, and its methods are these; the path ends in zero.
        unsafe {
            let methods = &*(*self.0).methods;
            if (methods.from_file)(self.0, onnx.as_ptr()) {
                return Ok(());
            }
            let errors = 0..(methods.error_count)(self.0);
            Err(errors.filter_map(|index| ParserError::read((methods.error)(self.0, index))).collect())
        }
    }
}

impl Drop for ParserRefitter {
    fn drop(&mut self) {
        // SAFETY: the object lives, and is deleted once.
        unsafe { ((*(*self.0).methods).delete)(self.0) };
    }
}
