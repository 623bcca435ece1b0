//! Mixtures of experts (Shazeer et al. 2017, arXiv:1701.06538): a router chooses the experts of each token and the factors of
//! what they give. An architecture says how many experts there are, how the router scores and chooses ([`Router`]), under which
//! names the checkpoint has them ([`Stored`]), what all tokens take besides ([`Shared`]), and which layers have no experts.

mod router;
mod weights;

use planish_ir::ValueId;
use planish_ir::ops::{self, BinaryKind, Experts, Real, UnaryKind};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::blocks::{Settings, feed_forward};
use crate::layers::builder::Builder;
use crate::layers::windows::kinds;

pub(crate) use router::{Correction, GroupScore, Groups, LEAST, Router, Scoring, Sum};
pub(crate) use weights::Stored;

/// The feed-forward of layers with experts.
pub(crate) struct Mixture {
    /// How many experts there are.
    pub(crate) count: Size,
    /// How many of them a token takes, in each layer.
    pub(crate) taken: Vec<Size>,
    /// The features inside of an expert.
    pub(crate) inner: Size,
    pub(crate) router: Router,
    /// The key of the function of gates.
    pub(crate) activation_key: &'static str,
    pub(crate) stored: Stored,
    /// The features that experts take and give, where they are not those of the model.
    pub(crate) latent: Option<Latent>,
    /// How gates and what they are multiplied with are changed.
    pub(crate) clamp: Option<Clamp>,
    /// Whether the inputs of experts are multiplied with the factors, not what they give.
    pub(crate) scales_inputs: bool,
    /// What all tokens take.
    pub(crate) shared: Option<Shared>,
    /// Whether each layer has the feed-forward of [`Settings`] instead; the layers after these have experts.
    pub(crate) dense: Vec<bool>,
}

/// A gate is limited to `limit`, what it is multiplied with to `-limit` to `limit`, plus 1; `alpha` is the factor in the sigmoid
/// of the activation.
#[derive(Clone, Copy)]
pub(crate) struct Clamp {
    pub(crate) alpha: f64,
    pub(crate) limit: f64,
}

/// Projections around experts, to so many features and back.
#[derive(Clone, Copy)]
pub(crate) struct Latent {
    pub(crate) size: Size,
    pub(crate) down: &'static str,
    pub(crate) up: &'static str,
}

/// A feed-forward of the form of dense layers, added to what the experts give.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    /// Its name in the module.
    pub(crate) module: &'static str,
    pub(crate) inner: Size,
    /// The projection to a number whose sigmoid is the factor of what it gives, where there is one.
    pub(crate) gate: Option<&'static str>,
}

impl Shared {
    /// Of the module `shared_experts`, with so many features inside.
    pub(crate) fn beside(inner: Size) -> Self {
        Self { module: "shared_experts", inner, gate: None }
    }
}

/// The features of so many experts side by side.
pub(crate) fn times(count: Size, inner: Size) -> Size {
    Size::derived(count.value * inner.value, "features of an expert times shared experts")
}

/// The features of the experts that all tokens take, where there are some.
pub(crate) fn shared(
    config: &Config<'_>,
    key: &'static str,
    default: usize,
    inner: Size,
) -> Result<Option<Size>, ModelError> {
    let count = config.whole(key, default)?;
    Ok((count > 0).then(|| times(Size::derived(count, key), inner)))
}

/// What factors are multiplied with.
pub(crate) fn factor(config: &Config<'_>, default: f64) -> Result<(f64, &'static str), ModelError> {
    const KEY: &str = "routed_scaling_factor";
    Ok((config.positive(KEY, default)?, KEY))
}

/// A size that the transformers library has no default for.
pub(crate) fn required(config: &Config<'_>, key: &'static str) -> Result<Size, ModelError> {
    config.get(key);
    config.given_size(&[key])?.ok_or_else(|| config.error(format!("`{key}` is missing")))
}

/// The configuration key that [`Router::read_sum`] reads.
pub(crate) const SUM_KEYS: &[&str] = &["norm_topk_prob"];

/// The configuration keys that DeepSeek's models and their kin read.
pub(crate) const DEEPSEEK_KEYS: &[&str] = &[
    "first_k_dense_replace",
    "moe_intermediate_size",
    "n_group",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "topk_group",
];

