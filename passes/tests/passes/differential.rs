//! Random graphs mean the same after every pass and after every pipeline. Cases that a target has no kernels for are
//! left out and counted: each test asserts how many they are.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_eval::Tensor;
use planish_ir::ops::{Cast, ReduceKind, UnaryKind};
use planish_ir::{BuildError, DType, Graph, Op, Step, TensorType, ValueId, Weight, verify};
use planish_passes::observe::is_observer;
use planish_passes::precision::HALVE;
use planish_passes::{
    CUDA, Half, HalfPrecision, ONNX, ORT, ORT_CUDA, Options, PASSES, Padding, PassError, Pipeline, TARGETS, TRT, Target,
};
use planish_testing::evaluation::{allowed, difference, inputs, tolerance};
use planish_testing::random_graph::{build, choices};
use proptest::prelude::*;

use crate::support::outputs;

const OPSETS: [u32; 3] = [17, 20, 24];

// The graphs differ from seed to seed: the shares were 0.65, 0.27, 0.57 and 0.21, and these bounds hold for each seed.
const SHARE_REFUSED: RangeInclusive<f64> = 0.56..=0.75;
const SHARES_WITHOUT_KERNELS: [RangeInclusive<f64>; 3] = [0.2..=0.35, 0.0..=0.35, 0.0..=0.35];
const SHARE_CHANGED: RangeInclusive<f64> = 0.48..=0.66;
const SHARE_LEFT_OUT: RangeInclusive<f64> = 0.14..=0.29;

fn options() -> impl Iterator<Item = Options> {
    let padding = Padding { vocabulary: Some(3), features: Some(4), ..Padding::default() };
    TARGETS.iter().flat_map(move |&target| {
        // A target that runs the graph itself asks for no opset.
        let opsets = if target.fuses { &OPSETS[..1] } else { &OPSETS };
        opsets.iter().flat_map(move |&opset| {
            [true, false].map(|fusion| Options { fusion, padding, ..Options::new(target, opset) })
        })
    })
}

/// The targets that have no kernels for some graphs: the first for the forms of later opsets, the others for float64.
static LACKING: [&Target; 3] = [&ORT_CUDA, &TRT, &CUDA];

/// Checks that a graph still has its interface, its invariants and its meaning.
fn check(before: &Graph, after: &Graph, seed: u64) -> Result<(), String> {
    verify(after).map_err(|e| e.to_string())?;
    let names = |graph: &Graph| graph.inputs().iter().map(|v| graph.value(*v).name.clone()).collect::<Vec<_>>();
    if names(before) != names(after) {
        return Err(format!("inputs were {:?}, are {:?}", names(before), names(after)));
    }
    let types = |graph: &Graph| {
        let own = graph.outputs().iter().filter(|o| !is_observer(&o.name));
        own.map(|o| graph.ty(o.value).clone()).collect::<Vec<_>>()
    };
    if types(before) != types(after) {
        return Err(format!("types of outputs were {:?}, are {:?}", types(before), types(after)));
    }
    let inputs = inputs(before, seed);
    let expected = outputs(before, &inputs).map_err(|e| format!("before: {e}"))?;
    // Evaluation rounds each value to its type: what cancels is as far off as what entered, which is about 1.
    match difference(tolerance(before), 1.0, &expected, &outputs(after, &inputs)?) {
        Some(difference) => Err(difference),
        None => Ok(()),
    }
}

/// The only pass that refuses graphs that are not lowered: canonical operators have no kernels.
const CHECK: &str = "check-kernels";

/// Applies each pass alone, twice; returns how many refused the graph.
fn passes(graph: &Graph, options: Options, seed: u64) -> Result<usize, String> {
    let mut refused = 0;
    for pass in PASSES {
        let fail = |e: String, after: &Graph| format!("`{}` with {options:?}: {e}\n{after}", pass.name);
        let mut after = graph.clone();
        match pass.apply(&mut after, &options) {
            Err(PassError::Unsupported { .. }) if pass.name == CHECK => {
                refused += 1;
                continue;
            }
            result => drop(result.map_err(|e| fail(e.to_string(), &after))?),
        };
        check(graph, &after, seed).map_err(|e| fail(e, &after))?;
        let mut again = after.clone();
        let changed = pass.apply(&mut again, &options).map_err(|e| fail(e.to_string(), &again))?.changed;
        if changed > 0 || again.to_string() != after.to_string() {
            return Err(fail(format!("run again, it reports {changed} changes of the graph to\n{again}from"), &after));
        }
    }
    Ok(refused)
}

