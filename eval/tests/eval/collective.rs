//! Collectives: all ranks get the same, and ranks that do not meet end with an error.

use planish_eval::{EvalError, Interpreter, Tensor, evaluate};
use planish_ir::{Graph, text};

fn graph(statements: &str) -> Graph {
    text::parse(&format!("graph \"ranks\" {{\ninput %x: f32[n, 2]\n{statements}\n}}"), &text::no_files).unwrap()
}

fn tensor(elements: [f32; 2]) -> Tensor {
    Tensor::new(vec![1, 2], elements.to_vec()).unwrap()
}

fn run(graphs: &[&Graph]) -> Result<Vec<Tensor>, EvalError> {
    let input = |rank: usize| vec![("x", tensor([rank as f32 + 1.0, 10.0]))];
    let ranks: Vec<_> = graphs.iter().enumerate().map(|(rank, graph)| (*graph, input(rank))).collect();
    Ok(Interpreter::default().run_ranks(&ranks)?.into_iter().map(|mut outputs| outputs.remove(0).1).collect())
}

const SUM: &str = "%y = all_reduce(%x) {ranks = 3} : f32[n, 2]\noutput y = %y";

#[test]
fn all_ranks_get_the_sum_and_the_parts() {
    let sum = graph(SUM);
    assert_eq!(run(&[&sum, &sum, &sum]).unwrap(), vec![tensor([6.0, 30.0]); 3]);
    let gather = graph("%r = neg(%x) : f32[n, 2]\n%y = all_gather(%r) {ranks = 2} : f32[2*n, 2]\noutput y = %y");
    let all = Tensor::new(vec![2, 2], vec![-1f32, -10.0, -2.0, -10.0]).unwrap();
    assert_eq!(run(&[&gather, &gather]).unwrap(), vec![all; 2]);
}

#[test]
fn one_rank_computes_no_collective() {
    let error = evaluate(&graph(SUM), &[("x", tensor([1.0, 2.0]))]).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("it takes 3 ranks"), "{error}");
    let error = run(&[&graph(SUM), &graph(SUM)]).unwrap_err().to_string();
    assert!(error.contains("the graph is one of 3 ranks, and 2 run"), "{error}");
}

#[test]
fn ranks_that_do_not_meet_end() {
    let (sum, none) = (graph(&SUM.replace("ranks = 3", "ranks = 2")), graph("%y = neg(%x) : f32[n, 2]\noutput y = %y"));
    let error = run(&[&sum, &none]).unwrap_err().to_string();
    assert!(error.contains("rank 0 is at all_reduce of f32[1, 2], rank 1 has ended"), "{error}");
    let gather = graph("%y = all_gather(%x) {ranks = 2} : f32[2*n, 2]\noutput y = %y");
    let error = run(&[&sum, &gather]).unwrap_err().to_string();
    assert!(error.contains("do not run the same collectives") && error.contains("rank 1 is at all_gather"), "{error}");
    // The error is that of the rank that failed, not of the one that waits for it.
    let fails = graph(
        "weight @i = dense([9]) : i64[1]\n%t = gather(%x, @i) {axis = 0} : f32[1, 2]\n%y = all_reduce(%t) {ranks = 2} : f32[1, 2]\noutput y = %y",
    );
    let error = run(&[&sum, &fails]).unwrap_err().to_string();
    assert!(error.contains("`gather`") && !error.contains("has ended"), "{error}");
}
