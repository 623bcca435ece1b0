//! An engine that is loaded and runs on a GPU.

use std::ffi::CString;
use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use cudarc::driver::CudaGraph;
use cxx::UniquePtr;
use planish_eval::Tensor;
use trtx_sys::Dims64;
use trtx_sys::nvinfer1::{ICudaEngine, IExecutionContext};

use super::device::{DeviceTensor, Gpu};
use super::engine::{self, Engine};
use super::library::Library;
use super::load_options::{KernelSpecialization, LoadOptions, WeightStreamingBudget};
use super::measure::HostCopies;
use super::options::Profile;
use super::ports::{on_host, ports, profiles, sizes};
use super::runtime_config::RuntimeConfig;
use super::{RUNTIME, shapes};
use crate::api::{in_order, rename_dimensions};
use crate::value::Kept;
use crate::{DeviceTimes, Port, RuntimeError, RuntimeValue, Session};

/// A loaded engine. The members are dropped in their order: TensorRT's objects point to those after them.
pub(super) struct EngineSession {
    /// What `run_bound` runs.
    bound: Option<Bound>,
    pub(super) context: UniquePtr<IExecutionContext>,
    config: RuntimeConfig,
    pub(super) engine: Engine,
    /// What the context reads from the host's memory: copies of inputs, each where the engine wants it there.
    host_inputs: Vec<Option<Vec<u8>>>,
    pub(super) gpu: Gpu,
    /// Whether `run_bound` launches a recorded CUDA graph.
    cuda_graph: bool,
    /// When kernels are compiled for the shapes of a run.
    #[cfg_attr(feature = "tensorrt", allow(dead_code))]
    pub(super) specialization: KernelSpecialization,
    /// Is told of what hurts nothing but speed.
    pub(super) warn: fn(&str),
    /// The file, for errors.
    pub(super) model: String,
    inputs: Vec<Port>,
    /// Whether the engine wants each input in the host's memory.
    on_host: Vec<bool>,
    outputs: Vec<Port>,
    profiles: Vec<Profile>,
    /// The profile that the context is set to.
    profile: usize,
}

pub(super) struct Bound {
    pub(super) inputs: Vec<DeviceTensor>,
    pub(super) outputs: Vec<DeviceTensor>,
    /// The launches of a run as one; absent where CUDA cannot record them, or nobody wants that.
    pub(super) graph: Option<CudaGraph>,
    /// Copies of the inputs and room for the outputs in the host's memory, once runs with transfers are measured.
    pub(super) host: Option<HostCopies>,
}

impl Drop for EngineSession {
    fn drop(&mut self) {
        self.config.keep();
    }
}

/// Sets how many bytes of weights are in the GPU's memory, for an engine that was built to stream them.
fn stream_weights(mut engine: Pin<&mut ICudaEngine>, budget: WeightStreamingBudget) -> Result<(), String> {
    let streamable = engine.getStreamableWeightsSize();
    if streamable <= 0 {
        return match budget {
            WeightStreamingBudget::Off => Ok(()),
            _ => Err("the engine streams no weights; build it with --weight-streaming".to_owned()),
        };
    }
    let bytes = budget.bytes(streamable, engine.getWeightStreamingAutomaticBudget());
    match engine.as_mut().setWeightStreamingBudgetV2(bytes) {
        true => Ok(()),
        false => Err(format!("a budget of {bytes} of {streamable} bytes of weights was not taken")),
    }
}

