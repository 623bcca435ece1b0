//! The cases of a comparison: inputs of several shapes, and runs that continue from a cache.

use std::sync::Arc;

use planish_artifact::chain::{columns, columns_of_coordinates};
use planish_artifact::named;
use planish_data::inputs::{
    InputError, InputSpec, Sizes, Values, has_cache, has_sequence, interface_of, shapes, sized_inputs,
};
use planish_eval::Tensor;
use planish_ir::{Bindings, InputRole, PartInterface};
use planish_runtimes::{RuntimeError, Session};

/// One set of inputs to compare on.
pub struct Case {
    /// The label of the case, e.g. `2 x 16, padded`.
    pub label: String,
    /// Names and tensors.
    pub inputs: Vec<(String, Tensor)>,
    /// How many tokens are run first; the rest then continues from the keys and values of these.
    pub before: Option<usize>,
    /// What the tensors are.
    pub of: Arc<PartInterface>,
}

impl Case {
    /// Runs it; what the last run took and gave.
    pub(super) fn run(&self, session: &mut dyn Session) -> Result<[Vec<(String, Tensor)>; 2], RuntimeError> {
        let Some(before) = self.before else {
            return Ok([self.inputs.clone(), session.run(&named(session, &self.inputs))?]);
        };
        let given = session.run(&named(session, &first_tokens(&self.inputs, before, &self.of)))?;
        let rest = continued(&self.inputs, before, &given, &self.of);
        let outputs = session.run(&named(session, &rest))?;
        Ok([rest, outputs])
    }
}

/// The inputs of a part with an empty cache, of their first tokens only. What is of an encoder's tokens, and not of those that
/// a run adds, is the same in each run.
pub fn first_tokens(inputs: &[(String, Tensor)], count: usize, of: &PartInterface) -> Vec<(String, Tensor)> {
    let first = |(name, tensor): &(String, Tensor)| {
        let role = of.input(name);
        match role.cache().is_some() || role.is_of_encoder() {
            true => (name.clone(), tensor.clone()),
            false => (name.clone(), of_columns(role)(tensor, 0, count)),
        }
    };
    inputs.iter().map(first).collect()
}

/// What takes columns of the tokens of an input.
fn of_columns(role: InputRole) -> fn(&Tensor, usize, usize) -> Tensor {
    if role == InputRole::Positions { columns_of_coordinates } else { columns }
}

/// The inputs of a part with an empty cache, of the tokens after the first ones; the cache is what
/// the run of these gave.
pub fn continued(
    inputs: &[(String, Tensor)],
    count: usize,
    given: &[(String, Tensor)],
    of: &PartInterface,
) -> Vec<(String, Tensor)> {
    let rest = |(name, tensor): &(String, Tensor)| {
        let role = of.input(name);
        let present = role.cache().and_then(|entry| of.present(entry));
        let cached = present.and_then(|present| given.iter().find(|(output, _)| output == present));
        let tensor = match (cached, role) {
            (Some((_, present)), _) => present.clone(),
            // The mask covers what is cached too.
            (None, InputRole::Mask) => tensor.clone(),
            (None, role) if role.is_of_encoder() => tensor.clone(),
            (None, role) => of_columns(role)(tensor, count, usize::MAX),
        };
        (name.clone(), tensor)
    };
    inputs.iter().map(rest).collect()
}

/// The longest sequence that is compared of a model with a cache or without a limit: such models take
/// sequences whose scores no reference computes in reasonable time.
const LONGEST: usize = 512;

/// The same of a model of recordings, where it is known how many samples it makes a frame of.
const LONGEST_RECORDING: usize = 128;

/// The same where it is not: a model with short strides may make many frames of the samples that stand for a token.
const LONGEST_OF_ANY_STRIDES: usize = 32;

/// The sides of images where a model leaves them open, first what is small and what is usual: many models take only one.
const SIDES: [usize; 9] = [32, 224, 16, 384, 64, 128, 256, 448, 512];

