//! LayoutLM (Xu et al. 2019, arXiv:1912.13318), as `transformers/models/layoutlm` has it: BERT with embeddings of the boxes around
//! words.

use planish_ir::ops::{BinaryKind, Split};
use planish_ir::{Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::encoder::{self, Context, Settings};
use crate::layers::heads::TextHeads;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "layoutlm",
    class_prefix: "LayoutLM",
    tasks: encoder::WITHOUT_CHOICES,
    base: "layoutlm",
    keys: &[bert::KEYS, &["max_2d_position_embeddings"]],
    irrelevant_keys: &[],
    build,
    ..bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = bert::settings(b.config, &Defaults::BERT)?;
    let places = b.config.size("max_2d_position_embeddings", 1024)?;
    let types = bert::token_types(b)?;
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let four = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(4)];
    let boxes = b.ids(names::BOXES, four, places.signed());
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let token_type_ids = b.input(names::TOKEN_TYPES, types.signed())?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    let positions = encoder::absolute_positions(b, &s)?;
    let mut others = vec![positions];
    others.extend(of_boxes(b, &s, boxes, places)?);
    others.push(b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.hidden)?);
    let x = encoder::embeddings(b, &s, words, &others)?;
    let hidden = encoder::layers(b, &s, &LAYER, x, Context::of_mask(mask))?;
    TextHeads::bert(s.activation).finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}

/// The embeddings of the sides of boxes, i64[batch_size, sequence_length, 4], of their heights and of their widths.
fn of_boxes(b: &mut Builder<'_>, s: &Settings, boxes: ValueId, places: Size) -> Result<[ValueId; 6], ModelError> {
    let sides = b.emit_all(Split { x: boxes, axis: 2, sizes: vec![1; 4] }, "bbox.sides")?;
    let mut flat =
        |side, name: &str| b.reshape(side, [Dim::symbol(BATCH), Dim::symbol(SEQUENCE)], &format!("bbox.{name}"));
    let [left, upper, right, lower] = match sides[..] {
        [a, b, c, d] => [flat(a, "left")?, flat(b, "upper")?, flat(c, "right")?, flat(d, "lower")?],
        _ => unreachable!("a split has as many results as sizes"),
    };
    let height = b.binary(BinaryKind::Sub, [lower, upper], "bbox.height")?;
    let width = b.binary(BinaryKind::Sub, [right, left], "bbox.width")?;
    let mut of =
        |ids, axis: &str| b.embedding(ids, &format!("embeddings.{axis}_position_embeddings"), places, s.hidden);
    Ok([of(left, "x")?, of(upper, "y")?, of(right, "x")?, of(lower, "y")?, of(height, "h")?, of(width, "w")?])
}
