//! The arguments that say how weights are quantized while activations stay floats.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use planish_artifact::manifest::Manifest;
use planish_compiler::calibrate::{CalibrateOptions, is_table};
use planish_compiler::quantize::WeightOptions;
use planish_passes::quantize::{
    Bits, HEAD_OPTION, PlannedWeight, TABLE_OPTION, WeightForm, WeightMethod, WeightPlan, WeightSettings,
};
use planish_passes::{BlockInputs, QuantizedForm, Target};
use regex::Regex;

use super::quantization::QuantizationArguments;
use super::{Usage, warn};

/// How weights alone are quantized.
#[derive(clap::Args)]
#[command(next_help_heading = "Weights of 4 and 8 bits")]
pub(super) struct WeightArguments {
    /// Store the weights of linear layers as integers of 4 bits with a scale for each block. Layers take and give
    /// floats; for target ort, each product rounds its input to integers of 8 bits unless --accuracy-level says otherwise
    #[arg(long, groups = ["quantize", "weight_bits"])]
    int4: bool,
    /// Store the weights of linear layers as integers of 8 bits with a scale for each block, as --int4 does
    #[arg(long, groups = ["quantize", "weight_bits"])]
    int8_weights: bool,
    /// How many neighbours in the input features of a weight share a scale: 16, 32, 64, 128 or 256, or `row` for one scale
    /// for each output feature
    #[arg(long, value_name = "N", requires = "weight_bits", value_parser = block, default_value = "32")]
    block_size: Block,
    /// Give each block a zero point beside the scale: unsigned codes that span the range of the block. Not for target trt
    #[arg(long, requires = "weight_bits")]
    zero_points: bool,
    /// How codes and scales are chosen: nearest (the range of a block), mse (the range with the least mean square error), hqq
    /// (half-quadratic quantization), or with the data of --calibrate: gptq, awq
    #[arg(long, value_name = "METHOD", requires = "weight_bits", default_value = "mse")]
    weight_method: MethodName,
    /// The layer that scores tokens, and the table of tokens where both are one weight: int4, int8, or keep for a float
    /// [default: int8]
    #[arg(long, value_name = "BITS", requires = "weight_bits")]
    quantize_head: Option<BitsName>,
    /// The table of tokens, where it is a weight of its own: int4, int8, or keep for a float. With --int8, int8 or keep for any
    /// table; else for targets that run ONNX Runtime's own operators [default: int8]
    #[arg(long, value_name = "BITS", requires = "quantize")]
    quantize_table: Option<BitsName>,
    /// Other bits for weights whose name, layer or module matches a regular expression: PATTERN=4, PATTERN=8 or
    /// PATTERN=keep; may be given several times, the last that matches counts
    #[arg(long, value_name = "PATTERN=BITS", requires = "weight_bits", value_parser = bits_for)]
    bits_for: Vec<(Regex, Bits)>,
    /// What ONNX Runtime multiplies weights of 2, 4 and 8 bits with, for target ort: int8 rounds each block of the input to
    /// integers in each run, which is faster; float keeps it. It applies to all MatMulNBits of the artifact, also where the
    /// codes are those of the checkpoint or the graph [default: int8 with --int4 and --int8-weights; else float, or what
    /// most MatMulNBits of the graph have]
    #[arg(long, value_name = "TYPE")]
    accuracy_level: Option<AccuracyLevel>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MethodName {
    Nearest,
    Mse,
    Hqq,
    Gptq,
    Awq,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BitsName {
    Int4,
    Int8,
    Keep,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AccuracyLevel {
    Int8,
    Float,
}

/// The elements of a block; `None` for a row.
#[derive(Clone, Copy)]
struct Block(Option<usize>);

fn block(text: &str) -> Result<Block, String> {
    match text {
        "row" => Ok(Block(None)),
        "16" | "32" | "64" | "128" | "256" => Ok(Block(text.parse().ok())),
        _ => Err("expected 16, 32, 64, 128, 256 or row".to_owned()),
    }
}

fn bits_for(text: &str) -> Result<(Regex, Bits), String> {
    let (pattern, bits) = text.rsplit_once('=').ok_or("expected PATTERN=BITS, e.g. down_proj=8")?;
    let bits = match bits {
        "4" => Bits::Four,
        "8" => Bits::Eight,
        "keep" => Bits::Keep,
        _ => return Err(format!("`{bits}` is not 4, 8 or keep")),
    };
    Ok((Regex::new(pattern).map_err(|e| e.to_string())?, bits))
}

impl BitsName {
    fn bits(self) -> Bits {
        match self {
            Self::Int4 => Bits::Four,
            Self::Int8 => Bits::Eight,
            Self::Keep => Bits::Keep,
        }
    }
}

impl WeightArguments {
    /// Whether weight-only quantization is asked for.
    pub(super) fn is_given(&self) -> bool {
        self.option().is_some()
    }

    /// The option that asks for it.
    pub(super) fn option(&self) -> Option<&'static str> {
        match (self.int4, self.int8_weights) {
            (true, _) => Some("--int4"),
            (false, true) => Some("--int8-weights"),
            (false, false) => None,
        }
    }

    /// Whether the method takes the data of --calibrate.
    pub(super) fn takes_data(&self) -> bool {
        self.is_given() && self.method().takes_data()
    }

    /// Whether tables stay floats beside layers that --int8 quantizes.
    pub(super) fn keeps_tables(&self, layers: &QuantizationArguments) -> Result<bool> {
        match (layers.option(), self.quantize_table) {
            (Some("--int8"), Some(BitsName::Int4)) => {
                let why = "--quantize-table int4 is for --int4 and --int8-weights; with --int8 choose int8 or keep";
                Err(Usage(why.to_owned()).into())
            }
            (Some("--fp8"), Some(_)) => {
                Err(Usage("--quantize-table is not for --fp8, which leaves tables as they are".to_owned()).into())
            }
            (layers, bits) => Ok(layers.is_some() && bits == Some(BitsName::Keep)),
        }
    }

    fn method(&self) -> WeightMethod {
        match self.weight_method {
            MethodName::Nearest => WeightMethod::Nearest,
            MethodName::Mse => WeightMethod::Mse,
            MethodName::Hqq => WeightMethod::Hqq,
            MethodName::Gptq => WeightMethod::Gptq,
            MethodName::Awq => WeightMethod::Awq,
        }
    }

    /// The weight-only quantization that the options request, for a model that is compiled for `target`. `keep_float` are
    /// patterns of weights that stay floats.
    pub(super) fn options(
        &self,
        target: &Target,
        keep_float: Vec<Regex>,
        calibrate: Option<(&Path, &CalibrateOptions)>,
    ) -> Result<Option<WeightOptions>> {
        if !self.is_given() {
            return Ok(None);
        }
        let usage = |why: String| Err(Usage(why).into());
        let method = self.method();
        if let Some(reason) = WeightOptions::refused(target) {
            return usage(reason);
        }
        if self.zero_points && target.quantized == QuantizedForm::SignedPairs {
            return usage(format!("--zero-points is not for target {target}, which takes zero points of 0 only"));
        }
        if self.quantize_table.is_some_and(|bits| bits != BitsName::Keep) && !target.has_block_operators() {
            return usage(format!(
                "--quantize-table is not for target {target}, which has no operator that looks up rows of codes; choose --target ort"
            ));
        }
        let data = match calibrate {
            _ if !method.takes_data() => None,
            None => return usage(format!("--weight-method {method} needs data: add --calibrate FILE")),
            Some((data, _)) if is_table(data) => {
                return usage(format!(
                    "--weight-method {method} runs the calibration data, and {} is a table",
                    data.display()
                ));
            }
            Some((data, run)) => Some((data.to_owned(), Box::new(run.clone()))),
        };
        let settings = WeightSettings {
            head: self.quantize_head.map(BitsName::bits),
            table: self.quantize_table.map(BitsName::bits),
            block: self.block_size.0,
            zero_points: self.zero_points,
            method,
            bits_for: self.bits_for.clone(),
            keep_float,
            ..WeightSettings::new(if self.int4 { Bits::Four } else { Bits::Eight })
        };
        Ok(Some(WeightOptions { settings, data, known: BTreeMap::new() }))
    }

    /// What products take with weights of blocks, where the options say.
    pub(super) fn block_inputs(&self, target: &Target) -> Result<Option<BlockInputs>> {
        let Some(level) = self.accuracy_level else { return Ok(None) };
        match WeightOptions::level_refused(target) {
            Some(reason) => Err(Usage(reason).into()),
            None => Ok(Some(match level {
                AccuracyLevel::Int8 => BlockInputs::Integers,
                AccuracyLevel::Float => BlockInputs::Floats,
            })),
        }
    }

    /// Warns of options that chose nothing.
    pub(super) fn report(&self, manifest: &Manifest) {
        let parts = || manifest.parts.iter();
        let weights = || parts().filter_map(|part| part.weights.as_ref()).flat_map(|plan| &plan.weights);
        let beside = || parts().filter_map(|part| part.quantization.as_ref()).flat_map(|plan| &plan.weights);
        let is_a_reason = |text: &str| weights().chain(beside()).any(|weight| weight.form.to_string().contains(text));
        // Tables of 8 bits are what --int8 makes anyway.
        let table = self.quantize_table.is_some_and(|bits| self.is_given() || bits == BitsName::Keep);
        for (is_given, option) in [(self.quantize_head.is_some(), HEAD_OPTION), (table, TABLE_OPTION)] {
            if is_given && !is_a_reason(option) {
                warn(&format!(
                    "{option} changed nothing; --explain-quantization prints what became of each weight, and why"
                ));
            }
        }
    }
}

/// A table of the weights of a part.
pub(super) fn explained(part: &str, plan: &WeightPlan) -> String {
    format!("{part}: {}\n{}", summary(plan), table(&plan.weights))
}

/// A table of weights.
pub(super) fn table(weights: &[PlannedWeight]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["weight", "elements", "used by", "quantized"]);
    for PlannedWeight { weight, used_by, elements, form } in weights {
        table.add_row([weight.clone(), elements.to_string(), used_by.len().to_string(), form.to_string()]);
    }
    format!("{table}\n")
}

/// How many weights are quantized, and to what.
pub(super) fn summary(plan: &WeightPlan) -> String {
    let of =
        |bits: usize| plan.weights.iter().filter(move |w| w.form.codes().is_some_and(|codes| codes.bits() == bits));
    let elements: usize = plan.weights.iter().map(|w| w.elements).sum();
    let coded: usize = [4, 8].into_iter().flat_map(of).map(|w| w.elements).sum();
    let counts = [(4, of(4).count()), (8, of(8).count())];
    let counts: Vec<String> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(bits, n)| format!("{n} of {bits} bits")).collect();
    let floats = plan.weights.iter().filter(|w| matches!(w.form, WeightForm::Float { .. })).count();
    let kept = if floats > 0 { format!(", {floats} float") } else { String::new() };
    let share = 100.0 * coded as f64 / elements.max(1) as f64;
    let counts = if counts.is_empty() { "none of codes".to_owned() } else { counts.join(", ") };
    format!("weights: {counts}{kept}; {share:.1} % of their elements are codes")
}
