//! What the codes of a feature map do to the convolutions that take it.

use planish_ir::{Graph, NodeId, Weight};

use super::convolution;
use crate::PassError;
use crate::quantize::Activation;
use crate::quantize::trial::{product, quantize_rows};

/// The error of the products of a convolution at one place of its window, on rows of its input, [rows, channels]: the mean over rows
/// and convolutions of the ratio of the sums of squares.
pub(in crate::quantize) fn loss(
    graph: &Graph,
    takers: &[NodeId],
    rows: &[f32],
    activation: &Activation,
) -> Result<f64, PassError> {
    let (mut sum, mut count) = (0.0, 0usize);
    for id in takers {
        let Some(conv) = convolution(graph, graph.node(*id)) else { continue };
        let Some(weight) = graph.weight(conv.weight) else { continue };
        let failed = |source| PassError::of_weight(graph, conv.weight, source);
        let (out, inner) = (weight.shape()[0], weight.shape()[1]);
        let exact = taps(weight).map(|taps| taps.read_finite()).transpose().map_err(failed)?.unwrap_or_default();
        let places = exact.len() / (out * inner).max(1);
        let mut codes = exact.clone();
        for filter in codes.chunks_exact_mut((inner * places).max(1)) {
            let scale = filter.iter().fold(0f32, |a, w| a.max(w.abs())) / 127.0;
            if scale > 0.0 {
                filter.iter_mut().for_each(|w| *w = (*w / scale).round_ties_even() * scale);
            }
        }
        let channels = inner * conv.groups;
        let mut rounded = rows.to_vec();
        quantize_rows(activation, &mut rounded, channels);
        let of_group = out / conv.groups.max(1) * places;
        // The sums of squares of each row, of the error and of the products.
        let mut squares = vec![(0.0, 0.0); rows.len() / channels.max(1)];
        for group in 0..conv.groups {
            let columns = |rows: &[f32]| -> Vec<f32> {
                let own = rows.chunks_exact(channels.max(1)).flat_map(|row| &row[group * inner..(group + 1) * inner]);
                own.copied().collect()
            };
            let weights = group * of_group * inner..(group + 1) * of_group * inner;
            let products = product(&columns(rows), &exact[weights.clone()], inner);
            let given = product(&columns(&rounded), &codes[weights], inner);
            let rows = products.chunks_exact(of_group.max(1)).zip(given.chunks_exact(of_group.max(1)));
            for ((error, all), (products, given)) in squares.iter_mut().zip(rows) {
                let square = |sum: f64, x: f32| sum + f64::from(x) * f64::from(x);
                *error = products.iter().zip(given).map(|(a, b)| a - b).fold(*error, square);
                *all = products.iter().copied().fold(*all, square);
            }
        }
        for (error, all) in squares.into_iter().filter(|(_, all)| *all > 0.0) {
            (sum, count) = (sum + error / all, count + 1);
        }
    }
    Ok(sum / count.max(1) as f64)
}

/// The filters of a weight, [out, channels, ..], as matrices for each place of the window: [out, places, channels].
fn taps(weight: &Weight) -> Option<Weight> {
    let (out, inner) = (weight.shape()[0], weight.shape()[1]);
    let places = weight.elements() / (out * inner).max(1);
    weight.reshape(&[out, inner, places])?.transpose(&[0, 2, 1])
}
