//! The weights of experts as checkpoints have them, and as the operator takes them: [experts, out, in]. Nothing is read here, and
//! a weight is joined expert by expert, so that no more than one of them has to be in memory.

use planish_ir::weight::{Channels, Dequantized};
use planish_ir::{Origin, ValueId, Weight};

use super::Mixture;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;

/// Where the checkpoint has the weights of gates, of what they are multiplied with, and of what follows.
#[derive(Clone, Copy)]
pub(crate) enum Stored {
    /// Each expert is a module `experts.N` with projections of these names; or, as transformers 5 has it, all are `experts` with
    /// packed tensors.
    Modules([&'static str; 3]),
    /// Without gates: each expert is a module `experts.N` with projections of these names; or all are `experts` with a tensor of each
    /// of these names, [experts, out, in].
    Plain([&'static str; 2]),
    /// Two tensors: [experts, 2 * inner, hidden], gates first, and [experts, hidden, inner].
    Packed([&'static str; 2]),
    /// `experts.gate_up_proj`, [experts, hidden, 2 * inner], gates first, and `experts.down_proj`, [experts, inner, hidden]; with
    /// `or_along` perhaps with the other axis last, as transformers 5 has it.
    PackedAcross { or_along: bool },
    /// `experts.gate_up_proj`, [experts, hidden, 2 * inner], gates and the others in turn, `experts.down_proj`, [experts, inner,
    /// hidden], and biases of both. Quantized weights are [experts, out, in].
    InTurn,
}

/// The operands of an operator.
pub(super) struct Weights {
    pub(super) gate: ValueId,
    pub(super) up: Option<ValueId>,
    pub(super) down: ValueId,
    pub(super) biases: Option<[ValueId; 3]>,
}

/// The weight of each expert.
struct Parts {
    parts: Vec<Weight>,
    origin: Origin,
}

/// What `transformers` calls packed tensors.
const PACKED: [&str; 2] = ["experts.gate_up_proj", "experts.down_proj"];

impl Stored {
    pub(crate) const PROJECTIONS: Self = Self::Modules(["gate_proj", "up_proj", "down_proj"]);

    /// The weights of a module.
    pub(super) fn read(
        self,
        b: &mut Builder<'_>,
        mixture: &Mixture,
        hidden: Size,
        module: &str,
    ) -> Result<Weights, ModelError> {
        let &Mixture { count, inner, .. } = mixture;
        let both = Size::derived(2 * inner.value, "gates and as many features");
        let at = |name: &str| format!("{module}.{name}");
        let packed = |b: &mut Builder<'_>, [wide, down]: [&str; 2]| {
            let wide = Parts::packed(b, &at(wide), [count, both, hidden])?;
            let down = Parts::packed(b, &at(down), [count, hidden, inner])?;
            let [gate, up] = [0, inner.value].map(|first| wide.map(|part| part.rows(first..first + inner.value)));
            Ok::<_, ModelError>([gate, up, down])
        };
        let stacked = |name: &str, kind: &str| at(&format!("experts.{name}.{kind}"));
        let mut biases = None;
        let joined = |b: &mut Builder<'_>, part: Parts, shape, name: &str| part.joined(b, shape, &at(name));
        if let Self::Plain([up, down]) = self {
            let mut either =
                |name: &str, [out, inner]: [Size; 2]| match b.tensors.contains(&at(&format!("experts.{name}"))) {
                    true => Parts::packed(b, &at(&format!("experts.{name}")), [count, out, inner]),
                    false => Parts::each(b, module, name, count, [out, inner]),
                };
            let (up, down) = (either(up, [inner, hidden])?, either(down, [hidden, inner])?);
            let gate = joined(b, up, [count, inner, hidden], "experts.gate");
            return Ok(Weights {
                gate,
                up: None,
                down: joined(b, down, [count, hidden, inner], "experts.down"),
                biases,
            });
        }
        let [gate, up, down] = match self {
            Self::Plain(_) => unreachable!("experts without gates were read"),
            // As GGUF files have them, whatever the checkpoint has.
            _ if b.tensors.shape(&stacked("gate_proj", "weight")).is_some_and(|shape| shape.len() == 3) => {
                if b.tensors.contains(&stacked("gate_proj", "bias")) {
                    let mut bias = |name: &str, size| b.weight(&[&stacked(name, "bias")], &[count, size]);
                    biases = Some([bias("gate_proj", inner)?, bias("up_proj", inner)?, bias("down_proj", hidden)?]);
                }
                let mut all = |name: &str, shape: [Size; 2]| {
                    Parts::packed(b, &stacked(name, "weight"), [count, shape[0], shape[1]])
                };
                [
                    all("gate_proj", [inner, hidden])?,
                    all("up_proj", [inner, hidden])?,
                    all("down_proj", [hidden, inner])?,
                ]
            }
            Self::Modules(names) if b.tensors.contains(&at(&format!("experts.0.{}.weight", names[0]))) => {
                let shapes = [[inner, hidden], [inner, hidden], [hidden, inner]];
                let [gate, up, down] = [0, 1, 2].map(|at: usize| (names[at], shapes[at]));
                let mut each = |(name, shape)| Parts::each(b, module, name, count, shape);
                [each(gate)?, each(up)?, each(down)?]
            }
            Self::Modules(names) if !b.tensors.contains(&at(PACKED[0])) => {
                // Neither form is there: the error names the one of most checkpoints.
                let first = at(&format!("experts.0.{}.weight", names[0]));
                return Err(b.tensors.missing(&[&first, &at(PACKED[0])]));
            }
            Self::Modules(_) => packed(b, PACKED)?,
            Self::Packed(names) => packed(b, names)?,
            Self::PackedAcross { or_along: true }
                if b.tensors.shape(&at(PACKED[0])).is_some_and(|shape| shape.get(1) == Some(&both.value)) =>
            {
                packed(b, PACKED)?
            }
            Self::PackedAcross { .. } => {
                let wide = Parts::packed(b, &at(PACKED[0]), [count, hidden, both])?;
                let down = Parts::packed(b, &at(PACKED[1]), [count, inner, hidden])?;
                let columns = |first: usize| {
                    let columns: Vec<usize> = (first..first + inner.value).collect();
                    move |part: &Weight| part.gather(1, &columns)?.transpose(&[1, 0])
                };
                [wide.map(columns(0)), wide.map(columns(inner.value)), down.map(|part| part.transpose(&[1, 0]))]
            }
            Self::InTurn if b.tensors.is_out_in(&at(PACKED[0])) => {
                let wide = Parts::packed(b, &at(PACKED[0]), [count, both, hidden])?;
                let down = Parts::packed(b, &at(PACKED[1]), [count, hidden, inner])?;
                let every_other = |first: usize| {
                    let rows: Vec<usize> = (first..both.value).step_by(2).collect();
                    move |part: &Weight| part.gather(0, &rows)
                };
                biases = Some(biases_in_turn(b, mixture, hidden, module)?);
                [wide.map(every_other(0)), wide.map(every_other(1)), down]
            }
            Self::InTurn => {
                let wide = Parts::packed(b, &at(PACKED[0]), [count, hidden, both])?;
                let down = Parts::packed(b, &at(PACKED[1]), [count, inner, hidden])?;
                let every_other = |first: usize| {
                    let columns: Vec<usize> = (first..both.value).step_by(2).collect();
                    move |part: &Weight| part.gather(1, &columns)?.transpose(&[1, 0])
                };
                biases = Some(biases_in_turn(b, mixture, hidden, module)?);
                [wide.map(every_other(0)), wide.map(every_other(1)), down.map(|part| part.transpose(&[1, 0]))]
            }
        };
        Ok(Weights {
            gate: joined(b, gate, [count, inner, hidden], "experts.gate"),
            up: Some(joined(b, up, [count, inner, hidden], "experts.up")),
            down: joined(b, down, [count, hidden, inner], "experts.down"),
            biases,
        })
    }
}

/// The biases of gates, of the others, which are stored in turn, and of what follows.
fn biases_in_turn(
    b: &mut Builder<'_>,
    &Mixture { count, inner, .. }: &Mixture,
    hidden: Size,
    module: &str,
) -> Result<[ValueId; 3], ModelError> {
    let at = |name: &str| format!("{module}.experts.{name}");
    let both = Size::derived(2 * inner.value, "gates and as many features");
    let (stored, origin) = b.tensors.take(&[&at("gate_up_proj_bias")], &[count, both])?;
    let mut half = |first: usize, name: &str| {
        let columns: Vec<usize> = (first..both.value).step_by(2).collect();
        let half = stored.gather(1, &columns).unwrap_or_else(|| unreachable!("{FIT}"));
        b.graph.add_weight(&at(name), half, origin.clone())
    };
    let (gate, up) = (half(0, "gate_bias"), half(1, "up_bias"));
    Ok([gate, up, b.weight(&[&at("down_proj_bias")], &[count, hidden])?])
}

const FIT: &str = "the shapes were checked when the tensors were taken";

impl Parts {
    /// Of experts that are modules.
    fn each(b: &mut Builder<'_>, module: &str, name: &str, count: Size, shape: [Size; 2]) -> Result<Self, ModelError> {
        let one = |expert: usize| b.tensors.take(&[&format!("{module}.experts.{expert}.{name}.weight")], &shape);
        let taken = (0..count.value).map(one).collect::<Result<Vec<_>, _>>()?;
        let (parts, origins): (Vec<Weight>, Vec<Origin>) = taken.into_iter().unzip();
        Ok(Self { parts, origin: origins.into_iter().next().unwrap_or(Origin::Unknown) })
    }

    /// Of a tensor of all.
    fn packed(b: &mut Builder<'_>, name: &str, shape: [Size; 3]) -> Result<Self, ModelError> {
        let (whole, origin) = b.tensors.take(&[name], &shape)?;
        let [count, rows, columns] = shape.map(|size| size.value);
        let one = |expert: usize| matrix(&whole.rows(expert..expert + 1)?, [rows, columns]);
        let parts = (0..count).map(one).collect::<Option<Vec<_>>>();
        Ok(Self { parts: parts.unwrap_or_else(|| unreachable!("{FIT}")), origin })
    }

    /// A transform of each.
    fn map(&self, f: impl Fn(&Weight) -> Option<Weight>) -> Self {
        let parts = self.parts.iter().map(f).collect::<Option<Vec<_>>>();
        Self { parts: parts.unwrap_or_else(|| unreachable!("{FIT}")), origin: self.origin.clone() }
    }

    /// All in one weight.
    fn joined(self, b: &mut Builder<'_>, shape: [Size; 3], name: &str) -> ValueId {
        let shape = shape.map(|size| size.value);
        let codes = codes(&self.parts, shape);
        if codes.is_none() && self.parts.iter().any(|part| part.as_dequantized().is_some()) {
            b.tensors.lose_codes(name, "some experts have none, or of another form");
        }
        let joined = codes.or_else(|| Weight::stack(&self.parts).and_then(|joined| joined.reshape(&shape)));
        b.graph.add_weight(name, joined.unwrap_or_else(|| unreachable!("{FIT}")), self.origin)
    }
}

/// A weight of one expert, [1, rows, columns], as a matrix, with its codes where it has some in blocks of columns.
fn matrix(of: &Weight, [rows, columns]: [usize; 2]) -> Option<Weight> {
    match of.as_dequantized() {
        Some(Dequantized { codes, scales, zero_points, channels: Channels::Blocks { axis: 2, size } }) => {
            let blocks = [rows, columns.div_ceil(size)];
            let zero_points = match &zero_points {
                Some(zeros) => Some(zeros.reshape(&blocks)?),
                None => None,
            };
            let codes = codes.reshape(&[rows, columns])?;
            codes.dequantize(Channels::Blocks { axis: 1, size }, &scales.reshape(&blocks)?, zero_points.as_ref())
        }
        _ => of.reshape(&[rows, columns]),
    }
}

/// The codes of experts that are quantized in blocks of columns, in one weight of codes.
fn codes(parts: &[Weight], [experts, rows, _]: [usize; 3]) -> Option<Weight> {
    let all: Vec<Dequantized> = parts.iter().map(Weight::as_dequantized).collect::<Option<_>>()?;
    let channels = all.first()?.channels;
    let Channels::Blocks { axis: 1, size } = channels else { return None };
    if all.iter().any(|of| of.channels != channels) {
        return None;
    }
    let stack = |part: &dyn Fn(&Dequantized) -> Option<Weight>| {
        let weights = all.iter().map(part).collect::<Option<Vec<_>>>()?;
        let columns = *weights.first()?.shape().get(1)?;
        Weight::stack(&weights)?.reshape(&[experts, rows, columns])
    };
    let (codes, scales) = (stack(&|of| Some(of.codes.clone()))?, stack(&|of| Some(of.scales.clone()))?);
    let zero_points = stack(&|of| of.zero_points.clone());
    if zero_points.is_none() && all.iter().any(|of| of.zero_points.is_some()) {
        return None;
    }
    codes.dequantize(Channels::Blocks { axis: 2, size }, &scales, zero_points.as_ref())
}
