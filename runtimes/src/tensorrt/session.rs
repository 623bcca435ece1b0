//! An engine that is loaded and runs on a GPU.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::pin::Pin;

use cudarc::driver::{CudaGraph, sys};
use cxx::UniquePtr;
use planish_eval::Tensor;
use planish_ir::{DType, Dim, Shape, TensorType};
use trtx_sys::Dims64;
use trtx_sys::nvinfer1::{
    DataType, ExecutionContextAllocationStrategy, ICudaEngine, IExecutionContext, IRuntime, OptProfileSelector,
    TensorIOMode,
};

use super::device::{DeviceTensor, Gpu};
use super::library::{Library, header_version};
use super::log::Logger;
use super::options::{InputRange, Profile};
use super::{ENTERPRISE, Plan, RUNTIME, driver, shapes};
use crate::api::in_order;
use crate::value::Kept;
use crate::{Port, RuntimeError, RuntimeValue, Session};

/// A loaded engine. The members are dropped in their order: TensorRT's objects point to those behind them.
pub(super) struct EngineSession {
    /// What `run_bound` runs.
    bound: Option<Bound>,
    context: UniquePtr<IExecutionContext>,
    _engine: UniquePtr<ICudaEngine>,
    _runtime: UniquePtr<IRuntime>,
    logger: Logger,
    gpu: Gpu,
    /// The file, for errors.
    model: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    profiles: Vec<Profile>,
    /// The profile that the context is set to.
    profile: usize,
}

struct Bound {
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    /// The launches of a run as one; absent where CUDA cannot record them.
    graph: Option<CudaGraph>,
}

impl EngineSession {
    pub(super) fn load(library: &'static Library, path: &Path) -> Result<Self, RuntimeError> {
        let devices = driver::devices()?;
        let model = path.display().to_string();
        let failed =
            |reason: String| RuntimeError::Failed { runtime: RUNTIME, action: "load", model: model.clone(), reason };
        if !ENTERPRISE {
            let plan = Plan::read(path).map_err(|e| failed(e.to_string()))?;
            plan.runs_on(library.version, devices.first()).map_err(|e| failed(e.to_string()))?;
        }
        let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
        let gpu = Gpu::first().map_err(|e| failed(e.to_string()))?;
        let logger = Logger::new();
        // SAFETY: the function of the library, called with an `ILogger*` that lives longer than the runtime, behind the check
        // that there is a GPU.
        let mut runtime = unsafe {
            let runtime = (library.create_runtime)(logger.interface(), header_version().cast_signed());
            UniquePtr::<IRuntime>::from_raw(runtime.cast())
        };
        let said = |logger: &Logger| failed(logger.errors("TensorRT gave no reason"));
        let Some(made) = runtime.as_mut() else { return Err(said(&logger)) };
        // SAFETY: TensorRT reads the bytes during the call; the caller owns the engine.
        let mut engine = unsafe { UniquePtr::from_raw(made.deserializeCudaEngine(bytes.as_ptr().cast(), bytes.len())) };
        let Some(made) = engine.as_mut() else { return Err(said(&logger)) };
        let strategy = ExecutionContextAllocationStrategy::kSTATIC;
        // SAFETY: the caller owns the context.
        let context = unsafe { UniquePtr::from_raw(made.createExecutionContext(strategy)) };
        if context.is_null() {
            return Err(said(&logger));
        }
        let [inputs, outputs] = ports(&engine).map_err(failed)?;
        let profiles = profiles(&engine, &inputs);
        let bound = None;
        Ok(Self {
            bound,
            context,
            _engine: engine,
            _runtime: runtime,
            logger,
            gpu,
            model,
            inputs,
            outputs,
            profiles,
            profile: 0,
        })
    }

    fn failed(&self, action: &'static str, reason: impl ToString) -> RuntimeError {
        RuntimeError::Failed { runtime: RUNTIME, action, model: self.model.clone(), reason: reason.to_string() }
    }

    fn context(&mut self) -> Pin<&mut IExecutionContext> {
        self.context.pin_mut()
    }

    /// The profile for inputs.
    fn covering(&self, inputs: &[&DeviceTensor]) -> Result<usize, RuntimeError> {
        let shapes: Vec<(&str, &[usize])> =
            self.inputs.iter().zip(inputs).map(|(port, tensor)| (port.name.as_str(), tensor.shape())).collect();
        let uncovered = |reason| RuntimeError::Shapes { runtime: RUNTIME, model: self.model.clone(), reason };
        shapes::covering(&self.profiles, self.profile, &shapes).map_err(uncovered)
    }