impl Mixture {
    /// Experts of `inner` features in all layers; the keys are those of their number and of how many a token takes, with what
    /// they are where the configuration does not say. Scores are the softmax of all logits, and the experts are modules of
    /// their own.
    ///
    /// # Errors
    /// When a token takes more experts than there are.
    pub(crate) fn read(
        b: &Builder<'_>,
        s: &Settings,
        (count, default_count): (&'static str, usize),
        (taken, default_taken): (&'static str, usize),
        inner: Size,
    ) -> Result<Self, ModelError> {
        let (count, taken) = (b.config.size(count, default_count)?, b.config.size(taken, default_taken)?);
        Self::new(b.config, count, vec![taken; s.layers.value], inner)
    }

    /// The same with numbers that were read.
    pub(crate) fn new(config: &Config<'_>, count: Size, taken: Vec<Size>, inner: Size) -> Result<Self, ModelError> {
        match taken.iter().find(|taken| taken.value > count.value) {
            Some(taken) => {
                Err(config.error(format!("{taken} is more than {count}: a token takes each expert at most once")))
            }
            None => Ok(Self {
                count,
                taken,
                inner,
                router: Router::SOFTMAX,
                activation_key: "hidden_act",
                stored: Stored::PROJECTIONS,
                latent: None,
                clamp: None,
                scales_inputs: false,
                shared: None,
                dense: Vec::new(),
            }),
        }
    }

    /// Whether a layer has experts.
    pub(crate) fn is_in(&self, layer: usize) -> bool {
        !self.dense.get(layer).copied().unwrap_or(false)
    }

    /// Adds those of a layer: [batch_size, sequence_length, hidden] to the same.
    pub(crate) fn apply(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        layer: usize,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let routed = self.routed(b, s, x, layer, module)?;
        self.with_shared(b, s, x, routed, module)
    }

    /// The same without what all tokens take.
    pub(crate) fn routed(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        layer: usize,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let [scores, indices] = self.route(b, s, x, layer, module)?;
        let (x, features) = match self.latent {
            Some(Latent { size, down, .. }) => {
                (b.projection(x, &at(down), [size, s.hidden], s.feed_forward_bias)?, size)
            }
            None => (x, s.hidden),
        };
        let mut weights = self.stored.read(b, self, features, module)?;
        let (activation, factor) = match (s.activation, weights.up) {
            // The square is the product of two.
            (Activation::SquaredRelu, None) => {
                weights.up = Some(weights.gate);
                (ops::Activation::Relu, None)
            }
            (activation, _) => function(b.config, self.activation_key, activation)?,
        };
        let [gate_bias, up_bias, down_bias] = weights.biases.map_or([None; 3], |biases| biases.map(Some));
        let of = |x, indices, scores| Experts {
            x,
            indices,
            scores,
            gate: weights.gate,
            down: weights.down,
            up: weights.up,
            gate_bias,
            up_bias,
            down_bias,
            activation,
            alpha: self.clamp.map(|clamp| Real(clamp.alpha)).or(factor),
            limit: self.clamp.map(|clamp| Real(clamp.limit)),
            shift: self.clamp.map(|_| Real(1.0)),
        };
        if let Some(Latent { size, up, .. }) = self.latent {
            let routed = b.emit(of(x, indices, scores), &at("experts"))?;
            return b.projection(routed, &at(up), [s.hidden, size], s.feed_forward_bias);
        }
        if self.scales_inputs {
            return self.of_scaled_inputs(b, x, [scores, indices], module, of);
        }
        match self.shared {
            None => b.emit(of(x, indices, scores), module),
            Some(_) => b.emit(of(x, indices, scores), &at("experts")),
        }
    }

    /// The sum of what the chosen experts give of the token times their factors.
    fn of_scaled_inputs(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        chosen: [ValueId; 2],
        module: &str,
        of: impl Fn(ValueId, ValueId, ValueId) -> Experts,
    ) -> Result<ValueId, ModelError> {
        let taken = self.taken.first().map_or(1, |taken| taken.value);
        let mut split = |x, name: &str| match taken {
            1 => Ok(vec![x]),
            _ => b.emit_all(ops::Split { x, axis: 2, sizes: vec![1; taken] }, &format!("{module}.{name}")),
        };
        let (factors, experts) = (split(chosen[0], "factors")?, split(chosen[1], "indices")?);
        let mut sum = None;
        for (at, (factor, expert)) in factors.into_iter().zip(experts).enumerate() {
            let at = |name: &str| format!("{module}.experts.choice_{at}.{name}");
            let input = b.binary(BinaryKind::Mul, [x, factor], &at("input"))?;
            // The share of one is 1.
            let whole = b.emit(ops::Softmax { x: factor }, &at("whole"))?;
            let given = b.emit(of(input, expert, whole), &at("experts"))?;
            sum = Some(match sum {
                Some(sum) => b.add(sum, given, &at("add"))?,
                None => given,
            });
        }
        Ok(sum.unwrap_or_else(|| unreachable!("a token takes at least one expert")))
    }

    /// What experts give, and what all tokens take.
    fn with_shared(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        routed: ValueId,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let Some(shared) = self.shared else { return Ok(routed) };
        let own = at(shared.module);
        let mut common = feed_forward::dense(b, s, x, shared.inner, &own)?;
        if let Some(name) = shared.gate {
            let one = Size::derived(1, "a gate of one number");
            let gate = b.projection(x, &at(name), [one, s.hidden], false)?;
            let gate = b.emit(ops::Unary { kind: UnaryKind::Sigmoid, x: gate }, &at(&format!("{name}.sigmoid")))?;
            common = b.binary(BinaryKind::Mul, [gate, common], &format!("{own}.mul"))?;
        }
        b.add(routed, common, module)
    }
}

/// The function of gates, and the factor in its sigmoid.
fn function(
    config: &Config<'_>,
    key: &'static str,
    activation: Activation,
) -> Result<(ops::Activation, Option<Real>), ModelError> {
    const QUICK: f64 = 1.702;
    let plain = match activation {
        Activation::Unary(UnaryKind::Silu) => ops::Activation::Silu,
        Activation::Unary(UnaryKind::Relu) => ops::Activation::Relu,
        Activation::Gelu(ops::GeluForm::Erf) => ops::Activation::GeluErf,
        Activation::Gelu(ops::GeluForm::Tanh) => ops::Activation::GeluTanh,
        Activation::Linear => ops::Activation::None,
        Activation::QuickGelu => return Ok((ops::Activation::Silu, Some(Real(QUICK)))),
        _ => {
            let name = config.text(key, "")?;
            return Err(config.error(format!(
                "`{key}` is \"{name}\", which is not supported in mixtures of experts: take silu, relu, linear, quick_gelu or \
                 one of gelu"
            )));
        }
    };
    Ok((plain, None))
}

/// Whether each layer is dense: those before one, which a key gives.
pub(crate) fn dense_before(
    config: &Config<'_>,
    s: &Settings,
    key: &'static str,
    default: usize,
) -> Result<Vec<bool>, ModelError> {
    let first = config.whole(key, default)?;
    Ok((0..s.layers.value).map(|layer| layer < first).collect())
}

/// Whether each layer is dense: as a list says, or those before one, which a key gives if the architecture has it.
pub(crate) fn dense_listed(
    config: &Config<'_>,
    s: &Settings,
    (first, default): (Option<&'static str>, usize),
) -> Result<Vec<bool>, ModelError> {
    let first = match first {
        Some(key) => config.whole(key, default)?,
        None => default,
    };
    let names = ["dense", "sparse"];
    let kinds = kinds(config, KINDS, s.layers, names, |layer| names[usize::from(layer >= first)])?;
    Ok(kinds.into_iter().map(|kind| kind == names[0]).collect())
}

/// The configuration key of the list that [`dense_listed`] reads.
pub(crate) const KINDS: &str = "mlp_layer_types";

/// Whether each layer is dense: those that a list has, and all but every so-manieth.
pub(crate) fn dense_between(config: &Config<'_>, s: &Settings) -> Result<Vec<bool>, ModelError> {
    let step = config.size_or(STEP, Size::derived(1, STEP))?.value;
    let listed = config.layer_numbers(LISTED)?.unwrap_or_default();
    Ok((0..s.layers.value).map(|layer| listed.contains(&layer) || !(layer + 1).is_multiple_of(step)).collect())
}

const STEP: &str = "decoder_sparse_step";
const LISTED: &str = "mlp_only_layers";

/// The configuration keys that [`dense_between`] reads.
pub(crate) const DENSE_KEYS: &[&str] = &[STEP, LISTED];
