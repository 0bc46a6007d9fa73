//! Live figures while a load runs, from intervals as they come. Never the source of a result.
//!
//! The store publishes on a [`Feed`]; a [`Follower`] turns the last seconds into rates a few times per second and shows
//! them. Histograms are copied and decoded only while someone watches, each once. The cost per interval does not depend
//! on the number of agents.

mod follow;
mod steady;
mod window;

pub use benchmesh_store::ingest::feed::{Feed, LiveInterval, Viewer};
pub use follow::{Figures, Follower, LiveView, RunningLoad, TaskRate, follow};
pub use steady::{Steadiness, SteadyJudge, judge};
