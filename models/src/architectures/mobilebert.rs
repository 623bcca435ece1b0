//! MobileBERT (Sun et al. 2020, arXiv:2004.02984), as `transformers/models/mobilebert` has it: BERT with narrow layers between
//! projections, several feed-forwards in each, and embeddings of three tokens side by side.

use planish_ir::ops::{BinaryKind, Concat, Expand, Linear, Slice};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::attention::{Heads, Scores, attention};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::encoder::{self, Settings};
use crate::layers::heads::{self, Pooling, TextHeads};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mobilebert",
    class_prefix: "MobileBert",
    base: "mobilebert",
    keys: &[
        bert::KEYS,
        &[
            "classifier_activation",
            "embedding_size",
            "intra_bottleneck_size",
            "key_query_shared_bottleneck",
            NORM,
            "num_feedforward_networks",
            "trigram_input",
            "use_bottleneck",
            "use_bottleneck_attention",
        ],
    ],
    only: &[encoder::NO_DECODER],
    // The size that layers have, which the transformers library computes anew.
    irrelevant_keys: &["true_hidden_size"],
    // Buffers, then what is there whatever the configuration says, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "embeddings.embedding_transformation.",
        ".bottleneck.attention.dense.weight",
        ".bottleneck.attention.dense.bias",
        ".bottleneck.attention.LayerNorm.weight",
        ".bottleneck.attention.LayerNorm.bias",
        "pooler.",
        "cls.",
        "classifier.",
        "qa_outputs.",
    ],
    build,
    ..bert::ARCHITECTURE
};

const NORM: &str = "normalization_type";
/// What norms add to the variance where the transformers library passes no `layer_norm_eps`.
const EPS: f64 = 1e-5;

struct Mobile {
    s: Settings,
    /// Features within layers.
    narrow: Size,
    heads: Heads,
    /// Whether layers stand between projections.
    bottleneck: bool,
    /// Whether queries, keys and values have the input of the residual.
    of_residual: bool,
    /// Whether queries and keys have a projection of their own.
    shared: bool,
    feed_forwards: usize,
    /// Whether norms only scale and move.
    plain: bool,
    trigrams: bool,
}

