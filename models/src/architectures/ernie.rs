//! ERNIE 1 to 3 (Sun et al. 2019, arXiv:1904.09223), as `transformers/models/ernie` has it: BERT, with an embedding of the
//! task where the configuration says so.

use planish_ir::Dim;
use planish_ir::ops::Slice;

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context};
use crate::layers::heads::TextHeads;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "ernie",
    class_prefix: "Ernie",
    base: "ernie",
    keys: &[bert::KEYS, &["task_type_vocab_size", "use_task_id"]],
    irrelevant_keys: &[],
    build,
    ..bert::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = bert::settings(b.config, &Defaults::BERT)?;
    let ([words, types, positions], mask) = bert::sums(b, &s)?;
    let mut others = vec![types, positions];
    if b.config.boolean("use_task_id", false)? {
        // Every text is of task 0.
        let tasks = b.config.size("task_type_vocab_size", 3)?;
        let table = b.weight(&["embeddings.task_type_embeddings.weight"], &[tasks, s.hidden])?;
        let first = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::constant(1) };
        others.push(b.emit(first, "embeddings.task_type_embeddings")?);
    }
    let x = encoder::embeddings(b, &s, words, &others)?;
    let hidden = encoder::layers(b, &s, &LAYER, x, Context::of_mask(mask))?;
    TextHeads::bert(s.activation).finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}