    /// Points the context to inputs and to outputs that are made for them.
    fn set(&mut self, profile: usize, inputs: &[&DeviceTensor]) -> Result<Vec<DeviceTensor>, String> {
        let stream = self.gpu.stream.cu_stream();
        if profile != self.profile {
            let index = i32::try_from(profile).map_err(|e| e.to_string())?;
            // SAFETY: the stream lives as long as the session.
            if !unsafe { self.context().setOptimizationProfileAsync(index, stream.cast()) } {
                return Err(self.logger.errors("the profile was not taken"));
            }
            self.profile = profile;
        }
        let names =
            |ports: &[Port]| ports.iter().map(|port| CString::new(port.name.as_str())).collect::<Result<Vec<_>, _>>();
        let input_names = names(&self.inputs).map_err(|e| e.to_string())?;
        for (name, tensor) in input_names.iter().zip(inputs) {
            let shape = tensor.shape().iter().map(|size| i64::try_from(*size)).collect::<Result<Vec<_>, _>>();
            let shape = Dims64::from_slice(&shape.map_err(|e| e.to_string())?);
            // SAFETY: the name ends in zero; the memory lives until the run is done.
            let taken = unsafe {
                self.context().setInputShape(name.as_ptr(), &shape)
                    && self.context().setTensorAddress(name.as_ptr(), tensor.address().cast())
            };
            if !taken {
                return Err(self.logger.errors(&format!("the input `{}` was not taken", name.to_string_lossy())));
            }
        }
        let output_names = names(&self.outputs).map_err(|e| e.to_string())?;
        let mut outputs = Vec::new();
        for (index, name) in output_names.iter().enumerate() {
            // SAFETY: the name ends in zero.
            let dims = unsafe { self.context.getTensorShape(name.as_ptr()) };
            let port = &self.outputs[index];
            let shape = sizes(&dims).iter().map(|size| usize::try_from(*size)).collect::<Result<Vec<_>, _>>();
            let shape = shape.map_err(|_| format!("the sizes of the output `{}` depend on values", port.name))?;
            let output = self.gpu.allocate(port.ty.dtype, shape)?;
            // SAFETY: as above.
            if !unsafe { self.context().setTensorAddress(name.as_ptr(), output.address().cast()) } {
                return Err(self.logger.errors(&format!("the output `{}` was not taken", name.to_string_lossy())));
            }
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Starts a run on what the context points to.
    fn enqueue(&mut self) -> Result<(), String> {
        let stream = self.gpu.stream.cu_stream().cast();
        // SAFETY: the stream and what the context points to live until the run is done.
        match unsafe { self.context().enqueueV3(stream) } {
            true => Ok(()),
            false => Err(self.logger.errors("the run was not started")),
        }
    }

    fn outputs_of(&mut self, inputs: &[&DeviceTensor]) -> Result<Vec<(String, DeviceTensor)>, RuntimeError> {
        // Bound inputs are no longer what the context points to.
        self.bound = None;
        let profile = self.covering(inputs)?;
        let outputs = self.set(profile, inputs).and_then(|outputs| {
            self.enqueue()?;
            self.gpu.wait()?;
            Ok(outputs)
        });
        let outputs = outputs.map_err(|reason| self.failed("run", reason))?;
        Ok(self.outputs.iter().map(|port| port.name.clone()).zip(outputs).collect())
    }

    /// The launches of a run as one graph. TensorRT wants a run before it is recorded.
    fn record(&mut self) -> Result<Option<CudaGraph>, String> {
        self.enqueue()?;
        self.gpu.wait()?;
        let stream = self.gpu.stream.clone();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        if stream.begin_capture(mode).is_err() {
            return Ok(None);
        }
        let enqueued = self.enqueue();
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags);
        Ok(match (enqueued, graph) {
            (Ok(()), Ok(graph)) => graph,
            _ => None,
        })
    }
}

impl Session for EngineSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn name_dimensions(&mut self, ports: &[Port]) {
        for own in self.inputs.iter_mut().chain(&mut self.outputs) {
            let same = |port: &&Port| port.name == own.name && port.ty.shape.rank() == own.ty.shape.rank();
            if let Some(port) = ports.iter().find(same) {
                own.ty.shape = port.ty.shape.clone();
            }
        }
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        let copies = ordered.into_iter().map(|tensor| self.gpu.copy(tensor)).collect::<Result<Vec<_>, _>>();
        let copies = copies.map_err(|reason| self.failed("bind inputs of", reason))?;
        let outputs = self.outputs_of(&copies.iter().collect::<Vec<_>>())?;
        let tensor = |(name, value): (String, DeviceTensor)| match value.to_tensor() {
            Some(tensor) => Ok((name, tensor)),
            None => Err(self.failed("run", format!("the output `{name}` cannot be read"))),
        };
        outputs.into_iter().map(tensor).collect()
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        let copied = ordered.iter().map(|value| match &value.0 {
            Kept::Device(_) => Ok(None),
            Kept::Tensor(tensor) => self.gpu.copy(tensor).map(Some),
            Kept::Ort(_) => Err("a value of another runtime was given".to_owned()),
        });
        let copied = copied.collect::<Result<Vec<_>, _>>().map_err(|reason| self.failed("bind inputs of", reason))?;
        let values = ordered.iter().zip(&copied).filter_map(|(value, copy)| match &value.0 {
            Kept::Device(kept) => Some(kept),
            _ => copy.as_ref(),
        });
        let outputs = self.outputs_of(&values.collect::<Vec<_>>())?;
        Ok(outputs.into_iter().map(|(name, value)| (name, RuntimeValue(Kept::Device(value)))).collect())
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.bound = None;
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        let inputs = ordered.into_iter().map(|tensor| self.gpu.copy(tensor)).collect::<Result<Vec<_>, _>>();
        let inputs = inputs.map_err(|reason| self.failed("bind inputs of", reason))?;
        let views: Vec<&DeviceTensor> = inputs.iter().collect();
        let profile = self.covering(&views)?;
        let outputs = self.set(profile, &views).map_err(|reason| self.failed("bind inputs of", reason))?;
        let graph = self.record().map_err(|reason| self.failed("run", reason))?;
        self.bound = Some(Bound { inputs, outputs, graph });
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let Some(Bound { inputs, outputs, graph }) = &self.bound else {
            return Err(self.failed("run", "no inputs are bound"));
        };
        debug_assert_eq!((inputs.len(), outputs.len()), (self.inputs.len(), self.outputs.len()));
        let launched = match graph {
            Some(graph) => graph.launch().map_err(|e| e.to_string()),
            None => self.enqueue(),
        };
        launched.and_then(|()| self.gpu.wait()).map_err(|reason| self.failed("run", reason))
    }
}