/// The kind of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A model whose sizes are fixed.
    Fixed,
    /// Rows of what is not a sequence, such as images.
    Rows,
    /// Rows of tokens.
    Tokens,
}

/// A case before its inputs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    kind: Kind,
    sizes: Sizes,
    padded: bool,
    before: Option<usize>,
}

impl Plan {
    /// The label of the case, e.g. `2 x 16, padded`.
    #[must_use]
    pub fn label(&self) -> String {
        let Sizes { batch, sequence, side } = self.sizes;
        let name = match self.kind {
            Kind::Fixed => "fixed shapes".to_owned(),
            Kind::Rows => {
                format!("batch of {batch}{}", side.map_or_else(String::new, |side| format!(", sides of {side}")))
            }
            Kind::Tokens => format!("{batch} x {sequence}"),
        };
        let after = self.before.map_or_else(String::new, |before| format!(", {before} of them cached"));
        format!("{name}{}{after}", if self.padded { ", padded" } else { "" })
    }

    /// The case with its inputs.
    ///
    /// # Errors
    /// When inputs cannot be made for the specs.
    pub fn case(&self, specs: &[InputSpec], seed: u64) -> Result<Case, InputError> {
        let inputs = sized_inputs(specs, self.sizes, seed, self.padded)?;
        Ok(Case { label: self.label(), inputs, before: self.before, of: interface_of(specs) })
    }

    /// The shapes of its inputs.
    ///
    /// # Errors
    /// When inputs cannot be made for the specs.
    pub(super) fn shapes(&self, specs: &[InputSpec]) -> Result<Vec<Vec<usize>>, InputError> {
        shapes(specs, self.sizes)
    }

    /// Whether another case has as many rows, tokens and pixels as this one at least.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let (own, other) = (self.sizes, other.sizes);
        own.batch <= other.batch && own.sequence <= other.sequence && own.side <= other.side
    }

    /// A case to run in its place: as many images of other sides, or half as many tokens.
    pub(super) fn instead(self) -> Option<Self> {
        let Sizes { sequence, side, .. } = self.sizes;
        let sizes = match self.kind {
            Kind::Fixed => None,
            Kind::Rows => {
                let at = SIDES.iter().position(|other| Some(*other) == side)?;
                SIDES.get(at + 1).map(|side| Sizes { side: Some(*side), ..self.sizes })
            }
            Kind::Tokens if self.before.is_some() || sequence < 2 => None,
            Kind::Tokens => Some(Sizes { sequence: sequence / 2, ..self.sizes }),
        };
        sizes.map(|sizes| Self { sizes, ..self })
    }
}

