//! How a model is divided among accelerators, as ranks and as stages: the memory of each, what goes between them, and the least
//! time of a run.

mod hardware;
mod split;
mod stage;

use planish_data::inputs::Sizes;
use planish_ir::Graph;
use serde::Serialize;

use super::{Asked, IMAGE_SIDE, Opened};

pub use hardware::{Device, Devices, Rates};
pub use split::Split;
use stage::Run;
pub use stage::{LeastTime, PlannedStage};

/// The share of a device's memory that is left to the driver, the runtime and its kernels.
pub const RESERVE: f64 = 0.1;

/// A plan for devices.
#[derive(Debug, Serialize)]
pub struct DevicePlan {
    /// The devices.
    pub devices: Devices,
    /// The ranks of each stage, and the number of stages.
    #[serde(flatten)]
    pub split: Split,
    /// Why ranks on all devices cannot share the model, where it is divided into stages for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The tokens of a row: of a prompt, and of the caches that fit.
    pub sequence: usize,
    /// The stages. All ranks of a stage hold and do as much.
    pub stages: Vec<PlannedStage>,
    /// The most rows of so many tokens that fit on all devices, 0 where one does not; absent where the memory of a row is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The least milliseconds of one prompt of one row; absent where rates of devices are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_ms: Option<f64>,
    /// The least milliseconds of one step of one row after such a prompt; absent without a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_ms: Option<f64>,
}

impl Opened {
    /// Divides the model, which has been [raised](Self::raise), among devices: as the user says, or else among ranks on all
    /// devices, or else into a stage on each.
    ///
    /// # Errors
    /// When the model has several parts, or cannot be divided so.
    pub fn devices(&self, devices: &Devices, asked: Asked) -> Result<DevicePlan, String> {
        let [(name, graph)] = self.graphs.as_slice() else {
            let names: Vec<&str> = self.graphs.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("--devices takes a model of one graph, and this one has {}", names.join(", ")));
        };
        let (sizes, is_decoder) = (self.sizes(asked), graph.interface.has_cache());
        let balanced = if is_decoder { Sizes { batch: 1, sequence: 1, side: Some(IMAGE_SIDE) } } else { sizes };
        let run = Run { device: &devices.device, sequence: sizes.sequence, is_decoder };
        let (split, stages, refused) =
            divided(&run, graph, devices, balanced).map_err(|error| format!("--devices {devices}: {name}: {error}"))?;
        let sum = |of: fn(&PlannedStage) -> Option<LeastTime>| {
            stages.iter().map(|stage| Some(of(stage)?.ms)).sum::<Option<f64>>()
        };
        Ok(DevicePlan {
            devices: devices.clone(),
            split,
            refused,
            sequence: sizes.sequence,
            batch: stages.iter().map(|stage| stage.batch).min().flatten(),
            prompt_ms: sum(|stage| stage.prompt),
            step_ms: sum(|stage| stage.step),
            stages,
        })
    }
}

/// How the model is divided, its stages, and why they are no ranks on all devices where that is the reason for stages.
fn divided(
    run: &Run<'_>,
    graph: &Graph,
    devices: &Devices,
    balanced: Sizes,
) -> Result<(Split, Vec<PlannedStage>, Option<String>), String> {
    if let Some(split) = devices.split {
        return Ok((split, run.stages(graph, split, balanced)?, None));
    }
    let ranks = Split::ranks(devices.count);
    let refused = match run.stages(graph, ranks, balanced) {
        Ok(stages) => return Ok((ranks, stages, None)),
        Err(refused) => refused,
    };
    let split = Split::stages(devices.count);
    match run.stages(graph, split, balanced) {
        Ok(stages) => Ok((split, stages, Some(refused))),
        Err(error) => Err(format!("{refused}. A stage on each device: {error}")),
    }
}
