//! The forms of graphs that a recipe can choose, which compute the same in different times.

use planish_passes::{AttentionForm, Packing, Target, TokenOrder};
use serde::{Deserialize, Serialize};

use super::{Recipe, RecipeError, refuse};

/// How the tokens of a batch are ordered in front of an attention without a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenOrderName {
    /// By position: the first token of each row, then the second ones.
    SequenceMajor,
    /// Row by row.
    BatchMajor,
}

/// What attention without a cache becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionName {
    /// Two products and a softmax.
    Products,
    /// ONNX Runtime's MultiHeadAttention, where it computes the same.
    Operator,
}

/// How linear layers of one operand, such as queries, keys and values, are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProjectionsName {
    /// In one product.
    Joined,
    /// Each in a product of its own.
    Apart,
}

/// Where the biases of linear layers are added that a norm follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BiasesName {
    /// In the norm before the layer.
    Absorbed,
    /// In the layer.
    Kept,
}

impl TokenOrderName {
    /// As passes have it.
    #[must_use]
    pub fn order(self) -> TokenOrder {
        match self {
            Self::SequenceMajor => TokenOrder::SequenceMajor,
            Self::BatchMajor => TokenOrder::BatchMajor,
        }
    }
}

impl AttentionName {
    /// As passes have it for a target whose usual form is of products.
    #[must_use]
    pub fn form(self, target: &Target) -> AttentionForm {
        match self {
            Self::Products => target.attention,
            Self::Operator => AttentionForm::MultiHead,
        }
    }
}

impl ProjectionsName {
    /// As passes have it.
    #[must_use]
    pub fn packing(self) -> Packing {
        match self {
            Self::Joined => Packing::All,
            Self::Apart => Packing::None,
        }
    }
}

impl Recipe {
    /// Refuses a form that the target does not leave to a recipe.
    ///
    /// # Errors
    /// The member, and the targets that it is for.
    pub fn check_forms(&self, target: &Target) -> Result<(), RecipeError> {
        for member in planish_passes::ORT.forms {
            if self.has(member) && !target.forms.contains(member) {
                let with = planish_passes::TARGETS.iter().filter(|other| other.forms.contains(member));
                let with = with.map(|other| other.name).collect::<Vec<&str>>().join(", ");
                let option = member.replace('_', "-");
                return refuse(format!("--recipe {option} is not for target {target}; it is for target {with}"));
            }
        }
        Ok(())
    }
}
