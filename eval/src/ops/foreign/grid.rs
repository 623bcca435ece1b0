//! Images sampled at given points.

use super::convolution::image;
use super::{Maybe, Node, Results, indices, not_known, of_numbers, one, position, sizes};
use crate::Tensor;
use crate::error::Failure;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "GridSample" => one(sample(node)?),
        "AffineGrid" => one(affine(node)?),
        "Col2Im" => one(from_columns(node)?),
        "TensorScatter" => written(node).map(Some),
        _ => Ok(None),
    }
}

/// What lies outside of an image.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zero,
    Border,
    Reflection,
}

/// How one axis is sampled.
struct Axis {
    size: usize,
    /// The range that reflections are at the ends of.
    range: [f64; 2],
    aligned: bool,
    outside: Outside,
}

impl Axis {
    /// From -1 to 1 to a position among elements.
    fn position(&self, at: f64) -> f64 {
        let size = self.size as f64;
        if self.aligned { (at + 1.0) / 2.0 * (size - 1.0) } else { ((at + 1.0) * size - 1.0) / 2.0 }
    }

    /// A position moved inside where it is outside.
    fn inside(&self, at: f64) -> f64 {
        let [low, high] = self.range;
        match self.outside {
            _ if (low..=high).contains(&at) => at,
            Outside::Zero => at,
            Outside::Border => at.clamp(0.0, (self.size.max(1) - 1) as f64),
            Outside::Reflection if high > low && at.is_finite() => {
                let span = high - low;
                let folded = (at - low).rem_euclid(2.0 * span);
                low + folded.min(2.0 * span - folded)
            }
            Outside::Reflection => 0.0,
        }
    }

    /// The element at an index that may lie outside.
    fn element(&self, at: f64) -> Option<usize> {
        let at = if self.outside == Outside::Reflection { self.inside(at).round() } else { self.inside(at) };
        let at = if self.outside == Outside::Zero { at } else { at.clamp(0.0, (self.size.max(1) - 1) as f64) };
        (at >= 0.0 && at < self.size as f64).then_some(at as usize)
    }

