//! Weights of integer codes stay expressions of codes through every pass.

use planish_ir::text::{no_files, parse};
use planish_ir::weight::WeightExpr;
use planish_ir::{DType, Weight, verify};
use planish_passes::{Half, HalfPrecision, Options, Padding, Pipeline, TARGETS};

/// Two layers between norms and an attention, of weights that were rounded to integers.
const GRAPH: &str = "graph \"g\" {
    input %x: f32[b, s, 32]
    weight @one = uniform(1) : f32[32]
    weight @shift = uniform(2) : f32[32]
    weight @q = cast(cast(uniform(3) : f32[32, 32]) : i8[32, 32]) : f32[32, 32]
    weight @up = cast(cast(uniform(4) : f32[66, 32]) : i8[66, 32]) : f32[66, 32]
    weight @down = cast(cast(uniform(5) : f32[32, 66]) : i8[32, 66]) : f32[32, 66]
    weight @bias = uniform(6) : f32[32]
    %n = layer_norm(%x, @one, bias: @shift) {eps = 1e-5} : f32[b, s, 32]
    %p = linear(%n, @q, bias: @bias) : f32[b, s, 32]
    %a = attention(%p, %p, %p) {heads = 2, scale = 0.25} : f32[b, s, 32]
    %u = linear(%a, @up) : f32[b, s, 66]
    %g = gelu(%u) {form = erf} : f32[b, s, 66]
    %d = linear(%g, @down, bias: @bias) : f32[b, s, 32]
    %y = add(%d, %n) : f32[b, s, 32]
    output y = %y
}";

/// The bytes of codes that a weight is made of.
fn codes(weight: &Weight) -> u64 {
    let own = weight.dtype() == DType::I8 && matches!(weight.expr(), WeightExpr::Cast(_));
    if own { weight.bytes() } else { weight.expr().children().iter().map(codes).sum() }
}

#[test]
fn codes_stay_codes() {
    let graph = parse(GRAPH, &no_files).unwrap();
    for (target, opset) in TARGETS.iter().flat_map(|target| [17, 23].map(|opset| (*target, opset))) {
        for (fusion, half) in [(true, None), (false, None), (true, Some(Half::F16)), (true, Some(Half::Bf16))] {
            let padding = Padding { features: Some(8), ..Padding::default() };
            let precision = half.map(|half| HalfPrecision::new(half).into());
            let options = Options { fusion, precision, padding, ..Options::new(target, opset) };
            let mut lowered = graph.clone();
            Pipeline::new(options).run(&mut lowered, &mut |_, _| {}).unwrap();
            verify(&lowered).unwrap();
            let kept: u64 = lowered.weights().map(|(_, _, weight)| codes(weight)).sum();
            assert_eq!(kept, 32 * 32 + 2 * 32 * 66, "{target}, opset {opset}, {half:?}, fusion {fusion}:\n{lowered}");
        }
    }
}
