//! Writes a checkpoint of a well-known size with random weights, to measure a compiler on.
//!
//! ```text
//! cargo run --release -p planish-bench-models -- llama-1.1b DIR [--dtype bf16] [--layers 2 ...]
//! ```
//!
//! DIR gets `config.json` and `model.safetensors` as the transformers library saves them. The same
//! arguments give the same bytes on every machine, and no more than one tensor is in memory at a time.

mod bert;
mod gpt2;
mod gpt_oss;
mod llama;
mod mixtral;
mod size;
mod t5;
mod vit;
mod weights;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use serde_json::Value;

use crate::size::{Experts, Size};
use crate::weights::{StorageType, Tensor};

/// Writes a checkpoint of a well-known size with random weights.
#[derive(Parser)]
struct Args {
    /// Whose size to take; the options below change single numbers of it.
    model: Model,
    /// Folder for config.json and model.safetensors; files of these names in it are replaced.
    dir: PathBuf,
    /// Type the weights are stored in.
    #[arg(long, value_enum, default_value = "f32")]
    dtype: StorageType,
    /// Tokens in the vocabulary.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    vocab: Option<usize>,
    /// Hidden size; a multiple of the heads.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    hidden: Option<usize>,
    /// Layers.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    layers: Option<usize>,
    /// Attention heads.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    heads: Option<usize>,
    /// Heads of keys and values, which the others share; for gpt-oss, Llama and Mixtral.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    kv_heads: Option<usize>,
    /// Size of the feed-forward layer, or of an expert.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    intermediate: Option<usize>,
    /// Experts; for gpt-oss and Mixtral.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    experts: Option<usize>,
    /// Experts that a token takes.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    taken: Option<usize>,
    /// Longest sequence.
    #[arg(long, value_name = "N", value_parser = parse_size)]
    positions: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    BertBase,
    BertLarge,
    Gpt2,
    #[value(name = "gpt-oss-20b")]
    GptOss,
    #[value(name = "llama-1.1b")]
    Llama,
    #[value(name = "mixtral-8x7b")]
    Mixtral,
    T5Small,
    VitBase,
}

impl Model {
    fn size(self) -> Size {
        match self {
            Self::BertBase => bert::BASE,
            Self::BertLarge => bert::LARGE,
            Self::Gpt2 => gpt2::SMALL,
            Self::GptOss => gpt_oss::SMALL,
            Self::Llama => llama::TINY,
            Self::Mixtral => mixtral::LARGE,
            Self::T5Small => t5::SMALL,
            Self::VitBase => vit::BASE,
        }
    }

    fn config(self, size: &Size, dtype: StorageType) -> Value {
        match self {
            Self::BertBase | Self::BertLarge => bert::config(size, dtype),
            Self::Gpt2 => gpt2::config(size, dtype),
            Self::GptOss => gpt_oss::config(size, dtype),
            Self::Llama => llama::config(size, dtype),
            Self::Mixtral => mixtral::config(size, dtype),
            Self::T5Small => t5::config(size, dtype),
            Self::VitBase => vit::config(size, dtype),
        }
    }

    fn tensors(self, size: &Size) -> Vec<Tensor> {
        match self {
            Self::BertBase | Self::BertLarge => bert::tensors(size),
            Self::Gpt2 => gpt2::tensors(size),
            Self::GptOss => gpt_oss::tensors(size),
            Self::Llama => llama::tensors(size),
            Self::Mixtral => mixtral::tensors(size),
            Self::T5Small => t5::tensors(size),
            Self::VitBase => vit::tensors(size),
        }
    }
}

/// Sizes up to a million: the bytes of a tensor with two such dimensions still fit a `usize`.
fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size @ 1..=1_000_000) => Ok(size),
        _ => Err("expected a number from 1 to 1000000".to_owned()),
    }
}

impl Args {
    fn size(&self) -> Result<Size> {
        let known = self.model.size();
        let heads = self.heads.unwrap_or(known.heads);
        let kv_heads = self.kv_heads.unwrap_or(if known.kv_heads == known.heads { heads } else { known.kv_heads });
        let size = Size {
            vocab: self.vocab.unwrap_or(known.vocab),
            hidden: self.hidden.unwrap_or(known.hidden),
            layers: self.layers.unwrap_or(known.layers),
            heads,
            kv_heads,
            // Other heads share the features of a token.
            head_size: known.head_size.filter(|_| self.hidden.is_none() && self.heads.is_none()),
            intermediate: self.intermediate.unwrap_or(known.intermediate),
            positions: self.positions.unwrap_or(known.positions),
            experts: known.experts.map(|known| Experts {
                all: self.experts.unwrap_or(known.all),
                taken: self.taken.unwrap_or(known.taken),
            }),
        };
        ensure!(
            size.experts.is_some() || self.experts.is_none() && self.taken.is_none(),
            "this model has no experts; leave out --experts and --taken, or take gpt-oss-20b or mixtral-8x7b",
        );
        ensure!(
            size.experts.is_none_or(|experts| experts.taken <= experts.all),
            "a token takes more experts than there are; change --taken or --experts",
        );
        ensure!(
            size.hidden.is_multiple_of(heads),
            "the hidden size {} is not a multiple of the {heads} heads; change --hidden or --heads",
            size.hidden,
        );
        ensure!(
            heads == kv_heads
                || matches!(self.model, Model::GptOss | Model::Llama | Model::Mixtral)
                    && heads.is_multiple_of(kv_heads),
            "{heads} heads cannot share {kv_heads} heads of keys here; change --heads or --kv-heads",
        );
        Ok(size)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let size = args.size()?;
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot create the folder {}", args.dir.display()))?;

    let config = args.dir.join("config.json");
    let text = serde_json::to_string_pretty(&args.model.config(&size, args.dtype))? + "\n";
    fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;

    let model = args.dir.join("model.safetensors");
    weights::write(&args.model.tensors(&size), args.dtype, &model)
        .with_context(|| format!("cannot write {}", model.display()))
}
