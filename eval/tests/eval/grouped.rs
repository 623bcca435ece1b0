//! ONNX Runtime's GroupQueryAttention next to the attention of the graph.

use planish_eval::{Tensor, evaluate};
use planish_ir::ops::{Attention, Flag, Foreign, InnerOperators, Real, Results, Setting, Settings, Text};
use planish_ir::{DType, Graph, Origin};

use crate::{assert_close, random, tensor};

const HEADS: usize = 4;
const SHARED: usize = 2;

/// The results for an operand each, by its index.
fn grouped(operands: &[(usize, &Tensor)], settings: &[(&str, Setting)]) -> Result<Vec<Tensor>, String> {
    let mut graph = Graph::new("test");
    let given: Vec<(String, Tensor)> = operands.iter().map(|(at, t)| (format!("i{at}"), (*t).clone())).collect();
    let mut inputs = vec![None; 1 + operands.iter().map(|(at, _)| *at).max().unwrap()];
    for (at, t) in operands {
        inputs[*at] = Some(graph.add_input(&format!("i{at}"), t.ty(), Origin::Unknown));
    }
    let open = |t: &Tensor| crate::foreign::open(t.dtype(), t.shape().len()).into();
    let results = [operands[0].1, operands[3].1, operands[4].1].map(|t| Some(open(t)));
    let heads = [("num_heads", HEADS), ("kv_num_heads", SHARED)];
    let heads = heads.map(|(name, count)| (name.to_owned(), Setting::Int(i64::try_from(count).unwrap())));
    let own = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let foreign = Foreign {
        inputs,
        captured: Vec::new(),
        domain: Text("com.microsoft".to_owned()),
        op: Text("GroupQueryAttention".to_owned()),
        version: 1,
        settings: Settings(heads.into_iter().chain(own).collect()),
        captures: Vec::new(),
        inner: InnerOperators::default(),
        results: Results(results.to_vec()),
    };
    let results = graph.emit(foreign, "r", Origin::Unknown).map_err(|e| e.to_string())?;
    for (i, result) in results.into_iter().enumerate() {
        graph.add_output(&format!("o{i}"), result);
    }
    let given: Vec<(&str, Tensor)> = given.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
    let results = evaluate(&graph, &given).map_err(|e| e.to_string())?;
    Ok(results.into_iter().map(|(_, t)| t).collect())
}

/// A past of 3 keys in a buffer with room for 2 more than all is continued as one without room.
#[test]
fn a_cache_is_continued_with_room_and_without() {
    let (batch, new, past, size) = (2, 2, 3, 4);
    let x = |features, seed| random(DType::F32, &[batch, new, features], seed);
    let (q, k, v) = (x(HEADS * size, 1), x(SHARED * size, 2), x(SHARED * size, 3));
    let cache = |seed| random(DType::F32, &[batch, SHARED, past, size], seed);
    let (past_key, past_value) = (cache(4), cache(5));
    let bias = random(DType::F32, &[batch, 1, new, past + new], 6);
    let whole = |op: Attention| Attention { kv_heads: Some(SHARED), causal: Flag(true), present: Flag(true), ..op };
    let mut graph = Graph::new("test");
    let operands = [&q, &k, &v, &past_key, &past_value, &bias];
    let names: Vec<String> = (0..operands.len()).map(|at| format!("i{at}")).collect();
    let ids: Vec<_> = names.iter().zip(operands).map(|(n, t)| graph.add_input(n, t.ty(), Origin::Unknown)).collect();
    let attention = whole(Attention {
        past_key: Some(ids[3]),
        past_value: Some(ids[4]),
        bias: Some(ids[5]),
        softcap: Some(Real(3.0)),
        ..Attention::new(ids[0], ids[1], ids[2], HEADS, Real(0.25))
    });
    for (at, result) in graph.emit(attention, "y", Origin::Unknown).unwrap().into_iter().enumerate() {
        graph.add_output(&format!("o{at}"), result);
    }
    let given: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(operands.map(Tensor::clone)).collect();
    let expected: Vec<Tensor> = evaluate(&graph, &given).unwrap().into_iter().map(|(_, t)| t).collect();

    let all = i32::try_from(past + new).unwrap();
    let (last, total) = (tensor(&[batch], vec![all - 1; batch]), tensor(&[], vec![all]));
    let settings = [("scale", Setting::Float(Real(0.25))), ("softcap", Setting::Float(Real(3.0)))];
    let run = |past_key: &Tensor, past_value: &Tensor| {
        let operands =
            [(0, &q), (1, &k), (2, &v), (3, past_key), (4, past_value), (5, &last), (6, &total), (10, &bias)];
        grouped(&operands, &settings).unwrap()
    };
    let results = run(&past_key, &past_value);
    for (result, expected) in results.iter().zip(&expected) {
        assert_eq!(result.shape(), expected.shape());
        assert_close(result, &expected.to_f64(), 1e-6);
    }
    let room = past + new + 2;
    let padded = |t: &Tensor, keys: usize| {
        let heads = t.to_f64();
        let heads = heads.chunks(keys * size).flat_map(|head| {
            head.iter().copied().chain(std::iter::repeat_n(7.0, (room - keys) * size)).map(|v| v as f32)
        });
        tensor(&[batch, SHARED, room, size], heads.collect::<Vec<f32>>())
    };
    let in_buffers = run(&padded(&past_key, past), &padded(&past_value, past));
    assert_eq!(in_buffers[0], results[0]);
    assert_eq!(in_buffers[1..], [padded(&results[1], past + new), padded(&results[2], past + new)]);
}

/// A prompt that is padded on the right counts only the tokens of each row, of which the next one is after the last.
#[test]
fn rows_have_lengths_of_their_own() {
    let x = |rows: usize, features, seed| random(DType::F32, &[1, rows, features], seed);
    let (q, k, v) = (x(1, 8, 1), x(1, 4, 2), x(1, 4, 3));
    let past = random(DType::F32, &[1, SHARED, 3, 2], 4);
    let (last, total) = (tensor(&[1], vec![1i32]), tensor(&[], vec![3i32]));
    let operands = [(0, &q), (1, &k), (2, &v), (3, &past), (4, &past), (5, &last), (6, &total)];
    let results = grouped(&operands, &[]).unwrap();
    // The first key of the past stays, the second is the new one.
    let (old, new, present) = (past.to_f64(), k.to_f64(), results[1].to_f64());
    assert_eq!(present[..2], old[..2]);
    assert_eq!(present[2..4], new[..2]);
    assert_eq!(present[4..6], old[4..6]);
    let error = grouped(&operands, &[("do_rotary", Setting::Int(1))]).unwrap_err();
    assert!(error.contains("do_rotary"), "{error}");
}
