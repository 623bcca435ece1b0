//! Routers: which experts a token takes, and the factors of what they give.

use planish_ir::ops::{
    BinaryKind, Concat, Flag, Gather, Iota, Reduce, ReduceKind, Select, Softmax, Split, TopK, Unary, UnaryKind,
};
use planish_ir::{DType, Dim, ValueId};

use super::Mixture;
use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::Settings;
use crate::layers::builder::{Builder, SEQUENCE};

/// Less than any score, and a number that half precision has too.
pub(crate) const LEAST: f64 = -65504.0;

/// How a router scores and chooses.
#[derive(Clone, Copy)]
pub(crate) struct Router {
    /// The projection to a logit for each expert.
    pub(crate) name: &'static str,
    /// Whether it has a bias.
    pub(crate) bias: bool,
    pub(crate) scoring: Scoring,
    /// What is added to scores for the choice alone.
    pub(crate) correction: Option<Correction>,
    pub(crate) groups: Option<Groups>,
    /// Whether the factors of a token are divided by their sum.
    pub(crate) sum: Option<Sum>,
    /// What factors are multiplied with, and the key that says so.
    pub(crate) factor: (f64, &'static str),
}

/// How logits become scores.
#[derive(Clone, Copy)]
pub(crate) enum Scoring {
    /// The softmax of all logits.
    Softmax,
    /// The sigmoid of each.
    Sigmoid,
    /// The softmax of those that are chosen.
    SoftmaxOfChosen,
    /// The sigmoid of those that are chosen.
    SigmoidOfChosen,
    /// The two largest logits, each scored by a softmax of those that are as large but for a share of twice `jitter`: SparseMixer
    /// (Liu et al. 2024, arXiv:2409.12136) as it is when a model is used.
    SparseMixer { jitter: f64 },
}

/// A tensor of an addend for each expert.
#[derive(Clone, Copy)]
pub(crate) struct Correction {
    /// Its name in the module.
    pub(crate) name: &'static str,
    /// Whether it is a matrix of one row.
    pub(crate) is_row: bool,
}

/// Experts are in groups of one size, and those of the best groups alone are chosen among.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    pub(crate) count: Size,
    pub(crate) taken: Size,
    pub(crate) score: GroupScore,
}

/// The score of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupScore {
    /// That of its best expert.
    Best,
    /// The sum of those of its two best experts.
    TwoBest,
}

/// What factors are divided by.
#[derive(Clone, Copy)]
pub(crate) enum Sum {
    /// Their sum and a number.
    Plus(f64),
    /// Their sum, which is at least a number that a key gives.
    AtLeast(f64, &'static str),
}

impl Router {
    /// The softmax of all logits of the projection `gate`.
    pub(crate) const SOFTMAX: Self = Self {
        name: "gate",
        bias: false,
        scoring: Scoring::Softmax,
        correction: None,
        groups: None,
        sum: None,
        factor: (1.0, "model_type"),
    };

