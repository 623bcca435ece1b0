use planish_onnx::proto::{AttributeProto, AttributeType, DataType};

use planish_testing::onnx::{assert_nodes, attribute, f32, floats, graph, int, integers, lines, node, refused, typed};

#[test]
fn functions_of_one_and_two_tensors() {
    let nodes = vec![
        node("a = Neg(x)", vec![]),
        node("b = Sub(a, w)", vec![]),
        node("c = Less(b, x)", vec![]),
        node("y = Where(c, a, b)", vec![]),
    ];
    assert_nodes(
        17,
        graph(vec![f32("x", "n, 2")], vec![floats("w", &[2], &[1.0, 2.0])], nodes, &["y"]),
        &[
            "%a = neg(%x) : f32[n, 2]",
            "%b = sub(%a, @w) : f32[n, 2]",
            "%c = less(%b, %x) : bool[n, 2]",
            "%y = select(%c, %a, %b) : f32[n, 2]",
        ],
    );
}

#[test]
fn several_operands_are_taken_in_turn() {
    let inputs = vec![f32("x", "2"), f32("u", "2"), f32("v", "2")];
    assert_nodes(
        17,
        graph(inputs, vec![], vec![node("y = Max(x, u, v)", vec![])], &["y"]),
        &["%y = max(%x, %u) : f32[2]", "%y_1 = max(%y, %v) : f32[2]"],
    );
}

#[test]
fn clipping_by_attributes_and_by_operands() {
    let low = AttributeProto { f: 0.5, ..attribute("min", AttributeType::Float) };
    assert_nodes(
        10,
        graph(vec![f32("x", "2")], vec![], vec![node("y = Clip(x)", vec![low])], &["y"]),
        &["%y = max(%x, @y/const) : f32[2]"],
    );
    assert_nodes(
        11,
        graph(
            vec![f32("x", "2")],
            vec![floats("high", &[], &[1.0])],
            vec![node("y = Clip(x, _, high)", vec![])],
            &["y"],
        ),
        &["%y = min(%x, @high) : f32[2]"],
    );
}

/// ONNX wants a slope that broadcasts to the operand, and ONNX Runtime computes others too.
#[test]
fn a_slope_may_be_wider_than_its_operand() {
    let of = |x: &str, slope: &str| {
        let inputs = vec![f32("x", x), f32("s", slope)];
        lines(17, graph(inputs, vec![], vec![node("y = PRelu(x, s)", vec![])], &["y"]))
    };
    for (x, slope, result) in [("7", "1, 7", "1, 7"), ("1, n", "4, 1", "4, n")] {
        let expected = [
            "weight @y/const = dense([0.0]) : f32[]".to_owned(),
            format!("%y = less(%x, @y/const) : bool[{x}]"),
            format!("%y_1 = mul(%s, %x) : f32[{result}]"),
            format!("%y_2 = select(%y, %y_1, %x) : f32[{result}]"),
        ];
        assert_eq!(of(x, slope), expected);
    }
    for slope in ["1", "4", "m, 4"] {
        assert!(of("n, 4", slope)[0].contains("op = \"PRelu\""));
    }
}

#[test]
fn conversions() {
    let to = int("to", DataType::Int64 as i64);
    assert_nodes(
        17,
        graph(vec![f32("x", "2")], vec![], vec![node("y = Cast(x)", vec![to])], &["y"]),
        &["%y = cast(%x) {to = i64} : i64[2]"],
    );
    let same = vec![node("a = Cast(x)", vec![int("to", 1)]), node("y = Relu(a)", vec![])];
    assert_nodes(17, graph(vec![f32("x", "2")], vec![], same, &["y"]), &["%y = relu(%x) : f32[2]"]);
    // What does not fit the narrower type keeps its low bits, which the operator knows to do.
    let narrow = vec![node("y = Cast(n)", vec![int("to", DataType::Int32 as i64)])];
    assert_nodes(
        17,
        graph(vec![], vec![integers("n", &[1], &[i64::MAX])], narrow, &["y"]),
        &["%y = cast(@n) {to = i32} : i32[1]"],
    );
    // What is only stored, and text, are converted as the operator says.
    for (to, name) in [(DataType::String, "string"), (DataType::Float8e5m2, "f8e5m2"), (DataType::Int4, "i4")] {
        let nodes = vec![node("y = Cast(x)", vec![int("to", to as i64)])];
        let lines = lines(17, graph(vec![f32("x", "2")], vec![], nodes, &["y"]));
        assert!(lines[0].contains("op = \"Cast\"") && lines[0].ends_with(&format!(": {name}[2]")), "{lines:?}");
    }
    refused(
        graph(vec![f32("x", "2")], vec![], vec![node("y = Cast(x)", vec![int("to", 14)])], &["y"]),
        "elements of type complex64",
    );
}

/// An integer to a power that is not an integer is not the integer power.
#[test]
fn powers() {
    let integer = || typed("x", DataType::Int64, "2");
    let nodes = || vec![node("y = Pow(x, e)", vec![])];
    assert_nodes(
        17,
        graph(vec![f32("x", "2")], vec![integers("e", &[], &[2])], nodes(), &["y"]),
        &["%e_1 = cast(@e) {to = f32} : f32[]", "%y = pow(%x, %e_1) : f32[2]"],
    );
    let lines =
        planish_testing::onnx::lines(17, graph(vec![integer()], vec![floats("e", &[], &[0.5])], nodes(), &["y"]));
    assert!(lines.last().unwrap().contains("foreign"), "{lines:?}");
}

/// Dropout drops nothing when a model runs.
#[test]
fn dropout() {
    let nodes = || vec![node("a = Dropout(x)", vec![]), node("y = Relu(a)", vec![])];
    for opset in [7, 10, 13] {
        assert_nodes(opset, graph(vec![f32("x", "2")], vec![], nodes(), &["y"]), &["%y = relu(%x) : f32[2]"]);
    }
}

/// Before opset 7 operands broadcast on demand, and attributes were hints.
#[test]
fn old_opsets() {
    let broadcast = vec![int("broadcast", 1)];
    let nodes = vec![
        node("a = Add(x, w)", broadcast),
        node("y = Relu(a)", vec![planish_testing::onnx::ints("consumed_inputs", &[0])]),
    ];
    assert_nodes(
        1,
        graph(vec![f32("x", "n, 2")], vec![floats("w", &[2], &[1.0, 2.0])], nodes, &["y"]),
        &["%a = add(%x, @w) : f32[n, 2]", "%y = relu(%a) : f32[n, 2]"],
    );
    let along = vec![node("y = Add(x, w)", vec![int("broadcast", 1), int("axis", 0)])];
    let model = planish_testing::onnx::model(
        6,
        graph(vec![f32("x", "2, 3")], vec![floats("w", &[2], &[1.0, 2.0])], along, &["y"]),
    );
    let error = planish_testing::onnx::import(&model).err().unwrap();
    assert!(error.contains("it is of opset 6, which has another form of it"), "{error}");
}
