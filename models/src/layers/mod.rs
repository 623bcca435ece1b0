//! The building blocks of architectures: blocks, heads, positions and the like.

pub(crate) mod activation;
pub(crate) mod alibi;
pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod builder;
<<<<<<< HEAD
pub(crate) mod chunks;
=======
pub(crate) mod convolution;
>>>>>>> 558e9eec (ResNet, ConvNeXt, ConvNeXt V2 and SegFormer: convolutions of images of any size, with batch norms in filters and biases)
pub(crate) mod decoder;
pub(crate) mod delta;
pub(crate) mod dense;
pub(crate) mod disentangled;
pub(crate) mod encoder;
pub(crate) mod experts;
pub(crate) mod heads;
pub(crate) mod latent;
pub(crate) mod norm;
pub(crate) mod patches;
pub(crate) mod pooling;
pub(crate) mod relative;
pub(crate) mod rope;
pub(crate) mod selective;
pub(crate) mod seq2seq;
pub(crate) mod sinks;
pub(crate) mod sinusoidal;
pub(crate) mod state_space;
pub(crate) mod vision;
pub(crate) mod windows;
pub(crate) mod xielu;
