//! The arguments that say how a model is quantized.

use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_artifact::coverage::{Coverage, Extent};
use planish_artifact::manifest::Manifest;
use planish_compiler::calibrate::{CalibrateOptions, is_table};
use planish_compiler::quantize::{PlanDocument, QuantizeOptions, Rounding};
use planish_passes::quantize::{
    Activation, Plan, PlannedAttention, PlannedInput, PlannedWeight, Settings, Smooth, WeightScales,
};
use planish_passes::{QuantizedForm, RangeMethod, Target};
use regex::Regex;

use super::terminal::say;
use super::{Usage, warn, weights};

/// How a model is quantized.
#[derive(clap::Args)]
#[command(next_help_heading = "Quantization")]
pub(super) struct QuantizationArguments {
    /// Quantize linear layers, tables of tokens and recurrent layers to integers of 8 bits. With --calibrate, the scales of
    /// activations are fixed; without, each run computes them (dynamic quantization, target ort only)
    #[arg(long, group = "quantize")]
    int8: bool,
    /// Compute the scales of the inputs of linear layers in each run although there is data, which then says which columns are
    /// smoothed and split; for target ort. Queries and keys keep scales from the data
    #[arg(long, requires = "int8", requires = "calibrate", conflicts_with = "rounding")]
    dynamic: bool,
    /// Quantize linear layers to floating-point numbers of 8 bits (E4M3), for targets onnx and trt; needs --calibrate
    #[arg(long, group = "quantize", requires = "calibrate")]
    fp8: bool,
    /// The number of columns that an input of linear layers gets in addition, so that columns with large values are split
    /// over several columns and do not set the scale of all. 0 turns splitting off. It is for --int8 with --calibrate
    /// [default: 32, and none for target cuda, which has no such columns]
    #[arg(long, value_name = "N", requires = "quantize", conflicts_with = "weight_bits")]
    split_columns: Option<usize>,
    /// How the inputs that norms give are smoothed, which moves the range of columns into the weights (SmoothQuant): off, a
    /// number alpha from 0 to 1, or auto. Without --calibrate, off or auto: the weights of the norms stand for data
    #[arg(long, value_name = "ALPHA", requires = "int8", value_parser = smooth, default_value = "auto")]
    smooth: Smooth,
    /// The error of the results of linear layers within which an input is not split: the sum of squares, relative to that
    /// of the results, in the mean over tokens. 0 splits every input that it helps, for the best accuracy. For target ort it is
    /// also the mean square error of the scores of an attention within which queries and keys are quantized [default: 0.003]
    #[arg(long, value_name = "X", requires = "int8", requires = "calibrate")]
    max_layer_loss: Option<f64>,
    /// How the range of an activation is chosen: minmax, percentile (or percentile:P), entropy, or mse
    #[arg(long, value_name = "METHOD", requires = "int8", requires = "calibrate", default_value = "minmax")]
    range: RangeMethod,
    /// Keep linear layers, or weights, in float whose name, weight name or module name matches this regular expression; may be
    /// given several times
    #[arg(long, value_name = "PATTERN", requires = "quantize")]
    keep_float: Vec<String>,
    /// How the scale of each output feature of a weight is chosen: minmax, mse (the least mean square error), or reduced (as
    /// minmax, with codes from -64 to 64: sums of products then do not saturate on x86 processors without VNNI; the reduce_range
    /// of ONNX Runtime's tool)
    #[arg(
        long,
        value_name = "METHOD",
        requires = "quantize",
        conflicts_with = "weight_bits",
        default_value = "minmax"
    )]
    weight_scales: WeightScalesName,
    /// How weights are rounded to codes: nearest, or gptq, which makes up for the error of each column in the columns behind
    /// and runs the calibration data once more. GPTQ needs data for --calibrate, not a table
    #[arg(long, value_name = "METHOD", requires = "int8", requires = "calibrate", default_value = "nearest")]
    rounding: RoundingName,
    /// Subtract the mean error of each quantized layer, measured on rows that calibration sampled, from the bias of the
    /// layer
    #[arg(long, requires = "int8", requires = "calibrate")]
    bias_correction: bool,
    /// Quantize the products of attention too, where queries, keys and values are results of linear layers and there is no
    /// cache. TensorRT then computes attention on integers in one kernel. Probabilities below 1/254 become 0, which long
    /// texts have: measure with `planish evaluate`. Not for target ort, which always quantizes the product of queries and keys,
    /// nor for target cuda, which computes attention in floating point
    #[arg(long, requires = "int8", requires = "calibrate", conflicts_with_all = ["attention_fp32", "apply_quantization_plan"])]
    quantize_attention: bool,
    /// Quantize weights anew that the model came with as codes (GPTQ, AWQ, GGUF, MatMulNBits): the numbers that they stand for are
    /// rounded once more. Without, such weights stay as they are
    #[arg(long, requires = "quantize")]
    pub(super) requantize: bool,
    /// Print how each weight is quantized with --int4 and --int8-weights; with --int8 and --fp8, how each input of linear layers is
    /// quantized, and its loss: the error of the results of its layers, as
    /// --max-layer-loss counts it, on the rows that calibration sampled
    #[arg(long, requires = "quantize")]
    pub(super) explain_quantization: bool,
    /// Write how each input of linear layers is quantized to this JSON file, which --apply-quantization-plan takes
    #[arg(long, value_name = "FILE", requires = "quantize", conflicts_with = "weight_bits")]
    pub(super) quantization_plan: Option<PathBuf>,
    /// Quantize as this file says, which --quantization-plan wrote
    #[arg(long, value_name = "FILE", requires = "quantize", conflicts_with_all = ["weight_bits", "split_columns", "keep_float", "smooth", "dynamic", "range", "max_layer_loss"])]
    pub(super) apply_quantization_plan: Option<PathBuf>,
}

