//! How a model is compiled.

use planish_artifact::backend::Backend;
use planish_artifact::manifest::HubSource;
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::Recipe;
use planish_artifact::variants::VariantName;
use planish_models::Task;
use planish_onnx::Placement;
use planish_passes::{BlockInputs, HalfPrecision, Options};

use crate::calibrate::Calibration;
use crate::engine::SymbolRanges;
use crate::quantize::{Quantizations, QuantizeOptions, WeightOptions};

/// How to compile.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// What to compile for.
    pub backend: &'static Backend,
    /// The head; inferred where absent.
    pub task: Option<Task>,
    /// Whether the artifact has a model card.
    pub card: bool,
    /// Whether warnings are errors.
    pub strict: bool,
    /// What passes do; their target is that of the backend.
    pub passes: Options,
    /// Where weights go.
    pub placement: Placement,
    /// The library that the artifact is laid out for.
    pub package: RuntimePackage,
    /// The variant whose file names the artifact has; absent where it has one form.
    pub variant: Option<VariantName>,
    /// The number of stages that each part is cut into; absent where it stays whole.
    pub pipeline: Option<usize>,
    /// Whether to explain which operators raising found, and where a rule almost matched.
    pub explain_fusion: bool,
    /// Whether the graph is verified after each pass.
    pub verify_passes: bool,
    /// Whether a folder with files that planish did not write may be replaced.
    pub force: bool,
    /// The model of the hub that the source is, which the manifest records; absent for another source.
    pub hub: Option<HubSource>,
    /// The sizes of the engines that are built of the artifact: a profile each; the usual ones where there is none.
    pub profiles: Vec<SymbolRanges>,
    /// How linear layers are quantized, where that is asked for.
    pub quantize: Option<QuantizeOptions>,
    /// How weights alone are quantized, where that is asked for.
    pub quantize_weights: Option<WeightOptions>,
    /// What a user asked for, which the manifest records; absent where options are set one by one.
    pub recipe: Option<Recipe>,
    /// Whether weights that the model came with as codes are quantized anew.
    pub requantize: bool,
    /// What ONNX Runtime multiplies weights with that have a scale for each block; where absent, integers with weights that
    /// are quantized here, and what the source says with those of a graph.
    pub block_inputs: Option<BlockInputs>,
    /// The number of ranks that the model is cut for; absent where it stays whole.
    pub tensor_parallel: Option<usize>,
    /// What was measured of the activations: it decides what stays in float32, and the scales of quantized inputs; absent
    /// without calibration.
    pub calibration: Option<Calibration>,
}

impl CompileOptions {
    /// With fusion, in the precision of the model, with copied weights, for Optimum, and with the padding of the target.
    #[must_use]
    pub fn new(backend: &'static Backend, opset: u32) -> Self {
        Self {
            backend,
            task: None,
            card: false,
            strict: false,
            passes: Options::new(backend.target, opset),
            placement: Placement::Copy,
            package: RuntimePackage::default(),
            variant: None,
            pipeline: None,
            explain_fusion: false,
            verify_passes: false,
            force: false,
            hub: None,
            profiles: Vec::new(),
            quantize: None,
            quantize_weights: None,
            recipe: None,
            requantize: false,
            block_inputs: None,
            tensor_parallel: None,
            calibration: None,
        }
    }

    /// The same, where it is known what becomes of the inputs and weights of the parts, if it is.
    #[must_use]
    pub fn with_quantizations(mut self, known: Option<&Quantizations>) -> Self {
        if let (Some(quantize), Some(known)) = (&mut self.quantize, known) {
            quantize.known.clone_from(&known.layers);
        }
        if let (Some(quantize), Some(known)) = (&mut self.quantize_weights, known) {
            quantize.known.clone_from(&known.weights);
        }
        self
    }

    /// Whether an artifact is to be smaller than its source.
    pub(super) fn is_to_be_small(&self) -> bool {
        self.quantize.is_some() || self.quantize_weights.is_some() || self.passes.precision.is_some()
    }

    /// The options of passes over a part of a model, with what was observed of its values.
    pub(super) fn passes_for(&self, part: &str) -> Options {
        let passes = Options { explain: self.explain_fusion, ..self.passes.clone() };
        let table = self.calibration.as_ref().map(Calibration::table);
        let values = table.and_then(|table| table.part(part));
        let (Some(precision), Some(values)) = (&passes.precision, values) else { return passes };
        let observed = values.iter().map(|(value, range)| (value.clone(), range.magnitude())).collect();
        let half = HalfPrecision { observed, ..HalfPrecision::clone(precision) };
        Options { precision: Some(half.into()), ..passes }
    }
}
