//! Resizing: each element of the result is a weighted sum of elements near its place in the operand.

use super::{Maybe, Node, axes, indices, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Resize" => one(resize(node)?),
        "Upsample" => {
            let x = node.operand(0)?;
            let scales = node.operand(1)?.to_f64();
            if scales.len() != x.shape().len() {
                return Err(format!("{} scales for {} axes", scales.len(), x.shape().len()).into());
            }
            let sizes = x.shape().iter().zip(&scales).map(|(&d, s)| (d as f64 * s).floor() as usize).collect();
            let all: Vec<usize> = (0..x.shape().len()).collect();
            one(resample(node, x, sizes, &scales, &all, "asymmetric", None)?)
        }
        _ => Ok(None),
    }
}

fn resize(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let over = axes(node.ints("axes").as_deref(), x.shape().len())?;
    let (first, second) = if node.op.version < 11 { (1, 9) } else { (2, 3) };
    let (mut sizes, mut scales) = (x.shape().to_vec(), vec![1.0; x.shape().len()]);
    match node.integers(second)? {
        Some(given) => {
            let asked = super::sizes("sizes", &given)?;
            if asked.len() != over.len() {
                return Err(format!("{} sizes for {} axes", asked.len(), over.len()));
            }
            let ratios: Vec<f64> =
                over.iter().zip(&asked).map(|(&a, &size)| size as f64 / x.shape()[a] as f64).collect();
            let policy = node.text("keep_aspect_ratio_policy", "stretch");
            let common = match policy.as_str() {
                "not_larger" => Some(ratios.iter().copied().fold(f64::INFINITY, f64::min)),
                "not_smaller" => Some(ratios.iter().copied().fold(0.0, f64::max)),
                _ => None,
            };
            for (i, &a) in over.iter().enumerate() {
                scales[a] = common.unwrap_or(ratios[i]);
                sizes[a] = common.map_or(asked[i], |c| (c * x.shape()[a] as f64 + 0.5).floor() as usize);
            }
        }
        None => {
            let given = node.operand(first)?.to_f64();
            if given.len() != over.len() {
                return Err(format!("{} scales for {} axes", given.len(), over.len()));
            }
            for (&a, scale) in over.iter().zip(given) {
                scales[a] = scale;
                sizes[a] = (scale * x.shape()[a] as f64).floor() as usize;
            }
        }
    }
    let default = if node.op.version < 11 { "asymmetric" } else { "half_pixel" };
    let mode = node.text("coordinate_transformation_mode", default);
    let roi = match node.optional(1) {
        Some(roi) if mode == "tf_crop_and_resize" => Some(roi.to_f64()),
        _ => None,
    };
    resample(node, x, sizes, &scales, &over, &mode, roi)
}

/// Which elements along an axis an element of the result is a sum of, with their weights; none where it lies
/// outside.
type Taps = Option<Vec<(usize, f64)>>;

fn resample(
    node: &Node<'_>,
    x: &Tensor,
    sizes: Vec<usize>,
    scales: &[f64],
    over: &[usize],
    mode: &str,
    roi: Option<Vec<f64>>,
) -> Result<Tensor, String> {
    let mut taps: Vec<Vec<Taps>> = Vec::new();
    for (a, &size) in sizes.iter().enumerate() {
        let old = x.shape()[a];
        if old == 0 && size > 0 {
            return Err(format!("{} has no element along axis {a}", x.ty()));
        }
        let among = over.iter().position(|&o| o == a);
        let Some(i) = among.filter(|_| size != old || roi.is_some() || scales[a] != 1.0) else {
            taps.push((0..old).map(|i| Some(vec![(i, 1.0)])).collect());
            continue;
        };
        let region =
            roi.as_ref().map(|r| (r.get(i).copied().unwrap_or(0.0), r.get(i + over.len()).copied().unwrap_or(1.0)));
        node.count(&[size])?;
        taps.push((0..size).map(|to| along(node, (old, size), scales[a], mode, region, to)).collect());
    }
    let values = x.to_f64();
    let strides = crate::strided::row_major(x.shape());
    let outside = node.float("extrapolation_value", 0.0);
    let mut out = Vec::with_capacity(node.count(&sizes)?);
    for index in indices(&sizes) {
        let mut sum = vec![(0usize, 1.0f64)];
        let mut inside = true;
        for (a, &i) in index.iter().enumerate() {
            match &taps[a][i] {
                Some(taps) => {
                    let stride = strides[a];
                    let each = sum.iter().flat_map(|(at, w)| taps.iter().map(move |(t, v)| (at + t * stride, w * v)));
                    sum = each.collect();
                }
                None => inside = false,
            }
        }
        out.push(if inside { sum.iter().map(|(at, w)| values[*at] * w).sum() } else { outside });
    }
    of_numbers(x.dtype(), &sizes, &out)
}

