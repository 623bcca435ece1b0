//! TensorRT: builds engines of ONNX files and runs them, by shared libraries that are found when they are first needed.
//!
//! NVIDIA has two products with one interface: TensorRT-RTX for GeForce and RTX cards, and TensorRT for cards of data
//! centers. Their headers differ, so a program is built for one of them: for TensorRT with the feature `tensorrt`, else for
//! TensorRT-RTX. TensorRT-RTX builds engines on machines without a GPU; TensorRT measures kernels and needs one.
//!
//! Objects of TensorRT keep pointers to others. [`build`] and sessions own theirs in one struct each, whose members are
//! dropped in an order that TensorRT allows.
//!
//! Options, plans and lists of layers are data, which a program without the binding (the feature `trtx`) has too.

#[cfg(not(feature = "trtx"))]
mod absent;
#[cfg(feature = "trtx")]
mod build;
mod cache;
#[cfg(feature = "trtx")]
mod device;
#[cfg(feature = "trtx")]
mod engine;
mod flags;
mod gpu;
#[cfg(feature = "trtx")]
mod graph;
#[cfg(all(feature = "trtx", not(feature = "tensorrt")))]
mod kernels;
mod layers;
#[cfg(feature = "trtx")]
mod library;
mod load_options;
#[cfg(feature = "trtx")]
mod log;
#[cfg(feature = "trtx")]
mod measure;
mod options;
#[cfg(feature = "trtx")]
mod parse;
mod plan;
#[cfg(feature = "trtx")]
mod ports;
#[cfg(feature = "trtx")]
mod progress;
#[cfg(feature = "trtx")]
mod refit;
#[cfg(feature = "trtx")]
mod runtime;
#[cfg(feature = "trtx")]
mod runtime_config;
#[cfg(feature = "trtx")]
mod session;
#[cfg(feature = "trtx")]
mod shapes;
#[cfg(feature = "trtx")]
mod stream;
#[cfg(feature = "trtx")]
mod timing;
mod version;

#[cfg(not(feature = "trtx"))]
pub use absent::{TensorRt, builder, built_without};
#[cfg(feature = "trtx")]
pub use build::{BuildError, Built, build, check};
pub use cache::{CacheFile, CacheKind};
pub use flags::{FLAGS, Flag};
pub use gpu::{Device, unsupported};
#[cfg(feature = "trtx")]
pub use gpu::{devices, present};
pub use layers::{Layer, Layers};
#[cfg(feature = "trtx")]
pub use library::{Library, builder};
pub use load_options::{KernelSpecialization, LoadOptions, WeightStreamingBudget};
#[cfg(feature = "trtx")]
pub use log::{Message, Severity};
pub use options::{BuildOptions, Capability, HardwareCompatibility, InputRange, Profile, Tiling, bytes_of, bytes_text};
#[cfg(feature = "trtx")]
pub use parse::{ParserError, accepts};
pub use plan::{Plan, PlanError};
#[cfg(feature = "trtx")]
pub use progress::Progress;
#[cfg(feature = "trtx")]
pub use refit::refit;
#[cfg(feature = "trtx")]
pub use runtime::TensorRt;
pub use version::Version;

#[cfg(feature = "trtx")]
pub(crate) use device::DeviceTensor;

#[cfg(feature = "trtx")]
use crate::find::SharedLibrary;

/// Whether this program was built for TensorRT rather than for TensorRT-RTX.
pub const ENTERPRISE: bool = cfg!(feature = "tensorrt");

/// The product that this program was built for.
pub const PRODUCT: &str = if ENTERPRISE { "TensorRT" } else { "TensorRT-RTX" };

/// The name of the runtime on the command line.
pub const RUNTIME: &str = "trt";

/// What tells the times of the layers of an engine.
const OTHER_PROFILER: &str = "`trtexec --loadEngine=FILE --dumpProfile --separateProfileRun` profiles an engine";

/// The environment variable that names the file or folder of TensorRT's shared library.
pub const LIBRARY_VARIABLE: &str = "PLANISH_TRT_LIB";

/// The library that builds and runs engines.
#[cfg(feature = "trtx")]
static LIBRARY: SharedLibrary = SharedLibrary {
    product: PRODUCT,
    option: "--runtime-option trt-lib",
    variable: LIBRARY_VARIABLE,
    file: if ENTERPRISE { "libnvinfer.so" } else { "libtensorrt_rtx.so" },
    folder: if ENTERPRISE { "tensorrt" } else { "tensorrt-rtx" },
    packages: if ENTERPRISE { &["tensorrt_libs"] } else { &["tensorrt_rtx_libs"] },
    system: if ENTERPRISE {
        &["libnvinfer.so.11", "libnvinfer.so"]
    } else {
        &["libtensorrt_rtx.so.1", "libtensorrt_rtx.so"]
    },
};
