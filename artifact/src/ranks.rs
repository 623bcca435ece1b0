//! Models that are cut for several devices: what `planish.json` says of their ranks.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use planish_passes::shard::{Plan, PlannedCollective};
use planish_runtimes::{Model, ReferenceRuntime, Session, SessionOptions, Sharded};
use serde::{Deserialize, Serialize};

use crate::Artifact;
use crate::manifest::PartManifest;
use crate::value::ValueInfo;

/// Which rank a graph is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankManifest {
    /// The part of the model that the graphs of all ranks are together.
    pub part: String,
    /// The rank, from 0 on.
    pub rank: usize,
}

impl RankManifest {
    /// The name of the graph of a rank.
    #[must_use]
    pub fn name(&self, ranks: usize) -> String {
        format!("{}_tp{ranks}_rank{}", self.part, self.rank)
    }
}

/// How a model is cut for ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorParallel {
    /// The number of ranks.
    pub ranks: usize,
    /// Its parts.
    pub parts: Vec<ShardedPart>,
}

/// How a part of a model is cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardedPart {
    /// Its name.
    pub name: String,
    /// The bytes of its weights before precision and padding.
    pub weight_bytes: u64,
    /// The bytes of those that a rank has, of the rank that has most.
    pub rank_weight_bytes: u64,
    /// The inputs and outputs of which each rank has a part.
    pub sharded: Vec<ShardedValue>,
    /// What ranks exchange, in order.
    pub collectives: Vec<CollectiveManifest>,
}

/// An input or output of which each rank has a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardedValue {
    /// Its name.
    pub name: String,
    /// The axis that is cut.
    pub axis: usize,
    /// How many neighbouring ranks have each part.
    pub replicas: usize,
}

/// An exchange of tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveManifest {
    /// `all_reduce` or `all_gather`.
    pub operator: String,
    /// What a rank gives, by the name of what the collective completes.
    #[serde(flatten)]
    pub value: ValueInfo,
    /// The bytes that a rank gives, by the symbols of inputs.
    pub bytes: String,
}

impl ShardedPart {
    /// That of a plan.
    #[must_use]
    pub fn of(name: &str, plan: &Plan) -> Self {
        let sharded = plan.caches.iter().filter_map(|(name, cut)| {
            // A cache is one run of heads.
            let replicas = cut.runs.first()?.copies;
            Some(ShardedValue { name: name.clone(), axis: cut.axis, replicas })
        });
        Self {
            name: name.to_owned(),
            weight_bytes: plan.bytes(),
            rank_weight_bytes: plan.rank_bytes(),
            sharded: sharded.collect(),
            collectives: plan.collectives.iter().map(CollectiveManifest::of).collect(),
        }
    }
}

impl CollectiveManifest {
    fn of(planned: &PlannedCollective) -> Self {
        Self {
            operator: planned.operator.to_owned(),
            value: ValueInfo { name: planned.name.clone(), ty: planned.tensor.clone().into() },
            bytes: planned.bytes_by_symbol().map_or_else(String::new, |bytes| bytes.to_string()),
        }
    }
}

impl Artifact {
    /// The graphs of the ranks of a part, in order.
    pub(crate) fn ranks(&self, part: &str) -> Vec<&PartManifest> {
        let of_part = |other: &&PartManifest| other.rank.as_ref().is_some_and(|rank| rank.part == part);
        self.manifest.parts.iter().filter(of_part).collect()
    }

    /// The part of this name, or its first rank where it is cut for ranks: all have the same inputs and outputs.
    ///
    /// # Errors
    /// When there is none.
    pub fn first_rank(&self, part: &str) -> Result<&PartManifest> {
        self.ranks(part).first().map_or_else(|| self.part(part), |first| Ok(first))
    }

    /// All ranks of a part as one session of the reference interpreter, which takes and gives what the whole part does.
    ///
    /// # Errors
    /// As [`Self::file`], and when a graph is none of such a rank.
    pub fn load_ranks(&self, part: &str, options: SessionOptions) -> Result<Box<dyn Session>> {
        let of_part = self.manifest.tensor_parallel.iter().flat_map(|cut| &cut.parts).find(|other| other.name == part);
        let of_part =
            of_part.with_context(|| format!("planish.json does not say how {part} is cut; compile the model again"))?;
        let sharded = of_part.sharded.iter();
        let sharded: BTreeMap<String, Sharded> =
            sharded.map(|value| (value.name.clone(), Sharded { axis: value.axis, replicas: value.replicas })).collect();
        let ranks = self.ranks(part);
        let files = ranks.iter().map(|rank| self.file(rank)).collect::<Result<Vec<_>>>()?;
        let interfaces: Vec<_> = ranks.iter().map(|rank| rank.interface()).collect();
        let format = self.backend.emitter.format();
        let models = files.iter().zip(&interfaces).map(|(file, of)| Model::file(format, file).with(of));
        Ok(ReferenceRuntime::default().load_ranks(models, sharded, options)?)
    }

    /// Refuses the graph of one rank, which runs with the others only.
    ///
    /// # Errors
    /// When the part is one.
    pub fn refuse_rank(part: &PartManifest) -> Result<()> {
        match &part.rank {
            Some(rank) => bail!(
                "{} is rank {} of {}, which runs beside the other ranks on a GPU each; `planish verify` runs all ranks here",
                part.name,
                rank.rank,
                rank.part
            ),
            None => Ok(()),
        }
    }
}