/// The value of `--smooth`.
fn smooth(text: &str) -> Result<Smooth, String> {
    match text {
        "off" => Ok(Smooth::Off),
        "auto" => Ok(Smooth::Auto),
        _ => {
            let alpha = text.parse().ok().filter(|alpha| (0.0..=1.0).contains(alpha));
            alpha.map(Smooth::Alpha).ok_or_else(|| "expected off, auto, or a number from 0 to 1".to_owned())
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RoundingName {
    Nearest,
    Gptq,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum WeightScalesName {
    Minmax,
    Mse,
    Reduced,
}

impl QuantizationArguments {
    /// The quantization that the options request, for a model that is compiled for `target`. `keep_tables` says that tables of tokens
    /// stay floats.
    pub(super) fn options(
        &self,
        target: &Target,
        keep_tables: bool,
        calibrate: Option<(&Path, &CalibrateOptions)>,
    ) -> Result<Option<QuantizeOptions>> {
        if target.quantized == QuantizedForm::Codes {
            self.fits_codes(target)?;
        }
        if self.fp8 && target.quantized == QuantizedForm::IntegerProducts {
            return Err(Usage(format!("--fp8 is not for target {target}; add --target trt or --target onnx")).into());
        }
        if calibrate.is_none() && self.apply_quantization_plan.is_none() {
            let smooth = matches!(self.smooth, Smooth::Alpha(_)).then_some("--smooth with a number");
            let split = self.split_columns.is_some_and(|n| n > 0).then_some("--split-columns");
            if let Some(option) = smooth.or(split) {
                return Err(Usage(format!("{option} needs data: add --calibrate FILE")).into());
            }
        }
        if self.fp8 && self.split_columns.is_some_and(|n| n > 0) {
            return Err(Usage("columns of --fp8 cannot be split: leave --split-columns out".to_owned()).into());
        }
        if self.dynamic && self.bias_correction {
            return Err(Usage("--bias-correction is for fixed scales: leave --dynamic out".to_owned()).into());
        }
        let mut settings = match (self.int8, self.fp8) {
            (false, false) => return Ok(None),
            (true, _) => Settings::int8(target),
            (false, true) => Settings::fp8(),
        };
        if calibrate.is_none() && self.apply_quantization_plan.is_none() && !target.computes_in_float32 {
            let message =
                format!("--int8 for target {target} needs data: add --calibrate FILE, or choose --target ort");
            return Err(Usage(message).into());
        }
        if self.quantize_attention && target.quantized == QuantizedForm::IntegerProducts {
            let why = format!("--quantize-attention is not for target {target}, which has its own form of attention");
            return Err(Usage(why).into());
        }
        settings.attention |= self.quantize_attention;
        if self.dynamic && target.quantized != QuantizedForm::IntegerProducts {
            return Err(Usage(format!("--dynamic is for target ort; target {target} needs fixed scales")).into());
        }
        settings.dynamic = self.dynamic;
        settings.range = self.range;
        settings.max_loss = self.max_layer_loss.unwrap_or(settings.max_loss);
        settings.smooth = if self.fp8 { Smooth::Off } else { self.smooth };
        settings.split_columns = self.split_columns.unwrap_or(settings.split_columns);
        settings.keep_float = self.kept()?;
        settings.keep_tables = keep_tables;
        let weight_scales = match self.weight_scales {
            WeightScalesName::Minmax => WeightScales::MinMax,
            WeightScalesName::Mse => WeightScales::Mse,
            WeightScalesName::Reduced => WeightScales::Reduced,
        };
        let plans = match &self.apply_quantization_plan {
            Some(path) => Some(PlanDocument::read(path)?.parts),
            None => None,
        };
        let mut options = QuantizeOptions { weight_scales, plans, ..QuantizeOptions::new(settings) };
        options.correct_biases = self.bias_correction;
        if self.rounding == RoundingName::Gptq {
            options.rounding = match calibrate {
                Some((data, _)) if is_table(data) => {
                    let why = format!("--rounding gptq runs the calibration data, and {} is a table", data.display());
                    return Err(Usage(why).into());
                }
                Some((data, run)) => Rounding::Gptq(data.to_owned(), Box::new(run.clone())),
                None => Rounding::Nearest,
            };
        }
        Ok(Some(options))
    }
}

impl QuantizationArguments {
    /// Refuses what a target that multiplies codes of i8 with fixed scales, and nothing else, does not have.
    fn fits_codes(&self, target: &Target) -> Result<(), Usage> {
        let refused = [
            (
                self.fp8,
                "--fp8",
                "multiplies integers of 8 bits only; choose --int8, --fp16 or --bf16, or another target",
            ),
            (self.split_columns.is_some_and(|n| n > 0), "--split-columns", "multiplies each column once; leave it out"),
            (self.quantize_attention, "--quantize-attention", "computes attention in floating point; leave it out"),
            (self.dynamic, "--dynamic", "needs fixed scales; leave it out"),
        ];
        match refused.into_iter().find(|(given, ..)| *given) {
            Some((_, option, why)) => Err(Usage(format!("{option} is not for target {target}, which {why}"))),
            None => Ok(()),
        }
    }

    /// The patterns of what stays a float.
    pub(super) fn kept(&self) -> Result<Vec<Regex>, Usage> {
        let pattern = |text: &String| Regex::new(text).map_err(|e| Usage(format!("--keep-float: {e}")));
        self.keep_float.iter().map(pattern).collect()
    }

    /// Whether quantization of activations is asked for.
    pub(super) fn is_given(&self) -> bool {
        self.option().is_some()
    }

    /// The option that asks for it.
    pub(super) fn option(&self) -> Option<&'static str> {
        match (self.int8, self.fp8) {
            (true, _) => Some("--int8"),
            (false, true) => Some("--fp8"),
            (false, false) => None,
        }
    }
}

impl QuantizationArguments {
    /// Prints and writes how the parts of an artifact are quantized, where that is asked for.
    pub(super) fn report(&self, manifest: &Manifest) -> Result<()> {
        let plans = || manifest.parts.iter().filter_map(|part| Some((part.name.as_str(), part.quantization.as_ref()?)));
        let weights = || manifest.parts.iter().filter_map(|part| Some((part.name.as_str(), part.weights.as_ref()?)));
        for pattern in &self.keep_float {
            let reason = format!("`{pattern}`");
            let regex = Regex::new(pattern)?;
            let kept = |input: &PlannedInput| {
                let named = regex.is_match(&input.value) || input.layers.iter().any(|layer| regex.is_match(layer));
                named || input.activation.to_string().contains(&reason)
            };
            let scores = |planned: &PlannedAttention| regex.is_match(&planned.attention);
            let weight = |planned: &PlannedWeight| {
                let named = regex.is_match(&planned.weight) || planned.used_by.iter().any(|name| regex.is_match(name));
                named || planned.form.to_string().contains(&reason)
            };
            let in_weights = weights().any(|(_, plan)| plan.weights.iter().any(weight));
            let in_plans = plans().any(|(_, plan)| {
                let layers = plan.inputs.iter().any(kept) || plan.attention.iter().any(scores);
                layers || plan.weights.iter().any(weight)
            });
            if !in_weights && !in_plans {
                warn(&format!(
                    "no linear layer is named as --keep-float {reason} says; --explain-quantization prints the names"
                ));
            }
        }
        if self.explain_quantization {
            // Beside the command's own output.
            let inputs = plans().map(|(part, plan)| explained(part, plan));
            let text: String = inputs.chain(weights().map(|(part, plan)| weights::explained(part, plan))).collect();
            say(&text);
        }
        if let Some(path) = &self.quantization_plan {
            let parts = plans().map(|(part, plan)| (part.to_owned(), plan.clone())).collect();
            PlanDocument::new(parts).write(path)?;
        }
        Ok(())
    }
}

/// A table of the inputs of a part.
fn explained(part: &str, plan: &Plan) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["input", "layers", "loss", "quantized"]);
    for input in &plan.inputs {
        let loss = input.layer_loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.2e}"));
        table.add_row([input.value.clone(), input.layers.len().to_string(), loss, input.activation.to_string()]);
    }
    for PlannedAttention { attention, score_loss, queries, keys, values } in &plan.attention {
        let loss = score_loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.2e}"));
        table.add_row([format!("{attention}: queries"), String::new(), loss, queries.to_string()]);
        table.add_row([format!("{attention}: keys"), String::new(), String::new(), keys.to_string()]);
        if let Some(values) = values {
            table.add_row([format!("{attention}: values"), String::new(), String::new(), values.to_string()]);
        }
    }
    let weights = if plan.weights.is_empty() { String::new() } else { weights::table(&plan.weights) };
    format!("{part}: {}\n{table}\n{weights}", summary(plan))
}

