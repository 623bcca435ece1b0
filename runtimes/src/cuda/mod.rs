//! The native CUDA runtime: executes graphs of planish on a GPU, with kernels of its own and matrix products of cublasLt.
//!
//! There are three runtimes. `cuda` has fused kernels, `cuda-baseline` one kernel for each operator and attention with its
//! scores in memory: what `cuda` is compared with. `cuda-emulator` runs the kernels of `cuda` on the processor: it is slow,
//! and verifies artifacts where there is no GPU.
//!
//! A graph becomes a program (`program`) for each combination of sizes: a list of launches, products and copies on buffers of
//! one arena, whose addresses are planned from lifetimes ([`memory`]). A device (`device`) runs it. Kernels are the files of
//! the folder `kernels`, compiled when they are first used and specialised by macros (`source`).

mod best;
mod buffers;
mod catalog;
mod check;
mod device;
mod emulator;
mod gpu;
mod kernel_table;
pub mod memory;
mod packing;
mod plan;
mod precompile;
mod program;
mod run;
mod session;
mod source;
mod tensor;
mod weights;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use planish_ir::DType;

use self::device::Device;
use self::program::{Style, Target};
use self::session::{GraphSession, StepProfile};
use crate::reference::with_causes;
use crate::{
    Arithmetic, Description, Format, Model, ProfiledSession, Profiler, Runtime, RuntimeError, Session, SessionOptions,
    Unavailable, graph_file,
};

pub use catalog::{CompileError, KernelReport, compile_kernels};
pub use check::{KernelCheck, check_kernels};
pub use plan::{PlannedBuffer, PlannedStep, RunPlan, plan_nodes, plan_run, plan_steps};
pub use precompile::{precompile_check, precompile_run};
pub(crate) use tensor::DeviceTensor;

/// A device that all sessions of the process share while there are any: what one session gives, another one takes, and the
/// work of both is done in the order in which it was given.
struct SharedDevice(Mutex<Option<Weak<dyn Device>>>);

impl SharedDevice {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The device, made if there is none.
    fn get(&self, make: impl FnOnce() -> Result<Arc<dyn Device>, Unavailable>) -> Result<Arc<dyn Device>, Unavailable> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = shared.as_ref().and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = make()?;
        *shared = Some(Arc::downgrade(&device));
        Ok(device)
    }
}

/// A native CUDA runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuda {
    /// Fused kernels.
    Fused,
    /// One kernel for each operator.
    Baseline,
    /// Fused kernels, on the processor.
    Emulator,
}

impl Cuda {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Fused, Self::Baseline, Self::Emulator];

    fn style(self) -> Style {
        match self {
            Self::Fused | Self::Emulator => Style::Fused,
            Self::Baseline => Style::Unfused,
        }
    }

    /// The device that it runs on.
    fn device(self) -> Result<Arc<dyn Device>, Unavailable> {
        match self {
            Self::Fused | Self::Baseline => gpu::device(self.name()),
            Self::Emulator => {
                static EMULATOR: SharedDevice = SharedDevice::new();
                let compiler = self.compiler()?;
                EMULATOR.get(|| Ok(Arc::new(emulator::Emulator::new(compiler))))
            }
        }
    }

    fn compiler(self) -> Result<emulator::Compiler, Unavailable> {
        emulator::compiler().map_err(|reason| Unavailable {
            runtime: self.name(),
            reason,
            looked: Vec::new(),
            remedy: "the emulator needs a C++ compiler (g++ or clang++), by the variable CXX or as c++".to_owned(),
        })
    }
}

impl Runtime for Cuda {
    fn name(&self) -> &'static str {
        match self {
            Self::Fused => "cuda",
            Self::Baseline => "cuda-baseline",
            Self::Emulator => "cuda-emulator",
        }
    }

    fn check(&self) -> Result<Description, Unavailable> {
        match self {
            Self::Fused | Self::Baseline => gpu::check(self.name()),
            Self::Emulator => {
                let version = self.compiler()?.version;
                Ok(Description { product: "planish", version, location: "built in".to_owned() })
            }
        }
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::GRAPH]
    }

    fn arithmetic(&self, dtype: DType) -> Arithmetic {
        match dtype {
            DType::F32 | DType::F16 | DType::Bf16 => Arithmetic::Wider,
            _ => Arithmetic::Missing,
        }
    }

    fn load(&self, model: Model<'_>, _: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Ok(Box::new(self.session(model, true)?))
    }

    fn is_on_gpu(&self) -> bool {
        matches!(self, Self::Fused | Self::Baseline)
    }

    fn saturates(&self) -> bool {
        false
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        Ok(self)
    }
}

impl Profiler for Cuda {
    fn load_profiled(
        &self,
        model: Model<'_>,
        _: SessionOptions,
        _: &Path,
    ) -> Result<Box<dyn ProfiledSession>, RuntimeError> {
        Ok(Box::new(StepProfile::new(self.session(model, false)?)))
    }
}

impl Cuda {
    /// Loads a graph, whose bound runs are recorded or not.
    fn session(self, model: Model<'_>, record: bool) -> Result<GraphSession, RuntimeError> {
        let device = self.device()?;
        let name = self.name();
        let failed = |reason| RuntimeError::Failed { runtime: name, action: "load", model: model.to_string(), reason };
        let graph = match model {
            Model::Graph(graph) => graph.clone(),
            Model::File { format: Format::GRAPH, path, interface } => {
                graph_file::load_with(path, interface).map_err(|e| failed(with_causes(&e)))?
            }
            Model::File { .. } => return Err(model.not_taken(self.name(), "graphs of planish")),
        };
        let target = Target::of(self.style(), device.as_ref()).map_err(failed)?;
        GraphSession::load(name, model.to_string(), graph, device, target, record)
    }
}

/// A native CUDA runtime that starts each kernel by itself, and records no CUDA graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithoutGraphs(pub Cuda);

impl Runtime for WithoutGraphs {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn check(&self) -> Result<Description, Unavailable> {
        self.0.check()
    }

    fn formats(&self) -> &'static [Format] {
        self.0.formats()
    }

    fn arithmetic(&self, dtype: DType) -> Arithmetic {
        self.0.arithmetic(dtype)
    }

    fn load(&self, model: Model<'_>, _: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Ok(Box::new(self.0.session(model, false)?))
    }

    fn is_on_gpu(&self) -> bool {
        self.0.is_on_gpu()
    }

    fn saturates(&self) -> bool {
        self.0.saturates()
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        self.0.profiler()
    }
}

#[cfg(test)]
mod tests;
