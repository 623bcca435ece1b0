//! Graphs that break the format, or that no graph here can be: an error that says what and where.

use planish_onnx::ImportOptions;
use planish_onnx::proto::{
    DataType, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use prost::Message;

use planish_testing::onnx::{
    assert_nodes, f32, floats, graph, graph_attribute, import, import_bytes, import_with, int, integers, ints, model,
    node, refused, typed,
};

fn relu() -> ModelProto {
    model(
        17,
        graph(
            vec![f32("x", "n, 2")],
            vec![floats("w", &[2], &[1.0, 2.0])],
            vec![node("y = Add(x, w)", vec![])],
            &["y"],
        ),
    )
}

#[test]
fn a_file_that_is_cut_short_is_an_error_wherever_the_cut_is() {
    let bytes = relu().encode_to_vec();
    import_bytes(&bytes).unwrap();
    for length in 0..bytes.len() {
        let error = import_bytes(&bytes[..length]).err().unwrap();
        assert!(error.contains("model.onnx"), "{error}");
    }
    let error = import_bytes(&bytes[..bytes.len() - 1]).err().unwrap();
    assert!(error.contains("truncated"), "{error}");
}

#[test]
fn bytes_of_something_else() {
    for bytes in [&b""[..], b"{\"model\": 1}", b"PK\x03\x04", &[0xff; 64]] {
        assert!(import_bytes(bytes).is_err());
    }
}

#[test]
fn nodes_that_depend_on_each_other() {
    let nodes = vec![node("a = Add(x, b)", vec![]), node("b = Relu(a)", vec![])];
    refused(graph(vec![f32("x", "2")], vec![], nodes, &["b"]), "is computed from itself");
}

#[test]
fn nodes_in_any_order() {
    let nodes = vec![node("y = Relu(a)", vec![]), node("a = Neg(x)", vec![])];
    assert_nodes(
        17,
        graph(vec![f32("x", "2")], vec![], nodes, &["y"]),
        &["%a = neg(%x) : f32[2]", "%y = relu(%a) : f32[2]"],
    );
}

#[test]
fn names_that_are_given_twice() {
    let twice = vec![node("y = Relu(x)", vec![]), node("y = Neg(x)", vec![])];
    refused(graph(vec![f32("x", "2")], vec![], twice, &["y"]), "`y`, a result of Neg `y`, is defined twice");
    refused(graph(vec![f32("x", "2")], vec![], vec![node("x = Relu(x)", vec![])], &["x"]), "is defined twice");
    refused(
        graph(vec![f32("x", "2"), f32("x", "3")], vec![], vec![], &["x"]),
        "the input `x` has no name or is given twice",
    );
    let w = || floats("w", &[1], &[1.0]);
    refused(graph(vec![], vec![w(), w()], vec![], &["w"]), "the initializer `w` is given twice");
}

#[test]
fn names_that_are_not_defined() {
    refused(
        graph(vec![f32("x", "2")], vec![], vec![node("y = Add(x, z)", vec![])], &["y"]),
        "`z`, used by Add `y`, is not defined",
    );
    refused(graph(vec![f32("x", "2")], vec![], vec![], &["y"]), "the output `y` is not defined");
}

#[test]
fn types_that_are_declared_and_computed_otherwise() {
    let declared = |elements, dims| {
        let mut graph = graph(vec![f32("x", "n, 2")], vec![], vec![node("y = Relu(x)", vec![])], &["y"]);
        graph.output = vec![typed("y", elements, dims)];
        graph
    };
    refused(declared(DataType::Int64, "n, 2"), "the output `y` is declared as i64[n, 2] and computed as f32[n, 2]");
    import(&model(17, declared(DataType::Float, "m, ?"))).unwrap();

    // Other sizes are a warning, as for runtimes.
    let warned = |graph: GraphProto| {
        let (graph, warnings) = import_with(&model(17, graph), &ImportOptions::default()).unwrap();
        (graph.type_of(graph.outputs()[0].value).to_string(), warnings)
    };
    for dims in ["n", "n, 3"] {
        let text = format!("the result `y` is declared as f32[{dims}] and computed as f32[n, 2]");
        assert_eq!(
            warned(declared(DataType::Float, dims)),
            ("f32[n, 2]".to_owned(), vec![format!("{text}: the declaration is ignored")])
        );
    }

    let mut inside =
        graph(vec![f32("x", "n, 2")], vec![], vec![node("a = Celu(x)", vec![]), node("y = Relu(a)", vec![])], &["y"]);
    inside.value_info = vec![f32("a", "n, 5")];
    let text =
        "the result `a` of Celu `a` is declared as f32[n, 5] and computed as f32[n, 2]: the declaration is ignored";
    assert_eq!(warned(inside.clone()), ("f32[n, 2]".to_owned(), vec![text.to_owned()]));
    inside.value_info = vec![typed("a", DataType::Int64, "n, 2")];
    refused(inside, "its result `a` is declared as i64[n, 2] and is f32[n, 2]");
}

#[test]
fn operands_that_do_not_fit() {
    let operands = vec![f32("x", "2"), f32("z", "3")];
    refused(graph(operands, vec![], vec![node("y = Add(x, z)", vec![])], &["y"]), "Add `y`");
    let operands = vec![f32("x", "2"), typed("z", DataType::Int64, "2")];
    refused(
        graph(operands, vec![], vec![node("y = Celu(x)", vec![]), node("u = MatMul(x, y, z)", vec![])], &["w"]),
        "`w`",
    );
    refused(graph(vec![f32("x", "2")], vec![], vec![node("y = Add(x)", vec![])], &["y"]), "operand 1 is missing");
    refused(
        graph(vec![f32("x", "2")], vec![], vec![node("y = Transpose(x)", vec![int("perm", 1)])], &["y"]),
        "attribute `perm` is not of kind Ints",
    );
}

#[test]
fn sizes_that_are_none() {
    refused(graph(vec![f32("x", "-2")], vec![], vec![], &["x"]), "dimension 0 of `x` is -2");
    refused(
        graph(vec![], vec![floats("w", &[-1], &[1.0])], vec![], &["w"]),
        "initializer `w`: its dimensions [-1] are not all sizes",
    );
    refused(graph(vec![], vec![floats("w", &[i64::MAX, i64::MAX], &[])], vec![], &["w"]), "does not fit 64 bits");
    refused(
        graph(vec![], vec![floats("w", &[3], &[1.0])], vec![], &["w"]),
        "initializer `w`: it has 4 bytes, which are not f32[3]",
    );
    let far = format!("{}", i64::MAX);
    let flat = |dims: &str| graph(vec![f32("x", dims)], vec![], vec![node("y = Flatten(x)", vec![])], &["y"]);
    refused(flat(&format!("2, {far}, {far}")), "does not fit 64 bits");
    let negative = vec![node("y = Pad(x, pads)", vec![])];
    refused(
        graph(vec![f32("x", "2")], vec![integers("pads", &[2], &[-3, 0])], negative, &["y"]),
        "its result would be f32[-1]",
    );
    // What is said of a slice of that holds of no size.
    let slice = vec![node("h = Expand(x, s)", vec![]), node("y = Slice(h, a, b, a)", vec![])];
    let constants = vec![integers("s", &[2], &[-2, 3]), integers("a", &[1], &[0]), integers("b", &[1], &[1])];
    refused(graph(vec![f32("x", "1, 3")], constants, slice, &["y"]), "its result would be f32[-2, 3]");
    let split =
        vec![node("l = SplitToSequence(x, s)", vec![]), node("y = ConcatFromSequence(l)", vec![int("axis", 0)])];
    refused(
        graph(vec![f32("x", "2, 3")], vec![integers("s", &[], &[0])], split, &["y"]),
        "it splits into parts of 0 elements",
    );
}

/// Sizes beyond memory are types, not tensors.
#[test]
fn repeats_of_gigabytes_take_no_memory() {
    let huge = 1i64 << 40;
    let repeats = || integers("s", &[1], &[huge]);
    for op in ["Expand", "Tile"] {
        let nodes = vec![node(&format!("y = {op}(w, s)"), vec![])];
        import(&model(17, graph(vec![], vec![repeats(), floats("w", &[1], &[1.0])], nodes, &["y"]))).unwrap();
    }
    let filled = graph(vec![], vec![repeats()], vec![node("y = ConstantOfShape(s)", vec![])], &["y"]);
    assert_nodes(17, filled, &["%y = expand(@y/const) {shape = [1099511627776]} : f32[1099511627776]"]);
    let counted = vec![integers("a", &[], &[0]), integers("b", &[], &[huge]), integers("c", &[], &[1])];
    assert_nodes(
        17,
        graph(vec![], counted, vec![node("y = Range(a, b, c)", vec![])], &["y"]),
        &["%y = iota() {dtype = i64, length = 1099511627776} : i64[1099511627776]"],
    );
    let twice = vec![integers("a", &[3], &[huge, huge, 0]), integers("b", &[3], &[huge, huge, 1])];
    import(&model(
        17,
        graph(vec![], twice, vec![node("u = ConstantOfShape(a)", vec![]), node("y = Shape(u)", vec![])], &["y"]),
    ))
    .unwrap();
}

/// The length of an operand that decides how many dimensions a result has is a number that a file makes up.
#[test]
fn results_of_more_dimensions_than_memory_has() {
    for length in [65, 1i64 << 31, i64::MAX / 2] {
        let sizes = typed("s", DataType::Int64, &length.to_string());
        for call in [
            "Expand(x, s)",
            "Reshape(x, s)",
            "Unsqueeze(x, s)",
            "Slice(x, s, s)",
            "ConstantOfShape(s)",
            "AffineGrid(x, s)",
            "Col2Im(x, s, s)",
            "ReduceSum(x, s)",
            "Tile(x, s)",
            "Squeeze(x, s)",
            "Pad(x, s)",
        ] {
            let call = node(&format!("y = {call}"), vec![]);
            let graph = graph(vec![f32("x", "3, 1, 4"), sizes.clone()], vec![], vec![call], &["y"]);
            // What is left open need not depend on it.
            if let Err(error) = import(&model(20, graph)) {
                assert!(error.contains("`y`"), "{error}");
            }
        }
    }
    let sizes = typed("s", DataType::Int64, "65");
    let expand = vec![node("y = Expand(x, s)", vec![])];
    let graph = import(&model(20, graph(vec![f32("x", "3"), sizes], vec![], expand, &["y"]))).unwrap();
    assert_eq!(graph.type_of(graph.outputs()[0].value).to_string(), "f32[*]");
}

/// What is wrong with numbers is said: that they are too many, too large or below 0.
#[test]
fn numbers_out_of_range() {
    let fails = |dims: &str, constants: Vec<TensorProto>, node: NodeProto, expected: &str| {
        let outputs: Vec<String> = node.output.clone();
        let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let error = import(&model(20, graph(vec![f32("x", dims)], constants, vec![node], &outputs))).err().unwrap();
        assert!(error.contains(expected), "`{expected}` is not in `{error}`");
    };
    let pool = |pads: &[i64]| node("y = MaxPool(x)", vec![ints("kernel_shape", &[2]), ints("pads", pads)]);
    let large = "its pads are [1099511627776, 1099511627776], and 1099511627776 does not fit 32 bits";
    fails("1, 3, 8", vec![], pool(&[1 << 40, 1 << 40]), large);
    fails("1, 3, 8", vec![], pool(&[i64::MIN, 0]), "-9223372036854775808 does not fit 32 bits");
    fails("1, 3, 8", vec![], pool(&[1]), "its pads are [1], expected 2 numbers");
    let split = || node("y, z = Split(x, sizes)", vec![]);
    let sizes = || vec![integers("sizes", &[2], &[-1, 2])];
    fails("1", sizes(), split(), "its sizes are [-1, 2], expected none below 0");
    fails("n", sizes(), split(), "its sizes are [-1, 2], expected none below 0");
}

fn function(name: &str, body: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: name.to_owned(),
        domain: "own".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["r".to_owned()],
        node: body,
        ..FunctionProto::default()
    }
}

