//! ONNX Runtime on its CPU or CUDA provider, from a shared library that is found when it is first needed.

mod builder;
mod cache;
mod cuda;
mod device;
mod heap;
mod library;
mod on_device;
mod placement;
mod profile;
mod session;
mod tensor;

use std::path::{Path, PathBuf};

use planish_ir::DType;

pub(crate) use cache::OrtCache;
pub use cache::{CACHE_ENTRY, IN_PLACE};
pub use heap::use_huge_pages;
pub(crate) use tensor::OrtValue;

use crate::find::{Search, SharedLibrary};
use crate::ort::library::Loaded;
use crate::ort::session::{File, OrtSession};
use crate::{
    Arithmetic, Description, Format, Model, ProfiledSession, Profiler, Runtime, RuntimeError, Session, SessionOptions,
    Unavailable,
};

/// The environment variable that names the file or folder of ONNX Runtime's shared library.
pub const LIBRARY_VARIABLE: &str = "PLANISH_ORT_LIB";

/// ONNX Runtime's shared library.
pub(crate) static LIBRARY: SharedLibrary = SharedLibrary {
    product: "ONNX Runtime",
    option: "--runtime-option ort-lib",
    variable: LIBRARY_VARIABLE,
    file: "libonnxruntime.so",
    folder: "onnxruntime",
    packages: &["onnxruntime/capi"],
    system: &["libonnxruntime.so", "libonnxruntime.so.1"],
};

/// What ONNX Runtime runs a model on; its execution providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The processor.
    Cpu,
    /// The first CUDA device. What has no kernel there runs on the processor: a session says which
    /// operators do ([`Session::elsewhere`]).
    Cuda,
}

impl Provider {
    /// The runtime's name with this provider.
    #[must_use]
    pub const fn runtime(self) -> &'static str {
        match self {
            Provider::Cpu => "ort",
            Provider::Cuda => "ort-cuda",
        }
    }

    /// Optimizers of ONNX Runtime that make a graph planish compiled slower: `SkipLayerNormalization` runs
    /// after `Add` and `LayerNormalization` on the processor. On CUDA nothing was measured yet.
    pub(crate) fn disabled_for_compiled(self) -> &'static [&'static str] {
        match self {
            Provider::Cpu => &["SkipLayerNormFusion"],
            Provider::Cuda => &[],
        }
    }
}

/// How far ONNX Runtime may rewrite a graph when it loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizationLevel {
    /// Runs the nodes as they are.
    Disabled,
    /// Folds constants and removes what is redundant.
    Basic,
    /// Also fuses operators.
    Extended,
    /// Also changes layouts.
    All,
}

/// How ONNX Runtime makes sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrtOptions {
    /// Whether idle worker threads poll for work instead of sleeping: lower latency, busy cores.
    pub spin: bool,
    /// The microseconds for which they poll at a time, where they do; as long as ONNX Runtime does by itself where absent.
    pub spin_us: Option<u32>,
    /// Whether weights of a large file are mapped instead of copied, and all threads pack them: the first run is sooner, and
    /// for that time more of the file counts as memory of the process.
    pub fast_start: bool,
    /// How far it may rewrite the graph.
    pub optimization: OptimizationLevel,
    /// Whether planish compiled the graph: optimizers that were measured to undo what it chose are left out.
    pub compiled: bool,
    /// Whether shapes differ from run to run. Memory is then not planned for each shape that was seen.
    pub varied_shapes: bool,
    /// Whether products with the result of a DequantizeLinear take their other operand as it is: ONNX Runtime by itself rounds it to 8 bits
    /// where the codes are constant.
    pub unrounded_products: bool,
}

impl Default for OrtOptions {
    /// What ONNX Runtime does when it is asked for nothing.
    fn default() -> Self {
        Self {
            spin: true,
            spin_us: None,
            fast_start: false,
            optimization: OptimizationLevel::All,
            compiled: false,
            varied_shapes: false,
            unrounded_products: false,
        }
    }
}