    /// Divides factors by their sum where a key says so.
    pub(crate) fn read_sum(&mut self, config: &Config<'_>, default: bool) -> Result<(), ModelError> {
        self.sum = config.boolean("norm_topk_prob", default)?.then_some(Sum::Plus(0.0));
        Ok(())
    }
}

impl Groups {
    /// So many groups, of which so many are taken, by the keys `n_group` and `topk_group`; where all are, there are none.
    ///
    /// # Errors
    /// When groups do not divide the experts, or have not as many as a token takes.
    pub(crate) fn of(
        config: &Config<'_>,
        mixture: &Mixture,
        [count, taken]: [Option<usize>; 2],
        score: GroupScore,
    ) -> Result<Option<Self>, ModelError> {
        let [count, taken] = [("n_group", count), ("topk_group", taken)].map(|(key, size)| {
            size.map(|size| Size::derived(size, key)).ok_or_else(|| config.error(format!("`{key}` is missing")))
        });
        let (count, taken, experts) = (count?, taken?, mixture.count);
        let refuse = |why: String| Err(config.error(why));
        if !experts.value.is_multiple_of(count.value) {
            return refuse(format!("{experts} is not divisible by {count}"));
        }
        if taken.value > count.value {
            return refuse(format!("{taken} is more than {count}"));
        }
        let size = experts.value / count.value;
        if score == GroupScore::TwoBest && size < 2 {
            return refuse(format!(
                "{experts} in groups of {count} leaves one expert in each, and the score of a group is that of two"
            ));
        }
        if let Some(most) = mixture.taken.iter().find(|most| most.value > size * taken.value) {
            return refuse(format!("{most} is more than the experts of {taken} groups of {size}"));
        }
        Ok((taken.value < count.value).then_some(Self { count, taken, score }))
    }
}

impl Mixture {
    /// The factors and the experts of each token, [batch_size, sequence_length, taken].
    pub(super) fn route(
        &self,
        b: &mut Builder<'_>,
        s: &Settings,
        x: ValueId,
        layer: usize,
        module: &str,
    ) -> Result<[ValueId; 2], ModelError> {
        let router = &self.router;
        let own = format!("{module}.{}", router.name);
        let at = |name: &str| format!("{own}.{name}");
        // The list has each layer.
        let taken = self.taken.get(layer).copied().unwrap_or(self.count);
        let logits = b.projection(x, &own, [self.count, s.hidden], router.bias)?;
        let scores = match router.scoring {
            Scoring::SparseMixer { jitter } => return self.mix(b, logits, jitter, &own),
            Scoring::SoftmaxOfChosen => {
                let [chosen, indices] = best(b, logits, 2, taken, &at("top"))?;
                let scores = b.emit(Softmax { x: chosen }, &at("softmax"))?;
                return Ok([self.scaled(b, scores, &own)?, indices]);
            }
            Scoring::SigmoidOfChosen => {
                let [x, indices] = best(b, logits, 2, taken, &at("top"))?;
                let scores = b.emit(Unary { kind: UnaryKind::Sigmoid, x }, &at("sigmoid"))?;
                return Ok([self.scaled(b, scores, &own)?, indices]);
            }
            Scoring::Softmax => b.emit(Softmax { x: logits }, &at("softmax"))?,
            Scoring::Sigmoid => b.emit(Unary { kind: UnaryKind::Sigmoid, x: logits }, &at("sigmoid"))?,
        };
        let mut choice = scores;
        if let Some(correction) = router.correction {
            let row = [Size::derived(1, "one row"), self.count];
            let shape = if correction.is_row { &row[..] } else { &row[1..] };
            let addend = b.weight(&[&format!("{module}.{}", correction.name)], shape)?;
            choice = b.add(choice, addend, &at("corrected"))?;
        }
        if let Some(groups) = &router.groups {
            choice = self.of_best_groups(b, groups, choice, &own)?;
        }
        let [chosen, indices] = best(b, choice, 2, taken, &at("top"))?;
        let factors = match router.correction {
            Some(_) => self.pick(b, scores, indices, &at("picked"))?,
            None => chosen,
        };
        Ok([self.scaled(b, factors, &own)?, indices])
    }

    /// Factors divided by their sum, and multiplied.
    fn scaled(&self, b: &mut Builder<'_>, mut factors: ValueId, own: &str) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{own}.{name}");
        if let Some(kind) = self.router.sum {
            let mut sum =
                b.emit(Reduce { kind: ReduceKind::Sum, x: factors, axes: vec![2], keep: true }, &at("sum"))?;
            sum = match kind {
                Sum::Plus(0.0) => sum,
                Sum::Plus(number) => b.with_number(BinaryKind::Add, sum, number, &at("sum.plus"), "model_type")?,
                Sum::AtLeast(least, key) => b.with_number(BinaryKind::Max, sum, least, &at("sum.least"), key)?,
            };
            factors = b.binary(BinaryKind::Div, [factors, sum], &at("share"))?;
        }
        match self.router.factor {
            (1.0, _) => Ok(factors),
            (factor, key) => b.with_number(BinaryKind::Mul, factors, factor, &at("scaled"), key),
        }
    }

    /// The elements of the last axis with these indices, [batch_size, sequence_length, k], of [batch_size, sequence_length,
    /// experts].
    fn pick(&self, b: &mut Builder<'_>, scores: ValueId, indices: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let at = |part: &str| format!("{name}.{part}");
        let (texts, length, count) = (b.texts(), Dim::symbol(SEQUENCE), Dim::from(self.count.signed()));
        let tokens = texts.checked_mul(&length).unwrap_or_default();
        let all = tokens.checked_mul(&count).unwrap_or_default();
        let flat = b.reshape(scores, [all], &at("flat"))?;
        let rows = b.emit(Iota { dtype: DType::I64, length: tokens }, &at("rows"))?;
        let size = b.graph.add_scalar(&at("size"), DType::I64, self.count.value as f64);
        let starts = b.binary(BinaryKind::Mul, [rows, size], &at("starts"))?;
        let starts = b.reshape(starts, [texts, length, Dim::constant(1)], &at("starts.column"))?;
        let indices = b.add(starts, indices, &at("places"))?;
        b.emit(Gather { x: flat, indices, axis: 0 }, name)
    }

