//! A model loaded by ONNX Runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cudarc::driver::CudaStream;
use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session as Inner, SessionInputValue};
use planish_eval::Tensor;
use planish_ir::{DType, PartInterface, PartRole};

use crate::api::in_order;
use crate::ort::builder::{MAPPED_BYTES, committed, configured};
use crate::ort::cache::{CACHE_ENTRY, IN_PLACE, OrtCache, pairs};
use crate::ort::device::{Copies, DeviceMemory};
use crate::ort::on_device::{self, DeviceBound};
use crate::ort::tensor::{OrtValue, port};
use crate::ort::{OrtOptions, Provider, cuda, heap, placement};
use crate::value::Kept;
use crate::{DeviceTimes, Port, RuntimeError, RuntimeValue, Session};

pub(crate) struct OrtSession {
    inner: Inner,
    /// The stream that the session works on, which has to outlive it.
    _stream: Option<Arc<CudaStream>>,
    /// The memory that values are in where the provider has a device. A model that appends to its cache in place has it in the
    /// host's memory.
    device: Option<Arc<DeviceMemory>>,
    provider: Provider,
    elsewhere: Vec<String>,
    /// The file, for errors.
    model: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// The input of token ids.
    tokens: Option<usize>,
    /// The inputs of a cache that the model appends to in place, each with its output; none where it copies.
    caches: Vec<(usize, usize)>,
    /// What `run_bound` runs on.
    bound: Option<Bound>,
}

/// What is bound for runs.
enum Bound {
    /// Values in the order of the inputs.
    Inputs(Vec<OrtValue>),
    /// Inputs and outputs, and the memory of the cache.
    All(Box<IoBinding>, Vec<OrtCache>),
    /// Inputs and outputs in the memory of a device.
    Device(Box<DeviceBound>),
}

/// A file that is loaded.
#[derive(Clone, Copy)]
pub(crate) struct File<'a> {
    /// Where it is.
    pub(crate) path: &'a Path,
    /// What its inputs and outputs are, where that is known.
    pub(crate) interface: Option<&'a PartInterface>,
    /// What ONNX Runtime records its runs for: a file whose name begins with this.
    pub(crate) profile: Option<&'a Path>,
}

/// What the tensors of a model are, by their names.
fn inferred(inputs: &[Port], outputs: &[Port]) -> PartInterface {
    let [inputs, outputs] = [inputs, outputs]
        .map(|ports| ports.iter().map(|port| (port.name.as_str(), Some(&port.ty))).collect::<Vec<_>>());
    planish_onnx::interface::infer(PartRole::Model, &inputs, &outputs)
}

impl OrtSession {
    /// Loads a file.
    pub(crate) fn load(
        environment: &Environment,
        provider: Provider,
        file: File<'_>,
        threads: usize,
        options: OrtOptions,
    ) -> Result<Self, RuntimeError> {
        let File { path, interface, profile } = file;
        let (runtime, model) = (provider.runtime(), path.display().to_string());
        let failed = |reason: String| RuntimeError::Failed { runtime, action: "load", model: model.clone(), reason };
        let stream = match provider {
            Provider::Cpu => None,
            Provider::Cuda => Some(cuda::stream().map_err(failed)?),
        };
        let loading = heap::Loading::begin();
        let inner = configured(environment, provider, threads, options, stream.as_deref())
            .and_then(|builder| match profile {
                Some(prefix) => Ok(builder.with_profiling(prefix)?),
                None => Ok(builder),
            })
            .and_then(|builder| committed(builder, path, options.fast_start.then_some(MAPPED_BYTES)))
            .map_err(|e| failed(e.to_string()))?;
        drop(loading);
        let elsewhere = match provider {
            Provider::Cpu => Vec::new(),
            Provider::Cuda => placement::elsewhere(&inner, cuda::NAME).map_err(failed)?,
        };
        let ports = |outlets: &[ort::value::Outlet]| outlets.iter().map(port).collect::<Result<Vec<_>, _>>();
        let inputs = ports(inner.inputs()).map_err(|reason| failed(format!("the input {reason}")))?;
        let outputs = ports(inner.outputs()).map_err(|reason| failed(format!("the output {reason}")))?;
        let in_place =
            inner.metadata().ok().and_then(|metadata| metadata.custom(CACHE_ENTRY)).as_deref() == Some(IN_PLACE);
        let interface = interface.cloned().unwrap_or_else(|| inferred(&inputs, &outputs));
        let caches = if in_place { pairs(&interface, &inputs, &outputs) } else { Vec::new() };
        let tokens = inputs.iter().position(|port| interface.input(&port.name).is_token_ids());
        let device = match stream.clone().filter(|_| caches.is_empty()) {
            Some(stream) => {
                let memory = DeviceMemory::of(&inner, Copies::Cuda(stream)).map_err(|e| failed(e.to_string()))?;
                Some(Arc::new(memory))
            }
            None => None,
        };
        Ok(Self {
            inner,
            _stream: stream,
            device,
            provider,
            elsewhere,
            model,
            inputs,
            outputs,
            tokens,
            caches,
            bound: None,
        })
    }