impl OrtOptions {
    /// The defaults for a graph that planish compiled.
    #[must_use]
    pub fn compiled() -> Self {
        Self { compiled: true, ..Self::default() }
    }
}

/// Whether ONNX Runtime's CPU provider adds products of 8-bit codes in 16 bits, where large sums saturate: its kernels for x86
/// processors without VNNI do.
#[must_use]
pub fn saturates() -> bool {
    #[cfg(target_arch = "x86_64")]
    let saturates =
        !std::arch::is_x86_feature_detected!("avx512vnni") && !std::arch::is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    let saturates = false;
    saturates
}

/// ONNX Runtime with one of its providers.
///
/// A process loads one ONNX Runtime: the library that the first check or load finds stays.
pub struct OnnxRuntime {
    library: Option<PathBuf>,
    provider: Provider,
    options: OrtOptions,
}

impl OnnxRuntime {
    /// The CPU provider of ONNX Runtime from this file or folder, or, with none, from the places that
    /// [`check`](Runtime::check) names.
    #[must_use]
    pub fn new(library: Option<PathBuf>) -> Self {
        Self::with(Provider::Cpu, library)
    }

    /// The same of another provider.
    #[must_use]
    pub fn with(provider: Provider, library: Option<PathBuf>) -> Self {
        Self { library, provider, options: OrtOptions::default() }
    }

    /// The same with other options.
    #[must_use]
    pub fn options(self, options: OrtOptions) -> Self {
        Self { options, ..self }
    }

    /// The library, if it has the provider.
    fn loaded(&self) -> Result<&'static Loaded, Unavailable> {
        let renamed = |unavailable| Unavailable { runtime: self.name(), ..unavailable };
        let loaded = library::load(&Search::of_process(&LIBRARY, self.library.clone())).map_err(renamed)?;
        if self.provider == Provider::Cuda {
            cuda::check(loaded)?;
        }
        Ok(loaded)
    }

    /// Loads a file, for profiling where there is a beginning of the name of a file for that.
    fn session(
        &self,
        model: Model<'_>,
        options: SessionOptions,
        profile: Option<&Path>,
    ) -> Result<OrtSession, RuntimeError> {
        let loaded = self.loaded()?;
        let Model::File { format: Format::ONNX, path, interface } = model else {
            return Err(model.not_taken(self.name(), "ONNX files; graphs run on `reference`"));
        };
        let file = File { path, interface, profile };
        OrtSession::load(&loaded.environment, self.provider, file, options.threads, self.options)
    }
}

impl Runtime for OnnxRuntime {
    fn name(&self) -> &'static str {
        self.provider.runtime()
    }

    fn check(&self) -> Result<Description, Unavailable> {
        self.loaded().map(|loaded| loaded.description.clone())
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::ONNX]
    }

    fn arithmetic(&self, dtype: DType) -> Arithmetic {
        match (self.provider, dtype) {
            // Most float16 kernels of the CPU provider compute in float32, some without rounding in between.
            (Provider::Cpu, DType::F16) => Arithmetic::Wider,
            (Provider::Cpu, DType::Bf16) => Arithmetic::Missing,
            _ => Arithmetic::Rounded,
        }
    }

    fn load(&self, model: Model<'_>, options: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Ok(Box::new(self.session(model, options, None)?))
    }

    fn is_on_gpu(&self) -> bool {
        self.provider == Provider::Cuda
    }

    fn saturates(&self) -> bool {
        self.provider == Provider::Cpu && saturates()
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        match self.provider {
            Provider::Cpu => Ok(self),
            // Its times of nodes are those of the processor that starts kernels.
            Provider::Cuda => Err("Nsight Systems profiles kernels on a GPU"),
        }
    }
}

impl Profiler for OnnxRuntime {
    fn load_profiled(
        &self,
        model: Model<'_>,
        options: SessionOptions,
        folder: &Path,
    ) -> Result<Box<dyn ProfiledSession>, RuntimeError> {
        let session = self.session(model, options, Some(&folder.join("profile")))?;
        Ok(Box::new(profile::OrtProfile::new(session)))
    }
}
