//! CodeGen (Nijkamp et al. 2022, arXiv:2203.13474), as `transformers/models/codegen` has it: GPT-J with one projection to
//! queries, values and keys, in the four parts in which the model was trained.

use crate::architecture::{Architecture, Properties};
use crate::architectures::gptj;
use crate::checkpoint::config::Size;
use crate::layers::blocks::{self, Projections};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "codegen",
    class_prefix: "CodeGen",
    tasks: decoder::WITHOUT_LABELS,
    unused_tensors: &[".attn.causal_mask"],
    build,
    ..gptj::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = gptj::read(b)?;
    let groups = Size::derived(4, "the parts of CodeGen");
    if !s.hidden.value.is_multiple_of(groups.value) {
        return Err(b
            .config
            .error(format!("{} is not divisible by 4, the parts in which queries are stored", s.hidden)));
    }
    s.projections = Projections::Grouped { name: "qkv_proj", groups, values_first: true };
    blocks::decoder(b, &s, task)
}
