//! A model loaded by ONNX Runtime.

use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session as Inner, SessionInputValue};
use planish_eval::Tensor;
use planish_ir::DType;

use crate::api::in_order;
use crate::ort::tensor::{OrtValue, port};
use crate::ort::{OptimizationLevel, OrtOptions, Provider, cuda, placement};
use crate::value::Kept;
use crate::{Port, RuntimeError, RuntimeValue, Session};

pub(crate) struct OrtSession {
    inner: Inner,
    provider: Provider,
    elsewhere: Vec<String>,
    /// The file, for errors.
    model: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// What `run_bound` runs on, in the order of the inputs.
    bound: Option<Vec<OrtValue>>,
}

impl OrtSession {
    /// Loads a file. With `profile` ONNX Runtime records its runs for a file whose name begins with this.
    pub(crate) fn load(
        environment: &Environment,
        provider: Provider,
        path: &Path,
        threads: usize,
        options: OrtOptions,
        profile: Option<&Path>,
    ) -> Result<Self, RuntimeError> {
        let (runtime, model) = (provider.runtime(), path.display().to_string());
        let failed = |reason: String| RuntimeError::Failed { runtime, action: "load", model: model.clone(), reason };
        let inner = configured(environment, provider, threads, options)
            .and_then(|builder| match profile {
                Some(prefix) => Ok(builder.with_profiling(prefix)?),
                None => Ok(builder),
            })
            .and_then(|mut builder| builder.commit_from_file(path))
            .map_err(|e| failed(e.to_string()))?;
        let elsewhere = match provider {
            Provider::Cpu => Vec::new(),
            Provider::Cuda => placement::elsewhere(&inner, cuda::NAME).map_err(failed)?,
        };
        let ports = |outlets: &[ort::value::Outlet]| outlets.iter().map(port).collect::<Result<Vec<_>, _>>();
        let inputs = ports(inner.inputs()).map_err(|reason| failed(format!("the input {reason}")))?;
        let outputs = ports(inner.outputs()).map_err(|reason| failed(format!("the output {reason}")))?;
        Ok(Self { inner, provider, elsewhere, model, inputs, outputs, bound: None })
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
            DType::String => OrtValue::of_texts(tensor),
            _ => OrtValue::of(tensor).map_err(|error| error.to_string()),
        };
        value.map_err(|reason| self.failed("bind inputs of", reason))
    }

    /// Runs the model on values in the order of its inputs.
    fn outputs_of(&mut self, values: &[&OrtValue]) -> Result<Vec<(String, OrtValue)>, RuntimeError> {
        let (runtime, model) = (self.provider.runtime(), &self.model);
        let failed = |reason: String| RuntimeError::Failed { runtime, action: "run", model: model.clone(), reason };
        let views: Vec<SessionInputValue<'_>> = values.iter().map(|value| value.inner().into()).collect();
        let outputs = self.inner.run(views.as_slice()).map_err(|e| failed(e.to_string()))?;
        let kept = |(name, value): (&str, ort::value::DynValue)| {
            let value = OrtValue::new(value).map_err(|reason| failed(format!("the output `{name}` is {reason}")))?;
            Ok((name.to_owned(), value))
        };
        outputs.into_iter().map(kept).collect()
    }
}

fn configured(
    environment: &Environment,
    provider: Provider,
    threads: usize,
    options: OrtOptions,
) -> Result<SessionBuilder, ort::Error> {
    let level = match options.optimization {
        OptimizationLevel::Disabled => GraphOptimizationLevel::Disable,
        OptimizationLevel::Basic => GraphOptimizationLevel::Level1,
        OptimizationLevel::Extended => GraphOptimizationLevel::Level2,
        OptimizationLevel::All => GraphOptimizationLevel::All,
    };
    let mut builder = Inner::builder(environment)?
        .with_optimization_level(level)?
        .with_intra_threads(threads)?
        .with_inter_threads(1)?
        .with_intra_op_spinning(options.spin)?
        .with_memory_pattern(!options.varied_shapes)?;
    if provider == Provider::Cuda {
        builder = placement::recorded(cuda::registered(builder)?)?;
    }
    let disabled = provider.disabled_for_compiled();
    if options.compiled && !disabled.is_empty() {
        builder = builder.with_disabled_optimizers(disabled.join(";"))?;
    }
    Ok(builder)
}

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
        let copied = self.inputs.iter().zip(&ordered).map(|(port, value)| match &value.0 {
            Kept::Ort(_) => Ok(None),
            Kept::Tensor(tensor) => self.value(port, tensor).map(Some),
            Kept::Cuda(_) => Err(self.failed("bind inputs of", "a value of another runtime was given")),
            #[cfg(feature = "trtx")]
            Kept::Device(_) => Err(self.failed("bind inputs of", "a value of another runtime was given")),
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
        self.bound = Some(self.values(inputs)?);
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let Some(values) = &self.bound else {
            return Err(self.failed("run", "no inputs are bound"));
        };
        let views: Vec<SessionInputValue<'_>> = values.iter().map(|value| value.inner().into()).collect();
        let result = self.inner.run(views.as_slice()).map(drop);
        result.map_err(|e| self.failed("run", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::Search;
    use crate::ort::LIBRARY;
    use crate::ort::library;

    /// Whether ONNX Runtime makes `Add` and `LayerNormalization` one node under these options.
    fn fuses_residual(options: OrtOptions) -> bool {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let optimized = folder.path().join("optimized.onnx");
        configured(&loaded.environment, Provider::Cpu, 0, options)
            .unwrap()
            .with_optimized_model_path(&optimized)
            .unwrap()
            .commit_from_file(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx/residual.onnx"))
            .unwrap();
        let name = b"SkipLayerNormalization";
        std::fs::read(optimized).unwrap().windows(name.len()).any(|bytes| bytes == name)
    }

    #[test]
    fn a_compiled_graph_keeps_its_residual_additions() {
        assert!(fuses_residual(OrtOptions::default()));
        assert!(!fuses_residual(OrtOptions::compiled()));
    }
}