/// The taps for one element along an axis.
fn along(
    node: &Node<'_>,
    (old, new): (usize, usize),
    scale: f64,
    mode: &str,
    region: Option<(f64, f64)>,
    to: usize,
) -> Taps {
    let (length, i) = (old as f64, to as f64);
    let resized = scale * length;
    let at = match mode {
        "asymmetric" => i / scale,
        "align_corners" if new == 1 => 0.0,
        "align_corners" => i * (length - 1.0) / (resized - 1.0),
        "pytorch_half_pixel" if resized <= 1.0 => 0.0,
        "half_pixel_symmetric" => {
            let adjustment = new as f64 / resized;
            let offset = length / 2.0 * (1.0 - adjustment);
            offset + (i + 0.5) / scale - 0.5
        }
        "tf_crop_and_resize" => {
            let (start, end) = region.unwrap_or((0.0, 1.0));
            let at = match new {
                1 => 0.5 * (start + end) * (length - 1.0),
                _ => start * (length - 1.0) + i * (end - start) * (length - 1.0) / (resized - 1.0),
            };
            if at < 0.0 || at > length - 1.0 {
                return None;
            }
            at
        }
        _ => (i + 0.5) / scale - 0.5,
    };
    let last = old.saturating_sub(1) as f64;
    let inside = |at: f64| at.clamp(0.0, last) as usize;
    let widened = if node.int("antialias", 0) == 1 { (1.0 / scale).max(1.0) } else { 1.0 };
    let kernel: Box<dyn Fn(f64) -> f64> = match node.text("mode", "nearest").as_str() {
        "nearest" => {
            let rounded = match node
                .text("nearest_mode", if node.op.version < 11 { "floor" } else { "round_prefer_floor" })
                .as_str()
            {
                "floor" => at.floor(),
                "ceil" => at.ceil(),
                "round_prefer_ceil" => (at + 0.5).floor(),
                _ => (at - 0.5).ceil(),
            };
            return Some(vec![(inside(rounded), 1.0)]);
        }
        "cubic" => {
            let a = node.float("cubic_coeff_a", -0.75);
            Box::new(move |d: f64| match d.abs() {
                d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
                d if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
                _ => 0.0,
            })
        }
        _ => Box::new(|d: f64| (1.0 - d.abs()).max(0.0)),
    };
    let reach = if node.text("mode", "nearest") == "cubic" { 2.0 } else { 1.0 } * widened;
    let excluded = node.int("exclude_outside", 0) == 1;
    let (low, high) = ((at - reach).floor() as i64, (at + reach).ceil() as i64);
    let mut taps: Vec<(usize, f64)> = Vec::new();
    for k in low..=high {
        let weight = kernel((k as f64 - at) / widened);
        if weight != 0.0 && !(excluded && (k < 0 || k > last as i64)) {
            taps.push((inside(k as f64), weight));
        }
    }
    let sum: f64 = taps.iter().map(|(_, w)| w).sum();
    taps.iter_mut().for_each(|(_, w)| *w /= sum);
    Some(taps)
}