fn sizes(dims: &Dims64) -> &[i64] {
    &dims.d[..usize::try_from(dims.nbDims).unwrap_or(0).min(dims.d.len())]
}

/// The inputs and the outputs of an engine.
fn ports(engine: &ICudaEngine) -> Result<[Vec<Port>; 2], String> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for index in 0..engine.getNbIOTensors() {
        let name = engine.getIOTensorName(index);
        // SAFETY: the engine has this many names; each ends in zero and lives as long as the engine.
        let (dims, dtype, mode, text) = unsafe {
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            (engine.getTensorShape(name), engine.getTensorDataType(name), engine.getTensorIOMode(name), text)
        };
        let dtype =
            element(dtype).ok_or_else(|| format!("`{text}` has an element type that planish does not handle"))?;
        let dim = |(axis, &size): (usize, &i64)| match size >= 0 {
            true => Dim::constant(size),
            false => Dim::symbol(&format!("{text}_dim_{axis}")),
        };
        let shape = Shape::new(sizes(&dims).iter().enumerate().map(dim));
        let port = Port { name: text.clone(), ty: TensorType::new(dtype, shape) };
        match mode {
            TensorIOMode::kINPUT => inputs.push(port),
            _ => outputs.push(port),
        }
    }
    Ok([inputs, outputs])
}

/// The sizes that an engine takes.
fn profiles(engine: &ICudaEngine, inputs: &[Port]) -> Vec<Profile> {
    let range = |port: &Port, profile: i32| {
        let name = CString::new(port.name.as_str()).ok()?;
        let shape = |selector| {
            // SAFETY: the name is that of an input and ends in zero; the engine has the profile.
            sizes(&unsafe { engine.getProfileShape(name.as_ptr(), profile, selector) }).to_vec()
        };
        let (min, opt) = (shape(OptProfileSelector::kMIN), shape(OptProfileSelector::kOPT));
        Some(InputRange { name: port.name.clone(), min, opt, max: shape(OptProfileSelector::kMAX) })
    };
    let profile = |index| Profile { inputs: inputs.iter().filter_map(|port| range(port, index)).collect() };
    (0..engine.getNbOptimizationProfiles()).map(profile).collect()
}

fn element(dtype: DataType) -> Option<DType> {
    Some(match dtype {
        DataType::kFLOAT => DType::F32,
        DataType::kHALF => DType::F16,
        DataType::kBF16 => DType::Bf16,
        DataType::kINT8 => DType::I8,
        DataType::kINT32 => DType::I32,
        DataType::kINT64 => DType::I64,
        DataType::kUINT8 => DType::U8,
        DataType::kBOOL => DType::Bool,
        _ => return None,
    })
}
