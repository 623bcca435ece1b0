//! Pooling.

use planish_ir::DType;

use super::convolution::{Window, image};
use super::{Maybe, Node, indices, of_integers, of_numbers, one, signed, sizes};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "MaxPool" => max_pool(node).map(Some),
        "AveragePool" | "LpPool" => pool(node).map(Some),
        "GlobalMaxPool" => global(node, |v| v.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        "GlobalAveragePool" => global(node, |v| v.iter().sum::<f64>() / v.len() as f64),
        "GlobalLpPool" => {
            let p = node.int("p", 2) as f64;
            global(node, |v| v.iter().map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p))
        }
        _ => Ok(None),
    }
}

fn global(node: &Node<'_>, f: impl Fn(&[f64]) -> f64) -> Maybe {
    let x = node.operand(0)?;
    let (batch, channels, spatial) = image(x)?;
    let size = spatial.iter().product::<usize>().max(1);
    let values: Vec<f64> = x.to_f64().chunks(size).map(f).collect();
    let shape = [&[batch, channels][..], &vec![1; spatial.len()]].concat();
    one(of_numbers(x.dtype(), &shape, &values)?)
}

fn window(node: &Node<'_>, spatial: &[usize]) -> Result<(Window, Vec<usize>), String> {
    let kernel = sizes("sizes of a window", &node.ints("kernel_shape").ok_or("it has no kernel_shape")?)?;
    let window = Window::of(node, spatial, kernel)?;
    let places = window.places(spatial, node.int("ceil_mode", 0) == 1)?;
    Ok((window, places))
}

/// The largest element of each window, and where it is in the whole tensor.
fn max_pool(node: &Node<'_>) -> super::Results {
    let x = node.operand(0)?;
    let (batch, channels, spatial) = image(x)?;
    let (window, places) = window(node, spatial)?;
    let columns_first = node.int("storage_order", 0) == 1;
    let size: usize = spatial.iter().product();
    let shape = [&[batch, channels][..], &places].concat();
    let values = x.to_f64();
    let total = node.count(&shape)?;
    let (mut found, mut at) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let offsets: Vec<Vec<usize>> = indices(&window.kernel).collect();
    for image in 0..batch * channels {
        for place in indices(&places) {
            let inside = offsets.iter().filter_map(|o| window.position(&place, o, spatial));
            let best = inside.fold(None, |best: Option<usize>, p| match best {
                Some(b) if values[image * size + p] <= values[image * size + b] => Some(b),
                _ => Some(p),
            });
            found.push(best.map_or(f64::NEG_INFINITY, |b| values[image * size + b]));
            let mut own = best.unwrap_or(0);
            if let (true, [height, width]) = (columns_first, spatial) {
                own = own % width * height + own / width;
            }
            at.push((image * size + own) as i128);
        }
    }
    Ok(vec![of_numbers(x.dtype(), &shape, &found)?, of_integers(DType::I64, shape, &at)?])
}

/// Averages, or norms, of windows.
fn pool(node: &Node<'_>) -> super::Results {
    let x = node.operand(0)?;
    let (batch, channels, spatial) = image(x)?;
    let (window, places) = window(node, spatial)?;
    let padding_counts = node.int("count_include_pad", 0) == 1;
    let norm = (node.name() == "LpPool").then(|| node.int("p", 2) as f64);
    let size: usize = spatial.iter().product();
    let shape = [&[batch, channels][..], &places].concat();
    let values = x.to_f64();
    let mut found = Vec::with_capacity(node.count(&shape)?);
    let offsets: Vec<Vec<usize>> = indices(&window.kernel).collect();
    for image in 0..batch * channels {
        for place in indices(&places) {
            let inside: Vec<f64> = offsets
                .iter()
                .filter_map(|o| window.position(&place, o, spatial))
                .map(|p| values[image * size + p])
                .collect();
            // What rounding up adds after the padding does not count.
            let padded = || {
                let real = |o: &&Vec<usize>| {
                    window.at(&place, o).enumerate().all(|(a, i)| i < signed(spatial[a]) + window.after[a])
                };
                offsets.iter().filter(real).count()
            };
            let number = if padding_counts { padded() } else { inside.len() };
            found.push(match norm {
                Some(p) => inside.iter().map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p),
                None => inside.iter().sum::<f64>() / number as f64,
            });
        }
    }
    Ok(vec![of_numbers(x.dtype(), &shape, &found)?])
}
