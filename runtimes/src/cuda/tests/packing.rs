//! Batches whose rows have different lengths: which graphs are computed without their padding, and by how many programs.

use std::sync::Arc;

use planish_eval::Tensor;
use planish_ir::Graph;
use proptest::prelude::*;

use crate::cuda::check::{compare, graph, inputs, session};
use crate::cuda::device::Device;
use crate::cuda::emulator::{self, Emulator};
use crate::cuda::packing::Packing;
use crate::cuda::program::{Style, Target};
use crate::cuda::session::GraphSession;
use crate::cuda::tensor::DeviceTensor;
use crate::value::Kept;
use crate::{RuntimeValue, Session};

/// An encoder of one layer, with statements after it.
fn encoder(rest: &str) -> String {
    format!(
        "input %ids: i64[b, s]
         input %attention_mask: i64[b, s]
         input %table: f32[7, 8]
         input %w: f32[8, 8]
         weight @zero = dense([0]) : i64[]
         weight @one = dense([1]) : i64[]
         %mask = cast(%attention_mask) {{to = bool}} : bool[b, s]
         %x = embedding(%table, %ids) : f32[b, s, 8]
         %q = linear(%x, %w) : f32[b, s, 8]
         {rest}"
    )
}

const ATTENTION: &str =
    "%a = attention(%q, %x, %x, mask: %mask) {heads = 2, scale = 0.1} : f32[b, s, 8]\n output y = %a";

fn emulated(statements: &str) -> (Graph, GraphSession) {
    let graph = graph(statements).unwrap();
    let device: Arc<dyn Device> = Arc::new(Emulator::new(emulator::compiler().unwrap()));
    let session = session(&graph, &device, Style::Fused).unwrap();
    (graph, session)
}

/// Inputs for rows of some lengths, or with any mask.
fn with_mask(graph: &Graph, mask: &[Vec<i64>], seed: u64) -> Vec<(String, Tensor)> {
    let sizes = [mask.len(), mask[0].len()];
    let symbols = ["b", "s"].into_iter().zip(sizes.map(|size| i64::try_from(size).unwrap())).collect::<Vec<_>>();
    let mut inputs = inputs(graph, &symbols, seed).unwrap();
    inputs[1].1 = Tensor::new(sizes.to_vec(), mask.concat()).unwrap();
    inputs
}

fn rows(lengths: &[usize], sequence: usize) -> Vec<Vec<i64>> {
    lengths.iter().map(|length| (0..sequence).map(|at| i64::from(at < *length)).collect()).collect()
}

#[test]
fn what_is_not_computed_on_tokens_alone_says_why() {
    let why = |statements: &str| Packing::of(&graph(statements).unwrap(), &Target::usual(Style::Fused)).unwrap_err();
    let after = |rest: &str| why(&encoder(&format!("{}\n{rest}", ATTENTION)));
    assert!(Packing::of(&graph(&encoder(ATTENTION)).unwrap(), &Target::usual(Style::Fused)).is_ok());
    let attention = |operands: &str, attributes: &str| {
        why(&encoder(&format!(
            "input %other: bool[b, s]
             input %bias: f32[b, 1, 1, s]
             %a = attention(%q, %x, %x{operands}) {{heads = 2, scale = 0.1{attributes}}} : f32[b, s, 8]
             output y = %a"
        )))
    };
    assert_eq!(why("input %x: f32[b, s]\n output y = %x"), "there is no input that is the mask of tokens");
    assert_eq!(
        why("input %attention_mask: bool[4, s]\n output y = %attention_mask"),
        "the mask of tokens is bool[4, s], and not [batch, sequence] of open sizes"
    );
    assert_eq!(why(&encoder("output q = %q")), "there is no attention");
    assert_eq!(attention("", ""), "the attention `a` has no mask");
    assert_eq!(attention(", mask: %other", ""), "the attention `a` has the mask `other`, which is not that of tokens");
    assert_eq!(
        attention(", mask: %mask, bias: %bias", ""),
        "the attention `a` has the bias `bias`, which each row has for itself"
    );
    // Padding takes part in these.
    assert_eq!(
        after("%m = reduce_mean(%a) {axes = [1], keep = false} : f32[b, 8]\n output m = %m"),
        "`reduce_mean` at `m` does not compute each token alone"
    );
    assert_eq!(
        after("%m = gather(%a, @one) {axis = 1} : f32[b, 8]\n output m = %m"),
        "`gather` at `m` does not compute each token alone"
    );
    assert_eq!(
        after("%t = transpose(%a) {perm = [1, 0, 2]} : f32[s, b, 8]\n output t = %t"),
        "`transpose` at `t` does not compute each token alone"
    );
    assert_eq!(
        after(
            "%l = slice(%a) {axis = 2, start = 0, end = 1} : f32[b, s, 1]\n %r = reshape(%l) {shape = [b, s]} : f32[b, s]\n %p = softmax(%r) : f32[b, s]\n output p = %p"
        ),
        "`softmax` at `p` does not compute each token alone"
    );
    assert_eq!(
        after("%r = reshape(%a) {shape = [b * s, 8]} : f32[b*s, 8]\n output r = %r"),
        "`reshape` at `r` does not compute each token alone"
    );
    assert_eq!(
        after("input %other: f32[b, 3, 8]\n %j = concat([%a, %other]) {axis = 1} : f32[b, s + 3, 8]\n output j = %j"),
        "`concat` at `j` does not compute each token alone"
    );
}