impl EngineSession {
    pub(super) fn load(library: &'static Library, path: &Path, options: &LoadOptions) -> Result<Self, RuntimeError> {
        let failed = |reason: String| engine::failed(path, reason);
        let mut engine = Engine::load(library, path)?;
        let gpu = Gpu::first().map_err(|e| failed(e.to_string()))?;
        // Before there is a context, which takes the memory.
        stream_weights(engine.engine.pin_mut(), options.weight_streaming_budget).map_err(failed)?;
        let mut config = RuntimeConfig::new(library, &mut engine, options).map_err(failed)?;
        let context = config.context(engine.engine.pin_mut());
        if context.is_null() {
            return Err(failed(engine.logger.errors("TensorRT gave no reason")));
        }
        let [inputs, outputs] = ports(&engine.engine).map_err(failed)?;
        let on_host = on_host(&engine.engine, &inputs, &outputs).map_err(failed)?;
        let profiles = profiles(&engine.engine, &inputs);
        Ok(Self {
            bound: None,
            context,
            config,
            engine,
            host_inputs: Vec::new(),
            gpu,
            cuda_graph: options.cuda_graph,
            specialization: options.kernel_specialization,
            warn: options.warn,
            model: path.display().to_string(),
            inputs,
            on_host,
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
        shapes::covering(&self.profiles, &shapes).map_err(uncovered)
    }

    /// Points the context to inputs and to outputs that are made for them.
    fn set(&mut self, profile: usize, inputs: &[&DeviceTensor]) -> Result<Vec<DeviceTensor>, String> {
        let stream = self.gpu.stream.cu_stream();
        if profile != self.profile {
            let index = i32::try_from(profile).map_err(|e| e.to_string())?;
            // SAFETY: the stream lives as long as the session.
            if !unsafe { self.context().setOptimizationProfileAsync(index, stream.cast()) } {
                return Err(self.engine.logger.errors("the profile was not taken"));
            }
            self.profile = profile;
        }
        let names =
            |ports: &[Port]| ports.iter().map(|port| CString::new(port.name.as_str())).collect::<Result<Vec<_>, _>>();
        let input_names = names(&self.inputs).map_err(|e| e.to_string())?;
        // The context points to earlier copies until it is told of these.
        let on_host =
            inputs.iter().zip(&self.on_host).map(|(tensor, host)| host.then(|| tensor.to_bytes()).transpose());
        let mut host_inputs = on_host.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        if host_inputs.iter().any(Option::is_some) {
            // TensorRT reads them when the run is started.
            self.gpu.wait()?;
        }
        for ((name, tensor), host) in input_names.iter().zip(inputs).zip(&mut host_inputs) {
            let address = host.as_mut().map_or_else(|| tensor.address(), |bytes| bytes.as_mut_ptr());
            let shape = tensor.shape().iter().map(|size| i64::try_from(*size)).collect::<Result<Vec<_>, _>>();
            let shape = Dims64::from_slice(&shape.map_err(|e| e.to_string())?);
            // SAFETY: the name ends in zero; the memory lives until the run is done.
            let taken = unsafe {
                self.context().setInputShape(name.as_ptr(), &shape)
                    && self.context().setTensorAddress(name.as_ptr(), address.cast())
            };
            if !taken {
                return Err(self
                    .engine
                    .logger
                    .errors(&format!("the input `{}` was not taken", name.to_string_lossy())));
            }
        }
        self.host_inputs = host_inputs;
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
                return Err(self
                    .engine
                    .logger
                    .errors(&format!("the output `{}` was not taken", name.to_string_lossy())));
            }
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Starts a run on what the context points to.
    pub(super) fn enqueue(&mut self) -> Result<(), String> {
        let stream = self.gpu.stream.cu_stream().cast();
        // SAFETY: the stream and what the context points to live until the run is done.
        match unsafe { self.context().enqueueV3(stream) } {
            true => Ok(()),
            false => Err(self.engine.logger.errors("the run was not started")),
        }
    }

    /// Starts a run on what is bound.
    pub(super) fn launch(&mut self, bound: &Bound) -> Result<(), String> {
        debug_assert_eq!((bound.inputs.len(), bound.outputs.len()), (self.inputs.len(), self.outputs.len()));
        match &bound.graph {
            Some(graph) => graph.launch().map_err(|e| e.to_string()),
            None => self.enqueue(),
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
}

impl Session for EngineSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn name_dimensions(&mut self, ports: &[Port]) {
        rename_dimensions(self.inputs.iter_mut().chain(&mut self.outputs), ports);
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
            Kept::Ort(_) | Kept::OrtCache(_) | Kept::Cuda(_) => Err("a value of another runtime was given".to_owned()),
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
        let graph = if self.cuda_graph { self.record().map_err(|reason| self.failed("run", reason))? } else { None };
        self.bound = Some(Bound { inputs, outputs, graph, host: None });
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let bound = self.bound.take().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        let ran = self.launch(&bound).and_then(|()| self.gpu.wait());
        self.bound = Some(bound);
        ran.map_err(|reason| self.failed("run", reason))
    }

    fn time_without_graph(&mut self) -> Result<Option<Duration>, RuntimeError> {
        let bound = self.bound.take().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        let start = Instant::now();
        let ran = match bound.graph {
            Some(_) => self.enqueue().and_then(|()| self.gpu.wait()).map(|()| Some(start.elapsed())),
            None => Ok(None),
        };
        self.bound = Some(bound);
        ran.map_err(|reason| self.failed("run", reason))
    }

    fn run_as_bound(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.bind(inputs)?;
        let mut bound = self.bound.take().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        // The GPU may read the bytes until the run is done.
        let longest = bound.outputs.iter().map(DeviceTensor::bytes).max().unwrap_or(0);
        let poison = vec![0xFF; longest];
        let poisoned = bound.outputs.iter_mut().try_for_each(|output| output.fill(&poison[..output.bytes()]));
        let poisoned = poisoned.map_err(|e| e.to_string());
        let ran = poisoned.and_then(|()| self.launch(&bound)).and_then(|()| self.gpu.wait());
        ran.map_err(|reason| self.failed("run", reason))?;
        let read = self.outputs.iter().zip(&bound.outputs).map(|(port, output)| match output.to_tensor() {
            Some(tensor) => Ok((port.name.clone(), tensor)),
            None => Err(self.failed("run", format!("the output `{}` cannot be read", port.name))),
        });
        let outputs = read.collect();
        self.bound = Some(bound);
        outputs
    }

    fn time_bound(&mut self, transfers: bool) -> Result<Option<DeviceTimes>, RuntimeError> {
        let mut bound = self.bound.take().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        let times = self.measure(&mut bound, transfers);
        self.bound = Some(bound);
        times.map(Some).map_err(|reason| self.failed("run", reason))
    }
}