/// The inputs that stay floats, by the reasons.
pub(super) fn floats(plan: &Plan) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    let inputs = plan.inputs.iter().map(|input| (input.value.clone(), &input.activation));
    let scores = plan.attention.iter().map(|a| (format!("scores of {}", a.attention), &a.queries));
    let layers = inputs.chain(scores).filter_map(|(name, activation)| Some((name, activation.reason()?)));
    let weights = plan.weights.iter().filter(|planned| planned.form.codes().is_none());
    let weights = weights.filter_map(|planned| Some((planned.weight.clone(), planned.form.reason()?)));
    for (name, reason) in layers.chain(weights) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, inputs)) => inputs.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    // The figures of --max-loss come in their order.
    reasons.sort_unstable();
    let line = |(reason, inputs): &(&str, Vec<String>)| {
        let more = inputs.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("    float: {}{more}: {reason}\n", inputs[..inputs.len().min(NAMED)].join(", "))
    };
    reasons.iter().map(line).collect()
}

/// A warning about what an option that asks for codes did not do, where that is not little.
pub(super) fn left(coverage: &Coverage, option: &str) -> Option<String> {
    let kept = match coverage.kept_weights {
        0 => None,
        1 => Some("1 weight has codes already, and stays as it is".to_owned()),
        kept => Some(format!("{kept} weights have codes already, and stay as they are")),
    };
    let kept = kept.map(|kept| kept + "; --requantize rounds the numbers that they stand for");
    let reasons = coverage.reasons();
    let what = match coverage.extent() {
        Extent::Most => return kept,
        Extent::Nothing => format!("{option} quantized nothing"),
        Extent::Part => {
            let quantized = 100.0 * coverage.share();
            format!(
                "{option} left most of the model in float: {quantized:.1} % of the elements of its weights are codes"
            )
        }
    };
    let because: Vec<String> = kept.into_iter().chain(reasons).collect();
    let because = if because.is_empty() { "no operator has a large weight".to_owned() } else { because.join("; ") };
    Some(format!("{what}; {because}"))
}

/// How many inputs of one reason are named.
const NAMED: usize = 4;

/// How many inputs are quantized, and how.
pub(super) fn summary(plan: &Plan) -> String {
    let quantized = || plan.inputs.iter().filter(|input| input.activation.codes().is_some());
    let count = |what: &dyn Fn(&Activation) -> bool| quantized().filter(|input| what(&input.activation)).count();
    let dynamic = count(&|activation| matches!(activation, Activation::Dynamic { .. }));
    let mut parts = vec![format!("{} of {} inputs of linear layers quantized", quantized().count(), plan.inputs.len())];
    for (count, what) in [
        (dynamic, "with scales that each run computes"),
        (count(&|activation| !activation.smooth().is_empty()), "smoothed"),
        (count(&|activation| !activation.split().is_empty()), "with columns split"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let attentions = plan.attention.iter().filter(|attention| attention.queries.codes().is_some()).count();
    if attentions > 0 {
        parts.push(format!("scores of {attentions} attentions from codes"));
    }
    let coded = plan.weights.iter().filter(|planned| planned.form.codes().is_some()).count();
    if !plan.weights.is_empty() {
        parts.push(format!("{coded} of {} tables and recurrent weights", plan.weights.len()));
    }
    parts.join(", ")
}
