use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use planish_eval::{Tensor, evaluate, evaluate_op, evaluate_with};
use planish_ir::ops::{Binary, BinaryKind, Reshape};
use planish_ir::{Bindings, DType, Dim, Graph, Op, Shape, Symbol, ValueId, WeightSource, text};

use crate::{graph, random, tensor};

/// A transformer layer with every operator whose work is shared between threads.
fn layer() -> Graph {
    graph(
        "input %ids: i64[batch, seq]
         input %mask: bool[batch, seq]
         weight @table = uniform(1) : f32[50, 32]
         weight @wq = uniform(2) : f32[32, 32]
         weight @up = uniform(3) : f32[128, 32]
         weight @down = uniform(4) : f32[32, 128]
         weight @scale = uniform(5) : f32[32]
         weight @bias = uniform(6) : f32[128]
         %x = embedding(@table, %ids) : f32[batch, seq, 32]
         %q = linear(%x, @wq) : f32[batch, seq, 32]
         %a = attention(%q, %x, %x, mask: %mask) {heads = 4, scale = 0.35} : f32[batch, seq, 32]
         %s = add(%x, %a) : f32[batch, seq, 32]
         %n = layer_norm(%s, @scale) {eps = 1e-12} : f32[batch, seq, 32]
         %h = linear(%n, @up, bias: @bias) : f32[batch, seq, 128]
         %g = gelu(%h) {form = erf} : f32[batch, seq, 128]
         %y = linear(%g, @down) : f32[batch, seq, 32]
         %t = transpose(%y) {perm = [0, 2, 1]} : f32[batch, 32, seq]
         %m = matmul(%y, %t) : f32[batch, seq, seq]
         %p = softmax(%m) : f32[batch, seq, seq]
         output y = %y
         output p = %p",
    )
}

fn layer_inputs(batch: usize, seq: usize) -> [(&'static str, Tensor); 2] {
    let ids: Vec<i64> = (0..50).cycle().take(batch * seq).collect();
    let mask = (0..batch * seq).map(|i| i % seq <= seq / 2 + i / seq).collect::<Vec<bool>>();
    [("ids", tensor(&[batch, seq], ids)), ("mask", tensor(&[batch, seq], mask))]
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| evaluate(&layer(), &layer_inputs(3, 150))).unwrap()
    };
    let one = on(1);
    assert!(one.iter().all(|(_, t)| t.to_f64().iter().all(|v| v.is_finite())));
    for threads in [2, 3, 8] {
        assert_eq!(on(threads), one);
    }
}

#[test]
fn a_row_of_a_batch_is_the_row_alone() {
    let [(_, ids), (_, mask)] = layer_inputs(2, 12);
    let both = evaluate(&layer(), &[("ids", ids.clone()), ("mask", mask.clone())]).unwrap();
    for row in 0..2 {
        let ids = tensor(&[1, 12], ids.as_i64().unwrap()[row * 12..(row + 1) * 12].to_vec());
        let mask = tensor(&[1, 12], mask.as_bool().unwrap()[row * 12..(row + 1) * 12].to_vec());
        let alone = evaluate(&layer(), &[("ids", ids), ("mask", mask)]).unwrap();
        for ((_, both), (_, alone)) in both.iter().zip(&alone) {
            let (both, alone) = (both.to_f64(), alone.to_f64());
            let part = &both[row * alone.len()..(row + 1) * alone.len()];
            assert!(part.iter().zip(&alone).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0)));
        }
    }
}

#[test]
fn watching_sees_inputs_and_results_in_order() {
    let graph = graph(
        "input %x: f32[2]
         weight @w = dense([1.0, 2.0]) : f32[2]
         %y = add(%x, @w) : f32[2]
         %dead = relu(%x) : f32[2]
         %z = mul(%y, %y) : f32[2]
         output z = %z
         output again = %z
         output x = %x
         output w = @w",
    );
    let mut seen = Vec::new();
    let x = tensor(&[2], vec![1f32, 1.0]);
    let outputs = evaluate_with(&graph, &[("x", x.clone())], &mut |id, tensor| {
        seen.push((graph.value(id).name.clone(), tensor.to_f64()));
    })
    .unwrap();
    let expected = [("x", [1.0, 1.0]), ("y", [2.0, 3.0]), ("z", [4.0, 9.0])];
    assert_eq!(seen, expected.map(|(name, v)| (name.to_owned(), v.to_vec())));
    let z = tensor(&[2], vec![4f32, 9.0]);
    let named = [("z", z.clone()), ("again", z), ("x", x), ("w", tensor(&[2], vec![1f32, 2.0]))];
    assert_eq!(outputs, named.map(|(name, t)| (name.to_owned(), t)));
}

/// Zeros or a failure, and a note of each read.
#[derive(Debug, Default)]
struct Noted {
    reads: Mutex<Vec<u64>>,
    fails: bool,
}

