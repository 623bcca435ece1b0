//! Convolutions of frames that tell their positions.

use planish_ir::ops::BinaryKind;
use planish_ir::{DType, Origin, ValueId, Weight};

use super::settings::{Positions, Settings};
use super::time::{self, Window};
use super::{EPS, FRAMES};
use crate::ModelError;
use crate::layers::builder::Builder;
use crate::layers::convolution;
use crate::layers::norm::Norm;

const MODULE: &str = "encoder.pos_conv_embed";

impl Settings {
    /// What is added to frames: [batch_size, frames, hidden].
    pub(super) fn positions(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        let activation = self.front.activation;
        let window = Window::around(self.position_kernel, 1, self.position_groups.value);
        let square = [self.hidden; 2];
        let module = format!("{MODULE}.conv");
        let turned = format!("{MODULE}.channels");
        let x = match self.positions {
            Positions::Several => {
                let mut x = x;
                for i in 0..self.position_layers {
                    let at = |name: &str| format!("{MODULE}.layers.{i}.{name}");
                    let channels = time::turned(b, x, &at("channels"))?;
                    let conv = time::conv(b, channels, &at("conv"), square, window, true, FRAMES)?;
                    let frames = time::turned(b, conv, &at("frames"))?;
                    let normal = Norm::Plain.apply(b, frames, &at("layer_norm"), self.hidden, EPS)?;
                    x = activation.apply(b, normal, &at("activation"))?;
                }
                return Ok(x);
            }
            Positions::WeightOrBatchNorm if self.position_batch_norm => {
                let normal = self.batch_norm(b, x)?;
                let channels = time::turned(b, normal, &turned)?;
                time::conv(b, channels, &module, square, window, true, FRAMES)?
            }
            Positions::WeightNorm | Positions::WeightOrBatchNorm => {
                let channels = time::turned(b, x, &turned)?;
                time::weight_normalized(b, channels, &module, square, window, FRAMES)?
            }
        };
        let x = activation.apply(b, x, &format!("{MODULE}.activation"))?;
        time::turned(b, x, &format!("{MODULE}.frames"))
    }

    /// `torch.nn.BatchNorm1d` of frames. It is no part of the convolution, whose zeros around the frames it does not change.
    fn batch_norm(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        const NORM: &str = "encoder.pos_conv_embed.batch_norm";
        let statistics = convolution::affine(b, None, NORM, self.hidden)?;
        let [factors, shifts] = statistics.map(|numbers| {
            let weight = Weight::numbers(DType::F32, vec![self.hidden.value], &numbers);
            weight.unwrap_or_else(|| unreachable!("there is a number for each feature"))
        });
        let factors = b.graph.add_weight(&format!("{NORM}.weight"), factors, Origin::Module(NORM.into()));
        let shifts = b.graph.add_weight(&format!("{NORM}.bias"), shifts, Origin::Module(NORM.into()));
        let scaled = b.binary(BinaryKind::Mul, [x, factors], &format!("{NORM}.mul"))?;
        b.add(scaled, shifts, NORM)
    }
}
