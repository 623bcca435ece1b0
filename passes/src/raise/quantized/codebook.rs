//! Weights whose codes are indices of a table, from the operator that takes them.

use planish_ir::ops::{Flag, Linear};
use planish_ir::weight::{BNB4_TABLES, Codebook};
use planish_ir::{NodeId, Rewriter, Weight};

use super::super::{Found, NoMatch, Rule};
use super::blocks::{constant, fitting, sizes};
use super::scheme::{input, int};
use super::{foreign, miss};

/// `MatMulBnb4` with a weight.
pub(super) const PRODUCT: Rule = Rule { name: "quantized product", find: product };

fn product(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["MatMulBnb4"])?.clone();
    let output = graph.node(node).outputs[0];
    let ([Some(x), Some(indices), Some(scales)], Some([rows, columns, block])) =
        ([0, 1, 2].map(|at| input(&found, at)), sizes(&found, ["N", "K", "block_size"]))
    else {
        return Err(NoMatch::Other);
    };
    let name = &graph.value(indices).name;
    let Some(kind) = int(&found, "quant_type") else {
        return miss(format!("the product with `{name}` has no quant_type"));
    };
    let Some(table) = usize::try_from(kind).ok().and_then(|kind| BNB4_TABLES.get(kind)) else {
        return miss(format!("quant_type of `{name}` is {kind}, and 0 (FP4) and 1 (NF4) are known"));
    };
    if int(&found, "transB").is_some_and(|turned| turned != 1) {
        return miss(format!("the weight `{name}` is not [out, in]"));
    }
    let book = Codebook {
        indices: constant(graph, indices)?,
        table: table.map(f64::from).to_vec(),
        scales: constant(graph, scales)?,
        block,
    };
    let weight = fitting(graph, Weight::of_codebook(&book, &[rows, columns]), [indices, scales])?;
    let weight = graph.weight_like(weight, indices);
    Ok(vec![graph.emit(Linear { x, weight, bias: None, transposed: Flag(false) }, output)?])
}
