//! Whatever a file contains, importing it ends in a verified graph or an error.

use proptest::prelude::*;
use prost::Message;

use planish_onnx::proto::DataType;
use planish_testing::onnx::{
    f32, floats, graph, graph_attribute, import_bytes, int, integers, ints, model, node, text, typed,
};

/// A model with something of everything that is read.
fn sample() -> Vec<u8> {
    let branch = |op: &str| {
        graph(vec![], vec![floats("k", &[1], &[2.0])], vec![node(&format!("b = {op}(h, k)"), vec![])], &["b"])
    };
    let repeated = |inputs: &[&str], results: &[&str]| {
        let inputs = inputs.iter().map(|name| f32(name, "2, 2")).collect();
        graph(inputs, vec![], vec![node("t = Neg(s)", vec![])], results)
    };
    let nodes = vec![
        node("s = Shape(x)", vec![]),
        node("n = Gather(s, zero)", vec![int("axis", 0)]),
        node("u = Unsqueeze(n, axes)", vec![]),
        node("shape = Concat(u, two)", vec![int("axis", 0)]),
        node("r = Reshape(x, shape)", vec![]),
        node("h = MatMul(r, w)", vec![]),
        node("t = Transpose(h)", vec![ints("perm", &[1, 0])]),
        node("v, i = TopK(h, one)", vec![int("axis", -1)]),
        node("p = Pad(h, pads)", vec![text("mode", "constant")]),
        node(
            "z = If(c)",
            vec![graph_attribute("then_branch", branch("Add")), graph_attribute("else_branch", branch("Mul"))],
        ),
        node("l = Slice(h, axes, two, axes)", vec![]),
        node("q = Loop(two, __, w)", vec![graph_attribute("body", repeated(&["i", "go", "s"], &["go", "t"]))]),
        node(
            "a, d = Scan(v2, w)",
            vec![graph_attribute("body", repeated(&["s", "p"], &["s", "t"])), int("num_scan_inputs", 1)],
        ),
    ];
    let constants = vec![
        integers("zero", &[], &[0]),
        integers("axes", &[1], &[0]),
        integers("one", &[1], &[1]),
        integers("two", &[1], &[2]),
        integers("pads", &[4], &[0, 1, 0, 1]),
        floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
        floats("v2", &[2], &[1.0, 2.0]),
    ];
    let inputs = vec![f32("x", "batch, 2"), typed("c", DataType::Bool, "")];
    let mut graph = graph(inputs, constants, nodes, &["t", "v", "i", "p", "z", "l", "q", "a", "d"]);
    graph.value_info = vec![f32("h", "batch, 2"), f32("z", "?, 2")];
    graph.output[4] = f32("z", "?, 2");
    model(17, graph).encode_to_vec()
}

#[test]
fn the_sample_is_read() {
    import_bytes(&sample()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = import_bytes(&bytes) {
            prop_assert!(!error.is_empty());
        }
    }

    #[test]
    fn bytes_changed(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Err(error) = import_bytes(&bytes) {
            prop_assert!(!error.is_empty());
        }
    }

    #[test]
    fn a_stretch_removed_or_repeated(from in any::<prop::sample::Index>(), length in 1usize..40, repeat in any::<bool>()) {
        let mut bytes = sample();
        let from = from.index(bytes.len());
        let to = (from + length).min(bytes.len());
        let stretch: Vec<u8> = bytes[from..to].to_vec();
        bytes.splice(if repeat { from..from } else { from..to }, if repeat { stretch } else { Vec::new() });
        if let Err(error) = import_bytes(&bytes) {
            prop_assert!(!error.is_empty());
        }
    }
}