/// Applies a pipeline, verifying after each pass; returns whether the target has kernels for the graph.
fn pipeline(graph: &Graph, options: Options, seed: u64) -> Result<bool, String> {
    let mut after = graph.clone();
    let mut pipeline = Pipeline::new(options.clone());
    pipeline.verify = true;
    let fail = |e: String, after: &Graph| format!("the pipeline with {options:?}: {e}\n{after}");
    match pipeline.run(&mut after, &mut |_, _| {}) {
        Err(PassError::Unsupported { target, .. }) if LACKING.contains(&target) => return Ok(false),
        result => result.map_err(|e| fail(e.to_string(), &after))?,
    };
    check(graph, &after, seed).map_err(|e| fail(e, &after))?;
    Ok(true)
}

/// The types of the outputs.
fn types(graph: &Graph) -> Vec<TensorType> {
    graph.outputs().iter().map(|o| graph.ty(o.value).clone()).collect()
}

/// Whether a float that is off by little can change a result by much: a number that rounds up to 1 is another integer.
fn jumps(graph: &Graph) -> bool {
    let is_float = |value: ValueId| graph.ty(value).dtype.is_float();
    graph.nodes().any(|(_, node)| match &node.op {
        Op::Cast(cast) => is_float(cast.x) && !cast.to.is_float(),
        Op::Unary(unary) => matches!(unary.kind, UnaryKind::Floor | UnaryKind::Ceil),
        Op::Binary(binary) => binary.kind.is_predicate() && is_float(binary.a),
        // The terms of a long sum may cancel, and their errors need not.
        Op::Reduce(reduce) => reduce.kind == ReduceKind::Sum && reduce.axes.len() > 1,
        _ => false,
    })
}

/// What half precision does to the numbers of a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Halved {
    Same,
    Changed,
    /// They are not compared: the graph [`jumps`].
    LeftOut,
}

/// Brings a graph to half precision, alone and in a pipeline: its interface and its invariants stay, and it computes.
/// Integers and booleans stay as they are, and floats are as near as the half type allows.
///
/// Of some 19,000 floats in random graphs none was off by more than 60 % of what is allowed for one graph in that type
/// (2.3e-3 in float16, 1.7e-2 in bfloat16, relative to the largest of a tensor or to 1). Twice what is allowed is far
/// from that, and far from what a wrong operator gives. In a few deep chains of layers and norms, rounding alone comes to
/// more: what they may be off follows from what rounding each number once does to the outputs of the graph, see [`spread`].
fn halving(graph: &Graph, half: Half, target: &'static Target, seed: u64) -> Result<Halved, String> {
    let options = Options { precision: Some(HalfPrecision::new(half).into()), ..Options::new(target, 20) };
    let mut halved = graph.clone();
    let fail = |e: String, after: &Graph| format!("{half} for {target}: {e}\n{after}");
    (HALVE.run)(&mut halved, &options).map_err(|e| fail(e.to_string(), &halved))?;
    verify(&halved).map_err(|e| fail(e.to_string(), &halved))?;
    let mut lowered = graph.clone();
    let mut pipeline = Pipeline::new(options);
    pipeline.verify = true;
    pipeline.run(&mut lowered, &mut |_, _| {}).map_err(|e| fail(e.to_string(), &lowered))?;
    let inputs = inputs(graph, seed);
    let expected = outputs(graph, &inputs)?;
    let (compared, mut changed) = (!jumps(graph), false);
    for after in [&halved, &lowered] {
        if types(graph) != types(after) {
            return Err(fail(format!("types of outputs were {:?}, are {:?}", types(graph), types(after)), after));
        }
        let found = outputs(after, &inputs).map_err(|e| fail(e, after))?;
        if compared {
            no_further(graph, half, &inputs, &expected, &found).map_err(|e| fail(e, after))?;
        }
        changed |= found != expected;
    }
    Ok(match (compared, changed) {
        (false, _) => Halved::LeftOut,
        (true, true) => Halved::Changed,
        (true, false) => Halved::Same,
    })
}

