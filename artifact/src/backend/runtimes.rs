//! The runtimes of backends.

use std::path::PathBuf;

use planish_eval::Limits;
use planish_ir::DType;
use planish_runtimes::cuda::{Cuda, WithoutGraphs};
use planish_runtimes::openvino::{InferencePrecision, OpenVino};
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions, Provider};
use planish_runtimes::tensorrt::{LoadOptions, TensorRt};
use planish_runtimes::{Arithmetic, ReferenceRuntime, Runtime, Unavailable};

use super::{BACKENDS, Backend, MakeRuntime};

/// How runtimes are found, and how they use the machine.
#[derive(Clone, Debug, Default)]
pub struct RuntimeSettings {
    /// The file or folder of ONNX Runtime's shared library, where the user named one.
    pub ort_library: Option<PathBuf>,
    /// The file or folder of TensorRT's shared library, where the user named one.
    pub trt_library: Option<PathBuf>,
    /// The file or folder of OpenVINO's shared library, where the user named one.
    pub openvino_library: Option<PathBuf>,
    /// What OpenVINO computes products in; what the artifact says where absent.
    pub openvino_precision: Option<InferencePrecision>,
    /// The runtime that the user chose, in place of the one that artifacts are compiled for.
    pub runtime: Option<MakeRuntime>,
    /// Whether idle worker threads of ONNX Runtime sleep instead of polling for work.
    pub sleeping: bool,
    /// The microseconds for which an idle worker thread of ONNX Runtime polls for work at a time, if it does not sleep at once;
    /// as long as ONNX Runtime does where absent.
    pub polling_us: Option<u32>,
    /// Whether ONNX Runtime maps weights from the file and packs them with all threads.
    pub fast_start: bool,
    /// How engines of TensorRT are loaded and run; the native CUDA runtimes record CUDA graphs as these do.
    pub engines: LoadOptions,
    /// Whether the shapes of inputs differ from run to run.
    pub varied_shapes: bool,
    /// Whether ONNX Runtime runs quantized operators one by one, and fuses none of them into products of codes.
    pub unfused_codes: bool,
}

/// ONNX Runtime's CPU provider.
pub(super) fn cpu(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    onnx_runtime(Provider::Cpu, settings)
}

/// ONNX Runtime's CUDA provider.
pub(super) fn cuda(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    onnx_runtime(Provider::Cuda, settings)
}

fn onnx_runtime(provider: Provider, settings: &RuntimeSettings) -> Box<dyn Runtime> {
    let RuntimeSettings { sleeping, polling_us, fast_start, varied_shapes, unfused_codes, .. } = *settings;
    let optimization = if unfused_codes { OptimizationLevel::Basic } else { OptimizationLevel::All };
    let spin_us = polling_us;
    let options =
        OrtOptions { spin: !sleeping, spin_us, fast_start, varied_shapes, optimization, ..OrtOptions::compiled() };
    Box::new(OnnxRuntime::with(provider, settings.ort_library.clone()).options(options))
}

/// planish's own runtime, with fused kernels.
pub(super) fn native(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    with_graphs(Cuda::Fused, settings)
}

/// planish's own runtime, with a kernel for each operator.
pub(super) fn native_baseline(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    with_graphs(Cuda::Baseline, settings)
}

/// The kernels of planish's own runtime on the processor.
pub(super) fn native_emulator(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    with_graphs(Cuda::Emulator, settings)
}

/// A runtime that records CUDA graphs unless it is told not to.
fn with_graphs(runtime: Cuda, settings: &RuntimeSettings) -> Box<dyn Runtime> {
    match settings.engines.cuda_graph {
        true => Box::new(runtime),
        false => Box::new(WithoutGraphs(runtime)),
    }
}

/// TensorRT.
pub(super) fn tensorrt(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    Box::new(TensorRt::new(settings.trt_library.clone()).options(settings.engines))
}