impl Mobile {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let defaults = Defaults {
            hidden_size: 512,
            num_hidden_layers: 24,
            num_attention_heads: 4,
            intermediate_size: 512,
            hidden_act: "relu",
            ..Defaults::BERT
        };
        let mut s = bert::settings(config, &defaults)?;
        s.embedded = config.size("embedding_size", 128)?;
        let bottleneck = config.boolean("use_bottleneck", true)?;
        let inner = config.size("intra_bottleneck_size", 128)?;
        let narrow = if bottleneck { inner } else { s.hidden };
        if !narrow.value.is_multiple_of(s.heads.value) {
            return Err(config.error(format!("{narrow} is not divisible by {}", s.heads)));
        }
        let size = Size::derived(narrow.value / s.heads.value, "intra_bottleneck_size / num_attention_heads");
        let plain = match config.text(NORM, "no_norm")? {
            "no_norm" => true,
            "layer_norm" => false,
            other => {
                return Err(config.error(format!("`{NORM}` is \"{other}\", expected \"no_norm\" or \"layer_norm\"")));
            }
        };
        let of_residual = config.boolean("use_bottleneck_attention", false)?;
        let shared = config.boolean("key_query_shared_bottleneck", true)?;
        if !of_residual && !shared && narrow.value != s.hidden.value {
            return Err(config.error(format!(
                "`key_query_shared_bottleneck` and `use_bottleneck_attention` are false: queries have no projection to {narrow}"
            )));
        }
        Ok(Self {
            narrow,
            heads: Heads { queries: s.heads, keys: s.heads, size },
            bottleneck,
            of_residual,
            shared,
            feed_forwards: config.size("num_feedforward_networks", 4)?.value,
            plain,
            trigrams: config.boolean("trigram_input", true)?,
            s,
        })
    }

    /// A norm, or only its weight and its bias.
    fn norm(&self, b: &mut Builder<'_>, x: ValueId, module: &str, size: Size, eps: f64) -> Result<ValueId, ModelError> {
        if !self.plain {
            return b.layer_norm(x, module, size, eps);
        }
        let at = |name: &str| format!("{module}.{name}");
        let (weight, bias) = (b.weight(&[&at("weight")], &[size])?, b.weight(&[&at("bias")], &[size])?);
        let scaled = b.binary(BinaryKind::Mul, [x, weight], &at("mul"))?;
        b.add(scaled, bias, module)
    }

    /// A projection and a norm.
    fn narrowed(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let x = b.linear(x, &format!("{module}.dense"), self.narrow, self.s.hidden)?;
        self.norm(b, x, &format!("{module}.LayerNorm"), self.narrow, self.s.eps)
    }

    /// A projection from `inner` to `out` features, the sum with a residual, and a norm.
    fn joined(
        &self,
        b: &mut Builder<'_>,
        [x, residual]: [ValueId; 2],
        module: &str,
        [out, inner]: [Size; 2],
        eps: f64,
    ) -> Result<ValueId, ModelError> {
        let x = b.linear(x, &format!("{module}.dense"), out, inner)?;
        let sum = b.add(x, residual, &format!("{module}.add"))?;
        self.norm(b, sum, &format!("{module}.LayerNorm"), out, eps)
    }

    fn layer(&self, b: &mut Builder<'_>, x: ValueId, mask: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{path}.{name}");
        let (s, narrow) = (&self.s, self.narrow);
        let residual = if self.bottleneck { self.narrowed(b, x, &at("bottleneck.input"))? } else { x };
        let (queries, values) = match (self.bottleneck, self.of_residual, self.shared) {
            (false, ..) => (x, x),
            (true, true, _) => (residual, residual),
            (true, false, true) => (self.narrowed(b, x, &at("bottleneck.attention"))?, x),
            (true, false, false) => (x, x),
        };
        let of_values = if self.of_residual { narrow } else { s.hidden };
        let q = b.linear(queries, &at("attention.self.query"), narrow, narrow)?;
        let k = b.linear(queries, &at("attention.self.key"), narrow, narrow)?;
        let v = b.linear(values, &at("attention.self.value"), narrow, of_values)?;
        let scale = 1.0 / (self.heads.size.value as f64).sqrt();
        let attended = b.emit(attention([q, k, v], self.heads, Scores::scaled(scale), mask), &at("attention"))?;
        let mut inner = self.joined(b, [attended, residual], &at("attention.output"), [narrow; 2], s.eps)?;
        for forward in 0..self.feed_forwards - 1 {
            let at = |name: &str| format!("{path}.ffn.{forward}.{name}");
            let up = self.up(b, inner, &at("intermediate"))?;
            inner = self.joined(b, [up, inner], &at("output"), [narrow, s.intermediate], s.eps)?;
        }
        let up = self.up(b, inner, &at("intermediate"))?;
        let given = self.joined(b, [up, inner], &at("output"), [narrow, s.intermediate], EPS)?;
        match self.bottleneck {
            true => self.joined(b, [given, x], &at("output.bottleneck"), [s.hidden, narrow], s.eps),
            false => Ok(given),
        }
    }

    fn up(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let up = b.linear(x, &format!("{module}.dense"), self.s.intermediate, self.narrow)?;
        self.s.activation.apply(b, up, &format!("{module}.activation"))
    }

    /// The embeddings, [batch_size, sequence_length, hidden], and the mask.
    fn embeddings(&self, b: &mut Builder<'_>) -> Result<(ValueId, ValueId), ModelError> {
        const PROJECTION: &str = "embeddings.embedding_transformation";
        let s = &self.s;
        let wide = Settings { embedded: s.hidden, ..*s };
        let types = bert::token_types(b)?;
        let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
        let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
        let token_type_ids = b.input(names::TOKEN_TYPES, types.signed())?;
        let mask = encoder::mask(b, attention_mask)?;
        let mut x = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.embedded)?;
        let mut features = s.embedded;
        if self.trigrams {
            x = trigrams(b, x, s.embedded)?;
            features = Size::derived(3 * s.embedded.value, "3 * embedding_size");
        }
        if self.trigrams || s.embedded.value != s.hidden.value {
            x = b.linear(x, PROJECTION, s.hidden, features)?;
        }
        let positions = encoder::absolute_positions(b, &wide)?;
        let types = b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.hidden)?;
        let sum = encoder::sum(b, x, &[positions, types])?;
        Ok((self.norm(b, sum, "embeddings.LayerNorm", s.hidden, EPS)?, mask))
    }
}

