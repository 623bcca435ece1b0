//! The parser of ONNX files.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::path::Path;
use std::pin::Pin;

use cxx::UniquePtr;
use trtx_sys::nvinfer1::{IBuilder, INetworkDefinition};
use trtx_sys::nvonnxparser::IParser;

use super::library::{BuilderFunctions, Library, header_version};
use super::log::Logger;
use crate::Unavailable;

/// What the parser refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParserError {
    /// The name of the node, empty where the error is not about one.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// What is wrong, in the parser's words.
    pub text: String,
}

impl fmt::Display for ParserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node.is_empty() {
            true => f.write_str(&self.text),
            false => write!(f, "node `{}` ({}): {}", self.node, self.operator, self.text),
        }
    }
}

/// A builder with a network and the parser that fills it. The members are dropped in their order.
pub(super) struct Network {
    parser: UniquePtr<IParser>,
    pub(super) network: UniquePtr<INetworkDefinition>,
    pub(super) builder: UniquePtr<IBuilder>,
    pub(super) logger: Logger,
}

impl Network {
    /// An empty network.
    pub(super) fn new(library: &Library) -> Result<Self, Refused> {
        let BuilderFunctions { create_builder, create_parser } = library.builder()?;
        let logger = Logger::new();
        let version = header_version().cast_signed();
        // SAFETY: the function of the library, called with an `ILogger*` that lives longer than the builder; null is allowed.
        let builder = unsafe { UniquePtr::<IBuilder>::from_raw(create_builder(logger.interface(), version).cast()) };
        let failed = |logger: &Logger| Refused::Failed(logger.errors("TensorRT gave no reason"));
        if builder.is_null() {
            return Err(failed(&logger));
        }
        let mut this = Self { parser: UniquePtr::null(), network: UniquePtr::null(), builder, logger };
        let network = this.builder.pin_mut().createNetworkV2(0);
        // SAFETY: the caller of `createNetworkV2` owns the network.
        this.network = unsafe { UniquePtr::from_raw(network) };
        if this.network.is_null() {
            return Err(failed(&this.logger));
        }
        // SAFETY: the function of the library, called with a network and a logger that live longer than the parser.
        this.parser = unsafe {
            UniquePtr::from_raw(create_parser(network.cast(), this.logger.interface(), version).cast::<IParser>())
        };
        match this.parser.is_null() {
            true => Err(failed(&this.logger)),
            false => Ok(this),
        }
    }

    fn parser(&mut self) -> Pin<&mut IParser> {
        self.parser.pin_mut()
    }

    /// Reads an ONNX file; its external data lies beside it.
    pub(super) fn parse_file(&mut self, path: &Path) -> Result<(), Vec<ParserError>> {
        use std::os::unix::ffi::OsStrExt;
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
            return Err(vec![ParserError::general("the path has a zero byte".to_owned())]);
        };
        // SAFETY: the path ends in zero and is only read.
        let parsed = unsafe { self.parser().parseFromFile(path.as_ptr(), 2.into()) };
        self.errors(parsed)
    }

    /// Reads the bytes of an ONNX file without external data.
    pub(super) fn parse_bytes(&mut self, onnx: &[u8]) -> Result<(), Vec<ParserError>> {
        // SAFETY: the bytes are only read, during the call.
        let parsed = unsafe { self.parser().parse(onnx.as_ptr().cast(), onnx.len(), std::ptr::null()) };
        self.errors(parsed)
    }

    fn errors(&self, parsed: bool) -> Result<(), Vec<ParserError>> {
        if parsed {
            return Ok(());
        }
        let count: i32 = self.parser.getNbErrors().into();
        let mut errors: Vec<ParserError> = (0..count)
            .filter_map(|index| {
                let error = self.parser.getError(index.into());
                // SAFETY: null, or an error that the parser owns and keeps as long as it parses nothing else.
                unsafe { ParserError::read(error.cast()) }
            })
            .collect();
        if errors.is_empty() {
            errors.push(ParserError::general(self.logger.errors("the parser gave no reason")));
        }
        Err(errors)
    }
}

/// Why there is no network.
pub(super) enum Refused {
    Unavailable(Unavailable),
    Failed(String),
}

impl From<Unavailable> for Refused {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

/// Whether the parser takes an ONNX model, given as the bytes of a file without external data.
///
/// # Errors
/// The library is absent or builds no engines. The inner error is what the parser refuses.
pub fn accepts(library: &Library, onnx: &[u8]) -> Result<Result<(), Vec<ParserError>>, Unavailable> {
    match Network::new(library) {
        Ok(mut network) => Ok(network.parse_bytes(onnx)),
        Err(Refused::Unavailable(unavailable)) => Err(unavailable),
        Err(Refused::Failed(reason)) => Ok(Err(vec![ParserError::general(reason)])),
    }
}

/// The virtual methods of `nvonnxparser::IParserError`, which the binding does not have: in the order of their
/// declarations, as C++ on Linux lays them out. The methods of this class are the same in all versions since 8.6.
#[repr(C)]
struct ErrorMethods {
    code: unsafe extern "C" fn(*const Error) -> i32,
    desc: unsafe extern "C" fn(*const Error) -> *const c_char,
    file: unsafe extern "C" fn(*const Error) -> *const c_char,
    line: unsafe extern "C" fn(*const Error) -> i32,
    func: unsafe extern "C" fn(*const Error) -> *const c_char,
    node: unsafe extern "C" fn(*const Error) -> i32,
    node_name: unsafe extern "C" fn(*const Error) -> *const c_char,
    node_operator: unsafe extern "C" fn(*const Error) -> *const c_char,
}

#[repr(C)]
struct Error {
    methods: *const ErrorMethods,
}

impl ParserError {
    fn general(text: String) -> Self {
        Self { node: String::new(), operator: String::new(), text }
    }

    /// # Safety
    /// `error` is null or an `IParserError*`.
    pub(super) unsafe fn read(error: *const c_void) -> Option<Self> {
        let error: *const Error = error.cast();
        // SAFETY: an object with virtual methods begins with the address of their table.
        let methods = unsafe { &*error.as_ref()?.methods };
        let text = |get: unsafe extern "C" fn(*const Error) -> *const c_char| {
            // SAFETY: a method of the error; its text is null or ends in zero and lives as long as the error.
            let text = unsafe { get(error) };
            // SAFETY: as above.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
        };
        Some(Self { node: text(methods.node_name), operator: text(methods.node_operator), text: text(methods.desc) })
    }
}
