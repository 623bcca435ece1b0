//! Falcon Mamba (Zuo et al. 2024, arXiv:2410.05355), as `transformers/models/falcon_mamba` has it: Mamba with norms without weights of
//! time steps and of the inputs and the outputs of states.

use crate::architecture::{Architecture, Properties};
use crate::architectures::mamba;
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "falcon_mamba",
    class_prefix: "FalconMamba",
    renamed: &[],
    keys: &[&["pad_token_id", "tie_word_embeddings"], mamba::KEYS, mamba::OWN_KEYS, &[EPS]],
    build,
    ..mamba::ARCHITECTURE
};

const EPS: &str = "mixer_rms_eps";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let eps = b.config.positive(EPS, 1e-6)?;
    mamba::decoder(b, task, Some((Norm::RmsPlain, eps)))
}
