//! Models of any size give the same whether they are padded or not, after all passes.

use planish_eval::Tensor;
use planish_ir::{Graph, text, verify};
use planish_passes::{Logits, Options, Padding, Pipeline, TARGETS};
use planish_testing::evaluation::{difference, inputs, tolerance};
use proptest::prelude::*;

use crate::support::outputs;

/// A model of one layer that scores tokens.
#[derive(Clone, Debug)]
struct Model {
    vocabulary: usize,
    hidden: usize,
    intermediate: usize,
    tied: bool,
    transposed: bool,
    bias: bool,
    capped: bool,
    gated: bool,
}

fn models() -> impl Strategy<Value = Model> {
    let sizes = (2usize..40, 1usize..9, 1usize..20);
    (sizes, prop::array::uniform6(any::<bool>())).prop_map(
        |((vocabulary, hidden, intermediate), [tied, transposed, bias, capped, gated, untransposed])| Model {
            vocabulary,
            hidden,
            intermediate,
            tied,
            transposed: transposed && untransposed && !tied,
            bias,
            capped,
            gated,
        },
    )
}

impl Model {
    fn graph(&self) -> Graph {
        let Self { vocabulary: v, hidden: h, intermediate: i, .. } = self;
        let mut lines = vec![
            "input %input_ids: i64[b, s]".to_owned(),
            format!("weight @words = uniform(1) : f32[{v}, {h}]"),
            format!("weight @up = uniform(2) : f32[{i}, {h}]"),
            format!("weight @up.bias = uniform(3) : f32[{i}]"),
            format!("weight @gate = uniform(4) : f32[{i}, {h}]"),
            format!("weight @down = uniform(5) : f32[{i}, {h}]"),
            format!("weight @bias = uniform(6) : f32[{v}]"),
            format!("weight @own = uniform(7) : f32[{v}, {h}]"),
            format!("weight @turned = uniform(8) : f32[{h}, {v}]"),
            "weight @cap = dense([2.0]) : f32[]".to_owned(),
            format!("%x = embedding(@words, %input_ids) : f32[b, s, {h}]"),
            format!("%u = linear(%x, @up, bias: @up.bias) : f32[b, s, {i}]"),
            format!("%active = silu(%u) : f32[b, s, {i}]"),
        ];
        let mut inner = "%active";
        if self.gated {
            lines.push(format!("%g = linear(%x, @gate) : f32[b, s, {i}]"));
            lines.push(format!("%gated = mul(%active, %g) : f32[b, s, {i}]"));
            inner = "%gated";
        }
        lines.push(format!("%d = linear({inner}, @down) {{transposed = true}} : f32[b, s, {h}]"));
        let bias = if self.bias { ", bias: @bias" } else { "" };
        let (weight, how) = match (self.tied, self.transposed) {
            (true, _) => ("@words", ""),
            (_, true) => ("@turned", " {transposed = true}"),
            _ => ("@own", ""),
        };
        lines.push(format!("%scores = linear(%d, {weight}{bias}){how} : f32[b, s, {v}]"));
        let mut logits = "%scores";
        if self.capped {
            lines.push(format!("%part = div(%scores, @cap) : f32[b, s, {v}]"));
            lines.push(format!("%bounded = tanh(%part) : f32[b, s, {v}]"));
            lines.push(format!("%logits = mul(%bounded, @cap) : f32[b, s, {v}]"));
            logits = "%logits";
        }
        lines.push(format!("output logits = {logits}"));
        let text = format!("graph \"random\" {{\n{}\n}}", lines.join("\n"));
        let mut graph = text::parse(&text, &text::no_files).unwrap_or_else(|e| panic!("{e}\n{text}"));
        planish_onnx::interface::state(&mut graph);
        graph
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sizes_do_not_matter(
        model in models(),
        multiple in 1usize..20,
        features in 1usize..9,
        whole in any::<bool>(),
        target in prop::sample::select(TARGETS.to_vec()),
        seed in any::<u64>(),
    ) {
        let before = model.graph();
        let logits = if whole { Logits::Padded } else { Logits::Sliced };
        let padding = Padding { vocabulary: Some(multiple), logits, features: Some(features) };
        let mut after = before.clone();
        let mut pipeline = Pipeline::new(Options { padding, ..Options::new(target, 20) });
        pipeline.verify = true;
        pipeline.run(&mut after, &mut |_, _| {}).map_err(|e| TestCaseError::fail(format!("{e}\n{before}")))?;
        verify(&after).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let inputs = inputs(&before, seed);
        let (expected, given) = (outputs(&before, &inputs), outputs(&after, &inputs));
        let (expected, given) = (expected.map_err(TestCaseError::fail)?, given.map_err(TestCaseError::fail)?);
        let width = if whole { model.vocabulary.next_multiple_of(multiple) } else { model.vocabulary };
        prop_assert_eq!(given[0].1.shape().last(), Some(&width));
        let given = of_tokens(&expected, given).map_err(TestCaseError::fail)?;
        prop_assert_eq!(difference(tolerance(&before), 1.0, &expected, &given), None, "{}", after);
    }
}

/// Outputs of which those that are wider than expected are cut to the columns of tokens.
///
/// # Errors
/// When one of the other columns holds anything but the finite minimum.
pub(crate) fn of_tokens(
    expected: &[(String, Tensor)],
    given: Vec<(String, Tensor)>,
) -> Result<Vec<(String, Tensor)>, String> {
    let cut = |(expected, (name, given)): (&(String, Tensor), (String, Tensor))| {
        let (Some(&width), Some(&wide)) = (expected.1.shape().last(), given.shape().last()) else {
            return Ok((name, given));
        };
        if wide <= width {
            return Ok((name, given));
        }
        let numbers = given.to_f64();
        let lowest = given.dtype().finite_min().unwrap_or(f64::NAN);
        if let Some(other) = numbers.chunks(wide).flat_map(|row| &row[width..]).find(|v| **v != lowest) {
            return Err(format!("`{name}` has {other:e} in a column without a token"));
        }
        let kept: Vec<f64> = numbers.chunks(wide).flat_map(|row| &row[..width]).copied().collect();
        let shape = expected.1.shape().to_vec();
        Ok((name, Tensor::from_f64(given.dtype(), shape, &kept).expect("columns were cut off")))
    };
    expected.iter().zip(given).map(cut).collect()
}
