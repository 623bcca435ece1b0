//! Operators of ONNX that pass through, each at a few elements.

use planish_eval::{Tensor, evaluate};
use planish_ir::ops::{Foreign, InnerOperators, Real, Results, Setting, Settings, Text};
use planish_ir::{DType, Graph, Origin, Shape, TensorType};

use crate::{assert_close, numbers, tensor};

/// The results of an operator of opset 18; `types` are those that its node says it has.
pub(crate) fn try_run(
    op: &str,
    settings: &[(&str, Setting)],
    operands: &[Option<&Tensor>],
    types: &[TensorType],
) -> Result<Vec<Tensor>, String> {
    let mut graph = Graph::new("test");
    let mut inputs = Vec::new();
    let mut given = Vec::new();
    for (i, operand) in operands.iter().enumerate() {
        inputs.push(operand.map(|t| {
            given.push((format!("i{i}"), t.clone()));
            graph.add_input(&format!("i{i}"), t.ty(), Origin::Unknown)
        }));
    }
    let foreign = Foreign {
        inputs,
        captured: Vec::new(),
        domain: Text(Foreign::STANDARD.to_owned()),
        op: Text(op.to_owned()),
        version: 18,
        settings: Settings(settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()),
        captures: Vec::new(),
        inner: InnerOperators::default(),
        results: Results(types.iter().cloned().map(|ty| Some(ty.into())).collect()),
    };
    let results = graph.emit(foreign, "r", Origin::Unknown).unwrap();
    for (i, result) in results.into_iter().enumerate() {
        graph.add_output(&format!("o{i}"), result);
    }
    let given: Vec<(&str, Tensor)> = given.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
    let results = evaluate(&graph, &given).map_err(|e| e.to_string())?;
    Ok(results.into_iter().map(|(_, t)| t).collect())
}

/// A type of so many dimensions that the operator determines.
pub(crate) fn open(dtype: DType, rank: usize) -> TensorType {
    TensorType::new(dtype, Shape::new((0..rank).map(|i| planish_ir::Dim::symbol(&format!("d{i}")))))
}

/// The first result, of the first operand's type.
#[track_caller]
fn check(op: &str, settings: &[(&str, Setting)], operands: &[Option<&Tensor>], shape: &[usize], expected: &[f64]) {
    let dtype = operands[0].unwrap().dtype();
    check_as(dtype, op, settings, operands, shape, expected);
}

#[track_caller]
fn check_as(
    dtype: DType,
    op: &str,
    settings: &[(&str, Setting)],
    operands: &[Option<&Tensor>],
    shape: &[usize],
    expected: &[f64],
) {
    let results = try_run(op, settings, operands, &[open(dtype, shape.len())]).unwrap();
    assert_eq!((results[0].dtype(), results[0].shape()), (dtype, shape), "{op}");
    assert_close(&results[0], expected, 1e-6);
}

fn f32(shape: &[usize], values: &[f64]) -> Tensor {
    numbers(DType::F32, shape, values)
}

fn ints(values: &[i64]) -> Tensor {
    tensor(&[values.len()], values.to_vec())
}

fn real(value: f64) -> Setting {
    Setting::Float(Real(value))
}

fn text(value: &str) -> Setting {
    Setting::Bytes(value.as_bytes().into())
}

#[test]
fn functions_of_single_elements() {
    let x = f32(&[4], &[-2.0, -0.5, 0.0, 2.5]);
    let one = |op, settings: &[(&str, Setting)], expected: &[f64]| check(op, settings, &[Some(&x)], &[4], expected);
    one("LeakyRelu", &[("alpha", real(0.5))], &[-1.0, -0.25, 0.0, 2.5]);
    one("Elu", &[], &[-0.864_664_7, -0.393_469_34, 0.0, 2.5]);
    one("HardSigmoid", &[], &[0.1, 0.4, 0.5, 1.0]);
    one("Round", &[], &[-2.0, 0.0, 0.0, 2.0]);
    one("Sign", &[], &[-1.0, -1.0, 0.0, 1.0]);
    one("Softplus", &[], &[0.126_928, 0.474_077, std::f64::consts::LN_2, 2.578_889_7]);
    one("Shrink", &[("lambd", real(1.0)), ("bias", real(0.5))], &[-1.5, 0.0, 0.0, 2.0]);
}

