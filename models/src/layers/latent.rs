//! Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434), as `DeepseekV2Attention` and its kin of the transformers
//! library have it: keys and values of all heads are projections of one short vector of a token, its latent, and a few features
//! of keys that turn with positions are the same for all heads.
//!
//! A cache has latents and turning features, as that library's. Then the projections of keys and values go to the queries and to
//! what attention gives: `q * (W_k * c) = (W_k^T * q) * c`. All heads attend to one head of keys, and nothing of the past is
//! computed again. Elsewhere keys and values are computed for each head.

use planish_ir::ops::{Concat, Expand, Linear, MatMul, Split};
use planish_ir::{Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::attention::{Heads, Scores, Text};
use crate::layers::blocks::Settings;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::rope::{self, Angles};

/// The configuration keys that are read here.
pub(crate) const KEYS: &[&str] =
    &["attention_bias", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"];

/// What norms of latents add to the mean square, whatever the configuration says of other norms.
const EPS: f64 = 1e-6;

const FIT: &str = "the shapes were checked when the tensors were taken";

/// The sizes of latents and heads.
pub(crate) struct Latent {
    /// Features of the latents of queries, where they have some.
    queries: Option<Size>,
    /// Features of those of keys and values.
    rank: Size,
    /// Features of the keys of a head that do not turn, and that turn.
    still: Size,
    turning: Size,
    /// Features of the values of a head.
    values: Size,
    pub(crate) pairs: Pairs,
    /// Whether projections to latents, and that of what attention gives, have biases.
    bias: bool,
}

/// Which of the turning features are pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// Features and those half of all after them.
    Halves,
    /// Neighbours.
    Neighbours,
    /// Neighbours as projections give them, halves as caches hold them.
    NeighboursAsHalves,
}

/// What sizes are where the configuration does not say.
pub(crate) struct Defaults {
    pub(crate) queries: Option<usize>,
    pub(crate) rank: usize,
    pub(crate) still: usize,
    pub(crate) turning: usize,
    /// What the heads share of `hidden_size` where absent.
    pub(crate) values: Option<usize>,
}

impl Latent {
    /// Reads the sizes, and sets the scale and the features that turn in the settings.
    ///
    /// # Errors
    /// When there are fewer heads of keys than of queries, which latents do not have.
    pub(crate) fn read(
        b: &Builder<'_>,
        s: &mut Settings,
        defaults: &Defaults,
        pairs: Pairs,
    ) -> Result<Self, ModelError> {
        let config = b.config;
        let Heads { queries, keys, .. } = s.heads;
        if keys.value != queries.value {
            return Err(config.error(format!("{keys}, but {queries}: with latents each head has keys of its own")));
        }
        let rank = config.optional_size("q_lora_rank", defaults.queries)?;
        let values = match config.optional_size("v_head_dim", defaults.values)? {
            Some(size) => Size::derived(size, "v_head_dim"),
            None => Size::derived(s.hidden.value / queries.value, "hidden_size / num_attention_heads"),
        };
        let latent = Self {
            queries: rank.map(|size| Size::derived(size, "q_lora_rank")),
            rank: config.size("kv_lora_rank", defaults.rank)?,
            still: config.size("qk_nope_head_dim", defaults.still)?,
            turning: config.size("qk_rope_head_dim", defaults.turning)?,
            values,
            pairs,
            bias: config.boolean("attention_bias", false)?,
        };
        s.scale = rope::latent_scale(config)? / (latent.keys().value as f64).sqrt();
        s.heads.size = latent.turning;
        Ok(latent)
    }

    /// Features of the keys of a head.
    fn keys(&self) -> Size {
        Size::derived(self.still.value + self.turning.value, "qk_nope_head_dim + qk_rope_head_dim")
    }

    /// The attention of a layer, with its projections: [batch_size, sequence_length, hidden] to the same.
    pub(crate) fn attend(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        text: &mut impl Text,
        x: ValueId,
        angles: Angles,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let heads = s.heads.queries;
        let all = Size::derived(
            heads.value * self.keys().value,
            "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
        );
        let turned = self.order_of_heads(heads, self.still);
        let q = match self.queries {
            None => projection(b, x, &at("q_proj"), [all, s.hidden], false, turned)?,
            Some(rank) => {
                let latent = b.projection(x, &at("q_a_proj"), [rank, s.hidden], self.bias)?;
                let latent = b.rms_norm(latent, &at("q_a_layernorm"), rank, EPS)?;
                projection(b, latent, &at("q_b_proj"), [all, rank], false, turned)?
            }
        };
        let q = b.reshape(q, tokens(b, &[heads, self.keys()]), &at("q.heads"))?;
        let [q_still, q_turning] = split(b, q, 3, [self.still, self.turning], &at("q.split"))?;
        let merged = Size::derived(heads.value * self.turning.value, "num_attention_heads * qk_rope_head_dim");
        let q_turning = b.reshape(q_turning, tokens(b, &[merged]), &at("q.turning"))?;
        let is_interleaved = self.pairs == Pairs::Neighbours;
        let q_turning = angles.rotate(b, q_turning, heads, is_interleaved, &at("rotary_q"))?;
        let q_turning = b.reshape(q_turning, tokens(b, &[heads, self.turning]), &at("q.turned"))?;

        let both = Size::derived(self.rank.value + self.turning.value, "kv_lora_rank + qk_rope_head_dim");
        let turned = self.order_of_heads(Size::derived(1, "one head"), self.rank);
        let down = projection(b, x, &at("kv_a_proj_with_mqa"), [both, s.hidden], self.bias, turned)?;
        let [latent, k_turning] = split(b, down, 2, [self.rank, self.turning], &at("kv.split"))?;
        let latent = b.rms_norm(latent, &at("kv_a_layernorm"), self.rank, EPS)?;
        let k_turning = angles.rotate(b, k_turning, Size::derived(1, "one head"), is_interleaved, &at("rotary_k"))?;

        let attended = match self.all(b, text, [latent, k_turning], module)? {
            Some(latents) => self.attend_latents(b, s, text, [q_still, q_turning], latents, module)?,
            None => self.attend_heads(b, s, text, [q_still, q_turning], [latent, k_turning], module)?,
        };
        b.projection(attended, &at(s.names.output), [s.hidden, self.value_features(heads)], self.bias)
    }

    fn value_features(&self, heads: Size) -> Size {
        Size::derived(heads.value * self.values.value, "num_attention_heads * v_head_dim")
    }

    /// Latents and turning features of all tokens, [batch_size, 1, keys, size], where a cache has them.
    fn all(
        &self,
        b: &mut Builder<'_>,
        text: &mut impl Text,
        [latent, turning]: [ValueId; 2],
        module: &str,
    ) -> Result<Option<[ValueId; 2]>, ModelError> {
        if !text.caches_latents(b) {
            return Ok(None);
        }
        let mut as_head = |x, size: Size, name: &str| {
            let one = Dim::constant(1);
            b.reshape(x, [b.texts(), one, Dim::symbol(SEQUENCE), size.signed().into()], &format!("{module}.{name}"))
        };
        let new = [as_head(latent, self.rank, "latent")?, as_head(turning, self.turning, "turning")?];
        text.extend(b, new, module).map(Some)
    }

    /// Attention to latents: [batch_size, sequence_length, heads * values].
    fn attend_latents(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        text: &mut impl Text,
        [still, turning]: [ValueId; 2],
        [latents, turnings]: [ValueId; 2],
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let heads = s.heads.queries;
        let [to_keys, to_values] = self.absorbed(b, heads, &at("kv_b_proj"))?;
        let still = b.transpose(still, &[0, 2, 1, 3], &at("q.by_head"))?;
        let still = b.emit(MatMul { a: still, b: to_keys }, &at("q.latent"))?;
        let turning = b.transpose(turning, &[0, 2, 1, 3], &at("q.turned.by_head"))?;
        let q = b.emit(Concat { parts: vec![still, turning], axis: 3 }, &at("q.joined"))?;
        let q = b.transpose(q, &[0, 2, 1, 3], &at("q.by_token"))?;
        let size = Size::derived(self.rank.value + self.turning.value, "kv_lora_rank + qk_rope_head_dim");
        let all = Size::derived(heads.value * size.value, "num_attention_heads * (kv_lora_rank + qk_rope_head_dim)");
        let q = b.reshape(q, tokens(b, &[all]), &at("q.all"))?;
        let keys = b.emit(Concat { parts: vec![latents, turnings], axis: 3 }, &at("keys"))?;
        let one = Heads { queries: heads, keys: Size::derived(1, "one head of latents"), size };
        let mixed = text.attend_all(b, [q, keys, latents], one, Scores::scaled(s.scale), module)?;
        let mixed = b.reshape(mixed, tokens(b, &[heads, self.rank]), &at("mixed.heads"))?;
        let mixed = b.transpose(mixed, &[0, 2, 1, 3], &at("mixed.by_head"))?;
        let values = b.emit(MatMul { a: mixed, b: to_values }, &at("values"))?;
        let values = b.transpose(values, &[0, 2, 1, 3], &at("values.by_token"))?;
        b.reshape(values, tokens(b, &[self.value_features(heads)]), &at("values.all"))
    }

    /// The weights of keys, [heads, still, rank], and of values, [heads, rank, values].
    fn absorbed(&self, b: &mut Builder<'_>, heads: Size, module: &str) -> Result<[ValueId; 2], ModelError> {
        let (still, values, rank) = (self.still.value, self.values.value, self.rank.value);
        if let Some((keys, values, origin)) = self.apart(b, heads, module)? {
            let values = values.transpose(&[0, 2, 1]);
            let parts = keys.transpose(&[0, 2, 1]).zip(values);
            let (keys, values) = parts.unwrap_or_else(|| unreachable!("{FIT}"));
            let mut add = |name: &str, part, origin| b.graph.add_weight(&format!("{module}.{name}"), part, origin);
            return Ok([add("keys", keys, origin.clone()), add("values", values, origin)]);
        }
        let name = format!("{module}.weight");
        let (weight, origin) = b.tensors.take(&[&name], &[self.expanded(heads), self.rank])?;
        let part = |first: usize, size: usize| {
            let start = |head: usize| head * (still + values) + first;
            let rows = (0..heads.value).map(|head| weight.rows(start(head)..start(head) + size));
            Weight::stack(&rows.collect::<Option<Vec<_>>>()?)?.reshape(&[heads.value, size, rank])
        };
        let parts = part(0, still).zip(part(still, values).and_then(|part| part.transpose(&[0, 2, 1])));
        let (keys, values) = parts.unwrap_or_else(|| unreachable!("{FIT}"));
        let mut add = |name: &str, part, origin| b.graph.add_weight(&format!("{module}.{name}"), part, origin);
        Ok([add("keys", keys, origin.clone()), add("values", values, origin)])
    }

    /// The weights of keys, [heads, rank, still], and of values, [heads, values, rank], where they are apart, as in GGUF files.
    fn apart(
        &self,
        b: &mut Builder<'_>,
        heads: Size,
        module: &str,
    ) -> Result<Option<(Weight, Weight, Origin)>, ModelError> {
        let name = |part: &str| format!("{}.weight", module.replace("kv_b_proj", part));
        if !b.tensors.contains(&name("k_b_proj")) {
            return Ok(None);
        }
        let (keys, origin) = b.tensors.take(&[&name("k_b_proj")], &[heads, self.rank, self.still])?;
        let (values, _) = b.tensors.take(&[&name("v_b_proj")], &[heads, self.values, self.rank])?;
        Ok(Some((keys, values, origin)))
    }

    /// The projection of latents to keys and values of all heads.
    fn expand(&self, b: &mut Builder<'_>, latent: ValueId, heads: Size, module: &str) -> Result<ValueId, ModelError> {
        let Some((keys, values, origin)) = self.apart(b, heads, module)? else {
            return b.projection(latent, module, [self.expanded(heads), self.rank], false);
        };
        let keys = keys.transpose(&[0, 2, 1]);
        let both = keys.and_then(|keys| Weight::concat(&[keys, values], 1));
        let both = both.and_then(|both| both.reshape(&[self.expanded(heads).value, self.rank.value]));
        let both = both.unwrap_or_else(|| unreachable!("{FIT}"));
        let weight = b.graph.add_weight(&format!("{module}.weight"), both, origin);
        b.emit(Linear::new(latent, weight, None), module)
    }

    /// The features of keys that do not turn, and of values.
    fn expanded(&self, heads: Size) -> Size {
        let features = heads.value * (self.still.value + self.values.value);
        Size::derived(features, "num_attention_heads * (qk_nope_head_dim + v_head_dim)")
    }

    /// Attention to keys and values of each head: [batch_size, sequence_length, heads * values].
    fn attend_heads(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        text: &mut impl Text,
        [still, turning]: [ValueId; 2],
        [latent, k_turning]: [ValueId; 2],
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let heads = s.heads.queries;
        let all = Size::derived(
            heads.value * self.keys().value,
            "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
        );
        let both = Size::derived(self.still.value + self.values.value, "qk_nope_head_dim + v_head_dim");
        let up = self.expand(b, latent, heads, &at("kv_b_proj"))?;
        let up = b.reshape(up, tokens(b, &[heads, both]), &at("kv.heads"))?;
        let [k_still, v] = split(b, up, 3, [self.still, self.values], &at("kv.up.split"))?;
        let k_turning =
            b.reshape(k_turning, tokens(b, &[Size::derived(1, "one head"), self.turning]), &at("k.turned"))?;
        let shape = Shape::new(tokens(b, &[heads, self.turning]));
        let k_turning = b.emit(Expand { x: k_turning, shape }, &at("k.turned.all"))?;
        let mut joined = |still, turning, name: &str| {
            let joined = b.emit(Concat { parts: vec![still, turning], axis: 3 }, &at(&format!("{name}.joined")))?;
            b.reshape(joined, tokens(b, &[all]), &at(&format!("{name}.all")))
        };
        let (q, k) = (joined(still, turning, "q")?, joined(k_still, k_turning, "k")?);
        let v = b.reshape(v, tokens(b, &[self.value_features(heads)]), &at("v.all"))?;
        text.attend(b, [q, k, v], s.heads, Scores::scaled(s.scale), module)
    }

    /// The rows of a projection in the order in which pairs are halves of what turns, where they are stored as neighbours: of each
    /// head `before` rows, and then those that turn.
    fn order_of_heads(&self, heads: Size, before: Size) -> Option<impl Fn() -> Vec<usize>> {
        let (before, turning) = (before.value, self.turning.value);
        let of_head = move |head: usize| {
            let start = head * (before + turning);
            let still = start..start + before;
            let evens = (0..turning).step_by(2).chain((1..turning).step_by(2));
            still.chain(evens.map(move |at| start + before + at))
        };
        (self.pairs == Pairs::NeighboursAsHalves).then_some(move || (0..heads.value).flat_map(of_head).collect())
    }
}

/// A projection whose rows are taken in an order, which is made once the shape of the weight is checked.
fn projection(
    b: &mut Builder<'_>,
    x: ValueId,
    module: &str,
    [out, inner]: [Size; 2],
    bias: bool,
    order: Option<impl Fn() -> Vec<usize>>,
) -> Result<ValueId, ModelError> {
    let Some(order) = order else { return b.projection(x, module, [out, inner], bias) };
    let mut taken = |name: &str, shape: &[Size]| {
        let name = format!("{module}.{name}");
        let (weight, origin): (Weight, Origin) = b.tensors.take(&[&name], shape)?;
        let rows = weight.gather(0, &order()).unwrap_or_else(|| unreachable!("the order is one of all rows"));
        Ok::<_, ModelError>(b.graph.add_weight(&name, rows, origin))
    };
    let weight = taken("weight", &[out, inner])?;
    let bias = if bias { Some(taken("bias", &[out])?) } else { None };
    b.emit(Linear::new(x, weight, bias), module)
}

/// Two parts of an axis.
fn split(
    b: &mut Builder<'_>,
    x: ValueId,
    axis: usize,
    sizes: [Size; 2],
    name: &str,
) -> Result<[ValueId; 2], ModelError> {
    match b.emit_all(Split { x, axis, sizes: sizes.map(|size| size.value).to_vec() }, name)?[..] {
        [first, second] => Ok([first, second]),
        _ => unreachable!("a split has as many results as sizes"),
    }
}

/// [batch_size, sequence_length, ..].
fn tokens(b: &Builder<'_>, last: &[Size]) -> Vec<Dim> {
    let last = last.iter().map(|size| size.signed().into());
    [b.texts(), Dim::symbol(SEQUENCE)].into_iter().chain(last).collect()
}