fn call(text: &str) -> NodeProto {
    NodeProto { domain: "own".to_owned(), ..node(text, vec![]) }
}

fn with_functions(functions: Vec<FunctionProto>) -> ModelProto {
    let mut model = model(17, graph(vec![f32("x", "2")], vec![], vec![call("y = F0(x)")], &["y"]));
    model.opset_import.push(OperatorSetIdProto { domain: "own".to_owned(), version: 1 });
    model.functions = functions;
    model
}

#[test]
fn functions_of_another_opset() {
    let mut f = function("F0", vec![node("r = Relu(a)", vec![])]);
    f.opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    import(&with_functions(vec![f.clone()])).unwrap();
    f.opset_import[0].version = 12;
    let error = import(&with_functions(vec![f])).err().unwrap();
    assert!(error.contains("the function `F0` is written in opset 12, the model in 17: convert"), "{error}");
}

/// ONNX leaves it to runtimes which of both they take.
#[test]
fn functions_in_the_domain_of_onnx() {
    for domain in ["", "ai.onnx"] {
        let own = FunctionProto { domain: domain.to_owned(), ..function("Relu", vec![node("r = Neg(a)", vec![])]) };
        let calls = |op: &str| {
            let call = NodeProto { domain: domain.to_owned(), ..node(op, vec![]) };
            let mut model = model(17, graph(vec![f32("x", "2")], vec![], vec![call], &["y"]));
            model.functions = vec![own.clone()];
            import(&model).map(|_| ())
        };
        let error = calls("y = Relu(x)").unwrap_err();
        assert!(error.contains("runtimes differ in whether they take that or their operator `Relu`"), "{error}");
        calls("y = Neg(x)").unwrap();
    }
}