#[test]
fn remainders_have_the_sign_of_the_divisor_or_of_the_dividend() {
    let (a, b) = (ints(&[-4, 7, 5]), ints(&[3, -3, 8]));
    check("Mod", &[], &[Some(&a), Some(&b)], &[3], &[2.0, -2.0, 5.0]);
    check("Mod", &[("fmod", Setting::Int(1))], &[Some(&a), Some(&b)], &[3], &[-1.0, 1.0, 5.0]);
    let error = try_run("Mod", &[], &[Some(&a), Some(&ints(&[0]))], &[open(DType::I64, 1)]).unwrap_err();
    assert!(error.contains("division by zero"), "{error}");
    let (a, b) = (f32(&[4], &[-4.5, 7.0, -6.0, 1.0]), f32(&[4], &[3.0, -3.0, 3.0, -5.0]));
    check("Mod", &[], &[Some(&a), Some(&b)], &[4], &[1.5, -2.0, 0.0, -4.0]);
    check("Mod", &[("fmod", Setting::Int(1))], &[Some(&a), Some(&b)], &[4], &[-1.5, 1.0, 0.0, 1.0]);
}

#[test]
fn bits() {
    let a = tensor(&[2], vec![0b1100u8, 0xff]);
    let b = tensor(&[2], vec![0b1010u8, 1]);
    check("BitwiseAnd", &[], &[Some(&a), Some(&b)], &[2], &[8.0, 1.0]);
    check("BitwiseXor", &[], &[Some(&a), Some(&b)], &[2], &[6.0, 254.0]);
    check("BitwiseNot", &[], &[Some(&a)], &[2], &[243.0, 0.0]);
    check("BitShift", &[("direction", text("LEFT"))], &[Some(&a), Some(&b)], &[2], &[0.0, 254.0]);
}

/// What is shifted past the sign goes, and shifts by less than none or by more than all bits leave the sign alone.
#[test]
fn signed_bits_are_shifted() {
    let (a, b) = (tensor(&[5], vec![-7i8, 100, -7, 7, -128]), tensor(&[5], vec![1i8, 1, 8, -1, 7]));
    let shift = |direction, expected: &[f64]| {
        check("BitShift", &[("direction", text(direction))], &[Some(&a), Some(&b)], &[5], expected);
    };
    shift("LEFT", &[-14.0, -56.0, 0.0, 0.0, 0.0]);
    shift("RIGHT", &[-4.0, 50.0, -1.0, 0.0, -1.0]);
}

