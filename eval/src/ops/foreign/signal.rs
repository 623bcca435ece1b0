//! Fourier transforms, computed in `f64` by their sums and rounded once.

use std::f64::consts::PI;

use super::create::result;
use super::{Maybe, Node, around, axis, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "DFT" => one(transform(node)?),
        "STFT" => one(short_time(node)?),
        "MelWeightMatrix" => one(mel_weights(node)?),
        _ => Ok(None),
    }
}

/// Cosine and sine of each of so many equal parts of a turn.
fn circle(parts: usize) -> Vec<(f64, f64)> {
    let angle = |k: usize| 2.0 * PI * k as f64 / parts as f64;
    (0..parts).map(|k| (libm::cos(angle(k)), libm::sin(angle(k)))).collect()
}

/// The sum of `signal` times the turns of frequency `bin`, backward or forward.
fn bin(signal: &[(f64, f64)], circle: &[(f64, f64)], bin: usize, inverse: bool) -> (f64, f64) {
    let (mut real, mut imaginary, mut at) = (0.0, 0.0, 0);
    for &(a, b) in signal {
        let (c, s) = circle[at];
        let s = if inverse { s } else { -s };
        real += a * c - b * s;
        imaginary += a * s + b * c;
        at = (at + bin) % circle.len();
    }
    (real, imaginary)
}

/// The first integer of an operand that may be left out, as a size.
fn size(node: &Node<'_>, index: usize) -> Result<Option<usize>, String> {
    let Some(given) = node.integers(index)? else { return Ok(None) };
    let size = given.first().and_then(|&v| usize::try_from(v).ok());
    size.map(Some).ok_or_else(|| format!("operand {index} is {given:?}, expected a size"))
}

fn transform(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let rank = x.shape().len();
    let parts = *x.shape().last().ok_or("its operand is a scalar")?;
    let along = match node.op.version {
        ..20 => node.int("axis", 1),
        _ => node.integers(2)?.and_then(|a| a.first().copied()).unwrap_or(-2),
    };
    let along = axis(along, rank)?;
    if !(1..=2).contains(&parts) || along + 1 == rank {
        return Err(format!("{} has no real and imaginary parts after axis {along}", x.ty()));
    }
    let (inverse, onesided) = (node.int("inverse", 0) == 1, node.int("onesided", 0) == 1);
    // The inverse of one half is real: the other half is its mirror image.
    let mirrored = inverse && onesided;
    let (outer, given, inner) = around(&x.shape()[..rank - 1], along);
    let whole = if mirrored { given.saturating_sub(1) * 2 } else { given };
    let length = size(node, 1)?.unwrap_or(whole);
    let bins = if onesided && !inverse { length / 2 + usize::from(length > 0) } else { length };
    let kept = if mirrored { 1 } else { 2 };
    let mut shape = x.shape().to_vec();
    (shape[along], shape[rank - 1]) = (bins, kept);
    let mut out = vec![0.0; node.count(&shape)?];
    node.count(&[length])?;
    let (values, circle) = (x.to_f64(), circle(length));
    let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        // What is missing is zero.
        let element = |k: usize| {
            if k >= given {
                return (0.0, 0.0);
            }
            let at = ((o * given + k) * inner + i) * parts;
            (values[at], if parts == 2 { values[at + 1] } else { 0.0 })
        };
        let mirror = |k: usize| match element(length - k) {
            (real, imaginary) if mirrored && k > length / 2 => (real, -imaginary),
            _ => element(k),
        };
        let signal: Vec<(f64, f64)> =
            if mirrored { (0..length).map(mirror).collect() } else { (0..given.min(length)).map(element).collect() };
        for k in 0..bins {
            let (real, imaginary) = bin(&signal, &circle, k, inverse);
            let at = ((o * bins + k) * inner + i) * kept;
            out[at] = real * scale;
            if kept == 2 {
                out[at + 1] = imaginary * scale;
            }
        }
    }
    of_numbers(x.dtype(), &shape, &out)
}

fn short_time(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let (batch, samples, parts) = match *x.shape() {
        [batch, samples] => (batch, samples, 1),
        [batch, samples, parts @ 1..=2] => (batch, samples, parts),
        _ => return Err(format!("{} is not a batch of signals", x.ty())),
    };
    let step = size(node, 1)?.filter(|&s| s > 0).ok_or("its frame_step is not positive")?;
    let window = node.optional(2).map(Tensor::to_f64);
    let length = match (size(node, 3)?, &window) {
        (Some(length), _) => length,
        (None, Some(window)) => window.len(),
        (None, None) => return Err("it has neither a window nor a frame_length".to_owned()),
    };
    if length == 0 || length > samples || window.as_ref().is_some_and(|w| w.len() != length) {
        return Err(format!("frames of {length} samples do not fit {samples} samples and the window"));
    }
    let frames = (samples - length) / step + 1;
    let bins = if node.int("onesided", 1) == 1 { length / 2 + 1 } else { length };
    let shape = [batch, frames, bins, 2];
    let mut out = Vec::with_capacity(node.count(&shape)?);
    let (values, circle) = (x.to_f64(), circle(length));
    for (n, frame) in (0..batch).flat_map(|n| (0..frames).map(move |frame| (n, frame))) {
        let element = |k: usize| {
            let at = (n * samples + frame * step + k) * parts;
            let weight = window.as_ref().map_or(1.0, |w| w[k]);
            (values[at] * weight, if parts == 2 { values[at + 1] * weight } else { 0.0 })
        };
        let signal: Vec<(f64, f64)> = (0..length).map(element).collect();
        for k in 0..bins {
            let (real, imaginary) = bin(&signal, &circle, k, false);
            out.extend([real, imaginary]);
        }
    }
    of_numbers(x.dtype(), &shape, &out)
}

/// Triangles over the bins of a transform whose corners are evenly spaced in mel: [bins, bands].
fn mel_weights(node: &Node<'_>) -> Result<Tensor, String> {
    let number = |index: usize| -> Result<f64, String> {
        node.operand(index)?.to_f64().first().copied().ok_or_else(|| format!("operand {index} is empty"))
    };
    let bands = size(node, 0)?.ok_or("it has no number of bands")?;
    let (length, rate) = (size(node, 1)?.ok_or("it has no length")?, number(2)?);
    let dtype = result(node)?;
    let bins = length / 2 + 1;
    let shape = [bins, bands];
    let mut out = vec![0.0; node.count(&shape)?];
    let mel = |hertz: f64| 2595.0 * libm::log10(1.0 + hertz / 700.0);
    let (low, high) = (mel(number(3)?), mel(number(4)?));
    let step = (high - low) / (bands as f64 + 2.0);
    let corner = |i: usize| {
        let hertz = 700.0 * (libm::pow(10.0, (i as f64 * step + low) / 2595.0) - 1.0);
        ((length as f64 + 1.0) * hertz / rate).floor().clamp(0.0, bins as f64) as usize
    };
    for band in 0..bands {
        let [lower, center, upper] = [corner(band), corner(band + 1), corner(band + 2)];
        let mut set = |bin: usize, value: f64| {
            if bin < bins {
                out[bin * bands + band] = value;
            }
        };
        if lower == center {
            set(center, 1.0);
        } else {
            (lower..=center).for_each(|bin| set(bin, (bin - lower) as f64 / (center - lower) as f64));
        }
        if upper > center {
            (center..upper).for_each(|bin| set(bin, (upper - bin) as f64 / (upper - center) as f64));
        }
    }
    of_numbers(dtype, &shape, &out)
}
