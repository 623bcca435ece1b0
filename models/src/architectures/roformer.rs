//! RoFormer (Su et al. 2021, arXiv:2104.09864), as `transformers/models/roformer` has it: BERT with embeddings of a size of
//! their own and rotary embedding of neighbours in place of positions.

use planish_ir::ops::{Slice, Split};
use planish_ir::{Dim, Origin};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::Size;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::encoder::{self, Context, Rotation, Settings};
use crate::layers::heads::{Pooling, TextHeads};
use crate::layers::pooling::{self, Summary};
use crate::layers::rope::Angles;
use crate::layers::sinusoidal;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "roformer",
    class_prefix: "RoFormer",
    base: "roformer",
    keys: &[bert::KEYS, pooling::SUMMARY_KEYS, &["embedding_size", "rotary_value"]],
    only: &[encoder::NO_DECODER],
    irrelevant_keys: pooling::SUMMARY_DROPOUT,
    build,
    ..bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 50000, max_position_embeddings: 1536, ..Defaults::BERT };
    let mut s = bert::settings(b.config, &defaults)?;
    s.embedded = b.config.size_or("embedding_size", s.hidden)?;
    let values = b.config.boolean("rotary_value", false)?;
    let types = bert::token_types(b)?;
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let token_type_ids = b.input(names::TOKEN_TYPES, types.signed())?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.embedded)?;
    let types = b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.embedded)?;
    let mut x = encoder::embeddings(b, &s, words, &[types])?;
    if s.embedded.value != s.hidden.value {
        x = b.linear(x, "embeddings_project", s.hidden, s.embedded)?;
    }
    let rotation = Some(Rotation { angles: angles(b, &s)?, interleaved: true, values });
    let hidden = encoder::layers(b, &s, &LAYER, x, Context { rotation, ..Context::of_mask(mask) })?;
    let classifier = Pooling::Dense("classifier.dense", s.activation);
    let heads = TextHeads {
        pooler: None,
        sequence: (classifier, "classifier.out_proj"),
        choice: Some(Pooling::Summary(Summary::LAST)),
        ..TextHeads::bert(s.activation)
    };
    heads.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}

/// The angles of positions 0, 1, 2 ... The checkpoint stores a table of all sines, then all cosines, of each position.
fn angles(b: &mut Builder<'_>, s: &Settings) -> Result<Angles, ModelError> {
    const TABLE: &str = "encoder.embed_positions.weight";
    let size = s.attention_heads().size;
    if !size.value.is_multiple_of(2) {
        return Err(b.config.error(format!("{size} is odd: pairs of features turn")));
    }
    let table = match b.tensors.contains(TABLE) {
        true => b.weight(&[TABLE], &[s.positions, size])?,
        false => {
            let table = sinusoidal::table(b.config, s.positions, size)?;
            b.graph.add_weight(TABLE, table, Origin::Config("max_position_embeddings".into()))
        }
    };
    let slice = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::symbol(SEQUENCE) };
    let rows = b.emit(slice, "encoder.embed_positions")?;
    let pairs = Size::derived(size.value / 2, size.key);
    let split = Split { x: rows, axis: 1, sizes: vec![pairs.value; 2] };
    let halves = b.emit_all(split, "encoder.embed_positions.split")?;
    let mut in_rows = |half, name: &str| {
        let dims = [Dim::constant(1), Dim::symbol(SEQUENCE), pairs.signed().into()];
        b.reshape(half, dims, &format!("encoder.embed_positions.{name}"))
    };
    match halves[..] {
        [sin, cos] => Ok(Angles::stored(in_rows(cos, "cos")?, in_rows(sin, "sin")?)),
        _ => unreachable!("a split has as many results as sizes"),
    }
}
