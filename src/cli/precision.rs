//! The arguments that say how a model is brought to half precision.

use anyhow::Result;
use clap::ValueEnum;
use planish_passes::{Half, HalfPrecision, Target};
use regex::Regex;

use super::Usage;

/// How a model is brought to half precision.
#[derive(clap::Args)]
#[command(next_help_heading = "Half precision")]
pub(super) struct PrecisionArguments {
    /// Convert weights and arithmetic to float16. The statistics of norms, the softmax, positions, masks, and
    /// operators with weights that overflow or underflow stay in float32. Target ort stores the weights in float16
    /// and computes in float32, because its runtime has no half-precision kernels worth using
    #[arg(long, group = "half")]
    fp16: bool,
    /// Convert weights and arithmetic to bfloat16, which has the range of float32 and 8 bits of precision
    #[arg(long, group = "half")]
    bf16: bool,
    /// Keep operators in float32 whose node name, weight name or module name matches this regular expression; may
    /// be given several times
    #[arg(long, value_name = "PATTERN", requires = "half")]
    keep_fp32: Vec<String>,
    /// Cast the queries, keys and values of attention to float32 in front of its products, which are computed in
    /// float32. Target trt asks TensorRT for one kernel of attention that accumulates in float32 instead, where it has
    /// one: from opset 23 on, for attention without a cache
    #[arg(long)]
    pub(super) attention_fp32: bool,
    /// Keep operators in float32 whose measured activations exceed X (see --calibrate) [default for float16: 8188,
    /// an eighth of its largest number]
    #[arg(long, value_name = "X", requires = "half", requires = "calibrate", allow_negative_numbers = true)]
    max_abs: Option<f64>,
    /// The type of floating-point inputs and outputs: f32, or half for the type of the weights. With half, a
    /// decoder does not cast its cache [default: f32]
    #[arg(long, value_name = "TYPE", requires = "half")]
    keep_io: Option<Io>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Io {
    F32,
    Half,
}

impl PrecisionArguments {
    /// The precision that the options request, for a model that is compiled for `target`.
    pub(super) fn precision(&self, target: &Target) -> Result<Option<HalfPrecision>> {
        let half = match (self.fp16, self.bf16) {
            (false, false) => return Ok(None),
            (true, _) => Half::F16,
            (false, true) => Half::Bf16,
        };
        let mut precision = HalfPrecision::new(half);
        if target.computes_in_float32 && (self.keep_io == Some(Io::Half) || self.max_abs.is_some()) {
            let option = if self.max_abs.is_some() { "--max-abs" } else { "--keep-io half" };
            let why = format!(
                "target {target} computes in float32, because its runtime has no half-precision kernels worth using: \
                 --{half} only stores weights in half precision; leave out {option}, or choose --target onnx"
            );
            return Err(Usage(why).into());
        }
        let pattern = |text: &String| Regex::new(text).map_err(|e| Usage(format!("--keep-fp32: {e}")));
        precision.keep = self.keep_fp32.iter().map(pattern).collect::<Result<_, _>>()?;
        if let Some(limit) = self.max_abs {
            if limit > half.max() {
                return Err(
                    Usage(format!("--max-abs {limit} exceeds {}, the largest number of {half}", half.max())).into()
                );
            }
            if limit.is_nan() || limit <= 0.0 {
                return Err(Usage("--max-abs is a positive number".to_owned()).into());
            }
            precision.max_abs = limit;
        }
        precision.half_io = self.keep_io == Some(Io::Half);
        Ok(Some(precision))
    }
}