impl WeightSource for Noted {
    fn name(&self) -> &str {
        "noted"
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.lock().unwrap().push(offset);
        buffer.fill(0);
        if self.fails { Err(io::Error::other("the file is gone")) } else { Ok(()) }
    }
    fn file_path(&self) -> Option<&Path> {
        None
    }
}

fn stored(source: &Arc<Noted>) -> Graph {
    let text = "graph \"t\" {
        input %x: f32[2]
        weight @unused = stored(\"noted\", 0) : f32[2]
        weight @late = stored(\"noted\", 8) : f32[2]
        weight @early = stored(\"noted\", 16) : f32[2]
        %dead = add(%x, @unused) : f32[2]
        %a = add(%x, @early) : f32[2]
        %b = add(%a, @late) : f32[2]
        %c = add(%b, @early) : f32[2]
        output c = %c
    }";
    text::parse(text, &|_| Ok(Arc::clone(source) as Arc<dyn WeightSource>)).unwrap()
}

#[test]
fn weights_are_read_once_when_first_needed() {
    let source = Arc::new(Noted::default());
    let graph = stored(&source);
    let mut seen = Vec::new();
    evaluate_with(&graph, &[("x", tensor(&[2], vec![1f32, 2.0]))], &mut |_, _| {
        seen.push(source.reads.lock().unwrap().clone());
    })
    .unwrap();
    assert_eq!(seen, [vec![], vec![16], vec![16, 8], vec![16, 8]]);
}

#[test]
fn a_weight_that_cannot_be_read_is_named() {
    let source = Arc::new(Noted { fails: true, ..Noted::default() });
    let error = evaluate(&stored(&source), &[("x", tensor(&[2], vec![1f32, 2.0]))]).unwrap_err().to_string();
    assert_eq!(error, "weight `early` (unknown origin): cannot read 8 bytes at offset 16 of noted: the file is gone");
}

#[test]
fn sizes_in_attributes_follow_the_inputs() {
    let graph = graph(
        "input %x: f32[batch, seq, 6]
         %h = reshape(%x) {shape = [batch, seq, 2, 3]} : f32[batch, seq, 2, 3]
         %last = slice(%h) {axis = 1, start = seq - 1, end = seq} : f32[batch, 1, 2, 3]
         %e = expand(%last) {shape = [batch, seq, 2, 3]} : f32[batch, seq, 2, 3]
         %i = iota() {dtype = i64, length = batch*seq} : i64[batch*seq]
         output e = %e
         output i = %i",
    );
    let outputs = evaluate(&graph, &[("x", random(DType::F32, &[2, 3, 6], 1))]).unwrap();
    assert_eq!(outputs[0].1.shape(), [2, 3, 2, 3]);
    assert_eq!(outputs[1].1, tensor(&[6], (0..6).collect::<Vec<i64>>()));
    let error = evaluate(&graph, &[("x", random(DType::F32, &[2, 0, 6], 1))]).unwrap_err().to_string();
    assert_eq!(error, "at `last` (unknown origin): `slice`: -1..0 is out of range for axis 1 of f32[2, 0, 2, 3]");
}

#[test]
fn one_operator_without_a_graph() {
    let source = graph("input %a: f32[n, 2]\ninput %b: f32[n, 2]\noutput a = %a");
    let [a, b]: [ValueId; 2] = source.inputs().try_into().unwrap();
    let (x, y) = (tensor(&[1, 2], vec![1f32, 2.0]), tensor(&[1, 2], vec![10f32, 20.0]));
    let operand = |v: ValueId| if v == a { &x } else { &y };
    let add = Op::from(Binary { kind: BinaryKind::Add, a, b });
    assert_eq!(evaluate_op(&add, &operand, &Bindings::new()).unwrap(), [tensor(&[1, 2], vec![11f32, 22.0])]);

    let flat = Op::from(Reshape { x: a, shape: Shape::new([Dim::symbol("size")]) });
    let size = |n| Bindings::from([(Symbol::new("size"), n)]);
    assert_eq!(evaluate_op(&flat, &operand, &size(2)).unwrap(), [tensor(&[2], vec![1f32, 2.0])]);
    let error = |bindings| evaluate_op(&flat, &operand, &bindings).unwrap_err().to_string();
    assert_eq!(error(size(3)), "`reshape`: f32[1, 2] has 2 elements, [3] has 3");
    assert_eq!(error(Bindings::new()), "`reshape`: symbol `size` of dimension `size` has no value");

    let ill_typed = tensor(&[1, 2], vec![1i64, 2]);
    let operand = |v: ValueId| if v == a { &x } else { &ill_typed };
    let error = evaluate_op(&add, &operand, &Bindings::new()).unwrap_err().to_string();
    assert_eq!(error, "`add`: `a` is f32[1, 2] and `b` is i64[1, 2], expected one element type");
}
