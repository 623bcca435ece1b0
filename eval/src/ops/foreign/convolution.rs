//! Convolutions: windows laid out as the rows of a matrix, times the filters.

use planish_ir::DType;

use super::{Maybe, Node, indices, of_integers, of_numbers, one, signed};
use crate::Tensor;
use crate::product::{Matrix, multiply};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Conv" => {
            let (x, w) = (node.operand(0)?, node.operand(1)?);
            let (shape, values) = convolve(node, x, &x.to_f64(), w, &w.to_f64(), node.optional(2))?;
            one(of_numbers(x.dtype(), &shape, &values)?)
        }
        "ConvInteger" => {
            let (x, w) = (node.operand(0)?, node.operand(1)?);
            let centered = |t: &Tensor, zero: Option<&Tensor>| -> Result<Vec<f64>, String> {
                let zero = zero.map_or_else(|| vec![0.0], Tensor::to_f64);
                if zero.is_empty() || !t.data().len().is_multiple_of(zero.len()) {
                    return Err(format!("{} zero points do not fit {}", zero.len(), t.ty()));
                }
                let each = t.data().len() / zero.len();
                Ok(t.to_f64().iter().enumerate().map(|(i, v)| v - zero[i / each.max(1)]).collect())
            };
            let (values, filters) = (centered(x, node.optional(2))?, centered(w, node.optional(3))?);
            let (shape, sums) = convolve(node, x, &values, w, &filters, None)?;
            one(of_integers(DType::I32, shape, &sums.iter().map(|v| *v as i128).collect::<Vec<_>>())?)
        }
        "ConvTranspose" => one(transposed(node)?),
        _ => Ok(None),
    }
}

/// How a window moves: along each spatial axis.
pub(super) struct Window {
    pub(super) kernel: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) dilations: Vec<usize>,
    /// Elements before the first and after the last.
    pub(super) before: Vec<i64>,
    pub(super) after: Vec<i64>,
}

impl Window {
    pub(super) fn of(node: &Node<'_>, spatial: &[usize], kernel: Vec<usize>) -> Result<Self, String> {
        let rank = spatial.len();
        if kernel.len() != rank {
            return Err(format!("a window of shape {kernel:?} does not move over {spatial:?}"));
        }
        let list = |name: &str| -> Result<Vec<usize>, String> {
            let given =
                super::sizes(name, &node.ints(name).filter(|v| !v.is_empty()).unwrap_or_else(|| vec![1; rank]))?;
            match given.len() == rank && given.iter().all(|&v| (1..1 << 31).contains(&v)) {
                true => Ok(given),
                false => Err(format!("its {name} are {given:?}, expected {rank} positive numbers")),
            }
        };
        let (strides, dilations) = (list("strides")?, list("dilations")?);
        let mut pads = node.ints("pads").filter(|p| !p.is_empty()).unwrap_or_else(|| vec![0; 2 * rank]);
        let mode = node.text("auto_pad", "NOTSET");
        if mode.starts_with("SAME") {
            for a in 0..rank {
                let extent = (kernel[a].max(1) - 1) * dilations[a] + 1;
                let total = (spatial[a].div_ceil(strides[a]).max(1) - 1) * strides[a] + extent;
                let total = signed(total.saturating_sub(spatial[a]));
                let (small, large) = (total / 2, total - total / 2);
                (pads[a], pads[a + rank]) = if mode == "SAME_UPPER" { (small, large) } else { (large, small) };
            }
        } else if pads.len() != 2 * rank || mode == "VALID" {
            pads = vec![0; 2 * rank];
        }
        if kernel.contains(&0) || kernel.iter().any(|&k| k >= 1 << 31) || pads.iter().any(|p| p.abs() >= 1 << 31) {
            return Err(format!("a window of shape {kernel:?} with pads {pads:?}"));
        }
        let after = pads.split_off(rank);
        Ok(Self { kernel, strides, dilations, before: pads, after })
    }

    fn extent(&self, a: usize) -> i64 {
        signed((self.kernel[a] - 1) * self.dilations[a] + 1)
    }

    /// How many places it has; one more, where some would be left over, if it rounds up.
    pub(super) fn places(&self, spatial: &[usize], up: bool) -> Result<Vec<usize>, String> {
        let one = |a: usize| {
            let stride = signed(self.strides[a]);
            let room = signed(spatial[a]) + self.before[a] + self.after[a] - self.extent(a);
            let mut places = room.div_euclid(stride) + 1 + i64::from(up && room.rem_euclid(stride) != 0);
            // None begins in the padding after.
            if up && (places - 1) * stride >= signed(spatial[a]) + self.before[a] {
                places -= 1;
            }
            usize::try_from(places)
                .map_err(|_| format!("a window of shape {:?} is larger than {spatial:?}", self.kernel))
        };
        (0..spatial.len()).map(one).collect()
    }

    /// Where an element of the window lies, which may be in the padding.
    pub(super) fn at(&self, place: &[usize], offset: &[usize]) -> impl Iterator<Item = i64> {
        (0..place.len()).map(|a| signed(place[a] * self.strides[a] + offset[a] * self.dilations[a]) - self.before[a])
    }

    /// The same as a position among the spatial elements, outside of the padding.
    pub(super) fn position(&self, place: &[usize], offset: &[usize], spatial: &[usize]) -> Option<usize> {
        self.at(place, offset)
            .zip(spatial)
            .try_fold(0, |at, (i, &size)| usize::try_from(i).ok().filter(|&i| i < size).map(|i| at * size + i))
    }
}

