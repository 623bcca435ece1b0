//! For each invariant, a graph that breaks it and only it.

use std::collections::HashMap;

use super::verify;
use crate::ops::{Iota, Slice, Unary, UnaryKind};
use crate::{DType, Dim, Graph, Origin, Shape, TensorType, Type, ValueId, Weight};

/// `y = neg(exp(x))` of x: f32[n], with what each line makes.
fn chain() -> (Graph, [ValueId; 3]) {
    let mut graph = Graph::new("g");
    let x = input(&mut graph, "x", [Dim::symbol("n")]);
    let middle = unary(&mut graph, UnaryKind::Exp, x);
    let y = unary(&mut graph, UnaryKind::Neg, middle);
    graph.add_output("y", y);
    (graph, [x, middle, y])
}

fn input(graph: &mut Graph, name: &str, dims: impl IntoIterator<Item = Dim>) -> ValueId {
    graph.add_input(name, TensorType::new(DType::F32, Shape::new(dims)), Origin::Unknown)
}

fn unary(graph: &mut Graph, kind: UnaryKind, x: ValueId) -> ValueId {
    graph.emit(Unary { kind, x }, kind.name(), Origin::Unknown).unwrap()[0]
}

#[track_caller]
fn breaks(graph: &Graph, invariant: &str, message: &str) {
    let error = verify(graph).expect_err("the graph is broken");
    let found = &error.violations[0];
    assert_eq!(found.invariant, invariant, "{error}");
    assert!(found.message.contains(message), "{error}");
}

#[test]
fn a_whole_graph_passes() {
    verify(&chain().0).unwrap();
    verify(&Graph::new("empty")).unwrap();
}

#[test]
fn every_violation_is_named() {
    let (mut graph, [x, middle, _]) = chain();
    graph.value_mut(middle).ty = TensorType::new(DType::F32, Shape::of(&[3])).into();
    graph.value_mut(x).name.clear();
    graph.add_output("y", x);
    let error = verify(&graph).unwrap_err();
    let invariants: Vec<&str> = error.violations.iter().map(|violation| violation.invariant).collect();
    // The users of a value that has another type break the invariant too.
    assert_eq!(invariants, ["V03", "V02", "V02", "V04"], "{error}");
    assert_eq!(error.to_string().lines().count(), 4);

    for _ in 0..20 {
        graph.add_output("y", x);
    }
    let text = verify(&graph).unwrap_err().to_string();
    assert_eq!((text.lines().count(), text.lines().last()), (21, Some("4 more")));
}

#[test]
fn v01_operands_are_defined_before() {
    let (mut graph, [_, middle, _]) = chain();
    graph.order.reverse();
    breaks(&graph, "V01", "`neg` at `neg` uses v1 before it is defined");

    let (mut graph, [_, middle_too, _]) = chain();
    graph.order.remove(0);
    assert_eq!(middle, middle_too);
    breaks(&graph, "V01", "`neg` at `neg` uses v1");

    let (mut graph, _) = chain();
    let (last, _) = graph.nodes().last().unwrap();
    let stranger = crate::handle::Handle::from_index(99);
    graph.node_mut(last).op.visit_operands_mut(&mut |v| *v = stranger);
    breaks(&graph, "V01", "uses v99");
}

#[test]
fn v02_results_have_the_inferred_types() {
    let (mut graph, [x, middle, _]) = chain();
    let wide = graph.add_input("wide", TensorType::new(DType::F64, graph.ty(x).shape.clone()), Origin::Unknown);
    graph.substitute(&HashMap::from([(x, wide)]));
    breaks(&graph, "V02", "`exp` at `exp` has other result types");

    let flags = graph.add_input("flags", TensorType::new(DType::Bool, graph.ty(x).shape.clone()), Origin::Unknown);
    graph.substitute(&HashMap::from([(wide, flags)]));
    breaks(&graph, "V02", "`exp` at `exp`: `x` is bool[n]");

    let (mut graph, _) = chain();
    graph.value_mut(middle).ty = TensorType::new(DType::F32, Shape::of(&[3])).into();
    breaks(&graph, "V02", "`exp` at `exp`");
}

#[test]
fn v03_names_are_unique_and_not_empty() {
    let (mut graph, _) = chain();
    input(&mut graph, "", [Dim::symbol("n")]);
    breaks(&graph, "V03", "the name `` is empty or taken twice");

    let (mut graph, [_, middle, _]) = chain();
    graph.value_mut(middle).name = "x".to_owned();
    breaks(&graph, "V03", "the name `x` is empty or taken twice");
}

