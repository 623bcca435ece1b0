//! Graphs of ranks give what the whole graph gives, and refusals name what does not divide.

use planish_eval::{Interpreter, Tensor, evaluate};
use planish_ir::interface::CacheKind;
use planish_ir::interface::{CacheEntry, CacheTensor};
use planish_ir::{DType, Graph, InputRole, OutputRole, Symbol, text, verify};

use super::*;

fn graph(statements: &str) -> Graph {
    let graph = text::parse(&format!("graph \"test\" {{\n{statements}\n}}"), &text::no_files).unwrap();
    verify(&graph).unwrap();
    graph
}

/// Numbers of a tensor that a seed decides.
fn tensor(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let numbers: Vec<f64> = (0..count).map(|i| f64::from(((i * 37 + seed * 11) % 29) as u8) / 14.5 - 1.0).collect();
    Tensor::from_f64(DType::F32, shape.to_vec(), &numbers).unwrap()
}

/// The outputs of all ranks together: those of caches joined along their axis, others the same on all ranks.
fn together(whole: &Graph, ranks: usize, inputs: &[(&'static str, Tensor)]) -> (Vec<(String, Tensor)>, Plan) {
    let made: Vec<(Graph, Plan)> = (0..ranks).map(|rank| shard(whole, ranks, rank).unwrap()).collect();
    made.iter().for_each(|(graph, _)| verify(graph).unwrap());
    let plan = made[0].1.clone();
    let cut = |name: &str| plan.caches.iter().find(|(other, _)| other == name).map(|(_, cut)| cut.clone());
    let own = |rank: usize, (name, tensor): &(&'static str, Tensor)| match cut(name) {
        Some(cut) => (*name, piece(tensor, &cut, ranks, rank)),
        None => (*name, tensor.clone()),
    };
    let given = |rank: usize| inputs.iter().map(|input| own(rank, input)).collect();
    let runs: Vec<(&Graph, Vec<(&str, Tensor)>)> =
        made.iter().enumerate().map(|(rank, (graph, _))| (graph, given(rank))).collect();
    let results = Interpreter::default().run_ranks(&runs).unwrap();
    let joined = results[0].iter().enumerate().map(|(at, (name, first))| {
        let Some(cut) = cut(name) else {
            assert!(results.iter().all(|rank| rank[at].1 == *first), "{name} differs between ranks");
            return (name.clone(), first.clone());
        };
        (name.clone(), join(&results.iter().map(|rank| rank[at].1.clone()).collect::<Vec<_>>(), &cut, ranks))
    });
    (joined.collect(), plan)
}

/// The indices of an axis that are kept.
fn piece(tensor: &Tensor, cut: &Cut, ranks: usize, rank: usize) -> Tensor {
    let numbers = tensor.to_f64();
    let (outer, size, inner) = sizes(tensor.shape(), cut.axis);
    let mut kept = Vec::new();
    for row in 0..outer {
        for range in cut.ranges(ranks, rank) {
            kept.extend_from_slice(&numbers[(row * size + range.start) * inner..(row * size + range.end) * inner]);
        }
    }
    let mut shape = tensor.shape().to_vec();
    shape[cut.axis] = cut.local(ranks);
    Tensor::from_f64(tensor.dtype(), shape, &kept).unwrap()
}

fn join(parts: &[Tensor], cut: &Cut, ranks: usize) -> Tensor {
    let mut shape = parts[0].shape().to_vec();
    shape[cut.axis] = cut.size();
    let (outer, size, inner) = sizes(&shape, cut.axis);
    let mut numbers = vec![0.0; outer * size * inner];
    for (rank, part) in parts.iter().enumerate() {
        let mut own = part.to_f64().into_iter();
        for row in 0..outer {
            for range in cut.ranges(ranks, rank) {
                let to = &mut numbers[(row * size + range.start) * inner..(row * size + range.end) * inner];
                to.iter_mut().for_each(|number| *number = own.next().unwrap());
            }
        }
    }
    Tensor::from_f64(parts[0].dtype(), shape, &numbers).unwrap()
}

fn sizes(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

fn same(whole: &Graph, ranks: usize, inputs: &[(&'static str, Tensor)]) -> Plan {
    let expected = evaluate(whole, inputs).unwrap();
    let (actual, plan) = together(whole, ranks, inputs);
    for ((name, expected), (_, actual)) in expected.iter().zip(&actual) {
        assert_eq!(expected.shape(), actual.shape(), "{name}");
        let (expected, actual) = (expected.to_f64(), actual.to_f64());
        let largest = expected.iter().fold(1f64, |largest, x| largest.max(x.abs()));
        let off = expected.iter().zip(&actual).fold(0f64, |off, (a, b)| off.max((a - b).abs()));
        assert!(off <= 1e-5 * largest, "{name} is off by {off} of {largest}");
    }
    plan
}

/// A layer as decoders have it: norm, queries, keys and values, rotary embedding, a cache, and a gated feed-forward.
fn decoder(heads: usize, kv_heads: usize, size: usize, inner: usize) -> Graph {
    let (width, q, kv) = (16, heads * size, kv_heads * size);
    let mut graph = graph(&format!(
        "input %x: f32[b, s, {width}]
         input %cos: f32[1, s, {pairs}]
         input %sin: f32[1, s, {pairs}]
         input %past_k: f32[b, {kv_heads}, p, {size}]
         input %past_v: f32[b, {kv_heads}, p, {size}]
         weight @norm = uniform(1) : f32[{width}]
         weight @q = uniform(2) : f32[{q}, {width}]
         weight @qb = uniform(3) : f32[{q}]
         weight @k = uniform(4) : f32[{kv}, {width}]
         weight @v = uniform(5) : f32[{kv}, {width}]
         weight @o = uniform(6) : f32[{width}, {q}]
         weight @ob = uniform(7) : f32[{width}]
         weight @gate = uniform(8) : f32[{inner}, {width}]
         weight @up = uniform(9) : f32[{inner}, {width}]
         weight @down = uniform(10) : f32[{width}, {inner}]
         %n = rms_norm(%x, @norm) {{eps = 1e-5}} : f32[b, s, {width}]
         %ql = linear(%n, @q, bias: @qb) : f32[b, s, {q}]
         %kl = linear(%n, @k) : f32[b, s, {kv}]
         %vl = linear(%n, @v) : f32[b, s, {kv}]
         %qr = rotary(%ql, %cos, %sin) {{heads = {heads}}} : f32[b, s, {q}]
         %kr = rotary(%kl, %cos, %sin) {{heads = {kv_heads}}} : f32[b, s, {kv}]
         %a, %nk, %nv = attention(%qr, %kr, %vl, past_key: %past_k, past_value: %past_v) {{heads = {heads}, kv_heads = {kv_heads}, scale = 0.5, causal = true, present = true}} : f32[b, s, {q}], f32[b, {kv_heads}, p + s, {size}], f32[b, {kv_heads}, p + s, {size}]
         %ol = linear(%a, @o, bias: @ob) : f32[b, s, {width}]
         %h = add(%x, %ol) : f32[b, s, {width}]
         %g = linear(%h, @gate) : f32[b, s, {inner}]
         %u = linear(%h, @up) : f32[b, s, {inner}]
         %gs = silu(%g) : f32[b, s, {inner}]
         %m = mul(%gs, %u) : f32[b, s, {inner}]
         %d = linear(%m, @down) : f32[b, s, {width}]
         %y = add(%h, %d) : f32[b, s, {width}]
         output y = %y
         output next_k = %nk
         output next_v = %nv",
        pairs = size / 2,
    ));
    let entry = |tensor| CacheEntry { layer: 0, kind: CacheKind::Growing { axis: 2 }, tensor };
    for (input, output, tensor) in [("past_k", "next_k", CacheTensor::Key), ("past_v", "next_v", CacheTensor::Value)] {
        graph.interface.inputs.insert(input.to_owned(), InputRole::Cache(entry(tensor)));
        graph.interface.outputs.insert(output.to_owned(), OutputRole::Cache(entry(tensor)));
    }
    graph
}

fn decoder_inputs(kv_heads: usize, size: usize, past: usize) -> Vec<(&'static str, Tensor)> {
    vec![
        ("x", tensor(&[2, 3, 16], 1)),
        ("cos", tensor(&[1, 3, size / 2], 2)),
        ("sin", tensor(&[1, 3, size / 2], 3)),
        ("past_k", tensor(&[2, kv_heads, past, size], 4)),
        ("past_v", tensor(&[2, kv_heads, past, size], 5)),
    ]
}

#[test]
fn ranks_of_a_decoder_give_what_the_whole_gives() {
    for (heads, kv_heads, ranks) in [(4, 4, 2), (4, 2, 2), (8, 4, 4), (8, 8, 8), (8, 2, 8), (8, 1, 4), (8, 2, 4)] {
        let plan = same(&decoder(heads, kv_heads, 4, 24), ranks, &decoder_inputs(kv_heads, 4, 2));
        let operators: Vec<&str> = plan.collectives.iter().map(|collective| collective.operator).collect();
        assert_eq!(operators, ["all_reduce", "all_reduce"], "{heads} {kv_heads} {ranks}");
        let whole: Vec<&str> =
            plan.weights.iter().filter(|weight| weight.cut.is_none()).map(|weight| weight.name.as_str()).collect();
        assert_eq!(whole, ["norm", "ob"]);
        assert_eq!(plan.caches.len(), 4);
    }
}

#[test]
fn what_does_not_divide_is_named() {
    let refused = |heads, kv_heads, ranks| plan(&decoder(heads, kv_heads, 4, 24), ranks).unwrap_err().to_string();
    assert_eq!(
        refused(4, 4, 3),
        "`attention` at `a` (unknown origin) has 4 heads, which 3 ranks cannot share; take 2, 4"
    );
    let keys = refused(12, 4, 6);
    assert!(keys.contains("has 4 heads of keys and values, which 6 ranks cannot share"), "{keys}");
    assert_eq!(refused(4, 4, 1), "1 ranks: tensor parallelism takes 2 or more");
    assert_eq!(refused(4, 4, 0), "0 ranks: tensor parallelism takes 2 or more");
    let nothing = plan(&graph("input %x: f32[n, 4]\n%y = relu(%x) : f32[n, 4]\noutput y = %y"), 2).unwrap_err();
    assert_eq!(nothing.to_string(), "the graph `test` has no linear layers or attention that 2 ranks can share");
    let again = shard(&decoder(4, 4, 4, 24), 2, 0).unwrap().0;
    let again = plan(&again, 2).unwrap_err().to_string();
    assert!(again.contains("exchanges tensors between ranks already"), "{again}");
}

#[test]
fn packed_projections_are_cut_by_the_heads_of_each() {
    let packed = "input %x: f32[b, s, 8]
        weight @qkv = uniform(1) : f32[8, 48]
        weight @qkvb = uniform(2) : f32[48]
        weight @o = uniform(3) : f32[16, 8]
        %p = linear(%x, @qkv, bias: @qkvb) {transposed = true} : f32[b, s, 48]
        %q, %k, %v = split(%p) {axis = 2, sizes = [16, 16, 16]} : f32[b, s, 16], f32[b, s, 16], f32[b, s, 16]
        %a = attention(%q, %k, %v) {heads = 4, scale = 0.5, causal = true} : f32[b, s, 16]
        %y = linear(%a, @o) {transposed = true} : f32[b, s, 8]
        output y = %y";
    for ranks in [2, 4] {
        let plan = same(&graph(packed), ranks, &[("x", tensor(&[2, 3, 8], 1))]);
        let packed = plan.weights.iter().find(|weight| weight.name == "qkv").unwrap();
        assert_eq!(packed.cut.as_ref().unwrap().runs.len(), 3);
        assert_eq!(packed.rank_bytes * ranks as u64, packed.bytes);
    }
    // Each head has its query, key and value.
    let by_head = "input %x: f32[b, s, 8]
        weight @qkv = uniform(1) : f32[48, 8]
        weight @o = uniform(3) : f32[8, 16]
        %p = linear(%x, @qkv) : f32[b, s, 48]
        %h = reshape(%p) {shape = [b, s, 4, 12]} : f32[b, s, 4, 12]
        %qh, %kh, %vh = split(%h) {axis = 3, sizes = [4, 4, 4]} : f32[b, s, 4, 4], f32[b, s, 4, 4], f32[b, s, 4, 4]
        %q = reshape(%qh) {shape = [b, s, 16]} : f32[b, s, 16]
        %k = reshape(%kh) {shape = [b, s, 16]} : f32[b, s, 16]
        %v = reshape(%vh) {shape = [b, s, 16]} : f32[b, s, 16]
        %a = attention(%q, %k, %v) {heads = 4, scale = 0.5} : f32[b, s, 16]
        %y = linear(%a, @o) : f32[b, s, 8]
        output y = %y";
    let plan = same(&graph(by_head), 4, &[("x", tensor(&[2, 3, 8], 1))]);
    assert!(plan.weights.iter().all(|weight| weight.cut.is_some()), "{plan:?}");
}

#[test]
fn products_of_each_head_are_on_its_rank() {
    // Attention to latents: each head has a product that turns its queries to them, and one that turns what is mixed to values.
    let latent = "input %x: f32[b, s, 8]
        weight @qw = uniform(1) : f32[16, 8]
        weight @keys = uniform(2) : f32[4, 4, 6]
        weight @kw = uniform(3) : f32[6, 8]
        weight @values = uniform(4) : f32[4, 6, 5]
        weight @o = uniform(5) : f32[8, 20]
        %q = linear(%x, @qw) : f32[b, s, 16]
        %qh = reshape(%q) {shape = [b, s, 4, 4]} : f32[b, s, 4, 4]
        %qt = transpose(%qh) {perm = [0, 2, 1, 3]} : f32[b, 4, s, 4]
        %ql = matmul(%qt, @keys) : f32[b, 4, s, 6]
        %qs = transpose(%ql) {perm = [0, 2, 1, 3]} : f32[b, s, 4, 6]
        %qa = reshape(%qs) {shape = [b, s, 24]} : f32[b, s, 24]
        %k = linear(%x, @kw) : f32[b, s, 6]
        %a = attention(%qa, %k, %k) {heads = 4, kv_heads = 1, scale = 0.5} : f32[b, s, 24]
        %ah = reshape(%a) {shape = [b, s, 4, 6]} : f32[b, s, 4, 6]
        %at = transpose(%ah) {perm = [0, 2, 1, 3]} : f32[b, 4, s, 6]
        %v = matmul(%at, @values) : f32[b, 4, s, 5]
        %vs = transpose(%v) {perm = [0, 2, 1, 3]} : f32[b, s, 4, 5]
        %va = reshape(%vs) {shape = [b, s, 20]} : f32[b, s, 20]
        %y = linear(%va, @o) : f32[b, s, 8]
        output y = %y";
    for ranks in [2, 4] {
        let plan = same(&graph(latent), ranks, &[("x", tensor(&[2, 3, 8], 1))]);
        let operators: Vec<&str> = plan.collectives.iter().map(|collective| collective.operator).collect();
        assert_eq!(operators, ["all_reduce"]);
        for weight in plan.weights.iter().filter(|weight| weight.name != "kw") {
            assert_eq!(weight.rank_bytes * ranks as u64, weight.bytes, "{}", weight.name);
        }
    }
}

#[test]
fn tables_and_heads_are_cut_by_tokens() {
    let tokens = |vocabulary: usize| {
        let mut graph = graph(&format!(
            "input %input_ids: i64[b, s]
             weight @table = uniform(1) : f32[{vocabulary}, 8]
             weight @up = uniform(2) : f32[16, 8]
             weight @down = uniform(3) : f32[8, 16]
             %x = embedding(@table, %input_ids) : f32[b, s, 8]
             %u = linear(%x, @up) : f32[b, s, 16]
             %r = relu(%u) : f32[b, s, 16]
             %d = linear(%r, @down) : f32[b, s, 8]
             %y = linear(%d, @table) : f32[b, s, {vocabulary}]
             output logits = %y"
        ));
        graph.interface.inputs.insert("input_ids".to_owned(), InputRole::TokenIds);
        graph.interface.outputs.insert("logits".to_owned(), OutputRole::Logits);
        graph
    };
    for (vocabulary, ranks) in [(12, 2), (13, 2), (13, 4), (9, 8)] {
        let ids: Vec<i64> = (0..vocabulary).rev().map(|id| i64::try_from(id).unwrap()).collect();
        let ids = Tensor::new(vec![1, vocabulary], ids).unwrap();
        let plan = same(&tokens(vocabulary), ranks, &[("input_ids", ids)]);
        let operators: Vec<&str> = plan.collectives.iter().map(|collective| collective.operator).collect();
        assert_eq!(operators, ["all_reduce", "all_reduce", "all_gather"]);
        let table: Vec<_> = plan.weights.iter().filter(|weight| weight.name == "table").collect();
        assert_eq!((table.len(), table[0].rank_bytes), (1, (vocabulary.div_ceil(ranks) * 8 * 4) as u64));
        let vocabulary_i64 = i64::try_from(vocabulary).unwrap();
        let sizes =
            [("b", 1), ("s", vocabulary_i64)].into_iter().map(|(name, size)| (Symbol::new(name), size)).collect();
        let logits = plan.collectives[2].bytes(&sizes).unwrap();
        assert_eq!(logits, (vocabulary * vocabulary.div_ceil(ranks) * 4) as u64);
    }
}

#[test]
fn experts_are_shared() {
    let experts = "input %x: f32[n, 4]
        weight @router = uniform(1) : f32[4, 4]
        weight @gate = uniform(2) : f32[4, 6, 4]
        weight @up = uniform(3) : f32[4, 6, 4]
        weight @down = uniform(4) : f32[4, 4, 6]
        weight @db = uniform(5) : f32[4, 4]
        %r = linear(%x, @router) : f32[n, 4]
        %p = softmax(%r) : f32[n, 4]
        %s, %i = top_k(%p) {axis = 1, k = 2} : f32[n, 2], i64[n, 2]
        %y = experts(%x, %i, %s, @gate, @down, up: @up, down_bias: @db) {activation = silu} : f32[n, 4]
        output y = %y";
    for ranks in [2, 4] {
        let plan = same(&graph(experts), ranks, &[("x", tensor(&[7, 4], 1))]);
        assert_eq!(plan.weights.iter().filter(|weight| weight.cut.is_some()).count(), 4);
    }
    let refused = plan(&graph(experts), 8).unwrap_err().to_string();
    assert!(refused.starts_with("`experts` at `y`") && refused.contains("has 4 experts, which 8 ranks"), "{refused}");
}

#[test]
fn blocks_of_codes_are_cut_nowhere_but_within() {
    let codes = |block: usize| {
        graph(&format!(
            "input %x: f32[n, 8]
             weight @up = uniform(1) : f32[16, 8]
             weight @down = dequantize([cast(uniform(2) : f32[8, 16]) : i8[8, 16], uniform(3) : f32[8, {blocks}]], 1, {block}) : f32[8, 16]
             %u = linear(%x, @up) : f32[n, 16]
             %r = relu(%u) : f32[n, 16]
             %y = linear(%r, @down) : f32[n, 8]
             output y = %y",
            blocks = 16usize.div_ceil(block)
        ))
    };
    same(&codes(4), 2, &[("x", tensor(&[3, 8], 1))]);
    same(&codes(4), 4, &[("x", tensor(&[3, 8], 1))]);
    // A part of one block has its scale.
    same(&codes(8), 4, &[("x", tensor(&[3, 8], 1))]);
    same(&codes(16), 2, &[("x", tensor(&[3, 8], 1))]);
    let refused = shard(&codes(12), 2, 1).map(drop).unwrap_err().to_string();
    assert!(refused.contains("`down`") && refused.contains("2 ranks would cut blocks"), "{refused}");
}

#[test]
fn what_is_not_known_to_have_parts_is_whole() {
    // A norm over all features takes them whole.
    let normed = "input %x: f32[b, s, 8]
        weight @qw = uniform(1) : f32[16, 8]
        weight @kw = uniform(2) : f32[16, 8]
        weight @w = uniform(3) : f32[16]
        weight @o = uniform(4) : f32[8, 16]
        %ql = linear(%x, @qw) : f32[b, s, 16]
        %k = linear(%x, @kw) : f32[b, s, 16]
        %q = rms_norm(%ql, @w) {eps = 1e-5} : f32[b, s, 16]
        %a = attention(%q, %k, %k) {heads = 4, scale = 0.5} : f32[b, s, 16]
        %y = linear(%a, @o) : f32[b, s, 8]
        %z = cumsum(%k) {axis = 1} : f32[b, s, 16]
        output y = %y
        output z = %z";
    let plan = same(&graph(normed), 2, &[("x", tensor(&[2, 3, 8], 1))]);
    let cut: Vec<&str> =
        plan.weights.iter().filter(|weight| weight.cut.is_some()).map(|weight| weight.name.as_str()).collect();
    assert_eq!(cut, ["o"]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    #[test]
    fn ranks_of_random_decoders_sum_up(
        log_ranks in 1u32..4, per_rank in 1usize..3, group in 1usize..3, inner in 1usize..5, half in 1usize..4, past in 0usize..3
    ) {
        let ranks = 2usize.pow(log_ranks);
        let kv_heads = ranks * per_rank;
        let size = 2 * half;
        same(&decoder(kv_heads * group, kv_heads, size, ranks * inner), ranks, &decoder_inputs(kv_heads, size, past));
    }
}
