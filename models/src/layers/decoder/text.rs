//! The attention of decoders to the tokens that they have read.

use planish_ir::ops::{Attention, Concat, Flag};
use planish_ir::{Dim, ValueId};

use super::{CAUSAL, Decoder};
use crate::layers::attention::{Heads, Scores, Text, attention};
use crate::layers::builder::{BATCH, Builder, PAST};
use crate::layers::sinks::{self, Keys};
use crate::names::CacheOf;
use crate::{LatentCache, ModelError, Task};

impl Text for Decoder {
    fn attend(
        &mut self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        if self.task != Task::TextGeneration {
            self.keys.push([qkv[1], qkv[2]]);
            let scores = Scores { window: scores.window.map(|window| window + self.wider), ..scores };
            if let Some(sinks) = scores.sinks {
                if !self.causal {
                    return Err(b.config.error(format!(
                        "`{CAUSAL}` is false: attention with sinks is supported where a token sees only those before it; take a model \
                         without `{CAUSAL}`"
                    )));
                }
                let keys = Keys { past: None, mask: self.mask };
                return Ok(sinks::attend(b, qkv, keys, heads, scores, sinks, module)?[0]);
            }
            let causal = Flag(self.causal);
            return b.emit(Attention { causal, ..attention(qkv, heads, scores, self.mask) }, module);
        }
        let count = Dim::from(heads.keys.signed());
        let sizes = [qkv[1], qkv[2]].map(|x| b.graph.ty(x).shape[2].exact_div(&count).unwrap_or_default());
        let [past_key, past_value] = self.past(b, &count, sizes);
        if let Some(sinks) = scores.sinks {
            let all = Keys { past: Some([past_key, past_value]), mask: self.mask };
            let [result, key, value] = sinks::attend(b, qkv, all, heads, scores, sinks, module)?;
            self.keys.push([key, value]);
            return Ok(result);
        }
        let (scores, causal) = match &mut self.together {
            None => (scores, true),
            Some(together) => (together.scores(b, scores)?, false),
        };
        let attention = Attention {
            past_key: Some(past_key),
            past_value: Some(past_value),
            causal: Flag(causal),
            present: Flag(true),
            ..attention(qkv, heads, scores, self.mask)
        };
        match b.emit_all(attention, module)?[..] {
            [result, key, value] => {
                self.keys.push([key, value]);
                Ok(result)
            }
            _ => unreachable!("attention has its keys and values as results"),
        }
    }

    fn decoder(&mut self) -> Option<&mut Decoder> {
        Some(self)
    }

    fn attend_to_layer(
        &mut self,
        b: &mut Builder<'_>,
        q: ValueId,
        layer: usize,
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let [k, v] = self.keys[layer];
        let scores = Scores { window: scores.window.map(|window| window + self.wider), ..scores };
        self.attend_all(b, [q, k, v], heads, scores, module)
    }

    fn caches_latents(&self, b: &mut Builder<'_>) -> bool {
        b.has_latents = self.task == Task::TextGeneration;
        b.has_latents && b.latent_cache != Some(LatentCache::Expanded)
    }

    fn extend(&mut self, b: &mut Builder<'_>, new: [ValueId; 2], module: &str) -> Result<[ValueId; 2], ModelError> {
        let shapes = new.map(|new| b.graph.ty(new).shape.clone());
        let past = self.past(b, &shapes[0][1], [shapes[0][3].clone(), shapes[1][3].clone()]);
        let mut join = |at: usize, name: &str| {
            b.emit(Concat { parts: vec![past[at], new[at]], axis: 2 }, &format!("{module}.{name}"))
        };
        let all = [join(0, "present.key")?, join(1, "present.value")?];
        self.keys.push(all);
        Ok(all)
    }

    fn attend_all(
        &self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        b.emit(Attention { causal: Flag(self.causal), ..attention(qkv, heads, scores, self.mask) }, module)
    }
}

impl Decoder {
    /// The inputs of what the cache of the next layer has, of so many heads of these sizes.
    fn past(&self, b: &mut Builder<'_>, heads: &Dim, [key, value]: [Dim; 2]) -> [ValueId; 2] {
        let [first, second] = CacheOf::Model.past(self.layer());
        let mut add = |(name, role): (String, _), size| {
            b.floats(&name, role, [Dim::symbol(BATCH), heads.clone(), Dim::symbol(PAST), size])
        };
        [add(first, key), add(second, value)]
    }
}
