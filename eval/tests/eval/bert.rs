use std::fmt::Write;

use planish_eval::{Tensor, evaluate};
use planish_ir::DType;

use crate::{graph, tensor};

/// The shape of a six-layer MiniLM: 22 million parameters, on 2 sequences of 128.
#[test]
fn a_whole_encoder_has_finite_states() {
    let mut text = String::from(
        "input %ids: i64[batch, seq]
         input %mask: bool[batch, seq]
         weight @table = uniform(0) : f32[30522, 384]
         weight @one = uniform(1) : f32[384]
         %x0 = embedding(@table, %ids) : f32[batch, seq, 384]\n",
    );
    for i in 0..6 {
        for (k, (name, out, inner)) in
            [("q", 384, 384), ("k", 384, 384), ("v", 384, 384), ("o", 384, 384), ("up", 1536, 384), ("down", 384, 1536)]
                .into_iter()
                .enumerate()
        {
            writeln!(text, "weight @{name}{i} = uniform({}) : f32[{out}, {inner}]", 10 * i + k).unwrap();
        }
        let ty = "f32[batch, seq, 384]";
        for name in ["q", "k", "v"] {
            writeln!(text, "%{name}h{i} = linear(%x{i}, @{name}{i}) : {ty}").unwrap();
        }
        writeln!(
            text,
            "%a{i} = attention(%qh{i}, %kh{i}, %vh{i}, mask: %mask) {{heads = 12, scale = 0.17}} : {ty}
             %ao{i} = linear(%a{i}, @o{i}) : {ty}
             %s{i} = add(%x{i}, %ao{i}) : {ty}
             %n{i} = layer_norm(%s{i}, @one) {{eps = 1e-12}} : {ty}
             %h{i} = linear(%n{i}, @up{i}) : f32[batch, seq, 1536]
             %g{i} = gelu(%h{i}) {{form = erf}} : f32[batch, seq, 1536]
             %d{i} = linear(%g{i}, @down{i}) : {ty}
             %r{i} = add(%n{i}, %d{i}) : {ty}
             %x{} = layer_norm(%r{i}, @one) {{eps = 1e-12}} : {ty}",
            i + 1
        )
        .unwrap();
    }
    text.push_str("output last_hidden_state = %x6");
    let ids: Vec<i64> = (0..256).map(|i| i * 100).collect();
    let inputs = [("ids", tensor(&[2, 128], ids)), ("mask", Tensor::new(vec![2, 128], vec![true; 256]).unwrap())];
    let outputs = evaluate(&graph(&text), &inputs).unwrap();
    let (name, states) = &outputs[0];
    assert_eq!((name.as_str(), states.dtype(), states.shape()), ("last_hidden_state", DType::F32, &[2, 128, 384][..]));
    assert!(states.to_f64().iter().all(|v| v.is_finite()));
}