/// OpenVINO's plugin for processors.
pub(super) fn openvino(settings: &RuntimeSettings) -> Box<dyn Runtime> {
    let precision = settings.openvino_precision.unwrap_or_default();
    Box::new(OpenVino::new(settings.openvino_library.clone()).precision(precision))
}

/// The reference interpreter.
pub(super) fn interpreter(_: &RuntimeSettings) -> Box<dyn Runtime> {
    Box::new(ReferenceRuntime { limits: Limits::default() })
}

impl Backend {
    /// The runtime that graphs are compiled for.
    #[must_use]
    pub fn runtime(&self, settings: &RuntimeSettings) -> Box<dyn Runtime> {
        let [first, ..] = self.runtimes else { unreachable!("a backend has a runtime") };
        first(settings)
    }

    /// The first runtime that has kernels for a type; the last one where none has.
    #[must_use]
    pub fn runtime_for(&self, computes: DType, settings: &RuntimeSettings) -> Box<dyn Runtime> {
        let all = self.runtimes.iter().map(|make| make(settings));
        let mut missing = None;
        for runtime in all {
            if runtime.arithmetic(computes) != Arithmetic::Missing {
                return runtime;
            }
            missing = Some(runtime);
        }
        missing.unwrap_or_else(|| unreachable!("a backend has a runtime"))
    }
}

/// There is no runtime of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no runtime `{name}`; there are {}", .there.join(", "))]
pub struct UnknownRuntime {
    /// The name.
    pub name: String,
    /// The names that there are.
    pub there: Vec<&'static str>,
}

/// A runtime of some backend by its name.
///
/// # Errors
/// The names that there are.
pub fn runtime_named(name: &str) -> Result<MakeRuntime, UnknownRuntime> {
    let settings = RuntimeSettings::default();
    let named = |make: MakeRuntime| (make(&settings).name(), make);
    let own = BACKENDS.iter().flat_map(|b| b.runtimes.iter().copied().chain(b.engines));
    let mut all: Vec<(&'static str, MakeRuntime)> = Vec::new();
    for (name, make) in own.map(named) {
        if !all.iter().any(|(other, _)| *other == name) {
            all.push((name, make));
        }
    }
    let found = all.iter().find(|(other, _)| *other == name).map(|(_, make)| *make);
    let there = || all.iter().map(|(name, _)| *name).collect();
    found.ok_or_else(|| UnknownRuntime { name: name.to_owned(), there: there() })
}

/// Why a runtime cannot run what computes in a type, if it has no kernels for it.
#[must_use]
pub fn lacks(runtime: &dyn Runtime, computes: DType) -> Option<Unavailable> {
    let (name, ty) = (runtime.name(), spelled(computes));
    (runtime.arithmetic(computes) == Arithmetic::Missing).then(|| Unavailable {
        runtime: name,
        reason: format!("the artifact computes in {ty}, for which `{name}` has no kernels"),
        looked: Vec::new(),
        remedy: format!("compile with --target ort, which stores {ty} and computes in float32, or run it elsewhere"),
    })
}

/// The name of a floating-point type in messages.
pub fn spelled(dtype: DType) -> String {
    match dtype {
        DType::F16 => "float16".to_owned(),
        DType::Bf16 => "bfloat16".to_owned(),
        DType::F32 => "float32".to_owned(),
        other => other.to_string(),
    }
}

/// Whether a runtime computes on a GPU.
#[must_use]
pub fn is_on_gpu(runtime: &str) -> bool {
    has(runtime, |runtime| runtime.is_on_gpu())
}

/// Whether sums of products of codes saturate where a runtime computes them on this processor.
#[must_use]
pub fn saturates(runtime: &str) -> bool {
    has(runtime, |runtime| runtime.saturates())
}

/// Whether there is a runtime of a name, and it has a property.
fn has(runtime: &str, property: impl Fn(&dyn Runtime) -> bool) -> bool {
    runtime_named(runtime).is_ok_and(|make| property(make(&RuntimeSettings::default()).as_ref()))
}
