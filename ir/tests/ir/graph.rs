use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use planish_ir::handle::Handle;
use planish_ir::ops::{Split, Transpose, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Origin, Shape, Step, TensorType, ValueId, Weight, text, verify};
use proptest::prelude::*;

use planish_testing::random_graph::{build, choices};

fn parse(statements: &str) -> Graph {
    let graph = text::parse(&format!("graph \"g\" {{\n{statements}\n}}"), &text::no_files).unwrap();
    verify(&graph).unwrap();
    graph
}

/// The statements of a graph.
fn statements(graph: &Graph) -> Vec<String> {
    let text = graph.to_string();
    text.lines().skip(1).filter(|line| *line != "}").map(|line| line.trim().to_owned()).collect()
}

fn find(graph: &Graph, name: &str) -> ValueId {
    graph.values().find(|(_, value)| value.name == name).map(|(id, _)| id).expect("a value of this name")
}

fn vector(graph: &mut Graph, name: &str) -> ValueId {
    graph.add_input(name, TensorType::new(DType::F32, Shape::of(&[4])), Origin::Unknown)
}

fn relu(graph: &mut Graph, x: ValueId, name: &str) -> ValueId {
    graph.emit(Unary { kind: UnaryKind::Relu, x }, name, Origin::Unknown).unwrap()[0]
}

#[test]
fn names_are_made_unique() {
    let mut graph = Graph::new("g");
    let x = vector(&mut graph, "x");
    let values =
        [vector(&mut graph, "x_1"), relu(&mut graph, x, "x"), relu(&mut graph, x, "x"), relu(&mut graph, x, "x_1")];
    let names = values.map(|v| graph.value(v).name.clone());
    assert_eq!(names, ["x_1", "x_2", "x_3", "x_1_1"]);
    graph.rename(values[1], "x_1");
    assert_eq!(graph.value(values[1]).name, "x_1_2");
    graph.rename(values[2], "x_2");
    assert_eq!(graph.value(values[2]).name, "x_2", "a name that was given up is free");
}

#[test]
fn compaction_drops_what_is_dead_and_restores_names() {
    let mut graph = Graph::new("g");
    let x = vector(&mut graph, "x");
    graph.add_weight("unused", Weight::integers(&[1]), Origin::Unknown);
    relu(&mut graph, x, "y");
    let y = relu(&mut graph, x, "y");
    assert_eq!(graph.value(y).name, "y_1");
    vector(&mut graph, "idle");
    graph.add_output("out", y);
    assert_eq!(graph.compact(), 2);
    let expected = ["input %x: f32[4]", "input %idle: f32[4]", "%y = relu(%x) : f32[4]", "output out = %y"];
    assert_eq!(statements(&graph), expected);
    assert_eq!(graph.compact(), 0);
    assert_eq!(statements(&graph), expected);
    assert_eq!(graph.value_count(), 3);
    verify(&graph).unwrap();
}

/// Something may be computed for its size alone.
#[test]
fn compaction_keeps_what_determines_sizes() {
    let foreign = |name: &str| {
        format!(
            "%{name} = foreign([%x], []) {{domain = \"ai.onnx\", op = \"NonZero\", version = 17, captures = [], \
             results = [i64[1, {name}_count]]}} : i64[1, {name}_count]"
        )
    };
    let mut graph = parse(&format!(
        "input %x: f32[n]\n{}\n{}\n%y = sizes() {{of = [a_count]}} : i64[1]\noutput y = %y",
        foreign("a"),
        foreign("b")
    ));
    assert_eq!(graph.compact(), 1);
    verify(&graph).unwrap();
    assert!(statements(&graph)[1].starts_with("%a = foreign"), "{graph}");
}

#[test]
fn compaction_keeps_the_names_of_inputs() {
    let mut graph = Graph::new("g");
    graph.add_weight("x", Weight::integers(&[1]), Origin::Unknown);
    let x = vector(&mut graph, "x");
    let y = relu(&mut graph, x, "x");
    graph.add_output("out", y);
    graph.compact();
    assert_eq!(statements(&graph), ["input %x_1: f32[4]", "%x = relu(%x_1) : f32[4]", "output out = %x"]);
}

#[test]
fn compaction_keeps_names_that_were_chosen() {
    let mut graph = Graph::new("g");
    let x = vector(&mut graph, "x");
    relu(&mut graph, x, "y");
    let y = relu(&mut graph, x, "y");
    graph.rename(y, "y_1");
    graph.add_output("out", y);
    graph.compact();
    assert_eq!(statements(&graph)[1], "%y_1 = relu(%x) : f32[4]");
}

#[test]
fn a_node_stays_while_one_of_its_results_is_needed() {
    let mut graph =
        parse("input %x: f32[4]\n%a, %b = split(%x) {axis = 0, sizes = [1, 3]} : f32[1], f32[3]\noutput y = %b");
    let before = graph.to_string();
    assert_eq!(graph.compact(), 0);
    assert_eq!(graph.to_string(), before);
}

#[test]
fn substitution_replaces_every_use() {
    let mut graph = parse(
        "input %x: f32[2]\ninput %y: f32[2]\n%a = add(%x, %y) : f32[2]\n%b = add(%x, %a) : f32[2]\noutput o = %b\noutput i = %x",
    );
    let with = HashMap::from([(find(&graph, "x"), find(&graph, "y"))]);
    graph.substitute(&with);
    assert_eq!(
        statements(&graph)[2..],
        ["%a = add(%y, %y) : f32[2]", "%b = add(%y, %a) : f32[2]", "output o = %b", "output i = %y"]
    );
}

