//! Random graphs mean the same after every pass and after every pipeline.

use planish_ir::{Graph, TensorType, verify};
use planish_passes::observe::observed;
use planish_passes::precision::HALVE;
use planish_passes::{
    Half, HalfPrecision, ONNX, ORT, ORT_CUDA, Options, PASSES, Padding, PassError, Pipeline, TARGETS, Target,
};
use planish_testing::evaluation::{difference, inputs, tolerance};
use planish_testing::random_graph::{build, choices};
use proptest::prelude::*;

use crate::support::outputs;

const OPSETS: [u32; 3] = [17, 20, 24];

fn options() -> impl Iterator<Item = Options> {
    let padding = Padding { vocabulary: Some(3), features: Some(4), ..Padding::default() };
    TARGETS.iter().flat_map(move |&target| {
        OPSETS.into_iter().flat_map(move |opset| {
            [true, false].map(|fusion| Options { fusion, padding, ..Options::new(target, opset) })
        })
    })
}

/// Checks that a graph still has its interface, its invariants and its meaning.
fn check(before: &Graph, after: &Graph, seed: u64) -> Result<(), String> {
    verify(after).map_err(|e| e.to_string())?;
    let names = |graph: &Graph| graph.inputs().iter().map(|v| graph.value(*v).name.clone()).collect::<Vec<_>>();
    if names(before) != names(after) {
        return Err(format!("inputs were {:?}, are {:?}", names(before), names(after)));
    }
    let types = |graph: &Graph| {
        let own = graph.outputs().iter().filter(|o| observed(&o.name).is_none());
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

/// Applies each pass alone, twice.
fn passes(graph: &Graph, options: Options, seed: u64) -> Result<(), String> {
    for pass in PASSES {
        let fail = |e: String, after: &Graph| format!("`{}` with {options:?}: {e}\n{after}", pass.name);
        let mut after = graph.clone();
        match (pass.run)(&mut after, &options) {
            // Canonical operators have no kernels before they are lowered.
            Err(PassError::Unsupported { .. }) => continue,
            result => drop(result.map_err(|e| fail(e.to_string(), &after))?),
        };
        check(graph, &after, seed).map_err(|e| fail(e, &after))?;
        let mut again = after.clone();
        let changed = (pass.run)(&mut again, &options).map_err(|e| fail(e.to_string(), &again))?.changed;
        if changed > 0 || again.to_string() != after.to_string() {
            return Err(fail(format!("run again, it reports {changed} changes of the graph to\n{again}from"), &after));
        }
    }
    Ok(())
}

/// Applies a pipeline, verifying after each pass.
fn pipeline(graph: &Graph, options: Options, seed: u64) -> Result<(), String> {
    let mut after = graph.clone();
    let mut pipeline = Pipeline::new(options.clone());
    pipeline.verify = true;
    let fail = |e: String, after: &Graph| format!("the pipeline with {options:?}: {e}\n{after}");
    match pipeline.run(&mut after, &mut |_, _| {}) {
        // It lacks kernels for the forms of later opsets.
        Err(PassError::Unsupported { target, .. }) if *target == ORT_CUDA => return Ok(()),
        result => result.map_err(|e| fail(e.to_string(), &after))?,
    };
    check(graph, &after, seed).map_err(|e| fail(e, &after))
}

/// The types of the outputs.
fn types(graph: &Graph) -> Vec<TensorType> {
    graph.outputs().iter().map(|o| graph.ty(o.value).clone()).collect()
}

/// Brings a graph to half precision, alone and in a pipeline: its interface and its invariants stay, and it computes.
/// How far results are off depends on what cancels.
fn halving(graph: &Graph, half: Half, target: &'static Target, seed: u64) -> Result<(), String> {
    let options = Options { precision: Some(HalfPrecision::new(half).into()), ..Options::new(target, 20) };
    let mut halved = graph.clone();
    let fail = |e: String, after: &Graph| format!("{half} for {target}: {e}\n{after}");
    (HALVE.run)(&mut halved, &options).map_err(|e| fail(e.to_string(), &halved))?;
    verify(&halved).map_err(|e| fail(e.to_string(), &halved))?;
    let mut lowered = graph.clone();
    let mut pipeline = Pipeline::new(options);
    pipeline.verify = true;
    pipeline.run(&mut lowered, &mut |_, _| {}).map_err(|e| fail(e.to_string(), &lowered))?;
    for after in [&halved, &lowered] {
        if types(graph) != types(after) {
            return Err(fail(format!("types of outputs were {:?}, are {:?}", types(graph), types(after)), after));
        }
        outputs(after, &inputs(graph, seed)).map_err(|e| fail(e, after))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_pass_keeps_the_meaning(
        choices in choices(),
        options in prop::sample::select(options().collect::<Vec<_>>()),
        seed in any::<u64>(),
    ) {
        let graph = build(&choices);
        passes(&graph, options, seed).map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{graph}")))?;
    }

    #[test]
    fn each_pipeline_keeps_the_meaning(choices in choices(), seed in any::<u64>()) {
        let graph = build(&choices);
        for options in options() {
            pipeline(&graph, options, seed).map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{graph}")))?;
        }
    }

    #[test]
    fn each_graph_can_be_halved(choices in choices(), seed in any::<u64>()) {
        let graph = build(&choices);
        for (half, target) in [(Half::F16, &ONNX), (Half::Bf16, &ONNX), (Half::F16, &ORT)] {
            halving(&graph, half, target, seed).map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{graph}")))?;
        }
    }
}