    /// Scores of experts, the least number for those that are not in the best groups.
    fn of_best_groups(
        &self,
        b: &mut Builder<'_>,
        groups: &Groups,
        scores: ValueId,
        own: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{own}.groups.{name}");
        let (count, one) = (Dim::from(groups.count.signed()), Dim::constant(1));
        let size = Size::derived(self.count.value / groups.count.value, "experts in a group");
        let token = [b.texts(), Dim::symbol(SEQUENCE)];
        let shape = |last: &[Dim]| token.iter().cloned().chain(last.iter().cloned()).collect::<Vec<_>>();
        let apart = b.reshape(scores, shape(&[count.clone(), size.signed().into()]), &at("apart"))?;
        let of_group = match groups.score {
            GroupScore::Best => {
                b.emit(Reduce { kind: ReduceKind::Max, x: apart, axes: vec![3], keep: false }, &at("best"))?
            }
            GroupScore::TwoBest => {
                let [two, _] = best(b, apart, 3, Size::derived(2, "two"), &at("two_best"))?;
                b.emit(Reduce { kind: ReduceKind::Sum, x: two, axes: vec![3], keep: false }, &at("score"))?
            }
        };
        let [_, taken] = best(b, of_group, 2, groups.taken, &at("top"))?;
        // Which groups are taken: one of those that are is the group itself.
        let taken = b.reshape(taken, shape(&[groups.taken.signed().into(), one.clone()]), &at("top.column"))?;
        let all = b.emit(Iota { dtype: DType::I64, length: count.clone() }, &at("all"))?;
        let is_taken = b.binary(BinaryKind::Equal, [taken, all], &at("is_taken"))?;
        let mut kept = None;
        let parts =
            b.emit_all(Split { x: is_taken, axis: 2, sizes: vec![1; groups.taken.value] }, &at("is_taken.split"))?;
        for part in parts {
            kept = Some(match kept {
                Some(kept) => b.binary(BinaryKind::Or, [kept, part], &at("kept"))?,
                None => part,
            });
        }
        let condition = b.reshape(kept.unwrap_or(is_taken), shape(&[count, one]), &at("kept.column"))?;
        let least = b.number(LEAST, &at("least"), groups.taken.key);
        let limited = b.emit(Select { condition, a: apart, b: least }, &at("limited"))?;
        b.reshape(limited, shape(&[self.count.signed().into()]), &at("together"))
    }

    /// The factors and experts of [`Scoring::SparseMixer`].
    fn mix(&self, b: &mut Builder<'_>, logits: ValueId, jitter: f64, own: &str) -> Result<[ValueId; 2], ModelError> {
        const KEY: &str = "router_jitter_noise";
        let at = |name: &str| format!("{own}.{name}");
        let [largest, indices] = best(b, logits, 2, Size::derived(2, "two"), &at("top"))?;
        let split = |b: &mut Builder<'_>, x, name: &str| match b
            .emit_all(Split { x, axis: 2, sizes: vec![1; 2] }, &at(name))?[..]
        {
            [first, second] => Ok::<_, ModelError>([first, second]),
            _ => unreachable!("a split has as many results as sizes"),
        };
        let [first, second] = split(b, largest, "top.split")?;
        let [first_index, _] = split(b, indices, "indices.split")?;
        let size = b.emit(Unary { kind: UnaryKind::Abs, x: logits }, &at("abs"))?;
        let least = b.number(LEAST, &at("least"), KEY);
        let all = b.emit(Iota { dtype: DType::I64, length: self.count.signed().into() }, &at("all"))?;
        let is_first = b.binary(BinaryKind::Equal, [all, first_index], &at("is_first"))?;
        let without = b.emit(Select { condition: is_first, a: least, b: logits }, &at("without_first"))?;
        let mut factors = Vec::new();
        for (of, max, name) in [(logits, first, "first"), (without, second, "second")] {
            let at = |part: &str| at(&format!("{name}.{part}"));
            let below = b.binary(BinaryKind::Sub, [max, logits], &at("below"))?;
            let scale = b.binary(BinaryKind::Max, [size, max], &at("scale"))?;
            let share = b.binary(BinaryKind::Div, [below, scale], &at("share"))?;
            let far = b.with_number(BinaryKind::Greater, share, 2.0 * jitter, &at("far"), KEY)?;
            let near = b.emit(Select { condition: far, a: least, b: of }, &at("near"))?;
            let shares = b.emit(Softmax { x: near }, &at("softmax"))?;
            factors
                .push(b.emit(Reduce { kind: ReduceKind::Max, x: shares, axes: vec![2], keep: true }, &at("factor"))?);
        }
        Ok([b.emit(Concat { parts: factors, axis: 2 }, &at("factors"))?, indices])
    }
}

/// The largest elements along an axis and where they are.
fn best(b: &mut Builder<'_>, x: ValueId, axis: usize, k: Size, name: &str) -> Result<[ValueId; 2], ModelError> {
    match b.emit_all(TopK { x, axis, k: k.signed().into(), smallest: Flag(false) }, name)?[..] {
        [values, indices] => Ok([values, indices]),
        _ => unreachable!("the largest elements come with their indices"),
    }
}
