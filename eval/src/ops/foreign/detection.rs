//! Boxes in images: which of them to keep, and what lies in them.

use planish_ir::DType;

use super::{Maybe, Node, indices, of_integers, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "NonMaxSuppression" => one(non_max_suppression(node)?),
        "RoiAlign" => one(roi_align(node)?),
        _ => Ok(None),
    }
}

/// A box as its lower and its upper corner.
type Corners = [[f64; 2]; 2];

/// The boxes of each batch and class in the order of their scores, without those that overlap one before too much:
/// [boxes, 3] of batch, class and box.
fn non_max_suppression(node: &Node<'_>) -> Result<Tensor, String> {
    let (boxes, scores) = (node.operand(0)?, node.operand(1)?);
    let (&[batch, count, 4], &[rows, classes, scored]) = (boxes.shape(), scores.shape()) else {
        return Err(format!("{} and {} are not boxes and scores", boxes.ty(), scores.ty()));
    };
    if rows != batch || scored != count {
        return Err(format!("{} and {} do not fit each other", boxes.ty(), scores.ty()));
    }
    let number = |index: usize| node.optional(index).and_then(|t| t.to_f64().first().copied());
    let most = node.integers(2)?.and_then(|most| most.first().copied()).unwrap_or(0);
    let most = usize::try_from(most).unwrap_or(0);
    let (overlap, least) = (number(3).unwrap_or(0.0), number(4));
    let centered = node.int("center_point_box", 0) == 1;
    let corners: Vec<Corners> = boxes.to_f64().as_chunks::<4>().0.iter().map(|b| corners(*b, centered)).collect();
    let values = scores.to_f64();
    let mut found: Vec<i128> = Vec::new();
    for (n, class) in (0..batch).flat_map(|n| (0..classes).map(move |class| (n, class))) {
        let own = &values[(n * classes + class) * count..][..count];
        let boxes = &corners[n * count..][..count];
        let mut order: Vec<usize> = (0..count).filter(|&i| least.is_none_or(|least| own[i] > least)).collect();
        order.sort_by(|&a, &b| own[b].total_cmp(&own[a]));
        let mut kept: Vec<usize> = Vec::new();
        for i in order {
            if kept.len() >= most {
                break;
            }
            if kept.iter().all(|&k| intersection_over_union(boxes[k], boxes[i]) <= overlap) {
                kept.push(i);
                found.extend([n as i128, class as i128, i as i128]);
            }
        }
    }
    of_integers(DType::I64, vec![found.len() / 3, 3], &found)
}

/// A box that is given by two opposite corners, or by its center and its sizes.
fn corners([a, b, c, d]: [f64; 4], centered: bool) -> Corners {
    match centered {
        true => [[a - c / 2.0, b - d / 2.0], [a + c / 2.0, b + d / 2.0]],
        false => [[a.min(c), b.min(d)], [a.max(c), b.max(d)]],
    }
}

fn intersection_over_union(a: Corners, b: Corners) -> f64 {
    let area = |[low, high]: Corners| (0..2).map(|i| (high[i] - low[i]).max(0.0)).product::<f64>();
    let common = area([[a[0][0].max(b[0][0]), a[0][1].max(b[0][1])], [a[1][0].min(b[1][0]), a[1][1].min(b[1][1])]]);
    let union = area(a) + area(b) - common;
    if common <= 0.0 || union <= 0.0 { 0.0 } else { common / union }
}

/// The most points that a cell of a region is sampled at.
const MOST_POINTS: usize = 1 << 20;

/// Regions of images, each resampled to a grid: the mean or the largest of several points of each cell.
fn roi_align(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, rois) = (node.operand(0)?, node.operand(1)?);
    let (&[batch, channels, height, width], &[regions, 4]) = (x.shape(), rois.shape()) else {
        return Err(format!("{} and {} are not images and regions", x.ty(), rois.ty()));
    };
    let of = node.integers(2)?.ok_or("it has no batch indices")?;
    let of: Option<Vec<usize>> = of.iter().map(|&n| usize::try_from(n).ok().filter(|&n| n < batch)).collect();
    let of = of.filter(|of| of.len() == regions).ok_or("its batch indices are not of its images and regions")?;
    let size = |name: &str, default: i64| {
        usize::try_from(node.int(name, default)).map_err(|_| format!("its {name} is negative"))
    };
    let (rows, columns, ratio) = (size("output_height", 1)?, size("output_width", 1)?, size("sampling_ratio", 0)?);
    let scale = node.float("spatial_scale", 1.0);
    let default = if node.op.version < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = node.text("coordinate_transformation_mode", default) == "half_pixel";
    let largest = node.text("mode", "avg") == "max";
    let shape = [regions, channels, rows, columns];
    let mut out = Vec::with_capacity(node.count(&shape)?);
    let (values, regions) = (x.to_f64(), rois.to_f64());
    for index in indices(&shape) {
        let [region, channel, row, column] = [index[0], index[1], index[2], index[3]];
        let offset = if half { 0.5 } else { 0.0 };
        let edge = |i: usize| regions[region * 4 + i] * scale - offset;
        let least = if half { 0.0 } else { 1.0 };
        let extent = |low: usize, high: usize| {
            let extent = edge(high) - edge(low);
            if half { extent } else { extent.max(least) }
        };
        let (cell_y, cell_x) = (extent(1, 3) / rows as f64, extent(0, 2) / columns as f64);
        let points = |cell: f64| if ratio > 0 { ratio } else { cell.ceil().max(0.0) as usize };
        let (ny, nx) = (points(cell_y), points(cell_x));
        if ny.checked_mul(nx).is_none_or(|number| number > MOST_POINTS) {
            return Err(format!("a cell of region {region} takes {ny} by {nx} points, more than {MOST_POINTS}"));
        }
        let image = &values[(of[region] * channels + channel) * height * width..][..height * width];
        let (mut sum, mut best) = (0.0, f64::NEG_INFINITY);
        for (iy, ix) in (0..ny).flat_map(|iy| (0..nx).map(move |ix| (iy, ix))) {
            let y = edge(1) + row as f64 * cell_y + (iy as f64 + 0.5) * cell_y / ny as f64;
            let x = edge(0) + column as f64 * cell_x + (ix as f64 + 0.5) * cell_x / nx as f64;
            let corners = bilinear([y, x], [height, width]);
            let weighted = corners.map(|(at, weight)| image.get(at).map_or(0.0, |v| v * weight));
            sum += weighted.iter().sum::<f64>();
            best = weighted.into_iter().fold(best, f64::max);
        }
        out.push(match largest {
            true if ny * nx > 0 => best,
            _ => sum / (ny * nx).max(1) as f64,
        });
    }
    of_numbers(x.dtype(), &shape, &out)
}

/// The four pixels around a point with their weights; none has one where the point is outside.
fn bilinear(point: [f64; 2], size: [usize; 2]) -> [(usize, f64); 4] {
    let axis = |at: f64, size: usize| -> Option<[(usize, f64); 2]> {
        if size == 0 || !(-1.0..=size as f64).contains(&at) {
            return None;
        }
        let at = at.max(0.0).min((size - 1) as f64);
        let low = at.floor() as usize;
        let high = (low + 1).min(size - 1);
        let rest = at - low as f64;
        Some([(low, 1.0 - rest), (high, rest)])
    };
    match (axis(point[0], size[0]), axis(point[1], size[1])) {
        (Some([a, b]), Some([c, d])) => {
            [(a, c), (a, d), (b, c), (b, d)].map(|((y, v), (x, w))| (y * size[1] + x, v * w))
        }
        _ => [(0, 0.0); 4],
    }
}
