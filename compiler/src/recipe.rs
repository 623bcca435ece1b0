//! From a recipe to the options of passes for a target.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

use anyhow::Result;
use planish_artifact::recipe::{
    AccuracyLevel, For, HEAD, Io, Keep, KeptAs, LogitsChoice, Multiple, NEEDS, Precision, Recipe, RecipeError,
    Smoothing, TABLE, refuse,
};
use planish_passes::quantize::{Bits, Settings, Smooth, WeightMethod, WeightSettings};
use planish_passes::{BlockInputs, CacheForm, ExpertsForm, HalfPrecision, Logits, Padding, QuantizedForm, Target};

use crate::calibrate::{CalibrateOptions, is_table};
use crate::quantize::{QuantizeOptions, Rounding, WeightOptions, read_plans};

/// What a recipe comes to for a target.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// How float32 is brought to half precision, where that is asked for.
    pub half: Option<HalfPrecision>,
    /// How linear layers are quantized, where that is asked for.
    pub quantize: Option<QuantizeOptions>,
    /// How weights alone are quantized, where that is asked for.
    pub quantize_weights: Option<WeightOptions>,
    /// What ONNX Runtime multiplies weights of blocks with, where the recipe says.
    pub block_inputs: Option<BlockInputs>,
    /// How the vocabulary is padded.
    pub padding: Padding,
    /// What mixtures of experts are lowered to.
    pub experts: Option<ExpertsForm>,
    /// How a decoder appends to its cache, where the recipe says.
    pub cache: Option<CacheForm>,
}

/// The data that a model is calibrated on.
#[derive(Clone, Copy, Debug)]
pub struct CalibrationData<'a> {
    /// Data, or a table.
    pub path: &'a Path,
    /// How data is run.
    pub run: &'a CalibrateOptions,
}

/// What a recipe comes to for a target.
///
/// # Errors
/// A [`RecipeError`] when members exclude each other, need what is not there, or are not for the target; another error when the
/// plan cannot be read.
pub fn resolve(recipe: &Recipe, target: &Target, data: Option<CalibrationData<'_>>) -> Result<Resolved> {
    Resolver(recipe).resolve(target, data)
}

/// Reads the members of a recipe.
struct Resolver<'a>(&'a Recipe);

impl Deref for Resolver<'_> {
    type Target = Recipe;

    fn deref(&self) -> &Recipe {
        self.0
    }
}

