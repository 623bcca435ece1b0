//! The arguments that say what the numbers of an artifact are.

use anyhow::Result;
use planish_artifact::recipe::{Keep, Precision, Recipe, read};

/// What the numbers of an artifact are.
#[derive(clap::Args)]
#[command(next_help_heading = "Precision")]
pub(super) struct RecipeArguments {
    /// fp16 or bf16, and one of int8, fp8, int4 and int8-weights, such as fp16,int4 [default: f32, or what an ONNX graph has]
    #[arg(long, value_name = "TYPE,..", value_delimiter = ',')]
    precision: Vec<Precision>,
    /// Weights and arithmetic in float16; norms, softmax and what overflows stay float32. Target ort only stores weights so
    #[arg(long)]
    fp16: bool,
    /// Weights and arithmetic in bfloat16: the range of float32, 8 bits of precision
    #[arg(long)]
    bf16: bool,
    /// Linear layers, tables and recurrent layers in integers of 8 bits; with --calibrate scales of activations are fixed
    #[arg(long)]
    int8: bool,
    /// Linear layers in E4M3, for targets onnx and trt; needs --calibrate
    #[arg(long)]
    fp8: bool,
    /// Weights of linear layers in 4 bits with a scale for each block; target ort rounds the inputs of products to 8 bits
    #[arg(long)]
    int4: bool,
    /// The same with 8 bits
    #[arg(long)]
    int8_weights: bool,
    /// Keep another type where a name of an operator, a weight or a module matches this regular expression: float (not quantized, the
    /// default), fp32, int8 or int4. @head is the layer that scores tokens, @table the table of tokens. Repeatable: of the entries that name something the last one counts
    #[arg(long, value_name = "PATTERN[=TYPE]")]
    pub(super) keep: Vec<Keep>,
    /// A JSON file with these choices and rarer ones, a planish.json whose choices are repeated, or one of them, such as smooth=0.5;
    /// docs/recipe.md lists them. Repeatable
    #[arg(long, value_name = "FILE|KEY=VALUE")]
    recipe: Vec<String>,
}

impl RecipeArguments {
    /// What the arguments say: those of the command line before those of files.
    pub(super) fn recipe(&self) -> Result<Recipe> {
        let mut recipe = read(&self.recipe)?;
        let flags = [
            (self.fp16, Precision::Fp16),
            (self.bf16, Precision::Bf16),
            (self.int8, Precision::Int8),
            (self.fp8, Precision::Fp8),
            (self.int4, Precision::Int4),
            (self.int8_weights, Precision::Int8Weights),
        ];
        let flags = flags.into_iter().filter_map(|(given, precision)| given.then_some(precision));
        let mut given: Vec<Precision> = Vec::new();
        for precision in self.precision.iter().copied().chain(flags) {
            if !given.contains(&precision) {
                given.push(precision);
            }
        }
        if !given.is_empty() {
            recipe.precision = given;
        }
        recipe.keep.extend(self.keep.iter().cloned());
        Ok(recipe)
    }
}
