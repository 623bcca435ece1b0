//! TensorRT's shared libraries: the one that builds and runs engines, and the parser of ONNX files beside it.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use trtx_sys::get_tensorrt_version;

use super::version::Version;
use super::{ENTERPRISE, LIBRARY, LIBRARY_VARIABLE, PRODUCT, RUNTIME};
use crate::find::{Place, Rule, Search, SharedLibrary};
use crate::{Description, NoBuilder, Unavailable};

/// Makes an object of a library; null when it cannot.
pub(super) type Create = unsafe extern "C" fn(*mut c_void, i32) -> *mut c_void;
/// The same, of an object that it works on.
type CreateOf = unsafe extern "C" fn(*mut c_void, *mut c_void, i32) -> *mut c_void;

/// Libraries that this process has loaded. They stay to the end: TensorRT's threads outlive its objects.
#[derive(Debug)]
pub struct Library {
    /// What it is.
    pub version: Version,
    /// Where it was found, and by which rule.
    pub location: String,
    path: PathBuf,
    pub(super) create_runtime: Create,
    /// Absent in the lean and dispatch runtimes, which only load engines.
    create_builder: Option<Create>,
    parser: Result<Parser, String>,
    /// Absent in the lean and dispatch runtimes.
    create_refitter: Option<CreateOf>,
}

/// What the parser's library exports.
#[derive(Clone, Copy, Debug)]
struct Parser {
    create: CreateOf,
    create_refitter: Option<CreateOf>,
}

/// What puts weights of ONNX files into engines.
#[derive(Clone, Copy)]
pub(super) struct RefitterFunctions {
    pub(super) create_refitter: CreateOf,
    pub(super) create_parser_refitter: CreateOf,
}

/// What builds engines.
#[derive(Clone, Copy)]
pub(super) struct BuilderFunctions {
    pub(super) create_builder: Create,
    pub(super) create_parser: CreateOf,
}

impl Library {
    /// The library at a path that the user named, or in the places that the error lists, loaded if it is not yet.
    ///
    /// # Errors
    /// Where it was looked for, and what was found there.
    pub fn open(named: Option<PathBuf>) -> Result<&'static Self, Unavailable> {
        static OPEN: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = Search::of_process(&LIBRARY, named).first(|path, place| {
            if let Some(found) = open.iter().find(|library| library.path == path) {
                return Ok(*found);
            }
            let library: &'static Self = Box::leak(Box::new(Self::load(path, place)?));
            open.push(library);
            Ok(library)
        });
        found.map_err(|looked| Unavailable {
            runtime: RUNTIME,
            reason: format!("no {PRODUCT} {} was found", needed()),
            looked,
            remedy: format!(
                "name its folder or the file {}.* with --runtime-option trt-lib=PATH or {LIBRARY_VARIABLE}; {WHERE}",
                LIBRARY.file
            ),
        })
    }

    fn load(path: &Path, place: &Place) -> Result<Self, String> {
        let library = open_library(path)?;
        let number = |name: &CStr| -> Result<u32, String> {
            // SAFETY: every TensorRT since 8.6 exports these; they take nothing and return a number.
            let function = unsafe { library.get::<unsafe extern "C" fn() -> i32>(name.to_bytes_with_nul()) };
            let function =
                function.map_err(|_| format!("it does not export {}, so it is no TensorRT", name.to_string_lossy()))?;
            // SAFETY: as above.
            let number = unsafe { function() };
            u32::try_from(number).map_err(|_| format!("{} returned {number}", name.to_string_lossy()))
        };
        let version = Version {
            major: number(c"getInferLibMajorVersion")?,
            minor: number(c"getInferLibMinorVersion")?,
            patch: number(c"getInferLibPatchVersion")?,
            build: number(c"getInferLibBuildVersion")?,
        };
        fits(version)?;
        // SAFETY: the types of both functions in NvInferRuntime.h and NvInfer.h; the library is never closed.
        let (create_runtime, create_builder, create_refitter) = unsafe {
            (
                library.get::<Create>(b"createInferRuntime_INTERNAL\0").map(|symbol| *symbol),
                library.get::<Create>(b"createInferBuilder_INTERNAL\0").map(|symbol| *symbol).ok(),
                library.get::<CreateOf>(b"createInferRefitter_INTERNAL\0").map(|symbol| *symbol).ok(),
            )
        };
        let create_runtime = create_runtime.map_err(|_| "it does not export createInferRuntime_INTERNAL".to_owned())?;
        std::mem::forget(library);
        let location = format!("{} ({})", path.display(), place.rule());
        let parser = load_parser(path, place);
        Ok(Self { version, location, path: path.to_owned(), create_runtime, create_builder, parser, create_refitter })
    }

    /// What builds engines.
    pub(super) fn builder(&self) -> Result<BuilderFunctions, Unavailable> {
        let unavailable = |reason: String| self.incomplete(reason);
        let no_builder =
            || unavailable("the library only loads engines (a lean or dispatch runtime): it builds none".to_owned());
        let create_builder = self.create_builder.ok_or_else(no_builder)?;
        let parser = self.parser.clone().map_err(unavailable)?;
        Ok(BuilderFunctions { create_builder, create_parser: parser.create })
    }

    /// What puts weights into engines.
    pub(super) fn refitter(&self) -> Result<RefitterFunctions, Unavailable> {
        let functions = self.create_refitter.zip(self.parser.as_ref().ok().and_then(|parser| parser.create_refitter));
        let (create_refitter, create_parser_refitter) = functions.ok_or_else(|| {
            self.incomplete("the library, or the parser beside it, does not put weights into engines".to_owned())
        })?;
        Ok(RefitterFunctions { create_refitter, create_parser_refitter })
    }

    /// The library lacks what is needed.
    fn incomplete(&self, reason: String) -> Unavailable {
        Unavailable {
            runtime: RUNTIME,
            reason,
            looked: vec![self.location.clone()],
            remedy: format!(
                "name the folder of the whole {PRODUCT} with --runtime-option trt-lib=PATH or {LIBRARY_VARIABLE}; {WHERE}"
            ),
        }
    }

    /// What it is, for lists of runtimes.
    pub(super) fn description(&self) -> Description {
        Description { product: PRODUCT, version: self.version.to_string(), location: self.location.clone() }
    }
}