impl Resolver<'_> {
    fn resolve(&self, target: &Target, data: Option<CalibrationData<'_>>) -> Result<Resolved> {
        self.check(data.is_some())?;
        if self.attention_fp32 && target.computes_in_float32 {
            let option = option("attention_fp32");
            return Ok(refuse(format!("target {target} computes attention in float32 anyway; leave out {option}"))?);
        }
        self.check_forms(target)?;
        Ok(Resolved {
            half: self.half_precision(target)?,
            quantize: self.quantize(target, data)?,
            quantize_weights: self.quantize_weights(target, data)?,
            block_inputs: self.block_inputs(target)?,
            padding: self.padding(target)?,
            experts: self.experts.map(|name| name.form_for(target)).transpose()?,
            cache: self.cache.map(|name| name.form_for(target)).transpose()?,
        })
    }

    /// Refuses members that exclude each other, or need what is not there.
    fn check(&self, has_data: bool) -> Result<(), RecipeError> {
        if let Some(path) = self.calibrated.as_ref().filter(|_| !has_data && self.plan.is_none()) {
            let path = path.display();
            return refuse(format!(
                "what {path} records followed from data: add --calibrate FILE, or --recipe plan={path} for the plan of quantization"
            ));
        }
        for kind in [For::Half, For::Quantized] {
            let asked = kind.all().iter().filter(|precision| self.precision.contains(precision));
            if let [first, second, ..] = asked.map(|precision| precision.name()).collect::<Vec<_>>()[..] {
                return refuse(format!("--precision takes one of {first} and {second}"));
            }
        }
        if self.precision.len() > 1 && self.precision.contains(&Precision::F32) {
            return refuse("--precision f32 takes no other precision beside it");
        }
        for (member, kind, needs_data) in NEEDS.iter().filter(|(member, ..)| self.has(member)) {
            if self.asked(*kind).is_none() {
                let all: Vec<&str> = kind.all().iter().map(|precision| precision.name()).collect();
                return refuse(format!(
                    "{} is for --precision {}; add one, or leave it out",
                    option(member),
                    all.join(", ")
                ));
            }
            if *needs_data && !has_data {
                return refuse(format!("{} needs data: add --calibrate FILE", option(member)));
            }
        }
        if self.codes() == Some(Precision::Fp8) && !has_data {
            return refuse("--fp8 needs data: add --calibrate FILE");
        }
        if self.plan.is_some() {
            let others = ["split_columns", "keep", "smooth", "dynamic", "range", "max_layer_loss"];
            if let Some(other) = others.into_iter().find(|other| self.has(other)) {
                return refuse(format!(
                    "{} says how inputs are quantized; leave {} out",
                    option("plan"),
                    option(other)
                ));
            }
        }
        self.check_sizes()?;
        self.check_kept()
    }

    /// Refuses sizes that no model has a use for.
    fn check_sizes(&self) -> Result<(), RecipeError> {
        let rows = self.pad_vocab.map(|Multiple(rows)| rows);
        for (member, size) in [("pad_vocab", rows), ("split_columns", self.split_columns)] {
            if let Some(size) = size.filter(|size| *size > MOST) {
                return refuse(format!("{} is at most {MOST}, and {size} was given", option(member)));
            }
        }
        match self.max_layer_loss {
            Some(loss) if !(0.0..f64::INFINITY).contains(&loss) => {
                refuse(format!("{} is a number from 0 on", option("max_layer_loss")))
            }
            _ => Ok(()),
        }
    }

    fn check_kept(&self) -> Result<(), RecipeError> {
        let Some(first) = self.keep.first() else { return Ok(()) };
        if self.precision.iter().all(|precision| *precision == Precision::F32) {
            return refuse(format!(
                "--keep {first} keeps a type that a precision would change; add --precision, such as fp16"
            ));
        }
        for (at, keep) in self.keep.iter().enumerate() {
            let is_codes = matches!(keep.kept, Some(KeptAs::Int8 | KeptAs::Int4));
            // Codes of 8 bits are an exception among floats that were named before.
            let are_usual = keep.kept == Some(KeptAs::Int8) && self.codes() == Some(Precision::Int8);
            let follows_fp32 = || self.keep[..at].iter().any(|before| matches!(before.kept, None | Some(KeptAs::Fp32)));
            let why = match self.quantized() {
                _ if !keep.is_pattern() => self.kept_part(keep),
                _ if is_codes && self.blocks().is_none() && !are_usual => {
                    Some("codes of other bits are for --int4 and --int8-weights")
                }
                None if keep.kept == Some(KeptAs::Float) && !follows_fp32() => {
                    Some("nothing is quantized; write =fp32")
                }
                _ => None,
            };
            if let Some(why) = why {
                return refuse(format!("--keep {keep}: {why}"));
            }
        }
        Ok(())
    }

    /// Why the head or the table cannot be kept like this, if it cannot.
    fn kept_part(&self, keep: &Keep) -> Option<&'static str> {
        match (keep.pattern.as_str(), self.quantized()) {
            (_, None) => Some("it is for quantized models; write a pattern of the weight's name"),
            (_, Some(Precision::Fp8)) => Some("--fp8 leaves the head and tables as they are"),
            (HEAD, Some(Precision::Int8)) => {
                Some("the head is a layer of --int8 as others; write a pattern of its name")
            }
            (_, Some(Precision::Int8)) if keep.kept == Some(KeptAs::Int4) => {
                Some("codes of 4 bits are for --int4; with --int8 write =int8 or =float")
            }
            _ => None,
        }
    }

    fn half_precision(&self, target: &Target) -> Result<Option<HalfPrecision>, RecipeError> {
        let Some(half) = self.half() else { return Ok(None) };
        let mut precision = HalfPrecision::new(half);
        if target.computes_in_float32 && (self.io == Some(Io::Half) || self.max_abs.is_some()) {
            let member = if self.max_abs.is_some() { "max_abs" } else { "io" };
            return refuse(format!(
                "target {target} computes in float32, because its runtime has no half-precision kernels worth using: \
                 --{half} only stores weights in half precision; leave out {}, or choose --target onnx",
                option(member)
            ));
        }
        if let Some(part) = self.keep.iter().find(|keep| !keep.is_pattern() && keep.kept == Some(KeptAs::Fp32)) {
            return refuse(format!(
                "--keep {part} is for --int4, --int8 and the like; beside --{half} give a pattern of its name, such as --keep lm_head=fp32"
            ));
        }
        precision.keep = self.exceptions();
        if let Some(limit) = self.max_abs {
            let max_abs = option("max_abs");
            if limit > half.max() {
                return refuse(format!("{max_abs} {limit} exceeds {}, the largest number of {half}", half.max()));
            }
            if limit.is_nan() || limit <= 0.0 {
                return refuse(format!("{max_abs} is a positive number"));
            }
            precision.max_abs = limit;
        }
        precision.half_io = self.io == Some(Io::Half);
        Ok(Some(precision))
    }

    fn quantize(&self, target: &Target, data: Option<CalibrationData<'_>>) -> Result<Option<QuantizeOptions>> {
        let Some(codes) = self.codes() else { return Ok(None) };
        let is_fp8 = codes == Precision::Fp8;
        self.fits(target, is_fp8)?;
        let measured = data.is_some() || self.plan.is_some();
        let smooth = self.smooth.unwrap_or(Smoothing(Smooth::Auto)).0;
        if !measured {
            let alpha = matches!(smooth, Smooth::Alpha(_)).then_some("smooth with a number");
            let split = self.split_columns.is_some_and(|columns| columns > 0).then_some("split_columns");
            if let Some(member) = alpha.or(split) {
                return Ok(refuse(format!("{} needs data: add --calibrate FILE", option(member)))?);
            }
        }
        let mut settings = if is_fp8 { Settings::fp8() } else { Settings::int8(target) };
        if !measured && !target.computes_in_float32 {
            let why = format!("--int8 for target {target} needs data: add --calibrate FILE, or choose --target ort");
            return Ok(refuse(why)?);
        }
        settings.dynamic = self.dynamic;
        settings.range = self.range.unwrap_or(settings.range);
        settings.max_loss = self.max_layer_loss.unwrap_or(settings.max_loss);
        settings.smooth = if is_fp8 { Smooth::Off } else { smooth };
        settings.split_columns = self.split_columns.unwrap_or(settings.split_columns);
        settings.keep = self.exceptions();
        let plans = self.plan.as_deref().map(read_plans).transpose()?;
        let mut options = QuantizeOptions { plans, ..QuantizeOptions::new(settings) };
        if let Some(scales) = self.weight_scales {
            options.weight_scales = scales.scales();
        }
        options.rounding = match (self.weight_method, data) {
            (None | Some(WeightMethod::Nearest), _) => Rounding::Nearest,
            (Some(WeightMethod::Gptq), data) => {
                let (path, run) = Self::data_of(WeightMethod::Gptq, data)?;
                Rounding::Gptq(path.to_owned(), Box::new(run.clone()))
            }
            (Some(method), _) => {
                let why =
                    format!("--weight-method {method} is for --int4 and --int8-weights; --int8 has nearest and gptq");
                return Ok(refuse(why)?);
            }
        };
        if self.dynamic && matches!(options.rounding, Rounding::Gptq(..)) {
            return Ok(refuse(format!("--weight-method gptq is for fixed scales; leave {} out", option("dynamic")))?);
        }
        Ok(Some(options))
    }

    /// Refuses what a target does not quantize to.
    fn fits(&self, target: &Target, is_fp8: bool) -> Result<(), RecipeError> {
        if is_fp8 && target.quantized == QuantizedForm::IntegerProducts {
            return refuse(format!("--fp8 is not for target {target}; add --target trt or --target onnx"));
        }
        let splits = self.split_columns.is_some_and(|columns| columns > 0);
        if target.quantized == QuantizedForm::Codes {
            let refused = [
                (
                    is_fp8,
                    "--fp8".to_owned(),
                    "multiplies integers of 8 bits only; choose --int8, --fp16 or --bf16, or another target",
                ),
                (splits, option("split_columns"), "multiplies each column once; leave it out"),
                (self.dynamic, option("dynamic"), "needs fixed scales; leave it out"),
            ];
            if let Some((_, option, why)) = refused.into_iter().find(|(given, ..)| *given) {
                return refuse(format!("{option} is not for target {target}, which {why}"));
            }
        }
        if self.dynamic && target.quantized != QuantizedForm::IntegerProducts {
            return refuse(format!("{} is for target ort; target {target} needs fixed scales", option("dynamic")));
        }
        Ok(())
    }

    fn quantize_weights(
        &self,
        target: &Target,
        data: Option<CalibrationData<'_>>,
    ) -> Result<Option<WeightOptions>, RecipeError> {
        let Some(precision) = self.blocks() else { return Ok(None) };
        if let Some(reason) = WeightOptions::refused(target) {
            return refuse(reason);
        }
        if self.zero_points && target.quantized == QuantizedForm::SignedPairs {
            let option = option("zero_points");
            return refuse(format!("{option} is not for target {target}, which takes zero points of 0 only"));
        }
        let is_coded_table = |keep: &&Keep| keep.pattern.as_str() == TABLE && !keep.is_float();
        if let Some(keep) = self.keep.iter().find(is_coded_table).filter(|_| !target.has_block_operators()) {
            return refuse(format!(
                "--keep {keep} is not for target {target}, which has no operator that looks up rows of codes; choose --target ort"
            ));
        }
        let method = self.weight_method.unwrap_or_default();
        let data = match method.takes_data() {
            true => {
                let (path, run) = Self::data_of(method, data)?;
                Some((path.to_owned(), Box::new(run.clone())))
            }
            false => None,
        };
        let usual = WeightSettings::new(if precision == Precision::Int4 { Bits::Four } else { Bits::Eight });
        let settings = WeightSettings {
            block: self.block_size.map_or(usual.block, |size| size.0),
            zero_points: self.zero_points,
            method,
            keep: self.exceptions(),
            ..usual
        };
        Ok(Some(WeightOptions { settings, data, known: BTreeMap::new() }))
    }

    /// The data that a method runs.
    fn data_of(
        method: WeightMethod,
        data: Option<CalibrationData<'_>>,
    ) -> Result<(&Path, &CalibrateOptions), RecipeError> {
        match data {
            None => refuse(format!("--recipe weight-method={method} needs data: add --calibrate FILE")),
            Some(data) if is_table(data.path) => {
                let why = format!(
                    "--recipe weight-method={method} runs the calibration data, and {} is a table",
                    data.path.display()
                );
                refuse(why)
            }
            Some(data) => Ok((data.path, data.run)),
        }
    }

    fn block_inputs(&self, target: &Target) -> Result<Option<BlockInputs>, RecipeError> {
        let Some(level) = self.accuracy_level else { return Ok(None) };
        match WeightOptions::level_refused(target) {
            Some(reason) => refuse(reason),
            None => Ok(Some(match level {
                AccuracyLevel::Int8 => BlockInputs::Integers,
                AccuracyLevel::Float => BlockInputs::Floats,
            })),
        }
    }

    fn padding(&self, target: &Target) -> Result<Padding, RecipeError> {
        use LogitsChoice::{All, Last, Padded, Sliced};
        for [first, second] in [[All, Last], [Sliced, Padded]] {
            if self.logits.contains(&first) && self.logits.contains(&second) {
                return refuse(format!("{} takes one of {first} and {second}", option("logits")));
            }
        }
        let mut padding = Padding::of(target);
        if let Some(Multiple(multiple)) = self.pad_vocab {
            padding.vocabulary = Some(multiple).filter(|multiple| *multiple > 0);
        }
        if self.logits.contains(&Padded) {
            padding.logits = Logits::Padded;
            if padding.vocabulary.is_none() {
                return refuse(format!(
                    "{}=padded needs a padded vocabulary; add {}=64",
                    option("logits"),
                    option("pad_vocab")
                ));
            }
        }
        Ok(padding)
    }
}

/// The most rows that a vocabulary is padded to a multiple of, and the most columns that an input gets in addition.
const MOST: usize = 1 << 16;

/// How a member is spelled on the command line.
fn option(member: &str) -> String {
    if member == "keep" { "--keep".to_owned() } else { format!("--recipe {}", member.replace('_', "-")) }
}

#[cfg(test)]
mod tests;