#[test]
fn other_masks_have_programs_with_padding() {
    let (graph, mut session) = emulated(&encoder(ATTENTION));
    for mask in
        [rows(&[5, 5], 5), vec![vec![0, 1, 1], vec![1, 1, 1]], vec![vec![1, 0, 1], vec![1, 1, 1]], rows(&[3, 0], 4)]
    {
        let inputs = with_mask(&graph, &mask, 3);
        compare(&graph, &mut session, &inputs).unwrap();
    }
    assert!(session.packed_sizes().iter().all(Option::is_none));
}

#[test]
fn masks_are_read_where_they_are_in_the_memory_of_the_host() {
    let (graph, mut session) = emulated(&encoder(ATTENTION));
    let inputs = with_mask(&graph, &rows(&[2, 5], 5), 4);
    let mut run = |on_device: bool| {
        let value = |tensor: &Tensor| match DeviceTensor::upload(session.device(), tensor) {
            Ok(tensor) if on_device => RuntimeValue(Kept::Cuda(tensor)),
            _ => RuntimeValue::from(tensor.clone()),
        };
        let values: Vec<RuntimeValue> = inputs.iter().map(|(_, tensor)| value(tensor)).collect();
        let given: Vec<_> = inputs.iter().zip(&values).map(|((name, _), value)| (name.as_str(), value)).collect();
        let output = session.run_values(&given).unwrap()[0].1.to_tensor().unwrap().to_f64();
        (session.packed_sizes()[0].is_some(), output)
    };
    let ((is_packed, given), (other_is_packed, other)) = (run(false), run(true));
    assert!(is_packed && !other_is_packed);
    // Padding has zeros, or what the model computes of it.
    let [first, padding, second] = [0..2 * 8, 2 * 8..5 * 8, 5 * 8..10 * 8];
    let close = |at: std::ops::Range<usize>| at.clone().all(|at| (given[at] - other[at]).abs() < 1e-5);
    assert!(close(first) && close(second), "{given:?} {other:?}");
    assert_eq!(given[padding.clone()], [0.0; 24]);
    assert!(other[padding].iter().all(|x| *x != 0.0));
    // What is bound is packed too.
    let named: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    session.bind(&named).unwrap();
    session.run_bound().unwrap();
    assert!(session.packed_sizes().len() == 2);
}

#[test]
fn lengths_that_are_alike_share_a_program() {
    let (graph, mut session) = emulated(&encoder(ATTENTION));
    for (at, lengths) in [[20, 1, 9], [20, 2, 2], [20, 3, 3], [17, 20, 3], [20, 20, 1]].iter().enumerate() {
        let inputs = with_mask(&graph, &rows(lengths, 20), at as u64);
        compare(&graph, &mut session, &inputs).unwrap();
    }
    let mut tokens: Vec<usize> = session.packed_sizes().into_iter().map(|sizes| sizes.unwrap().tokens).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [24, 32, 40, 48]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn packed_batches_give_what_padded_ones_do(
        sequence in 2usize..40,
        of in prop::collection::vec(0usize..40, 1..6),
        seed in 0u64..1000,
    ) {
        let (graph, mut session) = emulated(&encoder(ATTENTION));
        let lengths: Vec<usize> = of.iter().map(|length| 1 + length % sequence).collect();
        let inputs = with_mask(&graph, &rows(&lengths, sequence), seed);
        compare(&graph, &mut session, &inputs).unwrap();
        prop_assert_eq!(session.packed_sizes()[0].is_some(), lengths.iter().any(|length| *length < sequence));
    }
}