/// How many times as far as rounding alone brings them outputs may be off. Of 46 seeds with 1500 graphs each, three have
/// graphs that come to this, and the most is 2.0.
const SPREADS: f64 = 3.0;

/// Checks that floats are not further off than twice what is allowed for one graph, or than rounding explains.
fn no_further(
    graph: &Graph,
    half: Half,
    inputs: &BTreeMap<String, Tensor>,
    expected: &[(String, Tensor)],
    found: &[(String, Tensor)],
) -> Result<(), String> {
    let beyond = |a, b| difference(2.0 * allowed(half.dtype()), 1.0, slice::from_ref(a), slice::from_ref(b));
    if expected.iter().zip(found).all(|(a, b)| beyond(a, b).is_none()) {
        return Ok(());
    }
    for ((a, b), spread) in expected.iter().zip(found).zip(spread(graph, half, inputs)?) {
        let Some(difference) = beyond(a, b) else { continue };
        let off = distance(&a.1, &b.1);
        if !spread.is_finite() || off > SPREADS * spread {
            return Err(format!("{difference}; off by {off:.1e}, and rounding alone explains {spread:.1e}"));
        }
    }
    Ok(())
}

/// How far outputs are off where each float is rounded to a half type once, and nothing else changes: the numbers are as
/// far off as the graph makes them of its operators' errors. The largest distance of each output, of several runs whose
/// inputs differ by no more than rounding, so that each rounds otherwise.
fn spread(graph: &Graph, half: Half, inputs: &BTreeMap<String, Tensor>) -> Result<Vec<f64>, String> {
    let mut rounded = graph.clone();
    let done = rounded.rewrite(|graph, node| {
        let (mut op, first) = (graph.node(node).op.clone(), graph.node(node).outputs[0]);
        op.visit_operands_mut(&mut |operand| {
            let weight = graph.weight(*operand).filter(|weight| weight.dtype() == DType::F32);
            if let Some(rounded) = weight.and_then(|weight| weight.cast(half.dtype())?.cast(DType::F32)) {
                *operand = graph.weight_like(rounded, *operand);
            }
        });
        let results = graph.emit_all(op, first)?;
        let round = |value| match graph.type_of(value).as_tensor().is_some_and(|ty| ty.dtype == DType::F32) {
            true => {
                let x = graph.part(Cast { x: value, to: half.dtype() }, value)?;
                graph.part(Cast { x, to: DType::F32 }, value)
            }
            false => Ok(value),
        };
        Ok::<_, BuildError>(Step::Replace(results.into_iter().map(round).collect::<Result<_, _>>()?))
    });
    done.map_err(|e| e.to_string())?;
    let mut most = vec![0f64; graph.outputs().len()];
    for seed in 0..RUNS {
        let inputs = inputs.iter().map(|(name, tensor)| (name.clone(), nearly(tensor, half, seed))).collect();
        let (exact, rounded) = (outputs(graph, &inputs)?, outputs(&rounded, &inputs)?);
        let far = exact.iter().zip(&rounded).map(|(a, b)| distance(&a.1, &b.1));
        most.iter_mut().zip(far).for_each(|(most, far)| *most = most.max(far));
    }
    Ok(most)
}

/// How many runs show what rounding does.
const RUNS: u64 = 8;

/// Each float changed by no more than the rounding of a half type.
fn nearly(tensor: &Tensor, half: Half, seed: u64) -> Tensor {
    if !tensor.dtype().is_float() {
        return tensor.clone();
    }
    let shape = tensor.shape().to_vec();
    let changes = Weight::uniform(DType::F64, shape.clone(), seed).unwrap().read_numbers().unwrap();
    let unit = match half {
        Half::F16 => 2f64.powi(-11),
        Half::Bf16 => 2f64.powi(-8),
    };
    let numbers = tensor.to_f64().into_iter().zip(changes);
    let changed: Vec<f64> = numbers.map(|(number, change)| number * (1.0 + unit * change)).collect();
    Tensor::from_f64(tensor.dtype(), shape, &changed).unwrap()
}