    /// The elements that a position is a sum of, with their weights; none stands for 0.
    fn taps(&self, at: f64, mode: Mode) -> Vec<(Option<usize>, f64)> {
        let at = self.position(at);
        match mode {
            Mode::Nearest => vec![(self.element(self.inside(at.round_ties_even())), 1.0)],
            Mode::Linear => {
                let at = self.inside(at);
                let low = at.floor();
                vec![(self.element(low), 1.0 - (at - low)), (self.element(low + 1.0), at - low)]
            }
            Mode::Cubic => {
                let at = self.inside(at);
                let low = at.floor();
                (-1..3).map(|k| (self.element(low + f64::from(k)), cubic(at - low - f64::from(k)))).collect()
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// The weight of an element at a distance.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    match distance.abs() {
        d if d <= 1.0 => ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A,
        _ => 0.0,
    }
}

fn sample(node: &Node<'_>) -> Result<Tensor, Failure> {
    let (x, grid) = (node.operand(0)?, node.operand(1)?);
    let (batch, channels, spatial) = image(x)?;
    let rank = spatial.len();
    let (Some((&coordinates, places)), true) = (grid.shape().split_last(), grid.shape().first() == Some(&batch)) else {
        return Err(format!("{} and {} do not fit each other", x.ty(), grid.ty()).into());
    };
    if coordinates != rank {
        return Err(format!("{} has {coordinates} coordinates for {rank} axes", grid.ty()).into());
    }
    let mode = match node.text("mode", "linear").as_str() {
        "nearest" => Mode::Nearest,
        "linear" | "bilinear" => Mode::Linear,
        "cubic" | "bicubic" => Mode::Cubic,
        other => return Err(not_known("mode", other)),
    };
    let outside = match node.text("padding_mode", "zeros").as_str() {
        "zeros" => Outside::Zero,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return Err(not_known("padding_mode", other)),
    };
    let aligned = node.int("align_corners", 0) == 1;
    let axes: Vec<Axis> = spatial
        .iter()
        .map(|&size| {
            let last = size as f64 - 1.0;
            let range = if aligned { [0.0, last] } else { [-0.5, last + 0.5] };
            Axis { size, range, aligned, outside }
        })
        .collect();
    let area: usize = spatial.iter().product();
    let each: usize = places[1..].iter().product();
    let shape = [&[batch, channels][..], &places[1..]].concat();
    let mut out = vec![0.0; node.count(&shape)?];
    let (values, points) = (x.to_f64(), grid.to_f64());
    for (place, point) in points.chunks(rank).enumerate() {
        let (n, at) = (place / each.max(1), place % each.max(1));
        // Coordinates are given for the last axis first.
        let mut sum: Vec<(Option<usize>, f64)> = vec![(Some(0), 1.0)];
        for (axis, &coordinate) in axes.iter().zip(point.iter().rev()) {
            let taps = axis.taps(coordinate, mode);
            let each = sum.iter().flat_map(|(from, weight)| {
                taps.iter().map(move |(to, by)| (from.zip(*to).map(|(from, to)| from * axis.size + to), weight * by))
            });
            sum = each.collect();
        }
        for c in 0..channels {
            let own = &values[(n * channels + c) * area..][..area];
            let terms = sum.iter().filter_map(|(at, weight)| Some(own[(*at)?] * weight));
            out[(n * channels + c) * each + at] = terms.sum();
        }
    }
    Ok(of_numbers(x.dtype(), &shape, &out)?)
}

/// The points of a grid over an image, moved by a matrix for each row.
fn affine(node: &Node<'_>) -> Result<Tensor, String> {
    let theta = node.operand(0)?;
    let size = sizes("sizes", &node.integers(1)?.ok_or("it has no size")?)?;
    let [batch, _, spatial @ ..] = size.as_slice() else { return Err(format!("{size:?} is not a size of images")) };
    let rank = spatial.len();
    if theta.shape() != [*batch, rank, rank + 1] {
        return Err(format!("{} has no matrices for images of size {size:?}", theta.ty()));
    }
    let shape = [&[*batch][..], spatial, &[rank]].concat();
    let mut out = Vec::with_capacity(node.count(&shape)?);
    let matrices = theta.to_f64();
    let aligned = node.int("align_corners", 0) == 1;
    for n in 0..*batch {
        for place in indices(spatial) {
            let at = |(i, size): (usize, usize)| match (aligned, size) {
                (true, 1) => 0.0,
                (true, size) => 2.0 * i as f64 / (size as f64 - 1.0) - 1.0,
                (false, size) => (2.0 * i as f64 + 1.0) / size as f64 - 1.0,
            };
            let point: Vec<f64> = place.iter().copied().zip(spatial.iter().copied()).rev().map(at).collect();
            for row in matrices[n * rank * (rank + 1)..][..rank * (rank + 1)].chunks(rank + 1) {
                out.push(row.iter().zip(&point).map(|(m, p)| m * p).sum::<f64>() + row[rank]);
            }
        }
    }
    of_numbers(theta.dtype(), &shape, &out)
}

/// Columns of blocks added up where they overlap in the image.
fn from_columns(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let (spatial, block) = (
        sizes("sizes", &node.integers(1)?.ok_or("it has no image shape")?)?,
        sizes("blocks", &node.integers(2)?.ok_or("it has no block shape")?)?,
    );
    let window = super::convolution::Window::of(node, &spatial, block)?;
    let places = window.places(&spatial, false)?;
    let (area, number) = (window.kernel.iter().product::<usize>(), places.iter().product::<usize>());
    let &[batch, rows, columns] = x.shape() else { return Err(format!("{} are not columns", x.ty())) };
    if columns != number || rows % area != 0 {
        return Err(format!("{} are not columns of {area} elements at {number} places", x.ty()));
    }
    let channels = rows / area;
    let shape = [&[batch, channels][..], &spatial].concat();
    let mut out = vec![0.0; node.count(&shape)?];
    let (values, size) = (x.to_f64(), spatial.iter().product::<usize>());
    for (image, row) in (0..batch * channels).flat_map(|image| (0..area).map(move |row| (image, row))) {
        let offset = indices(&window.kernel).nth(row).unwrap_or_default();
        for (column, place) in indices(&places).enumerate() {
            if let Some(at) = window.position(&place, &offset, &spatial) {
                out[image * size + at] += values[(image * area + row) * columns + column];
            }
        }
    }
    of_numbers(x.dtype(), &shape, &out)
}

/// A cache with new elements written along an axis, for each row from an index on.
fn written(node: &Node<'_>) -> Results {
    let (cache, update) = (node.operand(0)?, node.operand(1)?);
    let a = node.axis("axis", -2, cache.shape().len())?;
    let same = |(i, (x, y)): (usize, (&usize, &usize))| i == a || x == y;
    let fits = cache.shape().len() == update.shape().len()
        && a > 0
        && cache.shape().iter().zip(update.shape()).enumerate().all(same);
    let (batch, size, length) = (cache.shape()[0], cache.shape()[a], update.shape().get(a).copied().unwrap_or(0));
    let starts = match node.integers(2)? {
        Some(given) => sizes("places", &given)?,
        None => vec![0; batch],
    };
    let circular = node.text("mode", "linear") == "circular";
    let room = |start: &usize| circular || start.checked_add(length).is_some_and(|end| end <= size);
    if !fits || starts.len() != batch || length > size || !starts.iter().all(room) {
        return Err(format!("{} cannot be written to {} at {starts:?}", update.ty(), cache.ty()).into());
    }
    let mut both = cache.data().clone();
    if !both.extend(update.data()) {
        return Err(format!("{} cannot be written to {}", update.ty(), cache.ty()).into());
    }
    let both = super::tensor(vec![both.len()], both)?;
    let mut at: Vec<Option<usize>> = (0..cache.data().len()).map(Some).collect();
    for (from, mut index) in indices(update.shape()).enumerate() {
        index[a] = (starts[index[0]] % size.max(1) + index[a]) % size.max(1);
        at[position(&index, cache.shape())] = Some(cache.data().len() + from);
    }
    Ok(vec![super::pick(&both, None, cache.shape().to_vec(), &at)?])
}
