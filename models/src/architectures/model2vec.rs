//! Static embeddings: a vector of each token, of which the mean is that of a text. `StaticEmbedding` of the sentence-transformers
//! library, and Model2Vec (github.com/MinishLab/model2vec), which may store one vector for several tokens and a weight of each.

use planish_ir::ops::{BinaryKind, Embedding, Gather};
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "model2vec",
    class_prefix: "Static",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::FeatureExtraction],
    keys: &[],
    older_keys: &[],
    only: &[],
    // How the vectors were made, and what the modules after them do.
    irrelevant_keys: &[
        "apply_pca",
        "apply_zipf",
        "embedding_dtype",
        "hidden_dim",
        "normalize",
        "seq_length",
        "sif_coefficient",
        "tokenizer_name",
        "vocabulary_quantization",
    ],
    unused_tensors: &[],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The table as the two libraries name it.
const TABLES: [&str; 2] = ["embedding.weight", "embeddings"];
/// The row of the table that each token takes.
const MAPPING: &str = "mapping";
/// What the vector of each token is multiplied with.
const WEIGHTS: &str = "weights";

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let shape = TABLES.iter().find_map(|name| b.tensors.shape(name)).unwrap_or_default();
    let [rows, features] = match *shape {
        [rows, features] if rows > 0 && features > 0 => {
            [Size::derived(rows, "rows of the table"), Size::derived(features, "columns of the table")]
        }
        _ => return Err(b.config.error(format!("no tensor `{}` is a table of vectors", TABLES.join("` or `")))),
    };
    let table = b.weight(&TABLES, &[rows, features])?;
    let tokens = match b.tensors.rows(MAPPING) {
        Some(tokens) => Size::derived(tokens, "tokens of the checkpoint"),
        None => rows,
    };
    let ids = b.input(names::INPUT_IDS, tokens.signed())?;
    b.input(names::ATTENTION_MASK, 2)?;
    let look_up = |b: &mut Builder<'_>, x: ValueId, name: &str| b.emit(Gather { x, indices: ids, axis: 0 }, name);
    let mapped = match b.tensors.contains(MAPPING) {
        true => {
            let mapping = b.indices(MAPPING, &[tokens])?;
            look_up(b, mapping, "mapped")?
        }
        false => ids,
    };
    let mut x = b.emit(Embedding { weight: table, ids: mapped }, "embedding")?;
    if b.tensors.contains(WEIGHTS) {
        let weights = b.weight(&[WEIGHTS], &[tokens])?;
        let weights = look_up(b, weights, "weights.of_tokens")?;
        let column = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)];
        let weights = b.reshape(weights, column, "weights.column")?;
        x = b.binary(BinaryKind::Mul, [x, weights], "weighted")?;
    }
    b.give(names::HIDDEN, x);
    Ok(Properties { vocab_size: Some(tokens.value), ..Properties::default() })
}