/// Batch, channels and the spatial dimensions.
pub(super) fn image(x: &Tensor) -> Result<(usize, usize, &[usize]), String> {
    match x.shape() {
        [batch, channels, spatial @ ..] if !spatial.is_empty() => Ok((*batch, *channels, spatial)),
        _ => Err(format!("{} is not a batch of images", x.ty())),
    }
}

pub(super) fn convolve(
    node: &Node<'_>,
    x: &Tensor,
    values: &[f64],
    w: &Tensor,
    filters: &[f64],
    bias: Option<&Tensor>,
) -> Result<(Vec<usize>, Vec<f64>), String> {
    let (batch, channels, spatial) = image(x)?;
    let (out, each, kernel) = image(w)?;
    let groups = usize::try_from(node.int("group", 1)).ok().filter(|&g| g > 0).ok_or("its group is not positive")?;
    if each * groups != channels || out % groups != 0 {
        return Err(format!("{} and {} do not fit in {groups} groups", x.ty(), w.ty()));
    }
    let window = Window::of(node, spatial, kernel.to_vec())?;
    let places = window.places(spatial, false)?;
    let (size, area) = (spatial.iter().product::<usize>(), kernel.iter().product::<usize>());
    let shape = [&[batch, out][..], &places].concat();
    let mut result = vec![0.0; node.count(&shape)?];
    let number: usize = places.iter().product();
    node.count(&[number, each, area])?;
    let bias = bias.map_or_else(|| vec![0.0; out], Tensor::to_f64);
    let offsets: Vec<Vec<usize>> = indices(kernel).collect();
    for (n, g) in (0..batch).flat_map(|n| (0..groups).map(move |g| (n, g))) {
        let mut columns = Vec::with_capacity(number * each * area);
        for place in indices(&places) {
            for c in 0..each {
                let from = (n * channels + g * each + c) * size;
                columns.extend(
                    offsets.iter().map(|o| window.position(&place, o, spatial).map_or(0.0, |p| values[from + p])),
                );
            }
        }
        let rows = out / groups;
        let own = &filters[g * rows * each * area..(g + 1) * rows * each * area];
        let columns = Matrix::new(&columns, number, each * area).transposed();
        let product = multiply(Matrix::new(own, rows, each * area), columns);
        let to = (n * out + g * rows) * number;
        for (i, v) in product.into_iter().enumerate() {
            result[to + i] = v + bias.get(g * rows + i / number).copied().unwrap_or(0.0);
        }
    }
    Ok((shape, result))
}

/// Each element adds a filter where a convolution's window would lie.
fn transposed(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, w) = (node.operand(0)?, node.operand(1)?);
    let (batch, channels, spatial) = image(x)?;
    let (_, each, kernel) = image(w)?;
    let groups = usize::try_from(node.int("group", 1)).ok().filter(|&g| g > 0).ok_or("its group is not positive")?;
    if w.shape()[0] != channels || channels % groups != 0 {
        return Err(format!("{} and {} do not fit in {groups} groups", x.ty(), w.ty()));
    }
    let mut window = Window::of(node, spatial, kernel.to_vec())?;
    let rank = spatial.len();
    let extra = node.ints("output_padding").unwrap_or_else(|| vec![0; rank]);
    let asked = node.ints("output_shape");
    let mode = node.text("auto_pad", "NOTSET");
    let mut places = Vec::new();
    for (a, &length) in spatial.iter().enumerate() {
        let added = extra.get(a).copied().unwrap_or(0);
        let full = signed((length.max(1) - 1) * window.strides[a]) + window.extent(a) + added;
        let given = asked.as_ref().and_then(|s| s.get(a + s.len().saturating_sub(rank)).copied());
        let given = given.or_else(|| mode.starts_with("SAME").then(|| signed(length * window.strides[a])));
        if let Some(given) = given {
            let total = (full - given).max(0);
            window.before[a] = if mode == "SAME_UPPER" { total / 2 } else { total - total / 2 };
            window.after[a] = total - window.before[a];
        }
        let size = given.unwrap_or(full - window.before[a] - window.after[a]);
        places.push(usize::try_from(size).map_err(|_| format!("its result would have the size {size}"))?);
    }
    let out = each * groups;
    let shape = [&[batch, out][..], &places].concat();
    let bias = node.optional(2).map_or_else(|| vec![0.0; out], Tensor::to_f64);
    let (area, number) = (kernel.iter().product::<usize>(), places.iter().product::<usize>());
    let mut result = vec![0.0; node.count(&shape)?];
    let (values, filters) = (x.to_f64(), w.to_f64());
    let per = channels / groups;
    for (i, value) in values.iter().enumerate() {
        let size = spatial.iter().product::<usize>();
        let (n, c, at) = (i / size / channels, i / size % channels, i % size);
        let mut rest = at;
        let mut place = vec![0; rank];
        for a in (0..rank).rev() {
            place[a] = rest % spatial[a];
            rest /= spatial[a];
        }
        for (k, offset) in indices(kernel).enumerate() {
            let Some(to) = window.position(&place, &offset, &places) else { continue };
            for o in 0..each {
                let channel = n * out + c / per * each + o;
                result[channel * number + to] += value * filters[(c * each + o) * area + k];
            }
        }
    }
    result.iter_mut().enumerate().for_each(|(i, v)| *v += bias.get(i / number % out).copied().unwrap_or(0.0));
    of_numbers(x.dtype(), &shape, &result)
}