#[test]
fn padding_by_each_mode() {
    let (x, pads) = (f32(&[3], &[1.0, 2.0, 3.0]), ints(&[2, 1]));
    let pad = |mode, expected: &[f64]| check("Pad", &[("mode", text(mode))], &[Some(&x), Some(&pads)], &[6], expected);
    pad("constant", &[0.0, 0.0, 1.0, 2.0, 3.0, 0.0]);
    pad("edge", &[1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
    pad("reflect", &[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    pad("wrap", &[2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    check("Pad", &[], &[Some(&x), Some(&ints(&[-1, 0]))], &[2], &[2.0, 3.0]);
}

#[test]
fn slices_with_steps() {
    let x = f32(&[5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
    let slice = |from, to, step, expected: &[f64]| {
        let [from, to, axis, step] = [from, to, 0, step].map(|v| ints(&[v]));
        check("Slice", &[], &[&x, &from, &to, &axis, &step].map(Some), &[expected.len()], expected);
    };
    slice(-1, i64::MIN, -2, &[4.0, 2.0, 0.0]);
    slice(1, 100, 3, &[1.0, 4.0]);
    slice(4, 1, 1, &[]);
    // A slice that goes backward begins at an element.
    slice(-10, -100, -1, &[0.0]);
    slice(i64::MIN, i64::MIN, -2, &[0.0]);
    slice(i64::MAX, -100, -3, &[4.0, 1.0]);
    let [from, to, axis, step] = [-10, -100, 0, -1].map(|v| ints(&[v]));
    check("Slice", &[], &[&f32(&[0], &[]), &from, &to, &axis, &step].map(Some), &[0], &[]);
}

#[test]
fn lengths_below_0_or_beyond_the_axis() {
    let x = f32(&[3, 2], &[0.0; 6]);
    let error = |lengths: &[i64]| {
        try_run("ReverseSequence", &[], &[Some(&x), Some(&ints(lengths))], &[open(DType::F32, 2)]).unwrap_err()
    };
    assert!(error(&[7, -1]).contains("its lengths are [7, -1], expected none below 0"), "{}", error(&[7, -1]));
    let expected = "its lengths are [7, 1], expected 2 of at most 3 each for f32[3, 2]";
    assert!(error(&[7, 1]).contains(expected), "{}", error(&[7, 1]));
}

#[test]
fn elements_by_index() {
    let x = f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let pairs = tensor(&[2, 2], vec![0i64, 0, -1, 1]);
    check("GatherND", &[], &[Some(&x), Some(&pairs)], &[2], &[1.0, 4.0]);
    let rows = tensor(&[2, 1], vec![1i64, 0]);
    check("GatherND", &[], &[Some(&x), Some(&rows)], &[2, 2], &[3.0, 4.0, 1.0, 2.0]);
    check("GatherND", &[("batch_dims", Setting::Int(1))], &[Some(&x), Some(&rows)], &[2], &[2.0, 3.0]);
    let each = tensor(&[1, 2], vec![1i64, 0]);
    check("GatherElements", &[], &[Some(&x), Some(&each)], &[1, 2], &[3.0, 2.0]);
    let updates = f32(&[2], &[10.0, 20.0]);
    check("ScatterND", &[], &[Some(&x), Some(&pairs), Some(&updates)], &[2, 2], &[10.0, 2.0, 3.0, 20.0]);
    let sum = [("reduction", text("add"))];
    check("ScatterND", &sum, &[Some(&x), Some(&pairs), Some(&updates)], &[2, 2], &[11.0, 2.0, 3.0, 24.0]);
    let far = tensor(&[1, 1], vec![2i64]);
    let error = try_run("GatherND", &[], &[Some(&x), Some(&far)], &[open(DType::F32, 2)]).unwrap_err();
    assert!(error.contains("the index 2 is out of range for 2 elements"), "{error}");
}

#[test]
fn order() {
    let x = f32(&[2, 3], &[1.0, 3.0, 3.0, 6.0, 5.0, 4.0]);
    let types = [open(DType::F32, 2), open(DType::I64, 2)];
    let results = try_run("TopK", &[], &[Some(&x), Some(&ints(&[2]))], &types).unwrap();
    assert_eq!(results[0].to_f64(), [3.0, 3.0, 6.0, 5.0]);
    assert_eq!(results[1].to_f64(), [1.0, 2.0, 0.0, 1.0]);
    let along = ("axis", Setting::Int(1));
    check_as(DType::I64, "ArgMax", std::slice::from_ref(&along), &[Some(&x)], &[2, 1], &[1.0, 0.0]);
    check_as(DType::I64, "ArgMax", &[along, ("select_last_index", Setting::Int(1))], &[Some(&x)], &[2, 1], &[2.0, 0.0]);
}

#[test]
fn reductions() {
    let x = f32(&[2, 2], &[1.0, -2.0, 3.0, 4.0]);
    let last = ints(&[-1]);
    let reduce = |op, expected: &[f64]| check(op, &[], &[Some(&x), Some(&last)], &[2, 1], expected);
    reduce("ReduceProd", &[-2.0, 12.0]);
    reduce("ReduceL1", &[3.0, 7.0]);
    reduce("ReduceLogSumExp", &[1.048_587_4, 4.313_261_7]);
    check("ReduceProd", &[("keepdims", Setting::Int(0))], &[Some(&x)], &[], &[-24.0]);
    check("LogSoftmax", &[], &[Some(&x)], &[2, 2], &[-0.048_587_35, -3.048_587_3, -1.313_261_7, -0.313_261_69]);
    check(
        "CumProd",
        &[("reverse", Setting::Int(1))],
        &[Some(&x), Some(&ints(&[1]))],
        &[2, 2],
        &[-2.0, -2.0, 12.0, 4.0],
    );
}

/// One channel of 3 x 3, and windows of 2 x 2.
#[test]
fn windows_that_move() {
    let x = f32(&[1, 1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let filter = f32(&[1, 1, 2, 2], &[1.0, 0.0, 0.0, -1.0]);
    let bias = f32(&[1], &[10.0]);
    let conv = [Some(&x), Some(&filter), Some(&bias)];
    check("Conv", &[], &conv, &[1, 1, 2, 2], &[6.0; 4]);
    let padded = [("pads", Setting::Ints(vec![1, 1, 0, 0])), ("strides", Setting::Ints(vec![2, 2]))];
    check("Conv", &padded, &conv, &[1, 1, 2, 2], &[9.0, 7.0, 3.0, 6.0]);
    let kernel = ("kernel_shape", Setting::Ints(vec![2, 2]));
    check("AveragePool", std::slice::from_ref(&kernel), &[Some(&x)], &[1, 1, 2, 2], &[3.0, 4.0, 6.0, 7.0]);
    let types = [open(DType::F32, 4), open(DType::I64, 4)];
    let results = try_run("MaxPool", &[kernel], &[Some(&x)], &types).unwrap();
    assert_eq!(results[0].to_f64(), [5.0, 6.0, 8.0, 9.0]);
    assert_eq!(results[1].to_f64(), [4.0, 5.0, 7.0, 8.0]);
    let one = f32(&[1, 1, 1, 2], &[1.0, 2.0]);
    check("ConvTranspose", &[], &[Some(&one), Some(&filter)], &[1, 1, 2, 3], &[1.0, 2.0, 0.0, 0.0, -1.0, -2.0]);
}

#[test]
fn resized_rows() {
    let x = f32(&[1, 1, 1, 2], &[1.0, 3.0]);
    let scales = f32(&[4], &[1.0, 1.0, 1.0, 2.0]);
    let operands = [Some(&x), None, Some(&scales)];
    check("Resize", &[("mode", text("linear"))], &operands, &[1, 1, 1, 4], &[1.0, 1.5, 2.5, 3.0]);
    let corners = [("mode", text("linear")), ("coordinate_transformation_mode", text("align_corners"))];
    check("Resize", &corners, &operands, &[1, 1, 1, 4], &[1.0, 5.0 / 3.0, 7.0 / 3.0, 3.0]);
    let floor = [("coordinate_transformation_mode", text("asymmetric")), ("nearest_mode", text("floor"))];
    check("Resize", &floor, &operands, &[1, 1, 1, 4], &[1.0, 1.0, 3.0, 3.0]);
}

#[test]
fn quantization_rounds_to_even_and_saturates() {
    let x = f32(&[4], &[0.5, 1.5, -300.0, 300.0]);
    let (scale, zero) = (f32(&[], &[1.0]), tensor(&[], vec![10i8]));
    let operands = [Some(&x), Some(&scale), Some(&zero)];
    check_as(DType::I8, "QuantizeLinear", &[], &operands, &[4], &[10.0, 12.0, -128.0, 127.0]);
    let stored = tensor(&[2], vec![12i8, -128]);
    let half = f32(&[], &[0.5]);
    check_as(DType::F32, "DequantizeLinear", &[], &[Some(&stored), Some(&half), Some(&zero)], &[2], &[1.0, -69.0]);
}

/// Two queries, two keys; the second key lies after the first query.
#[test]
fn causal_attention() {
    let q = f32(&[1, 1, 2, 1], &[1.0, 0.0]);
    let k = f32(&[1, 1, 2, 1], &[1.0, 2.0]);
    let v = f32(&[1, 1, 2, 1], &[10.0, 20.0]);
    let operands = [Some(&q), Some(&k), Some(&v)];
    check("Attention", &[("is_causal", Setting::Int(1))], &operands, &[1, 1, 2, 1], &[10.0, 15.0]);
    let error = try_run("Attention", &[("novelty", Setting::Int(1))], &operands, &[open(DType::F32, 4)]).unwrap_err();
    assert!(error.contains("its attribute `novelty` is not known"), "{error}");
    // No key is seen: the row is zero, not undefined.
    let mask = tensor(&[2, 2], vec![false, false, true, false]);
    let masked = [Some(&q), Some(&k), Some(&v), Some(&mask)];
    check("Attention", &[], &masked, &[1, 1, 2, 1], &[0.0, 10.0]);
}

#[test]
fn what_the_graph_says_of_a_result_holds() {
    let x = f32(&[2], &[1.0, 0.0]);
    let says = TensorType::new(DType::I64, Shape::of(&[1, 2]));
    let error = try_run("NonZero", &[], &[Some(&x)], &[says]).unwrap_err();
    assert!(error.contains("a result is i64[1, 1], expected i64[1, 2]"), "{error}");
    let error = try_run("Strange", &[], &[Some(&x)], &[open(DType::F32, 1)]).unwrap_err();
    assert!(
        error.contains("`Strange`: the reference interpreter does not compute this operator of ai.onnx"),
        "{error}"
    );
}

/// Results that no memory holds are an error before they are made.
#[test]
fn results_beyond_memory() {
    let x = f32(&[1], &[1.0]);
    let error = try_run("Tile", &[], &[Some(&x), Some(&ints(&[1 << 60]))], &[open(DType::F32, 1)]).unwrap_err();
    assert!(error.contains("does not fit in memory"), "{error}");
    let error = try_run("ConstantOfShape", &[], &[Some(&ints(&[i64::MAX, 4]))], &[open(DType::F32, 2)]).unwrap_err();
    assert!(error.contains("does not fit in memory"), "{error}");
}

/// Elements of 4 bits and of float8 are held in the next wider type.
#[test]
fn dequantizing_what_is_only_stored() {
    let source = r#"graph "g" {
      input %scale: f32[]
      weight @q = dense([-8.0, 7.0, 3.0]) : i4[3]
      weight @z = dense([1.0]) : i4[]
      weight @f = dense([448.0, -0.5]) : f8e4m3fn[2]
      %y = foreign([@q, %scale, @z], []) {domain = "ai.onnx", op = "DequantizeLinear", version = 21, captures = [], results = [f32[3]]} : f32[3]
      %u = foreign([@f, %scale], []) {domain = "ai.onnx", op = "DequantizeLinear", version = 21, captures = [], results = [f32[2]]} : f32[2]
      %r = foreign([%y, %scale, @z], []) {domain = "ai.onnx", op = "QuantizeLinear", version = 21, captures = [], results = [i4[3]]} : i4[3]
      output y = %y
      output u = %u
      output r = %r
    }"#;
    let graph = planish_ir::text::parse(source, &planish_ir::text::no_files).unwrap();
    let scale = Tensor::new(Vec::new(), vec![0.5f32]).unwrap();
    let results = planish_eval::evaluate(&graph, &[("scale", scale)]).unwrap();
    let numbers: Vec<Vec<f64>> = results.iter().map(|(_, t)| t.to_f64()).collect();
    assert_eq!(numbers, [vec![-4.5, 3.0, 1.0], vec![224.0, -0.25], vec![-8.0, 7.0, 3.0]]);
    assert_eq!(results[2].1.dtype(), DType::I8);

    let text = r#"graph "g" {
      weight @words = text(["a"]) : string[1]
      output y = @words
    }"#;
    let graph = planish_ir::text::parse(text, &planish_ir::text::no_files).unwrap();
    let error = planish_eval::evaluate(&graph, &[]).unwrap_err().to_string();
    assert!(error.contains("planish cannot compute with elements of type string"), "{error}");
}

/// A signal's transform and back is the signal, whole and by one half of it; a transform is its sums.
#[test]
fn fourier_transforms() {
    let x = f32(&[1, 5, 1], &[1.0, -2.0, 0.5, 3.0, 4.0]);
    let axis = tensor(&[], vec![1i64]);
    let run = |x: &Tensor, length: Option<i64>, settings: &[(&str, i64)]| {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, Setting::Int(*value))).collect();
        let length = length.map(|n| tensor(&[], vec![n]));
        let all: Vec<_> = settings.into_iter().chain([("axis", Setting::Int(1))]).collect();
        let given = [Some(x), length.as_ref(), Some(&axis)];
        try_run("DFT", &all, &given, &[open(DType::F32, 3)]).unwrap().remove(0)
    };
    let whole = run(&x, None, &[]);
    assert_eq!(whole.shape(), [1, 5, 2]);
    let angle = |k: usize, t: usize| 2.0 * std::f64::consts::PI * (k * t) as f64 / 5.0;
    let sums = (0..5).flat_map(|k| {
        let sum = |f: fn(f64) -> f64| x.to_f64().iter().enumerate().map(|(t, v)| v * f(angle(k, t))).sum::<f64>();
        [sum(f64::cos), -sum(f64::sin)]
    });
    assert_close(&whole, &sums.collect::<Vec<_>>(), 1e-6);
    let half = run(&x, None, &[("onesided", 1)]);
    assert_eq!(half.to_f64(), whole.to_f64()[..6]);
    let back = run(&whole, None, &[("inverse", 1)]);
    let real: Vec<f64> = back.to_f64().chunks(2).map(|v| v[0]).collect();
    assert_close(&f32(&[5], &real), &x.to_f64(), 1e-6);
    let back = run(&half, Some(5), &[("inverse", 1), ("onesided", 1)]);
    assert_eq!(back.shape(), [1, 5, 1]);
    assert_close(&back, &x.to_f64(), 1e-6);
    // Zeros are appended, or the signal cut.
    assert_eq!(run(&x, Some(8), &[]).shape(), [1, 8, 2]);
    // The sine of half a turn is not quite 0.
    assert_close(&run(&x, Some(2), &[]), &[-1.0, 0.0, 3.0, 0.0], 1e-6);
}

#[test]
fn unique_elements_and_rows() {
    let x = f32(&[3, 2], &[2.0, 1.0, -0.0, f64::NAN, 2.0, 1.0]);
    let run = |settings: &[(&str, Setting)], rank| {
        let ints = |_| open(DType::I64, 1);
        let types: Vec<_> = [open(DType::F32, rank)].into_iter().chain((0..3).map(ints)).collect();
        try_run("Unique", settings, &[Some(&x)], &types).unwrap()
    };
    let found = run(&[], 1);
    assert_eq!(found[0].to_f64()[..3], [0.0, 1.0, 2.0]);
    assert!(found[0].to_f64()[3].is_nan());
    assert_eq!(found[1..], [ints(&[2, 1, 0, 3]), ints(&[2, 1, 0, 3, 2, 1]), ints(&[1, 2, 2, 1])]);
    let found = run(&[("sorted", Setting::Int(0)), ("axis", Setting::Int(0))], 2);
    assert_eq!(found[0].to_f64()[..3], [2.0, 1.0, 0.0]);
    assert_eq!(found[1..], [ints(&[0, 1]), ints(&[0, 1, 0]), ints(&[2, 1])]);
}