/// The features of the token after, of each token, and of the token before: zeros where there is none.
fn trigrams(b: &mut Builder<'_>, x: ValueId, size: Size) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("embeddings.trigrams.{name}");
    let zero = Weight::numbers(DType::F32, vec![1, 1, 1], &[0.0]);
    let zero = zero.unwrap_or_else(|| unreachable!("one number has this shape"));
    let zero = b.graph.add_weight(&at("zero"), zero, Origin::Unknown);
    let shape = Shape::new([b.texts(), Dim::constant(1), size.signed().into()]);
    let margin = b.emit(Expand { x: zero, shape }, &at("margin"))?;
    let padded = b.emit(Concat { parts: vec![margin, x, margin], axis: 1 }, &at("padded"))?;
    let mut from = |start: i64, name: &str| {
        let start = Dim::constant(start);
        let end = Dim::symbol(SEQUENCE).checked_add(&start).unwrap_or_default();
        b.emit(Slice { x: padded, axis: 1, start, end }, &at(name))
    };
    let parts = vec![from(2, "after")?, x, from(0, "before")?];
    b.emit(Concat { parts, axis: 2 }, "embeddings.trigrams")
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let m = Mobile::read(b.config)?;
    let pooling = match b.config.boolean("classifier_activation", true)? {
        true => Pooling::Dense("pooler.dense", Activation::TANH),
        false => Pooling::First,
    };
    let (mut x, mask) = m.embeddings(b)?;
    for layer in 0..m.s.layers.value {
        x = m.layer(b, x, mask, &format!("encoder.layer.{layer}"))?;
    }
    let bert = TextHeads::bert(m.s.activation);
    let heads = TextHeads { pooler: Some(pooling), sequence: (pooling, "classifier"), choice: Some(pooling), ..bert };
    match task {
        Task::FillMask => fill_mask(b, &m.s, x, &heads)?,
        _ => heads.finish(b, &m.s.head_sizes(), x, task)?,
    }
    Ok(m.s.properties(m.s.positions.value))
}

/// `logits` of the vocabulary for each token, by the word embeddings and, for the features that these lack, another matrix.
fn fill_mask(b: &mut Builder<'_>, s: &Settings, x: ValueId, heads: &TextHeads) -> Result<(), ModelError> {
    const DECODER: &str = "cls.predictions.decoder";
    let wide = heads::HeadSizes { embedded: s.hidden, ..s.head_sizes() };
    let x = heads::transformed(b, &wide, x, &heads.masked)?;
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let mut weight = heads::vocabulary_weight(b, DECODER, heads::WORDS, tied, [s.vocabulary, s.embedded])?;
    if s.hidden.value > s.embedded.value {
        let rest = Size::derived(s.hidden.value - s.embedded.value, "hidden_size - embedding_size");
        let stored = b.weight(&["cls.predictions.dense.weight"], &[rest, s.vocabulary])?;
        let rest = b.transpose(stored, &[1, 0], "cls.predictions.dense.rows")?;
        weight = b.emit(Concat { parts: vec![weight, rest], axis: 1 }, "cls.predictions.matrix")?;
    }
    let bias = heads::decoder_bias(b, &wide, &heads.masked, tied)?;
    let logits = b.emit(Linear::new(x, weight, bias), DECODER)?;
    b.give(names::LOGITS, logits);
    Ok(())
}