/// The largest distance between the elements of two tensors: infinite where one of them alone is not a number.
fn distance(a: &Tensor, b: &Tensor) -> f64 {
    let of = |(a, b): (f64, f64)| match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false if a.is_nan() || b.is_nan() => f64::INFINITY,
        false => (a - b).abs(),
    };
    a.to_f64().into_iter().zip(b.to_f64()).map(of).fold(0.0, f64::max)
}

/// How many random graphs a test takes.
const CASES: u32 = 1500;

fn config() -> ProptestConfig {
    ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() }
}

/// Asserts that a count is a share of all that are counted.
#[track_caller]
fn assert_share(what: &str, count: AtomicUsize, all: usize, share: RangeInclusive<f64>) {
    let found = count.into_inner() as f64 / all as f64;
    assert!(share.contains(&found), "{what}: {found:.3} of {all}, expected {share:?}");
}

fn count(counter: &AtomicUsize, more: usize) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Of random graphs, the passes that fuse make every operator that they make.
#[test]
fn every_fused_operator_is_made() {
    let counts: Mutex<BTreeMap<&'static str, usize>> = Mutex::default();
    proptest!(ProptestConfig { cases: 400, ..config() }, |(choices in choices())| {
        let mut graph = build(&choices);
        let run = Pipeline::new(Options::new(&CUDA, 20)).run(&mut graph, &mut |_, _| {});
        if run.is_ok() {
            let fused = graph.nodes().filter(|(_, node)| node.op.is_fused()).map(|(_, node)| node.op.mnemonic());
            fused.for_each(|mnemonic| *counts.lock().unwrap().entry(mnemonic).or_default() += 1);
        }
    });
    let counts = counts.into_inner().unwrap();
    for mnemonic in ["fused_linear", "gated", "add_norm", "embedding_norm", "rotary_append"] {
        assert!(counts.get(mnemonic).is_some_and(|count| *count >= 10), "{mnemonic}: {counts:?}");
    }
}

#[test]
fn each_pass_keeps_the_meaning() {
    let refused = AtomicUsize::new(0);
    let options = options().collect::<Vec<_>>();
    proptest!(config(), |(choices in choices(), options in prop::sample::select(options), seed in any::<u64>())| {
        let graph = build(&choices);
        let result = passes(&graph, options, seed);
        count(&refused, result.map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{graph}")))?);
    });
    assert_share("graphs that `check-kernels` refuses", refused, CASES as usize, SHARE_REFUSED);
}

#[test]
fn each_pipeline_keeps_the_meaning() {
    let without = LACKING.map(|_| AtomicUsize::new(0));
    proptest!(config(), |(choices in choices(), seed in any::<u64>())| {
        let graph = build(&choices);
        for options in options() {
            let lacking = LACKING.iter().position(|target| *target == options.target);
            let done = pipeline(&graph, options, seed);
            let done = done.map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{graph}")))?;
            if let (Some(lacking), false) = (lacking, done) {
                count(&without[lacking], 1);
            }
        }
    });
    let all = CASES as usize * OPSETS.len() * 2;
    for ((target, count), share) in LACKING.iter().zip(without).zip(SHARES_WITHOUT_KERNELS) {
        assert_share(&format!("graphs that `{target}` has no kernels for"), count, all, share);
    }
}

#[test]
fn each_graph_can_be_halved() {
    let (changed, left_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let precisions = [(Half::F16, &ONNX), (Half::Bf16, &ONNX), (Half::F16, &ORT)];
    proptest!(config(), |(choices in choices(), seed in any::<u64>())| {
        let graph = build(&choices);
        for (half, target) in precisions {
            let done = halving(&graph, half, target, seed);
            let done = done.map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{graph}")))?;
            count(&changed, usize::from(done == Halved::Changed));
            count(&left_out, usize::from(done == Halved::LeftOut));
        }
    });
    let all = CASES as usize * precisions.len();
    assert_share("graphs whose numbers half precision changes", changed, all, SHARE_CHANGED);
    assert_share("graphs that are not compared, for they jump", left_out, all, SHARE_LEFT_OUT);
}
