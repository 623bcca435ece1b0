//! What graphs are grown of, and how often.

use planish_ir::DType;

use crate::grow::{Growing, Grown, V};
use crate::runner::Runner;
use crate::{attention, control, elementwise, indexing, movement, network, patterns, quantized};

type Grow = fn(&mut Growing<'_>) -> Option<V>;

/// Functions that add operators, each with its weight, and with the weight where patterns are asked for.
const FAMILIES: &[(Grow, u32, u32)] = &[
    (elementwise::unary, 4, 4),
    (elementwise::of_positive, 1, 1),
    (elementwise::binary, 5, 5),
    (elementwise::whole, 2, 2),
    (elementwise::truth, 2, 2),
    (elementwise::compare, 1, 1),
    (elementwise::select, 2, 2),
    (elementwise::clip, 1, 1),
    (elementwise::cast, 2, 2),
    (movement::reshape, 3, 3),
    (movement::reshape_by_shape, 1, 1),
    (movement::shape, 1, 1),
    (movement::transpose, 3, 3),
    (movement::squeeze, 2, 2),
    (movement::expand, 2, 2),
    (movement::slice, 3, 3),
    (movement::split, 2, 2),
    (movement::concat, 2, 2),
    (movement::pad, 2, 2),
    (movement::blocks, 1, 1),
    (indexing::gather, 2, 2),
    (indexing::look_up, 1, 1),
    (indexing::elements, 2, 2),
    (indexing::slices, 2, 2),
    (indexing::search, 2, 2),
    (indexing::sequence, 2, 2),
    (network::reduce, 3, 3),
    (network::product, 4, 32),
    (network::gemm, 2, 16),
    (network::convolution, 2, 2),
    (network::pool, 1, 1),
    (network::norm, 3, 8),
    (network::einsum, 1, 1),
    (network::resize, 1, 1),
    (network::recurrent, 1, 1),
    (network::contributed, 1, 8),
    (quantized::pair, 1, 8),
    (quantized::layer, 1, 8),
    (quantized::dynamic, 1, 8),
    (control::choice, 1, 1),
    (control::rounds, 1, 1),
    (control::scan, 1, 1),
    (patterns::activation, 3, 24),
    (patterns::norm, 3, 24),
    (attention::attention, 3, 24),
    (attention::operator, 1, 8),
];

/// How often something is tried for each graph.
const TRIES: usize = 120;

/// The graph of a seed; none where nothing came of it.
pub(crate) fn grow(seed: u64, newest: i64, near_patterns: bool, runner: &Runner) -> Option<Grown> {
    let mut g = Growing::new(seed, newest, runner);
    for _ in 0..g.rng.usize(1..=2) {
        let shape: Vec<usize> = (0..g.rng.usize(1..=4)).map(|_| g.one(&[1, 2, 3, 4, 5, 6, 8])).collect();
        let numbers = g.noise(&shape, 1.0);
        g.input(numbers);
    }
    if g.chance(0.4) {
        let numbers = g.whole(DType::I64, &[2, 3], 0..5);
        g.input(numbers);
    }
    let weight = |family: &(Grow, u32, u32)| if near_patterns { family.2 } else { family.1 };
    let total: u32 = FAMILIES.iter().map(weight).sum();
    let nodes = g.rng.usize(3..=22);
    for _ in 0..TRIES {
        if g.node_count() >= nodes {
            break;
        }
        let mut at = g.rng.u32(..total);
        let family = FAMILIES.iter().find(|family| {
            let weight = weight(family);
            let here = at < weight;
            at = at.wrapping_sub(weight);
            here
        });
        if let Some((grow, ..)) = family {
            g.attempt(*grow);
        }
    }
    let open = g.rng.bool();
    g.finish(open)
}