    /// The same on a device of tests.
    #[cfg(test)]
    pub(super) fn on_device(self, copies: Copies) -> Self {
        let memory = DeviceMemory::of(&self.inner, copies).unwrap();
        Self { device: Some(Arc::new(memory)), ..self }
    }

    #[cfg(test)]
    pub(super) fn device(&self) -> Option<Arc<DeviceMemory>> {
        self.device.clone()
    }

    #[cfg(test)]
    pub(super) fn inner_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }

    /// Ends the recording of runs; returns the file.
    pub(super) fn end_profiling(&mut self) -> Result<PathBuf, RuntimeError> {
        let ended = self.inner.end_profiling();
        ended.map(PathBuf::from).map_err(|e| self.failed("profile", e))
    }

    pub(super) fn failed(&self, action: &'static str, reason: impl ToString) -> RuntimeError {
        let (runtime, model) = (self.provider.runtime(), self.model.clone());
        RuntimeError::Failed { runtime, action, model, reason: reason.to_string() }
    }

    fn values(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<OrtValue>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        let value = |(port, tensor)| self.value(port, tensor);
        self.inputs.iter().zip(ordered).map(value).collect()
    }

    /// A tensor in ONNX Runtime's memory, as an input takes it.
    fn value(&self, port: &Port, tensor: &Tensor) -> Result<OrtValue, RuntimeError> {
        let value = match port.ty.dtype {
            _ if let Some(device) = &self.device => on_device::input(device, port, tensor),
            DType::String => OrtValue::of_texts(tensor),
            _ => OrtValue::of(tensor).map_err(|error| error.to_string()),
        };
        value.map_err(|reason| self.failed("bind inputs of", reason))
    }

    /// Binds inputs, and the buffers of the cache as both inputs and outputs. Returns the cache of each pair, and the
    /// number of tokens that a run adds to it.
    fn bind_all(&self, ordered: &[&&RuntimeValue]) -> Result<(IoBinding, Vec<OrtCache>, usize), String> {
        // The inputs in front of the cache are [batch, new tokens]; a mask covers the past too.
        let new = self.tokens.and_then(|tokens| ordered.get(tokens)?.shape().get(1).copied());
        let new = new.ok_or("it has no input of token ids, which says how many tokens are new")?;
        let error = |error: ort::Error| error.to_string();
        let mut binding = self.inner.create_binding().map_err(error)?;
        let mut caches: Vec<OrtCache> = Vec::new();
        for (at, (port, value)) in self.inputs.iter().zip(ordered).enumerate() {
            if let Some((_, output)) = self.caches.iter().find(|(input, _)| *input == at) {
                let elements = |value: &OrtValue| value.elements::<f32>().map(<[f32]>::to_vec);
                let no_floats = || format!("`{}` has no elements of f32", port.name);
                let cache = match &value.0 {
                    Kept::OrtCache(cache) => match caches.iter().any(|other| other.is_in_memory_of(cache)) {
                        // Each input has a memory of its own.
                        true => cache.copied(new)?,
                        false => cache.with_room(new)?,
                    },
                    Kept::Ort(kept) => OrtCache::of(kept.shape(), &elements(kept).ok_or_else(no_floats)?, new)?,
                    Kept::Tensor(tensor) => OrtCache::of(tensor.shape(), tensor.as_f32().ok_or_else(no_floats)?, new)?,
                    _ => return Err(OTHER.to_owned()),
                };
                let mut buffer = cache.buffer();
                binding.bind_input(&*port.name, &*buffer).map_err(error)?;
                binding.bind_output(&*self.outputs[*output].name, &mut *buffer).map_err(error)?;
                drop(buffer);
                caches.push(cache);
                continue;
            }
            let copy;
            let given = match &value.0 {
                Kept::Ort(kept) => kept,
                Kept::Tensor(tensor) => {
                    copy = OrtValue::of(tensor).map_err(error)?;
                    &copy
                }
                _ => return Err(OTHER.to_owned()),
            };
            binding.bind_input(&*port.name, given.inner()).map_err(error)?;
        }
        let cpu =
            MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default).map_err(error)?;
        for (at, port) in self.outputs.iter().enumerate() {
            if !self.caches.iter().any(|(_, output)| *output == at) {
                binding.bind_output_to_device(&*port.name, &cpu).map_err(error)?;
            }
        }
        Ok((binding, caches, new))
    }

    /// Runs a model that appends to its cache in place. ONNX Runtime's operator takes several new tokens after a past
    /// for one row only, so rows then run one after the other.
    fn append(&mut self, ordered: &[&&RuntimeValue]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let shape = |at: usize| ordered.get(at).map_or(&[][..], |value| value.shape());
        let tokens = self.tokens.map_or(&[][..], shape);
        let past = self.caches.first().and_then(|(input, _)| shape(*input).get(2)).copied();
        let &[rows, new] = tokens else { return self.append_to_all(ordered) };
        if rows < 2 || new < 2 || past == Some(0) {
            return self.append_to_all(ordered);
        }
        let mut of_rows = Vec::new();
        for row in 0..rows {
            let one = ordered.iter().map(|value| value.take_rows(&[row]));
            let one = one.collect::<Option<Vec<RuntimeValue>>>();
            let one = one.ok_or_else(|| self.failed("bind inputs of", "an input has fewer rows than `input_ids`"))?;
            of_rows.push(self.append_to_all(&one.iter().collect::<Vec<_>>().iter().collect::<Vec<_>>())?);
        }
        let joined = |(at, port): (usize, &Port)| {
            let parts = of_rows.iter().filter_map(|outputs| outputs.get(at)?.1.to_tensor()).collect::<Vec<_>>();
            let shape: Option<Vec<usize>> = parts.first().map(|part| [&[rows], &part.shape()[1..]].concat());
            let bytes = parts.iter().flat_map(Tensor::to_bytes).collect::<Vec<u8>>();
            let tensor = shape.and_then(|shape| Tensor::from_bytes(parts[0].dtype(), shape, &bytes));
            let tensor =
                tensor.ok_or_else(|| self.failed("run", format!("`{}` cannot be joined of rows", port.name)))?;
            Ok((port.name.clone(), tensor.into()))
        };
        self.outputs.iter().enumerate().map(joined).collect()
    }

    /// The same, all rows at once.
    fn append_to_all(&mut self, ordered: &[&&RuntimeValue]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let (binding, caches, new) = self.bind_all(ordered).map_err(|reason| self.failed("bind inputs of", reason))?;
        let (runtime, model) = (self.provider.runtime(), &self.model);
        let failed = |reason: String| RuntimeError::Failed { runtime, action: "run", model: model.clone(), reason };
        let guards: Vec<_> = caches.iter().map(OrtCache::buffer).collect();
        let mut given = self.inner.run_binding(&binding).map_err(|error| failed(error.to_string()))?;
        drop(guards);
        let mut caches: Vec<Option<OrtCache>> = caches.into_iter().map(|cache| Some(cache.extended(new))).collect();
        let output = |(at, port): (usize, &Port)| {
            let pair = self.caches.iter().position(|(_, output)| *output == at);
            let value = match pair.and_then(|pair| caches.get_mut(pair)?.take()) {
                Some(cache) => Kept::OrtCache(cache),
                None => {
                    let value =
                        given.remove(&port.name).ok_or_else(|| failed(format!("there is no `{}`", port.name)))?;
                    let value = OrtValue::new(value);
                    Kept::Ort(value.map_err(|reason| failed(format!("the output `{}` is {reason}", port.name)))?)
                }
            };
            Ok((port.name.clone(), RuntimeValue(value)))
        };
        self.outputs.iter().enumerate().map(output).collect()
    }

    /// Runs the model on values in the order of its inputs.
    fn outputs_of(&mut self, values: &[&OrtValue]) -> Result<Vec<(String, OrtValue)>, RuntimeError> {
        let (runtime, model) = (self.provider.runtime(), &self.model);
        let failed = |reason: String| RuntimeError::Failed { runtime, action: "run", model: model.clone(), reason };
        if let Some(device) = &self.device {
            let given = on_device::outputs_of(&mut self.inner, device, [&self.inputs, &self.outputs], values);
            let names = self.outputs.iter().map(|port| port.name.clone());
            return given.map(|given| names.zip(given).collect()).map_err(failed);
        }
        let views: Vec<SessionInputValue<'_>> = values.iter().map(|value| value.inner().into()).collect();
        let outputs = self.inner.run(views.as_slice()).map_err(|e| failed(e.to_string()))?;
        let kept = |(name, value): (&str, ort::value::DynValue)| {
            let value = OrtValue::new(value).map_err(|reason| failed(format!("the output `{name}` is {reason}")))?;
            Ok((name.to_owned(), value))
        };
        outputs.into_iter().map(kept).collect()
    }
}

