//! Caches that grow in their memory.

use std::sync::Arc;

use planish_eval::{Tensor, evaluate};
use planish_ir::DType;

use crate::Session;
use crate::cuda::check::{graph, inputs, session};
use crate::cuda::device::Device;
use crate::cuda::emulator::{self, Emulator};
use crate::cuda::program::Style;

#[test]
fn a_cache_grows_in_its_memory() {
    let graph = graph(
        "input %x: f32[b, s, 8]
         input %pk: f32[b, 2, p, 4]
         input %pv: f32[b, 2, p, 4]
         %y, %key, %value = attention(%x, %x, %x, past_key: %pk, past_value: %pv) {heads = 2, scale = 0.5, causal = true, present = true} : f32[b, s, 8], f32[b, 2, p + s, 4], f32[b, 2, p + s, 4]
         output y = %y
         output key = %key
         output value = %value",
    )
    .unwrap();
    let device: Arc<dyn Device> = Arc::new(Emulator::new(emulator::compiler().unwrap()));
    let mut session = session(&graph, &device, Style::Fused).unwrap();
    let all = inputs(&graph, &[("b", 2), ("s", 90), ("p", 0)], 17).unwrap();
    let part = |from: usize, to: usize| {
        let x = all[0].1.to_f64();
        let rows: Vec<f64> = (0..2).flat_map(|b| x[b * 90 * 8 + from * 8..b * 90 * 8 + to * 8].to_vec()).collect();
        Tensor::from_f64(DType::F32, vec![2, to - from, 8], &rows).unwrap()
    };
    let named: Vec<(&str, Tensor)> = all.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let whole = evaluate(&graph, &named).unwrap();
    let empty = || crate::RuntimeValue::from(all[1].1.clone());
    let (mut key, mut value) = (empty(), empty());
    let mut addresses = std::collections::BTreeSet::new();
    let mut at = 0;
    for length in [10, 1, 1, 3, 60, 1, 14] {
        let x = crate::RuntimeValue::from(part(at, at + length));
        let outputs = session.run_values(&[("x", &x), ("pk", &key), ("pv", &value)]).unwrap();
        let mut outputs = outputs.into_iter().map(|(_, value)| value);
        let (y, keys, values) = (outputs.next().unwrap(), outputs.next().unwrap(), outputs.next().unwrap());
        if let crate::value::Kept::Cuda(tensor) = &keys.0 {
            addresses.insert(tensor.memory.address());
        }
        let (given, wanted) = (y.to_tensor().unwrap().to_f64(), whole[0].1.to_f64());
        for b in 0..2 {
            let wanted = &wanted[b * 90 * 8 + at * 8..][..length * 8];
            let close = given[b * length * 8..][..length * 8].iter().zip(wanted).all(|(x, y)| (x - y).abs() < 1e-5);
            assert!(close, "tokens {at}.. of row {b}");
        }
        at += length;
        (key, value) = (keys, values);
    }
    // Most steps continue the memory of the step in front of them.
    assert!(addresses.len() < 4, "{addresses:?}");
    for ((_, wanted), given) in whole[1..].iter().zip([&key, &value]) {
        assert_eq!(given.to_tensor().unwrap().to_f64(), wanted.to_f64());
    }
    // Beams take rows; two that continue the same keys do not write over each other.
    let beams = key.take_rows(&[1, 1]).unwrap();
    let values = value.take_rows(&[1, 1]).unwrap();
    let x = crate::RuntimeValue::from(part(0, 1));
    let first = session.run_values(&[("x", &x), ("pk", &beams), ("pv", &values)]).unwrap();
    let other = crate::RuntimeValue::from(part(5, 6));
    session.run_values(&[("x", &other), ("pk", &beams), ("pv", &values)]).unwrap();
    let last = first[1].1.to_tensor().unwrap().to_f64();
    let expected = part(0, 1).to_f64();
    assert_eq!(last[90 * 4..][..4], expected[..4]);
}
