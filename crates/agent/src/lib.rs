//! placeholder
pub mod sampler;