/// Cases of several shapes: one token, a short, an odd and the longest sequence (of a
/// model with a cache 512 tokens at most, of one of recordings 128), one row and more, with padding and without; for a model
/// with a cache, some that continue from it. For a model that takes no sequences, as those of images, one row and more;
/// where ids have a fixed shape, that one, and no run that continues.
#[must_use]
pub fn plans(specs: &[InputSpec], longest: Option<usize>) -> Vec<Plan> {
    let plan = |kind: Kind, batch: usize, sequence: usize, side: Option<usize>| Plan {
        kind,
        sizes: Sizes { batch, sequence, side },
        padded: false,
        before: None,
    };
    if let Some((batch, sequence)) = fixed(specs) {
        // With a cache padding comes first, and sees no token: what it becomes is compared with nothing, but
        // fixed sizes do not tell which outputs have it.
        let padding = batch > 1 && !has_cache(specs);
        let plan = plan(Kind::Fixed, batch, sequence, None);
        return [false, true]
            .into_iter()
            .filter(|padded| padding || !padded)
            .map(|padded| Plan { padded, ..plan })
            .collect();
    }
    let [small, usual, ..] = SIDES.map(Some);
    // What needs no side has none.
    let open = shapes(specs, Sizes { batch: 1, sequence: 1, side: None });
    let open = matches!(open, Err(InputError::Dimension { .. }));
    if !has_sequence(specs) {
        let rows = |batch: usize, side| plan(Kind::Rows, batch, 1, side);
        return if open {
            vec![rows(1, small), rows(3, small), rows(1, usual)]
        } else {
            vec![rows(1, None), rows(3, None)]
        };
    }
    let side = usual.filter(|_| open);
    let cached = has_cache(specs);
    let longest = if cached { longest.unwrap_or(LONGEST).min(LONGEST) } else { longest.unwrap_or(LONGEST) };
    let is_of_recordings = specs.iter().any(|spec| matches!(spec.role(), InputRole::Waveform | InputRole::Recording));
    let has_samples = specs.iter().any(|spec| spec.samples.is_some());
    let of_recordings = if has_samples { LONGEST_RECORDING } else { LONGEST_OF_ANY_STRIDES };
    let longest = if is_of_recordings { longest.min(of_recordings) } else { longest };
    let shapes = [(1, 1, false), (1, 8, false), (2, 1, false), (3, 8, true), (2, 37, true), (1, longest, false)];
    let mut shapes = shapes.map(|(batch, sequence, padded)| (batch, longest.min(sequence), padded)).to_vec();
    shapes.sort_unstable_by_key(|&(batch, sequence, _)| (sequence, batch));
    shapes.dedup();
    let tokens = |batch, sequence, padded, before| Plan { padded, before, ..plan(Kind::Tokens, batch, sequence, side) };
    let whole = shapes.into_iter().map(|(batch, sequence, padded)| tokens(batch, sequence, padded, None));
    let continued = [(2, 7, 6), (3, 9, 5)].into_iter().filter(|(_, sequence, _)| cached && *sequence <= longest);
    whole.chain(continued.map(|(batch, sequence, before)| tokens(batch, sequence, true, Some(before)))).collect()
}

/// Rows and tokens of a model whose ids have a fixed shape, or that has no size left open.
fn fixed(specs: &[InputSpec]) -> Option<(usize, usize)> {
    let shape = |spec: &InputSpec| spec.port.ty.shape.evaluate(&Bindings::new());
    let tokens = specs.iter().filter(|spec| spec.values != Values::Noise).filter_map(|spec| match shape(spec)?[..] {
        [batch, sequence] => Some((batch, sequence)),
        _ => None,
    });
    // The mask of a model with a cache may be longer than the ids.
    let longest = tokens.max_by_key(|(_, sequence)| *sequence);
    longest.or_else(|| specs.iter().all(|spec| shape(spec).is_some()).then_some((1, 1)))
}

#[cfg(test)]
mod tests {
    use planish_ir::{DType, Dim, PartRole, Shape, TensorType};
    use planish_runtimes::Port;

    use super::*;

    /// A port whose role the name tells.
    fn spec(port: Port, values: Values) -> InputSpec {
        let of = planish_data::inputs::inferred(std::slice::from_ref(&port), &[]);
        InputSpec { port, values, of: Arc::new(of), samples: None }
    }

    fn labels(port: Port, longest: Option<usize>) -> Vec<String> {
        let specs = [spec(port, Values::Noise)];
        plans(&specs, longest).iter().map(Plan::label).collect()
    }

    fn port(name: &str, dims: &[&str]) -> Port {
        let shape = Shape::new(dims.iter().map(|dim| Dim::symbol(dim)));
        Port { name: name.to_owned(), ty: TensorType::new(DType::F32, shape) }
    }