/// Why there is no run.
const UNBOUND: &str = "no inputs are bound";

/// Why a value is not taken.
const OTHER: &str = "a value of another runtime was given";

impl Session for OrtSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn elsewhere(&self) -> &[String] {
        &self.elsewhere
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        if !self.caches.is_empty() {
            let given: Vec<(&str, RuntimeValue)> =
                inputs.iter().map(|(name, tensor)| (*name, tensor.clone().into())).collect();
            let outputs = self.run_values(&given.iter().map(|(name, value)| (*name, value)).collect::<Vec<_>>())?;
            let tensor = |(name, value): (String, RuntimeValue)| match value.to_tensor() {
                Some(tensor) => Ok((name, tensor)),
                None => Err(self.failed("run", format!("the output `{name}` cannot be read"))),
            };
            return outputs.into_iter().map(tensor).collect();
        }
        let values = self.values(inputs)?;
        let outputs = self.outputs_of(&values.iter().collect::<Vec<_>>())?;
        let tensor = |(name, value): (String, OrtValue)| match value.to_tensor() {
            Some(tensor) => Ok((name, tensor)),
            None => Err(self.failed("run", format!("the output `{name}` cannot be read"))),
        };
        outputs.into_iter().map(tensor).collect()
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        if !self.caches.is_empty() {
            return self.append(&ordered);
        }
        let copied = self.inputs.iter().zip(&ordered).map(|(port, value)| match &value.0 {
            Kept::Ort(_) => Ok(None),
            Kept::Tensor(tensor) => self.value(port, tensor).map(Some),
            _ => Err(self.failed("bind inputs of", OTHER)),
        });
        let copied = copied.collect::<Result<Vec<_>, _>>()?;
        let values = ordered.iter().zip(&copied).filter_map(|(value, copy)| match &value.0 {
            Kept::Ort(kept) => Some(kept),
            _ => copy.as_ref(),
        });
        let outputs = self.outputs_of(&values.collect::<Vec<_>>())?;
        Ok(outputs.into_iter().map(|(name, value)| (name, RuntimeValue(Kept::Ort(value)))).collect())
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.bound = None;
        if let Some(device) = &self.device {
            let (values, ports) = (self.values(inputs)?, [&self.inputs[..], &self.outputs]);
            let bound = DeviceBound::new(&mut self.inner, device, ports, values);
            self.bound = Some(Bound::Device(bound.map_err(|reason| self.failed("bind inputs of", reason))?.into()));
            return Ok(());
        }
        if self.caches.is_empty() {
            self.bound = Some(Bound::Inputs(self.values(inputs)?));
            return Ok(());
        }
        let given: Vec<(&str, RuntimeValue)> =
            inputs.iter().map(|(name, tensor)| (*name, tensor.clone().into())).collect();
        let given: Vec<(&str, &RuntimeValue)> = given.iter().map(|(name, value)| (*name, value)).collect();
        let ordered = in_order(&self.inputs, &given).and_then(|ordered| self.bind_all(&ordered));
        let (binding, caches, _) = ordered.map_err(|reason| self.failed("bind inputs of", reason))?;
        self.bound = Some(Bound::All(binding.into(), caches));
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let result = match &self.bound {
            Some(Bound::Inputs(values)) => {
                let views: Vec<SessionInputValue<'_>> = values.iter().map(|value| value.inner().into()).collect();
                self.inner.run(views.as_slice()).map(drop)
            }
            // The new keys of each run are written to the same place.
            Some(Bound::All(binding, caches)) => {
                let guards: Vec<_> = caches.iter().map(OrtCache::buffer).collect();
                let result = self.inner.run_binding(binding).map(drop);
                drop(guards);
                result
            }
            Some(Bound::Device(bound)) => bound.run(&mut self.inner),
            None => return Err(self.failed("run", UNBOUND)),
        };
        result.map_err(|e| self.failed("run", e))
    }

    fn time_bound(&mut self, transfers: bool) -> Result<Option<DeviceTimes>, RuntimeError> {
        let Some(Bound::Device(bound)) = &mut self.bound else { return self.run_bound().map(|()| None) };
        bound.time(&mut self.inner, transfers).map_err(|reason| self.failed("run", reason))
    }
}