/// What builds engines: the library at a path that the user named, or in the usual places.
///
/// # Errors
/// Where the library was looked for, or what it lacks.
pub fn builder(named: Option<PathBuf>) -> Result<Description, NoBuilder> {
    let found = Library::open(named).and_then(|library| library.builder().map(|_| library.description()));
    found.map_err(NoBuilder)
}

/// Where users get it from.
const WHERE: &str = if ENTERPRISE {
    "NVIDIA offers it at developer.nvidia.com/tensorrt"
} else {
    "`make deps` brings it, and so does the Python package tensorrt-rtx-cu13-libs"
};

/// The version of the headers that this program was built with.
pub(super) fn header_version() -> u32 {
    // SAFETY: returns a constant.
    unsafe { get_tensorrt_version() }
}

/// The versions that this program can call, in messages. The number is MAJOR * 10000 + MINOR * 100 + PATCH.
fn needed() -> String {
    let version = header_version();
    format!("{}.{} or newer {0}.*", version / 10_000, version / 100 % 100)
}

/// Whether this program can call a library of this version: objects of other major versions have other methods.
fn fits(version: Version) -> Result<(), String> {
    let header = header_version();
    let (major, minor) = (header / 10_000, header / 100 % 100);
    // TensorRT-RTX counts from 1; TensorRT is far beyond.
    let enterprise = version.major >= 8;
    if enterprise != ENTERPRISE {
        let (is, feature) = if enterprise { ("TensorRT", "tensorrt") } else { ("TensorRT-RTX", "tensorrt-rtx") };
        return Err(format!(
            "it is {is} {version}, and this planish was built for {PRODUCT}; build one for it: cargo build --release \
             --features {feature}"
        ));
    }
    match version.major == major && version.minor >= minor {
        true => Ok(()),
        false => Err(format!("it is {PRODUCT} {version}; {} is needed", needed())),
    }
}

/// The parser of ONNX files from the folder of the main library, whose symbols it needs.
fn load_parser(main: &Path, place: &Place) -> Result<Parser, String> {
    let parser = &PARSER;
    let path = if place.rule == Rule::System {
        parser.system.iter().map(PathBuf::from).find_map(|name| Some((open_library(&name).ok()?, name)))
    } else {
        let folder = main.parent().unwrap_or(Path::new("."));
        let beside = Place { library: parser, rule: place.rule, path: folder.to_owned() };
        let files = beside.files().map_err(|reason| format!("no parser of ONNX files is beside it: {reason}"))?;
        let [first, ..] = files.as_slice() else { return Err("no parser of ONNX files is beside it".to_owned()) };
        Some((open_library(first).map_err(|e| format!("{}: {e}", first.display()))?, first.clone()))
    };
    let (library, path) = path.ok_or("no parser of ONNX files is beside it")?;
    // SAFETY: the types of both functions in NvOnnxParser.h; the library is never closed.
    let (create, create_refitter) = unsafe {
        (
            library.get::<CreateOf>(b"createNvOnnxParser_INTERNAL\0").map(|symbol| *symbol),
            library.get::<CreateOf>(b"createNvOnnxParserRefitter_INTERNAL\0").map(|symbol| *symbol).ok(),
        )
    };
    std::mem::forget(library);
    let create = create.map_err(|_| format!("{} is no parser of ONNX files", path.display()))?;
    Ok(Parser { create, create_refitter })
}

static PARSER: SharedLibrary = SharedLibrary {
    product: PRODUCT,
    option: LIBRARY.option,
    variable: LIBRARY_VARIABLE,
    file: if ENTERPRISE { "libnvonnxparser.so" } else { "libtensorrt_onnxparser_rtx.so" },
    folder: LIBRARY.folder,
    packages: LIBRARY.packages,
    system: if ENTERPRISE {
        &["libnvonnxparser.so.11", "libnvonnxparser.so"]
    } else {
        &["libtensorrt_onnxparser_rtx.so.1", "libtensorrt_onnxparser_rtx.so"]
    },
};

fn open_library(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: loading a library runs its constructors; that it is the user's TensorRT is what the search order is for.
    unsafe { libloading::Library::new(path) }.map_err(|e| e.source().map_or_else(|| e.to_string(), ToString::to_string))
}
