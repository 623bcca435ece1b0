//! The GPU while cells are measured: its clocks, its power, and what keeps the clocks down.

use planish_artifact::backend::is_on_gpu;
use planish_runtimes::nvml::{GpuMonitor, GpuState};
use serde::{Deserialize, Serialize};

use super::document::Cell;

/// Clocks of cells that differ by less are alike.
const ALIKE: f64 = 0.03;

/// The GPU after the visits of a cell, at the end of their timed runs. What it does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuRuns {
    /// The least and the highest clock of the multiprocessors, in MHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sm_mhz: Option<[u32; 2]>,
    /// The same of the memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_mhz: Option<[u32; 2]>,
    /// The highest temperature, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub temperature_c: Option<u32>,
    /// The mean power, in watts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power_w: Option<f64>,
    /// What kept the clocks down at any of these times.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub throttled: Vec<String>,
}

impl GpuRuns {
    /// What some states come to; `None` where there is none.
    pub(super) fn of(states: &[GpuState]) -> Option<Self> {
        let ends = |of: fn(&GpuState) -> Option<u32>| {
            let all = || states.iter().filter_map(of);
            Some([all().min()?, all().max()?])
        };
        let powers: Vec<f64> = states.iter().filter_map(|state| state.power_w).collect();
        let mut throttled: Vec<String> =
            states.iter().flat_map(|state| &state.throttled).map(ToString::to_string).collect();
        throttled.sort_unstable();
        throttled.dedup();
        (!states.is_empty()).then(|| Self {
            sm_mhz: ends(|state| state.sm_mhz),
            memory_mhz: ends(|state| state.memory_mhz),
            temperature_c: ends(|state| state.temperature_c).map(|[_, most]| most),
            power_w: (!powers.is_empty()).then(|| powers.iter().sum::<f64>() / powers.len() as f64),
            throttled,
        })
    }

    /// What makes the figures of the cell less certain.
    pub(super) fn warnings(&self) -> Vec<String> {
        let throttled = !self.throttled.is_empty();
        throttled.then(|| format!("the GPU throttled: {}", self.throttled.join(", "))).into_iter().collect()
    }
}

/// Warns of cells whose highest clock of the multiprocessors is below that of another cell.
pub(super) fn compare_clocks(cells: &mut [Cell]) {
    let clock = |cell: &Cell| cell.gpu.as_ref()?.sm_mhz.map(|[_, most]| most);
    let Some(most) = cells.iter().filter_map(clock).max() else { return };
    for cell in cells {
        if let Some(own) = clock(cell).filter(|own| f64::from(*own) < f64::from(most) * (1.0 - ALIKE)) {
            cell.warnings.push(format!("the GPU's clock was {own} MHz at most, and {most} MHz in another cell"));
        }
    }
}

/// What reads the GPU, where one of these runtimes computes there.
pub(super) fn monitor<'a>(mut runtimes: impl Iterator<Item = &'a str>) -> Option<GpuMonitor> {
    if runtimes.any(is_on_gpu) { GpuMonitor::open() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::document::examples;
    use super::*;

    fn state(sm_mhz: u32, power_w: f64, throttled: Vec<&'static str>) -> GpuState {
        GpuState { sm_mhz: Some(sm_mhz), power_w: Some(power_w), throttled, ..GpuState::default() }
    }

    #[test]
    fn states_come_to_their_ends_and_means() {
        assert_eq!(GpuRuns::of(&[]), None);
        let states =
            [state(1900, 300.0, vec![]), state(1500, 500.0, vec!["power cap"]), state(1600, 400.0, vec!["power cap"])];
        let runs = GpuRuns::of(&states).unwrap();
        assert_eq!((runs.sm_mhz, runs.memory_mhz, runs.power_w), (Some([1500, 1900]), None, Some(400.0)));
        assert_eq!(runs.warnings(), ["the GPU throttled: power cap"]);
        assert_eq!(serde_json::to_string(&GpuRuns::of(&[GpuState::default()]).unwrap()).unwrap(), "{}");
    }

    #[test]
    fn cells_with_another_clock_have_a_warning() {
        let cell = |id: &str, mhz: Option<u32>| {
            let gpu = mhz.and_then(|mhz| GpuRuns::of(&[state(mhz, 300.0, vec![])]));
            Cell { gpu, ..examples::cell(id, 8, Some(1)) }
        };
        let mut cells =
            [cell("fast", Some(1980)), cell("alike", Some(1950)), cell("slow", Some(1410)), cell("cpu", None)];
        let before: Vec<usize> = cells.iter().map(|cell| cell.warnings.len()).collect();
        compare_clocks(&mut cells);
        let new: Vec<usize> = cells.iter().zip(before).map(|(cell, before)| cell.warnings.len() - before).collect();
        assert_eq!(new, [0, 0, 1, 0]);
        assert_eq!(
            cells[2].warnings.last().unwrap(),
            "the GPU's clock was 1410 MHz at most, and 1980 MHz in another cell"
        );
    }

    #[test]
    fn no_gpu_is_asked_for_what_runs_on_the_processor() {
        assert!(monitor(["ort", "reference", "cuda-emulator"].into_iter()).is_none());
    }
}
