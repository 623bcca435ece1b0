//! How many devices share a stage, and how many stages there are.

use serde::Serialize;

/// Devices as stages of several ranks: their product is the number of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Split {
    /// The ranks of a stage, which share its layers (tensor parallelism).
    pub tensor_parallel: usize,
    /// The stages, which follow one another (pipeline parallelism).
    pub pipeline: usize,
}

impl Split {
    /// One stage, which all devices share.
    pub(super) fn ranks(devices: usize) -> Self {
        Self { tensor_parallel: devices, pipeline: 1 }
    }

    /// A stage on each device.
    pub(super) fn stages(devices: usize) -> Self {
        Self { tensor_parallel: 1, pipeline: devices }
    }

    /// Reads `tp=8,pp=4` for so many devices. One of the two may be left out, and is then what the other leaves.
    ///
    /// # Errors
    /// When a setting is not known, is there twice or is no number, or the product is not the number of devices.
    pub(super) fn read(settings: &str, devices: usize) -> Result<Self, String> {
        let (mut ranks, mut stages) = (None, None);
        for setting in settings.split(',') {
            let form = || format!("`{setting}`: expected tp=N, pp=N or both, such as tp=8,pp=4");
            let (key, number) = setting.split_once('=').ok_or_else(form)?;
            let place = match key {
                "tp" => &mut ranks,
                "pp" => &mut stages,
                _ => return Err(form()),
            };
            let number = number.parse::<usize>().ok().filter(|number| *number > 0).ok_or_else(form)?;
            if place.replace(number).is_some() {
                return Err(format!("`{key}` is there twice; leave out one"));
            }
        }
        let rest = |key: &str, number: usize| match devices.is_multiple_of(number) {
            true => Ok(devices / number),
            false => Err(format!("{devices} devices do not divide by {key}={number}; take a divisor of {devices}")),
        };
        let (tensor_parallel, pipeline) = match (ranks, stages) {
            (Some(ranks), None) => (ranks, rest("tp", ranks)?),
            (None, Some(stages)) => (rest("pp", stages)?, stages),
            (Some(ranks), Some(stages)) if ranks.checked_mul(stages) == Some(devices) => (ranks, stages),
            (ranks, stages) => {
                let (ranks, stages) = (ranks.unwrap_or(1), stages.unwrap_or(1));
                let product = ranks.saturating_mul(stages);
                return Err(format!("tp={ranks},pp={stages} are {product} devices, and there are {devices}"));
            }
        };
        Ok(Self { tensor_parallel, pipeline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_the_number_of_devices() {
        let both = Split { tensor_parallel: 8, pipeline: 4 };
        for text in ["tp=8,pp=4", "pp=4,tp=8", "tp=8", "pp=4"] {
            assert_eq!(Split::read(text, 32), Ok(both), "{text}");
        }
        for (text, part) in [
            ("tp=8,pp=3", "tp=8,pp=3 are 24 devices, and there are 32"),
            ("tp=5", "32 devices do not divide by tp=5"),
            ("pp=64", "32 devices do not divide by pp=64"),
            ("tp=2,tp=16", "`tp` is there twice"),
            ("ep=8", "`ep=8`: expected tp=N, pp=N or both"),
            ("tp=0", "`tp=0`: expected"),
            ("", "``: expected"),
        ] {
            let error = Split::read(text, 32).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
