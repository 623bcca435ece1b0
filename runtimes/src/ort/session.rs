//! A model loaded by ONNX Runtime.

use std::path::Path;

use ort::environment::Environment;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session as Inner, SessionInputValue};
use planish_eval::Tensor;

use crate::api::in_order;
use crate::ort::NAME;
use crate::ort::tensor::{port, to_tensor, to_value};
use crate::{OptimizationLevel, Port, RuntimeError, Session, SessionOptions};

pub(crate) struct OrtSession {
    inner: Inner,
    /// The file, for errors.
    model: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// What `run_bound` runs on, in the order of the inputs.
    bound: Option<Vec<SessionInputValue<'static>>>,
}

impl OrtSession {
    pub(crate) fn load(environment: &Environment, path: &Path, options: &SessionOptions) -> Result<Self, RuntimeError> {
        let model = path.display().to_string();
        let failed =
            |reason: String| RuntimeError::Failed { runtime: NAME, action: "load", model: model.clone(), reason };
        let inner = configured(environment, options)
            .and_then(|mut builder| builder.commit_from_file(path))
            .map_err(|e| failed(e.to_string()))?;
        let ports = |outlets: &[ort::value::Outlet]| outlets.iter().map(port).collect::<Result<Vec<_>, _>>();
        let inputs = ports(inner.inputs()).map_err(|reason| failed(format!("the input {reason}")))?;
        let outputs = ports(inner.outputs()).map_err(|reason| failed(format!("the output {reason}")))?;
        Ok(Self { inner, model, inputs, outputs, bound: None })
    }

    fn failed(&self, action: &'static str, reason: impl ToString) -> RuntimeError {
        RuntimeError::Failed { runtime: NAME, action, model: self.model.clone(), reason: reason.to_string() }
    }

    fn values(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<SessionInputValue<'static>>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        ordered.into_iter().map(|tensor| to_value(tensor).map_err(|e| self.failed("bind inputs of", e))).collect()
    }
}

fn configured(environment: &Environment, options: &SessionOptions) -> Result<SessionBuilder, ort::Error> {
    let level = match options.optimization {
        OptimizationLevel::Disabled => GraphOptimizationLevel::Disable,
        OptimizationLevel::Basic => GraphOptimizationLevel::Level1,
        OptimizationLevel::Extended => GraphOptimizationLevel::Level2,
        OptimizationLevel::All => GraphOptimizationLevel::All,
    };
    let mut builder = Inner::builder(environment)?
        .with_optimization_level(level)?
        .with_intra_threads(options.threads)?
        .with_inter_threads(1)?
        .with_intra_op_spinning(options.spin)?;
    if !options.disabled_optimizers.is_empty() {
        builder = builder.with_disabled_optimizers(options.disabled_optimizers.join(";"))?;
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

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let values = self.values(inputs)?;
        let failed =
            |reason: String| RuntimeError::Failed { runtime: NAME, action: "run", model: self.model.clone(), reason };
        let outputs = self.inner.run(values.as_slice()).map_err(|e| failed(e.to_string()))?;
        let tensor = |(name, value): (&str, ort::value::ValueRef<'_>)| {
            let tensor = to_tensor(&value).map_err(|reason| failed(format!("the output `{name}` is {reason}")))?;
            Ok((name.to_owned(), tensor))
        };
        outputs.iter().map(tensor).collect()
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.bound = Some(self.values(inputs)?);
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let Some(values) = &self.bound else {
            return Err(self.failed("run", "no inputs are bound"));
        };
        let result = self.inner.run(values.as_slice()).map(drop);
        result.map_err(|e| self.failed("run", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ort::find::Search;
    use crate::ort::library;

    /// Whether ONNX Runtime makes `Add` and `LayerNormalization` one node under these options.
    fn fuses_residual(options: &SessionOptions) -> bool {
        let loaded = library::load(&Search::of_process(None)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let optimized = folder.path().join("optimized.onnx");
        configured(&loaded.environment, options)
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
        assert!(fuses_residual(&SessionOptions::default()));
        assert!(!fuses_residual(&SessionOptions::compiled()));
    }
}