#[test]
fn functions_that_expand_without_bound() {
    let doubling = |i: usize| {
        let next = if i == 29 { node("m = Relu(a)", vec![]) } else { call(&format!("m = F{}(a)", i + 1)) };
        let again = if i == 29 { node("r = Relu(m)", vec![]) } else { call(&format!("r = F{}(m)", i + 1)) };
        function(&format!("F{i}"), vec![next, again])
    };
    let error = import(&with_functions((0..30).map(doubling).collect())).err().unwrap();
    assert!(error.contains("calls of functions come to"), "{error}");
    let error = import(&with_functions(vec![function("F0", vec![call("r = F0(a)")])])).err().unwrap();
    assert!(error.contains("function calls are nested more than 32 deep"), "{error}");
}

#[test]
fn graphs_that_lie_deep_in_each_other() {
    let mut inner = graph(vec![], vec![], vec![node("y = Relu(x)", vec![])], &["y"]);
    for _ in 0..40 {
        let branches = vec![
            graph_attribute("then_branch", inner.clone()),
            graph_attribute("else_branch", graph(vec![], vec![], vec![], &["x"])),
        ];
        inner = graph(vec![], vec![], vec![node("y = If(c)", branches)], &["y"]);
    }
    inner.input = vec![f32("x", "2"), typed("c", DataType::Bool, "")];
    refused(inner, "deep");
}