    #[test]
    fn cases_reach_the_longest_sequence_and_no_further() {
        let tokens = || port("tokens", &["batch_size", "sequence_length"]);
        let all = ["1 x 1", "2 x 1", "1 x 8", "3 x 8, padded", "2 x 37, padded", "1 x 514"];
        assert_eq!(labels(tokens(), Some(514)), all);
        assert_eq!(labels(tokens(), Some(4)), ["1 x 1", "2 x 1", "1 x 4", "2 x 4, padded", "3 x 4, padded"]);
        assert_eq!(labels(tokens(), None).last().unwrap(), "1 x 512", "a model may have no limit");
        let cache = port("past_key_values.0.key", &["batch_size", "past_sequence_length"]);
        assert!(labels(cache, Some(1024)).contains(&"1 x 512".to_owned()));
        assert_eq!(labels(port("pixel_values", &["batch_size"]), None), ["batch of 1", "batch of 3"]);
        let open = port("pixel_values", &["batch_size", "channels", "height", "width"]);
        let sides = ["batch of 1, sides of 32", "batch of 3, sides of 32", "batch of 1, sides of 224"];
        assert_eq!(labels(open, None), sides);
    }

    #[test]
    fn what_is_run_instead_has_half_as_many_tokens_or_other_sides() {
        let tokens = [spec(port("tokens", &["batch_size", "sequence_length"]), Values::Noise)];
        let halves = std::iter::successors(plans(&tokens, Some(40)).pop(), |plan| plan.instead());
        let labels: Vec<String> = halves.map(|plan| plan.label()).collect();
        assert_eq!(labels, ["1 x 40", "1 x 20", "1 x 10", "1 x 5", "1 x 2", "1 x 1"]);
        let images = [spec(port("images", &["batch", "c", "h", "w"]), Values::Noise)];
        let first = plans(&images, None)[1].instead();
        assert_eq!(first.unwrap().label(), "batch of 3, sides of 224");
        assert_eq!(std::iter::successors(first, |plan| plan.instead()).count(), SIDES.len() - 1);
    }

    #[test]
    fn fixed_shapes_are_one_case_with_padding_where_there_are_rows() {
        let mask = |batch: i64| {
            let ty = TensorType::new(DType::I64, Shape::of(&[batch, 7]));
            spec(Port { name: "attention_mask".to_owned(), ty }, Values::Mask)
        };
        let made = |batch: i64| plans(&[mask(batch)], Some(512));
        assert_eq!(made(1).len(), 1);
        let case = made(1)[0].case(&[mask(1)], 0).unwrap();
        assert_eq!(case.inputs[0].1, Tensor::new(vec![1, 7], vec![1i64; 7]).unwrap());
        assert_eq!(made(2).iter().map(Plan::label).collect::<Vec<_>>(), ["fixed shapes", "fixed shapes, padded"]);
    }

    /// A decoder that continues has the encoder's mask and keys whole in both runs.
    #[test]
    fn what_is_of_the_encoder_is_not_cut() {
        let tensor = |shape: &[usize]| Tensor::zeros(DType::F32, shape.to_vec()).unwrap();
        let given = |name: &str, shape: &[usize]| (name.to_owned(), tensor(shape));
        let inputs = [
            given("encoder_attention_mask", &[1, 7]),
            given("input_ids", &[1, 7]),
            given("past_key_values.0.decoder.key", &[1, 2, 0, 4]),
            given("past_key_values.0.encoder.key", &[1, 2, 7, 4]),
        ];
        let shapes = |inputs: &[(String, Tensor)]| inputs.iter().map(|(_, t)| t.shape().to_vec()).collect::<Vec<_>>();
        let named: Vec<_> = inputs.iter().map(|(name, _)| (name.as_str(), None)).collect();
        let of = planish_onnx::interface::infer(PartRole::NextStep, &named, &[("present.0.decoder.key", None)]);
        let first = first_tokens(&inputs, 5, &of);
        assert_eq!(shapes(&first), [&[1, 7][..], &[1, 5], &[1, 2, 0, 4], &[1, 2, 7, 4]]);
        let rest = continued(&inputs, 5, &[given("present.0.decoder.key", &[1, 2, 5, 4])], &of);
        assert_eq!(shapes(&rest), [&[1, 7][..], &[1, 2], &[1, 2, 5, 4], &[1, 2, 7, 4]]);
    }
}
