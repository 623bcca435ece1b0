//! Backends: everything that differs by target. A backend is one value, and no other code asks which target it compiles for.
//!
//! To add one: state its properties for passes (`planish_passes::Target`), an [`Emitter`] if it takes files of its own, the
//! runtimes that load them, and give it a line in [`BACKENDS`].

mod cores;
mod emitter;
mod graph;
mod memory;
mod runtimes;
mod spin;
mod temporary;
mod variant;

use std::fmt;

use planish_models::Loaded;
use planish_passes::{ONNX, OPENVINO, ORT, ORT_CUDA, TRT, Target};
use planish_runtimes::Runtime;

use crate::precision::PrecisionName;
use crate::recipe::Precision::{F32, Fp16, Int4, Int8, Int8Weights};
use crate::verification::Tolerances;

pub use cores::Cores;
pub use emitter::{EmitOptions, Emitted, Emitter, OnnxEmitter};
pub use graph::GraphEmitter;
pub use memory::available_memory;
pub use runtimes::{RuntimeSettings, UnknownRuntime, is_on_gpu, lacks, runtime_named, saturates, spelled};
pub use spin::Spin;
pub use temporary::TemporaryFiles;
pub use variant::Variant;

use Variant::{DynamicInt8, Of, Unfused};
use runtimes::{cpu, cuda, interpreter, native, native_baseline, native_emulator, openvino, tensorrt};

/// What graphs are compiled for, and what is done with them.
pub struct Backend {
    /// What passes ask of it: its name, its kernels, the forms that are fastest there.
    pub target: &'static Target,
    /// Writes graphs and weights as the files of an artifact.
    pub emitter: &'static dyn Emitter,
    /// The runtimes that load these files. Graphs are compiled for the first one; the others run artifacts in types that the
    /// first one has no kernels for.
    pub runtimes: &'static [MakeRuntime],
    /// The runtime of the engines that are built of the files, where they are: artifacts have profiles, and `planish
    /// build-engine` takes them.
    pub engines: Option<MakeRuntime>,
    /// The device that its graphs are compiled for; absent where they are for any.
    pub device: Option<Device>,
    /// How far the results of an artifact may be from those of its model.
    pub tolerances: fn(&Loaded, PrecisionName) -> Tolerances,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.target.name)
    }
}

/// A device that graphs are computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// A GPU of NVIDIA.
    Gpu,
}

/// Makes a runtime; nothing is loaded yet.
pub type MakeRuntime = fn(&RuntimeSettings) -> Box<dyn Runtime>;

/// Every backend, in the order of messages.
pub static BACKENDS: &[&Backend] = &[&ANY_ONNX, &ONNX_RUNTIME, &OPENVINO_CPU, &ONNX_RUNTIME_CUDA, &TENSORRT, &CUDA];

/// Any ONNX runtime. Artifacts for it are verified and measured on ONNX Runtime.
pub static ANY_ONNX: Backend = Backend {
    target: &ONNX,
    emitter: &OnnxEmitter::WHOLE,
    runtimes: &[cpu, interpreter],
    engines: None,
    device: None,
    tolerances: Tolerances::of,
};

/// ONNX Runtime's CPU provider.
pub static ONNX_RUNTIME: Backend = Backend {
    target: &ORT,
    emitter: &OnnxEmitter::WHOLE,
    runtimes: &[cpu, interpreter],
    engines: None,
    device: Some(Device::Cpu),
    tolerances: Tolerances::of,
};

/// OpenVINO's plugin for processors.
pub static OPENVINO_CPU: Backend = Backend {
    target: &OPENVINO,
    emitter: &OnnxEmitter::MAPPED,
    runtimes: &[openvino, interpreter],
    engines: None,
    device: Some(Device::Cpu),
    tolerances: Tolerances::of,
};

/// ONNX Runtime's CUDA provider.
pub static ONNX_RUNTIME_CUDA: Backend = Backend {
    target: &ORT_CUDA,
    emitter: &OnnxEmitter::WHOLE,
    runtimes: &[cuda],
    engines: None,
    device: Some(Device::Gpu),
    tolerances: Tolerances::of,
};

/// TensorRT. Its engines are built of ONNX files with standard operators, which are verified on ONNX Runtime.
pub static TENSORRT: Backend = Backend {
    target: &TRT,
    emitter: &OnnxEmitter::MAPPED,
    runtimes: &[cpu, interpreter],
    engines: Some(tensorrt),
    device: Some(Device::Gpu),
    tolerances: Tolerances::of,
};

/// planish's own runtime for GPUs of NVIDIA, which executes the graph itself.
pub static CUDA: Backend = Backend {
    target: &planish_passes::CUDA,
    emitter: &GraphEmitter,
    runtimes: &[native, native_baseline, native_emulator, interpreter],
    engines: None,
    device: Some(Device::Gpu),
    tolerances: Tolerances::of,
};

/// The backend that checkpoints are compiled with where no target is named, and whose first runtime computes on this
/// machine's processor what planish itself needs: references, calibration, peaks.
pub static LOCAL: &Backend = &ONNX_RUNTIME;

/// The backend that loads ONNX files whoever made them, and whose lowering without fusion is the baseline of benches.
pub static PORTABLE: &Backend = &ANY_ONNX;

/// What a bench of a checkpoint compares where nothing is named: on GPUs the baseline, the runtime of planish and ONNX
/// Runtime, then the processor with the slowest first, and OpenVINO. A backend, the place of a runtime among its runtimes, and the forms.
pub static USUAL: &[(&Backend, usize, &[Variant])] = &[
    (&CUDA, 1, &[Of(F32), Of(Fp16)]),
    (&CUDA, 0, &[Of(F32), Of(Fp16), Of(Int8)]),
    (&ONNX_RUNTIME_CUDA, 0, &[Of(F32), Of(Fp16)]),
    (&ANY_ONNX, 0, &[Unfused]),
    (&ONNX_RUNTIME, 0, &[Of(F32), Of(Fp16), DynamicInt8, Of(Int8), Of(Int8Weights), Of(Int4)]),
    (&OPENVINO_CPU, 0, &[Of(F32), Of(Int8)]),
];

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

/// The backend of a target by its name, among some.
#[must_use]
pub fn find(name: &str, among: &[&'static Backend]) -> Option<&'static Backend> {
    among.iter().copied().find(|backend| backend.target.name == name)
}