#[test]
fn a_rewrite_sees_what_it_has_rewritten() {
    let mut graph = parse(
        "input %x: f32[2]\n%a = neg(%x) : f32[2]\n%b = neg(%a) : f32[2]\n%c = neg(%b) : f32[2]\noutput y = %c\noutput z = %b",
    );
    // The negation of a negation is gone.
    let count = graph
        .rewrite(|graph, node| {
            let Op::Unary(outer) = &graph.node(node).op else { return Ok::<_, Infallible>(Step::Keep) };
            Ok(match graph.producer(outer.x).map(|n| &n.op) {
                Some(Op::Unary(inner)) => Step::Replace(vec![inner.x]),
                _ => Step::Keep,
            })
        })
        .unwrap();
    assert_eq!(count, 1);
    verify(&graph).unwrap();
    graph.compact();
    assert_eq!(statements(&graph), ["input %x: f32[2]", "%c = neg(%x) : f32[2]", "output y = %c", "output z = %x"]);
}

#[test]
fn a_rewrite_emits_before_the_node() {
    let mut graph = parse("input %x: f32[2, 3]\n%y = exp(%x) : f32[2, 3]\n%z = abs(%y) : f32[2, 3]\noutput o = %z");
    let count = graph
        .rewrite(|graph, node| {
            let Op::Unary(Unary { kind: UnaryKind::Exp, x }) = graph.node(node).op else { return Ok(Step::Keep) };
            let like = graph.node(node).outputs[0];
            let x = graph.emit(Transpose { x, perm: vec![1, 0] }, like)?;
            let two = graph.weight_like(Weight::scalar(DType::F32, 2.0), like);
            assert_eq!(graph.ty(two).shape.rank(), 0);
            let x = graph.emit(Transpose { x, perm: vec![1, 0] }, like)?;
            Ok::<_, BuildError>(Step::Replace(vec![x]))
        })
        .unwrap();
    assert_eq!(count, 1);
    verify(&graph).unwrap();
    graph.compact();
    assert_eq!(
        statements(&graph)[1..],
        [
            "%y = transpose(%x) {perm = [1, 0]} : f32[3, 2]",
            "%y_1 = transpose(%y) {perm = [1, 0]} : f32[2, 3]",
            "%z = abs(%y_1) : f32[2, 3]",
            "output o = %z"
        ]
    );
}

#[test]
fn a_rewrite_hands_on_errors() {
    let mut graph = parse("input %x: f32[2]\n%y = exp(%x) : f32[2]\noutput o = %y");
    assert_eq!(graph.rewrite(|_, _| Err("no")), Err("no"));
}

#[test]
#[should_panic(expected = "a rule keeps types")]
fn a_rewrite_does_not_change_types() {
    let mut graph = parse("input %x: f32[2]\n%y = cast(%x) {to = f64} : f64[2]\noutput o = %y");
    let _ = graph.rewrite(|graph, _| Ok::<_, Infallible>(Step::Replace(vec![graph.inputs()[0]])));
}

#[test]
fn an_operator_that_does_not_fit_names_its_operands() {
    let mut graph = Graph::new("g");
    let ty = TensorType::new(DType::F32, Shape::new([Dim::symbol("n")]));
    let x = graph.add_input("x", ty, Origin::Config("hidden_size".into()));
    let error = graph.emit(Split { x, axis: 3, sizes: vec![1] }, "parts", Origin::Module("head".into())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`split` at `parts` (module `head`): axis 3 is out of range for f32[n]\n  operand `x`: f32[n] from config key `hidden_size`"
    );
}

#[test]
fn what_cannot_be_set_is_an_error() {
    let mut graph = parse("input %x: f32[2]\nweight @w = dense([1.0, 2.0]) : f32[2]\noutput o = %x");
    let (x, w) = (graph.inputs()[0], graph.weights().next().unwrap().0);
    graph.set_output(0, w).unwrap();
    assert_eq!(statements(&graph)[2..], ["output o = @w"]);
    let message = graph.set_output(1, w).unwrap_err().to_string();
    assert_eq!(message, "there is no output 1 to be set: the graph has 1");

    graph.set_weight(w, Weight::uniform(DType::F32, vec![2], 1).unwrap()).unwrap();
    assert_eq!(statements(&graph)[1..2], ["weight @w = uniform(1) : f32[2]"]);
    let message = graph.set_weight(w, Weight::scalar(DType::F32, 1.0)).unwrap_err().to_string();
    assert_eq!(message, "the weight `w` is f32[2], and f32[] cannot take its place");
    let message = graph.set_weight(x, Weight::scalar(DType::F32, 1.0)).unwrap_err().to_string();
    assert_eq!(message, "`x` is not a weight, and cannot become one");
}

proptest! {
    #[test]
    fn random_graphs_hold_every_invariant(choices in choices()) {
        let mut graph = build(&choices);
        verify(&graph).map_err(|e| TestCaseError::fail(format!("{e}\n{graph}")))?;
        let inputs = |graph: &Graph| graph.inputs().iter().map(|v| graph.value(*v).name.clone()).collect::<Vec<_>>();
        let before = inputs(&graph);
        graph.compact();
        verify(&graph).map_err(|e| TestCaseError::fail(format!("{e}\n{graph}")))?;
        prop_assert_eq!(inputs(&graph), before);
        let text = graph.to_string();
        prop_assert_eq!(graph.compact(), 0);
        prop_assert_eq!(graph.to_string(), text);
        let uses = graph.use_counts();
        let unused: BTreeSet<usize> = graph.weights().map(|w| w.0.index()).filter(|i| uses[*i] == 0).collect();
        prop_assert!(unused.is_empty(), "{} {:?}", graph, unused);
    }
}