#[test]
fn v04_outputs_are_named_values() {
    for (name, index) in [("y", 0), ("", 0), ("x", 1), ("z", 99)] {
        let (mut graph, _) = chain();
        graph.add_output(name, crate::handle::Handle::from_index(index));
        breaks(&graph, "V04", &format!("`{name}`"));
    }
    // An output can be an input as it came.
    let (mut graph, [x, ..]) = chain();
    graph.add_output("x", x);
    verify(&graph).unwrap();
    let (mut graph, [_, middle, y]) = chain();
    graph.order.pop();
    breaks(&graph, "V04", "output `y`");
    graph.substitute(&HashMap::from([(y, middle)]));
    verify(&graph).unwrap();
}

#[test]
fn v05_weights_have_the_types_of_their_values() {
    for ty in [TensorType::new(DType::I64, Shape::of(&[3])), TensorType::new(DType::I32, Shape::of(&[2]))] {
        let (mut graph, _) = chain();
        let weight = graph.add_weight("w", Weight::integers(&[1, 2]), Origin::Unknown);
        verify(&graph).unwrap();
        graph.value_mut(weight).ty = ty.into();
        breaks(&graph, "V05", "but its weight i64[2]");
    }
    let mut graph = Graph::new("g");
    let too_long = Weight::uniform(DType::U8, vec![usize::MAX, 0], 0).unwrap();
    graph.add_weight("w", too_long, Origin::Unknown);
    breaks(&graph, "V05", "`w` is u8[9223372036854775807, 0]");
}

#[test]
fn v06_results_name_their_node() {
    let (mut graph, [_, middle, _]) = chain();
    let (last, _) = graph.nodes().last().unwrap();
    graph.node_mut(last).outputs = vec![middle];
    breaks(&graph, "V06", "result 0 of `neg` at `exp` names another definition");

    let (mut graph, _) = chain();
    graph.order.push(graph.order[0]);
    breaks(&graph, "V06", "`exp` at `exp` is twice in the order");
}

#[test]
fn v07_symbols_are_dimensions_of_inputs() {
    let (mut graph, _) = chain();
    let length = Dim::symbol("m");
    graph.emit(Iota { dtype: DType::I64, length }, "i", Origin::Unknown).unwrap();
    breaks(
        &graph,
        "V07",
        "`i` (unknown origin) is i64[m], but neither an input nor an earlier result has the dimension `m`",
    );

    // Neither may an attribute have one that the result does not show.
    let (mut graph, [x, ..]) = chain();
    let (start, end) = (Dim::symbol("m"), Dim::symbol("m").checked_add(&Dim::constant(1)).unwrap());
    graph.emit(Slice { x, axis: 0, start, end }, "s", Origin::Unknown).unwrap();
    breaks(&graph, "V07", "an attribute of `slice` at `s` is m");

    // A sum does not tell what its symbols are.
    let (mut graph, _) = chain();
    let sum = Dim::symbol("a").checked_add(&Dim::symbol("n")).unwrap();
    input(&mut graph, "sum", [sum]);
    breaks(&graph, "V07", "the dimension `a`");
}

#[test]
fn v08_dimensions_are_not_negative() {
    let (mut graph, _) = chain();
    input(&mut graph, "less", [Dim::symbol("n"), Dim::constant(-1)]);
    breaks(&graph, "V08", "f32[n, -1], with a negative dimension");
}

#[test]
fn v09_only_operators_that_pass_through_take_other_values() {
    let (mut graph, [_, middle, _]) = chain();
    let before = graph.type_of(middle).clone();
    graph.value_mut(middle).ty = Type::Unranked(DType::F32);
    breaks(&graph, "V02", "`exp` at `exp`");
    graph.value_mut(middle).ty = before;
    verify(&graph).unwrap();

    let mut fixed = Graph::new("g");
    let x = input(&mut fixed, "x", [Dim::constant(4)]);
    unary(&mut fixed, UnaryKind::Exp, x);
    fixed.value_mut(x).ty = Type::Sequence(Box::new(Type::Unknown));
    breaks(&fixed, "V09", "`exp` at `exp`: an operand is seq(?)");

    let list = graph.add_input("list", Type::Sequence(Box::new(Type::Unranked(DType::F32))), Origin::Unknown);
    let error = graph.emit(Unary { kind: UnaryKind::Exp, x: list }, "e", Origin::Unknown).unwrap_err();
    assert!(error.to_string().contains("an operand is seq(f32[*])"), "{error}");
}