#[test]
fn operators_without_a_form_are_all_named() {
    let nodes = vec![node("a = Strange(x)", vec![]), node("b = Stranger(x)", vec![]), node("y = Add(a, b)", vec![])];
    let error = import(&model(17, graph(vec![f32("x", "2")], vec![], nodes, &["y"]))).err().unwrap();
    assert!(error.contains("2 nodes cannot be imported"), "{error}");
    assert!(error.contains("Strange `a`") && error.contains("Stranger `b`"), "{error}");
    assert!(error.contains("it is not an operator of ONNX"), "{error}");
}

/// What the model declares of its results does not make it one.
#[test]
fn operators_that_the_opset_does_not_have() {
    let of = |op: &str| {
        let mut graph = graph(vec![f32("x", "2")], vec![], vec![node(&format!("y = {op}(x)"), vec![])], &["y"]);
        graph.output = vec![f32("y", "2")];
        graph
    };
    refused(of("Nope"), "Nope `y`: it is not an operator of ONNX");
    refused(of("Swish"), "Swish `y`: it came with opset 24, and the graph is of opset 17");
}

#[test]
fn versions_that_are_not_known() {
    let mut older = relu();
    older.opset_import[0].version = 0;
    assert!(import(&older).err().unwrap().contains("it is written in opset 0, and the first one is 1"));
    let empty = ModelProto { graph: None, ..relu() };
    assert!(import(&empty).err().unwrap().contains("no graph"));
}

/// ONNX Runtime divides by numbers of heads.
#[test]
fn numbers_of_heads() {
    let shaped = |dims: &str, q_heads: i64, kv_heads: i64| {
        let attributes = vec![int("q_num_heads", q_heads), int("kv_num_heads", kv_heads)];
        let inputs = ["q", "k", "v"].map(|name| f32(name, dims)).to_vec();
        let mut model = model(23, graph(inputs, vec![], vec![node("y = Attention(q, k, v)", attributes)], &["y"]));
        model.ir_version = 10;
        planish_testing::onnx::import(&model).map(drop)
    };
    let of = |q_heads: i64, kv_heads: i64| shaped("b, s, 8", q_heads, kv_heads);
    assert_eq!(of(4, 2), Ok(()));
    assert_eq!(shaped("b, 2, s, 4", 0, 0), Ok(()), "operands that are apart already are not divided");
    for (q_heads, kv_heads, part) in [
        (4, 0, "its `kv_num_heads` is 0, expected 1 or more heads"),
        (1 << 32, 2, "its `q_num_heads` is 4294967296"),
        (4, 3, "the 8 features of its operand f32[b, s, 8] are not `kv_num_heads` = 3 heads"),
    ] {
        let error = of(q_heads, kv_heads).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
